//! Snapshots that may be written from now on, or may not any more.
//!
//! Invariants:
//! - SNAPCHANGE1. The access of a snapshot changes only while no export shows it: each export keeps the access that it began with.
//! - SNAPCHANGE2. A snapshot that is held, or that others are backed by, stays read-only.

use super::snapshots::{Batch, snapshot_name};
use crate::Control;
use varve_api::{Changed, Code, Failure, Plan, Snapshot, SnapshotChange};

impl Control {
    /// Lets snapshots be written, or no more.
    pub async fn change_snapshots(&self, request: SnapshotChange) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let _lock = self.lock_all_of(request.names.iter().map(String::as_str)).await?;
        let batches = self.batches(&request.names, Control::find_volume_for_snapshots)?;
        for batch in &batches {
            self.refuse_access(batch, request.read_only).await?;
        }
        let access = if request.read_only { "read-only" } else { "read-write" };
        if request.dry_run {
            let steps = request.names.iter().map(|name| format!("would make {name} {access}")).collect();
            return Ok(Changed::Planned(Plan::of_steps(steps)));
        }
        let changed = self.set_flags(&batches, Some(request.read_only), None).await?;
        for snapshot in &changed {
            self.event(&snapshot.name, &format!("{access} from now on"));
        }
        Ok(Changed::Done(changed))
    }

    /// Refuses another access to snapshots in use (SNAPCHANGE1, SNAPCHANGE2).
    async fn refuse_access(&self, batch: &Batch, read_only: bool) -> Result<(), Failure> {
        for name in &batch.names {
            let full = snapshot_name(&batch.full(name))?;
            self.check_snapshot(&batch.located, &full).await?;
            self.refuse_if_exported(batch.located.volume.id, &full, false)?; // SNAPCHANGE1
        }
        if read_only {
            return Ok(());
        }
        for facts in self.facts_called(&batch.located, &batch.names).await {
            let full = batch.full(&facts.name);
            self.refuse_origin(batch.located.group, facts.backing(), &full).await?; // SNAPCHANGE2
            if facts.held {
                return Err(Failure::new(Code::SnapshotHeld, format!("{full} is held"))
                    .help(format!("varve snap release {full}")));
            }
        }
        Ok(())
    }
}
