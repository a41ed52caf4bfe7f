//! Connections that another process goes on with, where they stood.
//!
//! Invariants:
//! - NBDDETACH1. A connection is detached when all requests that were taken from it are answered; what was received of later ones is passed
//!   on, byte by byte. So its client sees a pause.
//! - NBDDETACH2. Of a connection that is detached nothing is received or sent here any more, and its socket is not shut.

use super::Shutdown;
use super::shutdown::Watch;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use varve_block::{
    Buffer, ByteStream, Bytes, Received, Stream, StreamError, Tracker, TrackerGuard, Transfer,
};
use varve_nbd::server::Terms;

/// How a connection ended in order.
pub(super) enum Ended {
    /// There are no more requests.
    Closed,
    /// Another process goes on with it.
    Detached {
        /// Bytes that were received and not looked at.
        unread: Vec<u8>,
        /// Bytes of a payload that are to be skipped before these.
        skip: u64,
    },
}

/// A connection past its handshake, without its socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionState {
    /// The export's own name.
    pub export: String,
    /// What was agreed.
    pub terms: Terms,
    /// Bytes that were received, and belong to no request that was answered.
    pub unread: Vec<u8>,
    /// Bytes of a payload that are to be skipped before these.
    pub skip: u64,
}

/// A connection that no process serves.
#[derive(Debug)]
pub struct DetachedConnection {
    /// Its socket.
    pub socket: OwnedFd,
    /// How far it is.
    pub state: ConnectionState,
}

/// Takes connections out, once it is asked for. Cloning shares it.
#[derive(Clone, Default)]
pub struct Detachment {
    signal: Shutdown,
    /// What is to end before all are out.
    open: Tracker,
    detached: Rc<RefCell<Vec<DetachedConnection>>>,
}

impl Detachment {
    /// Has connections that can be passed on end between two requests, and waits for that.
    pub async fn detach(&self) {
        self.signal.pull();
        self.open.empty().await;
    }

    /// Lets those go on that are not out.
    pub fn release(&self) {
        self.signal.release();
    }

    /// Completes when connections are asked to end.
    pub async fn wait(&self) {
        self.signal.wait().await;
    }

    /// Whether connections are asked to end.
    pub fn is_wanted(&self) -> bool {
        self.signal.is_pulled()
    }

    /// Counts what [`Detachment::detach`] waits for.
    pub fn enter(&self) -> TrackerGuard {
        self.open.enter()
    }

    /// Takes those that are out.
    pub fn take(&self) -> Vec<DetachedConnection> {
        self.detached.take()
    }

    pub(super) fn watch(&self) -> Watch {
        self.signal.watch()
    }

    /// NBDDETACH2. False if its socket cannot be had.
    pub(super) fn put(&self, stream: &Stream, mut state: ConnectionState) -> bool {
        let Some((socket, mut later)) = stream.detach() else { return false };
        state.unread.append(&mut later);
        self.detached.borrow_mut().push(DetachedConnection { socket, state });
        true
    }
}

/// A connection of which bytes were received before.
struct Resumed {
    below: Stream,
    /// These, and how many of them were looked at.
    unread: RefCell<(Vec<u8>, usize)>,
}

/// The stream that brings `unread` before what the client sends.
pub(super) fn resumed(below: Stream, unread: Vec<u8>) -> Stream {
    if unread.is_empty() { below } else { Rc::new(Resumed { below, unread: RefCell::new((unread, 0)) }) }
}

impl ByteStream for Resumed {
    fn receive(&self, mut buffer: Buffer, mut filled: usize, wanted: usize) -> Transfer<'_, Received> {
        let mut unread = self.unread.borrow_mut();
        let (bytes, done) = &mut *unread;
        let count = (bytes.len() - *done).min(buffer.len() - filled);
        buffer[filled..filled + count].copy_from_slice(&bytes[*done..*done + count]);
        filled += count;
        *done += count;
        if *done == bytes.len() {
            (*bytes, *done) = (Vec::new(), 0);
        }
        if filled >= wanted {
            return Transfer::ready((Ok(filled), buffer));
        }
        drop(unread);
        self.below.receive(buffer, filled, wanted)
    }

    fn send(&self, parts: Vec<Bytes>) -> Transfer<'_, Result<(), StreamError>> {
        self.below.send(parts)
    }

    fn close(&self) {
        self.below.close();
    }

    fn peer(&self) -> String {
        self.below.peer()
    }

    fn is_passable(&self) -> bool {
        self.below.is_passable()
    }

    fn interrupt(&self) {
        self.below.interrupt();
    }

    fn detach(&self) -> Option<(OwnedFd, Vec<u8>)> {
        let (socket, mut later) = self.below.detach()?;
        let (bytes, done) = &*self.unread.borrow();
        let mut unread = bytes[*done..].to_vec();
        unread.append(&mut later);
        Some((socket, unread))
    }
}
