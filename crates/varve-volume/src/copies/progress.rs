//! How far a long piece of work is, and whether it is to end: the one thing that its owner and its shard share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a long piece of work is; shared with the shard that does it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    /// Units a second; 0 while that is not known.
    rate: AtomicU64,
    cancelled: AtomicBool,
    is_final: AtomicBool,
}

impl Progress {
    /// Says how far the work is.
    pub fn report(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Says how far the work is, of what is known to be in all.
    pub fn report_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Says how many units are done in a second, if that is known.
    pub fn report_rate(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
    }

    /// Units that are done in a second, if that is known.
    pub fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// How far the work is.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How much there is to do, as far as that is known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether it is known how much there is to do.
    pub fn has_total(&self) -> bool {
        self.total.load(Ordering::Relaxed) > 0
    }

    /// From now on the work cannot leave things as they were.
    pub fn make_final(&self) {
        self.is_final.store(true, Ordering::Relaxed);
    }

    /// Whether the work cannot leave things as they were any more.
    pub fn is_final(&self) -> bool {
        self.is_final.load(Ordering::Relaxed)
    }

    /// Asks the work to end.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
