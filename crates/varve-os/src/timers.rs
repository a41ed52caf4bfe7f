//! The sleeping tasks: an ordered map of deadlines and wakers.

use std::collections::BTreeMap;
use std::task::Waker;
use varve_block::Moment;

/// Names a sleeper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TimerKey(Moment, u64);

/// All sleepers of a shard.
#[derive(Default)]
pub(crate) struct Timers {
    sleepers: BTreeMap<TimerKey, Waker>,
    next_id: u64,
}

impl Timers {
    /// Adds a sleeper, woken once at `deadline`.
    pub(crate) fn insert(&mut self, deadline: Moment, waker: Waker) -> TimerKey {
        let key = TimerKey(deadline, self.next_id);
        self.next_id += 1;
        self.sleepers.insert(key, waker);
        key
    }

    /// Replaces the waker of a sleeper that was not woken yet.
    pub(crate) fn update(&mut self, key: TimerKey, waker: &Waker) {
        if let Some(held) = self.sleepers.get_mut(&key) {
            held.clone_from(waker);
        }
    }

    /// Forgets a sleeper; nothing happens if it was woken already.
    pub(crate) fn remove(&mut self, key: TimerKey) {
        self.sleepers.remove(&key);
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.sleepers.first_key_value().map(|(key, _)| key.0)
    }

    /// Takes one sleeper whose deadline has come.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<Waker> {
        let first = self.sleepers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(crate) fn clear(&mut self) {
        self.sleepers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_are_taken_in_order_of_their_deadlines_and_not_early() {
        let mut timers = Timers::default();
        let late = timers.insert(Moment(20), Waker::noop().clone());
        timers.insert(Moment(10), Waker::noop().clone());
        assert_eq!(timers.next(), Some(Moment(10)));
        assert!(timers.pop_due(Moment(9)).is_none());
        assert!(timers.pop_due(Moment(15)).is_some());
        assert!(timers.pop_due(Moment(15)).is_none());
        timers.remove(late);
        assert_eq!(timers.next(), None);
    }
}
