//! What works in the background of something open: begun with it and ended with it, or in batches until nothing is left.
//!
//! Invariants:
//! - BACKGROUND1. While a request of a client has arrived on the shard within the last tenth of a second, batches get at most a
//!   fifth of its time; else all that is left over.
//! - BACKGROUND2. Work that writes is never aborted half way: it is asked to stop, looks at that between two steps, and is waited for.
//!   Only work that waits for something to happen is aborted.

use super::health::Health;
use crate::host::Host;
use futures_util::future::{AbortHandle, abortable, select};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use varve_block::{Clock, IoError, Moment, Tracker, TrackerGuard, yield_now};
use varve_target::snapshot::StoreError;

/// The least rest after a batch.
const REST_MIN: Duration = Duration::from_micros(200);
/// The longest, whatever kept the batch: a disk that stood still does not keep the next one.
const REST_MAX: Duration = Duration::from_secs(1);
/// Batches rest so many times as long as they took, as long as requests arrive (BACKGROUND1).
const REST_FACTOR: u32 = 4;
/// So long after the last request batches no longer rest for requests (BACKGROUND1).
const QUIET: Duration = Duration::from_millis(100);
/// How long they rest when one found no room.
const REST_FULL: Duration = Duration::from_millis(100);

/// How long to rest after a batch that took so long: `factor` times that, within limits.
pub(crate) fn rest_after(took: Duration, factor: u32) -> Duration {
    took.saturating_mul(factor).clamp(REST_MIN, REST_MAX)
}

/// How a batch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BatchEnd {
    /// There is more to do.
    More,
    /// There is, but no room for it now: that comes with the end of requests, with a checkpoint, or with growth.
    NoRoom,
    /// There is nothing to do any more.
    Done,
    /// There is, but it cannot be done.
    Failed(StoreError),
}

/// The tasks of something open.
pub(crate) struct Background {
    host: Host,
    health: Health,
    /// They only wait for something to happen.
    listeners: RefCell<Vec<AbortHandle>>,
    workers: Tracker,
    stop: Rc<Stop>,
    reclaim: Rc<Reclaim>,
}

/// Whether everything is to end.
#[derive(Default)]
struct Stop {
    is_asked: Cell<bool>,
    /// Workers between two steps, by their numbers.
    resting: RefCell<BTreeMap<u64, Waker>>,
    last_worker: Cell<u64>,
}

/// How the batches get on.
#[derive(Default)]
struct Reclaim {
    is_under_way: Cell<bool>,
    trouble: Cell<Option<StoreError>>,
    arrivals: Cell<Arrivals>,
}

/// When requests last arrived, as far as batches have seen.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    /// How many had arrived.
    seen: u64,
    last: Option<Moment>,
}

impl Arrivals {
    /// How long to rest after a batch that took so long, now that `requests` have arrived (BACKGROUND1).
    fn rest(&mut self, requests: u64, now: Moment, took: Duration) -> Duration {
        if std::mem::replace(&mut self.seen, requests) != requests {
            self.last = Some(now);
        }
        match self.last {
            Some(last) if now.since(last) < QUIET => rest_after(took, REST_FACTOR),
            _ => Duration::ZERO,
        }
    }
}

impl Stop {
    fn ask(&self) {
        self.is_asked.set(true);
        self.resting.take().into_values().for_each(Waker::wake);
    }

    fn new_worker(&self) -> u64 {
        self.last_worker.set(self.last_worker.get() + 1);
        self.last_worker.get()
    }

    /// Lets time pass for a worker, or only other tasks go on, unless everything is to end.
    async fn rest(&self, worker: u64, clock: &Clock, time: Duration) {
        if time.is_zero() {
            return yield_now().await;
        }
        let asked = poll_fn(|context| {
            if self.is_asked.get() {
                return Poll::Ready(());
            }
            self.resting.borrow_mut().insert(worker, context.waker().clone());
            Poll::Pending
        });
        select(asked, clock.sleep(time)).await;
        self.resting.borrow_mut().remove(&worker);
    }
}

