//! Dependent snapshots of one origin that share one exception store.
//!
//! The first write to a part of the origin after a snapshot was taken copies the old content into the store once,
//! however many snapshots there are: for the newest. Snapshot S reads what was written to it, else the first
//! preserved content at or after S in the order of creation, else the origin.
//!
//! ```text
//!        origin front            snapshot views
//!   write │      │ read          │ read / write
//!         ▼      │               ▼
//!   missing? ──► batch ─► log ─► maps ─► store / zeros / origin
//!         │      │  (append, durable)          │
//!         ▼      ▼                             ▼
//!        the origin's device             the store's device
//! ```
//!
//! Invariants, cited by number where they are kept:
//! - SNAPSHOT1. A part of the origin that the newest snapshot does not own yet is changed only after its old content, and
//!   the entry that finds it, are durable in the store.
//! - SNAPSHOT2. The map says that a part is preserved for the newest snapshot only when no snapshot read of that part of
//!   the origin is under way. Hence a change to parts that are all preserved needs no lock at all: a read that resolves
//!   a snapshot from now on finds the store, and no read that found the origin before is still under way.
//! - SNAPSHOT3. Records of the log are written one after the other, each durable (forced unit access) before the next is
//!   begun. Hence a record that was acknowledged can never lie behind one that was torn, only the last record can be
//!   torn, and only its data has to be verified after a crash.
//! - SNAPSHOT4. Data written to a snapshot goes to fresh space and enters the log only after a flush; before that flush the
//!   write is volatile and a crash shows the older content, whole. Overwrites of a snapshot's own parts go in place:
//!   no checksum in the log covers them, for it was durable when it was logged.
//! - SNAPSHOT5. Space that is freed is used again only after the next checkpoint, and only when no request of before is
//!   still under way (`pdata/space.rs`, SPACE1 and SPACE3).
//! - SNAPSHOT6. A snapshot that exists after a crash has exactly the content of its instant: the origin was flushed while
//!   its gate was closed, before the snapshot's entry was logged.
//! - SNAPSHOT7. Lock order: a view's lock, then `copies` (to preserve), then `falls` (to read the origin for a
//!   snapshot), then `writing` (to write nodes). No task waits for an earlier one while holding a later one.
//! - SNAPSHOT8. The maps change in memory only after the record that says so is durable; nodes are written whenever that
//!   suits, to places to which nothing durable leads before the next checkpoint. What a crash takes back of the maps
//!   the log brings again.
//! - SNAPSHOT9. Blocks for the nodes that a record will change are reserved before it is written, so that what is
//!   durable can always be entered; blocks for the next checkpoint's table are never taken by anything else.
//! - SNAPSHOT10. A record leads only to places inside of the store as its superblock describes it: after a growth a checkpoint comes
//!   before the next record. So the superblock tells, alone, how much of its device the store needs.

mod batch;
mod capacity;
mod checkpoint;
mod contents;
mod diff;
mod error;
mod independent;
mod injected_bug;
mod log;
mod manage;
mod map;
mod options;
mod origin;
mod places;
mod recover;
mod removal;
mod repair;
mod rollback;
mod view;

pub use crate::pdata::MetadataOrder;
pub use capacity::space::{FullPolicy, StoreEvent};
pub use error::StoreError;
pub use independent::side_by_side;
pub use injected_bug::InjectedBug;
pub use manage::{Claimed, Frozen, NewSnapshot, Pending, Usage};
pub use map::SnapshotBytes;
pub use options::StoreOptions;
pub use recover::FormatOptions;
pub use removal::Removal;
pub use repair::check::{StoreReport, check_store, check_store_in_windows};
pub use repair::salvage::{Salvage, salvage_store};
pub use repair::text::{STORE_TEXT_TITLE, dump_store, restore_store};
pub use rollback::{Progress, RollbackStatus};
pub use varve_format::store::{Descriptor, StoreFormatError, Uuid};

use crate::journal::Latch;
use crate::pdata::{self, CachePolicy, of_device};
use batch::Pipeline;
use capacity::gate::Budget;
use contents::Contents;
use map::Map;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{Arena, Clock, Device, Extent, Gate, IoError, RangeLock, align_down};
use varve_format::store::{Mapping, PART_SIZE, STORE_SIZE_MAX};

