//! The thread that gives the answers of a session: a shard hands them over, and waits for no client.

use crate::bell::Spawn;
use crate::in_flight::Permit;
use std::io;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};

/// Gives one answer.
type Give = Box<dyn FnOnce() + Send>;

/// The way to the thread, which ends with the last clone of this, once it has given all answers.
#[derive(Clone)]
pub(crate) struct Answers(Sender<Give>);

/// Notices the end of the thread.
pub(crate) struct LastAnswer(Receiver<()>);

impl Answers {
    /// Starts the thread.
    pub(crate) fn start(spawn: Spawn, name: &str) -> io::Result<(Self, LastAnswer)> {
        let ((answers, given), (running, has_ended)) = (channel::<Give>(), channel::<()>());
        let give_all = move || {
            given.into_iter().for_each(|give| give());
            drop(running);
        };
        spawn(name, Box::new(give_all))?;
        Ok((Self(answers), LastAnswer(has_ended)))
    }

    /// Has the thread give an answer, to a request that has its `permit` until then. If the thread has ended with a panic, this one does.
    pub(crate) fn give(&self, permit: Permit, give: impl FnOnce() + Send + 'static) {
        let give = move || {
            give();
            drop(permit);
        };
        if let Err(SendError(give)) = self.0.send(Box::new(give)) {
            give();
        }
    }
}

impl LastAnswer {
    /// Waits for it.
    pub(crate) fn wait(self) {
        let _ = self.0.recv(); // Nothing is sent.
    }
}
