//! Byte addresses on a device of blocks: edges are read, merged and written back under a range lock.
//!
//! Invariant UNALIGNED1: while an edge block is read, merged and written, no other change touches it; so changes take the
//! lock on the whole blocks that they touch, and only reads go past it.
//! Invariant UNALIGNED2: what the device shows is not exchanged between the read and the write of an edge block: a merge holds
//! the [`Shown`] lock shared from before its read until after its write, and an operation that makes the device show
//! something else (a rollback) holds it exclusively meanwhile. Otherwise old bytes would overwrite the new ones.
//! Invariant UNALIGNED3: a discard reaches whole blocks only; one that holds none does nothing.

use crate::buffer::Arena;
use crate::device::{
    BlockDevice, Checked, Completion, Device, MapAnswer, MapFuture, MapGuard, MapIntent, MapPiece,
};
use crate::error::IoError;
use crate::io::{Durability, Io, Outcome};
use crate::shape::Shape;
use crate::tasks::lock::{LockMode, RangeGuard, RangeLock, RangeWait};
use crate::units::Extent;
use futures_util::future::join;

/// The lock on what a device shows (UNALIGNED2). Cloning shares it.
#[derive(Clone, Default)]
pub struct Shown(RangeLock);

impl Shown {
    /// All that a device shows is one range.
    const WHOLE: Extent = Extent::new(0, 1);

    /// Waits until no merge is under way, and keeps new ones out while the guard lives. Reads and changes of whole
    /// blocks go on.
    pub fn exchange(&self) -> RangeWait {
        self.0.lock(Self::WHOLE, LockMode::Exclusive)
    }

    async fn merging(&self) -> RangeGuard {
        self.0.lock(Self::WHOLE, LockMode::Shared).await
    }
}

/// `device` with blocks of one byte; `device` itself if its blocks are that small already. What it shows is never
/// exchanged while requests are inside; else see [`accept_unaligned_shown`].
pub fn accept_unaligned(device: Device, arena: Arena) -> Device {
    accept_unaligned_shown(device, arena, Shown::default())
}

/// Like [`accept_unaligned`], for a device that may be made to show something else under an exclusive hold of `shown`
/// (UNALIGNED2).
pub fn accept_unaligned_shown(device: Device, arena: Arena, shown: Shown) -> Device {
    if device.shape().block_size == 1 {
        return device;
    }
    Device::new(Unaligned { device, arena, lock: RangeLock::new(), shown })
}

struct Unaligned {
    device: Device,
    arena: Arena,
    lock: RangeLock,
    shown: Shown,
}

impl Unaligned {
    fn block(&self) -> u64 {
        u64::from(self.device.shape().block_size)
    }

    async fn read(&self, offset: u64, mut buffer: crate::Buffer) -> Outcome {
        let wanted = Extent::new(offset, buffer.len() as u64);
        let whole = wanted.align_out(self.block());
        let read = self.device.read(whole.offset, self.arena.take(index(whole.length))).await?;
        let start = index(wanted.offset - whole.offset);
        buffer.copy_from_slice(&read[start..start + index(wanted.length)]);
        Ok(buffer)
    }

    /// Waits for the range and carries out a change that may have ragged edges.
    async fn change(&self, io: Io) -> Outcome {
        let extent = io.extent();
        let whole = extent.align_out(self.block());
        let _guard = self.lock.lock(whole, LockMode::Exclusive).await;
        if extent.is_aligned(self.block()) {
            return self.device.submit(io).await;
        }
        match io {
            Io::Write { offset, data, durability } => {
                self.merge(Extent::new(offset, data.len() as u64), Some(&data), durability).await
            }
            Io::Zero { options, .. } if options.fast => Err(IoError::Unsupported),
            Io::Zero { extent, options } => {
                let inner = extent.align_in(self.block());
                if inner.is_empty() {
                    return self.merge(extent, None, options.durability).await;
                }
                let (head, tail) = (
                    Extent::between(extent.offset, inner.offset),
                    Extent::between(inner.end(), extent.end()),
                );
                self.merge(head, None, options.durability).await?;
                self.merge(tail, None, options.durability).await?;
                self.device.zero(inner, options).await
            }
            Io::Discard { extent } => {
                let inner = extent.align_in(self.block());
                if inner.is_empty() {
                    return Ok(crate::Buffer::empty()); // UNALIGNED3
                }
                self.device.discard(inner).await
            }
            Io::Read { .. } | Io::Flush => unreachable!("not a change"),
        }
    }

