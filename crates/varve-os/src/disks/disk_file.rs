//! A regular file or block device, opened so that no other user has it as a disk, with what it can do.
//!
//! Invariants:
//! - DISKFILE1. At most one `DiskFile` in the world may write a disk: `flock` on all, `O_EXCL` on block devices as well. Files that other
//!   programs pass are none of these disks (PASSED2 of `passed.rs`).
//! - DISKFILE2. A disk of which a flush or a durable write failed once is poisoned: it is never written or flushed again through
//!   this handle, because the kernel reports a lost write once only, and a later flush would say that all is well.

mod allocation;
mod answers;
mod blocks;
mod cache;
mod health;
mod inherited;
mod length;
mod marks;
mod options;
mod passed;
mod state;
mod unchanging;

pub use inherited::disk_identity;
pub use options::DiskKind;

use crate::clock;
use crate::disks::flushes::Flushes;
use crate::disks::medium::medium_of;
use crate::disks::syncs::Syncs;
use crate::sys;
use allocation::AllocationPace;
pub(crate) use answers::Answered;
use answers::Answers;
use blocks::Blocks;
use health::Health;
use marks::{Change, Marks};
use options::{open_error, open_error_of};
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, StatxFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use varve_block::host::{
    CacheMode, DiskCounters, DiskMark, DiskOptions, DiskPlacement, DiskState, MediumExtent, OpenError,
};
use varve_block::{Access, Extent, Shape};

/// `f_type` of a file system that lives in memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// That of ext2, ext3 and ext4.
const EXT_MAGIC: u64 = 0xef53;
/// Those of file systems behind which stands a process or another machine: FUSE, NFS, CIFS, SMB2, 9P, Ceph.
const REMOTE_MAGICS: [u64; 6] = [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400];
/// Sector size assumed when the kernel does not tell the alignment of direct I/O.
const SECTOR_ASSUMED: u32 = 4096;

/// An open disk. Shards make devices of it; the lock is held until the last handle is dropped.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    path: PathBuf,
    medium: MediumExtent,
    kind: DiskKind,
    cache: CacheMode,
    access: Access,
    size: AtomicU64,
    sector_logical: u32,
    sector_physical: u32,
    /// Memory for direct I/O must be aligned to this.
    pub(crate) memory_alignment: usize,
    /// Lives in memory: no request waits for a device.
    pub(crate) in_memory: bool,
    /// A process or another machine stands behind its file system: any system call on it may wait without end.
    pub(crate) remote: bool,
    /// Its file system counts space as BLOCKS1 of `blocks.rs` has it.
    counts_exactly: bool,
    discard: bool,
    fast_zero: bool,
    /// Reads can be tried without waiting.
    pub(crate) nowait_read: AtomicBool,
    /// Writes can be tried without waiting.
    pub(crate) nowait_write: AtomicBool,
    /// The kernel can zero a range while keeping its space.
    pub(crate) zero_range: AtomicBool,
    pub(crate) allocation_pace: AllocationPace,
    /// Until then buffered writes keep off the shard's thread, because one had to wait (see `attempt.rs`).
    pub(crate) eager_after: AtomicU64,
    pub(crate) flushes: Flushes,
    pub(crate) syncs: Syncs,
    pub(crate) answers: Answers,
    health: Health,
    marks: Marks,
    #[cfg(test)]
    pub(crate) tap: crate::disks::tap::Tap,
}

impl DiskFile {
    /// Opens, or creates, the disk at `path`; may wait. This is also the way back for a disk that is out of use, once all
    /// handles to it are dropped and the cause is gone: what is read then is what the disk holds.
    pub fn open(path: impl AsRef<Path>, options: DiskOptions) -> Result<Arc<Self>, OpenError> {
        Self::open_with(path, options, None)
    }