/// An exception store, open, between its origin and its snapshots.
pub struct SnapshotStore {
    id: Uuid,
    arena: Arena,
    clock: Clock,
    options: StoreOptions,
    /// When the nodes of the maps are written.
    metadata: Cell<MetadataOrder>,
    /// The origin itself, below its front.
    origin: RefCell<Device>,
    store: RefCell<Device>,
    /// The blocks of the store, and which of them are free.
    blocks: Rc<pdata::Map>,
    /// Which bytes of which snapshot lie where.
    map: Map,
    /// The snapshots that exist.
    contents: RefCell<Contents>,
    state: RefCell<State>,
    pipeline: Pipeline,
    /// Changes of the origin.
    changes: Gate,
    copying: Budget,
    /// Held exclusively, on parts, by changes of the origin while they preserve (SNAPSHOT7: taken before `falls`).
    copies: RangeLock,
    /// Held shared by snapshot reads of the origin, and exclusively while parts are entered into the map (SNAPSHOT2).
    falls: RangeLock,
    /// Held to write nodes of the maps (PDATA6).
    writing: RangeLock,
    views: RefCell<BTreeMap<u64, Rc<ViewState>>>,
    /// Held to create, remove or roll back.
    managing: RangeLock,
    /// The origin was flushed when the store was made: the next snapshot needs no flush before its gate closes.
    is_origin_flushed: Cell<bool>,
    /// Held to carry out a batch of a rollback.
    restoring: RangeLock,
    /// After a failed write to the log nothing that needs the log is done any more.
    failed: Latch,
    /// It is not known what the log says of a rollback; the origin is not served (ROLLBACK6).
    half_rolled_back: Cell<bool>,
    waiters: capacity::space::Waiters,
    /// Whether other stores preserve for their own snapshots what this one's origin loses.
    has_siblings: Cell<bool>,
}

/// Where what the store knows is, besides the maps.
struct State {
    log: LogPosition,
    /// Bytes of the store by its superblock (SNAPSHOT10).
    described: u64,
    /// Blocks of the table of snapshots.
    table: Vec<Extent>,
    /// What was written to snapshots and is in the map, but not in the log (SNAPSHOT4).
    unlogged: Vec<Mapping>,
    /// Removed snapshots have given everything back, and no checkpoint says so.
    has_unsettled: bool,
}

impl State {
    /// As a checkpoint and the log behind it say.
    fn of(log: LogPosition, table: Vec<Extent>, described: u64) -> Self {
        Self { log, described, table, unlogged: Vec::new(), has_unsettled: false }
    }
}

/// Where the log goes on.
struct LogPosition {
    generation: u64,
    /// That of the superblocks and of all records.
    epoch: u32,
    sequence: u64,
    /// Where the next record's block will lie; taken already.
    next: u64,
    /// Blocks of the records since the last checkpoint.
    blocks: Vec<Extent>,
}

/// What all handles of one snapshot share.
#[derive(Default)]
struct ViewState {
    gate: Gate,
    lock: RangeLock,
    gone: Cell<bool>,
}

impl SnapshotStore {
    /// Why nothing is changed any more, if a write to the log has failed.
    pub fn last_failure(&self) -> Option<IoError> {
        self.failed.failure()
    }

    fn has_bug(&self, fault: InjectedBug) -> bool {
        self.options.injected_bug == Some(fault)
    }

    /// What is known of snapshots and of the log fits together.
    fn assert_consistent(&self) {
        let contents = self.contents.borrow();
        contents.assert_consistent();
        let views = self.views.borrow();
        assert!(contents.snapshots.len() <= views.len(), "SNAPREMOVE1: each snapshot can be read");
        assert!(
            self.state.borrow().log.next.is_multiple_of(PART_SIZE),
            "SNAPSHOT3: records begin with a block"
        );
    }

    fn origin_device(&self) -> Device {
        self.origin.borrow().clone()
    }

    fn store_device(&self) -> Device {
        self.store.borrow().clone()
    }

    /// Bytes of a chunk.
    pub fn chunk_size(&self) -> u64 {
        self.map.chunk_size()
    }

    /// How the cache of the maps' nodes does.
    pub fn cache_use(&self) -> pdata::CacheUse {
        self.blocks.pages().cache_use()
    }

    /// From now on keeps so many bytes of its maps in memory, and evicts nodes by another policy. What is too much goes
    /// before this completes; a node that is not written yet is written first.
    pub async fn set_cache(&self, cache_bytes: u64, policy: CachePolicy) {
        self.blocks.pages().set_cache(cache_bytes, policy);
        self.relieve_wholly().await;
    }

    /// From the next batch on the nodes of the maps are written as `order` says.
    pub fn set_metadata_order(&self, order: MetadataOrder) {
        self.metadata.set(order);
    }

    /// The store's id.
    pub fn id(&self) -> Uuid {
        self.id
    }
}

/// The bytes that a store uses of a device of `size` bytes: whole blocks, and not more than its space map can hold.
fn usable_size(size: u64) -> u64 {
    align_down(size, PART_SIZE).min(STORE_SIZE_MAX)
}

/// The length of something in memory.
fn index(length: u64) -> usize {
    usize::try_from(length).expect("what is in memory is shorter than the address space")
}

#[cfg(test)]
mod tests;
