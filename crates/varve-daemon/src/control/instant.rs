//! Several snapshots of one instant: every volume frozen, then every snapshot made, or none.
//!
//! Invariants:
//! - S1. The snapshots of one command show one instant: every volume is frozen before the first is made.
//! - S2. If one of them cannot be made, none is left.
//! - S3. What takes long comes before the first volume is frozen: flushes, and the wait for others who do something to
//!   one of them as a whole, or walk through all of it.

use super::Control;
use super::snapshots::Batch;
use crate::failures;
use crate::shard::ShardContext;
use crate::shard::barrier::{Barrier, barriers};
use crate::shard::open_store::OpenStore;
use crate::shard::snapshots::new_snapshot;
use futures_util::future::join_all;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_target::snapshot::{Pending, StoreError};

/// How often a set of snapshots is tried again after a store has grown.
const ATTEMPTS_MAX: usize = 8;
/// All volumes are claimed; all are frozen.
const STEPS: usize = 2;

impl Control {
    /// S1, S2; stores that are too small grow, and it is tried again.
    pub(super) async fn make_snapshots(&self, batches: &[Batch], read_only: bool) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS_MAX {
            let outcomes = self.make_at_once(batches, read_only).await?;
            if outcomes.iter().all(Result::is_ok) {
                return Ok(());
            }
            for (batch, _) in batches.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
                self.take_back(batch).await;
            }
            if let Some((place, error)) = cause(&outcomes) {
                return Err(failures::store(&batches[place].volume.to_string(), &error));
            }
            for (batch, outcome) in batches.iter().zip(outcomes) {
                if let Err((_, seen)) = outcome {
                    self.grow(batch, seen).await?;
                }
            }
        }
        Err(Failure::new(Code::SnapshotsFull, "the snapshot stores fill faster than they grow")
            .help("varve vg extend VG PATH…"))
    }

    /// Claims all volumes, freezes them, then makes their snapshots. A batch fails as a whole; the size of its store comes with
    /// the error.
    async fn make_at_once(
        &self,
        batches: &[Batch],
        read_only: bool,
    ) -> Result<Vec<Result<(), (StoreError, u64)>>, Failure> {
        if batches.len() > 1 {
            self.flush_all(batches).await?; // S3
        }
        let (members, caller) = barriers(batches.len(), STEPS);
        let mut outcomes = Vec::with_capacity(batches.len());
        for (batch, barrier) in batches.iter().zip(members) {
            let (volume, names, stores) =
                (batch.located.volume.id, batch.names.clone(), batch.stores.clone());
            let of = batch.of.clone();
            outcomes.push(batch.located.home.run(async move |here: ShardContext| {
                if let Some(thin) = here.family(volume).filter(|family| family.is_thin()) {
                    let made = thin.make_thin_snapshots(&names, of.as_deref(), read_only, barrier);
                    return made.await.map_err(|error| (error, 0));
                }
                make_of_one(&here, volume, &names, &stores, read_only, barrier).await
            }));
        }
        caller.call().await;
        let outcomes = join_all(outcomes).await;
        outcomes.into_iter().map(|outcome| outcome.map_err(failures::gone)).collect()
    }

    /// Makes durable what the volumes have done so far. A volume that is frozen waits for the others: what takes long
    /// comes before the first is.
    async fn flush_all(&self, batches: &[Batch]) -> Result<(), Failure> {
        let flushes = batches.iter().map(|batch| {
            let volume = batch.located.volume.id;
            batch.located.home.run(async move |here: ShardContext| match here.family(volume) {
                Some(family) => family.flush().await.map_err(|error| failures::io("the flush", error)),
                None => Ok(()),
            })
        });
        join_all(flushes).await.into_iter().try_for_each(|flushed| flushed.map_err(failures::gone)?)
    }

    /// Removes what was made of a set that cannot be made as a whole.
    async fn take_back(&self, batch: &Batch) {
        let (volume, names) = (batch.located.volume.id, batch.names.clone());
        let removed = batch.located.home.run(async move |here: ShardContext| {
            let Some(family) = here.family(volume) else { return };
            let made = family.snapshots().into_iter().filter(|facts| names.contains(&facts.name));
            for facts in made {
                let _ = family.remove_snapshot(facts.target).await;
            }
        });
        let _ = removed.await;
    }

    async fn grow(&self, batch: &Batch, seen: u64) -> Result<(), Failure> {
        let (volume, independent) = (batch.located.volume.id, !batch.stores.is_empty());
        let grown = batch.located.home.run(async move |here: ShardContext| {
            // The store of an independent snapshot is new: if it has no room, growing it does not help.
            let family = here.family(volume).filter(|_| !independent);
            match family.and_then(|family| family.dependent()) {
                Some(open) => open.grow(seen).await,
                None => false,
            }
        });
        if grown.await.map_err(failures::gone)? {
            return Ok(());
        }
        if batch.located.thin.is_some() {
            let pool = self.subject(batch.located.pool());
            return Err(Failure::new(Code::PoolFull, format!("{pool} is full"))
                .help(format!("varve pool extend {pool} --size +SIZE")));
        }
        let message = format!("the snapshot store of {} is full and cannot grow", batch.volume);
        Err(Failure::new(Code::SnapshotsFull, message)
            .help(format!("varve vg extend {} PATH…", batch.volume.group)))
    }
}

