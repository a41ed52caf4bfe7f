//! Several snapshots of one instant: every volume frozen, then every snapshot made, or none.
//!
//! Invariants:
//! - INSTANT1. The snapshots of one command show one instant: every volume is frozen before the first is made.
//! - INSTANT2. If one of them cannot be made, none is left.
//! - INSTANT3. What takes long comes before the first volume is frozen: flushes, and the wait for other tasks that do something
//!   to one of them as a whole, or walk through all of it.

use super::snapshots::Batch;
use crate::Control;
use crate::failures;
use futures_util::future::join_all;
use varve_api::{Code, Failure};
use varve_target::snapshot::StoreError;
use varve_volume::NewSnapshots;
use varve_volume::content::barrier::barriers;

/// How often a set of snapshots is tried again after a store has grown.
const ATTEMPTS_MAX: usize = 8;
/// All volumes are claimed; all are frozen.
const STEPS: usize = 2;

impl Control {
    /// INSTANT1, INSTANT2; stores that are too small grow, and it is tried again.
    pub(crate) async fn make_snapshots(&self, batches: &[Batch], read_only: bool) -> Result<(), Failure> {
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
            .help(format!("varve vg extend {} PATH…", batches[0].volume.group)))
    }

    /// Claims all volumes, freezes them, then makes their snapshots. A batch fails as a whole; the size of its store comes with
    /// the error.
    async fn make_at_once(
        &self,
        batches: &[Batch],
        read_only: bool,
    ) -> Result<Vec<Result<(), (StoreError, u64)>>, Failure> {
        if batches.len() > 1 {
            self.flush_all(batches).await?; // INSTANT3
        }
        let (members, caller) = barriers(batches.len(), STEPS);
        let mut outcomes = Vec::with_capacity(batches.len());
        for (batch, barrier) in batches.iter().zip(members) {
            let new = NewSnapshots {
                names: batch.names.clone(),
                of: batch.of.clone(),
                stores: batch.stores.clone(),
                read_only,
            };
            outcomes.push(batch.located.home.volume(batch.located.volume.id).make_snapshots(new, barrier));
        }
        caller.call().await;
        let outcomes = join_all(outcomes).await;
        outcomes.into_iter().map(|outcome| outcome.map_err(failures::gone)).collect()
    }

    /// Makes durable what the volumes have done so far. A volume that is frozen waits for the others: what takes long
    /// comes before the first is.
    async fn flush_all(&self, batches: &[Batch]) -> Result<(), Failure> {
        let flushes = batches.iter().map(|batch| batch.located.home.volume(batch.located.volume.id).flush());
        join_all(flushes).await.into_iter().try_for_each(|flushed| flushed.map_err(failures::gone)?)
    }

    /// Removes what was made of a set that cannot be made as a whole.
    pub(crate) async fn take_back(&self, batch: &Batch) {
        let (volume, names) = (batch.located.volume.id, batch.names.clone());
        let _ = batch.located.home.volume(volume).take_back_snapshots(names).await;
    }

    async fn grow(&self, batch: &Batch, seen: u64) -> Result<(), Failure> {
        // The store of an independent snapshot is new: if it has no room, growing it does not help.
        let (volume, is_dependent) = (batch.located.volume.id, batch.stores.is_empty());
        if is_dependent
            && batch.located.home.volume(volume).grow_dependent(seen).await.map_err(failures::gone)?
        {
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
