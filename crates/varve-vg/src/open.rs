//! A group with its disks: brought to one state, changed atomically, dissolved.
//!
//! The protocol, of which `election` is part (the invariants VERSION1 to VERSION3 are stated there):
//! - A new version goes to every disk it counts on: written beside the newest slot and flushed, on all disks at once.
//!   It is acknowledged when all are durable; so after a crash any one disk that was there knows it.
//! - Before a group is used it is *reconciled*: disks that lag behind are brought forward, what was read is made durable,
//!   and a version that marks absent disks missing, and takes back those that returned, is acknowledged.
//! - A disk joins with its ring read, and then ring and label written, before the others hear of it. One that leaves gets the
//!   version without it before them, so it never goes on alone, as a disk of the group, when that version counts. Its label is cleared
//!   once that version is acknowledged, after a crash too: else another version may count, which lists it.
//!
//! Invariants:
//! - OPEN1. Nothing is written before [`OpenGroup::reconcile`], and no change made.
//! - OPEN2. After a failure in the middle of a commit it is unknown which version will win: the group refuses further changes
//!   until its disks are scanned again.
//! - OPEN3. A disk is used once, belongs to the group unless it is leaving, and the group is what the version that counts says.
//! - OPEN4. Once a group is reconciled no slot is left that was torn and may have been newer: a later version over it, torn too, could
//!   make it whole, as far as both have the same bytes.

mod member;
mod messages;
mod resized;
mod returned;
mod tails;

use member::{Lookup, Member, leaves_numbers, relabel, torn_beside};
pub use messages::{Absent, CommitError, Note};
use resized::{fit, fits};

use crate::disks::disk::{Disk, Reading};
use crate::disks::free_disk::FreeDisk;
use crate::election::{Election, Replica, ReplicaState};
use crate::injected_bug::{InjectedBug, has};
use crate::model::Group;
use crate::plan::{Change, Plan, Stamp, plan};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_block::{Arena, Device, IoError};
use varve_format::{SEQUENCE_END, Slot, text_length_max};

/// A group and its disks.
pub struct OpenGroup {
    group: Group,
    /// The version that counts, as it is on the disks, except whose copy it is.
    slot: Slot,
    members: Vec<Member>,
    /// Disks that are here and not used, because they have lost what they had acknowledged.
    stale: Vec<Member>,
    notes: Vec<Note>,
    state: State,
    /// A version that was written to some disks, perhaps, and is not known to be on all (OPEN2).
    undecided: Option<Group>,
    arena: Arena,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Surveyed,
    Reconciled,
    /// A commit failed in the middle: which version wins shows the next scan (OPEN2).
    Broken,
}

impl OpenGroup {
    /// The group that `election` found on `readings`; `replicas` and `readings` are in the same order.
    pub(crate) fn assembled(
        election: Election,
        replicas: Vec<Replica>,
        readings: Vec<Reading>,
        arena: Arena,
    ) -> Self {
        let Election { slot, group, replica_states, .. } = election;
        let (members, notes, state) = (Vec::new(), Vec::new(), State::Surveyed);
        let (stale, undecided) = (Vec::new(), None);
        let mut open = OpenGroup { group, slot, members, stale, notes, state, undecided, arena };
        for ((replica, reading), replica_state) in replicas.into_iter().zip(readings).zip(replica_states) {
            open.admit(&replica, reading, replica_state);
        }
        for pv in open.newly_missing() {
            let path = open.group.pv_by_id(pv).map_or_else(String::new, |pv| pv.path.clone());
            open.notes.push(Note::Missing { pv, path });
        }
        open.assert_consistent();
        open
    }

