//! Replies that wait to be sent together.
//!
//! Headers are packed into one run of bytes; data go by reference, in between.

use crate::budget::Memory;
use std::collections::VecDeque;
use std::ops::Range;
use varve_block::{Arena, Bytes};

enum Part {
    /// These bytes of `heads`.
    Heads(Range<usize>),
    /// Data, and what of the connection's share is held until they are sent.
    Data(Bytes, Memory),
}

/// The replies.
#[derive(Default)]
pub(super) struct SendQueue {
    heads: Vec<u8>,
    parts: VecDeque<Part>,
    data_bytes: u64,
    replies: usize,
    /// What is held for encoded replies among the heads.
    held: Memory,
}

/// What is sent at once.
pub(super) struct Batch {
    pub(super) parts: Vec<Bytes>,
    /// Bytes of data in it.
    pub(super) bytes: u64,
    /// What is held of the share until it is sent.
    pub(super) held: Memory,
}

impl SendQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of data in it.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Number of replies in it.
    pub(super) fn replies(&self) -> usize {
        self.replies
    }

    /// Begins a reply.
    pub(super) fn head(&mut self, bytes: &[u8]) {
        self.replies += 1;
        self.more(bytes);
    }

    /// Goes on with the reply that was begun.
    fn more(&mut self, bytes: &[u8]) {
        let start = self.heads.len();
        self.heads.extend_from_slice(bytes);
        let end = self.heads.len();
        match self.parts.back_mut() {
            Some(Part::Heads(range)) if range.end == start => range.end = end,
            _ => self.parts.push_back(Part::Heads(start..end)),
        }
    }

    /// Goes on with the reply that was begun; `held` is given back when it is sent.
    pub(super) fn encoded(&mut self, bytes: &[u8], held: Memory) {
        self.more(bytes);
        self.held += held;
        self.data_bytes += bytes.len() as u64;
    }

    /// Goes on with the reply that was begun, by reference; `held` is given back when it is sent.
    pub(super) fn data(&mut self, data: Bytes, held: Memory) {
        self.data_bytes += data.len() as u64;
        self.parts.push_back(Part::Data(data, held));
    }

    /// `held` is given back, too, when the data that were queued last are sent.
    pub(super) fn held(&mut self, held: Memory) {
        match self.parts.back_mut() {
            Some(Part::Data(_, of_last)) => *of_last += held,
            _ => self.held += held,
        }
    }

    /// Takes what is to be sent next, with at most `bytes_max` bytes of data by reference.
    pub(super) fn take(&mut self, arena: &Arena, bytes_max: u64) -> Batch {
        let heads = arena.copy(&self.heads);
        let mut batch = Batch { parts: Vec::with_capacity(self.parts.len()), bytes: 0, held: self.held };
        self.held = Memory::NONE;
        while let Some(part) = self.parts.pop_front() {
            match part {
                Part::Heads(range) => batch.parts.push(heads.slice(range.start, range.len())),
                Part::Data(data, held) => {
                    let room = usize::try_from(bytes_max - batch.bytes).unwrap_or(usize::MAX);
                    if data.len() > room {
                        let (now, later) = data.split_at(room);
                        batch.bytes += now.len() as u64;
                        batch.parts.push(now);
                        self.parts.push_front(Part::Data(later, held));
                        break;
                    }
                    batch.bytes += data.len() as u64;
                    batch.held += held;
                    batch.parts.push(data);
                }
            }
        }
        self.keep_rest(&heads, batch.bytes);
        batch
    }

    /// What was not taken no longer needs the run of heads.
    fn keep_rest(&mut self, heads: &Bytes, taken: u64) {
        self.heads.clear();
        if self.parts.is_empty() {
            self.data_bytes = 0;
            self.replies = 0;
            return;
        }
        self.data_bytes = self.data_bytes.saturating_sub(taken);
        for part in &mut self.parts {
            if let Part::Heads(range) = part {
                *part = Part::Data(heads.slice(range.start, range.len()), Memory::NONE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_in_a_row_are_one_part_and_data_are_cut_where_the_send_ends() {
        let (arena, mut queue) = (Arena::heap(1 << 16), SendQueue::default());
        queue.head(b"one ");
        queue.head(b"two");
        queue.data(arena.copy(b"content"), Memory::of(7));
        queue.head(b"three ");
        queue.encoded(b"runs", Memory::of(8));
        assert_eq!((queue.replies(), queue.data_bytes()), (3, 11));
        let first = queue.take(&arena, 4);
        assert_eq!(first.parts.iter().map(|part| &part[..]).collect::<Vec<_>>(), [&b"one two"[..], b"cont"]);
        assert_eq!((first.bytes, first.held), (4, Memory::of(8)));
        let second = queue.take(&arena, 100);
        assert_eq!(
            second.parts.iter().map(|part| &part[..]).collect::<Vec<_>>(),
            [&b"ent"[..], b"three runs"]
        );
        assert_eq!((second.held, queue.is_empty(), queue.replies()), (Memory::of(7), true, 0));
    }
}
