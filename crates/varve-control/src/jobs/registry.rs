//! Jobs of the control: started, shown, ended, taken up again. Those that go on after a restart stand in texts (`records.rs`).
//!
//! Invariant JOBS1: a volume is rolled back by at most one job. Meanwhile snapshots of it are made, held and removed as
//! ever, except the one that it is rolled back to; other changes to it are refused. Removals block nothing.

use super::records::{Outlook, RecordedJob, busy_with};
use crate::Control;
use crate::jobs::job_list::NewJob;
use futures_util::future::{Either, select};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure, Job};
use varve_block::Moment;
use varve_vg::model::{Conversion, Job as Entry, JobWork};
use varve_volume::copies::progress::Progress;

/// The kinds of jobs.
pub(crate) const CHECK: &str = "pool-check";
pub(crate) const CLEAR: &str = "clear";
pub(crate) const CONVERT: &str = "convert";
pub(crate) const FLATTEN: &str = "flatten";
pub(crate) const IMAGE_COMMIT: &str = "image-commit";
pub(crate) const IMAGE_FLATTEN: &str = "image-flatten";
pub(crate) const MOVE: &str = "move";
pub(crate) const REBUILD: &str = "array-rebuild";
pub(crate) const REMOVE: &str = "snapshot-remove";
pub(crate) const RESYNC: &str = "array-resync";
pub(crate) const SCRUB: &str = "array-scrub";
pub(crate) const ROLLBACK: &str = "rollback";

/// How long a command waits for its job, which may be short.
pub(crate) const SHORT: Duration = Duration::from_millis(500);

/// Characters of the names that a job says it works on, unless one name is longer.
const SUBJECT_SHOWN: usize = 200;

/// No host has had more jobs.
const COUNTED_MAX: u64 = 1 << 48;

/// A job that was started, for its worker.
pub(crate) struct Started {
    pub(crate) id: u64,
    pub(crate) progress: Arc<Progress>,
    /// Since when a disk that it needs is missing, if one is.
    pub(crate) missing_since: Cell<Option<Moment>>,
}

impl Control {
    /// Starts a job in a group, counted in bytes. It stands in the group's text when this returns (JOBRECORD1 of `records.rs`), and the `set`
    /// of snapshots that was made for it is valid (ROLLJOB4 of `rollback.rs`).
    pub(crate) async fn start_job(
        &self,
        group: Uuid,
        subject: &str,
        work: JobWork,
        set: Option<Uuid>,
    ) -> Result<Started, Failure> {
        let (id, kind, volume) = (self.next_job_of(&[group]), kind(&work), busy_with(&work));
        self.record_job(id, subject, vec![(group, work)], set).await?;
        Ok(self.register_job(id, kind, subject, "bytes", volume, self.now()))
    }

    /// A number that no job has had, as far as is known here, for one that stands in no text.
    pub(crate) fn next_job(&self) -> u64 {
        self.next_job_of(&[])
    }

    /// The same for a job that is to stand in the texts of `groups`. A text that counts higher than jobs can have been is followed in its
    /// own group alone: it would use up the numbers of the others.
    pub(crate) fn next_job_of(&self, groups: &[Uuid]) -> u64 {
        let (next, id) = self.coming_job_of(groups);
        self.memory.remembered.borrow_mut().last_job = next;
        id
    }

    /// The number up to which numbers are used up here by that job, and the number that it has.
    pub(crate) fn coming_job_of(&self, groups: &[Uuid]) -> (u64, u64) {
        let known = self.groups.known.borrow();
        let counted = known.values().map(|known| known.group.last_job()).filter(|last| *last <= COUNTED_MAX);
        let own = groups.iter().filter_map(|group| known.get(group)).map(|known| known.group.last_job());
        let next = self.memory.remembered.borrow().last_job.max(counted.max().unwrap_or(0)) + 1;
        let own = own.max().filter(|own| *own >= next);
        (next, own.map_or(next, |own| own + 1))
    }

