//! How stores and pools of this shard keep their metadata: each has a quota of its group's budget.

use super::quota::{CacheQuota, memory};
use crate::ShardContext;
use crate::volume_stack::VolumeStack;
use uuid::Uuid;
use varve_api::MetadataMemory;

/// What both take together.
pub fn sum(one: MetadataMemory, other: MetadataMemory) -> MetadataMemory {
    MetadataMemory {
        in_use: one.in_use + other.in_use,
        hits: one.hits + other.hits,
        misses: one.misses + other.misses,
        evictions: one.evictions + other.evictions,
    }
}

/// Lets the stores of these volumes, and these pools, have other quotas from now on. Completes when what is too much has
/// gone; of a pool, with its next commit.
pub async fn give(context: &ShardContext, quotas: Vec<(Uuid, CacheQuota)>) {
    for (volume, quota) in quotas {
        if let Some(served) = context.served(volume) {
            served.set_quota(quota).await;
        }
        context.done_with_all();
    }
}

/// What the stores of these volumes, and these pools, keep in memory.
pub fn figures(context: &ShardContext, volumes: &[Uuid]) -> MetadataMemory {
    let one = |volume: &Uuid| {
        let one = context.served(*volume).map(|served| served.memory());
        context.done_with_all();
        one.unwrap_or_default()
    };
    volumes.iter().map(one).fold(MetadataMemory::default(), sum)
}

impl VolumeStack {
    pub(crate) async fn set_quota(&self, quota: CacheQuota) {
        if self.quota.replace(quota) == quota {
            return;
        }
        let stores: Vec<Uuid> = self.stores.borrow().iter().map(|open| open.id).collect();
        for store in stores {
            // One that was given back meanwhile is not written any more; others are not given back meanwhile.
            let Some(open) = self.open(store) else { continue };
            let _guard = open.enter();
            self.quota.get().give(&open.store).await; // Meanwhile it may have become another one.
        }
    }

    pub(crate) fn memory(&self) -> MetadataMemory {
        let stores = self.stores.borrow();
        let each = stores.iter().map(|open| memory(open.store.cache_use()));
        each.fold(MetadataMemory::default(), sum)
    }
}
