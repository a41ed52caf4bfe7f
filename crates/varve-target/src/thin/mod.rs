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
//! - THIN1. A part is mapped to a block only after its data was acknowledged, and a record or a checkpoint that says so is
//!   written only after a flush that came after that. So no metadata is believed whose data did not reach the disk.
//! - THIN2. A flush, and a durable write that maps anything or meets anything uncommitted, ends only after a commit that
//!   began after it was asked for.
//! - THIN3. Records are written one after the other, each durable before the next is begun; only the last can be torn, and
//!   it was not acknowledged as durable.
//! - THIN4. A block is overwritten in place only by the volume that alone holds it, and held it alone at the last commit:
//!   after a crash others hold again what they released since. And only after every request has ended that began before
//!   that commit: others may read what they released.
//! - THIN5. A block that has no holder any more is taken again only after a checkpoint without it is durable, and after
//!   every request has ended that began before that checkpoint was frozen.
//! - THIN6. A part that no volume ever wrote is never read from the device: it is zeros, or its origin's. A part that showed
//!   something else once never shows the origin again: what is discarded over one is mapped as zeros.
//! - THIN7. A clone is made while no write to its source is under way; nodes and blocks of before are older than the fence
//!   of the clone (EDIT2), so that a volume changes them in place only if it is found to hold them alone.
//! - THIN8. The free blocks below the floor are taken only by nodes: deletes, trims, overwrites and commits go on in a full
//!   pool. A checkpoint is due before they run out.
//! - THIN9. The number of those that hold a block is the number of leaves and branches that lead to it and of volumes of
//!   which it is the root; `check` walks and compares.
//! - THIN10. A record leads only to blocks inside of the pool as its superblock describes it: after a growth a checkpoint comes before
//!   the next record. So the superblock tells, alone, how much of its device the pool needs.

mod accounting;
mod arguments;
mod check;
mod committing;
mod device;
mod error;
mod exclusive;
mod full;
mod info;
mod injected_bug;
mod lifecycle;
mod maps;
mod options;
mod recover;
mod repair;
mod space;
mod usage;

pub use accounting::VolumeSpace;
pub use check::{CheckPace, PoolDamage, PoolReport};
pub use error::PoolError;
pub use info::VolumeInfo;
pub use injected_bug::InjectedBug;
pub use lifecycle::flatten::Flattening;
pub use lifecycle::manage::{ClaimedVolume, FrozenVolume, NewVolume};
pub use lifecycle::removal::Removal;
pub use lifecycle::trash::Trash;
pub use options::PoolOptions;
pub use recover::PoolFormat;
pub use repair::metadata_backup::{MetadataBackup, backed_up_pool};
pub use repair::offline::{VolumeAndSnapshot, check_pool, compare_volumes};
pub use repair::restore::{Restored, repair_pool, restore_pool};
pub use repair::text::{POOL_TEXT_TITLE, dump_pool};
pub use space::{PoolEvent, WhenFull};
pub use usage::PoolUsage;
pub use varve_format::text::Discards;
pub use varve_format::thin::{Backing, Origin, PoolFormatError, Trashed, Uuid, VolumeFlags};

use crate::pdata::{CachePolicy, CacheUse, Commit, Map, MetadataOrder, Tree};
use crate::reader_epochs::ReaderEpochs;
use committing::commits::Commits;
use error::io_error;
use lifecycle::volumes::Volumes;
use maps::layout::{Layout, index};
use maps::ref_counts::RefCounts;
use std::cell::{Cell, RefCell};
use varve_block::{Arena, Clock, Device, IoError};
use varve_format::pdata::Block;
use varve_format::thin::PART_SIZE;

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
    ref_counts: RefCounts,
    /// The map of volumes.
    table: Cell<Tree>,
    volumes: Volumes,
    /// Number of the last superblock.
    number: Cell<u64>,
    /// The first block behind the pool.
    end_block: Cell<Block>,
    commits: Commits,
    readers: ReaderEpochs,
    /// A durable checkpoint whose freed blocks wait for requests of before its mark (THIN5).
    pending_free: RefCell<Option<(Commit, u64)>>,
    waiters: space::Waiters,
    passing: committing::discard_state::Passing,
    /// What was last found of what volumes hold alone.
    accounting: RefCell<accounting::SpaceAccounting>,
    /// The damaged block that was logged last.
    told_of: Cell<Option<Block>>,
}

impl Pool {
    fn has_bug(&self, fault: InjectedBug) -> bool {
        self.options.injected_bug == Some(fault)
    }

    fn device(&self) -> Device {
        self.device.borrow().clone()
    }

    /// The pool's id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// From now on keeps so many bytes of its maps in memory, and evicts nodes by another policy. What is too much goes
    /// at once, but for nodes that are not written yet: those go with the next commit, which is due then.
    pub fn set_cache(&self, cache_bytes: u64, policy: CachePolicy) {
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

    /// What a change of volumes keeps: numbers that rise, counts of holders and commits that add up.
    fn assert_consistent(&self) {
        self.volumes.assert_consistent();
        self.ref_counts.assert_consistent();
        self.commits.assert_consistent();
    }
}
