//! The transmission on one connection: selects what happened, applies it, and sends what came of it.
//!
//! A poll goes in rounds: answers of the device, requests of the client, one send, one receive; until a round finds
//! nothing to do, or the turn is over (NBD5). Replies are sent before more is received, because a client with one request
//! in flight waits for exactly that.

use super::activity::{Activity, Pace, Turn};
use super::catalog::Counters;
use super::detachment::Ended;
use super::handshake::Chosen;
use super::job::{self, Answer, Job};
use super::limits::{Limits, Share};
use super::receive_buffer::{Payload, ReceiveBuffer, ReceiveMemory, Taken};
use super::send_queue::SendQueue;
use super::shutdown::Watch;
use super::stall::Stall;
use super::{Door, Export, SessionEnd};
use crate::budget::Memory;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use varve_block::{Arena, Clock, LocalFuture, Stream, StreamError, Transfer};
use varve_nbd::server::Terms;
use varve_nbd::transmission::{Head, encode_runs};
use varve_nbd::{Command, ErrorCode, Request};

/// Data that are gathered for one send before more requests are started: little enough that the client works on
/// them while the next ones are read, and that they stay in the processor's cache.
const GATHER_BYTES: u64 = 32 << 10;
/// Replies without data that are gathered for one send, for the same reason.
const GATHER_REPLIES: usize = 16;
/// Data that may queue up behind a send before no more requests are taken. A simple client that reads no replies
/// while it sends gets stuck beyond this.
const QUEUE_BYTES: u64 = 1 << 20;
/// Replies that may queue up behind a send.
const QUEUE_REPLIES: usize = 1024;
/// Bytes of data in one send, so that a client that takes them as fast as they come does not keep others waiting.
const SEND_BYTES: u64 = 256 << 10;
/// Requests to cache in flight: they are hints, and each may fetch much.
const FETCHES_MAX: usize = 1;
/// How long a client may take over the next 256 KiB of its replies when its connection is to be detached: all others wait for it.
const DETACH_PROGRESS: Duration = Duration::from_millis(500);
/// Rounds after which other tasks get their turn.
const ROUNDS_MAX: usize = 16;

/// Serves requests until the connection ends.
pub(super) struct Connection<'c> {
    stream: &'c Stream,
    export: &'c Export,
    arena: &'c Arena,
    clock: &'c Clock,
    counters: &'c Counters,
    limits: Limits,
    terms: Terms,
    receive_buffer: ReceiveBuffer<'c>,
    flight: FuturesUnordered<Job<'c>>,
    /// Bytes in flight at the device.
    flight_bytes: u64,
    /// Requests to cache in flight.
    fetches: usize,
    send_queue: SendQueue,
    sending: Option<Transfer<'c, Result<(), StreamError>>>,
    /// What of the share is given back when the send is done.
    sending_held: Memory,
    /// Sends that are done.
    sends: u64,
    share: Share<'c>,
    activity: &'c Activity,
    turn: Turn,
    stall: Stall,
    /// Of the door, of the export, and the one that detaches (NBDDETACH1 of `detachment.rs`).
    signals: [Watch; 3],
    /// How the connection ends; nothing more is taken from the client.
    closing: Option<Result<(), SessionEnd>>,
    /// The client gets nothing any more.
    send_closed: bool,
    /// How long the client may still take for its last replies.
    drain: Option<LocalFuture<'static, ()>>,
}

/// What stopped the taking of requests.
#[derive(PartialEq, Eq)]
enum Stop {
    /// There are none.
    Hungry,
    /// There is no room.
    Full,
}

impl<'c> Connection<'c> {
    pub(super) fn new(door: &'c Door, stream: &'c Stream, chosen: &'c Chosen, early: &[u8]) -> Self {
        let Chosen { export, terms, .. } = chosen;
        let limits =
            Limits { bytes_max: door.limits.bytes_max.min(door.budget.capacity() / 4), ..door.limits };
        let memory = ReceiveMemory::new(&door.arena, &door.budget);
        let mut receive_buffer = ReceiveBuffer::new(stream, terms.framing, memory, early);
        receive_buffer.skip_first(chosen.skip);
        Self {
            stream,
            export,
            arena: &door.arena,
            clock: &door.clock,
            counters: &export.counters,
            limits,
            terms: *terms,
            receive_buffer,
            flight: FuturesUnordered::new(),
            flight_bytes: 0,
            fetches: 0,
            send_queue: SendQueue::default(),
            sending: None,
            sending_held: Memory::NONE,
            sends: 0,
            share: Share::new(&door.budget, identity(&export.counters)),
            activity: &door.activity,
            turn: Turn::new(false, 1),
            stall: Stall::default(),
            signals: [door.shutdown.watch(), export.shutdown.watch(), door.detachment.watch()],
            closing: None,
            send_closed: false,
            drain: None,
        }
    }

