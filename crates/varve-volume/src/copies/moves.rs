//! The steps by which bytes of volumes are relocated, as the control asks for them: runs between disks, and whole spaces to another layout.
//!
//! Invariants: SHARDMOVE1 to SHARDMOVE4 of `movable.rs`, TREES1 to TREES4 of `trees.rs`.

use super::movable::{Moving, MovingRun, Relocated, Relocation};
use crate::ShardContext;
use crate::failures;
use crate::opened::children::Opened;
use crate::opened::open_array::disks_of;
use crate::spec::{Disks, Wanted};
use crate::trees::as_fine_as;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, Extent};
use varve_target::array::MemberState;
use varve_target::moving::{Move, MoveError};
use varve_vg::table::Table;

/// A volume, pool or store that is to be converted, under what its array is in use meanwhile, and where the new layout is.
pub type Part = (Uuid, Uuid, Table);

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
    let (volume, of, pv) = (run.volume, run.of, run.old.0);
    moves.add(Relocation { volume, of, moved: Rc::clone(&moved), what: Relocated::Run(run) });
    for (_, disk) in moves.leaves(of, pv) {
        disk.begin(&moved).await;
    }
    Ok(())
}

/// Begins to convert `parts` of a volume or pool. Afterwards changes of what was copied reach both layouts. If that fails it is to
/// be finished.
pub async fn begin_conversion(
    context: &ShardContext,
    volume: Uuid,
    parts: Vec<Part>,
    disks: Disks,
) -> Result<(), Failure> {
    let opened = context.in_use(volume).ok_or_else(|| out_of_use(Moving::Layout))?;
    for part in parts {
        let key = part.1;
        if let Err(failure) = begin_part(&opened, part, &disks).await {
            let _closed = opened.arrays.close_one(key).await;
            return Err(failure);
        }
    }
    Ok(())
}

async fn begin_part(opened: &Opened, (of, key, table): Part, disks: &Disks) -> Result<(), Failure> {
    let (volume, moves) = (opened.id, &opened.host.moves);
    let old = moves.trees.inside(of).ok_or_else(|| out_of_use(Moving::Layout))?;
    let array = table.array().map(|_| key);
    let new = opened.new_inside((of, key), &table, disks).await?;
    let new = as_fine_as(old.shape().block_size, new, &opened.host.arena());
    if new.shape().size != old.shape().size {
        let message = "the volume has another size than when the conversion was planned";
        return Err(Failure::new(Code::VolumeUnusable, message).help("varve job list"));
    }
    let moved = Rc::new(Move::new(&old, old.shape().extent(), &new, 0));
    let moving = moved.device();
    moves.add(Relocation { volume, of, moved, what: Relocated::Tree { array, old, new } });
    moves.trees.lead(of, &moving).await;
    Ok(())
}

/// Copies the next `bytes` of what is relocated; how many are left.
pub async fn copy(context: &ShardContext, volume: Uuid, what: Moving, bytes: u64) -> Result<u64, Failure> {
    let _in_use = context.served(volume); // A panic is the volume's.
    let relocations = context.moves.relocations(volume, what);
    let left = || relocations.iter().map(|one| one.moved.left()).sum::<u64>();
    let end = left().saturating_sub(bytes);
    while let Some(next) = relocations.iter().find(|one| one.moved.left() > 0)
        && left() > end
    {
        let copied = next.moved.copy(&context.arena(), left() - end).await;
        copied.map_err(|error| failure(what, error))?;
    }
    if relocations.is_empty() { Err(out_of_use(what)) } else { Ok(left()) }
}

/// Makes the new place as good as the old one; afterwards either may count, of which the new one is what `wanted` says.
pub async fn prepare(
    context: &ShardContext,
    volume: Uuid,
    what: Moving,
    wanted: &Wanted,
) -> Result<(), Failure> {
    let relocations = context.moves.relocations(volume, what);
    if relocations.is_empty() {
        return Err(out_of_use(what));
    }
    for one in &relocations {
        one.moved.prepare().await.map_err(|error| failure(what, error))?;
        check_members(context, one)?;
    }
    if let Some(served) = context.served(volume) {
        served.each_placement(|id, placement| {
            let store = wanted.node.store(id).map(|store| &store.table);
            placement.prepare(store.unwrap_or(&wanted.node.table), &wanted.disks);
        });
    }
    Ok(())
}

