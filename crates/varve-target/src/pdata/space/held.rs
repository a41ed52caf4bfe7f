//! Blocks that a commit has set free and that somebody may still be reading (F3), and who is to hear when they are free.

use super::Run;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Those who began to read between two commits.
pub(super) struct Users {
    /// How many commits there were before.
    number: u64,
    held: Rc<Held>,
}

impl Users {
    /// Those of before the first commit.
    pub(super) fn first(held: &Rc<Held>) -> Rc<Users> {
        Rc::new(Users { number: 0, held: Rc::clone(held) })
    }

    /// Those who come after the next commit.
    pub(super) fn next(&self) -> Rc<Users> {
        Rc::new(Users { number: self.number + 1, held: Rc::clone(&self.held) })
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        self.held.users_ended(self.number);
    }
}

/// Blocks that wait for some users, and for those of before.
pub(super) struct Waiting {
    number: u64,
    users: Weak<Users>,
    blocks: u64,
    pub(super) runs: Vec<Run>,
}

impl Waiting {
    pub(super) fn new(users: &Rc<Users>, runs: Vec<Run>) -> Self {
        assert!(runs.iter().all(|run| run.1 > 0), "F3: a run has blocks");
        let blocks = runs.iter().map(|run| run.1).sum();
        Waiting { number: users.number, users: Rc::downgrade(users), blocks, runs }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn has_ended(&self) -> bool {
        self.users.strong_count() == 0
    }
}

/// How many blocks wait, for whom first, and who listens.
#[derive(Default)]
pub(super) struct Held {
    blocks: Cell<u64>,
    /// When these have ended, some blocks are free.
    first: Cell<Option<u64>>,
    listener: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Held {
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.get()
    }

    pub(super) fn listen(&self, listener: Rc<dyn Fn()>) {
        self.listener.replace(Some(listener));
    }

    /// These are all that wait, in their order.
    pub(super) fn note(&self, waiting: &[Waiting]) {
        assert!(waiting.is_sorted_by_key(|waiting| waiting.number), "F3: they end in their order");
        self.blocks.set(waiting.iter().map(|waiting| waiting.blocks).sum());
        self.first.set(waiting.first().map(|first| first.number));
    }

    fn users_ended(&self, number: u64) {
        let sets_free = self.first.get() == Some(number) && self.blocks.get() > 0;
        let listener = self.listener.borrow().clone().filter(|_| sets_free);
        listener.into_iter().for_each(|listener| listener());
    }
}
