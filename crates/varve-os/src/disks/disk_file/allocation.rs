//! How much of a disk one change of allocation covers: the less, the longer the last ones took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long one change of allocation is to take.
const TIME: Duration = Duration::from_millis(4);
/// Fewest bytes of such a change, where more are to be changed.
const BYTES_MIN: u64 = 1 << 20;
/// Most bytes of such a change; the first ones are as long.
const BYTES_MAX: u64 = 1 << 30;

/// Most bytes of the next change of allocation; all shards learn it together.
#[derive(Debug)]
pub(crate) struct AllocationPace(AtomicU64);

impl Default for AllocationPace {
    fn default() -> Self {
        Self(AtomicU64::new(BYTES_MAX))
    }
}

impl AllocationPace {
    /// Most bytes of the next change.
    pub(crate) fn piece(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A change of `length` bytes, of at most `piece`, took so long.
    pub(crate) fn learn(&self, piece: u64, length: u64, took: Duration) {
        let next = match took {
            took if took > 4 * TIME => piece.min(length / 4),
            took if took > TIME => piece.min(length / 2),
            took if took < TIME / 4 && length == piece => piece.saturating_mul(2),
            _ => piece,
        };
        self.0.store(next.next_power_of_two().clamp(BYTES_MIN, BYTES_MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The piece after a change of `length` bytes, of at most `piece`, took so long.
    fn after(piece: u64, length: u64, took: Duration) -> u64 {
        let pace = AllocationPace::default();
        pace.learn(piece, length, took);
        pace.piece()
    }

    #[test]
    fn changes_of_allocation_get_shorter_while_they_take_long_and_longer_again() {
        let mut piece = AllocationPace::default().piece();
        for _ in 0..10 {
            piece = after(piece, piece, Duration::from_secs(1));
        }
        assert_eq!(piece, BYTES_MIN);
        let eight = 8 * BYTES_MIN;
        assert_eq!(after(eight, eight, Duration::from_millis(5)), eight / 2);
        assert_eq!(after(eight, eight, Duration::from_millis(2)), eight);
        assert_eq!(after(eight, 4096, Duration::ZERO), eight, "a short one says nothing of long ones");
        for _ in 0..10 {
            piece = after(piece, piece, Duration::ZERO);
        }
        assert_eq!(piece, BYTES_MAX);
    }
}