    /// Panics if disks and group are not those of the version that counts (OPEN2, OPEN3).
    fn assert_consistent(&self) {
        let said = (self.group.id(), self.group.entry().sequence);
        assert_eq!(said, (self.slot.vg, self.slot.sequence), "OPEN3");
        let mut used: Vec<Uuid> = self.members.iter().chain(&self.stale).map(|member| member.pv).collect();
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0] != pair[1]), "OPEN3: a disk is used twice");
        let is_foreign = |member: &Member| {
            member.replica_state != ReplicaState::Removed && self.group.pv_by_id(member.pv).is_none()
        };
        assert!(!self.members.iter().any(is_foreign), "OPEN3: a disk of another group is used");
        assert!(self.undecided.is_none() || self.state == State::Broken, "OPEN2");
    }

    fn admit(&mut self, replica: &Replica, reading: Reading, replica_state: ReplicaState) {
        let path = reading.disk.path.clone();
        let newest_slot = replica.ring.newest();
        let holds = newest_slot.map_or(0, |placed| placed.slot.sequence);
        let newest = self.group.entry().sequence;
        for damaged in &replica.ring.damaged {
            let (address, error) = (damaged.address, damaged.error);
            self.notes.push(Note::SlotDamaged { path: path.clone(), address, error });
        }
        if reading.label_worn {
            self.notes.push(Note::LabelWorn { path: path.clone() });
        }
        let entry = self.group.pv_by_id(replica.pv);
        if entry.is_some_and(|entry| !fits(entry, &reading, &replica.ring)) {
            self.notes.push(Note::OtherShape { path });
            return;
        }
        if matches!(replica_state, ReplicaState::Behind | ReplicaState::Returned)
            && !leaves_numbers(holds, newest)
        {
            self.notes.push(Note::NumberForged { path, holds });
            return;
        }
        match replica_state {
            ReplicaState::Current => {}
            ReplicaState::Behind => self.notes.push(Note::Behind { path, holds, newest }),
            ReplicaState::Returned => self.notes.push(Note::Returned { path, holds, newest }),
            ReplicaState::Stale => self.notes.push(Note::Stale { path, holds, newest }),
            ReplicaState::Removed => self.notes.push(Note::Removed { path, group: self.group.name().into() }),
        }
        // A disk that a commit removes holds the version without it: after a crash its label is still to be cleared.
        let knows =
            |text: &str| Group::from_text(text).is_ok_and(|group| group.pv_by_id(replica.pv).is_none());
        let is_leaving = newest_slot.is_some_and(|placed| knows(&placed.slot.text));
        if replica_state == ReplicaState::Removed && !is_leaving {
            return;
        }
        let newest = newest_slot.map(|placed| placed.extent);
        let torn = torn_beside(newest, &replica.ring);
        let disks = if replica_state == ReplicaState::Stale { &mut self.stale } else { &mut self.members };
        disks.push(Member {
            pv: replica.pv,
            label: reading.label,
            label_worn: reading.label_worn,
            disk: reading.disk,
            replica_state,
            newest,
            sequence_max: holds,
            torn,
            tail: Lookup::Unknown,
        });
    }

    /// A new group as `plan` says, on `disks`, which belong to none.
    pub async fn create(plan: Plan, disks: Vec<FreeDisk>, arena: Arena) -> Result<Self, CommitError> {
        assert_eq!(plan.based_on, 0, "a new group follows nothing");
        Self::found(plan.after, None, disks, arena).await
    }

    /// Writes `group`, as the version after `previous`, to `disks`, none of which holds a version of it.
    pub(crate) async fn found(
        group: Group,
        previous: Option<Uuid>,
        disks: Vec<FreeDisk>,
        arena: Arena,
    ) -> Result<Self, CommitError> {
        let (vg, sequence, text) = (group.id(), group.entry().sequence, group.text());
        if sequence >= SEQUENCE_END {
            let paths = disks.iter().map(|free| free.disk.path.clone()).collect();
            let group = group.name().into();
            return Err(CommitError::NumbersUsedUp { group, sequence: sequence - 1, paths });
        }
        let slot = Slot { vg, pv: Uuid::nil(), sequence, previous, ancestors: Vec::new(), text };
        let (members, stale, notes) = (Vec::new(), Vec::new(), Vec::new());
        let (slot_now, state, undecided) = (slot.clone(), State::Reconciled, None);
        let mut open = OpenGroup { group, slot: slot_now, members, stale, notes, state, undecided, arena };
        open.commit(open.group.clone(), slot, disks.into_iter().map(Member::first).collect()).await?;
        Ok(open)
    }

    /// The group as it is.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// What users should know about the disks, as found when they were scanned.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Whether it was reconciled, and may be used.
    pub fn is_reconciled(&self) -> bool {
        self.state == State::Reconciled
    }

    /// The version that may count instead of [`OpenGroup::group`], after a commit that failed half way (OPEN2). The next scan
    /// finds which one does: the new one, if any disk that is there holds it, and then it is brought to all disks.
    pub fn undecided(&self) -> Option<&Group> {
        self.undecided.as_ref()
    }

    /// The disks that are here, by the name that the group gives them.
    pub fn devices(&self) -> BTreeMap<crate::model::PvName, Device> {
        let named = self.members.iter().filter_map(|member| {
            let pv = self.group.pv_by_id(member.pv).filter(|pv| !pv.missing)?;
            Some((pv.name, member.disk.device.clone()))
        });
        named.collect()
    }

    pub(crate) fn disks(&self) -> impl Iterator<Item = Disk> {
        self.members.iter().map(|member| member.disk.clone())
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Where the disk `pv` is now, if it is here.
    pub fn path(&self, pv: Uuid) -> Option<&str> {
        self.members.iter().find(|member| member.pv == pv).map(|member| member.disk.path.as_str())
    }

    /// Disks that the group counts on and that are not here.
    pub fn newly_missing(&self) -> Vec<Uuid> {
        let here = |id: Uuid| self.members.iter().any(|member| member.pv == id);
        let disks = self.group.physical_volumes().iter();
        disks.filter(|pv| !pv.missing && !here(pv.id)).map(|pv| pv.id).collect()
    }

    /// Disks that were marked missing, are here, and hold all that they had acknowledged.
    pub fn returned(&self) -> Vec<Uuid> {
        self.with(ReplicaState::Returned).map(|member| member.pv).collect()
    }

    fn with(&self, replica_state: ReplicaState) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.replica_state == replica_state)
    }

    /// Brings all disks to the state that was found, durably, and records which are missing and which are back. Only
    /// then may the group be used.
    pub async fn reconcile(&mut self, absent: Absent, stamp: &Stamp) -> Result<(), CommitError> {
        self.refuse_if_broken()?;
        let missing = self.newly_missing();
        // Else no disk can record the absence of the others.
        let nobody = !self.members.iter().any(|member| self.can_hold(member));
        if nobody || (absent == Absent::Refuse && !missing.is_empty()) {
            let path = |id: &Uuid| self.group.pv_by_id(*id).map_or_else(String::new, |pv| pv.path.clone());
            let paths = missing.iter().map(path).collect();
            return Err(CommitError::Incomplete { group: self.group.name().into(), paths });
        }
        // The disks' labels say how long their rings are, and a ring may be shorter than when the version was made.
        self.check_length(&self.group, self.slot.text.len(), &[])?;
        self.clear_torn().await?;
        self.bring_forward().await?;
        let leaving: Vec<Member> =
            self.members.extract_if(.., |member| member.replica_state == ReplicaState::Removed).collect();
        let fitted = fit(&mut self.members, &self.group, &self.slot, &self.arena).await;
        self.finish_writes(fitted)?;
        let labelled = relabel(&mut self.members, Some(self.group.id()), &self.arena).await;
        self.finish_writes(labelled)?;
        self.mend_tails().await;
        self.try_returned().await;
        self.state = State::Reconciled;
        if has(InjectedBug::ForgetMissing) {
            return self.clear_labels(leaving).await;
        }
        let superseded: Vec<Uuid> = self.with_newer_slots().map(|member| member.pv).collect();
        let missing = [missing, superseded.clone()].concat();
        let returned = self.returned();
        if !missing.is_empty() || !returned.is_empty() {
            self.record(missing, returned, stamp).await?;
        }
        self.clear_labels(leaving).await?;
        if !superseded.is_empty() {
            self.record(Vec::new(), superseded, stamp).await?;
        }
        assert!(self.members.iter().all(|member| member.replica_state == ReplicaState::Current), "VERSION1");
        self.assert_consistent();
        Ok(())
    }

    /// Disks that lag behind and hold an abandoned version, of a number as high as that which counts (VERSION3).
    /// They are left out of one version and taken back by the next.
    fn with_newer_slots(&self) -> impl Iterator<Item = &Member> {
        self.with(ReplicaState::Behind).filter(|member| !self.can_hold(member))
    }

    /// Whether a disk holds the version that counts, or can be brought forward to it (VERSION3).
    fn can_hold(&self, member: &Member) -> bool {
        match member.replica_state {
            ReplicaState::Current => true,
            ReplicaState::Behind => member.sequence_max < self.slot.sequence,
            ReplicaState::Returned | ReplicaState::Stale | ReplicaState::Removed => false,
        }
    }

    /// Commits which disks are missing and which are back: VERSION2.
    async fn record(
        &mut self,
        missing: Vec<Uuid>,
        returned: Vec<Uuid>,
        stamp: &Stamp,
    ) -> Result<(), CommitError> {
        let planned = plan(&self.group, Change::MarkMissing { missing, returned }, stamp);
        let done = match planned {
            Ok(plan) => self.commit_next(plan.after, Vec::new()).await,
            Err(error) => Err(CommitError::Plan(error)),
        };
        if done.is_err() {
            self.state = State::Broken;
        }
        done
    }

    /// Writes the version that counts to the disks that lag behind, and flushes those that have it: it may have been
    /// read from a cache.
    async fn bring_forward(&mut self) -> Result<(), CommitError> {
        let (slot, group, arena) = (self.slot.clone(), self.group.clone(), self.arena.clone());
        let work = self.members.iter_mut().map(|member| member.bring_forward(&slot, &group, &arena));
        let results = join_all(work).await;
        self.finish_writes(results)
    }

    /// Clears what a crash has left of versions that do not count (OPEN4).
    async fn clear_torn(&mut self) -> Result<(), CommitError> {
        let arena = &self.arena;
        let results = join_all(self.members.iter_mut().map(|member| member.clear_torn(arena))).await;
        self.finish_writes(results)
    }

    /// The version that counts, as it is to lie on the disk `pv`.
    pub(crate) fn slot_for(&self, pv: Uuid) -> Slot {
        Slot { pv, ..self.slot.clone() }
    }

    /// Clears the labels of disks that have left, once the version without them is acknowledged.
    async fn clear_labels(&mut self, mut leaving: Vec<Member>) -> Result<(), CommitError> {
        assert!(
            leaving.iter().all(|member| self.group.pv_by_id(member.pv).is_none()),
            "OPEN3: they have left"
        );
        let results = relabel(&mut leaving, None, &self.arena).await;
        self.finish_writes(results)
    }

    /// Makes the change that `plan` describes. `joining` are the disks that it adds.
    pub async fn apply(&mut self, plan: Plan, joining: Vec<FreeDisk>) -> Result<(), CommitError> {
        self.refuse_if_broken()?;
        assert_eq!(self.state, State::Reconciled, "OPEN1");
        if plan.based_on != self.group.entry().sequence {
            return Err(CommitError::PlanOutdated { group: self.group.name().into() });
        }
        self.commit_next(plan.after, joining).await
    }

    /// Dissolves the group: its disks belong to none afterwards. It has no volumes.
    pub async fn dissolve(mut self) -> Result<(), CommitError> {
        self.refuse_if_broken()?;
        assert!(
            self.state == State::Reconciled && self.group.logical_volumes().is_empty(),
            "OPEN1; the group is empty"
        );
        let arena = self.arena.clone();
        for member in &mut self.members {
            let path = member.disk.path.clone();
            let done = member.relabel(None, &arena).await.map_err(|error| (path, error));
            if let Err(failed) = done {
                let group = self.group.name().into();
                return Err(CommitError::Disks { group, disks: vec![failed] });
            }
        }
        Ok(())
    }

    /// Commits `next` as the version that follows the present one.
    async fn commit_next(&mut self, next: Group, joining: Vec<FreeDisk>) -> Result<(), CommitError> {
        assert_eq!(self.state, State::Reconciled, "OPEN1");
        let (vg, arena) = (self.group.id(), self.arena.clone());
        let joining = join_all(joining.into_iter().map(|free| Member::joining(free, vg, &arena))).await;
        let sequence = self.next_number(&joining)?;
        let next = next.numbered(sequence);
        let slot = self.slot.followed_by(sequence, next.text());
        self.commit(next, slot, joining).await
    }

    /// The number of the next version, which is written to `joining`, too (VERSION3).
    fn next_number(&self, joining: &[Member]) -> Result<u64, CommitError> {
        self.check_numbers(joining)?;
        let members = self.members.iter().chain(joining);
        let highest = members.map(|member| member.sequence_max).fold(self.slot.sequence, u64::max);
        assert!(highest + 1 < SEQUENCE_END, "SLOT3: {highest} leaves a number");
        Ok(highest + 1)
    }

    /// Refuses disks that come to the group, or that it has, with a number that leaves too few (SLOT3).
    fn check_numbers(&self, coming: &[Member]) -> Result<(), CommitError> {
        let own = self.members.iter().filter(|member| member.sequence_max + 1 == SEQUENCE_END);
        let coming = coming.iter().filter(|member| !leaves_numbers(member.sequence_max, self.slot.sequence));
        let refused: Vec<&Member> = own.chain(coming).collect();
        let Some(sequence) = refused.iter().map(|member| member.sequence_max).max() else { return Ok(()) };
        let paths = refused.into_iter().map(|member| member.disk.path.clone()).collect();
        Err(CommitError::NumbersUsedUp { group: self.group.name().into(), sequence, paths })
    }

    /// Makes `next`, as `slot` has it, the version that counts.
    async fn commit(&mut self, next: Group, slot: Slot, joining: Vec<Member>) -> Result<(), CommitError> {
        self.check_length(&next, slot.text.len(), &joining)?;
        self.undecided = Some(next.clone());
        let results = self.write_everywhere(&next, &slot, joining).await;
        self.finish_writes(results)?;
        (self.group, self.slot, self.undecided) = (next, slot, None);
        let counted = self.members.iter().filter(|member| self.group.counts_on(member.pv));
        assert!(
            counted.clone().all(|member| member.sequence_max == self.slot.sequence),
            "VERSION1: all of them hold it"
        );
        assert!(counted.count() > 0, "VERSION1: somebody holds it");
        self.members.retain(|member| member.replica_state != ReplicaState::Removed);
        self.assert_consistent();
        Ok(())
    }

    /// Joining disks first, then those that leave, then those that stay.
    async fn write_everywhere(
        &mut self,
        next: &Group,
        slot: &Slot,
        joining: Vec<Member>,
    ) -> Vec<Result<(), (String, IoError)>> {
        let arena = self.arena.clone();
        let mut joining = joining;
        let mut results = join_all(joining.iter_mut().map(|member| member.write(slot, next, &arena))).await;
        if results.iter().all(Result::is_ok) {
            results.extend(relabel(&mut joining, Some(slot.vg), &arena).await);
        }
        if results.iter().any(Result::is_err) {
            return results;
        }
        let (mut leaving, others): (Vec<_>, Vec<_>) =
            self.members.iter_mut().partition(|member| next.pv_by_id(member.pv).is_none());
        if !has(InjectedBug::LeaveLast) {
            results.extend(join_all(leaving.iter_mut().map(|member| member.write(slot, next, &arena))).await);
        }
        if results.iter().any(Result::is_err) {
            return results;
        }
        let staying = others.into_iter().filter(|member| next.counts_on(member.pv));
        results.extend(join_all(staying.map(|member| member.write(slot, next, &arena))).await);
        if results.iter().all(Result::is_ok) {
            leaving.iter_mut().for_each(|member| member.replica_state = ReplicaState::Removed);
            results.extend(relabel(leaving, None, &arena).await);
        }
        self.members.extend(joining);
        if results.iter().all(Result::is_ok) {
            results.extend(fit(&mut self.members, next, slot, &arena).await);
        }
        results
    }

    fn check_length(&self, next: &Group, length: usize, joining: &[Member]) -> Result<(), CommitError> {
        for member in self.members.iter().chain(joining) {
            let length_max = text_length_max(member.label.ring.length);
            if length as u64 > length_max {
                let (group, path) = (next.name().into(), member.disk.path.clone());
                return Err(CommitError::TextTooLong { group, length, length_max, path });
            }
        }
        Ok(())
    }

    fn refuse_if_broken(&self) -> Result<(), CommitError> {
        match self.state {
            State::Broken => Err(CommitError::Broken { group: self.group.name().into() }),
            State::Surveyed | State::Reconciled => Ok(()),
        }
    }

    /// What a commit is worth after the writes to its disks (OPEN2).
    fn finish_writes(&mut self, results: Vec<Result<(), (String, IoError)>>) -> Result<(), CommitError> {
        let disks: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        if disks.is_empty() {
            return Ok(());
        }
        self.state = State::Broken;
        for (path, error) in &disks {
            tracing::error!(group = self.group.name(), path, %error, "the description could not be written");
        }
        Err(CommitError::Disks { group: self.group.name().into(), disks })
    }
}
