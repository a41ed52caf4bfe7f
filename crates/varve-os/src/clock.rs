//! The real clock: the kernel's monotonic time, its date, and the sleepers of a shard.

use crate::timers::{TimerKey, Timers};
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use varve_block::{ClockSource, LocalFuture, Moment, UnixTime};

/// Monotonic time; the same for all shards and processes of this host.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    Moment(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// A number that changes every few milliseconds; costs less than the time.
pub(crate) fn tick() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The clock of a shard.
#[derive(Default)]
pub(crate) struct RealClock {
    pub(crate) timers: Rc<RefCell<Timers>>,
    /// The time that the task that runs has read last.
    last: Cell<Option<Moment>>,
}

impl RealClock {
    /// Another task runs, or a call.
    pub(crate) fn forget(&self) {
        self.last.set(None);
    }
}

impl ClockSource for RealClock {
    fn now(&self) -> Moment {
        let now = now();
        self.last.set(Some(now));
        now
    }

    fn recent(&self) -> Moment {
        self.last.get().unwrap_or_else(|| self.now())
    }

    fn date(&self) -> UnixTime {
        UnixTime(u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0))
    }

    fn sleep_until(&self, deadline: Moment) -> LocalFuture<'static, ()> {
        Box::pin(Sleep { timers: Rc::clone(&self.timers), deadline, key: None })
    }
}

struct Sleep {
    timers: Rc<RefCell<Timers>>,
    deadline: Moment,
    key: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now() >= self.deadline {
            return Poll::Ready(());
        }
        let mut timers = self.timers.borrow_mut();
        let key = match self.key {
            Some(key) => {
                timers.update(key, context.waker());
                key
            }
            None => timers.insert(self.deadline, context.waker().clone()),
        };
        drop(timers);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timers.borrow_mut().remove(key);
        }
    }
}
