//! `varve check` and `varve dump`: tools for disks that no daemon holds.

use clap::Args;
use std::path::PathBuf;

/// What `varve check` takes.
#[derive(Args, Debug)]
pub(crate) struct CheckOptions {
    /// All disks of the groups to check.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// What `varve dump` takes.
#[derive(Args, Debug)]
pub(crate) struct DumpOptions {
    /// All disks of one group.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}
