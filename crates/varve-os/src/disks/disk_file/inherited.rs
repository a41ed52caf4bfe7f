//! Descriptors by which an earlier process had a disk open: used on, so that no other program gets the disk in between.
//!
//! Invariant INHERITED1: a lock belongs to the open file and not to the process: the disk stays locked as long as one of them has the descriptor.

use super::{CacheMode, DiskOptions};
use rustix::fs::OFlags;
use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use varve_block::host::FileIdentity;

/// What tells the disk that was `found` from others: a block device has several files.
pub fn disk_identity(found: &Metadata) -> FileIdentity {
    match found.file_type().is_block_device() {
        true => FileIdentity { device: 0, inode: found.rdev() },
        false => FileIdentity { device: found.dev(), inode: found.ino() },
    }
}

/// The open file, as `options` want the disk at `path`; none if that is another one, or is to be used otherwise.
pub(super) fn usable(descriptor: OwnedFd, path: &Path, options: DiskOptions) -> Option<(File, CacheMode)> {
    let file = File::from(descriptor);
    let found = std::fs::metadata(path).ok()?;
    if disk_identity(&file.metadata().ok()?) != disk_identity(&found) || options.unlocked {
        return None;
    }
    let flags = rustix::fs::fcntl_getfl(&file).ok()?;
    let wanted = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if flags & OFlags::ACCMODE != wanted {
        return None;
    }
    let set = |flags| rustix::fs::fcntl_setfl(&file, flags).is_ok();
    if options.cache == CacheMode::Direct && set(flags | OFlags::DIRECT) {
        return Some((file, CacheMode::Direct));
    }
    set(flags - OFlags::DIRECT).then_some((file, CacheMode::Buffered))
}

#[cfg(test)]
mod tests {
    use super::super::DiskFile;
    use super::*;
    use varve_block::host::OpenError;

    #[test]
    fn the_lock_goes_on_with_a_descriptor_and_another_file_is_opened_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("disk"), folder.path().join("other"));
        for path in [&path, &other] {
            File::create_new(path).and_then(|file| file.set_len(1 << 20)).expect("a writable folder");
        }
        let open = |held| DiskFile::open_with(&path, DiskOptions::default(), held);
        let first = open(None).expect("free");
        let held = first.descriptor().expect("a descriptor");
        drop(first);
        let refused = open(None).map(drop);
        assert!(matches!(refused, Err(OpenError::InUse(_))), "INHERITED1: {refused:?}");
        let second = open(Some(held)).expect("INHERITED1");
        assert!(open(None).is_err(), "INHERITED1: it is locked by the descriptor that was passed");
        let of_other = DiskFile::open(&other, DiskOptions::default()).expect("free");
        let passed = of_other.descriptor().expect("a descriptor");
        drop(second);
        let third = open(Some(passed)).expect("free: it is opened by its path");
        assert_eq!(third.size(), 1 << 20);
        drop(of_other);
        DiskFile::open(&other, DiskOptions::default()).expect("what was passed for another path is closed");
        let reads = DiskOptions { read_only: true, ..DiskOptions::default() };
        let held = third.descriptor().expect("a descriptor");
        let refused = DiskFile::open_with(&path, reads, Some(held)).map(drop);
        assert!(matches!(refused, Err(OpenError::InUse(_))), "for writing only: {refused:?}");
    }
}
