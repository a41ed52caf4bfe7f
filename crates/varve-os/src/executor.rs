//! Tasks of one thread: a local queue of what is ready, and a mailbox for wakes from other threads.
//!
//! Invariants:
//! - TASK1. A task is polled and dropped on its shard's thread only.
//! - TASK2. A task that is woken while it runs has ended its turn: it is polled again after the kernel was entered, behind
//!   the tasks that this has woken.

use crate::mailbox::{Mailbox, Notify};
use async_task::{Runnable, ScheduleInfo, WithInfo};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    /// The queue of the shard that runs on this thread.
    static CURRENT: RefCell<Option<Rc<Queue>>> = const { RefCell::new(None) };
}

/// The tasks of a shard that are ready, and all that exist.
pub(crate) struct Queue {
    /// Tasks that other threads have woken.
    wakes: Arc<Mailbox<Runnable>>,
    ready: RefCell<VecDeque<Runnable>>,
    /// Tasks that have ended their turn (TASK2).
    yielded: RefCell<VecDeque<Runnable>>,
    tasks: RefCell<slab::Slab<std::task::Waker>>,
    closing: Cell<bool>,
}

impl Queue {
    /// The queue of this thread, which must not have one yet.
    pub(crate) fn install(notify: &Arc<Notify>) -> Rc<Self> {
        let queue = Rc::new(Self {
            wakes: Mailbox::new(notify),
            ready: RefCell::default(),
            yielded: RefCell::default(),
            tasks: RefCell::default(),
            closing: Cell::new(false),
        });
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "one shard a thread");
            *current = Some(Rc::clone(&queue));
        });
        queue
    }

    /// Takes the queue off this thread.
    pub(crate) fn uninstall() {
        CURRENT.with_borrow_mut(|current| *current = None);
    }

    /// Starts a task; it runs until it ends, or until the shard does.
    pub(crate) fn spawn(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) {
        if self.closing.get() {
            return;
        }
        let key = self.tasks.borrow_mut().insert(std::task::Waker::noop().clone());
        let registered = Registered { queue: Rc::clone(self), key };
        let future = async move {
            let _registered = registered;
            future.await;
        };
        let wakes = Arc::clone(&self.wakes);
        let schedule = WithInfo(move |runnable, info| schedule(&wakes, runnable, info));
        let (runnable, task) = async_task::spawn_local(future, schedule);
        self.tasks.borrow_mut()[key] = runnable.waker();
        task.detach();
        self.ready.borrow_mut().push_back(runnable);
    }

    /// Takes in the tasks that other threads have woken.
    pub(crate) fn collect(&self) {
        self.ready.borrow_mut().extend(self.wakes.collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.borrow().is_empty() && self.yielded.borrow().is_empty()
    }

    /// Begins a new turn for the tasks that have ended theirs (TASK2).
    pub(crate) fn next_turn(&self) {
        let mut yielded = self.yielded.borrow_mut();
        if !yielded.is_empty() {
            self.ready.borrow_mut().append(&mut yielded);
        }
    }

    pub(crate) fn pop(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// Takes in no more wakes from other threads, and drops the tasks that were woken last.
    pub(crate) fn close(&self) {
        drop(self.wakes.close());
    }

    /// Drops every task (TASK1): each is woken so that it stands in the queue, and dropped from there.
    pub(crate) fn drop_tasks(&self) {
        self.closing.set(true);
        loop {
            let wakers: Vec<_> = self.tasks.borrow().iter().map(|(_, waker)| waker.clone()).collect();
            wakers.iter().for_each(std::task::Waker::wake_by_ref);
            self.next_turn();
            let ready = std::mem::take(&mut *self.ready.borrow_mut());
            if ready.is_empty() {
                return;
            }
            drop(ready);
        }
    }
}

/// Counts a task while it exists.
struct Registered {
    queue: Rc<Queue>,
    key: usize,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let waker = self.queue.tasks.borrow_mut().try_remove(self.key);
        drop(waker);
    }
}

/// Puts a woken task into its shard's queue, or into its mailbox when woken from elsewhere.
fn schedule(wakes: &Arc<Mailbox<Runnable>>, runnable: Runnable, info: ScheduleInfo) {
    let elsewhere = CURRENT.with_borrow(|current| match current {
        Some(queue) if Arc::ptr_eq(&queue.wakes, wakes) => {
            if info.woken_while_running {
                queue.yielded.borrow_mut().push_back(runnable);
            } else {
                queue.ready.borrow_mut().push_back(runnable);
            }
            None
        }
        _ => Some(runnable),
    });
    let Some(runnable) = elsewhere else { return };
    if let Err(runnable) = wakes.send(runnable) {
        // TASK1: it cannot be dropped here. Its shard has dropped all its tasks before it closed the mailbox, so this is
        // one that was just being dropped, and holds nothing.
        std::mem::forget(runnable);
    }
}