    /// Like [`DiskFile::open`]; `inherited` is a descriptor by which another process had what is at the path as a disk: its lock goes on
    /// with it. One of another file or for other uses is closed.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: DiskOptions,
        inherited: Option<OwnedFd>,
    ) -> Result<Arc<Self>, OpenError> {
        let path = path.as_ref();
        let options = DiskOptions { read_only: options.read_only || options.unlocked, ..options };
        let kind = match options.create_size {
            Some(size) => create_sparse(path, size).map(|()| DiskKind::File)?,
            None => kind_of(path)?,
        };
        let usable = inherited.and_then(|descriptor| inherited::usable(descriptor, path, options));
        let (file, cache) = usable.map_or_else(|| open_file(path, kind, options), Ok)?;
        let fail = |errno| open_error(path, errno);
        lock(&file, options).map_err(fail)?;
        let disk = Self::examine(file, path, kind, cache, options).map_err(fail)?;
        if disk.cache == CacheMode::Buffered && !disk.in_memory && !options.unlocked {
            cache::drop_cached(&disk.file, path, kind).map_err(fail)?;
        }
        if kind == DiskKind::BlockDevice && disk.access == Access::ReadOnly && !options.read_only {
            return Err(OpenError::ReadOnly(path.to_owned()));
        }
        let (size, size_min) = (disk.size(), options.size_min.max(u64::from(disk.sector_logical)));
        if size < size_min {
            return Err(OpenError::TooSmall { path: path.to_owned(), size: disk.length(), size_min });
        }
        if disk.counts_exactly && disk.access == Access::ReadWrite {
            disk.health.blocks.watch();
        }
        Ok(Arc::new(disk))
    }

    /// Finds out what the opened file is like.
    fn examine(
        file: File,
        path: &Path,
        kind: DiskKind,
        cache: CacheMode,
        options: DiskOptions,
    ) -> Result<Self, Errno> {
        let magic = if kind == DiskKind::File { file_system(&file) } else { None };
        let in_memory = magic == Some(TMPFS_MAGIC);
        let cache = if in_memory { CacheMode::Buffered } else { cache };
        let limits = Limits::of(&file, kind)?;
        let read_only =
            options.read_only || (kind == DiskKind::BlockDevice && sys::block_device_read_only(&file)?);
        if cache != options.cache {
            tracing::warn!(path = %path.display(), "direct I/O is refused here: the disk is used buffered");
        }
        let metadata = file.metadata().map_err(|error| errno_of(&error))?;
        let size = match kind {
            DiskKind::File => metadata.len(),
            DiskKind::BlockDevice => sys::block_device_size(&file)?,
        };
        let can_punch = !read_only && can_punch(&file, kind, size);
        Ok(Self {
            path: path.to_owned(),
            medium: medium_of(&metadata),
            kind,
            cache,
            access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
            size: AtomicU64::new(size),
            sector_logical: limits.logical,
            sector_physical: limits.physical,
            memory_alignment: limits.memory,
            in_memory,
            remote: magic.is_some_and(|magic| REMOTE_MAGICS.contains(&magic)),
            // What a buffered file is to take is counted before it has its place, in a way of each file system's own.
            counts_exactly: in_memory || magic == Some(EXT_MAGIC) && cache == CacheMode::Direct,
            discard: can_punch,
            fast_zero: can_punch,
            nowait_read: AtomicBool::new(cache == CacheMode::Buffered),
            nowait_write: AtomicBool::new(cache == CacheMode::Buffered),
            zero_range: AtomicBool::new(true),
            allocation_pace: AllocationPace::default(),
            eager_after: AtomicU64::new(0),
            flushes: Flushes::default(),
            syncs: Syncs::default(),
            answers: Answers::default(),
            health: Health::default(),
            marks: Marks::new(size),
            #[cfg(test)]
            tap: crate::disks::tap::Tap::default(),
            file,
        })
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which bytes it consists of.
    pub fn medium(&self) -> MediumExtent {
        self.medium
    }

    /// File or block device.
    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    /// The cache mode really in use, which may not be the one asked for.
    pub fn cache_mode(&self) -> CacheMode {
        self.cache
    }

    /// Bytes, whole sectors only.
    pub fn size(&self) -> u64 {
        let size = self.size.load(Ordering::Relaxed);
        size - size % u64::from(self.sector_logical)
    }

    /// Bytes, those behind the last whole sector included.
    pub fn length(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Smallest unit of the medium, in bytes.
    pub fn sector_logical(&self) -> u32 {
        self.sector_logical
    }

    /// Unit in bytes below which the medium reads before it writes.
    pub fn sector_physical(&self) -> u32 {
        self.sector_physical
    }

    /// What a device made of it is like now.
    pub fn shape(&self) -> Shape {
        let block_size = match self.cache {
            CacheMode::Direct => self.sector_logical,
            CacheMode::Buffered => 1,
        };
        Shape {
            optimal_size: self.sector_physical.max(block_size),
            access: self.access,
            discard: self.discard,
            fast_zero: self.fast_zero,
            ..Shape::new(self.size(), block_size)
        }
    }

    /// For how long it has had operations under way and answered none; zero if none is under way.
    pub fn silence(&self) -> Duration {
        self.answers.silence(clock::tick())
    }

    /// Whether operations are under way of which the answer is awaited no more. Each runs to its end, and may change the
    /// disk until then.
    pub fn has_abandoned(&self) -> bool {
        self.answers.abandoned.load(Ordering::Acquire) > 0
    }

    /// A disk on a file that need not be one, to test what cannot be provoked on a good disk.
    #[cfg(test)]
    pub(crate) fn pretend(file: File, size: u64, kind: DiskKind) -> Arc<Self> {
        let options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
        let disk = Self::examine(file, Path::new("pretended"), DiskKind::File, CacheMode::Buffered, options);
        let mut disk = disk.expect("examined");
        disk.in_memory = false;
        disk.kind = kind;
        disk.size.store(size, Ordering::Relaxed);
        Arc::new(disk)
    }

    /// Whether its space is watched.
    #[cfg(test)]
    pub(crate) fn counts_exactly(&self) -> bool {
        self.counts_exactly
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What it is known to hold (MARKS1 of `marks.rs`); whoever has it open next can look whether it does.
    pub fn marks(&self) -> Vec<DiskMark> {
        self.marks.known()
    }

    /// It was found to hold these, and nothing has written it since it was opened.
    pub fn adopt_marks(&self, marks: &[DiskMark]) {
        self.marks.adopt(marks);
    }

    /// Whether `path` leads to it; may wait for the file system. That it became shorter is noticed, too.
    fn placement(&self, path: &Path) -> DiskPlacement {
        let _ = if self.remote { self.check_length_of_remote() } else { self.check_length() };
        let Ok(own) = self.file.metadata() else { return DiskPlacement::AtPath };
        if self.kind == DiskKind::File && own.nlink() == 0 {
            return DiskPlacement::Deleted;
        }
        match std::fs::metadata(path) {
            Ok(found) if disk_identity(&found) == disk_identity(&own) => DiskPlacement::AtPath,
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => DiskPlacement::AtPath,
            _ => DiskPlacement::Elsewhere,
        }
    }

    /// A descriptor for another process to go on with: the lock travels with it.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// A change of `extent` begins.
    pub(crate) fn begin_change(&self, extent: Extent) -> Change<'_> {
        self.marks.begin(extent)
    }

    /// A write that has ended wrote `data`.
    pub(crate) fn end_write(&self, change: Change<'_>, data: &[u8], is_durable: bool) {
        change.wrote(data, self.sector_logical as usize, is_durable);
    }

    /// A flush begins, or has succeeded.
    pub(crate) fn note_flush(&self, has_ended: bool) {
        if has_ended { self.marks.end_flush() } else { self.marks.begin_flush() }
    }

    /// What is known of the space that it takes.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.health.blocks
    }
}

impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for DiskFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Sector sizes and alignments, in bytes.
struct Limits {
    logical: u32,
    physical: u32,
    memory: usize,
}

impl Limits {
    fn of(file: &File, kind: DiskKind) -> Result<Self, Errno> {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, flags)?;
        let told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align > 0;
        let memory = if told { stat.stx_dio_mem_align as usize } else { SECTOR_ASSUMED as usize };
        let (logical, physical) = match kind {
            DiskKind::BlockDevice => {
                (rustix::fs::ioctl_blksszget(file)?, rustix::fs::ioctl_blkpbszget(file)?)
            }
            DiskKind::File => {
                let logical = if told { stat.stx_dio_offset_align } else { SECTOR_ASSUMED };
                (logical, stat.stx_blksize.clamp(512, 64 << 10))
            }
        };
        if !logical.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        let physical = if physical.is_power_of_two() { physical.max(logical) } else { logical };
        Ok(Self { logical, physical, memory: memory.max(1) })
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn create_sparse(path: &Path, size: u64) -> Result<(), OpenError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|error| open_error_of(path, error))?;
    rustix::fs::ftruncate(&file, size).map_err(|errno| {
        let _ = std::fs::remove_file(path);
        open_error(path, errno)
    })
}

fn kind_of(path: &Path) -> Result<DiskKind, OpenError> {
    let metadata = std::fs::metadata(path).map_err(|error| open_error_of(path, error))?;
    if metadata.file_type().is_block_device() {
        Ok(DiskKind::BlockDevice)
    } else if metadata.is_file() {
        Ok(DiskKind::File)
    } else {
        Err(OpenError::NotADisk(path.to_owned()))
    }
}

