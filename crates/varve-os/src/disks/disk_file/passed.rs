//! Files that other programs have opened and passed here.
//!
//! Invariants:
//! - PASSED1. A file that was passed is read and written with no more rights than the program had that passed it.
//! - PASSED2. A file that is in use as a disk is refused: passed files are locked shared, disks exclusively. Several programs may
//!   pass one file.

use super::options::{open_error, open_error_of};
use super::{CacheMode, DiskFile, DiskKind, DiskOptions, OpenError};
use crate::folder::descriptor_path;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl DiskFile {
    /// The disk on a file or block device that another program has opened; may wait. Its content, and other writers of it, are
    /// that program's affair.
    pub fn passed(descriptor: OwnedFd, cache: CacheMode) -> Result<Arc<Self>, OpenError> {
        let file = File::from(descriptor);
        let own_path = descriptor_path(&file);
        let path = std::fs::read_link(&own_path).unwrap_or_else(|_| PathBuf::from("a passed file"));
        let fail = |errno| open_error(&path, errno);
        let kind = kind_of(&file, &path)?;
        let flags = rustix::fs::fcntl_getfl(&file).map_err(fail)?;
        let mode = flags & OFlags::ACCMODE;
        if flags.intersects(OFlags::APPEND | OFlags::PATH) || mode == OFlags::WRONLY {
            return Err(OpenError::Permission(path));
        }
        let read_only = mode == OFlags::RDONLY;
        if kind == DiskKind::BlockDevice && is_claimed(&own_path) {
            return Err(OpenError::InUse(path));
        }
        let (file, cache) = opened_again(&own_path, read_only, cache).unwrap_or((file, CacheMode::Buffered));
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).map_err(fail)?; // PASSED2
        let options = DiskOptions { cache, read_only, ..DiskOptions::default() };
        Self::examine(file, &path, kind, cache, options).map(Arc::new).map_err(fail)
    }
}

fn kind_of(file: &File, path: &Path) -> Result<DiskKind, OpenError> {
    let metadata = file.metadata().map_err(|error| open_error_of(path, error))?;
    if metadata.file_type().is_block_device() {
        Ok(DiskKind::BlockDevice)
    } else if metadata.is_file() {
        Ok(DiskKind::File)
    } else {
        Err(OpenError::NotADisk(path.to_owned()))
    }
}

/// Whether another user, such as a mounted file system or another group, has claimed the block device exclusively.
fn is_claimed(own_path: &Path) -> bool {
    let flags = libc::O_EXCL | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(own_path);
    opened.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY))
}

/// The file with flags of our own, which the program that passed it does not see (PASSED1); none if it cannot be opened again.
fn opened_again(own_path: &Path, read_only: bool, cache: CacheMode) -> Option<(File, CacheMode)> {
    let open = |direct: i32| {
        let flags = direct | libc::O_NONBLOCK;
        OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(own_path).ok()
    };
    let direct = || open(libc::O_DIRECT).map(|file| (file, CacheMode::Direct));
    let buffered = || open(0).map(|file| (file, CacheMode::Buffered));
    match cache {
        CacheMode::Direct => direct().or_else(buffered),
        CacheMode::Buffered => buffered(),
    }
}
