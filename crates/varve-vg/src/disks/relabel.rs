//! The label of a disk that has lost both copies, and the descriptions that it has lost with them: from its tail, from its own metadata
//! ring, or from the other disks of its group.
//!
//! Invariants:
//! - RELABEL1. A label is made anew only when neither copy is whole, and not even damaged in a way that a newer program
//!   could read.
//! - RELABEL2. What it says comes from the disk's tail (TAIL3 of `tail.rs`), or from one whole slot of the disk's own ring: the newest,
//!   which was written for this disk, and whose text lists it. If slots of several groups or disks are found, nothing is believed.
//! - RELABEL3. A disk that says nothing of itself is the one that its group misses only if no other one has its size, or was last seen where it
//!   is.

use crate::disks::disk::{
    DATA_OFFSET, Disk, RING_OFFSET, ReadProblem, put_slot, read_label, read_ring, signature, write_label,
};
use crate::disks::tail::read_tail;
use crate::model::{Description, PhysicalVolume};
use crate::scan::scan;
use std::collections::BTreeSet;
use std::fmt;
use uuid::Uuid;
use varve_block::{Arena, Device, Extent, IoError, align_down};
use varve_format::{BLOCK_SIZE, Label, LabelError, RingContent, Slot};

/// Why a label cannot be made anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelabelError {
    /// A copy of the label that a newer program may be able to read (RELABEL1).
    #[error("{0}")]
    Other(ReadProblem),
    /// The ring holds no whole slot.
    #[error("its label is lost, and its metadata ring holds no whole description of a group")]
    NoSlot,
    /// Several labels that the disk may have had (RELABEL2).
    #[error("its label is lost, and its metadata ring holds descriptions of several groups or disks")]
    Ambiguous,
    /// The newest slot makes no sense.
    #[error("its label is lost, and the newest description in its metadata ring does not list it as it is")]
    Unfit,
}

/// Makes a path absolute, as groups have the paths of their disks.
pub type Absolute = fn(&str) -> String;

/// Where it was found what a label was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelSource {
    /// The disk's last MiB.
    Tail,
    /// The disk's own metadata ring.
    Ring,
    /// The other disks of its group, or a backup.
    Group,
}

/// A label that was lost, and what it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLabel {
    /// What the label must have said.
    pub label: Label,
    /// The group's name; none if it belongs to no group.
    pub group: Option<String>,
    /// The version of the group's description that says so.
    pub sequence: u64,
    /// Where that was found.
    pub found_in: LabelSource,
    /// The version that its ring has lost with it, if so.
    slot: Option<Slot>,
}

impl fmt::Display for LabelSource {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        form.write_str(match self {
            Self::Tail => "its last MiB",
            Self::Ring => "its metadata ring",
            Self::Group => "the rest of its group",
        })
    }
}

/// What the lost label of `device` said; `None` if a copy of it is whole, and its ring holds a description. Writes nothing.
pub async fn find_label(device: &Device, arena: &Arena) -> Result<Option<FoundLabel>, RelabelError> {
    let label = match read_label(device, arena).await {
        Ok((label, _)) => Some(label),
        Err(ReadProblem::NoLabel | ReadProblem::Label(LabelError::Absent | LabelError::Checksum)) => None,
        Err(problem) => return Err(RelabelError::Other(problem)), // RELABEL1
    };
    let size = label.map_or(device.shape().size, |label| label.size);
    let Some(tail) = read_tail(device, size, arena).await else {
        return if label.is_some() { Ok(None) } else { by_ring(device, arena).await.map(Some) };
    };
    let newest = newest_in_ring(device, &label.unwrap_or(tail.label), arena).await;
    if let Some(label) = label {
        let is_same = (label.pv, label.vg) == (tail.label.pv, tail.label.vg);
        if !is_same || newest.is_some() || tail.slot.is_none() {
            return Ok(None);
        }
    }
    let text = tail.slot.as_ref().and_then(|slot| Description::decode(&slot.text).ok());
    let sequence = tail.slot.as_ref().map_or(0, |slot| slot.sequence).max(newest.unwrap_or(0));
    Ok(Some(FoundLabel {
        label: label.unwrap_or(tail.label),
        group: text.map(|text| text.group.name),
        sequence,
        found_in: LabelSource::Tail,
        slot: tail.slot.filter(|slot| newest.is_none_or(|newest| newest < slot.sequence)),
    }))
}

/// What the ring of a disk without a label says that this was (RELABEL2).
async fn by_ring(device: &Device, arena: &Arena) -> Result<FoundLabel, RelabelError> {
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
    Ok(found)
}

/// The number of the newest version in the ring that `label` names.
async fn newest_in_ring(device: &Device, label: &Label, arena: &Arena) -> Option<u64> {
    let vg = label.vg.filter(|_| label.ring.end() <= device.shape().size)?;
    let bytes = read_ring(device, label.ring, arena).await;
    RingContent::find(&bytes, label.ring, vg, label.pv).newest().map(|placed| placed.slot.sequence)
}

