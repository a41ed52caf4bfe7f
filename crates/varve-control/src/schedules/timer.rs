//! Schedules that are due are begun; and what is said of those that failed.
//!
//! Invariants:
//! - TIMER1. A schedule runs when its group is served, none of its volumes was taken out of use by a person, and not all of them are in the
//!   trash. What was missed until then is made up for once (DUE1 of `due.rs`).
//! - TIMER2. A schedule of thin volumes alone goes when its pool is in use and has none of these.

use super::Schedules;
use super::due::is_due;
use crate::group::activation::is_deactivated;
use crate::group::known_group::KnownGroup;
use uuid::Uuid;
use varve_api::Failure;
use varve_vg::Change;
use varve_vg::model::{Schedule, ScheduledVolume};
use varve_vg::plan::ScheduleStep;

impl Schedules<'_> {
    /// Begins the schedules that are due, each in a task of its own.
    pub(crate) fn look(&self) {
        let (control, known) = (self.control, &self.control.watch.schedules);
        if control.life.stopping.get() || control.life.started.get().is_none() {
            return;
        }
        let (mut due, mut there, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for (group, known_group) in &*control.groups.known.borrow() {
            let schedules = known_group.group.schedules();
            there.extend(schedules.iter().map(|schedule| schedule.id));
            if !control.is_served(*group) {
                continue;
            }
            gone.extend(
                schedules
                    .iter()
                    .flat_map(|schedule| &schedule.volumes)
                    .filter_map(|volume| is_gone(known_group, volume).then_some((*group, volume.id))),
            );
            let runs = schedules
                .iter()
                .filter(|schedule| self.is_to_run(schedule) && !is_paused(known_group, schedule));
            due.extend(runs.map(|schedule| (*group, schedule.id)));
        }
        known.retain_failed(|schedule| there.contains(&schedule));
        for (group, schedule) in due.into_iter().filter(|(_, schedule)| known.begin(*schedule)) {
            self.begin(group, schedule);
        }
        for (group, volume) in gone {
            self.forget_soon(group, volume);
        }
    }

    /// Whether a schedule is due, or has failed and is tried again.
    fn is_to_run(&self, schedule: &Schedule) -> bool {
        let moment = self.control.context.clock().now();
        let again = self.control.watch.schedules.is_tried_again(schedule.id, moment);
        again.unwrap_or_else(|| {
            is_due(schedule.every_s, schedule.last_run.map(|last| last.0), self.control.now())
        })
    }

    fn begin(&self, group: Uuid, schedule: Uuid) {
        let me = self.control.weak();
        self.control.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            let outcome = Schedules::of(&control).run_if_due(group, schedule).await;
            let outcome = outcome.filter(|_| !control.life.stopping.get());
            control.watch.schedules.end(schedule, outcome, control.context.clock().now());
        });
    }

    /// Whether it is due is decided with the lock of its group: a person may have run it meanwhile. How a run has ended; none if there was nothing to do.
    async fn run_if_due(&self, group: Uuid, id: Uuid) -> Option<Result<(), Failure>> {
        let lock = match self.control.lock_of(&group.to_string()).await {
            Ok(lock) => lock,
            Err(failure) => return Some(Err(failure)),
        };
        let schedule = self.with_id(group, id).filter(|schedule| {
            let paused = self.control.with_group(group, |known| is_paused(known, schedule));
            self.is_to_run(schedule) && paused == Ok(false) && self.control.is_served(group)
        })?;
        let last = schedule.last_run.map(|last| last.0);
        Some(match is_due(schedule.every_s, last, self.control.now()) {
            true => self.make_and_prune(group, &schedule, lock).await.map(drop),
            false => self.prune(group, id, lock).await.map(drop), // What failed was that alone.
        })
    }

    /// Schedules that need a person: what they are called, what is wrong, and the remedy.
    pub(crate) fn troubles(&self) -> Vec<(String, (String, String))> {
        let failed = self.all().into_iter().filter_map(|(group, schedule)| {
            let failed = self.control.watch.schedules.failed(schedule.id)?;
            let full = self.full(group, &schedule.name);
            let again = format!("it is tried again, or varve schedule run {full}");
            let help = match failed.failure.help.as_str() {
                "" => again,
                help => format!("{help}; {again}"),
            };
            Some((full, (format!("cannot run: {}", failed.failure.message), help)))
        });
        failed.collect()
    }

    /// Forgets a volume that is gone from its pool. The caller has the lock of the group.
    pub(crate) async fn forget_volume(&self, group: Uuid, volume: Uuid) {
        if self.schedules_with(group, volume).is_empty() {
            return;
        }
        let change = Change::Schedule(ScheduleStep::VolumeGone { volume });
        let words = "schedules without a volume that is gone";
        let forgotten = self.control.commits(group).await.make(group, change, words).await;
        if let Err(failure) = forgotten {
            tracing::warn!(%group, %failure, "a schedule names a volume that is gone: it is forgotten later");
        }
    }

    fn forget_soon(&self, group: Uuid, volume: Uuid) {
        if !self.control.watch.schedules.begin(volume) {
            return;
        }
        let me = self.control.weak();
        self.control.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            if let Ok(_lock) = control.lock_of(&group.to_string()).await {
                let is_gone_still = control.with_group(group, |known| {
                    let mut volumes = known.group.schedules().iter().flat_map(|schedule| &schedule.volumes);
                    volumes.any(|known_volume| known_volume.id == volume && is_gone(known, known_volume))
                });
                if is_gone_still == Ok(true) {
                    Schedules::of(&control).forget_volume(group, volume).await;
                }
            }
            control.watch.schedules.end(volume, None, control.context.clock().now());
        });
    }

    /// The names of the schedules that have a volume.
    fn schedules_with(&self, group: Uuid, volume: Uuid) -> Vec<(String, bool)> {
        let of = self.control.with_group(group, |known| {
            let own = known.group.schedules().iter();
            let own = own.filter(|schedule| schedule.volumes.iter().any(|known| known.id == volume));
            own.map(|schedule| (schedule.name.clone(), schedule.volumes.len() == 1)).collect()
        });
        of.unwrap_or_default()
    }

    /// What becomes of schedules when a thin volume is removed, for a plan.
    pub(crate) fn steps_without(&self, group: Uuid, volume: Uuid) -> Vec<String> {
        let steps = self.schedules_with(group, volume).into_iter().map(|(name, is_alone)| {
            let full = self.full(group, &name);
            match is_alone {
                true => format!("would remove schedule {full}, whose volumes are gone"),
                false => format!("would run schedule {full} without it"),
            }
        });
        steps.collect()
    }
}

