//! How a store works.

use super::capacity::space::FullPolicy;
use super::injected_bug::InjectedBug;
use crate::pdata::MetadataOrder;
use crate::pdata::{self, CachePolicy};
use varve_block::{KIB, MIB};

/// How a store works; the defaults are meant for everybody.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Whether the store was made just now, and its origin flushed meanwhile: it is not flushed before it is read (STOREOPEN1 of
    /// `recover.rs`), and the first snapshot flushes the origin only when its gate has closed.
    pub is_new: bool,
    /// The most data of one record of the log, in bytes.
    pub batch_bytes: u64,
    /// The most old content that is held in memory at once, in bytes; at least `batch_bytes`.
    pub copy_bytes: u64,
    /// After so many records of the log a checkpoint is written.
    pub log_records: u64,
    /// When the nodes of the maps are written, until
    /// [`SnapshotStore::set_metadata_order`](super::SnapshotStore::set_metadata_order) says something else.
    pub metadata: MetadataOrder,
    /// Bytes of nodes and of pages of the space map that are kept in memory, until
    /// [`SnapshotStore::set_cache`](super::SnapshotStore::set_cache) says
    /// something else.
    pub cache_bytes: u64,
    /// Which nodes are evicted first.
    pub policy: CachePolicy,
    /// When so many ranges are restored ahead of a rollback's batches, changes restore more than they need, so that
    /// ranges join and the memory for them stays bounded.
    pub restored_ranges: usize,
    /// When a removal has freed more runs of blocks than these since the last checkpoint, another one comes: until then
    /// each takes a little memory.
    pub freed_runs: usize,
    /// When so much of the store is taken, in percent, [`SnapshotStore::low_space`](super::SnapshotStore::low_space) completes.
    pub low_space_percent: u64,
    /// What becomes of a change of the origin that finds no room for its copy. A store by itself refuses it; the
    /// caller that opens it for a volume passes the volume's policy.
    pub full: FullPolicy,
    /// A fault for the tests that prove that the oracle finds it.
    #[doc(hidden)]
    pub injected_bug: Option<InjectedBug>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            is_new: false,
            batch_bytes: 4 * MIB - 4 * KIB,
            copy_bytes: 16 * MIB,
            log_records: 2048,
            metadata: MetadataOrder::Logged,
            cache_bytes: 64 * MIB,
            policy: CachePolicy::default(),
            restored_ranges: 16 << 10,
            freed_runs: pdata::FREED_RUNS_MAX,
            low_space_percent: 80,
            full: FullPolicy::Error,
            injected_bug: None,
        }
    }
}
