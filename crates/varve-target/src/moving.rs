//! A run of bytes on its way to another place, while requests for it go on.
//!
//! [`Move`] is a device that stands in for the run. Its owner copies the run in pieces ([`Move::copy`]), prepares the new
//! place ([`Move::prepare`]), records durably that it is authoritative, and then says so ([`Move::finish`]).
//!
//! ```text
//! Copying ── prepare ──► Prepared ── finish ──► Moved
//!    └──── abandon, or an error ─┴──► Abandoned
//! ```
//!
//! Invariants:
//! - MOVE1. The old place is authoritative until [`Move::finish`], the new one from then on: reads go to the authoritative place.
//! - MOVE2. Until it is moved or abandoned, a change of what was copied is acknowledged when both places have it; what was not
//!   copied yet is changed in the old place alone. While it is being copied, an error of either place abandons the move, and the old
//!   place alone answers; once it is prepared, it is the answer. A discard of what was copied does nothing, because the two places
//!   could read differently after it.
//! - MOVE3. Changes hold their blocks alone, and copying holds its pieces alone: both places receive changes in one order.
//! - MOVE4. A move is prepared when every piece of it was copied and the new place has flushed since.

mod copy;
mod movable_disk;

pub use movable_disk::MovableDisk;

use futures_util::future::join;
use std::cell::Cell;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, LockMode, MapAnswer, MapFuture,
    MapIntent, Outcome, RangeLock, Shape, ZeroOptions,
};

/// How far a move is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveState {
    /// The old place is authoritative, and the new one lacks something.
    Copying,
    /// Both places hold the same, durably; either may count.
    Prepared,
    /// The new place is authoritative.
    Moved,
    /// The old place is authoritative, and it alone receives changes.
    Abandoned(MoveError),
}

/// Why a move was abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveError {
    /// The old place failed.
    Old(IoError),
    /// The new place failed.
    New(IoError),
    /// Its owner did so.
    Cancelled,
}

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedBug {
    /// A change reaches the old place only (breaks MOVE2).
    ForgetNewPlace,
    /// Pieces are copied beside their writers (breaks MOVE3).
    CopyBesideWriters,
    /// The new place is not flushed (breaks MOVE4).
    SkipFlush,
    /// The last piece is not copied (breaks MOVE4).
    SkipLastPiece,
}

/// A run of bytes that moves.
pub struct Move {
    old: (Device, u64),
    new: (Device, u64),
    shape: Shape,
    state: Cell<MoveState>,
    /// Bytes from the start that were copied.
    copied: Cell<u64>,
    lock: RangeLock,
    bug: Option<InjectedBug>,
}

impl Move {
    /// The run `extent` of `old` goes to `offset` of `new`, whose blocks are not larger; both places are whole blocks.
    pub fn new(old: &Device, extent: Extent, new: &Device, offset: u64) -> Self {
        let target = Extent::new(offset, extent.length);
        assert!(old.shape().extent().contains(extent), "a run inside the old device, not {extent:?}");
        assert!(new.shape().extent().contains(target), "a place inside the new device, not {target:?}");
        let block_size = old.shape().block_size;
        assert!(new.shape().block_size <= block_size, "MOVE2: the new place takes every change");
        assert!(extent.is_aligned(u64::from(block_size)) && target.is_aligned(u64::from(block_size)));
        Self {
            old: (old.clone(), extent.offset),
            new: (new.clone(), offset),
            shape: Shape { size: extent.length, ..old.shape() },
            state: Cell::new(MoveState::Copying),
            copied: Cell::new(0),
            lock: RangeLock::new(),
            bug: None,
        }
    }

    /// The device that stands in for the run.
    pub fn device(self: &Rc<Self>) -> Device {
        Device::new(MovingRun(Rc::clone(self)))
    }

    /// This move, with a fault.
    #[doc(hidden)]
    #[must_use]
    pub fn with_bug(self, bug: Option<InjectedBug>) -> Self {
        Self { bug, ..self }
    }

    /// Where the run goes.
    pub fn new_place(&self) -> Extent {
        Extent::new(self.new.1, self.shape.size)
    }

    /// How far it is.
    pub fn state(&self) -> MoveState {
        self.state.get()
    }

    /// Bytes that are still to be copied.
    pub fn left(&self) -> u64 {
        self.shape.size - self.copied.get()
    }

    /// MOVE4: afterwards it may be recorded that the new place is authoritative, and what cannot be known to be recorded may be.
    pub async fn prepare(&self) -> Result<(), MoveError> {
        self.check_copying()?;
        assert_eq!(self.left(), 0, "MOVE4");
        if !self.has(InjectedBug::SkipFlush) {
            self.new.0.flush().await.map_err(|error| self.fail(MoveError::New(error)))?;
        }
        self.check_copying()?;
        self.state.set(MoveState::Prepared);
        self.assert_consistent();
        Ok(())
    }