    /// Shows a job that runs under the number `id`.
    pub(crate) fn register_job(
        &self,
        id: u64,
        kind: &str,
        subject: &str,
        unit: &str,
        volume: Option<Uuid>,
        started: u64,
    ) -> Started {
        let new = NewJob { kind, subject, unit, started, cancellable: is_cancellable(kind) };
        let progress = self.jobs.list.start(id, &new);
        self.jobs.targets.busy.borrow_mut().extend(volume.map(|volume| (volume, id)));
        Started { id, progress, missing_since: Cell::new(None) }
    }

    /// Ends a job.
    pub(crate) async fn finish_job(&self, id: u64, result: Result<(), Failure>) {
        let volumes = self.release_targets(id);
        if let Err(failure) = &result {
            tracing::error!(job = id, %failure, "a job failed");
            let mut groups = self.groups.known.borrow_mut();
            groups.values_mut().for_each(|known| known.ask_again(&volumes));
        }
        self.erase_job(id).await; // RUN1
        self.jobs.list.finish(id, result, self.now());
    }

    /// Ends a job for now: as long as it stands in a text it goes on when it can (JOBRECORD2 of `records.rs`).
    pub(crate) async fn put_off(&self, id: u64, failure: Failure) {
        if !self.let_wait(id) {
            return self.finish_job(id, Err(failure)).await;
        }
        let message = format!("{}; it goes on when that can be used again", failure.message);
        let failure = Failure { message, ..failure };
        self.release_targets(id);
        tracing::warn!(job = id, %failure, "a job is put off");
        self.jobs.list.finish(id, Err(failure), self.now());
    }

    /// A job works on no volume any more; on which it did.
    fn release_targets(&self, id: u64) -> Vec<Uuid> {
        self.jobs.targets.observed.borrow_mut().retain(|_, job| *job != id);
        let mut busy = self.jobs.targets.busy.borrow_mut();
        busy.extract_if(.., |_, job| *job == id).map(|(volume, _)| volume).collect()
    }

    /// Refuses a volume on which a job works (JOBS1).
    pub(crate) fn refuse_if_busy(&self, volume: Uuid) -> Result<(), Failure> {
        match self.jobs.targets.busy.borrow().get(&volume) {
            None => Ok(()),
            Some(job) => Err(Failure::new(Code::VolumeBusy, format!("job {job} is changing the volume"))
                .help(format!("varve job wait {job}"))),
        }
    }

    /// How a job stands, after a wait for its end of at most `timeout`.
    pub(crate) async fn job_soon(&self, id: u64, timeout: Duration) -> Result<Job, Failure> {
        let id = id.to_string();
        let ended = self.jobs.list.ended(&id)?;
        let clock = self.context.clock();
        match select(ended, clock.sleep(timeout)).await {
            Either::Left(_) | Either::Right(_) => self.jobs.list.show(&id),
        }
    }

    /// Takes up a job that stands in a text.
    pub(crate) fn resume_job(&self, job: &RecordedJob) {
        let (group, first) = &job.parts[0];
        let (group, work, subject) = (*group, &first.work, self.subject_now(*group, first));
        self.jobs.records.insert(job.id, job.groups.clone());
        let volume = busy_with(work);
        let started = self.register_job(job.id, kind(work), &subject, "bytes", volume, first.started.0);
        match work {
            JobWork::RemoveSnapshots { .. } => self.resume_removal(job, started),
            JobWork::Rollback { .. } => self.resume_rollback(first, started),
            JobWork::Flatten { .. } => self.resume_flattening(first, started),
            JobWork::FlattenImage { .. } | JobWork::CommitImage { .. } => {
                self.resume_image_job(work, started);
            }
            JobWork::Scrub { .. } => self.resume_scrub(group, first, started),
            JobWork::Move(entry) => self.resume_move(group, entry.from, started),
            JobWork::Convert(entry) => self.resume_conversion(group, entry.volume, started),
            JobWork::Clear { volume, .. } => self.resume_clearing(group, *volume, started),
        }
    }

