//! Where the bytes of a device lie, as data, apart from moving them.
//!
//! A device answers a question about a range with pieces and a guard. Each piece is one step: it names another device and the
//! offset there, which may lead on ([`Device::map_to_leaves`]), or says that there are zeros, or that a request must be sent.
//!
//! Contract:
//! - MAP1. An answer covers the beginning of what was asked without a gap, at least one byte and no more than was asked; no piece
//!   is empty, and each is inside the device that it names.
//! - MAP2. The holder of the guard of an answer counts as a request under way on the device that was asked, from the question
//!   on. What such a request could do, the holder may do where the pieces lead: read the bytes, or overwrite them as a volatile
//!   write, which a flush of the device that was asked makes durable. Whatever waits for requests under way waits for the guard.
//!   Bytes that are moved by several answers are several requests: between two of them a volume may be rolled back.
//! - MAP3. An answer for a reader or a writer either leads on, as a whole, or says that requests must be sent, and then has no guard.
//!   No caller sends a request to a device, or asks it again, while it holds a guard of it: the request may wait for what
//!   waits for the guard.

use crate::device::{Device, Location, MapAnswer, MapFuture, MapGuard, MapIntent, MapPiece};
use crate::error::IoError;
use crate::shape::{Access, Allocation, StatusRun};
use crate::units::{Extent, is_aligned};
use std::any::Any;

impl MapPiece {
    /// `length` bytes that lie on `device`, from `offset` on.
    pub fn on(device: &Device, offset: u64, length: u64) -> Self {
        Self { length, location: Location::On { device: device.clone(), offset }, holds: None }
    }

    /// `length` zeros without space.
    pub const fn hole(length: u64) -> Self {
        Self { length, location: Location::Zeros, holds: Some(Allocation::Hole) }
    }

    /// `length` bytes for which a request must be sent.
    pub const fn sent(length: u64) -> Self {
        Self { length, location: Location::Sent, holds: None }
    }

    /// This piece, of which is known what it holds.
    #[must_use]
    pub fn holding(self, allocation: Allocation) -> Self {
        Self { holds: Some(allocation), ..self }
    }

    /// Whether a request must be sent.
    pub fn is_sent(&self) -> bool {
        matches!(self.location, Location::Sent)
    }

    /// The `length` bytes behind the first `skip` ones; both inside the piece.
    fn part(&self, skip: u64, length: u64) -> Self {
        assert!(skip + length <= self.length, "MAP1: a part of a piece");
        let mut part = Self { length, ..self.clone() };
        if let Location::On { offset, .. } = &mut part.location {
            *offset += skip;
        }
        part
    }

    /// Whether `next` goes on where the piece ends.
    fn continues(&self, next: &MapPiece) -> bool {
        self.holds == next.holds
            && match (&self.location, &next.location) {
                (
                    Location::On { device, offset },
                    Location::On { device: next_device, offset: next_offset },
                ) => device.is_same(next_device) && *offset + self.length == *next_offset,
                (Location::Zeros, Location::Zeros) | (Location::Sent, Location::Sent) => true,
                _ => false,
            }
    }
}

impl MapGuard {
    /// One that keeps nothing: for what is true as long as its device lives.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// One that holds `kept`.
    pub fn holding(kept: impl Any) -> Self {
        Self(vec![Box::new(kept)])
    }

    /// Both. `later` is released first.
    #[must_use]
    pub fn and(self, mut later: MapGuard) -> Self {
        later.0.extend(self.0);
        later
    }

    /// Whether nothing is held.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl MapAnswer {
    /// One piece, which `guard` keeps true.
    pub fn new(piece: MapPiece, guard: MapGuard) -> Self {
        Self { pieces: vec![piece], guard }
    }

    /// `length` bytes of `device`, from `offset` on.
    pub fn through(device: &Device, offset: u64, length: u64) -> Self {
        Self::new(MapPiece::on(device, offset, length), MapGuard::none())
    }

    /// Nothing but that requests for these bytes must be sent.
    pub fn sent(length: u64) -> Self {
        Self::new(MapPiece::sent(length), MapGuard::none())
    }

    /// The answer of a device that must see every request on its way to the same place of `device`: only
    /// [`MapIntent::Inspect`] is led on.
    pub fn in_front(device: &Device, extent: Extent, intent: MapIntent) -> Self {
        match intent {
            MapIntent::Inspect => Self::through(device, extent.offset, extent.length),
            MapIntent::Read | MapIntent::Overwrite => Self::sent(extent.length),
        }
    }

    /// What `runs` say of a device whose bytes lie on itself.
    pub fn of_status(runs: &[StatusRun]) -> Self {
        let mut answer = Self::default();
        runs.iter().for_each(|run| answer.push(MapPiece::sent(run.length).holding(run.allocation)));
        answer
    }

    /// The answer in a future that is done.
    pub fn ready<'a>(self) -> MapFuture<'a> {
        Box::pin(std::future::ready(Ok(self)))
    }

    /// Adds a piece behind the last one, as a part of it if it goes on.
    pub fn push(&mut self, piece: MapPiece) {
        assert!(piece.length > 0, "MAP1: an empty piece");
        match self.pieces.last_mut() {
            Some(last) if last.continues(&piece) => last.length += piece.length,
            _ => self.pieces.push(piece),
        }
    }

