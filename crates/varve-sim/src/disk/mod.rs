//! The simulated disk: a volatile cache over a medium, requests under way, latency, faults.
//!
//! The rule, from which everything else follows: **at a crash each sector of 512 bytes independently keeps what it
//! held at its last flush, or any version written since**, by requests that were acknowledged or still under way.
//! So writes are lost, torn and reordered.
//!
//! Invariants:
//! - SIMDISK1. A change is seen by every read submitted after its acknowledgement; while it is under way a read may see
//!   any part of it, and no later read sees less.
//! - SIMDISK2. Once a flush is acknowledged, every change that was acknowledged before the flush was submitted survives.
//! - SIMDISK3. A durable change survives from its acknowledgement on.
//! - SIMDISK4. A request that was submitted runs to its end, or to the crash; dropping its future changes nothing.

pub(crate) mod answer;
mod fault;
mod flight;
mod medium;
mod request;

pub use fault::{FaultBudget, FaultPlan, Struck};

use crate::SECTOR_SIZE;
use crate::chance::{Chooser, CrashTally};
use crate::random::Random;
use crate::world::{Core, CrashKind, Hardware, Stage, World};
use fault::{Damage, Fault, Faults};
use flight::Flight;
use medium::{Content, Medium};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{
    Access, Allocation, BlockDevice, Checked, Completion, Device, Extent, Io, IoError, MapAnswer, MapFuture,
    MapIntent, Shape, StatusRun,
};

/// What a simulated disk is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskOptions {
    /// Bytes.
    pub size: u64,
    /// Smallest unit of a request in bytes: 512, or a larger power of two. Torn writes always tear at 512.
    pub block_size: u32,
    /// Shortest time that a request takes.
    pub latency_min: Duration,
    /// Longest time that a request takes.
    pub latency_max: Duration,
    /// Whether discard does anything.
    pub discard: bool,
    /// Whether zeros can be written without moving data.
    pub fast_zero: bool,
    /// Whether reads and volatile changes are sometimes answered without waiting.
    pub instant: bool,
    /// Answers flushes and durable writes without making anything durable: a control for tests of tests.
    pub lies_about_flush: bool,
    /// Whether the disk may be written.
    pub access: Access,
}

impl DiskOptions {
    /// A disk of `size` bytes with blocks of 512 that takes 20 to 400 µs for a request.
    pub const fn sized(size: u64) -> Self {
        Self {
            size,
            block_size: 512,
            latency_min: Duration::from_micros(20),
            latency_max: Duration::from_micros(400),
            discard: true,
            fast_zero: true,
            instant: true,
            lies_about_flush: false,
            access: Access::ReadWrite,
        }
    }

    fn shape(&self) -> Shape {
        Shape {
            optimal_size: self.block_size.max(4096),
            discard: self.discard,
            fast_zero: self.fast_zero,
            access: self.access,
            ..Shape::new(self.size, self.block_size)
        }
    }
}

/// What a disk was asked to do so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCounters {
    /// Reads submitted.
    pub reads: u64,
    /// Writes submitted.
    pub writes: u64,
    /// Zero requests submitted.
    pub zeros: u64,
    /// Discards submitted.
    pub discards: u64,
    /// Flushes submitted.
    pub flushes: u64,
    /// Bytes of the reads.
    pub bytes_read: u64,
    /// Bytes of the writes.
    pub bytes_written: u64,
}

impl DiskCounters {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.zeros + self.discards + self.flushes
    }

    /// What came since `earlier`.
    pub fn since(&self, earlier: &DiskCounters) -> DiskCounters {
        DiskCounters {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            zeros: self.zeros - earlier.zeros,
            discards: self.discards - earlier.discards,
            flushes: self.flushes - earlier.flushes,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }

    pub(crate) fn count(&mut self, io: &Io) {
        let bytes = io.extent().length;
        match io {
            Io::Read { .. } => {
                self.reads += 1;
                self.bytes_read += bytes;
            }
            Io::Write { .. } => {
                self.writes += 1;
                self.bytes_written += bytes;
            }
            Io::Zero { .. } => self.zeros += 1,
            Io::Discard { .. } => self.discards += 1,
            Io::Flush => self.flushes += 1,
        }
    }
}

