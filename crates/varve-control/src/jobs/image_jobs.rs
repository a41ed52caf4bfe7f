//! The jobs on images in which volumes lie, while the volumes are used. A volume that is flattened needs the backing images
//! of its image no more; what a commit writes into a backing image is decided in `image_commit.rs`.
//!
//! Invariants:
//! - IMAGEJOB1. A job goes on after a restart, from the beginning of its image: what is done is passed over. It goes on only if the
//!   volume still is in the image for which it was begun.
//! - IMAGEJOB2. One that cannot go on because its volume is out of use ends for now, but stands in the text until its volume is gone, or
//!   another one follows.
//! - IMAGEJOB3. When the images below a volume's image change, the volume is opened anew. Requests wait meanwhile.

use super::registry::Started;
use super::runner::{Stop, Work, unless_usable};
use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure, Plan};
use varve_vg::model::{JobWork, Layout};
use varve_vg::names::VolumeName;
use varve_vg::size::format_size;
use varve_volume::copies::image_jobs::{Below, ImageWork};
use varve_volume::copies::progress::Progress;

/// What is recorded of a volume that is flattened.
pub(crate) const OVER_NOTHING: &str = "is backed by nothing any more";

/// The work of a job, and the image in which its volume is to lie.
struct WorkOnImage {
    work: ImageWork,
    volume: Uuid,
    image: String,
}

impl Work for WorkOnImage {
    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        let entry = control.entry_of(self.volume).ok();
        if entry.and_then(|(_, entry)| image_path(&entry.layout)).as_ref() != Some(&self.image) {
            return Ok(()); // IMAGEJOB1
        }
        let progress = Arc::clone(&job.progress);
        let done = match self.work {
            ImageWork::Flatten => control.flatten_image(self.volume, progress).await,
            ImageWork::Commit => control.commit_image(self.volume, progress).await,
        };
        control.check_running()?; // IMAGEJOB1
        done.map_err(unless_usable) // IMAGEJOB2
    }
}

/// What a job does, of which volume, and in which image that is.
fn work_of(work: &JobWork) -> Option<(ImageWork, Uuid, &str)> {
    match work {
        JobWork::FlattenImage { volume, image } => Some((ImageWork::Flatten, *volume, image)),
        JobWork::CommitImage { volume, image } => Some((ImageWork::Commit, *volume, image)),
        _ => None,
    }
}

impl Control {
    /// The backing image of a volume's image, if there is one and no internal snapshot needs it as it is.
    pub(crate) async fn below_image(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<Below, Failure> {
        if let Some(failure) = &located.unusable {
            return Err(failure.clone());
        }
        let Layout::Image { path, .. } = &located.volume.layout else {
            return Err(failures::over_nothing(name));
        };
        let volume = located.volume.id;
        let asked = located.home.volume(volume).image_below().await;
        let below = asked.map_err(failures::gone)?.filter(|below| below.backing.is_some());
        let below = below.ok_or_else(|| failures::over_nothing(name))?;
        if below.snapshots > 0 {
            let message = format!("{path} has internal snapshots, which need what lies below it");
            return Err(Failure::new(Code::Usage, message)
                .help(format!("qemu-img snapshot -l {path}, while {name} is deactivated")));
        }
        Ok(below)
    }

    /// Bytes of a volume, if it is in an image that has a backing image.
    pub(crate) async fn image_to_flatten(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<Option<u64>, Failure> {
        let in_image = matches!(located.volume.layout, Layout::Image { .. });
        if !in_image || located.thin.is_some() || name.snapshot.is_some() {
            return Ok(None);
        }
        Ok(Some(self.below_image(located, name).await?.size))
    }

    pub(crate) async fn flatten_image(&self, volume: Uuid, progress: Arc<Progress>) -> Result<(), Failure> {
        self.work_on_image(volume, ImageWork::Flatten, progress).await?;
        self.event(&self.subject(volume), OVER_NOTHING);
        if let Err(failure) = self.reopen_image(volume).await {
            tracing::warn!(%volume, %failure, "a volume was not brought back after its image was flattened");
        }
        Ok(())
    }

    /// Begins a job; its number.
    pub(crate) async fn begin_image_job(
        &self,
        work: ImageWork,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<u64, Failure> {
        let (volume, subject) = (located.volume.id, name.to_string());
        self.forget_image_jobs(volume).await; // One that was put off: this one takes its place.
        let image = image_path(&located.volume.layout).ok_or_else(|| failures::over_nothing(name))?;
        let (recorded, words) = match work {
            ImageWork::Flatten => (
                JobWork::FlattenImage { volume, image: image.clone() },
                "a copy of what lies below its image begins",
            ),
            ImageWork::Commit => (
                JobWork::CommitImage { volume, image: image.clone() },
                "a copy of what its image holds into the image below begins",
            ),
        };
        let started = self.start_job(located.group, &subject, recorded, None).await?;
        self.event(&subject, words);
        let id = started.id;
        self.spawn_work(started, WorkOnImage { work, volume, image });
        Ok(id)
    }

    /// Does the work of a job where its volume lives.
    pub(crate) async fn work_on_image(
        &self,
        volume: Uuid,
        work: ImageWork,
        progress: Arc<Progress>,
    ) -> Result<(), Failure> {
        let unusable = || {
            let message = format!("{} cannot be used", self.subject(volume));
            Failure::new(Code::VolumeUnusable, message).help("varve lv show; then varve pv scan")
        };
        let home = self.home_of(volume).ok_or_else(unusable)?;
        let done = home.volume(volume).work_on_image(work, progress);
        self.answered(volume, done.await)
    }

    /// IMAGEJOB3. An error says why the volume cannot be used afterwards.
    pub(crate) async fn reopen_image(&self, volume: Uuid) -> Result<(), Failure> {
        let (group, _) = self.entry_of(volume)?;
        let _lock = self.lock_group(group).await;
        self.reopen_locked(volume).await
    }

    /// The same; the group is locked.
    pub(crate) async fn reopen_locked(&self, volume: Uuid) -> Result<(), Failure> {
        let located = self.locate(volume)?;
        self.set_volume_aside(&located, "its image is opened anew").await;
        self.bring_back(&located).await?;
        self.unusable(volume).map_or(Ok(()), Err)
    }

    /// A volume of a group as it stands, whether it can be used or not.
    pub(crate) fn locate(&self, volume: Uuid) -> Result<LocatedVolume, Failure> {
        let name: VolumeName = self.subject(volume).parse().map_err(|error| failures::bad_name(&error))?;
        self.find_any_volume(&name)
    }

    /// Takes up a job that stands in a text (IMAGEJOB1).
    pub(crate) fn resume_image_job(&self, work: &JobWork, started: Started) {
        let Some((work, volume, image)) = work_of(work) else { return };
        self.spawn_work(started, WorkOnImage { work, volume, image: image.to_owned() });
    }

    /// A volume is gone, or another job follows.
    pub(crate) async fn forget_image_jobs(&self, volume: Uuid) {
        let is_meant = |work: &JobWork| work_of(work).is_some_and(|(_, of, _)| of == volume);
        self.forget_waiting(is_meant).await;
    }
}

/// What flattening an image would do.
pub(crate) fn image_plan(name: &VolumeName, size: u64) -> Plan {
    let size = format_size(size);
    let step =
        format!("would copy what {name} shows of what lies below its image, at most {size}, into the image");
    Plan::of_steps(vec![step])
}

fn image_path(layout: &Layout) -> Option<String> {
    match layout {
        Layout::Image { path, .. } => Some(path.clone()),
        _ => None,
    }
}
