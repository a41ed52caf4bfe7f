//! A group as the control knows it: its locks, its changes, and what is served, compared with what its text says.

pub(super) mod activate;
pub(super) mod activation;
pub(super) mod bases;
pub(super) mod change;
pub(super) mod controller;
pub(super) mod known_group;
pub(super) mod known_groups;
pub(super) mod locking;
pub(super) mod locks;
pub(super) mod origins;
pub(super) mod over_commit;
pub(super) mod quotas;
pub(super) mod reconcile;
pub(super) mod reopen;
pub(super) mod rescan;
pub(super) mod snapshot_sets;
pub(super) mod start;
pub(super) mod stop;
pub(super) mod store;
