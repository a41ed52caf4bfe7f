//! qcow2 images: a disk in a file of QEMU's format, read and written, as a target over any device.
//!
//! Lookups ([`Image::lookup`]) give mappings, which are pure functions of L2 entries (`mapping.rs`); what moves bytes stands
//! beside them. Tables are changed in memory, and written by commits (`commit.rs`), which a flush asks for: after a crash the
//! image is as a commit left it, with clusters at worst that are in use by nothing.
//!
//! The file's device has a fixed size, up to which the image may grow: see [`room`]. A file is made so large, sparse, while it
//! is written, and cut to [`Image::end`] afterwards. Where it ended before is said ([`Options::file_end`]): what tables lead to
//! behind that is missing, and no zeros (QEND).
//!
//! Invariant QOPEN1: before an image is written, what is there is durable: a killed process may have left tables in the disk's cache,
//! and what is read counts as written.
//!
//! More invariants: `cache.rs` (QCACHE), `refcounts.rs` (QCOUNT), `write.rs` (QWRITE), `commit.rs` (QCOMMIT), `places.rs`
//! (QPLACE), `chain.rs` (QCHAIN), `check.rs` (QEND), `flatten.rs` (QFLAT), `push.rs` (QPUSH).

mod chain;
mod check;
mod commit;
mod create;
mod decompress;
mod device;
mod error;
mod file;
mod flatten;
mod grow;
mod injected_bug;
mod places;
mod push;
mod read;
mod tables;
mod write;
mod zero;

pub use chain::{Layer, RUNS_MAX, chain};
pub use check::Report;
pub use create::{NewImage, check_to_write, create, room};
pub use device::ImageDevice;
pub use error::OpenError;
pub use flatten::Pulled;
#[doc(hidden)]
pub use injected_bug::InjectedBug;
pub use push::Pushed;
pub use tables::mapping::{Mapped, Mapping};

use crate::reader_epochs::ReaderEpochs;
use file::File;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use tables::cache::Cache;
use tables::root::Root;
use varve_block::{Access, Arena, Device, Extent, IoError, KIB, MIB, RangeLock, accept_unaligned};
use varve_format::qcow2::{
    Bitmap, Header, OFFSET_MASK, Qcow2Error, SECTOR, SnapshotEntry, decode_snapshots, table_offset,
};

/// Bytes of a slice of a table in memory.
const SLICE: u64 = 4 * KIB;
/// Bytes of the longest table of snapshots that is read.
const SNAPSHOT_TABLE_MAX: u64 = 16 * MIB;

/// How an image is opened.
#[derive(Clone)]
pub struct Options {
    /// Whether it may be written.
    pub access: Access,
    /// What is below it, if the header names something. Without it, what would be read there fails.
    pub backing: Option<Device>,
    /// The id or name of an internal snapshot to show instead; only to read.
    pub snapshot: Option<String>,
    /// Bytes of tables kept in memory.
    pub cache_bytes: u64,
    /// Where the file ends, if its device is longer: it holds zeros from there on.
    pub file_end: Option<u64>,
    /// Whether only its tables are looked at: an image that has been cut off is opened, too.
    pub inspects: bool,
    /// Whether it is to give all that it holds to what is below it, which is written then ([`Image::push`]).
    pub pushes: bool,
    /// A fault for simulations.
    #[doc(hidden)]
    pub bug: Option<InjectedBug>,
}

impl Default for Options {
    fn default() -> Self {
        let cache_bytes = 4 * MIB;
        Self {
            access: Access::ReadOnly,
            backing: None,
            snapshot: None,
            cache_bytes,
            file_end: None,
            inspects: false,
            pushes: false,
            bug: None,
        }
    }
}

