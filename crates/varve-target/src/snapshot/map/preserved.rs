//! What was preserved for snapshots, on the persistent tree: (chunk, snapshot, part) -> place, runs compressed.
//!
//! Whole chunks that lie one behind the other in the store are one entry, however many: 32 bytes for a sequential
//! change of any length. Smaller changes are an entry each, or less where they follow each other. Everything here is
//! one attempt: it changes all that it has to, or nothing.
//!
//! Invariants:
//! - PRESERVED1. No key is strictly between the first and the last key of a run. So the run that covers a chunk is found by
//!   one look to the left, and a chunk within a run has no other entry.
//! - PRESERVED2. Content of a part and a snapshot is in the map once.

use super::run::{Found, Search};
use crate::pdata::{AllocClass, Cursor, Pages, Stop, Tree};
use std::ops::{Range, RangeInclusive};
use varve_format::pdata::exception::{Exception, exception_key};
use varve_format::pdata::node::{Key, Value};
use varve_format::pdata::{Block, BlockError};
use varve_format::store::PART_SIZE;

/// The map of what was preserved, named by its root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preserved {
    pub tree: Tree,
    /// Parts of a chunk.
    pub parts: u32,
}

/// What a step of an insertion or a merge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// How many parts it dealt with, from the first on.
    pub count: u64,
    /// Whether they are in the map now; else their blocks are not needed.
    pub entered: bool,
}

/// What a reclaim step makes of a leaf.
#[derive(Default)]
pub(super) struct Reclaimed {
    /// How many of its entries were dealt with, or need nothing.
    pub end: usize,
    /// Whether anything has changed.
    pub changed: bool,
    pub entries: Vec<(Key, Value)>,
    /// How many parts the next older snapshot has got.
    pub merged: u64,
    /// What is not needed any more.
    pub freed: Vec<Found>,
}

/// Keys that are set and removed as one.
#[derive(Default)]
struct Patch {
    removes: Vec<Key>,
    puts: Vec<(Key, Value)>,
}

impl Patch {
    fn put(&mut self, exception: Exception) {
        let (key, value) = (exception.key(), exception.value());
        self.puts.retain(|put| put.0 != key);
        self.puts.push((key, value));
    }
}

impl Preserved {
    /// What `entry` says. One that contradicts the store is of another map, or of another time.
    fn decode(self, pages: &mut Pages, entry: (Key, Value)) -> Result<Exception, Stop> {
        let decoded = self.decode_in(pages.end_block(), entry);
        decoded.map_err(|error| Stop::Damaged(self.tree.leaf_block(pages, entry.0), error))
    }

    /// What `entry` says in a store that ends with block `end_block`.
    fn decode_in(self, end_block: Block, entry: (Key, Value)) -> Result<Exception, BlockError> {
        let exception = Exception::decode(entry.0, entry.1)?;
        let Exception { part, parts, run, place, .. } = exception;
        let fits_into_chunk = part + parts <= self.parts && (run == 1 || parts == self.parts);
        let blocks = u64::from(run) * u64::from(parts);
        let parts_max = u64::MAX / PART_SIZE / u64::from(self.parts);
        if fits_into_chunk && exception.end() <= parts_max && place + blocks <= end_block {
            return Ok(exception);
        }
        Err(BlockError::Invalid("preserved content lies beyond an end"))
    }

    /// What all of `entries` say.
    pub(super) fn decode_all(
        self,
        pages: &mut Pages,
        entries: &[(Key, Value)],
    ) -> Result<Vec<Exception>, Stop> {
        // `collect` into a result does not know how many come, and grows the vector in steps.
        let mut exceptions = Vec::with_capacity(entries.len());
        for entry in entries {
            exceptions.push(self.decode(pages, *entry)?);
        }
        Ok(exceptions)
    }

    /// What the cursor stands at.
    fn at(self, pages: &mut Pages, cursor: &Cursor) -> Result<Option<Exception>, Stop> {
        cursor.entry().map(|entry| self.decode(pages, entry)).transpose()
    }

