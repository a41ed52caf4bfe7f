//! Requests under way on members: a member on which one takes too long is abandoned, and is as if it had failed.
//!
//! Time is counted in ticks while requests are under way, a quarter of the bound each: a host that stood still sees one tick go by,
//! not four. What was asked of an abandoned member is answered with an error at once. Its requests run to their end in the array's
//! background work; until then the member must not be used again, for they may change it.
//!
//! Invariants:
//! - SLOW1. A request that was submitted to a member runs to its end, whether its caller still waits or not.
//! - SLOW2. Nothing is submitted to a member that was abandoned.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use varve_block::{BlockDevice, Checked, Completion, Device, Io, IoError, Notify, Outcome, Shape, Tracker};

/// Ticks in the time after which a request is slow.
pub(super) const TICKS: u32 = 4;

/// What the requests on all members share.
#[derive(Default)]
pub(super) struct Watch {
    tick: Cell<u64>,
    /// Requests have begun since this was asked last.
    has_begun: Cell<bool>,
    /// Requests of abandoned members for which no caller waits any more.
    late: RefCell<Vec<Completion<'static>>>,
    is_over: Cell<bool>,
    /// Ticks are of another length from now on.
    is_retimed: Cell<bool>,
    changed: Notify,
    /// No caller waits for one of the members any more.
    rests: Notify,
}

impl Watch {
    /// Time goes on.
    pub(super) fn tick(&self) {
        self.tick.set(self.tick.get() + 1);
    }

    /// Whether requests have begun since this was asked last.
    pub(super) fn take_begun(&self) -> bool {
        self.has_begun.replace(false)
    }

    /// Requests for which no caller waits any more, to be awaited by the caller (SLOW1).
    pub(super) fn take_late(&self) -> Vec<Completion<'static>> {
        self.late.take()
    }

    /// Ticks are of another length from now on.
    pub(super) fn retime(&self) {
        self.is_retimed.set(true);
        self.wake();
    }

    /// Whether ticks are of another length since this was asked last.
    pub(super) fn take_retimed(&self) -> bool {
        self.is_retimed.replace(false)
    }

    /// Waits until there are late requests or ticks of another length, until requests have begun if `for_begun`, or until the end if `for_end`.
    pub(super) async fn changed(&self, for_begun: bool, for_end: bool) {
        let is_late = || !self.late.borrow().is_empty();
        let is_changed = || {
            is_late()
                || self.is_retimed.get()
                || (for_begun && self.has_begun.get())
                || (for_end && self.is_over.get())
        };
        self.changed.until(is_changed).await;
    }

    /// Waits until `is_idle`, which is asked when no caller waits for a member any more.
    pub(super) async fn rest(&self, is_idle: impl FnMut() -> bool) {
        self.rests.until(is_idle).await;
    }

    /// Nothing is asked of members any more.
    pub(super) fn end(&self) {
        self.is_over.set(true);
        self.wake();
    }

    /// Whether nothing is asked of members any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    fn wake(&self) {
        self.changed.notify_all();
    }

    fn begun(&self) {
        if !self.has_begun.replace(true) {
            self.wake();
        }
    }
}

/// The requests under way on one member.
pub(super) struct Requests {
    watch: Rc<Watch>,
    is_abandoned: Cell<bool>,
    /// Late ones included.
    reads: Tracker,
    changes: Tracker,
    waiting: RefCell<Vec<Option<Waiting>>>,
    free: RefCell<Vec<usize>>,
}

/// A request for which its caller waits.
struct Waiting {
    begun: u64,
    waker: Waker,
}

impl Requests {
    pub(super) fn new(watch: &Rc<Watch>) -> Rc<Self> {
        Rc::new(Self {
            watch: Rc::clone(watch),
            is_abandoned: Cell::new(false),
            reads: Tracker::default(),
            changes: Tracker::default(),
            waiting: RefCell::default(),
            free: RefCell::default(),
        })
    }

