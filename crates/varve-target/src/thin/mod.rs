//! Thin pools: volumes that take space when they are written, and snapshots of them to any depth.
//!
//! A volume is a map from its parts of 4 KiB to blocks of the pool, in runs; a snapshot is a second root of the same
//! map (`pdata::edit`). Data, nodes, the log and the space map share one address space.
//!
//! ```text
//!   volume front ── resolve ──► own blocks: in place ─────────────► device
//!        │                      else: fresh blocks ─► write ─► map
//!        │ flush, FUA, each second                              │
//!        ▼                                                      ▼
//!   commit: flush the data, then one record of what changed since the last one
//!   checkpoint: nodes, space map, flush, superblock; the log begins anew
//! ```
//!
//! Why there is a log beside the tree: a commit of the tree alone writes a path of nodes, a page of the space map and a
//! superblock, with two flushes; a record is one request behind one flush.
//!
//! Invariants, cited by number where they are kept:
//! - T1. A part is mapped to a block only after its data was acknowledged, and a record or a checkpoint that says so is
//!   written only after a flush that came after that. So no metadata is believed whose data did not reach the disk.
//! - T2. A flush, and a durable write that maps anything or meets anything uncommitted, ends only after a commit that
//!   began after it was asked for.
//! - T3. Records are written one after the other, each durable before the next is begun; only the last can be torn, and
//!   nobody was told of it.
//! - T4. A block is overwritten in place only by the volume that alone holds it, and held it alone at the last commit:
//!   after a crash others hold again what they let go of since. And only after every request has ended that began before
//!   that commit: others may read what they let go of.
//! - T5. A block that nobody holds any more is taken again only after a checkpoint without it is durable, and after
//!   every request has ended that began before that checkpoint was frozen.
//! - T6. A part that no volume ever wrote is never read from the device: it is zeros, or its origin's. A part that showed
//!   something else once never shows the origin again: what is discarded over one is mapped as zeros.
//! - T7. A clone is made while no write to its source is under way; nodes and blocks of before are older than the fence
//!   of the clone (X2), so that nobody changes them in place unless he is found to be alone with them.
//! - T8. The free blocks below the floor are taken only by nodes: deletes, trims, overwrites and commits go on in a full
//!   pool. A checkpoint is due before they run out.
//! - T9. The number of those that hold a block is the number of leaves and branches that lead to it and of volumes of
//!   which it is the root; `check` walks and compares.

mod belief;
mod check;
mod checkpoint;
mod commit;
mod device;
mod diff;
mod discards;
mod flatten;
mod full;
mod holdings;
mod keeping;
mod kept;
mod manage;
mod mapping;
mod names;
mod offline;
mod origin;
mod overlay;
mod read_view;
mod recover;
mod removal;
mod restore;
mod rollback;
mod runs;
mod shares;
mod text;
mod tickets;
mod usage;
mod volume;

pub use check::{CheckPace, PoolDamage, PoolReport};
pub use discards::Discards;
pub use flatten::Flattening;
pub use full::{PoolEvent, WhenFull};
pub use holdings::Holding;
pub use kept::{KeptMetadata, kept_pool};
pub use manage::{ClaimedVolume, FrozenVolume, NewVolume, VolumeInfo};
pub use offline::{VolumeAndSnapshot, check_pool, compare_volumes};
pub use recover::PoolFormat;
pub use removal::Removal;
pub use restore::{Restored, repair_pool, restore_pool};
pub use text::{POOL_TEXT_TITLE, dump_pool};
pub use usage::PoolUsage;
pub use varve_format::thin::{Origin, PoolFormatError, Uuid, VolumeFlags};

use crate::pdata::{CacheUse, Commit, Map, MapError, MetadataOrder, PolicyKind, Tree};
use commit::Commits;
use shares::Shares;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tickets::Tickets;
use varve_block::{Arena, Clock, Device, IoError, RangeLock};
use varve_format::thin::PART_SIZE;
use volume::Volume;

/// How a pool works; the defaults are meant for everybody.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Bytes of nodes and of pages of the space map in memory, until [`Pool::set_cache`] says something else.
    pub cache_bytes: u64,
    /// Which nodes are given up.
    pub policy: PolicyKind,
    /// When nodes are written, until [`Pool::set_metadata_order`] says something else.
    pub metadata: MetadataOrder,
    /// What is acknowledged and not committed is committed after so long.
    pub commit_interval: Duration,
    /// The most that one dose of a flattening copies; whole parts.
    pub flatten_bytes: u64,
    /// What becomes of a write that finds no room, until [`Pool::set_when_full`] says something else.
    pub when_full: WhenFull,
    /// A fault for the tests that prove that the oracle finds it.
    #[doc(hidden)]
    pub sabotage: Option<Sabotage>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            policy: PolicyKind::default(),
            metadata: MetadataOrder::Logged,
            commit_interval: Duration::from_secs(1),
            flatten_bytes: 1 << 20,
            when_full: WhenFull::Error,
            sabotage: None,
        }
    }
}

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Records are written without a flush of the data before (breaks T1).
    MetadataBeforeData,
    /// Durable writes end before the commit (breaks T2).
    DurableBeforeCommit,
    /// Blocks are taken again in the transaction that freed them (breaks T5).
    ReuseAtOnce,
    /// Blocks are taken again or overwritten while requests may still read them (breaks T4 and T5).
    ForgetReaders,
    /// Shared blocks are overwritten in place (breaks T4).
    OverwriteShared,
    /// Blocks are overwritten in place that were shared at the last commit (breaks T4).
    OverwriteSharedLately,
    /// Blocks are taken again before the disks have answered to what they were told of them (breaks D1 of `discards.rs`).
    PassDownLate,
    /// What is zeroed over an origin shows that origin again (breaks T6).
    UnmapOverOrigin,
    /// Nodes of any transaction are believed (breaks D3 of `pdata`).
    TrustGenerations,
}

