//! Volumes with snapshots: first touches, reads, management, and the cache of their metadata.

pub(crate) mod bonnie;
pub(crate) mod cache;
pub(crate) mod cache_times;
pub(crate) mod cost;
pub(crate) mod daemon;
pub(crate) mod distance;
pub(crate) mod engine;
pub(crate) mod listing;
pub(crate) mod management;
pub(crate) mod management_daemon;
pub(crate) mod stage;
