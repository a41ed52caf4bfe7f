//! The virtual clock and the right to start tasks, as the product sees them.

use super::ready::Ready;
use super::shared::{Core, Due, TimerKey};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use varve_block::{ClockSource, LocalFuture, Moment, Spawn, UnixTime};

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