/// Opens with `O_DIRECT` if wanted and possible.
fn open_file(path: &Path, kind: DiskKind, options: DiskOptions) -> Result<(File, CacheMode), OpenError> {
    let exclusive = kind == DiskKind::BlockDevice && !options.read_only;
    let exclusive = if exclusive { libc::O_EXCL } else { 0 };
    let open = |direct: i32| {
        OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .custom_flags(exclusive | direct | libc::O_NONBLOCK)
            .open(path)
    };
    if options.cache == CacheMode::Direct {
        match open(libc::O_DIRECT) {
            Ok(file) => return Ok((file, CacheMode::Direct)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(open_error_of(path, error)),
        }
    }
    let file = open(0).map_err(|error| open_error_of(path, error))?;
    Ok((file, CacheMode::Buffered))
}

/// DISKFILE1: writers take an exclusive lock, readers a shared one, and unlocked disks none.
fn lock(file: &File, options: DiskOptions) -> Result<(), Errno> {
    if options.unlocked {
        return Ok(());
    }
    let operation = match options.read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(file, operation)
}

/// The magic number of the file system that a file is on.
fn file_system(file: &File) -> Option<u64> {
    // The type of the magic number differs between machines; its value fits in 32 bits everywhere.
    rustix::fs::fstatfs(file).ok().and_then(|stat| u64::try_from(stat.f_type).ok())
}

/// Whether space can be given back, and zeros written without moving data.
fn can_punch(file: &File, kind: DiskKind, size: u64) -> bool {
    match kind {
        // Beyond the end of a file there is nothing to lose; but its modification time changes, and is restored.
        DiskKind::File => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let written = file.metadata().and_then(|metadata| metadata.modified());
            let can_punch = rustix::fs::fallocate(file, mode, size.next_multiple_of(4096), 4096).is_ok();
            if can_punch && let Ok(written) = written {
                let _ = file.set_modified(written); // A writer of a file need not own it.
            }
            can_punch
        }
        DiskKind::BlockDevice => {
            let Ok(metadata) = file.metadata() else { return false };
            let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
            queue_limit(major, minor, "discard_max_bytes")
                && queue_limit(major, minor, "write_zeroes_max_bytes")
        }
    }
}

/// Whether a limit of the block device's queue (or of the disk that a partition is on) is above zero.
fn queue_limit(major: u32, minor: u32, name: &str) -> bool {
    let base = format!("/sys/dev/block/{major}:{minor}");
    [format!("{base}/queue/{name}"), format!("{base}/../queue/{name}")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .and_then(|text| text.trim().parse::<u64>().ok())
        .is_some_and(|limit| limit > 0)
}

#[cfg(test)]
mod tests;
