//! A client made of the protocol's own state machines, over any stream.

use super::world::PipeEnd;
use std::collections::HashMap;
use std::rc::Rc;
use varve_block::{Arena, ByteStream, StreamError};
use varve_nbd::client::{Connected, Event, Handshake, Session, Step, Wish};
use varve_nbd::{Command, ErrorCode, Request, Run};

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Reply {
    pub(super) data: Vec<u8>,
    pub(super) runs: Vec<Run>,
    pub(super) error: Option<ErrorCode>,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: Rc<PipeEnd>,
    pub(super) connected: Connected,
    session: Session,
    arena: Arena,
    held: Vec<u8>,
    cookie: u64,
    replies: HashMap<u64, Reply>,
}

impl Client {
    pub(super) async fn connect(stream: &Rc<PipeEnd>, wish: Wish) -> Result<Self, Step> {
        let arena = Arena::heap(4 << 20);
        let mut handshake = Handshake::new(wish);
        let (mut held, mut output) = (Vec::new(), Vec::new());
        loop {
            let (used, step) = handshake.feed(&held, &mut output);
            held.drain(..used);
            if !output.is_empty() {
                let bytes = arena.copy(&std::mem::take(&mut output));
                stream.send(vec![bytes]).await.unwrap();
            }
            match step {
                Step::More => held.extend(receive(stream, &arena).await.unwrap_or_default()),
                Step::Ready(connected) => {
                    let session = Session::new(connected.framing, connected.allocation);
                    let (stream, replies) = (Rc::clone(stream), HashMap::new());
                    return Ok(Self {
                        stream,
                        connected: *connected,
                        session,
                        arena,
                        held,
                        cookie: 0,
                        replies,
                    });
                }
                failed @ Step::Failed(_) => return Err(failed),
            }
        }
    }

    /// Sends a request without waiting for its reply; gives its cookie.
    pub(super) async fn begin(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> u64 {
        self.cookie += 1;
        let request = Request { flags, command, cookie: self.cookie, offset, length };
        let head = self.session.submit(&request).unwrap();
        let blank = if command == Command::Read { vec![0xee; length as usize] } else { Vec::new() };
        self.replies.insert(self.cookie, Reply { data: blank, ..Reply::default() });
        let parts = vec![self.arena.copy(&head), self.arena.copy(data)];
        let _ = self.stream.send(parts).await;
        self.cookie
    }

    /// Waits for any reply; `None` if the server closed.
    pub(super) async fn next(&mut self) -> Option<(u64, Reply)> {
        loop {
            let (used, event) = self.session.feed(&self.held).expect("the server keeps to the protocol");
            self.held.drain(..used);
            match event {
                Event::More(wanted) => self.fill(wanted).await.ok()?,
                Event::Data { cookie, start, length } => {
                    self.fill(length as usize).await.ok()?;
                    let place = &mut self.replies.get_mut(&cookie).unwrap().data[start as usize..];
                    place[..length as usize].copy_from_slice(&self.held[..length as usize]);
                    self.held.drain(..length as usize);
                }
                Event::Hole { cookie, start, length } => {
                    let place = &mut self.replies.get_mut(&cookie).unwrap().data[start as usize..];
                    place[..length as usize].fill(0);
                }
                Event::Runs { cookie, runs } => self.replies.get_mut(&cookie).unwrap().runs = runs,
                Event::Done { cookie, result } => {
                    let mut reply = self.replies.remove(&cookie).unwrap();
                    reply.error = result.err();
                    return Some((cookie, reply));
                }
            }
        }
    }

    async fn fill(&mut self, wanted: usize) -> Result<(), StreamError> {
        while self.held.len() < wanted {
            let more = receive(&self.stream, &self.arena).await?;
            self.held.extend(more);
        }
        Ok(())
    }

    /// Sends a request and waits for its reply; nothing else may be in flight.
    pub(super) async fn ask(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> Reply {
        let cookie = self.begin(command, flags, offset, length, data).await;
        let (answered, reply) = self.next().await.expect("a reply");
        assert_eq!(answered, cookie);
        reply
    }

    pub(super) async fn disconnect(&mut self) {
        let request = Request { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        let head = self.session.submit(&request).unwrap();
        let _ = self.stream.send(vec![self.arena.copy(&head)]).await;
    }
}

async fn receive(stream: &Rc<PipeEnd>, arena: &Arena) -> Result<Vec<u8>, StreamError> {
    let (result, buffer) = stream.receive(arena.take(64 << 10), 0, 1).await;
    result.map(|filled| buffer[..filled].to_vec())
}
