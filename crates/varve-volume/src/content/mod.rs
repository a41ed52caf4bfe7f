//! What is in a volume: snapshots, thin volumes and their origins.

pub mod barrier;
pub(super) mod instant;
pub mod origins;
pub(super) mod pool_error;
pub(super) mod retry_on_no_space;
pub mod snapshot_facts;
pub mod snapshots;
pub mod thin;
pub mod thin_volumes;