/// Refuses a new layout of which a member has failed.
fn check_members(context: &ShardContext, one: &Relocation) -> Result<(), Failure> {
    let Relocated::Tree { array: Some(array), .. } = one.what else { return Ok(()) };
    let status = context.opened(one.volume).and_then(|opened| opened.arrays.status(array));
    let members = status.map(|status| status.members).unwrap_or_default();
    if members.iter().all(|member| member.state == MemberState::InSync) {
        return Ok(());
    }
    let message = "a disk of the new layout has failed";
    Err(Failure::new(Code::MediumFailed, message).help("varve pv list"))
}

/// The new place counts if it `is_switched`, else the old one. Afterwards nothing is under way to the other, and if nothing of the
/// space `is_left` on the disk from which a run goes, no flush goes there. Nothing happens if nothing is relocated.
pub async fn finish(context: &ShardContext, volume: Uuid, what: Moving, is_switched: bool, is_left: bool) {
    let relocations = context.moves.relocations(volume, what);
    if relocations.is_empty() {
        return;
    }
    for one in &relocations {
        if is_switched { one.moved.finish() } else { one.moved.abandon() }
    }
    if let Some(served) = context.served(volume) {
        served.each_placement(|id, placement| {
            placement.finish(is_switched);
            // The array of a new layout is another one, which knows its disks.
            let open = served.below().arrays.get(id).filter(|_| what != Moving::Layout);
            if let Some((open, target)) = open.zip(placement.array()) {
                open.disks.replace(disks_of(target));
            }
        });
    }
    for one in relocations {
        match &one.what {
            Relocated::Run(run) => lead_run(context, &one, run, is_left).await,
            Relocated::Tree { array, old, new } => {
                context.moves.remove(&one);
                context.moves.trees.lead(one.of, if is_switched { new } else { old }).await;
                close_other(context, &one, *array, is_switched).await;
            }
        }
    }
}

/// Leads all trees of a space to where its run is now.
async fn lead_run(context: &ShardContext, one: &Rc<Relocation>, run: &MovingRun, is_left: bool) {
    let (moves, moved, pv) = (&context.moves, &one.moved, run.old.0);
    for (leaf, disk) in moves.leaves(run.of, pv).into_iter().filter(|(_, disk)| disk.goes_through(moved)) {
        let target = moves.target(&leaf, run, moved.new_place(), context.disk(&run.new.1));
        disk.end(moved, &target).await;
    }
    moves.remove(one);
    if !is_left {
        for (_, disk) in moves.leaves(run.of, pv) {
            disk.leave().await; // SHARDMOVE4
        }
    }
}

/// Closes the array of the layout that does not count.
async fn close_other(context: &ShardContext, one: &Relocation, array: Option<Uuid>, is_switched: bool) {
    let Some(opened) = context.opened(one.volume) else { return };
    let closed = match (is_switched, array) {
        (true, array) => opened.arrays.replace(one.of, array).await,
        (false, Some(array)) => opened.arrays.close_one(array).await,
        (false, None) => Ok(()),
    };
    if let Err(error) = closed {
        tracing::warn!(volume = %one.volume, %error, "an array could not be closed in order");
    }
}

fn out_of_use(what: Moving) -> Failure {
    let word = if what == Moving::Layout { "converted" } else { "moved" };
    Failure::new(Code::VolumeUnusable, format!("the volume was taken out of use while it was {word}"))
        .help("it goes on when the volume is in use again: varve status")
}

fn failure(what: Moving, error: MoveError) -> Failure {
    let (old, new) = match what {
        Moving::Off(_) => ("the disk that is emptied", "the disk to which it moves"),
        Moving::Layout => ("the old layout", "the new layout"),
    };
    match error {
        MoveError::Old(error) => failures::io(old, error),
        MoveError::New(error) => failures::io(new, error),
        MoveError::Cancelled => out_of_use(what),
    }
}
