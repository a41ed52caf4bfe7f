//! The job that scrubs the arrays of a volume or pool while they serve.
//!
//! Invariant SCRUBJOB1: the text of the group says how far a scrub is, at most five minutes late, so a restart goes on with it; and it blocks
//! no change.

use super::moves::not_known;
use super::registry::{REBUILD, SCRUB, SHORT, Started};
use super::runner::{Stop, Work, unless_usable};
use crate::Control;
use crate::failures;
use crate::find::volume_name;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{ArrayScrub, Changed, Code, Failure, Job, JobState, Plan, Scrub};
use varve_target::array::{Rates, ScrubOptions, ScrubReport};
use varve_vg::Change;
use varve_vg::model::{Job as Entry, JobWork, LogicalVolume, ScrubPosition as RecordedPosition};
use varve_vg::plan::JobStep;
use varve_vg::size::{format_size, parse_size};
use varve_volume::copies::scrub::{ScrubPosition, Scrubbed};

/// The slowest scrub, in bytes a second: one of a terabyte takes half a year.
const RATE_MIN: u64 = 64 << 10;
/// No members are as fast.
const RATE_MAX: u64 = 1 << 50;

/// How often the text learns how far a scrub is.
const RECORDED_EVERY: Duration = Duration::from_secs(300);

/// The work of a scrub.
struct Scrubbing {
    group: Uuid,
    volume: Uuid,
    subject: String,
    options: ScrubOptions,
    position: ScrubPosition,
}

impl Work for Scrubbing {
    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        let scrubbed = loop {
            control.check_running()?;
            let scrubbed = self.scrub_on(control, job).await?;
            control.check_running()?;
            self.position = scrubbed.position.clone();
            control.tell_places(&self.subject, &scrubbed, self.options.check_only);
            match &scrubbed.outcome {
                _ if scrubbed.goes_on => self.record(control, job.id).await?,
                Err(failure) if self.is_filled(control, failure) => return Err(Stop::Wait(failure.clone())),
                _ => break scrubbed,
            }
        };
        let scrub = control.result_of(&scrubbed, self.options.check_only);
        control.jobs.list.say_scrub(job.id, &scrub);
        control.memory.remembered.borrow_mut().scrubs.insert(self.volume, scrub.clone());
        if scrub.complete && !scrub.check_only && scrub.unread == 0 {
            let found = control.mismatches_of(self.group, self.volume).await;
            control.arrays.made_good.borrow_mut().insert(self.volume, found);
        }
        control.save_or_warn().await;
        control.tell_scrub(&self.subject, &scrub, scrubbed).map_err(Stop::End)
    }
}

impl Scrubbing {
    /// Goes on until its position is to be recorded.
    async fn scrub_on(&self, control: &Control, job: &Started) -> Result<Scrubbed, Stop> {
        let home = control.home_of(self.volume).ok_or_else(|| Stop::PutOff(not_known()))?;
        let part = (self.position.clone(), control.context.clock().now().after(RECORDED_EVERY));
        let progress = Arc::clone(&job.progress);
        let work = home.volume(self.volume).scrub(self.subject.clone(), self.options, part, progress);
        let scrubbed = control.answered(self.volume, work.await);
        control.jobs.list.say_trouble(job.id, None);
        scrubbed.map_err(unless_usable)
    }

    /// Keeps how far it is and what it has found in the text of its group (SCRUBJOB1).
    async fn record(&self, control: &Control, id: u64) -> Result<(), Failure> {
        let Some((array, now)) = &self.position.now else { return Ok(()) };
        let all = self.position.report();
        let position = RecordedPosition {
            array: *array,
            offset: now.at,
            compared: now.done,
            before: self.position.before.done,
            mismatches: all.mismatches,
            healed: all.healed,
            unread: all.unread,
        };
        let words = format!("job {id}: the scrub of {} goes on", self.subject);
        let change = Change::Jobs(JobStep::Scrubbed { id, position });
        control.commits(self.group).await.make(self.group, change, &words).await
    }

    /// Whether members are not in sync that a job fills: after a restart, perhaps.
    fn is_filled(&self, control: &Control, failure: &Failure) -> bool {
        failure.code == Code::ArrayDegraded && control.jobs.targets.job_of(REBUILD, self.volume).is_some()
    }
}

/// Where a scrub goes on whose record says so.
fn resumed(position: &RecordedPosition) -> ScrubPosition {
    let RecordedPosition { array, offset, compared, before, mismatches, healed, unread } = *position;
    let now =
        ScrubReport { done: compared, at: offset, mismatches, healed, unread, ..ScrubReport::default() };
    let before = ScrubReport { done: before, total: before, ..ScrubReport::default() };
    ScrubPosition { before, now: Some((array, now)) }
}

/// The options of a scrub that compares no more than `rate` bytes a second.
fn options(check_only: bool, rate: Option<u64>) -> ScrubOptions {
    let usual = Rates::default();
    ScrubOptions { rates: Rates { ceiling: rate.unwrap_or(usual.ceiling), ..usual }, check_only }
}

