//! Time, handed in: monotonic moments, sleep, and the date.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A future that stays on its thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A point in monotonic time, in nanoseconds since some start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment and `duration` more.
    pub fn after(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }

    /// Time from `earlier` to this moment; zero if it is not earlier.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A date: seconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixTime(pub u64);

/// One of the two impure leaves: where time comes from.
pub trait ClockSource {
    /// Monotonic time.
    fn now(&self) -> Moment;
    /// What [`ClockSource::now`] gave last while the present task runs; the time now if it was not asked.
    fn recent(&self) -> Moment {
        self.now()
    }
    /// The date.
    fn date(&self) -> UnixTime;
    /// Completes at `deadline` or soon after.
    fn sleep_until(&self, deadline: Moment) -> LocalFuture<'static, ()>;
}

/// A handle to a clock.
#[derive(Clone)]
pub struct Clock(Rc<dyn ClockSource>);

impl Clock {
    /// Wraps a source.
    pub fn new(source: Rc<dyn ClockSource>) -> Self {
        Self(source)
    }
    /// Monotonic time.
    pub fn now(&self) -> Moment {
        self.0.now()
    }
    /// The time that the present task has read last, else that of now: when a request begins that follows others. A task that
    /// does much between two requests asks for the time now.
    pub fn recent(&self) -> Moment {
        self.0.recent()
    }
    /// The date.
    pub fn date(&self) -> UnixTime {
        self.0.date()
    }
    /// Completes at `deadline` or soon after.
    pub fn sleep_until(&self, deadline: Moment) -> LocalFuture<'static, ()> {
        self.0.sleep_until(deadline)
    }
    /// Completes after `duration` or a little more.
    pub fn sleep(&self, duration: Duration) -> LocalFuture<'static, ()> {
        self.sleep_until(self.now().after(duration))
    }
}

/// Runs `work`, but drops it and returns `None` after `limit`.
pub async fn timeout<T>(clock: &Clock, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    use futures_util::future::{Either, select};
    let work = std::pin::pin!(work);
    match select(work, clock.sleep(limit)).await {
        Either::Left((value, _)) => Some(value),
        Either::Right(((), _)) => None,
    }
}
