//! Why a disk is out of use: writes were lost, or what the file held was cut off; and how that is found out.
//!
//! Invariants:
//! - HEALTH1. A disk that is out of use stays so through this handle, with the first reason: its holders may have lost writes
//!   that were not reported to them. Opening the disk again is the way back ([`DiskFile::open`]).
//! - HEALTH2. A file that was cut short never has its old length again by a write, and no flush is acknowledged behind that. Its
//!   length is looked at before a write that reaches its last byte, and before any other at every tick of the coarse clock
//!   (some milliseconds), so a write within one tick of the cut may lengthen it, and is found out. The server of a file that
//!   has one is asked at each flush and when a read meets the end.
//! - HEALTH3. What was cut off reads as zeros, once something has made the file longer again. So a read is sent only to a disk whose
//!   length is as it was, at this tick; and when it has ended, an answer that may come from a hole is believed only after the length
//!   was looked at again. A file that another program has made as long as it was is found out by its space (BLOCKS1 of `blocks.rs`).

use super::{CacheMode, DiskCounters, DiskFile, DiskKind, DiskState, OpenError};
use crate::disks::attempt::error_of;
use crate::{clock, sys};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use varve_block::IoError;
use varve_block::host::FileLook;

/// Smallest piece that file systems keep, in bytes.
const SECTOR_LEAST: usize = 512;

impl DiskFile {
    /// Whether it is in use, or why not (HEALTH1).
    pub fn state(&self) -> DiskState {
        self.health.out_of_use.get().copied().unwrap_or_default()
    }

    /// Whether it is out of use, for whatever reason.
    pub fn is_poisoned(&self) -> bool {
        self.health.out_of_use.get().is_some()
    }

    /// What was counted since it was opened.
    pub fn counters(&self) -> DiskCounters {
        DiskCounters {
            errors: self.health.failures.total(),
            no_space: self.health.no_space.load(Ordering::Relaxed),
            ..self.answers.counters()
        }
    }

    /// What a request on a disk that is out of use is answered.
    pub(crate) fn refuse_out_of_use(&self) -> Result<(), IoError> {
        match self.health.out_of_use.get() {
            None | Some(DiskState::InUse) => Ok(()),
            Some(DiskState::WritesLost) => Err(IoError::Medium),
            Some(DiskState::Shrunk { .. } | DiskState::CutOff { .. }) => Err(IoError::Gone),
        }
    }

    /// Whether a durable write that failed so may have lost others: of a buffered disk always, because the kernel reports
    /// pages that were lost earlier, for want of space too; past the cache it speaks of that write, and what it refuses
    /// it has not begun.
    pub(crate) fn loses_writes(&self, errno: Errno) -> bool {
        self.cache == CacheMode::Buffered || matches!(error_of(errno), IoError::Medium | IoError::Gone)
    }

    /// Records that a flush or a durable write failed (DISKFILE2).
    pub(crate) fn poison(&self, errno: Errno) {
        if self.health.out_of_use.set(DiskState::WritesLost).is_ok() {
            tracing::error!(
                path = %self.path.display(), %errno,
                "a flush or a durable write failed: what was acknowledged since the last flush may be lost; the disk is \
                 not written any more until it is opened again (varve pv scan)"
            );
        }
    }