/// A disk. Cloning shares it; it outlives the worlds to which it is attached.
#[derive(Clone)]
pub struct SimDisk {
    hardware: Rc<DiskHardware>,
}

struct DiskHardware {
    options: DiskOptions,
    state: RefCell<State>,
}

struct State {
    medium: Medium,
    flights: BTreeMap<u64, Flight>,
    next_request: u64,
    counters: DiskCounters,
    faults: Faults,
    gone: bool,
    /// A flush has lost something: no change and no flush succeeds in this boot.
    poisoned: bool,
    has_lost_flush: bool,
    misdirect_next: Option<u64>,
}

/// The whole content of a disk at some time, cache included, to be put back later or on another disk.
#[derive(Clone)]
pub struct DiskImage {
    medium: Medium,
}

impl SimDisk {
    /// A disk of `size` bytes, all zeros; see [`DiskOptions::sized`].
    pub fn new(size: u64) -> Self {
        Self::with(DiskOptions::sized(size))
    }

    /// A disk with these properties, all zeros.
    pub fn with(options: DiskOptions) -> Self {
        assert!(options.block_size as usize >= SECTOR_SIZE && options.latency_min <= options.latency_max);
        let state = State {
            medium: Medium::default(),
            flights: BTreeMap::new(),
            next_request: 0,
            counters: DiskCounters::default(),
            faults: Faults::default(),
            gone: false,
            poisoned: false,
            has_lost_flush: false,
            misdirect_next: None,
        };
        Self { hardware: Rc::new(DiskHardware { options, state: RefCell::new(state) }) }
    }

    /// A handle for this boot of `world`; after a crash a new one is needed.
    pub fn device(&self, world: &World) -> Device {
        let core = Rc::clone(world.core());
        let hardware: Rc<dyn Hardware> = Rc::clone(&self.hardware) as Rc<dyn Hardware>;
        let number = core.attach(hardware);
        let boot = core.boot();
        Device::new(Attached { hardware: Rc::clone(&self.hardware), core, number, boot })
    }

    /// What the disk is like.
    pub fn options(&self) -> DiskOptions {
        self.hardware.options
    }

    /// What the disk was asked to do so far.
    pub fn counters(&self) -> DiskCounters {
        self.hardware.state.borrow().counters
    }

    /// Lets things go wrong by `plan`, as long as `budget` has faults left.
    pub fn set_faults(&self, plan: FaultPlan, budget: FaultBudget) {
        let mut state = self.hardware.state.borrow_mut();
        state.faults.plan = plan;
        state.faults.budget = budget;
    }

    /// Switches all faults off or on, past damage included: beneath them the disk is whole (FAULT1).
    pub fn enable_faults(&self, enabled: bool) {
        self.hardware.state.borrow_mut().faults.enabled = enabled;
    }

    /// Makes the sectors of `extent` unreadable until they are written again.
    pub fn make_unreadable(&self, extent: Extent) {
        self.damage(extent, |_| Damage::Unreadable);
    }

    /// Turns over one bit of each sector of `extent`, until it is written again.
    pub fn rot(&self, extent: Extent, random: &mut Random) {
        self.damage(extent, |_| flipped(random));
    }

    /// Repairs all damage (not what was misdirected into the budget of others: all of it).
    pub fn repair(&self) {
        self.hardware.state.borrow_mut().faults.forget_damage();
    }

    /// Sends the next write to `offset`, while it is acknowledged as if it had gone where it should.
    pub fn misdirect_next_write(&self, offset: u64) {
        self.hardware.state.borrow_mut().misdirect_next = Some(offset);
    }

    /// Takes the disk away: every request fails with [`IoError::Gone`].
    pub fn vanish(&self) {
        self.hardware.state.borrow_mut().gone = true;
    }

