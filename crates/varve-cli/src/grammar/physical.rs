//! `varve pv`: the verbs of physical volumes.

use super::options::yes_or_no;
use super::{Change, Destroy, DiskOptions, Waiting};
use clap::{ArgAction, Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum PhysicalVerb {
    /// Label disks, partitions or files.
    Create {
        /// Disks, partitions or files.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
        /// Make new sparse files of this size.
        #[arg(long)]
        size: Option<String>,
        #[command(flatten)]
        disk: DiskOptions,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// List the disks that the daemon knows.
    #[command(visible_alias = "ls")]
    List,
    /// Show a disk and what was counted of it.
    Show {
        /// The disk: its path or its identity.
        disk: String,
    },
    /// Take labelled disks into use, or find moved ones again.
    Scan {
        /// Disks, partitions or files; none: look again for all that are remembered.
        #[arg(value_name = "PATH")]
        paths: Vec<String>,
        /// Agree that the disk images be opened which groups name as origins of their volumes, and that the programs be asked which
        /// they name as mappers.
        #[arg(long)]
        trust_images: bool,
        #[command(flatten)]
        disk: DiskOptions,
        #[command(flatten)]
        change: Change,
    },
    /// Change what a disk is for.
    Change(DiskChange),
    /// Wipe the label of a disk that no group uses.
    #[command(visible_alias = "rm")]
    Remove {
        /// The disk.
        path: String,
        #[command(flatten)]
        destroy: Destroy,
    },
    /// Release a disk that no group uses, and leave what is on it as it is.
    Forget {
        /// The disk: its path or its identity.
        path: String,
        #[command(flatten)]
        change: Change,
    },
    /// Move what is on a disk to others, while it is used.
    Move {
        /// The disk to empty.
        from: String,
        /// The disks that take it; any others of the group if none is named.
        to: Vec<String>,
        /// Copy at most so many bytes in a second.
        #[arg(long, value_name = "SIZE")]
        rate: Option<String>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Use a disk up to where its file or device ends now, or less of it.
    Resize {
        /// The disk: its path or its identity.
        disk: String,
        /// Use so much of it: what is behind can be cut off afterwards. Nothing may be there.
        #[arg(long)]
        size: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    /// Put all members of arrays on a disk, which may be missing, on others, and rebuild them there.
    Replace {
        /// The disk whose members go elsewhere.
        from: String,
        /// Another disk of its group [default: the emptiest for each array that holds no other member of it].
        to: Option<String>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        waiting: Waiting,
    },
}

/// What a disk is for from now on.
#[derive(Args, Debug)]
pub(crate) struct DiskChange {
    /// The disk: its path or its identity.
    pub(crate) disk: String,
    /// Whether it is kept for members of arrays whose disks fail.
    #[arg(long, value_name = "yes|no", action = ArgAction::Set, value_parser = yes_or_no())]
    pub(crate) spare: bool,
    #[command(flatten)]
    pub(crate) change: Change,
}
