//! Reaches one shard from any thread. Work there that panics takes the volumes that it used out of use, not the shard.
//!
//! Invariant SHARDCALL1: work that panicked without having used a volume ends the shard, and with it the daemon: what it left half
//! changed belongs to all volumes of the shard.

use super::context::{ShardContext, Used};
use super::events::EventSender;
use super::host::Host;
use super::lifecycle::health::drop_quietly;
use super::no_answer::NoAnswer;
use crate::world::World;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use varve_block::LocalFuture;

/// Work for a shard.
type Call = Box<dyn FnOnce(&ShardContext) -> LocalFuture<'static, ()> + Send>;

/// Reaches one shard from any thread.
#[derive(Clone)]
pub struct ShardHandle {
    index: usize,
    calls: mpsc::UnboundedSender<Call>,
}

/// What a shard has been sent.
pub struct Inbox(mpsc::UnboundedReceiver<Call>);

/// The handle of shard `index`, and what is sent through it.
pub fn shard_channel(index: usize) -> (ShardHandle, Inbox) {
    let (calls, inbox) = mpsc::unbounded();
    (ShardHandle { index, calls }, Inbox(inbox))
}

impl Inbox {
    /// The loop of a shard in `world`: starts each piece of work as a task of its own. It ends with the shard.
    pub async fn serve(mut self, world: Rc<dyn World>, events: EventSender) {
        let state = Rc::default();
        let shard = ShardContext::new(Host::new(world, events), &state);
        while let Some(call) = self.0.next().await {
            shard.spawner().spawn(call(&shard));
        }
    }
}

impl ShardHandle {
    /// The shard's number, from zero.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Starts `work` on the shard as a task. It starts even if the answer is never polled, and runs on if that is dropped.
    pub(crate) fn run<T, F, W>(&self, work: W) -> Answer<T>
    where
        W: FnOnce(ShardContext) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let call: Call = Box::new(move |shard: &ShardContext| {
            let used = Used::default();
            let shard = shard.for_work(&used);
            let work = Work { future: Some(Box::pin(async move { work(shard).await })), used };
            Box::pin(async move {
                let _ = sender.send(work.await);
            })
        });
        let _ = self.calls.unbounded_send(call);
        Answer(answer)
    }

    /// Work of a test, which looks at what lives on the shard, or breaks it.
    #[cfg(any(test, feature = "injected-bugs"))]
    pub fn run_for_test<T, F, W>(&self, work: W) -> Answer<T>
    where
        W: FnOnce(ShardContext) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.run(work)
    }
}

/// The answer of a shard to a call. Whether it is awaited or not, the call is carried out.
pub struct Answer<T>(oneshot::Receiver<Option<T>>);

impl<T> Future for Answer<T> {
    type Output = Result<T, NoAnswer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(answer.map_err(|_| NoAnswer::Gone).and_then(|answer| answer.ok_or(NoAnswer::Failed)))
    }
}

struct Work<T> {
    future: Option<LocalFuture<'static, T>>,
    used: Used,
}

impl<T> Work<T> {
    fn has_failed(&self) -> bool {
        self.used.0.borrow().iter().any(|seat| seat.health().is_failed())
    }

    fn abandon(&mut self) -> Poll<Option<T>> {
        drop_quietly(self.future.take());
        Poll::Ready(None)
    }
}

impl<T> Future for Work<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        if this.has_failed() {
            return this.abandon();
        }
        let Some(future) = this.future.as_mut() else { return Poll::Ready(None) };
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Ready(answer)) => Poll::Ready(Some(answer)),
            Ok(Poll::Pending) if this.has_failed() => this.abandon(),
            Ok(Poll::Pending) => {
                this.used.0.borrow_mut().iter_mut().for_each(|seat| seat.wait(context));
                Poll::Pending
            }
            Err(payload) if this.used.0.borrow().is_empty() => resume_unwind(payload), // SHARDCALL1
            Err(payload) => {
                let used: Vec<_> = this.used.0.borrow().iter().map(|seat| seat.health().clone()).collect();
                used.iter().for_each(|health| health.fail(&*payload));
                this.abandon()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::health::Health;
    use crate::testing::shard;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn work_that_panics_fails_the_volumes_that_it_used_and_the_shard_goes_on() {
        let (world, handle) = shard();
        let failed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&failed);
        let broken = handle.run(async move |shard: ShardContext| {
            let health = |count: Arc<AtomicUsize>| {
                Health::new(move |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                })
            };
            let (before, now) = (health(Arc::clone(&count)), health(count));
            shard.using(&before);
            shard.done_with_all();
            shard.using(&now);
            if now.reason().is_empty() {
                panic!("a bug");
            }
        });
        assert_eq!(world.run(broken), Err(NoAnswer::Failed));
        assert_eq!(failed.load(Ordering::Relaxed), 1, "it was done with the first one");
        assert_eq!(world.run(handle.run(async |_: ShardContext| 7)), Ok(7));
    }

    #[test]
    fn work_that_waits_for_a_volume_ends_when_that_fails() {
        let (world, handle) = shard();
        let ended = handle.run(async move |context: ShardContext| {
            let health = Health::new(|_| {});
            let (seen, mark) = (Rc::new(Cell::new(false)), health.clone());
            let flag = Rc::clone(&seen);
            let shard = context.clone();
            context.spawner().spawn(async move {
                let used = Used::default();
                let shard = shard.for_work(&used);
                let waits = async move {
                    shard.using(&mark);
                    std::future::pending::<()>().await;
                };
                Work { future: Some(Box::pin(waits)), used }.await;
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
        assert_eq!(world.run(ended), Ok(()));
    }

    #[test]
    fn work_that_panics_without_a_volume_ends_the_shard() {
        let (world, handle) = shard();
        let bug = handle.run(async |_: ShardContext| panic!("a bug"));
        let ran = catch_unwind(AssertUnwindSafe(|| world.run(bug)));
        assert!(ran.is_err(), "SHARDCALL1: the panic reaches the world, which ends the shard: {ran:?}");
    }
}
