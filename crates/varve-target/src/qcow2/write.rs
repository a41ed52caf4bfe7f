//! Writing an image: in place what is its own, and to a new place what is not there, compressed, or shared with a snapshot.
//!
//! Invariants:
//! - QWRITE1. An entry is changed under an exclusive lock on its cluster's range, after the data is in its place.
//! - QWRITE2. What is written in place needs no lock: its place stays until the write has ended (`readers`), and bytes of a
//!   subcluster that may be written in place are not copied. Where zeros were marked, the place is written anew only when writes
//!   from before have ended: one of them would come to light after it was seen to be gone.

use super::Image;
use super::file::index;
use super::tables::cache::Kind;
use super::tables::mapping::{Mapping, subclusters};
use varve_block::{Bytes, Durability, Extent, IoError, LockMode, MIB, align_down, align_up};
use varve_format::qcow2::{COPIED, Cluster, Entry};

/// The most bytes that get new places at once, but for large clusters.
const ALLOCATION_MAX: u64 = 2 * MIB;

impl Image {
    pub(super) async fn write(
        &self,
        offset: u64,
        data: Bytes,
        durability: Durability,
    ) -> Result<(), IoError> {
        self.check_writable()?;
        match self.taker() {
            Some(below) => self.write_below(below, offset, data).await?,
            None => self.write_here(offset, data).await?,
        }
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Durable => self.commit().await,
        }
    }

    async fn write_here(&self, offset: u64, data: Bytes) -> Result<(), IoError> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let committed = if self.cache.is_over_budget() { self.commit().await } else { Ok(()) };
            let written = match committed {
                Ok(()) => self.write_some(at, &rest).await?,
                // What has its place is written over still.
                Err(IoError::NoSpace) => self.write_in_place(at, &rest).await?.ok_or(IoError::NoSpace)?,
                Err(error) => return Err(error),
            };
            assert!(written > 0 && written <= rest.len() as u64, "each step writes something");
            at += written;
            rest = rest.split_at(index(written)).1;
        }
        Ok(())
    }

    /// Writes as much of the beginning of `data` as one step can; how many bytes that were.
    async fn write_some(&self, at: u64, data: &Bytes) -> Result<u64, IoError> {
        if let Some(written) = self.write_in_place(at, data).await? {
            return Ok(written);
        }
        let length = self.step_length(at, data.len() as u64);
        let clusters = Extent::new(at, length).align_out(self.header.cluster_size());
        let _alone = self.ranges.lock(clusters, LockMode::Exclusive).await;
        match self.write_in_place(at, data).await? {
            Some(written) => Ok(written),
            None => self.write_new(at, &data.slice(0, index(length))).await,
        }
    }

    /// How many of `length` bytes from `at` on have entries in one slice, and may be given places at once.
    pub(super) fn step_length(&self, at: u64, length: u64) -> u64 {
        let step = self.step_length_max();
        length.min(step - at % step)
    }

    /// Bytes between two multiples of which all clusters have entries in one slice.
    pub(super) fn step_length_max(&self) -> u64 {
        let cluster = self.header.cluster_size();
        let slice = self.cache.slice_size() / self.header.l2_entry_size() * cluster;
        let step = slice.min(ALLOCATION_MAX.max(cluster));
        assert!(step.is_multiple_of(cluster), "a step is made of clusters");
        step
    }

    /// Writes the beginning of `data` where it is already, if it may be overwritten there.
    async fn write_in_place(&self, at: u64, data: &Bytes) -> Result<Option<u64>, IoError> {
        let _reading = self.readers.enter();
        let here = self.lookup(at, data.len() as u64).await?;
        assert!(here.length <= data.len() as u64, "no more is found than was asked for");
        let Mapping::Data { offset, copied: true } = here.mapping else { return Ok(None) };
        self.refuse_metadata(Extent::new(offset, here.length)).await?;
        self.file.write(offset, data.slice(0, index(here.length))).await?;
        Ok(Some(here.length))
    }

    /// The L2 table of the entry of `at`, which nothing else refers to.
    pub(super) async fn own_table(&self, at: u64) -> Result<u64, IoError> {
        let l1_index = at / self.header.cluster_size() / self.header.l2_entries();
        let size = self.header.cluster_size();
        let ours = || {
            let copied = self.l1.borrow().get(l1_index) & COPIED != 0;
            self.table_at(l1_index).map(|table| table.filter(|_| copied))
        };
        if let Some(table) = ours()? {
            return Ok(table);
        }
        let _alone = self.tables.lock(Extent::new(l1_index, 1), LockMode::Exclusive).await;
        if let Some(table) = ours()? {
            return Ok(table);
        }
        let old = self.table_at(l1_index)?;
        let content = match old {
            Some(old) => Some(self.shared_table(old).await?),
            None => None,
        };
        let new = self.allocate(1).await?;
        let place = Extent::new(new.offset, size);
        let written = match content {
            Some(content) => self.file.write_table(new.offset, &content).await,
            None => self.file.take_space(place).await, // QCOMMIT4
        };
        if let Err(error) = written {
            self.give_back(place).await?;
            return Err(error);
        }
        self.metadata.borrow_mut().insert(new.offset);
        self.l1.borrow_mut().set(l1_index, new.offset | COPIED);
        self.freed.borrow_mut().extend(old.map(|old| old / size));
        Ok(new.offset)
    }

    /// What a copy of the table at `offset` has in it: what both lead to is shared.
    async fn shared_table(&self, offset: u64) -> Result<Vec<u8>, IoError> {
        let mut content = self.file.read(offset, self.header.cluster_size()).await?;
        content.chunks_exact_mut(index(self.header.l2_entry_size())).for_each(|entry| entry[0] &= 0x7f);
        Ok(content)
    }

    /// The entries of the clusters from that of `at` on, as many as `count`, which lie in one slice: the slice, the number of
    /// the first there, and they.
    pub(super) async fn entries(&self, at: u64, count: u64) -> Result<(u64, u64, Vec<Entry>), IoError> {
        let table = self.own_table(at).await?;
        let number = at / self.header.cluster_size() % self.header.l2_entries();
        let (slice, first) = self.slice_of(table, number);
        let per_slice = self.cache.slice_size() / self.header.l2_entry_size();
        assert!(count > 0 && first + count <= per_slice, "the entries lie in one slice");
        let decode =
            |slice: &[u8]| (first..first + count).map(|at| Entry::decode(slice, at, &self.header)).collect();
        let entries: Result<Vec<Entry>, _> = self.cache.get(slice, decode).await?;
        Ok((slice, first, entries.map_err(|error| self.report_damage(&error))?))
    }

    /// Writes to clusters that are held alone and have entries in one slice. The first of them is not all in place.
    pub(super) async fn write_new(&self, at: u64, data: &Bytes) -> Result<u64, IoError> {
        let size = self.header.cluster_size();
        let all = Extent::new(at, data.len() as u64);
        let clusters = all.align_out(size);
        let (slice, first, mut entries) = self.entries(at, clusters.length / size).await?;
        let reusable = |entry: &Entry| matches!(entry.cluster, Cluster::At { copied: true, .. });
        let old = match entries[0].cluster {
            Cluster::At { offset, copied: true } => {
                entries.truncate(1);
                Some(offset)
            }
            _ => {
                entries.truncate(entries.iter().position(reusable).unwrap_or(entries.len()));
                None
            }
        };
        let (host, clean) = match old {
            Some(offset) => {
                if entries[0].subclusters.zero != 0 {
                    self.readers.ended(self.readers.mark()).await; // QWRITE2
                }
                (offset, false)
            }
            None => {
                let new = self.allocate(entries.len() as u64).await?;
                entries.truncate(index(new.count));
                (new.offset, new.clean)
            }
        };
        let end = all.end().min(clusters.offset + entries.len() as u64 * size);
        let wanted = Extent::between(at, end);
        let whole = self.with_edges(wanted, &entries);
        let place = Extent::new(host + whole.offset - clusters.offset, whole.length);
        let written = async {
            if old.is_some() {
                self.refuse_metadata(place).await?;
            }
            self.fill(place.offset, whole, wanted, data, clean).await
        };
        if let Err(error) = written.await {
            if old.is_none() {
                self.give_back(Extent::new(host, entries.len() as u64 * size)).await?;
            }
            return Err(error);
        }
        self.point(slice, first, &entries, host, Extent::new(whole.offset - clusters.offset, whole.length))
            .await?;
        Ok(wanted.length)
    }

    /// `wanted` with what has to be copied in front of it and behind it, because it becomes allocated with it (QWRITE2).
    fn with_edges(&self, wanted: Extent, entries: &[Entry]) -> Extent {
        let (size, part) = (self.header.cluster_size(), self.header.subcluster_size());
        let unit = |entry: &Entry, at: u64| match entry.cluster {
            Cluster::Absent => part,
            Cluster::At { copied: true, .. } => {
                let bit = 1_u32 << (at % size / part);
                if entry.subclusters.allocated & bit != 0 { 1 } else { part }
            }
            Cluster::At { .. } | Cluster::Compressed { .. } => size,
        };
        assert!(!entries.is_empty(), "there is a cluster to write to");
        let (first, last) = (&entries[0], &entries[entries.len() - 1]);
        let start = align_down(wanted.offset, unit(first, wanted.offset));
        let end = align_up(wanted.end(), unit(last, wanted.end() - 1));
        Extent::between(start, end)
    }

    /// Writes the beginning of `data` as `wanted` to the file, so that `whole` is there from `place` on. In a `clean` place
    /// zeros need not be written.
    async fn fill(
        &self,
        place: u64,
        whole: Extent,
        wanted: Extent,
        data: &Bytes,
        clean: bool,
    ) -> Result<(), IoError> {
        assert!(whole.contains(wanted), "QWRITE1: what is wanted is a part of what is written");
        let data = data.slice(0, index(wanted.length));
        let (head, tail) =
            (Extent::between(whole.offset, wanted.offset), Extent::between(wanted.end(), whole.end()));
        let head = if clean && self.is_zero(head).await? { Extent::new(wanted.offset, 0) } else { head };
        let tail = if clean && self.is_zero(tail).await? { Extent::new(wanted.end(), 0) } else { tail };
        let place = place + (head.offset - whole.offset);
        if head.is_empty() && tail.is_empty() {
            return self.file.write(place, data).await;
        }
        let length = head.length + wanted.length + tail.length;
        let mut joined = self.arena().take(index(length));
        let (first, rest) = joined.split_at_mut(index(head.length));
        let (middle, last) = rest.split_at_mut(data.len());
        middle.copy_from_slice(&data);
        for (extent, target) in [(head, first), (tail, last)] {
            if !extent.is_empty() {
                let old = self.read(extent.offset, self.arena().take(target.len())).await?;
                target.copy_from_slice(&old);
            }
        }
        self.file.write(place, joined.freeze()).await
    }

    /// Whether all of `extent` is known to be zeros.
    pub(super) async fn is_zero(&self, extent: Extent) -> Result<bool, IoError> {
        let mut at = extent.offset;
        while at < extent.end() {
            let here = self.lookup(at, extent.end() - at).await?;
            let zero = match here.mapping {
                Mapping::Zero => true,
                Mapping::Unallocated => self.header.backing.is_none(),
                Mapping::Data { .. } | Mapping::Compressed { .. } => false,
            };
            if !zero {
                return Ok(false);
            }
            at += here.length;
        }
        Ok(true)
    }

    /// Lets the entries from `first` on lead to `host`, where `written` of their clusters is (QWRITE1). What they led to has a
    /// reference fewer.
    pub(super) async fn point(
        &self,
        slice: u64,
        first: u64,
        entries: &[Entry],
        host: u64,
        written: Extent,
    ) -> Result<(), IoError> {
        let size = self.header.cluster_size();
        let new = |number: u64, old: &Entry| {
            let cluster = Extent::new(number * size, size);
            let part = written.intersect(cluster).expect("QWRITE1: each cluster is written");
            let bits = subclusters(&self.header, part.offset - cluster.offset, part.end() - cluster.offset);
            let mut subclusters = old.subclusters;
            subclusters.allocated |= bits;
            subclusters.zero &= !bits;
            Entry { cluster: Cluster::At { offset: host + cluster.offset, copied: true }, subclusters }
        };
        let new: Vec<Entry> = (0..).zip(entries).map(|(number, old)| new(number, old)).collect();
        self.set_entries(slice, first, entries, &new).await
    }

    /// Changes the entries from `first` on of `slice` from `old` to `new`.
    pub(super) async fn set_entries(
        &self,
        slice: u64,
        first: u64,
        old: &[Entry],
        new: &[Entry],
    ) -> Result<(), IoError> {
        assert!(old.len() == new.len(), "QWRITE1: each entry has a new value");
        let size = self.header.cluster_size();
        let place = |entry: &Entry| match entry.cluster {
            Cluster::Absent => None,
            Cluster::At { offset, .. } => Some(Extent::new(offset, size)),
            Cluster::Compressed { offset, length } => Some(Extent::new(offset, length)),
        };
        let change = |slice: &mut [u8]| {
            for (at, (_, new)) in (first..).zip(old.iter().zip(new)).filter(|(_, (old, new))| old != new) {
                new.encode(slice, at, &self.header);
            }
            let mut freed = self.freed.borrow_mut();
            for (old, new) in old.iter().zip(new).filter(|(old, new)| place(old) != place(new)) {
                let clusters = place(old).into_iter().flat_map(|extent| extent.pieces(size));
                freed.extend(clusters.map(|(cluster, _)| cluster));
                assert!(new.cluster != old.cluster, "QWRITE1: a place is freed once");
            }
        };
        self.cache.edit(slice, Kind::Table, change).await
    }
}
