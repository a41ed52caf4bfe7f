//! How a delegate reaches its mapper: the daemon's links are Unix sockets.

use varve_block::{Device, LocalFuture};

/// Makes connections to the mapper of one volume.
pub trait Connector {
    /// Connects.
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>>;
}

/// A connection to a mapper.
pub trait Link {
    /// Sends bytes after those that were sent before. What cannot be sent is noticed by [`Link::receive`].
    fn send(&self, bytes: Vec<u8>);

    /// Waits for more bytes. Nothing is lost if that is cancelled and asked for again.
    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>>;
}

/// What came from the mapper.
#[derive(Default)]
pub struct Received {
    /// Bytes, at least one.
    pub bytes: Vec<u8>,
    /// Files whose descriptors came with them, in order.
    pub devices: Vec<Device>,
}

/// There is no connection to the mapper, or no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkError;
