//! Reading and writing the metadata of one disk: its label and its ring.
//!
//! Invariants:
//! - METADATA1. A disk has at any moment a whole label: its copies are written one after the other, with a flush between.
//! - METADATA2. A slot is written where it does not touch the newest one, and is durable before anything relies on it.

use crate::injected_bug::{InjectedBug, has};
use uuid::Uuid;
use varve_block::{Arena, Buffer, Device, Durability, Extent, IoError, KIB, MIB, align_down};
use varve_format::{
    BLOCK_SIZE, HEAD_LENGTH, LABEL_ADDRESSES, Label, LabelError, RingContent, Signature, Slot, TAIL_LENGTH,
    find_signature, place, slot_length,
};

/// First byte of the metadata ring of a new physical volume.
pub const RING_OFFSET: u64 = 64 * KIB;
/// First byte of the first extent of a new physical volume.
pub const DATA_OFFSET: u64 = MIB;

/// A disk and where it was found.
#[derive(Clone)]
pub struct Disk {
    /// Its path, as shown to users.
    pub path: String,
    /// The disk.
    pub device: Device,
}

/// A labelled disk and the bytes of its ring.
pub(crate) struct Reading {
    pub(crate) disk: Disk,
    pub(crate) label: Label,
    /// Whether a copy of the label has to be written again.
    pub(crate) label_worn: bool,
    ring: Buffer,
}

/// Why a disk cannot be used as the physical volume that it is, or may have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadProblem {
    /// It carries no label.
    #[error("it is no physical volume")]
    NoLabel,
    /// Neither copy of its label is whole.
    #[error("{0}")]
    Label(LabelError),
    /// It is smaller than its label says.
    #[error("it has {size} bytes, and its label says {expected}: it was cut short")]
    Truncated {
        /// Its bytes.
        size: u64,
        /// What the label says.
        expected: u64,
    },
    /// It cannot be addressed in blocks of 4 KiB.
    #[error("its blocks of {0} bytes are larger than 4096")]
    BlockSize(u32),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(IoError),
}

impl Reading {
    /// What the ring says of group `vg`.
    pub(crate) fn find(&self, vg: Uuid) -> RingContent {
        RingContent::find(&self.ring, self.label.ring, vg, self.label.pv)
    }
}

/// Reads label and ring of `disk`.
pub(crate) async fn read(disk: Disk, arena: &Arena) -> Result<Reading, ReadProblem> {
    let (label, label_worn) = read_label(&disk.device, arena).await?;
    let size = disk.device.shape().size;
    if size < label.size {
        return Err(ReadProblem::Truncated { size, expected: label.size });
    }
    let ring = read_ring(&disk.device, label.ring, arena).await;
    Ok(Reading { disk, label, label_worn, ring })
}

/// The label of `device`, and whether one of its copies is not what it should be.
pub(crate) async fn read_label(device: &Device, arena: &Arena) -> Result<(Label, bool), ReadProblem> {
    let shape = device.shape();
    if u64::from(shape.block_size) > BLOCK_SIZE {
        return Err(ReadProblem::BlockSize(shape.block_size));
    }
    if shape.size < LABEL_ADDRESSES[1] + BLOCK_SIZE {
        return Err(ReadProblem::NoLabel);
    }
    let mut copies = Vec::new();
    for address in LABEL_ADDRESSES {
        copies.push(match device.read(address, arena.take(index(BLOCK_SIZE))).await {
            Ok(block) => Label::decode(&block, address).map_err(ReadProblem::Label),
            Err(error) => Err(ReadProblem::Io(error)),
        });
    }
    let newest = copies.iter().filter_map(|copy| copy.as_ref().ok()).max_by_key(|label| label.generation);
    if let Some(newest) = newest {
        let worn = copies.iter().any(|copy| copy.as_ref() != Ok(newest));
        assert!(newest.check().is_ok(), "a label that was decoded is sound");
        return Ok((*newest, worn));
    }
    let absent = ReadProblem::Label(LabelError::Absent);
    let problems = copies.into_iter().filter_map(Result::err);
    Err(problems.into_iter().find(|problem| *problem != absent).unwrap_or(ReadProblem::NoLabel))
}

