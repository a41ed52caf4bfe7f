//! The jobs on images in which volumes lie, while the volumes are used: `image_flatten.rs`, `image_commit.rs`.
//!
//! Invariants:
//! - IMAGEJOB1. A job goes on after a restart, from the beginning of its image: what is done is passed over. It goes on only if the
//!   volume still lies in the image for which it was begun.
//! - IMAGEJOB2. One that cannot go on because its volume is out of use ends for now, but is remembered until its volume is gone, or
//!   another one follows.
//! - IMAGEJOB3. When the images below a volume's image change, the volume is opened anew. Requests wait meanwhile.

use super::Control;
use super::find::Located;
use super::jobs::{Details, IMAGE_COMMIT, IMAGE_FLATTEN, Started};
use crate::failures;
use crate::remembered::{RememberedJob, RememberedTarget};
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure, JobState};
use varve_vg::model::Layout;
use varve_vg::names::VolumeName;
use varve_volume::image_jobs::{Below, ImageWork};

fn kind(work: ImageWork) -> &'static str {
    match work {
        ImageWork::Flatten => IMAGE_FLATTEN,
        ImageWork::Commit => IMAGE_COMMIT,
    }
}

fn work_of(kind: &str) -> Option<ImageWork> {
    [ImageWork::Flatten, ImageWork::Commit].into_iter().find(|work| self::kind(*work) == kind)
}

impl Control {
    /// What lies below the image of a volume, if there is such a thing and no internal snapshot needs it as it is.
    pub(super) async fn below_image(&self, located: &Located, name: &VolumeName) -> Result<Below, Failure> {
        if let Some(failure) = &located.unusable {
            return Err(failure.clone());
        }
        let Layout::Image { path, .. } = &located.volume.layout else {
            return Err(failures::over_nothing(name));
        };
        let volume = located.volume.id;
        let asked = located.home.volume(volume).image_below().await;
        let below = asked.map_err(failures::gone)?.filter(|below| below.lies_over);
        let below = below.ok_or_else(|| failures::over_nothing(name))?;
        if below.snapshots > 0 {
            let message = format!("{path} has internal snapshots, which need what lies below it");
            return Err(Failure::new(Code::Usage, message)
                .help(format!("qemu-img snapshot -l {path}, while {name} is deactivated")));
        }
        Ok(below)
    }

    /// Begins a job; its number.
    pub(super) async fn begin_image_job(
        &self,
        work: ImageWork,
        located: &Located,
        name: &VolumeName,
        size: u64,
    ) -> u64 {
        let volume = located.volume.id;
        let target = RememberedTarget { volume, store: volume, number: 0, size };
        let subject = name.to_string();
        self.forget_image_jobs(volume); // One that was put off: this one takes its place.
        let details = Details { image: image_path(&located.volume.layout), ..Details::default() };
        let started = self.start_job(kind(work), &subject, &[volume], vec![target], details.clone()).await;
        self.event(
            &subject,
            match work {
                ImageWork::Flatten => "a copy of what lies below its image begins",
                ImageWork::Commit => "a copy of what its image holds into the image below begins",
            },
        );
        self.spawn_image_job(work, volume, details.image, &started);
        started.id
    }

    fn spawn_image_job(&self, work: ImageWork, volume: Uuid, image: Option<String>, started: &Started) {
        let (id, progress, me) = (started.id, Arc::clone(&started.progress), self.weak());
        self.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            let lies_there =
                control.entry_of(volume).is_ok_and(|(_, entry)| image_path(&entry.layout) == image);
            let result = match work {
                _ if !lies_there => Ok(()), // IMAGEJOB1
                ImageWork::Flatten => control.flatten_image(volume, progress).await,
                ImageWork::Commit => control.commit_image(volume, progress).await,
            };
            match result {
                _ if control.stopping.get() => {} // IMAGEJOB1
                Err(failure) if failure.code == Code::VolumeUnusable => control.suspend_job(id, failure),
                result => control.finish_job(id, result).await,
            }
        });
    }

    /// Does the work of a job where its volume lives.
    pub(super) async fn work_on_image(
        &self,
        volume: Uuid,
        work: ImageWork,
        progress: Arc<varve_volume::progress::Progress>,
    ) -> Result<(), Failure> {
        let unusable = || {
            let message = format!("{} cannot be used; it goes on when that can be", self.subject(volume));
            Failure::new(Code::VolumeUnusable, message).help("varve lv show; then varve pv scan")
        };
        let home = self.home_of(volume).ok_or_else(unusable)?;
        let done = home.volume(volume).work_on_image(work, progress);
        done.await.map_err(failures::gone)?
    }

    /// IMAGEJOB3. An error says why the volume cannot be used afterwards.
    pub(super) async fn reopen_image(&self, volume: Uuid) -> Result<(), Failure> {
        let (group, _) = self.entry_of(volume)?;
        let _lock = self.lock_group(group).await;
        let located = self.locate(volume)?;
        self.set_volume_aside(&located, "its image is opened anew").await;
        self.bring_back(&located).await?;
        self.unusable(volume).map_or(Ok(()), Err)
    }

    /// A volume of a group as it stands, whether it can be used or not.
    pub(super) fn locate(&self, volume: Uuid) -> Result<Located, Failure> {
        let name: VolumeName = self.subject(volume).parse().map_err(|error| failures::bad_name(&error))?;
        self.find_any_volume(&name)
    }

    /// Takes up a job that a restart interrupted (IMAGEJOB1).
    pub(super) fn resume_image_job(&self, job: &RememberedJob) {
        let (Some(target), Some(work)) = (job.targets.first(), work_of(&job.kind)) else { return };
        let volume = target.volume;
        let started = self.register_job(job.id, kind(work), &job.subject, "bytes", &[volume], job.started);
        self.spawn_image_job(work, volume, job.image.clone(), &started);
    }

    /// Takes up what was put off because its volume could not be used, where it can be now (IMAGEJOB2).
    pub(super) fn resume_image_jobs(&self) {
        let jobs = self.remembered.borrow().jobs.clone();
        let is_running =
            |id: u64| self.jobs.show(&id.to_string()).is_ok_and(|job| job.state == JobState::Running);
        for job in jobs.into_iter().filter(|job| work_of(&job.kind).is_some() && !is_running(job.id)) {
            let volume = job.targets.first().map(|target| target.volume);
            if volume.is_some_and(|volume| self.home_of(volume).is_some()) {
                self.resume_image_job(&self.renumbered(job));
            }
        }
    }

    /// A volume is gone, or another job follows.
    pub(super) fn forget_image_jobs(&self, volume: Uuid) {
        let is_meant = |job: &RememberedJob| {
            work_of(&job.kind).is_some() && job.targets.iter().any(|target| target.volume == volume)
        };
        self.remembered.borrow_mut().jobs.retain(|job| !is_meant(job));
    }
}

fn image_path(layout: &Layout) -> Option<String> {
    match layout {
        Layout::Image { path, .. } => Some(path.clone()),
        _ => None,
    }
}
