//! Requests on an open disk as plain system calls: without waiting where they can be, waiting in a helper thread.

use crate::disk_file::DiskFile;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use varve_block::{Allocation, Extent, IoError, StatusRun};

/// Longest request that is carried out on the shard's own thread, in bytes.
const INLINE_MAX: usize = 1 << 20;
/// Most runs in one answer about allocation, so that a ragged file does not keep a helper for long.
const RUNS_MAX: usize = 512;

/// What came of trying without waiting.
pub(crate) enum Attempt {
    /// So many bytes are done; the rest would wait.
    Partial(usize),
    /// All done.
    Done,
    /// It failed.
    Failed(Errno),
}

/// Tries to fill `buffer` from `offset` on with what is in memory.
pub(crate) fn try_read(disk: &DiskFile, offset: u64, buffer: &mut [u8]) -> Attempt {
    if !disk.nowait_read.load(Ordering::Relaxed) || buffer.len() > INLINE_MAX {
        return Attempt::Partial(0);
    }
    let flags = if disk.in_memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
    match rustix::io::preadv2(disk, &mut [IoSliceMut::new(buffer)], offset, flags) {
        Ok(count) if count == buffer.len() => Attempt::Done,
        Ok(count) => Attempt::Partial(count),
        Err(Errno::AGAIN | Errno::INTR) => Attempt::Partial(0),
        Err(Errno::OPNOTSUPP) => {
            disk.nowait_read.store(false, Ordering::Relaxed);
            Attempt::Partial(0)
        }
        Err(errno) => Attempt::Failed(errno),
    }
}

/// Tries to write `data` at `offset` into memory.
pub(crate) fn try_write(disk: &DiskFile, offset: u64, data: &[u8]) -> Attempt {
    if !disk.nowait_write.load(Ordering::Relaxed) || data.len() > INLINE_MAX {
        return Attempt::Partial(0);
    }
    let flags = if disk.in_memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
    match rustix::io::pwritev2(disk, &[IoSlice::new(data)], offset, flags) {
        Ok(count) if count == data.len() => Attempt::Done,
        Ok(count) => Attempt::Partial(count),
        Err(Errno::AGAIN | Errno::INTR) => Attempt::Partial(0),
        Err(Errno::OPNOTSUPP) => {
            disk.nowait_write.store(false, Ordering::Relaxed);
            Attempt::Partial(0)
        }
        Err(errno) => Attempt::Failed(errno),
    }
}

/// Reads, waiting; may read less.
pub(crate) fn read(disk: &DiskFile, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    retry(|| rustix::io::pread(disk, &mut *buffer, offset))
}

/// Writes, waiting; may write less.
pub(crate) fn write(disk: &DiskFile, offset: u64, data: &[u8], durable: bool) -> Result<usize, Errno> {
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    retry(|| rustix::io::pwritev2(disk, &[IoSlice::new(data)], offset, flags))
}

/// Makes all that was written durable; waits. Not repeated when it fails (F2), except when interrupted.
pub(crate) fn flush(disk: &DiskFile) -> Result<usize, Errno> {
    retry(|| rustix::fs::fdatasync(disk)).map(|()| 0)
}

/// Changes the allocation of an extent; waits.
pub(crate) fn allocate(disk: &DiskFile, mode: FallocateFlags, extent: Extent) -> Result<usize, Errno> {
    retry(|| rustix::fs::fallocate(disk, mode, extent.offset, extent.length)).map(|()| 0)
}

/// Which parts of `extent` hold data; may cover less than asked. Waits.
pub(crate) fn status(disk: &DiskFile, extent: Extent) -> Result<Vec<StatusRun>, IoError> {
    let mut runs = Vec::new();
    let mut at = extent.offset;
    while at < extent.end() && runs.len() < RUNS_MAX {
        let data = match rustix::fs::seek(disk, SeekFrom::Data(at)) {
            Ok(data) => data.min(extent.end()),
            Err(Errno::NXIO) => extent.end(),
            Err(errno) => return Err(error_of(errno)),
        };
        if data > at {
            runs.push(StatusRun { length: data - at, allocation: Allocation::Hole });
        }
        at = data;
        if at == extent.end() {
            break;
        }
        let hole = match rustix::fs::seek(disk, SeekFrom::Hole(at)) {
            Ok(hole) => hole.min(extent.end()),
            // Somebody cut the file short in between: the rest is a hole.
            Err(Errno::NXIO) => continue,
            Err(errno) => return Err(error_of(errno)),
        };
        if hole > at {
            runs.push(StatusRun { length: hole - at, allocation: Allocation::Data });
        }
        at = hole;
    }
    Ok(runs)
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// What the engine is told.
pub(crate) fn error_of(errno: Errno) -> IoError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoError::NoSpace,
        Errno::ROFS | Errno::PERM | Errno::BADF => IoError::ReadOnly,
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM => IoError::Gone,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => IoError::Unsupported,
        _ => IoError::Medium,
    }
}
