//! The queue of a device: one thread takes its requests and gives the answers to the kernel; another one copies what was read. No thread waits
//! for a disk.
//!
//! Invariants:
//! - UBLKQUEUE1. A request that was taken is answered once, under its tag, before the thread ends. One that was not is asked again by the
//!   kernel, of the next server.
//! - UBLKQUEUE2. A request has its memory until its data are copied; it waits for nothing of this thread then, which may wait for memory.

use super::request::{Request, error};
use super::uapi::{DEPTH, Data, Kernel, Queue};
use crate::answers::Answers;
use crate::bell::{Bell, Spawn};
use crate::in_flight::Permit;
use crate::requests::{Refusal, Requests};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use varve_block::Buffer;

/// What the threads of a device share.
pub(super) struct Served {
    /// The way to the volume.
    pub(super) requests: Arc<Requests>,
    /// Rings when there is an answer, or when no more is to be taken.
    pub(super) bell: Arc<Bell>,
    /// Answers that the kernel has not got: tag and result.
    answered: Mutex<Vec<(u16, i32)>>,
    is_stopping: AtomicBool,
    /// Starts a thread.
    pub(super) spawn: Spawn,
}

impl Served {
    /// A queue for these requests.
    pub(super) fn new(requests: Arc<Requests>, spawn: Spawn) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        let is_stopping = AtomicBool::new(false);
        Ok(Self { requests, bell, answered: Mutex::default(), is_stopping, spawn })
    }

    /// Has no more taken; the thread ends when what was taken is answered.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn answer(&self, tag: u16, result: i32) {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).push((tag, result));
        self.bell.ring();
    }

    fn answered(&self) -> Vec<(u16, i32)> {
        std::mem::take(&mut *self.answered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The thread's side.
struct Session {
    served: Arc<Served>,
    queue: Box<dyn Queue>,
    data: Arc<dyn Data>,
    answers: Answers,
    /// Requests that are taken and not answered.
    taken: usize,
    /// Tags under which the kernel asks no more.
    ended: usize,
}

/// Serves a queue until the kernel asks no more, or until it is to stop; says through `ready` whether it has begun.
pub(super) fn serve(
    served: &Arc<Served>,
    kernel: &dyn Kernel,
    device: u32,
    ready: &Sender<io::Result<()>>,
) -> io::Result<()> {
    let begun = begin(kernel, device, &served.bell)
        .and_then(|queue| Ok((queue, Answers::start(served.spawn, "varve-ublk")?)));
    let (queue, (answers, last_answer)) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let _ = ready.send(Err(error)); // Who asked waits for it, or has given up.
            return Ok(());
        }
    };
    let _ = ready.send(Ok(()));
    let data = queue.data();
    let mut session = Session { served: Arc::clone(served), queue, data, answers, taken: 0, ended: 0 };
    let ended = session.run();
    let Session { queue, answers, .. } = session;
    // The queue goes last: what is answered needs it.
    drop(answers);
    last_answer.wait();
    drop(queue);
    ended
}

/// Opens a queue and asks for its first requests.
fn begin(kernel: &dyn Kernel, device: u32, bell: &Arc<Bell>) -> io::Result<Box<dyn Queue>> {
    let mut queue = kernel.open(device, bell)?;
    for tag in 0..DEPTH {
        queue.fetch(tag)?;
    }
    // What the kernel refuses it refuses at once.
    match queue.turn(false)?.into_iter().find(|(_, result)| *result < 0) {
        Some((_, result)) => Err(io::Error::from_raw_os_error(-result)),
        None => Ok(queue),
    }
}

impl Session {
    fn run(&mut self) -> io::Result<()> {
        loop {
            for (tag, result) in self.served.answered() {
                self.queue.commit(tag, result)?;
                self.taken -= 1;
            }
            let is_last = self.taken == 0 && (self.served.is_stopping() || self.ended > 0);
            for (tag, result) in self.queue.turn(!is_last)? {
                match result {
                    0 if is_last || self.served.is_stopping() => {} // UBLKQUEUE1
                    0 => self.take(tag)?,
                    _ => self.ended += 1,
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Sends a request on its way.
    fn take(&mut self, tag: u16) -> io::Result<()> {
        self.taken += 1;
        let request = Request::decode(&self.queue.descriptor(tag)?);
        let requests = &self.served.requests;
        let bytes = request.data_bytes();
        let permit = requests.permit(bytes);
        let length = usize::try_from(bytes).expect("the parameters bound a request's data");
        let mut buffer = if length > 0 { requests.arena().take(length) } else { Buffer::empty() };
        if request.is_write() && self.data.take(tag, &mut buffer).is_err() {
            self.served.answer(tag, -libc::EIO);
            return Ok(());
        }
        let Some((kind, io)) = request.io(buffer) else {
            self.served.answer(tag, -libc::EOPNOTSUPP);
            return Ok(());
        };
        let (served, data, answers) =
            (Arc::clone(&self.served), Arc::clone(&self.data), self.answers.clone());
        let answer = Answer { served, data, tag, request };
        requests.submit(kind, permit, io, move |done, permit| answer.give(&answers, done, permit));
        Ok(())
    }
}

/// A request that is to be answered.
struct Answer {
    served: Arc<Served>,
    data: Arc<dyn Data>,
    tag: u16,
    request: Request,
}

impl Answer {
    /// What was read is copied by the thread for that (UBLKQUEUE2).
    fn give(self, answers: &Answers, done: Result<Buffer, Refusal>, permit: Permit) {
        match done {
            Ok(read) if self.request.is_read() => answers.give(permit, move || {
                let copied = self.data.give(self.tag, &read);
                let result = if copied.is_ok() { self.request.done() } else { -libc::EIO };
                self.served.answer(self.tag, result);
            }),
            done => {
                drop(permit);
                self.served.answer(self.tag, done.map_or_else(error, |_| self.request.done()));
            }
        }
    }
}
