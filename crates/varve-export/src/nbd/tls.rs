//! TLS on a connection: a stream whose bytes are encrypted on the stream below.
//!
//! Invariants:
//! - TLS1. Records are sent in the order in which they were encrypted.
//! - TLS2. A client for which no authority of the credentials vouches gets no stream.
//! - TLS3. What a client sends is decrypted only when it is asked for: beside that the stream keeps one receive, and one record.
//! - TLS4. No session is resumed: every client shows its certificate, to the credentials of now.

mod credentials;
mod validity;

pub use credentials::{TlsCredentials, TlsError, TlsFiles, TlsServer};

use super::SessionEnd;
use super::receive_buffer::{BUSY_BYTES, LANDING_BYTES};
use rustls::ServerConnection;
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::rc::Rc;
use varve_block::{Arena, Buffer, ByteStream, Bytes, Received, Stream, StreamError, Transfer};

/// Bytes that are encrypted before they are sent, so that memory and time of one step are bounded.
const SEALED_BYTES: usize = 128 << 10;
/// Bytes that a record has beside its data, or more.
const RECORD_OVERHEAD: usize = 64;
/// Bytes of data in a record, at most.
const RECORD_BYTES: usize = 16 << 10;

/// A stream on which TLS was agreed.
struct TlsStream {
    below: Stream,
    arena: Arena,
    session: RefCell<ServerConnection>,
    incoming: RefCell<Incoming>,
    /// Whether encrypted bytes are on their way (TLS1).
    is_sending: Cell<bool>,
}

/// Received bytes that were not decrypted.
struct Incoming {
    /// Empty while it is filled.
    buffer: Buffer,
    start: usize,
    filled: usize,
    /// Whether the last receive filled the buffer: there is more, probably.
    was_filled: bool,
}

/// What became of the received bytes.
enum Progress {
    /// So many bytes were decrypted.
    Data(usize),
    /// More have to be received.
    Hungry,
    /// The client says that it sends no more.
    Ended,
}

/// Lets a client in that may begin TLS (TLS2). It has a bounded time for that; the caller sees to it.
pub(super) async fn accept(stream: &Stream, server: &TlsServer, arena: &Arena) -> Result<Stream, SessionEnd> {
    let mut session = ServerConnection::new(server.config()).map_err(|error| failed(stream, &error))?;
    session.set_buffer_limit(None);
    let incoming = Incoming { buffer: Buffer::empty(), start: 0, filled: 0, was_filled: false };
    let tls = TlsStream {
        below: Rc::clone(stream),
        arena: arena.clone(),
        session: RefCell::new(session),
        incoming: RefCell::new(incoming),
        is_sending: Cell::new(false),
    };
    loop {
        let judged = tls.take_records();
        tls.send_sealed().await.map_err(SessionEnd::of)?;
        judged.map_err(|error| failed(stream, &error))?;
        if !tls.session.borrow().is_handshaking() {
            return Ok(Rc::new(tls));
        }
        tls.fill().await.map_err(SessionEnd::of)?;
    }
}

fn failed(stream: &Stream, error: &rustls::Error) -> SessionEnd {
    tracing::info!(peer = stream.peer(), %error, "TLS was not agreed with an NBD client");
    SessionEnd::NoTls
}

