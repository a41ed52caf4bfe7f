//! Images opened with all their backing images.
//!
//! Invariants:
//! - LAYERS1. A backing file that an image names is opened only if it is in a folder that the daemon was
//!   started with, wherever links lead.
//! - LAYERS2. A chain of backing files ends, and is no longer than [`LAYERS_MAX`].

use crate::Control;
use crate::failures;
use crate::host::disks::options;
use std::path::{Path, PathBuf};
use varve_api::{Code, Failure};
use varve_block::host::DiskOptions;
use varve_format::qcow2::{Backing, BackingError, Header, LAYERS_MAX};
use varve_target::qcow2::read_header;
use varve_vg::model::ImageFormat;
use varve_volume::layers::{Image, Layer};

/// An image that was opened, and what is known of it.
pub(crate) struct OpenedImage {
    pub(crate) image: Image,
    /// Bytes of the file.
    pub(crate) length: u64,
    /// When it, or any of its backing images, was last written, in nanoseconds since 1970, as far as file systems say.
    pub(crate) modified_ns: Option<u64>,
    /// None of a raw image.
    pub(crate) header: Option<Header>,
}

impl OpenedImage {
    /// Bytes of the disk that it holds.
    pub(crate) fn disk_bytes(&self) -> u64 {
        match &self.header {
            Some(header) => header.size.next_multiple_of(varve_format::qcow2::SECTOR),
            None => self.length,
        }
    }
}

/// An image that would be written and is in use.
pub(crate) fn used_otherwise(failure: Failure) -> Failure {
    match failure.code {
        Code::DiskInUse => failure.help("end what else uses it or is backed by it: it is going to change"),
        _ => failure,
    }
}

impl Control {
    /// Opens the image at `path`, so that no process writes it, and its backing images.
    pub(crate) async fn open_image_to_read(
        &self,
        path: &Path,
        format: ImageFormat,
    ) -> Result<OpenedImage, Failure> {
        let (top, modified_ns) = self.open_layer(path, format).await?;
        self.with_layers(top, modified_ns).await
    }

    /// Opens the image at `path`, to be written by this daemon alone, and its backing images, to be read.
    pub(crate) async fn open_image_to_write(
        &self,
        path: &Path,
        format: ImageFormat,
    ) -> Result<OpenedImage, Failure> {
        let top = self.open_layer_to_write(path, format).await?;
        self.with_layers(top, None).await
    }

    /// Opens the image at `path` and the one directly below it, both to be written by this daemon alone; where that is, and how it is
    /// read.
    pub(crate) async fn open_image_and_base(
        &self,
        path: &Path,
    ) -> Result<(OpenedImage, OpenedImage), Failure> {
        let top = self.open_layer_to_write(path, ImageFormat::Qcow2).await?;
        let header = self.header_of(&top).await?;
        let backing = header.backing.as_ref().ok_or_else(|| over_nothing(path))?;
        let (real, format) = self.backing_file(path, backing).await?;
        self.event(&real.display().to_string(), &format!("opened to be written below {}", path.display()));
        let base = self.open_image_to_write(&real, format).await.map_err(used_otherwise)?;
        let length = top.file.length();
        let image = Image { top, below: Vec::new(), lower: None, snapshot: None, file_end: None };
        Ok((OpenedImage { image, length, modified_ns: None, header: Some(header) }, base))
    }

    /// Where the backing image of the image at `path` is, and how it is read (LAYERS1).
    pub(crate) async fn backing_file(
        &self,
        path: &Path,
        backing: &Backing,
    ) -> Result<(PathBuf, ImageFormat), Failure> {
        let (named, format) = backing.file(path).map_err(|error| unusable(path, &error))?;
        Ok((self.allowed(path, &named).await?, format))
    }

    async fn with_layers(&self, top: Layer, modified_ns: Option<u64>) -> Result<OpenedImage, Failure> {
        let length = top.file.length();
        let (header, below, modified_ns) = match top.format {
            ImageFormat::Raw => (None, Vec::new(), modified_ns),
            ImageFormat::Qcow2 => {
                let header = self.header_of(&top).await?;
                let (below, below_modified) = self.open_below(&top, &header).await?;
                let latest = below_modified.into_iter().chain([modified_ns]).reduce(later);
                (Some(header), below, latest.flatten())
            }
        };
        let image = Image { top, below, lower: None, snapshot: None, file_end: None };
        Ok(OpenedImage { image, length, modified_ns, header })
    }

    async fn header_of(&self, layer: &Layer) -> Result<Header, Failure> {
        let header = read_header(layer.bytes(&self.context), self.context.arena()).await;
        header.map_err(|error| layer.failed(&error))
    }

