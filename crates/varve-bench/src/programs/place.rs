//! Where the files of a measurement lie: a directory that is removed afterwards, and files that are really written.
//!
//! Invariants:
//! - PLACE1. The directory is removed when the measurement ends, in whatever way: a keeper, a shell that no signal from a
//!   terminal reaches, waits for the end of this process and removes it then.
//! - PLACE2. A process that uses a directory holds the lock on the file `owner` in it; so a directory whose lock is free was left
//!   behind, and may be removed.

use crate::prelude::*;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::process::{Child, Command, Stdio};

/// How the directories' names begin.
const PREFIX: &str = "varve-bench.";
/// The file whose lock says that a directory is in use (PLACE2).
const OWNER: &str = "owner";
/// What the keeper does (PLACE1). A server that went into the background has left its number in a file; a filesystem may be
/// mounted on the folder that `mounted.rs` names.
const KEEP: &str = r#"trap '' HUP INT TERM; cat >/dev/null
for file in "$1"/*.pid; do if [ -s "$file" ]; then kill -9 "$(cat "$file")" 2>/dev/null; fi; done
umount --lazy "$1/mounted" 2>/dev/null
rm -rf -- "$1""#;

/// A directory of its own, removed with everything in it when dropped.
pub(crate) struct Place {
    directory: PathBuf,
    keeper: Child,
    _owner: File,
}

impl Place {
    /// Under `parent`, which must have room for `need` bytes.
    pub(crate) fn new(parent: &Path, need: u64) -> Outcome<Self> {
        let shown = parent.display();
        if parent.to_string_lossy().contains(|letter: char| letter.is_whitespace() || letter == ',') {
            return Err(
                format!("{shown}: some of the servers cannot be given a path with blanks or commas").into()
            );
        }
        remove_leftovers(parent);
        let room = rustix::fs::statvfs(parent).of(&shown)?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free < need {
            return Err(format!("{shown}: {} MiB are free, {} MiB are needed", free >> 20, need >> 20).into());
        }
        Self::made_in(parent).of(&shown)
    }

    fn made_in(parent: &Path) -> std::io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let owner = File::create(directory.path().join(OWNER))?;
        flock(&owner, FlockOperation::NonBlockingLockExclusive)?;
        let keeper = Command::new("/bin/sh")
            .args(["-c", KEEP, "varve-bench-keeper"])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Self { directory: directory.keep(), keeper, _owner: owner })
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// A new file of `size` bytes of noise, all of it on the medium.
    pub(crate) fn file(&self, name: &str, size: u64) -> Outcome<PathBuf> {
        let mut paths = self.files(&[(name.to_owned(), size)])?;
        Ok(paths.remove(0))
    }

    /// A new file of `size` bytes that has noise in `filled` and holes elsewhere.
    pub(crate) fn sparse(&self, name: &str, size: u64, filled: &[Range<u64>]) -> Outcome<PathBuf> {
        let path = self.path().join(name);
        let complain = |error: std::io::Error| complain(&path, &error);
        let file = File::create(&path).map_err(complain)?;
        file.set_len(size).map_err(complain)?;
        let mut filling = Filling { file, noise: Noise(size | 1), left: 0 };
        for part in filled {
            filling.file.seek(SeekFrom::Start(part.start)).map_err(complain)?;
            filling.left = part.end - part.start;
            filling.go_on(filling.left).map_err(complain)?;
        }
        filling.file.sync_all().map_err(complain)?;
        Ok(path)
    }

    /// New files of noise, by name and size. They are filled in turns, so that none of them gets the better memory,
    /// or the better place on a disk, than the others.
    pub(crate) fn files(&self, wanted: &[(String, u64)]) -> Outcome<Vec<PathBuf>> {
        let paths: Vec<PathBuf> = wanted.iter().map(|(name, _)| self.path().join(name)).collect();
        let mut fillings = Vec::new();
        for (path, (_, size)) in paths.iter().zip(wanted) {
            fillings.push(Filling::begin(path, *size).map_err(|error| complain(path, &error))?);
        }
        while fillings.iter().any(|filling| filling.left > 0) {
            for (filling, path) in fillings.iter_mut().zip(&paths) {
                filling.go_on(TURN).map_err(|error| complain(path, &error))?;
            }
        }
        for (filling, path) in fillings.iter().zip(&paths) {
            filling.file.sync_all().map_err(|error| complain(path, &error))?;
        }
        Ok(paths)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // PLACE1: the keeper reads the end of this pipe, also when this does not run.
        drop(self.keeper.stdin.take());
        if self.keeper.wait().is_err() || self.directory.exists() {
            eprintln!("{} could not be removed", self.directory.display());
        }
    }
}

/// Removes the directories under `parent` that are not in use any more (PLACE2), and says so.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(PREFIX) {
            continue;
        }
        let shown = path.display();
        match File::open(path.join(OWNER)) {
            Err(_) => eprintln!("{shown}: nobody knows whether it is in use; remove it if no benchmark runs"),
            Ok(owner) if flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok() => {
                match fs::remove_dir_all(&path) {
                    Ok(()) => eprintln!("{shown}: left behind by a benchmark that was killed; removed"),
                    Err(error) => eprintln!("{shown}: left behind, and not removed: {error}"),
                }
            }
            Ok(_) => {}
        }
    }
}

/// Bytes that a file gets before it is the next one's turn.
const TURN: u64 = 16 << 20;

fn complain(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// A file that is being filled.
struct Filling {
    file: File,
    noise: Noise,
    left: u64,
}

impl Filling {
    fn begin(path: &Path, size: u64) -> std::io::Result<Self> {
        Ok(Self { file: File::create(path)?, noise: Noise(size | 1), left: size })
    }

    /// Fills up to `turn` bytes more.
    fn go_on(&mut self, turn: u64) -> std::io::Result<()> {
        let mut block = vec![0u8; 1 << 20];
        let end = self.left.saturating_sub(turn);
        while self.left > end {
            self.noise.fill(&mut block);
            let length = usize::try_from(self.left - end).unwrap_or(usize::MAX).min(block.len());
            self.file.write_all(&block[..length])?;
            self.left -= length as u64;
        }
        Ok(())
    }
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
    fn files_that_are_filled_in_turns_are_what_they_are_alone() {
        let parent = tempfile::tempdir().expect("a directory");
        let place = Place::new(parent.path(), 1 << 20).expect("a place");
        let alone = place.file("alone", TURN + 4096).expect("a file");
        let wanted = [("one".to_owned(), 4096), ("two".to_owned(), TURN + 4096)];
        let paths = place.files(&wanted).expect("files");
        assert_eq!(paths[0].metadata().expect("a file").len(), 4096);
        assert!(fs::read(&paths[1]).expect("a file") == fs::read(&alone).expect("a file"));
    }

    #[test]
    fn a_sparse_file_has_noise_where_it_is_wanted_and_nothing_elsewhere() {
        let parent = tempfile::tempdir().expect("a directory");
        let place = Place::new(parent.path(), 1 << 20).expect("a place");
        let file = place.sparse("disk", 1 << 30, &[0..4096, 1 << 20..(1 << 20) + 8192]).expect("a file");
        let metadata = file.metadata().expect("a file");
        assert_eq!(metadata.len(), 1 << 30);
        assert!((12_288..1 << 20).contains(&(metadata.blocks() * 512)), "{}", metadata.blocks());
    }

    #[test]
    fn what_a_killed_benchmark_left_is_removed_and_what_is_in_use_is_not() {
        let parent = tempfile::tempdir().expect("a directory");
        let place = Place::new(parent.path(), 1).expect("a place");
        let left = parent.path().join("varve-bench.left");
        fs::create_dir(&left).expect("a directory");
        fs::write(left.join(OWNER), "").expect("a file");
        fs::write(left.join("disk"), "data").expect("a file");
        let unknown = parent.path().join("varve-bench.unknown");
        fs::create_dir(&unknown).expect("a directory");
        let other = Place::new(parent.path(), 1).expect("a place");
        assert!(!left.exists(), "PLACE2");
        assert!(place.path().exists() && other.path().exists() && unknown.exists(), "PLACE2");
    }

    #[test]
    fn a_place_is_removed_when_its_process_is_killed() {
        let parent = tempfile::tempdir().expect("a directory");
        let mut place = Place::new(parent.path(), 1).expect("a place");
        let path = place.file("disk", 1 << 20).expect("a file");
        // What the kernel does when the process ends: nothing is dropped, the pipe is closed.
        let stdin = place.keeper.stdin.take();
        std::mem::forget(place);
        assert!(path.exists());
        drop(stdin);
        assert!(crate::programs::watch::wait_until(Duration::from_secs(10), || !path.exists()), "PLACE1");
    }

    #[test]
    fn a_full_medium_and_an_unusable_name_are_refused() {
        let parent = tempfile::tempdir().expect("a directory");
        assert!(Place::new(parent.path(), u64::MAX).err().expect("no room").0.contains("are needed"));
        assert!(Place::new(Path::new("/tmp/a b"), 1).err().expect("a blank").0.contains("blanks"));
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
