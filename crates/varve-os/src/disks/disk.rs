//! A disk as a device of one shard.
//!
//! Invariants:
//! - DISK1. A request is on its way when `submit` returns, even if its future is never polled; and it runs to its end
//!   if the future is dropped.
//! - DISK2. What goes to the kernel for direct I/O is aligned in memory; the rest is copied.
//! - DISK3. A disk that is out of use (DISKFILE2 of `disk_file.rs`, HEALTH1 of `disk_file/state.rs`) is neither written nor flushed;
//!   and what it answers to a read after its content was cut off is dropped.
//! - DISK4. A durable write of a buffered disk goes to the page cache first, as any write, and then again to the disk: so a
//!   lack of space is reported as such, and what fails afterwards takes the disk out of use.

use crate::clock;
use crate::disks::attempt::{self, Attempt, error_of};
use crate::disks::disk_file::{DiskFile, DiskKind};
use crate::disks::flushes::{Lead, Turn};
use crate::disks::lane::{self, Lane};
use crate::disks::operation::{DiskAction, DiskOperation, Operation};
use crate::driver::helpers::Place;
use crate::driver::reactor::OperationFuture;
use crate::shard::ShardContext;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_block::host::CacheMode;
use varve_block::{
    BlockDevice, Buffer, Bytes, Checked, Completion, Device, Durability, Extent, Io, IoError, MapAnswer,
    MapFuture, MapIntent, Outcome, Shape, ZeroOptions,
};

/// Zeros are written in pieces of this many bytes where the kernel cannot do it better.
const ZEROS: u64 = 1 << 20;
/// Largest change of allocation in memory that is done on the shard's own thread, in bytes.
const INLINE_ALLOCATE_MAX: u64 = 1 << 20;

/// The device.
struct Disk {
    context: ShardContext,
    file: Arc<DiskFile>,
    lane: Rc<Lane>,
    shape: Shape,
}

impl Disk {
    fn new(context: &ShardContext, file: &Arc<DiskFile>) -> Self {
        let most = match file.cache_mode() {
            CacheMode::Direct => lane::DIRECT_MAX,
            CacheMode::Buffered => lane::BUFFERED_MAX,
        };
        let lane = context.core.lane(file, || Lane::new(most, &file.answers.abandoned));
        Self { context: context.clone(), shape: file.shape(), file: Arc::clone(file), lane }
    }

    fn start(&self, action: DiskAction) -> OperationFuture {
        let operation = DiskOperation::new(Arc::clone(&self.file), action);
        self.context.core.reactor.start_disk(operation, &self.lane)
    }

    fn report(&self, verb: &'static str, extent: Extent, errno: Errno) -> IoError {
        self.file.report(verb, extent.offset, extent.length, errno);
        // A block device that became smaller says that it has no space left.
        let is_past_end = errno == Errno::NOSPC && self.file.kind() == DiskKind::BlockDevice;
        if is_past_end && self.file.check_length() == Err(IoError::Gone) {
            return IoError::Gone;
        }
        error_of(errno)
    }

    /// Whether memory can go to the kernel for direct I/O (DISK2).
    fn is_aligned(&self, memory: &[u8]) -> bool {
        self.file.cache_mode() == CacheMode::Buffered
            || memory.as_ptr().addr().is_multiple_of(self.file.memory_alignment)
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> Completion<'_> {
        if let Err(error) = self.file.admit_read() {
            return Completion::failed(error); // DISK3
        }
        let done = match attempt::try_read(&self.file, offset, &mut buffer) {
            Attempt::Done => return Completion::ready(self.believed(buffer)),
            Attempt::Partial(done) => done,
            Attempt::Failed(errno) => {
                let extent = Extent::new(offset, buffer.len() as u64);
                return Completion::failed(self.report("read", extent, errno));
            }
        };
        if self.is_aligned(&buffer) {
            let first = self.start(DiskAction::Read { offset, buffer, done });
            return Completion::pending(self.finish_read(first));
        }
        let bounce = self.context.core.arena.take(buffer.len());
        let first = self.start(DiskAction::Read { offset, buffer: bounce, done: 0 });
        Completion::pending(async move {
            let bounce = self.finish_read(first).await?;
            buffer.copy_from_slice(&bounce);
            Ok(buffer)
        })
    }

