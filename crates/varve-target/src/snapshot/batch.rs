//! Batches: what waits for the log at the same time goes into it together.
//!
//! A task that wants something in the log joins the last batch of the queue. Each batch is a commit of the journal
//! (`journal/group_commit.rs`). Its leader seals it, waits until the other members have read the old content that they are
//! reading already, writes the record, and notifies the others. Everything that arrives meanwhile forms the next batch,
//! whose reads overlap with this one's write.
//!
//! Invariants:
//! - BATCH1. Batches are committed one after the other, in the order in which they were formed, members in the order
//!   in which they joined.
//! - BATCH2. A batch is not joined any more once it is sealed.

use crate::journal::{GroupCommit, Lead, Turn};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
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
    /// The leader, while it waits for members that read.
    leader: Cell<Option<Waker>>,
}

/// A member's place in a batch.
pub(super) struct Ticket {
    number: u64,
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
            self.batch.leader.take().into_iter().for_each(Waker::wake);
        }
    }

    /// How it fared; asked once the batch is done.
    pub(super) fn outcome(&self) -> Result<(), IoError> {
        let outcomes = self.batch.outcomes.borrow();
        assert_eq!(outcomes.len(), self.batch.members.get(), "asked too early");
        outcomes[self.index]
    }
}

/// The queue of batches, each with the number of its commit.
pub(super) struct Pipeline {
    group: GroupCommit,
    queue: RefCell<VecDeque<(u64, Rc<Batch>)>>,
    bytes_max: u64,
}

/// A batch that is sealed, and the right to commit it.
pub(super) struct Sealed<'a> {
    batch: Rc<Batch>,
    group: &'a GroupCommit,
    _lead: Lead<'a>,
}

impl Pipeline {
    /// A pipeline whose batches hold up to `bytes_max` bytes of data.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { group: GroupCommit::default(), queue: RefCell::default(), bytes_max }
    }

    /// Joins the last batch, or a new one if that is full. A member that wants something preserved must `deliver`.
    pub(super) fn join(&self, work: Work) -> Ticket {
        let bytes = match &work {
            Work::Preserve { extent, .. } => extent.length,
            _ => 0,
        };
        assert!(bytes <= self.bytes_max, "a member fits into a batch");
        let mut queue = self.queue.borrow_mut();
        let next = queue.back().map_or(self.group.next(), |(number, _)| number + 1);
        let fits = |(_, batch): &&(u64, Rc<Batch>)| {
            batch.bytes.get() + bytes <= self.bytes_max && batch.members.get() < MEMBERS_MAX
        };
        let last = queue.back().filter(fits).cloned();
        let (number, batch) = last.unwrap_or_else(|| {
            queue.push_back((next, Rc::default()));
            queue.back().cloned().expect("just pushed")
        });
        assert!(number >= self.group.next(), "BATCH2: a batch in the queue is not sealed");
        let index = batch.members.replace(batch.members.get() + 1);
        batch.bytes.set(batch.bytes.get() + bytes);
        if matches!(work, Work::Preserve { .. }) {
            batch.reading.set(batch.reading.get() + 1);
        }
        batch.works.borrow_mut().push(work);
        Ticket { number, batch, index }
    }

    /// Whether nothing is on its way into the log.
    pub(super) fn is_idle(&self) -> bool {
        self.group.at_rest().is_some() && self.queue.borrow().is_empty()
    }

    /// Waits until the member's batch is committed, or until the member is to commit it: then seals it.
    pub(super) async fn turn(&self, ticket: &Ticket) -> Option<Sealed<'_>> {
        let Turn::Lead(lead) = self.group.turn(ticket.number).await else { return None };
        let first = self.queue.borrow_mut().pop_front();
        let (number, batch) = first.expect("BATCH1: a member's batch is in the queue until it is led");
        assert_eq!((number, self.group.begin()), (ticket.number, ticket.number), "BATCH1: in order");
        Some(Sealed { batch, group: &self.group, _lead: lead })
    }
}

impl Sealed<'_> {
    /// The members' wishes, once every member has read what it is reading.
    pub(super) async fn works(&self) -> Vec<Work> {
        poll_fn(|context| {
            if self.batch.reading.get() == 0 {
                return Poll::Ready(());
            }
            self.batch.leader.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        assert_eq!(
            self.batch.works.borrow().len(),
            self.batch.members.get(),
            "BATCH2: every member is still there"
        );
        self.batch.works.take()
    }

    /// Says how each member fared.
    pub(super) fn finish(&self, outcomes: Vec<Result<(), IoError>>) {
        assert_eq!(outcomes.len(), self.batch.members.get(), "every member has an outcome");
        self.batch.outcomes.replace(outcomes);
        self.group.end();
    }
}
