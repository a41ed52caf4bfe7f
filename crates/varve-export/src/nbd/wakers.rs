//! Tasks that wait for one event, each at most once and no longer than it lives.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

/// The tasks that wait. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct Wakers {
    places: Rc<RefCell<Places>>,
}

#[derive(Default)]
struct Places {
    slots: Vec<Option<Waker>>,
    /// Slots that no ticket has.
    free: Vec<usize>,
}

impl Wakers {
    /// A place among the waiting tasks; empty until [`Ticket::register`].
    pub(super) fn ticket(&self) -> Ticket {
        Ticket { wakers: self.clone(), slot: None }
    }

    /// Wakes all waiting tasks.
    pub(super) fn wake(&self) {
        // Taken out first: a waker may run code that comes back here.
        let woken: Vec<_> = self.places.borrow_mut().slots.iter_mut().filter_map(Option::take).collect();
        woken.into_iter().for_each(Waker::wake);
    }
}

/// One task's place; freed on drop.
pub(super) struct Ticket {
    wakers: Wakers,
    slot: Option<usize>,
}

impl Ticket {
    /// Has `waker` woken by the next [`Wakers::wake`].
    pub(super) fn register(&mut self, waker: &Waker) {
        let mut places = self.wakers.places.borrow_mut();
        let slot = *self.slot.get_or_insert_with(|| {
            places.free.pop().unwrap_or_else(|| {
                places.slots.push(None);
                places.slots.len() - 1
            })
        });
        match &mut places.slots[slot] {
            Some(present) if present.will_wake(waker) => {}
            place => *place = Some(waker.clone()),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut places = self.wakers.places.borrow_mut();
            places.slots[slot] = None;
            places.free.push(slot);
        }
    }
}