    /// Brings the disk back.
    pub fn reappear(&self) {
        self.hardware.state.borrow_mut().gone = false;
    }

    /// Whether a flush has lost something since this was last asked: then even the end of the process alone loses what
    /// was not durable.
    pub fn take_lost_flush(&self) -> bool {
        std::mem::take(&mut self.hardware.state.borrow_mut().has_lost_flush)
    }

    /// The whole content now.
    pub fn image(&self) -> DiskImage {
        DiskImage { medium: self.hardware.state.borrow().medium.clone() }
    }

    /// Puts back what `image` holds: an old state, or another disk's.
    pub fn restore(&self, image: &DiskImage) {
        let mut state = self.hardware.state.borrow_mut();
        assert!(state.flights.is_empty(), "a disk in use is not replaced");
        state.medium = image.medium.clone();
    }

    /// Reads what a device would read, past the world, faults and all requests. For looking at a disk from outside.
    pub fn peek(&self, extent: Extent) -> Vec<u8> {
        let mut bytes = vec![0; index(extent.length)];
        let state = self.hardware.state.borrow();
        state.medium.read(sectors(extent), &mut bytes);
        bytes
    }

    /// Writes durably, past the world and all requests: tampering from outside.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let extent = Extent::new(offset, bytes.len() as u64);
        let bytes: Rc<[u8]> = Rc::from(bytes);
        let mut state = self.hardware.state.borrow_mut();
        let request = state.new_request();
        for (number, sector) in sectors(extent).enumerate() {
            let content = Content::Data { bytes: Rc::clone(&bytes), start: number * SECTOR_SIZE };
            state.medium.apply(sector, request, content);
            state.medium.settle(sector, request);
            state.faults.written(sector);
        }
    }

    /// Makes an extent read as zeros durably, past the world and all requests.
    pub fn clear(&self, extent: Extent) {
        let mut state = self.hardware.state.borrow_mut();
        let request = state.new_request();
        for sector in state.medium.touched(sectors(extent)) {
            state.medium.apply(sector, request, Content::Zeros);
            state.medium.settle(sector, request);
        }
        sectors(extent).for_each(|sector| state.faults.written(sector));
    }

    fn damage(&self, extent: Extent, mut make: impl FnMut(u64) -> Damage) {
        let mut state = self.hardware.state.borrow_mut();
        for sector in sectors(extent) {
            state.faults.damage(sector, make(sector));
        }
    }
}

fn flipped(random: &mut Random) -> Damage {
    Damage::Flipped { byte: random.index(SECTOR_SIZE), mask: 1 << random.below(8) }
}

/// The sectors of `extent`, which is made of whole ones.
fn sectors(extent: Extent) -> std::ops::Range<u64> {
    let unit = SECTOR_SIZE as u64;
    assert!(extent.is_aligned(unit), "sectors of {extent:?}");
    extent.offset / unit..extent.end() / unit
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}

impl Hardware for DiskHardware {
    fn crash(&self, kind: CrashKind, random: &mut Random, chooser: &mut Chooser) -> CrashTally {
        let mut state = self.state.borrow_mut();
        state.apply_in_flight(kind, random);
        state.poisoned = false;
        state.medium.drop_lost();
        match kind {
            CrashKind::Power => state.medium.crash(chooser),
            CrashKind::Process => CrashTally::default(),
        }
    }

    fn in_flight(&self) -> Vec<String> {
        let state = self.state.borrow();
        state.flights.values().map(|flight| format!("{} {:?}", flight.verb, flight.extent)).collect()
    }
}

/// A disk in one boot of a world.
struct Attached {
    hardware: Rc<DiskHardware>,
    core: Rc<Core>,
    number: usize,
    boot: u64,
}

impl Attached {
    fn latency(&self, random: &mut Random) -> Duration {
        let DiskOptions { latency_min, latency_max, .. } = self.hardware.options;
        let spread = u64::try_from((latency_max - latency_min).as_nanos()).unwrap_or(u64::MAX);
        let extra = random.below(spread.saturating_add(1));
        // One request in eight is quick, so that the order of completion is not the order of length alone.
        latency_min + Duration::from_nanos(if random.chance(1, 8) { extra / 16 } else { extra })
    }