    /// Takes the answers that are there.
    fn collect(&mut self, context: &mut Context<'_>) -> bool {
        let mut worked = false;
        while !self.turn.is_over() {
            let Poll::Ready(Some((request, answer, under_way))) = self.flight.poll_next_unpin(context) else {
                break;
            };
            self.flight_bytes -= job::in_flight(&request);
            under_way.into_iter().for_each(|under_way| under_way.end(request.command, self.clock));
            self.fetches -= usize::from(request.command == Command::Cache);
            self.turn.step();
            self.reply(&request, answer);
            worked = true;
        }
        worked
    }

    /// Takes the requests that are there, as far as there is room (NBD2).
    fn take_requests(&mut self, context: &mut Context<'_>) -> (bool, Stop) {
        let mut worked = false;
        loop {
            if let Some((request, data)) = self.receive_buffer.completed() {
                self.start(request, Some(data), context);
                worked = true;
            }
            if self.closing.is_some() || self.is_full() || self.turn.is_over() {
                return (worked, Stop::Full);
            }
            let request = match self.receive_buffer.peek() {
                Ok(Some(request)) => request,
                Ok(None) => return (worked, Stop::Hungry),
                Err(malformed) => {
                    self.closing = Some(Err(SessionEnd::Malformed(malformed.0)));
                    return (true, Stop::Full);
                }
            };
            match self.take_request(request, context) {
                None => worked = true,
                Some(stop) => return (worked, stop),
            }
        }
    }

    fn take_request(&mut self, request: Request, context: &mut Context<'_>) -> Option<Stop> {
        if let Err(error) = self.terms.check(&request) {
            return self.refuse(&request, error);
        }
        if request.command == Command::Disconnect {
            self.closing = Some(Ok(()));
            return None;
        }
        let cost = Memory::of(job::cost(&request));
        if !self.has_room(&request, cost, context) {
            return Some(Stop::Full);
        }
        match self.receive_buffer.take(&request) {
            Taken::Wait => return Some(Stop::Hungry),
            Taken::Later => self.share.hold(cost),
            Taken::Whole(data) => {
                self.share.hold(cost);
                self.start(request, data, context);
            }
        }
        None
    }

    fn refuse(&mut self, request: &Request, error: ErrorCode) -> Option<Stop> {
        if request.payload_length(self.terms.framing) > u64::from(u32::MAX) {
            self.closing = Some(Err(SessionEnd::Malformed("a payload beyond reason")));
            return None;
        }
        self.receive_buffer.refuse(request);
        self.fail(request, error);
        None
    }

    fn is_full(&self) -> bool {
        let (bytes, replies) = match self.sending {
            None => (GATHER_BYTES, GATHER_REPLIES),
            Some(_) => (QUEUE_BYTES, QUEUE_REPLIES),
        };
        self.flight.len() >= self.limits.requests_max
            || self.send_queue.data_bytes() >= bytes
            || self.send_queue.replies() >= replies
    }

    /// NBD2. What is in flight wakes the connection when it is answered, what is queued when it is sent.
    fn has_room(&mut self, request: &Request, cost: Memory, context: &Context<'_>) -> bool {
        let held = self.share.held();
        if held > 0 && held.saturating_add(cost.total()) > self.limits.bytes_max {
            return false;
        }
        if self.flight_bytes > 0 && self.flight_bytes + job::in_flight(request) > self.turn.flight_max {
            return false;
        }
        if request.command == Command::Cache && self.fetches == FETCHES_MAX {
            return false;
        }
        self.share.make_room(cost, context.waker())
    }

    fn start(&mut self, request: Request, data: Option<Payload>, context: &mut Context<'_>) {
        self.turn.step();
        let pace = Pace { activity: self.activity, export: identity(self.counters) };
        let under_way = self.counters.begin(self.clock);
        let mut job = job::start(self.export, self.terms.contexts, self.arena, (pace, request), data);
        job.under_way = Some(under_way);
        match Pin::new(&mut job).poll(context) {
            Poll::Ready((request, answer, under_way)) => {
                under_way.into_iter().for_each(|under_way| under_way.end(request.command, self.clock));
                self.reply(&request, answer);
            }
            Poll::Pending => {
                self.flight_bytes += job::in_flight(&request);
                self.fetches += usize::from(request.command == Command::Cache);
                self.flight.push(job);
            }
        }
    }

