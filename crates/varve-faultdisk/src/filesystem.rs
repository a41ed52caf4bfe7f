//! The kernel's requests, answered at once or held until the disk is released.

use crate::disk::{Disk, Errno};
use crate::orders::Order;
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Largest request that the kernel may send.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may have on their way: beyond it, even callers that could wait elsewhere would wait in it.
const BACKGROUND_MAX: u16 = 1024;

/// A request that waits.
type Held = Box<dyn FnOnce(&mut Disk) + Send>;

/// What the orders and the kernel's requests share.
pub(crate) struct Shared {
    disk: Mutex<Disk>,
    stalled: Mutex<Stalled>,
    buffered: bool,
}

#[derive(Default)]
struct Stalled {
    data: bool,
    questions: bool,
    held: Vec<Held>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Nothing stalls.
    pub(crate) fn new(disk: Disk, buffered: bool) -> Self {
        Self { disk: Mutex::new(disk), stalled: Mutex::default(), buffered }
    }

    /// Carries out an order; the answer.
    pub(crate) fn obey(&self, order: Order) -> String {
        match order {
            Order::Stall { data_only } => {
                let mut stalled = locked(&self.stalled);
                (stalled.data, stalled.questions) = (true, !data_only);
            }
            Order::Release => self.release(),
            Order::Stats => {
                let held = locked(&self.stalled).held.len();
                return format!("{} held {held}", locked(&self.disk).obey(&order));
            }
            Order::Heal => {
                let answer = locked(&self.disk).obey(&order);
                self.release();
                return answer;
            }
            other => return locked(&self.disk).obey(&other),
        }
        "ok".to_owned()
    }

    /// What waits is done now, in the order in which it came.
    pub(crate) fn release(&self) {
        let stalled = std::mem::take(&mut *locked(&self.stalled));
        let mut disk = locked(&self.disk);
        for held in stalled.held {
            held(&mut disk);
        }
    }

    /// Does a request now, or keeps it until the release.
    fn answer(&self, is_data: bool, request: impl FnOnce(&mut Disk) + Send + 'static) {
        let mut stalled = locked(&self.stalled);
        if if is_data { stalled.data } else { stalled.questions } {
            stalled.held.push(Box::new(request));
            return;
        }
        drop(stalled);
        request(&mut locked(&self.disk));
    }
}

/// The file system that the kernel talks to.
pub(crate) struct FaultFile {
    shared: Arc<Shared>,
}

impl FaultFile {
    /// Serves the disk.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

fn attributes(disk: &Disk) -> FileAttr {
    let size = disk.size();
    FileAttr {
        ino: INodeNo::ROOT,
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0o600,
        nlink: disk.links(),
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn failure(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno)
}

impl Filesystem for FaultFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it requests of one writer come one after the other: slower, and no less right.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let refused = |limit: u32| io::Error::other(format!("the limit is {limit}"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(refused)?;
        config.set_max_background(BACKGROUND_MAX).map_err(|limit| refused(limit.into()))?;
        Ok(())
    }

    fn getattr(&self, _request: &Request, _inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.shared.answer(false, |disk| reply.attr(&Duration::ZERO, &attributes(disk)));
    }

    fn setattr(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _mode: Option<u32>,
        _user: Option<u32>,
        _group: Option<u32>,
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
        self.shared.answer(false, move |disk| match size {
            Some(size) if size != disk.size() => reply.error(fuser::Errno::EPERM),
            _ => reply.attr(&Duration::ZERO, &attributes(disk)),
        });
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        let how = if self.shared.buffered { FopenFlags::empty() } else { direct };
        self.shared.answer(false, move |_| reply.opened(FileHandle(0), how));
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Sent at each close; nothing that a close promises is held back here.
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
        self.shared.answer(true, move |disk| match disk.read(offset, size.into()) {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(failure(errno)),
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
        let data = data.to_vec();
        let durable = flags.0 & (libc::O_SYNC | libc::O_DSYNC) != 0;
        self.shared.answer(true, move |disk| match disk.write(offset, &data, durable) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(failure(errno)),
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
        self.shared.answer(true, move |disk| match disk.flush() {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(failure(errno)),
        });
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
        let zeroes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        if !zeroes {
            return reply.error(fuser::Errno::EOPNOTSUPP);
        }
        self.shared.answer(true, move |disk| match disk.zero(offset, length) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(failure(errno)),
        });
    }
}
