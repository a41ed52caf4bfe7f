//! An exception store in use: it grows before it is full, its owner hears of what happens to it, and what removed
//! snapshots leave behind is given back in small batches.
//!
//! How a store grows is in `growth.rs`, how batches are taken in `background.rs`.

use super::children::Opened;
use super::growth::{Growth, Vessel, Words};
use crate::events::VolumeEvent;
use crate::lifecycle::background::{Background, BatchEnd};
use crate::lifecycle::placement::Placement;
use futures_util::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_block::TrackerGuard;
use varve_target::array::ArrayStatus;
use varve_target::snapshot::{FullPolicy, SnapshotStore, StoreError, StoreEvent, Usage};
use varve_vg::StoreKind;
use varve_vg::model::{StorePolicy, WhenFull};

/// Entries of a batch.
const BATCH_ENTRIES: usize = 128;
/// How long no snapshot is removed before it is made durable that all have given back what they had.
const SETTLE_DELAY: Duration = Duration::from_secs(1);

/// A store in use. It works in the background until it is closed.
pub struct OpenStore {
    /// Its id in the group.
    pub id: Uuid,
    /// Whose snapshots it serves.
    pub kind: StoreKind,
    /// The store itself.
    pub store: Rc<SnapshotStore>,
    /// Where it is.
    pub(crate) placement: RefCell<Placement>,
    /// Of the volume.
    opened: Rc<Opened>,
    growth: Rc<Growth<SnapshotStore>>,
    background: Background,
    /// Whether a task is to make durable that removals are over.
    settles: Cell<bool>,
    dropped: Cell<u64>,
}

/// What a store is like now.
#[derive(Clone, Debug)]
pub struct StoreFacts {
    /// The store's identity.
    pub id: Uuid,
    /// Bytes of the store.
    pub size: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that are copied at a time.
    pub chunk_size: u64,
    /// Whether writes wait for space.
    pub is_paused: bool,
    /// Whether changes failed for want of space, and none has come since.
    pub is_refusing: bool,
    /// How its array does, if it is on one.
    pub array: Option<ArrayStatus>,
    /// Whether it grows when it is nearly full.
    pub can_grow: bool,
    /// Snapshots that were removed for want of space.
    pub dropped: u64,
    /// Writes that waited for space for too long.
    pub timed_out: u64,
}

impl OpenStore {
    /// `store`, which belongs to a volume, kept from now on.
    pub(crate) fn new(
        what: (Uuid, StoreKind, Placement),
        store: Rc<SnapshotStore>,
        opened: &Rc<Opened>,
        policy: StorePolicy,
    ) -> Rc<Self> {
        let (id, kind, placement) = what;
        let growth = Growth::new(Rc::clone(&store), opened.id, id, &opened.host, policy);
        let open = Rc::new(Self {
            id,
            kind,
            store,
            placement: RefCell::new(placement),
            opened: Rc::clone(opened),
            growth,
            background: Background::new(&opened.host, &opened.health),
            settles: Cell::new(false),
            dropped: Cell::new(0),
        });
        open.background.listen(Rc::clone(&open.growth).watch());
        open.background.listen(Rc::clone(&open).listen());
        if !open.store.removals().is_empty() {
            open.reclaim_in_background();
        }
        open
    }

    /// Keeps the store from being closed while a task works on it.
    pub(crate) fn enter(&self) -> TrackerGuard {
        self.background.enter()
    }

    /// Works no more; closes the store as soon as no other task holds it.
    pub(crate) async fn close(&self) {
        self.background.close().await;
    }

    /// Makes durable that removals are over, which a start would take up again.
    pub(crate) async fn settle(&self) {
        if let Err(error) = self.store.settle().await {
            tracing::warn!(store = %self.id, %error, "removals that are over are taken up again at the next start");
        }
    }