/// Why something about a pool or its volumes cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// A device failed.
    Io(IoError),
    /// There is no space left in the pool.
    NoSpace,
    /// There is no volume with this id.
    NotFound,
    /// There is a volume with this name already.
    Exists,
    /// The volume is held.
    Held,
    /// The name is none.
    Name,
    /// The pool's device is too small; the number is the bytes that it must have.
    TooSmall(u64),
    /// What the volume lies over is not there.
    OriginMissing,
    /// What was asked does not fit the pool or the volume, as said.
    Misfit(&'static str),
    /// There is no pool on this device, or none that can be read.
    Format(PoolFormatError),
    /// The pool contradicts itself, as said.
    Corrupt(&'static str),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Io(error) => write!(f, "input or output failed: {error}"),
            PoolError::NoSpace => f.write_str("no space is left in the pool"),
            PoolError::NotFound => f.write_str("there is no such volume in the pool"),
            PoolError::Exists => f.write_str("there is a volume with this name in the pool already"),
            PoolError::Held => f.write_str("the volume is held"),
            PoolError::Name => f.write_str("this cannot be a volume's name"),
            PoolError::TooSmall(bytes) => write!(f, "a pool needs at least {bytes} bytes"),
            PoolError::OriginMissing => f.write_str("what the volume lies over is not there"),
            PoolError::Misfit(why) | PoolError::Corrupt(why) => f.write_str(why),
            PoolError::Format(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PoolError {}

impl From<IoError> for PoolError {
    fn from(error: IoError) -> Self {
        if error == IoError::NoSpace { PoolError::NoSpace } else { PoolError::Io(error) }
    }
}

impl From<MapError> for PoolError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Io(error) => error.into(),
            MapError::Full => PoolError::NoSpace,
            MapError::Damaged { block, error } => {
                tracing::error!(block, %error, "a block of the pool's maps is damaged");
                PoolError::Io(IoError::Corrupt)
            }
        }
    }
}

/// What a request is told of `error`.
fn io_error(error: MapError) -> IoError {
    match PoolError::from(error) {
        PoolError::Io(error) => error,
        _ => IoError::NoSpace,
    }
}

/// Where things lie in a pool; constant for its life.
#[derive(Clone, Copy, Debug)]
struct Layout {
    block_size: u64,
    slot_blocks: u64,
    log_blocks: u64,
}

/// A pool, open.
pub struct Pool {
    id: Uuid,
    arena: Arena,
    clock: Clock,
    options: PoolOptions,
    metadata: Cell<MetadataOrder>,
    layout: Layout,
    device: RefCell<Device>,
    map: Map,
    shares: Shares,
    /// The map of volumes.
    table: Cell<Tree>,
    volumes: RefCell<BTreeMap<u64, Rc<Volume>>>,
    /// What they are called (N1 of `names.rs`).
    names: RefCell<names::Names>,
    /// Volumes that are gone from memory and not yet from the map of volumes.
    forgotten: RefCell<BTreeSet<u64>>,
    next_volume: Cell<u64>,
    /// Number of the last superblock.
    number: Cell<u64>,
    /// Number of the first block behind the pool.
    end_block: Cell<u64>,
    commits: Commits,
    tickets: Tickets,
    /// A durable checkpoint whose freed blocks wait for requests of before its ticket (T5).
    handover: RefCell<Option<(Commit, u64)>>,
    /// Held, by the ids of the volumes, by whoever clones, removes, resizes or rolls back.
    managing: RangeLock,
    /// Volumes that are being removed for all but whoever makes them (K3 of `rollback.rs`).
    in_the_making: RefCell<BTreeSet<u64>>,
    room: full::Room,
    passing: discards::Passing,
    /// What was last found of what volumes hold alone.
    holdings: RefCell<holdings::Holdings>,
    /// The damaged block that was told of last.
    told_of: Cell<Option<u64>>,
}

impl Pool {
    fn sabotaged(&self, fault: Sabotage) -> bool {
        self.options.sabotage == Some(fault)
    }

    fn device(&self) -> Device {
        self.device.borrow().clone()
    }

    /// The pool's id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// From now on keeps so many bytes of its maps in memory, and gives up nodes by another policy. What is too much goes
    /// at once, but for nodes that are not written yet: those go with the next commit, which is due then.
    pub fn set_cache(&self, cache_bytes: u64, policy: PolicyKind) {
        self.map.pages().set_cache(cache_bytes, policy);
    }

    /// How the cache of the maps' nodes does.
    pub fn cache_use(&self) -> CacheUse {
        self.map.pages().cache_use()
    }

    /// From the next commit on nodes are written as `order` says: with every commit, or when the log is long.
    pub fn set_metadata_order(&self, order: MetadataOrder) {
        self.metadata.set(order);
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        self.layout.block_size
    }

    fn unit(&self) -> u64 {
        self.layout.block_size / PART_SIZE
    }

    /// Why nothing is changed any more, if a commit has failed.
    pub fn last_failure(&self) -> Option<IoError> {
        self.commits.latch.failure()
    }

    fn is_sound(&self) -> Result<(), IoError> {
        self.commits.latch.check()
    }

    fn find(&self, id: u64) -> Result<Rc<Volume>, PoolError> {
        let volume = self.volumes.borrow().get(&id).cloned();
        volume.filter(|volume| !volume.has(VolumeFlags::REMOVING)).ok_or(PoolError::NotFound)
    }
}

/// The length of something in memory.
fn index(length: u64) -> usize {
    usize::try_from(length).expect("what is in memory is shorter than the address space")
}
