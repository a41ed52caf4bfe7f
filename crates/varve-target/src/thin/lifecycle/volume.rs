//! A volume of a pool in memory: its root, its size, its identity, and whether others may hold its nodes too.

use super::super::maps::bounds::Bounds;
use super::super::maps::ref_counts::RefCounts;
use super::super::maps::runs::Runs;
use crate::pdata::{Pages, Sharing, Span, Stop, Tree};
use crate::reader_epochs::ReaderEpochs;
use std::cell::{Cell, RefCell};
use varve_block::{Device, Gate, IoError};
use varve_format::pdata::node::{Entries, Key, Value};
use varve_format::pdata::{Block, BlockError, BlockRun};
use varve_format::thin::{Mapping, Origin, PART_SIZE, VolumeFlags, VolumeRows};

/// A volume.
pub(in crate::thin) struct Volume {
    pub(in crate::thin) id: u64,
    pub(in crate::thin) name: RefCell<String>,
    pub(in crate::thin) bytes: Cell<u64>,
    pub(in crate::thin) tree: Cell<Tree>,
    /// Generation of the newest node or block that another volume may hold too (THIN7).
    pub(in crate::thin) last_clone: Cell<u64>,
    /// Parts mapped to data.
    pub(in crate::thin) mapped: Cell<u64>,
    pub(in crate::thin) flags: Cell<VolumeFlags>,
    /// The volume that it was cloned from; after a rollback, the one that was put aside then.
    pub(in crate::thin) source: Cell<u64>,
    pub(in crate::thin) created: u64,
    /// The volume that it is a snapshot of, if it is one.
    pub(in crate::thin) snapshot_of: Option<u64>,
    /// Whether the map of volumes says something else.
    pub(in crate::thin) dirty: Cell<bool>,
    /// Changes by its client; closed while it is cloned or rolled back.
    pub(in crate::thin) gate: Gate,
    /// Its external origin, if and only if the flags say that it has one.
    pub(in crate::thin) over: Cell<Option<Origin>>,
    /// The origin as a device, once it is attached.
    pub(in crate::thin) origin: RefCell<Option<Device>>,
    /// Reads of the origin.
    pub(in crate::thin) readers: ReaderEpochs,
    /// So many bytes from its start on show nothing of the origin any more.
    pub(in crate::thin) flattened: Cell<u64>,
    /// Of one that is being removed: the first part that is not reclaimed.
    pub(in crate::thin) removed: Cell<u64>,
}

impl Volume {
    pub(in crate::thin) fn from_rows(rows: VolumeRows, dirty: bool) -> Self {
        Self {
            id: rows.volume,
            name: RefCell::new(rows.name),
            bytes: Cell::new(rows.bytes),
            tree: Cell::new(Tree { root: rows.root }),
            last_clone: Cell::new(rows.since),
            mapped: Cell::new(rows.mapped),
            flags: Cell::new(rows.flags),
            source: Cell::new(rows.source),
            created: rows.created,
            snapshot_of: rows.snapshot_of,
            dirty: Cell::new(dirty),
            gate: Gate::default(),
            over: Cell::new(rows.origin),
            origin: RefCell::new(None),
            readers: ReaderEpochs::default(),
            flattened: Cell::new(0),
            removed: Cell::new(0),
        }
    }

    pub(in crate::thin) fn rows(&self) -> VolumeRows {
        VolumeRows {
            volume: self.id,
            root: self.tree.get().root,
            since: self.last_clone.get(),
            bytes: self.bytes.get(),
            mapped: self.mapped.get(),
            flags: self.flags.get(),
            source: self.source.get(),
            created: self.created,
            snapshot_of: self.snapshot_of,
            origin: self.over.get(),
            name: self.name.borrow().clone(),
        }
    }

    pub(in crate::thin) fn has(&self, flag: u32) -> bool {
        self.flags.get().has(flag)
    }

