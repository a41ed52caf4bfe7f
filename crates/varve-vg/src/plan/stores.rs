//! Plans that concern exception stores and the snapshots in them.

use super::space::{Growth, place_text};
use super::{DiskChoice, Draft, JobStep, Layout, PlanError, ScheduleRun, ScheduleStep, StoreKind};
use crate::model::{
    Discards, Job, LogicalVolume, OverCommit, Role, SnapshotSet, Store, StorePolicy, WhenFull,
};
use uuid::Uuid;
use varve_block::{KIB, MIB, UnixTime};

/// Bytes of the blocks that snapshots are made of.
pub(super) const SNAPSHOT_BLOCK: u64 = 4 * KIB;

impl Draft<'_> {
    /// Refuses a size that a volume with snapshots cannot have.
    pub(super) fn check_snapshot_blocks(&self, volume: &str, bytes: u64) -> Result<(), PlanError> {
        if bytes.is_multiple_of(SNAPSHOT_BLOCK) {
            return Ok(());
        }
        let (group, volume) = (self.group_name().into(), volume.into());
        Err(PlanError::SnapshotBlocks { group, volume, bytes })
    }

    pub(super) fn create_store(
        &mut self,
        volume: &str,
        id: Uuid,
        size: u64,
        chunk_size: u64,
        kind: StoreKind,
    ) -> Result<(), PlanError> {
        let lv = self.lv(volume)?.clone();
        if kind == StoreKind::Dependent && lv.store.is_some() {
            return Err(self.has_store(volume));
        }
        if lv.is_pool() {
            return Err(PlanError::Layout("a pool has no snapshots: its volumes have"));
        }
        self.check_snapshot_blocks(volume, lv.size(self.extent_size()))?;
        if !chunk_size.is_power_of_two() || !(4 * KIB..=MIB).contains(&chunk_size) {
            return Err(PlanError::Layout("a chunk is a power of two from 4 KiB to 1 MiB"));
        }
        let store = self.new_store(&lv, (id, id), size, chunk_size)?;
        let (full, size) = (self.full(volume), self.size_text(store.extents));
        self.step(format!("give {full} an exception store of {size} ({})", place_text(store.space())));
        let lv = self.lv(volume)?;
        match kind {
            StoreKind::Dependent => lv.store = Some(store),
            StoreKind::Independent => lv.independent_stores.push(store),
        }
        Ok(())
    }

    pub(super) fn extend_store(&mut self, volume: &str, id: Uuid, by: u64) -> Result<(), PlanError> {
        let mut store = self.store(volume, id)?.clone();
        let lv = self.lv(volume)?.clone();
        self.check_members(&lv, store.space())?;
        let before = self.size_text(store.extents);
        let mut growth = Growth::of(store.space());
        self.grow_store(&mut growth, by)?;
        (store.extents, store.segments) = (growth.extents(), growth.segments);
        let (full, size) = (self.full(volume), self.size_text(store.extents));
        self.step(format!(
            "extend the exception store of {full} from {before} to {size} ({})",
            place_text(store.space())
        ));
        *self.store(volume, id)? = store;
        Ok(())
    }

    pub(super) fn remove_store(&mut self, volume: &str, id: Uuid) -> Result<(), PlanError> {
        let store = self.store(volume, id)?.clone();
        assert!(store.extents > 0, "TEXT7: a store has extents");
        let lv = self.lv(volume)?;
        lv.store = lv.store.take().filter(|other| other.id != id);
        lv.independent_stores.retain(|other| other.id != id);
        let (full, size) = (self.full(volume), self.size_text(store.extents));
        self.step(format!("give up the exception store of {full} ({size})"));
        Ok(())
    }

    pub(super) fn replace_store(
        &mut self,
        volume: &str,
        id: Uuid,
        size: u64,
        kept: (String, Uuid),
        created: UnixTime,
    ) -> Result<(), PlanError> {
        let old = self.store(volume, id)?.clone();
        let (name, kept_id) = kept;
        self.check_new_name(&name)?;
        let lv = self.lv(volume)?.clone();
        let new = self.new_store(&lv, (id, kept_id), size, old.chunk_size)?; // while the old one still owns its extents
        let (full, size) = (self.full(volume), self.size_text(new.extents));
        self.step(format!("give {full} a new exception store of {size} ({})", place_text(new.space())));
        self.step(format!("keep the old one as {}, read-only", self.full(&name)));
        let old = std::mem::replace(self.store(volume, id)?, new);
        self.description.logical_volumes.push(LogicalVolume {
            name,
            id: kept_id,
            role: Role::StoreBackup { of: id },
            layout: old.layout,
            read_only: true,
            created,
            extents: old.extents,
            segments: old.segments,
            store_policy: None,
            array_policy: None,
            store: None,
            independent_stores: Vec::new(),
            inactive: None,
        });
        Ok(())
    }

    pub(super) fn set_store_policy(&mut self, volume: &str, policy: StorePolicy) -> Result<(), PlanError> {
        let lv = self.lv(volume)?;
        let role = lv.role;
        refuse_unfit(role, policy)?;
        lv.store_policy = declared(policy);
        let step = policy_text(&self.full(volume), role, policy);
        self.step(step);
        Ok(())
    }

    pub(super) fn begin_snapshots(&mut self, set: SnapshotSet) -> Result<(), PlanError> {
        let count: usize = set.members.iter().map(|member| member.names.len()).sum();
        self.step(format!("write down that {count} snapshots are being made at one instant"));
        self.description.snapshot_sets.push(set);
        Ok(())
    }

    pub(super) fn end_snapshots(
        &mut self,
        id: Uuid,
        job: Option<Job>,
        run: Option<ScheduleRun>,
    ) -> Result<(), PlanError> {
        self.description.snapshot_sets.retain(|set| set.id != id);
        self.step("write down that snapshots of one instant are resolved".to_owned());
        if let Some(run) = run {
            let ran = ScheduleStep::Ran(run).apply(&mut self.description)?;
            self.step(ran);
        }
        let Some(job) = job else { return Ok(()) };
        let begun = JobStep::Begin(job).apply(&mut self.description)?;
        self.step(begun);
        Ok(())
    }

    fn store(&mut self, volume: &str, id: Uuid) -> Result<&mut Store, PlanError> {
        let missing = self.no_store(volume);
        self.lv(volume)?.store_mut(id).ok_or(missing)
    }

    /// The store `id` for `volume`, which survives what the volume survives. The ids of its members follow from `members`.
    fn new_store(
        &self,
        volume: &LogicalVolume,
        (id, members): (Uuid, Uuid),
        size: u64,
        chunk_size: u64,
    ) -> Result<Store, PlanError> {
        let mut growth = self.new_growth(&Layout::of_store(&volume.layout), members)?;
        self.grow_store(&mut growth, size)?;
        let extents = growth.extents();
        Ok(Store { id, chunk_size, layout: growth.layout, extents, segments: growth.segments })
    }

    fn grow_store(&self, growth: &mut Growth, by: u64) -> Result<(), PlanError> {
        let extents = self.extents_of(self.check_bytes(by)?);
        self.grow(growth, extents.next_multiple_of(growth.row()), &DiskChoice::default())
    }

    fn no_store(&self, volume: &str) -> PlanError {
        PlanError::StoreNotFound { group: self.group_name().into(), volume: volume.into() }
    }
}

