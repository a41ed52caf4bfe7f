//! Snapshots come and go, and the store grows.

use super::batch::{Ticket, Work};
use super::{InjectedBug, SnapshotBytes, SnapshotStore, StoreError, of_device, usable_size};
use crate::pdata::AllocClass;
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{Device, Extent, IoError, LockMode, RangeGuard, TrackerGuard};
use varve_format::pdata::Block;
use varve_format::store::{Descriptor, Entry, PART_SIZE};

/// What a snapshot is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSnapshot {
    /// Its name, which no other snapshot of this origin has.
    pub name: String,
    /// Whether writes to it are refused.
    pub read_only: bool,
    /// Whether its removal is refused.
    pub held: bool,
}

/// How much of a store is used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Size of the store.
    pub size: u64,
    /// What can be taken at once.
    pub free: u64,
    /// What the next checkpoint sets free.
    pub pending: u64,
}

impl Usage {
    /// How much is taken, in percent, rounded down.
    pub fn percent(&self) -> u64 {
        self.size.saturating_sub(self.free).saturating_sub(self.pending).saturating_mul(100)
            / self.size.max(1)
    }
}

/// A store in which no other task creates, removes or rolls back.
pub struct Claimed {
    store: Rc<SnapshotStore>,
    managing: RangeGuard,
}

impl Claimed {
    /// The second half of [`SnapshotStore::freeze`], which waits for no more than the changes that are under way.
    pub async fn freeze(self) -> Result<Frozen, StoreError> {
        let store = self.store;
        let closed = store.changes.close();
        store.changes.drained().await;
        assert!(store.changes.is_empty(), "SNAPSHOT6: no change is under way");
        store.origin_device().flush().await.map_err(of_device)?; // SNAPSHOT6
        Ok(Frozen { store, _closed: closed, _managing: self.managing })
    }
}

/// An origin whose changes wait, so that snapshots of several origins can share one instant. Goes on when dropped.
pub struct Frozen {
    store: Rc<SnapshotStore>,
    _closed: TrackerGuard,
    _managing: RangeGuard,
}

/// A snapshot that exists, but not yet durably.
pub struct Pending {
    store: Rc<SnapshotStore>,
    ticket: Ticket,
    id: u64,
}

impl Frozen {
    /// Creates a snapshot of this instant. It is valid once [`Pending::commit`] has said so, which may happen after
    /// the origin goes on.
    pub fn create(&self, new: &NewSnapshot) -> Result<Pending, StoreError> {
        let store = &self.store;
        assert!(store.changes.is_empty(), "SNAPSHOT6: no change is under way");
        varve_format::check_name(&new.name).map_err(|_| StoreError::Name)?;
        let mut contents = store.contents.borrow_mut();
        if contents.next_snapshot > u64::from(u32::MAX) {
            return Err(StoreError::Misfit("the origin has had as many snapshots as it can ever have")); // ENTRY3
        }
        if contents.snapshots.values().any(|known| known.name == new.name) {
            return Err(StoreError::Exists);
        }
        let descriptor = Descriptor {
            id: contents.next_snapshot,
            name: new.name.clone(),
            created: store.clock.date(),
            size: store.origin_device().shape().size,
            read_only: new.read_only,
            held: new.held,
            base: false,
        };
        let id = descriptor.id;
        let entry = Entry::Created(descriptor.clone());
        contents.announce(descriptor);
        drop(contents);
        store.keep_for_checkpoint();
        store.views.borrow_mut().insert(id, Rc::default());
        store.assert_consistent();
        // Joined before any change can go on: the log says that the snapshot exists before it says what it keeps.
        let ticket = store.pipeline.join(Work::Entry(entry));
        Ok(Pending { store: Rc::clone(store), ticket, id })
    }
}

