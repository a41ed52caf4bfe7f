//! A real shard for tests of what lives on one.

use super::{ShardContext, ShardHandle};
use crate::world::real;
use std::path::Path;
use varve_os::{Shards, ShardsConfig};

/// One shard, to be stopped in the end, and its handle.
pub(crate) fn shard() -> (Shards, ShardHandle) {
    let shards = Shards::start(&ShardsConfig { count: 1, ..ShardsConfig::default() }).expect("a shard");
    let (mut handles, _) = real::begin([shards.handle(0)], Path::new("/nonexistent"));
    (shards, handles.remove(0))
}

/// Waits for `answer`.
pub(crate) fn wait<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(answer)
}

/// Does `work` on a shard of its own.
pub(crate) fn on_a_shard<T: Send + 'static, W: Future<Output = T> + 'static>(
    work: impl FnOnce(ShardContext) -> W + Send + 'static,
) -> T {
    let (shards, handle) = shard();
    let outcome = wait(handle.run(work)).expect("it runs");
    shards.stop();
    outcome
}
