//! The connections of one device, and which of them have changes in flight: the kernel sends a request that it waited for too long
//! again, over another connection.
//!
//! Invariants:
//! - KLANE1. A change is begun only over a connection that the kernel has not ended, and only once no change is in flight that came
//!   over one that it has: one of them may be the same request, and would undo what the kernel wrote after its second answer.
//! - KLANE2. A connection gets another socket when nothing of the one before is in flight.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Connections, by their numbers.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Mutex<Vec<Lane>>,
    rested: Condvar,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    /// None while it has none.
    socket: Option<Arc<UnixStream>>,
    changes: usize,
}

impl Lane {
    /// Whether the kernel has ended it; whoever sends a request again has done that before.
    fn has_ended(&self) -> bool {
        let Some(socket) = &self.socket else { return true };
        let mut polled = [PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(socket), PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut polled, Some(&at_once)).is_err() || polled[0].revents().intersects(ended)
    }
}

impl Lanes {
    /// So many, without sockets.
    pub(super) fn new(count: usize) -> Self {
        Self { lanes: Mutex::new(vec![Lane::default(); count]), rested: Condvar::new() }
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection has this socket from now on.
    pub(super) fn open(&self, lane: usize, socket: &Arc<UnixStream>) {
        let mut lanes = self.lanes();
        let before = lanes[lane].socket.replace(Arc::clone(socket));
        assert!(before.is_none() && lanes[lane].changes == 0, "KLANE2");
    }

    /// Waits until nothing that changes anything is in flight of a connection, which has no socket then.
    pub(super) fn close(&self, lane: usize) {
        let mut lanes = self.lanes();
        while lanes[lane].changes > 0 {
            lanes = self.rested.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
        lanes[lane].socket = None;
        self.rested.notify_all();
    }

    /// The right to a change over a connection; none if the kernel has ended it (KLANE1).
    pub(super) fn begin(&self, lane: usize) -> bool {
        let mut lanes = self.lanes();
        loop {
            if lanes[lane].has_ended() {
                return false;
            }
            let others = lanes.iter().enumerate().filter(|(other, _)| *other != lane);
            let is_told_again = |(_, other): (usize, &Lane)| other.changes > 0 && other.has_ended();
            if !others.into_iter().any(is_told_again) {
                lanes[lane].changes += 1;
                return true;
            }
            lanes = self.rested.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The change has ended.
    pub(super) fn end(&self, lane: usize) {
        let mut lanes = self.lanes();
        assert!(lanes[lane].changes > 0, "KLANE1: it was begun");
        lanes[lane].changes -= 1;
        if lanes[lane].changes == 0 {
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
    fn what_is_told_again_waits_for_what_was_told_first() {
        let lanes = Lanes::new(2);
        let [(first, kernel), (second, _other)] = [pair(), pair()];
        lanes.open(0, &first);
        lanes.open(1, &second);
        assert!(lanes.begin(0) && lanes.begin(1), "both are there");
        lanes.end(1);
        kernel.shutdown(Shutdown::Both).expect("it is connected");
        assert!(!lanes.begin(0), "KLANE1: the kernel has ended it");
        std::thread::scope(|scope| {
            let (sender, begun) = std::sync::mpsc::channel();
            let lanes = &lanes;
            scope.spawn(move || sender.send(lanes.begin(1)));
            let early = begun.recv_timeout(std::time::Duration::from_millis(50));
            assert!(early.is_err(), "KLANE1: a change of the first is in flight");
            lanes.end(0);
            assert_eq!(begun.recv(), Ok(true));
        });
        lanes.end(1);
        lanes.close(0);
        lanes.open(0, &pair().0);
    }
}
