//! The connections of one device, and which of them have changes in flight: the kernel sends a request that it waited for too long
//! again, over another connection.
//!
//! Invariants:
//! - KCONNECTION1. A change is begun only over a connection that the kernel has not ended, and only once no change is in flight that came
//!   over one that it has: one of them may be the same request, and would undo what the kernel wrote after its second answer.
//! - KCONNECTION2. A connection gets another socket when nothing of the one before is in flight.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Connections, by their numbers.
#[derive(Debug)]
pub(super) struct Connections {
    connections: Mutex<Vec<Connection>>,
    rested: Condvar,
}

#[derive(Clone, Debug, Default)]
struct Connection {
    /// None while it has none.
    socket: Option<Arc<UnixStream>>,
    changes: usize,
}

impl Connection {
    /// Whether the kernel has ended it; whoever sends a request again has done that before.
    fn has_ended(&self) -> bool {
        let Some(socket) = &self.socket else { return true };
        let mut polled = [PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(socket), PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut polled, Some(&at_once)).is_err() || polled[0].revents().intersects(ended)
    }
}

impl Connections {
    /// So many, without sockets.
    pub(super) fn new(count: usize) -> Self {
        Self { connections: Mutex::new(vec![Connection::default(); count]), rested: Condvar::new() }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection has this socket from now on.
    pub(super) fn open(&self, connection: usize, socket: &Arc<UnixStream>) {
        let mut connections = self.connections();
        let before = connections[connection].socket.replace(Arc::clone(socket));
        assert!(before.is_none() && connections[connection].changes == 0, "KCONNECTION2");
    }

    /// Waits until nothing that changes anything is in flight of a connection, which has no socket then.
    pub(super) fn close(&self, connection: usize) {
        let mut connections = self.connections();
        while connections[connection].changes > 0 {
            connections = self.rested.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
        connections[connection].socket = None;
        self.rested.notify_all();
    }

    /// The right to a change over a connection; none if the kernel has ended it (KCONNECTION1).
    pub(super) fn begin(&self, connection: usize) -> bool {
        let mut connections = self.connections();
        loop {
            if connections[connection].has_ended() {
                return false;
            }
            let others = connections.iter().enumerate().filter(|(other, _)| *other != connection);
            let may_be_sent_again = |(_, other): (usize, &Connection)| other.changes > 0 && other.has_ended();
            if !others.into_iter().any(may_be_sent_again) {
                connections[connection].changes += 1;
                return true;
            }
            connections = self.rested.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The change has ended.
    pub(super) fn end(&self, connection: usize) {
        let mut connections = self.connections();
        assert!(connections[connection].changes > 0, "KCONNECTION1: it was begun");
        connections[connection].changes -= 1;
        if connections[connection].changes == 0 {
            self.rested.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Shutdown;

    fn pair() -> (Arc<UnixStream>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        (Arc::new(ours), theirs)
    }

    #[test]
    fn what_may_be_sent_again_waits_for_what_was_told_first() {
        let connections = Connections::new(2);
        let [(first, kernel), (second, _other)] = [pair(), pair()];
        connections.open(0, &first);
        connections.open(1, &second);
        assert!(connections.begin(0) && connections.begin(1), "both are there");
        connections.end(1);
        kernel.shutdown(Shutdown::Both).expect("it is connected");
        assert!(!connections.begin(0), "KCONNECTION1: the kernel has ended it");
        std::thread::scope(|scope| {
            let (sender, begun) = std::sync::mpsc::channel();
            let connections = &connections;
            scope.spawn(move || sender.send(connections.begin(1)));
            let early = begun.recv_timeout(std::time::Duration::from_millis(50));
            assert!(early.is_err(), "KCONNECTION1: a change of the first is in flight");
            connections.end(0);
            assert_eq!(begun.recv(), Ok(true));
        });
        connections.end(1);
        connections.close(0);
        connections.open(0, &pair().0);
    }
}
