//! The volumes of a pool in memory: by their numbers and by their names, and the locks for operations on one as a whole.
//!
//! Invariants:
//! - POOLNAMES1. Every volume that is not being removed stands in the index with its name, and nothing else does: one is found
//!   without a look at all others, as are those of one volume.
//! - VOLUMES1. A number is given once, and the next one is higher than all that were.

use super::super::PoolError;
use super::name_index::Names;
use super::volume::Volume;
use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_block::{Extent, LockMode, RangeGuard, RangeLock};
use varve_format::thin::{VolumeFlags, VolumeRows};

/// With more volumes their names are not compared after each change.
const NAMES_COMPARED_MAX: usize = 64;

/// The volumes by their numbers.
pub(in crate::thin) type ById = BTreeMap<u64, Rc<Volume>>;

/// The volumes of a pool.
pub(in crate::thin) struct Volumes {
    known: RefCell<ById>,
    names: RefCell<Names>,
    /// Volumes that are gone from memory and not yet from the map of volumes.
    forgotten: RefCell<BTreeSet<u64>>,
    next: Cell<u64>,
    /// Held, by the numbers of volumes, by operations on one as a whole.
    managing: RangeLock,
    /// Volumes that are being removed for all but the rollback that makes them (REVERT3 of `rollback.rs`).
    in_the_making: RefCell<BTreeSet<u64>>,
}

impl Volumes {
    /// No volume yet; the first one that comes gets the number `next`.
    pub(in crate::thin) fn new(next: u64) -> Self {
        Self {
            known: RefCell::default(),
            names: RefCell::default(),
            forgotten: RefCell::default(),
            next: Cell::new(next),
            managing: RangeLock::new(),
            in_the_making: RefCell::default(),
        }
    }

    /// The right to do something to volume `id` as a whole.
    pub(in crate::thin) async fn manage(&self, id: u64) -> RangeGuard {
        self.managing.lock(Extent::new(id, 1), LockMode::Exclusive).await
    }

