//! Slices of L2 tables and of refcount blocks in memory: at most so many that need not be written.
//!
//! Invariants:
//! - QCACHE1. A slice is read by one task at a time, and never over one that is in memory.
//! - QCACHE2. A slice that is dirty, or being written, stays.

use super::super::file::{File, index};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use varve_block::{Bytes, Extent, IoError, Notify};

/// What a slice is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::qcow2) enum Kind {
    /// A refcount block.
    Refcounts,
    /// An L2 table.
    Table,
}

pub(in crate::qcow2) struct Cache {
    file: File,
    slice_size: u64,
    slices_max: usize,
    state: RefCell<State>,
    loaded: Notify,
}

#[derive(Default)]
struct State {
    /// By offset in the file.
    slices: BTreeMap<u64, Slice>,
    loading: BTreeSet<u64>,
    dirty: BTreeMap<u64, Kind>,
    now: u64,
}

struct Slice {
    bytes: Vec<u8>,
    used: u64,
    writing: bool,
}

impl Cache {
    /// A cache of at most `bytes`, in slices of `slice_size`.
    pub(in crate::qcow2) fn new(file: File, slice_size: u64, bytes: u64) -> Self {
        let slices_max = index((bytes / slice_size).max(16));
        Self { file, slice_size, slices_max, state: RefCell::default(), loaded: Notify::default() }
    }

    pub(in crate::qcow2) fn slice_size(&self) -> u64 {
        self.slice_size
    }

    /// What `look` sees in the slice at `offset`, if it is in memory.
    pub(in crate::qcow2) fn peek<T>(&self, offset: u64, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let state = &mut *self.state.borrow_mut();
        let slice = state.slices.get_mut(&offset)?;
        state.now += 1;
        slice.used = state.now;
        Some(look(&slice.bytes))
    }

    /// What `look` sees in the slice at `offset`.
    pub(in crate::qcow2) async fn get<T>(
        &self,
        offset: u64,
        mut look: impl FnMut(&[u8]) -> T,
    ) -> Result<T, IoError> {
        loop {
            if let Some(seen) = self.peek(offset, &mut look) {
                return Ok(seen);
            }
            self.load(offset).await?;
        }
    }

    /// Lets `change` change the slice at `offset`. It is written by the next commit.
    pub(in crate::qcow2) async fn edit<T>(
        &self,
        offset: u64,
        kind: Kind,
        mut change: impl FnMut(&mut [u8]) -> T,
    ) -> Result<T, IoError> {
        loop {
            {
                let state = &mut *self.state.borrow_mut();
                if let Some(slice) = state.slices.get_mut(&offset) {
                    state.dirty.insert(offset, kind);
                    return Ok(change(&mut slice.bytes));
                }
            }
            self.load(offset).await?;
        }
    }

    /// Reads the slice at `offset`, once for all tasks that ask for it (QCACHE1).
    async fn load(&self, offset: u64) -> Result<(), IoError> {
        assert!(offset.is_multiple_of(self.slice_size), "QCACHE1: {offset} is no slice's offset");
        if !self.state.borrow_mut().loading.insert(offset) {
            self.loaded.until(|| !self.state.borrow().loading.contains(&offset)).await;
            return Ok(());
        }
        let read = match self.state.borrow().slices.contains_key(&offset) {
            true => None,
            false => Some(self.file.read(offset, self.slice_size)),
        };
        let outcome = match read {
            None => Ok(()),
            Some(read) => read.await.map(|bytes| self.insert(offset, bytes)),
        };
        self.state.borrow_mut().loading.remove(&offset);
        self.loaded.notify_all();
        outcome
    }

    fn insert(&self, offset: u64, bytes: Vec<u8>) {
        assert!(bytes.len() as u64 == self.slice_size, "QCACHE1: a whole slice was read");
        let state = &mut *self.state.borrow_mut();
        if state.slices.len() >= self.slices_max {
            state.evict();
        }
        state.now += 1;
        let known = state.slices.insert(offset, Slice { bytes, used: state.now, writing: false });
        assert!(known.is_none(), "QCACHE1: the slice at {offset} is read over one in memory");
    }

    /// Forgets what is in `extent`, which is no metadata any more.
    pub(in crate::qcow2) fn forget(&self, extent: Extent) {
        let state = &mut *self.state.borrow_mut();
        let gone: Vec<u64> = state.slices.range(extent.offset..extent.end()).map(|(at, _)| *at).collect();
        for offset in gone {
            assert!(!state.dirty.contains_key(&offset), "QCACHE2: a freed slice is dirty");
            state.slices.remove(&offset);
        }
    }

    /// Whether so much is dirty that it should be written.
    pub(in crate::qcow2) fn is_over_budget(&self) -> bool {
        self.state.borrow().dirty.len() * 2 > self.slices_max
    }

    /// Whether nothing is dirty.
    pub(in crate::qcow2) fn is_clean(&self) -> bool {
        self.state.borrow().dirty.is_empty()
    }

    /// The dirty slices of `kind`, which are not dirty any more, but being written.
    pub(in crate::qcow2) fn take_dirty(&self, kind: Kind) -> Vec<(u64, Bytes)> {
        let state = &mut *self.state.borrow_mut();
        let taken: Vec<u64> = state.dirty.iter().filter(|(_, of)| **of == kind).map(|(at, _)| *at).collect();
        let take = |offset: u64| {
            state.dirty.remove(&offset);
            let slice = state.slices.get_mut(&offset).expect("QCACHE2: a dirty slice stays");
            assert!(!slice.writing, "QCACHE2: one commit writes a slice at a time");
            slice.writing = true;
            (offset, self.file.arena().copy(&slice.bytes))
        };
        taken.into_iter().map(take).collect()
    }

    /// They have been written.
    pub(in crate::qcow2) fn written(&self, slices: &[(u64, Bytes)]) {
        let mut state = self.state.borrow_mut();
        for (offset, _) in slices {
            let slice = state.slices.get_mut(offset).expect("QCACHE2: a slice being written stays");
            assert!(slice.writing, "QCACHE2: one commit writes a slice at a time");
            slice.writing = false;
        }
    }

    /// They could not be written, and are dirty again.
    pub(in crate::qcow2) fn not_written(&self, kind: Kind, slices: &[(u64, Bytes)]) {
        self.written(slices);
        self.state.borrow_mut().dirty.extend(slices.iter().map(|(offset, _)| (*offset, kind)));
    }
}

impl State {
    /// Drops a quarter of the slices: those that were not used for longest (QCACHE2).
    fn evict(&mut self) {
        let idle = |(offset, slice): (&u64, &Slice)| {
            (!slice.writing && !self.dirty.contains_key(offset)).then_some((slice.used, *offset))
        };
        let mut idle: Vec<(u64, u64)> = self.slices.iter().filter_map(idle).collect();
        idle.sort_unstable();
        for (_, offset) in idle.iter().take((self.slices.len() / 4).max(1)) {
            self.slices.remove(offset);
        }
    }
}
