//! What writes under snapshots, and to them, cost the model disk.

use serde::{Deserialize, Serialize};

/// What first touches cost the model disk, exact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CostPart {
    /// What was run, in a sentence.
    pub(crate) description: String,
    /// The loads, under each number of snapshots.
    pub(crate) rows: Vec<CostRow>,
}

/// What writes are to the snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Touch {
    /// The first to their chunk, with one exception store for all snapshots.
    Dependent,
    /// The first to their chunk, with an exception store for each snapshot.
    Independent,
    /// To chunks that were preserved before.
    Rewrite,
    /// To the newest snapshot itself, the first to their chunk.
    Newest,
    /// To the oldest snapshot itself, the first to their chunk.
    Oldest,
    /// To a snapshot itself, to chunks that were written there before.
    SnapshotRewrite,
}

/// What one load cost under one number of snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CostRow {
    /// The load.
    pub(crate) load: String,
    /// What its writes are.
    pub(crate) touch: Touch,
    /// How many snapshots the origin has.
    pub(crate) snapshots: u32,
    /// Throughput over that without snapshots.
    pub(crate) ratio: f64,
    /// Disk requests for each request.
    pub(crate) requests: f64,
    /// Flushes for each request.
    pub(crate) flushes: f64,
    /// Bytes read for each byte.
    pub(crate) bytes_read: f64,
    /// Bytes written for each byte.
    pub(crate) bytes_written: f64,
}
