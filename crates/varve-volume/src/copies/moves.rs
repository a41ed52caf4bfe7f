//! The steps by which runs of volumes move between disks, as the control asks for them.
//!
//! Invariants: SHARDMOVE1 to SHARDMOVE4 of `movable.rs`.

use super::movable::MovingRun;
use crate::ShardContext;
use crate::failures;
use crate::opened::open_array::disks_of;
use crate::spec::Wanted;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, Extent};
use varve_target::moving::{Move, MoveError};
use varve_vg::model::PvName;

/// Begins to move a run. Afterwards every change of it reaches both places.
pub async fn begin(context: &ShardContext, run: MovingRun) -> Result<(), Failure> {
    let _in_use = context.served(run.volume); // A panic is the volume's.
    let moves = &context.moves;
    let (old, new) = (context.disk(&run.old.1), context.disk(&run.new.1));
    let (extent, target) = (run.old.2, Extent::new(run.new.2, run.old.2.length));
    let fits = |device: &Device, extent: Extent| device.shape().extent().contains(extent);
    if !fits(&old, extent) || !fits(&new, target) || new.shape().block_size > old.shape().block_size {
        let message = "a disk is shorter, or has larger sectors, than when the move was planned";
        return Err(Failure::new(Code::VolumeUnusable, message).help("varve pv list"));
    }
    let moved = Rc::new(Move::new(&old, extent, &new, run.new.2));
    let (of, pv) = (run.of, run.old.0);
    moves.add(run, &moved);
    for (_, disk) in moves.leaves(of, pv) {
        disk.begin(&moved).await;
    }
    Ok(())
}

/// Copies the next `bytes` of the run; how many are left.
pub async fn copy(context: &ShardContext, volume: Uuid, pv: PvName, bytes: u64) -> Result<u64, Failure> {
    let _in_use = context.served(volume);
    let (_, moved) = context.moves.step(volume, pv).ok_or_else(out_of_use)?;
    moved.copy(&context.arena(), bytes).await.map_err(failure)?;
    Ok(moved.left())
}

/// Makes the new place as good as the old one; afterwards either may count, of which the new one is what `wanted` says.
pub async fn prepare(
    context: &ShardContext,
    volume: Uuid,
    pv: PvName,
    wanted: &Wanted,
) -> Result<(), Failure> {
    let (_, moved) = context.moves.step(volume, pv).ok_or_else(out_of_use)?;
    moved.prepare().await.map_err(failure)?;
    prepare_placements(context, volume, wanted);
    Ok(())
}

/// The new place counts if it `is_switched`, else the old one. Afterwards nothing is under way to the other, and if nothing of the
/// space `is_left` on the disk, no flush goes there. Nothing happens if nothing moves.
pub async fn finish(context: &ShardContext, volume: Uuid, pv: PvName, is_switched: bool, is_left: bool) {
    let Some((run, moved)) = context.moves.step(volume, pv) else { return };
    if is_switched {
        moved.finish();
    } else {
        moved.abandon();
    }
    if let Some(served) = context.served(volume) {
        served.each_placement(|id, placement| {
            placement.finish(is_switched);
            let open = served.below().arrays.get(id);
            if let Some((open, target)) = open.zip(placement.array()) {
                open.disks.replace(disks_of(target));
            }
        });
    }
    let leaves = context.moves.leaves(run.of, pv);
    for (leaf, disk) in leaves.into_iter().filter(|(_, disk)| disk.goes_through(&moved)) {
        let target = context.moves.target(&leaf, &run, moved.new_place(), context.disk(&run.new.1));
        disk.end(&moved, &target).await;
    }
    context.moves.remove(&moved);
    if !is_left {
        for (_, disk) in context.moves.leaves(run.of, pv) {
            disk.leave().await; // SHARDMOVE4
        }
    }
}

/// The volume and its stores may be where `wanted` says, too.
pub(super) fn prepare_placements(context: &ShardContext, volume: Uuid, wanted: &Wanted) {
    let Some(served) = context.served(volume) else { return };
    served.each_placement(|id, placement| {
        let store = wanted.node.store(id).map(|store| &store.table);
        placement.prepare(store.unwrap_or(&wanted.node.table), &wanted.disks);
    });
}

fn out_of_use() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume was taken out of use while it was moved")
        .help("it goes on when the volume is in use again: varve status")
}

fn failure(error: MoveError) -> Failure {
    match error {
        MoveError::Old(error) => failures::io("the disk that is emptied", error),
        MoveError::New(error) => failures::io("the disk to which it moves", error),
        MoveError::Cancelled => out_of_use(),
    }
}
