//! The job that makes a volume in an image need what lies below the image no more.
//!
//! Invariants:
//! - FLATIMAGE1. It goes on after a restart; what was copied is in the image, and is not copied again.
//! - FLATIMAGE2. When the image needs it no more, the volume is opened anew, and what lay below is closed. Requests wait meanwhile.

use super::Control;
use super::find::Located;
use super::jobs::{IMAGE_FLATTEN, Started};
use crate::failures;
use crate::shard::{ShardContext, image_flatten};
use crate::state::{RememberedJob, RememberedTarget};
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure, JobState, Plan};
use varve_vg::model::Layout;
use varve_vg::names::VolumeName;
use varve_vg::size::format_size;

/// What flattening an image would do.
pub(super) fn image_plan(name: &VolumeName, size: u64) -> Plan {
    let size = format_size(size);
    let step =
        format!("would copy what {name} shows of what lies below its image, at most {size}, into the image");
    Plan::of_steps(vec![step])
}

impl Control {
    /// Bytes of a volume, if it lies in an image and lies over another one with it.
    pub(super) async fn image_to_flatten(
        &self,
        located: &Located,
        name: &VolumeName,
    ) -> Result<Option<u64>, Failure> {
        let Layout::Image { path, .. } = &located.volume.layout else { return Ok(None) };
        if located.thin.is_some() || name.snapshot.is_some() {
            return Ok(None);
        }
        if let Some(failure) = &located.unusable {
            return Err(failure.clone());
        }
        let volume = located.volume.id;
        let asked =
            located.home.run(async move |here: ShardContext| image_flatten::below(&here, volume)).await;
        let below = asked.map_err(failures::gone)?.filter(|below| below.lies_over);
        let below = below.ok_or_else(|| failures::over_nothing(name))?;
        if below.snapshots > 0 {
            let message = format!("{path} has internal snapshots, which need what lies below it");
            return Err(Failure::new(Code::Usage, message)
                .help(format!("qemu-img snapshot -l {path}, while {name} is deactivated")));
        }
        Ok(Some(below.size))
    }

    /// Begins the job; its number.
    pub(super) async fn begin_flattening_image(
        &self,
        located: &Located,
        name: &VolumeName,
        size: u64,
    ) -> u64 {
        let volume = located.volume.id;
        let target = RememberedTarget { volume, store: volume, number: 0, size };
        let subject = name.to_string();
        self.forget_flattening_image(volume); // One that was put off: this one takes its place.
        let started = self.start_job(IMAGE_FLATTEN, &subject, &[volume], vec![target], None).await;
        let id = started.id;
        self.event(&subject, "a copy of what lies below its image begins");
        self.spawn_flattening_image(volume, subject, &started);
        id
    }

    fn spawn_flattening_image(&self, volume: Uuid, subject: String, started: &Started) {
        let (id, progress, me) = (started.id, Arc::clone(&started.progress), self.weak());
        let home = self.home_of(volume);
        self.context.spawner().spawn(async move {
            let result = match home {
                None => Err(unusable(&subject)),
                Some(home) => {
                    let work = home.run(async move |here: ShardContext| {
                        image_flatten::flatten(&here, volume, &progress).await
                    });
                    work.await.map_err(failures::gone).and_then(|done| done)
                }
            };
            // A daemon that stops leaves the job to the next one (FLATIMAGE1).
            let Some(control) = me.upgrade() else { return };
            if result.is_ok() {
                control.event(&subject, "lies over nothing any more");
                control.reopen_image(volume).await;
            }
            match result {
                Err(failure) if failure.code == Code::VolumeUnusable => control.suspend_job(id, failure),
                result => control.finish_job(id, result).await,
            }
        });
    }

    /// FLATIMAGE2.
    async fn reopen_image(&self, volume: Uuid) {
        let Ok((group, _)) = self.entry_of(volume) else { return };
        let _lock = self.lock_group(group).await;
        let named = self.subject(volume).parse::<VolumeName>().map_err(|error| failures::bad_name(&error));
        let Ok(located) = named.and_then(|name| self.find_volume(&name)) else { return };
        self.set_volume_aside(&located, "its image is opened anew").await;
        if let Err(failure) = self.bring_back(&located).await {
            tracing::warn!(%volume, %failure, "a volume was not brought back after its image was flattened");
        }
    }

    /// Takes up a job that a restart interrupted (FLATIMAGE1).
    pub(super) fn resume_flattening_image(&self, job: &RememberedJob) {
        let Some(target) = job.targets.first() else { return };
        let (id, volume) = (job.id, target.volume);
        let started = self.register_job(id, IMAGE_FLATTEN, &job.subject, "bytes", &[volume], job.started);
        self.spawn_flattening_image(volume, job.subject.clone(), &started);
    }

    /// Takes up what was put off because its volume could not be used, where it can be now.
    pub(super) fn resume_flattening_images(&self) {
        let jobs = self.remembered.borrow().jobs.clone();
        let is_running =
            |id: u64| self.jobs.show(&id.to_string()).is_ok_and(|job| job.state == JobState::Running);
        for job in jobs.into_iter().filter(|job| job.kind == IMAGE_FLATTEN && !is_running(job.id)) {
            let volume = job.targets.first().map(|target| target.volume);
            if volume.is_some_and(|volume| self.home_of(volume).is_some()) {
                self.resume_flattening_image(&self.renumbered(job));
            }
        }
    }

    /// A volume is gone, or is flattened anew.
    pub(super) fn forget_flattening_image(&self, volume: Uuid) {
        let is_meant = |job: &RememberedJob| {
            job.kind == IMAGE_FLATTEN && job.targets.iter().any(|target| target.volume == volume)
        };
        self.remembered.borrow_mut().jobs.retain(|job| !is_meant(job));
    }
}

fn unusable(subject: &str) -> Failure {
    let message = format!("{subject} cannot be used; it goes on when that can be");
    Failure::new(Code::VolumeUnusable, message).help("varve lv show; then varve pv scan")
}
