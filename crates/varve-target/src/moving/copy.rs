//! The copying of a run: the next pieces are read while one is written, so that both places are busy all the time.
//!
//! Invariant MOVE5: pieces are written in their order, and each is held alone from before it is read until it counts as copied, so
//! what is read and not written yet is not changed meanwhile.

use super::{InjectedBug, Move, MoveError};
use futures_util::{StreamExt, stream};
use varve_block::{
    Arena, Buffer, Durability, Extent, IoError, KIB, LockMode, RangeGuard, ZeroOptions, align_up,
};

/// Most bytes of a piece, of which changes wait while it is copied.
const PIECE_MAX: u64 = 256 * KIB;
/// Pieces that are copied at the same time: while one is written, the next ones are read.
const PIECES: usize = 3;

/// A piece that was read, held alone.
type Read = (Extent, Buffer, Option<RangeGuard>);

impl Move {
    /// Copies the next `length` bytes at most, in pieces of which changes wait meanwhile. Nobody else copies, and every change of the
    /// run comes through this device.
    pub async fn copy(&self, arena: &Arena, length: u64) -> Result<(), MoveError> {
        self.check_copying()?;
        let all = Extent::new(self.copied.get(), length.min(self.left()));
        // Less than a block of an array would have the rest of it read, which nobody has written yet.
        let unit = u64::from(self.shape.block_size.max(self.new.0.shape().optimal_size));
        let piece = align_up(all.length.div_ceil(4), unit).min(PIECE_MAX.max(unit));
        let pieces = all.pieces(piece).map(|(_, piece)| self.read_piece(arena, piece));
        let mut pieces = stream::iter(pieces).buffered(PIECES);
        let mut outcome = Ok(());
        while let Some(read) = pieces.next().await {
            // What was submitted runs to its end.
            outcome = match (outcome, read) {
                (Ok(()), Ok(read)) => self.write_piece(read).await,
                (Ok(()), Err(error)) | (Err(error), _) => Err(error),
            };
        }
        outcome
    }

    async fn read_piece(&self, arena: &Arena, piece: Extent) -> Result<Read, MoveError> {
        assert!(piece.offset >= self.copied.get() && piece.end() <= self.shape.size, "MOVE5: {piece:?}");
        let guard = match self.has(InjectedBug::CopyBesideWriters) {
            true => None,
            false => Some(self.lock.lock(piece, LockMode::Exclusive).await),
        };
        self.check_copying()?;
        let length = usize::try_from(piece.length).expect("a piece is small");
        let data = self.old.0.read(self.old.1 + piece.offset, arena.take(length)).await;
        Ok((piece, data.map_err(|error| self.fail(MoveError::Old(error)))?, guard))
    }

    async fn write_piece(&self, (piece, data, guard): Read) -> Result<(), MoveError> {
        self.check_copying()?;
        assert_eq!(self.copied.get(), piece.offset, "MOVE5");
        if !self.has(InjectedBug::SkipLastPiece) || piece.end() < self.shape.size {
            self.put_piece(piece, data).await.map_err(|error| self.fail(MoveError::New(error)))?;
            self.check_copying()?;
        }
        self.copied.set(piece.end());
        drop(guard);
        Ok(())
    }

    async fn put_piece(&self, piece: Extent, data: Buffer) -> Result<(), IoError> {
        assert_eq!(data.len() as u64, piece.length, "MOVE5");
        let at = self.new.1 + piece.offset;
        if data.iter().all(|byte| *byte == 0) {
            self.new.0.zero(Extent::new(at, piece.length), ZeroOptions::default()).await?;
        } else {
            self.new.0.write(at, data.freeze(), Durability::Volatile).await?;
        }
        Ok(())
    }
}
