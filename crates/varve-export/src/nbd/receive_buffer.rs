//! Received bytes, cut into requests and the data of writes.
//!
//! Small requests are received many at a time into one buffer, and the data of small writes are copied out of it to
//! where direct I/O wants them, at the start of a page. The data of a large write are received straight into
//! buffers of their own, of which none is longer than the arena has; while such writes come, only headers are received into the common buffer, so that no data
//! have to be copied.
//!
//! The common buffer is short, so that many connections may wait for their clients. A client that fills it gets a long one until nothing
//! is under way for it any more, if the budget has it to spare; else it is served from the short one, in which any header fits.
//!
//! Invariants:
//! - RECEIVE1. `start <= filled <= buffer.len()`; the bytes between are received and not yet looked at.
//! - RECEIVE2. Nothing is received while a whole request is in the buffer.
//! - RECEIVE3. A write is kept in memory only after its taker has let it in; what is refused is skipped, not kept.
//! - RECEIVE4. A connection that is idle waits with the short buffer, once it has received what is there already.

use super::activity::PIECE;
use crate::budget::{Budget, Reservation};
use std::pin::Pin;
use std::task::{Context, Poll};
use varve_block::{Arena, Buffer, Bytes, Received, Stream, StreamError, Transfer};
use varve_nbd::transmission::Malformed;
use varve_nbd::{Command, Framing, Request};

/// Writes from this many bytes on get their data received in place.
const IN_PLACE_BYTES: usize = 32 << 10;
/// Bytes of such data that are waited for at once, so that others have their turn between.
const IN_PLACE_STEP: usize = 256 << 10;
/// Bytes of the buffer with which a connection waits for its client: a write of a page and what was received in the handshake fit.
pub const LANDING_BYTES: usize = 8 << 10;
/// Bytes of the buffer of a busy connection: a header and the largest write that is copied fit, and all of it stays in the processor's cache.
pub(super) const BUSY_BYTES: usize = 64 << 10;

/// What the taker of a request gets.
pub(super) enum Taken {
    /// The request is there, with the data of a write.
    Whole(Option<Payload>),
    /// Its data are received in place; [`ReceiveBuffer::completed`] gives it.
    Later,
    /// Some of its bytes have not come yet.
    Wait,
}

/// The data of a write.
pub(super) enum Payload {
    /// In one run of memory.
    Single(Bytes),
    /// In several, in their order.
    Several(Vec<Bytes>),
}

/// A write whose data are on their way.
struct InPlace {
    request: Request,
    /// Filled.
    pieces: Vec<Bytes>,
    /// Being filled.
    buffer: Buffer,
    filled: usize,
    /// Bytes that come after `buffer`.
    left: usize,
}

impl InPlace {
    fn new(request: &Request, length: usize, arena: &Arena) -> Self {
        let request = *request;
        let mut in_place =
            Self { request, pieces: Vec::new(), buffer: Buffer::empty(), filled: 0, left: length };
        in_place.go_on(arena);
        in_place
    }

    /// Sees to a buffer that is not full, if anything is still to come.
    fn go_on(&mut self, arena: &Arena) {
        if self.filled < self.buffer.len() || self.left == 0 {
            return;
        }
        let length = self.left.min(PIECE as usize);
        let full = std::mem::replace(&mut self.buffer, arena.take(length));
        if !full.is_empty() {
            self.pieces.push(full.freeze());
        }
        self.left -= length;
        self.filled = 0;
    }

    /// Takes as much of `data` as it lacks; returns how much that was.
    fn copy(&mut self, data: &[u8], arena: &Arena) -> usize {
        let mut taken = 0;
        while taken < data.len() && !self.is_complete() {
            let count = (self.buffer.len() - self.filled).min(data.len() - taken);
            self.buffer[self.filled..self.filled + count].copy_from_slice(&data[taken..taken + count]);
            self.filled += count;
            taken += count;
            self.go_on(arena);
        }
        taken
    }

    /// What was received of it, as it came.
    fn put_back(self, framing: Framing, bytes: &mut Vec<u8>) {
        let head = self.request.encode(framing).expect("a request that was decoded fits its framing");
        bytes.extend_from_slice(&head);
        self.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.extend_from_slice(&self.buffer[..self.filled]);
    }

    fn is_complete(&self) -> bool {
        self.left == 0 && self.filled == self.buffer.len()
    }

    fn payload(mut self) -> Payload {
        let last = self.buffer.freeze();
        if self.pieces.is_empty() {
            return Payload::Single(last);
        }
        self.pieces.push(last);
        Payload::Several(self.pieces)
    }
}

/// Where its buffers come from, and how long the common one is.
pub(super) struct ReceiveMemory<'s> {
    arena: &'s Arena,
    budget: &'s Budget,
    /// What was set aside for that, if the connection has it.
    reserved: Option<Reservation>,
    /// Whether the last receive filled the buffer: there is more, probably.
    was_filled: bool,
}

