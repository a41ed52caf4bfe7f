//! Requests on an open disk as plain system calls: without waiting where they can be, waiting in a helper thread.

use crate::clock;
use crate::disks::disk_file::DiskFile;
#[cfg(test)]
use crate::disks::tap::Call;
use crate::sys;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::Duration;
use varve_block::host::CacheMode;
use varve_block::{Allocation, Extent, IoError, StatusRun};

/// Longest request that is carried out on the shard's own thread, in bytes. Longer ones are copied by kernel workers
/// while this thread moves others through its sockets: with 1 MiB requests 1.6 times the reads, twice the writes.
pub(crate) const INLINE_MAX: usize = 128 << 10;
/// Whole pages are written without being read first.
const PAGE: u64 = 4096;
/// An eager write that took longer than this has waited.
const EAGER_WAIT_MAX: Duration = Duration::from_millis(1);
/// For how long the writes after it keep off the shard's thread.
const EAGER_PAUSE: Duration = Duration::from_millis(50);
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
    match preadv2(disk, offset, buffer, flags) {
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
///
/// Where the file system cannot tell whether a write would wait, whole pages are written all the same: a copy into
/// the page cache costs half of what a hop to a kernel worker does. If one had to wait after all, because too many
/// pages are dirty or the journal is busy, the next ones go the long way for a while. Those to a file system behind which
/// a process or another machine stands always do: there a write may wait without end, and the shard with it.
pub(crate) fn try_write(disk: &DiskFile, offset: u64, data: &[u8]) -> Attempt {
    let nowait = disk.nowait_write.load(Ordering::Relaxed);
    if nowait && data.len() <= INLINE_MAX {
        let flags = if disk.in_memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
        let answer = pwritev2(disk, offset, data, flags);
        if answer == Err(Errno::OPNOTSUPP) && !disk.in_memory {
            disk.nowait_write.store(false, Ordering::Relaxed);
        } else {
            return written(answer, data.len());
        }
    }
    let pages = Extent::new(offset, data.len() as u64).is_aligned(PAGE);
    if disk.cache_mode() == CacheMode::Direct || disk.remote || !pages || data.len() > INLINE_MAX {
        return Attempt::Partial(0);
    }
    let start = clock::now();
    if start.0 < disk.eager_after.load(Ordering::Relaxed) {
        return Attempt::Partial(0);
    }
    let answer = pwritev2(disk, offset, data, ReadWriteFlags::empty());
    let end = clock::now();
    if end.since(start) > EAGER_WAIT_MAX {
        disk.eager_after.store(end.after(EAGER_PAUSE).0, Ordering::Relaxed);
    }
    written(answer, data.len())
}

fn written(answer: Result<usize, Errno>, length: usize) -> Attempt {
    match answer {
        Ok(count) if count == length => Attempt::Done,
        Ok(count) => Attempt::Partial(count),
        Err(Errno::AGAIN | Errno::INTR) => Attempt::Partial(0),
        Err(errno) => Attempt::Failed(errno),
    }
}

/// Reads, waiting; may read less.
pub(crate) fn read(disk: &DiskFile, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    retry(|| preadv2(disk, offset, buffer, ReadWriteFlags::empty()))
}

/// Writes, waiting; may write less.
pub(crate) fn write(disk: &DiskFile, offset: u64, data: &[u8], durable: bool) -> Result<usize, Errno> {
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    retry(|| pwritev2(disk, offset, data, flags))
}

/// Makes all that was written durable; waits. Not repeated when it fails (DISKFILE2), except when interrupted.
pub(crate) fn flush(disk: &DiskFile) -> Result<usize, Errno> {
    retry(|| {
        #[cfg(test)]
        disk.tap.meet(Call::Flush)?;
        rustix::fs::fdatasync(disk)
    })
    .map(|()| 0)
}

/// Changes the allocation of an extent; waits.
pub(crate) fn allocate(disk: &DiskFile, mode: FallocateFlags, extent: Extent) -> Result<usize, Errno> {
    retry(|| {
        #[cfg(test)]
        disk.tap.meet(Call::Allocate { mode: mode.bits(), extent })?;
        rustix::fs::fallocate(disk, mode, extent.offset, extent.length)
    })
    .map(|()| 0)
}

/// Discards an extent of a block device; waits.
pub(crate) fn discard(disk: &DiskFile, extent: Extent) -> Result<usize, Errno> {
    #[cfg(test)]
    disk.tap.meet(Call::Discard { extent })?;
    sys::block_device_discard(disk.file(), extent).map(|()| 0)
}

fn preadv2(disk: &DiskFile, offset: u64, buffer: &mut [u8], flags: ReadWriteFlags) -> Result<usize, Errno> {
    #[cfg(test)]
    let buffer = {
        let length = disk.tap.meet(Call::Read { offset, length: buffer.len() })?;
        &mut buffer[..length]
    };
    rustix::io::preadv2(disk, &mut [IoSliceMut::new(buffer)], offset, flags)
}

fn pwritev2(disk: &DiskFile, offset: u64, data: &[u8], flags: ReadWriteFlags) -> Result<usize, Errno> {
    #[cfg(test)]
    let data = {
        let durable = flags.contains(ReadWriteFlags::DSYNC);
        let length = disk.tap.meet(Call::Write { offset, length: data.len(), durable })?;
        &data[..length]
    };
    rustix::io::pwritev2(disk, &[IoSlice::new(data)], offset, flags)
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
            // The file was cut short in between: the rest is a hole.
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

/// The error that the engine receives.
pub(crate) fn error_of(errno: Errno) -> IoError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoError::NoSpace,
        Errno::ROFS | Errno::PERM | Errno::BADF => IoError::ReadOnly,
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM => IoError::Gone,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => IoError::Unsupported,
        _ => IoError::Medium,
    }
}
