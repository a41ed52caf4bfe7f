//! What the disk holds: content that is durable, versions that only its cache holds, and the faults of its answers.
//!
//! Invariants:
//! - FAULTDISK1. After `drop_cache` each sector holds what was durable or one of the versions written since, and the cache
//!   is empty.
//! - FAULTDISK2. A sector that a durable write or an honest flush covered holds that version or a later one after any drop.

use crate::orders::{Kind, Order};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are kept or lost together.
pub(crate) const SECTOR: u64 = 512;
/// Versions of a sector that a drop chooses from; older ones were written back.
const VERSIONS_MAX: usize = 4;

/// Bytes that are zeroed in one step.
const ZERO_BYTES: u64 = 1 << 16;

type Sector = [u8; SECTOR as usize];

/// Requests of a kind that fail.
#[derive(Clone, Copy)]
struct Failing {
    errno: i32,
    every: u64,
    seen: u64,
}

/// What was asked for so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    reads: u64,
    writes: u64,
    durable_writes: u64,
    flushes: u64,
    failed: u64,
    lost: u64,
}

/// The disk, its cache and its faults.
pub(crate) struct Disk {
    durable: File,
    size: u64,
    /// Where the file ends while it is shrunk; what is beyond is hidden, and reads as zeros if the file grows again.
    hidden_from: Option<u64>,
    is_deleted: bool,
    /// Versions that are not durable, oldest first.
    cache: BTreeMap<u64, Vec<Sector>>,
    volatile: bool,
    lying: bool,
    full: bool,
    failing: [Option<Failing>; 3],
    counted: Counted,
}

