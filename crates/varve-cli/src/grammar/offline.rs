//! `varve check`, `dump`, `restore` and `repair`: tools for disks that no daemon holds.

use super::Destroy;
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

/// What `varve restore` takes.
#[derive(Args, Debug)]
pub(crate) struct RestoreOptions {
    /// A file that `varve vg backup` wrote.
    pub(crate) file: PathBuf,
    /// All disks of the group.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}

/// What `varve repair` takes.
#[derive(Args, Debug)]
pub(crate) struct RepairOptions {
    /// All disks of the groups to mend.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}
