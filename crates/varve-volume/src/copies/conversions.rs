//! The steps by which volumes are converted, as the control asks for them.
//!
//! Invariants: TREES1 to TREES4 of `trees.rs`.

use super::moves::prepare_placements;
use crate::ShardContext;
use crate::failures;
use crate::opened::children::Opened;
use crate::spec::Disks;
use crate::spec::Wanted;
use crate::trees::{Conversion, as_fine_as};
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_target::array::MemberState;
use varve_target::moving::{Move, MoveError};
use varve_vg::table::Table;

/// A volume, pool or store that is to be converted, under what its array is in use meanwhile, and where the new layout is.
pub type Part = (Uuid, Uuid, Table);

/// Begins to convert `parts` of a volume or pool. Afterwards changes of what was copied reach both layouts. If that fails it is to
/// be finished.
pub async fn begin(
    context: &ShardContext,
    volume: Uuid,
    parts: Vec<Part>,
    disks: Disks,
) -> Result<(), Failure> {
    let opened = context.in_use(volume).ok_or_else(out_of_use)?;
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
    let (volume, trees) = (opened.id, &opened.host.moves.trees);
    let old = trees.inside(of).ok_or_else(out_of_use)?;
    let array = table.array().map(|_| key);
    let new = opened.new_inside((of, key), &table, disks).await?;
    let new = as_fine_as(old.shape().block_size, new, &opened.host.arena());
    if new.shape().size != old.shape().size {
        let message = "the volume has another size than when the conversion was planned";
        return Err(Failure::new(Code::VolumeUnusable, message).help("varve job list"));
    }
    let moved = Rc::new(Move::new(&old, old.shape().extent(), &new, 0));
    trees.begin(Rc::new(Conversion { volume, of, array, moved, old, new })).await;
    Ok(())
}

/// Copies the next `bytes`; how many are left.
pub async fn copy(context: &ShardContext, volume: Uuid, bytes: u64) -> Result<u64, Failure> {
    let _in_use = context.served(volume); // A panic is the volume's.
    let conversions = context.moves.trees.conversions(volume);
    let left = || conversions.iter().map(|conversion| conversion.moved.left()).sum::<u64>();
    let end = left().saturating_sub(bytes);
    while let Some(next) = conversions.iter().find(|conversion| conversion.moved.left() > 0)
        && left() > end
    {
        next.moved.copy(&context.arena(), left() - end).await.map_err(failure)?;
    }
    if conversions.is_empty() { Err(out_of_use()) } else { Ok(left()) }
}

/// Makes the new layout as good as the old one; afterwards either may count, of which the new one is what `wanted` says.
pub async fn prepare(context: &ShardContext, volume: Uuid, wanted: &Wanted) -> Result<(), Failure> {
    let conversions = context.moves.trees.conversions(volume);
    if conversions.is_empty() {
        return Err(out_of_use());
    }
    let opened = context.in_use(volume).ok_or_else(out_of_use)?;
    for conversion in &conversions {
        conversion.moved.prepare().await.map_err(failure)?;
        let status = conversion.array.and_then(|array| opened.arrays.status(array));
        let members = status.map(|status| status.members).unwrap_or_default();
        if members.iter().any(|member| member.state != MemberState::InSync) {
            let message = "a disk of the new layout has failed";
            return Err(Failure::new(Code::MediumFailed, message).help("varve pv list"));
        }
    }
    prepare_placements(context, volume, wanted);
    Ok(())
}

/// The new layout counts if it `is_switched`, else the old one. Afterwards nothing is under way to the other. Nothing happens if
/// nothing is converted.
pub async fn finish(context: &ShardContext, volume: Uuid, is_switched: bool) {
    let conversions = context.moves.trees.conversions(volume);
    if conversions.is_empty() {
        return;
    }
    for conversion in &conversions {
        if is_switched { conversion.moved.finish() } else { conversion.moved.abandon() }
    }
    if let Some(served) = context.served(volume) {
        served.each_placement(|_, placement| placement.finish(is_switched));
    }
    for conversion in conversions {
        context.moves.trees.end(&conversion).await;
        let Some(opened) = context.opened(volume) else { continue };
        let closed = match (is_switched, conversion.array) {
            (true, array) => opened.arrays.replace(conversion.of, array).await,
            (false, Some(array)) => opened.arrays.close_one(array).await,
            (false, None) => Ok(()),
        };
        if let Err(error) = closed {
            tracing::warn!(%volume, %error, "an array could not be closed in order");
        }
    }
}

fn out_of_use() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume was taken out of use while it was converted")
        .help("it goes on when the volume is in use again: varve status")
}

fn failure(error: MoveError) -> Failure {
    match error {
        MoveError::Old(error) => failures::io("the old layout", error),
        MoveError::New(error) => failures::io("the new layout", error),
        MoveError::Cancelled => out_of_use(),
    }
}
