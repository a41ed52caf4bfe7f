//! Making a disk a physical volume, and giving it up.
//!
//! Invariant CREATE1: what a disk holds is destroyed only when nothing was recognised on it, or the caller insists. What may
//! not be destroyed even then (a disk of a group in use) the caller knows.

pub use crate::disks::disk::{DATA_OFFSET, RING_OFFSET, signature};

use crate::disks::disk::{Disk, ReadProblem, read_label, write_label};
use crate::disks::free_disk::FreeDisk;
use crate::disks::relabel::{LabelSource, find_label};
use crate::disks::tail::wipe_tail;
use crate::size::format_size;
use uuid::Uuid;
use varve_block::{Access, Arena, Device, Extent, IoError, UnixTime, ZeroOptions, align_down};
use varve_format::{BLOCK_SIZE, Label, LabelError, Signature, TAIL_LENGTH};

/// What a new physical volume is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLabel {
    /// Its id: new.
    pub id: Uuid,
    /// When it is made.
    pub created: UnixTime,
    /// Whether what the disk holds may be destroyed.
    pub overwrite: bool,
}

/// Why a disk cannot be made a physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateProblem {
    /// It holds something else.
    #[error("something is on it already: {} (at byte {})", .0.name, .0.offset)]
    Foreign(Signature),
    /// It is a physical volume of a group.
    #[error("it is a physical volume of the group {0}")]
    InGroup(Uuid),
    /// It is a physical volume of no group.
    #[error("it is a physical volume already")]
    PhysicalVolume,
    /// It has a damaged label, or one of a newer program.
    #[error("it has a label: {0}")]
    Label(LabelError),
    /// It is a physical volume that has lost its label.
    #[error("its label is lost; by {found_in} it is the physical volume {pv}")]
    LabelLost {
        /// Which.
        pv: Uuid,
        /// What says so.
        found_in: LabelSource,
    },
    /// It has no room for an extent.
    #[error("it has {}; a physical volume needs more than 1 MiB", format_size(*.0))]
    TooSmall(u64),
    /// Its blocks are too large.
    #[error("its blocks of {0} bytes are larger than 4096")]
    BlockSize(u32),
    /// It may not be written.
    #[error("it is read-only")]
    ReadOnly,
    /// It cannot be read or written.
    #[error("{0}")]
    Io(IoError),
}

impl CreateProblem {
    /// Whether insisting (`overwrite`) helps.
    pub fn can_be_overruled(&self) -> bool {
        match self {
            Self::Foreign(_)
            | Self::InGroup(_)
            | Self::PhysicalVolume
            | Self::Label(_)
            | Self::LabelLost { .. } => true,
            Self::TooSmall(_) | Self::BlockSize(_) | Self::ReadOnly | Self::Io(_) => false,
        }
    }
}

impl From<IoError> for CreateProblem {
    fn from(error: IoError) -> Self {
        match error {
            IoError::ReadOnly => Self::ReadOnly,
            error => Self::Io(error),
        }
    }
}

/// Looks whether `device` can be made a physical volume; writes nothing.
pub async fn examine(device: &Device, overwrite: bool, arena: &Arena) -> Result<(), CreateProblem> {
    let shape = device.shape();
    if u64::from(shape.block_size) > BLOCK_SIZE {
        return Err(CreateProblem::BlockSize(shape.block_size));
    }
    if align_down(shape.size, BLOCK_SIZE) <= DATA_OFFSET {
        return Err(CreateProblem::TooSmall(shape.size));
    }
    if shape.access == Access::ReadOnly {
        return Err(CreateProblem::ReadOnly);
    }
    if overwrite {
        return Ok(());
    }
    match read_label(device, arena).await {
        Ok((Label { vg: Some(vg), .. }, _)) => return Err(CreateProblem::InGroup(vg)),
        Ok(_) => return Err(CreateProblem::PhysicalVolume),
        Err(ReadProblem::Label(error)) => return Err(CreateProblem::Label(error)),
        Err(ReadProblem::Io(error)) => return Err(CreateProblem::Io(error)),
        Err(_) => {}
    }
    if let Ok(Some(found)) = find_label(device, arena).await {
        return Err(CreateProblem::LabelLost { pv: found.label.pv, found_in: found.found_in });
    }
    match signature(device, arena).await? {
        Some(signature) => Err(CreateProblem::Foreign(signature)),
        None => Ok(()),
    }
}

/// Makes `disk` a physical volume of no group. Its first and last MiB are zeroed, so that nothing is left that another
/// program would take for its own.
pub async fn create(disk: Disk, new: NewLabel, arena: &Arena) -> Result<FreeDisk, CreateProblem> {
    examine(&disk.device, new.overwrite, arena).await?; // CREATE1
    assert!(!new.id.is_nil(), "a physical volume has an id");
    let size = align_down(disk.device.shape().size, BLOCK_SIZE);
    let label = Label {
        generation: 1,
        pv: new.id,
        vg: None,
        size,
        ring: Extent::between(RING_OFFSET, DATA_OFFSET),
        data_offset: DATA_OFFSET,
        created: new.created,
        nonce: Uuid::nil(),
    };
    wipe(&disk.device, new.overwrite).await?;
    write_label(&disk.device, &label, arena).await?;
    Ok(FreeDisk { disk, label })
}

/// Makes the disk of a physical volume an empty disk again.
pub async fn remove(disk: &Disk, arena: &Arena) -> Result<(), IoError> {
    if let Ok((label, _)) = read_label(&disk.device, arena).await {
        wipe_tail(&disk.device, &label, arena).await?; // First: nothing makes a label again from what is left.
    }
    wipe(&disk.device, false).await
}

/// Zeroes everything before the data, label first; with `tail` also the last MiB, where other programs sign.
async fn wipe(device: &Device, tail: bool) -> Result<(), IoError> {
    let size = align_down(device.shape().size, BLOCK_SIZE);
    let options = ZeroOptions { unmap: false, ..ZeroOptions::default() };
    // Of a disk that was cut short there may be less than its labels took.
    let labels = size.min(2 * BLOCK_SIZE);
    for extent in [Extent::between(0, labels), Extent::between(labels, DATA_OFFSET.min(size))] {
        if !extent.is_empty() {
            device.zero(extent, options).await?;
            device.flush().await?;
        }
    }
    if tail {
        let start = align_down(device.shape().size.saturating_sub(TAIL_LENGTH), BLOCK_SIZE).max(DATA_OFFSET);
        device.zero(Extent::between(start, size), options).await?;
    }
    device.flush().await?;
    Ok(())
}
