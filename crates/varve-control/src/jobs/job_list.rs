//! Work that goes on after its command returned: what it does, how far it is, how it ended.
//!
//! Invariant JOBLIST1: a job that has ended never changes again.

use super::registry::{REBUILD, RESYNC};
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_api::{Changed, Code, Failure, Job, JobCancel, JobState, Plan, Scrub};
use varve_volume::copies::progress::Progress;

/// Ended jobs that are still shown.
const ENDED_MAX: usize = 256;

struct Entry {
    job: Job,
    progress: Arc<Progress>,
    cancellable: bool,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Entry {
    fn now(&self) -> Job {
        let mut job = self.job.clone();
        if job.state == JobState::Running {
            job.done = self.progress.done();
            job.total = self.progress.total();
            job.rate = self.progress.rate();
        }
        job
    }
}

/// What a new job is.
pub(crate) struct NewJob<'a> {
    /// `rollback`, `snapshot-remove`, ….
    pub(crate) kind: &'a str,
    /// What it works on.
    pub(crate) subject: &'a str,
    /// What progress is counted in.
    pub(crate) unit: &'a str,
    /// Seconds since 1970.
    pub(crate) started: u64,
    /// Whether it looks at [`Progress::is_cancelled`].
    pub(crate) cancellable: bool,
}

/// All jobs that run, and those that ended lately.
#[derive(Default)]
pub struct Jobs {
    entries: RefCell<BTreeMap<u64, Entry>>,
}

impl Jobs {
    /// Adds a running job with number `id`, which no job has.
    pub(crate) fn start(&self, id: u64, new: &NewJob<'_>) -> Arc<Progress> {
        let job = Job {
            id: id.to_string(),
            kind: new.kind.to_owned(),
            subject: new.subject.to_owned(),
            state: JobState::Running,
            done: 0,
            total: 0,
            unit: new.unit.to_owned(),
            rate: None,
            started: new.started,
            ended: None,
            error: None,
            kept: None,
            scrub: None,
        };
        let progress = Arc::new(Progress::default());
        let entry =
            Entry { job, progress: Arc::clone(&progress), cancellable: new.cancellable, waiting: Vec::new() };
        let mut entries = self.entries.borrow_mut();
        let replaced = entries.insert(id, entry);
        assert!(replaced.is_none(), "a job's number is used once");
        let ended: Vec<u64> =
            entries.iter().filter(|(_, entry)| is_ended(entry)).map(|(id, _)| *id).collect();
        for id in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            entries.remove(id);
        }
        progress
    }

    /// Says what keeps a running job from going on, or that nothing does any more.
    pub(crate) fn say_trouble(&self, id: u64, trouble: Option<Failure>) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&id)
            && !is_ended(entry)
        {
            entry.job.error = trouble; // JOBLIST1
        }
    }

    /// Says which snapshot keeps what was before a rollback.
    pub(crate) fn say_kept(&self, id: u64, kept: Option<String>) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&id)
            && !is_ended(entry)
        {
            entry.job.kept = kept; // JOBLIST1
        }
    }

    /// Says what a running scrub has found.
    pub(crate) fn say_scrub(&self, id: u64, scrub: &Scrub) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&id)
            && !is_ended(entry)
        {
            entry.job.scrub = Some(scrub.clone()); // JOBLIST1
        }
    }

    /// Ends a job; the tasks that wait for it go on.
    pub(crate) fn finish(&self, id: u64, result: Result<(), Failure>, now: u64) {
        let waiting = {
            let mut entries = self.entries.borrow_mut();
            let Some(entry) = entries.get_mut(&id) else { return };
            assert!(!is_ended(entry), "JOBLIST1");
            entry.job = Job { rate: None, ..entry.now() };
            entry.job.ended = Some(now);
            entry.job.state = match &result {
                Ok(()) => JobState::Done,
                Err(failure) if failure.code == Code::JobCancelled => JobState::Cancelled,
                Err(_) => JobState::Failed,
            };
            if result.is_ok() {
                entry.job.done = entry.job.total;
            }
            entry.job.error = result.err();
            std::mem::take(&mut entry.waiting)
        };
        waiting.into_iter().for_each(|waiter| {
            let _ = waiter.send(());
        });
    }

    /// All jobs, the oldest first.
    pub fn all(&self) -> Vec<Job> {
        self.entries.borrow().values().map(Entry::now).collect()
    }

    /// One job.
    pub fn show(&self, id: &str) -> Result<Job, Failure> {
        let entries = self.entries.borrow();
        let entry = id.parse().ok().and_then(|id: u64| entries.get(&id)).ok_or_else(|| missing(id))?;
        Ok(entry.now())
    }

    /// A future that is ready once the job has ended; ready at once if it has.
    pub fn ended(&self, id: &str) -> Result<oneshot::Receiver<()>, Failure> {
        let mut entries = self.entries.borrow_mut();
        let entry = id.parse().ok().and_then(|id: u64| entries.get_mut(&id)).ok_or_else(|| missing(id))?;
        let (sender, receiver) = oneshot::channel();
        if is_ended(entry) {
            let _ = sender.send(());
        } else {
            entry.waiting.push(sender);
        }
        Ok(receiver)
    }

    /// Asks a job to end; what it did so far is kept.
    pub fn cancel(&self, id: &str, request: &JobCancel) -> Result<Changed<Job>, Failure> {
        let entries = self.entries.borrow();
        let entry = id.parse().ok().and_then(|id: u64| entries.get(&id)).ok_or_else(|| missing(id))?;
        let is_final = !entry.cancellable || entry.progress.is_final();
        if is_ended(entry) || is_final {
            return Err(not_cancellable(&entry.job));
        }
        if request.dry_run {
            let Job { kind, subject, .. } = &entry.job;
            let step = format!("would ask job {id} ({kind} of {subject}) to end; what it did so far is kept");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        entry.progress.cancel();
        Ok(Changed::Done(entry.now()))
    }
}

