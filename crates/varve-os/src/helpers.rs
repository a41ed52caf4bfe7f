//! Threads that wait in place of a shard: for what the ring cannot do, and for everything where there is no ring.

use crate::executor::{Letter, Mailbox};
use crate::operation::{Answer, DiskOperation};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// An operation that was carried out.
pub(crate) struct Finished {
    pub(crate) key: usize,
    pub(crate) operation: DiskOperation,
    pub(crate) answer: Answer,
}

/// Work for a helper.
pub(crate) enum Job {
    /// Carry out `operation` and send it to `home`.
    Disk { key: usize, operation: DiskOperation, home: Arc<Mailbox> },
    /// Anything else; sends its own answer.
    Call(Box<dyn FnOnce() + Send>),
}

/// The helpers of all shards; threads start as they are needed, up to a limit.
pub(crate) struct Helpers {
    state: Mutex<State>,
    bell: Condvar,
    threads_max: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Helpers {
    pub(crate) fn new(threads_max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), bell: Condvar::new(), threads_max: threads_max.max(1) })
    }

    /// Hands over a job.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.threads.len() < self.threads_max {
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
        drop(state);
        self.bell.notify_one();
    }

    /// Finishes all jobs and ends the threads.
    pub(crate) fn stop(&self) {
        let threads = {
            let mut state = self.state();
            state.stopped = true;
            std::mem::take(&mut state.threads)
        };
        self.bell.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            match job {
                Job::Call(call) => call(),
                Job::Disk { key, mut operation, home } => {
                    let answer = operation.execute();
                    // A shard waits for all its operations before it closes its inbox.
                    let _ = home.send(Letter::Finished(Finished { key, operation, answer }));
                }
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.stopped {
                return None;
            }
            state.idle += 1;
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
