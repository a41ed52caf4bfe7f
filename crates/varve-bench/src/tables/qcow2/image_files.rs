//! The files of the images that are measured, and the shards that do it.

use crate::options::Options;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_block::KIB;
use varve_os::{CacheMode, DiskFile, DiskOptions, Shards, ShardsConfig};
use varve_target::qcow2::NewImage;

/// Bytes of a cluster.
pub(in crate::tables) const CLUSTER: u64 = 64 * KIB;

/// Bytes of the disk of an image.
pub(in crate::tables) fn size(options: &Options) -> u64 {
    if options.is_quick() { 64 << 20 } else { 1 << 30 }
}

/// One shard.
pub(in crate::tables) fn shards() -> Result<Shards, String> {
    Shards::start(&ShardsConfig { count: 1, ..ShardsConfig::default() }).map_err(|error| error.to_string())
}

/// A file of `size` bytes that holds nothing, open.
pub(in crate::tables) fn sparse(path: &Path, size: u64) -> Result<Arc<DiskFile>, String> {
    let complain = |error: String| format!("{}: {error}", path.display());
    let file = fs::File::create(path).and_then(|file| file.set_len(size));
    file.map_err(|error| complain(error.to_string()))?;
    let options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
    DiskFile::open(path, options).map_err(|error| complain(error.to_string()))
}

/// Files for the images of a chain, the lowest first, and how they are called.
pub(in crate::tables) fn files_of(
    directory: &Path,
    name: &str,
    layers: usize,
    size: u64,
) -> Result<Vec<(PathBuf, Arc<DiskFile>)>, String> {
    let room = NewImage::new(size).room().map_err(|error| error.to_string())?;
    let file = |layer| {
        let path = directory.join(format!("{name}.{layer}"));
        sparse(&path, room).map(|file| (path, file))
    };
    (0..layers).map(file).collect()
}
