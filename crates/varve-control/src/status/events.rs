//! The last things that happened, for `varve events`; each is logged too.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use varve_api::Event;

const KEPT_MAX: usize = 200;

/// The last events, the newest last.
#[derive(Default)]
pub(crate) struct Events {
    kept: RefCell<VecDeque<Event>>,
    /// Of the newest.
    number: Cell<u64>,
}

impl Events {
    /// Something happened.
    pub(crate) fn record(&self, time: u64, subject: &str, message: &str) {
        tracing::info!(subject, "{message}");
        self.keep(time, subject, message);
    }

    /// Something happened that needs attention.
    pub(crate) fn warn(&self, time: u64, subject: &str, message: &str) {
        tracing::warn!(subject, "{message}");
        self.keep(time, subject, message);
    }

    fn keep(&self, time: u64, subject: &str, message: &str) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        let number = self.number.get() + 1;
        self.number.set(number);
        kept.push_back(Event { number, time, subject: subject.to_owned(), message: message.to_owned() });
    }

    /// What is kept.
    pub(crate) fn list(&self) -> Vec<Event> {
        self.kept.borrow().iter().cloned().collect()
    }
}
