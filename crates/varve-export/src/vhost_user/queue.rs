//! A queue that is served: a thread takes requests, another one gives them back when the shard has answered. No thread waits for a
//! disk.
//!
//! Invariants:
//! - VQUEUE1. Each request that was taken is given back exactly once, or its queue is broken.
//! - VQUEUE2. A queue that was stopped takes nothing, and nothing of it is in flight.
//! - VQUEUE3. A queue that is broken takes nothing any more; its machine is notified, and the log has one line.

use super::in_flight::InFlightQueue;
use super::memory::Memory;
use super::request::{Action, Request, SERIAL, Status, gather, length, parse, scatter};
use super::ring::{Broken, Ring};
use crate::answers::Answers;
use crate::bell::{Bell, Spawn, wait};
use crate::counters::Kind;
use crate::in_flight::Permit;
use crate::requests::{Refusal, Requests};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use varve_block::{Buffer, Durability, Extent, Io, IoError, ZeroOptions};

/// What all queues of a session share.
pub(super) struct Machine {
    /// Where it is connected, for the log.
    pub(super) path: PathBuf,
    /// The way to the volume.
    pub(super) requests: Arc<Requests>,
    /// How the guest knows the disk again.
    pub(super) serial: [u8; SERIAL],
    /// Its memory now.
    pub(super) memory: RwLock<Arc<Memory>>,
    /// To the thread that gives it answers (VHOST4 of `vhost_user.rs`).
    pub(super) answers: Answers,
}

