//! An exception store in use: it grows before it is full, its owner hears of what happens to it, and what removed
//! snapshots leave behind is given back in small doses.
//!
//! Invariants:
//! - Y1. At most one request for growth of a store is under way; who comes meanwhile shares its result.
//! - Y2. What the volume declares for a full store is done only when the store cannot grow; until then changes wait.
//! - Y3. The background gets at most a tenth of the shard's time.

use super::bell::Bell;
use crate::control;
use futures_util::future::{AbortHandle, Either, abortable, select};
use futures_util::lock::Mutex;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_os::{ShardContext, ShardHandle};
use varve_target::snapshot::{FullPolicy, SnapshotStore, StoreError, StoreEvent, Usage};
use varve_vg::StoreKind;
use varve_vg::model::{StorePolicy, WhenFull};
use varve_vg::size::format_size;

/// How long a store waits before it asks for growth again after there was none, with changes waiting and without.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(20)];
/// How long changes that waited get to try again before it is asked whether they still wait.
const TURN: Duration = Duration::from_millis(1);
/// How long it listens for the next thing when there is nothing to ask for.
const IDLE: Duration = Duration::from_secs(3600);
/// The least time that a change waits while its store is being extended.
const GROWTH_MIN: Duration = Duration::from_secs(60);
/// A store that cannot grow is told of when so much of it is taken, in percent.
pub(crate) const LEVELS: [u64; 3] = [80, 90, 95];
/// Entries of a dose.
const DOSE_ENTRIES: usize = 128;
/// The least rest after a dose.
const REST_MIN: Duration = Duration::from_micros(200);
/// Doses rest so many times as long as they took (Y3).
const REST_FACTOR: u32 = 9;
/// How long it rests when a dose found no room.
const REST_FULL: Duration = Duration::from_millis(100);

/// How a dose ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dose {
    /// There is more to do.
    More,
    /// There is, but no room for it now: that comes with the end of requests, with a checkpoint, or when the store grows.
    NoRoom,
    /// There is nothing to do any more, or nothing that can be done.
    Done,
}

/// A store in use. It works in the background until it is closed.
pub(crate) struct OpenStore {
    /// Its id in the group.
    pub(crate) id: Uuid,
    /// Whose snapshots it serves.
    pub(crate) kind: StoreKind,
    /// The store itself.
    pub(crate) store: Rc<SnapshotStore>,
    volume: Uuid,
    context: ShardContext,
    control: ShardHandle,
    policy: Cell<StorePolicy>,
    growing: Mutex<()>,
    /// The group had no space for it when it last asked.
    is_stuck: Cell<bool>,
    bell: Bell,
    sweeping: Cell<bool>,
    /// Whether it was told that changes wait.
    pause_told: Cell<bool>,
    timeout_told: Cell<bool>,
    dropped: Cell<u64>,
    timed_out: Cell<u64>,
    tasks: RefCell<Vec<AbortHandle>>,
    sweeper: RefCell<Option<AbortHandle>>,
}

/// What a store is like now.
#[derive(Clone, Debug)]
pub(crate) struct StoreFacts {
    pub(crate) id: Uuid,
    pub(crate) size: u64,
    pub(crate) used: u64,
    pub(crate) chunk_size: u64,
    pub(crate) is_paused: bool,
    pub(crate) dropped: u64,
    pub(crate) timed_out: u64,
}

impl OpenStore {
    /// `store`, which belongs to `volume`, kept from now on.
    pub(super) fn new(
        id: Uuid,
        kind: StoreKind,
        store: Rc<SnapshotStore>,
        owner: (Uuid, ShardHandle),
        context: &ShardContext,
        policy: StorePolicy,
    ) -> Rc<Self> {
        let (volume, control) = owner;
        let open = Rc::new(Self {
            id,
            kind,
            store,
            volume,
            context: context.clone(),
            control,
            policy: Cell::new(policy),
            growing: Mutex::new(()),
            is_stuck: Cell::new(false),
            bell: Bell::default(),
            sweeping: Cell::new(false),
            pause_told: Cell::new(false),
            timeout_told: Cell::new(false),
            dropped: Cell::new(0),
            timed_out: Cell::new(0),
            tasks: RefCell::default(),
            sweeper: RefCell::default(),
        });
        open.apply_policy();
        let tasks = vec![open.work(Rc::clone(&open).watch()), open.work(Rc::clone(&open).listen())];
        open.tasks.replace(tasks);
        if !open.store.removals().is_empty() {
            open.sweep_on();
        }
        open
    }