impl<'s> ReceiveMemory<'s> {
    /// Of a connection that has nothing yet.
    pub(super) fn new(arena: &'s Arena, budget: &'s Budget) -> Self {
        Self { arena, budget, reserved: None, was_filled: false }
    }

    /// A long buffer, if it is to be had and the connection has none.
    fn grow(&mut self) -> Option<Buffer> {
        if self.reserved.is_none() {
            self.reserved = Some(self.budget.reserve_spare(BUSY_BYTES as u64)?);
            return Some(self.arena.take(BUSY_BYTES));
        }
        None
    }

    /// A short buffer, if the connection has a long one.
    fn shrink(&mut self) -> Option<Buffer> {
        self.reserved.take().map(|_| self.arena.take(LANDING_BYTES))
    }
}

/// The bytes of one connection.
pub(super) struct ReceiveBuffer<'s> {
    stream: &'s Stream,
    memory: ReceiveMemory<'s>,
    framing: Framing,
    buffer: Buffer,
    start: usize,
    filled: usize,
    /// Bytes, from `start` on, without which nothing can be done.
    wanted: usize,
    /// Bytes of a payload that are skipped.
    skip: u64,
    in_place: Option<InPlace>,
    /// Whether large writes come, so that only a header is received at once.
    only_header: bool,
    /// The part of `buffer` that is kept out of a receive of a header.
    rest: Buffer,
    receiving: Option<Transfer<'s, Received>>,
    /// Bytes received so far.
    received: u64,
    ended: Option<StreamError>,
}

impl<'s> ReceiveBuffer<'s> {
    pub(super) fn new(stream: &'s Stream, framing: Framing, memory: ReceiveMemory<'s>, early: &[u8]) -> Self {
        let mut buffer = memory.arena.take(LANDING_BYTES);
        buffer[..early.len()].copy_from_slice(early);
        Self {
            stream,
            memory,
            framing,
            buffer,
            start: 0,
            filled: early.len(),
            wanted: framing.request_length(),
            skip: 0,
            in_place: None,
            only_header: false,
            rest: Buffer::empty(),
            receiving: None,
            received: 0,
            ended: None,
        }
    }

    /// Skips so many bytes of a payload first.
    pub(super) fn skip_first(&mut self, bytes: u64) {
        self.skip = bytes;
        if bytes > 0 {
            self.wanted = 1;
        }
    }

    /// Ends a receive that is under way; it is to be polled once more.
    pub(super) fn interrupt(&self) {
        if self.receiving.is_some() {
            self.stream.interrupt();
        }
    }

    /// Whether a receive is under way.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    /// Takes out what was received and is no part of a request that was taken, as it came; and how much of a payload is to be skipped
    /// before it.
    pub(super) fn take_unread(&mut self) -> (Vec<u8>, u64) {
        assert!(self.receiving.is_none(), "nothing is on its way");
        let mut bytes = Vec::new();
        if let Some(in_place) = self.in_place.take() {
            in_place.put_back(self.framing, &mut bytes);
        }
        bytes.extend_from_slice(&self.buffer[self.start..self.filled]);
        self.start = self.filled;
        (bytes, self.skip)
    }

    /// Bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether bytes are awaited that belong to a request of which others have come.
    pub(super) fn waits_amid(&self) -> bool {
        self.receiving.is_some() && self.is_amid()
    }

    /// How the connection ended, if nothing more comes.
    pub(super) fn ended(&self) -> Option<StreamError> {
        self.ended
    }

    /// Whether it ended, or would end now, in the middle of a request.
    pub(super) fn is_amid(&self) -> bool {
        self.start < self.filled || self.skip > 0 || self.in_place.is_some()
    }

    /// The next request's header, if it is there.
    pub(super) fn peek(&mut self) -> Result<Option<Request>, Malformed> {
        if self.in_place.is_some() || self.receiving.is_some() {
            return Ok(None);
        }
        if self.skip > 0 {
            let there = (self.filled - self.start) as u64;
            let skipped = there.min(self.skip);
            self.skip -= skipped;
            self.start += usize::try_from(skipped).expect("no more than the buffer holds");
            self.wanted = 1;
            if self.skip > 0 {
                return Ok(None);
            }
        }
        self.wanted = self.framing.request_length();
        assert!(self.start <= self.filled && self.filled <= self.buffer.len(), "RECEIVE1");
        Request::decode(self.framing, &self.buffer[self.start..self.filled])
    }