/// An open image.
pub struct Image {
    file: File,
    cache: Cache,
    header: Header,
    /// As it is in the file, or is being written there (QFLAT3).
    first_sector: RefCell<Vec<u8>>,
    snapshots: Vec<SnapshotEntry>,
    bitmaps: Vec<Bitmap>,
    access: Access,
    backing: Option<Device>,
    pushes: bool,
    l1: RefCell<Root>,
    refcount_table: RefCell<Root>,
    /// First bytes of clusters with metadata in use: those that this image may write, and those that lead to them.
    metadata: RefCell<BTreeSet<u64>>,
    /// Clusters that lost a reference since the last commit.
    freed: RefCell<Vec<u64>>,
    /// No cluster below it is free.
    first_free: Cell<u64>,
    /// Nothing that tables lead to is in the file from this byte on (QEND2).
    data_end: Cell<u64>,
    /// From there on the file is known to hold zeros.
    is_clean: bool,
    /// Of the disk, by cluster (QWRITE1).
    ranges: RangeLock,
    /// By L1 entry.
    tables: RangeLock,
    allocating: RangeLock,
    committing: RangeLock,
    /// Readers and writers of places in the file (QWRITE2).
    readers: ReaderEpochs,
    /// Commits that began, and the last that succeeded.
    commits: Cell<u64>,
    committed: Cell<u64>,
    failed: Cell<Option<IoError>>,
    /// Whether damage that is read has not been reported yet.
    damage_events: Cell<bool>,
    bug: Option<InjectedBug>,
}

/// Reads the header of an image, as far as it is needed to know what is below it.
pub async fn read_header(device: Device, arena: Arena) -> Result<Header, OpenError> {
    header_of(&File::new(device, arena)).await.map(|(header, _)| header)
}

async fn header_of(file: &File) -> Result<(Header, Vec<u8>), OpenError> {
    let sector = file.read(0, SECTOR.min(file.size())).await?;
    let length = Header::length(&sector)?;
    let cluster = file.read(0, length.min(file.size())).await?;
    let header = Header::decode(&cluster)?;
    let mut sector = sector;
    sector.resize(file::index(SECTOR), 0);
    Ok((header, sector))
}

