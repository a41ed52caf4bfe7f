//! What a host says of its disks and of the programs that it connects to: plain data, the words of the real world and of a
//! simulated one.

use crate::{Extent, Latencies};
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// Whether requests go through the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// They bypass it (`O_DIRECT`).
    #[default]
    Direct,
    /// They go through it.
    Buffered,
}

/// How a disk is to be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskOptions {
    /// The cache mode wanted; direct falls back to buffered where the file system refuses it.
    pub cache: CacheMode,
    /// Never write.
    pub read_only: bool,
    /// Take no lock: for inspecting disks that may be in use elsewhere. Implies `read_only`.
    pub unlocked: bool,
    /// Make a sparse file of this many bytes; it must not exist yet.
    pub create_size: Option<u64>,
    /// Refuse a smaller disk.
    pub size_min: u64,
}

impl DiskOptions {
    /// To look at a disk without claiming it.
    pub fn probe() -> Self {
        Self { read_only: true, unlocked: true, ..Self::default() }
    }

    /// To create a sparse file of `size` bytes and use it.
    pub fn create(size: u64) -> Self {
        Self { create_size: Some(size), ..Self::default() }
    }
}

/// Why a disk could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is nothing at that path.
    NotFound(PathBuf),
    /// The file to be created is there already.
    Exists(PathBuf),
    /// The process may not.
    Permission(PathBuf),
    /// It is in use elsewhere.
    InUse(PathBuf),
    /// It is on a read-only medium.
    ReadOnly(PathBuf),
    /// It is neither a regular file nor a block device.
    NotADisk(PathBuf),
    /// It holds less than is needed.
    TooSmall {
        /// Which.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// What is needed, in bytes.
        size_min: u64,
    },
    /// There is no room for it.
    NoSpace(PathBuf),
    /// Anything else that the system says.
    System {
        /// Which.
        path: PathBuf,
        /// What it says.
        error: std::io::Error,
    },
}

impl Display for OpenError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(path) => {
                write!(f, "{}: there is no such file or device; check the path", path.display())
            }
            Self::Exists(path) => write!(
                f,
                "{}: the file exists already; choose another name, or leave out the size to use it as it is",
                path.display()
            ),
            Self::Permission(path) => {
                write!(f, "{}: permission denied; run as a user who may read and write it", path.display())
            }
            Self::InUse(path) => write!(
                f,
                "{}: the disk is in use; stop the other daemon, unmount its file system, or remove it from the volume group or array that holds it",
                path.display()
            ),
            Self::ReadOnly(path) => {
                write!(f, "{}: the disk is read-only; open it read-only or make it writable", path.display())
            }
            Self::NotADisk(path) => {
                write!(f, "{}: not a disk; give a regular file or a block device", path.display())
            }
            Self::TooSmall { path, size: 0, .. } => {
                write!(f, "{}: it is empty; use a file or device that holds something", path.display())
            }
            Self::TooSmall { path, size, size_min } => write!(
                f,
                "{}: the disk has {size} bytes, at least {size_min} are needed; use a larger one",
                path.display()
            ),
            Self::NoSpace(path) => {
                write!(f, "{}: no space left on the file system; free some, or ask for less", path.display())
            }
            Self::System { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl Error for OpenError {}

/// What tells one file from another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileIdentity {
    /// The device that its file system is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
}

/// Which users may open a file that an export makes: its owner is the user of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileAccess {
    /// Its permissions, of `0o777`.
    pub mode: u32,
    /// Its group; none for the one that the system gives it.
    pub group: Option<u32>,
}

impl FileAccess {
    /// The owner alone may read and write.
    pub const OWNER: Self = Self { mode: 0o600, group: None };

    /// What the owner may do of it, and others nothing.
    pub const fn of_owner(self) -> u32 {
        self.mode & 0o700
    }

    /// Whether others than the owner may do anything.
    pub const fn is_shared(self) -> bool {
        self.mode & 0o077 != 0
    }
}

/// What keeps bytes by itself: a file, or a block device that is neither a partition nor a loop device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A regular file.
    File(FileIdentity),
    /// A block device.
    Device(u64),
}

/// The bytes of a medium to which a path leads: whatever path leads to them, it is the same disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediumExtent {
    medium: Medium,
    start: u64,
    end: u64,
}

impl MediumExtent {
    /// All of a medium.
    pub fn whole(medium: Medium) -> Self {
        Self { medium, start: 0, end: u64::MAX }
    }

    /// Of these bytes those from `offset` on: `length` of them, or all.
    #[must_use]
    pub fn part(self, offset: u64, length: Option<u64>) -> Self {
        let start = self.start.saturating_add(offset).min(self.end);
        let end = length.map_or(self.end, |length| start.saturating_add(length).min(self.end));
        Self { start, end, ..self }
    }

    /// Whether a byte is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.medium == other.medium && self.start < other.end && other.start < self.end
    }
}

/// What was counted of a disk since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCounters {
    /// Requests that failed.
    pub errors: u64,
    /// Of these, those for which the file system below had no room.
    pub no_space: u64,
    /// Requests that took a second or longer.
    pub slow: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Bytes that they brought.
    pub read_bytes: u64,
    /// Writes that were answered, without those that only change allocation.
    pub writes: u64,
    /// Bytes that they stored.
    pub written_bytes: u64,
    /// Flushes that were answered.
    pub flushes: u64,
    /// Discards and changes of allocation that were answered.
    pub discards: u64,
    /// Requests under way now.
    pub in_flight: u64,
    /// How long those that were answered took.
    pub latencies: Latencies,
}