/// An errno.
pub(crate) type Errno = i32;

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Disk {
    /// A healthy disk with this content.
    pub(crate) fn new(durable: File) -> io::Result<Self> {
        let size = durable.metadata()?.len();
        Ok(Self {
            durable,
            size,
            hidden_from: None,
            is_deleted: false,
            cache: BTreeMap::new(),
            volatile: false,
            lying: false,
            full: false,
            failing: [None; 3],
            counted: Counted::default(),
        })
    }

    /// Bytes of the file as it is shown.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Names that lead to the file.
    pub(crate) fn links(&self) -> u32 {
        u32::from(!self.is_deleted)
    }

    /// Gives the file and its content another end. What lay beyond is lost.
    fn resize(&mut self, bytes: u64) -> io::Result<()> {
        self.cache.split_off(&bytes.div_ceil(SECTOR));
        self.durable.set_len(bytes)?;
        (self.size, self.hidden_from) = (bytes, None);
        Ok(())
    }

    /// Carries out an order that changes faults; says what there is to say.
    pub(crate) fn obey(&mut self, order: &Order) -> String {
        match *order {
            Order::Fail { kind, errno, every } => {
                self.failing[kind as usize] = Some(Failing { errno, every, seen: 0 });
            }
            Order::Shrink(bytes) => {
                self.hidden_from = Some(bytes.min(self.hidden_from.unwrap_or(u64::MAX)));
                self.size = bytes;
            }
            Order::Resize(bytes) => {
                if let Err(error) = self.resize(bytes) {
                    return format!("error {error}");
                }
            }
            Order::Delete => self.is_deleted = true,
            Order::Full => self.full = true,
            Order::Volatile => self.volatile = true,
            Order::Lie => self.lying = true,
            Order::Drop { seed } => return format!("ok {} sectors", self.drop_cache(seed)),
            Order::Heal => {
                (self.lying, self.full, self.failing, self.hidden_from) = (false, false, [None; 3], None);
                self.is_deleted = false;
                match self.durable.metadata() {
                    Ok(content) => self.size = content.len(),
                    Err(error) => return format!("error {error}"),
                }
            }
            Order::Stats => {
                let Counted { reads, writes, durable_writes, flushes, failed, lost } = self.counted;
                return format!(
                    "ok reads {reads} writes {writes} durable {durable_writes} flushes {flushes} failed {failed} \
                     lost {lost} cached {}",
                    self.cache.len()
                );
            }
            Order::Stall { .. } | Order::Release | Order::Rename(_) | Order::Quit => {}
        }
        "ok".to_owned()
    }

    /// Up to `length` bytes from `offset` on; fewer at the end of the file.
    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, Errno> {
        self.counted.reads += 1;
        self.fail(Kind::Read)?;
        let length = self.size.saturating_sub(offset).min(length);
        let mut data = vec![0; length as usize];
        let shown = self.hidden_from.unwrap_or(u64::MAX).saturating_sub(offset).min(length);
        self.fill(offset, &mut data[..shown as usize])?;
        Ok(data)
    }

    /// Writes `data`; with `durable` it survives a drop.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        self.counted.writes += 1;
        self.counted.durable_writes += u64::from(durable);
        self.fail(Kind::Write)?;
        let end = offset + data.len() as u64;
        if self.full && self.is_new(offset, end) {
            self.counted.failed += 1;
            return Err(libc::ENOSPC);
        }
        // A file grows when it is written to beyond its end.
        self.size = self.size.max(end);
        if self.volatile && (self.lying || !durable) {
            return self.keep(offset, data);
        }
        let (first, last) = (offset / SECTOR, end.div_ceil(SECTOR));
        if durable && self.cache.range(first..last).next().is_some() {
            // A sector that is written in part becomes durable as a whole.
            self.keep(offset, data)?;
            let covered: Vec<u64> = self.cache.range(first..last).map(|(sector, _)| *sector).collect();
            return covered.into_iter().try_for_each(|sector| self.write_back(sector));
        }
        self.durable.write_all_at(data, offset).map_err(|error| errno(&error))
    }

    /// Zeroes what is inside the file: where nothing was written the content stays sparse.
    pub(crate) fn zero(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        let end = (offset + length).min(self.size);
        let mut at = offset;
        while at < end {
            let part = (end - at).min(ZERO_BYTES);
            if self.volatile || !self.is_hole(at, at + part) {
                self.write(at, &vec![0; part as usize], false)?;
            }
            at += part;
        }
        Ok(())
    }

    /// Makes what was written durable, unless the disk lies.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        self.counted.flushes += 1;
        self.fail(Kind::Flush)?;
        if self.lying {
            return Ok(());
        }
        let all: Vec<u64> = self.cache.keys().copied().collect();
        all.into_iter().try_for_each(|sector| self.write_back(sector))
    }

    /// FAULTDISK1: each sector keeps what was durable or one of its versions, as the seed says; with 0 what was durable.
    /// The number of sectors whose last version is lost.
    fn drop_cache(&mut self, seed: u64) -> u64 {
        let mut chance = seed;
        let mut lost = 0;
        for (sector, versions) in std::mem::take(&mut self.cache) {
            chance = next(chance);
            let choice = if seed == 0 { 0 } else { (chance >> 33) as usize % (versions.len() + 1) };
            lost += u64::from(choice < versions.len());
            if let Some(kept) = choice.checked_sub(1) {
                self.durable
                    .write_all_at(&versions[kept][..], sector * SECTOR)
                    .expect("the content's file takes what fits into it");
            }
        }
        self.counted.lost += lost;
        lost
    }

    fn fail(&mut self, kind: Kind) -> Result<(), Errno> {
        let Some(failing) = &mut self.failing[kind as usize] else { return Ok(()) };
        failing.seen += 1;
        if failing.seen % failing.every != 0 {
            return Ok(());
        }
        self.counted.failed += 1;
        Err(failing.errno)
    }

    /// Content as the newest write left it.
    fn fill(&self, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            match self.durable.read_at(&mut data[done..], offset + done as u64) {
                // What is beyond the content's end is zeros.
                Ok(0) => break,
                Ok(length) => done += length,
                Err(error) => return Err(errno(&error)),
            }
        }
        let end = offset + data.len() as u64;
        for (sector, versions) in self.cache.range(offset / SECTOR..end.div_ceil(SECTOR)) {
            let Some(newest) = versions.last() else { continue };
            let start = sector * SECTOR;
            let (from, to) = (start.max(offset), (start + SECTOR).min(end));
            data[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&newest[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    /// Adds a version to the cache for each sector that `data` touches.
    fn keep(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset + data.len() as u64;
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            let start = sector * SECTOR;
            let (from, to) = (start.max(offset), (start + SECTOR).min(end));
            let mut version = [0; SECTOR as usize];
            if to - from < SECTOR {
                self.fill(start, &mut version[..])?;
            }
            version[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
            let versions = self.cache.entry(sector).or_default();
            if versions.len() == VERSIONS_MAX {
                versions.remove(0);
            }
            versions.push(version);
        }
        Ok(())
    }

    /// FAULTDISK2: the newest version of a sector becomes durable.
    fn write_back(&mut self, sector: u64) -> Result<(), Errno> {
        if let Some(newest) = self.cache.get(&sector).and_then(|versions| versions.last()) {
            self.durable.write_all_at(&newest[..], sector * SECTOR).map_err(|error| errno(&error))?;
        }
        self.cache.remove(&sector);
        Ok(())
    }

    /// Whether none of the range was ever written.
    fn is_hole(&self, start: u64, end: u64) -> bool {
        match rustix::fs::seek(&self.durable, rustix::fs::SeekFrom::Data(start)) {
            Ok(data) => data >= end,
            Err(error) => error == rustix::io::Errno::NXIO,
        }
    }

    /// Whether a part of the range was never written.
    fn is_new(&self, start: u64, end: u64) -> bool {
        match rustix::fs::seek(&self.durable, rustix::fs::SeekFrom::Hole(start)) {
            Ok(hole) => hole < end,
            Err(_) => true,
        }
    }
}

/// The next number of a linear congruential generator (Knuth, MMIX).
fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        let file = tempfile::tempfile().expect("a scratch file");
        file.set_len(64 * SECTOR).expect("it grows");
        Disk::new(file).expect("it has a size")
    }

    fn sectors(disk: &mut Disk) -> Vec<u8> {
        disk.read(0, 64 * SECTOR).expect("read").chunks(SECTOR as usize).map(|sector| sector[0]).collect()
    }

    #[test]
    fn a_drop_keeps_what_was_flushed_and_any_version_since() {
        for seed in 1..50 {
            let mut disk = disk();
            disk.obey(&Order::Volatile);
            disk.write(0, &[1; 8 * 512], false).expect("written");
            disk.flush().expect("flushed");
            disk.write(0, &[2; 4 * 512], false).expect("written");
            disk.write(0, &[3; 2 * 512], false).expect("written");
            assert_eq!(sectors(&mut disk)[..9], [3, 3, 2, 2, 1, 1, 1, 1, 0], "reads see the cache");
            disk.obey(&Order::Drop { seed });
            let kept = sectors(&mut disk);
            assert!(kept[..2].iter().all(|version| (1..=3).contains(version)), "FAULTDISK1: {kept:?}");
            assert!(kept[2..4].iter().all(|version| (1..=2).contains(version)), "FAULTDISK1: {kept:?}");
            assert_eq!(kept[4..9], [1, 1, 1, 1, 0], "FAULTDISK2");
            assert!(disk.cache.is_empty(), "FAULTDISK1");
        }
    }

    #[test]
    fn a_durable_write_survives_and_a_lie_does_not() {
        let mut disk = disk();
        disk.obey(&Order::Volatile);
        disk.write(0, &[1; 1024], false).expect("written");
        disk.write(256, &[2; 256], true).expect("written");
        disk.obey(&Order::Lie);
        disk.write(2048, &[3; 512], true).expect("acknowledged");
        disk.flush().expect("acknowledged");
        disk.obey(&Order::Drop { seed: 0 });
        let kept = disk.read(0, 2560).expect("read");
        assert_eq!((kept[0], kept[300], kept[512], kept[2048]), (1, 2, 0, 0), "FAULTDISK2");
    }

    #[test]
    fn faults_hit_what_they_name_until_they_are_healed() {
        let mut disk = disk();
        disk.obey(&Order::Fail { kind: Kind::Write, errno: libc::EIO, every: 2 });
        let answers: Vec<_> = (0..4).map(|_| disk.write(0, &[1; 512], false)).collect();
        assert_eq!(answers, [Ok(()), Err(libc::EIO), Ok(()), Err(libc::EIO)]);
        disk.obey(&Order::Heal);
        disk.obey(&Order::Full);
        assert_eq!(disk.write(0, &[2; 512], false), Ok(()), "its place was written before");
        assert_eq!(disk.write(32 * SECTOR, &[2; 512], false), Err(libc::ENOSPC));
        disk.obey(&Order::Heal);
        disk.write(32 * SECTOR, &[7; 512], false).expect("written");
        disk.obey(&Order::Shrink(4096));
        assert_eq!(disk.read(32 * SECTOR, 512).expect("read").len(), 0);
        disk.write(63 * SECTOR, &[8; 512], false).expect("it grows");
        assert_eq!(disk.read(32 * SECTOR, 512).expect("read"), [0; 512]);
        disk.obey(&Order::Heal);
        assert_eq!(disk.read(32 * SECTOR, 512).expect("read"), [7; 512]);
    }

    #[test]
    fn what_is_cut_off_is_lost_also_when_the_file_grows_again() {
        let mut disk = disk();
        disk.obey(&Order::Volatile);
        disk.write(0, &[1; 64 * 512], false).expect("written");
        disk.flush().expect("flushed");
        disk.write(8 * SECTOR, &[2; 512], false).expect("written");
        disk.obey(&Order::Resize(8 * SECTOR));
        assert_eq!((disk.size(), disk.read(0, 64 * SECTOR).expect("read").len()), (4096, 4096));
        disk.obey(&Order::Resize(64 * SECTOR));
        let shown = sectors(&mut disk);
        assert_eq!((&shown[..8], &shown[8..]), (&[1; 8][..], &[0; 56][..]));
        disk.obey(&Order::Delete);
        assert_eq!(disk.links(), 0);
        disk.obey(&Order::Heal);
        assert_eq!((disk.links(), disk.size()), (1, 64 * SECTOR));
    }
}
