//! What was written to snapshots, on the persistent tree: (snapshot, part) -> place, parts that follow each other joined.
//!
//! Everything here is one attempt: it changes all that it has to, or nothing.
//!
//! Invariant SNAPWRITE1: entries of one snapshot do not overlap.

use super::run::{Found, advance};
use crate::pdata::{AllocClass, Cursor, Pages, Stop, Tree};
use varve_format::pdata::node::{Key, Value};
use varve_format::pdata::written::{NO_PLACE, Written, written_key};
use varve_format::pdata::{Block, BlockError};
use varve_format::store::PART_SIZE;

/// The map of what was written, named by its root.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenMap {
    pub tree: Tree,
}

impl WrittenMap {
    /// What `entry` says. One that contradicts the store is of another map, or of another time.
    fn decode(self, pages: &mut Pages, entry: (Key, Value)) -> Result<Written, Stop> {
        let decoded = decode_in(pages.end_block(), entry);
        decoded.map_err(|error| Stop::Damaged(self.tree.leaf_block(pages, entry.0), error))
    }

    /// What all of `entries` say.
    pub(super) fn decode_all(
        self,
        pages: &mut Pages,
        entries: &[(Key, Value)],
    ) -> Result<Vec<Written>, Stop> {
        entries.iter().map(|entry| self.decode(pages, *entry)).collect()
    }

    /// What the cursor stands at.
    fn at(self, pages: &mut Pages, cursor: &Cursor) -> Result<Option<Written>, Stop> {
        cursor.entry().map(|entry| self.decode(pages, entry)).transpose()
    }

    /// The last entry at or before `key`.
    fn floor(self, pages: &mut Pages, key: Key) -> Result<Option<Written>, Stop> {
        let found = self.tree.floor(pages, key)?;
        found.map(|entry| self.decode(pages, entry)).transpose()
    }

    /// What `snapshot` has of the part `first`, and of those behind it, before `end`, that are alike: in one entry, or
    /// in none.
    fn find_first(self, pages: &mut Pages, snapshot: u32, first: u64, end: u64) -> Result<Found, Stop> {
        assert!(first < end, "something is looked for");
        let mut cursor = Cursor::floor(self.tree, pages, written_key(snapshot, first))?;
        while let Some(entry) =
            self.at(pages, &cursor)?.filter(|entry| written_key(snapshot, end) > entry.key())
        {
            if entry.snapshot == snapshot && first < entry.end() {
                let hole = Found { first, count: entry.part.saturating_sub(first), place: None };
                return Ok(if hole.count > 0 { hole } else { of(entry).clip(first, end).unwrap_or(hole) });
            }
            cursor.advance(pages)?;
        }
        Ok(Found { first, count: end - first, place: None })
    }

    /// Where the parts from `first` to `end` of `snapshot` are that were written to it.
    pub(super) fn find(
        self,
        pages: &mut Pages,
        snapshot: u32,
        first: u64,
        end: u64,
    ) -> Result<Vec<Found>, Stop> {
        let mut found = Vec::new();
        let mut at = first;
        let mut cursor = Cursor::floor(self.tree, pages, written_key(snapshot, first))?;
        while at < end {
            let entry = self.at(pages, &cursor)?.filter(|entry| written_key(snapshot, end) > entry.key());
            let Some(entry) = entry else { break };
            if entry.snapshot == snapshot && at < entry.end() {
                let content = of(entry);
                let gap = Found { first: at, count: content.first.saturating_sub(at), place: None };
                found.extend(Some(gap).filter(|gap| gap.count > 0));
                found.extend(content.clip(at, end));
                at = content.end().min(end);
            }
            cursor.advance(pages)?;
        }
        found.extend((at < end).then(|| Found { first: at, count: end - at, place: None }));
        Ok(found)
    }

    /// Enters the beginning of `content`, which was written to `snapshot`, in place of what it had there. How many
    /// parts that is, and where what it had lay.
    pub(super) fn insert(
        &mut self,
        pages: &mut Pages,
        class: AllocClass,
        snapshot: u32,
        content: Found,
    ) -> Result<Found, Stop> {
        let old = self.find_first(pages, snapshot, content.first, content.end())?;
        let place = content.place.expect("content has a place");
        let mut new = Written { snapshot, part: old.first, place, count: old.count };
        let mut puts: Vec<(Key, Value)> = Vec::new();
        let mut removes: Vec<Key> = Vec::new();
        let mut before = match new.key().checked_sub(1) {
            Some(key) => self.floor(pages, key)?,
            None => None,
        };
        if old.place.is_some() {
            let whole = self.floor(pages, new.key())?.expect("SNAPWRITE1: what was found is there");
            if whole.part < new.part {
                let head = Written { count: new.part - whole.part, ..whole };
                puts.push((head.key(), head.value()));
                before = Some(head);
            } else {
                removes.push(whole.key());
            }
            if new.end() < whole.end() {
                let place = advance(whole.place, new.end() - whole.part);
                let rest = Written { part: new.end(), place, count: whole.end() - new.end(), ..whole };
                puts.push((rest.key(), rest.value()));
            }
        }
        if let Some(before) = before.filter(|before| goes_on(*before, new)) {
            new = Written { count: before.count + new.count, ..before };
        }
        puts.retain(|put| put.0 != new.key());
        removes.retain(|key| *key != new.key());
        puts.push((new.key(), new.value()));
        self.tree.patch(pages, &removes, &puts, class)?;
        Ok(old)
    }

    /// Takes out the first entry of `snapshot`; `None` if there is none.
    pub(super) fn take_first(
        &mut self,
        pages: &mut Pages,
        class: AllocClass,
        snapshot: u32,
    ) -> Result<Option<Found>, Stop> {
        let cursor = Cursor::ceiling(self.tree, pages, written_key(snapshot, 0))?;
        let Some(entry) = self.at(pages, &cursor)?.filter(|entry| entry.snapshot == snapshot) else {
            return Ok(None);
        };
        self.tree.patch(pages, &[entry.key()], &[], class)?;
        Ok(Some(of(entry)))
    }
}

/// What `entry` says in a store that ends with block `end_block`.
fn decode_in(end_block: Block, entry: (Key, Value)) -> Result<Written, BlockError> {
    let written = Written::decode(entry.0, entry.1)?;
    let lies_inside = written.place == NO_PLACE || written.place + written.count <= end_block;
    if lies_inside && written.end() <= u64::MAX / PART_SIZE {
        return Ok(written);
    }
    Err(BlockError::Invalid("written content lies beyond an end"))
}

fn goes_on(before: Written, new: Written) -> bool {
    let place = advance(before.place, before.count);
    before.snapshot == new.snapshot && before.end() == new.part && place == new.place
}

pub(super) fn of(entry: Written) -> Found {
    Found { first: entry.part, count: entry.count, place: Some(entry.place) }
}
