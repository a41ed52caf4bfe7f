//! Where an image is written that a command makes: a new file, or a file or block device whose content it replaces.
//!
//! Invariants:
//! - TARGET1. A file is replaced when the new one is complete and durable: until then it holds what it held. Its name is durable when the
//!   command ends.
//! - TARGET2. What is replaced is used by no other program, is not what is read, and is no physical volume.

use super::super::disks::{on_shard, unusable};
use super::chain::{new_file, open_to_write};
use crate::places::check_place;
use crate::units;
use std::fs::{OpenOptions, rename, set_permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_api::{Code, Failure};
use varve_os::{DiskFile, OpenError, sync_folder};
use varve_vg::disks::identity::label_of;

/// The least that can be locked as a disk.
const SECTOR: u64 = 512;

/// What is at the path to which an image is to be written.
pub(super) enum Target {
    /// Nothing.
    New(PathBuf),
    /// A file of so many bytes (TARGET1). It is locked, unless it is less than a sector (TARGET2).
    File { path: PathBuf, size: u64, _locked: Option<Arc<DiskFile>> },
    /// A block device, which is written in place.
    Device(PathBuf, Arc<DiskFile>),
}

impl Target {
    /// Looks at `path`, where `length` bytes are needed; nothing is changed.
    pub(super) fn at(path: &Path, length: u64) -> Result<Self, Failure> {
        let Ok(metadata) = std::fs::metadata(path) else {
            check_new(path)?;
            return Ok(Self::New(path.to_owned()));
        };
        if metadata.file_type().is_block_device() {
            let device = open_existing(path)?;
            let size = device.length();
            if size < length {
                let (path, size, length) = (path.display(), units::size(size), units::size(length));
                let message = format!("{path} has {size}, and the image may need {length}");
                return Err(Failure::new(Code::DiskTooSmall, message).help("give a larger device, or a file"));
            }
            return Ok(Self::Device(path.to_owned(), device));
        }
        let (is_small, size) = (metadata.is_file() && metadata.size() < SECTOR, metadata.size());
        let _locked = if is_small { None } else { Some(open_existing(path)?) };
        let path = std::fs::canonicalize(path).map_err(|error| unwritable(path, &error))?;
        check_folder(&path)?;
        Ok(Self::File { path, size, _locked })
    }

    /// What would be lost, as a sentence.
    pub(super) fn loss(&self) -> Option<String> {
        let (path, size) = match self {
            Self::New(_) | Self::File { size: 0, .. } => return None,
            Self::File { path, size, .. } => (path, *size),
            Self::Device(path, device) => (path, device.length()),
        };
        Some(format!("would replace what is in {}, {}", path.display(), units::size(size)))
    }

    /// The file to write, of `length` bytes at least; what is written to a device replaces what it held.
    pub(super) fn open(&self, length: u64) -> Result<Arc<DiskFile>, Failure> {
        match self {
            Self::Device(_, device) => Ok(Arc::clone(device)),
            Self::New(_) | Self::File { .. } => new_file(&self.written(), length),
        }
    }

    /// Whether it may hold anything but zeros before it is written.
    pub(super) fn is_device(&self) -> bool {
        matches!(self, Self::Device(..))
    }

    /// It is complete, and ends at `end`.
    pub(super) fn finish(&self, end: u64) -> Result<(), Failure> {
        match self {
            Self::Device(..) => Ok(()),
            Self::New(path) => {
                cut(path, end)?;
                sync_folder(path).map_err(|error| unwritable(path, &error))
            }
            Self::File { path, .. } => {
                let written = self.written();
                cut(&written, end)?;
                take_place(&written, path).map_err(|error| unwritable(path, &error))
            }
        }
    }

    /// It will not be complete.
    pub(super) fn abandon(&self) {
        if !self.is_device() {
            let _ = std::fs::remove_file(self.written());
        }
    }

    /// The file that is written.
    fn written(&self) -> PathBuf {
        match self {
            Self::New(path) | Self::Device(path, _) => path.clone(),
            Self::File { path, .. } => {
                let mut name = path.file_name().unwrap_or_default().to_owned();
                name.push(format!(".new-{}", std::process::id()));
                path.with_file_name(name)
            }
        }
    }
}

/// Lets `new` take the place of `old` (TARGET1), with its owner and permissions as far as that is allowed.
fn take_place(new: &Path, old: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(old)?;
    let _ = chown(new, Some(metadata.uid()), Some(metadata.gid()));
    set_permissions(new, metadata.permissions())?;
    rename(new, old)?;
    sync_folder(old)
}

/// Opens a file or device to be replaced, if no other program uses it and it is no physical volume (TARGET2).
fn open_existing(path: &Path) -> Result<Arc<DiskFile>, Failure> {
    let file = open_to_write(path)?;
    let looked = Arc::clone(&file);
    let label =
        on_shard(async move |context| label_of(&context.disk(&looked), &context.arena()).await.is_some())?;
    if label {
        let path = path.display();
        let message = format!("{path} is a physical volume, or was one");
        return Err(Failure::new(Code::IsPhysicalVolume, message).help(format!("varve pv scan {path}")));
    }
    Ok(file)
}

/// Refuses a path at which no new file can be made.
pub(super) fn check_new(path: &Path) -> Result<(), Failure> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Err(unusable(&OpenError::Exists(path.to_owned()))),
        Err(_) => check_folder(path),
    }
}

fn check_folder(path: &Path) -> Result<(), Failure> {
    check_place(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unusable(&OpenError::NotFound(path.to_owned())),
        io::ErrorKind::PermissionDenied => unusable(&OpenError::Permission(path.to_owned())),
        io::ErrorKind::ReadOnlyFilesystem => unusable(&OpenError::ReadOnly(path.to_owned())),
        _ => unwritable(path, &error),
    })
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::FileUnusable, format!("{} cannot be written: {error}", path.display()))
        .help("choose another path, or mend the folder's permissions")
}

/// Cuts off what an image does not need.
pub(super) fn cut(path: &Path, end: u64) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(end).and_then(|()| file.sync_all()))
        .map_err(|error| unwritable(path, &error))
}
