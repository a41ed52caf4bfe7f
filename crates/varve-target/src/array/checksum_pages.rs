//! Pages of checksums, read when they are needed and written when a region is to become clean.
//!
//! ```text
//!   write ─► checksums in memory ─► ... idle ─► pages on all members ─► flush ─► the region is clean in the log
//! ```
//!
//! Invariants:
//! - PAGES1. The pages of a clean region are durable on all members in sync, and fit what these hold.
//! - PAGES2. In a region in which members may differ nothing is checked: its pages may be of any time. Making it equal begins with
//!   checksums that are unknown.
//! - PAGES3. A flush, or a durable write, of ddraid is acknowledged when the pages of what it covers are durable, too, as long as no data
//!   member is missing: then the log has what is written.

use super::change::each_once;
use super::checksums::{Checksums, spans_of};
use super::{Array, InjectedBug};
use futures_util::future::{join, join_all};
use varve_block::{Buffer, Bytes, Durability, Extent, IoError, LockMode, align_down, align_up};
use varve_format::array::{BLOCK_SIZE, ChecksumPage, MemberState, SPAN_SIZE};

/// Spans whose pages are written at a time.
const BATCH: usize = 64;

impl Array {
    /// The checksums, if those of `extent` count now (PAGES2).
    pub(super) fn checked(&self, extent: Extent) -> Option<&Checksums> {
        self.checksums.as_ref().filter(|_| !self.differs(extent))
    }

    /// Whether all of `runs`, of these members in `extent`, may be what was written there.
    pub(super) async fn fit(&self, extent: Extent, runs: &[(usize, &[u8])]) -> bool {
        self.read_pages(extent).await;
        let Some(checksums) = self.checked(extent) else { return true };
        runs.iter().all(|(place, run)| checksums.allow(*place, extent, run))
    }

    /// Waits for `read` while pages of `extent` are read that are needed to check it.
    pub(super) async fn beside_pages<T>(&self, extent: Extent, read: impl Future<Output = T>) -> T {
        match self.checked(extent).is_some_and(|checksums| self.unread(checksums, extent).is_some()) {
            true => join(read, self.read_pages(extent)).await.0,
            false => read.await,
        }
    }

    /// Reads the pages of `extent` whether or not they count; those of what was never written say nothing.
    pub(super) async fn read_pages_below(&self, checksums: &Checksums, extent: Extent) {
        for number in spans_of(extent) {
            if !self.regions.written().contains(number * SPAN_SIZE / self.regions.size()) {
                checksums.begin(Extent::new(number * SPAN_SIZE, SPAN_SIZE), false);
            }
            while !checksums.was_read(number) {
                self.read_pages_of(checksums, number).await;
            }
        }
    }

    /// Learns all that can be known of the checksums of `extent`.
    pub(super) async fn read_pages(&self, extent: Extent) {
        while let Some(checksums) = self.checked(extent)
            && let Some(number) = self.unread(checksums, extent)
        {
            self.read_pages_of(checksums, number).await;
        }
    }

    /// The first span of `extent` whose pages must be read: those of what was never written say nothing.
    fn unread(&self, checksums: &Checksums, extent: Extent) -> Option<u64> {
        let number = checksums.unread(extent)?;
        if self.regions.written().contains(number * SPAN_SIZE / self.regions.size()) {
            return Some(number);
        }
        for span in spans_of(extent) {
            if !self.regions.written().contains(span * SPAN_SIZE / self.regions.size()) {
                checksums.begin(Extent::new(span * SPAN_SIZE, SPAN_SIZE), false);
            }
        }
        checksums.unread(extent)
    }

    async fn read_pages_of(&self, checksums: &Checksums, number: u64) {
        if !checksums.begin_reading(number) {
            return checksums.being_read(number).await;
        }
        let places = self.members.in_state(MemberState::InSync);
        let reads = places.iter().map(|place| {
            let (device, buffer) =
                (self.members.device(*place), self.options.arena.take(BLOCK_SIZE as usize));
            async move { (*place, device.read(ChecksumPage::offset(number), buffer).await) }
        });
        let mut pages = vec![None; self.members.count()];
        for (place, outcome) in join_all(reads).await {
            match outcome {
                Ok(bytes) => pages[place] = ChecksumPage::decode(&bytes).ok(),
                Err(error) => self.count_error(place, error),
            }
        }
        for place in checksums.end_reading(number, &pages) {
            if places.contains(&place) {
                tracing::warn!(array = %self.spec.id, member = place, span = number, "a page of checksums is not the newest");
                checksums.lag(place, Extent::new(number * SPAN_SIZE, SPAN_SIZE));
                self.tell();
            }
        }
    }

