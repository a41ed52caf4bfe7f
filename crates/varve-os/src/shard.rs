//! One shard: a thread, its tasks, its timers and its reactor, and what code that runs there is given.

use crate::clock::{self, RealClock};
use crate::disks::disk_file::DiskFile;
use crate::disks::lane::Lane;
use crate::doorway::Doorway;
use crate::driver::helpers::{Helpers, Job, Place};
use crate::driver::reactor::{IoChoice, Reactor};
use crate::driver::ring::Wait;
use crate::executor::Queue;
use crate::mailbox::Mailbox;
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use varve_block::{Arena, Clock, LocalFuture, Spawn, Spawner};

/// Tasks polled before the kernel is entered again, so that answers do not lie about while tasks keep each other busy.
const POLLS_MAX: usize = 128;

/// The shard, or the task on it, ended before there was an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the shard is gone")]
pub struct ShardGone;

/// Work for the thread of a shard.
pub(crate) type Call = Box<dyn FnOnce(&ShardContext) + Send>;

/// All that a shard is made of.
pub(crate) struct Core {
    pub(crate) index: usize,
    /// What other threads have the shard do.
    pub(crate) calls: Arc<Mailbox<Call>>,
    pub(crate) queue: Rc<Queue>,
    pub(crate) reactor: Rc<Reactor>,
    clock: Rc<RealClock>,
    pub(crate) doorway: Doorway,
    helpers: Arc<Helpers>,
    pub(crate) arena: Arena,
    /// Work that others do for this shard: calls of helpers, requests to other shards.
    pub(crate) remote_pending: Rc<Cell<usize>>,
    /// What the disks in use here have under way, by the addresses of their files.
    lanes: RefCell<HashMap<usize, Weak<Lane>>>,
    stage: Cell<Stage>,
    /// Whether a task has panicked.
    broken: Cell<bool>,
}

/// How far a shard is on its way out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Running,
    /// Nothing new from peers; what is in flight finishes.
    Draining,
    /// The loop ends.
    Ending,
}

impl Core {
    pub(crate) fn new(
        index: usize,
        choice: IoChoice,
        calls: Arc<Mailbox<Call>>,
        helpers: Arc<Helpers>,
        arena: Arena,
    ) -> std::io::Result<Rc<Self>> {
        let reactor = Reactor::new(choice, &arena, calls.notify(), Arc::clone(&helpers))?;
        Ok(Rc::new(Self {
            index,
            queue: Queue::install(calls.notify()),
            calls,
            reactor: Rc::new(reactor),
            clock: Rc::default(),
            doorway: Doorway::default(),
            helpers,
            arena,
            remote_pending: Rc::default(),
            lanes: RefCell::default(),
            stage: Cell::new(Stage::Running),
            broken: Cell::new(false),
        }))
    }

    /// Runs until the shard is asked to end, or one of its tasks panics. Says once through `quiet` that it drained. Whether
    /// no task has panicked.
    pub(crate) fn run(self: &Rc<Self>, quiet: &Sender<()>) -> bool {
        let context = ShardContext { core: Rc::clone(self) };
        let mut announced = false;
        while self.stage.get() < Stage::Ending {
            self.run_ready();
            self.deliver(&context);
            self.doorway.begin_visits(&self.queue);
            self.fire_timers();
            if !announced && self.stage.get() == Stage::Draining && self.is_quiet() {
                announced = true;
                let _ = quiet.send(());
            }
            if self.stage.get() < Stage::Ending {
                self.pause();
                self.queue.next_turn();
            }
        }
        self.wind_up(&context);
        if !announced {
            let _ = quiet.send(());
        }
        !self.broken.get()
    }

    /// The lane of a disk: one for all devices on it.
    pub(crate) fn lane(&self, file: &Arc<DiskFile>, new: impl FnOnce() -> Lane) -> Rc<Lane> {
        let mut lanes = self.lanes.borrow_mut();
        lanes.retain(|_, lane| lane.strong_count() > 0);
        let address = Arc::as_ptr(file).addr();
        // A lane lives in devices and flights, which keep their file: no other one can have its address.
        lanes.get(&address).and_then(Weak::upgrade).unwrap_or_else(|| {
            let lane = Rc::new(new());
            lanes.insert(address, Rc::downgrade(&lane));
            lane
        })
    }

    /// Takes in nothing new from peers any more.
    pub(crate) fn drain(&self) {
        self.advance(Stage::Draining);
        self.reactor.drain();
    }

    /// Ends the loop.
    pub(crate) fn end(&self) {
        self.advance(Stage::Ending);
    }

    fn advance(&self, stage: Stage) {
        self.stage.set(self.stage.get().max(stage));
    }

    /// Whether all that is left waits for time or for peers.
    fn is_quiet(&self) -> bool {
        self.queue.is_empty()
            && !self.doorway.has_visits()
            && self.reactor.disk_count() == 0
            && self.remote_pending.get() == 0
    }