    /// Why removed snapshots are not given back, if they are not.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        self.background.trouble()
    }

    /// What it is like now.
    pub fn facts(&self) -> StoreFacts {
        let Usage { size, free, pending } = self.store.usage();
        StoreFacts {
            id: self.id,
            size,
            used: size - free - pending,
            chunk_size: self.store.chunk_size(),
            is_paused: self.store.is_paused(),
            is_refusing: self.store.is_refusing(),
            array: self.opened.arrays.status(self.id),
            can_grow: self.growth.can_grow(),
            dropped: self.dropped.get(),
            timed_out: self.growth.timed_out(),
        }
    }

    /// The volume declares something else from now on.
    pub(crate) fn set_policy(&self, policy: StorePolicy) {
        self.growth.set_policy(policy);
    }

    /// Writes that wait for space fail, now and until they may wait again.
    pub(crate) fn let_writes_fail(&self, fail: bool) {
        self.growth.let_fail(fail);
    }

    /// The group has more free space than before.
    pub(crate) fn group_has_space(&self) {
        self.growth.group_has_space();
    }

    /// Has the store made larger than `seen` bytes, if it may grow. Whether it is.
    pub async fn grow(&self, seen: u64) -> bool {
        self.growth.grow(seen).await
    }

    /// Changes the store; it is made larger as often as there is no space for the change, while it may grow.
    pub(crate) async fn change<T>(
        &self,
        change: impl AsyncFn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            let seen = self.store.usage().size;
            match change().await {
                Err(StoreError::NoSpace) if self.grow(seen).await => {}
                result => return result,
            }
        }
    }

    /// Passes on what the store says happened to it.
    async fn listen(self: Rc<Self>) {
        loop {
            match self.store.next_event().await {
                StoreEvent::Paused => self.growth.paused(),
                StoreEvent::Resumed => self.growth.resumed(),
                StoreEvent::TimedOut => self.growth.waited_in_vain(),
                StoreEvent::Dropped(snapshot) => {
                    self.dropped.set(self.dropped.get() + 1);
                    self.reclaim_in_background();
                    let (volume, store, snapshot) = (self.opened.id, self.id, snapshot.name);
                    self.opened.host.tell(VolumeEvent::SnapshotDropped { volume, store, snapshot });
                }
            }
        }
    }

    /// Gives back, bit by bit, what removed snapshots leave behind. The first batch is taken at once.
    pub(crate) async fn reclaim(self: &Rc<Self>) {
        if self.background.is_reclaiming() {
            return;
        }
        match self.reclaim_batch().await {
            BatchEnd::Done => self.settle_later(),
            BatchEnd::Failed(error) => self.background.fail(error),
            BatchEnd::More | BatchEnd::NoRoom => self.reclaim_in_background(),
        }
    }

    /// The same, but all of it in the background.
    fn reclaim_in_background(self: &Rc<Self>) {
        let open = Rc::clone(self);
        self.background.reclaim(async move || {
            let end = open.reclaim_batch().await;
            if end == BatchEnd::Done {
                open.settle_later();
            }
            end
        });
    }

    /// Makes durable that removals are over when no other has been for a while.
    fn settle_later(self: &Rc<Self>) {
        if !self.store.has_unsettled() || self.settles.replace(true) {
            return;
        }
        let (open, has_rested) = (Rc::clone(self), Cell::new(false));
        self.background.work(async move || {
            if !has_rested.replace(true) || open.background.is_reclaiming() {
                return Some(SETTLE_DELAY);
            }
            open.settles.set(false);
            open.settle().await;
            None
        });
    }

    /// Takes a batch.
    async fn reclaim_batch(&self) -> BatchEnd {
        match self.store.reclaim(BATCH_ENTRIES).await {
            Ok(true) => BatchEnd::More,
            Ok(false) => BatchEnd::Done,
            Err(StoreError::NoSpace) => BatchEnd::NoRoom,
            Err(error) => {
                tracing::error!(%error, "what removed snapshots leave behind cannot be given back");
                BatchEnd::Failed(error)
            }
        }
    }
}

impl Vessel for SnapshotStore {
    fn size(&self) -> u64 {
        self.usage().size
    }

    fn percent(&self) -> u64 {
        self.usage().percent()
    }

    fn is_paused(&self) -> bool {
        SnapshotStore::is_paused(self)
    }

    fn declare(&self, when_full: WhenFull, timeout: Duration) {
        self.set_full_policy(match when_full {
            WhenFull::Pause => FullPolicy::Pause { timeout },
            WhenFull::DropOldest => FullPolicy::DropOldest,
            WhenFull::Error => FullPolicy::Error,
        });
    }

    fn filled(&self, percent: u64) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            SnapshotStore::filled(self, percent).await;
        })
    }

    fn words(&self) -> Words {
        Words { vessel: "its snapshot store", changes: "writes that need a copy" }
    }
}
