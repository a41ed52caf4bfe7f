//! The files of a chain of images, opened.

use crate::chain::{Chain, Layer};
use futures_executor::block_on;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use thiserror::Error;
use varve_block::{Access, Arena, Device};
use varve_image::{ChainError, Format, HostFile, Selected, backing_of, open_chain};
use varve_os::{CacheMode, DiskFile, DiskOptions};
use varve_target::qcow2::{Image, ImageDevice, OpenError, Options, check_to_write, read_header, room};

/// Bytes of memory for requests.
const ARENA: usize = 8 << 20;

/// Why an image was not opened.
#[derive(Debug, Error)]
pub enum OpenFailure {
    /// A file was not opened, or another program uses it.
    #[error("{0}")]
    Disk(#[from] varve_os::OpenError),
    /// A file could not be read or changed.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The image cannot be used.
    #[error("{path}: {error}")]
    Image {
        /// The file.
        path: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// What is below the image cannot be used.
    #[error("{0}")]
    Backing(#[from] Box<ChainError<OpenFailure>>),
}

/// A file of the chain, held so that QEMU keeps away.
pub(crate) struct Held {
    path: PathBuf,
    lock: Arc<DiskFile>,
}

impl Held {
    fn length(&self) -> u64 {
        self.lock.length()
    }

    /// The file, opened once more: the new handle does not hold the locks.
    pub(crate) fn open_again(&self, to_write: bool) -> io::Result<File> {
        File::options().read(true).write(to_write).open(&self.path)
    }
}

/// An open chain, and the files that it consists of, in the order of its layers.
pub(crate) struct Opened {
    pub(crate) chain: Chain,
    pub(crate) files: Vec<Held>,
    /// The file of the image that is written, without what is made of it.
    pub(crate) own_file: Device,
    pub(crate) arena: Arena,
}

/// Opens the qcow2 image at `path`, and what is below it to read. Opened to read, nothing of it is changed.
pub(crate) fn open(path: &Path, cache_bytes: u64, access: Access) -> Result<Opened, OpenFailure> {
    let arena = Arena::heap(ARENA);
    let top = open_top(path, &arena, access)?;
    let length = top.length;
    let opened = open_on(path, cache_bytes, &arena, top);
    if opened.is_err() && access == Access::ReadWrite {
        // What refuses the image leaves it as long as it was.
        cut(path, length).map_err(|error| OpenFailure::Io { path: path.to_owned(), error })?;
    }
    opened
}

/// The file of the image itself, as large as the image may become.
struct Top {
    held: Held,
    device: Device,
    /// Bytes that it had before.
    length: u64,
}

/// Opens the image on its file, and what is below it.
fn open_on(path: &Path, cache_bytes: u64, arena: &Arena, top: Top) -> Result<Opened, OpenFailure> {
    let Top { held, device, length } = top;
    let top = Selected::new(path.to_owned(), Format::Qcow2);
    let mut files = vec![held];
    let below = {
        let mut open = |path: &Path| {
            let (held, device) = open_below(path)?;
            let length = held.length();
            files.push(held);
            Ok((device, length))
        };
        let below = block_on(backing_of::<OpenFailure>(arena, &top, &device)).map_err(Box::new)?;
        match below {
            Some(below) => block_on(open_chain(&mut open, arena, below)).map_err(Box::new)?,
            None => Vec::new(),
        }
    };
    let options = Options {
        access: device.shape().access,
        backing: below.first().map(|layer| layer.device.clone()),
        cache_bytes,
        file_end: Some(length),
        ..Options::default()
    };
    let image = block_on(Image::open(device.clone(), arena.clone(), options));
    let image = Rc::new(image.map_err(|error| OpenFailure::Image { path: path.to_owned(), error })?);
    let (own_file, device) = (device, Device::new(ImageDevice::new(Rc::clone(&image))));
    let own = Layer { image: Some(Rc::clone(&image)), size: image.size(), number: 0 };
    let layers = (1..).zip(below).map(|(number, layer)| Layer {
        size: layer.device.shape().size,
        image: layer.image,
        number,
    });
    let layers = std::iter::once(own).chain(layers).collect();
    Ok(Opened { chain: Chain { image, device, layers }, files, own_file, arena: arena.clone() })
}

/// The file of the image; to write, it is made as large as the image may become.
fn open_top(path: &Path, arena: &Arena, access: Access) -> Result<Top, OpenFailure> {
    let failed = |error| OpenFailure::Io { path: path.to_owned(), error };
    // Opened to read, it leaves the engine a share of the file; QEMU, and others of this kind, are kept away by its locks.
    let lock = DiskFile::open(path, to_read())?;
    lock.keep_for_writing()?;
    let to_write = access == Access::ReadWrite;
    let file = Rc::new(File::options().read(true).write(to_write).open(path).map_err(failed)?);
    let length = file.metadata().map_err(failed)?.len();
    let as_it_is = Device::new(HostFile::new(Rc::clone(&file), length, Access::ReadOnly));
    let header = block_on(read_header(as_it_is.clone(), arena.clone()));
    let header = header.map_err(|error| OpenFailure::Image { path: path.to_owned(), error })?;
    let mut size = length;
    if to_write {
        let checked = block_on(check_to_write(as_it_is, arena.clone(), length));
        checked.map_err(|error| OpenFailure::Image { path: path.to_owned(), error })?;
        size = room(&header, length);
        file.set_len(size).map_err(failed)?;
    }
    let device = Device::new(HostFile::new(file, size, access));
    Ok(Top { held: Held { path: path.to_owned(), lock }, device, length })
}

fn to_read() -> DiskOptions {
    DiskOptions { read_only: true, cache: CacheMode::Buffered, ..DiskOptions::default() }
}

fn open_below(path: &Path) -> Result<(Held, Device), OpenFailure> {
    let failed = |error| OpenFailure::Io { path: path.to_owned(), error };
    let lock = DiskFile::open(path, to_read())?;
    lock.keep_unwritten()?;
    let file = Rc::new(File::open(path).map_err(failed)?);
    let device = Device::new(HostFile::new(file, lock.length(), Access::ReadOnly));
    Ok((Held { path: path.to_owned(), lock }, device))
}

/// Closes an image; its file is as long as it has to be.
pub(crate) fn close(path: &Path, image: &Image) -> io::Result<()> {
    block_on(image.close()).map_err(io::Error::other)?;
    let end = block_on(image.end()).map_err(io::Error::other)?;
    cut(path, end)
}

/// Cuts off what the image at `path` does not need.
fn cut(path: &Path, end: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(end)?;
    file.sync_all()
}