    fn run_ready(&self) {
        for _ in 0..POLLS_MAX {
            let Some(runnable) = self.queue.pop() else { return };
            self.clock.forget();
            // A panic is a broken contract. What the task held is in an unknown state, so the whole shard ends;
            // but in order, because the kernel may still write to memory of its operations.
            if catch_unwind(AssertUnwindSafe(|| runnable.run())).is_err() {
                tracing::error!(shard = self.index, "a task panicked: the shard ends");
                self.broken.set(true);
                self.end();
                return;
            }
        }
    }

    /// Takes in what other threads have sent.
    fn deliver(&self, context: &ShardContext) {
        if !self.calls.notify().take_pending() {
            return;
        }
        self.queue.collect();
        self.reactor.collect();
        for call in self.calls.collect() {
            self.clock.forget();
            if catch_unwind(AssertUnwindSafe(|| call(context))).is_err() {
                tracing::error!(shard = self.index, "a call panicked: the shard ends");
                self.broken.set(true);
                self.end();
            }
        }
    }

    fn fire_timers(&self) {
        if self.clock.timers.borrow().next().is_none() {
            return;
        }
        let now = clock::now();
        loop {
            let due = self.clock.timers.borrow_mut().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Enters the kernel; waits there if there is nothing else to do.
    fn pause(&self) {
        if !self.queue.is_empty() || self.doorway.has_visits() || !self.calls.notify().try_sleep() {
            self.reactor.enter(Wait::No);
            return;
        }
        let next = self.clock.timers.borrow().next();
        let wait = match next {
            Some(deadline) => Wait::Limit(deadline.since(clock::now())),
            None => Wait::Event,
        };
        self.reactor.enter(wait);
        self.calls.notify().awake();
    }

    /// Drops all tasks, and waits until the kernel and the helpers have released all memory (URING4 of `ring.rs`).
    fn wind_up(&self, context: &ShardContext) {
        self.queue.drop_tasks();
        self.doorway.close();
        self.clock.timers.borrow_mut().clear();
        self.reactor.drain();
        while self.reactor.pending_count() > 0 {
            self.deliver(context);
            self.queue.drop_tasks();
            if self.reactor.pending_count() > 0 {
                self.pause();
            }
        }
        drop(self.calls.close());
        self.queue.close();
        self.queue.drop_tasks();
        Queue::uninstall();
    }
}

/// What code on a shard is given: the real world. Cheap to clone; stays on its thread.
#[derive(Clone)]
pub struct ShardContext {
    pub(crate) core: Rc<Core>,
}

struct QueueSpawner(Rc<Queue>);

impl Spawn for QueueSpawner {
    fn spawn(&self, task: LocalFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

impl ShardContext {
    /// The number of this shard, from zero.
    pub fn index(&self) -> usize {
        self.core.index
    }

    /// Whether a ring carries its requests; else helper threads do.
    pub fn is_ring(&self) -> bool {
        self.core.reactor.is_ring()
    }

    /// Real time.
    pub fn clock(&self) -> Clock {
        Clock::new(self.core.clock.clone())
    }

    /// The right to start tasks on this shard.
    pub fn spawner(&self) -> Spawner {
        Spawner::new(Rc::new(QueueSpawner(Rc::clone(&self.core.queue))))
    }

    /// Memory for requests; one arena for all shards.
    pub fn arena(&self) -> Arena {
        self.core.arena.clone()
    }

    /// Whether the shard takes in nothing new from peers any more, because the program is about to end.
    pub fn is_draining(&self) -> bool {
        self.core.reactor.is_draining()
    }

    /// Runs `work`, which may wait, on a helper thread. The work runs to its end even if the future is dropped. What may
    /// wait for a disk or a file system takes [`ShardContext::blocking_at`].
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ShardGone> {
        self.blocking_in(Place::Elsewhere, work).await
    }

    /// Like [`ShardContext::blocking`], for work on `path`: if that does not answer, only what is done there waits.
    pub async fn blocking_at<T: Send + 'static>(
        &self,
        path: impl Into<PathBuf>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ShardGone> {
        self.blocking_in(Place::Path(path.into()), work).await
    }

    pub(crate) async fn blocking_in<T: Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ShardGone> {
        let (sender, receiver) = oneshot::channel();
        let call = move || {
            let _ = sender.send(work());
        };
        self.core.helpers.submit(place, Job::Call(Box::new(call)));
        let _pending = RemotePending::enter(&self.core.remote_pending);
        receiver.await.map_err(|_| ShardGone)
    }
}

/// Counts work that others do for this shard.
pub(crate) struct RemotePending(Rc<Cell<usize>>);

impl RemotePending {
    pub(crate) fn enter(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for RemotePending {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
