//! Replies that wait to be sent together.
//!
//! Headers are packed into one run of bytes; data go by reference, in between.

use std::ops::Range;
use varve_block::{Arena, Bytes};

enum Part {
    /// These bytes of `heads`.
    Heads(Range<usize>),
    Data(Bytes),
}

/// The replies.
#[derive(Default)]
pub(super) struct Outbox {
    heads: Vec<u8>,
    parts: Vec<Part>,
    data_bytes: u64,
    replies: usize,
}

impl Outbox {
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
    pub(super) fn more(&mut self, bytes: &[u8]) {
        let start = self.heads.len();
        self.heads.extend_from_slice(bytes);
        let end = self.heads.len();
        match self.parts.last_mut() {
            Some(Part::Heads(range)) => range.end = end,
            _ => self.parts.push(Part::Heads(start..end)),
        }
    }

    /// Goes on with the reply that was begun, by reference.
    pub(super) fn data(&mut self, data: Bytes) {
        self.data_bytes += data.len() as u64;
        self.parts.push(Part::Data(data));
    }

    /// Empties it: what is to be sent.
    pub(super) fn take(&mut self, arena: &Arena) -> Vec<Bytes> {
        let heads = arena.copy(&self.heads);
        let piece = |part| match part {
            Part::Heads(range) => heads.slice(range.start, range.len()),
            Part::Data(data) => data,
        };
        let pieces = self.parts.drain(..).map(piece).collect();
        self.heads.clear();
        self.data_bytes = 0;
        self.replies = 0;
        pieces
    }
}
