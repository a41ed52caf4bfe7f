//! Where the files of a measurement lie: a directory that is removed afterwards, and files that are really written.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A directory of its own, removed with everything in it when dropped.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// Under `parent`, which must have room for `need` bytes.
    pub(crate) fn new(parent: &Path, need: u64) -> Result<Self, String> {
        let shown = parent.display();
        if parent.to_string_lossy().contains(|letter: char| letter.is_whitespace() || letter == ',') {
            return Err(format!("{shown}: some of the servers cannot be given a path with blanks or commas"));
        }
        let room = rustix::fs::statvfs(parent).map_err(|error| format!("{shown}: {error}"))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free < need {
            return Err(format!("{shown}: {} MiB are free, {} MiB are needed", free >> 20, need >> 20));
        }
        let directory = tempfile::Builder::new()
            .prefix("varve-bench.")
            .tempdir_in(parent)
            .map_err(|error| format!("{shown}: {error}"))?;
        Ok(Self { directory })
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A new file of `size` bytes of noise, all of it on the medium.
    pub(crate) fn file(&self, name: &str, size: u64) -> Result<PathBuf, String> {
        let path = self.path().join(name);
        fill(&path, size).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

fn fill(path: &Path, size: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut noise = Noise(size | 1);
    let mut block = vec![0u8; 1 << 20];
    let mut left = size;
    while left > 0 {
        noise.fill(&mut block);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..length])?;
        left -= length as u64;
    }
    file.sync_all()
}

/// Noise that no file system or disk can compress, the same in every run. Source: G. Marsaglia, "Xorshift RNGs".
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Fills `block`, a multiple of 8 bytes.
    pub(crate) fn fill(&mut self, block: &mut [u8]) {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }

    /// Puts `items` into an order that is the same in every run.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.next() % (last as u64 + 1);
            items.swap(last, usize::try_from(other).expect("no larger than an index"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_allocated_in_full_and_gone_afterwards() {
        let parent = tempfile::tempdir().expect("a directory");
        let place = Place::new(parent.path(), 1 << 20).expect("a place");
        let file = place.file("disk", (1 << 20) + 4096).expect("a file");
        let metadata = file.metadata().expect("a file");
        assert_eq!(metadata.len(), (1 << 20) + 4096);
        assert!(metadata.blocks() * 512 >= metadata.len());
        drop(place);
        assert!(!file.exists());
    }

    #[test]
    fn a_full_medium_and_an_unusable_name_are_refused() {
        let parent = tempfile::tempdir().expect("a directory");
        assert!(Place::new(parent.path(), u64::MAX).err().expect("no room").contains("are needed"));
        assert!(Place::new(Path::new("/tmp/a b"), 1).err().expect("a blank").contains("blanks"));
    }

    #[test]
    fn a_shuffle_loses_nothing_and_repeats() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            Noise(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        let mut sorted = order(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
