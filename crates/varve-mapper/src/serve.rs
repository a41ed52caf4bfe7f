//! Answers an engine on one connection.

use crate::Decoder;
use crate::wire::{
    Access, EXTENTS_MAX, Extent, Hello, Intent, Message, Numbered, Status, ToEngine, ToMapper, Welcome,
    WireError,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use thiserror::Error;

/// Decides where the bytes of a volume lie.
pub trait Mapper {
    /// An engine has connected; the mapper registers its devices and says what it can.
    fn hello(&mut self, hello: &Hello, session: &Session) -> io::Result<Welcome>;

    /// These answers for writes, and ranges made zero, hold although they were not flushed when the last connection ended: clients rely
    /// on them. No other one that was not flushed holds.
    fn held(&mut self, extents: &[Extent]) {
        let _ = extents;
    }

    /// The engine knows the devices: the mapper may tell it where ranges lie before it asks ([`Session::prime`]).
    fn welcomed(&mut self, session: &Session) -> io::Result<()> {
        let _ = session;
        Ok(())
    }

    /// Where the range is: extents of which one has the byte at `offset`. None is an error, and so is what is outside the volume.
    /// They are at most [`EXTENTS_MAX`], however long the range is: what they do not have is asked for again.
    fn map(&mut self, offset: u64, length: u64, intent: Intent) -> Vec<Extent>;

    /// Makes durable what was answered and made zero so far.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Frees the range: it is zeros from now on. Asked only of a mapper that has a trim unit.
    fn trim(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What was copied in the range for an answer with `notify`, and what the request that asked wrote there, is durable.
    fn durable(&mut self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// The part of an answer to a request to write does not hold: what it would have had copied was not.
    fn failed(&mut self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// No request uses any more what [`Session::invalidate`] with this number made invalid.
    fn invalidated(&mut self, number: u64, session: &Session) {
        let _ = (number, session);
    }
}

/// Why a connection ended.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The socket failed.
    #[error("the connection to the engine failed: {0}")]
    Io(#[from] io::Error),
    /// The engine sent what no message is.
    #[error("the engine sent what is no message: {0}")]
    Wire(#[from] WireError),
    /// The engine sent a message out of order.
    #[error("the engine sent a message that does not fit here")]
    Order,
}

/// The mapper's side of a connection.
pub struct Session {
    stream: UnixStream,
    /// Messages that were not sent yet.
    output: RefCell<Vec<u8>>,
    last_number: Cell<u64>,
}

impl Session {
    /// Registers an open file as device `number`. Numbers below that of the devices in the hello are taken.
    pub fn add_file(&self, number: u32, is_writable: bool, file: impl AsFd) -> io::Result<()> {
        self.send_output()?;
        let mut bytes = Vec::new();
        ToEngine::Device { number, is_writable }.encode(0, &mut bytes);
        send_with_file(&self.stream, &bytes, file.as_fd())
    }

    /// Tells the engine where ranges lie before it asks.
    pub fn prime(&self, extents: &[Extent]) -> io::Result<()> {
        extents.chunks(EXTENTS_MAX).for_each(|chunk| self.push(0, &ToEngine::Mapped(chunk.to_vec())));
        self.send_output()
    }

    /// Has the engine forget its answers for a range; [`Mapper::invalidated`] hears of the end, with the number that is returned.
    /// Nothing that was named in an answer is used for anything else before.
    pub fn invalidate(&self, offset: u64, length: u64, access: Access) -> io::Result<u64> {
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        self.push(number, &ToEngine::Invalidate { offset, length, access });
        self.send_output().map(|()| number)
    }

    fn push(&self, id: u64, message: &ToEngine) {
        message.encode(id, &mut self.output.borrow_mut());
    }

    fn send_output(&self) -> io::Result<()> {
        (&self.stream).write_all(&self.output.take())
    }
}

/// Serves one engine until it closes the connection.
pub fn serve(stream: UnixStream, mapper: &mut impl Mapper) -> Result<(), ServeError> {
    let session = Session { stream, output: RefCell::default(), last_number: Cell::new(0) };
    let mut input = Input { decoder: Decoder::default(), bytes: vec![0; 64 << 10] };
    let Some(first) = input.next(&session)? else { return Ok(()) };
    let ToMapper::Hello(hello) = first.message else { return Err(ServeError::Order) };
    let mut held = Vec::new();
    while held.len() < hello.held as usize {
        let Some(next) = input.next(&session)? else { return Ok(()) };
        let ToMapper::Held(extents) = next.message else { return Err(ServeError::Order) };
        held.extend(extents);
    }
    let welcome = mapper.hello(&hello, &session)?;
    mapper.held(&held);
    session.push(0, &ToEngine::Welcome(welcome));
    mapper.welcomed(&session)?;
    while let Some(request) = input.next(&session)? {
        answer(mapper, &session, &request)?;
    }
    Ok(())
}

fn answer(
    mapper: &mut impl Mapper,
    session: &Session,
    request: &Numbered<ToMapper>,
) -> Result<(), ServeError> {
    let reply = match request.message {
        ToMapper::Map { offset, length, intent } => ToEngine::Mapped(mapper.map(offset, length, intent)),
        ToMapper::Flush => ToEngine::Flushed(status(&mapper.flush())),
        ToMapper::Trim { offset, length } => ToEngine::Trimmed(status(&mapper.trim(offset, length))),
        ToMapper::Invalidated => {
            mapper.invalidated(request.id, session);
            return Ok(());
        }
        ToMapper::Durable { offset, length } => {
            mapper.durable(offset, length);
            return Ok(());
        }
        ToMapper::Failed { offset, length } => {
            mapper.failed(offset, length);
            return Ok(());
        }
        ToMapper::Hello(_) | ToMapper::Held(_) => return Err(ServeError::Order),
    };
    session.push(request.id, &reply);
    Ok(())
}

fn status(result: &io::Result<()>) -> Status {
    if result.is_ok() { Status::Done } else { Status::Failed }
}

/// What the engine sends.
struct Input {
    decoder: Decoder,
    bytes: Vec<u8>,
}

impl Input {
    /// The next message; nothing at the end. What was answered is sent before more is waited for.
    fn next(&mut self, session: &Session) -> Result<Option<Numbered<ToMapper>>, ServeError> {
        loop {
            if let Some(message) = self.decoder.take()? {
                return Ok(Some(message));
            }
            session.send_output()?;
            let length = match (&session.stream).read(&mut self.bytes) {
                // An engine that leaves does not read to the end what was sent unasked.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
                length => length?,
            };
            if length == 0 {
                return Ok(None);
            }
            self.decoder.push(&self.bytes[..length]);
        }
    }
}

/// Sends all of `bytes`, and `file` with the first of them.
fn send_with_file(stream: &UnixStream, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<()> {
    let files = [file];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)), "there is room for one descriptor");
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    (&*stream).write_all(&bytes[sent..])
}
