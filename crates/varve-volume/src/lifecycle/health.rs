//! Whether a volume or pool of this shard may still be touched: a panic in one takes it out of use and nothing else.
//!
//! A panic may leave any object of the volume half changed: its caches, maps, locks and queues. So after one nothing of it
//! is polled again: requests and background tasks are woken, their futures are dropped, and each ends with an error.
//!
//! Invariants:
//! - VOLHEALTH1. No future of a volume is polled after a panic in that volume.
//! - VOLHEALTH2. A future that waits for a volume in which something panics is woken, and gets an error.
//! - VOLHEALTH3. A volume fails once; its control hears of it once.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use varve_block::LocalFuture;

/// What a future of a volume ends with if something in the volume panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// The state of one volume or pool; cloning shares it.
#[derive(Clone)]
pub struct Health(Rc<Inner>);

struct Inner {
    is_failed: Cell<bool>,
    reason: RefCell<String>,
    waiting: RefCell<Slots>,
    report: RefCell<Option<Report>>,
}

type Report = Box<dyn FnOnce(String)>;

/// Wakers of the futures under way, each in a slot of its own that is used again.
#[derive(Default)]
struct Slots {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Health {
    /// A sound one; `report` is called with the reason when it fails (VOLHEALTH3).
    pub fn new(report: impl FnOnce(String) + 'static) -> Self {
        Self(Rc::new(Inner {
            is_failed: Cell::new(false),
            reason: RefCell::default(),
            waiting: RefCell::default(),
            report: RefCell::new(Some(Box::new(report))),
        }))
    }

    /// Whether something in the volume has panicked.
    pub fn is_failed(&self) -> bool {
        self.0.is_failed.get()
    }

    /// What the panic said; empty if there was none.
    pub fn reason(&self) -> String {
        self.0.reason.borrow().clone()
    }

    /// Whether both are of one volume.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Something in the volume panicked with `payload`.
    pub(crate) fn fail(&self, payload: &(dyn Any + Send)) {
        if self.0.is_failed.replace(true) {
            return; // VOLHEALTH3
        }
        let reason = format!("a panic: {}", words(payload));
        tracing::error!(reason, "something in a volume panicked: it is taken out of use");
        self.0.reason.replace(reason.clone());
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut()).wakers;
        waiting.into_iter().flatten().for_each(Waker::wake); // VOLHEALTH2
        let report = self.0.report.take();
        if let Some(report) = report {
            report(reason);
        }
    }

    /// Does `work` of the volume at once.
    pub(crate) fn guard<T>(&self, work: impl FnOnce() -> T) -> Result<T, Panicked> {
        if self.is_failed() {
            return Err(Panicked); // VOLHEALTH1
        }
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
            self.fail(&*payload);
            Panicked
        })
    }

    /// `future`, which is of the volume.
    pub(crate) fn contain<'a, T>(&self, future: LocalFuture<'a, T>) -> Contained<'a, T> {
        Contained { seat: Seat::of(self), future: Some(future) }
    }
}

/// The text of a panic.
pub fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

/// Drops what may be half changed. Its destructors may panic too.
pub(crate) fn drop_quietly<T>(broken: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(broken))) {
        tracing::error!(reason = words(&*payload), "what a panic left behind could not be dropped in order");
    }
}

/// A place among the wakers that are called when the volume fails.
pub(crate) struct Seat {
    health: Health,
    slot: Option<usize>,
}

impl Seat {
    pub(crate) fn of(health: &Health) -> Self {
        Self { health: health.clone(), slot: None }
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// The task is woken, and gets an error, if the volume panics (VOLHEALTH2).
    pub(crate) fn wait(&mut self, context: &Context<'_>) {
        let mut slots = self.health.0.waiting.borrow_mut();
        let slot = match self.slot {
            Some(slot) => slot,
            None => slots.free.pop().unwrap_or_else(|| {
                slots.wakers.push(None);
                slots.wakers.len() - 1
            }),
        };
        self.slot = Some(slot);
        match &mut slots.wakers[slot] {
            Some(waker) if waker.will_wake(context.waker()) => {}
            place => *place = Some(context.waker().clone()),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        if self.health.is_failed() {
            return; // All slots are gone.
        }
        let mut slots = self.health.0.waiting.borrow_mut();
        let waker = slots.wakers[slot].take();
        slots.free.push(slot);
        drop(slots);
        drop(waker);
    }
}

/// A future of a volume; it ends with [`Panicked`] when anything in the volume panics.
pub(crate) struct Contained<'a, T> {
    seat: Seat,
    future: Option<LocalFuture<'a, T>>,
}

impl<T> Contained<'_, T> {
    fn abandon(&mut self) -> Poll<Result<T, Panicked>> {
        drop_quietly(self.future.take());
        Poll::Ready(Err(Panicked))
    }
}

impl<T> Future for Contained<'_, T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(future) = this.future.as_mut().filter(|_| !this.seat.health.is_failed()) else {
            return this.abandon(); // VOLHEALTH1
        };
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Ready(outcome)) => Poll::Ready(Ok(outcome)),
            Ok(Poll::Pending) if this.seat.health.is_failed() => this.abandon(),
            Ok(Poll::Pending) => {
                this.seat.wait(context);
                Poll::Pending
            }
            Err(payload) => {
                this.seat.health.fail(&*payload);
                this.abandon()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn health() -> (Health, Rc<Cell<u32>>) {
        let reports = Rc::new(Cell::new(0));
        let count = Rc::clone(&reports);
        (Health::new(move |_| count.set(count.get() + 1)), reports)
    }

    #[test]
    fn after_a_panic_nothing_is_polled_and_every_waiter_is_woken_with_an_error() {
        let (health, reports) = health();
        let polls = Cell::new(0);
        let waiting = std::future::poll_fn(|_| {
            polls.set(polls.get() + 1);
            Poll::<()>::Pending
        });
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut waiting = health.contain(Box::pin(waiting));
        assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
        let bug = async || panic!("a bug");
        let broken: Option<Result<(), Panicked>> = health.contain(Box::pin(bug())).now_or_never();
        assert_eq!(broken, Some(Err(Panicked)));
        assert_eq!(
            (wakes.0.load(Ordering::Relaxed), health.reason().as_str()),
            (1, "a panic: a bug"),
            "VOLHEALTH2"
        );
        assert_eq!(Pin::new(&mut waiting).poll(&mut context), Poll::Ready(Err(Panicked)));
        assert_eq!(health.guard(|| polls.set(100)), Err(Panicked));
        assert_eq!((polls.get(), reports.get()), (1, 1), "VOLHEALTH1, VOLHEALTH3");
    }

    #[test]
    fn slots_of_futures_that_ended_are_used_again() {
        let (health, _) = health();
        for _ in 0..10 {
            let mut one = Box::pin(health.contain::<()>(Box::pin(pending())));
            let mut two = Box::pin(health.contain::<()>(Box::pin(pending())));
            assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        }
        assert_eq!(health.0.waiting.borrow().wakers.len(), 2);
    }

    #[test]
    fn what_panics_when_it_is_dropped_too_is_dropped_all_the_same() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("when it is dropped");
            }
        }
        let (health, reports) = health();
        let bomb = Bomb;
        let mut armed = health.contain(Box::pin(async move {
            let _bomb = bomb;
            pending::<()>().await;
        }));
        assert!((&mut armed).now_or_never().is_none());
        assert_eq!(health.guard(|| panic!("first")), Err::<(), _>(Panicked));
        assert_eq!(armed.now_or_never(), Some(Err(Panicked)));
        assert_eq!(reports.get(), 1, "VOLHEALTH3");
    }
}
