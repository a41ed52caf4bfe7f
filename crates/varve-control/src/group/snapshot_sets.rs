//! Snapshots of one command are all there after a crash, or none of them: what is being made is written down before.
//!
//! A *set* stands in the description of every group that gets snapshots of it, from before the first is made until the
//! last is durable. The first of its groups decides. A set that a start finds is undone, unless the group that decides
//! has it no more.
//!
//! Invariants:
//! - SETS1. A snapshot of a set is made only while the set stands in all of its groups.
//! - SETS2. A set is valid from the change on that takes it out of the group that decides. That is made when all of its
//!   snapshots are durable, or when none of them is left.
//! - SETS3. Nothing of a set is removed while it is undecided whether the set is valid: its end may have reached a disk of the group
//!   that decides. And nothing is taken to be removed from a store or pool that has failed: more may be durable than it shows.
//! - SETS4. No other snapshot gets a name that a standing set has for its volume: so what has such a name, and a higher
//!   number than its store had given before, is of that set.
//! - SETS5. A set is undone with the lock of the group that decides, so that no command is making it.

use crate::Control;
use crate::commands::snapshots::Batch;
use crate::failures;
use crate::injected_bug::{self, InjectedBug};
use crate::schedules::own_run::Run;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_vg::Change;
use varve_vg::model::{SetMember, SnapshotSet};
use varve_vg::plan::ScheduleRun;
use varve_volume::fault;

/// The part of a set that is in one group.
#[derive(Clone)]
pub(crate) struct Part {
    group: Uuid,
    set: SnapshotSet,
}

impl Part {
    /// The set of which it is a part.
    pub(crate) fn set(&self) -> Uuid {
        self.set.id
    }

    /// The group that decides.
    fn coordinator(&self) -> Uuid {
        self.set.groups.first().copied().unwrap_or(self.group)
    }
}

impl Control {
    /// Makes the snapshots of `batches`; whatever happens, all of them count afterwards or none is left.
    /// Those of a schedule become its own with the change that makes them valid.
    pub(crate) async fn make_all_or_none(
        &self,
        batches: &[Batch],
        read_only: bool,
        run: Option<&Run>,
    ) -> Result<(), Failure> {
        if run.is_none() && batches.iter().map(|batch| batch.names.len()).sum::<usize>() <= 1 {
            return self.make_snapshots(batches, read_only).await;
        }
        let parts = self.make_set(batches, read_only).await?;
        let volumes: Vec<_> = batches.iter().map(|batch| (&batch.located, batch.names.as_slice())).collect();
        let counted = match run {
            None => self.end_part(&parts[0], None).await, // SETS2
            Some(run) => match run.outcome(self, &volumes).await {
                Ok(run) => self.end_part(&parts[0], Some(run)).await,
                Err(failure) => Err(failure),
            },
        };
        match &counted {
            Ok(()) => self.end_parts(&parts[1..]).await,
            Err(_) => self.undo(&parts).await,
        }
        counted
    }

    /// Makes the snapshots of `batches` as a set that stands: they do not count before the caller ends it. After an error none is
    /// left.
    pub(crate) async fn make_set(&self, batches: &[Batch], read_only: bool) -> Result<Vec<Part>, Failure> {
        let parts = self.parts(batches).await?;
        let made = match self.begin_set(&parts).await {
            Ok(()) => {
                fault::die_at("snapshot-set-begun");
                let made = self.make_snapshots(batches, read_only).await;
                fault::die_at("snapshot-set-made");
                made
            }
            Err(failure) => Err(failure),
        };
        if made.is_err() {
            self.undo(&parts).await;
        }
        made.map(|()| parts)
    }

    /// What is written down of `batches`: one part for each group, first the one that decides.
    async fn parts(&self, batches: &[Batch]) -> Result<Vec<Part>, Failure> {
        let id = self.new_id();
        let mut parts: Vec<Part> = Vec::new();
        for batch in batches {
            let facts = self.facts(&batch.located).await;
            let volume = self.refreshed(&batch.located)?;
            let member = |store: Uuid, names: Vec<String>| {
                let numbers = facts.iter().filter(|facts| facts.target.store == store);
                let after = numbers.map(|facts| facts.target.number).max().unwrap_or(0);
                SetMember { volume: volume.id, store, after, names }
            };
            let pool = batch.located.thin.as_ref().map(|thin| thin.pool);
            let shared = volume.store.as_ref().map(|store| store.id).or(pool);
            let members: Vec<SetMember> = match (batch.stores.as_slice(), shared) {
                ([], Some(shared)) => vec![member(shared, batch.names.clone())],
                (own, _) => {
                    let pairs = own.iter().zip(&batch.names);
                    pairs.map(|(store, name)| member(*store, vec![name.clone()])).collect()
                }
            };
            match parts.iter_mut().find(|part| part.group == batch.located.group) {
                Some(part) => part.set.members.extend(members),
                None => {
                    let set = SnapshotSet { id, groups: Vec::new(), members };
                    parts.push(Part { group: batch.located.group, set });
                }
            }
        }
        if parts.len() > 1 {
            let groups: Vec<Uuid> = parts.iter().map(|part| part.group).collect();
            parts.iter_mut().for_each(|part| part.set.groups.clone_from(&groups));
        }
        Ok(parts)
    }

    /// Writes the set down in all of its groups before a snapshot of it is made (SETS1).
    async fn begin_set(&self, parts: &[Part]) -> Result<(), Failure> {
        for Part { group, set } in parts {
            let names: Vec<String> = set.members.iter().flat_map(|member| member.names.clone()).collect();
            let words = format!("snap create {}: begun", crate::commands::groups::few(&names));
            let change = Change::BeginSnapshots { set: set.clone() };
            self.commits(*group).await.make(*group, change, &words).await?;
        }
        Ok(())
    }

