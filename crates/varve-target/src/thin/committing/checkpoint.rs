//! Checkpoints: everything in the maps becomes durable, the log begins anew, and freed blocks become free.
//!
//! The leader of a commit writes them (POOLCOMMIT1). What they capture is one instant at which counts and volumes are in the
//! maps; so their changes are put there first, and again if others came meanwhile.

use super::super::lifecycle::volume::Volume;
use super::super::recover::slots;
use super::super::{InjectedBug, Pool, io_error};
use crate::journal::publish;
use crate::pdata::{MapError, Pages, Stop, Tree};
use std::ops::Range;
use varve_block::{Durability, IoError};
use varve_format::pdata::node::{Key, Value};
use varve_format::thin::{ORIGIN_ENTRIES, Superblock, volume_key};

impl Pool {
    /// THIN8: so few blocks are left for nodes that those pending free should become free, as far as they are not read.
    pub(in crate::thin) fn is_metadata_tight(&self) -> bool {
        let pages = self.map.pages();
        pages.free_blocks_for_nodes() < self.floor_blocks() / 2 && pages.pending_free_blocks() > 0
    }

    pub(in crate::thin) fn floor_blocks(&self) -> u64 {
        super::super::recover::floor_blocks(self.end_block.get())
    }

    /// Writes a checkpoint. `false` says that there is no room for nodes, and that nothing has begun; after an error the
    /// pool has failed.
    pub(in crate::thin) async fn write_checkpoint(&self) -> Result<bool, IoError> {
        self.await_pending_free().await; // And nothing else: a flush does not wait for the disks' trims.
        let (commit, superblock) = loop {
            if let Err(error) = self.write_maps().await {
                return self.cannot_begin(error);
            }
            let capture = |_: &mut Pages| {
                if !self.are_maps_current() {
                    return Ok(None);
                }
                assert_eq!(self.ref_counts.differences(), 0, "REFCOUNT3");
                self.ref_counts.commit_begins();
                drop(self.commits.begin());
                Ok(Some((self.superblock(), self.readers.mark())))
            };
            match self.map.freeze_when(capture).await {
                Ok(Some(frozen)) => break frozen,
                Ok(None) => {}
                Err(error) => return self.cannot_begin(error),
            }
        };
        let (mut superblock, mark) = superblock;
        (superblock.generation, superblock.free_blocks) = (commit.generation(), commit.free_blocks());
        (superblock.nodes, superblock.places) = (commit.nodes(), commit.places().to_vec());
        if let Err(error) = self.write_frozen(&commit, &superblock).await {
            self.commits.group.end();
            return Err(self.fail(error));
        }
        self.number.set(superblock.number);
        self.commits.described_end.set(superblock.end_block);
        // Nothing is logged while a checkpoint is written: it needs none of the records before.
        assert_eq!(self.commits.ring.sequence(), superblock.sequence, "POOLCOMMIT1");
        self.commits.ring.release();
        let before = self.pending_free.replace(Some((commit, mark)));
        assert!(before.is_none(), "THIN5: what was freed before is handed over");
        self.try_free_pending();
        self.ref_counts.commit_ended();
        self.commits.group.end();
        Ok(true)
    }

    async fn write_frozen(
        &self,
        commit: &crate::pdata::Commit,
        superblock: &Superblock,
    ) -> Result<(), IoError> {
        assert_eq!(superblock.generation, commit.generation(), "the superblock is of this checkpoint");
        if let Err(why) = superblock.check() {
            // What was read said more than there is: it is not written again.
            tracing::error!(pool = %self.id, %why, "a pool contradicts itself");
            return Err(IoError::Corrupt);
        }
        self.map.write(commit).await.map_err(io_error)?;
        let (device, [first, other]) = (self.device(), slots(superblock, &self.arena));
        if self.has_bug(InjectedBug::MetadataBeforeData) {
            device.write(first.0, first.1, Durability::Durable).await?;
            return Ok(());
        }
        publish(&device, first, other).await // THIN1
    }

    /// What a superblock says of this instant; the rest is the commit's.
    fn superblock(&self) -> Superblock {
        let ring = &self.commits.ring;
        Superblock {
            number: self.number.get() + 1,
            pool: self.id,
            block_size: self.layout.block_size,
            slot_blocks: self.layout.slot_blocks,
            log_blocks: self.layout.log_blocks,
            end_block: self.end_block.get(),
            generation: 0,
            free_blocks: 0,
            nodes: 0,
            epoch: ring.epoch(),
            shares: self.ref_counts.root().root,
            volumes: self.table.get().root,
            head: ring.head(),
            sequence: ring.sequence(),
            next_volume: self.volumes.next_id(),
            places: Vec::new(),
        }
    }