    /// Works no more; lets go of the store as soon as nobody else holds it.
    pub(super) fn close(&self) {
        self.tasks.take().iter().chain(&self.sweeper.take()).for_each(AbortHandle::abort);
    }

    fn work(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let (task, handle) = abortable(task);
        self.context.spawner().spawn(async move {
            let _ = task.await;
        });
        handle
    }

    /// What it is like now.
    pub(crate) fn facts(&self) -> StoreFacts {
        let Usage { size, free, pending } = self.store.usage();
        StoreFacts {
            id: self.id,
            size,
            used: size - free - pending,
            chunk_size: self.store.chunk_size(),
            is_paused: self.store.is_paused(),
            dropped: self.dropped.get(),
            timed_out: self.timed_out.get(),
        }
    }

    /// The volume declares something else from now on.
    pub(super) fn set_policy(&self, policy: StorePolicy) {
        self.policy.set(policy);
        self.group_has_space();
    }

    /// The group has more free space than before.
    pub(super) fn group_has_space(&self) {
        self.is_stuck.set(false);
        self.apply_policy();
        self.bell.ring();
    }

    /// Y2.
    fn apply_policy(&self) {
        let policy = self.policy.get();
        let timeout = Duration::from_millis(policy.pause_timeout_ms);
        let declared = match policy.when_full {
            WhenFull::Pause => FullPolicy::Pause { timeout },
            WhenFull::DropOldest => FullPolicy::DropOldest,
            WhenFull::Error => FullPolicy::Error,
        };
        let may_grow = policy.extend_at_percent.is_some() && !self.is_stuck.get();
        let growing = FullPolicy::Pause { timeout: timeout.max(GROWTH_MIN) };
        self.store.set_full_policy(if may_grow { growing } else { declared });
    }

    /// Has the store made larger than `seen` bytes, if it may grow. Whether it is.
    pub(crate) async fn grow(&self, seen: u64) -> bool {
        if self.policy.get().extend_at_percent.is_none() {
            return self.store.usage().size > seen;
        }
        let _turn = self.growing.lock().await;
        if self.store.usage().size > seen {
            return true; // Y1: somebody else has asked
        }
        let (volume, store) = (self.volume, self.id);
        let asked = self.control.run(async move |_: ShardContext| control::extend_store(volume, store).await);
        let grown = match asked.await {
            Ok(Ok(())) => self.store.usage().size > seen,
            Ok(Err(failure)) => {
                if !self.is_stuck.get() {
                    tracing::warn!(%volume, %failure, "a snapshot store could not be extended");
                }
                false
            }
            Err(_) => false,
        };
        self.is_stuck.set(!grown);
        self.apply_policy();
        grown
    }

    /// Has the store grow when it runs low or changes wait, and tells when it cannot.
    async fn watch(self: Rc<Self>) {
        let (mut told, clock) = (0, self.context.clock());
        loop {
            let (usage, policy) = (self.store.usage(), self.policy.get());
            let percent = usage.percent();
            let due = policy.extend_at_percent.is_some_and(|at| percent >= at || self.store.is_paused());
            if due && self.grow(usage.size).await {
                clock.sleep(TURN).await;
                continue;
            }
            told = self.tell_level(usage, told).await;
            if self.store.is_paused() && !self.pause_told.replace(true) {
                self.tell(format!("writes that need a copy wait for space, {}", self.obstacle())).await;
            }
            let next = LEVELS.into_iter().chain(policy.extend_at_percent).filter(|level| *level > percent);
            let filled = self.store.filled(next.min().unwrap_or(u64::MAX));
            let retry = match (due, self.store.is_paused()) {
                (true, true) => RETRY[0],
                (true, false) => RETRY[1],
                (false, _) => IDLE,
            };
            let changed = select(Box::pin(filled), Box::pin(self.bell.heard()));
            let _: Either<_, _> = select(changed, clock.sleep(retry)).await;
        }
    }