/// A policy as it is written: what the program does anyway is not.
pub(super) fn declared(policy: StorePolicy) -> Option<StorePolicy> {
    (policy != StorePolicy::default()).then_some(policy)
}

/// A pool has no snapshots to drop for a write.
pub(super) fn refuse_unfit(role: Role, policy: StorePolicy) -> Result<(), PlanError> {
    if role == Role::Pool && policy.when_full == WhenFull::DropOldest {
        return Err(PlanError::Layout("a pool drops no snapshots when it is full"));
    }
    let is_of_pools = (policy.discards, policy.over_commit) != (Discards::Keep, OverCommit::Allow);
    if role != Role::Pool && is_of_pools {
        return Err(PlanError::Layout(
            "only a pool declares what becomes of discards, and what it may promise",
        ));
    }
    Ok(())
}

/// What a policy lets the volume or pool `full` do.
pub(super) fn policy_text(full: &str, role: Role, policy: StorePolicy) -> String {
    let growth = match policy.extend_at_percent {
        Some(percent) => format!("at {percent} % by {} %", policy.extend_by_percent),
        None => "off".to_owned(),
    };
    let pools = match role {
        Role::Pool => {
            let (discards, over_commit) = (policy.discards.word(), policy.over_commit.word());
            format!("; discards: {discards}; over-commitment: {over_commit}")
        }
        _ => String::new(),
    };
    let when_full = policy.when_full.word();
    format!(
        "let {full} do this when {} is full: {when_full}, pauses of at most {} ms; extension {growth}{pools}",
        if role == Role::Pool { "it" } else { "its exception store" },
        policy.pause_timeout_ms
    )
}
