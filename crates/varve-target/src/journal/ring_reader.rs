//! Reading the ring of a log: the next record, and what is behind the end.
//!
//! Invariants:
//! - SCAN1. What cannot be read claims nothing. What the log needs of the ring was asked for before.
//! - SCAN2. A record of an earlier epoch was written by a host that had lost its term: it is no record of this log. One of
//!   a later epoch says that the superblock that counted was lost: then the log is refused.

use super::ring::{BLOCK_SIZE, Ring};
use futures_util::{StreamExt, stream};
use varve_block::{Arena, Buffer, Device, Durability, Extent, IoError, MIB};
use varve_format::epoch::Epoch;

/// So much of the ring is read as one when records are searched, and so many such pieces at once.
const SCAN_BYTES: u64 = MIB;
const SCANS_AT_ONCE: usize = 4;

/// A record that is in a ring.
pub(crate) trait RingRecord: Sized {
    type Error: From<IoError>;

    /// Number and blocks of the record whose first block is `block`, if it may be one of the log of `owner`.
    fn claims(block: &[u8], owner: u64) -> Option<(u64, u64)>;

    /// What a log with a record of a later epoch than its superblock's is refused with.
    const LATER_EPOCH: Self::Error;

    /// The epoch of the superblock that it follows.
    fn epoch(&self) -> Epoch;

    /// The record in all of its blocks; none if it is torn.
    fn decode(bytes: &[u8]) -> Result<Option<Self>, Self::Error>;
}

/// A record and where in the ring it is.
pub(crate) struct Placed<R> {
    pub(crate) record: R,
    pub(crate) sequence: u64,
    pub(crate) start: u64,
    pub(crate) blocks: u64,
}

/// Reads the ring of the log of `owner`.
pub(crate) struct RingReader<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) device: Device,
    pub(crate) arena: &'a Arena,
    pub(crate) owner: u64,
}

impl RingReader<'_> {
    /// The record behind `last`, or behind what the superblock covers, if it is there whole.
    pub(crate) async fn next<R: RingRecord>(
        &self,
        last: Option<&Placed<R>>,
    ) -> Result<Option<Placed<R>>, R::Error> {
        let begin = (self.ring.head(), self.ring.sequence());
        let (head, sequence) = last.map_or(begin, |last| (last.start + last.blocks, last.sequence + 1));
        for start in [head, 0] {
            if let Some(record) = self.record::<R>(start, sequence).await? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The record with this number, if it is there whole.
    pub(crate) async fn record<R: RingRecord>(
        &self,
        start: u64,
        sequence: u64,
    ) -> Result<Option<Placed<R>>, R::Error> {
        let Some(bytes) = self.bytes::<R>(start, sequence).await? else { return Ok(None) };
        let blocks = bytes.len() as u64 / BLOCK_SIZE;
        assert!(start + blocks <= self.ring.blocks(), "LOGRING1: a record lies in the ring");
        match R::decode(&bytes)? {
            Some(record) if record.epoch() == self.ring.epoch() => {
                Ok(Some(Placed { record, sequence, start, blocks }))
            }
            Some(record) if record.epoch() > self.ring.epoch() => Err(R::LATER_EPOCH), // SCAN2
            Some(_) | None => Ok(None),
        }
    }

    /// All blocks of what claims to be the record with this number.
    async fn bytes<R: RingRecord>(&self, start: u64, sequence: u64) -> Result<Option<Buffer>, IoError> {
        if start >= self.ring.blocks() {
            return Ok(None);
        }
        let block = self.read(Extent::new(start * BLOCK_SIZE, BLOCK_SIZE)).await?;
        let claimed = R::claims(&block, self.owner).filter(|(found, _)| *found == sequence);
        match claimed.filter(|(_, blocks)| start + blocks <= self.ring.blocks()) {
            Some((_, blocks)) => {
                self.read(Extent::new(start * BLOCK_SIZE, blocks * BLOCK_SIZE)).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// A record of after number `sequence`, wherever it is in the ring: its number and its first block.
    pub(crate) async fn later<R: RingRecord>(&self, sequence: u64) -> Option<(u64, u64)> {
        for (start, number) in self.claims_from::<R>(sequence + 1).await {
            assert!(number > sequence, "REPLAY1: only a later one tells that it was not torn");
            let Ok(Some(bytes)) = self.bytes::<R>(start, number).await else { continue }; // SCAN1
            let is_one = match R::decode(&bytes) {
                Ok(Some(record)) => record.epoch() >= self.ring.epoch(), // SCAN2
                Ok(None) => false,
                Err(_) => true,
            };
            if is_one {
                return Some((number, self.ring.first() + start));
            }
        }
        None
    }

    /// Where in the ring a record may begin that has this number or a higher one, and its number, in the order of the
    /// ring.
    pub(crate) async fn claims_from<R: RingRecord>(&self, sequence: u64) -> Vec<(u64, u64)> {
        let pieces = Extent::new(0, self.ring.blocks() * BLOCK_SIZE).pieces(SCAN_BYTES);
        let claims = pieces.map(|(_, piece)| self.claims_in::<R>(piece, sequence));
        stream::iter(claims).buffered(SCANS_AT_ONCE).collect::<Vec<_>>().await.concat()
    }

    async fn claims_in<R: RingRecord>(&self, piece: Extent, sequence: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for (offset, bytes) in self.readable(piece).await {
            for (start, block) in (offset / BLOCK_SIZE..).zip(bytes.chunks_exact(BLOCK_SIZE as usize)) {
                let claimed = R::claims(block, self.owner).map(|(number, _)| (start, number));
                found.extend(claimed.filter(|(_, number)| *number >= sequence));
            }
        }
        found
    }

    /// SCAN1: what can be read of `piece`, as a whole or else block by block.
    async fn readable(&self, piece: Extent) -> Vec<(u64, Buffer)> {
        if let Ok(whole) = self.read(piece).await {
            return vec![(piece.offset, whole)];
        }
        let mut found = Vec::new();
        for (_, block) in piece.pieces(BLOCK_SIZE) {
            found.extend(self.read(block).await.ok().map(|bytes| (block.offset, bytes)));
        }
        found
    }

    /// Bytes of the ring.
    async fn read(&self, extent: Extent) -> Result<Buffer, IoError> {
        let length = usize::try_from(extent.length).expect("SCAN1: a ring is read in pieces");
        self.device.read(self.ring.first() * BLOCK_SIZE + extent.offset, self.arena.take(length)).await
    }

    /// Writes zeros where the ring of a log that says nothing cannot be read: otherwise the next start could not tell
    /// where the log ends.
    pub(crate) async fn mend(&self) -> Result<(), IoError> {
        assert!(self.ring.is_empty(), "LOGRING1: nothing in the ring is needed");
        for (_, piece) in Extent::new(0, self.ring.blocks() * BLOCK_SIZE).pieces(SCAN_BYTES) {
            if self.read(piece).await.is_ok() {
                continue;
            }
            for (_, block) in piece.pieces(BLOCK_SIZE) {
                if self.read(block).await.is_err() {
                    let zeros = self.arena.take_zeroed(BLOCK_SIZE as usize).freeze();
                    let address = self.ring.first() * BLOCK_SIZE + block.offset;
                    self.device.write(address, zeros, Durability::Volatile).await?;
                }
            }
        }
        self.device.flush().await?;
        Ok(())
    }
}
