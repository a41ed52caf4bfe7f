//! Reads of which not all is known.

use super::asks::Asked;
use super::question::Answer;
use super::range_map::Place;
use super::state::State;
use crate::fan_out::join_pieces;
use varve_block::{Buffer, Completion, Extent, Io, IoError, Moment, Outcome};
use varve_mapper::wire::Intent;

/// Most bytes that are asked ahead of reads that follow each other.
const AHEAD_MAX: u64 = 16 << 20;

impl State {
    /// Reads all of `buffer`, asking for what is not known.
    pub(super) async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let mut whole: Option<Buffer> = None;
        let mut rest = Some(Io::Read { offset, buffer });
        let mut deadline = self.deadline();
        while let Some(io) = rest.take() {
            let (known, unknown) = self.read_known(io);
            if let Some(known) = known {
                let part = known.await?;
                whole = Some(match whole.take() {
                    None => part,
                    Some(mut whole) => {
                        whole.join(part);
                        whole
                    }
                });
                deadline = self.deadline();
            } else if let Some(io) = &unknown {
                self.ask_to_read(io.extent(), deadline).await?;
            }
            rest = unknown;
        }
        Ok(whole.unwrap_or_else(Buffer::empty))
    }

    /// Submits the first part of a read, of which all is known; the rest.
    fn read_known(&self, io: Io) -> (Option<Completion<'static>>, Option<Io>) {
        let (mut pieces, mut rest) = (Vec::new(), Some(io));
        while let Some(io) = rest.take() {
            let found = self.cache.borrow_mut().take(Intent::Read, io.extent());
            let Some(found) = found else {
                rest = Some(io);
                break;
            };
            let (first, behind) = split(io, found.run);
            pieces.push(match (found.place, first) {
                (Place::Data { target, offset }, first) => {
                    target.device.forward(first.at(offset), || self.enter())
                }
                (Place::Zero, Io::Read { mut buffer, .. }) => {
                    buffer.fill(0);
                    Completion::ready(Ok(buffer))
                }
                (Place::Zero, _) => unreachable!("a read"),
            });
            rest = behind;
        }
        ((!pieces.is_empty()).then(|| join_pieces(pieces)), rest)
    }

    async fn ask_to_read(&self, rest: Extent, deadline: Moment) -> Result<(), IoError> {
        let gap = self.cache.borrow().gap(Intent::Read, rest);
        let gap = self.with_ahead(gap);
        match self.ask(gap, Intent::Read, deadline).await? {
            Asked::Again | Asked::Answered(_, Answer::Kept { .. }) => Ok(()),
            Asked::Answered(_, _) => Err(IoError::Medium),
        }
    }

    /// Asks for more than is read where reads follow each other, twice as much each time.
    fn with_ahead(&self, gap: Extent) -> Extent {
        let (end, length) = self.ahead.get();
        let length = if gap.offset == end { (length * 2).clamp(gap.length, AHEAD_MAX) } else { gap.length };
        let length = length.max(gap.length).min(self.shape.size - gap.offset);
        let gap = self.cache.borrow().gap(Intent::Read, Extent::new(gap.offset, length));
        assert!(
            !gap.is_empty() && self.shape.extent().contains(gap),
            "a question is about the volume, not {gap:?}"
        );
        self.ahead.set((gap.end(), length));
        gap
    }
}

/// The first `length` bytes of a request, and the rest if there is one.
pub(super) fn split(io: Io, length: u64) -> (Io, Option<Io>) {
    if io.extent().length <= length {
        return (io, None);
    }
    let (first, rest) = io.split_at(length);
    (first, Some(rest))
}
