//! The memory that a virtual machine shares: regions of files, mapped here, that the machine may change or take away at any time.
//!
//! What is read is copied once and then looked at: it may be another the next moment.
//!
//! Invariant GUESTMEM1: only what is in a region is read or written; all else is a fault of the machine, never of this process.

use super::lost_pages::Watch;
use super::message::RegionAt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes, FileOffset, VolatileMemory, VolatileSlice};

/// Regions of one machine at most.
pub(super) const REGIONS_MAX: usize = 64;

/// A part of a machine's memory that is not there, or was taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) at: u64,
    pub(super) length: u64,
}

/// A file that is mapped from its beginning. The file may be cut short.
#[derive(Debug)]
pub(super) struct Mapping {
    // Dropped before what it watches (LOSTPAGES1).
    watch: Watch,
    mapping: MmapRegion,
}

impl Mapping {
    /// Maps `length` bytes of a file, and up to the end of a page of it.
    pub(super) fn new(file: OwnedFd, length: u64) -> io::Result<Self> {
        let file = File::from(file);
        let metadata = file.metadata()?;
        // Huge pages are unmapped whole; the size of a page of such a file is that of its blocks.
        let whole = length.checked_next_multiple_of(metadata.blksize().max(1));
        let mapped = whole.filter(|whole| *whole <= metadata.len()).unwrap_or(length);
        let mapped = usize::try_from(mapped).map_err(io::Error::other)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, 0), mapped).map_err(io::Error::other)?;
        let watch = Watch::new(mapping.as_ptr() as usize, mapping.size());
        let watch = watch.ok_or_else(|| io::Error::other("too many regions of memory are in use"))?;
        Ok(Self { watch, mapping })
    }

    /// Whether its file was cut short, and it reads as zeros.
    pub(super) fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }

    /// A part of it.
    pub(super) fn slice(&self, offset: u64, length: u64) -> Option<VolatileSlice<'_>> {
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        self.mapping.get_slice(offset, length).ok()
    }
}

#[derive(Debug)]
struct Region {
    at: RegionAt,
    mapping: Mapping,
}

/// The regions of a machine at a time. Cloning shares them.
#[derive(Clone, Default, Debug)]
pub(super) struct Memory {
    regions: Vec<Arc<Region>>,
}

impl Memory {
    /// These regions and one more.
    pub(super) fn with(&self, at: RegionAt, file: OwnedFd) -> io::Result<Self> {
        let fits = |start: u64| start.checked_add(at.size).is_some();
        if at.size == 0 || !fits(at.guest) || !fits(at.user) || !fits(at.offset) {
            return Err(io::Error::other("a region of memory does not fit its addresses"));
        }
        let overlaps = |other: &Arc<Region>| {
            let other = other.at;
            at.guest < other.guest + other.size && other.guest < at.guest + at.size
        };
        if self.regions.len() >= REGIONS_MAX || self.regions.iter().any(overlaps) {
            return Err(io::Error::other("regions of memory overlap, or are too many"));
        }
        let mapping = Mapping::new(file, at.offset + at.size)?;
        let mut regions = self.regions.clone();
        regions.push(Arc::new(Region { at, mapping }));
        Ok(Self { regions })
    }

    /// These regions without one; none if it is not there.
    pub(super) fn without(&self, at: RegionAt) -> Option<Self> {
        let is_it = |region: &Arc<Region>| {
            (region.at.guest, region.at.user, region.at.size) == (at.guest, at.user, at.size)
        };
        let place = self.regions.iter().position(is_it)?;
        let mut regions = self.regions.clone();
        regions.remove(place);
        Some(Self { regions })
    }

    /// Whether any of it was taken away.
    pub(super) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_lost())
    }

    /// The guest's address of what the machine's process sees at `user`.
    pub(super) fn guest_address(&self, user: u64) -> Result<u64, Fault> {
        let find = |region: &Arc<Region>| {
            let inside = user.checked_sub(region.at.user).filter(|inside| *inside < region.at.size)?;
            Some(region.at.guest + inside)
        };
        self.regions.iter().find_map(find).ok_or(Fault { at: user, length: 1 })
    }

    /// What is mapped from `at` on: at least one byte, at most `length` (GUESTMEM1).
    fn piece(&self, at: u64, length: u64) -> Result<VolatileSlice<'_>, Fault> {
        let find = |region: &Arc<Region>| {
            let inside = at.checked_sub(region.at.guest)?;
            (inside < region.at.size).then_some(inside)
        };
        let found = self.regions.iter().find_map(|region| Some((region, find(region)?)));
        let (region, inside) = found.ok_or(Fault { at, length })?;
        let length = length.min(region.at.size - inside);
        region.mapping.slice(region.at.offset + inside, length).ok_or(Fault { at, length })
    }

    /// Copies from the guest.
    pub(super) fn read(&self, mut at: u64, mut into: &mut [u8]) -> Result<(), Fault> {
        while !into.is_empty() {
            let piece = self.piece(at, into.len() as u64)?;
            let (now, later) = into.split_at_mut(piece.len());
            piece.copy_to(now);
            at = at.checked_add(now.len() as u64).ok_or(Fault { at, length: 1 })?;
            into = later;
        }
        Ok(())
    }

    /// Copies to the guest.
    pub(super) fn write(&self, mut at: u64, mut from: &[u8]) -> Result<(), Fault> {
        while !from.is_empty() {
            let piece = self.piece(at, from.len() as u64)?;
            let (now, later) = from.split_at(piece.len());
            piece.copy_from(now);
            at = at.checked_add(now.len() as u64).ok_or(Fault { at, length: 1 })?;
            from = later;
        }
        Ok(())
    }

    /// Two bytes that the guest writes at once.
    pub(super) fn load(&self, at: u64, order: Ordering) -> Result<u16, Fault> {
        let fault = Fault { at, length: 2 };
        self.piece(at, 2)?.load::<u16>(0, order).map(u16::from_le).map_err(|_| fault)
    }

    /// Two bytes that the guest reads at once.
    pub(super) fn store(&self, at: u64, value: u16, order: Ordering) -> Result<(), Fault> {
        let fault = Fault { at, length: 2 };
        self.piece(at, 2)?.store(value.to_le(), 0, order).map_err(|_| fault)
    }
}
