//! `varve pool`: the verbs of thin pools.

use super::options::layouts_on_disks;
use super::{
    ActivateOptions, Change, ConvertOptions, Destroy, DiskWords, LayoutOptions, TrashOptions, Waiting,
};
use clap::{Args, Subcommand};
use varve_api::{Discards, OverCommit, WhenFull};

#[derive(Debug, Subcommand)]
pub(crate) enum PoolVerb {
    /// Make a thin pool.
    Create(Box<PoolCreateOptions>),
    /// List thin pools.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this group.
        #[arg(value_name = "VG")]
        group: Option<String>,
    },
    /// Show a pool and where it is.
    Show {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
    },
    /// Make a pool larger while it is in use.
    Extend {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
        /// The new size, or +SIZE more.
        #[arg(long, value_name = "[+]SIZE", allow_hyphen_values = true)]
        size: String,
        #[command(flatten)]
        disks: DiskWords,
        #[command(flatten)]
        change: Change,
    },
    /// Change what a pool does when it fills, with discards, and with promises.
    #[command(name = "change")]
    Declare {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
        #[command(flatten)]
        policy: PoolPolicyOptions,
        #[command(flatten)]
        change: Change,
    },
    /// Give a pool another name in its group.
    Rename {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
        /// Its new name: POOL, or VG/POOL of the same group.
        #[arg(value_name = "NEW")]
        to: String,
        #[command(flatten)]
        change: Change,
    },
    /// Take a pool and its volumes into use again that failed or was deactivated.
    Activate {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
        #[command(flatten)]
        options: ActivateOptions,
    },
    /// Take a pool and its volumes out of use until it is activated; what is durable stays.
    Deactivate {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
        #[command(flatten)]
        change: Change,
    },
    /// Convert a pool to another layout while it is in use.
    Convert {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
        #[command(flatten)]
        options: Box<ConvertOptions>,
    },
    /// Check the last commit of a pool while it serves: every node, every count of holders.
    Check {
        /// The pool.
        #[arg(value_name = "VG/POOL")]
        name: String,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Remove pools that hold no volume: they go to the trash of their group.
    #[command(visible_alias = "rm")]
    Remove {
        /// The pools.
        #[arg(value_name = "VG/POOL", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        trash: TrashOptions,
        #[command(flatten)]
        destroy: Destroy,
    },
}

/// What a pool does when it fills.
#[derive(Args, Clone, Debug)]
pub(crate) struct PoolPolicyOptions {
    /// What becomes of a write that needs space when the pool is full and the group too: it waits, or it fails
    /// [default: pause].
    #[arg(long, value_name = "pause|error")]
    pub(crate) when_full: Option<WhenFull>,
    /// How long such a write waits at most: 500ms, 60s, 5m, 1h [default: 60s].
    #[arg(long, value_name = "TIME")]
    pub(crate) pause_timeout: Option<String>,
    /// When the pool is extended from the group, and by how much of its size [default: 80%:20%].
    #[arg(long, value_name = "FILL%:GROWTH%|off")]
    pub(crate) auto_extend: Option<String>,
    /// What becomes of what clients discard: nothing; it is free in the pool; or blocks that are
    /// no longer needed are discarded on the disks too, so that files below shrink [default: keep].
    #[arg(long, value_name = "ignore|keep|pass-down")]
    pub(crate) discards: Option<Discards>,
    /// Whether volumes and snapshots may be promised more than the pool can hold [default: allow].
    #[arg(long, value_name = "allow|forbid")]
    pub(crate) over_commit: Option<OverCommit>,
}

/// What `varve pool create` takes.
#[derive(Args, Debug)]
#[command(mut_arg("layout", |arg| arg.value_parser(layouts_on_disks())))]
pub(crate) struct PoolCreateOptions {
    /// The pool's name.
    #[arg(value_name = "VG/POOL")]
    pub(crate) name: String,
    /// Its size, rounded up to whole extents; 50%FREE takes half of the group's free space.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) size: String,
    #[command(flatten)]
    pub(crate) layout: LayoutOptions,
    /// Bytes in a block, in which space is laid out; it is shared and freed in units of 4K [default: 64K].
    #[arg(long, value_name = "SIZE")]
    pub(crate) block_size: Option<String>,
    #[command(flatten)]
    pub(crate) policy: PoolPolicyOptions,
    #[command(flatten)]
    pub(crate) change: Change,
}
