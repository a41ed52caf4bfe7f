//! The file of an image, as a device: behind its end are zeros, and what is beyond what a device can hold is damage.

use crate::fan_out::join_pieces;
use varve_block::{
    Arena, Buffer, Bytes, Completion, Device, Durability, Extent, IoError, LocalFuture, Outcome, ZeroOptions,
    accept_unaligned,
};
use varve_format::qcow2::SECTOR;

/// Bytes moved at once when tables are read or written.
const PIECE: u64 = 1 << 20;

/// The file. Cloning shares it.
#[derive(Clone)]
pub(super) struct File {
    device: Device,
    arena: Arena,
}

impl File {
    pub(super) fn new(device: Device, arena: Arena) -> Self {
        let wide = u64::from(device.shape().block_size) > SECTOR;
        let device = if wide { accept_unaligned(device, arena.clone()) } else { device };
        Self { device, arena }
    }

    pub(super) fn size(&self) -> u64 {
        self.device.shape().size
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn can_discard(&self) -> bool {
        self.device.shape().discard
    }

    /// The device, for what is in it ([`File::has`]).
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Whether all of `extent` is before the end.
    pub(super) fn has(&self, extent: Extent) -> bool {
        self.device.shape().extent().contains(extent)
    }

    /// Fills `buffer` from `offset` on.
    pub(super) fn read_into(&self, offset: u64, mut buffer: Buffer) -> LocalFuture<'_, Outcome> {
        let here = self.size().saturating_sub(offset);
        if here >= buffer.len() as u64 {
            return self.device.read(offset, buffer).boxed();
        }
        if here == 0 {
            buffer.fill(0);
            return Box::pin(std::future::ready(Ok(buffer)));
        }
        let mut end = buffer.split_off(index(here));
        end.fill(0);
        join_pieces(vec![self.device.read(offset, buffer), Completion::ready(Ok(end))]).boxed()
    }

    /// `length` bytes from `offset` on, which need not be aligned.
    pub(super) async fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, IoError> {
        let wanted = Extent::checked(offset, length).ok_or(IoError::Corrupt)?;
        if wanted.end() > 1 << 62 {
            return Err(IoError::Corrupt);
        }
        let mut content = Vec::new();
        for (_, piece) in wanted.pieces(PIECE) {
            let sectors = piece.align_out(SECTOR);
            let read = self.read_into(sectors.offset, self.arena.take(index(sectors.length))).await?;
            let start = index(piece.offset - sectors.offset);
            content.extend_from_slice(&read[start..start + index(piece.length)]);
        }
        Ok(content)
    }

    /// Writes whole sectors.
    pub(super) async fn write(&self, offset: u64, data: Bytes) -> Result<(), IoError> {
        let extent = Extent::checked(offset, data.len() as u64).ok_or(IoError::Corrupt)?;
        if !self.device.shape().extent().contains(extent) || !extent.is_aligned(SECTOR) {
            return Err(IoError::Corrupt);
        }
        self.device.write(offset, data, Durability::Volatile).await.map(drop)
    }

    /// Writes a table.
    pub(super) async fn write_table(&self, offset: u64, content: &[u8]) -> Result<(), IoError> {
        assert!(offset.is_multiple_of(SECTOR), "a table lies where a cluster begins");
        for (at, piece) in (0_u64..).step_by(index(PIECE)).zip(content.chunks(index(PIECE))) {
            self.write(offset + at, self.arena.copy(piece)).await?;
        }
        Ok(())
    }

    /// Makes an extent zeros, which has its space from then on: to write it needs no more of the file system.
    pub(super) async fn take_space(&self, extent: Extent) -> Result<(), IoError> {
        let options = ZeroOptions { unmap: false, ..ZeroOptions::default() };
        self.device.zero(extent, options).await.map(drop)
    }

    pub(super) async fn discard(&self, extent: Extent) {
        // What is not given back is not lost.
        let _ = self.device.discard(extent).await;
    }

    pub(super) async fn flush(&self) -> Result<(), IoError> {
        self.device.flush().await.map(drop)
    }
}

pub(super) fn index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}
