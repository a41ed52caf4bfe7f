//! The runner of jobs: it takes work of any kind to its end, tries again what can be tried again, and says meanwhile what it waits for.
//!
//! Invariants:
//! - RUN1. A job ends when its work is done, or stands in no text any more: a failure that ends it takes what is left out of the text
//!   first, and tries that until it is so. (What is to be cleared stays there, and is begun again by the next scan.) Its end is reported after
//!   its record was erased, unless its group cannot be changed now: a crash after the report does not begin it again.
//! - RUN2. When the daemon stops, work that stands in a text is left to the next one.
//! - RUN3. A job whose work holds extents (a move, a conversion, a clearing) stands in the text until these are in order: one task works
//!   on it, or it says why it waits.
//! - JOBS2. A disk that is missing ends no move and no conversion before the time for which it may be slow to appear has passed; meanwhile
//!   the job says which disk that is, and what ends the wait.

use super::registry::{Started, is_cancellable};
use crate::Control;
use crate::failures;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::host::DiskState;
use varve_block::{MIB, Moment};
use varve_vg::model::PvName;

/// Bytes that are copied between two looks at whether to go on.
const BATCH: u64 = 8 * MIB;
/// How long to wait before what failed is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Why work does not go on.
pub(crate) enum Stop {
    /// A failure ends it.
    End(Failure),
    /// It is tried again soon.
    Wait(Failure),
    /// It ends for now, and goes on when what it needs can be used again (JOBRECORD2 of `records.rs`).
    PutOff(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Wait(failure)
    }
}

/// A failure of what cannot be used now puts work off, any other one ends it.
pub(crate) fn unless_usable(failure: Failure) -> Stop {
    match failures::is_unusable_now(&failure) {
        true => Stop::PutOff(failure),
        false => Stop::End(failure),
    }
}

/// Where work stands, after it has failed.
pub(crate) enum Standing {
    /// It is still to be done.
    ToDo,
    /// A scan has found that its last change is in the text.
    Done,
    /// Nothing asks for it any more, for this reason.
    Gone(Failure),
}

/// What a job does.
pub(crate) trait Work: 'static {
    /// What is recorded of its subject when it is done.
    const DONE: Option<&'static str> = None;
    /// Whether it stands in a text, and goes on when the daemon starts again.
    const GOES_ON: bool = true;

    /// The group whose disks it needs, if it is one.
    fn group(&self) -> Option<Uuid> {
        None
    }

    /// Does all that is left.
    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop>;

    /// A failure ends it: takes it out of the text; whether it is done all the same.
    async fn give_up(&mut self, _control: &Control) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Where it stands, after it has failed.
    fn standing(&mut self, _control: &Control) -> Standing {
        Standing::ToDo
    }
}

/// Work that stands in a text and on what is not there, or cannot be used.
pub(crate) struct Unusable(pub(crate) Failure);

impl Work for Unusable {
    async fn run(&mut self, _control: &Control, _job: &Started) -> Result<(), Stop> {
        Err(unless_usable(self.0.clone()))
    }
}

impl Control {
    /// Has a task do the work of a job.
    pub(crate) fn spawn_work(&self, job: Started, mut work: impl Work) {
        let me = self.weak();
        self.context.spawner().spawn(async move {
            if let Some(control) = me.upgrade() {
                control.run_work(&job, &mut work).await;
            }
        });
    }

    async fn run_work<W: Work>(&self, job: &Started, work: &mut W) {
        let mut ending = None;
        loop {
            let tried = match &ending {
                None => work.run(self, job).await.map(|()| true),
                Some(_) => work.give_up(self).await.map_err(Stop::Wait), // RUN1
            };
            let stop = match tried {
                Ok(is_done) => {
                    let failure = ending.filter(|_| !is_done);
                    return self.end_work::<W>(job.id, failure.map_or(Ok(()), Err)).await;
                }
                Err(stop) => stop,
            };
            if self.life.stopping.get() && W::GOES_ON {
                return self.leave_to_next_daemon(job.id); // RUN2
            }
            match work.standing(self) {
                Standing::ToDo => {}
                Standing::Done => return self.end_work::<W>(job.id, Ok(())).await,
                Standing::Gone(why) => {
                    return self.end_work::<W>(job.id, Err(ending.unwrap_or(why))).await;
                }
            }
            match stop {
                Stop::End(failure) => ending = Some(self.with_disks_in_trouble(work.group(), failure)),
                Stop::Wait(trouble) => {
                    self.wait_in_trouble(work.group(), job, ending.is_some(), trouble).await;
                }
                Stop::PutOff(failure) => return self.put_off(job.id, failure).await,
            }
        }
    }

    async fn end_work<W: Work>(&self, id: u64, result: Result<(), Failure>) {
        if result.is_ok()
            && let (Some(message), Ok(job)) = (W::DONE, self.jobs.list.show(&id.to_string()))
        {
            self.event(&job.subject, message);
        }
        self.finish_job(id, result).await;
    }

    fn leave_to_next_daemon(&self, id: u64) {
        assert!(self.life.stopping.get(), "RUN2");
        let message = "the daemon stops; the job goes on when it starts";
        self.jobs.list.finish(id, Err(Failure::new(Code::JobCancelled, message)), self.now());
    }

    /// Whether a job is to go on; `ended` says what a user's request to end it leaves.
    pub(crate) fn check_wanted(&self, job: &Started, ended: &str) -> Result<(), Stop> {
        self.check_running()?;
        if job.progress.is_cancelled() {
            return Err(Stop::End(Failure::new(Code::JobCancelled, ended)));
        }
        Ok(())
    }

