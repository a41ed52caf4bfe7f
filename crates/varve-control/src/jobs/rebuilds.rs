//! The jobs of members of arrays that are filled, and of those that are made equal.
//!
//! What is left to do stands in the superblocks of an array, which does it by itself wherever it is in use: a job says how far that is.
//!
//! Invariants:
//! - REBUILDJOB1. As long as an array in use fills members, or makes them equal, a job of its volume says how far that is or why it waits.
//!   One that was done before anyone looked had none.
//! - REBUILDJOB2. A member that leaves before it is in sync ends its job, which names the disk: the array goes on without it.

use super::registry::{REBUILD, RESYNC, Started};
use super::runner::{Stop, Work};
use crate::Control;
use crate::commands::known_array::KnownArray;
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::Moment;
use varve_target::array::{ArrayStatus, MemberState};

/// How often it is seen how far an array is.
const LOOK: Duration = Duration::from_millis(100);
/// An array that fills or equals nothing for so long waits for something.
const REST_MAX: Duration = Duration::from_secs(10);

/// A member of an array: the array, and its place.
type Place = (Uuid, usize);

/// The work of filling members, or of making them equal.
struct ArrayWork {
    group: Uuid,
    volume: Uuid,
    kind: &'static str,
    /// The members that are to be in sync at its end.
    places: BTreeSet<Place>,
    /// Bytes that were done, and that are left.
    done: u64,
    left: u64,
    /// When something was done last.
    last: Option<Moment>,
}

/// Begins the jobs of all arrays that fill members or make them equal (REBUILDJOB1).
pub(crate) async fn resume(control: &Control) {
    let mut at_work = BTreeSet::new();
    for shard in &control.shards {
        at_work.extend(shard.arrays_at_work().await.unwrap_or_default());
    }
    for volume in at_work {
        // One that is just being taken into use, or is the target of a conversion, is seen later.
        let Ok((group, _)) = control.entry_of(volume) else { continue };
        let arrays = control.arrays_of(group, |entry| entry.id == volume).await.unwrap_or_default();
        let places = arrays.iter().flat_map(filled).collect::<BTreeSet<_>>();
        if !places.is_empty() {
            begin(control, (group, volume), REBUILD, places);
        }
        if arrays.iter().filter_map(|array| array.status.as_ref()).any(makes_equal) {
            begin(control, (group, volume), RESYNC, BTreeSet::new());
        }
    }
}

/// Begins the jobs of `members`, which have just come to their places.
pub(crate) fn begin_filling(control: &Control, group: Uuid, members: &[(KnownArray, usize)]) {
    let volumes: BTreeSet<Uuid> = members.iter().map(|(array, _)| array.volume.id).collect();
    for volume in volumes {
        let own = members.iter().filter(|(array, _)| array.volume.id == volume);
        begin(control, (group, volume), REBUILD, own.map(|(array, place)| (array.id, *place)).collect());
    }
}

/// Begins a job, unless the volume has one of this kind.
fn begin(control: &Control, (group, volume): (Uuid, Uuid), kind: &'static str, places: BTreeSet<Place>) {
    if control.life.stopping.get() || control.jobs.targets.job_of(kind, volume).is_some() {
        return;
    }
    let (id, subject) = (control.next_job(), control.subject(volume));
    // No volume is busy with it: what changes the array changes what is left.
    let job = control.register_job(id, kind, &subject, "bytes", None, control.now());
    control.jobs.targets.observed.borrow_mut().insert((kind, volume), id);
    control.spawn_work(job, ArrayWork { group, volume, kind, places, done: 0, left: 0, last: None });
}

/// The members that an array fills.
fn filled(array: &KnownArray) -> Vec<Place> {
    let members = array.status.iter().flat_map(|status| status.members.iter().enumerate());
    let filled = members.filter(|(_, member)| member.state == MemberState::CatchingUp);
    filled.map(|(place, _)| (array.id, place)).collect()
}

/// Whether members of an array are made equal: regions that wait for a member are not.
fn makes_equal(status: &ArrayStatus) -> bool {
    status.unsynced > 0 && (!status.is_content_lost || status.has_returning_regions())
}

impl Work for ArrayWork {
    const DONE: Option<&'static str> = Some("the members of its array are in sync");

    fn group(&self) -> Option<Uuid> {
        Some(self.group)
    }

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        self.last = None;
        loop {
            control.check_running()?;
            let arrays = self.look(control).await?;
            self.places.extend(arrays.iter().filter(|_| self.kind == REBUILD).flat_map(filled));
            self.check_places(control, &arrays)?;
            if !self.has_more(&arrays) {
                self.report(control, job, 0);
                return Ok(());
            }
            let statuses = || arrays.iter().filter_map(|array| array.status.as_ref());
            let rates = statuses().filter_map(|status| status.rate);
            job.progress.report_rate(rates.reduce(|sum, rate| sum + rate));
            self.report(control, job, statuses().map(|status| self.left_of(status)).sum());
            self.check_rest(control, job, &arrays)?;
            control.context.clock().sleep(LOOK).await;
        }
    }
}