/// The bytes of the ring; blocks that cannot be read are zeros, so that one bad block costs one slot.
pub(crate) async fn read_ring(device: &Device, ring: Extent, arena: &Arena) -> Buffer {
    if ring.length <= MIB {
        return read_piece(device, ring, arena).await; // Every ring that is made here.
    }
    let mut bytes = arena.take(index(ring.length));
    for (_, piece) in ring.pieces(MIB) {
        let read = read_piece(device, piece, arena).await;
        bytes[index(piece.offset - ring.offset)..][..read.len()].copy_from_slice(&read);
    }
    bytes
}

async fn read_piece(device: &Device, piece: Extent, arena: &Arena) -> Buffer {
    assert!(piece.length <= MIB && piece.is_aligned(BLOCK_SIZE), "LABEL3: {piece:?}");
    if let Ok(read) = device.read(piece.offset, arena.take(index(piece.length))).await {
        return read;
    }
    let mut bytes = arena.take_zeroed(index(piece.length));
    for (_, block) in piece.pieces(BLOCK_SIZE) {
        match device.read(block.offset, arena.take(index(block.length))).await {
            Ok(read) => bytes[index(block.offset - piece.offset)..][..read.len()].copy_from_slice(&read),
            Err(_) => tracing::warn!(extent = ?block, "a block of the metadata ring cannot be read"),
        }
    }
    bytes
}

/// Writes both copies of `label`: METADATA1. The newest whole copy is durable, and the last to be overwritten, so that after a
/// crash the label is this one, or what it was.
pub(crate) async fn write_label(device: &Device, label: &Label, arena: &Arena) -> Result<(), IoError> {
    assert!(label.size <= device.shape().size, "a label does not promise more than there is");
    let mut generations = Vec::with_capacity(LABEL_ADDRESSES.len());
    for address in LABEL_ADDRESSES {
        let block = device.read(address, arena.take(index(BLOCK_SIZE))).await;
        let known = block.ok().and_then(|block| Label::decode(&block, address).ok());
        generations.push(known.map(|label| label.generation));
    }
    let [first, second] = LABEL_ADDRESSES;
    device.flush().await?; // A killed process may have left the newest copy in the disk's cache.
    for address in if generations[1] > generations[0] { [first, second] } else { [second, first] } {
        let block = arena.copy(&label.encode(address));
        device.write(address, block, Durability::Volatile).await?;
        device.flush().await?;
    }
    Ok(())
}

/// Writes `slot` into `ring` beside the newest slot, and returns where it is: METADATA2. The caller makes it durable.
pub(crate) async fn put_slot(
    device: &Device,
    ring: Extent,
    newest: Option<Extent>,
    slot: &Slot,
    arena: &Arena,
) -> Result<Extent, IoError> {
    let beside = if has(InjectedBug::OverwriteNewest) { None } else { newest };
    let extent = place(ring, beside, slot_length(slot.text.len()));
    let bytes = arena.copy(&slot.encode(extent.offset));
    assert!(
        ring.contains(extent) && bytes.len() as u64 == extent.length,
        "METADATA2: {extent:?} in {ring:?}"
    );
    device.write(extent.offset, bytes, Durability::Volatile).await?;
    Ok(extent)
}

/// What `device` holds that is not Varve's, if anything is recognised.
pub async fn signature(device: &Device, arena: &Arena) -> Result<Option<Signature>, IoError> {
    let size = device.shape().size;
    let block = u64::from(device.shape().block_size);
    let (head_length, tail_length) = (HEAD_LENGTH.min(size), align_down(TAIL_LENGTH.min(size), block));
    assert!(head_length <= size && tail_length <= size && tail_length.is_multiple_of(block));
    let head = read_bytes(device, 0, head_length, arena).await?;
    let tail = read_bytes(device, size - tail_length, tail_length, arena).await?;
    Ok(find_signature(&head, &tail, size))
}

/// Reads up to `length` bytes from `offset` on, as far as the device goes, in whole blocks.
async fn read_bytes(device: &Device, offset: u64, length: u64, arena: &Arena) -> Result<Buffer, IoError> {
    assert!(offset + length <= device.shape().size);
    device.read(offset, arena.take(index(length))).await
}

pub(crate) fn index(length: u64) -> usize {
    usize::try_from(length).expect("metadata is shorter than the address space")
}
