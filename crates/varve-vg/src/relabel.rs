//! The label of a disk that has lost both copies, from what the disk's own metadata ring says.
//!
//! Invariants:
//! - RELABEL1. A label is made anew only when neither copy is whole, and not even damaged in a way that a newer program
//!   could read.
//! - RELABEL2. What it says comes from one whole slot of the disk's own ring: the newest, which was written for this disk,
//!   and whose text lists it. If slots of several groups or disks are found, nothing is believed.

use crate::create::{DATA_OFFSET, RING_OFFSET};
use crate::disk::{Disk, ReadProblem, read_label, read_ring, write_label};
use crate::model::{Description, PhysicalVolume};
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_block::{Arena, Device, Extent, IoError, align_down};
use varve_format::{BLOCK_SIZE, Label, LabelError, Slot};

/// Why a label cannot be made anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelabelError {
    /// RELABEL1.
    #[error("{0}")]
    Other(ReadProblem),
    /// The ring holds no whole slot.
    #[error("its label is lost, and its metadata ring holds no whole description of a group")]
    NoSlot,
    /// RELABEL2.
    #[error("its label is lost, and its metadata ring holds descriptions of several groups or disks")]
    Ambiguous,
    /// The newest slot makes no sense.
    #[error("its label is lost, and the newest description in its metadata ring does not list it as it is")]
    Unfit,
}

/// A label that was lost, and what it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLabel {
    /// What the label must have said.
    pub label: Label,
    /// The group's name.
    pub group: String,
    /// The version of the group's description that says so.
    pub sequence: u64,
}

/// What the lost label of `device` said; `None` if a copy of it is whole. Writes nothing.
pub async fn find_label(device: &Device, arena: &Arena) -> Result<Option<FoundLabel>, RelabelError> {
    match read_label(device, arena).await {
        Ok(_) => return Ok(None),
        Err(ReadProblem::NoLabel | ReadProblem::Label(LabelError::Absent | LabelError::Checksum)) => {}
        Err(problem) => return Err(RelabelError::Other(problem)), // RELABEL1
    }
    let end = DATA_OFFSET.min(align_down(device.shape().size, BLOCK_SIZE));
    if end <= RING_OFFSET {
        return Err(RelabelError::NoSlot);
    }
    let area = Extent::between(RING_OFFSET, end);
    let bytes = read_ring(device, area, arena).await;
    let slots = slots_in(&bytes, area);
    let owners: BTreeSet<(Uuid, Uuid)> = slots.iter().map(|slot| (slot.vg, slot.pv)).collect();
    let newest = slots.into_iter().max_by_key(|slot| slot.sequence).ok_or(RelabelError::NoSlot)?;
    if owners.len() > 1 {
        return Err(RelabelError::Ambiguous);
    }
    let found = label_of(&newest, device.shape().size).ok_or(RelabelError::Unfit)?;
    assert!(found.label.pv == newest.pv && found.label.vg == Some(newest.vg), "RELABEL2");
    Ok(Some(found))
}

/// Writes a label that was found to `disk`.
pub async fn write_found(disk: &Disk, found: &FoundLabel, arena: &Arena) -> Result<(), IoError> {
    write_label(&disk.device, &found.label, arena).await
}

/// The whole slots in `bytes`, which are `area`'s.
fn slots_in(bytes: &[u8], area: Extent) -> Vec<Slot> {
    let block = usize::try_from(BLOCK_SIZE).expect("a block is small");
    let starts = (0..bytes.len()).step_by(block);
    starts.filter_map(|start| Slot::decode(&bytes[start..], area.offset + start as u64).ok()).collect()
}

fn label_of(slot: &Slot, size: u64) -> Option<FoundLabel> {
    let description = Description::decode(&slot.text).ok()?;
    let entry: &PhysicalVolume = description.physical_volumes.iter().find(|pv| pv.id == slot.pv)?;
    let label = Label {
        generation: 1,
        pv: slot.pv,
        vg: Some(slot.vg),
        size: entry.size,
        ring: Extent::checked(RING_OFFSET, entry.data_offset.checked_sub(RING_OFFSET)?)?,
        data_offset: entry.data_offset,
        created: description.group.created,
        nonce: Uuid::nil(),
    };
    let fits = label.check().is_ok() && label.size <= size && description.group.id == slot.vg;
    fits.then(|| FoundLabel { label, group: description.group.name.clone(), sequence: slot.sequence })
}
