//! The second copy of a disk's metadata, its tail: its label, and its group's newest descriptions, in the last MiB of what is managed.
//!
//! While the disk is in use it is only written. What it says is believed when the first copy is lost, and a person has the disk repaired.
//!
//! Invariants:
//! - TAIL1. It is behind the last extent that the group has on the disk. Where these reach further, the disk has no tail.
//! - TAIL2. A version that was acknowledged stands in the tail of each disk that it counts on, unless the tail cannot be written: it is
//!   written beside the newest one there, and durable with the one in the ring.
//! - TAIL3. A tail is believed only if its label is in the last block of what is managed by its own account, that is inside of the
//!   device, and TAIL1 holds by the description that is there: a partition may end with its disk.

use crate::disks::disk::{index, put_slot, read_ring};
use crate::injected_bug::{InjectedBug, has};
use crate::model::Group;
use uuid::Uuid;
use varve_block::{Arena, Device, Durability, Extent, IoError, MIB, ZeroOptions, align_down};
use varve_format::{BLOCK_SIZE, Label, Placed, RingContent, Slot, text_length_max};

/// Bytes at the end of what is managed of a disk that are kept for its tail.
pub const TAIL_SIZE: u64 = MIB;

/// The tail of a disk that has one.
pub(crate) struct Tail {
    ring: Extent,
    newest: Option<Newest>,
    label: Option<Label>,
}

/// The newest version in a tail.
#[derive(Clone, Copy)]
struct Newest {
    extent: Extent,
    version: Uuid,
    sequence: u64,
}

impl Newest {
    fn of(placed: &Placed) -> Self {
        Newest { extent: placed.extent, version: placed.version, sequence: placed.slot.sequence }
    }
}

/// Zeros that take no place away.
const KEPT: ZeroOptions = ZeroOptions { durability: Durability::Volatile, unmap: false, fast: false };

/// Where the versions lie in the tail of a disk of which `size` bytes are managed; its label is behind them.
fn ring_of(size: u64) -> Option<Extent> {
    let end = align_down(size, BLOCK_SIZE);
    let start = end.checked_sub(TAIL_SIZE)?;
    let ring = Extent::between(start, end - BLOCK_SIZE);
    assert!(ring.is_aligned(BLOCK_SIZE), "TAIL3: {ring:?}");
    Some(ring)
}

/// Where the tail of a disk of which `size` bytes are managed is, if it has one.
pub(crate) fn tail_of(size: u64) -> Option<Extent> {
    ring_of(size).map(|ring| Extent::new(ring.offset, TAIL_SIZE))
}

/// How many extents of `extent_size` bytes a disk has beside its tail. One that has no room for an extent beside
/// it has none.
pub(crate) fn extents_beside(size: u64, data_offset: u64, extent_size: u64) -> u64 {
    assert!(extent_size > 0, "GROUP1, TEXT2");
    let room = size.saturating_sub(data_offset);
    let beside = align_down(size, BLOCK_SIZE).saturating_sub(data_offset + TAIL_SIZE) / extent_size;
    if beside > 0 { beside } else { room / extent_size }
}

/// Where the tail of the disk with this label has its versions, if the extents of `group` leave room for it (TAIL1).
fn ring_beside(group: &Group, label: &Label) -> Option<Extent> {
    let ring = ring_of(label.size)?;
    (group.data_of(label.pv)?.end() <= ring.offset).then_some(ring)
}

impl Tail {
    /// The tail of the disk with this label, and what it holds now, if there is room for it.
    pub(crate) async fn find(device: &Device, label: &Label, group: &Group, arena: &Arena) -> Option<Self> {
        let ring = ring_beside(group, label).filter(|ring| ring.end() + BLOCK_SIZE <= device.shape().size)?;
        assert_eq!(label.tail_address(), ring.end(), "TAIL3: its label lies behind its versions");
        let newest = newest_in(device, ring, (group.id(), label.pv), arena).await;
        let label = label_at(device, ring.end(), arena).await;
        Some(Tail { ring, newest: newest.map(|placed| Newest::of(&placed)), label })
    }

    /// Whether the extents that `group` has on the disk `pv` leave room for it still (TAIL1).
    pub(crate) fn is_beside(&self, group: &Group, pv: Uuid) -> bool {
        group.data_of(pv).is_none_or(|data| data.end() <= self.ring.offset)
    }

    fn holds(&self, version: Uuid) -> bool {
        self.newest.is_some_and(|newest| newest.version == version)
    }

    /// Whether it holds this version and this label, but for the nonce.
    pub(crate) fn is_current(&self, version: Uuid, label: &Label) -> bool {
        let is_labelled = self.label.is_some_and(|known| Label { nonce: label.nonce, ..known } == *label);
        self.holds(version) && is_labelled
    }

