//! `varve array`: scrub; the others are understood, and not built yet.

use super::{Change, OfflineWords, Waiting};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ArrayVerb {
    /// Show the members of an array (not built yet).
    Show(OfflineWords),
    /// Compare all members of an array while it serves, and make them equal where they differ.
    Scrub(ScrubOptions),
    /// Fill a member anew (not built yet).
    Rebuild(OfflineWords),
    /// Exchange a member (not built yet).
    Replace(OfflineWords),
    /// Take a member out (not built yet).
    Fail(OfflineWords),
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