    /// The backing images of an image, and when each was last written.
    async fn open_below(
        &self,
        top: &Layer,
        header: &Header,
    ) -> Result<(Vec<Layer>, Vec<Option<u64>>), Failure> {
        let mut seen = vec![self.real_path(top.file.path()).await?];
        let (mut layers, mut modified): (Vec<Layer>, Vec<Option<u64>>) = (Vec::new(), Vec::new());
        let (mut above, mut next) = (top.file.path().to_owned(), header.backing.clone());
        while let Some(backing) = next {
            let (named, format) = backing.file(&above).map_err(|error| unusable(&above, &error))?;
            let real = self.allowed(&above, &named).await?;
            if seen.contains(&real) || seen.len() == LAYERS_MAX {
                // A chain that leads back to itself has no end (LAYERS2).
                let message = format!("{}: the chain of backing files has no end", named.display());
                return Err(Failure::new(Code::VolumeUnusable, message));
            }
            let (layer, when) = self.open_layer(&real, format).await?;
            next = match format {
                ImageFormat::Raw => None,
                ImageFormat::Qcow2 => self.header_of(&layer).await?.backing,
            };
            self.event(
                &real.display().to_string(),
                &format!("opened as the backing file of {}", above.display()),
            );
            seen.push(real);
            layers.push(layer);
            modified.push(when);
            above = named; // What it names in turn is beside it, as QEMU has it.
        }
        Ok((layers, modified))
    }

    /// LAYERS1: where the backing file `named` of the image at `above` really is, if it may be opened.
    async fn allowed(&self, above: &Path, named: &Path) -> Result<PathBuf, Failure> {
        let real = self.real_path(named).await.map_err(|failure| match failure.code {
            Code::DiskNotFound => unusable(above, &BackingError::Missing(named.to_owned())),
            _ => failure,
        })?;
        for folder in &self.image_dirs {
            if self.real_path(folder).await.is_ok_and(|folder| real.starts_with(folder)) {
                return Ok(real);
            }
        }
        let (above, named) = (above.display(), named.display());
        let message =
            format!("{above} is backed by {named}, which is in no folder that the daemon may open images in");
        let folder = real.parent().unwrap_or(Path::new("/")).display().to_string();
        Err(Failure::new(Code::ImageNotTrusted, message).help(format!(
            "start it with varve daemon --image-dir {folder}; or varve image convert -f qcow2 -O qcow2 {above} {above}.flat"
        )))
    }

    async fn real_path(&self, path: &Path) -> Result<PathBuf, Failure> {
        let place = path.to_owned();
        let real = self.at_path(path, move |files| files.real_path(&place)).await?;
        real.map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => Code::DiskNotFound,
                _ => Code::DiskUnusable,
            };
            Failure::new(code, format!("{}: {error}", path.display()))
        })
    }

    /// Opens one file, to be written by this daemon alone.
    async fn open_layer_to_write(&self, path: &Path, format: ImageFormat) -> Result<Layer, Failure> {
        self.refuse_own_export(path).await?;
        let (place, cache) = (path.to_owned(), options(self.cache));
        let opened = self.at_path(path, move |files| files.open_image_to_write(&place, cache)).await?;
        let opened = opened.map_err(|error| failures::open(&error))?;
        Ok(Layer { file: opened.disk, tail: opened.tail, format })
    }

    /// Opens one file, so that no process writes it; when it was last written.
    async fn open_layer(&self, path: &Path, format: ImageFormat) -> Result<(Layer, Option<u64>), Failure> {
        self.refuse_own_export(path).await?;
        let options = DiskOptions { read_only: true, ..options(self.cache) };
        let place = path.to_owned();
        let opened = self.at_path(path, move |files| files.open_image(&place, options)).await?;
        let opened = opened.map_err(|error| failures::open(&error))?;
        self.watch.read_files.refuse_cut(&opened.disk)?;
        self.watch.read_files.add(&opened.disk);
        Ok((Layer { file: opened.disk, tail: opened.tail, format }, opened.modified_ns))
    }
}

fn unusable(path: &Path, why: &BackingError) -> Failure {
    Failure::new(Code::VolumeUnusable, format!("{}: {why}", path.display())).help(why.remedy(path))
}

/// Why an image is not committed.
pub(crate) fn over_nothing(path: &Path) -> Failure {
    Failure::new(Code::Usage, format!("{} has no backing image", path.display()))
        .help(format!("varve image info {}", path.display()))
}

/// The later of two dates, if both are known.
fn later(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map(|(one, other)| one.max(other))
}
