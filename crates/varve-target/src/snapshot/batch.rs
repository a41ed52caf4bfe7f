//! Batches: what waits for the log at the same time goes into it together.
//!
//! There is no timer and no task of its own. Whoever wants something in the log joins the last batch of the queue.
//! The first member of the first batch that could go on seals it and leads: it waits until the other members have
//! read the old content that they are reading already, writes the record, and tells the others. Everything that
//! arrives meanwhile forms the next batch, whose reads overlap with this one's write.
//!
//! Invariants:
//! - G1. Batches are committed one after the other, in the order in which they were formed, members in the order
//!   in which they joined.
//! - G2. A batch is not joined any more once it is sealed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use varve_block::{Buffer, Extent, IoError};
use varve_format::store::Entry;

/// How many bytes of entries a batch is meant to have: about one block of the log.
const MEMBERS_MAX: usize = 90;

/// What a member wants.
pub(super) enum Work {
    /// The content of `extent` kept for `snapshot`, the newest one.
    Preserve {
        snapshot: u64,
        extent: Extent,
        /// The content, once it is read; none if that failed.
        data: Option<Buffer>,
    },
    /// An entry in the log.
    Entry(Entry),
    /// All data written to snapshots up to now made durable, and found by the log.
    LogWritten,
    /// A checkpoint.
    Checkpoint,
}

/// Members that go into the log together.
#[derive(Default)]
pub(super) struct Batch {
    works: RefCell<Vec<Work>>,
    outcomes: RefCell<Vec<Result<(), IoError>>>,
    bytes: Cell<u64>,
    members: Cell<usize>,
    reading: Cell<usize>,
    done: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Batch {
    fn wait(&self, context: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
    }

    fn wake(&self) {
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// The members' wishes, by the leader, once.
    pub(super) fn take_works(&self) -> Vec<Work> {
        assert_eq!(self.reading.get(), 0, "the leader waits for the readers");
        assert_eq!(self.works.borrow().len(), self.members.get(), "G2: every member is still there");
        self.works.take()
    }

    /// Says how each member fared.
    pub(super) fn finish(&self, outcomes: Vec<Result<(), IoError>>) {
        assert_eq!(outcomes.len(), self.members.get(), "every member has an outcome");
        assert!(!self.done.get(), "G1: a batch is committed once");
        self.outcomes.replace(outcomes);
        self.done.set(true);
        self.wake();
    }
}

/// A member's place in a batch.
pub(super) struct Ticket {
    batch: Rc<Batch>,
    index: usize,
}

impl Ticket {
    /// Hands in the content that the member has read, or the news that it could not.
    pub(super) fn deliver(&self, read: Option<Buffer>) {
        assert!(self.batch.reading.get() > 0, "each member reads once");
        if let Some(Work::Preserve { data, extent, .. }) = self.batch.works.borrow_mut().get_mut(self.index) {
            assert!(
                read.as_ref().is_none_or(|read| read.len() as u64 == extent.length),
                "all of it was read"
            );
            *data = read;
        }
        self.batch.reading.set(self.batch.reading.get() - 1);
        if self.batch.reading.get() == 0 {
            self.batch.wake();
        }
    }

    /// How it fared; asked once the batch is done.
    pub(super) fn outcome(&self) -> Result<(), IoError> {
        assert!(self.batch.done.get(), "asked too early");
        self.batch.outcomes.borrow()[self.index]
    }
}

/// The queue of batches.
#[derive(Clone)]
pub(super) struct Pipeline {
    inner: Rc<PipelineInner>,
}

struct PipelineInner {
    queue: RefCell<VecDeque<Rc<Batch>>>,
    busy: Cell<bool>,
    bytes_max: u64,
}

/// What a member does next.
pub(super) enum Turn {
    /// Its batch is done.
    Done,
    /// It leads its batch.
    Lead(Lead),
}

/// The right to commit a batch; whoever waits next gets it on drop.
pub(super) struct Lead {
    pub batch: Rc<Batch>,
    pipeline: Rc<PipelineInner>,
}

impl Pipeline {
    /// A pipeline whose batches hold up to `bytes_max` bytes of data.
    pub(super) fn new(bytes_max: u64) -> Self {
        let inner = PipelineInner { queue: RefCell::default(), busy: Cell::new(false), bytes_max };
        Self { inner: Rc::new(inner) }
    }

    /// Joins the last batch, or a new one if that is full. A member that wants something preserved must `deliver`.
    pub(super) fn join(&self, work: Work) -> Ticket {
        let bytes = match &work {
            Work::Preserve { extent, .. } => extent.length,
            _ => 0,
        };
        assert!(bytes <= self.inner.bytes_max, "a member fits into a batch");
        let mut queue = self.inner.queue.borrow_mut();
        let fits = |batch: &&Rc<Batch>| {
            batch.bytes.get() + bytes <= self.inner.bytes_max && batch.members.get() < MEMBERS_MAX
        };
        let last = queue.back().filter(fits).map(Rc::clone);
        let batch = last.unwrap_or_else(|| {
            queue.push_back(Rc::default());
            Rc::clone(queue.back().expect("just pushed"))
        });
        assert!(!batch.done.get(), "G2: a batch in the queue is not sealed");
        let index = batch.members.replace(batch.members.get() + 1);
        batch.bytes.set(batch.bytes.get() + bytes);
        if matches!(work, Work::Preserve { .. }) {
            batch.reading.set(batch.reading.get() + 1);
        }
        batch.works.borrow_mut().push(work);
        Ticket { batch, index }
    }

    /// Whether nothing is on its way into the log.
    pub(super) fn is_idle(&self) -> bool {
        !self.inner.busy.get() && self.inner.queue.borrow().is_empty()
    }

    /// Waits until the member's batch is done, or until it is to lead it.
    pub(super) async fn turn(&self, ticket: &Ticket) -> Turn {
        poll_fn(|context| {
            if ticket.batch.done.get() {
                return Poll::Ready(Turn::Done);
            }
            let first =
                self.inner.queue.borrow().front().is_some_and(|batch| Rc::ptr_eq(batch, &ticket.batch));
            if self.inner.busy.get() || !first {
                ticket.batch.wait(context);
                return Poll::Pending;
            }
            self.inner.busy.set(true);
            self.inner.queue.borrow_mut().pop_front();
            let (batch, pipeline) = (Rc::clone(&ticket.batch), Rc::clone(&self.inner));
            Poll::Ready(Turn::Lead(Lead { batch, pipeline }))
        })
        .await
    }
}

impl Lead {
    /// Waits until every member has read what it is reading.
    pub(super) async fn all_read(&self) {
        poll_fn(|context| {
            if self.batch.reading.get() == 0 {
                return Poll::Ready(());
            }
            self.batch.wait(context);
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        assert!(self.pipeline.busy.replace(false), "G1: one leader at a time");
        let next = self.pipeline.queue.borrow().front().map(Rc::clone);
        next.into_iter().for_each(|batch| batch.wake());
    }
}
