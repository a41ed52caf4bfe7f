//! The right to start a task, handed to doors; below them nothing spawns.

use crate::clock::LocalFuture;
use std::rc::Rc;

/// Something that runs tasks on this thread.
pub trait Spawn {
    /// Runs `task` until it ends.
    fn spawn(&self, task: LocalFuture<'static, ()>);
}

/// A handle to the executor of this thread.
#[derive(Clone)]
pub struct Spawner(Rc<dyn Spawn>);

impl Spawner {
    /// Wraps an executor.
    pub fn new(executor: Rc<dyn Spawn>) -> Self {
        Self(executor)
    }
    /// Runs `task` until it ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(Box::pin(task));
    }
}