impl Background {
    /// Nothing to do yet.
    pub(crate) fn new(host: &Host, health: &Health) -> Self {
        Self {
            host: host.clone(),
            health: health.clone(),
            listeners: RefCell::default(),
            workers: Tracker::default(),
            stop: Rc::default(),
            reclaim: Rc::default(),
        }
    }

    /// Has `task`, which waits for something to happen and passes it on, run until its end, or that of all.
    pub(crate) fn listen(&self, task: impl Future<Output = ()> + 'static) {
        let (task, handle) = abortable(self.health.contain(Box::pin(task)));
        self.host.spawner().spawn(async move {
            let _ = task.await;
        });
        self.listeners.borrow_mut().push(handle);
    }

    /// Does `step` again and again, each time after as long a rest as the last one said and the first time at once, until
    /// one says that it was the last, or everything is to end.
    pub(crate) fn work(&self, step: impl AsyncFn() -> Option<Duration> + 'static) {
        let (clock, stop, guard) = (self.host.clock(), Rc::clone(&self.stop), self.workers.enter());
        let worker = stop.new_worker();
        let work = async move {
            while !stop.is_asked.get() {
                let Some(rest) = step().await else { break };
                stop.rest(worker, &clock, rest).await;
            }
            drop(step); // What it holds is released before it counts as ended.
            drop(guard);
        };
        let contained = self.health.contain(Box::pin(work));
        self.host.spawner().spawn(async move {
            let _ = contained.await;
        });
    }

    /// Counts a task that does the same kind of work and checks by itself whether it is to end (BACKGROUND2).
    pub(crate) fn enter(&self) -> TrackerGuard {
        self.workers.enter()
    }

    /// Ends everything (BACKGROUND2).
    pub(crate) async fn close(&self) {
        self.stop.ask();
        self.listeners.take().iter().for_each(AbortHandle::abort);
        self.workers.empty().await;
    }

    /// Whether batches are being taken.
    pub(crate) fn is_reclaiming(&self) -> bool {
        self.reclaim.is_under_way.get()
    }

