//! A disk of a group: its label, and the versions that are written to it.

use super::{Note, ReplicaState};
use crate::disks::disk::{Disk, put_slot, read_ring, write_label};
use crate::disks::free_disk::FreeDisk;
use crate::disks::tail::Tail;
use crate::injected_bug::{InjectedBug, has};
use crate::model::Group;
use futures_util::future::join_all;
use uuid::Uuid;
use varve_block::{Arena, Durability, Extent, IoError};
use varve_format::{BLOCK_SIZE, Label, RingContent, SEQUENCE_END, Slot};

/// No group has changed so often: what holds a number from here on, and comes to a group that has not, was forged.
const REACHED_END: u64 = SEQUENCE_END / 2;

/// Whether a group of version `own` that uses a disk which holds number `held` has numbers left for its changes (VERSION3).
pub(super) fn leaves_numbers(held: u64, own: u64) -> bool {
    assert!(held < SEQUENCE_END && own < SEQUENCE_END, "SLOT3: {held} and {own} were read as numbers");
    held < REACHED_END || held <= own
}

/// A disk of the group that is here and can be used.
pub(super) struct Member {
    pub(super) pv: Uuid,
    pub(super) disk: Disk,
    pub(super) label: Label,
    pub(super) label_worn: bool,
    pub(super) replica_state: ReplicaState,
    pub(super) newest: Option<Extent>,
    pub(super) sequence_max: u64,
    /// Where its ring has slots that were torn and may have been newer (OPEN4).
    pub(super) torn: Vec<u64>,
    /// Its tail, if it has one; looked for when it is first needed.
    pub(super) tail: Lookup,
}

/// Where a ring has slots that were torn and may have been newer than that at `newest` (OPEN4). What looks like one within that is part
/// of it, whatever wrote it there.
pub(super) fn torn_beside(newest: Option<Extent>, ring: &RingContent) -> Vec<u64> {
    let is_within = |address| newest.is_some_and(|newest| newest.overlaps(Extent::new(address, BLOCK_SIZE)));
    ring.damaged.iter().map(|damaged| damaged.address).filter(|address| !is_within(*address)).collect()
}

/// Lets the labels of `members` say that they belong to `vg`, where they are worn or say something else.
pub(super) async fn relabel(
    members: impl IntoIterator<Item = &mut Member>,
    vg: Option<Uuid>,
    arena: &Arena,
) -> Vec<Result<(), (String, IoError)>> {
    let work = members.into_iter().map(|member| async move {
        let is_sound = !member.label_worn && member.label.vg == vg;
        let done = if is_sound { Ok(()) } else { member.relabel(vg, arena).await };
        done.map_err(|error| member.failed(error))
    });
    join_all(work).await
}

/// What is known of a disk's tail.
pub(super) enum Lookup {
    /// It was not looked for, or there is no room for one.
    Unknown,
    Found(Tail),
    /// It could not be written.
    Lost,
}

impl Member {
    /// A disk that joins the group `vg`, with what its ring holds of the group from before (VERSION3).
    pub(super) async fn joining(free: FreeDisk, vg: Uuid, arena: &Arena) -> Self {
        let Label { pv, ring, .. } = free.label;
        let bytes = read_ring(&free.disk.device, ring, arena).await;
        let held = RingContent::find(&bytes, ring, vg, pv);
        let newest = held.newest().map(|placed| (placed.extent, placed.slot.sequence));
        let (newest, sequence_max) = newest.unzip();
        assert!(newest.is_none_or(|slot| ring.contains(slot)), "RING1: {newest:?} in {ring:?}");
        Member { newest, sequence_max: sequence_max.unwrap_or(0), ..Self::first(free) }
    }

    /// A disk that holds nothing of the group to which it comes.
    pub(super) fn first(free: FreeDisk) -> Self {
        assert!(free.label.vg.is_none(), "a disk joins one group at a time");
        Member {
            pv: free.label.pv,
            disk: free.disk,
            label: free.label,
            label_worn: false,
            replica_state: ReplicaState::Current,
            newest: None,
            sequence_max: 0,
            torn: Vec::new(),
            tail: Lookup::Unknown,
        }
    }

    /// Clears what a crash has left of versions in its ring (OPEN4).
    pub(super) async fn clear_torn(&mut self, arena: &Arena) -> Result<(), (String, IoError)> {
        if self.torn.is_empty() {
            return Ok(());
        }
        for address in self.torn.iter().copied() {
            let header = Extent::new(address, BLOCK_SIZE);
            assert!(self.newest.is_none_or(|newest| !newest.overlaps(header)), "OPEN4: {header:?} is whole");
            let zeros = arena.take_zeroed(BLOCK_SIZE as usize).freeze();
            let written = self.disk.device.write(address, zeros, Durability::Volatile).await;
            written.map(drop).map_err(|error| self.failed(error))?;
        }
        self.disk.device.flush().await.map(drop).map_err(|error| self.failed(error))?;
        self.torn.clear();
        Ok(())
    }