    fn fail(&mut self, request: &Request, error: ErrorCode) {
        Counters::add(&self.counters.errors, 1);
        self.send_queue.head(&Head::error(self.terms.framing, request, error));
    }

    /// Queues the answer (NBD3). The bytes of a read are held until they are sent, those of a write no longer.
    fn reply(&mut self, request: &Request, answer: Answer) {
        let framing = self.terms.framing;
        let cost = Memory::of(job::cost(request));
        if let Answer::Data(buffer) = answer {
            assert_eq!(
                buffer.len() as u64,
                request.length,
                "DEVICE5: a read's outcome is its buffer, filled"
            );
            self.reply_head(request);
            self.send_queue.data(buffer.freeze(), cost);
            return;
        }
        if let Answer::Pieces(pieces) = answer {
            let length: usize = pieces.iter().map(|piece| piece.len()).sum();
            assert_eq!(length as u64, request.length, "DEVICE5: a read's outcome is its buffers, filled");
            self.reply_head(request);
            pieces.into_iter().for_each(|piece| self.send_queue.data(piece.freeze(), Memory::NONE));
            self.send_queue.held(cost);
            return;
        }
        if let Answer::Runs(contexts) = answer {
            let mut cost = Some(cost);
            for (index, (context, runs)) in contexts.iter().enumerate() {
                let (mut encoded, is_last) = (Vec::new(), index + 1 == contexts.len());
                let count = encode_runs(framing, runs, &mut encoded);
                self.send_queue.head(&Head::status(framing, request, *context, count, is_last));
                self.send_queue.encoded(&encoded, cost.take().filter(|_| is_last).unwrap_or(Memory::NONE));
            }
            return Counters::add(&self.counters.others, 1);
        }
        self.share.give(cost);
        if let Answer::Failed(error) = answer {
            return self.fail(request, error);
        }
        self.send_queue.head(&Head::done(framing, request));
        let counters = &self.counters;
        match request.command {
            Command::Write | Command::WriteZeroes => {
                Counters::add(&counters.writes, 1);
                Counters::add(&counters.written_bytes, request.length);
            }
            Command::Flush => Counters::add(&counters.flushes, 1),
            Command::Trim => Counters::add(&counters.discards, 1),
            _ => Counters::add(&counters.others, 1),
        }
    }

    /// Begins the reply of a read.
    fn reply_head(&mut self, request: &Request) {
        let length = u32::try_from(request.length).expect("the terms bound a request's data");
        Counters::add(&self.counters.reads, 1);
        Counters::add(&self.counters.read_bytes, request.length);
        self.send_queue.head(&Head::data(self.terms.framing, request, length));
    }

    /// Sends what is queued; at least something of it.
    fn send(&mut self, context: &mut Context<'_>) -> bool {
        let mut worked = false;
        loop {
            if let Some(sending) = &mut self.sending {
                let Poll::Ready(result) = Pin::new(sending).poll(context) else { return worked };
                self.sent(result.is_ok());
                worked = true;
            }
            if self.send_queue.is_empty() || (worked && self.turn.is_over()) {
                return worked;
            }
            let bytes_max = if self.send_closed { u64::MAX } else { SEND_BYTES };
            let batch = self.send_queue.take(self.arena, bytes_max);
            if self.send_closed {
                self.share.give(batch.held);
                return true;
            }
            self.turn.moved(batch.bytes);
            self.sending_held = batch.held;
            self.sending = Some(self.stream.send(batch.parts));
        }
    }

    fn sent(&mut self, succeeded: bool) {
        self.sending = None;
        self.sends += 1;
        self.share.give(std::mem::take(&mut self.sending_held));
        if !succeeded {
            self.send_closed = true;
            self.closing.get_or_insert(Err(SessionEnd::Broken));
        }
    }

    /// Receives, if it is bytes that are missing.
    fn receive(&mut self, stop: &Stop, context: &mut Context<'_>) -> bool {
        if *stop == Stop::Full || self.closing.is_some() {
            return false;
        }
        if let Some(error) = self.receive_buffer.ended() {
            let amid = self.receive_buffer.is_amid();
            self.closing = Some(match error {
                StreamError::Closed if !amid => Ok(()),
                StreamError::Closed => Err(SessionEnd::Truncated),
                StreamError::Broken => Err(SessionEnd::Broken),
            });
            return true;
        }
        let before = self.receive_buffer.received();
        let has_replies = self.sending.is_some() || !self.send_queue.is_empty();
        let is_idle = self.flight.is_empty() && !has_replies && self.share.held() == 0;
        let received = self.receive_buffer.poll_receive(is_idle, context).is_ready();
        self.turn.moved(self.receive_buffer.received() - before);
        received
    }

