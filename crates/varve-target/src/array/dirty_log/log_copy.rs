//! One copy of the log of an array, as it is in a ring: its records, and the newest of them.

use super::super::{ArrayError, ArraySpec};
use crate::journal::{Log, LogStart, Next, Placed, Ring, RingReader, RingRecord, replay};
use std::ops::Range;
use varve_block::{Arena, Device};
use varve_format::array::{
    ArrayFormatError, BLOCK_SIZE, Change, Epoch, RECORD_BLOCKS_MAX, RING_OFFSET, Record, Superblock,
};

/// The records of the log behind the superblock; none if no copy of the log can be read.
pub(in crate::array) type Records = Option<Vec<Placed<Record>>>;

/// The number of the first record that is not there behind `superblock`.
pub(in crate::array) fn next_of(superblock: &Superblock, records: &Records) -> u64 {
    records.iter().flatten().last().map_or(superblock.sequence, |last| last.sequence + 1)
}

/// One copy of the log.
pub(in crate::array) struct LogCopy<'a> {
    ring: Ring,
    device: &'a Device,
    arena: &'a Arena,
    owner: u64,
    records: Vec<Placed<Record>>,
}

impl<'a> LogCopy<'a> {
    pub(in crate::array) fn new(
        spec: &ArraySpec,
        superblock: &Superblock,
        device: &'a Device,
        arena: &'a Arena,
    ) -> Self {
        let (first, blocks) = (RING_OFFSET / BLOCK_SIZE, spec.ring_size() / BLOCK_SIZE);
        let begin =
            LogStart { head: superblock.head, sequence: superblock.sequence, epoch: superblock.epoch };
        let ring = Ring::new(first, blocks, begin, RECORD_BLOCKS_MAX);
        Self { ring, device, arena, owner: spec.id.as_u64_pair().0, records: Vec::new() }
    }

    /// Its records; none if it is damaged.
    pub(in crate::array) async fn read(mut self, spec: &ArraySpec, of: &str) -> Records {
        match replay(&mut self).await {
            Ok(()) => Some(self.records),
            Err(error) => {
                tracing::error!(array = %spec.id, of, %error, "a copy of the log is damaged");
                None
            }
        }
    }

    /// The record with the highest number that is whole.
    pub(in crate::array) async fn newest(&self) -> Option<Record> {
        let mut claims = self.reader().claims_from::<Record>(self.ring.sequence()).await;
        claims.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
        for (start, number) in claims {
            assert!(number >= self.ring.sequence(), "SCAN1: a record behind the superblock");
            if let Ok(Some(placed)) = self.reader().record::<Record>(start, number).await {
                return Some(placed.record);
            }
        }
        None
    }

    fn reader(&self) -> RingReader<'_> {
        RingReader { ring: &self.ring, device: self.device.clone(), arena: self.arena, owner: self.owner }
    }
}

impl Log for LogCopy<'_> {
    type Record = Placed<Record>;
    type Error = ArrayError;

    async fn next(&self, before: &[Placed<Record>]) -> Result<Next<Placed<Record>>, ArrayError> {
        let found = self.reader().next(before.last()).await?;
        Ok(found.map_or(Next::Damaged, Next::Record)) // What is there instead looks like a torn record.
    }

    async fn goes_on(&self, before: &[Placed<Record>]) -> Result<bool, ArrayError> {
        let missing = before.last().map_or(self.ring.sequence(), |last| last.sequence + 1);
        Ok(self.reader().later::<Record>(missing).await.is_some())
    }

    fn damaged(&self) -> ArrayError {
        ArrayError::Mismatch("a record in the midst of the log is damaged")
    }

    async fn claim(&self, _: &Placed<Record>) -> Result<(), ArrayError> {
        Ok(())
    }

    async fn apply(&mut self, record: Placed<Record>) -> Result<(), ArrayError> {
        self.records.push(record);
        Ok(())
    }
}

impl RingRecord for Record {
    type Error = ArrayError;

    fn claims(block: &[u8], array: u64) -> Option<(u64, u64)> {
        Record::claims(block, array)
    }

    const LATER_EPOCH: ArrayError =
        ArrayError::Mismatch("the newest superblock was lost: the log is of a later epoch");

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn decode(bytes: &[u8]) -> Result<Option<Record>, ArrayError> {
        match Record::decode(bytes) {
            Ok(record) => Ok(Some(record)),
            Err(ArrayFormatError::Checksum) => Ok(None),
            Err(_) => Err(ArrayError::Mismatch("a record of the log contradicts itself")),
        }
    }
}

/// The regions of `region_size` bytes that `change` is about.
pub(in crate::array) fn regions_of(change: &Change, region_size: u64) -> Range<u64> {
    match change {
        Change::Write(first, count) | Change::Zero(first, count) | Change::Clean(first, count) => {
            *first..first.saturating_add(u64::from(*count))
        }
        Change::Content(offset, data) => {
            let end = offset.saturating_add(data.len() as u64);
            offset / region_size..end.div_ceil(region_size)
        }
    }
}
