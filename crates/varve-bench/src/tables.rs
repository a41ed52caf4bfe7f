//! The measurements themselves, one module a table.

pub(crate) mod layers;
pub(crate) mod mirrors;
pub(crate) mod nbd;
pub(crate) mod neighbour;
pub(crate) mod overlays;
pub(crate) mod pools;
pub(crate) mod qcow2;
pub(crate) mod snapshot;

use crate::first_touch::Load;
use crate::results::{SnapshotPoint, SnapshotSeries};

/// A series for `load` with a point for each number of snapshots and no figures yet.
fn empty_series(load: &Load, counts: &[u32]) -> SnapshotSeries {
    let point = |snapshots: &u32| SnapshotPoint { snapshots: *snapshots, bytes_per_second: Vec::new() };
    SnapshotSeries { load: load.name.to_owned(), points: counts.iter().map(point).collect() }
}
