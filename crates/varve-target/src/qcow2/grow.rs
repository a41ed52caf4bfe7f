//! An image whose disk becomes larger.
//!
//! Invariants:
//! - QGROW1. The new L1 table is where nothing is in use, and is durable before the header leads to it. Size, place and length of
//!   the table change by the write of one sector.
//! - QGROW2. What is gained reads as zeros: neither what the last cluster holds behind the old end, nor what is below the image.

use super::file::index;
use super::tables::root::Root;
use super::{Image, InjectedBug, OpenError};
use varve_block::{Access, Extent, IoError, ZeroOptions};
use varve_format::qcow2::{Header, L1_ENTRIES_MAX, SECTOR};

impl Image {
    /// Makes the disk as large as `size`, rounded up to whole sectors. Nothing happens if it is already. Devices that were made of
    /// the image before keep their size.
    pub async fn grow(&mut self, size: u64) -> Result<(), OpenError> {
        if self.access() == Access::ReadOnly {
            return Err(OpenError::Io(IoError::ReadOnly));
        }
        self.check_failed()?;
        let size = size.next_multiple_of(SECTOR);
        if size <= self.header.size {
            return Ok(());
        }
        let (wanted, entries) = self.wanted(size)?;
        self.clear_end(size).await?;
        self.commit().await?;
        let old = self.l1.borrow().extent(self.header.cluster_size());
        let moved = entries > self.header.l1_entries;
        if moved {
            self.move_l1(entries).await?;
        }
        let offset = self.l1.borrow().offset();
        let entries_now = entries.max(self.header.l1_entries);
        Header::put_size(self.first_sector.get_mut(), wanted.size, entries_now, offset);
        self.write_first_sector().await?;
        self.file.flush().await?;
        self.header = Header { l1_entries: entries_now, l1_offset: offset, ..wanted };
        assert!(
            self.header.l1_entries_needed() <= self.header.l1_entries.into(),
            "QHEADER2: the table is long enough"
        );
        if moved {
            self.free_l1(old).await?;
        }
        Ok(())
    }

    /// The header with the new size, and how many L1 entries that needs.
    fn wanted(&self, size: u64) -> Result<(Header, u32), OpenError> {
        let refuse = |why| Err(OpenError::Invalid(why));
        if self.header.version == 2 && self.header.snapshots > 0 {
            return refuse("an image of version 2 that has snapshots does not grow");
        }
        let below = self.backing.as_ref().map(|backing| backing.shape().size);
        if self.header.backing.is_some() && below.is_none_or(|below| below > self.header.size) {
            return refuse(
                "an image does not grow whose backing file is longer than it: what lies there would show",
            );
        }
        let wanted = Header { size, ..self.header.clone() };
        match u32::try_from(wanted.l1_entries_needed()) {
            Ok(entries) if entries <= L1_ENTRIES_MAX => Ok((wanted, entries)),
            _ => refuse("the size is too large for clusters of this size"),
        }
    }

    /// QGROW2, in the last cluster.
    async fn clear_end(&mut self, size: u64) -> Result<(), IoError> {
        let (before, cluster) = (self.size(), self.header.cluster_size());
        let end = before.next_multiple_of(cluster).min(size.next_multiple_of(SECTOR));
        if before == end {
            return Ok(());
        }
        assert!(end - before < cluster, "QGROW2: only the last cluster has a rest");
        self.header.size = end;
        let cleared = self.zero(Extent::between(before, end), ZeroOptions::default()).await;
        self.header.size = before;
        cleared
    }

    /// Makes a longer L1 table in another place; nothing leads to it yet (QGROW1).
    async fn move_l1(&mut self, entries: u32) -> Result<(), IoError> {
        let size = self.header.cluster_size();
        let clusters = (u64::from(entries) * 8).div_ceil(size);
        let offset = self.allocate_run(clusters).await?;
        let mut table = self.l1.borrow().entries().to_vec();
        assert!(table.len() < index(entries.into()), "QGROW1: a table moves to become longer");
        table.resize(index(entries.into()), 0);
        let mut bytes: Vec<u8> = table.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        bytes.resize(index(clusters * size), 0);
        self.file.write_table(offset, &bytes).await?;
        *self.l1.borrow_mut() = Root::new(offset, table);
        let run = Extent::new(offset, clusters * size);
        self.metadata.borrow_mut().extend(run.pieces(size).map(|(_, piece)| piece.offset));
        if self.has_bug(InjectedBug::SizeBeforeTable) {
            return Ok(());
        }
        self.commit().await // Its counts, and with them the table.
    }

    /// Takes `count` clusters that lie one behind the other, behind all that is in use: their first byte.
    async fn allocate_run(&self, count: u64) -> Result<u64, IoError> {
        let (size, first_free) = (self.header.cluster_size(), self.first_free.get());
        self.first_free.set(self.end().await? / size);
        let mut run = Extent::new(0, 0);
        while run.length < count * size {
            let taken = self.allocate(count - run.length / size).await?;
            let taken = Extent::new(taken.offset, taken.count * size);
            if run.length > 0 && run.end() == taken.offset {
                run = Extent::between(run.offset, taken.end());
                continue;
            }
            if taken.offset < run.offset {
                return Err(IoError::NoSpace); // It began anew at the beginning of the file.
            }
            self.give_back(run).await?; // A refcount block is between.
            self.first_free.set(taken.end() / size);
            run = taken;
        }
        assert!(
            run.length == count * size && run.is_aligned(size),
            "QGROW1: the table has a place of its own"
        );
        self.first_free.set(first_free);
        Ok(run.offset)
    }

    /// Frees the clusters of the old L1 table: nothing leads to it any more.
    async fn free_l1(&self, old: Extent) -> Result<(), IoError> {
        assert!(old.offset != self.l1.borrow().offset(), "QGROW1: the header leads to the new table");
        let clusters = old.pieces(self.header.cluster_size());
        for (_, piece) in clusters {
            self.metadata.borrow_mut().remove(&piece.offset);
            self.freed.borrow_mut().push(piece.offset / self.header.cluster_size());
        }
        self.commit().await
    }
}
