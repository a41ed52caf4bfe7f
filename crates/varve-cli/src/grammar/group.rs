//! `varve vg`: the verbs of volume groups.

use super::{ActivateOptions, Change, Destroy, DiskOptions, Force};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use varve_api::{CachePolicy, MetadataOrder};

#[derive(Debug, Subcommand)]
pub(crate) enum GroupVerb {
    /// Make a group of disks; disks without a label get one.
    Create(Box<GroupCreateOptions>),
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
    /// Change how a group keeps the metadata of its snapshot stores and pools, while they are in use, and what is removed.
    #[command(name = "change")]
    Declare {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        #[command(flatten)]
        metadata: MetadataOptions,
        /// How long volumes and pools that are removed stay in the trash; 0: they go at once [default: 24h].
        #[arg(long, value_name = "TIME")]
        trash: Option<String>,
        #[command(flatten)]
        change: Change,
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
        force: Force,
        #[command(flatten)]
        change: Change,
    },
    /// Take every volume and pool of a group into use again.
    Activate {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        #[command(flatten)]
        options: ActivateOptions,
    },
    /// Take every volume and pool of a group out of use until it is activated; what is durable stays.
    Deactivate {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
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
        /// A volume or pool that may lose what the backup does not give it; once for each.
        #[arg(long, value_name = "VG/LV")]
        drop: Vec<String>,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// Take back the last change of a group's description, or the last ones: what is lost by that is refused, or named with --drop.
    Undo {
        /// The group.
        #[arg(value_name = "VG")]
        name: String,
        /// The number of the change that is to be the last one; `vg history` lists them [default: the one before the last].
        #[arg(long, value_name = "VERSION")]
        to: Option<u64>,
        /// A volume or pool that may lose what it was given since; once for each.
        #[arg(long, value_name = "VG/LV")]
        drop: Vec<String>,
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

/// How a group keeps the metadata of its snapshot stores and pools.
#[derive(Args, Clone, Debug)]
pub(crate) struct MetadataOptions {
    /// How much of the metadata of all snapshot stores and pools is kept in memory: in all, or for each GiB of the volumes
    /// with snapshots and of the pools (8K-per-GiB) [default: 64M].
    #[arg(long, value_name = "SIZE|SIZE-per-GiB")]
    pub(crate) cache: Option<String>,
    /// What goes first when that is too little [default: sieve].
    #[arg(long, value_name = "round-robin|fifo|lru|sieve")]
    pub(crate) cache_policy: Option<CachePolicy>,
    /// When metadata is written: later, with a log before it, or with each batch of changes [default: logged].
    #[arg(long, value_name = "logged|write-through")]
    pub(crate) metadata: Option<MetadataOrder>,
}

/// What `varve vg create` takes.
#[derive(Args, Debug)]
pub(crate) struct GroupCreateOptions {
    /// The group's name.
    #[arg(value_name = "VG")]
    pub(crate) name: String,
    /// Disks, partitions or files.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Bytes in an extent, a power of two [default: 4M].
    #[arg(long, value_name = "SIZE")]
    pub(crate) extent_size: Option<String>,
    /// How the disks are reached: past the operating system's cache, or through it.
    #[arg(long, value_name = "direct|buffered")]
    pub(crate) disk_cache: Option<varve_api::Cache>,
    #[command(flatten)]
    pub(crate) metadata: MetadataOptions,
    #[command(flatten)]
    pub(crate) destroy: Destroy,
}