    /// Where the parts from `first` to `end` are, as the first of `snapshots` finds them: the first content at or after
    /// it, up to the last.
    pub(super) fn find(
        self,
        pages: &mut Pages,
        snapshots: RangeInclusive<u32>,
        first: u64,
        end: u64,
    ) -> Result<Vec<Found>, Stop> {
        let parts = u64::from(self.parts);
        let mut found = Vec::new();
        let mut at = first;
        let start = exception_key(at / parts, *snapshots.start(), 0);
        let mut cursor = Cursor::floor(self.tree, pages, start)?;
        while at < end {
            let chunk = at / parts;
            let mut search = Search::new(at, end.min((chunk + 1) * parts));
            let (until, run) = self.find_chunk(pages, &mut cursor, chunk, &snapshots, &mut search)?;
            found.extend(search.finish());
            at = end.min((chunk + 1) * parts);
            // The chunks behind it of which the same is known.
            let same = Found {
                first: (chunk + 1) * parts,
                count: until.saturating_mul(parts).min(end).saturating_sub((chunk + 1) * parts),
                place: run.map(|run| run.place + (chunk + 1 - run.chunk) * parts),
            };
            if same.count > 0 {
                found.push(same);
                at = same.end();
            }
        }
        Ok(found)
    }

    /// Fills `search`, which is in `chunk`. Returns the first chunk of which nothing is known yet, and the run that
    /// holds the chunks before it, if one does.
    fn find_chunk(
        self,
        pages: &mut Pages,
        cursor: &mut Cursor,
        chunk: u64,
        snapshots: &RangeInclusive<u32>,
        search: &mut Search,
    ) -> Result<(u64, Option<Exception>), Stop> {
        let start = exception_key(chunk, *snapshots.start(), 0);
        cursor.seek_floor(pages, start)?;
        let mut run: Option<Exception> = None;
        while let Some(entry) = self.at(pages, cursor)? {
            let before = entry.key() < start;
            if !before && (entry.chunk > chunk || entry.snapshot > *snapshots.end() || search.is_done()) {
                break;
            }
            if chunk < entry.end() {
                if entry.run > 1 {
                    run = Some(entry); // PRESERVED1: nothing else covers the chunks behind this one.
                }
                if snapshots.contains(&entry.snapshot) {
                    search.fill(self.of_chunk(entry, chunk));
                }
            }
            cursor.advance(pages)?;
        }
        if let Some(run) = run.filter(|run| chunk + 1 < run.end()) {
            return Ok((run.end() - 1, Some(run).filter(|run| snapshots.contains(&run.snapshot))));
        }
        // Nothing is between the last entry looked at and the next.
        let next = self.at(pages, cursor)?.map_or(u64::MAX, |entry| entry.chunk);
        Ok((next, None))
    }

    /// What `entry` says of `chunk`.
    fn of_chunk(self, entry: Exception, chunk: u64) -> Found {
        let parts = u64::from(self.parts);
        let first = chunk * parts + u64::from(entry.part);
        let place = entry.place + (chunk - entry.chunk) * u64::from(entry.parts);
        Found { first, count: u64::from(entry.parts), place: Some(place) }
    }

    /// The parts of an entry, all of them: they follow each other, and so do their places.
    pub(super) fn of_entry(self, entry: Exception) -> Found {
        let first = entry.chunk * u64::from(self.parts) + u64::from(entry.part);
        Found { first, count: u64::from(entry.run) * u64::from(entry.parts), place: Some(entry.place) }
    }

    /// Enters the beginning of `content` for the first of `snapshots`, unless one of them has it already.
    pub(super) fn insert(
        &mut self,
        pages: &mut Pages,
        class: AllocClass,
        snapshots: RangeInclusive<u32>,
        content: Found,
    ) -> Result<Step, Stop> {
        assert!(content.count > 0, "STOREMAP1: content has parts");
        let first = self.first_of(pages, snapshots.clone(), content)?;
        if first.place.is_some() {
            return Ok(Step { count: first.count, entered: false }); // PRESERVED2
        }
        let mut new = self.entry(*snapshots.start(), content, first.count);
        if new.parts == self.parts {
            let whole = u32::try_from(content.count / u64::from(self.parts)).unwrap_or(u32::MAX);
            new.run = self.longest_run(pages, new, whole)?;
        }
        let mut patch = Patch::default();
        self.enter(pages, new, &mut patch)?;
        self.tree.patch(pages, &patch.removes, &patch.puts, class)?;
        Ok(Step { count: self.of_entry(new).count, entered: true })
    }

