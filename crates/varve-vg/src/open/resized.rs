//! Where the disks of a group end: their labels and tails, brought to what its text says.
//!
//! Invariants:
//! - RESIZE1. A label says of its disk's size what the group's text says, or what an older version in the disk's own ring says: it is
//!   written after the text, and before the change is acknowledged.
//! - RESIZE2. Where a disk ended before, nothing is taken for its tail: that is ended before the label says where the disk ends now.

use super::member::Member;
use crate::disks::disk::Reading;
use crate::disks::tail::{tail_of, wipe_tail};
use crate::injected_bug::{InjectedBug, has};
use crate::model::{Group, PhysicalVolume};
use futures_util::future::join_all;
use varve_block::{Arena, Extent, IoError};
use varve_format::{Label, RingContent, Slot};

/// Whether a disk has the shape that its group's text gives it as `entry`, or had it by an older version, and is large enough
/// (RESIZE1).
pub(super) fn fits(entry: &PhysicalVolume, reading: &Reading, ring: &RingContent) -> bool {
    let label = reading.label;
    let is_so = |entry: &PhysicalVolume| (entry.size, entry.data_offset) == (label.size, label.data_offset);
    let was_so =
        |text: &str| Group::from_text(text).is_ok_and(|group| group.pv_by_id(entry.id).is_some_and(is_so));
    let is_large_enough = entry.size <= reading.disk.device.shape().size;
    let is_behind = || ring.slots.iter().any(|placed| was_so(&placed.slot.text));
    is_so(entry) || entry.data_offset == label.data_offset && is_large_enough && is_behind()
}

/// Lets the labels and tails of `members` be where `group`, as `slot` has it, says that these disks end.
pub(super) async fn fit(
    members: &mut [Member],
    group: &Group,
    slot: &Slot,
    arena: &Arena,
) -> Vec<Result<(), (String, IoError)>> {
    let work = members.iter_mut().map(async |member| {
        let entry = group.pv_by_id(member.pv).filter(|entry| entry.size != member.label.size);
        let Some(entry) = entry.filter(|_| group.counts_on(member.pv)) else { return Ok(()) };
        let ended = member.end_at(entry, group, arena).await;
        ended.map_err(|error| member.failed(error))?;
        member.mend_tail(slot, group, arena).await;
        Ok(())
    });
    join_all(work).await
}

impl Member {
    /// Ends its tail, and lets its label say where the disk ends now (RESIZE2).
    async fn end_at(&mut self, entry: &PhysicalVolume, group: &Group, arena: &Arena) -> Result<(), IoError> {
        assert_eq!(entry.id, self.pv, "a disk stays what it is");
        let mut own = group
            .owned_areas()
            .filter(|area| area.pv == entry.name)
            .map(|area| Extent::new(entry.data_offset + group.bytes(area.start), group.bytes(area.count)));
        // Of a disk that was full to its end no tail was there.
        let is_free = tail_of(self.label.size).is_some_and(|tail| !own.any(|own| own.overlaps(tail)));
        if is_free && !has(InjectedBug::KeepOldTail) {
            wipe_tail(&self.disk.device, &self.label, arena).await?;
        }
        self.forget_tail();
        self.write_label(Label { size: entry.size, ..self.label }, arena).await
    }
}