    /// Writes `extent` (`data`, or zeros) with what the edge blocks held around it.
    async fn merge(&self, extent: Extent, data: Option<&[u8]>, durability: Durability) -> Outcome {
        if extent.is_empty() {
            return Ok(crate::Buffer::empty());
        }
        let whole = extent.align_out(self.block());
        let _merging = self.shown.merging().await; // UNALIGNED2
        let mut buffer = self.around(extent, whole).await?;
        let start = index(extent.offset - whole.offset);
        let middle = &mut buffer[start..start + index(extent.length)];
        match data {
            Some(data) => middle.copy_from_slice(data),
            None => middle.fill(0),
        }
        self.device.write(whole.offset, buffer.freeze(), durability).await
    }

    /// The bytes of the blocks `whole`; those of `extent` are to be written yet. No block is read that the change covers, so that a long
    /// one costs two blocks more and not its own length.
    async fn around(&self, extent: Extent, whole: Extent) -> Outcome {
        let block = self.block();
        let read = |at, length| self.device.read(at, self.arena.take(index(length)));
        if whole.length <= 2 * block {
            return read(whole.offset, whole.length).await;
        }
        let edge =
            async |at, is_ragged: bool| if is_ragged { read(at, block).await.map(Some) } else { Ok(None) };
        let last = whole.end() - block;
        let (head, tail) =
            join(edge(whole.offset, extent.offset > whole.offset), edge(last, extent.end() < whole.end()))
                .await;
        let mut buffer = self.arena.take(index(whole.length));
        for (at, edge) in [(whole.offset, head?), (last, tail?)] {
            if let Some(bytes) = edge {
                let start = index(at - whole.offset);
                buffer[start..start + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Ok(buffer)
    }
}

impl Unaligned {
    /// Whole blocks lead to the device itself; an overwrite of them keeps merges out meanwhile (UNALIGNED1).
    async fn lead(&self, extent: Extent, intent: MapIntent) -> Result<MapAnswer, IoError> {
        if intent == MapIntent::Inspect {
            return Ok(MapAnswer::through(&self.device, extent.offset, extent.length));
        }
        let inner = extent.align_in(self.block());
        if inner.is_empty() || inner.offset > extent.offset {
            let ragged = self.block() - extent.offset % self.block();
            return Ok(MapAnswer::sent(ragged.min(extent.length)));
        }
        let guard = match intent {
            MapIntent::Overwrite => MapGuard::holding(self.lock.lock(inner, LockMode::Exclusive).await),
            MapIntent::Read | MapIntent::Inspect => MapGuard::none(),
        };
        Ok(MapAnswer::new(MapPiece::on(&self.device, inner.offset, inner.length), guard))
    }
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}

impl BlockDevice for Unaligned {
    fn shape(&self) -> Shape {
        Shape { block_size: 1, ..self.device.shape() }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let aligned = io.extent().is_aligned(self.block());
        match io.into_io() {
            io @ (Io::Flush | Io::Read { .. }) if aligned => self.device.submit(io),
            Io::Read { offset, buffer } => Completion::pending(self.read(offset, buffer)),
            io if aligned && self.lock.is_idle() => {
                // The common case: no merge is under way, so the change only has to keep later ones out.
                let guard = self.lock.try_lock(io.extent(), LockMode::Exclusive);
                self.device.submit(io).keeping(guard)
            }
            io => Completion::pending(self.change(io)),
        }
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        Box::pin(self.lead(extent, intent))
    }
}