    /// `region` is about to be written for the first time: pages that lie there say nothing.
    pub(super) fn begin_checksums(&self, region: u64) {
        if let Some(checksums) = &self.checksums {
            checksums.begin(self.regions.extent(region, self.size()), true);
        }
    }

    /// Members are about to have `fragments` in `extent`; none if it is not written.
    pub(super) fn expect(&self, extent: Extent, fragments: &[Bytes]) {
        let Some(checksums) = &self.checksums else { return };
        let rows = if self.is_mirror() { 1 } else { fragments.len() };
        for (place, fragment) in fragments.iter().enumerate().take(rows) {
            checksums.set(place, extent, fragment);
        }
    }

    /// The spans whose pages must be written before their regions can be clean.
    pub(super) fn pages_behind(&self) -> Vec<u64> {
        let Some(checksums) = &self.checksums else { return Vec::new() };
        Checksums::outside(checksums.behind(), &self.regions.unsynced(), self.regions.size())
    }

    /// The checksums, if those of what is flushed are to be durable with it (PAGES3).
    pub(super) fn flushed_checksums(&self) -> Option<&Checksums> {
        let is_exempt =
            self.is_mirror() || self.lacks_data_member() || self.has_bug(InjectedBug::FlushBeforePages);
        self.checksums.as_ref().filter(|_| !is_exempt)
    }

    /// Writes the pages that a flush is to make durable. Returns the members that failed. The caller is inside the gate.
    pub(super) async fn write_flushed_pages(&self) -> Vec<(usize, IoError)> {
        let Some(checksums) = self.flushed_checksums() else { return Vec::new() };
        let _paging = self.paging.lock(Extent::new(0, u64::MAX), LockMode::Exclusive).await;
        self.write_active_pages(checksums.behind(), Durability::Volatile).await
    }

    /// Writes the pages of a durable write of `extent`, durably. Returns the members that failed. The caller is inside the gate.
    pub(super) async fn write_durable_pages(
        &self,
        checksums: &Checksums,
        extent: Extent,
    ) -> Vec<(usize, IoError)> {
        let whole = Extent::between(align_down(extent.offset, SPAN_SIZE), align_up(extent.end(), SPAN_SIZE));
        let _paging = self.paging.lock(whole, LockMode::Exclusive).await;
        let spans = spans_of(whole).filter(|number| checksums.lacks_durable_pages(*number)).collect();
        self.write_active_pages(spans, Durability::Durable).await
    }

    /// Writes the pages of those of `spans` whose regions are or were written and may be dirty. Returns the members that failed.
    async fn write_active_pages(&self, mut spans: Vec<u64>, durability: Durability) -> Vec<(usize, IoError)> {
        spans.retain(|span| self.regions.is_active(span * SPAN_SIZE / self.regions.size()));
        let failed = self.write_pages(&spans, durability).await;
        self.lag(&failed, &spans);
        failed
    }

    /// Members that `failed` lack the pages of these spans.
    fn lag(&self, failed: &[(usize, IoError)], spans: &[u64]) {
        let Some(checksums) = &self.checksums else { return };
        for (place, span) in failed.iter().flat_map(|(place, _)| spans.iter().map(move |span| (place, span)))
        {
            checksums.lag(*place, Extent::new(span * SPAN_SIZE, SPAN_SIZE));
        }
    }

