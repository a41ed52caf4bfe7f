//! The kernel's requests translated to [`Io`]: a file system of one regular file.
//!
//! The invariants FUSE1 to FUSE5 of the parent module are kept here.

use super::FuseOptions;
use super::clients::Openings;
use super::errno::{of_error, of_rejected};
use super::seek::{Wanted, seek};
use crate::counters::Kind;
use crate::in_flight::Permit;
use crate::requests::{Refusal, Requests};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use varve_block::host::FileAccess;
use varve_block::{Access, Arena, Buffer, Durability, Extent, Io, MIB, Portal, Shape, ZeroOptions};

/// Largest request that the kernel may send.
pub(super) const REQUEST_BYTES_MAX: u32 = MIB as u32;
/// Requests that the kernel may send without a caller waiting for each (asynchronous direct I/O of a loop device).
const BACKGROUND_MAX: u16 = 128;
/// How long the kernel may remember size and mode.
const ATTRIBUTES_LIFE: Duration = Duration::from_secs(1);
/// Unit in which statfs counts.
const STATFS_BLOCK: u32 = 4096;

/// What the door and its file system share.
pub(super) struct Shared {
    /// What is asked of the volume.
    pub(super) requests: Arc<Requests>,
    /// What has the file open.
    pub(super) openings: Openings,
    attributes: Mutex<Attributes>,
    created: SystemTime,
}

/// What chmod and chown change; forgotten when the door closes.
#[derive(Clone, Copy)]
struct Attributes {
    mode: u16,
    user: u32,
    group: u32,
}

impl Shared {
    /// Nothing served yet.
    pub(super) fn new(portal: Portal, arena: Arena, options: &FuseOptions) -> Self {
        let writable = portal.shape().access == Access::ReadWrite;
        let attributes = Attributes {
            mode: if writable { options.mode & 0o7777 } else { options.mode & 0o7555 },
            user: rustix::process::geteuid().as_raw(),
            group: options.group.unwrap_or(rustix::process::getegid().as_raw()),
        };
        Self {
            requests: Requests::new(portal, arena, options.bytes_in_flight_max, &options.budget),
            openings: Openings::default(),
            attributes: Mutex::new(attributes),
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(options.created.0),
        }
    }

    /// What chmod and chown would change.
    pub(super) fn set_access(&self, access: FileAccess) {
        let is_writable = self.shape().access == Access::ReadWrite;
        let mode = access.mode & if is_writable { 0o7777 } else { 0o7555 };
        let mut attributes = self.attributes();
        attributes.mode = u16::try_from(mode).expect("twelve bits fit");
        attributes.group = access.group.unwrap_or(attributes.group);
    }

    fn shape(&self) -> Shape {
        self.requests.shape()
    }

    fn attributes(&self) -> MutexGuard<'_, Attributes> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_attributes(&self) -> FileAttr {
        let shape = self.shape();
        let Attributes { mode, user, group } = *self.attributes();
        FileAttr {
            ino: INodeNo::ROOT,
            size: shape.size,
            blocks: shape.size.div_ceil(512),
            atime: self.created,
            mtime: self.created,
            ctime: self.created,
            crtime: self.created,
            kind: FileType::RegularFile,
            perm: mode,
            nlink: 1,
            uid: user,
            gid: group,
            rdev: 0,
            blksize: shape.optimal_size.max(STATFS_BLOCK),
            flags: 0,
        }
    }

    /// Sends one request to the shard; `finish` is called once with its answer (FUSE1).
    fn submit(
        &self,
        kind: Kind,
        permit: Permit,
        io: Io,
        finish: impl FnOnce(Result<Buffer, Errno>) + Send + 'static,
    ) {
        self.requests.submit(kind, permit, io, |outcome, _permit| finish(outcome.map_err(errno)));
    }
}

/// The errno of a request that failed.
fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Shut => Errno::ENODEV,
        Refusal::Rejected(rejected) => of_rejected(rejected),
        Refusal::Failed(error) => of_error(error),
    }
}

/// The file system that the kernel talks to.
pub(super) struct VolumeFile {
    shared: Arc<Shared>,
}

impl VolumeFile {
    /// Serves what `shared` leads to.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// How much of `length` bytes from `offset` on is in the file.
    fn inside(&self, offset: u64, length: u64) -> u64 {
        self.shared.shape().size.saturating_sub(offset).min(length)
    }
}

/// A write to a file that was opened with `O_SYNC` or `O_DSYNC` is acknowledged once it is durable.
fn durability(flags: OpenFlags) -> Durability {
    if flags.0 & (libc::O_SYNC | libc::O_DSYNC) == 0 { Durability::Volatile } else { Durability::Durable }
}

/// What a mode of fallocate asks for; `None` if the door does not offer it. Reserving space is not offered: not
/// every volume could keep the promise.
fn zero_options(mode: i32, shape: Shape) -> Option<ZeroOptions> {
    let unmap = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        libc::FALLOC_FL_PUNCH_HOLE if shape.discard || shape.fast_zero => true,
        libc::FALLOC_FL_ZERO_RANGE => false,
        _ => return None,
    };
    Some(ZeroOptions { unmap, ..ZeroOptions::default() })
}

