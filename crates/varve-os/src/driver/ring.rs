//! The driver on io_uring: one ring a shard carries disks and sockets, so that one call moves a request and its answer.
//!
//! The contract on memory and cancellation:
//! - URING1. An entry points only at memory owned by its operation, which stays in the table of flights, at a stable
//!   address, until the terminal completion has been reaped. Nothing else touches that memory meanwhile.
//! - URING2. Dropping the future of an operation abandons the answer, not the memory: the flight becomes an orphan,
//!   and the table frees it at its terminal completion.
//! - URING3. A key is free for a new flight only after the completion of the old one was reaped, and entries reach the
//!   kernel in the order in which they were queued; so a cancellation never meets a later flight of the same key.
//! - URING4. The ring is made and used on one thread, and outlives every flight: a shard ends only when none is left.
#![allow(unsafe_code)]

use crate::busy_poll::BusyPoll;
use crate::clock::now;
use crate::disks::attempt::INLINE_MAX;
use crate::disks::lane::WORKERS_MAX;
use crate::disks::operation::{
    Answer, DiskAction, DiskOperation, Message, Operation, SocketAction, TRANSFER_MAX,
};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use varve_block::Arena;
use varve_block::host::CacheMode;

/// Entries of the submission queue; more than that wait in the backlog.
const ENTRIES: u32 = 256;
/// Entries of the completion queue; what does not fit waits in the kernel.
const COMPLETIONS: u32 = 4096;
/// Marks completions of the descriptor that wakes the shard.
const NOTIFY: u64 = u64::MAX;
/// How long to wait when the kernel has no memory for what is queued.
const NOMEM_PAUSE: Duration = Duration::from_millis(1);
/// Marks completions of cancellations.
const CANCEL: u64 = u64::MAX - 1;
/// Tells a receive that nothing is there yet, so that it waits without trying (`IORING_RECVSEND_POLL_FIRST`).
const POLL_FIRST: u16 = 1;

/// How long to stay in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// Until something happens.
    Event,
    /// Until something happens, but not longer than this.
    Limit(Duration),
}

/// One io_uring with what belongs to it.
pub(crate) struct Ring {
    ring: IoUring,
    /// Entries that found the queue full, in order (URING3).
    backlog: VecDeque<squeue::Entry>,
    /// Address range that is registered as buffer 0.
    region: Option<(usize, usize)>,
    notify: RawFd,
    busy_poll: BusyPoll,
    /// Answers that a test gives in place of the kernel's.
    #[cfg(test)]
    injected: std::collections::HashMap<u64, i32>,
    /// Keeps registered memory alive; dropped after the ring.
    _arena: Arena,
}

impl Ring {
    /// A ring of this thread, that also listens to the descriptor `notify`.
    pub(crate) fn new(arena: &Arena, notify: RawFd) -> io::Result<Self> {
        let ring = build()?;
        require(&ring)?;
        // A disk that does not answer keeps as many workers as its lane has operations (LANE1 of `lane.rs`); the kernel's own
        // limit is four for a processor. A kernel without this setting keeps that.
        let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
        let region = register(&ring, arena);
        let mut ring = Self {
            ring,
            backlog: VecDeque::new(),
            region,
            notify,
            busy_poll: BusyPoll::default(),
            #[cfg(test)]
            injected: std::collections::HashMap::new(),
            _arena: arena.clone(),
        };
        ring.listen();
        // A filter may allow to make a ring, and forbid to use it.
        ring.ring.submit()?;
        Ok(ring)
    }

    /// Queues an operation.
    pub(crate) fn start(&mut self, key: usize, operation: &mut Operation) {
        let entry = match operation {
            Operation::Disk(disk) => self.disk_entry(disk),
            Operation::Socket(socket, action) => socket_entry(socket.as_raw_fd(), action),
        };
        #[cfg(test)]
        let entry = match operation {
            Operation::Disk(disk) => self.tapped(key as u64, disk, entry),
            Operation::Socket(..) => entry,
        };
        self.push(entry.user_data(key as u64));
    }

    /// Asks the kernel to end an operation early; its completion still comes.
    pub(crate) fn cancel(&mut self, key: usize) {
        self.push(opcode::AsyncCancel::new(key as u64).build().user_data(CANCEL));
    }