    async fn finish_read(&self, mut under_way: OperationFuture) -> Outcome {
        loop {
            let (offset, buffer, mut done, answer) = match under_way.await {
                (
                    Operation::Disk(DiskOperation {
                        action: DiskAction::Read { offset, buffer, done }, ..
                    }),
                    answer,
                ) => (offset, buffer, done, answer),
                _ => unreachable!("a read comes back as a read"),
            };
            match answer {
                Ok(0) => {
                    self.check_end().await;
                    let left = Extent::between(offset + done as u64, offset + buffer.len() as u64);
                    self.file.report("read beyond the end", left.offset, left.length, Errno::NODATA);
                    return Err(IoError::Gone);
                }
                Ok(count) => done += count,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => {
                    return Err(self.report("read", Extent::new(offset, buffer.len() as u64), errno));
                }
            }
            if done == buffer.len() {
                return self.believed(buffer);
            }
            under_way = self.start(DiskAction::Read { offset, buffer, done });
        }
    }

    /// What was read, if the disk has been in use until now (DISK3).
    fn believed(&self, buffer: Buffer) -> Outcome {
        self.file.believe_read(&buffer).map(|()| buffer)
    }

    /// Takes the disk out of use if it has become shorter, before a write can make it longer again (HEALTH2).
    async fn check_end(&self) {
        if !self.file.remote {
            let _ = self.file.check_length();
            return;
        }
        let file = Arc::clone(&self.file);
        let _ = self.context.blocking_in(Place::of(&self.file), move || file.check_length_of_remote()).await;
    }

