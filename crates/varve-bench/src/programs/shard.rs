//! A shard of this process, for measurements that need no daemon.

use crate::prelude::*;
use crate::programs::peers::Cache;
use varve_os::{CacheMode, DiskOptions, Shards, ShardsConfig};

/// A running shard; dropping it ends it.
pub(crate) struct Shard(Shards);

impl Shard {
    /// Starts one.
    pub(crate) fn start() -> Outcome<Self> {
        Ok(Self(Shards::start(&ShardsConfig { count: 1, ..ShardsConfig::default() })?))
    }

    /// Does `work` there.
    pub(crate) fn run<T, F, W>(&self, work: W) -> Outcome<T>
    where
        W: FnOnce(ShardContext) -> F + Send + 'static,
        F: Future<Output = Outcome<T>> + 'static,
        T: Send + 'static,
    {
        self.0.handle(0).run_and_wait(work)?
    }
}

/// Opens a file as a disk on `medium` is reached.
pub(crate) fn open(path: &Path, medium: Medium) -> Outcome<Arc<DiskFile>> {
    let cache = match medium.cache() {
        Cache::Buffered => CacheMode::Buffered,
        Cache::Direct => CacheMode::Direct,
    };
    DiskFile::open(path, DiskOptions { cache, ..DiskOptions::default() }).of(path.display())
}

/// What a run needs of the world that it runs in.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) disk: Device,
    pub(crate) arena: Arena,
    pub(crate) clock: Clock,
}

impl Surroundings {
    /// Those of a shard, on a file.
    pub(crate) fn of(context: &ShardContext, file: &Arc<DiskFile>) -> Self {
        Self { disk: context.disk(file), arena: context.arena(), clock: context.clock() }
    }

    /// Those of a simulated world, on a disk.
    pub(crate) fn simulated(world: &varve_sim::World, disk: &varve_sim::ModelDisk) -> Self {
        Self { disk: disk.device(world), arena: world.arena(), clock: world.clock() }
    }
}
