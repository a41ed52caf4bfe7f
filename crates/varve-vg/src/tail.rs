//! The second copy of a disk's metadata, its tail: its label, and its group's newest descriptions, in the last MiB of what is managed.
//!
//! While the disk is in use it is only written. What it says is believed when the first copy is lost, and a person has the disk repaired.
//!
//! Invariants:
//! - TAIL1. It lies behind the last extent that the group has on the disk. Where these reach further, the disk has no tail.
//! - TAIL2. A version that was acknowledged stands in the tail of each disk that it counts on, unless the tail cannot be written: it is
//!   written beside the newest one there, and durable with the one in the ring.
//! - TAIL3. A tail is believed only if its label lies in the last block of what is managed by its own account, that is inside of the
//!   device, and TAIL1 holds by the description that lies there: a partition may end with its disk.

use crate::disk::{index, put_slot, read_ring};
use crate::injected_bug::{InjectedBug, has};
use crate::model::Group;
use uuid::Uuid;
use varve_block::{Arena, Device, Durability, Extent, IoError, MIB, align_down};
use varve_format::{BLOCK_SIZE, Label, Placed, RingContent, Slot, text_length_max};

/// Bytes at the end of what is managed of a disk that are kept for its tail.
pub const TAIL_SIZE: u64 = MIB;

/// The tail of a disk that has one.
pub(crate) struct Tail {
    ring: Extent,
    /// The newest version in it: where, and which.
    newest: Option<(Extent, Uuid)>,
    label: Option<Label>,
}

/// Where the versions lie in the tail of a disk of which `size` bytes are managed; its label lies behind them.
fn ring_of(size: u64) -> Option<Extent> {
    let end = align_down(size, BLOCK_SIZE);
    let start = end.checked_sub(TAIL_SIZE)?;
    Some(Extent::between(start, end - BLOCK_SIZE))
}

/// Where the last extent that `group` has on the disk `pv` ends.
fn data_end(group: &Group, pv: Uuid) -> Option<u64> {
    let entry = group.pv_by_id(pv)?;
    Some(entry.data_offset + group.bytes(entry.extents))
}

impl Tail {
    /// The tail of the disk with this label, if the extents of `group` leave room for it (TAIL1), and what it holds now.
    pub(crate) async fn find(device: &Device, label: &Label, group: &Group, arena: &Arena) -> Option<Self> {
        let ring = ring_of(label.size)?;
        if ring.offset < data_end(group, label.pv)? || ring.end() + BLOCK_SIZE > device.shape().size {
            return None;
        }
        let newest = newest_in(device, ring, (group.id(), label.pv), arena).await;
        let newest = newest.map(|placed| (placed.extent, placed.version));
        let label = label_at(device, ring.end(), arena).await;
        Some(Tail { ring, newest, label })
    }

    /// Whether it holds this version and this label.
    pub(crate) fn is_current(&self, version: Uuid, label: &Label) -> bool {
        let is_newest = self.newest.is_some_and(|(_, newest)| newest == version);
        is_newest && self.label.is_some_and(|known| Label { nonce: label.nonce, ..known } == *label)
    }

    /// Writes a version; the caller makes it durable (TAIL2). A text that has no room is left out.
    pub(crate) async fn put(&mut self, device: &Device, slot: &Slot, arena: &Arena) -> Result<(), IoError> {
        if has(InjectedBug::SkipTail) || slot.text.len() as u64 > text_length_max(self.ring.length) {
            return Ok(());
        }
        let newest = self.newest.map(|(extent, _)| extent);
        let extent = put_slot(device, self.ring, newest, slot, arena).await?;
        self.newest = Some((extent, slot.version()));
        Ok(())
    }

    /// Writes its label, durably.
    pub(crate) async fn put_label(
        &mut self,
        device: &Device,
        label: &Label,
        arena: &Arena,
    ) -> Result<(), IoError> {
        let (at, block) = (self.ring.end(), arena.copy(&label.encode(self.ring.end())));
        device.write(at, block, Durability::Volatile).await?;
        device.flush().await?;
        self.label = Some(*label);
        Ok(())
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
    let fits = data_end(&group, label.pv).is_some_and(|end| end <= ring.offset);
    fits.then_some(Found { label, slot: Some(slot) })
}

/// Wipes the tail of a disk that is to be one no more, if it has one by its label.
pub(crate) async fn wipe_tail(device: &Device, label: &Label, arena: &Arena) -> Result<(), IoError> {
    let ring = ring_of(label.size).filter(|ring| ring.end() + BLOCK_SIZE <= device.shape().size);
    let Some(ring) = ring.filter(|ring| ring.offset >= label.data_offset) else { return Ok(()) };
    if label_at(device, ring.end(), arena).await.is_none_or(|found| found.pv != label.pv) {
        return Ok(());
    }
    let options = varve_block::ZeroOptions { unmap: false, ..varve_block::ZeroOptions::default() };
    device.zero(Extent::new(ring.offset, TAIL_SIZE), options).await.map(drop)
}

async fn label_at(device: &Device, address: u64, arena: &Arena) -> Option<Label> {
    let block = device.read(address, arena.take(index(BLOCK_SIZE))).await.ok()?;
    Label::decode(&block, address).ok()
}

async fn newest_in(device: &Device, ring: Extent, (vg, pv): (Uuid, Uuid), arena: &Arena) -> Option<Placed> {
    let bytes = read_ring(device, ring, arena).await;
    RingContent::find(&bytes, ring, vg, pv).newest().cloned()
}
