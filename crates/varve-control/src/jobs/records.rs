//! Jobs in the texts of their groups: written down when they begin, taken up wherever the groups are used, forgotten when they have
//! ended. Moves, conversions and clearings are written down and forgotten by the changes of their own work, as these hold extents.
//!
//! Invariants:
//! - JOBRECORD1. Work that nothing else on the disks tells of (of several snapshots that go, all but those that went; a rollback before it has
//!   begun; copies that a volume or an image is given) is begun after its job stands in the text.
//! - JOBRECORD2. As long as a job stands in the text of a group that can be used, a task works on it, or it has ended for now and said why:
//!   then it goes on, under another number, when that has changed. One that holds extents begins when no other job works on its volume.
//! - JOBRECORD3. A job of several groups is valid while it stands in the first one, which decides: there it is written last, and forgotten first.
//! - JOBRECORD4. A job keeps its number for good, over restarts and on other hosts, as long as no other job has that number there.

use super::record_states::RecordState;
use crate::Control;
use crate::commands::groups::few;
use crate::group::known_group::KnownGroup;
use crate::injected_bug::{InjectedBug, has};
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::UnixTime;
use varve_vg::Change;
use varve_vg::model::{Conversion, Job, JobWork};
use varve_vg::plan::JobStep;
use varve_volume::fault;

/// A job as it stands in the texts of the groups that are here.
#[derive(Clone)]
pub(crate) struct RecordedJob {
    /// Its number.
    pub(crate) id: u64,
    /// Its parts, by their groups; that of the group that decides comes first.
    pub(crate) parts: Vec<(Uuid, Job)>,
    /// Groups that have parts of it, or had them.
    pub(crate) groups: Vec<Uuid>,
}

impl RecordedJob {
    /// The part that decides.
    pub(crate) fn first(&self) -> &Job {
        &self.parts[0].1
    }
}

/// A job that stands in a text, and on which no task works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestingJob {
    /// Its number.
    pub(crate) id: u64,
    /// Whether a task may work on it now.
    pub(crate) may_begin: bool,
    /// The volume of which it holds extents, and on which no other job works meanwhile.
    pub(crate) holds: Option<Uuid>,
}

/// Whether a job can go on.
pub(crate) enum Outlook {
    Good,
    /// What it waits for has not come.
    Bad,
    /// Nothing is left to be done.
    Done,
}

impl Control {
    /// Writes down a job, with what is to be done in each group, the one that decides first (JOBRECORD3). After an error it does not stand
    /// anywhere, or no task works on it. `set`, snapshots that were made for it and that are not valid yet, becomes valid with the same change.
    /// While it is undecided whether that is valid the job waits.
    pub(crate) async fn record_job(
        &self,
        id: u64,
        subject: &str,
        parts: Vec<(Uuid, JobWork)>,
        set: Option<Uuid>,
    ) -> Result<(), Failure> {
        let groups: Vec<Uuid> = parts.iter().map(|(group, _)| *group).collect();
        self.jobs.records.insert(id, groups.clone());
        if has(InjectedBug::ForgetJob) {
            let Some(set) = set else { return Ok(()) };
            let change = Change::EndSnapshots { set, job: None, run: None };
            return self.commits(groups[0]).await.make(groups[0], change, "a control").await;
        }
        let named = if groups.len() > 1 { groups.clone() } else { Vec::new() };
        let started = UnixTime(self.now());
        for (group, work) in parts.into_iter().rev() {
            let words = words(&work, subject, "begun");
            let job = Job { id, subject: subject.to_owned(), started, groups: named.clone(), work };
            let change = match set {
                Some(set) => Change::EndSnapshots { set, job: Some(job), run: None },
                None => Change::Jobs(JobStep::Begin(job)),
            };
            // A statement of its own releases the right to commit: `erase_job` waits for it.
            let recorded = self.commits(group).await.make(group, change, &words).await;
            if let Err(failure) = recorded {
                match set {
                    // If the change is valid the snapshots are: then the job goes on (ROLLJOB4 of `rollback.rs`).
                    Some(_) if self.is_undecided(group) => {
                        drop(self.jobs.records.set(id, RecordState::Waits));
                    }
                    _ => self.erase_job(id).await,
                }
                return Err(failure);
            }
            fault::die_at("job-part-recorded");
        }
        if self.jobs.records.is_ended(id) {
            self.forget_in(&groups, id).await; // It has ended before it stood anywhere.
        }
        fault::die_at("job-recorded");
        Ok(())
    }