    fn write(&self, offset: u64, mut data: Bytes, durability: Durability) -> Completion<'_> {
        if let Err(error) = self.file.admit_change(offset + data.len() as u64) {
            return Completion::failed(error); // DISK3
        }
        let change = self.file.begin_change(Extent::new(offset, data.len() as u64));
        let durable = durability == Durability::Durable && !self.file.in_memory;
        let is_staged = durable && self.file.cache_mode() == CacheMode::Buffered; // DISK4
        let done = match durable && !is_staged {
            true => 0,
            false => match attempt::try_write(&self.file, offset, &data) {
                Attempt::Done if !is_staged => {
                    self.file.end_write(change, &data, false);
                    return Completion::done();
                }
                Attempt::Done => data.len(),
                Attempt::Partial(done) => done,
                Attempt::Failed(errno) => {
                    change.ended();
                    let extent = Extent::new(offset, data.len() as u64);
                    return Completion::failed(self.report("write", extent, errno));
                }
            },
        };
        if !self.is_aligned(&data) {
            data = self.context.core.arena.copy(&data);
        }
        let is_in_cache = is_staged && done == data.len();
        let (done, durable) = if is_in_cache { (0, true) } else { (done, durable && !is_staged) };
        let first = self.start(DiskAction::Write { offset, data, done, durable });
        let ending = self.finish_write(first, is_staged && !is_in_cache);
        Completion::pending(async move {
            match ending.await {
                Ok((data, durable)) => self.file.end_write(change, &data, durable),
                Err(error) => {
                    change.ended();
                    return Err(error);
                }
            }
            Ok(Buffer::empty())
        })
    }

    /// Carries a write to its end, and then, if it only `is_staged` (DISK4), makes it durable; what was written, and whether it is.
    async fn finish_write(
        &self,
        mut under_way: OperationFuture,
        mut is_staged: bool,
    ) -> Result<(Bytes, bool), IoError> {
        loop {
            let (offset, data, mut done, durable, answer) = match under_way.await {
                (
                    Operation::Disk(DiskOperation {
                        action: DiskAction::Write { offset, data, done, durable },
                        ..
                    }),
                    answer,
                ) => (offset, data, done, durable, answer),
                _ => unreachable!("a write comes back as a write"),
            };
            match answer {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(count) if count > 0 => done += count,
                failed => {
                    let errno = failed.err().unwrap_or(Errno::NOSPC);
                    return Err(self.report("write", Extent::new(offset, data.len() as u64), errno));
                }
            }
            under_way = if done < data.len() {
                self.start(DiskAction::Write { offset, data, done, durable })
            } else if is_staged {
                is_staged = false;
                self.file.refuse_out_of_use()?; // DISK3
                self.start(DiskAction::Write { offset, data, done: 0, durable: true })
            } else {
                if durable {
                    self.await_report().await?;
                }
                return Ok((data, durable));
            };
        }
    }

    /// Waits until it is known whether lost pages of this operation were reported to another one beside it (SYNC1 of
    /// `syncs.rs`).
    async fn await_report(&self) -> Result<(), IoError> {
        if let Some(others) = self.file.syncs.others() {
            let _ = others.await;
        }
        self.file.refuse_out_of_use()
    }

    fn flush(&self) -> Completion<'_> {
        if let Err(error) = self.file.refuse_out_of_use().and_then(|()| self.file.check_length()) {
            return Completion::failed(error); // DISK3, HEALTH2
        }
        if self.file.in_memory {
            [false, true].into_iter().for_each(|has_ended| self.file.note_flush(has_ended));
            return Completion::done();
        }
        match self.file.flushes.enter() {
            None => {
                let lead = Lead::new(&self.file.flushes);
                Completion::pending(self.lead_flush(lead, self.start_flush()))
            }
            Some(turn) => Completion::pending(async move {
                // A turn that is lost came from a leader that is gone; a flush too many does no harm.
                if turn.await == Ok(Turn::Covered) {
                    self.file.refuse_out_of_use()?;
                    return Ok(Buffer::empty());
                }
                let lead = Lead::new(&self.file.flushes);
                self.lead_flush(lead, self.start_flush()).await
            }),
        }
    }

    fn start_flush(&self) -> OperationFuture {
        self.file.note_flush(false);
        self.start(DiskAction::Flush)
    }

    /// Carries out a flush, for all flushes that wait for it.
    async fn lead_flush(&self, lead: Lead<'_>, mut under_way: OperationFuture) -> Outcome {
        while let (_, Err(Errno::INTR | Errno::AGAIN)) = under_way.await {
            under_way = self.start_flush();
        }
        // A failure has taken the disk out of use by now (DISKFILE2), and that is what all are answered.
        let _ = self.await_report().await;
        if self.file.remote {
            self.check_end().await;
        }
        let outcome = self.file.refuse_out_of_use();
        if outcome.is_ok() {
            self.file.note_flush(true);
        }
        lead.finish();
        outcome?;
        Ok(Buffer::empty())
    }

    /// Changes allocation; false if the kernel cannot do that here.
    ///
    /// A file is locked meanwhile, for all requests to it, and what that takes depends on how the file is laid out: so it is
    /// done in pieces that are the shorter the longer they took.
    async fn allocate(&self, mode: FallocateFlags, extent: Extent) -> Result<bool, IoError> {
        let mut at = extent.offset;
        while at < extent.end() {
            let piece = self.file.allocation_pace.piece();
            let length = piece.min(extent.end() - at);
            let start = clock::now();
            if !self.allocate_piece(mode, Extent::new(at, length)).await? {
                return Ok(false);
            }
            self.file.allocation_pace.learn(piece, length, clock::now().since(start));
            at += length;
        }
        Ok(true)
    }

    async fn allocate_piece(&self, mode: FallocateFlags, extent: Extent) -> Result<bool, IoError> {
        let answer = loop {
            let answer = if self.file.in_memory && extent.length <= INLINE_ALLOCATE_MAX {
                self.file.blocks().begin_release();
                let answer = attempt::allocate(&self.file, mode, extent);
                self.file.blocks().end_release();
                answer
            } else {
                self.start(DiskAction::Allocate { mode, extent }).await.1
            };
            if !matches!(answer, Err(Errno::INTR | Errno::AGAIN)) {
                break answer;
            }
        };
        match answer {
            Ok(_) => Ok(true),
            // A filter that forbids the call says no more than that; a file that may not be changed says so to a write.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => Ok(false),
            Err(errno) => Err(self.report("allocate", extent, errno)),
        }
    }

    /// Zeros without moving data; false if that cannot be done here.
    async fn zero_allocation(&self, extent: Extent, options: ZeroOptions) -> Result<bool, IoError> {
        let keep = FallocateFlags::KEEP_SIZE;
        if options.unmap && self.allocate(FallocateFlags::PUNCH_HOLE | keep, extent).await? {
            return Ok(true);
        }
        // A block device zeroes a range by writing, if it must; that is not fast.
        let may_write = self.file.kind() == DiskKind::BlockDevice;
        if options.fast && may_write || !self.file.zero_range.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let zeroed = self.allocate(FallocateFlags::ZERO_RANGE | keep, extent).await?;
        if !zeroed && extent.is_aligned(u64::from(self.file.sector_logical())) {
            self.file.zero_range.store(false, Ordering::Relaxed);
        }
        Ok(zeroed)
    }

    async fn zero(&self, extent: Extent, options: ZeroOptions) -> Outcome {
        self.file.admit_change(extent.end())?; // DISK3
        let change = self.file.begin_change(extent);
        let zeroed = self.zero_allocation(extent, options).await;
        change.ended();
        if !zeroed? {
            if options.fast {
                return Err(IoError::Unsupported);
            }
            self.write_zeros(extent).await?;
        }
        match options.durability {
            Durability::Volatile => Ok(Buffer::empty()),
            Durability::Durable => self.flush().await,
        }
    }

    async fn write_zeros(&self, extent: Extent) -> Result<(), IoError> {
        let zeros = self.context.core.arena.take_zeroed(index(extent.length.min(ZEROS))).freeze();
        for (_, piece) in extent.pieces(ZEROS) {
            let data = zeros.slice(0, index(piece.length));
            self.write(piece.offset, data, Durability::Volatile).await?;
        }
        Ok(())
    }

    async fn discard(&self, extent: Extent) -> Outcome {
        self.file.admit_change(extent.end())?; // DISK3
        let change = self.file.begin_change(extent);
        let discarded = self.release(extent).await;
        change.ended();
        discarded
    }

    async fn release(&self, extent: Extent) -> Outcome {
        match self.file.kind() {
            DiskKind::File => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.allocate(mode, extent).await?;
            }
            DiskKind::BlockDevice => {
                let extent = extent.align_in(u64::from(self.file.sector_logical()));
                if !extent.is_empty() {
                    match self.start(DiskAction::Discard { extent }).await.1 {
                        Ok(_) | Err(Errno::OPNOTSUPP) => {}
                        Err(errno) => return Err(self.report("discard", extent, errno)),
                    }
                }
            }
        }
        Ok(Buffer::empty())
    }
}