/// TIMER2: whether a volume is gone from its pool, which is in use.
fn is_gone(known: &KnownGroup, volume: &ScheduledVolume) -> bool {
    let Some(pool) = volume.pool else { return false };
    let is_in_use = known.homes.get(&pool).is_some_and(|home| home.unusable.is_none());
    is_in_use && known.thin.knows(pool) && known.thin.get(volume.id).is_none()
}

/// TIMER1: whether a volume of a schedule, or its pool, was taken out of use by a person, or all of them are in the trash.
pub(super) fn is_paused(known: &KnownGroup, schedule: &Schedule) -> bool {
    let entries = known.group.logical_volumes();
    let in_trash = |id: Uuid| known.group.trash().iter().any(|entry| entry.volume.id == id);
    let is_thin_in_trash = |id: Uuid| known.thin.get(id).is_some_and(|thin| thin.trash.is_some());
    let is_in_trash =
        |volume: &ScheduledVolume| in_trash(volume.pool.unwrap_or(volume.id)) || is_thin_in_trash(volume.id);
    if schedule.volumes.iter().all(is_in_trash) {
        return true;
    }
    schedule.volumes.iter().any(|volume| {
        let id = volume.pool.unwrap_or(volume.id);
        entries.iter().any(|entry| entry.id == id && is_deactivated(entry))
    })
}