    /// Looks for its tail, and ends it if the extents of `group` are to reach into it (TAIL1 of `tail.rs`).
    async fn look_for_tail(&mut self, group: &Group, arena: &Arena) {
        if matches!(self.tail, Lookup::Unknown) {
            let found = Tail::find(&self.disk.device, &self.label, group, arena).await;
            self.tail = found.map_or(Lookup::Unknown, Lookup::Found);
        }
        if let Lookup::Found(tail) = &self.tail
            && !tail.is_beside(group, self.pv)
        {
            let ended = tail.end(&self.disk.device).await;
            self.tail = Lookup::Unknown;
            ended.unwrap_or_else(|error| self.lose_tail(error));
        }
        let is_beside = |tail: &Tail| tail.is_beside(group, self.pv);
        assert!(!matches!(&self.tail, Lookup::Found(tail) if !is_beside(tail)), "TAIL1");
    }

    /// What users should know about its tail.
    pub(super) async fn tail_note(&self, slot: &Slot, group: &Group, arena: &Arena) -> Option<Note> {
        let path = self.disk.path.clone();
        let own = Slot { pv: self.pv, ..slot.clone() };
        match Tail::find(&self.disk.device, &self.label, group, arena).await {
            None => Some(Note::NoTail { path }),
            Some(tail) if tail.is_current(own.version(), &self.label) => None,
            Some(_) => Some(Note::TailBehind { path }),
        }
    }

    /// Brings the tail to `slot` and to the label that it has. One that cannot be written is only reported: the first copy is whole.
    pub(super) async fn mend_tail(&mut self, slot: &Slot, group: &Group, arena: &Arena) {
        let (device, label) = (self.disk.device.clone(), self.label);
        let own = Slot { pv: self.pv, ..slot.clone() };
        self.look_for_tail(group, arena).await;
        let mended = match &mut self.tail {
            Lookup::Found(tail) => tail.bring_to(&device, &own, &label, arena).await,
            Lookup::Unknown | Lookup::Lost => Ok(()),
        };
        mended.unwrap_or_else(|error| self.lose_tail(error));
    }

    /// Its tail is looked for anew when it is next needed.
    pub(super) fn forget_tail(&mut self) {
        self.tail = Lookup::Unknown;
    }

    fn lose_tail(&mut self, error: IoError) {
        tracing::warn!(path = self.disk.path, %error, "the second copy of its metadata cannot be written");
        self.tail = Lookup::Lost;
    }

    pub(super) async fn bring_forward(
        &mut self,
        slot: &Slot,
        group: &Group,
        arena: &Arena,
    ) -> Result<(), (String, IoError)> {
        match self.replica_state {
            // Else VERSION3 forbids it: see `with_newer_slots`.
            ReplicaState::Behind if self.sequence_max < slot.sequence => self.write(slot, group, arena).await,
            ReplicaState::Current => {
                self.disk.device.flush().await.map(drop).map_err(|error| self.failed(error))
            }
            ReplicaState::Behind | ReplicaState::Returned | ReplicaState::Removed | ReplicaState::Stale => {
                Ok(())
            }
        }
    }

    /// Writes a version, by which the group is `group`, to this disk, durably: TAIL2 of `tail.rs`.
    pub(super) async fn write(
        &mut self,
        slot: &Slot,
        group: &Group,
        arena: &Arena,
    ) -> Result<(), (String, IoError)> {
        assert!(
            slot.sequence > self.sequence_max,
            "VERSION3: {} on a disk with {}",
            slot.sequence,
            self.sequence_max
        );
        let own = Slot { pv: self.pv, ..slot.clone() };
        let device = self.disk.device.clone();
        self.look_for_tail(group, arena).await;
        let written = put_slot(&device, self.label.ring, self.newest, &own, arena).await;
        let written = written.map_err(|error| self.failed(error))?;
        let backed = match &mut self.tail {
            Lookup::Found(tail) => tail.put(&device, &own, &self.label, arena).await,
            Lookup::Unknown | Lookup::Lost => Ok(()),
        };
        backed.unwrap_or_else(|error| self.lose_tail(error));
        if !has(InjectedBug::SkipFlush) {
            device.flush().await.map_err(|error| self.failed(error))?;
        }
        self.newest = Some(written);
        self.sequence_max = slot.sequence;
        self.replica_state = ReplicaState::Current;
        Ok(())
    }

    pub(super) async fn relabel(&mut self, vg: Option<Uuid>, arena: &Arena) -> Result<(), IoError> {
        self.write_label(Label { vg, ..self.label }, arena).await
    }

    /// Writes its label as the next one, durably; to the tail, too.
    pub(super) async fn write_label(&mut self, label: Label, arena: &Arena) -> Result<(), IoError> {
        // Of copies with the highest generation, the one that was written first and is durable counts: `write_label`.
        let label = Label { generation: self.label.generation.saturating_add(1), ..label };
        assert_eq!(label.pv, self.pv, "a disk stays what it is");
        let device = self.disk.device.clone();
        write_label(&device, &label, arena).await?;
        (self.label, self.label_worn) = (label, false);
        let backed = match &mut self.tail {
            Lookup::Found(tail) => tail.put_label(&device, &label, arena).await,
            Lookup::Unknown | Lookup::Lost => Ok(()),
        };
        backed.unwrap_or_else(|error| self.lose_tail(error));
        Ok(())
    }

    pub(super) fn failed(&self, error: IoError) -> (String, IoError) {
        (self.disk.path.clone(), error)
    }
}
