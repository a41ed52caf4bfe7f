//! A disk as one volume sees it: some runs of it move, or lie elsewhere, while requests go on.
//!
//! Invariant MOVABLE1: a move concerns what of its run is reached on the disk itself, and nothing else. Where the volume was led
//! elsewhere before, its bytes are not in that run, whatever bytes are there now.

use super::{Move, MoveState};
use crate::{ErrorTarget, Linear};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, IoError, MapFuture, MapIntent, Shape, Switch,
};

/// A disk as one volume sees it.
pub struct MovableDisk {
    disk: RefCell<Device>,
    runs: RefCell<Runs>,
    has_left: Cell<bool>,
    switch: Switch,
}

/// Runs that are not reached on a disk itself, by their first bytes on it.
type Runs = BTreeMap<u64, Run>;

/// Where a run is reached instead.
struct Run {
    length: u64,
    device: Device,
    offset: u64,
    /// What it moves by, as long as it does.
    moved: Option<Rc<Move>>,
}

impl MovableDisk {
    /// All of `disk`, of which these moves are under way.
    pub fn new(disk: Device, moves: impl IntoIterator<Item = Rc<Move>>) -> Rc<Self> {
        let mut runs = Runs::new();
        moves.into_iter().for_each(|moved| begin(&mut runs, &moved));
        let switch = Switch::new(joined(&disk, &runs));
        let (disk, runs, has_left) = (RefCell::new(disk), RefCell::new(runs), Cell::new(false));
        Rc::new(Self { disk, runs, has_left, switch })
    }

    /// Requests for the run of `moved` go through it, as far as it is reached on the disk (MOVABLE1). Afterwards none is under way
    /// past it.
    pub async fn begin(&self, moved: &Rc<Move>) {
        if !self.has_left.get() {
            begin(&mut self.runs.borrow_mut(), moved);
            self.turn().await;
        }
    }

    /// Whether anything of the disk goes through `moved`.
    pub fn goes_through(&self, moved: &Rc<Move>) -> bool {
        self.runs.borrow().values().any(|run| run.is_of(moved))
    }

    /// Requests for the run of `moved` go to the authoritative place. Afterwards none is under way to the other one. The new place is
    /// reached through `target`: its disk, as the same volume sees it.
    pub async fn end(&self, moved: &Rc<Move>, target: &Device) {
        let ended: Vec<(u64, Run)> =
            self.runs.borrow_mut().extract_if(.., |_, run| run.is_of(moved)).collect();
        if moved.state() == MoveState::Moved {
            for (start, run) in ended {
                self.add(start, run.length, (target, moved.new.1 + run.offset));
            }
        }
        self.turn().await;
    }

    /// Whether `extent` is reached on the disk itself, which may have grown since this was made.
    pub fn is_plain(&self, extent: Extent) -> bool {
        let is_inside = self.disk.borrow().shape().extent().contains(extent);
        is_inside && !self.has_left.get() && plain(&self.runs.borrow(), extent) == [extent]
    }

    /// Nothing of the volume is left on the disk itself: no request, and no flush, goes there any more.
    pub async fn leave(&self) {
        let Shape { size, block_size, .. } = self.disk.borrow().shape();
        self.has_left.set(true);
        self.disk.replace(Device::new(ErrorTarget::empty(size, block_size, IoError::Gone)));
        self.turn().await;
    }

    /// A run is at `place`, with the run before it if that is before it there, too.
    fn add(&self, start: u64, length: u64, (target, at): (&Device, u64)) {
        let mut runs = self.runs.borrow_mut();
        if let Some((before, run)) = runs.range_mut(..start).next_back()
            && run.moved.is_none()
            && *before + run.length == start
            && run.device.is_same(target)
            && run.offset + run.length == at
        {
            run.length += length;
        } else {
            let before = runs.insert(start, Run { length, device: target.clone(), offset: at, moved: None });
            assert!(before.is_none(), "MOVABLE1: a byte lies in one place, {start}");
        }
    }

    async fn turn(&self) {
        let suspended = self.switch.suspend().await;
        suspended.replace(joined(&self.disk.borrow(), &self.runs.borrow()));
    }
}

impl Run {
    fn is_of(&self, moved: &Rc<Move>) -> bool {
        self.moved.as_ref().is_some_and(|own| Rc::ptr_eq(own, moved))
    }
}

impl BlockDevice for MovableDisk {
    fn shape(&self) -> Shape {
        self.switch.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.switch.submit(io)
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        self.switch.map(extent, intent)
    }
}

/// Begins to lead what is reached on the disk itself to both places (MOVABLE1).
fn begin(runs: &mut Runs, moved: &Rc<Move>) {
    let all = Extent::new(moved.old.1, moved.shape.size);
    for piece in plain(runs, all) {
        let (device, offset) = (moved.device(), piece.offset - all.offset);
        let run = Run { length: piece.length, device, offset, moved: Some(Rc::clone(moved)) };
        runs.insert(piece.offset, run);
    }
}

/// The parts of `extent` that none of `runs` has.
fn plain(runs: &Runs, extent: Extent) -> Vec<Extent> {
    let (mut at, mut parts) = (extent.offset, Vec::new());
    for (start, run) in runs.range(..extent.end()) {
        if at < *start {
            parts.push(Extent::new(at, start - at));
        }
        at = at.max(start + run.length);
    }
    if at < extent.end() {
        parts.push(Extent::new(at, extent.end() - at));
    }
    assert!(parts.iter().all(|part| extent.contains(*part)), "MOVABLE1: {parts:?} of {extent:?}");
    parts
}

/// The device of a disk of which `runs` are elsewhere.
fn joined(disk: &Device, runs: &Runs) -> Device {
    if runs.is_empty() {
        return disk.clone();
    }
    let (mut at, mut segments) = (0, Vec::with_capacity(2 * runs.len() + 1));
    for (start, run) in runs {
        assert!(at <= *start, "MOVABLE1: a byte lies in one place, {start}");
        segments.push((start - at, disk.clone(), at));
        segments.push((run.length, run.device.clone(), run.offset));
        at = start + run.length;
    }
    segments.push((disk.shape().size - at, disk.clone(), at));
    segments.retain(|(length, ..)| *length > 0);
    Device::new(Linear::new(segments))
}
