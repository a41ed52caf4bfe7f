//! What can go on: tasks, and the future that a run is about.

use async_task::Runnable;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// One that can go on.
pub(super) enum Ready {
    Main,
    Task(Runnable),
}

/// What can go on. Wakers must be `Send`, hence the lock, which is never contended.
#[derive(Default)]
pub(super) struct ReadyQueue(Mutex<VecDeque<Ready>>);

impl ReadyQueue {
    pub(super) fn push(&self, ready: Ready) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(ready);
    }
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// Takes the one at `index`; the last one takes its place.
    pub(super) fn take(&self, index: usize) -> Option<Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).swap_remove_back(index)
    }
    pub(super) fn first(&self) -> Option<Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Wakes the future that a run is about.
pub(super) struct MainWaker {
    ready: Arc<ReadyQueue>,
    queued: AtomicBool,
}

impl MainWaker {
    pub(super) fn new(ready: Arc<ReadyQueue>) -> Self {
        Self { ready, queued: AtomicBool::new(false) }
    }

    /// Its place in the queue was taken: the next wake queues again.
    pub(super) fn taken(&self) {
        self.queued.store(false, Ordering::Relaxed);
    }
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.push(Ready::Main);
        }
    }
}
