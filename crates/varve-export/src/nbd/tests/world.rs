//! A small world for the door: an executor that notices when nothing can happen any more, a clock that jumps, pipes
//! that cut bytes at will, and a device in memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use varve_block::{
    Allocation, BlockDevice, Buffer, Bytes, Checked, Clock, ClockSource, Completion, Extent, Io, IoError,
    LocalFuture, MapAnswer, MapFuture, MapIntent, Moment, Notify, Received, Shape, StatusRun, StreamError,
    Transfer, UnixTime, ZeroOptions, yield_now,
};

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A clock that stands still until nothing else can happen.
#[derive(Clone, Default)]
pub(super) struct FakeClock {
    now: Rc<Cell<u64>>,
    sleepers: Rc<RefCell<Vec<(Moment, Waker)>>>,
}

impl FakeClock {
    pub(super) fn clock(&self) -> Clock {
        Clock::new(Rc::new(self.clone()))
    }

    /// Jumps to the next sleeper's deadline; false if there is none.
    fn jump(&self) -> bool {
        let Some(next) = self.sleepers.borrow().iter().map(|(deadline, _)| *deadline).min() else {
            return false;
        };
        self.now.set(next.0.max(self.now.get()));
        let (due, later) = self.sleepers.take().into_iter().partition(|(deadline, _)| *deadline <= next);
        self.sleepers.replace(later);
        let due: Vec<(Moment, Waker)> = due;
        due.into_iter().for_each(|(_, waker)| waker.wake());
        true
    }
}

impl ClockSource for FakeClock {
    fn now(&self) -> Moment {
        Moment(self.now.get())
    }
    fn date(&self) -> UnixTime {
        UnixTime(0)
    }
    fn sleep_until(&self, deadline: Moment) -> LocalFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(poll_fn(move |context| {
            if clock.now() >= deadline {
                return Poll::Ready(());
            }
            clock.sleepers.borrow_mut().push((deadline, context.waker().clone()));
            Poll::Pending
        }))
    }
}

/// Runs `future` to its end. Panics if it waits for something that never comes.
pub(super) fn run<T>(clock: &FakeClock, future: impl Future<Output = T>) -> T {
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut future = pin!(future);
    let mut polls = 0u64;
    loop {
        while flag.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
            polls += 1;
            assert!(polls < 10_000_000, "it spins");
        }
        assert!(clock.jump(), "everybody waits for somebody else");
    }
}

/// A sequence of numbers that looks random.
pub(super) struct Dice(Cell<u64>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    /// A number below `bound`.
    pub(super) fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        (x >> 11) % bound
    }
}

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    closed: bool,
    wakers: Vec<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

/// One end of a connection in memory.
pub(super) struct PipeEnd {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
    /// How much is moved at once, at most; 0 stands for all.
    cut: u64,
    dice: Dice,
}

/// Two ends; each direction holds `capacity` bytes, and moves up to `cut` at once (0: all).
pub(super) fn pair(capacity: usize, cut: u64, seed: u64) -> (Rc<PipeEnd>, Rc<PipeEnd>) {
    let pipe = || Rc::new(RefCell::new(Pipe { capacity, ..Pipe::default() }));
    let (a, b) = (pipe(), pipe());
    let end = |incoming: &Rc<_>, outgoing: &Rc<_>, seed| {
        let (incoming, outgoing) = (Rc::clone(incoming), Rc::clone(outgoing));
        Rc::new(PipeEnd { incoming, outgoing, cut, dice: Dice::new(seed) })
    };
    (end(&a, &b, seed), end(&b, &a, seed + 1))
}

impl std::fmt::Debug for PipeEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PipeEnd")
    }
}

impl PipeEnd {
    fn piece(&self, available: usize) -> usize {
        if self.cut == 0 { available } else { available.min(1 + self.dice.below(self.cut) as usize) }
    }

    /// Ends the outgoing direction only.
    pub(super) fn close_writing(&self) {
        let mut pipe = self.outgoing.borrow_mut();
        pipe.closed = true;
        pipe.wake();
    }

    async fn receive_all(&self, mut buffer: Buffer, mut filled: usize, wanted: usize) -> Received {
        assert!(filled < wanted && wanted <= buffer.len(), "the stream's contract");
        let result = poll_fn(|context| {
            let mut pipe = self.incoming.borrow_mut();
            loop {
                let count = self.piece(pipe.bytes.len().min(buffer.len() - filled));
                pipe.bytes.drain(..count).for_each(|byte| {
                    buffer[filled] = byte;
                    filled += 1;
                });
                if count > 0 {
                    pipe.wake();
                }
                if filled >= wanted {
                    return Poll::Ready(Ok(filled));
                }
                if pipe.bytes.is_empty() && pipe.closed {
                    return Poll::Ready(Err(StreamError::Closed));
                }
                if pipe.bytes.is_empty() {
                    pipe.wakers.push(context.waker().clone());
                    return Poll::Pending;
                }
            }
        })
        .await;
        (result, buffer)
    }

    async fn send_all(&self, parts: Vec<Bytes>) -> Result<(), StreamError> {
        for part in parts {
            let mut sent = 0;
            poll_fn(|context| {
                let mut pipe = self.outgoing.borrow_mut();
                while sent < part.len() {
                    if pipe.closed {
                        return Poll::Ready(Err(StreamError::Broken));
                    }
                    let room = pipe.capacity - pipe.bytes.len();
                    let count = self.piece(room.min(part.len() - sent));
                    if room == 0 {
                        pipe.wakers.push(context.waker().clone());
                        return Poll::Pending;
                    }
                    pipe.bytes.extend(&part[sent..sent + count]);
                    sent += count;
                    pipe.wake();
                }
                Poll::Ready(Ok(()))
            })
            .await?;
        }
        Ok(())
    }
}