    /// Brings it to a version and a label, durably.
    pub(crate) async fn bring_to(
        &mut self,
        device: &Device,
        slot: &Slot,
        label: &Label,
        arena: &Arena,
    ) -> Result<(), IoError> {
        let is_held = self.holds(slot.version());
        if !is_held {
            self.put(device, slot, label, arena).await?;
        }
        if is_held && self.label == Some(*label) {
            Ok(())
        } else {
            self.put_label(device, label, arena).await
        }
    }

    /// Writes a version, and the label if there is none; the caller makes them durable (TAIL2). A text that has no room is left out.
    pub(crate) async fn put(
        &mut self,
        device: &Device,
        slot: &Slot,
        label: &Label,
        arena: &Arena,
    ) -> Result<(), IoError> {
        assert_eq!(slot.pv, label.pv, "TAIL2: a version is written for one disk");
        if has(InjectedBug::SkipTail) || slot.text.len() as u64 > text_length_max(self.ring.length) {
            return Ok(());
        }
        // A version that a crash kept from the ring was abandoned, and its number is given again.
        if self.newest.is_some_and(|newest| newest.sequence >= slot.sequence) {
            device.zero(self.ring, KEPT).await?;
            self.newest = None;
        }
        let beside = self.newest.map(|newest| newest.extent);
        let extent = put_slot(device, self.ring, beside, slot, arena).await?;
        self.newest = Some(Newest { extent, version: slot.version(), sequence: slot.sequence });
        match self.label {
            Some(_) => Ok(()),
            None => self.write_label(device, label, arena).await,
        }
    }

    /// Writes its label, durably.
    pub(crate) async fn put_label(
        &mut self,
        device: &Device,
        label: &Label,
        arena: &Arena,
    ) -> Result<(), IoError> {
        self.write_label(device, label, arena).await?;
        device.flush().await.map(drop)
    }

    async fn write_label(&mut self, device: &Device, label: &Label, arena: &Arena) -> Result<(), IoError> {
        assert_eq!(label.tail_address(), self.ring.end(), "TAIL3");
        let block = arena.copy(&label.encode(self.ring.end()));
        device.write(self.ring.end(), block, Durability::Volatile).await?;
        self.label = Some(*label);
        Ok(())
    }

    /// Ends it, durably: its place is to belong to an extent.
    pub(crate) async fn end(&self, device: &Device) -> Result<(), IoError> {
        device.zero(Extent::new(self.ring.end(), BLOCK_SIZE), KEPT).await?;
        device.flush().await.map(drop)
    }
}

/// What the tail of a disk says when nothing else is known of it.
pub(crate) struct Found {
    pub(crate) label: Label,
    /// The newest version of its group.
    pub(crate) slot: Option<Slot>,
}

/// The tail of a disk of which `size` bytes are managed, if it can be believed (TAIL3).
pub(crate) async fn read_tail(device: &Device, size: u64, arena: &Arena) -> Option<Found> {
    let ring = ring_of(size).filter(|ring| ring.end() + BLOCK_SIZE <= device.shape().size)?;
    let label = label_at(device, ring.end(), arena).await?;
    if align_down(label.size, BLOCK_SIZE) != ring.end() + BLOCK_SIZE || label.data_offset > ring.offset {
        return None;
    }
    let Some(vg) = label.vg else { return Some(Found { label, slot: None }) };
    let slot = newest_in(device, ring, (vg, label.pv), arena).await?.slot;
    let group = Group::from_text(&slot.text).ok()?;
    let fits = group.data_of(label.pv).is_some_and(|data| data.end() <= ring.offset); // TAIL3
    fits.then_some(Found { label, slot: Some(slot) })
}

/// Wipes the tail of a disk that is to be one no more, if it has one by its label.
pub(crate) async fn wipe_tail(device: &Device, label: &Label, arena: &Arena) -> Result<(), IoError> {
    let ring = ring_of(label.size).filter(|ring| ring.end() + BLOCK_SIZE <= device.shape().size);
    let Some(ring) = ring.filter(|ring| ring.offset >= label.data_offset) else { return Ok(()) };
    if label_at(device, ring.end(), arena).await.is_none_or(|found| found.pv != label.pv) {
        return Ok(());
    }
    device.zero(Extent::new(ring.offset, TAIL_SIZE), KEPT).await?;
    device.flush().await.map(drop)
}

async fn label_at(device: &Device, address: u64, arena: &Arena) -> Option<Label> {
    let block = device.read(address, arena.take(index(BLOCK_SIZE))).await.ok()?;
    Label::decode(&block, address).ok()
}

async fn newest_in(device: &Device, ring: Extent, (vg, pv): (Uuid, Uuid), arena: &Arena) -> Option<Placed> {
    let bytes = read_ring(device, ring, arena).await;
    RingContent::find(&bytes, ring, vg, pv).newest().cloned()
}
