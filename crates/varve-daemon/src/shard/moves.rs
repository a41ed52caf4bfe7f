//! Runs of volumes that move between disks while the volumes are served.
//!
//! Below every tree of a volume stand the disks as that volume sees them ([`MovableDisk`]); a move concerns these, whatever the
//! volume is made of.
//!
//! Invariants:
//! - SHARDMOVE1. While a run moves, every tree of its volume reaches it through the move; a tree that is built meanwhile, too.
//! - SHARDMOVE2. Where a run has moved, a tree reaches it through the new disk as the tree sees it, so that it can move on.
//! - SHARDMOVE3. A volume that is out of use has no moves: where its bytes lie its group's text says.

use super::ShardContext;
use super::host::Host;
use super::placement::Placement;
use super::reconcile::Wanted;
use super::spec::Disks;
use crate::failures;
use crate::world::DiskRef;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, Extent, MIB};
use varve_target::moving::{MovableDisk, Move, MoveError, MoveState};
use varve_vg::model::PvName;

/// Bytes that are copied at a time; changes of them wait meanwhile.
const PIECE: u64 = MIB;

/// A run of a volume, and where it goes.
#[derive(Clone)]
pub(crate) struct MovingRun {
    /// The volume or pool.
    pub(crate) volume: Uuid,
    /// Where it lies.
    pub(crate) old: (PvName, DiskRef, Extent),
    /// Where it goes, and the first byte there.
    pub(crate) new: (PvName, DiskRef, u64),
}

/// The moves of a shard.
#[derive(Default)]
pub(crate) struct Moves {
    steps: RefCell<Vec<(MovingRun, Rc<Move>)>>,
    leaves: RefCell<Vec<Leaf>>,
    trees: Cell<u64>,
}

/// A disk as a tree of a volume sees it.
#[derive(Clone)]
struct Leaf {
    volume: Uuid,
    tree: u64,
    pv: PvName,
    disk: Weak<MovableDisk>,
}

impl Moves {
    /// The disks of a volume's group, as a new tree of the volume is to see them (SHARDMOVE1).
    pub(super) fn disks_of(&self, host: &Host, volume: Uuid, disks: &Disks) -> BTreeMap<PvName, Device> {
        let tree = self.trees.get() + 1;
        self.trees.set(tree);
        self.leaves.borrow_mut().retain(|leaf| leaf.disk.strong_count() > 0);
        let leaf = |(pv, file): (&PvName, &DiskRef)| {
            (*pv, Device::from_rc(self.leaf(host, (volume, tree), *pv, file)))
        };
        disks.iter().map(leaf).collect()
    }

    fn leaf(
        &self,
        host: &Host,
        (volume, tree): (Uuid, u64),
        pv: PvName,
        file: &DiskRef,
    ) -> Rc<MovableDisk> {
        let steps = self.steps.borrow();
        let own = steps.iter().filter(|(run, _)| run.volume == volume && run.old.0 == pv);
        let disk = MovableDisk::new(host.disk(file), own.map(|(_, moved)| Rc::clone(moved)));
        self.leaves.borrow_mut().push(Leaf { volume, tree, pv, disk: Rc::downgrade(&disk) });
        disk
    }

    /// The disk to which `run` has gone, as the tree of `leaf` sees it (SHARDMOVE2).
    fn target(&self, host: &Host, leaf: &Leaf, run: &MovingRun, place: Extent) -> Device {
        let leaves = self.leaves.borrow().clone();
        let is_one = |other: &&Leaf| (other.tree, other.pv) == (leaf.tree, run.new.0);
        let known = leaves.iter().filter(is_one).filter_map(|other| other.disk.upgrade());
        let plain = known.into_iter().find(|disk| disk.is_plain(place));
        let new = || self.leaf(host, (leaf.volume, leaf.tree), run.new.0, &run.new.1);
        Device::from_rc(plain.unwrap_or_else(new))
    }

    /// SHARDMOVE3.
    pub(super) fn forget(&self, volume: Uuid) {
        let mut steps = self.steps.borrow_mut();
        for (_, moved) in steps.extract_if(.., |(run, _)| run.volume == volume) {
            if moved.state() != MoveState::Moved {
                moved.abandon();
            }
        }
    }

    fn leaves(&self, volume: Uuid, pv: PvName) -> Vec<(Leaf, Rc<MovableDisk>)> {
        let leaves = self.leaves.borrow();
        let own = leaves.iter().filter(|leaf| leaf.volume == volume && leaf.pv == pv);
        own.filter_map(|leaf| Some((leaf.clone(), leaf.disk.upgrade()?))).collect()
    }