impl ArrayWork {
    /// The arrays, all of which are in use.
    async fn look(&self, control: &Control) -> Result<Vec<KnownArray>, Stop> {
        let ended = |message| Err(Stop::End(Failure::new(Code::JobCancelled, message)));
        let volume = self.volume;
        let arrays = control.arrays_of(self.group, |entry| entry.id == volume).await.unwrap_or_default();
        if arrays.is_empty() {
            return ended("its array is there no more");
        }
        let unusable = arrays.iter().find_map(|array| array.unusable.clone());
        match unusable {
            Some(failure) if failure.code == Code::VolumeInactive => {
                ended("it was taken out of use; what is left is done when it is in use again")
            }
            None if arrays.iter().any(|array| array.home.is_none()) => {
                ended("it is not in use; what is left is done when it is")
            }
            Some(failure) => Err(Stop::Wait(failure)),
            None if arrays.iter().any(|array| array.status.is_none()) => Err(Stop::Wait(
                Failure::new(Code::VolumeUnusable, "it is not in use now").help("varve pv scan"),
            )),
            None => Ok(arrays),
        }
    }

    /// REBUILDJOB2, and that the others have what is to be done.
    fn check_places(&self, control: &Control, arrays: &[KnownArray]) -> Result<(), Stop> {
        for array in arrays {
            let Some(status) = &array.status else { continue };
            let subject = control.subject(self.volume);
            let failed = |message| {
                let failure = Failure::new(Code::MediumFailed, message);
                Err(Stop::End(failure.help(format!("varve pv list; varve array show {subject}"))))
            };
            let is_away = |place: &usize| {
                let is_awaited = self.places.contains(&(array.id, *place));
                is_awaited
                    && status.members.get(*place).is_some_and(|member| member.state == MemberState::Away)
            };
            if status.failure.is_some() {
                return failed(format!("too many members of {}{subject} have failed", array.of_what()));
            }
            if let Some(place) = (0..status.members.len()).find(is_away) {
                let disks = self.disks(control, array, place);
                return failed(format!(
                    "member {place} of {}{subject} on {disks} left before it was in sync",
                    array.of_what()
                ));
            }
        }
        Ok(())
    }

    fn has_more(&self, arrays: &[KnownArray]) -> bool {
        match self.kind {
            REBUILD => arrays.iter().any(|array| !filled(array).is_empty()),
            _ => arrays.iter().filter_map(|array| array.status.as_ref()).any(makes_equal),
        }
    }

    /// Bytes that are left to do in an array.
    fn left_of(&self, status: &ArrayStatus) -> u64 {
        match self.kind {
            REBUILD => status.left() - status.unsynced * status.region_size,
            _ => status.unsynced * status.region_size,
        }
    }

    fn report(&mut self, control: &Control, job: &Started, left: u64) {
        let done = self.left.saturating_sub(left);
        if done > 0 || self.last.is_none() {
            self.last = Some(control.context.clock().now());
        }
        (self.done, self.left) = (self.done + done, left);
        job.progress.report(self.done, self.done + left);
    }

    /// Says what nothing that is done waits for.
    fn check_rest(&self, control: &Control, job: &Started, arrays: &[KnownArray]) -> Result<(), Stop> {
        let now = control.context.clock().now();
        let is_at_rest = self.last.is_some_and(|last| last.after(REST_MAX) <= now);
        if !is_at_rest || job.progress.rate().is_some() {
            if job.progress.rate().is_some() {
                control.jobs.list.say_trouble(job.id, None);
            }
            return Ok(());
        }
        let subject = control.subject(self.volume);
        for array in arrays {
            let Some(status) = array.status.as_ref().filter(|status| !status.lost_regions.is_empty()) else {
                continue;
            };
            let is_away = |place: &usize| status.members[*place].state == MemberState::Away;
            let away: Vec<usize> = (0..status.members.len()).filter(is_away).collect();
            let disks: Vec<String> = away.iter().map(|place| self.disks(control, array, *place)).collect();
            let message = format!(
                "regions of {subject} can be read only when a member returns that is away: {}",
                disks.join(", ")
            );
            let help = format!(
                "bring its disk back: varve pv scan PATH; varve array rebuild {subject} --accept-stale all"
            );
            return Err(Stop::Wait(Failure::new(Code::ArrayDegraded, message).help(help)));
        }
        let message = format!("what the other members of {subject} have cannot be read, or written");
        let help = format!("varve pv list; varve array show {subject}");
        Err(Stop::Wait(Failure::new(Code::MediumFailed, message).help(help)))
    }

    /// The paths of the disks with a member.
    fn disks(&self, control: &Control, array: &KnownArray, place: usize) -> String {
        let disks = array.disks_of(place).into_iter();
        disks.map(|disk| control.path_of(self.group, disk)).collect::<Vec<_>>().join(", ")
    }
}
