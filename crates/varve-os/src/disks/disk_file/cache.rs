//! What the page cache holds of a disk that is opened: it is made to agree with the disk.
//!
//! Invariant CACHE1: what is read through a new handle is on the disk. A page of which the writing failed stays in memory,
//! marked clean, and shows what the disk does not hold; so all pages are dropped before a buffered disk is used.

use super::options::DiskKind;
use crate::sys;
use rustix::fs::Advice;
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// Writes back and drops all cached pages of a disk (CACHE1); waits.
pub(super) fn drop_cached(file: &File, path: &Path, kind: DiskKind) -> Result<(), Errno> {
    if let Err(errno) = rustix::fs::fdatasync(file) {
        // It may be the report of a failure of before, which is made once; the pages of that are clean.
        tracing::warn!(
            path = %path.display(), %errno,
            "what was written to the disk before it was opened is lost in part"
        );
        rustix::fs::fdatasync(file)?;
    }
    if kind == DiskKind::BlockDevice {
        // Needs CAP_SYS_ADMIN; the advice below does nearly the same without it.
        let _ = sys::block_device_drop_cache(file);
    }
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
}