    /// Writes down that a rollback has begun.
    pub(crate) async fn record_rollback(&self, id: u64) -> Result<(), Failure> {
        for group in self.jobs.records.groups_of(id) {
            if self.entry_in(group, id).is_some() {
                let change = Change::Jobs(JobStep::RolledBack { id });
                self.commits(group)
                    .await
                    .make(group, change, &format!("job {id}: the rollback has begun"))
                    .await?;
            }
        }
        Ok(())
    }

    /// A job has ended: takes it out of the texts. Where a text cannot be changed now that is done later.
    pub(crate) async fn erase_job(&self, id: u64) {
        let Some(groups) = self.jobs.records.set(id, RecordState::Ended) else { return };
        if fault::lacks("job-erasure") {
            return;
        }
        if self.forget_in(&groups, id).await {
            self.jobs.records.remove(id);
        }
    }

    /// Takes out of the texts what has ended and could not be taken out before.
    pub(crate) async fn erase_ended_jobs(&self) {
        for id in self.jobs.records.ended() {
            self.erase_job(id).await;
        }
    }

    /// Takes a job out of the texts of `groups`, if it stands there; whether it stands nowhere now. While a text is undecided
    /// the job may come to stand there.
    async fn forget_in(&self, groups: &[Uuid], id: u64) -> bool {
        for group in groups.iter().copied() {
            let commits = self.commits(group).await;
            match self.entry_in(group, id) {
                Some(job) if job.work.holds_extents() => continue, // PLANJOB3: a task ends it.
                None if !self.is_undecided(group) => continue,
                _ => {}
            }
            let change = Change::Jobs(JobStep::End { ids: vec![id] });
            if let Err(failure) = commits.make(group, change, &format!("job {id} ended")).await {
                tracing::warn!(job = id, %failure, "a job that has ended is forgotten when its group can be changed");
                return false;
            }
        }
        true
    }

    /// Takes out of the texts what stands there of a job that does not count (JOBRECORD3): it has not begun, has ended, or has another
    /// number. Whether that is done.
    async fn forget_parts(&self, id: u64, coordinator: Uuid) -> bool {
        if !self.can_be_changed(coordinator) {
            tracing::warn!(job = id, group = %coordinator,
                "a job of several groups goes on when the one is here that decides: varve pv scan PATH…");
            return false;
        }
        let groups: Vec<Uuid> = self.parts_of(id, coordinator).into_iter().map(|(group, _)| group).collect();
        self.forget_in(&groups, id).await
    }

    /// A job ends for now (JOBRECORD2); whether it stands in a text.
    pub(crate) fn let_wait(&self, id: u64) -> bool {
        let groups = self.jobs.records.set(id, RecordState::Waits).unwrap_or_default();
        groups.into_iter().any(|group| self.entry_in(group, id).is_some())
    }

    /// Jobs that wait and whose work is meant have nothing to do any more.
    pub(crate) async fn forget_waiting(&self, is_meant: impl Fn(&JobWork) -> bool) {
        for (id, coordinator) in self.jobs_in_texts() {
            let waits = self.jobs.records.state(id, coordinator) == Some(RecordState::Waits);
            let is_meant = |job: &RecordedJob| is_meant(&job.first().work);
            if waits && self.recorded(id, coordinator).as_ref().is_some_and(is_meant) {
                self.erase_job(id).await;
            }
        }
    }

    /// Jobs in texts of which `group` decides and on which no task works.
    pub(crate) fn resting_jobs(&self, group: Uuid) -> Vec<RestingJob> {
        let own = self.jobs_in_texts().into_iter().filter(|(_, coordinator)| *coordinator == group);
        let rests = |(id, _): &(u64, Uuid)| self.jobs.records.state(*id, group) != Some(RecordState::Runs);
        own.filter(rests).map(|(id, _)| self.resting_job(id, group)).collect()
    }

