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
//! - S1. A part of the origin that the newest snapshot does not own yet is changed only after its old content, and
//!   the entry that finds it, are durable in the store.
//! - S2. The map says that a part is preserved for the newest snapshot only when no snapshot read of that part of
//!   the origin is under way. Hence a change to parts that are all preserved needs no lock at all: whoever resolves
//!   a snapshot from now on finds the store, and nobody who found the origin before is still reading.
//! - S3. Records of the log are written one after the other, each durable (forced unit access) before the next is
//!   begun. Hence a record that was acknowledged can never lie behind one that was torn, only the last record can be
//!   torn, and only its data has to be verified after a crash.
//! - S4. Data written to a snapshot goes to fresh space and enters the log only after a flush; before that flush the
//!   write is volatile and a crash shows the older content, whole. Overwrites of a snapshot's own parts go in place:
//!   no checksum in the log covers them, for it was durable when it was logged.
//! - S5. Space that is freed is used again only after the next checkpoint, and only when no request of before is
//!   still under way (`pdata/space.rs`, F1 and F3).
//! - S6. A snapshot that exists after a crash has exactly the content of its instant: the origin was flushed while
//!   its gate was closed, before the snapshot's entry was logged.
//! - S7. Lock order: a view's lock, then `copies` (who preserves), then `falls` (who reads the origin for a
//!   snapshot), then `writing` (who writes nodes). Nobody waits for an earlier one while holding a later one.
//! - S8. The maps change in memory only after the record that says so is durable; nodes are written whenever that
//!   suits, to places to which nothing durable leads before the next checkpoint. What a crash takes back of the maps
//!   the log brings again.
//! - S9. Blocks for the nodes that a record will change are promised before it is written, so that what is durable
//!   can always be entered; blocks for the next checkpoint's table are never taken by anything else.

mod batch;
mod check;
mod checkpoint;
mod contents;
mod contradiction;
mod diff;
mod full;
mod gate;
mod independent;
mod log;
mod manage;
mod map;
mod origin;
mod recover;
mod removal;
mod rollback;
mod room;
mod salvage;
mod text;
mod view;

pub use crate::pdata::MetadataOrder;
pub use check::{StoreReport, check_store, check_store_in_windows};
pub use full::{FullPolicy, StoreEvent};
pub use independent::side_by_side;
pub use manage::{Claimed, Frozen, NewSnapshot, Pending, Usage};
pub use map::SnapshotBytes;
pub use recover::FormatOptions;
pub use removal::Removal;
pub use rollback::{Progress, RollbackStatus};
pub use salvage::{Salvage, salvage_store};
pub use text::{STORE_TEXT_TITLE, dump_store, restore_store};
pub use varve_format::store::{Descriptor, StoreFormatError, Uuid};

use crate::journal::Latch;
use crate::pdata::{self, PolicyKind, of_device};
use batch::Pipeline;
use contents::Contents;
use gate::Budget;
use map::Map;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use varve_block::{Arena, Clock, Device, Extent, Gate, IoError, KIB, MIB, RangeLock, align_down};
use varve_format::store::{Mapping, PART_SIZE, STORE_SIZE_MAX};

/// How a store works; the defaults are meant for everybody.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Whether the store is flushed before it is read (R1 of `recover.rs`): not needed for one that was made just now.
    pub flush_first: bool,
    /// The most data of one record of the log, in bytes.
    pub batch_bytes: u64,
    /// The most old content that is held in memory at once, in bytes; at least `batch_bytes`.
    pub copy_bytes: u64,
    /// After so many records of the log a checkpoint is written.
    pub log_records: u64,
    /// When the nodes of the maps are written, until [`SnapshotStore::set_metadata_order`] says something else.
    pub metadata: MetadataOrder,
    /// Bytes of nodes and of pages of the space map that are kept in memory, until [`SnapshotStore::set_cache`] says
    /// something else.
    pub cache_bytes: u64,
    /// Which nodes are given up first.
    pub policy: PolicyKind,
    /// When so many ranges are restored ahead of a rollback's doses, changes restore more than they need, so that
    /// ranges join and the memory for them stays bounded.
    pub restored_ranges: usize,
    /// When a removal has given up more runs of blocks than these since the last checkpoint, another one comes: until then
    /// each takes a little memory.
    pub freed_runs: usize,
    /// When so much of the store is taken, in percent, [`SnapshotStore::low_space`] completes.
    pub low_space_percent: u64,
    /// What becomes of a change of the origin that finds no room for its copy. A store by itself says no; whoever
    /// opens it for a volume hands in what the volume declares.
    pub full: FullPolicy,
    /// A fault for the tests that prove that the oracle finds it.
    #[doc(hidden)]
    pub sabotage: Option<Sabotage>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            flush_first: true,
            batch_bytes: 4 * MIB - 4 * KIB,
            copy_bytes: 16 * MIB,
            log_records: 2048,
            metadata: MetadataOrder::Logged,
            cache_bytes: 64 * MIB,
            policy: PolicyKind::default(),
            restored_ranges: 16 << 10,
            freed_runs: pdata::FREED_RUNS_MAX,
            low_space_percent: 80,
            full: FullPolicy::Error,
            sabotage: None,
        }
    }
}

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Records are not durable when the origin is changed (breaks S1 and S3).
    SkipFlush,
    /// The origin is changed before the record is written (breaks S1).
    EntryAfterWrite,
    /// At a removal the older snapshot does not get what it needs.
    SkipHandOver,
    /// What was written to a newer snapshot is taken for preserved content.
    WrittenAsPreserved,
    /// Freed space is used again at once (breaks S5).
    ReuseAtOnce,
    /// What was written to snapshots is forgotten when they are compared.
    DiffWithoutWritten,
    /// The log does not say what a rollback has restored, or changes have replaced (breaks K3).
    SkipRestoredMark,
    /// The log says so before it is true (breaks K3).
    MarkBeforeReplacing,
    /// A rollback preserves nothing for newer snapshots (breaks K4).
    RestoreUnpreserved,
    /// A rollback drops all that was preserved of what it has restored (breaks K8).
    DropNeeded,
    /// A table names snapshots of which the log does not say yet that they exist (breaks C3).
    NameAnnounced,
    /// Freed space is used again although somebody may be reading it (breaks the second half of S5).
    ReuseWhileRead,
    /// Nodes of any transaction are believed (breaks D3 of `pdata`).
    TrustGenerations,
}

