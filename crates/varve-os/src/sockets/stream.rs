//! Connections: bytes both ways over a socket, tried without waiting before the reactor is asked.

use crate::disks::operation::{Message, Operation, Socket, SocketAction, try_receive};
use crate::driver::reactor::Reactor;
use crate::shard::ShardContext;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrAny};
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Buffer, ByteStream, Bytes, Received, Stream, StreamError, Transfer};

struct SocketStream {
    reactor: Rc<Reactor>,
    socket: Rc<Socket>,
    peer: String,
    /// The receive that the reactor has under way.
    receiving: Cell<Option<usize>>,
    /// Whether the present receive is to end with what it has: its bytes may have come at the same moment.
    is_interrupted: Cell<bool>,
}

/// Notes a receive as long as it is awaited: its number means another operation afterwards.
struct Noted<'s>(&'s Cell<Option<usize>>);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl SocketStream {
    /// Receives through the reactor until `wanted` bytes are there.
    async fn receive_rest(&self, mut buffer: Buffer, mut filled: usize, wanted: usize) -> Received {
        loop {
            if self.is_interrupted.get() {
                return (Ok(filled), buffer);
            }
            let action = SocketAction::Receive { buffer, filled };
            let started = self.reactor.start(Operation::Socket(Rc::clone(&self.socket), action));
            self.receiving.set(started.key());
            let noted = Noted(&self.receiving);
            let (operation, answer) = started.await;
            drop(noted);
            let Operation::Socket(_, SocketAction::Receive { buffer: back, .. }) = operation else {
                unreachable!("a receive comes back as a receive");
            };
            buffer = back;
            match answer {
                Ok(0) => return (Err(StreamError::Closed), buffer),
                Ok(count) => filled += count,
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Interrupted.
                Err(Errno::CANCELED) if !self.reactor.is_draining() => return (Ok(filled), buffer),
                Err(_) => return (Err(StreamError::Broken), buffer),
            }
            if filled >= wanted {
                return (Ok(filled), buffer);
            }
        }
    }

    /// Sends what is left through the reactor.
    async fn send_rest(&self, mut message: Box<Message>) -> Result<(), StreamError> {
        while !message.is_sent() {
            let action = SocketAction::Send(message);
            let (operation, answer) =
                self.reactor.start(Operation::Socket(Rc::clone(&self.socket), action)).await;
            let Operation::Socket(_, SocketAction::Send(back)) = operation else {
                unreachable!("a send comes back as a send");
            };
            message = back;
            match answer {
                Ok(count) => message.advance(count),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return Err(StreamError::Broken),
            }
        }
        Ok(())
    }
}

impl ByteStream for SocketStream {
    fn receive(&self, mut buffer: Buffer, mut filled: usize, wanted: usize) -> Transfer<'_, Received> {
        assert!(filled < wanted && wanted <= buffer.len(), "there is something to receive, and room for it");
        if self.reactor.is_draining() {
            return Transfer::ready((Err(StreamError::Broken), buffer));
        }
        self.is_interrupted.set(false);
        loop {
            match try_receive(&self.socket, &mut buffer[filled..]) {
                Ok(0) => return Transfer::ready((Err(StreamError::Closed), buffer)),
                Ok(count) => filled += count,
                Err(Errno::AGAIN) => break,
                Err(_) => return Transfer::ready((Err(StreamError::Broken), buffer)),
            }
            if filled >= wanted {
                return Transfer::ready((Ok(filled), buffer));
            }
        }
        Transfer::Pending(Box::pin(self.receive_rest(buffer, filled, wanted)))
    }

    fn send(&self, parts: Vec<Bytes>) -> Transfer<'_, Result<(), StreamError>> {
        let mut message = Message::new(parts);
        while !message.is_sent() {
            match message.try_send(&self.socket) {
                Ok(count) => message.advance(count),
                Err(Errno::AGAIN) => return Transfer::Pending(Box::pin(self.send_rest(Box::new(message)))),
                Err(_) => return Transfer::ready(Err(StreamError::Broken)),
            }
        }
        Transfer::ready(Ok(()))
    }

    fn close(&self) {
        // Fails only if the peer has closed already.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn is_passable(&self) -> bool {
        true
    }

    fn interrupt(&self) {
        self.is_interrupted.set(true);
        if let Some(key) = self.receiving.get() {
            self.reactor.interrupt(key);
        }
    }

    fn detach(&self) -> Option<(OwnedFd, Vec<u8>)> {
        Some((self.socket.as_fd().try_clone_to_owned().ok()?, Vec::new()))
    }
}

impl ShardContext {
    /// A connection of this shard on a connected socket, wherever it was accepted.
    pub fn adopt(&self, socket: OwnedFd) -> Stream {
        let peer = peer_of(&socket);
        // Waiting is the reactor's affair; a ring would answer `AGAIN` for a non-blocking socket instead.
        if let Err(error) = rustix::io::ioctl_fionbio(&socket, false) {
            tracing::warn!(%error, peer, "a connection stays non-blocking");
        }
        let reactor = Rc::clone(&self.core.reactor);
        let (socket, receiving, is_interrupted) = (Socket::new(socket), Cell::default(), Cell::default());
        Rc::new(SocketStream { reactor, socket, peer, receiving, is_interrupted })
    }
}

/// How long a TCP connection may be silent before the kernel asks whether the peer is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer after which the connection is broken.
const KEEPALIVE_COUNT: u32 = 6;

/// Small replies are sent at once, and a peer that vanished without a word is noticed.
fn tune_tcp(socket: &OwnedFd) {
    use rustix::net::sockopt;
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let kept = sockopt::set_socket_keepalive(socket, true)
        .and_then(|()| sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE))
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT));
    if let Err(error) = kept {
        tracing::warn!(%error, "a TCP connection has no keepalive");
    }
}

/// Describes the other end, for logs; TCP is tuned, too.
fn peer_of(socket: &OwnedFd) -> String {
    match rustix::net::getpeername(socket.as_fd()) {
        Ok(Some(address)) if is_inet(&address) => {
            tune_tcp(socket);
            std::net::SocketAddr::try_from(address)
                .map_or_else(|_| "tcp".to_owned(), |address| format!("tcp {address}"))
        }
        Ok(_) => match rustix::net::sockopt::socket_peercred(socket) {
            Ok(credentials) => format!("unix, process {}", credentials.pid.as_raw_nonzero()),
            Err(_) => "unix".to_owned(),
        },
        Err(_) => "nobody".to_owned(),
    }
}

fn is_inet(address: &SocketAddrAny) -> bool {
    let family = address.address_family();
    family == rustix::net::AddressFamily::INET || family == rustix::net::AddressFamily::INET6
}

#[cfg(test)]
mod tests;
