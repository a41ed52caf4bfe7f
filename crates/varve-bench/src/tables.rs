//! The measurements themselves, one module a table.

mod array_cases;
mod array_files;
mod array_ratios;
pub(crate) mod array_work;
pub(crate) mod arrays;
pub(crate) mod bonnie;
pub(crate) mod cache;
pub(crate) mod cache_times;
pub(crate) mod cost;
pub(crate) mod daemon;
pub(crate) mod distance;
pub(crate) mod engine;
mod image_chains;
mod image_files;
mod image_peers;
mod image_thin;
pub(crate) mod images;
pub(crate) mod layers;
pub(crate) mod listing;
pub(crate) mod management;
pub(crate) mod management_daemon;
mod mappers;
pub(crate) mod nbd;
pub(crate) mod neighbour;
pub(crate) mod overlay;
pub(crate) mod overlay_boot;
pub(crate) mod overlay_copy;
pub(crate) mod snapshots;
pub(crate) mod stage;
pub(crate) mod thin;
pub(crate) mod thin_rivals;
pub(crate) mod thin_scale;

use crate::first_touch::Load;
use crate::results::{SnapshotPoint, SnapshotSeries};

/// A series for `load` with a point for each number of snapshots and no figures yet.
fn empty_series(load: &Load, counts: &[u32]) -> SnapshotSeries {
    let point = |snapshots: &u32| SnapshotPoint { snapshots: *snapshots, bytes_per_second: Vec::new() };
    SnapshotSeries { load: load.name.to_owned(), points: counts.iter().map(point).collect() }
}
