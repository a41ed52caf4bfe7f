//! `varve array`: the verbs of mirrors and ddraid.

use super::{Change, OfflineWords};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ArrayVerb {
    /// Show the members of an array, and how far they are.
    Show {
        /// The volume or pool, VG/LV.
        name: String,
    },
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
    },
    /// Compare data and parity (not built yet).
    Scrub(OfflineWords),
    /// Fill a member anew (not built yet).
    Rebuild(OfflineWords),
}
