//! `varve array`: the verbs of mirrors and ddraid.

use super::{ArrayPolicyOptions, Change, Destroy, Waiting};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ArrayVerb {
    /// Show the members of an array, and how far they are.
    Show {
        /// The volume or pool, VG/LV.
        name: String,
    },
    /// Change what the arrays of a volume or pool, and of its snapshots, declare.
    Change(ArrayChangeOptions),
    /// Take the members on a disk out of use, as if it had failed.
    Fail {
        /// The volume or pool, VG/LV.
        name: String,
        /// The disk: its path, identity or name in the group.
        disk: String,
        #[command(flatten)]
        change: Change,
    },
    /// Put the members on a disk on another one, and rebuild them there.
    Replace {
        /// The volume or pool, VG/LV.
        name: String,
        /// The disk: its path, identity or name in the group. It may be missing.
        disk: String,
        /// Another disk of the group [default: the emptiest that holds no other member].
        to: Option<String>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Compare all members of an array while it serves, and make them equal where they differ.
    Scrub(ScrubOptions),
    /// Fill a member anew, or accept the loss of regions that wait for a member which does not come back.
    Rebuild {
        /// The volume or pool, VG/LV.
        name: String,
        /// The disk whose member is filled anew from the others: its path, identity or name in the group.
        #[arg(conflicts_with = "accept_stale")]
        disk: Option<String>,
        /// Take these regions as the members that are here have them: numbers, runs such as 5-9, or all. What was being written there
        /// when the power failed is lost; varve array show lists them.
        #[arg(long, value_name = "REGION", num_args = 1.., value_delimiter = ',')]
        accept_stale: Vec<String>,
        #[command(flatten)]
        destroy: Destroy,
        #[command(flatten)]
        waiting: Waiting,
    },
}

/// What the arrays of a volume or pool declare from now on.
#[derive(Args, Debug)]
pub(crate) struct ArrayChangeOptions {
    /// The volume or pool.
    #[arg(value_name = "VG/LV")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) policy: ArrayPolicyOptions,
    /// Put the log of the volume's or pool's own array on this disk, on which no member is: its path, identity or name in the group;
    /// or back on its members.
    #[arg(long, value_name = "PV|members")]
    pub(crate) log: Option<String>,
    #[command(flatten)]
    pub(crate) change: Change,
}

/// How an array is scrubbed.
#[derive(Args, Debug)]
pub(crate) struct ScrubOptions {
    /// The volume or pool.
    #[arg(value_name = "VG/LV")]
    pub(crate) name: String,
    /// At most so many bytes of it a second, such as 50M; while clients are served it is slow by itself.
    #[arg(long, value_name = "BYTES")]
    pub(crate) rate: Option<String>,
    /// Only count what differs or cannot be read; write nothing.
    #[arg(long)]
    pub(crate) check_only: bool,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}
