//! Extents that a volume gains: what others wrote there is cleared before any client sees it.
//!
//! Where the disks clear extents at no cost that is done before the change is valid. Elsewhere the change writes down a job, which says from
//! which extent on the volume is still to be cleared, and writes zeros from there on; what is before that extent is served meanwhile.
//!
//! Invariants:
//! - CLEARING1. No byte of an extent is served before it was cleared since the volume has it, unless a user asked for that.
//! - CLEARING2. The mark of the job moves behind an extent after the zeros of all before it are durable. What a pool gains meanwhile keeps it.

use super::registry::Started;
use super::runner::{Standing, Stop, Work};
use crate::Control;
use crate::failures;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, Extent, MIB, ZeroOptions};
use varve_vg::model::{Layout, LogicalVolume, PvName};
use varve_vg::tree::VolumeNode;
use varve_vg::{Change, Group, Plan};
use varve_volume::copies::clear;
use varve_volume::opened::open_array;

/// Bytes of a new pool that are cleared before it is there: it begins with these.
const FIRST_OF_POOL: u64 = 64 * MIB;

/// What a cancelled clearing leaves.
const ENDED: &str = "the volume is not cleared; varve pv scan begins again, varve lv remove gives it up";

/// The work of a clearing.
struct Clearing {
    group: Uuid,
    volume: Uuid,
}

impl Work for Clearing {
    fn group(&self) -> Option<Uuid> {
        Some(self.group)
    }

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        control.clear_all(self.group, self.volume, job).await // A user's request to end it leaves it in the text (PLANJOB3).
    }

    fn standing(&mut self, control: &Control) -> Standing {
        match control.entry_of(self.volume) {
            Ok(_) if control.uncleared(self.group, self.volume).is_none() => Standing::Done,
            Ok(_) => Standing::ToDo,
            Err(_) => Standing::Gone(Failure::new(Code::JobCancelled, "the volume was given up")),
        }
    }
}

impl Control {
    /// CLEARING1, of the extents from `from` on that `planned` gives to `volume`: clears them now if that costs nothing, else the
    /// plan says that they are to be cleared. With `no_zero` only their ends are, but for arrays, whose members are to be equal.
    /// A pool needs that on ddraid only, where a block that is written in part is read first.
    pub(crate) async fn clear(
        &self,
        group: Uuid,
        planned: Plan,
        volume: &LogicalVolume,
        from: u64,
        no_zero: bool,
    ) -> Result<Plan, Failure> {
        assert!(planned.emptied.is_empty(), "PLANTRASH2: what is written before the change is valid is free");
        let is_ddraid = matches!(volume.layout, Layout::Ddraid { .. });
        if !volume.layout.takes_space() || (volume.is_pool() && !is_ddraid) {
            return Ok(planned);
        }
        let disks = self.with_group(group, |known| self.files_of(known, &planned.after))?;
        // The lock of the group is held: LIMIT1 of `limited.rs`.
        let devices = self.metadata_disks(&disks);
        let new = |first, end| {
            let extent = Extent::between(planned.after.bytes(first), planned.after.bytes(end));
            places_of(&devices, &planned.after, volume, extent)
        };
        let places = new(from, volume.extents)?;
        let failed =
            |error| self.unless_one_is_silent(&disks, failures::io("clearing the new extents", error));
        let mut is_clear = true;
        for (device, extent) in &places {
            is_clear = is_clear && clear::clear_fast(device, *extent).await.map_err(failed)?;
        }
        if is_clear {
            return Ok(planned);
        }
        if no_zero && volume.layout.members().is_empty() {
            for (device, extent) in &places {
                clear::clear_ends(device, *extent).await.map_err(failed)?;
            }
            return Ok(planned);
        }
        let mut uncleared = from;
        if volume.is_pool() && from == 0 {
            uncleared =
                FIRST_OF_POOL.div_ceil(planned.after.extent_size()).next_multiple_of(8).min(volume.extents);
            for (device, extent) in &new(0, uncleared)? {
                clear::clear_all(device, *extent).await.map_err(failed)?;
            }
        }
        if uncleared == volume.extents {
            return Ok(planned);
        }
        let planned = planned.with_clearing(volume.id, uncleared, self.next_job_of(&[group]));
        planned.map_err(|error| failures::plan(&error))
    }

    /// The first extent of a volume that is to be cleared, if one is.
    pub(crate) fn uncleared(&self, group: Uuid, volume: Uuid) -> Option<u64> {
        self.with_group(group, |known| known.group.uncleared(volume)).ok().flatten()
    }

    /// Takes up a clearing that stands in a text.
    pub(crate) fn resume_clearing(&self, group: Uuid, volume: Uuid, started: Started) {
        self.spawn_work(started, Clearing { group, volume });
    }

    /// Writes zeros to all that is marked, also to what the volume gains meanwhile, and lets it have that.
    async fn clear_all(&self, group: Uuid, volume: Uuid, job: &Started) -> Result<(), Stop> {
        while let Some(until) = self.clear_marked(group, volume, job).await? {
            self.give_cleared(group, volume, until).await?;
        }
        Ok(())
    }

    /// Writes zeros to all that is marked now. Returns where it ends, in extents; none if nothing is.
    async fn clear_marked(&self, group: Uuid, volume: Uuid, job: &Started) -> Result<Option<u64>, Stop> {
        let (_, entry) = self.entry_of(volume)?;
        let now = self.with_group(group, |known| known.group.clone())?;
        let Some(from) = now.uncleared(volume) else { return Ok(None) };
        let extent = Extent::between(now.bytes(from), now.bytes(entry.extents));
        let disks = self.with_group(group, |known| self.files_of(known, &now))?;
        let places = places_of(&open_array::on_host(&self.context, &disks), &now, &entry, extent)?;
        let total: u64 = places.iter().map(|(_, extent)| extent.length).sum();
        let failed = |error| failures::io("clearing the volume", error);
        let mut done = 0;
        let pieces = places
            .iter()
            .flat_map(|(device, extent)| extent.pieces(clear::STEP).map(move |(_, piece)| (device, piece)));
        for (device, piece) in pieces {
            self.check_wanted(job, ENDED)?;
            job.progress.report(done, total);
            let slow = ZeroOptions { unmap: false, ..ZeroOptions::default() };
            device.zero(piece, slow).await.map_err(failed)?;
            done += piece.length;
        }
        for (device, _) in &places {
            device.flush().await.map(drop).map_err(failed)?; // CLEARING2
        }
        Ok(Some(entry.extents))
    }

    /// CLEARING2, and the volume has what was cleared: its extents before `until`.
    async fn give_cleared(&self, group: Uuid, volume: Uuid, until: u64) -> Result<(), Failure> {
        let _changes = self.lock_group(group).await;
        let words = format!("{} cleared", self.subject(volume));
        self.commits(group).await.make(group, Change::Cleared { volume, until }, &words).await?;
        self.converge(group).await;
        Ok(())
    }
}

/// Where `extent` of a volume is, whether it is served or not, for this shard: of an array on each member, none of which may be
/// missing. Zeros on all members are zeros on the array.
pub(crate) fn places_of(
    disks: &BTreeMap<PvName, Device>,
    version: &Group,
    volume: &LogicalVolume,
    extent: Extent,
) -> Result<Vec<(Device, Extent)>, Failure> {
    let node = VolumeNode::whole(version, volume).map_err(|error| failures::tree(&error.into()))?;
    open_array::places(&node.table, disks, extent)
}
