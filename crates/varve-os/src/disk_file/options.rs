//! How a disk is opened, and why it may not be.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Whether requests go through the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// They bypass it (`O_DIRECT`).
    #[default]
    Direct,
    /// They go through it.
    Buffered,
}

/// What a disk is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
}

/// How a disk is to be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskOptions {
    /// The cache mode wanted; direct falls back to buffered where the file system refuses it.
    pub cache: CacheMode,
    /// Never write.
    pub read_only: bool,
    /// Take no lock: for looking at disks that somebody else may hold. Implies `read_only`.
    pub unlocked: bool,
    /// Make a sparse file of this many bytes; it must not exist yet.
    pub create_size: Option<u64>,
    /// Refuse a smaller disk.
    pub size_min: u64,
}

impl DiskOptions {
    /// To look at a disk without claiming it.
    pub fn probe() -> Self {
        Self { read_only: true, unlocked: true, ..Self::default() }
    }

    /// To create a sparse file of `size` bytes and use it.
    pub fn create(size: u64) -> Self {
        Self { create_size: Some(size), ..Self::default() }
    }
}

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing at that path.
    #[error("{0}: there is no such file or device; check the path")]
    NotFound(PathBuf),
    /// The file to be created is there already.
    #[error("{0}: the file exists already; choose another name, or leave out the size to use it as it is")]
    Exists(PathBuf),
    /// The process may not.
    #[error("{0}: permission denied; run as a user who may read and write it")]
    Permission(PathBuf),
    /// Somebody else uses it.
    #[error(
        "{0}: the disk is in use; stop the other daemon, unmount its file system, or remove it from the volume group or array that holds it"
    )]
    InUse(PathBuf),
    /// It lies on a read-only medium.
    #[error("{0}: the disk is read-only; open it read-only or make it writable")]
    ReadOnly(PathBuf),
    /// It is neither a regular file nor a block device.
    #[error("{0}: not a disk; give a regular file or a block device")]
    NotADisk(PathBuf),
    /// It holds less than is needed.
    #[error("{path}: the disk has {size} bytes, at least {size_min} are needed; use a larger one")]
    TooSmall {
        /// Which.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// What is needed, in bytes.
        size_min: u64,
    },
    /// There is no room for it.
    #[error("{0}: no space left on the file system; free some, or ask for less")]
    NoSpace(PathBuf),
    /// Anything else that the system says.
    #[error("{path}: {error}")]
    System {
        /// Which.
        path: PathBuf,
        /// What it says.
        error: std::io::Error,
    },
}

impl OpenError {
    pub(super) fn new(path: &Path, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM | Errno::NOTDIR => {
                OpenError::NotFound(path)
            }
            Errno::EXIST => OpenError::Exists(path),
            Errno::ACCESS | Errno::PERM => OpenError::Permission(path),
            Errno::BUSY | Errno::WOULDBLOCK | Errno::TXTBSY => OpenError::InUse(path),
            Errno::ROFS => OpenError::ReadOnly(path),
            Errno::ISDIR => OpenError::NotADisk(path),
            Errno::NOSPC | Errno::FBIG | Errno::DQUOT => OpenError::NoSpace(path),
            errno => OpenError::System { path, error: errno.into() },
        }
    }

    pub(super) fn from_io(path: &Path, error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::new(path, errno),
            None => OpenError::System { path: path.to_owned(), error },
        }
    }
}
