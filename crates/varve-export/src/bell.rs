//! Threads of doors: how they are started, and the event descriptors that wake one that waits for several things.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Starts a thread of a name, or says why it cannot.
pub type Spawn = fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// A moment.
const PAUSE_NS: i64 = 100_000_000;

/// Wakes whoever waits for it, until it is hushed.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// One that does not ring.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// That of a machine, which may be anything. It must not keep a thread: it is asked not to wait.
    pub(crate) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = fcntl_getfl(&descriptor)?;
        fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Self(descriptor))
    }

    /// Rings.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes()); // Full: it rings already.
    }

    /// Ends its ringing; whether it is a bell at all.
    pub(crate) fn hush(&self) -> bool {
        let mut count = [0; 8];
        matches!(rustix::io::read(&self.0, &mut count), Ok(8) | Err(Errno::AGAIN | Errno::INTR))
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of them can be read or has ended; which can.
pub(crate) fn wait<const N: usize>(descriptors: [&dyn AsFd; N]) -> [bool; N] {
    wait_for(descriptors.map(|descriptor| (descriptor, PollFlags::IN)))
}

/// Waits a moment, or until it rings.
pub(crate) fn pause(bell: &Bell) {
    let limit = Timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
    let _ = poll(&mut [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)], Some(&limit));
}

/// Waits until one of them is ready as said, or has ended; which is.
pub(crate) fn wait_for<const N: usize>(descriptors: [(&dyn AsFd, PollFlags); N]) -> [bool; N] {
    let mut polled =
        descriptors.map(|(descriptor, flags)| PollFd::from_borrowed_fd(descriptor.as_fd(), flags));
    while let Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) = poll(&mut polled, None) {}
    polled.map(|descriptor| !descriptor.revents().is_empty())
}
