//! How fast an array works beside its requests: at most at one rate, and at another one while clients are served.
//!
//! Invariants:
//! - PACE1. Steps of so many bytes follow each other no faster than the ceiling allows, but for what was slept too long.
//! - PACE2. A step waits for a moment without requests no longer than it takes at the floor.

use super::super::options::Rates;
use futures_util::future::select;
use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;
use varve_block::{Clock, Extent, LockMode, Moment, RangeLock};

/// The longest sleep between two looks at whether clients are served and the work is still wanted.
const LOOK: Duration = Duration::from_millis(10);
/// So long after a request clients count as served.
const BUSY: Duration = Duration::from_millis(20);
/// Over how long a rate is measured.
const WINDOW: Duration = Duration::from_secs(4);
/// What was slept too long is made up for up to this.
const LATE_MAX: Duration = Duration::from_millis(100);

/// The longest wait for a moment in which no member has a request.
const GAP_WAIT_MAX: Duration = Duration::from_millis(5);

/// The pace of one piece of work.
pub(in crate::array) struct Pace {
    rates: Cell<Rates>,
    /// Steps that wait begin one after the other.
    turn: RangeLock,
    /// When the last step began, or should have.
    begun: Cell<Moment>,
    /// How many requests there had been then.
    requests: Cell<u64>,
    /// Until when clients count as served.
    busy_until: Cell<Moment>,
    /// Whether they did at the last look; at first they do.
    is_busy: Cell<bool>,
    measured: Measured,
}

/// How fast something goes, over the last seconds.
#[derive(Default)]
struct Measured {
    since: Cell<Moment>,
    bytes: Cell<u64>,
    /// Bytes a second, in the window before this one.
    before: Cell<Option<u64>>,
}

impl Measured {
    fn add(&self, bytes: u64, now: Moment) {
        if now.since(self.since.get()) >= WINDOW {
            self.before.set(self.rate(now));
            self.since.set(now);
            self.bytes.set(0);
        }
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Bytes a second; none if it rests, or has only begun.
    fn rate(&self, now: Moment) -> Option<u64> {
        let elapsed = now.since(self.since.get());
        if elapsed > 3 * WINDOW {
            return None;
        }
        if elapsed < WINDOW / 4 {
            return self.before.get();
        }
        let rate = u128::from(self.bytes.get()) * 1_000_000_000 / elapsed.as_nanos();
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }
}

impl Pace {
    pub(in crate::array) fn new(rates: Rates) -> Self {
        assert!(rates.floor > 0 && rates.ceiling > 0, "PACE1: {rates:?}");
        Self {
            rates: Cell::new(rates),
            turn: RangeLock::new(),
            begun: Cell::default(),
            requests: Cell::new(0),
            busy_until: Cell::default(),
            is_busy: Cell::new(true),
            measured: Measured::default(),
        }
    }

    /// Goes at other rates from the next step on.
    pub(in crate::array) fn set_rates(&self, rates: Rates) {
        assert!(rates.floor > 0 && rates.ceiling > 0, "PACE1: {rates:?}");
        self.rates.set(rates);
    }

    /// Bytes a second in the last seconds; none if nothing is done, or has only begun.
    pub(in crate::array) fn rate(&self, now: Moment) -> Option<u64> {
        self.measured.rate(now)
    }

    /// Whether clients are served: there was a request of theirs in the last moments. Several steps may look in one of them.
    fn look(&self, requests: u64, now: Moment) -> bool {
        if self.requests.replace(requests) != requests {
            self.busy_until.set(now.after(BUSY));
        }
        self.is_busy.set(now < self.busy_until.get());
        self.is_busy.get()
    }

    /// Whether clients are served beside the work.
    pub(in crate::array) fn is_busy(&self) -> bool {
        self.is_busy.get()
    }