    /// CONVERGE4 of `controller`: whether all groups of a job that are here are served; and no other job is in its way (JOBRECORD2).
    fn resting_job(&self, id: u64, first: Uuid) -> RestingJob {
        let Some(job) = self.recorded(id, first) else {
            return RestingJob { id, may_begin: true, holds: None };
        };
        let (unserved, work) = (self.groups.unserved.borrow(), &job.first().work);
        let holds = busy_with(work).filter(|_| work.holds_extents());
        let is_free = holds.is_none_or(|volume| self.refuse_if_busy(volume).is_ok());
        let may_begin = is_free && !job.groups.iter().any(|group| unserved.contains(group));
        RestingJob { id, may_begin, holds }
    }

    /// Works on a job of which `group` decides, or erases it if it has ended (JOBRECORD2).
    pub(crate) async fn resume_recorded(&self, group: Uuid, id: u64) {
        match self.jobs.records.state(id, group) {
            Some(RecordState::Runs) => {}
            Some(RecordState::Ended) => self.erase_job(id).await,
            Some(RecordState::Waits) => self.try_again(id, group).await,
            None => self.take_up(id, group).await,
        }
    }

    /// The groups that decide of jobs in the text of `group` on which no task works.
    pub(crate) fn coordinators_of_resting_jobs(&self, group: Uuid) -> BTreeSet<Uuid> {
        let jobs = self.with_group(group, |known| {
            known.group.jobs().iter().map(|job| (job.id, coordinator(group, job))).collect::<Vec<_>>()
        });
        let rests = |id, first| self.jobs.records.state(id, first) != Some(RecordState::Runs);
        let jobs = jobs.unwrap_or_default().into_iter();
        jobs.filter(|(id, first)| rests(*id, *first)).map(|(_, first)| first).collect()
    }

    async fn try_again(&self, id: u64, coordinator: Uuid) {
        let Some(job) = self.recorded(id, coordinator) else {
            if self.forget_parts(id, coordinator).await {
                self.jobs.records.remove(id);
            }
            return;
        };
        match self.outlook(&job).await {
            Outlook::Bad => {}
            Outlook::Done => self.erase_job(id).await,
            Outlook::Good => {
                if let Some(job) = self.renumber(job).await {
                    self.jobs.records.remove(id);
                    self.resume_job(&job);
                }
            }
        }
    }

    /// A job that this daemon does not know yet.
    async fn take_up(&self, id: u64, coordinator: Uuid) {
        let Some(job) = self.recorded(id, coordinator) else {
            self.forget_parts(id, coordinator).await;
            return;
        };
        let is_taken = self.jobs.list.show(&id.to_string()).is_ok();
        let job = if is_taken { self.renumber(job).await } else { Some(job) };
        if let Some(job) = job {
            self.resume_job(&job);
        }
    }

    /// Begins a job that a change of its group has just written down.
    pub(crate) fn begin_recorded(&self, group: Uuid, id: u64) {
        self.recorded(id, group).iter().for_each(|job| self.resume_job(job)); // The group was locked until now: no task works on it yet.
    }

    /// The job with another number (JOBRECORD4).
    async fn renumber(&self, job: RecordedJob) -> Option<RecordedJob> {
        let (from, to) = (job.id, self.next_job_of(&job.groups));
        let mut steps = Vec::new();
        let others = || job.parts.iter().skip(1);
        steps.extend(others().map(|(group, part)| (*group, JobStep::Begin(Job { id: to, ..part.clone() }))));
        steps.push((job.parts[0].0, JobStep::Renumber { from, to }));
        steps.extend(others().map(|(group, _)| (*group, JobStep::End { ids: vec![from] })));
        for (group, step) in steps {
            let words = format!("job {from} goes on as {to}");
            if let Err(failure) = self.commits(group).await.make(group, Change::Jobs(step), &words).await {
                tracing::warn!(job = from, %failure, "a job does not go on");
                return None;
            }
        }
        let parts = job.parts.into_iter().map(|(group, part)| (group, Job { id: to, ..part })).collect();
        Some(RecordedJob { id: to, parts, groups: job.groups })
    }

