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
    /// Print the metadata of this snapshot store instead of the group's description: VG/LV, or VG/LV#N for the Nth
    /// independent snapshot's.
    #[arg(long, value_name = "VG/LV")]
    pub(crate) store: Option<String>,
}

/// What `varve restore` takes.
#[derive(Args, Debug)]
pub(crate) struct RestoreOptions {
    /// A file that `varve vg backup` wrote; with `--store` a text that `varve dump --store` printed, mended or not.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// All disks of the group.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Make a new copy of this snapshot store instead: VG/LV, or VG/LV#N for the Nth independent snapshot's. The old
    /// one is kept.
    #[arg(long, value_name = "VG/LV")]
    pub(crate) store: Option<String>,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}

/// What `varve repair` takes.
#[derive(Args, Debug)]
pub(crate) struct RepairOptions {
    /// All disks of the group.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Make a new copy of this snapshot store instead: VG/LV, or VG/LV#N for the Nth independent snapshot's. The old
    /// one is kept.
    #[arg(long, value_name = "VG/LV")]
    pub(crate) store: Option<String>,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}