    /// Reports a request that failed, if not many did lately.
    pub(crate) fn report(&self, verb: &'static str, offset: u64, length: u64, errno: Errno) {
        if matches!(errno, Errno::NOSPC | Errno::DQUOT) {
            self.health.no_space.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(untold) = self.health.failures.note(clock::now()) {
            tracing::error!(
                path = %self.path.display(), verb, offset, length, %errno, untold,
                "a request on a disk failed"
            );
        }
    }

    /// Before a change that ends at `end` (HEALTH2).
    pub(crate) fn admit_change(&self, end: u64) -> Result<(), IoError> {
        self.refuse_out_of_use()?;
        if end < self.size() { self.check_each_tick() } else { self.check_length_of_file() }
    }

    /// Before a read (HEALTH3).
    pub(crate) fn admit_read(&self) -> Result<(), IoError> {
        self.refuse_lost()?;
        self.check_each_tick().or_else(|_| self.refuse_lost())
    }

    /// After a read, before its answer is believed (HEALTH3).
    pub(crate) fn believe_read(&self, answer: &[u8]) -> Result<(), IoError> {
        if self.kind == DiskKind::File && may_be_hole(answer) {
            let _ = self.check_length();
        }
        self.refuse_lost()
    }

    /// What a read of a disk that is out of use is answered. Where writes were lost the disk answers still, with what it has.
    fn refuse_lost(&self) -> Result<(), IoError> {
        self.refuse_out_of_use().or_else(|error| if error == IoError::Gone { Err(error) } else { Ok(()) })
    }

    fn check_each_tick(&self) -> Result<(), IoError> {
        let tick = clock::tick();
        if self.health.checked.load(Ordering::Relaxed) == tick {
            return Ok(());
        }
        self.health.checked.store(tick, Ordering::Relaxed);
        self.check_length_of_file()
    }

    /// A block device that became smaller says so itself, to the request that meets its end.
    fn check_length_of_file(&self) -> Result<(), IoError> {
        if self.kind == DiskKind::File { self.check_length() } else { Ok(()) }
    }

    /// What its file is like now, and the file system below, and whether `path` leads to it: it may have got another name since it was
    /// opened. May wait for ever.
    pub fn look(&self, path: &Path) -> FileLook {
        let placement = self.placement(path);
        let file = self.file.metadata().ok().filter(|_| self.kind == DiskKind::File);
        let Some(metadata) = file else {
            return FileLook { placement, room: None, length: sys::block_device_size(&self.file).ok() };
        };
        let is_sparse = metadata.blocks().saturating_mul(512) < metadata.len();
        let system = rustix::fs::fstatvfs(&self.file).ok().filter(|_| is_sparse);
        let left = |system: rustix::fs::StatVfs| {
            let is_root = rustix::process::geteuid().is_root();
            let blocks = if is_root { system.f_bfree } else { system.f_bavail };
            blocks.saturating_mul(system.f_frsize)
        };
        FileLook { placement, room: system.map(left), length: Some(metadata.len()) }
    }

    /// Takes the disk out of use if it is shorter than it was; does not wait.
    pub(crate) fn check_length(&self) -> Result<(), IoError> {
        let found = match self.kind {
            DiskKind::File => self.health.blocks.look(|| self.size_and_blocks()).map(|(size, lost)| {
                if lost > 0 && size >= self.length() {
                    self.take_out(DiskState::CutOff { lost });
                }
                size
            }),
            DiskKind::BlockDevice => sys::block_device_size(&self.file),
        };
        self.compare_length(found)
    }

    /// Size and space of the file in bytes. What is known of a file on another machine, or served by a process, is not asked for
    /// anew.
    fn size_and_blocks(&self) -> Result<(u64, u64), Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&self.file, "", flags, StatxFlags::SIZE | StatxFlags::BLOCKS)?;
        Ok((stat.stx_size, stat.stx_blocks * 512))
    }

    /// Like [`DiskFile::check_length`], and asks the server of a file that has one; may wait.
    pub(crate) fn check_length_of_remote(&self) -> Result<(), IoError> {
        self.compare_length(
            self.file.metadata().map(|metadata| metadata.len()).map_err(|error| super::errno_of(&error)),
        )
    }

    fn compare_length(&self, found: Result<u64, Errno>) -> Result<(), IoError> {
        let expected = self.size.load(Ordering::Relaxed);
        if found == Ok(expected) {
            self.health.blocks.forbid_cuts();
        }
        if let Ok(found) = found
            && found < expected
        {
            self.take_out(DiskState::Shrunk { expected, found });
        }
        self.refuse_out_of_use()
    }

    /// What the disk held is lost in part: it answers nothing any more.
    fn take_out(&self, state: DiskState) {
        if self.health.out_of_use.set(state).is_ok() {
            tracing::error!(
                path = %self.path.display(), %state,
                "what lay on the disk is lost in part: it is neither read nor written any more; give it its content back, then: \
                 varve pv scan"
            );
        }
    }

    /// Refuses to make a file longer that was cut short: what is lost would read as zeros.
    pub(super) fn refuse_shrunk(&self) -> Result<(), OpenError> {
        let _ = self.check_length();
        match self.state() {
            DiskState::Shrunk { expected, found } => {
                Err(OpenError::TooSmall { path: self.path.clone(), size: found, size_min: expected })
            }
            DiskState::CutOff { .. } => Err(super::options::open_error(&self.path, Errno::NODATA)),
            DiskState::InUse | DiskState::WritesLost => Ok(()),
        }
    }
}

/// Whether part of what was read may come from where a file holds nothing: the last byte of one of its sectors is zero.
fn may_be_hole(answer: &[u8]) -> bool {
    answer.chunks(SECTOR_LEAST).any(|sector| sector.last() == Some(&0))
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let untold = self.health.failures.take_rest();
        if untold > 0 {
            tracing::error!(path = %self.path.display(), untold, "more requests failed on a disk that is closed now");
        }
    }
}
