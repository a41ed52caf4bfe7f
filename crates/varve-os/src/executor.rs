//! Tasks of one thread: a local queue of what is ready, and an inbox for wakes and work from other threads.
//!
//! Invariants:
//! - E1. A task is polled and dropped on its shard's thread only.
//! - E2. A message that was accepted is delivered; one that comes after the shard has closed its inbox is handed back.
//! - E3. A shard that sleeps has seen its inbox empty after it said that it sleeps, so no message is left lying.
//! - E4. A task that is woken while it runs has ended its turn: it is polled again after the kernel was entered, behind
//!   the tasks that this has woken.

use crate::helpers::Finished;
use crate::shard::ShardContext;
use async_task::{Runnable, ScheduleInfo, WithInfo};
use rustix::event::EventfdFlags;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Work for the shard's thread.
pub(crate) type Call = Box<dyn FnOnce(&ShardContext) + Send>;

/// What other threads send to a shard.
pub(crate) enum Letter {
    /// A task of the shard is to be polled.
    Wake(Runnable),
    /// A helper has carried out an operation.
    Finished(Finished),
    /// Something to run on the shard's thread.
    Call(Call),
}

/// The part of a shard that other threads reach.
pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
    /// Whether there may be letters; a hint that saves the lock.
    filled: AtomicBool,
    sleeping: AtomicBool,
    bell: OwnedFd,
}

#[derive(Default)]
struct Inbox {
    letters: Vec<Letter>,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            inbox: Mutex::default(),
            filled: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            bell,
        }))
    }

    /// Sends a letter; it comes back if the shard is gone (E2).
    pub(crate) fn send(&self, letter: Letter) -> Result<(), Letter> {
        {
            let mut inbox = self.inbox();
            if inbox.closed {
                return Err(letter);
            }
            inbox.letters.push(letter);
            self.filled.store(true, Ordering::Release);
        }
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Takes all letters; empty most of the time.
    pub(crate) fn collect(&self) -> Vec<Letter> {
        if !self.filled.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inbox = self.inbox();
        self.filled.store(false, Ordering::Release);
        std::mem::take(&mut inbox.letters)
    }

    /// Says that the shard is about to sleep; false if there is a letter, so that it must not (E3).
    pub(crate) fn try_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let empty = self.inbox().letters.is_empty();
        if !empty {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// Says that the shard is awake.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Takes the last letters; later ones are handed back to their senders (E2).
    pub(crate) fn close(&self) -> Vec<Letter> {
        let mut inbox = self.inbox();
        inbox.closed = true;
        std::mem::take(&mut inbox.letters)
    }

    /// The descriptor that becomes readable when a sleeping shard gets a letter.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// The queue of the shard that runs on this thread.
    static CURRENT: RefCell<Option<Rc<Queue>>> = const { RefCell::new(None) };
}

/// The tasks of a shard that are ready, and all that exist.
pub(crate) struct Queue {
    mailbox: Arc<Mailbox>,
    ready: RefCell<VecDeque<Runnable>>,
    /// Tasks that have ended their turn (E4).
    yielded: RefCell<VecDeque<Runnable>>,
    tasks: RefCell<slab::Slab<std::task::Waker>>,
    closing: Cell<bool>,
}

impl Queue {
    /// The queue of this thread, which must not have one yet.
    pub(crate) fn install(mailbox: Arc<Mailbox>) -> Rc<Self> {
        let queue = Rc::new(Self {
            mailbox,
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
        let mailbox = Arc::clone(&self.mailbox);
        let schedule = WithInfo(move |runnable, info| schedule(&mailbox, runnable, info));
        let (runnable, task) = async_task::spawn_local(future, schedule);
        self.tasks.borrow_mut()[key] = runnable.waker();
        task.detach();
        self.ready.borrow_mut().push_back(runnable);
    }

    pub(crate) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push_back(runnable);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.borrow().is_empty() && self.yielded.borrow().is_empty()
    }

    /// Begins a new turn for those who have ended theirs (E4).
    pub(crate) fn next_turn(&self) {
        let mut yielded = self.yielded.borrow_mut();
        if !yielded.is_empty() {
            self.ready.borrow_mut().append(&mut yielded);
        }
    }

    pub(crate) fn pop(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// Drops every task (E1): each is woken so that it stands in the queue, and dropped from there.
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

/// Puts a woken task into its shard's queue, or into its inbox when woken from elsewhere.
fn schedule(mailbox: &Arc<Mailbox>, runnable: Runnable, info: ScheduleInfo) {
    let elsewhere = CURRENT.with_borrow(|current| match current {
        Some(queue) if Arc::ptr_eq(&queue.mailbox, mailbox) => {
            if info.woken_while_running {
                queue.yielded.borrow_mut().push_back(runnable);
            } else {
                queue.push(runnable);
            }
            None
        }
        _ => Some(runnable),
    });
    let Some(runnable) = elsewhere else { return };
    if let Err(Letter::Wake(runnable)) = mailbox.send(Letter::Wake(runnable)) {
        // E1: it cannot be dropped here. Its shard has dropped all its tasks before it closed the inbox, so this is
        // one that was just being dropped, and holds nothing.
        std::mem::forget(runnable);
    }
}
