//! What is asked of a file that is to be read as an image and must not change: that QEMU does not write it, when it was
//! written, and its ragged end.

use super::options::{open_error, open_error_of};
use super::{CacheMode, DiskFile, DiskKind, OpenError};
use crate::sys;
use rustix::io::Errno;
use std::time::UNIX_EPOCH;
use varve_block::Arena;

/// QEMU announces its use of a file by locks on single bytes: on 100 + N what it does, and on 200 + N what no other program
/// may do. It heeds the locks of others.
const DOES: i64 = 100;
const SUFFERS_NOT: i64 = 200;
/// N of writing, and of giving the file another size.
const CHANGES: [i64; 2] = [1, 3];

impl DiskFile {
    /// Sees to it that no QEMU writes the file as long as this handle lives, and that none does now. Where there are no such
    /// locks it is left at that.
    pub fn keep_unwritten(&self) -> Result<(), OpenError> {
        self.agree_with_qemu(&[SUFFERS_NOT], &[DOES])
    }

    /// Sees to it that no QEMU uses the file as long as this handle, which writes it, lives, and that none does now, but for
    /// those that do not mind. Where there are no such locks it is left at that.
    pub fn keep_for_writing(&self) -> Result<(), OpenError> {
        self.agree_with_qemu(&[DOES, SUFFERS_NOT], &[DOES, SUFFERS_NOT])
    }

    fn agree_with_qemu(&self, told: &[i64], asked: &[i64]) -> Result<(), OpenError> {
        match self.refuse_others(told, asked) {
            Ok(false) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
            Ok(true) => Err(OpenError::InUse(self.path.clone())),
            Err(errno) => Err(open_error(&self.path, errno)),
        }
    }

    /// Locks the bytes of `told`, then returns whether another program has locked one of `asked`. The locks come first, so
    /// that a program that comes meanwhile finds them.
    fn refuse_others(&self, told: &[i64], asked: &[i64]) -> Result<bool, Errno> {
        let bytes =
            |of: &[i64]| -> Vec<i64> { of.iter().flat_map(|base| CHANGES.map(|at| base + at)).collect() };
        bytes(told).into_iter().try_for_each(|byte| sys::lock_byte(&self.file, byte))?;
        for byte in bytes(asked) {
            if sys::is_byte_locked(&self.file, byte)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// When the file was last written, in nanoseconds since 1970; unknown for a block device.
    pub fn modified_ns(&self) -> Result<Option<u64>, OpenError> {
        if self.kind == DiskKind::BlockDevice {
            return Ok(None);
        }
        let modified = self.file.metadata().and_then(|metadata| metadata.modified());
        let modified = modified.map_err(|error| open_error_of(&self.path, error))?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Some(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The bytes behind the last whole sector; requests never reach them. May wait for the disk.
    pub fn tail(&self) -> Result<Vec<u8>, OpenError> {
        let wanted = usize::try_from(self.length() - self.size()).expect("a sector fits in memory");
        if wanted == 0 {
            return Ok(Vec::new());
        }
        // Direct reads take whole sectors into aligned memory, and end at the end of the file.
        let room = match self.cache {
            CacheMode::Direct => self.sector_logical as usize,
            CacheMode::Buffered => wanted,
        };
        let mut sector = Arena::heap(0).take(room);
        let read = rustix::io::pread(&self.file, &mut sector[..room], self.size());
        let read = read.map_err(|errno| open_error(&self.path, errno))?;
        if read < wanted {
            return Err(open_error(&self.path, Errno::IO));
        }
        Ok(sector[..wanted].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::{DOES, SUFFERS_NOT};
    use crate::{CacheMode, DiskFile, DiskOptions, OpenError, sys};

    #[test]
    fn who_writes_as_qemu_does_is_seen_and_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        std::fs::write(&path, [1; 8192]).expect("written");
        let open = || {
            let disk = DiskFile::open(&path, DiskOptions { read_only: true, ..DiskOptions::default() });
            disk.expect("a file")
        };
        let (one, two) = (open(), open());
        let other = std::fs::File::options().read(true).write(true).open(&path).expect("a file");
        let is_told = || sys::is_byte_locked(&other, SUFFERS_NOT + 1).expect("locks are known here");
        assert!(!is_told());
        one.keep_unwritten().expect("nobody writes");
        two.keep_unwritten().expect("readers are not in each other's way");
        assert!(is_told());
        drop(one);
        assert!(is_told());
        drop(two);
        assert!(!is_told());
        sys::lock_byte(&other, DOES + 1).expect("free");
        assert!(matches!(open().keep_unwritten(), Err(OpenError::InUse(_))));
    }

    #[test]
    fn a_writer_keeps_qemu_out_and_is_kept_out_by_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 1 << 20]).expect("written");
        let writer = DiskFile::open(&path, DiskOptions::default()).expect("a file");
        writer.keep_for_writing().expect("nobody is there");
        let other = std::fs::File::options().read(true).write(true).open(&path).expect("a file");
        for byte in [DOES + 1, SUFFERS_NOT + 1, SUFFERS_NOT + 3] {
            assert!(sys::is_byte_locked(&other, byte).expect("locks are known here"), "{byte}");
        }
        drop(writer);
        sys::lock_byte(&other, SUFFERS_NOT + 1).expect("free");
        let writer = DiskFile::open(&path, DiskOptions::default()).expect("a file");
        assert!(matches!(writer.keep_for_writing(), Err(OpenError::InUse(_))), "a reader minds");
    }

    #[test]
    fn a_file_that_is_opened_to_be_written_was_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        std::fs::write(&path, [1; 8192]).expect("written");
        let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(5);
        std::fs::File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(past))
            .expect("set");
        let disk = DiskFile::open(&path, DiskOptions::default()).expect("a file");
        assert_eq!(disk.modified_ns().expect("known"), Some(5_000_000_000));
    }

    #[test]
    fn the_end_behind_the_last_sector_is_read_and_a_write_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let content: Vec<u8> = (0..10_001_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).expect("written");
        for cache in [CacheMode::Direct, CacheMode::Buffered] {
            let options = DiskOptions { cache, read_only: true, ..DiskOptions::default() };
            let disk = DiskFile::open(&path, options).expect("a file");
            assert_eq!(disk.length(), 10_001);
            let whole = usize::try_from(disk.size()).expect("small");
            assert_eq!(disk.tail().expect("readable"), &content[whole..], "{cache:?}");
            let before = disk.modified_ns().expect("known");
            assert!(before.is_some());
            let file = std::fs::File::options().append(true).open(&path).expect("a file");
            let later = std::time::UNIX_EPOCH + std::time::Duration::from_secs(5);
            file.set_modified(later).expect("set");
            assert_eq!(disk.modified_ns().expect("known"), Some(5_000_000_000));
        }
    }
}
