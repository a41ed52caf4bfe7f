//! Reaches one shard from any thread. Work there that panics takes the volumes that it used out of use, not the shard.
//!
//! Invariant K1: work that panicked without having used a volume ends the shard, and with it the daemon: what it left half
//! changed belongs to all volumes of the shard.

use super::health::{Health, Seat, drop_quietly};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use varve_block::LocalFuture;
use varve_os::{ShardContext, ShardGone};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The shard has ended.
    Gone,
    /// A volume that the work used has failed.
    Failed,
}

impl From<ShardGone> for NoAnswer {
    fn from(_: ShardGone) -> Self {
        Self::Gone
    }
}

/// Reaches one shard from any thread.
#[derive(Clone)]
pub(crate) struct ShardHandle(varve_os::ShardHandle);

impl From<varve_os::ShardHandle> for ShardHandle {
    fn from(handle: varve_os::ShardHandle) -> Self {
        Self(handle)
    }
}

impl ShardHandle {
    /// The shard's number, from zero.
    pub(crate) fn index(&self) -> usize {
        self.0.index()
    }

    /// Starts `work` on the shard as a task and answers with its result. The task starts even if the future is
    /// never polled, and runs on if it is dropped.
    pub(crate) fn run<T, F, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, NoAnswer>> + Send + use<T, F, W>
    where
        W: FnOnce(ShardContext) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let answer = self.0.run(move |context: ShardContext| Work {
            future: Some(Box::pin(async move { work(context).await })),
            used: Vec::new(),
        });
        async move { answer.await?.ok_or(NoAnswer::Failed) }
    }
}

thread_local! {
    /// The volumes that the work now polled has used, if one is polled.
    static USED: RefCell<Option<Vec<Seat>>> = const { RefCell::new(None) };
}

/// The work that is polled now uses a volume.
pub(super) fn using(health: &Health) {
    USED.with_borrow_mut(|used| {
        if let Some(used) = used
            && !used.iter().any(|seat| seat.health().is(health))
        {
            used.push(Seat::of(health));
        }
    });
}

/// The work that is polled now is done with the volumes that it has used; others come.
pub(super) fn done_with_all() {
    let used = USED.with_borrow_mut(|used| used.as_mut().map(std::mem::take));
    drop(used);
}

struct Work<T> {
    future: Option<LocalFuture<'static, T>>,
    used: Vec<Seat>,
}

impl<T> Work<T> {
    fn has_failed(&self) -> bool {
        self.used.iter().any(|seat| seat.health().is_failed())
    }

    fn give_up(&mut self) -> Poll<Option<T>> {
        drop_quietly(self.future.take());
        Poll::Ready(None)
    }
}

impl<T> Future for Work<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        if this.has_failed() {
            return this.give_up();
        }
        let Some(future) = this.future.as_mut() else { return Poll::Ready(None) };
        let outer = USED.replace(Some(std::mem::take(&mut this.used)));
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        this.used = USED.replace(outer).unwrap_or_default();
        match polled {
            Ok(Poll::Ready(answer)) => Poll::Ready(Some(answer)),
            Ok(Poll::Pending) if this.has_failed() => this.give_up(),
            Ok(Poll::Pending) => {
                this.used.iter_mut().for_each(|seat| seat.wait(context));
                Poll::Pending
            }
            Err(payload) if this.used.is_empty() => resume_unwind(payload), // K1
            Err(payload) => {
                this.used.iter().for_each(|seat| seat.health().fail(&*payload));
                this.give_up()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use varve_os::{Shards, ShardsConfig};

    fn shard() -> (Shards, ShardHandle) {
        let shards = Shards::start(&ShardsConfig { count: 1, ..ShardsConfig::default() }).expect("a shard");
        let handle = ShardHandle::from(shards.handle(0));
        (shards, handle)
    }

    fn wait<T>(answer: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(answer)
    }

    #[test]
    fn work_that_panics_fails_the_volumes_that_it_used_and_the_shard_goes_on() {
        let (shards, handle) = shard();
        let failed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&failed);
        let broken = handle.run(async move |_: ShardContext| {
            let health = |count: Arc<AtomicUsize>| {
                Health::new(move |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                })
            };
            let (before, now) = (health(Arc::clone(&count)), health(count));
            using(&before);
            done_with_all();
            using(&now);
            if now.reason().is_empty() {
                panic!("a bug");
            }
        });
        assert_eq!(wait(broken), Err(NoAnswer::Failed));
        assert_eq!(failed.load(Ordering::Relaxed), 1, "it was done with the first one");
        assert_eq!(wait(handle.run(async |_: ShardContext| 7)), Ok(7));
        shards.stop();
    }

    #[test]
    fn work_that_waits_for_a_volume_ends_when_that_fails() {
        let (shards, handle) = shard();
        let ended = handle.run(async move |context: ShardContext| {
            let health = Health::new(|_| {});
            let (seen, mark) = (Rc::new(Cell::new(false)), health.clone());
            let flag = Rc::clone(&seen);
            context.spawner().spawn(async move {
                Work {
                    future: Some(Box::pin(async move {
                        using(&mark);
                        std::future::pending::<()>().await;
                    })),
                    used: Vec::new(),
                }
                .await;
                flag.set(true);
            });
            let clock = context.clock();
            clock.sleep(std::time::Duration::from_millis(1)).await;
            assert!(!seen.get());
            health.fail(&"a bug");
            while !seen.get() {
                clock.sleep(std::time::Duration::from_millis(1)).await;
            }
        });
        assert_eq!(wait(ended), Ok(()));
        shards.stop();
    }

    #[test]
    fn work_that_panics_without_a_volume_ends_the_shard() {
        let (shards, handle) = shard();
        let bug = async |_: ShardContext| panic!("a bug");
        let broken: Result<(), NoAnswer> = wait(handle.run(bug));
        assert_eq!(broken, Err(NoAnswer::Gone), "K1");
        assert_eq!(wait(handle.run(async |_: ShardContext| ())), Err(NoAnswer::Gone));
        shards.stop();
    }
}