fn is_ended(entry: &Entry) -> bool {
    entry.job.state != JobState::Running
}

/// Why a job cannot be asked to end, and what ends it.
fn not_cancellable(job: &Job) -> Failure {
    let (id, kind, subject) = (&job.id, &job.kind, &job.subject);
    let (why, help) = match kind.as_str() {
        _ if job.state != JobState::Running => ("has ended", String::new()),
        REBUILD => (
            "ends when the members that it fills are in sync, or away",
            format!("varve array fail {subject} PATH takes a member out of use; varve array show {subject}"),
        ),
        RESYNC => (
            "ends when the members are equal: until then a disk that fails may take data with it",
            format!("varve array change {subject} --resync-rate RATE..RATE says how fast it is"),
        ),
        _ => ("cannot leave things as they were", String::new()),
    };
    Failure::new(Code::JobNotCancellable, format!("job {id} ({kind}) {why}")).help(help)
}

fn missing(id: &str) -> Failure {
    Failure::new(Code::JobNotFound, format!("there is no job {id:?}")).help("varve job list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn new(cancellable: bool) -> NewJob<'static> {
        NewJob { kind: "rollback", subject: "data/home@a", unit: "bytes", started: 7, cancellable }
    }

    #[test]
    fn a_job_runs_reports_and_ends_once() {
        let jobs = Jobs::default();
        let progress = jobs.start(1, &new(false));
        progress.report(3, 10);
        assert_eq!(
            jobs.show("1").map(|job| (job.state, job.done, job.total)),
            Ok((JobState::Running, 3, 10))
        );
        let mut waiting = jobs.ended("1").expect("it runs");
        assert!((&mut waiting).now_or_never().is_none());
        jobs.say_trouble(1, Some(Failure::new(Code::MediumFailed, "a disk")));
        assert_eq!(jobs.show("1").map(|job| job.error.is_some()), Ok(true));
        jobs.finish(1, Ok(()), 9);
        jobs.say_trouble(1, Some(Failure::new(Code::MediumFailed, "a disk")));
        assert!(waiting.now_or_never().is_some());
        let job = jobs.show("1").expect("still shown");
        assert_eq!((job.state, job.done, job.ended), (JobState::Done, 10, Some(9)));
        assert_eq!(job.error, None, "JOBLIST1: what troubled it is over");
        progress.report(5, 5);
        assert_eq!(jobs.show("1"), Ok(job), "JOBLIST1");
        assert!(jobs.ended("1").expect("known").now_or_never().is_some());
    }

    #[test]
    fn only_what_can_be_cancelled_is() {
        let jobs = Jobs::default();
        let (now, planned) = (JobCancel::default(), JobCancel { dry_run: true });
        let refused = |id, request| jobs.cancel(id, request).map_err(|failure| failure.code).err();
        jobs.start(1, &new(false));
        let progress = jobs.start(2, &new(true));
        assert_eq!(refused("1", &now), Some(Code::JobNotCancellable));
        assert_eq!(refused("1", &planned), Some(Code::JobNotCancellable));
        assert!(matches!(jobs.cancel("2", &planned), Ok(Changed::Planned(_))) && !progress.is_cancelled());
        assert!(jobs.cancel("2", &now).is_ok() && progress.is_cancelled());
        progress.make_final();
        assert_eq!(refused("2", &now), Some(Code::JobNotCancellable));
        assert_eq!(refused("2", &planned), Some(Code::JobNotCancellable));
        jobs.finish(2, Err(Failure::new(Code::JobCancelled, "by a person")), 9);
        assert_eq!(jobs.show("2").map(|job| job.state), Ok(JobState::Cancelled));
        assert_eq!(refused("2", &now), Some(Code::JobNotCancellable));
        assert_eq!(refused("2", &planned), Some(Code::JobNotCancellable));
        assert_eq!(jobs.show("x").map_err(|failure| failure.code).err(), Some(Code::JobNotFound));
    }

    #[test]
    fn ended_jobs_are_forgotten_in_the_end_and_running_ones_never() {
        let jobs = Jobs::default();
        jobs.start(1, &new(false));
        for id in 2..1000 {
            jobs.start(id, &new(false));
            jobs.finish(id, Ok(()), 9);
        }
        assert!(jobs.all().len() <= ENDED_MAX + 2);
        assert_eq!(jobs.show("1").map(|job| job.state), Ok(JobState::Running));
    }
}