/// A few bytes that a disk holds, by their checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskMark {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub length: usize,
    sum: u64,
}

impl DiskMark {
    /// That of `bytes`, which lie at `offset`.
    pub fn of(offset: u64, bytes: &[u8]) -> Self {
        Self { offset, length: bytes.len(), sum: sum(bytes) }
    }

    /// Where they lie.
    pub fn extent(&self) -> Extent {
        Extent::new(self.offset, self.length as u64)
    }

    /// Whether they are these.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.length && sum(bytes) == self.sum
    }
}

/// FNV-1a, of eight bytes at a time in four lanes: each write is summed, and one lane waits for its multiplications. It is to tell
/// old content from new, not to withstand anybody.
fn sum(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    let next = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let (rows, single_words) = words.as_chunks::<4>();
    let mut lanes = [BASIS, BASIS + 1, BASIS + 2, BASIS + 3];
    for row in rows {
        for (lane, word) in lanes.iter_mut().zip(row) {
            *lane = next(*lane, u64::from_le_bytes(*word));
        }
    }
    let mut last_word = [0; 8];
    last_word[..rest.len()].copy_from_slice(rest);
    let words = single_words.iter().chain([&last_word]).map(|word| u64::from_le_bytes(*word));
    lanes.into_iter().chain(words).fold(BASIS, next)
}

/// Whether what a disk was opened at leads to it still.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskPlacement {
    /// It does, as far as is known.
    #[default]
    AtPath,
    /// The file was deleted: it is lost when it is closed.
    Deleted,
    /// There is nothing, or something else.
    Elsewhere,
}

/// What the file below an open disk is like now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileLook {
    /// Whether its path leads to it.
    pub placement: DiskPlacement,
    /// If it is a file that may need more of its file system: bytes that this has left.
    pub room: Option<u64>,
    /// Bytes of the file or block device, as far as they are known.
    pub length: Option<u64>,
}

/// Whether a disk is in use, or why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskState {
    /// It is.
    #[default]
    InUse,
    /// A flush or a durable write failed: what was acknowledged before may be lost.
    WritesLost,
    /// It became shorter: what lay beyond the new end is lost.
    Shrunk {
        /// Its length before, in bytes.
        expected: u64,
        /// Its length when that was found out, in bytes.
        found: u64,
    },
    /// Another program has cut it short and made it as long as before: what it held reads as zeros.
    CutOff {
        /// How much of the space that it took is gone, in bytes.
        lost: u64,
    },
}

impl DiskState {
    /// Whether part of what the disk held is lost, also what was durable.
    pub fn is_cut_off(self) -> bool {
        matches!(self, DiskState::Shrunk { .. } | DiskState::CutOff { .. })
    }
}

impl Display for DiskState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            DiskState::InUse => f.write_str("it is in use"),
            DiskState::WritesLost => {
                f.write_str("a flush or a durable write failed: acknowledged writes may be lost")
            }
            DiskState::Shrunk { expected, found } => {
                write!(f, "it had {expected} bytes and has {found} now: the rest is lost")
            }
            DiskState::CutOff { lost } => {
                write!(f, "another program has cut it short, and made it longer again: {lost} bytes are lost")
            }
        }
    }
}

/// The process at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The number of its process.
    pub process: i32,
    /// The user that it ran as when it began to listen.
    pub user: u32,
}

/// Why there is no connection to a program.
#[derive(Debug)]
pub enum ConnectError {
    /// There is no socket, or it has no listener.
    NobodyListens(PathBuf),
    /// The program takes no more connections now.
    Busy(PathBuf),
    /// The program belongs to another user.
    Foreign {
        /// The socket.
        path: PathBuf,
        /// The program's user.
        user: u32,
        /// The user of this process.
        own: u32,
    },
    /// Anything else that the system says.
    System {
        /// The socket.
        path: PathBuf,
        /// What it says.
        error: std::io::Error,
    },
}

impl Display for ConnectError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NobodyListens(path) => write!(f, "no program listens at {}: start it", path.display()),
            Self::Busy(path) => write!(
                f,
                "the program at {} accepts no connections now: look whether it hangs",
                path.display()
            ),
            Self::Foreign { path, user, own } => {
                let path = path.display();
                write!(
                    f,
                    "the program at {path} runs as user {user}: run it as user {own}, or chown {own} {path}"
                )
            }
            Self::System { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl Error for ConnectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_fits_its_bytes_and_none_that_differ_in_a_bit_or_two_words() {
        for length in [1, 7, 8, 31, 32, 40, 67, 512] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
            let mark = DiskMark::of(0, &bytes);
            assert!(mark.fits(&bytes));
            assert!(
                !mark.fits(&bytes[1..]) && !mark.fits(&[&bytes[..], &[0]].concat()),
                "{length}: another length"
            );
            for bit in 0..length * 8 {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!mark.fits(&other), "{length}: bit {bit}");
            }
            // Words of different lanes, and of one.
            for distance in [8, 16, 32] {
                for at in (0..length.saturating_sub(distance + 8)).step_by(8) {
                    let mut other = bytes.clone();
                    (0..8).for_each(|byte| other.swap(at + byte, at + distance + byte));
                    assert!(
                        !mark.fits(&other),
                        "{length}: the words at {at} and {distance} further are exchanged"
                    );
                }
            }
        }
    }
}
