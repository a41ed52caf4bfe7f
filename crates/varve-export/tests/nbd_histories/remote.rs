//! An export as a device: a client made of the protocol's own state machines, many requests at a time.

use futures_util::future::join;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use varve_block::{
    Arena, BlockDevice, Buffer, Bytes, Checked, Completion, Device, Durability, Io, IoError, Notify, Outcome,
    Shape, Stream, StreamError,
};
use varve_nbd::client::{Event, Handshake, Session, Step, Wish};
use varve_nbd::wire::command_flag::{FAST_ZERO, FUA, NO_HOLE};
use varve_nbd::{Command, ErrorCode, Request};

/// Something that happens once.
#[derive(Clone, Default)]
pub(crate) struct Once(Rc<(Cell<bool>, Notify)>);

impl Once {
    pub(crate) fn happen(&self) {
        self.0.0.set(true);
        self.0.1.notify_all();
    }

    pub(crate) async fn wait(&self) {
        self.0.1.until(|| self.0.0.get()).await;
    }
}

/// A request whose reply has not come.
#[derive(Default)]
struct Pending {
    buffer: Option<Buffer>,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// A connection to an export.
pub(crate) struct Remote {
    stream: Stream,
    shape: Shape,
    arena: Arena,
    session: RefCell<Session>,
    pending: RefCell<HashMap<u64, Pending>>,
    cookies: Cell<u64>,
    queue: RefCell<VecDeque<Vec<Bytes>>>,
    queued: RefCell<Option<Waker>>,
    /// No request gets through any more.
    over: Cell<bool>,
    /// The server has released the connection, and all requests that came over it.
    served: Once,
}

impl Remote {
    /// Does the handshake for the export `name`. [`Remote::run`] is then to be run. Nothing if the stream ends.
    pub(crate) async fn connect(
        stream: Stream,
        arena: Arena,
        wish: Wish,
        served: Once,
    ) -> Option<Rc<Remote>> {
        let mut handshake = Handshake::new(wish);
        let (mut held, mut output) = (Vec::new(), Vec::new());
        loop {
            let (used, step) = handshake.feed(&held, &mut output);
            held.drain(..used);
            if !output.is_empty() {
                stream.send(vec![arena.copy(&std::mem::take(&mut output))]).await.ok()?;
            }
            match step {
                Step::More => held.extend(receive(&stream, &arena).await.ok()?),
                Step::Failed(error) => panic!("the server refuses: {error}"),
                Step::Ready(connected) => {
                    assert!(held.is_empty(), "nothing comes before the first request");
                    let shape = Shape { discard: true, fast_zero: true, ..Shape::new(connected.size, 1) };
                    return Some(Rc::new(Remote {
                        stream,
                        shape,
                        arena,
                        session: RefCell::new(Session::new(connected.framing, connected.allocation)),
                        pending: RefCell::default(),
                        cookies: Cell::new(0),
                        queue: RefCell::default(),
                        queued: RefCell::default(),
                        over: Cell::new(false),
                        served,
                    }));
                }
            }
        }
    }

    pub(crate) fn device(self: &Rc<Self>) -> Device {
        Device::new(Handle(Rc::clone(self)))
    }

