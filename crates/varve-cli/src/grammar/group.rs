//! `varve vg`: the verbs of volume groups.

use super::{Change, Destroy, DiskOptions};
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupVerb {
    /// Make a group of disks; disks without a label get one.
    Create {
        /// The group's name.
        #[arg(value_name = "VG")]
        name: String,
        /// Disks, partitions or files.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
        /// Bytes in an extent, a power of two [default: 4M].
        #[arg(long, value_name = "SIZE")]
        extent_size: Option<String>,
        #[command(flatten)]
        disk: DiskOptions,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// List groups.
    #[command(visible_alias = "ls")]
    List,
    /// Show a group and its disks.
    Show {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
    },
    /// Add disks to a group; disks without a label get one.
    Extend {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        /// Disks, partitions or files.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
        #[command(flatten)]
        disk: DiskOptions,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// Take an unused disk, or all missing ones, out of a group.
    Reduce {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        /// The disk.
        #[arg(required_unless_present = "missing", conflicts_with = "missing")]
        path: Option<String>,
        /// Give up the disks that are missing.
        #[arg(long)]
        missing: bool,
        /// And the volumes that lie on them.
        #[arg(long, requires = "missing")]
        with_volumes: bool,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// Give a group another name.
    Rename {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        /// Its new name.
        #[arg(value_name = "NEW")]
        to: String,
        #[command(flatten)]
        change: Change,
    },
    /// Give up an empty group; its disks stay labelled.
    #[command(visible_alias = "rm")]
    Remove {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// Write a group's description to a file.
    Backup {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        /// The file to write.
        file: PathBuf,
        #[command(flatten)]
        change: Change,
    },
    /// Write a description back to the group's disks.
    Restore {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        /// A file that `backup` wrote.
        file: PathBuf,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// List the changes that the group's disks remember.
    History {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
    },
}
