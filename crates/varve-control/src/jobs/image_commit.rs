//! The job that puts what a volume's image holds into the image below it, in which the volume is from then on.
//!
//! Invariants:
//! - COMMITIMAGE1. Until the group's text names the image below, the volume is in its own image, over that one: it shows what it
//!   did, however little has been given away.
//! - COMMITIMAGE2. The text names the image below after the volume's image holds nothing, and both were closed in order.

use super::committing::Base;
use super::registry::SHORT;
use crate::Control;
use crate::backing::image_volumes::other_size;
use crate::backing::layers::{OpenedImage, used_otherwise};
use crate::failures;
use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Changed, Code, Commit, Failure, Job, Plan};
use varve_block::KIB;
use varve_block::host::OpenError;
use varve_vg::Change;
use varve_vg::model::{ImageFormat, Layout, LogicalVolume};
use varve_vg::names::VolumeName;
use varve_vg::size::format_size;
use varve_volume::copies::image_jobs::{Below, ImageWork};
use varve_volume::copies::progress::Progress;
use varve_volume::fault;
use varve_volume::layers::Image;

/// Those of an image that is to be written: the volume over it, and whoever asks.
const READERS: usize = 2;

impl Control {
    /// Puts what the image of a volume holds into the image below it; the answer is a job.
    pub async fn commit_volume(&self, text: &str, request: Commit) -> Result<Changed<Job>, Failure> {
        let lock = self.lock_of(text).await?;
        let name: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
        let located = self.find_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        let Layout::Image { path, .. } = &located.volume.layout else {
            return Err(failures::over_nothing(&name));
        };
        if located.thin.is_some() || name.snapshot.is_some() {
            return Err(failures::over_nothing(&name));
        }
        let below = self.below_image(&located, &name).await?;
        let size = below.size;
        self.check_base(Path::new(path), below).await?;
        if request.dry_run {
            let most = format_size(size);
            let copy = format!("would copy what {path} holds, at most {most}, into the image below it");
            let lie = format!("would let {name} lie in that; other images over it are not to be used then");
            return Ok(Changed::Planned(Plan::of_steps(vec![copy, lie])));
        }
        let volume = located.volume.id;
        self.open_base(volume).await?;
        let begun = self.begin_image_job(ImageWork::Commit, &located, &name).await;
        if begun.is_err() {
            self.jobs.committing.borrow_mut().remove(&volume);
            self.reopen_locked(volume).await?;
        }
        let id = begun?;
        drop(lock);
        self.job_soon(id, SHORT).await.map(Changed::Done)
    }

    pub(crate) async fn commit_image(&self, volume: Uuid, progress: Arc<Progress>) -> Result<(), Failure> {
        self.open_base_again(volume).await?;
        let done = self.work_on_image(volume, ImageWork::Commit, progress).await;
        if self.life.stopping.get() {
            return done;
        }
        let ended = self.close_base(volume, done).await;
        self.jobs.committing.borrow_mut().remove(&volume); // Where the volume is gone.
        ended
    }

    /// Opens the volume of a job that is taken up again as [`Control::open_base`] does.
    async fn open_base_again(&self, volume: Uuid) -> Result<(), Failure> {
        if self.jobs.committing.borrow().contains_key(&volume) {
            return Ok(());
        }
        let (group, _) = self.entry_of(volume)?;
        let _lock = self.lock_group(group).await;
        self.open_base(volume).await
    }

    /// Opens the volume anew, with the image below its image to be written. The group is locked.
    async fn open_base(&self, volume: Uuid) -> Result<(), Failure> {
        self.jobs.committing.borrow_mut().insert(volume, None);
        let Err(failure) = self.reopen_locked(volume).await else { return Ok(()) };
        let opened = self.jobs.committing.borrow_mut().remove(&volume).flatten();
        self.reopen_locked(volume).await?;
        // The volume is well, so it is the image below that cannot be written.
        Err(of_base(opened.and_then(Result::err).unwrap_or(failure)))
    }

    /// Opens the volume anew when the work is `done`: in the image below its image if all went well (COMMITIMAGE2).
    async fn close_base(&self, volume: Uuid, done: Result<(), Failure>) -> Result<(), Failure> {
        let (group, _) = self.entry_of(volume)?;
        let _lock = self.lock_group(group).await;
        let located = self.locate(volume)?;
        let is_closed = self.set_volume_aside(&located, "its image is opened anew").await;
        let base = self.jobs.committing.borrow_mut().remove(&volume).flatten();
        let result = match (done, base) {
            (Ok(()), Some(Ok(base))) if is_closed => self.lie_in(group, &located.volume, base).await,
            (Ok(()), _) => Err(failures::closed_with_error()),
            (failed, _) => failed,
        };
        self.bring_back(&located).await?;
        result
    }