    /// Leaves what follows to the next daemon if this one stops.
    pub(crate) fn check_running(&self) -> Result<(), Stop> {
        match self.life.stopping.get() {
            true => Err(Stop::Wait(Failure::new(Code::Stopping, "the daemon is stopping"))),
            false => Ok(()),
        }
    }

    /// JOBS2. What a job that copies does when of `disks`, those that it copies to, some are missing; nothing if none is.
    pub(crate) fn check_disks_here(&self, group: Uuid, job: &Started, disks: &[PvName]) -> Result<(), Stop> {
        let here = self.with_group(group, |known| self.disk_files(known))?;
        let Some(missing) = disks.iter().find(|disk| !here.contains_key(disk)) else {
            job.missing_since.set(None);
            return Ok(());
        };
        let now = self.context.clock().now();
        let since = job.missing_since.get().unwrap_or(now);
        job.missing_since.set(Some(since));
        let path = self.path_of(group, *missing);
        let message = format!("{path}, to which it copies, is missing");
        let failure = Failure::new(Code::GroupIncomplete, message).help("varve pv list");
        Err(match since.after(self.disks.lost.after()) <= now {
            true => Stop::End(failure),
            false => Stop::Wait(failure),
        })
    }

    /// Has `copy` copy up to so many bytes of `bytes` after another, not faster than `rate`, and report what is left, until nothing is or
    /// the job is not wanted any more; `ended` says what a user's request to end it leaves.
    pub(crate) async fn copy_at_rate(
        &self,
        job: &Started,
        (bytes, rate): (u64, Option<u64>),
        ended: &str,
        copy: impl AsyncFn(u64) -> Result<u64, Stop>,
    ) -> Result<(), Stop> {
        let (mut left, done, first) = (bytes, job.progress.done(), self.context.clock().now());
        while left > 0 {
            self.check_wanted(job, ended)?;
            let began = self.context.clock().now();
            let batch = rate.map_or(BATCH, |rate| rate.clamp(MIB, BATCH)).min(left);
            left = copy(batch).await?;
            job.progress.report_done(done + bytes - left);
            let took_ms = self.context.clock().now().since(first).as_millis().max(1) as u64;
            job.progress.report_rate(Some((bytes - left).saturating_mul(1000) / took_ms));
            if let Some(rate) = rate {
                let takes = Duration::from_secs_f64(batch as f64 / rate as f64);
                self.hold_back(began.after(takes), || self.check_wanted(job, ended).is_ok()).await;
            }
        }
        Ok(())
    }

    /// Waits until `end`, or until the job is not wanted any more.
    async fn hold_back(&self, end: Moment, is_wanted: impl Fn() -> bool) {
        let clock = self.context.clock();
        while clock.now() < end && is_wanted() {
            clock.sleep(end.since(clock.now()).min(Duration::from_millis(200))).await;
        }
    }

    /// Says what a job waits for, and waits before it tries again. One that `is_ending` only has to say so in the group's text.
    async fn wait_in_trouble(&self, group: Option<Uuid>, job: &Started, is_ending: bool, trouble: Failure) {
        let trouble = self.with_disks_in_trouble(group, trouble);
        let failed = group.map(|group| self.disks_in_trouble(group)).unwrap_or_default();
        let shown = self.jobs.list.show(&job.id.to_string()).ok();
        let help = match failed.first() {
            None => trouble.help.clone(),
            Some((path, _)) if is_ending => {
                format!(
                    "the job ends as soon as its group can be changed, without {path} or with it: varve pv scan {path}"
                )
            }
            Some((path, _)) => {
                let cancel = match shown.as_ref().is_some_and(|shown| is_cancellable(&shown.kind)) {
                    true => format!("varve job cancel {}; or ", job.id),
                    false => String::new(),
                };
                format!("{cancel}bring {path} back, and it goes on: varve pv scan {path}")
            }
        };
        let trouble = trouble.help(help);
        if let Some(shown) = shown.filter(|shown| shown.error.as_ref() != Some(&trouble)) {
            let message = format!("job {}: the {} rests and tries again: {trouble}", job.id, shown.kind);
            self.warn(&shown.subject, &message);
        }
        self.jobs.list.say_trouble(job.id, Some(trouble));
        group.into_iter().for_each(|group| self.reconcile_soon(group));
        self.context.clock().sleep(RETRY_DELAY).await;
    }

    /// The failure of a job, with the disks of its group that may be the reason.
    fn with_disks_in_trouble(&self, group: Option<Uuid>, failure: Failure) -> Failure {
        let disks = group.map(|group| self.disks_in_trouble(group)).unwrap_or_default();
        let untold = disks.iter().filter(|(path, _)| !failure.message.contains(path.as_str()));
        let message =
            untold.fold(failure.message.clone(), |message, (path, why)| format!("{message}; {path} {why}"));
        Failure { message, ..failure }
    }

    /// The disks of a group that are missing, or take no writes.
    fn disks_in_trouble(&self, group: Uuid) -> Vec<(String, &'static str)> {
        let found = self.with_group(group, |known| {
            let disks = self.disks.known.borrow();
            let state = |path: &String| disks.get(Path::new(path)).map(|known| known.file.state());
            let failed =
                known.paths.values().filter(|path| !matches!(state(path), None | Some(DiskState::InUse)));
            let failed = failed.map(|path| (path.clone(), "takes no writes"));
            let missing = known.missing().into_iter().map(|path| (path, "is missing"));
            missing.chain(failed).collect()
        });
        found.unwrap_or_default()
    }
}
