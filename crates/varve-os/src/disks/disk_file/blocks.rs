//! The space that a file takes: it falls when somebody else cuts the file short, also if the file is as long as before soon after.
//!
//! Invariant BLOCKS1: a disk alone writes its file (DISKFILE1 of `disk_file.rs`), and by writing a file only takes more space. So
//! what falls by more than a file system frees of its own, while the disk gave nothing back, was cut off. A cut is not seen if as
//! much was taken anew since the last look, if the disk gives space back meanwhile, or where a file system counts in another way.

use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What file systems free of their own, when what they note about a file takes less space: so many bytes, or that part of the file.
const SLACK: u64 = 128 << 10;
const SLACK_PART: u64 = 1024;
/// So often in sequence less is seen: a file system moves what it counts from one number to another.
const LOOKS: usize = 3;

/// What is known of the space of a file.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Whether it is looked at.
    watched: AtomicBool,
    /// Changes that give space back: how often one began, and how often one ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The most bytes seen since `begun` was so much.
    most: Mutex<Option<(u64, u64)>>,
}

impl Blocks {
    /// From now on.
    pub(super) fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// A change that may give space back begins.
    pub(crate) fn begin_release(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// One has ended.
    pub(crate) fn end_release(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Asks for the size and the space of the file, in bytes; the size, and how much of the space was taken away (BLOCKS1).
    pub(super) fn look(&self, ask: impl Fn() -> Result<(u64, u64), Errno>) -> Result<(u64, u64), Errno> {
        if !self.watched.load(Ordering::Relaxed) {
            return ask().map(|(size, _)| (size, 0));
        }
        let mut least = u64::MAX;
        for _ in 0..LOOKS {
            let ended = self.ended.load(Ordering::Acquire);
            let begun = self.begun.load(Ordering::Acquire);
            let (size, space) = ask()?;
            let is_quiet = begun == ended && self.begun.load(Ordering::Acquire) == begun;
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
                    *most = Some((begun, seen.max(space)));
                    return Ok((size, 0));
                }
                _ => {
                    *most = Some((begun, space));
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
    fn what_falls_for_a_moment_was_not_taken_away() {
        let blocks = Blocks::default();
        blocks.watch();
        look(&blocks, 8 << 20);
        let answers = std::cell::RefCell::new(vec![8 << 20, 1 << 20, 2 << 20]);
        let seen = blocks.look(|| Ok((1 << 30, answers.borrow_mut().pop().unwrap_or(8 << 20))));
        assert_eq!(seen, Ok((1 << 30, 0)));
    }
}