impl TlsStream {
    /// Gives the session what was received, up to the first data that it decrypts.
    fn take_records(&self) -> Result<(), rustls::Error> {
        let (mut session, mut incoming) = (self.session.borrow_mut(), self.incoming.borrow_mut());
        let Incoming { buffer, start, filled, .. } = &mut *incoming;
        while start < filled {
            let mut left = &buffer[*start..*filled];
            let taken = session.read_tls(&mut left);
            let taken = taken.map_err(|error| rustls::Error::General(error.to_string()))?;
            // It takes nothing after the end of what the client sends.
            *start = if taken == 0 { *filled } else { *start + taken };
            if session.process_new_packets()?.plaintext_bytes_to_read() > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Decrypts into `data`, which is not empty.
    fn decrypt(&self, data: &mut [u8]) -> Result<Progress, rustls::Error> {
        loop {
            match self.session.borrow_mut().reader().read(data) {
                Ok(0) => return Ok(Progress::Ended),
                Ok(count) => return Ok(Progress::Data(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Ok(Progress::Ended),
            }
            let incoming = self.incoming.borrow();
            if incoming.start == incoming.filled {
                return Ok(Progress::Hungry);
            }
            drop(incoming);
            self.take_records()?;
        }
    }

    /// Receives at least one byte from below; nothing may be left of what was received before.
    async fn fill(&self) -> Result<(), StreamError> {
        let buffer = {
            let mut incoming = self.incoming.borrow_mut();
            assert_eq!(incoming.start, incoming.filled, "TLS3");
            let wanted = if incoming.was_filled { BUSY_BYTES } else { LANDING_BYTES };
            let buffer = std::mem::replace(&mut incoming.buffer, Buffer::empty());
            if buffer.len() == wanted { buffer } else { self.arena.take(wanted) }
        };
        let (received, buffer) = self.below.receive(buffer, 0, 1).await;
        let filled = received.unwrap_or(0);
        let was_filled = filled == buffer.len();
        *self.incoming.borrow_mut() = Incoming { buffer, start: 0, filled, was_filled };
        received.map(drop)
    }

    /// As [`ByteStream::receive`].
    async fn receive_data(&self, mut buffer: Buffer, mut filled: usize, wanted: usize) -> Received {
        while filled < buffer.len() {
            match self.decrypt(&mut buffer[filled..]) {
                Ok(Progress::Data(count)) => filled += count,
                Ok(Progress::Hungry) if filled >= wanted => break,
                Ok(Progress::Hungry) => {
                    if let Err(error) = self.fill().await {
                        return (Err(error), buffer);
                    }
                }
                Ok(Progress::Ended) if filled >= wanted => break,
                Ok(Progress::Ended) => return (Err(StreamError::Closed), buffer),
                Err(error) => {
                    tracing::info!(peer = self.below.peer(), %error, "an NBD client broke TLS");
                    self.send_last_words();
                    return (Err(StreamError::Broken), buffer);
                }
            }
        }
        (Ok(filled), buffer)
    }

    /// What the session has to send, encrypted.
    fn sealed(&self, expected: usize) -> Vec<Bytes> {
        let mut session = self.session.borrow_mut();
        let mut sealed = Vec::new();
        while session.wants_write() {
            let mut buffer = self.arena.take(expected);
            let mut room = &mut buffer[..];
            while !room.is_empty() && session.wants_write() {
                session.write_tls(&mut room).expect("memory takes what fits");
            }
            let length = expected - room.len();
            buffer.truncate(length);
            sealed.push(buffer.freeze());
        }
        sealed
    }

    /// Sends what the session has to say of itself.
    async fn send_sealed(&self) -> Result<(), StreamError> {
        let sealed = self.sealed(LANDING_BYTES);
        if sealed.is_empty() { Ok(()) } else { self.below.send(sealed).await }
    }

    /// Tries to say why the connection ends, without waiting (TLS1).
    fn send_last_words(&self) {
        let sealed = if self.is_sending.get() { Vec::new() } else { self.sealed(LANDING_BYTES) };
        if !sealed.is_empty() {
            drop(self.below.send(sealed));
        }
    }

    /// As [`ByteStream::send`].
    async fn send_data(&self, parts: Vec<Bytes>) -> Result<(), StreamError> {
        let (mut part, mut sent) = (0, 0);
        self.is_sending.set(true);
        while part < parts.len() {
            let (mut length, mut slices) = (0, Vec::new());
            while part < parts.len() && length < SEALED_BYTES {
                let slice = &parts[part][sent..];
                let taken = slice.len().min(SEALED_BYTES - length);
                slices.push(IoSlice::new(&slice[..taken]));
                (length, sent) = (length + taken, sent + taken);
                if sent == parts[part].len() {
                    (part, sent) = (part + 1, 0);
                }
            }
            let written = self.session.borrow_mut().writer().write_vectored(&slices);
            if written.ok() != Some(length) {
                return Err(StreamError::Broken); // The session has ended.
            }
            let overhead = (length / RECORD_BYTES + 2) * RECORD_OVERHEAD;
            self.below.send(self.sealed(length + overhead)).await?;
        }
        self.is_sending.set(false);
        Ok(())
    }
}

impl ByteStream for TlsStream {
    fn receive(&self, buffer: Buffer, filled: usize, wanted: usize) -> Transfer<'_, Received> {
        assert!(filled < wanted && wanted <= buffer.len(), "there is something to receive, and room for it");
        Transfer::Pending(Box::pin(self.receive_data(buffer, filled, wanted)))
    }

    fn send(&self, parts: Vec<Bytes>) -> Transfer<'_, Result<(), StreamError>> {
        Transfer::Pending(Box::pin(self.send_data(parts)))
    }

    fn close(&self) {
        self.session.borrow_mut().send_close_notify();
        self.send_last_words();
        self.below.close();
    }

    fn peer(&self) -> String {
        format!("{}, TLS", self.below.peer())
    }
}
