//! The model disk: a disk whose throughput in virtual time is exact, to compare amounts of I/O with.
//!
//! It serves one request at a time, in the order in which they came; a request takes 2 ms for up to 64 KiB, a
//! longer one is served in pieces of 64 KiB (500 requests a second, 32 MB a second); a flush is a request; there is
//! no arm. It never fails, and does not crash: use [`crate::SimDisk`] for that.
//!
//! Invariant MODELDISK1: the disk is busy for 2 ms for each piece, and never idle while a request waits.

use crate::chance::{Chooser, CrashTally};
use crate::disk::DiskCounters;
use crate::disk::answer;
use crate::random::Random;
use crate::world::{Core, CrashKind, Hardware, Stage, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{
    BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, KIB, Moment, Outcome, Shape,
};

/// Bytes of a page of memory.
const PAGE: u64 = 64 * KIB;

/// The model disk. Cloning shares it.
#[derive(Clone)]
pub struct ModelDisk {
    inner: Rc<Inner>,
}

struct Inner {
    size: u64,
    busy_until: Cell<Moment>,
    pages: RefCell<BTreeMap<u64, Box<[u8]>>>,
    counters: Cell<DiskCounters>,
    pieces: Cell<u64>,
}

impl ModelDisk {
    /// How long a piece takes.
    pub const PIECE_TIME: Duration = Duration::from_millis(2);
    /// The longest piece in bytes.
    pub const PIECE_BYTES: u64 = 64 * KIB;

    /// A disk of `size` bytes, all zeros, with blocks of 512.
    pub fn new(size: u64) -> Self {
        let inner = Inner {
            size,
            busy_until: Cell::default(),
            pages: RefCell::default(),
            counters: Cell::default(),
            pieces: Cell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// A handle for this boot of `world`, best a [`World::steady`] one.
    pub fn device(&self, world: &World) -> Device {
        let core = Rc::clone(world.core());
        let hardware: Rc<dyn Hardware> = Rc::clone(&self.inner) as Rc<dyn Hardware>;
        let number = core.attach(hardware);
        Device::new(Attached { inner: Rc::clone(&self.inner), core, number })
    }

    /// What the disk was asked to do so far.
    pub fn counters(&self) -> DiskCounters {
        self.inner.counters.get()
    }

    /// The pieces that it served so far: its time is 2 ms for each.
    pub fn pieces(&self) -> u64 {
        self.inner.pieces.get()
    }
}

/// Pieces that a request is served in.
fn pieces(io: &Io) -> u64 {
    io.extent().length.div_ceil(ModelDisk::PIECE_BYTES).max(1)
}

impl Inner {
    /// The moment at which a request of `pieces` that comes now is done (MODELDISK1).
    fn serve(&self, now: Moment, pieces: u64) -> Moment {
        let start = self.busy_until.get().max(now);
        let nanos = u64::try_from(ModelDisk::PIECE_TIME.as_nanos()).expect("2 ms").saturating_mul(pieces);
        let done = start.after(Duration::from_nanos(nanos));
        assert!(start >= self.busy_until.get() && start >= now, "MODELDISK1: one piece after the other");
        self.busy_until.set(done);
        self.pieces.set(self.pieces.get() + pieces);
        done
    }

    fn carry_out(&self, io: Io) -> Outcome {
        let mut pages = self.pages.borrow_mut();
        match io {
            Io::Read { offset, mut buffer } => {
                for (page, part, bytes) in parts(Extent::new(offset, buffer.len() as u64)) {
                    match pages.get(&page) {
                        Some(content) => buffer[bytes].copy_from_slice(&content[part]),
                        None => buffer[bytes].fill(0),
                    }
                }
                return Ok(buffer);
            }
            Io::Write { offset, data, .. } => {
                for (page, part, bytes) in parts(Extent::new(offset, data.len() as u64)) {
                    page_of(&mut pages, page)[part].copy_from_slice(&data[bytes]);
                }
            }
            Io::Zero { extent, .. } => {
                for (page, part, _) in parts(extent) {
                    if let Some(content) = pages.get_mut(&page) {
                        content[part].fill(0);
                    }
                }
            }
            Io::Discard { .. } | Io::Flush => {}
        }
        Ok(Buffer::empty())
    }
}

fn page_of(pages: &mut BTreeMap<u64, Box<[u8]>>, page: u64) -> &mut [u8] {
    pages.entry(page).or_insert_with(|| vec![0; index(PAGE)].into_boxed_slice())
}

/// For each page that `extent` touches: its number, the bytes within it, the bytes within the request.
fn parts(extent: Extent) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    extent.pieces(PAGE).map(move |(page, part)| {
        let start = part.offset - page * PAGE;
        let within = part.offset - extent.offset;
        (page, index(start)..index(start + part.length), index(within)..index(within + part.length))
    })
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}

impl Hardware for Inner {
    fn crash(&self, _: CrashKind, _: &mut Random, _: &mut Chooser) -> CrashTally {
        self.busy_until.set(Moment::default());
        CrashTally::default()
    }

    fn in_flight(&self) -> Vec<String> {
        Vec::new()
    }
}

struct Attached {
    inner: Rc<Inner>,
    core: Rc<Core>,
    number: usize,
}

impl BlockDevice for Attached {
    fn shape(&self) -> Shape {
        Shape { optimal_size: 4096, ..Shape::new(self.inner.size, 512) }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        match &io {
            Io::Zero { options, .. } if options.fast => return Completion::failed(IoError::Unsupported),
            Io::Discard { .. } => return Completion::done(),
            _ => {}
        }
        let mut counters = self.inner.counters.get();
        counters.count(&io);
        self.inner.counters.set(counters);
        let (verb, extent, counts) = (io.verb(), io.extent(), !matches!(io, Io::Read { .. }));
        self.core.event(self.number, Stage::Submitted, verb, extent, counts);
        let done_at = self.inner.serve(self.core.now(), pieces(&io));
        let (reply, answer) = answer::channel();
        let (inner, core, number) = (Rc::clone(&self.inner), Rc::clone(&self.core), self.number);
        self.core.call_at(done_at, move || {
            let outcome = inner.carry_out(io);
            core.event(number, Stage::Completed, verb, extent, counts);
            if !core.is_halted() {
                reply.send(outcome);
            }
        });
        Completion::pending(answer)
    }
}
