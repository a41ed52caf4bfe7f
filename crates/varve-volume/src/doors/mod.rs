//! Where exports lead: to volumes and snapshots, through gates and counters.

pub mod export_target;
pub(super) mod gate;
pub mod limits;
pub mod nbd;
pub(super) mod top;
pub mod traffic;
pub(super) mod views;
