//! Busy polling: how long a shard looks for news before it sleeps, which is as long as its last sleeps were short.
//!
//! To fall asleep and to be woken costs both sides more than a few microseconds of looking, most of all in a virtual
//! machine, where it takes a trip to the host. A client with one request in flight comes back within some ten
//! microseconds; one that is thinking does not, and then looking would only burn. So the span grows while sleeps turn
//! out short, and falls to nothing at the first long one (as KVM polls before it halts a guest). Measured with 4 KiB
//! requests one at a time, on memory: twice the requests a second, for a tenth more processor time each.

use crate::clock::now;
use std::time::Duration;
use varve_block::Moment;

/// The longest look; a longer sleep was worth it.
const LONGEST: Duration = Duration::from_micros(100);
/// The first look after a short sleep.
const FIRST: Duration = Duration::from_micros(20);
/// Glances between two looks at the clock.
const GLANCES: usize = 32;

/// The time to look, and what it is learned from.
#[derive(Default)]
pub(crate) struct BusyPoll {
    span: Duration,
}

impl BusyPoll {
    /// Whether it does not look at all.
    pub(crate) fn is_idle(&self) -> bool {
        self.span.is_zero()
    }

    /// Looks for a while, no longer than until the `limit`, when a sleeper is to be woken; whether there is news.
    pub(crate) fn look(&self, limit: Option<Moment>, mut is_news: impl FnMut() -> bool) -> bool {
        let end = now().after(self.span);
        let end = limit.map_or(end, |limit| limit.min(end));
        loop {
            for _ in 0..GLANCES {
                if is_news() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if now() >= end {
                return false;
            }
            // On a busy machine those we wait for may need this very processor.
            rustix::thread::sched_yield();
        }
    }

    /// Learns from a sleep that began at `start`.
    pub(crate) fn slept_since(&mut self, start: Moment) {
        self.learn(now().since(start));
    }

    fn learn(&mut self, slept: Duration) {
        let short = slept <= LONGEST;
        self.span = if short { (self.span * 2).clamp(FIRST, LONGEST) } else { Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_lengthen_the_look_and_a_long_one_ends_it() {
        let mut busy_poll = BusyPoll::default();
        assert!(busy_poll.is_idle());
        busy_poll.learn(Duration::from_micros(1));
        assert_eq!(busy_poll.span, FIRST);
        (0..10).for_each(|_| busy_poll.learn(Duration::from_micros(1)));
        assert_eq!(busy_poll.span, LONGEST);
        busy_poll.learn(LONGEST + Duration::from_nanos(1));
        assert!(busy_poll.is_idle());
        busy_poll.slept_since(now());
        busy_poll.slept_since(Moment(now().0.saturating_sub(1_000_000)));
        assert!(busy_poll.is_idle(), "it looks at the clock");
    }

    #[test]
    fn a_look_ends_with_news_or_with_its_time() {
        let busy_poll = BusyPoll { span: Duration::from_secs(3600) };
        let mut glances = 0;
        assert!(busy_poll.look(None, || {
            glances += 1;
            glances == 100
        }));
        let busy_poll = BusyPoll { span: Duration::from_millis(1) };
        let start = now();
        assert!(!busy_poll.look(None, || false));
        assert!(now().since(start) >= busy_poll.span);
    }

    #[test]
    fn a_look_ends_when_a_sleeper_is_to_be_woken() {
        let busy_poll = BusyPoll { span: Duration::from_secs(3600) };
        let mut glances = 0;
        let saw = busy_poll.look(Some(now()), || {
            glances += 1;
            glances > 2 * GLANCES
        });
        assert!(!saw, "the sleeper was kept waiting");
    }
}
