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
#[derive(Debug, Default)]
pub(crate) struct Marks {
    state: Mutex<State>,
}

type Part = Option<DiskMark>;

#[derive(Debug, Default)]
struct State {
    next: u64,
    under_way: Vec<(u64, Extent, bool)>,
    /// Written; being flushed; flushed.
    written: [Part; PARTS],
    flushing: [Part; PARTS],
    flushed: [Part; PARTS],
    /// Parts of the disk in which marks say nothing any more (MARKS2).
    spoiled: [bool; PARTS],
}

/// A change that is under way.
#[derive(Debug)]
pub(crate) struct Change<'m> {
    marks: &'m Marks,
    number: u64,
    size: u64,
}

impl Marks {
    /// A change of `extent` of a disk of `size` bytes begins.
    pub(crate) fn begin(&self, extent: Extent, size: u64) -> Change<'_> {
        let mut state = self.state();
        let parts = part_of(extent.offset, size)..=part_of(extent.end().max(1) - 1, size);
        let State { written, flushing, flushed, .. } = &mut *state;
        for part in parts {
            for marks in [&mut *written, &mut *flushing, &mut *flushed] {
                // A mark is where it begins, and may reach into the next part.
                for near in [part.saturating_sub(1), part] {
                    if marks[near].is_some_and(|mark| overlap(mark.extent(), extent)) {
                        marks[near] = None; // MARKS1
                    }
                }
            }
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
        Change { marks: self, number, size }
    }

    /// A flush begins: it covers what is written by now.
    pub(crate) fn begin_flush(&self) {
        let state = &mut *self.state();
        for (written, flushing) in state.written.iter_mut().zip(&mut state.flushing) {
            *flushing = written.take().or(*flushing);
        }
    }

    /// The flush has succeeded.
    pub(crate) fn end_flush(&self) {
        let state = &mut *self.state();
        for (flushing, flushed) in state.flushing.iter_mut().zip(&mut state.flushed) {
            *flushed = flushing.take().or(*flushed);
        }
    }

    /// The disk, of `size` bytes, which was not written yet, holds these.
    pub(super) fn adopt(&self, marks: &[DiskMark], size: u64) {
        let state = &mut *self.state();
        for mark in marks {
            state.flushed[part_of(mark.offset, size)].get_or_insert(*mark);
        }
    }

    /// What the disk is known to hold (MARKS1).
    pub(super) fn known(&self) -> Vec<DiskMark> {
        self.state().flushed.iter().flatten().copied().collect()
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
        let part = part_of(extent.offset, self.size);
        let length = data.len().min(LENGTH.max(sector));
        if is_alone && length > 0 && !state.spoiled[part] {
            let mark = Some(DiskMark::of(extent.offset, &data[..length]));
            if is_durable {
                state.flushed[part] = mark;
            } else {
                state.written[part] = mark;
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

impl Drop for Change<'_> {
    /// MARKS2: its end is not awaited.
    fn drop(&mut self) {
        let mut state = self.marks.state();
        let (extent, _) = state.end(self.number);
        let parts = part_of(extent.offset, self.size)..=part_of(extent.end().max(1) - 1, self.size);
        for part in parts {
            state.spoiled[part] = true;
            (state.written[part], state.flushing[part], state.flushed[part]) = (None, None, None);
        }
    }
}

fn part_of(offset: u64, size: u64) -> usize {
    let part = u128::from(offset) * PARTS as u128 / u128::from(size.max(1));
    usize::try_from(part).unwrap_or(PARTS).min(PARTS - 1)
}

fn overlap(one: Extent, other: Extent) -> bool {
    one.offset < other.end() && other.offset < one.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 16 << 20;

    fn write(marks: &Marks, offset: u64, value: u8) {
        let data = [value; 4096];
        marks.begin(Extent::new(offset, 4096), SIZE).wrote(&data, 512, false);
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
        let marks = Marks::default();
        write(&marks, 0, 1);
        assert_eq!(marks.known(), [], "MARKS1: it is not flushed");
        flush(&marks);
        write(&marks, 8192, 2);
        write(&marks, 2 << 20, 3);
        assert_eq!(marks.known(), [mark(0, 1)]);
        flush(&marks);
        assert_eq!(marks.known(), [mark(8192, 2), mark(2 << 20, 3)]);
        marks.begin(Extent::new(4096, 2 << 20), SIZE).ended();
        assert_eq!(marks.known(), [], "MARKS1");
        marks.begin(Extent::new(0, 4096), SIZE).wrote(&[9; 4096], 512, true);
        assert_eq!(marks.known(), [mark(0, 9)], "it was durable");
    }

    #[test]
    fn what_is_written_while_a_flush_runs_is_not_covered_by_it() {
        let marks = Marks::default();
        write(&marks, 0, 1);
        marks.begin_flush();
        write(&marks, 4096, 2);
        marks.end_flush();
        assert_eq!(marks.known(), [mark(0, 1)]);
        marks.begin_flush();
        let change = marks.begin(Extent::new(4096, 512), SIZE);
        marks.end_flush();
        change.ended();
        assert_eq!(marks.known(), [mark(0, 1)], "MARKS1: what it covered is being changed");
    }

    #[test]
    fn of_writes_side_by_side_and_of_those_that_nobody_awaits_nothing_is_known() {
        let marks = Marks::default();
        let one = marks.begin(Extent::new(0, 4096), SIZE);
        let other = marks.begin(Extent::new(512, 4096), SIZE);
        one.wrote(&[1; 4096], 512, true);
        other.wrote(&[2; 4096], 512, true);
        assert_eq!(marks.known(), [], "MARKS2");
        drop(marks.begin(Extent::new(0, 4096), SIZE));
        write(&marks, 8192, 3);
        flush(&marks);
        assert_eq!(marks.known(), [], "MARKS2: it may happen later");
    }
}
