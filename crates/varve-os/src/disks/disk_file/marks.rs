//! What a disk is known to hold, in a few places: the last write to each that a flush has covered, to be read again when the disk
//! returns after it was away.
//!
//! Invariants:
//! - MARKS1. A mark is what every disk holds that is as new as the one that left: it was covered by a flush, and no change of what it
//!   speaks of has begun since.
//! - MARKS2. A write that ran beside another one of the same bytes leaves no mark. A change that is not awaited to its end may happen
//!   at any time: where it goes there are no marks any more.

use std::sync::{Mutex, MutexGuard, PoisonError};
use varve_block::Extent;
use varve_block::host::DiskMark;

/// So many parts of a disk have a mark each.
const PARTS: usize = 16;
/// Most bytes of a mark, if the sectors of the disk are not larger.
const LENGTH: usize = 512;

/// The marks of an open disk.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Bytes of a part, but for the last one, which has all that the disk grows by: a mark stays where it was put.
    part_length: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    under_way: Vec<(u64, Extent, bool)>,
    parts: [Part; PARTS],
}

/// What is known of a part of the disk.
#[derive(Debug, Default)]
struct Part {
    /// What was written last. A write costs a copy of its first bytes, and the sum is taken when a flush begins.
    written: Written,
    /// Being flushed.
    flushing: Option<DiskMark>,
    flushed: Option<DiskMark>,
    /// Its marks say nothing any more (MARKS2).
    is_spoiled: bool,
}

/// What a mark will be of; nothing if there are no bytes.
#[derive(Debug, Default)]
struct Written {
    offset: u64,
    bytes: Vec<u8>,
}

/// A change that is under way.
#[derive(Debug)]
pub(crate) struct Change<'m> {
    marks: &'m Marks,
    number: u64,
    /// The parts that it changes.
    parts: (usize, usize),
}

impl Marks {
    /// Those of a disk that has `size` bytes when it is opened.
    pub(crate) fn new(size: u64) -> Self {
        Self { part_length: size.div_ceil(PARTS as u64).max(1), state: Mutex::default() }
    }

