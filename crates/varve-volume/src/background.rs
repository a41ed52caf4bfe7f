//! What works in the background of something open: begun with it and ended with it, or in doses until nothing is left.
//!
//! Invariants:
//! - BACKGROUND1. While a request of a client has arrived on the shard within the last tenth of a second, doses get at most an
//!   eighth of its time; else all that is left over.
//! - BACKGROUND2. Who writes is never given up half way: he is asked to stop, looks at that between two steps, and is waited for.
//!   Only who waits for something to happen is given up.

use super::health::Health;
use super::host::Host;
use futures_util::future::{AbortHandle, abortable, select};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use varve_block::{Clock, IoError, Moment, Tracker, TrackerGuard, yield_now};
use varve_target::snapshot::StoreError;

/// The least rest after a dose.
const REST_MIN: Duration = Duration::from_micros(200);
/// The longest, whatever kept the dose: a disk that stood still does not keep the next one.
const REST_MAX: Duration = Duration::from_secs(1);
/// Doses rest so many times as long as they took, as long as requests arrive (BACKGROUND1).
const REST_FACTOR: u32 = 7;
/// So long after the last request nobody is waited for any more (BACKGROUND1).
const QUIET: Duration = Duration::from_millis(100);
/// How long they rest when one found no room.
const REST_FULL: Duration = Duration::from_millis(100);

/// How long to rest after a dose that took so long: `factor` times that, within limits.
pub(super) fn rest_after(took: Duration, factor: u32) -> Duration {
    took.saturating_mul(factor).clamp(REST_MIN, REST_MAX)
}

/// How a dose ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dose {
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
pub(super) struct Background {
    host: Host,
    health: Health,
    /// They only wait for something to happen.
    listeners: RefCell<Vec<AbortHandle>>,
    workers: Tracker,
    stop: Rc<Stop>,
    sweep: Rc<Sweep>,
}

/// Whether everything is to end.
#[derive(Default)]
struct Stop {
    is_asked: Cell<bool>,
    /// Workers between two steps, by their numbers.
    resting: RefCell<BTreeMap<u64, Waker>>,
    last_worker: Cell<u64>,
}

/// How the doses get on.
#[derive(Default)]
struct Sweep {
    is_under_way: Cell<bool>,
    trouble: Cell<Option<StoreError>>,
    arrivals: Cell<Arrivals>,
}

/// When requests last arrived, as far as doses have seen.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    /// How many had arrived.
    seen: u64,
    last: Option<Moment>,
}

impl Arrivals {
    /// How long to rest after a dose that took so long, now that `requests` have arrived (BACKGROUND1).
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
    pub(super) fn new(host: &Host, health: &Health) -> Self {
        Self {
            host: host.clone(),
            health: health.clone(),
            listeners: RefCell::default(),
            workers: Tracker::default(),
            stop: Rc::default(),
            sweep: Rc::default(),
        }
    }

    /// Has `task`, which waits for something to happen and passes it on, run until its end, or that of all.
    pub(super) fn listen(&self, task: impl Future<Output = ()> + 'static) {
        let (task, handle) = abortable(self.health.contain(Box::pin(task)));
        self.host.spawner().spawn(async move {
            let _ = task.await;
        });
        self.listeners.borrow_mut().push(handle);
    }

    /// Does `step` again and again, each time after as long a rest as the last one said and the first time at once, until
    /// one says that it was the last, or everything is to end.
    pub(super) fn work(&self, step: impl AsyncFn() -> Option<Duration> + 'static) {
        let (clock, stop, guard) = (self.host.clock(), Rc::clone(&self.stop), self.workers.enter());
        let worker = stop.new_worker();
        let work = async move {
            while !stop.is_asked.get() {
                let Some(rest) = step().await else { break };
                stop.rest(worker, &clock, rest).await;
            }
            drop(step); // What it holds is let go of before it counts as ended.
            drop(guard);
        };
        let contained = self.health.contain(Box::pin(work));
        self.host.spawner().spawn(async move {
            let _ = contained.await;
        });
    }

    /// Counts somebody who works on the same thing and looks himself whether he is to end (BACKGROUND2).
    pub(super) fn enter(&self) -> TrackerGuard {
        self.workers.enter()
    }

    /// Ends everything (BACKGROUND2).
    pub(super) async fn close(&self) {
        self.stop.ask();
        self.listeners.take().iter().for_each(AbortHandle::abort);
        self.workers.empty().await;
    }