    /// What the snapshots have of the first part of `content`, and of those behind it in its chunk that are alike.
    fn first_of(
        self,
        pages: &mut Pages,
        snapshots: RangeInclusive<u32>,
        content: Found,
    ) -> Result<Found, Stop> {
        let parts = u64::from(self.parts);
        let end = content.end().min((content.first / parts + 1) * parts);
        let found = self.find(pages, snapshots, content.first, end)?;
        Ok(*found.first().expect("what is looked for is found, or a hole"))
    }

    /// The entry of the first `count` parts of `content`, which lie in one chunk.
    fn entry(self, snapshot: u32, content: Found, count: u64) -> Exception {
        let parts = u64::from(self.parts);
        let short = |number: u64| u32::try_from(number).expect("a chunk has few parts");
        Exception {
            chunk: content.first / parts,
            snapshot,
            part: short(content.first % parts),
            place: content.place.expect("content has a place"),
            run: 1,
            parts: short(count),
        }
    }

    /// How many whole chunks from that of `new` on, at most `wanted`, can be one run (PRESERVED1).
    fn longest_run(self, pages: &mut Pages, new: Exception, wanted: u32) -> Result<u32, Stop> {
        assert!(wanted > 0, "PRESERVED1: a run has chunks");
        let mut cursor = Cursor::floor(self.tree, pages, new.key())?;
        if let Some(before) = self.at(pages, &cursor)?.filter(|before| before.key() < new.key()) {
            if new.key() < before.last_key() {
                return Ok(1); // Of a run that is about to be cut a part will lie behind.
            }
            cursor.advance(pages)?;
        }
        let Some(next) = self.at(pages, &cursor)? else { return Ok(wanted) };
        let free = u32::try_from(next.chunk.saturating_sub(new.chunk)).unwrap_or(u32::MAX);
        Ok(wanted.min(free).max(1))
    }

    /// What has to be changed so that `new`, of which nothing is in the map, is.
    fn enter(self, pages: &mut Pages, new: Exception, patch: &mut Patch) -> Result<(), Stop> {
        let before = self.before(pages, new.key())?;
        if let Some(run) = before.filter(|run| new.key() < run.last_key()) {
            // PRESERVED1: the key comes before the run's own key of its chunk, or behind it.
            let own = exception_key(new.chunk, run.snapshot, 0);
            let cut = if new.key() < own { new.chunk } else { new.chunk + 1 };
            assert!(run.chunk < cut && cut < run.end(), "PRESERVED1: both sides have chunks");
            patch.put(tail(run, cut));
            patch.put(Exception { run: length(run.chunk, cut), ..run });
            patch.put(new);
            return Ok(());
        }
        let Some((before, joined)) = before.and_then(|before| Some((before, self.join(before, new)?))) else {
            patch.put(new);
            return Ok(());
        };
        // Parts that have become a whole chunk may go on a run of whole chunks.
        let grown = before.parts < self.parts && joined.parts == self.parts;
        let elder = if grown { self.before(pages, before.key())? } else { None };
        match elder.and_then(|elder| self.join(elder, joined)) {
            Some(longer) => {
                patch.removes.push(before.key());
                patch.put(longer);
            }
            None => patch.put(joined),
        }
        Ok(())
    }

    /// The last entry before `key`.
    fn before(self, pages: &mut Pages, key: Key) -> Result<Option<Exception>, Stop> {
        let Some(key) = key.checked_sub(1) else { return Ok(None) };
        let found = self.tree.floor(pages, key)?;
        found.map(|entry| self.decode(pages, entry)).transpose()
    }

