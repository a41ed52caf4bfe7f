//! Disk images on a shard: what they hold as devices, with all their backing images; those in which volumes lie, written.
//!
//! Invariants:
//! - IMAGE1 of `open_images.rs`.
//! - IMAGE2. The file of such an image is as long as the image may become while it is open, and ends where the image does when it
//!   has been closed in order. Otherwise it stays as it is: it is sparse.
//! - IMAGE3. Before an image is written, what is there and directly below it is durable: a killed daemon may have written either.
//! - IMAGE4. An image is closed after the work on it past its volume, and before the one below it that is written too.

use super::children::Opened;
use super::open_images::OpenImage;
use crate::failures;
use crate::host::Host;
use crate::layers::{Image, Layer};
use crate::world::DiskRef;
use futures_channel::oneshot;
use std::rc::Rc;
use std::sync::Arc;
use varve_api::{Code, Failure};
use varve_block::{Access, Device, IoError, KIB, MIB, Tracker, TrackerGuard};
use varve_format::thin::PART_SIZE;
use varve_target::Padded;
use varve_target::qcow2::{self, ImageDevice, OpenError};
use varve_vg::model::ImageFormat;

/// Bytes of tables in memory, of the image that is asked first and of each below it.
const CACHE: u64 = 4 * MIB;
const CACHE_BELOW: u64 = 512 * KIB;

impl Layer {
    /// The file's bytes on this shard, in whole blocks of a thin volume; zeros follow its end.
    pub fn bytes(&self, host: &Host) -> Device {
        padded(host.disk(&self.file), Arc::clone(&self.tail))
    }

    /// The image to be read, over `backing`, as a part of a chain.
    async fn to_read(&self, host: &Host, options: qcow2::Options) -> Result<qcow2::Layer, Failure> {
        if self.format == ImageFormat::Raw {
            return Ok(qcow2::Layer::Raw(self.bytes(host)));
        }
        let options = qcow2::Options { file_end: Some(self.file.length()), ..options };
        let image = qcow2::Image::open(self.bytes(host), host.arena(), options).await;
        image.map(|image| qcow2::Layer::Image(Rc::new(image))).map_err(|error| self.failed(&error))
    }

    /// Refuses a qcow2 image that cannot be written, before its file is made longer.
    pub async fn check_to_write(&self, host: &Host) -> Result<(), Failure> {
        let checked = qcow2::check_to_write(self.bytes(host), host.arena(), self.file.length()).await;
        checked.map_err(|error| self.failed(&error))
    }

    /// Why it cannot be opened.
    pub fn failed(&self, error: &OpenError) -> Failure {
        let path = self.file.path().display().to_string();
        Failure::new(Code::VolumeUnusable, format!("{path}: {error}")).help(error.remedy(&path))
    }
}

impl Image {
    /// The disk that the image holds, on this shard, in whole blocks of a thin volume; zeros follow its end. Only to read.
    pub async fn device(&self, host: &Host) -> Result<Device, Failure> {
        let options = qcow2::Options {
            backing: self.device_below(host).await?,
            cache_bytes: CACHE,
            snapshot: self.snapshot.clone(),
            ..qcow2::Options::default()
        };
        let device = match self.top.to_read(host, options).await? {
            qcow2::Layer::Raw(device) => device,
            qcow2::Layer::Image(image) => Device::new(ImageDevice::new(image)),
        };
        Ok(padded(device, Vec::new().into()))
    }

    /// Refuses an image of which one below cannot be read, before its own file is made longer.
    pub async fn check_below(&self, host: &Host) -> Result<(), Failure> {
        self.device_below(host).await.map(drop)
    }

    async fn device_below(&self, host: &Host) -> Result<Option<Device>, Failure> {
        let mut layers = Vec::new();
        for layer in &self.below {
            let options = qcow2::Options { cache_bytes: CACHE_BELOW, ..qcow2::Options::default() };
            layers.push(layer.to_read(host, options).await?);
        }
        Ok(qcow2::chain(layers, &host.arena()))
    }

    /// The image, to be written, over `lower` if that is written too.
    async fn to_write(&self, host: &Host, lower: Option<&OpenImage>) -> Result<qcow2::Image, Failure> {
        let backing = match lower {
            Some(lower) => Some(lower.device.clone()),
            None => {
                if let Some(directly) = self.below.first() {
                    flush(host, &directly.file).await?; // IMAGE3
                }
                self.device_below(host).await?
            }
        };
        let options = qcow2::Options {
            access: Access::ReadWrite,
            backing,
            cache_bytes: CACHE,
            file_end: self.file_end,
            pushes: lower.is_some(),
            ..qcow2::Options::default()
        };
        let image = qcow2::Image::open(host.disk(&self.top.file), host.arena(), options).await;
        image.map_err(|error| self.top.failed(&error))
    }

