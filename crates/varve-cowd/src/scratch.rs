//! A file without a name in which clusters are put together that do not lie in one place.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file. A cluster has there the offset that it has on the disk.
pub(crate) struct Scratch {
    file: File,
    /// Offsets of the clusters that are there.
    filled: BTreeSet<u64>,
}

impl Scratch {
    /// A file of `size` bytes, sparse, in `folder`.
    pub(crate) fn new(folder: &Path, size: u64) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        file.set_len(size)?;
        Ok(Self { file, filled: BTreeSet::new() })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether the cluster at `at` is there: what it holds stays as long as the cluster has no place of its own.
    pub(crate) fn has(&self, at: u64) -> bool {
        self.filled.contains(&at)
    }

    /// Puts the cluster at `at` there.
    pub(crate) fn put(&mut self, at: u64, content: &[u8]) -> io::Result<()> {
        self.file.write_all_at(content, at)?;
        self.filled.insert(at);
        Ok(())
    }
}
