//! Disks that are given another length: disks of groups grow only, images end where what they hold does.

use super::options::{open_error, open_error_of};
use super::{DiskFile, DiskKind, OpenError};
use crate::sys;
use std::sync::atomic::Ordering;

impl DiskFile {
    /// Makes a file larger, or takes notice that a block device has grown; the new size. Devices made before keep
    /// their shape. Never shrinks.
    pub fn grow(&self, size: u64) -> Result<u64, OpenError> {
        self.refuse_shrunk()?;
        let mut present = self.present_length()?;
        if self.kind == DiskKind::File && present < size {
            rustix::fs::ftruncate(&self.file, size).map_err(|errno| open_error(&self.path, errno))?;
            present = size;
        }
        if present < size {
            return Err(OpenError::TooSmall { path: self.path.clone(), size: present, size_min: size });
        }
        self.size.fetch_max(present, Ordering::Relaxed);
        Ok(self.size())
    }

    /// The disk ends after `bytes` from now on, however much longer its file or block device is: what is behind may be cut off, and is
    /// none of the disk's. Devices made before keep their shape. May wait if the disk is to be longer than before.
    pub fn end_at(&self, bytes: u64) -> Result<(), OpenError> {
        self.refuse_shrunk()?;
        let before = self.length();
        if bytes <= before {
            self.health.blocks.allow_cut(before - bytes);
        } else {
            let present = self.present_length()?;
            if present < bytes {
                return Err(OpenError::TooSmall { path: self.path.clone(), size: present, size_min: bytes });
            }
            self.health.blocks.allow_cut(present - bytes);
        }
        self.size.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn present_length(&self) -> Result<u64, OpenError> {
        match self.kind {
            DiskKind::File => {
                let metadata = self.file.metadata().map_err(|error| open_error_of(&self.path, error))?;
                Ok(metadata.len())
            }
            DiskKind::BlockDevice => {
                sys::block_device_size(&self.file).map_err(|errno| open_error(&self.path, errno))
            }
        }
    }

    /// Gives a file the length of `bytes`, and makes that durable; what is behind it is lost. A block device keeps its own.
    /// Devices made before keep their shape: none of them may be used behind the new end. May wait for the disk.
    pub fn set_length(&self, bytes: u64) -> Result<(), OpenError> {
        if self.kind == DiskKind::BlockDevice {
            return Ok(());
        }
        let fail = |errno| open_error(&self.path, errno);
        // First, so that the file does not count as cut short by another program.
        self.size.fetch_min(bytes, Ordering::Relaxed);
        self.health.blocks.begin_release();
        let cut = rustix::fs::ftruncate(&self.file, bytes);
        self.health.blocks.end_release();
        cut.map_err(fail)?;
        rustix::fs::fsync(&self.file).map_err(fail)?;
        self.size.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{CacheMode, DiskFile, DiskOptions};
    use varve_block::host::DiskState;

    #[test]
    fn what_lies_behind_the_end_of_a_disk_may_be_cut_off_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![7; 4 << 20]).expect("written");
        let disk = DiskFile::open(&path, DiskOptions::default()).expect("a file");
        let cut = |bytes: u64| std::fs::File::options().write(true).open(&path)?.set_len(bytes);
        let state_at = |bytes: u64| {
            cut(bytes).expect("cut");
            let _ = disk.check_length();
            disk.state()
        };
        cut(6 << 20).expect("it grows");
        disk.end_at(6 << 20).expect("there is as much");
        assert!(disk.end_at(8 << 20).is_err(), "there is less");
        disk.end_at(2 << 20).expect("there is more");
        assert_eq!((disk.size(), disk.shape().size), (2 << 20, 2 << 20));
        assert_eq!(state_at(3 << 20), DiskState::InUse);
        assert_eq!(state_at(2 << 20), DiskState::InUse);
        let shrunk = DiskState::Shrunk { expected: 2 << 20, found: 1 << 20 };
        assert_eq!(state_at(1 << 20), shrunk, "HEALTH2");
    }

    #[test]
    fn a_file_gets_the_length_that_it_is_given_and_keeps_what_it_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        std::fs::write(&path, vec![7; 8192]).expect("written");
        let options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
        let disk = DiskFile::open(&path, options).expect("a file");
        disk.set_length(1 << 20).expect("it grows");
        assert_eq!((disk.size(), disk.length()), (1 << 20, 1 << 20));
        disk.set_length(4096).expect("it is cut");
        assert_eq!((disk.size(), std::fs::read(&path).expect("there")), (4096, vec![7; 4096]));
    }
}