    /// Whether doses are being taken.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_under_way.get()
    }

    /// Why no doses are taken though there may be something to do.
    pub(super) fn trouble(&self) -> Option<StoreError> {
        let closed = self.stop.is_asked.get().then_some(StoreError::Io(IoError::Gone));
        closed.or(self.sweep.trouble.get())
    }

    /// A dose failed.
    pub(super) fn fail(&self, error: StoreError) {
        self.sweep.trouble.set(Some(error));
    }

    /// Takes doses, with rests between them, until there is nothing to do; unless they are being taken already.
    pub(super) fn sweep(&self, dose: impl AsyncFn() -> Dose + 'static) {
        if self.sweep.is_under_way.replace(true) {
            return;
        }
        self.sweep.trouble.set(None);
        let (clock, sweep) = (self.host.clock(), Rc::clone(&self.sweep));
        let requests = Rc::clone(&self.host.requests);
        self.work(async move || {
            let begun = clock.now();
            let ended = dose().await;
            let (now, mut arrivals) = (clock.now(), sweep.arrivals.get());
            let rest = arrivals.rest(requests.get(), now, now.since(begun));
            sweep.arrivals.set(arrivals);
            match ended {
                Dose::More => Some(rest),
                Dose::NoRoom => Some(REST_FULL),
                end @ (Dose::Done | Dose::Failed(_)) => {
                    if let Dose::Failed(error) = end {
                        sweep.trouble.set(Some(error));
                    }
                    sweep.is_under_way.set(false);
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
    fn doses_that_fail_are_told_of_and_taken_again_when_asked() {
        on_a_shard(async |context| {
            let (background, clock) =
                (Background::new(context.host(), &Health::new(|_| {})), context.clock());
            for wrong in [Some(StoreError::NoSpace), None] {
                background.sweep(async move || wrong.map_or(Dose::Done, Dose::Failed));
                while background.is_sweeping() {
                    assert_eq!(background.trouble(), None, "not yet, or no more");
                    clock.sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(background.trouble(), wrong);
            }
            background.close().await;
            assert_eq!(background.trouble(), Some(StoreError::Io(IoError::Gone)), "nobody sweeps any more");
        });
    }

    #[test]
    fn doses_rest_while_requests_arrive_and_a_little_longer() {
        let (took, rest) = (Duration::from_millis(1), Duration::from_millis(7));
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

    /// A request about each millisecond, as from a client that is not busy: it seldom finds a dose before it.
    #[test]
    fn few_requests_of_an_idle_client_wait_for_a_dose() {
        let (took, mut arrivals, mut now) =
            (Duration::from_micros(100), Arrivals::default(), Moment(1 << 40));
        let (mut waiting, begun) = (0, now);
        // In no step with the doses.
        let arrived = |now: Moment| now.since(begun).as_micros() as u64 / 997;
        while arrived(now) < 10_000 {
            let before = arrived(now);
            now = now.after(took);
            waiting += arrived(now) - before;
            now = now.after(arrivals.rest(arrived(now), now, took));
        }
        assert!(waiting < 1_300, "BACKGROUND1: {waiting} of 10000 arrive during a dose");
    }

    #[test]
    fn doses_leave_seven_eighths_of_the_time_to_requests_that_keep_arriving() {
        const DOSES: u32 = 20;
        let (took, whole) = on_a_shard(async |context| {
            let (background, clock) =
                (Background::new(context.host(), &Health::new(|_| {})), context.clock());
            let (took, doses) = (Rc::new(Cell::new(Duration::ZERO)), Rc::new(Cell::new(0)));
            let (time, spent, taken) = (clock.clone(), Rc::clone(&took), Rc::clone(&doses));
            let begun = clock.now();
            background.sweep(async move || {
                let begun = time.now();
                time.sleep(Duration::from_micros(500)).await;
                taken.set(taken.get() + 1);
                if taken.get() > DOSES {
                    return Dose::Done;
                }
                spent.set(spent.get() + time.now().since(begun));
                Dose::More
            });
            while background.is_sweeping() {
                context.requests.set(context.requests.get() + 1);
                clock.sleep(Duration::from_micros(10)).await;
            }
            background.close().await;
            (took.get(), clock.now().since(begun))
        });
        assert!(whole >= took * 8, "BACKGROUND1: {took:?} of {whole:?}");
    }
}
