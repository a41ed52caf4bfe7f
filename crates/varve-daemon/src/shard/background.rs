//! What works in the background of something open: begun with it and ended with it, or in doses until nothing is left.
//!
//! Invariants:
//! - Y3. While requests of clients arrive on the shard, doses get at most a tenth of its time; else all that is left over.
//! - Y4. Who writes is never given up half way: he is asked to stop, looks at that between two steps, and is waited for.
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
use varve_block::{Clock, IoError, Tracker, TrackerGuard, yield_now};
use varve_target::snapshot::StoreError;

/// The least rest after a dose, and the time without a request after which no more rest is due.
const REST_MIN: Duration = Duration::from_micros(200);
/// Doses rest so many times as long as they took, as long as requests arrive (Y3).
pub(super) const REST_FACTOR: u32 = 9;
/// How long they rest when one found no room.
const REST_FULL: Duration = Duration::from_millis(100);

/// How long to rest after a dose that took so long: `factor` times that, and not next to nothing.
pub(super) fn rest_after(took: Duration, factor: u32) -> Duration {
    (took * factor).max(REST_MIN)
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
    pace: Cell<Pace>,
}

/// When doses rest (Y3).
#[derive(Clone, Copy, Default)]
struct Pace {
    /// The requests that had arrived when this was asked last.
    seen: u64,
    /// The rest that is due while others arrive.
    due: Duration,
}

impl Pace {
    /// A dose has taken so long, and `requests` had arrived before it.
    fn after(took: Duration, requests: u64) -> Self {
        Self { seen: requests, due: rest_after(took, REST_FACTOR) }
    }

    /// How long to rest before this is asked again, now that `requests` have arrived; none if a dose may be taken.
    fn rest(&mut self, requests: u64) -> Option<Duration> {
        if std::mem::replace(&mut self.seen, requests) == requests {
            self.due = Duration::ZERO;
        }
        let rest = self.due.min(REST_MIN);
        self.due -= rest;
        (!rest.is_zero()).then_some(rest)
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

    /// Counts somebody who works on the same thing and looks himself whether he is to end (Y4).
    pub(super) fn enter(&self) -> TrackerGuard {
        self.workers.enter()
    }

    /// Ends everything (Y4).
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
            let mut pace = sweep.pace.get();
            let rest = pace.rest(requests.get());
            sweep.pace.set(pace);
            if rest.is_some() {
                return rest; // Y3
            }
            let (begun, before) = (clock.now(), requests.get());
            let ended = dose().await;
            sweep.pace.set(Pace::after(clock.now().since(begun), before));
            match ended {
                Dose::More => Some(Duration::ZERO),
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
    use crate::shard::testing::on_a_shard;

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
        assert_eq!(begun, ended, "Y4");
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
    fn doses_rest_while_requests_arrive_and_no_longer() {
        let took = Duration::from_millis(1);
        let mut pace = Pace::after(took, 5);
        assert_eq!(pace.rest(5), None, "Y3: nobody else wants the time");
        assert_eq!(pace.rest(6), None, "and no rest is due any more");

        let mut pace = Pace::after(took, 6);
        let rests: Duration = (7..).map_while(|requests| pace.rest(requests)).sum();
        assert_eq!(rests, took * REST_FACTOR, "Y3");

        let mut pace = Pace::after(took, 6);
        assert_eq!((pace.rest(7), pace.rest(7)), (Some(REST_MIN), None), "Y3: only one request came");
    }

    #[test]
    fn doses_leave_nine_tenths_of_the_time_to_requests_that_keep_arriving() {
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
                yield_now().await;
            }
            background.close().await;
            (took.get(), clock.now().since(begun))
        });
        assert!(whole >= took * 10, "Y3: {took:?} of {whole:?}");
    }
}
