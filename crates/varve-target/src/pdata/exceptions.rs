//! The map of exceptions on the persistent tree: what was preserved for which snapshot, runs compressed.
//!
//! Whole chunks that lie one behind the other in the store are one entry, however many: 32 bytes for a sequential
//! change of any length. Random changes are an entry a chunk or less.
//!
//! Every step is one change of the tree, and the rest of a run is entered before the run is shortened. So a lookup may
//! come between any two steps: at worst it is told the same place twice. Changes themselves, and commits, come one
//! after the other: their caller sees to that.
//!
//! Invariants:
//! - R1. No key lies strictly between the first and the last key of a run. So the run that covers a chunk is found
//!   by one look to the left, and a lookup is a walk over the entries of one chunk.
//! - R2. Content of a chunk and a snapshot is in the map once.

use super::{Map, MapError, Pages, Stop, Tree};
use std::cell::Cell;
use std::rc::Rc;
use varve_format::pdata::exception::{Exception, exception_key};
use varve_format::pdata::node::{Key, Value};

/// The exceptions of one store.
pub struct Exceptions {
    map: Rc<Map>,
    root: Cell<Tree>,
    /// Parts of a chunk.
    parts: u32,
}

impl Exceptions {
    /// The exceptions in the tree `root` of `map`; a chunk has `parts` parts.
    pub fn open(map: Rc<Map>, root: Tree, parts: u32) -> Self {
        assert!(parts.is_power_of_two(), "a chunk is a power of two of parts");
        Self { map, root: Cell::new(root), parts }
    }

    /// The tree as it is now, for a superblock.
    pub fn root(&self) -> Tree {
        self.root.get()
    }

    /// What was preserved of `chunk` for the snapshots from `first` to `last`, in order of snapshot and part, one
    /// chunk each.
    pub async fn of_chunk(&self, chunk: u64, first: u32, last: u32) -> Result<Vec<Exception>, MapError> {
        self.map.run(|pages| self.attempt_of_chunk(pages, chunk, first, last)).await
    }

