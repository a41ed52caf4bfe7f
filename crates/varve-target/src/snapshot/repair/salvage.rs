//! What can be saved of a store with damaged nodes or log records: its metadata as text, with what is lost said aloud.
//!
//! Superblock and table must be readable: they say which maps and which snapshots there are, and nothing else does.
//!
//! Invariants:
//! - SALVAGE1. Nothing is guessed: where it cannot be known what a snapshot shows, it shows zeros in the salvaged store, and the
//!   bytes are named. What it wrote itself, or finds before anything that is lost, is known.
//! - SALVAGE2. Between two entries of a map that follow each other all around a damaged node, any key may have been, and a run
//!   that begins there ends before the next key (PRESERVED1 of `map/preserved.rs`).
//! - SALVAGE3. No place is given to two pieces of content: of two that claim it, the second is lost.
//! - SALVAGE4. Nothing is saved when records are lost and the log tells of a rollback, or the table does: what was restored or
//!   changed since would be taken for pending, and old content put in its place (ROLLBACK6 of `rollback.rs`).
//! - SALVAGE5. What is lost of the target of a rollback is lost to the volume, too, where that is not restored, and to the
//!   snapshots of after the beginning that find it there (ROLLBACK1, ROLLBACK4).

mod saved;

use super::super::contents::Contents;
use super::super::map::Readable;
use super::super::recover::{Loaded, LoadedLog, Reading, is_whole, load_table};
use super::super::{StoreError, index};
use super::text::{Head, text_of};
use crate::journal::{End, read_as_far};
use saved::Saved;
use std::collections::BTreeMap;
use varve_block::{Arena, Device, Extent, IoError, MIB, align_down};
use varve_format::store::{Entry, EntryBlock, PART_SIZE};

/// What could be saved of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvage {
    /// Its metadata, for [`super::super::restore_store`].
    pub text: String,
    /// Which bytes of which snapshots are lost; they are zeros in the text. Snapshots by name, the oldest first.
    pub lost: Vec<(String, Vec<Extent>)>,
    /// Which bytes of the volume become zeros because it is being rolled back, and takes them from what is lost of the
    /// snapshot that it is rolled back to; in order, without those that it has already.
    pub lost_of_volume: Vec<Extent>,
    /// How many records of the log are lost, at least. What was first changed when they were written cannot be told from what was
    /// not changed, in the snapshots that are named `doubtful`.
    pub lost_records: u64,
    /// The snapshots that may show newer content, anywhere.
    pub doubtful: Vec<String>,
}

/// Reads all of the store on `device` that can be read. Writes nothing. An error if superblock or table are damaged, or
/// records of the log are lost that may be about a rollback (SALVAGE4).
pub async fn salvage_store(device: &Device, arena: &Arena) -> Result<Salvage, StoreError> {
    let mut loaded = load_table(device, arena, Reading::only()).await?;
    let mut saved = Saved::new(loaded.map.chunk_size(), &loaded.contents.borrow());
    let mut items = Vec::new();
    loaded.map.readable(false, |item| items.push(item)).await?;
    saved.add_preserved(&items);
    items.clear();
    loaded.map.readable(true, |item| items.push(item)).await?;
    saved.add_written(&items);
    let log = all_records(&mut loaded, device, arena).await?;
    let mut contents = loaded.contents.borrow_mut();
    let Replayed { mut doubtful, rolls_back } = replay(&log, loaded.log.sequence, &mut contents, &mut saved);
    if log.lost > 0 && rolls_back {
        return Err(StoreError::Corrupt(
            "records of the log are lost, and the volume was being rolled back: nobody knows any more what it shows",
        )); // SALVAGE4
    }
    let names: BTreeMap<u64, String> = contents.visible().map(|one| (one.id, one.name.clone())).collect();
    let mut lost = saved.lost(|id| contents.visible_one(id).map_or(0, |one| one.size));
    let lost_of_volume = match &contents.rollback {
        Some(rollback) => {
            let since = contents.visible().filter(|one| one.id >= rollback.boundary);
            saved.lose_rolled_back(rollback, since.map(|one| (one.id, one.size)), &mut lost)
        }
        None => Vec::new(),
    };
    let text = text_of(Head::of(&loaded.superblock, &contents), &contents, &saved.mappings(&lost));
    let lost =
        lost.into_iter().filter_map(|(id, lost)| Some((names.get(&id)?.clone(), lost.iter().collect())));
    doubtful.retain(|id, _| names.contains_key(id));
    assert!(log.lost > 0 || doubtful.is_empty(), "SALVAGE1: nobody is doubted without a reason");
    Ok(Salvage {
        text,
        lost: lost.collect(),
        lost_of_volume,
        lost_records: log.lost,
        doubtful: doubtful.into_values().collect(),
    })
}

/// What the log says besides content.
struct Replayed {
    /// The snapshots that were there where records are lost.
    doubtful: BTreeMap<u64, String>,
    /// Whether it tells of a rollback, or the table does.
    rolls_back: bool,
}