fn length_of(size: u64) -> usize {
    usize::try_from(size).expect("the kernel sends at most REQUEST_BYTES_MAX")
}

impl Filesystem for VolumeFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an old kernel cannot do is done without.
        for wish in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP] {
            if config.add_capabilities(wish).is_err() {
                tracing::debug!(target: "varve::fuse", ?wish, "not offered by this kernel");
            }
        }
        let refused = |limit: u32| io::Error::other(format!("the limit is {limit}"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(refused)?;
        config.set_max_background(BACKGROUND_MAX).map_err(|limit| refused(limit.into()))?;
        Ok(())
    }

    fn getattr(&self, _request: &Request, _inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ATTRIBUTES_LIFE, &self.shared.file_attributes());
    }

    fn setattr(
        &self,
        _request: &Request,
        _inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_mac: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A volume is resized by its owner's command, never by a tool that truncates its output file.
        if size.is_some_and(|size| size != self.shared.shape().size) {
            return reply.error(Errno::EPERM);
        }
        let mut attributes = self.shared.attributes();
        if let Some(mode) = mode {
            attributes.mode = u16::try_from(mode & 0o7777).expect("twelve bits fit");
        }
        attributes.user = user.unwrap_or(attributes.user);
        attributes.group = group.unwrap_or(attributes.group);
        drop(attributes);
        reply.attr(&ATTRIBUTES_LIFE, &self.shared.file_attributes());
    }

    fn open(&self, request: &Request, _inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.shared.requests.is_shut() {
            return reply.error(Errno::ENODEV);
        }
        if flags.acc_mode() != OpenAccMode::O_RDONLY && self.shared.shape().access == Access::ReadOnly {
            return reply.error(Errno::EROFS);
        }
        let how = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(self.shared.openings.open(request.pid())), how);
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.shared.openings.release(handle.0);
        reply.ok();
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Sent at each close by kernels that do not know FOPEN_NOFLUSH; nothing is held back here.
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = self.inside(offset, size.into());
        if length == 0 {
            return reply.data(&[]);
        }
        let permit = self.shared.requests.permit(length);
        let buffer = self.shared.requests.arena().take(length_of(length));
        self.shared.submit(Kind::Read, permit, Io::Read { offset, buffer }, |answer| match answer {
            Ok(buffer) => reply.data(&buffer),
            Err(errno) => reply.error(errno),
        });
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = self.inside(offset, data.len() as u64);
        if length == 0 {
            return if data.is_empty() { reply.written(0) } else { reply.error(Errno::ENOSPC) };
        }
        let permit = self.shared.requests.permit(length);
        let data = self.shared.requests.arena().copy(&data[..length_of(length)]);
        let written = u32::try_from(length).expect("the kernel sends at most REQUEST_BYTES_MAX");
        let io = Io::Write { offset, data, durability: durability(flags) };
        self.shared.submit(Kind::Write, permit, io, move |answer| match answer {
            Ok(_) => reply.written(written),
            Err(errno) => reply.error(errno),
        });
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let permit = self.shared.requests.permit(0);
        self.shared.submit(Kind::Flush, permit, Io::Flush, |answer| answer_empty(reply, answer.err()));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(options) = zero_options(mode, self.shared.shape()) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        // As on any file, what is beyond the end is nothing to punch; zeroing there would make the file grow.
        let inside = self.inside(offset, length);
        if !options.unmap && inside < length && mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
            return reply.error(Errno::ENOSPC);
        }
        if inside == 0 {
            return reply.ok();
        }
        let permit = self.shared.requests.permit(0);
        let io = Io::Zero { extent: Extent::new(offset, inside), options };
        self.shared.submit(Kind::Zero, permit, io, |answer| answer_empty(reply, answer.err()));
    }

    fn lseek(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let wanted = match whence {
            libc::SEEK_DATA => Wanted::Data,
            libc::SEEK_HOLE => Wanted::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let start = match u64::try_from(offset) {
            Ok(start) if start < self.shared.shape().size => start,
            _ => return reply.error(Errno::ENXIO),
        };
        if self.shared.requests.is_shut() {
            return reply.error(Errno::ENODEV);
        }
        let requests = Arc::clone(&self.shared.requests);
        let begun = requests.counting().start();
        let answer = move |found: Result<u64, Errno>| {
            requests.counting().finish((Kind::Seek, begun), 0, found.is_ok() || found == Err(Errno::ENXIO));
            match found {
                Ok(offset) => reply.offset(i64::try_from(offset).expect("a file ends below 2^63")),
                Err(errno) => reply.error(errno),
            }
        };
        seek(&self.shared.requests.portal(), start, wanted, Box::new(answer));
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = self.shared.shape().size / u64::from(STATFS_BLOCK);
        reply.statfs(blocks, 0, 0, 1, 0, STATFS_BLOCK, 255, STATFS_BLOCK);
    }
}

fn answer_empty(reply: ReplyEmpty, failure: Option<Errno>) {
    match failure {
        None => reply.ok(),
        Some(errno) => reply.error(errno),
    }
}
