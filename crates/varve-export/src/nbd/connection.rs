//! The transmission on one connection: selects what happened, applies it, and sends what came of it.
//!
//! A poll goes in rounds: answers of the device, requests of the client, one send, one receive; until a round finds
//! nothing to do. Replies are sent before more is received, because a client with one request in flight waits for
//! exactly that.

use super::budget::{Limits, Share};
use super::catalog::Counters;
use super::handshake::Chosen;
use super::intake::{Intake, Taken};
use super::job::{self, Answer, Job};
use super::outbox::Outbox;
use super::shutdown::Watch;
use super::{Door, SessionEnd};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use varve_block::{Arena, Bytes, Clock, Device, LocalFuture, Stream, StreamError, Transfer};
use varve_nbd::server::{ALLOCATION_CONTEXT_ID, Terms};
use varve_nbd::transmission::{Head, encode_runs};
use varve_nbd::{Command, ErrorCode, Request};

/// Data that are gathered for one send before more requests are started: little enough that the client works on
/// them while the next ones are read, and that they stay in the processor's cache.
const GATHER_BYTES: u64 = 32 << 10;
/// Replies without data that are gathered for one send, for the same reason.
const GATHER_REPLIES: usize = 8;
/// Data that may queue up behind a send before no more requests are taken. A simple client that reads no replies
/// while it sends gets stuck beyond this.
const QUEUE_BYTES: u64 = 1 << 20;
/// Replies that may queue up behind a send.
const QUEUE_REPLIES: usize = 1024;
/// Rounds after which other tasks get their turn.
const ROUNDS_MAX: usize = 16;

