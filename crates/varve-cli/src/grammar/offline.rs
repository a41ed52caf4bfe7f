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
    /// Print the metadata of this snapshot store or pool instead of the group's description: VG/LV, VG/LV#N for the Nth
    /// independent snapshot's, or VG/POOL.
    #[arg(long, value_name = "VG/LV")]
    pub(crate) store: Option<String>,
    /// Print in which bytes two volumes or snapshots of one pool differ: VG/LV or VG/LV@SNAP each.
    #[arg(long, value_name = "VOLUME", num_args = 2, conflicts_with = "store")]
    pub(crate) delta: Vec<String>,
}

/// What `varve restore` takes.
#[derive(Args, Debug)]
pub(crate) struct RestoreOptions {
    /// A file that `varve vg backup` wrote, or the daemon to its archive; with `--store` a text that `varve dump --store` printed, mended or not.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// All disks of the group.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Make a new copy of this snapshot store instead: VG/LV, or VG/LV#N for the Nth independent snapshot's; or of the
    /// metadata of a pool: VG/POOL. The old one is kept.
    #[arg(long, value_name = "VG/LV")]
    pub(crate) store: Option<String>,
    /// A volume or pool that may lose what it holds and the backup does not give it; once for each.
    #[arg(long, value_name = "VG/LV", conflicts_with = "store")]
    pub(crate) drop: Vec<String>,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}

/// What `varve repair` takes.
#[derive(Args, Debug)]
pub(crate) struct RepairOptions {
    /// All disks of the group.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Make a new copy of this snapshot store instead: VG/LV, or VG/LV#N for the Nth independent snapshot's; or of the
    /// metadata of a pool: VG/POOL. The old one is kept. Exit code 9 says that something could not be saved.
    #[arg(long, value_name = "VG/LV")]
    pub(crate) store: Option<String>,
    /// The daemon's state directory, whose archive of groups is searched if the disks do not say enough
    /// [default: that of `varve daemon`].
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}
