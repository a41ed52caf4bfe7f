//! Which node the cache evicts: round-robin, first in first out, least recently used, or SIEVE.
//!
//! The first three are those of ESnap; SIEVE is from Zhang et al., "SIEVE is simpler than LRU" (NSDI 2024): one
//! queue in order of arrival, a bit a node that a hit sets, and a hand that moves from old to new, clearing bits,
//! until it finds one that is clear. A scan of nodes that are touched once cannot push out those touched often.

use crate::number_map::NumberMap;
use std::collections::{BTreeMap, VecDeque};
use varve_format::pdata::Block;
use varve_format::text::CachePolicy;

/// A table by block.
pub(super) type BlockMap<V> = NumberMap<Block, V>;

/// So many nodes a policy looks at, at most, for one to evict. In a row of nodes that may not go, because they are not
/// written yet, the search goes on the next time, and the cache holds a little more meanwhile: no task waits for it.
pub(super) const SEARCH_MAX: usize = 256;

/// What decides by `policy`.
pub(super) fn build(policy: CachePolicy) -> Box<dyn Policy> {
    match policy {
        CachePolicy::RoundRobin => Box::new(RoundRobin::default()),
        CachePolicy::Fifo => Box::new(Fifo::default()),
        CachePolicy::Lru => Box::new(Lru::default()),
        CachePolicy::Sieve => Box::new(Sieve::default()),
    }
}

/// The events that a policy receives, and its choice.
pub(super) trait Policy {
    /// `address` came in.
    fn insert(&mut self, address: Block);
    /// `address` was used.
    fn touch(&mut self, address: Block);
    /// Which to evict, of those that `may_go`; it is forgotten at once. Looks at [`SEARCH_MAX`] of them at most, and
    /// at others the next time.
    fn victim(&mut self, may_go: &dyn Fn(Block) -> bool) -> Option<Block>;
    /// `address` is gone for another reason.
    fn remove(&mut self, address: Block);
}

/// Slots in a row; a new node takes the slot of the last victim, as in a table of fixed size.
#[derive(Default)]
struct RoundRobin {
    slots: Vec<Option<Block>>,
    free: Vec<usize>,
    places: BlockMap<usize>,
    hand: usize,
}

impl Policy for RoundRobin {
    fn insert(&mut self, address: Block) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(address);
        self.places.insert(address, slot);
    }
    fn touch(&mut self, _address: Block) {}
    fn victim(&mut self, may_go: &dyn Fn(Block) -> bool) -> Option<Block> {
        for _ in 0..self.slots.len().min(SEARCH_MAX) {
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some(address) = self.slots[self.hand].filter(|address| may_go(*address)) {
                self.remove(address);
                return Some(address);
            }
        }
        None
    }
    fn remove(&mut self, address: Block) {
        if let Some(slot) = self.places.remove(&address) {
            self.slots[slot] = None;
            self.free.push(slot);
        }
    }
}

/// A queue of arrivals. Entries that are gone stay in it until they are passed, or are more than the others.
#[derive(Default)]
struct Fifo {
    queue: VecDeque<(Block, u64)>,
    present: BlockMap<u64>,
    stamp: u64,
}

impl Policy for Fifo {
    fn insert(&mut self, address: Block) {
        self.stamp += 1;
        self.present.insert(address, self.stamp);
        if self.queue.len() > 2 * self.present.len() + SEARCH_MAX {
            let present = &self.present;
            self.queue.retain(|(address, stamp)| present.get(address) == Some(stamp));
        }
        self.queue.push_back((address, self.stamp));
    }
    fn touch(&mut self, _address: Block) {}
    fn victim(&mut self, may_go: &dyn Fn(Block) -> bool) -> Option<Block> {
        for _ in 0..self.queue.len().min(SEARCH_MAX) {
            let (address, stamp) = self.queue.pop_front()?;
            if self.present.get(&address) != Some(&stamp) {
                continue;
            }
            if may_go(address) {
                assert!(self.present.remove(&address).is_some(), "what is evicted was there");
                return Some(address);
            }
            self.queue.push_back((address, stamp));
        }
        None
    }
    fn remove(&mut self, address: Block) {
        self.present.remove(&address);
    }
}

/// Nodes in order of their last use.
#[derive(Default)]
struct Lru {
    stamps: BlockMap<u64>,
    order: BTreeMap<u64, Block>,
    stamp: u64,
}

impl Policy for Lru {
    fn insert(&mut self, address: Block) {
        self.stamp += 1;
        self.stamps.insert(address, self.stamp);
        self.order.insert(self.stamp, address);
        assert_eq!(self.stamps.len(), self.order.len(), "each node has one place in the order");
    }
    fn touch(&mut self, address: Block) {
        self.remove(address);
        self.insert(address);
    }
    fn victim(&mut self, may_go: &dyn Fn(Block) -> bool) -> Option<Block> {
        for _ in 0..self.order.len().min(SEARCH_MAX) {
            let (stamp, address) = self.order.pop_first()?;
            if may_go(address) {
                self.stamps.remove(&address);
                return Some(address);
            }
            // It is not written yet, or it is held: that is a use.
            assert_eq!(self.stamps.remove(&address), Some(stamp), "one place in the order");
            self.insert(address);
        }
        None
    }
    fn remove(&mut self, address: Block) {
        if let Some(stamp) = self.stamps.remove(&address) {
            self.order.remove(&stamp);
        }
    }
}