    /// `device`, whose requests are these.
    pub(super) fn on(self: &Rc<Self>, device: Device) -> Device {
        assert!(!self.is_abandoned(), "SLOW2: the member has left");
        Device::new(OnMember { device, requests: Rc::clone(self) })
    }

    /// Whether one of them takes too long.
    pub(super) fn is_slow(&self) -> bool {
        let slow = |waiting: &Waiting| self.watch.tick.get() - waiting.begun > u64::from(TICKS);
        self.waiting.borrow().iter().flatten().any(slow)
    }

    /// Whether a caller waits for one of them.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.borrow().len() > self.free.borrow().len()
    }

    /// Whether the member was abandoned.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }

    /// All that are under way, and all that come, are answered with [`IoError::Gone`] (SLOW2).
    pub(super) fn abandon(&self) {
        self.is_abandoned.set(true);
        self.waiting.borrow().iter().flatten().for_each(|waiting| waiting.waker.wake_by_ref());
    }

    /// Whether any is under way that may change the member, late ones included.
    pub(super) fn are_changing(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether none is under way, late ones included.
    pub(super) fn have_ended(&self) -> bool {
        self.reads.is_empty() && self.changes.is_empty()
    }

    /// Waits until none is under way.
    pub(super) async fn ended(&self) {
        self.reads.empty().await;
        self.changes.empty().await;
    }

    /// The request in `place`, or a new one, waits.
    fn wait(&self, place: Option<usize>, waker: &Waker) -> usize {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(place) = place {
            let entry = waiting[place].as_mut().expect("SLOW1: it waits in its place until it has ended");
            entry.waker.clone_from(waker);
            return place;
        }
        let entry = Some(Waiting { begun: self.watch.tick.get(), waker: waker.clone() });
        self.watch.begun();
        match self.free.borrow_mut().pop() {
            Some(place) => {
                assert!(waiting[place].is_none(), "SLOW1: a place is used once");
                waiting[place] = entry;
                place
            }
            None => {
                waiting.push(entry);
                waiting.len() - 1
            }
        }
    }

    fn leave(&self, place: usize) {
        let left = self.waiting.borrow_mut()[place].take();
        assert!(left.is_some(), "SLOW1: a request leaves its place once");
        self.free.borrow_mut().push(place);
        if !self.is_waited_for() {
            self.watch.rests.notify_all();
        }
    }
}

/// A member's device.
struct OnMember {
    device: Device,
    requests: Rc<Requests>,
}

impl BlockDevice for OnMember {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if self.requests.is_abandoned() {
            return Completion::failed(IoError::Gone); // SLOW2
        }
        let io = io.into_io();
        let tracker = match &io {
            Io::Read { .. } => &self.requests.reads,
            _ => &self.requests.changes,
        };
        match self.device.forward(io, || tracker.enter()) {
            ready @ Completion::Ready(_) => ready,
            under_way => {
                let requests = Rc::clone(&self.requests);
                Completion::pending(Request { under_way: Some(under_way), requests, place: None })
            }
        }
    }
}

/// A request to a member, as its caller waits for it.
struct Request {
    under_way: Option<Completion<'static>>,
    requests: Rc<Requests>,
    place: Option<usize>,
}

impl Future for Request {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let request = self.under_way.as_mut().expect("a completion is polled to its end once");
        if let Poll::Ready(outcome) = Pin::new(request).poll(context) {
            self.under_way = None;
            return Poll::Ready(outcome);
        }
        if self.requests.is_abandoned() {
            let late = self.under_way.take();
            self.requests.watch.late.borrow_mut().extend(late); // SLOW1
            self.requests.watch.wake();
            return Poll::Ready(Err(IoError::Gone));
        }
        self.place = Some(self.requests.wait(self.place, context.waker()));
        Poll::Pending
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.requests.leave(place);
        }
    }
}
