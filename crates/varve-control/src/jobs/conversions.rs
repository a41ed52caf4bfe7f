//! The job that converts a volume or pool, its exception stores included, to another layout while it serves.
//!
//! The new layout is built beside the old one, which alone is valid until the switch:
//!
//! ```text
//! commit: extents of the new layout are reserved
//! shard:  all is copied; changes of what was copied go to both layouts
//! shard:  the new layout is flushed: either may count
//! commit: the new layout is valid
//! shard:  requests go there, and none is under way to the old one
//! commit: the old layout is free
//! ```
//!
//! Invariants:
//! - CONVERTJOB1. As long as the text has a conversion, a job works on it, or says why it waits (RUN3 of
//!   `runner.rs`). After a restart it copies anew.
//! - CONVERTJOB2. Between the commit that lets the new layout count and the moment when requests go there, nothing grows: a tree that
//!   is built then would lead to one layout, while others lead to both.
//! - CONVERTJOB3. A layout is freed when no request is under way to it.
//! - CONVERTJOB4. A conversion that has ended stands in no text: a job that is to end tries until that is so, and no disk of the layout
//!   that is thrown away is needed for it.

use super::moves::not_known;
use super::registry::{SHORT, Started};
use super::runner::{Standing, Stop, Work};
use crate::Control;
use crate::commands::layout::layout;
use crate::failures;
use crate::find::{LocatedVolume, volume_name};
use crate::group::change::shown;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::{Changed, Code, Convert, Failure, Job};
use varve_vg::Change;
use varve_vg::model::{Conversion, ConvertedPart, PvName};
use varve_vg::plan::ConversionStep;
use varve_vg::size::{format_size, parse_size};
use varve_vg::table::part_table;
use varve_volume::ShardHandle;
use varve_volume::copies::movable::Moving;
use varve_volume::copies::moves::Part;

/// What a cancelled conversion leaves.
const ENDED: &str = "the conversion has ended; the volume is as it was";

/// The work of a conversion.
struct ConversionWork {
    group: Uuid,
    volume: Uuid,
    /// Whether the new layout was in the text at the last look.
    is_switched: bool,
}

impl Work for ConversionWork {
    const DONE: Option<&'static str> = Some("has its new layout");

    fn group(&self) -> Option<Uuid> {
        Some(self.group)
    }

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        control.try_converting(self.group, self.volume, job).await
    }

    async fn give_up(&mut self, control: &Control) -> Result<bool, Failure> {
        control.free(self.group, self.volume, "ended").await // CONVERTJOB4
    }

    fn standing(&mut self, control: &Control) -> Standing {
        if let Some(entry) = control.conversion_of(self.group, self.volume) {
            self.is_switched = entry.switched;
            return Standing::ToDo;
        }
        match self.is_switched && control.entry_of(self.volume).is_ok() {
            true => Standing::Done,
            false => {
                Standing::Gone(Failure::new(Code::JobCancelled, "the volume, or its group, was given up"))
            }
        }
    }
}

impl Control {
    /// Converts a volume to another layout; the answer is a job.
    pub async fn convert_volume(&self, text: &str, request: Convert) -> Result<Changed<Job>, Failure> {
        let lock = self.lock_of(text).await?;
        let located = self.find_volume(&volume_name(text)?)?;
        if let Some(thin) = &located.thin {
            let message = format!("{text} is thin: its pool has a layout");
            let help = format!("varve pool convert {}", self.subject(thin.pool));
            return Err(Failure::new(Code::Usage, message).help(help));
        }
        let begun = self.begin_conversion(&located, &format!("lv convert {text}"), &request).await?;
        drop(lock);
        self.answer_begun(begun).await
    }

    /// Converts a pool to another layout; the answer is a job.
    pub async fn convert_pool(&self, text: &str, request: Convert) -> Result<Changed<Job>, Failure> {
        let lock = self.lock_of(text).await?;
        let located = self.find_pool(&volume_name(text)?)?.usable()?;
        let begun = self.begin_conversion(&located, &format!("pool convert {text}"), &request).await?;
        drop(lock);
        self.answer_begun(begun).await
    }

