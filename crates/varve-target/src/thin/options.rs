//! How a pool works.

use super::injected_bug::InjectedBug;
use super::space::WhenFull;
use crate::pdata::{CachePolicy, MetadataOrder};
use std::time::Duration;

/// How a pool works; the defaults are meant for all pools.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Bytes of nodes and of pages of the space map in memory, until
    /// [`Pool::set_cache`](super::Pool::set_cache) says something else.
    pub cache_bytes: u64,
    /// Which nodes are evicted first.
    pub policy: CachePolicy,
    /// When nodes are written, until [`Pool::set_metadata_order`](super::Pool::set_metadata_order) says something else.
    pub metadata: MetadataOrder,
    /// What is acknowledged and not committed is committed after so long.
    pub commit_interval: Duration,
    /// The most that one batch of a flattening copies; whole parts.
    pub flatten_bytes: u64,
    /// What becomes of a write that finds no room, until [`Pool::set_when_full`](super::Pool::set_when_full) says something else.
    pub when_full: WhenFull,
    /// A fault for the tests that prove that the oracle finds it.
    #[doc(hidden)]
    pub injected_bug: Option<InjectedBug>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            policy: CachePolicy::default(),
            metadata: MetadataOrder::Logged,
            commit_interval: Duration::from_secs(1),
            flatten_bytes: 1 << 20,
            when_full: WhenFull::Error,
            injected_bug: None,
        }
    }
}
