//! Commands of ublk over io_uring: those about devices, one ring each, and those of a queue, over the ring of its thread.
//!
//! Invariants:
//! - UBLKRING1. The memory of a command about a device stays where it is until the kernel has ended the command; where that cannot be
//!   known, for ever.
//! - UBLKRING2. Commands of a queue point at no memory.
#![allow(unsafe_code)]

use super::uapi::{self, COMMIT_AND_FETCH, Command, DEPTH, FETCH};
use crate::bell::{Bell, pause};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Entries of a queue's ring: more than there are tags.
const ENTRIES: u32 = (DEPTH as u32) * 2;
/// Marks that the bell rings.
const BELL: u64 = u64::MAX;

/// Carries a command out; its buffer, with the kernel's answer.
pub(super) fn carry_out(control: &File, command: Command) -> io::Result<Vec<u8>> {
    let mut ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(2)?;
    let (operation, mut command) = (command.operation.number(), command);
    let address = command.buffer.as_mut_ptr().expose_provenance() as u64;
    let mut bytes = [0; 80];
    bytes[..32].copy_from_slice(&uapi::encode(&command, address));
    let entry = opcode::UringCmd80::new(Fd(control.as_raw_fd()), operation).cmd(bytes).build();
    // SAFETY: UBLKRING1: the buffer is touched by nothing, and given back below only after the completion, or never.
    if unsafe { ring.submission().push(&entry) }.is_err() {
        return Err(Errno::BUSY.into());
    }
    loop {
        let entered = ring.submit_and_wait(1);
        if let Some(completion) = ring.completion().next() {
            return answer(completion.result()).map(|()| command.buffer);
        }
        if let Err(error) = entered
            && error.kind() != io::ErrorKind::Interrupted
        {
            std::mem::forget(command); // UBLKRING1
            return Err(error);
        }
    }
}

fn answer(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// The ring of a queue.
pub(super) struct QueueRing {
    ring: IoUring,
    file: Arc<File>,
    bell: Arc<Bell>,
}

impl QueueRing {
    /// One of this thread, for the character device `file`.
    pub(super) fn new(file: Arc<File>, bell: Arc<Bell>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES)?;
        let mut ring = Self { ring, file, bell };
        ring.listen()?;
        Ok(ring)
    }

    /// Asks for the first request under `tag`.
    pub(super) fn fetch(&mut self, tag: u16) -> io::Result<()> {
        self.command(FETCH, tag, 0)
    }

    /// Answers the request under `tag` and asks for the next one.
    pub(super) fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.command(COMMIT_AND_FETCH, tag, result)
    }

    fn command(&mut self, operation: u32, tag: u16, result: i32) -> io::Result<()> {
        let command = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), operation);
        self.push(&command.cmd(uapi::encode_io(tag, result)).build().user_data(tag.into()))
    }

    fn listen(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(Fd(self.bell.as_fd().as_raw_fd()), libc::POLLIN as u32).multi(true);
        self.push(&poll.build().user_data(BELL))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: UBLKRING2: the entry points at no memory, and its descriptor stays open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        if pushed.is_ok() {
            return Ok(());
        }
        self.ring.submit()?;
        // SAFETY: as above.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::BUSY.into())
    }

    /// Hands over what was asked; waits, if it is to, until something has come; what has.
    pub(super) fn turn(&mut self, waits: bool) -> io::Result<Vec<(u16, i32)>> {
        let entered = if waits { self.ring.submit_and_wait(1) } else { self.ring.submit() };
        match entered.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) | Err((Some(Errno::INTR | Errno::AGAIN | Errno::BUSY), _)) => {}
            // What is queued stays so, and is handed over when there is memory.
            Err((Some(Errno::NOMEM), _)) => pause(&self.bell),
            Err((_, error)) => return Err(error),
        }
        let (mut come, mut is_deaf) = (Vec::new(), false);
        for completion in self.ring.completion() {
            match u16::try_from(completion.user_data()) {
                Ok(tag) => come.push((tag, completion.result())),
                Err(_) => {
                    self.bell.hush();
                    is_deaf |= !cqueue::more(completion.flags());
                }
            }
        }
        if is_deaf {
            self.listen()?;
        }
        Ok(come)
    }
}

#[cfg(test)]
mod tests {
    use super::super::uapi::Operation;
    use super::*;

    /// What a file without commands says to one, or a host that lets no ring be made. The null device takes any on newer kernels.
    const REFUSALS: [i32; 3] = [libc::EOPNOTSUPP, libc::EPERM, libc::ENOSYS];

    fn null() -> File {
        File::open("/dev/null").expect("every host has it")
    }

    #[test]
    fn the_memory_of_a_command_comes_back_with_its_answer() {
        match carry_out(&null(), Command::over(Operation::GetInfo, 3, vec![7; 64])) {
            Ok(buffer) => assert_eq!(buffer, [7; 64], "UBLKRING1"),
            Err(error) => assert!(REFUSALS.contains(&error.raw_os_error().unwrap_or(0)), "{error}"),
        }
    }

    #[test]
    fn a_wait_for_requests_ends_when_it_rings() {
        let bell = Arc::new(Bell::new().expect("a descriptor"));
        let mut ring = match QueueRing::new(Arc::new(null()), Arc::clone(&bell)) {
            Ok(ring) => ring,
            Err(error) => {
                return assert!(REFUSALS.contains(&error.raw_os_error().unwrap_or(0)), "{error}");
            }
        };
        ring.fetch(3).expect("there is room");
        let come = ring.turn(true).expect("it waits");
        assert!(matches!(come[..], [(3, 0)]) || come == [(3, -libc::EOPNOTSUPP)], "{come:?}");
        for _ in 0..3 {
            bell.ring();
            assert_eq!(ring.turn(true).expect("it waits"), [], "its ringing is no request");
        }
    }
}
