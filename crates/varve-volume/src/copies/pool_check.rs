//! A pool that is checked while it serves: in batches, with rests between them.

use crate::ShardContext;
use crate::copies::progress::Progress;
use crate::failures;
use crate::lifecycle::background::rest_after;
use crate::opened::pool_serving::pool;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{IoError, LocalFuture};
use varve_target::thin::{PoolError, PoolReport};

/// Nodes, or groups of blocks, that a check looks at between two rests, and for how long it does.
const CHECK_BATCH: (u64, Duration) = (32, Duration::from_millis(1));
/// It rests so many times as long as a batch took.
const REST_FACTOR: u32 = 9;

/// Checks the last commit of a pool in batches, and tells how far it is.
pub async fn check(context: &ShardContext, id: Uuid, progress: &Progress) -> Result<PoolReport, Failure> {
    let open = pool(context, id)?;
    let _guard = open.enter(); // It makes checkpoints: not beside another task that has opened the pool again.
    let begun = Cell::new(context.clock().now());
    let (clock, begun) = (context.clock(), &begun);
    // It may have been closed and opened again: what is opened then is another one.
    let is_served = || context.pool(id).is_some_and(|now| Rc::ptr_eq(&now, &open));
    let pace = |done: u64, total: u64| -> LocalFuture<'_, Result<(), PoolError>> {
        let clock = clock.clone();
        Box::pin(async move {
            if progress.is_cancelled() || !is_served() {
                return Err(PoolError::Io(IoError::Gone)); // Reported as cancelled below.
            }
            let (steps, time) = CHECK_BATCH;
            if done.is_multiple_of(steps) || clock.now().since(begun.get()) >= time {
                progress.report(done, total);
                clock.sleep(rest_after(clock.now().since(begun.get()), REST_FACTOR)).await;
                begun.set(clock.now());
            }
            Ok(())
        })
    };
    let checked = open.pool.check_last_commit(&pace).await;
    if progress.is_cancelled() {
        return Err(Failure::new(Code::JobCancelled, "the check was cancelled"));
    }
    if !is_served() {
        return Err(Failure::new(Code::JobCancelled, "the pool was let go of while it was checked"));
    }
    checked.map_err(|error| failures::pool("the check", &error))
}