impl Control {
    /// Compares all members of an array; the answer is a job, which fails if they do not fit each other afterwards.
    pub async fn scrub_array(&self, text: &str, request: ArrayScrub) -> Result<Changed<Job>, Failure> {
        let lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        let (rate, check_only) = (rate(request.rate.as_deref())?, request.check_only);
        let located = self.find_array(text)?.usable()?;
        let (id, subject) = (located.volume.id, name.to_string());
        if self.conversion_of(located.group, id).is_some() {
            self.refuse_if_busy(id)?; // Its new array is not filled yet.
        }
        let asked = located.home.volume(id).scrub_size(subject.clone());
        let bytes = self.answered(id, asked.await)?;
        if request.dry_run {
            let writes = if check_only { "write nothing" } else { "make them equal" };
            let step = format!("would compare the members of {name} in {}, and {writes}", format_size(bytes));
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let is_same =
            |job: &Job| job.kind == SCRUB && job.subject == subject && job.state == JobState::Running;
        if let Some(job) = self.jobs.list.all().into_iter().find(is_same) {
            let message = format!("job {} scrubs {name} already", job.id);
            return Err(Failure::new(Code::VolumeBusy, message).help(format!("varve job wait {}", job.id)));
        }
        let is_meant = |work: &JobWork| matches!(work, JobWork::Scrub { volume, .. } if *volume == id);
        self.forget_waiting(is_meant).await; // Another one follows.
        let work = JobWork::Scrub { volume: id, check_only, rate, position: None };
        let started = self.start_job(located.group, &subject, work, None).await?;
        let number = started.id;
        let (group, options) = (located.group, options(check_only, rate));
        let position = ScrubPosition::default();
        self.spawn_work(started, Scrubbing { group, volume: id, subject, options, position });
        drop(lock);
        self.job_soon(number, SHORT).await.map(Changed::Done)
    }

    /// Takes up a scrub that stands in a text (SCRUBJOB1).
    pub(crate) fn resume_scrub(&self, group: Uuid, entry: &Entry, started: Started) {
        let JobWork::Scrub { volume, check_only, rate, position } = &entry.work else { return };
        let position = position.as_ref().map(resumed).unwrap_or_default();
        let (volume, options, subject) = (*volume, options(*check_only, *rate), entry.subject.clone());
        self.spawn_work(started, Scrubbing { group, volume, subject, options, position });
    }

    /// Reads of a volume's arrays that found members which do not fit each other.
    async fn mismatches_of(&self, group: Uuid, volume: Uuid) -> u64 {
        let arrays = self.arrays_of(group, |other| other.id == volume).await.unwrap_or_default();
        arrays.iter().filter_map(|array| array.status.as_ref()).map(|status| status.mismatches).sum()
    }

    /// Volumes and pools of a group whose members are known not to fit each other, and why that is known.
    pub(crate) async fn unfit_arrays(&self, group: Uuid) -> Result<Vec<(LogicalVolume, String)>, Failure> {
        let mut read: BTreeMap<Uuid, (LogicalVolume, u64)> = BTreeMap::new();
        for array in self.arrays_of(group, |_| true).await? {
            let found = array.status.map_or(0, |status| status.mismatches);
            read.entry(array.volume.id).or_insert((array.volume, 0)).1 += found;
        }
        let (remembered, made_good) = (self.memory.remembered.borrow(), self.arrays.made_good.borrow());
        let unfit = read.into_values().filter_map(|(volume, read)| {
            let scrub = remembered.scrubs.get(&volume.id);
            let left = scrub.filter(|scrub| scrub.check_only && scrub.mismatches > 0);
            let reads = read - made_good.get(&volume.id).copied().unwrap_or(0).min(read);
            let why = match (left, reads) {
                (Some(scrub), _) => format!("a scrub found {} blocks of it", scrub.mismatches),
                (None, 0) => return None,
                (None, reads) => format!("{reads} reads were refused"),
            };
            Some((volume, why))
        });
        Ok(unfit.collect())
    }

    fn result_of(&self, scrubbed: &Scrubbed, check_only: bool) -> Scrub {
        let report = scrubbed.position.report();
        Scrub {
            ended: self.now(),
            complete: scrubbed.outcome.is_ok(),
            check_only,
            verified: report.done.saturating_sub(report.unread),
            mismatches: report.mismatches,
            healed: report.healed,
            unread: report.unread,
        }
    }

    /// Says where members did not match.
    fn tell_places(&self, subject: &str, scrubbed: &Scrubbed, check_only: bool) {
        let after = if check_only { "nothing was written" } else { "they are equal now" };
        scrubbed.places.iter().for_each(|place| self.warn(subject, &format!("{place}; {after}")));
    }

    /// Says what a scrub has found.
    fn tell_scrub(&self, subject: &str, scrub: &Scrub, scrubbed: Scrubbed) -> Result<(), Failure> {
        let ended = if scrub.complete { "scrubbed" } else { "partly scrubbed" };
        let (verified, unread) = (format_size(scrub.verified), format_size(scrub.unread));
        let (mismatches, healed) = (scrub.mismatches, scrub.healed);
        let summary = format!(
            "{ended}: {verified} verified; blocks that did not fit: {mismatches}, healed: {healed}; cannot be read: {unread}"
        );
        match (mismatches, scrub.unread) {
            (0, 0) => self.event(subject, &summary),
            _ => self.warn(subject, &summary),
        }
        scrubbed.outcome?;
        let failed = |message, help: String| Err(Failure::new(Code::CheckFound, message).help(help));
        if scrub.unread > 0 {
            let message = format!("{subject}: too many members cannot read {unread}");
            return failed(message, "restore what lies there; the daemon's log names the places".to_owned());
        }
        if mismatches > 0 && scrub.check_only {
            let message =
                format!("{subject}: blocks of which the members do not fit each other: {mismatches}");
            return failed(message, format!("varve array scrub {subject}"));
        }
        Ok(())
    }
}

/// How fast a scrub may be: as fast as the members allow, or as `words` say.
fn rate(words: Option<&str>) -> Result<Option<u64>, Failure> {
    let Some(words) = words else { return Ok(None) };
    let rate = parse_size(words).map_err(|error| failures::bad_size(&error))?;
    if rate < RATE_MIN {
        let message = format!("a scrub has a rate of {} a second at least", format_size(RATE_MIN));
        return Err(Failure::new(Code::Usage, message));
    }
    Ok(Some(rate).filter(|rate| *rate < RATE_MAX))
}
