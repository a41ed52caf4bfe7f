//! The metadata of a pool put aside in a volume of its own, and looked at there as if it were the pool.
//!
//! Everything is put aside that any tool may want of it: superblocks, log, pages of the space map, and every node that the
//! last checkpoint leads to, readable or not. Data is not.

use super::super::{Pool, PoolError, index};
use super::offline::last_checkpoint;
use std::collections::BTreeSet;
use varve_block::{
    Access, Arena, BlockDevice, Buffer, Checked, Clock, Completion, Device, Durability, Extent, Io, IoError,
    Outcome, Shape,
};
use varve_format::pdata::link::Link;
use varve_format::pdata::node::Entries;
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{BackupHeader, PART_SIZE};

/// What would be put aside of the pool on `device`.
pub struct MetadataBackup {
    header: BackupHeader,
}

impl MetadataBackup {
    /// Finds out what belongs to the metadata of the pool on `device`.
    pub async fn find(device: &Device, arena: &Arena, clock: &Clock) -> Result<MetadataBackup, PoolError> {
        let (pool, _) = last_checkpoint(device, arena, clock).await?;
        let blocks = pool.metadata_blocks().await.into_iter().collect();
        Ok(MetadataBackup { header: BackupHeader { pool: pool.id, end_block: pool.end_block.get(), blocks } })
    }

    /// Bytes that it takes.
    pub fn length(&self) -> u64 {
        let blocks = self.header.blocks.len() as u64;
        BackupHeader::head_length(blocks) + blocks * PART_SIZE
    }

    /// Copies it from the pool on `from` to `to`, durably. Blocks that cannot be read become zeros.
    pub async fn copy(&self, from: &Device, to: &Device, arena: &Arena) -> Result<(), IoError> {
        assert!(to.shape().size >= self.length(), "there is room for it");
        let head = self.header.encode();
        let mut at = head.len() as u64;
        to.write(0, arena.copy(&head), Durability::Volatile).await?;
        for block in &self.header.blocks {
            let read = from.read(block.offset(), arena.take(index(PART_SIZE))).await;
            let content = read.unwrap_or_else(|_| arena.take_zeroed(index(PART_SIZE)));
            to.write(at, content.freeze(), Durability::Volatile).await?;
            at += PART_SIZE;
        }
        to.flush().await.map(drop)
    }
}

/// The pool whose metadata was put aside on `device`, without its data: for [`super::super::dump_pool`] and
/// [`super::super::check_pool`].
pub async fn backed_up_pool(device: &Device, arena: &Arena) -> Result<Device, PoolError> {
    let header = device.read(0, arena.take(index(PART_SIZE))).await?;
    let count = BackupHeader::count(&header).map_err(PoolError::Format)?;
    let shorter = PoolError::Misfit("the volume is shorter than what was put aside in it");
    if count > device.shape().size / PART_SIZE {
        return Err(shorter);
    }
    let length = BackupHeader::head_length(count);
    if length + count * PART_SIZE > device.shape().size {
        return Err(shorter);
    }
    assert!(length >= PART_SIZE, "a header is a block");
    let head = device.read(0, arena.take(index(length))).await?;
    let header = BackupHeader::decode(&head).map_err(PoolError::Format)?;
    Ok(Device::new(View { below: device.clone(), start: length, header, arena: arena.clone() }))
}

struct View {
    below: Device,
    /// Where the blocks begin.
    start: u64,
    header: BackupHeader,
    arena: Arena,
}

impl View {
    async fn read(&self, offset: u64, mut buffer: Buffer) -> Outcome {
        let extent = Extent::new(offset, buffer.len() as u64);
        assert!(extent.is_aligned(PART_SIZE), "whole blocks: {extent:?}");
        for (block, piece) in extent.pieces(PART_SIZE) {
            let begin = index(piece.offset - offset);
            let part = &mut buffer[begin..begin + index(piece.length)];
            match self.header.blocks.binary_search(&Block::new(block)) {
                Err(_) => part.fill(0),
                Ok(at) => {
                    let place = self.start + at as u64 * PART_SIZE;
                    part.copy_from_slice(&self.below.read(place, self.arena.take(part.len())).await?);
                }
            }
        }
        Ok(buffer)
    }
}

impl BlockDevice for View {
    fn shape(&self) -> Shape {
        let shape = Shape::new(self.header.end_block.offset(), PART_SIZE as u32);
        Shape { access: Access::ReadOnly, ..shape }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => Completion::pending(self.read(offset, buffer)),
            Io::Flush => Completion::done(),
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } => Completion::failed(IoError::ReadOnly),
        }
    }
}

impl Pool {
    /// Every block that holds metadata, by the last checkpoint.
    async fn metadata_blocks(&self) -> BTreeSet<Block> {
        let (base, end) = (self.base_block(), self.end_block.get());
        assert!(base < end, "POOL4: a pool has space behind its log");
        let mut blocks: BTreeSet<Block> = BlockRun::between(Block::default(), base).blocks().collect();
        let mut group = base;
        while group < end {
            blocks.extend(BlockRun::new(group, PAGE_PLACES.min(end - group)).blocks());
            group = group + GROUP_BLOCKS;
        }
        blocks.extend(self.nodes_below_roots().await);
        blocks
    }

    /// Every block that the last checkpoint leads to as a node, readable or not.
    pub(in crate::thin) async fn nodes_below_roots(&self) -> BTreeSet<Block> {
        let (base, end) = (self.base_block(), self.end_block.get());
        let mut ahead: Vec<Link> = self.volumes.all().values().map(|volume| volume.tree.get().root).collect();
        ahead.extend([self.ref_counts.root().root, self.table.get().root]);
        let mut blocks = BTreeSet::new();
        while let Some(link) = ahead.pop() {
            let block = link.block();
            if block < base || block >= end || !blocks.insert(block) {
                continue;
            }
            if let Ok(Entries::Branch(children)) = self.entries_of(link).await {
                ahead.extend(children.iter().map(|child| child.1));
            }
        }
        assert!(!blocks.contains(&Block::default()), "a superblock is no node");
        blocks
    }
}