    async fn answer_begun(&self, begun: Changed<u64>) -> Result<Changed<Job>, Failure> {
        match begun {
            Changed::Planned(plan) => Ok(Changed::Planned(plan)),
            Changed::Done(job) => self.job_soon(job, SHORT).await.map(Changed::Done),
        }
    }

    async fn begin_conversion(
        &self,
        located: &LocatedVolume,
        words: &str,
        request: &Convert,
    ) -> Result<Changed<u64>, Failure> {
        let (group, volume) = (located.group, located.volume.id);
        self.refuse_if_busy(volume)?;
        if request.layout.is_none() {
            let message = "a conversion needs a layout";
            return Err(
                Failure::new(Code::Usage, message).help("add --type linear, striped, mirror or ddraid")
            );
        }
        if located.uncleared.is_some() {
            let message = format!("what others wrote to {} is being cleared", self.subject(volume));
            return Err(Failure::new(Code::VolumeBusy, message).help("varve job list"));
        }
        let rate = request.rate.as_deref().map(parse_size).transpose();
        let rate = rate.map_err(|error| failures::bad_size(&error))?;
        let (id, layout) = (self.context.new_id(), layout(request)?);
        let disks = self.array_choice(group, &request.on, request.log.as_deref()).await?;
        let commits = self.commits(group).await;
        let (_, job) = self.coming_job_of(&[group]);
        let step = ConversionStep::Begin { job, id, layout, disks, rate };
        let planned = commits.plan(group, Change::Convert { volume, step }, words)?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        assert_eq!(self.next_job_of(&[group]), job, "JOBRECORD4: nothing was awaited");
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.begin_recorded(group, job);
        Ok(Changed::Done(job))
    }

    /// Takes up a conversion that stands in a text (CONVERTJOB1).
    pub(crate) fn resume_conversion(&self, group: Uuid, volume: Uuid, started: Started) {
        self.spawn_work(started, ConversionWork { group, volume, is_switched: false });
    }

    async fn try_converting(&self, group: Uuid, volume: Uuid, job: &Started) -> Result<(), Stop> {
        let lock = self.lock_group(group).await;
        self.reconcile_converting(group, volume).await?;
        drop(lock);
        let entry = self.conversion_of(group, volume).ok_or_else(not_known)?;
        if !entry.switched {
            let copied = self.copy_parts(group, &entry, job).await;
            let _lock = self.lock_group(group).await;
            let growing = self.locks.growing(group);
            let _closed = growing.close(); // CONVERTJOB2
            growing.drained().await;
            let switched = match copied {
                Ok(()) => self.switch_layout(group, volume, job).await,
                Err(stop) => Err(stop),
            };
            let reconciled = self.reconcile_converting(group, volume).await;
            switched?;
            reconciled?;
        }
        self.free(group, volume, "done").await?;
        Ok(())
    }

    /// Frees the layout that does not count; whether that is the old one.
    async fn free(&self, group: Uuid, volume: Uuid, how: &str) -> Result<bool, Failure> {
        let _lock = self.lock_group(group).await;
        self.reconcile_converting(group, volume).await?;
        self.await_abandoned(group).await?; // CONVERTJOB3
        let is_switched = self.conversion_of(group, volume).is_some_and(|entry| entry.switched);
        let words = format!("the conversion of {} {how}", self.subject(volume));
        let change = Change::Convert { volume, step: ConversionStep::End };
        self.commits(group).await.make(group, change, &words).await?;
        Ok(is_switched)
    }