/// The queue in order of arrival, its marks, and the hand.
#[derive(Default)]
struct Sieve {
    /// Arrival stamp to block.
    queue: BTreeMap<u64, Block>,
    /// Block to stamp and whether it was used since the hand passed: a hit is one look at a table.
    entries: BlockMap<(u64, bool)>,
    stamp: u64,
    hand: u64,
}

impl Policy for Sieve {
    fn insert(&mut self, address: Block) {
        self.stamp += 1;
        self.entries.insert(address, (self.stamp, false));
        self.queue.insert(self.stamp, address);
        assert_eq!(self.entries.len(), self.queue.len(), "each node has one place in the queue");
    }
    fn touch(&mut self, address: Block) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.1 = true;
        }
    }
    fn victim(&mut self, may_go: &dyn Fn(Block) -> bool) -> Option<Block> {
        // Twice round: the first pass may only clear marks.
        for _ in 0..(self.queue.len() * 2).min(SEARCH_MAX) {
            let next = self.queue.range(self.hand..).next().or_else(|| self.queue.iter().next());
            let (stamp, address) = next.map(|(stamp, address)| (*stamp, *address))?;
            self.hand = stamp + 1;
            let entry = self.entries.get_mut(&address).expect("what is queued is present");
            if !std::mem::take(&mut entry.1) && may_go(address) {
                self.remove(address);
                return Some(address);
            }
        }
        None
    }
    fn remove(&mut self, address: Block) {
        if let Some((stamp, _)) = self.entries.remove(&address) {
            self.queue.remove(&stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn fill(kind: CachePolicy) -> Box<dyn Policy> {
        let mut policy = build(kind);
        (1..=4).for_each(|number| policy.insert(Block::new(number)));
        policy
    }

    #[test]
    fn each_policy_gives_up_what_its_name_says() {
        for kind in CachePolicy::ALL {
            let mut policy = fill(kind);
            policy.touch(Block::new(1));
            let first = policy.victim(&|_| true);
            let expected = match kind {
                CachePolicy::RoundRobin | CachePolicy::Lru | CachePolicy::Sieve => Some(2),
                CachePolicy::Fifo => Some(1),
            };
            assert_eq!(first.map(Block::number), expected, "{}", kind.word());
        }
    }

    #[test]
    fn none_gives_up_what_may_not_go_and_all_end() {
        for kind in CachePolicy::ALL {
            let mut policy = fill(kind);
            assert_eq!(policy.victim(&|_| false), None, "{}", kind.word());
            assert_eq!(
                policy.victim(&|address| address == Block::new(3)),
                Some(Block::new(3)),
                "{}",
                kind.word()
            );
            policy.remove(Block::new(1));
            let mut rest: Vec<_> = std::iter::from_fn(|| policy.victim(&|_| true)).collect();
            rest.sort_unstable();
            assert_eq!(rest, [2, 4].map(Block::new), "{}", kind.word());
        }
    }

    #[test]
    fn a_search_looks_at_a_bounded_number_and_the_next_goes_on_from_there() {
        let count = 3 * SEARCH_MAX as u64;
        for kind in CachePolicy::ALL {
            let (mut policy, looked) = (build(kind), Cell::new(0));
            (1..=count).for_each(|number| policy.insert(Block::new(number)));
            let search = |policy: &mut dyn Policy, wanted: Block| {
                looked.set(0);
                policy.victim(&|address| {
                    looked.set(looked.get() + 1);
                    address == wanted
                })
            };
            for _ in 0..2 {
                assert_eq!(search(&mut *policy, Block::new(0)), None, "{}", kind.word());
                assert_eq!(looked.get(), SEARCH_MAX, "{}", kind.word());
            }
            assert_eq!(
                search(&mut *policy, Block::new(count - 1)),
                Some(Block::new(count - 1)),
                "{}",
                kind.word()
            );
        }
    }

    #[test]
    fn the_queue_of_arrivals_holds_no_more_than_twice_what_is_there() {
        let mut fifo = Fifo::default();
        for address in 0..100_000 {
            fifo.insert(Block::new(address));
            if address >= 10 {
                fifo.remove(Block::new(address - 10));
            }
        }
        assert!(fifo.queue.len() <= 2 * fifo.present.len() + SEARCH_MAX + 1, "{}", fifo.queue.len());
        assert_eq!(fifo.victim(&|_| true), Some(Block::new(99_990)), "the oldest that is still there");
    }
}
