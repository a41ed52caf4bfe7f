//! What is known of a rollback under way.

use crate::ranges::Ranges;
use std::cell::Cell;
use varve_block::Extent;
use varve_format::store::Entry;

/// What the log says of a rollback under way.
pub(in crate::snapshot) struct Rollback {
    /// The target.
    pub snapshot: u64,
    /// The id of the first snapshot of after the instant.
    pub boundary: u64,
    /// Bytes of the target.
    pub target_size: u64,
    /// Bytes of the origin, as far as they are known: what is beyond the target shows zeros (ROLLBACK7).
    pub size: u64,
    pub(super) restored: Ranges,
    /// How many requests came since the beginning, more or less.
    pub(super) requests: Cell<u64>,
}

impl Rollback {
    /// A rollback to snapshot `snapshot`, of `target_size` bytes, of an origin of `origin_size` bytes.
    pub(in crate::snapshot) fn new(snapshot: u64, boundary: u64, target_size: u64, origin_size: u64) -> Self {
        assert!(boundary > snapshot, "ENTRY5: the boundary comes behind the target");
        let size = target_size.max(origin_size);
        let (restored, requests) = (Ranges::default(), Cell::new(0));
        Self { snapshot, boundary, target_size, size, restored, requests }
    }

    /// The origin has so many bytes from now on.
    pub(in crate::snapshot) fn resize_origin(&mut self, bytes: u64) {
        self.size = self.target_size.max(bytes);
        assert!(self.size >= bytes, "ROLLBACK7: all of the origin is pending or restored");
    }

    /// Notes that `extent` is restored.
    pub(in crate::snapshot) fn restore(&mut self, extent: Extent) {
        self.restored.insert(extent);
    }

    /// What of `extent` is not restored.
    pub(in crate::snapshot) fn unrestored(&self, extent: Extent) -> Vec<Extent> {
        assert!(self.size >= self.target_size, "ROLLBACK7: all that the target shows is pending or restored");
        let inside = extent.intersect(Extent::new(0, self.size));
        inside.map(|inside| self.restored.gaps(inside)).unwrap_or_default()
    }

    /// How many entries say what is restored.
    pub(in crate::snapshot) fn marks(&self) -> usize {
        self.restored.count()
    }

    /// The shortest log that leads to this state.
    pub(in crate::snapshot) fn entries(&self) -> impl Iterator<Item = Entry> {
        let Rollback { snapshot, boundary, .. } = *self;
        let restored = self.restored.iter().map(move |extent| Entry::Restored { snapshot, extent });
        std::iter::once(Entry::RollbackBegun { snapshot, boundary }).chain(restored)
    }
}