    /// How long a step of so many bytes takes.
    fn step_time(&self, bytes: u64, is_busy: bool) -> Duration {
        let Rates { floor, ceiling } = self.rates.get();
        let rate = if is_busy { floor.min(ceiling) } else { ceiling };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// When a step may follow that had so many bytes.
    fn due(&self, bytes: u64, is_busy: bool) -> Moment {
        self.begun.get().after(self.step_time(bytes, is_busy))
    }

    /// Waits, while clients are served, until `idle`: no member has a request, so that a step of `bytes` bytes does not lengthen a queue.
    pub(in crate::array) async fn gap(&self, clock: &Clock, bytes: u64, idle: impl Future<Output = ()>) {
        if self.is_busy() {
            let wait = self.step_time(bytes, true).min(GAP_WAIT_MAX); // PACE2
            select(pin!(idle), clock.sleep_until(clock.now().after(wait))).await;
        }
    }

    /// Waits until a step may begin that follows one of `bytes` bytes, or until the work is not wanted any more. `requests` counts
    /// those of clients.
    pub(in crate::array) async fn keep(
        &self,
        clock: &Clock,
        requests: &Cell<u64>,
        bytes: u64,
        mut is_wanted: impl FnMut() -> bool,
    ) {
        let _turn = self.turn.lock(Extent::new(0, 1), LockMode::Exclusive).await; // PACE1
        let due = loop {
            let (now, requests) = (clock.now(), requests.get());
            let is_busy = self.look(requests, now);
            let due = self.due(bytes, is_busy);
            if due <= now || !is_wanted() {
                break due;
            }
            clock.sleep_until(due.min(now.after(LOOK))).await;
        };
        let now = clock.now();
        if is_wanted() {
            self.measured.add(bytes, now);
        }
        self.begun.set(if now.since(due) > LATE_MAX { now } else { due });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_follows_when_its_rate_allows() {
        let pace = Pace::new(Rates { floor: 100, ceiling: 1000 });
        pace.begun.set(Moment(5));
        assert_eq!(pace.due(1000, false), Moment(1_000_000_005), "PACE1");
        assert_eq!(pace.due(1000, true), Moment(10_000_000_005));
        let capped = Pace::new(Rates { floor: 1000, ceiling: 10 });
        assert_eq!(capped.due(10, true), Moment(1_000_000_000), "PACE1: the ceiling counts");
        capped.set_rates(Rates { floor: 1, ceiling: 20 });
        assert_eq!(capped.due(20, false), Moment(1_000_000_000), "PACE1: at other rates");
        assert_eq!(Pace::new(Rates::default()).due(MAX, false), Moment(0), "nothing holds it up");
    }

    #[test]
    fn a_step_waits_for_a_moment_without_requests_and_no_longer_than_it_takes() {
        let world = varve_sim::World::steady(1);
        let clock = world.clock();
        let pace = Pace::new(Rates { floor: 1 << 20, ceiling: u64::MAX });
        let waited = |pace: &Pace, idle_after: u64| {
            world.run(async {
                let start = clock.now();
                let idle = clock.sleep_until(start.after(Duration::from_micros(idle_after)));
                pace.gap(&clock, 4096, idle).await;
                clock.now().since(start)
            })
        };
        assert_eq!(waited(&pace, 100), Duration::from_micros(100));
        assert_eq!(waited(&pace, 10_000), Duration::from_nanos(3_906_250), "PACE2: 4 KiB at 1 MiB/s");
        assert!(!pace.look(0, Moment(1)));
        assert_eq!(waited(&pace, 10_000), Duration::ZERO, "nobody is served");
    }

    #[test]
    fn clients_are_served_for_some_time_after_a_request() {
        let pace = Pace::new(Rates::default());
        assert!(pace.is_busy(), "nobody has looked yet");
        assert!(!pace.look(0, Moment(1)));
        assert!(pace.look(1, Moment(2)) && pace.look(1, Moment(2)), "two steps at once see the same");
        let later = Moment(2).after(BUSY);
        assert!(!pace.look(1, later) && !pace.is_busy());
    }

    const MAX: u64 = 1 << 30;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let (measured, at) = (Measured::default(), |seconds: u64| Moment((1000 + seconds) * 1_000_000_000));
        assert_eq!(measured.rate(at(0)), None);
        (0..10).for_each(|second| measured.add(100, at(second)));
        assert_eq!(measured.rate(at(10)), Some(100));
        (10..30).for_each(|second| measured.add(300, at(second)));
        assert_eq!(measured.rate(at(30)), Some(300), "what was before does not count any more");
        assert_eq!(measured.rate(at(60)), None, "it rests");
        measured.add(3, at(70));
        assert_eq!(measured.rate(at(73)), Some(1), "a slow rate is one, too");
    }
}