    /// Moves requests and replies, until the connection ends. Requests without a reply fail when the server has ended
    /// them.
    pub(crate) async fn run(self: Rc<Self>) {
        join(self.send_all(), self.receive_all()).await;
        self.served.wait().await;
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        for (cookie, mut request) in pending {
            request.outcome.get_or_insert(Err(IoError::Gone));
            let waker = request.waker.take();
            self.pending.borrow_mut().insert(cookie, request);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the connection in the midst of everything.
    pub(crate) fn break_off(&self) {
        self.over.set(true);
        self.stream.close();
        self.queued.take().into_iter().for_each(Waker::wake);
    }

    /// Ends it in order: the server answers what was asked before.
    pub(crate) fn disconnect(&self) {
        let request = Request { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        let head = self.session.borrow_mut().submit(&request).expect("it can be said");
        self.queue.borrow_mut().push_back(vec![self.arena.copy(&head)]);
        self.over.set(true);
        self.queued.take().into_iter().for_each(Waker::wake);
    }

    /// Waits until the server has released the connection.
    pub(crate) async fn ended(&self) {
        self.served.wait().await;
    }

    async fn send_all(&self) {
        loop {
            let next = poll_fn(|context| {
                if let Some(parts) = self.queue.borrow_mut().pop_front() {
                    return Poll::Ready(Some(parts));
                }
                if self.over.get() {
                    return Poll::Ready(None);
                }
                self.queued.replace(Some(context.waker().clone()));
                Poll::Pending
            })
            .await;
            let Some(parts) = next else { return };
            if self.stream.send(parts).await.is_err() {
                return;
            }
        }
    }

    async fn receive_all(&self) {
        let mut held = Vec::new();
        loop {
            let (used, event) = self.session.borrow_mut().feed(&held).expect("the server keeps the protocol");
            held.drain(..used);
            let length = match &event {
                Event::More(wanted) => *wanted,
                Event::Data { length, .. } => index(*length),
                _ => 0,
            };
            while held.len() < length {
                match receive(&self.stream, &self.arena).await {
                    Ok(more) => held.extend(more),
                    Err(_) => return self.break_off(),
                }
            }
            match event {
                Event::More(_) | Event::Runs { .. } => {}
                Event::Data { cookie, start, length } => {
                    let bytes: Vec<u8> = held.drain(..index(length)).collect();
                    self.fill(cookie, start, length, |target| target.copy_from_slice(&bytes));
                }
                Event::Hole { cookie, start, length } => {
                    self.fill(cookie, start, length, |target| target.fill(0));
                }
                Event::Done { cookie, result } => self.done(cookie, result),
            }
        }
    }

    fn fill(&self, cookie: u64, start: u64, length: u64, fill: impl FnOnce(&mut [u8])) {
        let mut pending = self.pending.borrow_mut();
        let request = pending.get_mut(&cookie).expect("the session knows what is in flight");
        let buffer = request.buffer.as_mut().expect("only a read brings data");
        fill(&mut buffer[index(start)..index(start + length)]);
    }

    fn done(&self, cookie: u64, result: Result<(), ErrorCode>) {
        let mut pending = self.pending.borrow_mut();
        let request = pending.get_mut(&cookie).expect("the session knows what is in flight");
        let buffer = request.buffer.take().unwrap_or_else(Buffer::empty);
        request.outcome = Some(match result {
            Ok(()) => Ok(buffer),
            Err(ErrorCode::NoSpace) => Err(IoError::NoSpace),
            Err(ErrorCode::Permission) => Err(IoError::ReadOnly),
            Err(ErrorCode::NotSupported) => Err(IoError::Unsupported),
            Err(_) => Err(IoError::Medium),
        });
        request.waker.take().into_iter().for_each(Waker::wake);
    }

    fn start(&self, io: Io) -> Option<u64> {
        if self.over.get() {
            return None;
        }
        let extent = io.extent();
        let durable = |durability: Durability| if durability == Durability::Durable { FUA } else { 0 };
        let (command, flags, data, buffer) = match io {
            Io::Read { buffer, .. } => (Command::Read, 0, None, Some(buffer)),
            Io::Write { data, durability, .. } => (Command::Write, durable(durability), Some(data), None),
            Io::Zero { options, .. } => {
                let hole = if options.unmap { 0 } else { NO_HOLE };
                let fast = if options.fast { FAST_ZERO } else { 0 };
                (Command::WriteZeroes, durable(options.durability) | hole | fast, None, None)
            }
            Io::Discard { .. } => (Command::Trim, 0, None, None),
            Io::Flush => (Command::Flush, 0, None, None),
        };
        let cookie = self.cookies.get() + 1;
        self.cookies.set(cookie);
        let request = Request { flags, command, cookie, offset: extent.offset, length: extent.length };
        let head = self.session.borrow_mut().submit(&request).expect("what was negotiated allows it");
        self.pending.borrow_mut().insert(cookie, Pending { buffer, ..Pending::default() });
        let mut parts = vec![self.arena.copy(&head)];
        parts.extend(data);
        self.queue.borrow_mut().push_back(parts);
        self.queued.take().into_iter().for_each(Waker::wake);
        Some(cookie)
    }

    async fn answer(&self, cookie: u64) -> Outcome {
        poll_fn(|context| {
            let mut pending = self.pending.borrow_mut();
            let request = pending.get_mut(&cookie).expect("it is asked for once");
            match request.outcome.take() {
                Some(outcome) => {
                    pending.remove(&cookie);
                    Poll::Ready(outcome)
                }
                None => {
                    request.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

struct Handle(Rc<Remote>);

impl BlockDevice for Handle {
    fn shape(&self) -> Shape {
        self.0.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match self.0.start(io.into_io()) {
            None => Completion::failed(IoError::Gone),
            Some(cookie) => Completion::pending(self.0.answer(cookie)),
        }
    }
}

async fn receive(stream: &Stream, arena: &Arena) -> Result<Vec<u8>, StreamError> {
    let (result, buffer) = stream.receive(arena.take(64 << 10), 0, 1).await;
    result.map(|filled| buffer[..filled].to_vec())
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a request in memory")
}