    /// All of them, those included that are being removed.
    pub(in crate::thin) fn all(&self) -> Ref<'_, ById> {
        self.known.borrow()
    }

    /// One of them, though it is being removed.
    pub(in crate::thin) fn get(&self, id: u64) -> Option<Rc<Volume>> {
        self.known.borrow().get(&id).cloned()
    }

    /// One of which the log speaks.
    pub(in crate::thin) fn known(&self, id: u64) -> Result<Rc<Volume>, PoolError> {
        self.get(id).ok_or(PoolError::Corrupt("the log speaks of a volume that there is not"))
    }

    /// One that is not being removed.
    pub(in crate::thin) fn find(&self, id: u64) -> Result<Rc<Volume>, PoolError> {
        self.get(id).filter(|volume| !volume.has(VolumeFlags::REMOVING)).ok_or(PoolError::NotFound)
    }

    /// The number of the next volume (VOLUMES1).
    pub(in crate::thin) fn next_id(&self) -> u64 {
        self.next.get()
    }

    /// Takes in a new volume.
    pub(in crate::thin) fn enter(&self, rows: VolumeRows) -> Rc<Volume> {
        self.next.set(self.next.get().max(rows.volume + 1));
        self.take_in(Volume::from_rows(rows, true))
    }

    /// Takes in a volume that was not there (POOLNAMES1).
    pub(in crate::thin) fn take_in(&self, volume: Volume) -> Rc<Volume> {
        let volume = Rc::new(volume);
        if !volume.name.borrow().is_empty() {
            self.names.borrow_mut().entries.insert(entry(&volume));
        }
        let before = self.known.borrow_mut().insert(volume.id, Rc::clone(&volume));
        assert!(before.is_none(), "VOLUMES1: a number is never given twice");
        volume
    }

    /// A volume that holds nothing is gone, and is to be removed from the map of volumes.
    pub(in crate::thin) fn forget(&self, id: u64) {
        let gone = self.known.borrow_mut().remove(&id);
        assert!(gone.is_some(), "THIN9: what is forgotten was there");
        self.forgotten.borrow_mut().insert(id);
    }

    /// Those that the map of volumes still has.
    pub(in crate::thin) fn forgotten(&self) -> BTreeSet<u64> {
        self.forgotten.borrow().clone()
    }

    /// `id` was removed from the map of volumes.
    pub(in crate::thin) fn is_gone_from_map(&self, id: u64) {
        assert!(!self.known.borrow().contains_key(&id), "THIN9: what is forgotten is not there");
        self.forgotten.borrow_mut().remove(&id);
    }

    /// Whether the map of volumes says what is in memory.
    pub(in crate::thin) fn are_in_map(&self) -> bool {
        self.forgotten.borrow().is_empty() && self.known.borrow().values().all(|volume| !volume.dirty.get())
    }

    /// Those of which the map of volumes says something else.
    pub(in crate::thin) fn dirty(&self) -> Vec<Rc<Volume>> {
        self.known.borrow().values().filter(|volume| volume.dirty.get()).cloned().collect()
    }

    /// One that is being removed, if there is any.
    pub(in crate::thin) fn next_to_remove(&self) -> Option<Rc<Volume>> {
        self.known.borrow().values().find(|volume| self.is_to_be_removed(volume)).cloned()
    }

    /// The numbers of all that are being removed.
    pub(in crate::thin) fn removing(&self) -> BTreeSet<u64> {
        let known = self.known.borrow();
        known.values().filter(|volume| volume.has(VolumeFlags::REMOVING)).map(|volume| volume.id).collect()
    }

    /// How many are being removed.
    pub(in crate::thin) fn count_removing(&self) -> usize {
        self.known.borrow().values().filter(|volume| self.is_to_be_removed(volume)).count()
    }

    fn is_to_be_removed(&self, volume: &Volume) -> bool {
        volume.has(VolumeFlags::REMOVING) && !self.in_the_making.borrow().contains(&volume.id)
    }

    /// Volume `id` is made from now on.
    pub(in crate::thin) fn begin_making(&self, id: u64) {
        let is_new = self.in_the_making.borrow_mut().insert(id);
        assert!(is_new, "REVERT3: a copy is made once");
    }

    /// Volume `id` is no longer being made: it is being removed without exception.
    pub(in crate::thin) fn end_making(&self, id: u64) {
        let was_kept = self.in_the_making.borrow_mut().remove(&id);
        assert!(was_kept, "REVERT3: a copy is made and abandoned once");
    }

    /// The volume is called `name` from now on; if that is empty it has no name any more (POOLNAMES1).
    pub(in crate::thin) fn set_name(&self, volume: &Volume, name: &str) {
        let entries = &mut self.names.borrow_mut().entries;
        let was_there = entries.remove(&entry(volume));
        let before = volume.name.replace(name.to_owned());
        assert!(was_there || before.is_empty(), "POOLNAMES1: {before}");
        if !name.is_empty() {
            entries.insert(entry(volume));
        }
    }

    /// The volume called `name`, or the snapshot of volume `of` that is.
    pub(in crate::thin) fn named(&self, of: Option<u64>, name: &str) -> Option<u64> {
        self.names.borrow().find(of, name)
    }

    /// The numbers of the snapshots of volume `of`, in the order of their creation.
    pub(in crate::thin) fn snapshot_numbers(&self, of: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.names.borrow().snapshots_of(of).collect();
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|one, two| one < two), "POOLNAMES1: each stands here once");
        numbers
    }

    /// How many snapshots volume `of` has.
    pub(in crate::thin) fn count_snapshots(&self, of: u64) -> usize {
        self.names.borrow().snapshots_of(of).count()
    }

    /// A volume in messages for users: its name, behind that of its volume if it is a snapshot.
    pub(in crate::thin) fn full_name(&self, volume: &Volume) -> String {
        let named =
            |id: u64, name: &str| if name.is_empty() { format!("volume {id}") } else { name.to_owned() };
        let own = named(volume.id, &volume.known_name());
        let Some(of) = volume.snapshot_of else { return own };
        let known = self.known.borrow();
        let of = known.get(&of).map_or_else(|| named(of, ""), |known| named(of, &known.known_name()));
        format!("{of}@{own}")
    }

    /// Numbers rise; where debug assertions are compiled in, the names of few volumes are compared, too.
    pub(in crate::thin) fn assert_consistent(&self) {
        let known = self.known.borrow();
        let last = known.last_key_value().map(|(id, _)| *id);
        assert!(
            last.is_none_or(|id| id < self.next.get()),
            "VOLUMES1: the next number is higher than {last:?}"
        );
        if cfg!(debug_assertions) && known.len() <= NAMES_COMPARED_MAX {
            self.assert_names();
        }
    }

    /// Panics if the index of names is not that of the volumes (POOLNAMES1).
    pub(in crate::thin) fn assert_names(&self) {
        let (names, known) = (self.names.borrow(), self.known.borrow());
        let named = |volume: &&Rc<Volume>| !volume.name.borrow().is_empty();
        let all = known.values().filter(named).map(|volume| entry(volume));
        assert_eq!(names.entries, all.collect(), "POOLNAMES1");
    }
}

/// What stands in the index for a volume.
fn entry(volume: &Volume) -> (Option<u64>, String, u64) {
    (volume.snapshot_of, volume.name.borrow().clone(), volume.id)
}