    /// Copies all parts, not faster than the conversion may.
    async fn copy_parts(&self, group: Uuid, entry: &Conversion, job: &Started) -> Result<(), Stop> {
        self.check_wanted(job, ENDED)?;
        let volume = entry.volume;
        let home = self.home_of(volume).ok_or_else(not_known)?;
        let (parts, disks) = self.with_group(group, |known| {
            let part = |part: &ConvertedPart| {
                (part.of, entry.array_key(part), part_table(&known.group, entry, part))
            };
            (entry.parts.iter().map(part).collect::<Vec<Part>>(), self.disk_files(known))
        })?;
        let areas = entry.parts.iter().flat_map(|part| part.space().areas());
        let targets: Vec<PvName> = areas.map(|area| area.pv).collect();
        self.check_disks_here(group, job, &targets)?;
        let paths: BTreeSet<String> = targets.iter().map(|disk| self.path_of(group, *disk)).collect();
        let total: u64 = parts.iter().map(|(.., table)| table.size()).sum();
        job.progress.report(0, total);
        let begun = home.volume(volume).begin_conversion(parts, disks);
        begun.await.map_err(failures::gone)?.map_err(|failure| stop(self.about(volume, failure)))?;
        self.jobs.list.say_trouble(job.id, None);
        let copy = async |batch| {
            self.check_disks_here(group, job, &targets)?;
            self.copy_batch(&home, volume, batch).await.map_err(|stop| on_disks(stop, &paths))
        };
        self.copy_at_rate(job, (total, entry.rate), ENDED, copy).await
    }

    async fn copy_batch(&self, home: &ShardHandle, volume: Uuid, bytes: u64) -> Result<u64, Stop> {
        let copied = home.volume(volume).copy_moving(Moving::Layout, bytes);
        copied.await.map_err(failures::gone)?.map_err(|failure| stop(self.about(volume, failure)))
    }

    /// Lets the new layout count. The caller has the lock of the group.
    async fn switch_layout(&self, group: Uuid, volume: Uuid, job: &Started) -> Result<(), Stop> {
        self.check_wanted(job, ENDED)?;
        let commits = self.commits(group).await;
        let size = format_size(job.progress.done());
        let words = format!("{} converted: {size} copied", self.subject(volume));
        let change = Change::Convert { volume, step: ConversionStep::Switch };
        let planned = commits.plan(group, change, &words)?;
        let wanted = self.with_group(group, |known| self.wanted(known, &planned.after, volume))?;
        let (wanted, home) = wanted.zip(self.home_of(volume)).ok_or_else(not_known)?;
        let prepared = home.volume(volume).prepare_moving(Moving::Layout, wanted);
        prepared.await.map_err(failures::gone)?.map_err(|failure| stop(self.about(volume, failure)))?;
        Ok(commits.commit(group, planned, Vec::new()).await?)
    }

    /// Leads requests to the valid layout, where a scan has found which one that is.
    pub(crate) async fn reconcile_conversions(&self, group: Uuid) {
        let volumes = self.with_group(group, |known| {
            known.group.conversions().map(|entry| entry.volume).collect::<Vec<Uuid>>()
        });
        for volume in volumes.into_iter().flatten() {
            if let Err(failure) = self.reconcile_converting(group, volume).await {
                tracing::warn!(%failure, "a conversion is not reconciled");
            }
        }
    }

    /// Requests go to the layout that is valid by the text, and to no other. The caller has the lock of the group.
    async fn reconcile_converting(&self, group: Uuid, volume: Uuid) -> Result<(), Failure> {
        let is_switched = self.with_group(group, |known| match known.undecided {
            Some(_) => Err(known.undecided_failure()),
            None => Ok(known.group.conversion_of(volume).is_some_and(|entry| entry.switched)),
        })??;
        let Some(home) = self.home_of(volume) else { return Ok(()) };
        let finished = home.volume(volume).finish_moving(Moving::Layout, is_switched, true);
        finished.await.map_err(failures::gone)
    }

    pub(crate) fn conversion_of(&self, group: Uuid, volume: Uuid) -> Option<Conversion> {
        self.with_group(group, |known| known.group.conversion_of(volume).cloned()).ok().flatten()
    }
}

/// The new layout that has failed is on the disks at `paths`.
fn on_disks(stop: Stop, paths: &BTreeSet<String>) -> Stop {
    let Stop::End(failure) = stop else { return stop };
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let message = format!("{}; the new layout lies on {}", failure.message, paths.join(", "));
    Stop::End(if failure.code == Code::MediumFailed { Failure { message, ..failure } } else { failure })
}

/// An error of the disks ends a conversion; a volume that is out of use may be in use again later.
fn stop(failure: Failure) -> Stop {
    match failure.code {
        Code::VolumeUnusable => Stop::Wait(failure),
        _ => Stop::End(failure.help("varve pv list; the volume is as it was")),
    }
}