    /// Submits what is queued, and waits; `look`: what is awaited may come so soon that a look pays.
    pub(crate) fn enter(&mut self, wait: Wait, look: bool) {
        loop {
            self.refill();
            let wait = if self.backlog.is_empty() { wait } else { Wait::No };
            let result = match wait {
                Wait::No if !self.has_business() => return,
                Wait::No => self.ring.submit(),
                Wait::Event => self.wait(None, look),
                Wait::Limit(limit) => self.wait(Some(limit), look),
            };
            match result.map_err(|error| Errno::from_io_error(&error)) {
                Ok(_) if self.backlog.is_empty() => return,
                Ok(_) => {}
                // Interrupted, timed out, or no room for completions before some are reaped.
                Err(Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY)) => return,
                // What is queued stays so, and is handed over when there is memory.
                Err(Some(Errno::NOMEM)) => return std::thread::park_timeout(NOMEM_PAUSE),
                Err(errno) => panic!("the ring refuses to work: {errno:?}"),
            }
        }
    }

    /// Submits what is queued, and waits for a completion: awake for a little while, then asleep.
    fn wait(&mut self, limit: Option<Duration>, look: bool) -> io::Result<usize> {
        let mut limit = limit;
        if look && !self.busy_poll.is_idle() {
            let end = limit.map(|limit| now().after(limit));
            self.ring.submit()?;
            let ring = &mut self.ring;
            if self.busy_poll.look(end, || has_news(ring)) {
                return ring.submit();
            }
            limit = end.map(|end| end.since(now()));
            if limit == Some(Duration::ZERO) {
                return Ok(0);
            }
        }
        let start = now();
        let result = self.sleep(limit);
        if look {
            self.busy_poll.slept_since(start);
        }
        result
    }

    fn sleep(&self, limit: Option<Duration>) -> io::Result<usize> {
        let Some(limit) = limit else { return self.ring.submit_and_wait(1) };
        let limit = Timespec::from(limit);
        self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
    }

    /// Takes all completions: key and answer.
    pub(crate) fn reap(&mut self, finished: &mut Vec<(usize, Answer)>) {
        let mut silent = false;
        for completion in self.ring.completion() {
            match completion.user_data() {
                NOTIFY => silent |= !io_uring::cqueue::more(completion.flags()),
                CANCEL => {}
                #[cfg(test)]
                key if self.injected.contains_key(&key) => {
                    let result = self.injected.remove(&key).expect("it is there");
                    finished.push((key as usize, answer_of(result)));
                }
                key => finished.push((key as usize, answer_of(completion.result()))),
            }
        }
        if silent {
            self.listen();
        }
    }

    fn has_business(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn listen(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.notify), libc::POLLIN as u32).multi(true);
        self.push(poll.build().user_data(NOTIFY));
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            // SAFETY: URING1: what the entry points at stays until its completion is reaped.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Full: hand over what is there. If the kernel is busy the entry waits in the backlog.
            let _ = self.ring.submit();
            // SAFETY: URING1, as for the first push.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    fn refill(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: URING1, as when it was put into the backlog.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    fn is_registered(&self, start: *const u8, length: usize) -> bool {
        let start = start.addr();
        self.region.is_some_and(|(base, end)| base <= start && start + length <= end)
    }

    fn disk_entry(&self, operation: &mut DiskOperation) -> squeue::Entry {
        let file = Fd(operation.disk().as_raw_fd());
        let is_buffered = operation.disk().cache_mode() == CacheMode::Buffered;
        // A file of a remote file system can be polled (FUSE), which the kernel takes for a promise that a request on it
        // does not wait: it would be issued on this thread, and wait here for locks that requests to its server hold.
        let is_remote = operation.disk().remote;
        let beside = |entry: squeue::Entry, is_long: bool| match is_remote || is_long {
            true => entry.flags(squeue::Flags::ASYNC),
            false => entry,
        };
        match &mut operation.action {
            DiskAction::Read { offset, buffer, done } => {
                let at = *offset + *done as u64;
                let length = (buffer.len() - *done).min(TRANSFER_MAX);
                let start = buffer[*done..].as_mut_ptr();
                let entry = if self.is_registered(start, length) {
                    opcode::ReadFixed::new(file, start, length as u32, 0).offset(at).build()
                } else {
                    opcode::Read::new(file, start, length as u32).offset(at).build()
                };
                // What is cached would be copied at once, on this thread: a long copy is better done beside it.
                beside(entry, length > INLINE_MAX && is_buffered)
            }
            DiskAction::Write { offset, data, done, durable } => {
                let at = *offset + *done as u64;
                let length = (data.len() - *done).min(TRANSFER_MAX);
                let start = data[*done..].as_ptr();
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                let entry = if self.is_registered(start, length) {
                    let write = opcode::WriteFixed::new(file, start, length as u32, 0);
                    write.offset(at).rw_flags(flags).build()
                } else {
                    opcode::Write::new(file, start, length as u32).offset(at).rw_flags(flags).build()
                };
                beside(entry, false)
            }
            DiskAction::Flush => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
            DiskAction::Allocate { mode, extent } => opcode::Fallocate::new(file, extent.length)
                .offset(extent.offset)
                .mode(mode.bits() as i32)
                .build(),
            DiskAction::Discard { .. } => unreachable!("goes to a helper thread"),
        }
    }
}

