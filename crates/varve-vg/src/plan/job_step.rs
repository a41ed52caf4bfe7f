//! What a change says of jobs.

use crate::model::{Job, ScrubPosition};

/// What is written down of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// A job begins, under a number that no job of the group has had.
    Begin(Job),
    /// A rollback has begun.
    RolledBack {
        /// The job's number.
        id: u64,
    },
    /// A scrub is so far.
    Scrubbed {
        /// The job's number.
        id: u64,
        /// Where the rest begins, and what was found.
        position: ScrubPosition,
    },
    /// A job has another number from now on, which no job of the group has had.
    Renumber {
        /// The number that it has.
        from: u64,
        /// Its new number.
        to: u64,
    },
    /// Jobs have ended.
    End {
        /// Their numbers.
        ids: Vec<u64>,
    },
}