    fn step(&self, volume: Uuid, pv: PvName) -> Option<(MovingRun, Rc<Move>)> {
        let steps = self.steps.borrow();
        steps.iter().find(|(run, _)| run.volume == volume && run.old.0 == pv).cloned()
    }
}

/// Begins to move a run. Afterwards every change of it reaches both places.
pub(crate) async fn begin(context: &ShardContext, run: MovingRun) -> Result<(), Failure> {
    let _in_use = (context.pool(run.volume), context.family(run.volume)); // A panic is the volume's.
    let moves = &context.moves;
    assert!(moves.step(run.volume, run.old.0).is_none(), "SHARDMOVE1: one run of a disk moves at a time");
    let (old, new) = (context.disk(&run.old.1), context.disk(&run.new.1));
    let (extent, target) = (run.old.2, Extent::new(run.new.2, run.old.2.length));
    let fits = |device: &Device, extent: Extent| device.shape().extent().contains(extent);
    if !fits(&old, extent) || !fits(&new, target) || new.shape().block_size > old.shape().block_size {
        let message = "a disk is shorter, or has larger sectors, than when the move was planned";
        return Err(Failure::new(Code::VolumeUnusable, message).help("varve pv list"));
    }
    let moved = Rc::new(Move::new(&old, extent, &new, run.new.2));
    let (volume, pv) = (run.volume, run.old.0);
    moves.steps.borrow_mut().push((run, Rc::clone(&moved)));
    for (_, disk) in moves.leaves(volume, pv) {
        disk.begin(&moved).await;
    }
    Ok(())
}

/// Copies the next `bytes` of the run; how many are left.
pub(crate) async fn copy(context: &ShardContext, volume: Uuid, pv: PvName, bytes: u64) -> Result<u64, Failure> {
    let _in_use = (context.pool(volume), context.family(volume));
    let (_, moved) = context.moves.step(volume, pv).ok_or_else(out_of_use)?;
    let end = moved.left().saturating_sub(bytes);
    while moved.left() > end {
        moved.copy(&context.arena(), PIECE.min(moved.left() - end)).await.map_err(failure)?;
    }
    Ok(moved.left())
}

/// Makes the new place as good as the old one; afterwards either may count, of which the new one is what `wanted` says.
pub(crate) async fn prepare(
    context: &ShardContext,
    volume: Uuid,
    pv: PvName,
    wanted: &Wanted,
) -> Result<(), Failure> {
    let (_, moved) = context.moves.step(volume, pv).ok_or_else(out_of_use)?;
    moved.prepare().await.map_err(failure)?;
    each_placement(context, volume, |id, placement| {
        let store = wanted.node.store(id).map(|store| &store.table);
        placement.prepare(store.unwrap_or(&wanted.node.table), &wanted.disks);
    });
    Ok(())
}

/// The new place counts if it `is_switched`, else the old one. Afterwards nothing is under way to the other. Nothing happens if
/// nothing moves.
pub(crate) async fn settle(context: &ShardContext, volume: Uuid, pv: PvName, is_switched: bool) {
    let Some((run, moved)) = context.moves.step(volume, pv) else { return };
    if is_switched {
        moved.finish();
    } else {
        moved.abandon();
    }
    each_placement(context, volume, |_, placement| placement.settle(is_switched));
    for (leaf, disk) in context.moves.leaves(volume, pv) {
        let target = context.moves.target(context.host(), &leaf, &run, moved.new_place());
        disk.end(&moved, &target).await;
    }
    context.moves.steps.borrow_mut().retain(|(_, known)| !Rc::ptr_eq(known, &moved));
}

/// Nothing of a volume is left on a disk.
pub(crate) async fn leave(context: &ShardContext, volume: Uuid, pv: PvName) {
    for (_, disk) in context.moves.leaves(volume, pv) {
        disk.leave().await;
    }
}

/// Changes where the volume, and each of its stores, is known to lie.
fn each_placement(context: &ShardContext, volume: Uuid, change: impl Fn(Uuid, &mut Placement)) {
    if let Some(pool) = context.pool(volume) {
        change(volume, &mut pool.placement.borrow_mut());
    }
    if let Some(family) = context.family(volume) {
        family.placement.borrow_mut().iter_mut().for_each(|placement| change(volume, placement));
        for store in family.stores.borrow().iter() {
            change(store.id, &mut store.placement.borrow_mut());
        }
    }
}

fn out_of_use() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume was taken out of use while it was moved")
}

fn failure(error: MoveError) -> Failure {
    match error {
        MoveError::Old(error) => failures::io("the disk that is emptied", error),
        MoveError::New(error) => failures::io("the disk to which it moves", error),
        MoveError::Cancelled => out_of_use(),
    }
}