    /// Both as one entry, if `new` goes on where `before` ends, in the origin and in the store.
    fn join(self, before: Exception, new: Exception) -> Option<Exception> {
        let (left, right) = (self.of_entry(before), self.of_entry(new));
        let follows = before.snapshot == new.snapshot
            && left.end() == right.first
            && left.place.map(|place| place + left.count) == right.place;
        if !follows {
            return None;
        }
        if before.parts == self.parts && new.parts == self.parts {
            return before.run.checked_add(new.run).map(|run| Exception { run, ..before });
        }
        let within = before.chunk == new.chunk && before.run == 1;
        within.then(|| Exception { parts: before.parts + new.parts, ..before })
    }

    /// Merges the beginning of what `entry` keeps, for a snapshot that is being deleted, into `next_older`, if there is
    /// one and it needs it: its id and the number of its parts.
    pub(super) fn merge_into(
        &mut self,
        pages: &mut Pages,
        class: AllocClass,
        entry: Exception,
        next_older: Option<(u32, u64)>,
    ) -> Result<Step, Stop> {
        let content = self.of_entry(entry);
        let mut patch = Patch::default();
        patch.removes.push(entry.key());
        let needed = next_older.and_then(|(next_older, size)| Some((next_older, content.clip(0, size)?)));
        let Some((next_older, needed)) = needed else {
            self.tree.patch(pages, &patch.removes, &[], class)?;
            return Ok(Step { count: content.count, entered: false });
        };
        assert!(next_older < entry.snapshot, "the next older snapshot is older");
        let first = self.first_of(pages, next_older..=entry.snapshot - 1, needed)?;
        assert!(first.count > 0, "SNAPREMOVE2: a step leads on");
        let entered = first.place.is_none();
        let mut count = first.count;
        if entered {
            let mut new = self.entry(next_older, needed, count);
            if new.parts == self.parts {
                // PRESERVED1: nothing is between the run's keys, so nothing will between those of the next older
                // snapshot.
                new.run =
                    u32::try_from(needed.count / u64::from(self.parts)).expect("no longer than the entry");
                count = self.of_entry(new).count;
            }
            self.enter(pages, new, &mut patch)?;
        }
        self.leave(entry, count, &mut patch);
        self.tree.patch(pages, &patch.removes, &patch.puts, class)?;
        Ok(Step { count, entered })
    }

    /// What becomes of the entries of one leaf when `deleting` merges into `next_older` what it has in `looked` of
    /// them, or in the first of these that can be dealt with without looking beyond the leaf. The next older snapshot:
    /// its id and its parts.
    pub(super) fn reclaim(
        self,
        leaf: &[Exception],
        looked: Range<usize>,
        deleting: u32,
        next_older: Option<(u32, u64)>,
    ) -> Reclaimed {
        let mut reclaimed = Reclaimed { end: looked.end, ..Reclaimed::default() };
        let mut kept = Vec::with_capacity(leaf.len());
        kept.extend_from_slice(&leaf[..looked.start]);
        for (index, entry) in leaf.iter().copied().enumerate().take(looked.end).skip(looked.start) {
            if entry.snapshot != deleting {
                kept.push(entry);
                continue;
            }
            let content = self.of_entry(entry);
            match next_older.filter(|(_, size)| content.first < *size) {
                None => {
                    reclaimed.freed.push(content);
                    reclaimed.changed = true;
                }
                Some((next_older, size))
                    if content.end() <= size && self.is_alone(&kept, entry, next_older) =>
                {
                    reclaimed.merged += content.count;
                    reclaimed.changed = true;
                    let mut new = Exception { snapshot: next_older, ..entry };
                    while let Some(joined) = kept.last().and_then(|before| self.join(*before, new)) {
                        kept.pop();
                        new = joined;
                    }
                    kept.push(new);
                }
                Some(_) => {
                    reclaimed.end = index;
                    break;
                }
            }
        }
        let entries = kept.iter().chain(&leaf[reclaimed.end..]);
        reclaimed.entries = entries.map(|entry| (entry.key(), entry.value())).collect();
        reclaimed
    }