    /// Takes a part out of its group's description.
    async fn end_part(&self, part: &Part, run: Option<ScheduleRun>) -> Result<(), Failure> {
        let standing = self.with_group(part.group, |known| {
            known.group.snapshot_sets().iter().any(|set| set.id == part.set.id)
        })?;
        if !standing {
            return Ok(());
        }
        let words = if run.is_some() { "schedule run" } else { "snap create: resolved" };
        let change = Change::EndSnapshots { set: part.set.id, job: None, run };
        self.commits(part.group).await.make(part.group, change, words).await
    }

    /// The same where nothing depends on it any more.
    async fn end_parts(&self, parts: &[Part]) {
        for part in parts {
            if let Err(failure) = self.end_part(part, None).await {
                tracing::warn!(group = %part.group, %failure, "a set of snapshots is resolved when the group can be changed");
            }
        }
    }

    /// Removes what there is of a set, then forgets it, in the group that decides last (SETS2). What cannot be removed now is left
    /// to the next scan or start.
    pub(crate) async fn undo(&self, parts: &[Part]) {
        if parts.first().is_some_and(|part| self.is_undecided(part.coordinator())) {
            tracing::warn!(
                "snapshots of one instant are resolved when their group is decided: varve pv scan"
            );
            return; // SETS3
        }
        for part in parts.iter().rev() {
            for member in &part.set.members {
                if let Err(failure) = self.undo_member(member).await {
                    tracing::warn!(volume = %member.volume, %failure, "snapshots of a set cannot be taken back yet");
                    return;
                }
            }
            if let Err(failure) = self.end_part(part, None).await {
                tracing::warn!(group = %part.group, %failure, "a set of snapshots is resolved when the group can be changed");
                return;
            }
        }
    }

    /// Removes the snapshots of a set that are in one store (SETS4).
    async fn undo_member(&self, member: &SetMember) -> Result<(), Failure> {
        let Some(home) = self.home_of(member.volume) else {
            // Its snapshots have gone with it, or its pool cannot say.
            return match self.unusable(member.store) {
                Some(failure) => Err(failure),
                None => Ok(()),
            };
        };
        let SetMember { volume, store, after, names } = member.clone();
        for failing in [volume, store] {
            if home.volume(failing).is_failing().await.map_err(failures::gone)? {
                let message = format!("{} takes no changes since one failed", self.subject(volume));
                return Err(Failure::new(Code::MediumFailed, message).help("varve pv scan")); // SETS3
            }
        }
        let removed = home.volume(volume).remove_newer(store, after, names).await.map_err(failures::gone)?;
        let subject = self.subject(volume);
        let inactive = || {
            Failure::new(Code::VolumeUnusable, format!("{subject} is not active"))
                .help(format!("varve lv activate {subject}"))
        };
        let gone = removed.ok_or_else(inactive)?.map_err(|error| failures::store(&subject, &error))?;
        for name in gone {
            self.warn(&format!("{subject}@{name}"), "undone: not all snapshots of its command could be made");
        }
        Ok(())
    }

    /// Resolves the sets in `locked` groups that a crash has left half done, as far as all groups of a set are here. The caller holds
    /// the locks of these (SETS5).
    pub(crate) async fn resolve_sets(&self, locked: &[Uuid]) {
        let standing: Vec<Part> = {
            let groups = self.groups.known.borrow();
            let part = |(group, known): (&Uuid, &super::known_group::KnownGroup)| {
                let group = *group;
                let sets = known.group.snapshot_sets().iter().cloned();
                sets.map(|set| Part { group, set }).collect::<Vec<Part>>()
            };
            groups.iter().flat_map(part).collect()
        };
        let is_locked = |part: &&Part| {
            locked.contains(&part.group) || injected_bug::has(InjectedBug::UndoUnlocked) // SETS5
        };
        for part in standing.iter().filter(is_locked) {
            let of_set = |group: Uuid| {
                standing.iter().find(|other| other.group == group && other.set.id == part.set.id)
            };
            let is_here = |group: &Uuid| self.groups.known.borrow().contains_key(group);
            if part.set.groups.iter().any(|group| is_here(group) && !self.is_served(*group)) {
                continue; // CONVERGE4 of `controller`
            }
            if !part.set.groups.iter().all(is_here) {
                tracing::warn!(group = %part.group, set = %part.set.id,
                    "snapshots of one instant cannot be resolved before all of their groups are here: varve pv scan PATH…");
            } else if of_set(part.coordinator()).is_none() {
                self.end_parts(std::slice::from_ref(part)).await; // it is valid
            } else if part.group == part.coordinator() {
                let others = part.set.groups.iter().skip(1).filter_map(|group| of_set(*group));
                let all: Vec<Part> = std::iter::once(part).chain(others).cloned().collect();
                self.undo(&all).await;
            }
        }
    }

    /// Refuses names that a standing set has for the same volume (SETS4).
    pub(crate) fn refuse_names_of_sets(&self, batch: &Batch) -> Result<(), Failure> {
        let taken = self.with_group(batch.located.group, |known| {
            let members = known.group.snapshot_sets().iter().flat_map(|set| &set.members);
            let mut names = members
                .filter(|member| member.volume == batch.located.volume.id)
                .flat_map(|member| &member.names);
            names.find(|name| batch.names.contains(name)).cloned()
        })?;
        let Some(name) = taken else { return Ok(()) };
        let message =
            format!("{} belongs to snapshots of one instant that are not resolved yet", batch.full(&name));
        Err(Failure::new(Code::SnapshotExists, message)
            .help("choose another name; or bring all groups of that command here, and all of their disks: varve vg list"))
    }
}
