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
        let fail = |errno| open_error(&self.path, errno);
        let present = match self.kind {
            DiskKind::File => {
                let length = self.file.metadata().map_err(|error| open_error_of(&self.path, error))?.len();
                if length < size {
                    rustix::fs::ftruncate(&self.file, size).map_err(fail)?;
                }
                length.max(size)
            }
            DiskKind::BlockDevice => sys::block_device_size(&self.file).map_err(fail)?,
        };
        if present < size {
            return Err(OpenError::TooSmall { path: self.path.clone(), size: present, size_min: size });
        }
        self.size.fetch_max(present, Ordering::Relaxed);
        Ok(self.size())
    }

    /// Gives a file the length of `bytes`, and makes that durable; what lies behind it is lost. A block device keeps its own.
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
