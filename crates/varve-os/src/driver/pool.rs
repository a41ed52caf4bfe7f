//! The driver without io_uring: disks go to helper threads, sockets are tried again when `poll` says that they are ready.

use crate::disks::operation::{Answer, Operation, SocketAction};
use crate::driver::flight::Flight;
use crate::driver::ring::Wait;
use crate::mailbox::Notify;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use slab::Slab;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// What this driver waits for.
pub(crate) struct Pool {
    notify: Arc<Notify>,
    /// Keys of the flights on sockets, in order of their start.
    sockets: Vec<usize>,
}

impl Pool {
    pub(crate) fn new(notify: Arc<Notify>) -> Self {
        Self { notify, sockets: Vec::new() }
    }

    /// Waits for a socket to become ready.
    pub(crate) fn start(&mut self, key: usize) {
        self.sockets.push(key);
    }

    /// Ends the wait for a socket.
    pub(crate) fn cancel(&mut self, key: usize) {
        self.sockets.retain(|held| *held != key);
    }

    /// Waits, and tries the sockets that are ready.
    pub(crate) fn enter(
        &mut self,
        wait: Wait,
        flights: &mut Slab<Flight>,
        finished: &mut Vec<(usize, Answer)>,
    ) {
        let limit = match wait {
            Wait::No if self.sockets.is_empty() => return,
            Wait::No => Some(Timespec::default()),
            Wait::Event => None,
            Wait::Limit(limit) => Some(timespec(limit)),
        };
        let ready = self.poll(limit.as_ref(), flights);
        let mut kept = Vec::with_capacity(self.sockets.len());
        for (key, ready) in self.sockets.drain(..).zip(ready) {
            let answer = if ready { try_flight(&mut flights[key]) } else { Err(Errno::AGAIN) };
            match answer {
                Err(Errno::AGAIN | Errno::INTR) => kept.push(key),
                answer => finished.push((key, answer)),
            }
        }
        self.sockets = kept;
    }

    /// Which sockets are ready, in order.
    fn poll(&self, limit: Option<&Timespec>, flights: &Slab<Flight>) -> Vec<bool> {
        let mut watched: Vec<_> = self.sockets.iter().map(|key| watch(&flights[*key])).collect();
        let event = self.notify.event();
        watched.push(PollFd::new(event, PollFlags::IN));
        match rustix::event::poll(&mut watched, limit) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => panic!("poll refuses to work: {errno:?}"),
        }
        let mut ready: Vec<_> = watched.iter().map(|item| !item.revents().is_empty()).collect();
        if ready.pop() == Some(true) {
            let _ = rustix::io::read(event, &mut [0_u8; 8]);
        }
        ready
    }
}

fn watch(flight: &Flight) -> PollFd<'_> {
    let Some(Operation::Socket(socket, action)) = &flight.operation else {
        unreachable!("only flights on sockets wait here");
    };
    let events = match action {
        SocketAction::Send(_) => PollFlags::OUT,
        SocketAction::Receive { .. } | SocketAction::AwaitInput => PollFlags::IN,
    };
    PollFd::from_borrowed_fd(socket.as_fd(), events)
}

fn try_flight(flight: &mut Flight) -> Answer {
    match &mut flight.operation {
        Some(Operation::Socket(socket, action)) => action.try_now(socket),
        _ => unreachable!("only flights on sockets wait here"),
    }
}

fn timespec(limit: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    }
}
