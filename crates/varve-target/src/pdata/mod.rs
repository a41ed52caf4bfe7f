//! The persistent ordered map: a copy-on-write B+tree of 4 KiB nodes, its space map and its bounded cache.
//!
//! Why the concurrency is as it is. Everything that reads or changes a map is a *synchronous attempt* over the blocks
//! that are in memory ([`Pages`]). An attempt that needs a block that is not there ends with [`Stop::Missing`]
//! before it has changed anything; [`Map::run`] loads the block and tries again. So a change is atomic without a
//! lock, no state changes across an await, and many requests can wait for different blocks at the same time. The
//! price is that an attempt may walk the same path twice; a path is four nodes.
//!
//! A *transaction* ends with a commit: everything that changed is written to blocks that the last commit does not
//! use, and then the owner's superblock, which names the roots. The next transaction begins the moment a commit
//! starts: nodes of the commit are frozen, and changing one makes a copy, so foreground work never waits for it.
//!
//! Invariants:
//! - PDATA1. A node of an older transaction is never changed in place.
//! - PDATA2. A block that a transaction frees is reused only after the commit of that transaction is durable.
//! - PDATA3. An attempt that stops has changed nothing.
//! - PDATA4. A dirty node stays in memory until it is written.
//! - PDATA5. A freed block is reused only when every reader that found it while a map still led to it has ended (`space.rs`,
//!   SPACE3).
//! - PDATA6. Nodes are written by one at a time: a commit or a write-back. The owner sees to that.
//! - PDATA7. A block is read by one task at a time, and only while it is not in memory. So it is not changed and written
//!   meanwhile, and what is read is what the map leads to.
//! - PDATA8. A node is believed only if it is of the transaction that is named by what leads to it (DESCENT3 of `down.rs`). No two
//!   nodes that lay in one block are of one transaction: PDATA2, and [`skipped_generations`] after a crash.

mod cache;
mod cursor;
mod down;
mod edit;
mod map;
mod merge;
mod options;
mod pages;
mod policy;
mod sharing;
mod space;
mod splice;
mod tree;

pub use cache::CacheUse;
pub use cursor::Cursor;
pub(crate) use down::Down;
pub use edit::Gone;
pub(crate) use map::of_device;
pub use map::{Commit, Map, MapError, Pace, WRITE_BACK_MAX};
pub use options::{MapOptions, skipped_generations};
pub(crate) use pages::OF_ANOTHER_TIME;
pub use pages::{AllocClass, Needed, Pages, ReadView, Stop};
pub use sharing::{Alone, Sharing};
pub use space::{FREED_RUNS_MAX, InUse, Side};
pub use splice::Splice;
pub use tree::{Leaf, Span, Tree};
pub use varve_format::text::{CachePolicy, MetadataOrder};

#[cfg(test)]
pub(crate) mod tests;