    /// The volume that a snapshot of this one is a snapshot of.
    pub(in crate::thin) fn owner(&self) -> u64 {
        assert_ne!(self.snapshot_of, Some(self.id), "VOLUME3: a snapshot is one of another volume");
        self.snapshot_of.unwrap_or(self.id)
    }

    /// Number of parts.
    pub(in crate::thin) fn parts(&self) -> u64 {
        self.bytes.get() / PART_SIZE
    }

    /// Of one that is being removed: bytes that are reclaimed.
    pub(in crate::thin) fn removed_bytes(&self) -> u64 {
        self.removed.get().min(self.parts()) * PART_SIZE
    }

    /// Number of parts, from its start on, in which what is not mapped is its origin's.
    pub(in crate::thin) fn origin_parts(&self) -> u64 {
        self.over.get().map_or(0, |origin| origin.bytes / PART_SIZE)
    }

    /// THIN6: what shows where nothing is mapped, and in how many bytes from the start on.
    pub(in crate::thin) fn shown(&self) -> Result<Option<(Device, u64)>, IoError> {
        let Some(over) = self.over.get() else { return Ok(None) };
        let device = self.origin.borrow().clone().ok_or(IoError::Gone)?;
        assert!(over.bytes <= device.shape().size, "an origin was compared when it was attached");
        Ok(Some((device, over.bytes)))
    }

    /// At most so many bytes of its origin show.
    pub(in crate::thin) fn show_at_most(&self, bytes: u64) {
        assert!(bytes > 0, "ORIGIN1");
        let less = |over: Origin| Origin { bytes: over.bytes.min(bytes), ..over };
        self.over.set(self.over.get().map(less));
    }

    /// It has the origin of `other` from now on, or none.
    pub(in crate::thin) fn set_origin_of(&self, other: &Volume) {
        let lies_over = other.over.get().is_some();
        self.flags.set(self.flags.get().with(VolumeFlags::ORIGIN, lies_over));
        assert_eq!(lies_over, other.has(VolumeFlags::ORIGIN), "VOLUME1");
        self.over.set(other.over.get());
        self.origin.borrow_mut().clone_from(&other.origin.borrow());
        self.flattened.set(0);
        self.dirty.set(true);
    }

    /// It has no origin from now on.
    pub(in crate::thin) fn detach(&self) {
        assert_eq!(self.over.get().is_some(), self.has(VolumeFlags::ORIGIN), "VOLUME1");
        self.flags.set(self.flags.get().with(VolumeFlags::ORIGIN, false));
        self.over.set(None);
        *self.origin.borrow_mut() = None;
        self.dirty.set(true);
    }

    /// The map is another one now.
    pub(in crate::thin) fn set_tree(&self, tree: Tree) {
        self.tree.set(tree);
        self.dirty.set(true);
    }

    /// Whether so many parts can have been mapped to data: the entries of a volume say how many are.
    pub(in crate::thin) fn can_count(&self, unmapped: u64) -> Result<(), Stop> {
        if unmapped <= self.mapped.get() {
            return Ok(());
        }
        let why = "more is mapped than the entries of the volume say";
        Err(Stop::Damaged(self.tree.get().root.block(), BlockError::Invalid(why)))
    }

    /// Counts parts that were mapped to data, and others that no longer are.
    pub(in crate::thin) fn count(&self, mapped: u64, unmapped: u64) {
        let count = (self.mapped.get() + mapped).checked_sub(unmapped);
        self.mapped.set(count.expect("it was looked whether that can be counted"));
        self.dirty.set(true);
    }

    /// The other holders of what it holds.
    pub(in crate::thin) fn held<'a>(&self, ref_counts: &'a RefCounts, bounds: Bounds) -> Held<'a> {
        Held { ref_counts, last_clone: self.last_clone.get(), bounds }
    }
}

/// The holders of the nodes and blocks of a volume.
pub(in crate::thin) struct Held<'a> {
    pub(in crate::thin) ref_counts: &'a RefCounts,
    pub(in crate::thin) last_clone: u64,
    bounds: Bounds,
}