    /// Whether the entries `before` it in its leaf show that no snapshot from `next_older` on has anything of `entry`,
    /// and that it stays in its leaf as the next older snapshot's.
    fn is_alone(self, before: &[Exception], entry: Exception, next_older: u32) -> bool {
        for other in before.iter().rev() {
            if other.end() <= entry.chunk {
                return true; // PRESERVED1: nothing before that reaches farther.
            }
            if other.snapshot > next_older
                || (other.snapshot == next_older && other.part + other.parts > entry.part)
            {
                return false;
            }
            if other.snapshot < next_older {
                // PRESERVED1: a run that covers the chunk, or another snapshot's entry, and neither is asked.
                return true;
            }
        }
        false
    }

    /// What is left of `entry` without its first `count` parts.
    fn leave(self, entry: Exception, count: u64, patch: &mut Patch) {
        let content = self.of_entry(entry);
        if let Some(left) = content.clip(content.first + count, content.end()) {
            self.put_all(entry.snapshot, left, patch);
        }
    }

    /// Puts all of `content` of `snapshot`: the rest of a chunk, a run of whole ones, and the beginning of one, three entries
    /// at most.
    fn put_all(self, snapshot: u32, content: Found, patch: &mut Patch) {
        let (parts, mut left) = (u64::from(self.parts), Some(content));
        while let Some(now) = left {
            let (within, whole) = (now.first % parts, now.count / parts);
            let is_run = within == 0 && whole > 0;
            let count = if is_run { whole * parts } else { now.count.min(parts - within) };
            let run = if is_run { u32::try_from(whole).expect("no longer than the entry") } else { 1 };
            let entry = self.entry(snapshot, now, if is_run { parts } else { count });
            patch.put(Exception { run, ..entry });
            left = now.clip(now.first + count, now.end());
        }
    }

    /// Takes out what is in the parts from `first` to `end` of one entry: of the newest snapshot, from `oldest` on, that has
    /// one there. The snapshot, and what was taken out; none if there is nothing.
    pub(super) fn take_newest(
        &mut self,
        pages: &mut Pages,
        class: AllocClass,
        oldest: u32,
        first: u64,
        end: u64,
    ) -> Result<Option<(u32, Found)>, Stop> {
        let parts = u64::from(self.parts);
        let mut newest: Option<Exception> = None;
        let mut cursor = Cursor::floor(self.tree, pages, exception_key(first / parts, 0, 0))?;
        while let Some(entry) = self.at(pages, &cursor)?.filter(|entry| entry.chunk * parts < end) {
            let overlaps = self.of_entry(entry).clip(first, end).is_some();
            let is_newer = newest.is_none_or(|newest| newest.snapshot < entry.snapshot);
            if entry.snapshot >= oldest && overlaps && is_newer {
                newest = Some(entry);
            }
            cursor.advance(pages)?;
        }
        let Some(entry) = newest else { return Ok(None) };
        let content = self.of_entry(entry);
        let taken = content.clip(first, end).expect("they overlap");
        let mut patch = Patch::default();
        let sides = [content.clip(content.first, taken.first), content.clip(taken.end(), content.end())];
        sides.into_iter().flatten().for_each(|side| self.put_all(entry.snapshot, side, &mut patch));
        if patch.puts.iter().all(|put| put.0 != entry.key()) {
            patch.removes.push(entry.key());
        }
        self.tree.patch(pages, &patch.removes, &patch.puts, class)?;
        Ok(Some((entry.snapshot, taken)))
    }
}

/// `run` from `chunk` on.
fn tail(run: Exception, chunk: u64) -> Exception {
    assert!((run.chunk..run.end()).contains(&chunk), "PRESERVED1: the chunk is part of the run");
    let place = run.place + (chunk - run.chunk) * u64::from(run.parts);
    Exception { chunk, place, run: length(chunk, run.end()), ..run }
}

fn length(first: u64, end: u64) -> u32 {
    u32::try_from(end - first).expect("a part of a run is no longer than the run")
}
