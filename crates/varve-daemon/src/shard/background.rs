//! What works in the background of something open: begun with it and ended with it, or in doses until nothing is left.
//!
//! Invariant Y3: doses get at most a tenth of the shard's time.

use futures_util::future::{AbortHandle, abortable};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use varve_os::ShardContext;

/// The least rest after a dose.
const REST_MIN: Duration = Duration::from_micros(200);
/// Doses rest so many times as long as they took (Y3).
const REST_FACTOR: u32 = 9;
/// How long they rest when one found no room.
const REST_FULL: Duration = Duration::from_millis(100);

/// How a dose ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dose {
    /// There is more to do.
    More,
    /// There is, but no room for it now: that comes with the end of requests, with a checkpoint, or with growth.
    NoRoom,
    /// There is nothing to do any more, or nothing that can be done.
    Done,
}

/// The tasks of something open.
pub(super) struct Background {
    context: ShardContext,
    tasks: RefCell<Vec<AbortHandle>>,
    sweeper: RefCell<Option<AbortHandle>>,
    is_sweeping: Rc<Cell<bool>>,
}

impl Background {
    /// Nothing to do yet.
    pub(super) fn new(context: &ShardContext) -> Self {
        Self {
            context: context.clone(),
            tasks: RefCell::default(),
            sweeper: RefCell::default(),
            is_sweeping: Rc::default(),
        }
    }

    /// Has `task` run until the end of it, or of all.
    pub(super) fn begin(&self, task: impl Future<Output = ()> + 'static) {
        let handle = self.work(task);
        self.tasks.borrow_mut().push(handle);
    }

    /// Ends everything.
    pub(super) fn close(&self) {
        self.tasks.take().iter().chain(&self.sweeper.take()).for_each(AbortHandle::abort);
    }

    /// Whether doses are being taken.
    pub(super) fn is_sweeping(&self) -> bool {
        self.is_sweeping.get()
    }

    /// Takes doses, with rests between them, until there is nothing to do; unless they are being taken already.
    pub(super) fn sweep(&self, dose: impl AsyncFn() -> Dose + 'static) {
        if self.is_sweeping.replace(true) {
            return;
        }
        let (clock, is_sweeping) = (self.context.clock(), Rc::clone(&self.is_sweeping));
        let sweeper = self.work(async move {
            loop {
                let begun = clock.now();
                let least = match dose().await {
                    Dose::More => REST_MIN,
                    Dose::NoRoom => REST_FULL,
                    Dose::Done => break,
                };
                let spent = clock.now().since(begun);
                clock.sleep((spent * REST_FACTOR).max(least)).await; // Y3
            }
            is_sweeping.set(false);
        });
        self.sweeper.replace(Some(sweeper));
    }

    fn work(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let (task, handle) = abortable(task);
        self.context.spawner().spawn(async move {
            let _ = task.await;
        });
        handle
    }
}
