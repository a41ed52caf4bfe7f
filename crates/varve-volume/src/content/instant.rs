//! One volume's part in snapshots of one instant: claimed, frozen when all are claimed, its snapshots made when all are frozen.
//!
//! Invariants (of the command as a whole: `varve-control/src/instant.rs`):
//! - INSTANTPART1. If one snapshot of the volume cannot be made, none is left.
//! - INSTANTPART2. What takes long, the wait for other tasks that work on the volume as a whole, comes before it is frozen.

use crate::content::barrier::Barrier;
use crate::content::snapshots::new_snapshot;
use crate::opened::open_store::OpenStore;
use crate::volume_stack::VolumeStack;
use futures_util::future::join_all;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::Clock;
use varve_target::snapshot::{Pending, StoreError};

/// Snapshots of one volume that are to be made.
pub struct NewSnapshots {
    /// Their names, without the volume.
    pub names: Vec<String>,
    /// Of a thin volume: the snapshot that they show, or the volume itself.
    pub of: Option<String>,
    /// The stores to which they go, one for each; all go to the store of dependent ones if none is named.
    pub stores: Vec<Uuid>,
    /// Whether they cannot be written.
    pub read_only: bool,
}

/// Makes the snapshots of a thick volume. An error comes with the size of its stores.
pub(crate) async fn make_of_one(
    clock: &Clock,
    volume: Uuid,
    stack: &VolumeStack,
    new: &NewSnapshots,
    mut barrier: Barrier,
) -> Result<(), (StoreError, u64)> {
    let missing = || (StoreError::NotFound, 0);
    let opened: Option<Vec<Rc<OpenStore>>> = match &new.stores[..] {
        [] => stack.dependent().map(|open| vec![open]),
        stores => stores.iter().map(|store| stack.open(*store)).collect(),
    };
    let opened = opened.ok_or_else(missing)?;
    let seen = opened.iter().map(|open| open.store.usage().size).sum();
    let failed = |error| (error, seen);
    let mut claimed = Vec::with_capacity(opened.len());
    for open in &opened {
        claimed.push(open.store.claim().await.map_err(failed)?); // INSTANTPART2
    }
    barrier.all_are_here().await.map_err(failed)?;
    let before = clock.now();
    let mut frozen = Vec::with_capacity(opened.len());
    for claimed in claimed {
        frozen.push(claimed.freeze().await.map_err(failed)?);
    }
    barrier.all_are_here().await.map_err(failed)?;
    let mut pending = Vec::with_capacity(new.names.len());
    let mut refused = None;
    for (name, index) in new.names.iter().zip(0..) {
        let index = if new.stores.is_empty() { 0 } else { index };
        match frozen[index].create(&new_snapshot(name, new.read_only)) {
            Ok(created) => pending.push((index, created)),
            Err(error) => refused = Some(error),
        }
    }
    drop(frozen);
    // As long as any write has waited, and a little longer: it begins before the gates close.
    let frozen_us = clock.now().since(before).as_micros();
    tracing::debug!(target: "varve::instant", %volume, frozen_us, "snapshots of one instant");
    let commit = async |(index, pending): (usize, Pending)| (index, pending.commit().await);
    let committed = join_all(pending.into_iter().map(commit)).await;
    let error = refused.or_else(|| committed.iter().find_map(|(_, outcome)| outcome.err()));
    let Some(error) = error else { return Ok(()) };
    for (index, outcome) in committed {
        if let Ok(number) = outcome {
            let _ = opened[index].store.remove(number).await; // INSTANTPART1
        }
    }
    Err(failed(error))
}