    /// Jobs in the texts of groups that can be changed, each with the group that decides.
    fn jobs_in_texts(&self) -> BTreeSet<(u64, Uuid)> {
        let groups = self.groups.known.borrow();
        let usable = groups.iter().filter(|(_, known)| known.can_be_changed());
        let of_group = |(group, known): (&Uuid, &KnownGroup)| {
            let own = known.group.jobs().iter().map(|job| (job.id, coordinator(*group, job)));
            own.collect::<Vec<_>>()
        };
        usable.flat_map(of_group).collect()
    }

    /// Snapshots that jobs in texts remove: the store, and the number there.
    pub(crate) fn recorded_removals(&self) -> BTreeSet<(Uuid, u64)> {
        let groups = self.groups.known.borrow();
        let works = groups.values().flat_map(|known| known.group.jobs()).map(|job| &job.work);
        let parts = works.flat_map(JobWork::removed);
        parts.flat_map(|part| part.numbers.iter().map(|number| (part.store, *number))).collect()
    }

    /// The parts of a job that are here, that of the group that decides first.
    fn parts_of(&self, id: u64, first: Uuid) -> Vec<(Uuid, Job)> {
        let groups = self.groups.known.borrow();
        let is_part = |group: Uuid, job: &Job| job.id == id && coordinator(group, job) == first;
        let part = |(group, known): (&Uuid, &KnownGroup)| {
            let job = known.group.jobs().iter().find(|job| is_part(*group, job))?;
            Some((*group, job.clone()))
        };
        let mut parts: Vec<_> = groups.iter().filter_map(part).collect();
        parts.sort_by_key(|(group, _)| *group != first);
        parts
    }

    /// A job, if it is valid (JOBRECORD3).
    fn recorded(&self, id: u64, first: Uuid) -> Option<RecordedJob> {
        let parts = self.parts_of(id, first);
        let (group, job) = parts.first().filter(|(group, _)| *group == first)?;
        let groups = if job.groups.is_empty() { vec![*group] } else { job.groups.clone() };
        Some(RecordedJob { id, parts, groups })
    }

    /// Whether a group is here, and its text is known for certain.
    pub(crate) fn can_be_changed(&self, group: Uuid) -> bool {
        self.with_group(group, KnownGroup::can_be_changed).unwrap_or_default()
    }

    /// A job as it stands in the text of a group, if it does.
    fn entry_in(&self, group: Uuid, id: u64) -> Option<Job> {
        let entry =
            self.with_group(group, |known| known.group.jobs().iter().find(|job| job.id == id).cloned());
        entry.ok().flatten()
    }
}

fn coordinator(group: Uuid, job: &Job) -> Uuid {
    job.groups.first().copied().unwrap_or(group)
}

/// The volume to which nothing else is done meanwhile (JOBS1).
pub(crate) fn busy_with(work: &JobWork) -> Option<Uuid> {
    match work {
        JobWork::RemoveSnapshots { .. } | JobWork::Scrub { .. } | JobWork::Move(_) => None,
        JobWork::Rollback { volume, .. }
        | JobWork::Flatten { volume, .. }
        | JobWork::FlattenImage { volume, .. }
        | JobWork::CommitImage { volume, .. }
        | JobWork::Convert(Conversion { volume, .. })
        | JobWork::Clear { volume, .. } => Some(*volume),
    }
}

/// What a change says that writes down a job.
fn words(work: &JobWork, subject: &str, what: &str) -> String {
    let names: Vec<String> = subject.split(' ').map(str::to_owned).collect();
    format!("{} {}: {what}", command(work), few(&names))
}

/// The command that begins such a job.
fn command(work: &JobWork) -> &'static str {
    match work {
        JobWork::RemoveSnapshots { .. } => "snap remove",
        JobWork::Rollback { .. } => "snap rollback",
        JobWork::Flatten { .. } | JobWork::FlattenImage { .. } => "lv flatten",
        JobWork::CommitImage { .. } => "lv commit",
        JobWork::Scrub { .. } => "array scrub",
        JobWork::Move(_) => "pv move",
        JobWork::Convert(_) => "lv convert",
        JobWork::Clear { .. } => "lv create",
    }
}