    /// Leaves a client that has begun a message, or to fetch replies, and does not go on.
    fn end_if_stalled(&mut self, is_detaching: bool, context: &mut Context<'_>) -> bool {
        if self.sending.is_none() && (self.closing.is_some() || !self.receive_buffer.waits_amid()) {
            self.stall.end();
            return false;
        }
        let progress = self.sends.wrapping_add(self.receive_buffer.received());
        let (limit, is_wanted) = match is_detaching {
            true => (DETACH_PROGRESS, false),
            false => (self.limits.progress, self.share.is_wanted()),
        };
        if !self.stall.is_over(progress, limit, is_wanted, self.clock, context) {
            return false;
        }
        self.closing = Some(Err(SessionEnd::Stalled));
        if self.sending.is_some() {
            self.sent(false);
        }
        self.send_closed = true;
        true
    }

    /// Whether the connection is to be detached, if that `is_wanted`: it takes no more requests.
    fn is_detaching(&mut self, is_wanted: bool) -> bool {
        if !is_wanted || self.closing.is_some() || !self.stream.is_passable() {
            if self.closing.is_none() {
                self.drain = None;
            }
            return false;
        }
        self.receive_buffer.interrupt();
        self.share.leave_line();
        true
    }

    /// One step towards the end of a connection that is to be detached: what it has received, once what was begun is answered (NBDDETACH1).
    fn detach(&mut self, context: &mut Context<'_>) -> Option<Ended> {
        if self.receive_buffer.is_receiving() || self.receive_buffer.ended().is_some() {
            self.receive(&Stop::Hungry, context);
        }
        if self.receive_buffer.is_receiving() || self.closing.is_some() || !self.flight.is_empty() {
            return None;
        }
        if self.sending.is_none() && self.send_queue.is_empty() {
            let (unread, skip) = self.receive_buffer.take_unread();
            return Some(Ended::Detached { unread, skip });
        }
        let (clock, limit) = (self.clock, self.limits.drain);
        let drain = self.drain.get_or_insert_with(|| clock.sleep(limit));
        if drain.as_mut().poll(context).is_ready() {
            self.closing = Some(Err(SessionEnd::Stalled));
            self.send_closed = true;
            if self.sending.is_some() {
                self.sent(false);
            }
        }
        None
    }

    fn end_turn<T>(&mut self, export: usize, has_taken: bool) -> Poll<T> {
        self.share.trim();
        if has_taken {
            self.activity.note(export);
        }
        Poll::Pending
    }

    /// The end, once nothing is in flight (NBD1) and the client has its replies or cannot get them.
    fn over(&mut self, context: &mut Context<'_>) -> Option<Result<Ended, SessionEnd>> {
        let end = self.closing?.map(|()| Ended::Closed);
        if !self.flight.is_empty() {
            return None;
        }
        if self.send_closed || (self.sending.is_none() && self.send_queue.is_empty()) {
            return Some(end);
        }
        let (clock, limit) = (self.clock, self.limits.drain);
        let drain = self.drain.get_or_insert_with(|| clock.sleep(limit));
        drain.as_mut().poll(context).is_ready().then_some(end)
    }
}

impl Future for Connection<'_> {
    type Output = Result<Ended, SessionEnd>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.signals[..2].iter_mut().any(|watch| watch.poll(context).is_ready()) {
            this.closing.get_or_insert(Ok(()));
        }
        if this.closing.is_some() {
            this.share.leave_line();
        }
        let is_wanted = this.signals[2].poll(context).is_ready();
        let export = identity(this.counters);
        this.turn = Turn::new(this.activity.is_contended(export), this.counters.connections.get());
        let mut has_taken = false;
        for _ in 0..ROUNDS_MAX {
            let collected = this.collect(context);
            let is_detaching = this.is_detaching(is_wanted);
            let (taken, stop) = if is_detaching { (false, Stop::Full) } else { this.take_requests(context) };
            has_taken |= taken;
            let sent = this.send(context);
            let received = this.receive(&stop, context);
            if is_detaching && let Some(detached) = this.detach(context) {
                return Poll::Ready(Ok(detached));
            }
            if let Some(end) = this.over(context) {
                return Poll::Ready(end);
            }
            if !(collected || taken || sent || received || this.end_if_stalled(is_detaching, context)) {
                return this.end_turn(export, has_taken);
            }
            if this.turn.is_over() {
                break;
            }
        }
        context.waker().wake_by_ref();
        this.end_turn(export, has_taken)
    }
}

/// Tells exports apart.
fn identity(counters: &Counters) -> usize {
    std::ptr::from_ref(counters).addr()
}
