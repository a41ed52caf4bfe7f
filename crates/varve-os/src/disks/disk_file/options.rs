//! What a disk is made of, and which errors of opening one the errors of the system become.

use rustix::io::Errno;
use std::path::Path;
use varve_block::host::OpenError;

/// What a disk is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
}

/// The disk at `path` cannot be opened, as the system says.
pub(super) fn open_error(path: &Path, errno: Errno) -> OpenError {
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

/// Like [`open_error`], from an error of the standard library.
pub(super) fn open_error_of(path: &Path, error: std::io::Error) -> OpenError {
    match Errno::from_io_error(&error) {
        Some(errno) => open_error(path, errno),
        None => OpenError::System { path: path.to_owned(), error },
    }
}