    /// Tells of a level that the store has reached and cannot leave by growing; which one was told last.
    async fn tell_level(&self, usage: Usage, told: u64) -> u64 {
        /// A level counts as left when so much less is taken.
        const MARGIN: u64 = 3;
        let percent = usage.percent();
        let reached = LEVELS.into_iter().filter(|level| *level <= percent).max().unwrap_or(0);
        if reached <= told {
            return if percent + MARGIN < told { reached } else { told };
        }
        self.tell(format!(
            "{percent} % of its snapshot store of {} are taken, {}",
            format_size(usage.size),
            self.obstacle()
        ))
        .await;
        reached
    }

    /// Why the store does not grow.
    fn obstacle(&self) -> &'static str {
        match self.policy.get().extend_at_percent {
            Some(_) => "and the group has no more for it: varve vg extend VG PATH…",
            None => "and automatic extension is off: varve lv change VG/LV --auto-extend 80%:20%",
        }
    }

    /// Passes on what the store says happened to it.
    async fn listen(self: Rc<Self>) {
        loop {
            match self.store.next_event().await {
                StoreEvent::Paused => self.bell.ring(),
                StoreEvent::Resumed => {
                    self.timeout_told.set(false);
                    if self.pause_told.take() {
                        self.tell("writes that waited for space go on".to_owned()).await;
                    }
                }
                StoreEvent::TimedOut => {
                    self.timed_out.set(self.timed_out.get() + 1);
                    if self.timeout_told.replace(true) {
                        continue; // many fail together
                    }
                    self.tell("a write that needed a copy waited in vain and failed".to_owned()).await;
                }
                StoreEvent::Dropped(snapshot) => {
                    self.dropped.set(self.dropped.get() + 1);
                    self.sweep_on();
                    let (volume, store) = (self.volume, self.id);
                    let dropped = self.control.run(async move |_: ShardContext| {
                        control::snapshot_dropped(volume, store, &snapshot.name).await;
                    });
                    let _ = dropped.await;
                }
            }
        }
    }

    async fn tell(&self, message: String) {
        let volume = self.volume;
        let told = self.control.run(async move |_: ShardContext| control::tell(volume, &message));
        let _ = told.await;
    }

    /// Gives back, bit by bit, what removed snapshots leave behind. The first dose is taken at once.
    pub(super) async fn sweep(self: &Rc<Self>) {
        if self.sweeping.get() || self.dose().await == Dose::Done {
            return;
        }
        self.sweep_on();
    }

    /// The same, but all of it in the background.
    fn sweep_on(self: &Rc<Self>) {
        if self.sweeping.replace(true) {
            return;
        }
        let open = Rc::clone(self);
        let sweeper = self.work(async move {
            let clock = open.context.clock();
            loop {
                let begun = clock.now();
                let least = match open.dose().await {
                    Dose::More => REST_MIN,
                    Dose::NoRoom => REST_FULL,
                    Dose::Done => break,
                };
                let spent = clock.now().since(begun);
                clock.sleep((spent * REST_FACTOR).max(least)).await; // Y3
            }
            open.sweeping.set(false);
        });
        self.sweeper.replace(Some(sweeper));
    }

    /// Takes a dose.
    async fn dose(&self) -> Dose {
        match self.store.reclaim(DOSE_ENTRIES).await {
            Ok(true) => Dose::More,
            Ok(false) => Dose::Done,
            Err(StoreError::NoSpace) => Dose::NoRoom,
            Err(error) => {
                tracing::error!(%error, "what removed snapshots leave behind cannot be given back");
                Dose::Done
            }
        }
    }
}