/// Which of `unknown` disks, that say nothing of themselves, are those that the group of `text` misses (RELABEL3): each with its place in
/// `unknown`. `missing` are their ids; `slots` the version that each is to hold, if any.
pub fn find_by_group(
    text: &Description,
    missing: &[Uuid],
    (unknown, absolute): (&[Disk], Absolute),
    slot: impl Fn(Uuid) -> Option<Slot>,
) -> Vec<(usize, FoundLabel)> {
    let entries = || text.physical_volumes.iter().filter(|pv| missing.contains(&pv.id));
    let is_as_large =
        |disk: &Disk, pv: &PhysicalVolume| align_down(disk.device.shape().size, BLOCK_SIZE) == pv.size;
    let of = |pv: &PhysicalVolume| {
        let fits: Vec<usize> = (0..unknown.len()).filter(|place| is_as_large(&unknown[*place], pv)).collect();
        let is_alone = entries().filter(|other| other.size == pv.size).count() == 1;
        match fits.as_slice() {
            [one] if is_alone => Some(*one),
            several => several.iter().copied().find(|place| absolute(&unknown[*place].path) == pv.path),
        }
    };
    assert!(
        missing.iter().all(|id| entries().any(|pv| pv.id == *id)),
        "RELABEL3: the group misses its own disks"
    );
    let found = entries().filter_map(|pv| {
        let label = label_for(text, pv)?;
        let (group, sequence) = (Some(text.group.name.clone()), text.group.sequence);
        Some((
            of(pv)?,
            FoundLabel { label, group, sequence, found_in: LabelSource::Group, slot: slot(pv.id) },
        ))
    });
    found.collect()
}

/// The labels that `disks` have lost, as far as that is known, each with its disk's place in `disks`: by the disks themselves, and by
/// the groups of others of `disks` (RELABEL3). A disk that holds something else now is not looked for in a group. Writes nothing.
pub async fn find_labels(disks: &[Disk], absolute: Absolute, arena: &Arena) -> Vec<(usize, FoundLabel)> {
    let (mut found, mut labelled, mut blank) = (Vec::new(), Vec::new(), Vec::new());
    for (place, disk) in disks.iter().enumerate() {
        match find_label(&disk.device, arena).await {
            Ok(Some(label)) => found.push((place, label)),
            Ok(None) => labelled.push(disk.clone()),
            Err(RelabelError::Other(_)) => {}
            Err(_) if matches!(signature(&disk.device, arena).await, Ok(None)) => blank.push(place),
            Err(_) => {}
        }
    }
    if blank.is_empty() {
        return found; // Only RELABEL3 asks what groups miss.
    }
    let unknown: Vec<Disk> = blank.iter().map(|place| disks[*place].clone()).collect();
    for open in scan(labelled, arena).await.groups {
        let (text, missing) = (open.group().description(), open.newly_missing());
        let of_group = find_by_group(text, &missing, (&unknown, absolute), |pv| Some(open.slot_for(pv)));
        found.extend(of_group.into_iter().map(|(place, label)| (blank[place], label)));
    }
    assert!(found.iter().all(|(place, _)| *place < disks.len()), "RELABEL3: each is one of the disks");
    found
}

/// Writes a label that was found to `disk`, and first the version that its ring has lost.
pub async fn write_found(disk: &Disk, found: &FoundLabel, arena: &Arena) -> Result<(), IoError> {
    if let (Some(slot), Some(vg)) = (&found.slot, found.label.vg) {
        let ring = found.label.ring;
        assert_eq!((slot.vg, slot.pv), (vg, found.label.pv), "RELABEL2");
        let bytes = read_ring(&disk.device, ring, arena).await;
        let content = RingContent::find(&bytes, ring, vg, found.label.pv);
        let newest = content.newest().map(|placed| placed.extent);
        put_slot(&disk.device, ring, newest, slot, arena).await?;
        disk.device.flush().await?;
    }
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
    let label = label_for(&description, entry)?;
    let fits = label.size <= size && description.group.id == slot.vg;
    let (group, sequence) = (Some(description.group.name.clone()), slot.sequence);
    fits.then_some(FoundLabel { label, group, sequence, found_in: LabelSource::Ring, slot: None })
}

/// The label of the disk that `text` calls `entry`, if it can be one.
pub(crate) fn label_for(text: &Description, entry: &PhysicalVolume) -> Option<Label> {
    let label = Label {
        generation: 1,
        pv: entry.id,
        vg: Some(text.group.id),
        size: entry.size,
        ring: Extent::checked(RING_OFFSET, entry.data_offset.checked_sub(RING_OFFSET)?)?,
        data_offset: entry.data_offset,
        created: text.group.created,
        nonce: Uuid::nil(),
    };
    label.check().is_ok().then_some(label)
}
