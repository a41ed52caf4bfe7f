//! Walks everything that a pool holds and compares: the holders of each block, which blocks are in use, what volumes say.
//!
//! What cannot be read or believed does not end the walk: it is reported as the volumes that it affects, and which of
//! their bytes. Memory: some 50 bytes for each node (a hundredth of what the nodes themselves take), and counts for so many
//! blocks at once, up to 128 MiB and in a serving pool up to 16 MiB, beside the budget of the maps; a pool that needs more
//! is passed over more often.
//!
//! Invariants, besides THIN9 of the module and those of runs:
//! - POOLCHECK1. A node is no younger than the one above it, and what it maps is no younger than it.
//! - POOLCHECK2. What is younger than the last clone of a volume is held by that volume alone: its count is not looked at.
//! - POOLCHECK3. A block is a node of one map, or data, or a page of the space map, and never two of these.

mod attribution;
mod checker;
mod counts;
mod online;
mod report;
mod run;
mod space;
mod walk;

pub use online::CheckPace;
pub use report::{PoolDamage, PoolReport};
