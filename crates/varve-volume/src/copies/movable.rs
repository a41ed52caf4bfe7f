//! The disks as the volumes of a shard see them, and the runs that move between them.
//!
//! Below every tree of a space, the bytes of a volume, pool or store, stand the disks as that space sees them ([`MovableDisk`]); a move
//! concerns these, whatever the volume is made of.
//!
//! Invariants:
//! - SHARDMOVE1. While a run moves, every tree of its space reaches it through the move; a tree that is built meanwhile, too.
//! - SHARDMOVE2. Where a run has moved, a tree reaches it through the new disk as the tree sees it, so that it can move on.
//! - SHARDMOVE3. A volume that is out of use has no moves: where its bytes lie its group's text says. While it is taken out of use, both
//!   places of a run that is prepared receive what it still writes: either may be the one of which the text says so.
//! - SHARDMOVE4. A tree flushes no disk but those on which its space is: one that fails may hold another space of the volume.

use crate::spec::Disks;
use crate::trees::Trees;
use crate::world::DiskRef;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;
use varve_block::{Device, Extent};
use varve_target::moving::{MovableDisk, Move, MoveState};
use varve_vg::model::PvName;

/// A run of a space, and where it goes.
#[derive(Clone)]
pub struct MovingRun {
    /// The volume or pool.
    pub volume: Uuid,
    /// The volume, pool or store whose bytes they are.
    pub of: Uuid,
    /// Where it is.
    pub old: (PvName, DiskRef, Extent),
    /// Where it goes, and the first byte there.
    pub new: (PvName, DiskRef, u64),
}

/// The moves of a shard.
#[derive(Default)]
pub struct Moves {
    steps: RefCell<Vec<(MovingRun, Rc<Move>)>>,
    leaves: RefCell<Vec<Leaf>>,
    numbers: Cell<u64>,
    /// The trees above the disks.
    pub(crate) trees: Trees,
}

/// A disk as a tree of a space sees it.
#[derive(Clone)]
pub(crate) struct Leaf {
    of: Uuid,
    tree: u64,
    pv: PvName,
    disk: Weak<MovableDisk>,
}

impl Moves {
    /// The disks of a group, as a new tree of the space `of` is to see them (SHARDMOVE1).
    pub(crate) fn disks_of(
        &self,
        of: Uuid,
        disks: &Disks,
        open: impl Fn(&DiskRef) -> Device,
    ) -> BTreeMap<PvName, Device> {
        let tree = self.numbers.get() + 1;
        self.numbers.set(tree);
        self.leaves.borrow_mut().retain(|leaf| leaf.disk.strong_count() > 0);
        let leaf =
            |(pv, file): (&PvName, &DiskRef)| (*pv, Device::from_rc(self.leaf((of, tree), *pv, open(file))));
        disks.iter().map(leaf).collect()
    }

    fn leaf(&self, (of, tree): (Uuid, u64), pv: PvName, disk: Device) -> Rc<MovableDisk> {
        let steps = self.steps.borrow();
        let own = steps.iter().filter(|(run, _)| run.of == of && run.old.0 == pv);
        let disk = MovableDisk::new(disk, own.map(|(_, moved)| Rc::clone(moved)));
        self.leaves.borrow_mut().push(Leaf { of, tree, pv, disk: Rc::downgrade(&disk) });
        disk
    }

    /// The disk to which `run` has gone, as the tree of `leaf` sees it (SHARDMOVE2).
    pub(crate) fn target(&self, leaf: &Leaf, run: &MovingRun, place: Extent, disk: Device) -> Device {
        let leaves = self.leaves.borrow().clone();
        let is_one = |other: &&Leaf| (other.tree, other.pv) == (leaf.tree, run.new.0);
        let known = leaves.iter().filter(is_one).filter_map(|other| other.disk.upgrade());
        let plain = known.into_iter().find(|disk| disk.is_plain(place));
        let new = || self.leaf((leaf.of, leaf.tree), run.new.0, disk);
        Device::from_rc(plain.unwrap_or_else(new))
    }

    /// A run moves from now on.
    pub(crate) fn add(&self, run: MovingRun, moved: &Rc<Move>) {
        assert!(self.step(run.volume, run.old.0).is_none(), "SHARDMOVE1: one run of a disk moves at a time");
        self.steps.borrow_mut().push((run, Rc::clone(moved)));
    }

    /// A run moves no more.
    pub(crate) fn remove(&self, moved: &Rc<Move>) {
        self.steps.borrow_mut().retain(|(_, known)| !Rc::ptr_eq(known, moved));
    }

    /// A volume is taken out of use: what of it is not prepared yet stays where it is (SHARDMOVE3).
    pub(crate) fn stop_copying(&self, volume: Uuid) {
        self.trees.stop_copying(volume);
        self.abandon(|run, moved| run.volume == volume && moved.state() != MoveState::Prepared);
    }

    /// SHARDMOVE3, TREES3: nothing of the volume is written any more.
    pub(crate) fn forget(&self, volume: Uuid) {
        self.trees.forget(volume);
        self.abandon(|run, _| run.volume == volume);
    }

    fn abandon(&self, is_one: impl Fn(&MovingRun, &Move) -> bool) {
        let mut steps = self.steps.borrow_mut();
        for (_, moved) in steps.extract_if(.., |(run, moved)| is_one(run, moved)) {
            if moved.state() != MoveState::Moved {
                moved.abandon();
            }
        }
    }

    /// The disk that `device` is, as some tree sees it.
    pub(crate) fn disk_of(&self, device: &Device) -> Option<PvName> {
        let is_it =
            |leaf: &&Leaf| leaf.disk.upgrade().is_some_and(|disk| Device::from_rc(disk).is_same(device));
        self.leaves.borrow().iter().find(is_it).map(|leaf| leaf.pv)
    }

    /// A disk as all trees of the space `of` see it.
    pub(crate) fn leaves(&self, of: Uuid, pv: PvName) -> Vec<(Leaf, Rc<MovableDisk>)> {
        let leaves = self.leaves.borrow();
        let own = leaves.iter().filter(|leaf| leaf.of == of && leaf.pv == pv);
        own.filter_map(|leaf| Some((leaf.clone(), leaf.disk.upgrade()?))).collect()
    }

    /// What of a volume moves from a disk.
    pub(crate) fn step(&self, volume: Uuid, pv: PvName) -> Option<(MovingRun, Rc<Move>)> {
        let steps = self.steps.borrow();
        steps.iter().find(|(run, _)| run.volume == volume && run.old.0 == pv).cloned()
    }
}