    /// Why no batches are taken though there may be something to do.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        let closed = self.stop.is_asked.get().then_some(StoreError::Io(IoError::Gone));
        closed.or(self.reclaim.trouble.get())
    }

    /// A batch failed.
    pub(crate) fn fail(&self, error: StoreError) {
        self.reclaim.trouble.set(Some(error));
    }

    /// Takes batches, with rests between them, until there is nothing to do; unless they are being taken already.
    pub(crate) fn reclaim(&self, batch: impl AsyncFn() -> BatchEnd + 'static) {
        if self.reclaim.is_under_way.replace(true) {
            return;
        }
        self.reclaim.trouble.set(None);
        let (clock, reclaim) = (self.host.clock(), Rc::clone(&self.reclaim));
        let requests = Rc::clone(&self.host.requests);
        self.work(async move || {
            let begun = clock.now();
            let ended = batch().await;
            let (now, mut arrivals) = (clock.now(), reclaim.arrivals.get());
            let rest = arrivals.rest(requests.get(), now, now.since(begun));
            reclaim.arrivals.set(arrivals);
            match ended {
                BatchEnd::More => Some(rest),
                BatchEnd::NoRoom => Some(REST_FULL),
                end @ (BatchEnd::Done | BatchEnd::Failed(_)) => {
                    if let BatchEnd::Failed(error) = end {
                        reclaim.trouble.set(Some(error));
                    }
                    reclaim.is_under_way.set(false);
                    None
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::on_a_shard;

    #[test]
    fn who_is_in_the_middle_of_a_step_is_waited_for_and_who_rests_is_not() {
        let (begun, ended) = on_a_shard(async |context| {
            let background = Background::new(context.host(), &Health::new(|_| {}));
            let (clock, begun, ended) = (context.clock(), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let counts = (Rc::clone(&begun), Rc::clone(&ended));
            let time = clock.clone();
            background.work(async move || {
                counts.0.set(counts.0.get() + 1);
                time.sleep(Duration::from_millis(20)).await;
                counts.1.set(counts.1.get() + 1);
                Some(Duration::ZERO)
            });
            background.work(async || Some(Duration::from_secs(3600)));
            background.listen(std::future::pending());
            while begun.get() == 0 {
                clock.sleep(Duration::from_millis(1)).await;
            }
            background.close().await;
            (begun.get(), ended.get())
        });
        assert_eq!(begun, ended, "BACKGROUND2");
    }

    #[test]
    fn batches_that_fail_are_told_of_and_taken_again_when_asked() {
        on_a_shard(async |context| {
            let (background, clock) =
                (Background::new(context.host(), &Health::new(|_| {})), context.clock());
            for wrong in [Some(StoreError::NoSpace), None] {
                background.reclaim(async move || wrong.map_or(BatchEnd::Done, BatchEnd::Failed));
                while background.is_reclaiming() {
                    assert_eq!(background.trouble(), None, "not yet, or no more");
                    clock.sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(background.trouble(), wrong);
            }
            background.close().await;
            assert_eq!(
                background.trouble(),
                Some(StoreError::Io(IoError::Gone)),
                "nothing is reclaimed any more"
            );
        });
    }

    #[test]
    fn batches_rest_while_requests_arrive_and_a_little_longer() {
        let (took, rest) = (Duration::from_millis(1), Duration::from_millis(4));
        let (start, mut arrivals) = (Moment(1 << 40), Arrivals::default());
        assert_eq!(arrivals.rest(0, start, took), Duration::ZERO, "BACKGROUND1: nobody else wants the time");
        assert_eq!(arrivals.rest(1, start, took), rest, "BACKGROUND1");
        assert_eq!(arrivals.rest(1, start.after(QUIET / 2), took), rest, "BACKGROUND1: between two requests");
        assert_eq!(arrivals.rest(2, start.after(QUIET / 2), Duration::ZERO), REST_MIN);
        assert_eq!(arrivals.rest(2, start.after(QUIET), took), rest, "BACKGROUND1: another one has come");
        assert_eq!(
            arrivals.rest(2, start.after(QUIET * 3 / 2), took),
            Duration::ZERO,
            "BACKGROUND1: no more come"
        );
    }

    /// A request about each millisecond, as from a client that is not busy: it seldom finds a batch before it.
    #[test]
    fn few_requests_of_an_idle_client_wait_for_a_batch() {
        let (took, mut arrivals, mut now) =
            (Duration::from_micros(100), Arrivals::default(), Moment(1 << 40));
        let (mut waiting, begun) = (0, now);
        // In no step with the batches.
        let arrived = |now: Moment| now.since(begun).as_micros() as u64 / 997;
        while arrived(now) < 10_000 {
            let before = arrived(now);
            now = now.after(took);
            waiting += arrived(now) - before;
            now = now.after(arrivals.rest(arrived(now), now, took));
        }
        assert!(waiting < 2_050, "BACKGROUND1: {waiting} of 10000 arrive during a batch");
    }

    #[test]
    fn batches_leave_four_fifths_of_the_time_to_requests_that_keep_arriving() {
        const BATCHES: u32 = 20;
        let (took, whole) = on_a_shard(async |context| {
            let (background, clock) =
                (Background::new(context.host(), &Health::new(|_| {})), context.clock());
            let (took, batches) = (Rc::new(Cell::new(Duration::ZERO)), Rc::new(Cell::new(0)));
            let (time, spent, taken) = (clock.clone(), Rc::clone(&took), Rc::clone(&batches));
            let begun = clock.now();
            background.reclaim(async move || {
                let begun = time.now();
                time.sleep(Duration::from_micros(500)).await;
                taken.set(taken.get() + 1);
                if taken.get() > BATCHES {
                    return BatchEnd::Done;
                }
                spent.set(spent.get() + time.now().since(begun));
                BatchEnd::More
            });
            while background.is_reclaiming() {
                context.requests.set(context.requests.get() + 1);
                clock.sleep(Duration::from_micros(10)).await;
            }
            background.close().await;
            (took.get(), clock.now().since(begun))
        });
        assert!(whole >= took * 5, "BACKGROUND1: {took:?} of {whole:?}");
    }
}