    fn may_be_instant(&self, io: &Io, random: &mut Random) -> bool {
        let volatile =
            matches!(io, Io::Read { .. } | Io::Write { durability: varve_block::Durability::Volatile, .. });
        self.hardware.options.instant && !self.core.is_steady() && volatile && random.chance(1, 12)
    }
}

impl BlockDevice for Attached {
    fn shape(&self) -> Shape {
        self.hardware.options.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if self.core.is_halted() {
            return Completion::pending(std::future::pending());
        }
        assert_eq!(self.boot, self.core.boot(), "a device of an earlier boot is used after a crash");
        if let Io::Zero { options, .. } = &io
            && options.fast
            && !self.hardware.options.fast_zero
        {
            return Completion::failed(IoError::Unsupported);
        }
        let (verb, extent, counts) = (io.verb(), io.extent(), !matches!(io, Io::Read { .. }));
        let (latency, instant, fault) = self.core.with_random(|random| {
            let fault = self.hardware.state.borrow().faults.draw(self.identity(), verb, random);
            (self.latency(random), self.may_be_instant(&io, random), fault)
        });
        let (reply, answer) = answer::channel();
        let id = self.hardware.state.borrow_mut().begin(io, fault, reply);
        self.core.event(self.number, Stage::Submitted, verb, extent, counts);
        let stall = if fault == Fault::Stall { FaultPlan::STALL } else { Duration::ZERO };
        let completer = Completer {
            hardware: Rc::clone(&self.hardware),
            core: Rc::clone(&self.core),
            number: self.number,
            id,
        };
        if instant && !self.core.is_halted() {
            completer.complete();
            if !self.core.is_halted() {
                return Completion::ready(answer.take().expect("a completed request has its answer"));
            }
        } else {
            self.core.call_at(self.core.now().after(latency + stall), move || completer.complete());
        }
        Completion::pending(answer)
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        match intent {
            MapIntent::Inspect => MapAnswer::of_status(&self.hardware.state.borrow().status(extent)),
            MapIntent::Read | MapIntent::Overwrite => MapAnswer::sent(extent.length),
        }
        .ready()
    }
}

impl Attached {
    /// Tells disks that share a budget apart.
    fn identity(&self) -> u64 {
        Rc::as_ptr(&self.hardware).addr() as u64
    }
}

/// Ends one request.
struct Completer {
    hardware: Rc<DiskHardware>,
    core: Rc<Core>,
    number: usize,
    id: u64,
}

impl Completer {
    fn complete(self) {
        let mut state = self.hardware.state.borrow_mut();
        let lies = self.hardware.options.lies_about_flush;
        let done = self.core.with_random(|random| state.complete(self.id, lies, random));
        drop(state);
        let stage = if done.outcome.is_ok() { Stage::Completed } else { Stage::Failed };
        // The crash that may come right after this event takes the answer with it.
        self.core.event(self.number, stage, done.verb, done.extent, done.counts);
        if !self.core.is_halted() {
            // The future may be dropped by now, which changes nothing (SIMDISK4).
            done.reply.send(done.outcome);
        }
    }
}

impl State {
    fn status(&self, extent: Extent) -> Vec<StatusRun> {
        let mut runs: Vec<StatusRun> = Vec::new();
        let range = sectors(extent);
        let mut sector = range.start;
        while sector < range.end {
            let (hole, next) = self.medium.hole_at(sector);
            let next = next.min(range.end);
            let length = (next - sector) * SECTOR_SIZE as u64;
            let allocation = if hole { Allocation::Hole } else { Allocation::Data };
            match runs.last_mut() {
                Some(last) if last.allocation == allocation => last.length += length,
                _ => runs.push(StatusRun { length, allocation }),
            }
            sector = next;
        }
        runs
    }
}
