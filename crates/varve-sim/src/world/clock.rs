//! The virtual clock and the right to start tasks, as the product sees them.

use super::ready::Ready;
use super::shared::{Core, Due, TimerKey};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use varve_block::{ClockSource, LocalFuture, Moment, Spawn, UnixTime};

/// The date at which every world begins: 2026-01-01 00:00 UTC.
const BEGINNING: UnixTime = UnixTime(1_767_225_600);

/// The time of a world: what has passed, and what its clock says the date is.
pub(super) struct Now {
    moment: Cell<Moment>,
    beginning: Cell<UnixTime>,
}

impl Default for Now {
    fn default() -> Self {
        Self { moment: Cell::default(), beginning: Cell::new(BEGINNING) }
    }
}

impl Now {
    pub(super) fn get(&self) -> Moment {
        self.moment.get()
    }

    pub(super) fn set(&self, moment: Moment) {
        self.moment.set(moment);
    }

    fn date(&self) -> UnixTime {
        UnixTime(self.beginning.get().0 + self.get().0 / 1_000_000_000)
    }

    /// Somebody sets the date; what passes is not concerned.
    pub(super) fn set_date(&self, date: UnixTime) {
        let passed = self.get().0 / 1_000_000_000;
        self.beginning.set(UnixTime(date.0.saturating_sub(passed)));
    }
}

/// The clock.
pub(super) struct VirtualClock(pub(super) Rc<Core>);

impl ClockSource for VirtualClock {
    fn now(&self) -> Moment {
        self.0.now.get()
    }
    fn date(&self) -> UnixTime {
        self.0.now.date()
    }
    fn sleep_until(&self, deadline: Moment) -> LocalFuture<'static, ()> {
        Box::pin(Sleep { core: Rc::clone(&self.0), deadline, timer: None })
    }
}

/// A sleep; its timer goes with it, so that an abandoned wait delays nothing.
struct Sleep {
    core: Rc<Core>,
    deadline: Moment,
    timer: Option<TimerKey>,
}

impl Sleep {
    fn cancel(&mut self) {
        if let Some(key) = self.timer.take() {
            self.core.timers.borrow_mut().remove(&key);
        }
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.cancel();
        if self.core.now.get() >= self.deadline {
            return Poll::Ready(());
        }
        let key = self.core.set_timer(self.deadline, Due::Wake(context.waker().clone()));
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The executor.
pub(super) struct SeededSpawner(pub(super) Rc<Core>);

impl Spawn for SeededSpawner {
    fn spawn(&self, task: LocalFuture<'static, ()>) {
        let core = &self.0;
        if core.is_halted() {
            return;
        }
        let id = core.new_id();
        let owner = Rc::clone(core);
        let future = async move {
            task.await;
            let finished = owner.tasks.borrow_mut().remove(&id);
            if let Some(task) = finished {
                task.detach();
            }
        };
        let ready = Arc::clone(&core.ready);
        let (runnable, task) =
            async_task::spawn_local(future, move |runnable| ready.push(Ready::Task(runnable)));
        core.tasks.borrow_mut().insert(id, task);
        runnable.schedule();
    }
}
