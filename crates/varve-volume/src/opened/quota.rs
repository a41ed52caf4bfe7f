//! How much metadata a snapshot store or a pool keeps in memory, and how it writes it.

use varve_api::MetadataMemory;
use varve_block::KIB;
use varve_target::pdata::{CachePolicy, CacheUse, MetadataOrder};
use varve_target::snapshot::{SnapshotStore, StoreOptions};
use varve_target::thin::PoolOptions;

/// However many stores and pools share a budget, each may keep so many bytes.
pub const QUOTA_MIN: u64 = 64 * KIB;

/// What one store or pool may keep in memory, and how it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheQuota {
    /// Bytes in memory.
    pub cache_bytes: u64,
    /// What goes first.
    pub policy: CachePolicy,
    /// When metadata is written.
    pub order: MetadataOrder,
}

impl Default for CacheQuota {
    fn default() -> Self {
        let (policy, order) = (CachePolicy::default(), MetadataOrder::default());
        Self { cache_bytes: QUOTA_MIN, policy, order }
    }
}

impl CacheQuota {
    pub(crate) fn store_options(self) -> StoreOptions {
        let Self { cache_bytes, policy, order } = self;
        StoreOptions { cache_bytes, policy, metadata: order, ..StoreOptions::default() }
    }

    pub(crate) fn pool_options(self) -> PoolOptions {
        let Self { cache_bytes, policy, order } = self;
        PoolOptions { cache_bytes, policy, metadata: order, ..PoolOptions::default() }
    }

    /// Lets an open store have this quota from now on.
    pub(crate) async fn give(self, store: &SnapshotStore) {
        store.set_metadata_order(self.order);
        store.set_cache(self.cache_bytes, self.policy).await;
    }
}

/// What metadata takes in memory.
pub(crate) fn memory(usage: CacheUse) -> MetadataMemory {
    let CacheUse { hits, loads, evictions, .. } = usage;
    MetadataMemory { in_use: usage.bytes(), hits, misses: loads, evictions }
}
