//! What is relocated on a shard while it is served: runs between disks, and whole spaces between layouts.
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
use varve_block::{Arena, Device, Extent};
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

/// What of a volume is relocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moving {
    /// The run that moves off a disk.
    Off(PvName),
    /// All of it, to another layout.
    Layout,
}

/// Bytes of a space that are copied to another place.
pub(crate) struct Relocation {
    /// The volume or pool.
    pub(crate) volume: Uuid,
    /// The volume, pool or store whose bytes they are.
    pub(crate) of: Uuid,
    /// From the old place to the new one.
    pub(crate) moved: Rc<Move>,
    /// How much of the space it is.
    pub(crate) what: Relocated,
}

/// How much of a space is relocated.
pub(crate) enum Relocated {
    /// A run.
    Run(MovingRun),
    /// All of it, from the inside of one tree to that of another.
    Tree {
        /// What the new array is called until it counts, if the new layout is one.
        array: Option<Uuid>,
        old: Device,
        new: Device,
    },
}

impl Relocation {
    fn what(&self) -> Moving {
        match &self.what {
            Relocated::Run(run) => Moving::Off(run.old.0),
            Relocated::Tree { .. } => Moving::Layout,
        }
    }
}

/// The moves of a shard.
#[derive(Default)]
pub struct Moves {
    relocations: RefCell<Vec<Rc<Relocation>>>,
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
        let relocations = self.relocations.borrow();
        let own = relocations.iter().filter(|one| one.of == of && one.what() == Moving::Off(pv));
        let disk = MovableDisk::new(disk, own.map(|one| Rc::clone(&one.moved)));
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

    /// A new tree of the space `of` over `inside`, or over what converts it (TREES2 of `trees.rs`).
    pub(crate) fn tree(&self, of: Uuid, inside: Device, arena: &Arena) -> Device {
        let relocations = self.relocations.borrow();
        let converted = relocations.iter().find(|one| one.of == of && one.what() == Moving::Layout);
        let inside = converted.map_or(inside, |one| one.moved.device());
        self.trees.add(of, inside, arena)
    }

    /// It is relocated from now on.
    pub(crate) fn add(&self, new: Relocation) {
        let mut relocations = self.relocations.borrow_mut();
        let is_taken = relocations.iter().any(|one| match new.what() {
            Moving::Off(_) => (one.volume, one.what()) == (new.volume, new.what()),
            Moving::Layout => false,
        });
        assert!(!is_taken, "SHARDMOVE1: one run of a disk moves at a time");
        relocations.push(Rc::new(new));
    }

    /// It is relocated no more.
    pub(crate) fn remove(&self, one: &Rc<Relocation>) {
        self.relocations.borrow_mut().retain(|known| !Rc::ptr_eq(known, one));
    }

    /// What of a volume is relocated so.
    pub(crate) fn relocations(&self, volume: Uuid, what: Moving) -> Vec<Rc<Relocation>> {
        let relocations = self.relocations.borrow();
        relocations.iter().filter(|one| (one.volume, one.what()) == (volume, what)).cloned().collect()
    }

    /// A volume is taken out of use: what of it is not prepared yet stays where it is (SHARDMOVE3), and no request waits for a split.
    pub(crate) fn stop_copying(&self, volume: Uuid) {
        self.abandon(volume, |moved| moved.state() != MoveState::Prepared);
    }

    /// SHARDMOVE3, TREES3: nothing of the volume is written any more.
    pub(crate) fn forget(&self, volume: Uuid) {
        self.abandon(volume, |_| true);
    }

    fn abandon(&self, volume: Uuid, is_one: impl Fn(&Move) -> bool) {
        self.trees.resume(volume);
        let mut relocations = self.relocations.borrow_mut();
        for one in relocations.extract_if(.., |one| one.volume == volume && is_one(&one.moved)) {
            if one.moved.state() != MoveState::Moved {
                one.moved.abandon();
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
}