    /// Takes the request that [`ReceiveBuffer::peek`] gave. On [`Taken::Wait`] it has to be peeked again later.
    pub(super) fn take(&mut self, request: &Request) -> Taken {
        let header = self.framing.request_length();
        if request.command != Command::Write {
            self.only_header = false;
            self.start += header;
            return Taken::Whole(None);
        }
        let length = usize::try_from(request.length).expect("the terms bound a request's data");
        let there = self.filled - self.start - header;
        if length < IN_PLACE_BYTES && (header + length <= self.buffer.len() || self.grow()) {
            self.only_header = false;
            if there < length {
                self.wanted = header + length;
                return Taken::Wait;
            }
            let data = self.start + header;
            self.start = data + length;
            let data = self.memory.arena.copy(&self.buffer[data..data + length]);
            return Taken::Whole(Some(Payload::Single(data)));
        }
        self.only_header = true;
        let mut in_place = InPlace::new(request, length, self.memory.arena);
        let data = self.start + header;
        self.start = data + in_place.copy(&self.buffer[data..self.filled], self.memory.arena);
        if in_place.is_complete() {
            return Taken::Whole(Some(in_place.payload()));
        }
        self.in_place = Some(in_place);
        Taken::Later
    }

    /// Leaves out the request that [`ReceiveBuffer::peek`] gave, with its payload (RECEIVE3).
    pub(super) fn refuse(&mut self, request: &Request) {
        self.start += self.framing.request_length();
        self.skip = request.payload_length(self.framing);
    }

    /// The write whose data were received in place, once they are all there.
    pub(super) fn completed(&mut self) -> Option<(Request, Payload)> {
        let done = self.receiving.is_none() && self.in_place.as_ref().is_some_and(InPlace::is_complete);
        let in_place = if done { self.in_place.take() } else { None };
        in_place.map(|it| (it.request, it.payload()))
    }

    /// Receives what is wanted; `is_idle`: nothing is under way for this client. Ready when there is something new to look at, or the end.
    pub(super) fn poll_receive(&mut self, is_idle: bool, context: &mut Context<'_>) -> Poll<()> {
        if self.ended.is_some() {
            return Poll::Pending;
        }
        let mut receiving = match self.receiving.take() {
            Some(receiving) => receiving,
            None => self.begin(is_idle),
        };
        match Pin::new(&mut receiving).poll(context) {
            Poll::Ready(received) => {
                self.finish(received);
                Poll::Ready(())
            }
            Poll::Pending => {
                self.receiving = Some(receiving);
                Poll::Pending
            }
        }
    }

    /// Goes on with a long buffer; false if it is not to be had.
    fn grow(&mut self) -> bool {
        if let Some(mut buffer) = self.memory.grow() {
            let there = self.filled - self.start;
            buffer[..there].copy_from_slice(&self.buffer[self.start..self.filled]);
            (self.buffer, self.start, self.filled) = (buffer, 0, there);
        }
        self.memory.reserved.is_some()
    }

    /// What has come while the client's requests were answered, into the long buffer if the connection has it: all of a burst, where the short
    /// one would take the first of it.
    fn received_at_once(&mut self) -> Option<Transfer<'s, Received>> {
        if self.only_header || self.memory.reserved.is_none() {
            return None;
        }
        let long = std::mem::replace(&mut self.buffer, Buffer::empty());
        let receiving = self.stream.receive(long, 0, 1);
        matches!(receiving, Transfer::Ready(_)).then_some(receiving)
    }

    fn begin(&mut self, is_idle: bool) -> Transfer<'s, Received> {
        if let Some(in_place) = &mut self.in_place {
            let buffer = std::mem::replace(&mut in_place.buffer, Buffer::empty());
            let wanted = buffer.len().min(in_place.filled + IN_PLACE_STEP);
            return self.stream.receive(buffer, in_place.filled, wanted);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        if is_idle && !self.is_amid() {
            if let Some(received) = self.received_at_once() {
                return received;
            }
            if let Some(short) = self.memory.shrink() {
                self.buffer = short; // RECEIVE4
            }
        } else if std::mem::take(&mut self.memory.was_filled) {
            self.grow();
        }
        assert!(self.filled < self.wanted && self.wanted <= self.buffer.len(), "RECEIVE2");
        let mut buffer = std::mem::replace(&mut self.buffer, Buffer::empty());
        if self.only_header && self.filled == 0 && self.skip == 0 {
            self.rest = buffer.split_off(self.wanted);
        }
        // Any byte, at first: it tells that a request was begun.
        let wanted = if self.filled == 0 { 1 } else { self.wanted };
        self.stream.receive(buffer, self.filled, wanted)
    }

    fn finish(&mut self, (result, mut buffer): Received) {
        let filled = match result {
            Ok(filled) => Some(filled),
            Err(error) => {
                self.ended = Some(error);
                None
            }
        };
        let place = match &mut self.in_place {
            Some(in_place) => {
                in_place.buffer = buffer;
                &mut in_place.filled
            }
            None => {
                buffer.join(std::mem::replace(&mut self.rest, Buffer::empty()));
                self.memory.was_filled = filled == Some(buffer.len());
                self.buffer = buffer;
                &mut self.filled
            }
        };
        if let Some(filled) = filled {
            self.received += (filled - *place) as u64;
            *place = filled;
        }
        if let Some(in_place) = &mut self.in_place {
            in_place.go_on(self.memory.arena);
        }
    }
}