    /// An error before anything has begun: only one of the device or of damage is the end.
    fn cannot_begin(&self, error: MapError) -> Result<bool, IoError> {
        match error {
            MapError::Full => Ok(false),
            MapError::Io(error) => Err(self.fail(error)),
            MapError::Damaged { block, error } => {
                tracing::error!(pool = %self.id, block = block.number(), why = %error, "a pool contradicts itself");
                Err(self.fail(IoError::Corrupt))
            }
        }
    }

    /// Whether the maps say what is in memory (REFCOUNT3).
    fn are_maps_current(&self) -> bool {
        self.ref_counts.differences() == 0 && self.volumes.are_in_map()
    }

    /// Puts counts and volumes into their maps.
    async fn write_maps(&self) -> Result<(), MapError> {
        while self.map.run(|pages| self.ref_counts.try_fold(pages)).await? {}
        for volume in self.volumes.dirty() {
            volume.dirty.set(false);
            if let Err(error) = self.write_rows(&volume).await {
                volume.dirty.set(true);
                return Err(error);
            }
        }
        for id in self.volumes.forgotten() {
            self.remove_rows(id, 0..u64::MAX).await?;
            self.volumes.is_gone_from_map(id);
        }
        Ok(())
    }

    async fn write_rows(&self, volume: &Volume) -> Result<(), MapError> {
        let rows = volume.rows().encode();
        assert!(rows.len() >= 4, "VOLUME1");
        let last = rows.last().expect("VOLUME1: a volume has entries").0;
        for (key, value) in rows {
            self.change_table(|tree, pages| put(tree, pages, key, value)).await?;
        }
        if volume.over.get().is_none() {
            self.remove_rows(volume.id, ORIGIN_ENTRIES).await?;
        }
        self.remove_rows(volume.id, last as u64 + 1..u64::MAX).await
    }

    /// Removes the entries of a volume with these numbers.
    async fn remove_rows(&self, volume: u64, numbers: Range<u64>) -> Result<(), MapError> {
        let (start, end) = (volume_key(volume, numbers.start), volume_key(volume, numbers.end));
        loop {
            let next = self.map.run(|pages| self.table.get().ceiling(pages, start)).await?;
            let Some((key, _)) = next.filter(|(key, _)| *key < end) else { return Ok(()) };
            self.change_table(|tree, pages| tree.remove(pages, key).map(drop)).await?;
        }
    }

    async fn change_table(
        &self,
        change: impl Fn(&mut Tree, &mut Pages) -> Result<(), Stop>,
    ) -> Result<(), MapError> {
        self.map
            .run(|pages| {
                let mut tree = self.table.get();
                change(&mut tree, pages)?;
                self.table.set(tree);
                Ok(())
            })
            .await
    }

    /// THIN5: waits for requests that were under way at the last checkpoint, then makes free what it freed; if discards are
    /// passed down, they are sent to the disks first.
    pub(in crate::thin) async fn free_pending(&self) {
        self.await_pending_free().await;
        self.pass_down().await;
    }

    async fn await_pending_free(&self) {
        let mark = self.pending_free.borrow().as_ref().map(|(_, mark)| *mark);
        if let Some(mark) = mark {
            self.readers.ended(mark).await;
            self.try_free_pending();
        }
    }

    /// THIN5: makes free what the last checkpoint freed, if no request of before is under way.
    pub(in crate::thin) fn try_free_pending(&self) -> bool {
        let mut pending_free = self.pending_free.borrow_mut();
        let ended = |mark: u64| self.readers.have_ended(mark) || self.has_bug(InjectedBug::ForgetReaders);
        if pending_free.as_ref().is_none_or(|(_, mark)| !ended(*mark)) {
            return false;
        }
        if let Some((commit, _)) = pending_free.take() {
            let free = self.map.pages().free_blocks();
            self.map.committed(commit);
            if self.map.pages().free_blocks() > free {
                self.waiters.notify(); // POOLFULL5 of `full.rs`
            }
        }
        true
    }
}

fn put(tree: &mut Tree, pages: &mut Pages, key: Key, value: Value) -> Result<(), Stop> {
    if tree.get(pages, key)? != Some(value) {
        tree.insert(pages, key, value)?;
    }
    Ok(())
}