    async fn lie_in(&self, group: Uuid, volume: &LogicalVolume, base: Base) -> Result<(), Failure> {
        fault::die_at("image-committed");
        let Base { path, format } = base;
        self.agree_to_image(group, &path).await?;
        let subject = self.subject(volume.id);
        let words = format!("lv commit {subject}");
        let change = Change::SetImage { volume: volume.name.clone(), path: path.clone(), format };
        self.commits(group).await.make(group, change, &words).await?;
        fault::die_at("image-left");
        self.event(&subject, &format!("lies in {path} now"));
        Ok(())
    }

    /// The image of a volume, open with the one below it, to which it gives what it holds.
    pub(crate) async fn image_and_base(&self, group: Uuid, volume: &LogicalVolume) -> Result<Image, Failure> {
        let opened = self.open_image_and_base_of(group, volume).await;
        let (image, base) = match opened {
            Ok((image, base)) => (Ok(image), Ok(base)),
            Err(failure) => (Err(failure.clone()), Err(failure)),
        };
        self.jobs.committing.borrow_mut().insert(volume.id, Some(base));
        image
    }

    async fn open_image_and_base_of(
        &self,
        group: Uuid,
        volume: &LogicalVolume,
    ) -> Result<(Image, Base), Failure> {
        let Layout::Image { path, bytes, .. } = &volume.layout else {
            unreachable!("only a volume in an image is asked for it");
        };
        self.told_of_image(group, path)?;
        let (opened, base) = self.open_image_and_base(Path::new(path)).await?;
        self.refuse_unwritable(&opened, path).await?;
        if opened.disk_bytes() != *bytes {
            return Err(other_size(&self.subject(volume.id), path, *bytes, opened.disk_bytes()));
        }
        let base = self.fit_base(base, *bytes).await?;
        self.take_up_image(volume).await?;
        let layer = &base.image.top;
        let known = Base { path: layer.file.path().display().to_string(), format: layer.format };
        let mut image = self.prepare(opened).await?;
        image.lower = Some(Box::new(self.prepare(base).await?));
        Ok((image, known))
    }

    /// Refuses to write the image below that at `path` if its format or size forbid it, or if others read it here; other programs that
    /// do are found out later.
    async fn check_base(&self, path: &Path, below: Below) -> Result<(), Failure> {
        let Some(backing) = below.backing else { return Ok(()) };
        let (real, format) = self.backing_file(path, &backing).await?;
        let base = self.open_image_to_read(&real, format).await.map_err(of_base)?;
        if self.watch.read_files.count(&base.image.top.file) > READERS {
            return Err(used_otherwise(failures::open(&OpenError::InUse(real))));
        }
        self.refuse_misfit(&base, below.size).await.map_err(of_base)
    }

    /// An image that holds a disk of `bytes`, as that over it does: it grows if it must.
    async fn fit_base(&self, base: OpenedImage, bytes: u64) -> Result<OpenedImage, Failure> {
        let (path, format) = (base.image.top.file.path().to_owned(), base.image.top.format);
        self.refuse_misfit(&base, bytes).await?;
        if base.disk_bytes() == bytes {
            return Ok(base);
        }
        self.grow_opened(base, bytes).await?;
        self.open_image_to_write(&path, format).await
    }

    /// Refuses an image that cannot be written, or cannot hold a disk of `bytes`.
    async fn refuse_misfit(&self, base: &OpenedImage, bytes: u64) -> Result<(), Failure> {
        let (shown, format) = (base.image.top.file.path().display().to_string(), base.image.top.format);
        self.refuse_unwritable(base, &shown).await?;
        let now = base.disk_bytes();
        match now.cmp(&bytes) {
            Ordering::Greater => {
                let (now, size) = (format_size(now), format_size(bytes));
                let message =
                    format!("{shown} holds a disk of {now}, and the image backed by it one of {size} only");
                let help = format!("varve lv flatten, which needs {shown} no more");
                Err(Failure::new(Code::BadOrigin, message).help(help))
            }
            Ordering::Less if format == ImageFormat::Raw && !bytes.is_multiple_of(4 * KIB) => {
                let message = format!("{shown} would have {bytes} bytes, which are no whole blocks of 4096");
                let whole = bytes.next_multiple_of(4 * KIB);
                Err(Failure::new(Code::BadOrigin, message).help(format!("varve lv extend --size {whole}B")))
            }
            Ordering::Equal | Ordering::Less => Ok(()),
        }
    }
}

/// It is the image below that cannot be used.
fn of_base(failure: Failure) -> Failure {
    match failure.code {
        Code::VolumeUnusable => failure.with_code(Code::BadOrigin),
        _ => failure,
    }
}