    /// A change of `extent` begins.
    pub(crate) fn begin(&self, extent: Extent) -> Change<'_> {
        let mut state = self.state();
        let parts = (self.part_of(extent.offset), self.part_of(extent.end().max(1) - 1));
        // A mark is where it begins, and may reach into the next part.
        for part in &mut state.parts[parts.0.saturating_sub(1)..=parts.1] {
            part.change(extent); // MARKS1
        }
        let mut is_alone = true;
        for (_, other, other_alone) in &mut state.under_way {
            if overlap(*other, extent) {
                (is_alone, *other_alone) = (false, false); // MARKS2
            }
        }
        let number = state.next;
        state.next += 1;
        state.under_way.push((number, extent, is_alone));
        Change { marks: self, number, parts }
    }

    /// A flush begins: it covers what is written by now.
    pub(crate) fn begin_flush(&self) {
        for part in &mut self.state().parts {
            part.flushing = part.written.take().or(part.flushing);
        }
    }

    /// The flush has succeeded.
    pub(crate) fn end_flush(&self) {
        for part in &mut self.state().parts {
            part.flushed = part.flushing.take().or(part.flushed);
        }
    }

    /// The disk, which was not written yet, holds these.
    pub(super) fn adopt(&self, marks: &[DiskMark]) {
        let state = &mut *self.state();
        for mark in marks {
            state.parts[self.part_of(mark.offset)].flushed.get_or_insert(*mark);
        }
    }

    /// What the disk is known to hold (MARKS1).
    pub(super) fn known(&self) -> Vec<DiskMark> {
        self.state().parts.iter().filter_map(|part| part.flushed).collect()
    }

    fn part_of(&self, offset: u64) -> usize {
        usize::try_from(offset / self.part_length).unwrap_or(PARTS).min(PARTS - 1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Change<'_> {
    /// It wrote `data`, of a disk with such sectors; durably, if it `is_durable`.
    pub(crate) fn wrote(self, data: &[u8], sector: usize, is_durable: bool) {
        let mut state = self.marks.state();
        let (extent, is_alone) = state.end(self.number);
        let part = &mut state.parts[self.parts.0];
        let bytes = &data[..data.len().min(LENGTH.max(sector))];
        if is_alone && !bytes.is_empty() && !part.is_spoiled {
            if is_durable {
                part.flushed = Some(DiskMark::of(extent.offset, bytes));
            } else {
                part.written.set(extent.offset, bytes);
            }
        }
        drop(state);
        std::mem::forget(self);
    }

    /// It changed something, or failed.
    pub(crate) fn ended(self) {
        self.marks.state().end(self.number);
        std::mem::forget(self);
    }
}

impl State {
    /// Where change `number` went, and whether it was alone there.
    fn end(&mut self, number: u64) -> (Extent, bool) {
        let at = self.under_way.iter().position(|(other, ..)| *other == number);
        let at = at.expect("MARKS2: a change ends once");
        let (_, extent, is_alone) = self.under_way.swap_remove(at);
        (extent, is_alone)
    }
}

impl Part {
    /// `extent` is changed: what was known of it is known no more.
    fn change(&mut self, extent: Extent) {
        if overlap(self.written.extent(), extent) {
            self.written.bytes.clear();
        }
        for mark in [&mut self.flushing, &mut self.flushed] {
            if mark.is_some_and(|mark| overlap(mark.extent(), extent)) {
                *mark = None;
            }
        }
    }
}

impl Written {
    fn set(&mut self, offset: u64, bytes: &[u8]) {
        self.offset = offset;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    fn extent(&self) -> Extent {
        Extent::new(self.offset, self.bytes.len() as u64)
    }

    /// The mark, if there is one.
    fn take(&mut self) -> Option<DiskMark> {
        let mark = (!self.bytes.is_empty()).then(|| DiskMark::of(self.offset, &self.bytes));
        self.bytes.clear();
        mark
    }
}

impl Drop for Change<'_> {
    /// MARKS2: its end is not awaited.
    fn drop(&mut self) {
        let mut state = self.marks.state();
        state.end(self.number);
        for part in &mut state.parts[self.parts.0..=self.parts.1] {
            *part = Part { is_spoiled: true, ..Part::default() };
        }
    }
}

/// Whether a byte is in both.
fn overlap(one: Extent, other: Extent) -> bool {
    one.offset.max(other.offset) < one.end().min(other.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 16 << 20;

    fn write(marks: &Marks, offset: u64, value: u8) {
        let data = [value; 4096];
        marks.begin(Extent::new(offset, 4096)).wrote(&data, 512, false);
    }

    fn flush(marks: &Marks) {
        marks.begin_flush();
        marks.end_flush();
    }

    fn mark(offset: u64, value: u8) -> DiskMark {
        DiskMark::of(offset, &[value; 512])
    }

    #[test]
    fn the_last_flushed_write_of_each_part_is_known_until_it_is_changed() {
        let marks = Marks::new(SIZE);
        write(&marks, 0, 1);
        assert_eq!(marks.known(), [], "MARKS1: it is not flushed");
        flush(&marks);
        write(&marks, 8192, 2);
        write(&marks, 2 << 20, 3);
        assert_eq!(marks.known(), [mark(0, 1)]);
        flush(&marks);
        assert_eq!(marks.known(), [mark(8192, 2), mark(2 << 20, 3)]);
        marks.begin(Extent::new(4096, 2 << 20)).ended();
        assert_eq!(marks.known(), [], "MARKS1");
        marks.begin(Extent::new(0, 4096)).wrote(&[9; 4096], 512, true);
        assert_eq!(marks.known(), [mark(0, 9)], "it was durable");
    }

    #[test]
    fn what_is_written_while_a_flush_runs_is_not_covered_by_it() {
        let marks = Marks::new(SIZE);
        write(&marks, 0, 1);
        marks.begin_flush();
        write(&marks, 4096, 2);
        marks.end_flush();
        assert_eq!(marks.known(), [mark(0, 1)]);
        marks.begin_flush();
        let change = marks.begin(Extent::new(4096, 512));
        marks.end_flush();
        change.ended();
        assert_eq!(marks.known(), [mark(0, 1)], "MARKS1: what it covered is being changed");
    }

    #[test]
    fn of_writes_side_by_side_and_of_those_that_nobody_awaits_nothing_is_known() {
        let marks = Marks::new(SIZE);
        let one = marks.begin(Extent::new(0, 4096));
        let other = marks.begin(Extent::new(512, 4096));
        one.wrote(&[1; 4096], 512, true);
        other.wrote(&[2; 4096], 512, true);
        assert_eq!(marks.known(), [], "MARKS2");
        drop(marks.begin(Extent::new(0, 4096)));
        write(&marks, 8192, 3);
        flush(&marks);
        assert_eq!(marks.known(), [], "MARKS2: it may happen later");
    }
}