impl Machine {
    /// Its memory now.
    pub(super) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A queue.
pub(super) struct Queue {
    machine: Arc<Machine>,
    number: u16,
    ring: Ring,
    stop: Bell,
    state: Mutex<State>,
    /// Notified when nothing is in flight, and when the thread has ended.
    rested: Condvar,
}

struct State {
    /// Whether its thread has not ended.
    is_served: bool,
    /// Which heads are in flight (VRING1).
    heads: Vec<bool>,
    in_flight: usize,
    /// Requests taken and given back, as indexes of the rings.
    taken: u16,
    used: u16,
    marks: Option<InFlightQueue>,
    call: Option<Bell>,
    error: Option<Bell>,
    is_stopping: bool,
    is_broken: bool,
}

/// What tells of a queue.
pub(super) struct Bells {
    pub(super) kick: Bell,
    pub(super) call: Option<Bell>,
    pub(super) error: Option<Bell>,
}

impl Queue {
    /// Serves a queue on a thread, from `base` on; or, where it is marked what was in flight, from what the guest has seen on.
    pub(super) fn start(
        machine: &Arc<Machine>,
        number: u16,
        ring: Ring,
        bells: Bells,
        (base, mut marks): (u16, Option<InFlightQueue>),
        spawn: Spawn,
    ) -> io::Result<Arc<Self>> {
        let fault = |broken: Broken| io::Error::other(broken.to_string());
        let used = ring.used(&machine.memory()).map_err(fault)?;
        let again = marks.as_mut().map(|marks| marks.recover(used));
        let count = again.as_ref().map(|again| u16::try_from(again.len()).expect("heads are u16 (VRING1)"));
        let Bells { kick, call, error } = bells;
        let state = State {
            is_served: true,
            heads: vec![false; ring.size.into()],
            in_flight: 0,
            taken: count.map_or(base, |count| used.wrapping_add(count)),
            used,
            marks,
            call,
            error,
            is_stopping: false,
            is_broken: false,
        };
        let (stop, rested) = (Bell::new()?, Condvar::new());
        let queue = Arc::new(Self {
            machine: Arc::clone(machine),
            number,
            ring,
            stop,
            state: Mutex::new(state),
            rested,
        });
        let served = Served(Arc::clone(&queue));
        let work = move || served.0.serve(&kick, &again.unwrap_or_default());
        spawn("varve-vhost", Box::new(work))?;
        Ok(queue)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another descriptor tells the guest of answers.
    pub(super) fn set_call(&self, call: Option<Bell>) {
        if let Some(call) = &call {
            call.ring(); // An answer may have gone to the one before.
        }
        self.state().call = call;
    }

    /// Takes nothing from now on, and waits for what is in flight (VQUEUE2); where the next one goes on.
    pub(super) fn stop(&self) -> u16 {
        self.stop.ring();
        let mut state = self.state();
        state.is_stopping = true;
        while state.is_served || state.in_flight > 0 {
            state = self.rested.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken
    }

    fn serve(self: &Arc<Self>, kick: &Bell, again: &[u16]) {
        let begun = again.iter().try_for_each(|head| self.begin(*head, true));
        // An answer may have been given back without a word by a process that was killed.
        if let Some(call) = &self.state().call {
            call.ring();
        }
        if let Err(broken) = begun.and_then(|()| self.serve_until_stopped(kick)) {
            self.fail(broken);
        }
    }

    fn serve_until_stopped(self: &Arc<Self>, kick: &Bell) -> Result<(), Broken> {
        loop {
            self.take_all()?;
            let [_, stops] = wait([kick, &self.stop]);
            if stops {
                return Ok(());
            }
            if !kick.hush() {
                return Err(Broken::Kick);
            }
        }
    }

    /// Takes all that is available, and has the guest tell of more.
    fn take_all(self: &Arc<Self>) -> Result<(), Broken> {
        loop {
            self.ring.notify(&self.machine.memory(), 0, false)?;
            let taken = loop {
                let Some(taken) = self.next() else { return Ok(()) };
                match self.ring.available(&self.machine.memory(), taken)? {
                    Some(head) => self.begin(head, false)?,
                    None => break taken,
                }
            };
            let memory = self.machine.memory();
            // What was taken away reads as zeros: as no requests.
            if memory.is_lost() {
                return Err(Broken::MemoryLost);
            }
            if !self.ring.notify(&memory, taken, true)? {
                return Ok(());
            }
        }
    }

    /// Where the next request is; none if the queue is to stop.
    fn next(&self) -> Option<u16> {
        let state = self.state();
        (!state.is_stopping).then_some(state.taken)
    }

    /// Takes a request, and sends it on its way.
    fn begin(self: &Arc<Self>, head: u16, is_again: bool) -> Result<(), Broken> {
        let memory = self.machine.memory();
        let request = parse(&memory, self.ring.chain(&memory, head)?)?;
        if memory.is_lost() {
            return Err(Broken::MemoryLost);
        }
        let mut state = self.state();
        let is_in_flight = state.heads.get_mut(usize::from(head)).ok_or(Broken::Head(head))?;
        if std::mem::replace(is_in_flight, true) {
            return Err(Broken::Head(head)); // VRING1
        }
        state.in_flight += 1;
        if !is_again {
            state.taken = state.taken.wrapping_add(1);
            if let Some(marks) = &mut state.marks {
                marks.begin(head);
            }
        }
        drop(state);
        self.send(&memory, head, request);
        Ok(())
    }

    fn send(self: &Arc<Self>, memory: &Memory, head: u16, request: Request) {
        let Request { action, status_at } = request;
        let requests = &self.machine.requests;
        let answer = Answer { queue: Arc::clone(self), head, status_at };
        match action {
            Action::Read { extent, into } => {
                let permit = requests.permit(extent.length);
                let buffer = requests.arena().take(length_of(extent));
                let io = Io::Read { offset: extent.offset, buffer };
                requests.submit(Kind::Read, permit, io, |done, permit| {
                    answer.later(permit, move |answer| match done {
                        Ok(buffer) => answer.give_data(&into, &buffer),
                        Err(refusal) => answer.give(status(refusal), 0),
                    });
                });
            }
            Action::Write { extent, from } => {
                let permit = requests.permit(extent.length);
                let mut data = requests.arena().take(length_of(extent));
                if let Err(broken) = gather(memory, &from, &mut data) {
                    self.fail(broken);
                    return answer.give(Status::Failed, 0);
                }
                let (offset, data) = (extent.offset, data.freeze());
                let io = Io::Write { offset, data, durability: Durability::Volatile };
                requests.submit(Kind::Write, permit, io, |done, permit| answer.give_outcome(done, permit));
            }
            Action::Identify { into } => {
                let serial = &self.machine.serial;
                let room = usize::try_from(length(&into)).unwrap_or(usize::MAX).min(SERIAL);
                answer.give_data(&into, &serial[..room]);
            }
            Action::Flush => answer.ask(Kind::Flush, Io::Flush),
            Action::Discard(extent) => answer.ask(Kind::Discard, Io::Discard { extent }),
            Action::Zero { extent, unmap } => {
                let options = ZeroOptions { unmap, ..ZeroOptions::default() };
                answer.ask(Kind::Zero, Io::Zero { extent, options });
            }
            Action::Refused(status) => answer.give(status, 0),
        }
    }

    /// Gives a request back, and tells the guest if it wants to know (VQUEUE1).
    fn give(&self, head: u16, written: u32) {
        let memory = self.machine.memory();
        let mut state = self.state();
        let shown = self.show(&memory, &mut state, head, written);
        state.heads[usize::from(head)] = false;
        state.in_flight -= 1;
        if state.in_flight == 0 {
            self.rested.notify_all();
        }
        drop(state);
        if let Err(broken) = shown {
            self.fail(broken);
        }
    }

    fn show(&self, memory: &Memory, state: &mut State, head: u16, written: u32) -> Result<(), Broken> {
        let (before, used) = (state.used, state.used.wrapping_add(1));
        self.ring.put(memory, before, head, written)?;
        if let Some(marks) = &state.marks {
            marks.ending(head);
        }
        self.ring.publish(memory, used)?;
        state.used = used;
        if let Some(marks) = &state.marks {
            marks.ended(head, used);
        }
        if self.ring.wants_call(memory, before, used)?
            && let Some(call) = &state.call
        {
            call.ring();
        }
        Ok(())
    }

    /// The queue takes nothing any more (VQUEUE3).
    fn fail(&self, broken: Broken) {
        let mut state = self.state();
        if std::mem::replace(&mut state.is_broken, true) {
            return;
        }
        state.is_stopping = true;
        if let Some(error) = &state.error {
            error.ring();
        }
        drop(state);
        self.stop.ring();
        tracing::warn!(target: "varve::vhost", socket = %self.machine.path.display(), queue = self.number, %broken,
            "the queue is served no more until its machine sets it up anew");
    }
}

/// A request that is to be given back.
struct Answer {
    queue: Arc<Queue>,
    head: u16,
    status_at: u64,
}

impl Answer {
    /// A request without data.
    fn ask(self, kind: Kind, io: Io) {
        let requests = Arc::clone(&self.queue.machine.requests);
        let permit = requests.permit(0);
        requests.submit(kind, permit, io, |done, permit| self.give_outcome(done, permit));
    }

    /// Has the thread for answers give one; what it may have in flight is its own until then (VHOST4).
    fn later(self, permit: Permit, give: impl FnOnce(Self) + Send + 'static) {
        let answers = self.queue.machine.answers.clone();
        answers.give(permit, move || give(self)); // VQUEUE1
    }

    fn give_outcome(self, done: Result<Buffer, Refusal>, permit: Permit) {
        let status = done.map_or_else(status, |_| Status::Done);
        self.later(permit, move |answer| answer.give(status, 0));
    }

    /// With what the guest waits for.
    fn give_data(self, into: &[super::ring::Segment], data: &[u8]) {
        match scatter(&self.queue.machine.memory(), into, data) {
            Ok(()) => self.give(Status::Done, u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(broken) => {
                self.queue.fail(broken);
                self.give(Status::Failed, 0);
            }
        }
    }

    fn give(self, status: Status, data_bytes: u32) {
        if let Err(fault) = self.queue.machine.memory().write(self.status_at, &[status as u8]) {
            self.queue.fail(fault.into());
        }
        self.queue.give(self.head, data_bytes.saturating_add(1));
    }
}

/// The thread of a queue, which ends with this.
struct Served(Arc<Queue>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.state().is_served = false;
        self.0.rested.notify_all();
    }
}

fn length_of(extent: Extent) -> usize {
    usize::try_from(extent.length).expect("a request is at most REQUEST_BYTES_MAX (VREQ1)")
}

fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Failed(IoError::Unsupported) => Status::Unsupported,
        Refusal::Shut | Refusal::Rejected(_) | Refusal::Failed(_) => Status::Failed,
    }
}