impl Pending {
    /// Waits until the snapshot is durable; returns its id.
    pub async fn commit(self) -> Result<u64, StoreError> {
        let Pending { store, ticket, id } = self;
        // If the log was refused it, it is withdrawn already. If the log failed, that may say that the snapshot exists:
        // it is not visible, and the origin is not changed where that would need a copy, until the next start can tell.
        store.await_commit(ticket).await?;
        Ok(id)
    }
}

impl SnapshotStore {
    /// Lets changes of the origin wait, until what comes back is dropped, and makes everything durable that they
    /// have done so far.
    pub async fn freeze(self: &Rc<Self>) -> Result<Frozen, StoreError> {
        self.claim().await?.freeze().await
    }

    /// The first half of [`SnapshotStore::freeze`], during which changes go on: waits for other tasks that create, remove
    /// or roll back, and makes durable what was done before.
    pub async fn claim(self: &Rc<Self>) -> Result<Claimed, StoreError> {
        let managing = self.manage().await?;
        // The long flush comes before the gate closes, so that the one behind it is short.
        if !self.is_origin_flushed.take() {
            self.origin_device().flush().await.map_err(of_device)?;
        }
        Ok(Claimed { store: Rc::clone(self), managing })
    }

    /// The log was refused a snapshot that was announced.
    pub(super) fn withdraw(&self, id: u64) {
        self.contents.borrow_mut().withdraw(id);
        assert!(!self.map.bytes().contains_key(&id), "CONTENTS3: nothing was entered for it");
        self.views.borrow_mut().remove(&id);
        self.keep_for_checkpoint();
    }

    /// The right to create, remove or roll back, one at a time.
    pub(super) async fn manage(&self) -> Result<RangeGuard, StoreError> {
        let guard = self.managing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        if self.half_rolled_back.get() {
            return Err(StoreError::HalfRolledBack);
        }
        self.failed.check()?; // Else it is not known whether what was made or has gone is durable.
        Ok(guard)
    }

    /// Creates a snapshot; returns its id.
    pub async fn create(self: &Rc<Self>, new: &NewSnapshot) -> Result<u64, StoreError> {
        let pending = {
            let frozen = self.freeze().await?;
            frozen.create(new)?
        };
        pending.commit().await
    }

    /// Changes whether a snapshot can be written, and whether its removal is refused. Handles keep the access that
    /// they were made with.
    pub async fn set_flags(&self, id: u64, read_only: bool, held: bool) -> Result<(), StoreError> {
        let _managing = self.manage().await?;
        let base = self.descriptor(id)?.base;
        self.log_entry(Entry::Flags { snapshot: id, read_only, held, base }).await?;
        Ok(())
    }

    /// Gives a snapshot another name, which no other snapshot of this origin has.
    pub async fn rename(&self, id: u64, name: &str) -> Result<(), StoreError> {
        let _managing = self.manage().await?;
        self.descriptor(id)?;
        varve_format::check_name(name).map_err(|_| StoreError::Name)?;
        // One that is announced has its name already: it may come to be.
        if self.contents.borrow().snapshots.values().any(|known| known.name == name) {
            return Err(StoreError::Exists);
        }
        let entry = Entry::Renamed { snapshot: id, name: name.to_owned() };
        if self.has_bug(InjectedBug::RenameUnlogged) {
            return self.contents.borrow_mut().apply(&entry);
        }
        self.log_entry(entry).await?;
        Ok(())
    }

    /// Notes whether a snapshot backs others. As long as it does, it is neither removed nor dropped for want of room.
    pub async fn set_base(&self, id: u64, base: bool) -> Result<(), StoreError> {
        let _managing = self.manage().await?;
        let Descriptor { read_only, held, .. } = self.descriptor(id)?;
        self.log_entry(Entry::Flags { snapshot: id, read_only, held, base }).await?;
        Ok(())
    }

    /// All snapshots, the oldest first.
    pub fn list(&self) -> Vec<Descriptor> {
        self.contents.borrow().visible().cloned().collect()
    }

    /// Number of snapshots.
    pub fn snapshot_count(&self) -> usize {
        self.contents.borrow().visible().count()
    }