/// Why something about a store or its snapshots cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A device failed.
    Io(IoError),
    /// There is no space left in the store.
    NoSpace,
    /// There is no snapshot with this id.
    NotFound,
    /// There is a snapshot with this name already.
    Exists,
    /// The snapshot is held.
    Held,
    /// A rollback is under way, or that snapshot is what the origin is being rolled back to.
    Busy,
    /// The log could not be written during a rollback, and nobody knows what it says of that; the origin is not
    /// served until the store is opened again.
    HalfRolledBack,
    /// The name is none.
    Name,
    /// The store's device is too small; the number is the bytes that it must have.
    TooSmall(u64),
    /// Origin, store and options do not fit together, as said.
    Misfit(&'static str),
    /// There is no store on this device, or none that can be read.
    Format(StoreFormatError),
    /// The store contradicts itself, as said.
    Corrupt(&'static str),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io(error) => write!(f, "input or output failed: {error}"),
            StoreError::NoSpace => f.write_str("no space is left in the exception store"),
            StoreError::NotFound => f.write_str("there is no such snapshot"),
            StoreError::Exists => f.write_str("there is a snapshot with this name already"),
            StoreError::Held => f.write_str("the snapshot is held"),
            StoreError::Busy => f.write_str("the origin is being rolled back"),
            StoreError::HalfRolledBack => f.write_str(
                "the log failed during a rollback; the origin is not served until it is read again",
            ),
            StoreError::Name => f.write_str("this cannot be a snapshot's name"),
            StoreError::TooSmall(bytes) => write!(f, "an exception store needs at least {bytes} bytes"),
            StoreError::Misfit(why) | StoreError::Corrupt(why) => f.write_str(why),
            StoreError::Format(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<IoError> for StoreError {
    fn from(error: IoError) -> Self {
        if error == IoError::NoSpace { StoreError::NoSpace } else { StoreError::Io(error) }
    }
}

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
    /// Held exclusively, on parts, by changes of the origin while they preserve (S7: taken before `falls`).
    copies: RangeLock,
    /// Held shared by snapshot reads of the origin, and exclusively while parts are entered into the map (S2).
    falls: RangeLock,
    /// Held by whoever writes nodes of the maps (T6).
    writing: RangeLock,
    views: RefCell<BTreeMap<u64, Rc<ViewState>>>,
    /// Held by whoever creates, removes or rolls back.
    managing: RangeLock,
    /// Held by whoever carries out a dose of a rollback.
    restoring: RangeLock,
    /// After a failed write to the log nothing that needs the log is done any more.
    failed: Latch,
    /// It is not known what the log says of a rollback; the origin is not served (K6).
    half_rolled_back: Cell<bool>,
    room: full::Room,
    /// Whether other stores preserve for their own snapshots what this one's origin loses.
    has_siblings: Cell<bool>,
}

/// Where what the store knows lies, besides the maps.
struct State {
    log: LogPosition,
    /// Blocks of the table of snapshots.
    table: Vec<Extent>,
    /// What was written to snapshots and is in the map, but not in the log (S4).
    unlogged: Vec<Mapping>,
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

    fn sabotaged(&self, fault: Sabotage) -> bool {
        self.options.sabotage == Some(fault)
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

    /// From now on keeps so many bytes of its maps in memory, and gives up nodes by another policy. What is too much goes
    /// before this completes; a node that is not written yet is written first.
    pub async fn set_cache(&self, cache_bytes: u64, policy: PolicyKind) {
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

/// A run of bytes of the store in blocks.
fn blocks_of(extent: Extent) -> (u64, u64) {
    assert!(extent.is_aligned(PART_SIZE), "space is counted in blocks: {extent:?}");
    (extent.offset / PART_SIZE, extent.length / PART_SIZE)
}

/// Blocks of the store in bytes.
fn extent_of((first, count): (u64, u64)) -> Extent {
    Extent::new(first * PART_SIZE, count * PART_SIZE)
}

/// The length of something in memory.
fn index(length: u64) -> usize {
    usize::try_from(length).expect("what is in memory is shorter than the address space")
}

#[cfg(test)]
mod tests;
