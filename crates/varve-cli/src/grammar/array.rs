//! `varve array`: understood, and not built yet.

use super::OfflineWords;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ArrayVerb {
    /// Show the members of an array (not built yet).
    Show(OfflineWords),
    /// Compare data and parity (not built yet).
    Scrub(OfflineWords),
    /// Fill a member anew (not built yet).
    Rebuild(OfflineWords),
    /// Exchange a member (not built yet).
    Replace(OfflineWords),
    /// Take a member out (not built yet).
    Fail(OfflineWords),
}