    /// What is known of a snapshot.
    pub fn descriptor(&self, id: u64) -> Result<Descriptor, StoreError> {
        self.contents.borrow().visible_one(id).cloned().ok_or(StoreError::NotFound)
    }

    /// How many bytes belong to each snapshot, and to each removed one that still has some.
    pub fn snapshot_bytes(&self) -> BTreeMap<u64, SnapshotBytes> {
        let mut bytes = self.map.bytes();
        for descriptor in self.contents.borrow().visible() {
            bytes.entry(descriptor.id).or_default();
        }
        bytes
    }

    /// How many checkpoints the store has had.
    pub fn generation(&self) -> u64 {
        self.state.borrow().log.generation
    }

    /// How much of the store is used.
    pub fn usage(&self) -> Usage {
        let log = self.state.borrow().log.blocks.len() as u64;
        let pages = self.blocks.pages();
        let size = usable_size(self.store.borrow().shape().size);
        let known = pages.end_block().offset();
        assert!(known <= size, "SNAPSHOT10: a store does not shrink");
        let not_taken_in = size - known;
        Usage {
            size,
            free: pages.available(AllocClass::Reserve) * PART_SIZE + not_taken_in,
            pending: (pages.reclaimable_blocks() + log) * PART_SIZE,
        }
    }

    /// Completes when so much of the store is taken that it should grow.
    pub async fn low_space(&self) -> Usage {
        self.filled(self.options.low_space_percent).await
    }

    /// Completes when at least `percent` of the store are taken.
    pub async fn filled(&self, percent: u64) -> Usage {
        self.waiters.watch.filled(percent, || self.usage().percent()).await;
        self.usage()
    }

    pub(super) fn notify_space(&self) {
        self.waiters.watch.notify(|| self.usage().percent());
    }

    /// The store's device has grown: `device` is the same, with more behind its end, which the next batch takes in (SNAPSHOT10).
    pub fn grown(&self, device: Device) -> Result<(), StoreError> {
        let (old, new) = (usable_size(self.store.borrow().shape().size), usable_size(device.shape().size));
        if new < old {
            return Err(StoreError::Misfit("an exception store cannot shrink"));
        }
        let end = self.blocks.pages().end_block();
        self.blocks.grow(device.clone(), end);
        self.store.replace(device);
        self.waiters.notify();
        Ok(())
    }

    /// Whether the device has more than was taken in.
    pub(super) fn has_grown(&self) -> bool {
        usable_size(self.store.borrow().shape().size) > self.blocks.pages().end_block().offset()
    }

    /// Takes in all of the device, and describes it before a record leads there. Called only by a leader; an error if nothing is
    /// changed any more.
    pub(super) async fn take_in_growth(&self) -> Result<(), IoError> {
        self.failed.check()?;
        if self.has_grown() {
            let device = self.store_device();
            let end = Block::at(usable_size(device.shape().size));
            self.blocks.grow(device, end);
        }
        let end = self.blocks.pages().end_block().offset();
        if end == self.state.borrow().described || self.has_bug(InjectedBug::GrowthUndescribed) {
            return Ok(());
        }
        // It needs no more blocks than are kept for it, and there are more now (SNAPSHOT9).
        self.checkpoint().await
    }

    /// The origin has another size: `device` is the same, with more or less behind its end. Snapshots keep theirs.
    /// Ask for [`SnapshotStore::origin`] again.
    pub fn origin_resized(&self, device: Device) -> Result<(), StoreError> {
        let size = device.shape().size;
        if !size.is_multiple_of(PART_SIZE) {
            return Err(StoreError::Misfit("the origin is not made of whole parts of 4 KiB"));
        }
        if self.contents.borrow().newest().is_some_and(|(_, newest)| newest > size) {
            return Err(StoreError::Misfit("the origin is smaller than its newest snapshot"));
        }
        self.contents.borrow_mut().set_origin_size(size);
        self.origin.replace(device);
        Ok(())
    }
}
