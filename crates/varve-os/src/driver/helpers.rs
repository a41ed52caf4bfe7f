//! Threads that wait in place of a shard: for what the ring cannot do, and for everything where there is no ring.
//!
//! A job may wait as long as its disk does not answer, or for ever. So each disk, and each path that calls are made for,
//! has a queue and a share of the threads.
//!
//! Invariants:
//! - HELPER1. A queue has at most its share of the threads; while [`State::running`] jobs are crowded, only the least: so
//!   there is always a thread for another queue, as long as there are fewer than about a hundred that do not answer.
//! - HELPER2. A queue is in [`State::ready`] once if one of its jobs may run, else not.

use crate::disks::disk_file::DiskFile;
use crate::disks::operation::{Answer, DiskOperation};
use crate::mailbox::Mailbox;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Shares that are had in full before each queue gets only the least.
const SHARES_FULL: usize = 8;
/// Threads of a queue then.
const LEAST: usize = 2;
/// Most threads, in shares.
const SHARES_MAX: usize = 32;
/// Shares of the queue of calls that name no disk.
const SHARES_CALLS: usize = 4;

/// An operation that was carried out.
pub(crate) struct Finished {
    pub(crate) key: usize,
    pub(crate) operation: DiskOperation,
    pub(crate) answer: Answer,
}

/// Work for a helper.
pub(crate) enum Job {
    /// Carry out `operation` and send it to `home`.
    Disk { key: usize, operation: DiskOperation, home: Arc<Mailbox<Finished>> },
    /// Anything else; sends its own answer.
    Call(Box<dyn FnOnce() + Send>),
}

/// What a job may wait for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    /// An open disk, by its address: a job that is there keeps it.
    Disk(usize),
    /// A file or folder that may lie on a file system that does not answer.
    Path(PathBuf),
    /// Anything else.
    Elsewhere,
}

impl Place {
    pub(crate) fn of(disk: &Arc<DiskFile>) -> Self {
        Place::Disk(Arc::as_ptr(disk).addr())
    }
}

/// The helpers of all shards; threads start as they are needed, up to a limit.
pub(crate) struct Helpers {
    state: Mutex<State>,
    notify: Condvar,
    share: usize,
}

#[derive(Default)]
struct State {
    queues: HashMap<Place, Queue>,
    /// Queues of which a job may run, in turn (HELPER2).
    ready: VecDeque<Place>,
    running: usize,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

/// The jobs of one place.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: usize,
    is_ready: bool,
}

impl Helpers {
    /// Helpers of which one disk takes at most `share`.
    pub(crate) fn new(share: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), notify: Condvar::new(), share: share.max(1) })
    }

    /// Hands over a job that may have to wait for `place`.
    pub(crate) fn submit(self: &Arc<Self>, place: Place, job: Job) {
        let mut state = self.state();
        state.queues.entry(place.clone()).or_default().jobs.push_back(job);
        self.make_ready(&mut state, place);
    }

    /// Finishes all jobs and ends the threads.
    pub(crate) fn stop(&self) {
        let threads = {
            let mut state = self.state();
            state.stopped = true;
            std::mem::take(&mut state.threads)
        };
        self.notify.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Puts the queue of `place` in line if it may run a job (HELPER1, HELPER2), and sees to a thread for it.
    fn make_ready(self: &Arc<Self>, state: &mut State, place: Place) {
        let full = match place {
            Place::Elsewhere => self.share * SHARES_CALLS,
            Place::Disk(_) | Place::Path(_) => self.share,
        };
        let share = if state.running < self.share * SHARES_FULL { full } else { full.min(LEAST) };
        let Some(queue) = state.queues.get_mut(&place) else { return };
        if queue.jobs.is_empty() && queue.running == 0 {
            state.queues.remove(&place);
            return;
        }
        if queue.is_ready || queue.jobs.is_empty() || queue.running >= share {
            return;
        }
        queue.is_ready = true;
        state.ready.push_back(place);
        if state.ready.len() > state.idle && state.threads.len() < self.share * SHARES_MAX {
            let helpers = Arc::clone(self);
            let name = format!("varve-helper-{}", state.threads.len());
            match std::thread::Builder::new().name(name).spawn(move || helpers.work()) {
                Ok(thread) => state.threads.push(thread),
                Err(error) => {
                    tracing::error!(%error, "no further helper thread");
                    assert!(!state.threads.is_empty(), "at least one helper thread can be started");
                }
            }
        }
        self.notify.notify_one();
    }

    fn work(self: &Arc<Self>) {
        while let Some((place, job)) = self.next() {
            match job {
                Job::Call(call) => call(),
                Job::Disk { key, mut operation, home } => {
                    let answer = operation.execute();
                    // A shard waits for all its operations before it closes its mailbox.
                    let _ = home.send(Finished { key, operation, answer });
                }
            }
            let mut state = self.state();
            state.running -= 1;
            if let Some(queue) = state.queues.get_mut(&place) {
                queue.running -= 1;
            }
            self.make_ready(&mut state, place);
        }
    }

    fn next(self: &Arc<Self>) -> Option<(Place, Job)> {
        let mut state = self.state();
        loop {
            if let Some(place) = state.ready.pop_front() {
                let queue = state.queues.get_mut(&place).expect("HELPER2: it has a job");
                let job = queue.jobs.pop_front().expect("HELPER2: it has a job");
                queue.is_ready = false;
                queue.running += 1;
                state.running += 1;
                self.make_ready(&mut state, place.clone());
                if state.stopped {
                    self.notify.notify_all(); // It may have been the last job for which others stayed.
                }
                return Some((place, job));
            }
            if state.stopped && state.queues.values().all(|queue| queue.jobs.is_empty()) {
                return None;
            }
            state.idle += 1;
            state = self.notify.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    /// A job that waits until the answer's sender is dropped.
    fn stalled(helpers: &Arc<Helpers>, place: &Place, gate: &Arc<Mutex<()>>) {
        let gate = Arc::clone(gate);
        let job = move || drop(gate.lock().unwrap_or_else(PoisonError::into_inner));
        helpers.submit(place.clone(), Job::Call(Box::new(job)));
    }

    fn quick(helpers: &Arc<Helpers>, place: Place) -> Receiver<()> {
        let (sender, receiver) = channel();
        let job = move || sender.send(()).expect("it is waited for");
        helpers.submit(place, Job::Call(Box::new(job)));
        receiver
    }

    #[test]
    fn places_that_do_not_answer_leave_threads_to_others() {
        const SHARE: usize = 4;
        let helpers = Helpers::new(SHARE);
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock().expect("not poisoned");
        // More than there are shares, each with far more jobs than its share.
        for disk in 0..SHARES_MAX + SHARES_FULL {
            (0..5 * SHARE).for_each(|_| stalled(&helpers, &Place::Disk(disk), &gate));
        }
        (0..5 * SHARE).for_each(|_| stalled(&helpers, &Place::Path("/stalled".into()), &gate));
        for place in [Place::Disk(1000), Place::Path("/good".into()), Place::Elsewhere] {
            let answers: Vec<_> = (0..20).map(|_| quick(&helpers, place.clone())).collect();
            for answer in answers {
                answer.recv_timeout(Duration::from_secs(60)).expect("HELPER1: another queue has a thread");
            }
        }
        assert!(helpers.state().threads.len() <= SHARE * SHARES_MAX);
        drop(held);
        helpers.stop();
        let state = helpers.state();
        assert!(
            state.queues.is_empty() && state.ready.is_empty() && state.running == 0,
            "HELPER2: all is done"
        );
    }
}
