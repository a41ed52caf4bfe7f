//! The space that a file takes: it falls when somebody else cuts the file short, also if the file is as long as before soon after.
//!
//! Invariant BLOCKS1: a disk alone writes its file (DISKFILE1 of `disk_file.rs`), and by writing a file only takes more space. So
//! what falls by more than a file system frees of its own, while the disk gave nothing back, was cut off. A cut is not seen if as
//! much was taken anew since the last look, if the disk gives space back meanwhile, or where a file system counts in another way.
//!
//! Invariant BLOCKS2: a file system may count all that a write asks for before it has found the space, and give the rest back. So
//! what writes under way may have counted beforehand is not taken for space that the file had.

use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What file systems free of their own, when what they note about a file takes less space: so many bytes, or that part of the file.
const SLACK: u64 = 128 << 10;
const SLACK_PART: u64 = 1024;
/// Most that a file system takes at each end of a write beyond it, in bytes: it gives space in clusters.
const CLUSTER: u64 = 64 << 10;
/// So often in sequence less is seen: a file system moves what it counts from one number to another.
const LOOKS: usize = 3;

/// What is known of the space of a file.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Whether it is looked at.
    watched: AtomicBool,
    /// Whether what is behind the end of the disk may be cut off meanwhile.
    paused: AtomicBool,
    /// Changes that give space back.
    releases: Passage,
    /// The bytes that writes may take.
    writes: Passage,
    /// The most bytes that it surely took, since so many releases began.
    most: Mutex<Option<(u64, u64)>>,
}

/// How much has begun, and how much of that has ended.
#[derive(Debug, Default)]
struct Passage {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Passage {
    fn begin(&self, count: u64) {
        self.begun.fetch_add(count, Ordering::AcqRel);
    }

    fn end(&self, count: u64) {
        self.ended.fetch_add(count, Ordering::AcqRel);
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }
}

impl Blocks {
    /// From now on.
    pub(super) fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// The file is longer than the disk by so many bytes more, which may be cut off.
    pub(super) fn allow_cut(&self, bytes: u64) {
        if bytes > SLACK {
            self.paused.store(true, Ordering::Relaxed);
        }
    }

    /// The file ends where the disk does.
    pub(super) fn forbid_cuts(&self) {
        if self.paused.load(Ordering::Relaxed) {
            self.paused.store(false, Ordering::Relaxed);
        }
    }

    /// A change that may give space back begins.
    pub(crate) fn begin_release(&self) {
        self.releases.begin(1);
    }

    /// One has ended.
    pub(crate) fn end_release(&self) {
        self.releases.end(1);
    }

    /// A write of so many bytes begins (BLOCKS2).
    pub(crate) fn begin_write(&self, length: usize) {
        if self.watched.load(Ordering::Relaxed) {
            self.writes.begin(length as u64 + 2 * CLUSTER);
        }
    }

    /// One has ended.
    pub(crate) fn end_write(&self, length: usize) {
        if self.watched.load(Ordering::Relaxed) {
            self.writes.end(length as u64 + 2 * CLUSTER);
        }
    }

