//! The copying of a run: the next pieces are read while others are written, so that both places are busy all the time.
//!
//! Invariant MOVE5: pieces count as copied in their order, and each is held alone from before it is read until it is copied, so what is
//! read and not written yet is not changed meanwhile.

use super::{InjectedBug, Move, MoveError};
use futures_util::{StreamExt, TryFutureExt, stream};
use std::pin::pin;
use varve_block::{
    Arena, Buffer, Durability, Extent, IoError, KIB, LockMode, RangeGuard, ZeroOptions, align_up, is_zero,
};

/// Most bytes of a piece, of which changes wait while it is copied.
const PIECE_MAX: u64 = 128 * KIB;
/// Pieces that are read at the same time while others are written.
const READS: usize = 3;
/// Pieces that are written at the same time: what a disk takes before it answers does not stand between two of them.
const WRITES: usize = 2;

/// A piece, held alone.
type Held = (Extent, Option<RangeGuard>);

impl Move {
    /// Copies the next `length` bytes at most, in pieces of which changes wait meanwhile. No other copy of the run is under way,
    /// and every change of the run comes through this device.
    pub async fn copy(&self, arena: &Arena, length: u64) -> Result<(), MoveError> {
        self.check_copying()?;
        let all = Extent::new(self.copied.get(), length.min(self.left()));
        // An array would read the rest of a block that a piece covers in part, which is not written yet.
        let unit = u64::from(self.shape.block_size.max(self.new.0.shape().optimal_size));
        let piece = align_up(all.length.div_ceil(4), unit).min(PIECE_MAX.max(unit));
        let reads = all.pieces(piece).map(|(_, piece)| self.read_piece(arena, piece));
        let writes = stream::iter(reads).buffered(READS).map(|read| self.write_piece(read));
        let mut written = pin!(writes.buffered(WRITES));
        let mut outcome = Ok(());
        while let Some(piece) = written.next().await {
            // What was submitted runs to its end.
            outcome = match (outcome, piece) {
                (Ok(()), Ok(held)) => self.count_piece(held),
                (Ok(()), Err(error)) | (Err(error), _) => Err(error),
            };
        }
        outcome
    }

    async fn read_piece(&self, arena: &Arena, piece: Extent) -> Result<(Held, Buffer), MoveError> {
        assert!(piece.offset >= self.copied.get() && piece.end() <= self.shape.size, "MOVE5: {piece:?}");
        let guard = match self.has(InjectedBug::CopyBesideWriters) {
            true => None,
            false => Some(self.lock.lock(piece, LockMode::Exclusive).await),
        };
        self.check_copying()?;
        let length = usize::try_from(piece.length).expect("a piece is small");
        let data = self.old.0.read(self.old.1 + piece.offset, arena.take(length)).await;
        Ok(((piece, guard), data.map_err(|error| self.fail(MoveError::Old(error)))?))
    }

    async fn write_piece(&self, read: Result<(Held, Buffer), MoveError>) -> Result<Held, MoveError> {
        let (held, data) = read?;
        self.check_copying()?;
        let piece = held.0;
        assert!(piece.offset >= self.copied.get(), "MOVE5: {piece:?}");
        if !self.has(InjectedBug::SkipLastPiece) || piece.end() < self.shape.size {
            self.put_piece(piece, data).map_err(|error| self.fail(MoveError::New(error))).await?;
        }
        Ok(held)
    }

    /// A piece was written, and all before it.
    fn count_piece(&self, (piece, _alone): Held) -> Result<(), MoveError> {
        self.check_copying()?;
        assert_eq!(self.copied.get(), piece.offset, "MOVE5");
        self.copied.set(piece.end());
        self.assert_consistent();
        Ok(())
    }

    async fn put_piece(&self, piece: Extent, data: Buffer) -> Result<(), IoError> {
        assert_eq!(data.len() as u64, piece.length, "MOVE5");
        let at = self.new.1 + piece.offset;
        if is_zero(&data) {
            self.new.0.zero(Extent::new(at, piece.length), ZeroOptions::default()).await?;
        } else {
            self.new.0.write(at, data.freeze(), Durability::Volatile).await?;
        }
        Ok(())
    }
}