impl BlockDevice for Disk {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => self.read(offset, buffer),
            Io::Write { offset, data, durability } => self.write(offset, data, durability),
            Io::Zero { extent, options } => started(self.zero(extent, options)),
            Io::Discard { extent } if self.shape.discard => started(self.discard(extent)),
            Io::Discard { .. } => Completion::done(),
            Io::Flush => self.flush(),
        }
    }

    /// The disk is where its bytes lie; of a file it can be asked what it holds.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        if intent != MapIntent::Inspect || self.file.kind() == DiskKind::BlockDevice {
            return MapAnswer::sent(extent.length).ready();
        }
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            let place = Place::of(&file);
            let asked = self.context.blocking_in(place, move || attempt::status(&file, extent)).await;
            let runs = asked.unwrap_or(Err(IoError::Gone))?;
            self.file.believe_read(&[0])?; // A hole may be where it was cut off.
            Ok(MapAnswer::of_status(&runs))
        })
    }
}

impl ShardContext {
    /// A device on `file`, with the shape that the file has now.
    pub fn disk(&self, file: &Arc<DiskFile>) -> Device {
        Device::new(Disk::new(self, file))
    }
}

/// Polls once, so that the first step is on its way (DISK1). The steps after it need the future to be polled on.
fn started<'a>(future: impl Future<Output = Outcome> + 'a) -> Completion<'a> {
    let mut future = Box::pin(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(outcome) => Completion::ready(outcome),
        std::task::Poll::Pending => Completion::Pending(future),
    }
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}