    /// Asks for the size and the space of the file, in bytes; the size, and how much of the space was taken away (BLOCKS1).
    pub(super) fn look(&self, ask: impl Fn() -> Result<(u64, u64), Errno>) -> Result<(u64, u64), Errno> {
        if !self.watched.load(Ordering::Relaxed) {
            return ask().map(|(size, _)| (size, 0));
        }
        if self.paused.load(Ordering::Relaxed) {
            *self.most.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return ask().map(|(size, _)| (size, 0));
        }
        let mut least = u64::MAX;
        for _ in 0..LOOKS {
            let (written, ended) = (self.writes.ended(), self.releases.ended());
            let begun = self.releases.begun();
            let (size, space) = ask()?;
            let is_quiet = begun == ended && self.releases.begun() == begun;
            // Whatever was under way when the file system was asked began before this, and had not ended before that (BLOCKS2).
            let surely = space.saturating_sub(self.writes.begun() - written);
            let mut most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
            match *most {
                _ if !is_quiet => {
                    *most = None;
                    return Ok((size, 0));
                }
                Some((counted, seen)) if counted == begun && space + SLACK.max(seen / SLACK_PART) < seen => {
                    least = least.min(seen - space);
                }
                Some((counted, seen)) if counted == begun => {
                    *most = Some((begun, seen.max(surely)));
                    return Ok((size, 0));
                }
                _ => {
                    *most = Some((begun, surely));
                    return Ok((size, 0));
                }
            }
        }
        ask().map(|(size, _)| (size, least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(blocks: &Blocks, space: u64) -> u64 {
        blocks.look(|| Ok((1 << 30, space))).expect("asked").1
    }

    #[test]
    fn space_that_falls_was_taken_away_unless_the_disk_gave_it_back() {
        let blocks = Blocks::default();
        assert_eq!([look(&blocks, 64 << 20), look(&blocks, 0)], [0, 0], "it is not watched");
        blocks.watch();
        assert_eq!([look(&blocks, 4 << 20), look(&blocks, 8 << 20)], [0, 0], "it grows");
        assert_eq!(look(&blocks, (8 << 20) - SLACK), 0, "a file system tidies up");
        assert_eq!(look(&blocks, 1 << 20), 7 << 20, "BLOCKS1");
        blocks.begin_release();
        assert_eq!(look(&blocks, 1 << 20), 0, "BLOCKS1: something is given back");
        blocks.end_release();
        assert_eq!([look(&blocks, 1 << 20), look(&blocks, 2 << 20)], [0, 0], "this is the new measure");
        assert_eq!(look(&blocks, 1 << 20), 1 << 20, "BLOCKS1");
    }

    #[test]
    fn what_lies_behind_the_end_of_the_disk_may_be_cut_off() {
        let blocks = Blocks::default();
        blocks.watch();
        assert_eq!(look(&blocks, 8 << 20), 0);
        blocks.allow_cut(4 << 20);
        assert_eq!(look(&blocks, 4 << 20), 0, "the rest may go");
        blocks.forbid_cuts();
        assert_eq!([look(&blocks, 4 << 20), look(&blocks, 2 << 20)], [0, 2 << 20], "BLOCKS1");
    }

    #[test]
    fn what_a_write_counts_beforehand_was_not_taken_away() {
        let (blocks, length) = (Blocks::default(), 2 << 20);
        blocks.watch();
        assert_eq!(look(&blocks, 8 << 20), 0);
        blocks.begin_write(length);
        assert_eq!(look(&blocks, 10 << 20), 0, "all that it asks for is counted");
        assert_eq!(look(&blocks, 9 << 20), 0, "BLOCKS2: the file system has found half of it");
        blocks.end_write(length);
        assert_eq!(look(&blocks, 9 << 20), 0, "BLOCKS2");
        blocks.begin_write(length);
        assert_eq!(
            look(&blocks, 8 << 20),
            1 << 20,
            "BLOCKS1: what surely was there is missed beside a write, too"
        );
        blocks.begin_release();
        blocks.end_release();
        assert_eq!(look(&blocks, 10 << 20), 0);
        assert_eq!(look(&blocks, 9 << 20), 0, "BLOCKS2: nor is it the new measure after a release");
    }

    #[test]
    fn what_falls_for_a_moment_was_not_taken_away() {
        let blocks = Blocks::default();
        blocks.watch();
        look(&blocks, 8 << 20);
        let answers = std::cell::RefCell::new(vec![8 << 20, 1 << 20, 2 << 20]);
        let seen = blocks.look(|| Ok((1 << 30, answers.borrow_mut().pop().unwrap_or(8 << 20))));
        assert_eq!(seen, Ok((1 << 30, 0)));
    }
}