/// Reads the table of snapshots, of unknown length.
async fn snapshots_of(file: &File, header: &Header) -> Result<Vec<SnapshotEntry>, OpenError> {
    if header.snapshots == 0 {
        return Ok(Vec::new());
    }
    let mut length = 64 * KIB;
    loop {
        let there = file.size().saturating_sub(header.snapshots_offset).min(SNAPSHOT_TABLE_MAX);
        let bytes = file.read(header.snapshots_offset, length.min(there)).await?;
        match decode_snapshots(&bytes, header) {
            Ok((snapshots, _)) => return Ok(snapshots),
            Err(Qcow2Error::Truncated(_)) if length < there => length *= 4,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the directory of bitmaps.
async fn bitmaps_of(file: &File, header: &Header) -> Result<Vec<Bitmap>, OpenError> {
    let Some(directory) = header.bitmaps else { return Ok(Vec::new()) };
    let length = directory.length.min(file.size().saturating_sub(directory.offset));
    let bytes = file.read(directory.offset, length).await?;
    Ok(directory.bitmaps(&bytes, header.cluster_size())?)
}

impl Image {
    /// Opens the image in `device`. One that was left dirty has its reference counts made anew before it is written.
    pub async fn open(device: Device, arena: Arena, options: Options) -> Result<Image, OpenError> {
        if device.shape().access == Access::ReadOnly && options.access == Access::ReadWrite {
            return Err(OpenError::Io(IoError::ReadOnly));
        }
        let file = File::new(device, arena.clone());
        if options.access == Access::ReadWrite && options.bug != Some(InjectedBug::OpenUnflushed) {
            file.flush().await?; // QOPEN1
        }
        let (mut header, first_sector) = header_of(&file).await?;
        let snapshots = snapshots_of(&file, &header).await?;
        let bitmaps = bitmaps_of(&file, &header).await?;
        let mut l1 = (header.l1_offset, header.l1_entries);
        if let Some(wanted) = &options.snapshot {
            let found = snapshots.iter().find(|entry| entry.id == *wanted || entry.name == *wanted);
            let found = found.ok_or_else(|| OpenError::NoSnapshot(wanted.clone()))?;
            l1 = (found.l1_offset, found.l1_entries);
            header.size = found.size.unwrap_or(header.size);
        }
        let file_end = options.file_end.map_or(file.size(), |end| end.min(file.size()));
        refuse_truncated(file_end, &header, l1)?;
        let slice = SLICE.min(header.cluster_size());
        let image = Image {
            cache: Cache::new(file.clone(), slice, options.cache_bytes),
            l1: RefCell::new(Root::read(&file, l1.0, l1.1.into()).await?),
            refcount_table: RefCell::new(read_refcount_table(&file, &header).await?),
            first_sector: RefCell::new(first_sector),
            snapshots,
            bitmaps,
            access: options.access,
            backing: options.backing.map(|backing| accept_unaligned(backing, arena)),
            pushes: options.pushes,
            metadata: RefCell::default(),
            freed: RefCell::default(),
            first_free: Cell::new(0),
            data_end: Cell::new(file_end),
            is_clean: options.file_end.is_some(),
            ranges: RangeLock::new(),
            tables: RangeLock::new(),
            allocating: RangeLock::new(),
            committing: RangeLock::new(),
            readers: ReaderEpochs::default(),
            commits: Cell::new(0),
            committed: Cell::new(0),
            failed: Cell::new(None),
            damage_events: Cell::new(true),
            bug: options.bug,
            header,
            file,
        };
        if !options.inspects {
            image.check_end().await?;
        }
        match options.access {
            Access::ReadOnly => Ok(image),
            Access::ReadWrite => image.opened_to_write(options.snapshot.is_some()).await,
        }
    }

    async fn opened_to_write(mut self, is_snapshot: bool) -> Result<Image, OpenError> {
        if is_snapshot {
            return Err(OpenError::SnapshotReadOnly);
        }
        self.check_to_write(self.file.size()).await?;
        if self.pushes {
            self.check_pushes()?;
        }
        self.drop_void_bitmaps().await?;
        if Header::clear_autoclear(self.first_sector.get_mut()) {
            self.write_first_sector().await?;
        }
        if self.needs_counts(self.file.size()) {
            self.rebuild_refcounts().await?;
        }
        self.metadata.replace(self.find_metadata()?);
        self.assert_consistent();
        Ok(self)
    }

    /// Refuses what cannot be written, before anything is changed: the file will have `length` bytes.
    pub(super) async fn check_to_write(&self, length: u64) -> Result<(), OpenError> {
        if self.header.corrupt {
            return Err(OpenError::MarkedCorrupt);
        }
        if self.header.bitmaps.is_some() {
            return Err(OpenError::Bitmaps);
        }
        if self.needs_counts(length) {
            let walk = self.walk().await?;
            return walk.told.into_iter().next().map_or(Ok(()), |told| Err(OpenError::Damaged(told)));
        }
        self.find_metadata().map(drop)
    }

    /// Bitmaps that were not kept are gone for good: no program is to take them for what they were.
    async fn drop_void_bitmaps(&mut self) -> Result<(), OpenError> {
        if !self.header.void_bitmaps {
            return Ok(());
        }
        let mut bytes = self.file.read(0, self.header.cluster_size()).await?;
        if Header::drop_bitmaps(&mut bytes) {
            self.file.write_table(0, &bytes).await?;
            let length = self.first_sector.get_mut().len();
            self.first_sector.get_mut().copy_from_slice(&bytes[..length]);
        }
        self.header.void_bitmaps = false;
        Ok(())
    }

    /// Whether reference counts are made anew before the image is written, in a file of `length` bytes.
    fn needs_counts(&self, length: u64) -> bool {
        let size = self.header.cluster_size();
        let entries = u64::from(self.header.refcount_table_clusters) * size / 8;
        self.header.dirty || entries < self.header.refcount_width.table_entries(length, size)
    }

    /// Collects what must not be written as data (QCOUNT3). Two things in one place are damage.
    fn find_metadata(&self) -> Result<BTreeSet<u64>, OpenError> {
        let size = self.header.cluster_size();
        let (l1, table) = (self.l1.borrow(), self.refcount_table.borrow());
        for entry in table.entries() {
            table_offset(*entry, &self.header, "refcount table")?;
        }
        let mut metadata = BTreeSet::new();
        let roots = [Extent::new(0, size), l1.extent(size), table.extent(size)];
        let of_roots =
            roots.into_iter().flat_map(|extent| extent.pieces(size)).map(|(_, piece)| piece.offset);
        let leaves = l1.entries().iter().chain(table.entries());
        let leaves = leaves.map(|entry| entry & OFFSET_MASK).filter(|offset| *offset > 0);
        for offset in of_roots.chain(leaves) {
            if !metadata.insert(offset) {
                return Err(OpenError::Overlap(offset));
            }
        }
        Ok(metadata)
    }

    /// What the header says; its size is that of the snapshot, if one is shown.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The internal snapshots.
    pub fn snapshots(&self) -> &[SnapshotEntry] {
        &self.snapshots
    }

    /// Bytes of the disk that the image holds, in whole sectors.
    pub fn size(&self) -> u64 {
        self.header.size.next_multiple_of(SECTOR)
    }

    /// The persistent bitmaps.
    pub fn bitmaps(&self) -> &[Bitmap] {
        &self.bitmaps
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    fn arena(&self) -> &Arena {
        self.file.arena()
    }

    /// Makes everything durable, and gives back what was freed. The image is not used any more afterwards.
    pub async fn close(&self) -> Result<(), IoError> {
        self.check_writable()?;
        self.commit().await?;
        self.assert_consistent();
        self.commit().await // Counts that fell with the first one.
    }

    /// The end of the last cluster that is in use, in bytes: what is behind it in the file may be cut off.
    pub async fn end(&self) -> Result<u64, IoError> {
        let blocks = self.refcount_table.borrow().entries().len() as u64;
        for block in (0..blocks).rev().filter(|block| self.refcount_table.borrow().get(*block) > 0) {
            let first = block * self.counts_per_block();
            for cluster in (first..first + self.counts_per_block()).rev() {
                if self.count_of(cluster).await? > 0 {
                    return Ok((cluster + 1) * self.header.cluster_size());
                }
            }
        }
        Ok(self.header.cluster_size())
    }

    /// Writes the first sector as it is in memory. A change made meanwhile may have been written before this write reached the
    /// file: the sector is written again then (QFLAT3).
    async fn write_first_sector(&self) -> Result<(), IoError> {
        loop {
            let sector = self.first_sector.borrow().clone();
            assert!(sector.len() as u64 == SECTOR, "the first sector");
            self.file.write(0, self.arena().copy(&sector)).await?;
            if *self.first_sector.borrow() == sector {
                return Ok(());
            }
        }
    }

    /// Commits end in their order, and the header is among what must not be written as data, once that is known.
    fn assert_consistent(&self) {
        assert!(self.committed.get() <= self.commits.get(), "QCOMMIT2: what has ended has begun");
        assert_eq!(self.metadata.borrow().first(), Some(&0), "QCOUNT3: the header is no data");
    }

    /// Why it is not written any more, if so (QCOMMIT3).
    pub fn failure(&self) -> Option<IoError> {
        self.failed.get()
    }

    /// Refuses changes of an image of which a commit has failed (QCOMMIT3).
    fn check_failed(&self) -> Result<(), IoError> {
        self.failed.get().map_or(Ok(()), Err)
    }

    fn check_writable(&self) -> Result<(), IoError> {
        match self.access {
            Access::ReadOnly => Err(IoError::ReadOnly),
            Access::ReadWrite => self.check_failed(),
        }
    }
}

async fn read_refcount_table(file: &File, header: &Header) -> Result<Root, IoError> {
    let entries = u64::from(header.refcount_table_clusters) * header.cluster_size() / 8;
    Root::read(file, header.refcount_table_offset, entries).await
}

/// Refuses tables that reach behind the file's end, before memory is taken for them.
fn refuse_truncated(end: u64, header: &Header, l1: (u64, u32)) -> Result<(), OpenError> {
    let refcounts = u64::from(header.refcount_table_clusters) * header.cluster_size();
    let tables = [
        ("the L1 table", Extent::new(l1.0, u64::from(l1.1) * 8)),
        ("the refcount table", Extent::new(header.refcount_table_offset, refcounts)),
    ];
    let missing = tables.into_iter().find(|(_, table)| !table.is_empty() && table.end() > end);
    missing.map_or(Ok(()), |(what, table)| Err(OpenError::cut_off(what, table, end)))
}