impl varve_block::ByteStream for PipeEnd {
    fn receive(&self, buffer: Buffer, filled: usize, wanted: usize) -> Transfer<'_, Received> {
        Transfer::Pending(Box::pin(self.receive_all(buffer, filled, wanted)))
    }
    fn send(&self, parts: Vec<Bytes>) -> Transfer<'_, Result<(), StreamError>> {
        Transfer::Pending(Box::pin(self.send_all(parts)))
    }
    fn close(&self) {
        for pipe in [&self.incoming, &self.outgoing] {
            let mut pipe = pipe.borrow_mut();
            pipe.closed = true;
            pipe.wake();
        }
    }
    fn peer(&self) -> String {
        "the other end".to_owned()
    }
}

/// A device in memory that answers at once or after some turns, and counts.
pub(super) struct MemoryDevice {
    pub(super) shape: Shape,
    pub(super) content: RefCell<Vec<u8>>,
    /// Turns until an answer, at most; 0: at once.
    pub(super) turns: Cell<u64>,
    /// Answers are held back while this is set.
    pub(super) held: Cell<bool>,
    pub(super) failing: Cell<Option<IoError>>,
    /// What flushes fail with.
    pub(super) failing_flush: Cell<Option<IoError>>,
    pub(super) inside: Cell<usize>,
    pub(super) inside_max: Cell<usize>,
    pub(super) flushes: Cell<usize>,
    pub(super) durable_writes: Cell<usize>,
    /// Bytes of requests so far.
    pub(super) moved: Cell<u64>,
    /// Bytes of the longest read or write so far.
    pub(super) longest: Cell<u64>,
    pub(super) zeros: RefCell<Vec<ZeroOptions>>,
    pub(super) runs: RefCell<Vec<StatusRun>>,
    released: Notify,
    dice: Dice,
}

impl MemoryDevice {
    pub(super) fn new(size: u64) -> Rc<Self> {
        let shape = Shape { discard: true, fast_zero: true, ..Shape::new(size, 1) };
        Rc::new(Self {
            shape,
            content: RefCell::new(vec![0; size as usize]),
            turns: Cell::new(0),
            held: Cell::new(false),
            failing: Cell::new(None),
            failing_flush: Cell::new(None),
            inside: Cell::new(0),
            inside_max: Cell::new(0),
            flushes: Cell::new(0),
            durable_writes: Cell::new(0),
            moved: Cell::new(0),
            longest: Cell::new(0),
            zeros: RefCell::default(),
            runs: RefCell::default(),
            released: Notify::default(),
            dice: Dice::new(size),
        })
    }

    /// Lets answers go.
    pub(super) fn release(&self) {
        self.held.set(false);
        self.released.notify_all();
    }

    fn apply(&self, io: Io) -> Result<Buffer, IoError> {
        if let Some(error) = self.failing.get() {
            return Err(error);
        }
        let mut content = self.content.borrow_mut();
        let extent = io.extent();
        self.moved.set(self.moved.get() + extent.length);
        if matches!(io, Io::Read { .. } | Io::Write { .. }) {
            self.longest.set(self.longest.get().max(extent.length));
        }
        let range = extent.offset as usize..extent.end() as usize;
        match io {
            Io::Read { mut buffer, .. } => {
                buffer.copy_from_slice(&content[range]);
                return Ok(buffer);
            }
            Io::Write { data, durability, .. } => {
                content[range].copy_from_slice(&data);
                if durability == varve_block::Durability::Durable {
                    self.durable_writes.set(self.durable_writes.get() + 1);
                }
            }
            Io::Zero { options, .. } => {
                self.zeros.borrow_mut().push(options);
                content[range].fill(0);
            }
            Io::Discard { .. } => content[range].fill(0),
            Io::Flush => {
                self.flushes.set(self.flushes.get() + 1);
                if let Some(error) = self.failing_flush.get() {
                    return Err(error);
                }
            }
        }
        Ok(Buffer::empty())
    }

    async fn later(&self, io: Io) -> Result<Buffer, IoError> {
        for _ in 0..self.dice.below(self.turns.get() + 1) {
            self.released.until(|| !self.held.get()).await;
            yield_now().await;
        }
        self.released.until(|| !self.held.get()).await;
        self.inside.set(self.inside.get() - 1);
        self.apply(io)
    }
}

impl BlockDevice for MemoryDevice {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if let Io::Write { data, .. } = io.io() {
            assert!(data.as_ptr().addr().is_multiple_of(4096), "direct I/O wants the data on a page");
        }
        let io = io.into_io();
        if self.turns.get() == 0 && !self.held.get() {
            return Completion::ready(self.apply(io));
        }
        self.inside.set(self.inside.get() + 1);
        self.inside_max.set(self.inside_max.get().max(self.inside.get()));
        Completion::pending(self.later(io))
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        let mut at = 0;
        let mut found = Vec::new();
        for run in self.runs.borrow().iter() {
            let here = Extent::new(at, run.length);
            at = here.end();
            if let Some(part) = here.intersect(extent) {
                found.push(StatusRun { length: part.length, ..*run });
            }
        }
        if found.is_empty() {
            found.push(StatusRun { length: extent.length, allocation: Allocation::Data });
        }
        // A few at a time, to be asked again.
        found.truncate(2);
        MapAnswer::of_status(&found).ready()
    }
}