impl Sharing for Held<'_> {
    fn last_clone(&self) -> u64 {
        self.last_clone
    }

    fn others(&self, pages: &mut Pages, block: Block) -> Result<u64, Stop> {
        self.ref_counts.others(pages, block)
    }

    fn increment(&self, block: Block) {
        self.ref_counts.increment(BlockRun::one(block));
    }

    fn decrement(&self, block: Block) {
        self.ref_counts.decrement(BlockRun::one(block));
    }

    fn increment_entry(&self, key: Key, value: &Value) {
        let mapping = Mapping::decode(key, value).expect("RUNS3: the leaf was believed before it is copied");
        assert!(mapping.birth <= self.last_clone, "EDIT2: what is shared is older than the last clone");
        if let Some(run) = mapping.blocks() {
            self.ref_counts.increment(run);
        }
    }

    /// REFCOUNT4: a volume that released the node lately holds, after a crash, what the node leads to.
    fn replaces(&self, block: Block, entries: &Entries) {
        if !self.ref_counts.were_shared_lately(BlockRun::one(block)) {
            return;
        }
        match entries {
            Entries::Branch(children) => {
                children
                    .iter()
                    .for_each(|child| self.ref_counts.note_decrement(BlockRun::one(child.1.block())));
            }
            Entries::Leaf(entries) => {
                let mapped = entries.iter().filter_map(|(key, value)| Mapping::decode(*key, value).ok());
                mapped
                    .filter_map(|mapping| mapping.blocks())
                    .for_each(|run| self.ref_counts.note_decrement(run));
            }
        }
    }

    fn believe(&self, leaf: &Span) -> Result<(), Stop> {
        Runs::of(leaf, self.bounds).all().map(drop)
    }
}

/// Like [`Held`], for the question whether blocks may be overwritten: what was shared at the last commit still is (REFCOUNT4).
pub(in crate::thin) struct Lately<'a>(pub(in crate::thin) Held<'a>);

impl Sharing for Lately<'_> {
    fn last_clone(&self) -> u64 {
        self.0.last_clone
    }

    fn others(&self, pages: &mut Pages, block: Block) -> Result<u64, Stop> {
        let lately = u64::from(self.0.ref_counts.were_shared_lately(BlockRun::one(block)));
        Ok(self.0.others(pages, block)? + lately)
    }

    fn increment(&self, _: Block) {
        unreachable!("it is only asked");
    }

    fn decrement(&self, _: Block) {
        unreachable!("it is only asked");
    }

    fn increment_entry(&self, _: Key, _: &Value) {
        unreachable!("it is only asked");
    }
}

impl Held<'_> {
    /// Makes sure that [`Held::release`] finds the counts in memory.
    pub(in crate::thin) fn require(&self, pages: &mut Pages, mapping: &Mapping) -> Result<(), Stop> {
        if let Some(run) = mapping.blocks().filter(|_| mapping.birth <= self.last_clone) {
            self.ref_counts.pieces(pages, run)?;
        }
        Ok(())
    }

    /// The volume no longer holds the blocks of `mapping`; frees those that have no other holder. `at_once` is a fault
    /// for tests (THIN5).
    pub(in crate::thin) fn release(&self, pages: &mut Pages, mapping: &Mapping, at_once: bool) {
        assert!(mapping.count > 0, "MAPPING1: {mapping:?}");
        let Some(run) = mapping.blocks() else { return };
        if mapping.birth > self.last_clone {
            return free_run(pages, run, at_once); // EDIT2
        }
        let Ok(pieces) = self.ref_counts.pieces(pages, run) else {
            // What a change needs to know was read before it: only a contradiction puts something else in its place.
            return pages.contradicts(run.first);
        };
        for piece in pieces {
            match piece.others {
                0 => free_run(pages, piece.run, at_once),
                _ => self.ref_counts.decrement(piece.run),
            }
        }
    }
}

fn free_run(pages: &mut Pages, run: BlockRun, at_once: bool) {
    if at_once { pages.free_at_once(run) } else { pages.free_run(run) }
}
