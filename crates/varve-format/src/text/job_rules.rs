//! What must hold of the jobs in a group's text.

use super::check::NUMBER_MAX;
use super::{
    Area, ConversionEntry, ConvertedPart, Description, JOBS_MAX, JobEntry, JobWork, MoveEntry, REMOVED_MAX,
    RemovedSnapshots, SUBJECT_MAX, ScrubPosition, TextError,
};
use std::collections::HashSet;
use uuid::Uuid;

impl JobWork {
    /// What is wrong with it in its group, if something is.
    fn problem(&self, group: &Description) -> Option<&'static str> {
        let is_number = |number: &u64| (1..=NUMBER_MAX).contains(number);
        match self {
            Self::RemoveSnapshots { snapshots } => {
                let mut seen = HashSet::new();
                let is_whole = |part: &RemovedSnapshots| {
                    let mut numbers = part.numbers.iter();
                    let is_once =
                        numbers.all(|number| is_number(number) && seen.insert((part.store, *number)));
                    !part.numbers.is_empty() && is_once && part.bytes <= NUMBER_MAX
                };
                let mut parts = snapshots.iter();
                (snapshots.is_empty() || !parts.all(is_whole)).then_some("it removes snapshots, each once")
            }
            Self::Rollback { number, bytes, mark, .. } => {
                let is_sound =
                    is_number(number) && is_number(bytes) && mark.is_none_or(|mark| mark <= NUMBER_MAX);
                (!is_sound).then_some("it goes back to a snapshot with a number, of at least one byte")
            }
            Self::Flatten { number, .. } => {
                (!is_number(number)).then_some("what it copies to has a number in its pool")
            }
            Self::FlattenImage { image, .. } | Self::CommitImage { image, .. } => {
                (!image.starts_with('/')).then_some("the path of its image is absolute")
            }
            Self::Scrub { rate, position, .. } => {
                let is_sound = |position: &ScrubPosition| {
                    let ScrubPosition { array: _, offset, compared, before, mismatches, healed, unread } =
                        position;
                    let mut counts = [offset, compared, before, mismatches, healed, unread].into_iter();
                    let sum = counts.try_fold(0_u64, |sum, count| sum.checked_add(*count));
                    sum.is_some_and(|sum| sum <= NUMBER_MAX)
                };
                let is_sound =
                    rate.is_none_or(|rate| is_number(&rate)) && position.as_ref().is_none_or(is_sound);
                (!is_sound).then_some("a scrub has a rate of at least one byte a second, and its counts add up to less than 2^63")
            }
            Self::Move(MoveEntry { rate, .. }) | Self::Convert(ConversionEntry { rate, .. })
                if !rate.as_ref().is_none_or(is_number) =>
            {
                Some("`rate` is at least 1")
            }
            Self::Move(entry) => group.problem_of_move(entry),
            Self::Convert(entry) => group.problem_of_conversion(entry),
            Self::Clear { volume, from } => group.problem_of_clearing(*volume, *from),
        }
    }
}

impl JobEntry {
    fn problem(&self, group: &Description) -> Option<&'static str> {
        let length = self.subject.chars().count();
        if !(1..=SUBJECT_MAX).contains(&length) || self.subject.chars().any(char::is_control) {
            return Some("`subject` is 1 to 1000 characters on one line");
        }
        if !self.groups.is_empty() && !self.groups.contains(&group.group.id) {
            return Some("`groups` names this group and others");
        }
        if self.work.holds_extents() && !self.groups.is_empty() {
            return Some("a move, conversion or clearing is of one group");
        }
        self.work.problem(group)
    }
}

impl Description {
    /// The first extent of a volume that is to be cleared, if one is: from it on nothing is served yet.
    pub fn uncleared(&self, volume: Uuid) -> Option<u64> {
        self.jobs.iter().find_map(|job| match job.work {
            JobWork::Clear { volume: of, from } if of == volume => Some(from),
            _ => None,
        })
    }

    /// The areas that jobs own, each with what its job is called.
    pub fn areas_of_jobs(&self) -> impl Iterator<Item = (String, Area)> {
        self.jobs.iter().flat_map(|job| {
            let (step, parts): (_, &[ConvertedPart]) = match &job.work {
                JobWork::Move(entry) => (entry.step.as_ref(), &[]),
                JobWork::Convert(entry) => (None, &entry.parts),
                _ => (None, &[]),
            };
            let of_parts = parts.iter().flat_map(|part| part.space().areas());
            let areas = step.and_then(|step| self.area_of_step(step)).into_iter().chain(of_parts);
            areas.map(|area| (job.place(), area))
        })
    }

    /// TEXT26: what is wrong with a clearing, if something is.
    fn problem_of_clearing(&self, volume: Uuid, from: u64) -> Option<&'static str> {
        let is_one = |job: &&JobEntry| matches!(job.work, JobWork::Clear { volume: of, .. } if of == volume);
        if self.jobs.iter().filter(is_one).count() > 1 {
            return Some("a volume is cleared once at a time");
        }
        let is_sound = self.volume(volume).is_some_and(|lv| from < lv.extents && lv.layout.takes_space());
        (!is_sound).then_some("`from` is an extent of a volume of the group that is on disks")
    }

    /// Checks jobs: their numbers, how many there are, and each (TEXT17, TEXT20, TEXT25, TEXT26).
    pub(super) fn check_jobs(&self) -> Result<(), TextError> {
        let problem = |place: String, problem| Err(TextError::Shape { place, problem });
        let group = || "the group".to_owned();
        if self.jobs.iter().filter(|job| !job.work.holds_extents()).count() > JOBS_MAX {
            return problem(group(), "it has at most 64 jobs beside moves, conversions and clearings");
        }
        if self.jobs.iter().map(|job| job.work.removed_count()).sum::<usize>() > REMOVED_MAX {
            return problem(group(), "its jobs remove at most 8192 snapshots");
        }
        if self.last_job > NUMBER_MAX {
            return problem(group(), "`last_job` is the number of no job");
        }
        let mut seen = HashSet::new();
        for job in &self.jobs {
            if job.id == 0 || job.id > self.last_job || !seen.insert(job.id) {
                return problem(job.place(), "a job has a number of its own, from 1 to `last_job`");
            }
        }
        let wrong = self.jobs.iter().find_map(|job| Some((job.place(), job.problem(self)?)));
        wrong.map_or(Ok(()), |(place, wrong)| problem(place, wrong))
    }
}

#[cfg(test)]
#[path = "jobs/tests.rs"]
mod tests;