    /// What a job says that it works on: a disk or volume that it holds may have another path or name by now.
    fn subject_now(&self, group: Uuid, job: &Entry) -> String {
        match &job.work {
            JobWork::Move(entry) => self.path_of(group, entry.from),
            JobWork::Convert(Conversion { volume, .. }) | JobWork::Clear { volume, .. } => {
                self.subject(*volume)
            }
            _ => job.subject.clone(),
        }
    }

    /// Whether a job that has ended for now can go on.
    pub(crate) async fn outlook(&self, job: &RecordedJob) -> Outlook {
        let can_be_used = |volume: Uuid, place: Uuid| {
            self.home_of(volume).is_some() && self.unusable(volume).or_else(|| self.unusable(place)).is_none()
        };
        let is_good = match &job.first().work {
            JobWork::Move(_) | JobWork::Convert(_) | JobWork::Clear { .. } => true, // They wait by themselves.
            JobWork::Flatten { pool, number, .. } => return self.outlook_of_flattening(*pool, *number).await,
            JobWork::FlattenImage { volume, .. }
            | JobWork::CommitImage { volume, .. }
            | JobWork::Scrub { volume, .. } => {
                if self.entry_of(*volume).is_err() {
                    return Outlook::Done;
                }
                can_be_used(*volume, *volume)
            }
            JobWork::Rollback { volume, store, .. } => {
                can_be_used(*volume, *store) || self.is_gone(*volume, *store)
            }
            JobWork::RemoveSnapshots { .. } => {
                let works = job.parts.iter().map(|(_, part)| &part.work);
                let all_are_here = job.groups.iter().all(|group| self.can_be_changed(*group));
                all_are_here
                    && works.flat_map(JobWork::removed).all(|part| {
                        can_be_used(part.volume, part.store) || self.is_gone(part.volume, part.store)
                    })
            }
        };
        if is_good { Outlook::Good } else { Outlook::Bad }
    }
}

/// Whether jobs of a kind may be asked to end.
pub(crate) fn is_cancellable(kind: &str) -> bool {
    ![ROLLBACK, REBUILD, RESYNC].contains(&kind)
}

/// The kind of a job that stands in a text.
pub(crate) fn kind(work: &JobWork) -> &'static str {
    match work {
        JobWork::RemoveSnapshots { .. } => REMOVE,
        JobWork::Rollback { .. } => ROLLBACK,
        JobWork::Flatten { .. } => FLATTEN,
        JobWork::FlattenImage { .. } => IMAGE_FLATTEN,
        JobWork::CommitImage { .. } => IMAGE_COMMIT,
        JobWork::Scrub { .. } => SCRUB,
        JobWork::Move(_) => MOVE,
        JobWork::Convert(_) => CONVERT,
        JobWork::Clear { .. } => CLEAR,
    }
}

/// What a job on all of `names` says that it works on: as many of them as a line has room for.
pub(crate) fn subject_of(names: &[String]) -> String {
    let mut shown = String::new();
    for (index, name) in names.iter().enumerate() {
        let more = names.len() - index;
        if index > 0 && shown.chars().count() + 1 + name.chars().count() > SUBJECT_SHOWN {
            return format!("{shown} and {more} more");
        }
        shown = if shown.is_empty() { name.clone() } else { shown + " " + name };
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_fits_a_line_and_says_how_many_it_leaves_out() {
        let names: Vec<String> = (0..300).map(|number| format!("data/vm@s{number}")).collect();
        assert_eq!(subject_of(&names[..3]), "data/vm@s0 data/vm@s1 data/vm@s2");
        let subject = subject_of(&names);
        let shown = subject.split(' ').filter(|word| word.contains('@')).count();
        assert!(subject.ends_with(&format!(" and {} more", 300 - shown)), "{subject}");
        assert!((150..=220).contains(&subject.len()), "{subject}");
        let long = vec!["x".repeat(600); 2];
        assert_eq!(subject_of(&long), format!("{} and 1 more", long[0]));
    }
}