/// Adds what the log says, whose first record has number `first`, to `contents` and to what is `saved`.
fn replay(log: &Log, first: u64, contents: &mut Contents, saved: &mut Saved) -> Replayed {
    let mut doubtful = BTreeMap::new();
    let mut written = Vec::new();
    let mut expected = first;
    let mut rolls_back = contents.rollback.is_some();
    for record in &log.records {
        assert!(record.sequence >= expected, "SNAPSHOT3: records stand in order");
        if record.sequence != expected {
            doubtful.extend(contents.visible().map(|one| (one.id, one.name.clone())));
        }
        expected = record.sequence + 1;
        for entry in &record.entries {
            rolls_back |= matches!(
                entry,
                Entry::RollbackBegun { .. }
                    | Entry::Restored { .. }
                    | Entry::Dropped { .. }
                    | Entry::RollbackEnded(_)
            );
            match entry {
                Entry::Preserved { mapping, .. } => {
                    saved.log_preserved(*mapping, contents.next_older(mapping.snapshot + 1));
                }
                Entry::Written(mapping) if contents.holds(mapping.snapshot, mapping.extent) => {
                    written.push(*mapping);
                }
                // The record that said that its snapshot exists is lost, and that snapshot with it.
                Entry::Written(_) | Entry::Bytes { .. } => {}
                Entry::Dropped { snapshot, extent } => saved.log_dropped(*snapshot, *extent),
                // What it stands on may have been in a record that is lost.
                other => {
                    if let (Ok(()), Entry::Created(created)) = (contents.apply(other), other) {
                        saved.log_created(created.id, created.size);
                    }
                }
            }
        }
    }
    if log.ends_unread {
        doubtful.extend(contents.visible().map(|one| (one.id, one.name.clone())));
    }
    saved.log_written(&written);
    Replayed { doubtful, rolls_back }
}

/// The log, as far as it can be read.
struct Log {
    records: Vec<EntryBlock>,
    /// How many of them are missing in between, or at the end.
    lost: u64,
    /// The block where it goes on cannot be read, and nothing was found behind it: there may have been a record, or none.
    ends_unread: bool,
}

/// The records of the log in order, those behind a damaged one too, wherever they lie.
async fn all_records(loaded: &mut Loaded, device: &Device, arena: &Arena) -> Result<Log, StoreError> {
    let (mut records, end) = read_as_far(&LoadedLog { loaded, store: device, arena }).await;
    let is_unread = match end {
        End::Clean | End::Damaged => false,
        End::Failed(StoreError::Io(IoError::Medium | IoError::Corrupt)) => true,
        End::Failed(error) => return Err(error),
    };
    let (_, sequence) = loaded.log_end(&records);
    let later = later_records(loaded, device, arena, sequence).await?;
    let ends_unread = is_unread && later.is_empty();
    let lost = match later.last_key_value() {
        Some((last, _)) => last - sequence + 1 - later.len() as u64,
        None => u64::from(ends_unread),
    };
    records.extend(later.into_values());
    if let Some(last) = records.pop()
        && is_whole(&last, device, arena).await.unwrap_or(true)
    {
        records.push(last);
    }
    assert!(records.is_sorted_by_key(|record| record.sequence), "SNAPSHOT3: records stand in order");
    Ok(Log { records, lost, ends_unread })
}

/// The records behind number `sequence`, by their numbers. Reads all of the device.
async fn later_records(
    loaded: &Loaded,
    device: &Device,
    arena: &Arena,
    sequence: u64,
) -> Result<BTreeMap<u64, EntryBlock>, StoreError> {
    let mut found = BTreeMap::new();
    let all = Extent::new(0, align_down(device.shape().size, PART_SIZE));
    assert!(all.is_aligned(PART_SIZE), "whole blocks are read");
    for (_, piece) in all.pieces(MIB) {
        let mut blocks: Vec<(u64, varve_block::Buffer)> = Vec::new();
        match device.read(piece.offset, arena.take(index(piece.length))).await {
            Ok(buffer) => blocks.push((piece.offset, buffer)),
            Err(IoError::Gone) => return Err(IoError::Gone.into()),
            Err(_) => {
                for (_, part) in piece.pieces(PART_SIZE) {
                    let read = device.read(part.offset, arena.take(index(PART_SIZE))).await;
                    blocks.extend(read.ok().map(|buffer| (part.offset, buffer)));
                }
            }
        }
        for (offset, buffer) in &blocks {
            let records = loaded.later_records(*offset, buffer, sequence);
            found.extend(records.map(|record| (record.sequence, record)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::UnixTime;
    use varve_format::store::{BlockKind, Descriptor, Mapping, Uuid};

    #[test]
    fn what_a_snapshot_that_the_log_creates_loses_is_named() {
        let (name, created, size) = ("two".to_owned(), UnixTime(0), 100 * PART_SIZE);
        let two = Descriptor { id: 2, name, created, size, read_only: false, held: false, base: false };
        let mapping = |part: u64| {
            let extent = Extent::new(part * PART_SIZE, PART_SIZE);
            Mapping { snapshot: 2, extent, place: 50 * PART_SIZE }
        };
        let entries = vec![
            Entry::Created(two),
            Entry::Preserved { mapping: mapping(3), checksum: 0 },
            Entry::Written(mapping(7)),
        ];
        let (kind, store, address, next) = (BlockKind::Log, Uuid::from_u128(1), PART_SIZE, PART_SIZE);
        let record = EntryBlock { kind, store, generation: 1, epoch: 0, address, sequence: 5, next, entries };
        let log = Log { records: vec![record], lost: 0, ends_unread: false };
        let mut contents = Contents::new(1);
        let mut saved = Saved::new(PART_SIZE, &contents);
        let replayed = replay(&log, 5, &mut contents, &mut saved);
        assert!(replayed.doubtful.is_empty() && !replayed.rolls_back, "SALVAGE1: no record is lost");
        let lost = saved.lost(|_| size);
        assert_eq!(lost[&2].iter().collect::<Vec<_>>(), [mapping(7).extent], "SALVAGE3: the place is taken");
    }
}