    /// How many bytes it covers.
    pub fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }

    /// Whether all that it says is that a request must be sent.
    pub fn is_sent(&self) -> bool {
        self.pieces.iter().all(MapPiece::is_sent)
    }

    /// The answer, kept true by `guard`, too.
    #[must_use]
    pub fn keeping(mut self, guard: MapGuard) -> Self {
        self.guard = self.guard.and(guard);
        self
    }

    /// Without the first `skip` bytes, and without what is behind `length` more.
    #[must_use]
    pub fn clip(mut self, skip: u64, length: u64) -> Self {
        let wanted = Extent::new(skip, length);
        let mut at = 0;
        for piece in std::mem::take(&mut self.pieces) {
            let here = Extent::new(at, piece.length);
            at = here.end();
            if let Some(part) = here.intersect(wanted) {
                self.push(piece.part(part.offset - here.offset, part.length));
            }
        }
        self
    }

    /// The answer up to the first part for which requests are sent; if that comes first, it alone and without guards (MAP3).
    fn divided(mut self) -> Self {
        let first_sent = self.pieces.iter().position(MapPiece::is_sent);
        match first_sent {
            None => self,
            Some(0) => Self::new(self.pieces.swap_remove(0), MapGuard::none()),
            Some(index) => {
                self.pieces.truncate(index);
                self
            }
        }
    }
}

impl Device {
    /// Where the beginning of `extent`, some bytes of the device, is: one step (MAP1 to MAP3).
    pub async fn map(&self, extent: Extent, intent: MapIntent) -> Result<MapAnswer, IoError> {
        let shape = self.shape();
        assert!(shape.extent().contains(extent) && !extent.is_empty(), "DEVICE1: map of {extent:?}");
        if intent == MapIntent::Overwrite && shape.access == Access::ReadOnly {
            return Ok(MapAnswer::sent(extent.length)); // DEVICE3
        }
        tracing::trace!(target: "varve::io", verb = "map", ?intent, ?extent);
        let answer = if intent == MapIntent::Inspect {
            let whole = extent.align_out(shape.block_size.into());
            self.ask(whole, intent).await?.clip(extent.offset - whole.offset, extent.length)
        } else {
            assert!(extent.is_aligned(shape.block_size.into()), "DEVICE2: map of {extent:?}");
            self.ask(extent, intent).await?
        };
        let covered = answer.length();
        assert!(covered > 0 && covered <= extent.length, "MAP1: {covered} bytes of {extent:?}");
        for piece in &answer.pieces {
            assert!(piece.length > 0, "MAP1: an empty piece of {extent:?}");
            if let Location::On { device, offset } = &piece.location {
                let there = Extent::checked(*offset, piece.length);
                let inside = there.is_some_and(|there| device.shape().extent().contains(there));
                assert!(inside, "MAP1: {} bytes from {offset} on of {:?}", piece.length, device.shape());
                let whole = is_aligned(offset | piece.length, device.shape().block_size.into());
                assert!(whole || intent == MapIntent::Inspect, "DEVICE2: what is moved is whole blocks");
            }
        }
        Ok(if intent == MapIntent::Inspect { answer } else { answer.divided() })
    }

    /// As [`Device::map`], led on until requests must be sent: what is on a device that says so is there. Only the first piece of
    /// an answer is led on, because the next one might lead to a device whose guard is held already (MAP3).
    pub async fn map_to_leaves(&self, extent: Extent, intent: MapIntent) -> Result<MapAnswer, IoError> {
        let answer = self.map(extent, intent).await?;
        let Some(first) = answer.pieces.first().cloned() else { return Ok(answer) };
        let Location::On { device, offset } = &first.location else {
            return Ok(MapAnswer::new(first, answer.guard));
        };
        let there = Extent::new(*offset, first.length);
        let mut below = Box::pin(device.map_to_leaves(there, intent)).await?;
        let mut at = *offset;
        for piece in &mut below.pieces {
            if piece.is_sent() {
                piece.location = Location::On { device: device.clone(), offset: at };
            }
            piece.holds = first.holds.or(piece.holds);
            at += piece.length;
        }
        Ok(MapAnswer { pieces: below.pieces, guard: answer.guard.and(below.guard) })
    }

    /// Which parts of `extent` hold data; the answer may cover less than was asked, never more, never nothing.
    pub async fn status(&self, extent: Extent) -> Result<Vec<StatusRun>, IoError> {
        let answer = self.map(extent, MapIntent::Inspect).await?;
        let mut runs: Vec<StatusRun> = Vec::with_capacity(answer.pieces.len());
        let mut push = |run: StatusRun| match runs.last_mut() {
            Some(last) if last.allocation == run.allocation => last.length += run.length,
            _ => runs.push(run),
        };
        for MapPiece { length, location, holds } in answer.pieces {
            let run = |allocation| StatusRun { length, allocation };
            match (location, holds) {
                (_, Some(allocation)) => push(run(allocation)),
                (Location::Zeros, None) => push(run(Allocation::Hole)),
                (Location::Sent, None) => push(run(Allocation::Data)),
                (Location::On { device, offset }, None) => {
                    let below = Box::pin(device.status(Extent::new(offset, length))).await?;
                    let covered: u64 = below.iter().map(|run| run.length).sum();
                    below.into_iter().for_each(&mut push);
                    if covered < length {
                        break;
                    }
                }
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests;
