//! What must hold of the jobs in a group's text.

use super::check::NUMBER_MAX;
use super::{
    Description, JOBS_MAX, JobEntry, JobWork, REMOVED_MAX, RemovedSnapshots, SUBJECT_MAX, ScrubPosition,
    TextError,
};
use std::collections::HashSet;
use uuid::Uuid;

impl JobWork {
    fn problem(&self) -> Option<&'static str> {
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
        }
    }
}

impl JobEntry {
    fn problem(&self, group: Uuid) -> Option<&'static str> {
        let length = self.subject.chars().count();
        if !(1..=SUBJECT_MAX).contains(&length) || self.subject.chars().any(char::is_control) {
            return Some("`subject` is 1 to 1000 characters on one line");
        }
        if !self.groups.is_empty() && !self.groups.contains(&group) {
            return Some("`groups` names this group and others");
        }
        self.work.problem()
    }
}

impl Description {
    /// Checks the numbers of jobs, and how many there are (TEXT25).
    pub(super) fn check_jobs(&self) -> Result<(), TextError> {
        let problem = |place: String, problem| Err(TextError::Shape { place, problem });
        let group = || "the group".to_owned();
        if self.jobs.len() > JOBS_MAX {
            return problem(group(), "it has at most 64 jobs");
        }
        if self.jobs.iter().map(|job| job.work.removed_count()).sum::<usize>() > REMOVED_MAX {
            return problem(group(), "its jobs remove at most 8192 snapshots");
        }
        if self.last_job > NUMBER_MAX {
            return problem(group(), "`last_job` is the number of no job");
        }
        let mut seen = HashSet::new();
        let others =
            self.moves.iter().map(|entry| entry.job).chain(self.conversions.iter().map(|entry| entry.job));
        for id in self.jobs.iter().map(|job| job.id).chain(others.flatten()) {
            if id == 0 || id > self.last_job || !seen.insert(id) {
                return problem(format!("job {id}"), "a job has a number of its own, from 1 to `last_job`");
            }
        }
        let wrong = |job: &JobEntry| Some((job.id, job.problem(self.group.id)?));
        match self.jobs.iter().find_map(wrong) {
            Some((id, wrong)) => problem(format!("job {id}"), wrong),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "jobs/tests.rs"]
mod tests;