/// Serves requests until the connection ends.
pub(super) struct Connection<'c> {
    stream: &'c Stream,
    device: &'c Device,
    arena: &'c Arena,
    clock: &'c Clock,
    counters: &'c Counters,
    limits: Limits,
    terms: Terms,
    intake: Intake<'c>,
    flight: FuturesUnordered<Job<'c>>,
    outbox: Outbox,
    sending: Option<Transfer<'c, Result<(), StreamError>>>,
    /// Bytes of data that are being sent.
    sending_bytes: u64,
    share: Share,
    shut: [Watch; 2],
    /// How the connection ends; nothing more is taken from the client.
    closing: Option<Result<(), SessionEnd>>,
    /// The client gets nothing any more.
    deaf: bool,
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
    pub(super) fn new(door: &'c Door, stream: &'c Stream, chosen: &'c Chosen) -> Self {
        let Chosen { export, terms, early } = chosen;
        let length = door.limits.receive_bytes;
        Self {
            stream,
            device: &export.device,
            arena: &door.arena,
            clock: &door.clock,
            counters: &export.counters,
            limits: door.limits,
            terms: *terms,
            intake: Intake::new(stream, terms.framing, &door.arena, length, early),
            flight: FuturesUnordered::new(),
            outbox: Outbox::default(),
            sending: None,
            sending_bytes: 0,
            share: door.budget.share(),
            shut: [door.shutdown.watch(), export.shutdown.watch()],
            closing: None,
            deaf: false,
            drain: None,
        }
    }

    /// Takes the answers that are there.
    fn collect(&mut self, context: &mut Context<'_>) -> bool {
        let mut worked = false;
        while let Poll::Ready(Some((request, answer))) = self.flight.poll_next_unpin(context) {
            self.reply(&request, answer);
            worked = true;
        }
        worked
    }

    /// Takes the requests that are there, as far as there is room (E2).
    fn take_requests(&mut self, context: &mut Context<'_>) -> (bool, Stop) {
        let mut worked = false;
        loop {
            if let Some((request, data)) = self.intake.completed() {
                self.start(request, Some(data), context);
                worked = true;
            }
            if self.closing.is_some() || self.is_full() {
                return (worked, Stop::Full);
            }
            let request = match self.intake.peek() {
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
        let cost = job::cost(&request);
        if !self.has_room(cost) {
            self.share.watch(context.waker());
            return Some(Stop::Full);
        }
        match self.intake.take(&request, self.arena) {
            Taken::Wait => return Some(Stop::Hungry),
            Taken::Later => self.share.take(cost),
            Taken::Whole(data) => {
                self.share.take(cost);
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
        self.intake.refuse(request);
        self.fail(request, error);
        None
    }

    fn is_full(&self) -> bool {
        let (bytes, replies) = match self.sending {
            None => (GATHER_BYTES, GATHER_REPLIES),
            Some(_) => (QUEUE_BYTES, QUEUE_REPLIES),
        };
        self.flight.len() >= self.limits.requests_max
            || self.outbox.data_bytes() >= bytes
            || self.outbox.replies() >= replies
    }

    /// E2.
    fn has_room(&self, cost: u64) -> bool {
        let held = self.share.held();
        held == 0 || (held.saturating_add(cost) <= self.limits.bytes_max && self.share.fits(cost))
    }

    fn start(&mut self, request: Request, data: Option<Bytes>, context: &mut Context<'_>) {
        let mut job = job::start(self.device, self.arena, request, data);
        match Pin::new(&mut job).poll(context) {
            Poll::Ready((request, answer)) => self.reply(&request, answer),
            Poll::Pending => self.flight.push(job),
        }
    }

    fn fail(&mut self, request: &Request, error: ErrorCode) {
        Counters::add(&self.counters.errors, 1);
        self.outbox.head(&Head::error(self.terms.framing, request, error));
    }

    /// Queues the answer (E3). The bytes of a read are held until they are sent, those of a write no longer.
    fn reply(&mut self, request: &Request, answer: Answer) {
        let framing = self.terms.framing;
        let cost = job::cost(request);
        if let Answer::Data(buffer) = answer {
            assert_eq!(buffer.len() as u64, cost, "D5: a read's outcome is its buffer, filled");
            let length = u32::try_from(buffer.len()).expect("the terms bound a request's data");
            Counters::add(&self.counters.reads, 1);
            Counters::add(&self.counters.read_bytes, cost);
            self.outbox.head(&Head::data(framing, request, length));
            self.outbox.data(buffer.freeze());
            return;
        }
        self.share.give(cost);
        match answer {
            Answer::Failed(error) => return self.fail(request, error),
            Answer::Runs(runs) => {
                let mut encoded = Vec::new();
                let count = encode_runs(framing, &runs, &mut encoded);
                self.outbox.head(&Head::status(framing, request, ALLOCATION_CONTEXT_ID, count));
                self.outbox.more(&encoded);
            }
            _ => self.outbox.head(&Head::done(framing, request)),
        }
        if request.command == Command::Write {
            Counters::add(&self.counters.writes, 1);
            Counters::add(&self.counters.written_bytes, cost);
        } else {
            Counters::add(&self.counters.others, 1);
        }
    }

    /// Sends what is queued.
    fn send(&mut self, context: &mut Context<'_>) -> bool {
        let mut worked = false;
        loop {
            if let Some(sending) = &mut self.sending {
                let Poll::Ready(result) = Pin::new(sending).poll(context) else { return worked };
                self.sent(result);
                worked = true;
            }
            if self.outbox.is_empty() {
                return worked;
            }
            let bytes = self.outbox.data_bytes();
            let parts = self.outbox.take(self.arena);
            if self.deaf {
                self.share.give(bytes);
                return true;
            }
            self.sending_bytes = bytes;
            self.sending = Some(self.stream.send(parts));
        }
    }

    fn sent(&mut self, result: Result<(), StreamError>) {
        self.sending = None;
        self.drain = None;
        self.share.give(std::mem::take(&mut self.sending_bytes));
        if result.is_err() {
            self.deaf = true;
            self.closing.get_or_insert(Err(SessionEnd::Broken));
        }
    }

    /// Receives, if it is bytes that are missing.
    fn receive(&mut self, stop: &Stop, context: &mut Context<'_>) -> bool {
        if *stop == Stop::Full || self.closing.is_some() {
            return false;
        }
        if let Some(error) = self.intake.ended() {
            let amid = self.intake.is_amid();
            self.closing = Some(match error {
                StreamError::Closed if !amid => Ok(()),
                StreamError::Closed => Err(SessionEnd::Truncated),
                StreamError::Broken => Err(SessionEnd::Broken),
            });
            return true;
        }
        self.intake.poll_receive(context).is_ready()
    }

    /// The end, once nothing is in flight (E1) and the client has its replies or cannot get them.
    fn over(&mut self, context: &mut Context<'_>) -> Option<Result<(), SessionEnd>> {
        let end = self.closing?;
        if !self.flight.is_empty() {
            return None;
        }
        if self.deaf || (self.sending.is_none() && self.outbox.is_empty()) {
            return Some(end);
        }
        let (clock, limit) = (self.clock, self.limits.drain);
        let drain = self.drain.get_or_insert_with(|| clock.sleep(limit));
        drain.as_mut().poll(context).is_ready().then_some(end)
    }
}

impl Future for Connection<'_> {
    type Output = Result<(), SessionEnd>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.shut.iter_mut().any(|watch| watch.poll(context).is_ready()) {
            this.closing.get_or_insert(Ok(()));
        }
        for _ in 0..ROUNDS_MAX {
            let collected = this.collect(context);
            let (taken, stop) = this.take_requests(context);
            let sent = this.send(context);
            let received = this.receive(&stop, context);
            if let Some(end) = this.over(context) {
                return Poll::Ready(end);
            }
            if !(collected || taken || sent || received) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