/// Which batch is why a set was not made, and its error; none if no more is missing than space. A batch is busy also when
/// another one did not come.
fn cause(outcomes: &[Result<(), (StoreError, u64)>]) -> Option<(usize, StoreError)> {
    let errors = || {
        let errors = outcomes.iter().enumerate();
        errors.filter_map(|(place, outcome)| outcome.err().map(|(error, _)| (place, error)))
    };
    let own = errors().find(|(_, error)| !matches!(error, StoreError::Busy | StoreError::NoSpace));
    own.or_else(|| errors().find(|(_, error)| *error == StoreError::Busy))
}

/// Claims one volume, freezes it when all volumes are claimed, and makes its snapshots when all are frozen. Snapshot N goes to store N of
/// `stores`, or all go to the store of the dependent ones if none is named.
async fn make_of_one(
    here: &ShardContext,
    volume: Uuid,
    names: &[String],
    stores: &[Uuid],
    read_only: bool,
    mut barrier: Barrier,
) -> Result<(), (StoreError, u64)> {
    let missing = || (StoreError::NotFound, 0);
    let family = here.family(volume).ok_or_else(missing)?;
    let opened: Option<Vec<Rc<OpenStore>>> = match stores {
        [] => family.dependent().map(|open| vec![open]),
        _ => stores.iter().map(|store| family.open(*store)).collect(),
    };
    let opened = opened.ok_or_else(missing)?;
    let seen = opened.iter().map(|open| open.store.usage().size).sum();
    let failed = |error| (error, seen);
    let mut claimed = Vec::with_capacity(opened.len());
    for open in &opened {
        claimed.push(open.store.claim().await.map_err(failed)?); // S3
    }
    barrier.all_are_here().await.map_err(failed)?;
    let clock = here.clock();
    let before = clock.now();
    let mut frozen = Vec::with_capacity(opened.len());
    for claimed in claimed {
        frozen.push(claimed.freeze().await.map_err(failed)?);
    }
    barrier.all_are_here().await.map_err(failed)?;
    let mut pending = Vec::with_capacity(names.len());
    let mut refused = None;
    for (name, index) in names.iter().zip(0..) {
        let index = if stores.is_empty() { 0 } else { index };
        match frozen[index].create(&new_snapshot(name, read_only)) {
            Ok(created) => pending.push((index, created)),
            Err(error) => refused = Some(error),
        }
    }
    drop(frozen);
    // As long as any write has waited, and a little longer: it begins before the gates close.
    let frozen_us = clock.now().since(before).as_micros();
    tracing::debug!(%volume, frozen_us, "snapshots of one instant");
    let commit = async |(index, pending): (usize, Pending)| (index, pending.commit().await);
    let committed = join_all(pending.into_iter().map(commit)).await;
    let error = refused.or_else(|| committed.iter().find_map(|(_, outcome)| outcome.err()));
    let Some(error) = error else { return Ok(()) };
    for (index, outcome) in committed {
        if let Ok(number) = outcome {
            let _ = opened[index].store.remove(number).await; // S2
        }
    }
    Err(failed(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_not_made_is_told_with_the_error_of_the_batch_that_has_one() {
        let failed = |error| Err((error, 0));
        let (busy, full, gone) =
            (failed(StoreError::Busy), failed(StoreError::NoSpace), failed(StoreError::NotFound));
        assert_eq!(cause(&[busy, busy, gone]), Some((2, StoreError::NotFound)), "the others waited for it");
        assert_eq!(cause(&[full, gone]), Some((1, StoreError::NotFound)));
        assert_eq!(cause(&[Ok(()), busy]), Some((1, StoreError::Busy)));
        assert_eq!(cause(&[full, Ok(()), full]), None, "they grow");
    }
}
