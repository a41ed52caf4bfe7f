//! A copy of a mirror goes as a volume of its own: the mirror is held while its group's text is changed.
//!
//! Invariant SPLIT1: between the last flush of all copies and the moment when it is known what the text says, nothing is written. If
//! the change reached only some disks the volume is out of use until then.

use crate::ShardContext;
use crate::failures;
use crate::spec::Wanted;
use crate::trees::as_fine_as;
use crate::volume_stack::VolumeStack;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, IoError};
use varve_target::ErrorTarget;
use varve_target::array::{ArrayStatus, MemberState};

/// Holds back the requests of a mirror, all copies of which are equal and durable then, and closes it. Afterwards it may lie as
/// `wanted` says, too. If this fails, the mirror goes on.
pub async fn hold(context: &ShardContext, volume: Uuid, wanted: &Wanted) -> Result<(), Failure> {
    let stack = stack(context, volume)?;
    let arrays = &stack.opened().arrays;
    let array = Rc::clone(&arrays.get(volume).ok_or_else(out_of_use)?.array);
    check_equal(&array.status())?;
    let suspended = context.moves.trees.suspend(volume).await;
    array.device().flush().await.map_err(|error| failures::io("the mirror", error))?;
    check_equal(&array.status())?;
    if let Some(placement) = stack.placement.borrow_mut().as_mut() {
        placement.prepare(&wanted.node.table, &wanted.disks);
    }
    context.moves.trees.hold(volume, suspended);
    if let Err(error) = arrays.close_one(volume).await {
        tracing::warn!(%volume, %error, "an array could not be closed in order");
    }
    Ok(())
}

/// The volume goes on where `wanted` says, which is without a copy if it `is_split`. One that cannot is to be opened anew.
pub async fn release(
    context: &ShardContext,
    volume: Uuid,
    is_split: bool,
    wanted: &Wanted,
) -> Result<(), Failure> {
    let stack = stack(context, volume)?;
    if let Some(placement) = stack.placement.borrow_mut().as_mut() {
        placement.finish(is_split);
    }
    let opened = stack.opened().inside((volume, None), &wanted.node.table, &wanted.disks).await;
    let before = context.moves.trees.inside(volume);
    let block_size = before.map_or(u32::MAX, |before| before.shape().block_size);
    // TREES4: a copy alone has sectors.
    let fine = |new: &Device| as_fine_as(block_size, new.clone(), &context.arena());
    let inside = opened.as_ref().map(fine).unwrap_or_else(|_| nowhere(&stack));
    context.moves.trees.release(volume, &inside);
    opened.map(drop)
}

/// Whether the volume is without a copy is not known: its requests fail until it is opened anew (SPLIT1).
pub fn give_up(context: &ShardContext, volume: Uuid) -> Result<(), Failure> {
    let stack = stack(context, volume)?;
    if let Some(placement) = stack.placement.borrow_mut().as_mut() {
        placement.finish(false);
    }
    context.moves.trees.release(volume, &nowhere(&stack));
    Ok(())
}

/// Where requests of a volume fail, which is out of use from now on.
fn nowhere(stack: &VolumeStack) -> Device {
    stack.opened().gate.close();
    let shape = stack.top().switch.device().shape();
    Device::new(ErrorTarget::new(shape.size, 1, IoError::Gone))
}

fn check_equal(status: &ArrayStatus) -> Result<(), Failure> {
    let is_in_sync = status.members.iter().all(|member| member.state == MemberState::InSync);
    if is_in_sync && status.unsynced == 0 && status.failure.is_none() {
        return Ok(());
    }
    let message = "the copies of the mirror are not equal now";
    Err(Failure::new(Code::VolumeBusy, message)
        .help("varve array show VG/LV; try again when all are in sync"))
}

fn stack(context: &ShardContext, volume: Uuid) -> Result<Rc<VolumeStack>, Failure> {
    context.stack(volume).ok_or_else(out_of_use)
}

fn out_of_use() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume is out of use").help("varve status")
}
