//! Tools for disks that no daemon holds: they open devices themselves, locked; only `repair` and `restore` write.

mod check;
mod disks;
mod dump;
mod renew;
mod repair;
mod stores;

pub(crate) use check::check;
pub(crate) use dump::dump;
pub(crate) use repair::{repair, restore};