    /// The new place is authoritative, durably (MOVE1).
    pub fn finish(&self) {
        assert_eq!(self.state(), MoveState::Prepared, "MOVE4");
        self.state.set(MoveState::Moved);
        self.assert_consistent();
    }

    /// The old place is authoritative, whatever was prepared.
    pub fn abandon(&self) {
        assert_ne!(self.state(), MoveState::Moved, "MOVE1");
        self.fail(MoveError::Cancelled);
    }

    fn has(&self, bug: InjectedBug) -> bool {
        self.bug == Some(bug)
    }

    fn check_copying(&self) -> Result<(), MoveError> {
        match self.state() {
            MoveState::Abandoned(error) => Err(error),
            state => {
                assert_eq!(state, MoveState::Copying, "MOVE4: it is copied and prepared once");
                Ok(())
            }
        }
    }

    fn fail(&self, error: MoveError) -> MoveError {
        if !matches!(self.state(), MoveState::Abandoned(_)) {
            self.state.set(MoveState::Abandoned(error));
        }
        error
    }

    /// No more was copied than there is, and all of it where the new place is authoritative or may be.
    fn assert_consistent(&self) {
        assert!(self.copied.get() <= self.shape.size, "MOVE4: what is copied is of the run");
        let must_be_whole = matches!(self.state(), MoveState::Prepared | MoveState::Moved);
        assert!(!must_be_whole || self.left() == 0, "MOVE4: all of it is copied");
    }

    fn counts(&self) -> &(Device, u64) {
        if self.state() == MoveState::Moved { &self.new } else { &self.old }
    }

    async fn change(&self, io: Io) -> Outcome {
        let _alone = self.lock.lock(io.extent(), LockMode::Exclusive).await; // MOVE3
        let copied = match self.state() {
            MoveState::Copying | MoveState::Prepared => self.copied.get(),
            MoveState::Moved | MoveState::Abandoned(_) => 0,
        };
        if io.extent().offset >= copied || self.has(InjectedBug::ForgetNewPlace) {
            return submit(self.counts(), io).await;
        }
        let Some(twin) = twin(&io, copied) else { return Ok(Buffer::empty()) };
        let (old, new) = join(submit(&self.old, io), submit(&self.new, twin)).await;
        self.joined(old, new)
    }

    async fn flush(&self) -> Outcome {
        match self.state() {
            MoveState::Copying | MoveState::Prepared => {
                let (old, new) = join(self.old.0.flush(), self.new.0.flush()).await;
                self.joined(old, new)
            }
            MoveState::Moved => self.new.0.flush().await,
            MoveState::Abandoned(_) => self.old.0.flush().await,
        }
    }

    /// The answer to a change that went to both places (MOVE2).
    fn joined(&self, old: Outcome, new: Outcome) -> Outcome {
        match self.state() {
            MoveState::Copying => {
                if let Err(error) = &new {
                    self.fail(MoveError::New(*error));
                }
                if let Err(error) = &old {
                    self.fail(MoveError::Old(*error));
                }
                old
            }
            MoveState::Prepared => old.and(new),
            MoveState::Moved => new,
            MoveState::Abandoned(_) => old,
        }
    }
}

fn submit((device, offset): &(Device, u64), io: Io) -> Completion<'_> {
    let at = offset + io.extent().offset;
    device.submit(io.at(at))
}

/// The same change of the first `copied` bytes for the new place, which need not be as fast; none of a discard (MOVE2).
fn twin(io: &Io, copied: u64) -> Option<Io> {
    let Extent { offset, length } = io.extent();
    let length = length.min(copied - offset);
    match io {
        Io::Write { data, durability, .. } => {
            let data = data.slice(0, usize::try_from(length).expect("no longer than what is written"));
            Some(Io::Write { offset, data, durability: *durability })
        }
        Io::Zero { options, .. } => {
            let options = ZeroOptions { fast: false, ..*options };
            Some(Io::Zero { extent: Extent::new(offset, length), options })
        }
        Io::Discard { .. } => None,
        Io::Read { .. } | Io::Flush => unreachable!("MOVE2: a change"),
    }
}

/// The device that stands in for the run.
struct MovingRun(Rc<Move>);

impl BlockDevice for MovingRun {
    fn shape(&self) -> Shape {
        self.0.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            io @ Io::Read { .. } => submit(self.0.counts(), io),
            Io::Flush => Completion::pending(self.0.flush()),
            io => Completion::pending(self.0.change(io)),
        }
    }

    /// Reads go to the authoritative place. As long as there are two, both must receive a change (MOVE2). A guard of the disk, as
    /// its volume sees it, keeps the run from being led elsewhere, and from moving again.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        let has_two = matches!(self.0.state(), MoveState::Copying | MoveState::Prepared);
        if intent == MapIntent::Overwrite && has_two {
            return MapAnswer::sent(extent.length).ready();
        }
        let (device, offset) = self.0.counts();
        MapAnswer::through(device, offset + extent.offset, extent.length).ready()
    }
}
