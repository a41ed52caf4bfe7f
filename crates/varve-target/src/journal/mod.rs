//! The journal: what a log-structured engine needs beside its records, its roots and what it does with them.
//!
//! An engine keeps its state in memory and in checkpoints, and what has changed since the last one in a log. It brings
//! its records, a function that applies one, and what a superblock says; which objects are whose, and why the two
//! layouts of a log stay with their engines, is in `docs/decisions/0084-one-journal.md`.
//!
//! ```text
//!   request ──► GroupCommit ── one leads ──► record ──► log ── apply ──► memory
//!                   │                                    │
//!                   └── a checkpoint is due ──► superblock of the pair ── the log begins anew
//!   start:  Newest of two superblocks ──► replay: read to the end, claim, apply
//! ```

mod group_commit;
mod latch;
mod space_watch;

pub(crate) use group_commit::{GroupCommit, Lead, Turn};
pub(crate) use latch::Latch;
pub(crate) use space_watch::SpaceWatch;