    /// Makes the disk that the image holds as large as `bytes`, while no volume has it open.
    pub async fn grow(&self, host: &Host, bytes: u64) -> Result<(), Failure> {
        if self.top.format == ImageFormat::Raw {
            return match self.top.file.length() >= bytes {
                true => Ok(()),
                false => set_length(host, &self.top.file, bytes).await,
            };
        }
        let mut image = self.to_write(host, None).await?;
        let grown = image.grow(bytes).await.map_err(|error| self.top.failed(&error));
        grown.and(finish(host, &image, &self.top.file).await) // IMAGE2, whether it has grown or not.
    }
}

fn padded(device: Device, tail: Arc<[u8]>) -> Device {
    let block_size = u32::try_from(PART_SIZE).expect("a part is 4 KiB");
    Device::new(Padded::new(device, tail, block_size))
}

/// Makes an image durable that is not written any more, and cuts its file where it ends (IMAGE2).
async fn finish(host: &Host, image: &qcow2::Image, file: &DiskRef) -> Result<(), Failure> {
    let failed = |error| failures::io("the last flush of the image", error);
    image.close().await.map_err(failed)?;
    let end = image.end().await.map_err(failed)?;
    set_length(host, file, end).await
}

/// Waits for the file system, but no shard does.
async fn set_length(host: &Host, file: &DiskRef, bytes: u64) -> Result<(), Failure> {
    let (sender, answer) = oneshot::channel();
    let (path, file) = (file.path().to_owned(), Arc::clone(file));
    let work = move |_: &dyn crate::world::Files| {
        let done = file.set_length(bytes);
        drop(file); // A task that receives the answer may open it anew.
        let _ = sender.send(done);
    };
    host.world.work_at(&path, Box::new(work));
    let answer = answer.await.map_err(|_| failures::gone(crate::no_answer::NoAnswer::Gone))?;
    answer.map_err(|error| failures::open(&error))
}

impl Opened {
    /// The device of the image, if it is open.
    pub(crate) fn image_device(&self) -> Option<Device> {
        self.image.borrow().as_ref().map(|open| open.device.clone())
    }

    /// The qcow2 image, if it is open; it stays open until the guard is dropped.
    pub(crate) fn enter_image(&self) -> Option<(Rc<qcow2::Image>, TrackerGuard)> {
        let open = self.image.borrow();
        let open = open.as_ref()?;
        Some((Rc::clone(open.image.as_ref()?), open.work.enter()))
    }

    /// Why the image takes no changes any more, if so.
    pub(crate) fn image_failure(&self) -> Option<IoError> {
        self.image.borrow().as_ref()?.failure()
    }

    /// The files of the image and of those below, its own first; none if it is not open.
    pub(crate) fn image_files(&self) -> Vec<DiskRef> {
        let image = self.image.borrow();
        let layers = std::iter::successors(image.as_ref(), |image| image.lower.as_deref());
        layers.flat_map(OpenImage::own_files).cloned().collect()
    }

    /// Opens the image in which the volume is (IMAGE1).
    pub(crate) async fn open_image(&self, image: &Image) -> Result<(), Failure> {
        let replaced = self.image.replace(Some(open_to_write(&self.host, image).await?));
        assert!(replaced.is_none(), "IMAGE1: {}", self.id);
        Ok(())
    }

    /// Closes the image, if it is open (IMAGE2). Nothing uses it any more.
    pub(super) async fn close_image(&self) -> Result<(), Failure> {
        let Some(mut open) = self.image.take() else { return Ok(()) };
        open.work.empty().await; // IMAGE4
        let mut closed = Ok(());
        loop {
            if let Some(image) = &open.image {
                closed = closed.and(finish(&self.host, image, &open.file).await);
            }
            match open.lower.take() {
                Some(lower) => open = *lower, // What was given to it is durable: the image above was made so.
                None => return closed,
            }
        }
    }
}

/// Opens an image, and the one directly below it if that is written too.
async fn open_to_write(host: &Host, image: &Image) -> Result<OpenImage, Failure> {
    let lower = match &image.lower {
        Some(lower) => Some(Box::new(Box::pin(open_to_write(host, lower)).await?)),
        None => None,
    };
    let (file, work) = (Arc::clone(&image.top.file), Tracker::default());
    let below = image.below.iter().map(|layer| Arc::clone(&layer.file)).collect();
    if image.top.format == ImageFormat::Raw {
        flush(host, &file).await?; // IMAGE3
        return Ok(OpenImage { device: host.disk(&file), image: None, below, lower, file, work });
    }
    let image = Rc::new(image.to_write(host, lower.as_deref()).await?);
    let device = Device::new(ImageDevice::new(Rc::clone(&image)));
    Ok(OpenImage { device, image: Some(image), below, lower, file, work })
}

/// Makes durable what a killed daemon may have written (IMAGE3).
async fn flush(host: &Host, file: &DiskRef) -> Result<(), Failure> {
    let flushed = host.disk(file).flush().await;
    flushed.map(drop).map_err(|error| failures::io("the first flush of the image", error))
}
