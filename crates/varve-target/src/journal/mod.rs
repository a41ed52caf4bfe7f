//! The journal: what a log-structured engine needs beside its records, its roots and what it does with them.
//!
//! An engine keeps its state in memory and in checkpoints, and what has changed since the last one in a log. It brings
//! its records, a function that applies one, and what a superblock says. What is shared and what stays with the engines,
//! and why, is in `docs/decisions/0084-one-journal.md`; `tests.rs` has a small engine on all of it.
//!
//! ```text
//!   request ──► GroupCommit ── one leads ──► record ──► log (a Ring, or the engine's own) ── apply ──► memory
//!                   │                                                  ▲
//!                   └── a checkpoint is due ──► publish a superblock, twice ──┘ the log begins anew
//!   start:  Newest of two superblocks ──► replay: read to the end, claim, apply
//! ```

mod group_commit;
mod latch;
mod replay;
mod ring;
mod ring_reader;
mod space_watch;
mod superblock;
#[cfg(test)]
mod tests;

pub(crate) use group_commit::{GroupCommit, Lead, Turn};
pub(crate) use latch::Latch;
pub(crate) use replay::{End, Log, Next, read_as_far, replay};
pub(crate) use ring::{LogStart, Ring};
pub(crate) use ring_reader::{Placed, RingReader, RingRecord};
pub(crate) use space_watch::SpaceWatch;
pub(crate) use superblock::{Newest, SlotBytes, Superblock, complete_pair, publish};
