//! A request that a simulated disk has accepted and not answered.

use super::answer::Reply;
use super::fault::Fault;
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_block::{Buffer, Durability, Extent, Outcome};

/// A request under way.
pub(crate) struct Flight {
    pub(crate) verb: &'static str,
    pub(crate) extent: Extent,
    pub(super) job: Job,
    pub(super) fault: Fault,
    /// The sector to which a misdirected write goes, if it does not matter to chance.
    pub(super) astray: Option<u64>,
    pub(super) reply: Reply,
    /// Sectors that were applied before the end.
    pub(super) applied: BTreeSet<u64>,
}

/// What a request does.
pub(crate) enum Job {
    Read(Buffer),
    /// A write of the bytes, or of zeros.
    Change {
        bytes: Option<Rc<[u8]>>,
        durability: Durability,
    },
    Discard,
    /// Covers the versions before `mark`, except those of requests that were still under way.
    Flush {
        mark: u64,
        unacknowledged: BTreeSet<u64>,
    },
}

/// A request that has ended.
pub(crate) struct Done {
    pub(crate) verb: &'static str,
    pub(crate) extent: Extent,
    /// Whether it is a disk event at which a crash may come.
    pub(crate) counts: bool,
    pub(crate) outcome: Outcome,
    pub(crate) reply: Reply,
}

impl Flight {
    pub(super) fn is_change(&self) -> bool {
        matches!(self.job, Job::Change { .. } | Job::Discard)
    }
}
