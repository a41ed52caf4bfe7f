//! Schedules are made, shown, changed, removed, and run by a person.

use super::Schedules;
use super::due::next_run;
use super::own_run::own_targets;
use super::run::no_schedule;
use super::timer::is_paused;
use crate::find::volume_name;
use crate::group::change::shown;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Empty, Failure, Plan, Remove, Schedule as Shown, ScheduleChange, ScheduleCreate,
    ScheduleRan, ScheduleRun, ScheduleState, SnapshotRemove,
};
use varve_block::UnixTime;
use varve_format::text::{EVERY_S_MAX, SCHEDULED_MAX};
use varve_vg::Change;
use varve_vg::model::{Schedule, ScheduleKeep, ScheduledVolume};
use varve_vg::plan::ScheduleStep;
use varve_vg::size::parse_seconds;

/// A change of a schedule that was planned, and made unless it was only asked for.
type Planned = Result<Option<Plan>, Failure>;

impl Schedules<'_> {
    /// All schedules, or those of a group.
    pub fn list(&self, group: Option<&str>) -> Result<Vec<Shown>, Failure> {
        let wanted = group.map(|name| self.control.find_group(name)).transpose()?;
        let all = self.all().into_iter().filter(|(group, _)| wanted.is_none_or(|wanted| wanted == *group));
        let mut shown: Vec<Shown> = all.map(|(group, schedule)| self.shown(group, &schedule)).collect();
        shown.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(shown)
    }

    /// A schedule, and the snapshots that it made and that are there.
    pub async fn show(&self, name: &str) -> Result<Shown, Failure> {
        let (group, schedule) = self.find(name)?;
        let mut own = Vec::new();
        for volume in self.volumes_of(group, &schedule) {
            let located = self.control.find_any_volume(&volume)?;
            let targets = own_targets(&schedule, located.volume.id);
            let facts = self.control.facts(&located).await.into_iter();
            let facts = facts.filter(|facts| targets.contains(&facts.target));
            own.extend(facts.map(|facts| (facts.created, format!("{volume}@{}", facts.name))));
        }
        own.sort();
        let snapshots = own.into_iter().map(|(_, name)| name).collect();
        Ok(Shown { snapshots, ..self.shown(group, &schedule) })
    }

    /// Has snapshots of volumes made again and again.
    pub async fn create(&self, request: ScheduleCreate) -> Result<Changed<Shown>, Failure> {
        let _lock = self.control.lock_of(&request.volume).await?;
        let first = volume_name(&request.volume)?;
        let (every_s, keep) = (seconds(&request.every)?, classes(&request.keep)?);
        let group = self.control.find_any_volume(&first)?.group;
        let names = request.set.iter().map(|name| match name.contains('/') {
            true => name.clone(),
            false => format!("{}/{name}", first.group),
        });
        let (mut volumes, mut seen) = (Vec::new(), BTreeSet::new());
        for name in std::iter::once(request.volume.clone()).chain(names) {
            let located = self.control.find_any_volume(&volume_name(&name)?)?;
            if located.group != group {
                let message = format!("{name} is in another group than {first}: a schedule is of one group");
                return Err(
                    Failure::new(Code::BadSchedule, message).help("varve schedule create for each group")
                );
            }
            let pool = located.thin.as_ref().map(|thin| thin.pool);
            if seen.insert(located.volume.id) {
                volumes.push(ScheduledVolume { id: located.volume.id, pool, made: Vec::new() });
            }
        }
        if volumes.len() > SCHEDULED_MAX {
            let message = format!("a schedule is of {SCHEDULED_MAX} volumes at most");
            return Err(Failure::new(Code::BadSchedule, message).help("make several schedules, with --name"));
        }
        let name = request.name.clone().unwrap_or(first.volume);
        let schedule = Schedule {
            name: name.clone(),
            id: self.control.new_id(),
            created: UnixTime(self.control.now()),
            every_s,
            keep,
            last_run: None,
            volumes,
        };
        let id = schedule.id;
        let words = format!("schedule create {}/{name}", first.group);
        let step = ScheduleStep::Create(Box::new(schedule));
        match self.write(group, step, &words, request.dry_run).await? {
            Some(plan) => {
                let first = Plan::of_steps(vec!["would make its first snapshot at once".to_owned()]);
                Ok(Changed::Planned(plan.and(first)))
            }
            None => self.done(group, id, &words),
        }
    }

    /// Changes when a schedule runs, what stays, or its name.
    pub async fn change(&self, name: &str, request: ScheduleChange) -> Result<Changed<Shown>, Failure> {
        let _lock = self.control.lock_of(name).await?;
        let (group, schedule) = self.find(name)?;
        let every_s = request.every.as_deref().map(seconds).transpose()?;
        let keep = request.keep.as_deref().map(classes).transpose()?;
        if request.name.is_none() && every_s.is_none() && keep.is_none() {
            return Err(
                Failure::new(Code::Usage, "nothing is to be changed").help("--every, --keep or --name")
            );
        }
        let step = ScheduleStep::Change { id: schedule.id, name: request.name.clone(), every_s, keep };
        let words = format!("schedule change {name}");
        let Some(plan) = self.write(group, step, &words, request.dry_run).await? else {
            self.control.watch.schedules.retain_failed(|failed| failed != schedule.id); // It is tried at once.
            return self.done(group, schedule.id, &words);
        };
        let changed = Schedule { keep: keep.unwrap_or(schedule.keep), ..schedule };
        let gone = self.surplus(group, &changed, true).await?;
        let gone = gone.into_iter().map(|snapshot| format!("would remove {snapshot} with its next run"));
        Ok(Changed::Planned(plan.and(Plan::of_steps(gone.collect()))))
    }

    /// Removes a schedule; what it made stays.
    pub async fn remove(&self, name: &str, request: Remove) -> Result<Changed<Empty>, Failure> {
        let _lock = self.control.lock_of(name).await?;
        let (group, schedule) = self.find(name)?;
        let words = format!("schedule remove {name}");
        let step = ScheduleStep::Remove { id: schedule.id };
        let plan = self.write(group, step, &words, request.dry_run).await?;
        Ok(plan.map_or(Changed::Done(Empty {}), Changed::Planned))
    }

    /// Runs a schedule now, whenever it is due next.
    pub async fn run(&self, name: &str, request: ScheduleRun) -> Result<Changed<ScheduleRan>, Failure> {
        let lock = self.control.lock_of(name).await?;
        let (group, schedule) = self.find(name)?;
        if !request.dry_run {
            let ran = self.make_and_prune(group, &schedule, lock).await?;
            self.control.watch.schedules.retain_failed(|failed| failed != schedule.id);
            return Ok(Changed::Done(ran));
        }
        let Changed::Planned(plan) = self.make(group, &schedule, true).await? else {
            unreachable!("it was only asked for")
        };
        let names = self.surplus(group, &schedule, true).await?;
        if names.is_empty() {
            return Ok(Changed::Planned(plan));
        }
        let removal = self.control.remove_locked(SnapshotRemove { names, dry_run: true }, lock).await?;
        let Changed::Planned(removal) = removal else { unreachable!("it was only asked for") };
        Ok(Changed::Planned(plan.and(removal)))
    }

    /// Plans what is written down of a schedule, and writes it down unless it is only asked for.
    async fn write(&self, group: Uuid, step: ScheduleStep, words: &str, dry_run: bool) -> Planned {
        let commits = self.control.commits(group).await;
        let plan = commits.plan(group, Change::Schedule(step), words)?;
        if dry_run {
            return Ok(Some(shown(&plan)));
        }
        commits.commit(group, plan, Vec::new()).await.map(|()| None)
    }

    fn done(&self, group: Uuid, id: Uuid, words: &str) -> Result<Changed<Shown>, Failure> {
        let schedule = self.with_id(group, id).ok_or_else(|| no_schedule(words))?;
        Ok(Changed::Done(self.shown(group, &schedule)))
    }

    /// The schedule `VG/NAME`.
    fn find(&self, name: &str) -> Result<(Uuid, Schedule), Failure> {
        let parsed = volume_name(name).map_err(|_| {
            Failure::new(Code::BadName, format!("{name:?} is not the name of a schedule: write VG/NAME"))
                .help("varve schedule list")
        })?;
        let group = self.control.find_group(&parsed.group)?;
        let found = self.control.with_group(group, |known| known.group.schedule(&parsed.volume).cloned())?;
        Ok((group, found.ok_or_else(|| no_schedule(name))?))
    }

    fn shown(&self, group: Uuid, schedule: &Schedule) -> Shown {
        let failed = self.control.watch.schedules.failed(schedule.id);
        let is_at_rest = self.control.with_group(group, |known| is_paused(known, schedule)).unwrap_or(true)
            || !self.control.is_served(group);
        let state = match (&failed, is_at_rest) {
            (_, true) => ScheduleState::Paused,
            (Some(_), false) => ScheduleState::Failing,
            (None, false) => ScheduleState::Active,
        };
        let full = self.full(group, &schedule.name);
        let last_run = schedule.last_run.map(|last| last.0);
        Shown {
            group: full.split('/').next().unwrap_or_default().to_owned(),
            name: full,
            id: schedule.id.to_string(),
            volumes: self.volumes_of(group, schedule).iter().map(ToString::to_string).collect(),
            every: schedule.every_s,
            keep: schedule.keep.to_string(),
            created: schedule.created.0,
            last_run,
            next_run: next_run(schedule.every_s, last_run, self.control.now()),
            kept: schedule.made().count() as u64,
            state,
            reason: failed.map(|failed| failed.failure.message),
            snapshots: Vec::new(),
        }
    }
}

/// The time between two runs.
fn seconds(text: &str) -> Result<u64, Failure> {
    parse_seconds(text).filter(|seconds| (1..=EVERY_S_MAX).contains(seconds)).ok_or_else(|| {
        Failure::new(Code::BadSchedule, format!("{text:?} is not the time between two runs"))
            .help("--every 90s, 15m, 1h, 1d or 1w; at most 366d")
    })
}

/// `24h,7d,4w,12m`.
fn classes(text: &str) -> Result<ScheduleKeep, Failure> {
    text.parse().map_err(|error: varve_format::text::KeepError| {
        Failure::new(Code::BadSchedule, error.to_string()).help("--keep 24h,7d,4w,12m")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_with_their_units() {
        let read = |text: &str| seconds(text).ok();
        assert_eq!(
            ["2s", "15m", "1h", "1d", "1w", "366d"].map(read),
            [2, 900, 3600, 86_400, 604_800, 366 * 86_400].map(Some)
        );
        for text in ["", "1", "h", "0s", "-1h", "+1h", "1.5h", "367d", "99999999999999999999w", "1y"] {
            assert_eq!(seconds(text).err().map(|failure| failure.code), Some(Code::BadSchedule), "{text}");
        }
    }
}