    /// As [`Exceptions::of_chunk`], for those who can come again when what it needs is in memory.
    pub fn attempt_of_chunk(
        &self,
        pages: &mut Pages,
        chunk: u64,
        first: u32,
        last: u32,
    ) -> Result<Vec<Exception>, Stop> {
        let tree = self.root.get();
        let (start, end) = (exception_key(chunk, first, 0), exception_key(chunk, last, u32::MAX));
        let mut found = Vec::new();
        let covering = floor(tree, pages, start)?.filter(|run| run.key() < start && chunk < run.end());
        if let Some(run) = covering
            && run.chunk < chunk
            && (first..=last).contains(&run.snapshot)
        {
            found.push(one_chunk(run, chunk)); // R1
        }
        let mut from = start;
        loop {
            let leaf = tree.leaf(pages, from)?;
            for (key, value) in leaf.entries {
                if key > end {
                    return Ok(found);
                }
                found.push(one_chunk(decode(key, value), chunk));
            }
            match leaf.next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }

    /// Enters what was preserved: `count` parts from part `part` of `chunk` on, which may reach into the chunks
    /// behind it, lie at `place`, in blocks. None of it is in the map for that snapshot yet (R2).
    pub async fn insert(
        &self,
        snapshot: u32,
        chunk: u64,
        part: u32,
        count: u64,
        place: u64,
    ) -> Result<(), MapError> {
        assert!(part < self.parts && count > 0, "a part of a chunk");
        let (mut chunk, mut part, mut left, mut place) = (chunk, part, count, place);
        while left > 0 {
            let parts =
                u32::try_from(left.min(u64::from(self.parts - part))).expect("parts of a chunk are few");
            let new = Exception { chunk, snapshot, part, place, run: 1, parts };
            self.split_at(new.key()).await?;
            let run = if parts == self.parts { self.longest_run(new, left).await? } else { 1 };
            self.join_or_insert(Exception { run, ..new }).await?;
            let blocks = u64::from(run) * u64::from(parts);
            (chunk, part, left, place) = (chunk + u64::from(run), 0, left - blocks, place + blocks);
        }
        Ok(())
    }

    /// Takes out what was preserved of `chunk` for `snapshot`.
    pub async fn remove(&self, snapshot: u32, chunk: u64) -> Result<Vec<Exception>, MapError> {
        let found = self.of_chunk(chunk, snapshot, snapshot).await?;
        for exception in &found {
            let key = exception.key();
            let run = self.change(|tree, pages| floor(*tree, pages, key)).await?;
            let run = run.expect("R1: what was found is there, or a run that covers it");
            if chunk + 1 < run.end() {
                self.put(tail(run, chunk + 1)).await?;
            }
            if run.chunk < chunk {
                self.put(Exception { run: length(run.chunk, chunk), ..run }).await?;
            } else {
                let removed = self.change(|tree, pages| tree.remove(pages, key)).await?;
                assert!(removed.is_some(), "R2: it was there once");
            }
        }
        Ok(found)
    }

    /// R1: makes room for `key` within a run.
    async fn split_at(&self, key: Key) -> Result<(), MapError> {
        let before = self.change(|tree, pages| floor(*tree, pages, key)).await?;
        let Some(run) = before.filter(|run| run.key() < key && key < run.last_key()) else { return Ok(()) };
        let chunk = (key >> 64) as u64;
        // The key comes before the run's own key of its chunk, or behind it.
        let cut = if key < exception_key(chunk, run.snapshot, 0) { chunk } else { chunk + 1 };
        assert!(run.chunk < cut && cut < run.end(), "R1: both sides have chunks");
        self.put(tail(run, cut)).await?;
        self.put(Exception { run: length(run.chunk, cut), ..run }).await
    }

    /// How many whole chunks from that of `new` on can be one run, if `left` parts are to be entered.
    async fn longest_run(&self, new: Exception, left: u64) -> Result<u32, MapError> {
        let wanted = u32::try_from(left / u64::from(self.parts)).unwrap_or(u32::MAX);
        let key = new.key();
        let next = self.change(|tree, pages| tree.ceiling(pages, key + 1)).await?;
        let Some((next, _)) = next else { return Ok(wanted) };
        let chunk = (next >> 64) as u64;
        // R1: the last key of the run comes before the next one.
        let end = if next > exception_key(chunk, new.snapshot, 0) { chunk + 1 } else { chunk };
        Ok(wanted.min(u32::try_from(end - new.chunk).unwrap_or(u32::MAX)))
    }

    /// Enters `new`, as a continuation of the entry before if it is one.
    async fn join_or_insert(&self, new: Exception) -> Result<(), MapError> {
        let key = new.key();
        let before = match key.checked_sub(1) {
            Some(key) => self.change(|tree, pages| floor(*tree, pages, key)).await?,
            None => None,
        };
        let Some(before) = before.filter(|before| before.snapshot == new.snapshot) else {
            return self.put(new).await;
        };
        let whole = before.parts == self.parts && new.parts == self.parts;
        let blocks = u64::from(before.run) * u64::from(before.parts);
        let follows = before.place + blocks == new.place;
        let joined = if whole && follows && before.end() == new.chunk {
            before.run.checked_add(new.run).map(|run| Exception { run, ..before })
        } else if before.chunk == new.chunk
            && before.run == 1
            && follows
            && before.part + before.parts == new.part
        {
            Some(Exception { parts: before.parts + new.parts, ..before })
        } else {
            None
        };
        self.put(joined.unwrap_or(new)).await
    }

    async fn put(&self, exception: Exception) -> Result<(), MapError> {
        let (key, value) = (exception.key(), exception.value());
        self.change(|tree, pages| tree.insert(pages, key, value)).await.map(drop)
    }

    /// One step: the tree is what the attempt that ends makes it.
    async fn change<T>(
        &self,
        step: impl Fn(&mut Tree, &mut Pages) -> Result<T, Stop>,
    ) -> Result<T, MapError> {
        let attempt = |pages: &mut Pages| {
            let mut tree = self.root.get();
            let outcome = step(&mut tree, pages)?;
            self.root.set(tree);
            Ok(outcome)
        };
        self.map.run(attempt).await
    }
}

fn floor(tree: Tree, pages: &mut Pages, key: Key) -> Result<Option<Exception>, Stop> {
    Ok(tree.floor(pages, key)?.map(|(key, value)| decode(key, value)))
}

fn decode(key: Key, value: Value) -> Exception {
    Exception::decode(key, value).expect("what the map holds was encoded, and its checksum is sound")
}

/// What `run` says of `chunk`.
fn one_chunk(run: Exception, chunk: u64) -> Exception {
    Exception { run: 1, ..tail(run, chunk) }
}

/// `run` from `chunk` on.
fn tail(run: Exception, chunk: u64) -> Exception {
    assert!((run.chunk..run.end()).contains(&chunk), "R1: the chunk is part of the run");
    let skipped = chunk - run.chunk;
    Exception {
        chunk,
        place: run.place + skipped * u64::from(run.parts),
        run: length(chunk, run.end()),
        ..run
    }
}

fn length(first: u64, end: u64) -> u32 {
    u32::try_from(end - first).expect("a part of a run is no longer than the run")
}

#[cfg(test)]
mod tests;