    /// Writes the pages of these spans to all members that are written; those of dirty regions are as durable as `durability` says.
    /// Returns the members that failed. The caller holds `paging` inside the gate, or has closed it.
    pub(super) async fn write_pages(&self, spans: &[u64], durability: Durability) -> Vec<(usize, IoError)> {
        let Some(checksums) = &self.checksums else { return Vec::new() };
        let places = self.members.written();
        assert!(!places.is_empty(), "PAGES1: a member has the pages");
        let mut failed = Vec::new();
        for batch in spans.chunks(BATCH) {
            let extent = |number: &u64| Extent::new(number * SPAN_SIZE, SPAN_SIZE);
            join_all(batch.iter().map(|number| self.read_pages_below(checksums, extent(number)))).await;
            assert!(
                batch.iter().all(|number| checksums.was_read(*number)),
                "CHECKSUMS2: a page is written whole"
            );
            let pages: Vec<ChecksumPage> =
                batch.iter().flat_map(|number| checksums.begin_writing(*number, &places)).collect();
            let is_active =
                |page: &&ChecksumPage| self.regions.is_active(page.span * SPAN_SIZE / self.regions.size());
            let (dirty, clean): (Vec<_>, Vec<_>) = pages.iter().partition(is_active);
            let write = |page| self.write_page(page, durability);
            failed.extend(join_all(dirty.into_iter().map(write)).await.into_iter().flatten());
            for page in clean {
                // PAGES1: a crash tears one page of a clean region at most, and its rows stand on another member, too.
                failed.extend(self.write_page(page, Durability::Durable).await);
            }
            batch.iter().for_each(|number| checksums.end_writing(*number, durability));
        }
        each_once(failed)
    }

    async fn write_page(&self, page: &ChecksumPage, durability: Durability) -> Option<(usize, IoError)> {
        let place = page.place as usize;
        let mut bytes = self.options.arena.take(BLOCK_SIZE as usize);
        page.encode(&mut bytes);
        let at = ChecksumPage::offset(page.span);
        assert!(at + BLOCK_SIZE <= self.spec.metadata_size, "ARRAYSUMS1: a page lies in front of the data");
        let outcome = self.members.device(place).write(at, bytes.freeze(), durability).await;
        outcome.err().map(|error| {
            let errors = &self.members.counters(place).errors;
            errors.set(errors.get() + 1);
            (place, error)
        })
    }

    /// Writes the pages of regions that are idle, so that they can become clean when these are flushed (PAGES1).
    pub(super) async fn write_idle_pages(&self) {
        let Some(checksums) = &self.checksums else { return };
        if checksums.behind().is_empty() && !self.regions.has_active()
            || self.has_bug(InjectedBug::ClearBeforePages)
        {
            return;
        }
        let inside = self.gate.enter().await;
        let paging = self.paging.lock(Extent::new(0, u64::MAX), LockMode::Exclusive).await;
        let idle = self.regions.begin_pages(self.options.clock.now(), self.release_delay.get());
        let region = |span: &u64| span * SPAN_SIZE / self.regions.size();
        let mut spans = self.pages_behind();
        spans.retain(|span| idle.contains(&region(span)) || !self.regions.is_active(region(span)));
        let failed = self.write_pages(&spans, Durability::Volatile).await;
        if self.handle_failures(&failed, 0..0).is_err() {
            self.lag(&failed, &spans);
            return;
        }
        self.regions.end_pages(&idle, self.has_bug(InjectedBug::ClearBeforePagesFlushed));
        drop((paging, inside));
        if self.members.is_leaving() {
            let _told = self.reconfigure().await; // The next request gets the error, too.
        }
    }

    /// What was just read of members that are made equal in `extent` is authoritative, whatever checksums said before.
    pub(super) fn take_as_it_is(&self, extent: Extent, runs: &[(usize, &Buffer)]) {
        let Some(checksums) = &self.checksums else { return };
        if !self.has_bug(InjectedBug::ResyncWithoutChecksums) {
            runs.iter().for_each(|(place, run)| checksums.set(*place, extent, run));
        }
    }

    /// What all members agree on in `extent` gets checksums where it had none.
    pub(super) fn learn(&self, extent: Extent, held: &[(usize, &[u8])]) {
        let Some(checksums) = self.checked(extent) else { return };
        let learnt = held.iter().filter(|(place, run)| checksums.learn(*place, extent, run)).count();
        if learnt > 0 {
            self.tell(); // The background's work is to write their pages.
        }
    }

    /// What members hold in these regions is unknown: they are believed as they are (PAGES2).
    pub(super) fn forget_checksums(&self, regions: impl IntoIterator<Item = u64>) {
        let Some(checksums) = &self.checksums else { return };
        let written = self.regions.written();
        for region in regions.into_iter().filter(|region| written.contains(*region)) {
            checksums.forget(self.regions.extent(region, self.size()));
        }
    }
}
