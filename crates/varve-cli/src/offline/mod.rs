//! Tools for disks that no daemon holds: they open devices themselves, locked, and only to read.

mod check;
mod disks;
mod dump;

pub(crate) use check::check;
pub(crate) use dump::dump;
