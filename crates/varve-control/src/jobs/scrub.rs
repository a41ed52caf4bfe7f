//! The job that scrubs the arrays of a volume or pool while they serve.
//!
//! Invariant SCRUBJOB1: a scrub leaves things as they were for clients; so a restart forgets it, and what it found is remembered.

use super::registry::{SCRUB, SHORT, Started};
use super::runner::{Stop, Work};
use super::targets::WorkKey;
use crate::Control;
use crate::failures;
use crate::find::volume_name;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{ArrayScrub, Changed, Code, Failure, Job, JobState, Plan, Scrub};
use varve_target::array::{Rates, ScrubOptions};
use varve_vg::model::LogicalVolume;
use varve_vg::size::{format_size, parse_size};
use varve_volume::ShardHandle;
use varve_volume::copies::scrub::Scrubbed;

/// The slowest scrub, in bytes a second: one of a terabyte takes half a year.
const RATE_MIN: u64 = 64 << 10;

/// The work of a scrub.
struct Scrubbing {
    home: ShardHandle,
    group: Uuid,
    volume: Uuid,
    subject: String,
    options: ScrubOptions,
}

impl Work for Scrubbing {
    const GOES_ON: bool = false; // SCRUBJOB1

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        let (volume, progress) = (self.volume, Arc::clone(&job.progress));
        let work = self.home.volume(volume).scrub(self.subject.clone(), self.options, progress);
        let scrubbed = work.await.map_err(failures::gone).and_then(|done| done).map_err(Stop::End)?;
        let scrub = control.result_of(&scrubbed, self.options.check_only);
        control.jobs.list.say_scrub(job.id, &scrub);
        control.memory.remembered.borrow_mut().scrubs.insert(volume, scrub.clone());
        if scrub.complete && !scrub.check_only && scrub.unread == 0 {
            let found = control.mismatches_of(self.group, volume).await;
            control.arrays.made_good.borrow_mut().insert(volume, found);
        }
        control.save_or_warn().await;
        control.tell_scrub(&self.subject, &scrub, scrubbed).map_err(Stop::End)
    }
}

impl Control {
    /// Compares all members of an array; the answer is a job, which fails if they do not fit each other afterwards.
    pub async fn scrub_array(&self, text: &str, request: ArrayScrub) -> Result<Changed<Job>, Failure> {
        let name = volume_name(text)?;
        let options = ScrubOptions { rates: rates(request.rate.as_deref())?, check_only: request.check_only };
        let located = self.find_array(text)?.usable()?;
        let (id, subject) = (located.volume.id, name.to_string());
        if self.jobs.targets.is_running(&WorkKey::Conversion(id)) {
            self.refuse_if_busy(id)?; // Its new array is not filled yet.
        }
        let asked = located.home.volume(id).scrub_size(subject.clone());
        let bytes = asked.await.map_err(failures::gone)??;
        if request.dry_run {
            let writes = if request.check_only { "write nothing" } else { "make them equal" };
            let step = format!("would compare the members of {name} in {}, and {writes}", format_size(bytes));
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let is_same =
            |job: &Job| job.kind == SCRUB && job.subject == subject && job.state == JobState::Running;
        if let Some(job) = self.jobs.list.all().into_iter().find(is_same) {
            let message = format!("job {} scrubs {name} already", job.id);
            return Err(Failure::new(Code::VolumeBusy, message).help(format!("varve job wait {}", job.id)));
        }
        let number = self.next_job();
        // SCRUBJOB1: it is not remembered, and blocks no change.
        let started = self.register_job(number, SCRUB, &subject, "bytes", &[], self.now());
        let group = located.group;
        self.spawn_work(started, Scrubbing { home: located.home, group, volume: id, subject, options });
        self.job_soon(number, SHORT).await.map(Changed::Done)
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
        let report = &scrubbed.report;
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

    /// Says what a scrub has found.
    fn tell_scrub(&self, subject: &str, scrub: &Scrub, scrubbed: Scrubbed) -> Result<(), Failure> {
        let places = &scrubbed.places;
        let after = if scrub.check_only { "nothing was written" } else { "they are equal now" };
        places.iter().for_each(|place| self.warn(subject, &format!("{place}; {after}")));
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

/// How fast a scrub is to be: as fast as the members allow, or as `words` say.
fn rates(words: Option<&str>) -> Result<Rates, Failure> {
    let Some(words) = words else { return Ok(Rates::default()) };
    let ceiling = parse_size(words).map_err(|error| failures::bad_size(&error))?;
    if ceiling < RATE_MIN {
        let message = format!("a scrub has a rate of {} a second at least", format_size(RATE_MIN));
        return Err(Failure::new(Code::Usage, message));
    }
    Ok(Rates { ceiling, ..Rates::default() })
}
