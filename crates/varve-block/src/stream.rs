//! What a door needs of a connection: ordered bytes both ways.

use crate::buffer::{Buffer, Bytes};
use crate::clock::LocalFuture;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamError {
    /// The peer closed it in order.
    Closed,
    /// It broke.
    Broken,
}

/// The answer to a receive: how many bytes are now filled, counted from the buffer's start; the buffer.
pub type Received = (Result<usize, StreamError>, Buffer);

/// A result that is there already, or a future of it. Trying first without waiting is worth a factor on memory.
pub enum Transfer<'a, T> {
    /// Done without waiting; `None` once taken.
    Ready(Option<T>),
    /// Under way.
    Pending(LocalFuture<'a, T>),
}

impl<T> Transfer<'_, T> {
    /// A finished transfer.
    pub fn ready(value: T) -> Self {
        Transfer::Ready(Some(value))
    }
}

impl<T: Unpin> Future for Transfer<'_, T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Transfer::Ready(value) => {
                Poll::Ready(value.take().expect("a transfer is polled to its end once"))
            }
            Transfer::Pending(future) => future.as_mut().poll(context),
        }
    }
}

/// A connection. One receive and one send may be under way at the same time.
pub trait ByteStream {
    /// Fills `buffer` from `filled` on until at least `wanted` bytes of it are filled, and takes more if more is
    /// there already. `filled < wanted <= buffer.len()`. One that wants a single byte and is not ready at once may be dropped instead of
    /// polled: it has received nothing.
    fn receive(&self, buffer: Buffer, filled: usize, wanted: usize) -> Transfer<'_, Received>;

    /// Sends all parts in order.
    fn send(&self, parts: Vec<Bytes>) -> Transfer<'_, Result<(), StreamError>>;

    /// Ends both directions; transfers under way finish with an error.
    fn close(&self);

    /// Describes the other end, for logs.
    fn peer(&self) -> String;

    /// Whether another process can go on with it ([`ByteStream::detach`]).
    fn is_passable(&self) -> bool {
        false
    }

    /// Ends a receive that is under way with what it has received, which may be less than is wanted; nothing is lost.
    fn interrupt(&self) {}

    /// The socket, for another process to go on with, and bytes that were received of it and that no receive has had yet. No transfer is
    /// under way, and none follows. None if it is not passable, or the system has no descriptor to spare.
    fn detach(&self) -> Option<(OwnedFd, Vec<u8>)> {
        None
    }
}

/// A handle to a connection.
pub type Stream = Rc<dyn ByteStream>;
