//! The real clock: the only place of the benchmarks that reads or waits for it.

use std::time::{Duration, Instant};

/// A running stopwatch.
#[derive(Clone, Copy)]
pub(crate) struct Watch(Instant);

impl Watch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures the real world")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Seconds since the start.
    pub(crate) fn seconds(self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "a benchmark waits for real servers")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Asks `ready` every 10 ms until it says yes; false if it did not within `limit`.
pub(crate) fn wait_until(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let watch = Watch::start();
    while !ready() {
        if watch.elapsed() > limit {
            return false;
        }
        pause(Duration::from_millis(10));
    }
    true
}

/// Each of `items` once, in an order that begins with another one in each round.
pub(crate) fn turns<T: Copy>(items: &[T], round: usize) -> impl Iterator<Item = T> {
    (0..items.len()).map(move |turn| items[(turn + round) % items.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_turn_in_each_round_and_another_one_begins() {
        let order = |round| turns(&[1, 2, 3], round).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(3)], [[1, 2, 3], [2, 3, 1], [1, 2, 3]]);
    }
}