#[cfg(test)]
impl Ring {
    /// Shows an entry to the disk's tap as the kernel would see it, and cuts or replaces it.
    fn tapped(&mut self, key: u64, operation: &DiskOperation, entry: squeue::Entry) -> squeue::Entry {
        use crate::disks::tap::Call;
        // SAFETY: an entry is the kernel's structure of 64 bytes, plain data.
        let mut raw: [u8; 64] = unsafe { std::mem::transmute(entry.clone()) };
        let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
        let (offset, length) = (long(8), word(24) as usize);
        let call = match raw[0] {
            opcode::Read::CODE | opcode::ReadFixed::CODE => Call::Read { offset, length },
            opcode::Write::CODE | opcode::WriteFixed::CODE => {
                Call::Write { offset, length, durable: word(28) & libc::RWF_DSYNC as u32 != 0 }
            }
            opcode::Fsync::CODE => Call::Flush,
            opcode::Fallocate::CODE => {
                Call::Allocate { mode: word(24), extent: varve_block::Extent::new(offset, long(16)) }
            }
            code => panic!("entry {code} is not on a disk"),
        };
        let answer = operation.disk().tap.meet(call);
        let moves = matches!(call, Call::Read { .. } | Call::Write { .. });
        match answer {
            Ok(count) if moves && count > 0 => {
                raw[24..28].copy_from_slice(&(count as u32).to_le_bytes());
                // SAFETY: the same structure, with another count of bytes, not more than before (URING1).
                unsafe { std::mem::transmute::<[u8; 64], squeue::Entry>(raw) }
            }
            Ok(_) if !moves => entry,
            Ok(_) => {
                self.injected.insert(key, 0);
                opcode::Nop::new().build()
            }
            Err(errno) => {
                self.injected.insert(key, -errno.raw_os_error());
                opcode::Nop::new().build()
            }
        }
    }
}

/// Whether completions are there, or the kernel has some to deliver.
fn has_news(ring: &mut IoUring) -> bool {
    ring.submission().taskrun() || !ring.completion().is_empty()
}

fn socket_entry(socket: RawFd, action: &mut SocketAction) -> squeue::Entry {
    let socket = Fd(socket);
    match action {
        SocketAction::Receive { buffer, filled } => {
            let space = &mut buffer[*filled..];
            let length = space.len().min(TRANSFER_MAX) as u32;
            opcode::Recv::new(socket, space.as_mut_ptr(), length).ioprio(POLL_FIRST).build()
        }
        SocketAction::AwaitInput => opcode::PollAdd::new(socket, libc::POLLIN as u32).build(),
        SocketAction::Send(message) => {
            let header = prepare(message);
            let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
            opcode::SendMsg::new(socket, header).flags(flags).ioprio(POLL_FIRST).build()
        }
    }
}

/// Fills in what the kernel reads of a message; it stays valid as long as the message, which is boxed (URING1).
fn prepare(message: &mut Message) -> *const libc::msghdr {
    let vectors: Vec<_> = message
        .rest()
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
        .collect();
    message.vectors = vectors;
    // SAFETY: a message header is plain data, for which zeros mean no address, no control data, no flags.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = message.vectors.as_mut_ptr();
    header.msg_iovlen = message.vectors.len();
    message.header.insert(header)
}

fn answer_of(result: i32) -> Answer {
    match usize::try_from(result) {
        Ok(count) => Ok(count),
        Err(_) => Err(Errno::from_raw_os_error(-result)),
    }
}

/// A ring as lean as this kernel has it.
fn build() -> io::Result<IoUring> {
    let mut lean = IoUring::builder();
    lean.setup_cqsize(COMPLETIONS).setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    let mut cooperative = IoUring::builder();
    cooperative.setup_cqsize(COMPLETIONS).setup_coop_taskrun().setup_taskrun_flag();
    let mut plain = IoUring::builder();
    plain.setup_cqsize(COMPLETIONS);
    lean.build(ENTRIES).or_else(|_| cooperative.build(ENTRIES)).or_else(|_| plain.build(ENTRIES))
}

/// Refuses a kernel whose rings lack what we need.
fn require(ring: &IoUring) -> io::Result<()> {
    let parameters = ring.params();
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let codes = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::Recv::CODE,
        opcode::SendMsg::CODE,
        opcode::PollAdd::CODE,
        opcode::AsyncCancel::CODE,
    ];
    let complete = codes.iter().all(|code| probe.is_supported(*code));
    // Multishot poll came with the same kernel as registration with tags.
    let recent = parameters.is_feature_resource_tagging();
    if complete && recent && parameters.is_feature_ext_arg() && parameters.is_feature_nodrop() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"))
}

/// Registers the arena with the kernel where the limits allow it: its address range.
fn register(ring: &IoUring, arena: &Arena) -> Option<(usize, usize)> {
    let (base, length) = arena.region();
    let vector = libc::iovec { iov_base: base.as_ptr().cast(), iov_len: length };
    // SAFETY: the shard holds the arena longer than the ring (URING4), so the memory stays mapped.
    match unsafe { ring.submitter().register_buffers(&[vector]) } {
        Ok(()) => Some((base.as_ptr().addr(), base.as_ptr().addr() + length)),
        Err(error) => {
            tracing::info!(%error, length, "buffers are not registered with the ring (see RLIMIT_MEMLOCK)");
            None
        }
    }
}
