//! The files of the images that are measured.

use crate::prelude::*;
use std::fs;
use varve_target::qcow2::NewImage;

/// Bytes of a cluster.
pub(in crate::tables) const CLUSTER: u64 = 64 * KIB;

/// Bytes of the disk of an image.
pub(in crate::tables) fn size(options: &Options) -> u64 {
    if options.is_quick() { 64 << 20 } else { 1 << 30 }
}

/// A file of `size` bytes that holds nothing, open.
pub(in crate::tables) fn sparse(path: &Path, size: u64) -> Outcome<Arc<DiskFile>> {
    fs::File::create(path).and_then(|file| file.set_len(size)).of(path.display())?;
    open(path, Medium::Memory)
}

/// Files for the images of a chain, the lowest first, and how they are called.
pub(in crate::tables) fn files_of(
    directory: &Path,
    name: &str,
    layers: usize,
    size: u64,
) -> Outcome<Vec<(PathBuf, Arc<DiskFile>)>> {
    let room = NewImage::new(size).room()?;
    let file = |layer| {
        let path = directory.join(format!("{name}.{layer}"));
        sparse(&path, room).map(|file| (path, file))
    };
    (0..layers).map(file).collect()
}
