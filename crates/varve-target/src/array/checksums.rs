//! The checksums of an array's fragments, in memory: what is expected of what a member returns.
//!
//! They are kept by spans of [`SPAN_SIZE`] bytes of the array, as the pages on the members are. A span has a row for each member (one
//! of a mirror, whose members have the same), and a row an entry for each block. What a write changes is known here at once; it is
//! *behind* on the members until pages are written, and stays in memory until then. What is not behind is a cache.
//!
//! Invariants:
//! - CHECKSUMS1. A span that is behind, or whose pages are being read or written, stays in memory.
//! - CHECKSUMS2. What was read of pages never takes the place of what was set since.

use super::geometry::ArrayLayout;
use super::region_set::RegionSet;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use varve_block::{Durability, Extent, Notify, is_zero};
use varve_format::array::{ChecksumPage, SPAN_SIZE, fragment_checksum};

/// What is known of the checksum of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// Pages may say it, and were not read.
    Unread,
    /// It is unknown: the fragment is believed.
    Unknown,
    /// It is this.
    Is(u32),
}

impl Expected {
    /// Whether `fragment` may be what was written.
    pub(super) fn allows(self, fragment: &[u8]) -> bool {
        !matches!(self, Expected::Is(sum) if sum != fragment_checksum(fragment))
    }
}

/// Those of an array.
pub(super) struct Checksums {
    layout: ArrayLayout,
    /// First half of the array's id.
    array: u64,
    spans: RefCell<HashMap<u64, Span>>,
    /// Those in memory, each once, in the order in which they are looked at when one is to make room.
    order: RefCell<VecDeque<u64>>,
    /// The most spans in memory of which none is behind.
    spans_max: usize,
    /// Pages were read.
    read: Notify,
}

struct Span {
    /// Row after row.
    entries: Vec<Expected>,
    /// The highest of its pages.
    generation: u64,
    /// What was read of pages is of one generation, of every member.
    is_of_one_time: bool,
    /// What is unknown may be of something that was written.
    has_forgotten: bool,
    was_read: bool,
    is_being_read: bool,
    is_being_written: bool,
    /// Bit `i`: the page of member `i` does not say this.
    behind: u16,
    /// Its pages were written last into caches.
    is_cached: bool,
    /// It was looked at since room was last looked for.
    was_used: bool,
}

impl Span {
    fn may_go(&self) -> bool {
        self.behind == 0 && !self.is_being_read && !self.is_being_written // CHECKSUMS1
    }
}

impl Checksums {
    /// None yet, of an array of this layout; `bytes_max` of memory for those that are not behind.
    pub(super) fn new(layout: ArrayLayout, array: u64, bytes_max: u64) -> Self {
        assert!(layout.members() < 16, "ARRAY3: a bit of `behind` for each member");
        let span = rows(layout) * count(layout) * size_of::<Expected>() + size_of::<Span>();
        let spans_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / span;
        Self {
            layout,
            array,
            spans: RefCell::default(),
            order: RefCell::default(),
            spans_max: spans_max.max(64),
            read: Notify::default(),
        }
    }

    /// Bytes of the array whose fragments have one checksum on each member.
    pub(super) fn block_size(&self) -> u64 {
        block_size(self.layout)
    }

    fn all_members(&self) -> u16 {
        (1 << self.layout.members()) - 1
    }

    fn row_of(&self, place: usize) -> usize {
        if rows(self.layout) == 1 { 0 } else { place }
    }

    /// For each block of `extent`: its span, and its number there.
    fn blocks(&self, extent: Extent) -> impl Iterator<Item = (u64, usize)> {
        let block = self.block_size();
        assert!(extent.is_aligned(block), "GEOMETRY2: whole blocks, not {extent:?}");
        (extent.offset / block..extent.end() / block).map(move |number| {
            let of_span = SPAN_SIZE / block;
            (number / of_span, usize::try_from(number % of_span).expect("a span is small"))
        })
    }

    /// Calls `visit` with the span of each block of `extent`, and the block's number there. Spans that are not in memory begin unread.
    fn visit(&self, extent: Extent, mut visit: impl FnMut(&mut Span, usize)) {
        let mut blocks = self.blocks(extent).peekable();
        while let Some((number, _)) = blocks.peek().copied() {
            self.with(number, |span| {
                while let Some((_, block)) = blocks.next_if(|next| next.0 == number) {
                    visit(span, block);
                }
            });
        }
    }

    fn with<T>(&self, number: u64, look: impl FnOnce(&mut Span) -> T) -> T {
        let mut spans = self.spans.borrow_mut();
        if !spans.contains_key(&number) {
            self.make_room(&mut spans);
            self.order.borrow_mut().push_back(number);
            let entries = vec![Expected::Unread; rows(self.layout) * count(self.layout)];
            spans.insert(
                number,
                Span {
                    entries,
                    generation: 0,
                    is_of_one_time: false,
                    has_forgotten: false,
                    was_read: false,
                    is_being_read: false,
                    is_being_written: false,
                    behind: 0,
                    is_cached: false,
                    was_used: false,
                },
            );
        }
        let span = spans.get_mut(&number).expect("it was put in");
        span.was_used = true;
        look(span)
    }

    /// Takes spans out that were not used since they were looked at last, until one fits.
    fn make_room(&self, spans: &mut HashMap<u64, Span>) {
        let mut order = self.order.borrow_mut();
        assert_eq!(order.len(), spans.len(), "CHECKSUMS1: each span is in the order once");
        for _ in 0..2 * order.len() {
            if spans.len() < self.spans_max {
                return;
            }
            let number = order.pop_front().expect("as many as there are spans");
            let span = spans.get_mut(&number).expect("each is in memory");
            if span.may_go() && !std::mem::take(&mut span.was_used) {
                spans.remove(&number);
            } else {
                order.push_back(number);
            }
        }
    }

    /// What is in `extent`, which was never written, is whatever was there before. Pages that lie there say nothing.
    pub(super) fn begin(&self, extent: Extent, is_behind: bool) {
        let behind = if is_behind { self.all_members() } else { 0 };
        for number in spans_of(extent) {
            self.with(number, |span| {
                if !span.was_read {
                    span.entries.fill(Expected::Unknown);
                    (span.was_read, span.is_of_one_time, span.has_forgotten) = (true, true, false);
                }
                span.behind |= behind;
            });
        }
    }

    fn zero(&self) -> u32 {
        let length = self.block_size() / self.layout.data_members();
        fragment_checksum(&vec![0; usize::try_from(length).expect("a fragment is small")])
    }

    /// Member `place` is about to have `run` in `extent`, or has it and it is authoritative.
    pub(super) fn set(&self, place: usize, extent: Extent, run: &[u8]) {
        self.assert_run(extent, run);
        let (row, count, all) = (self.row_of(place), count(self.layout), self.all_members());
        let mut fragments = run.chunks_exact(self.fragment_size());
        self.visit(extent, |span, block| {
            let fragment = fragments.next().expect("COMBINE1: a fragment of each block");
            span.entries[row * count + block] = Expected::Is(fragment_checksum(fragment));
            span.behind = all;
        });
    }

    fn assert_run(&self, extent: Extent, run: &[u8]) {
        let length = run.len() as u64 * self.layout.data_members();
        assert_eq!(length, extent.length, "COMBINE1: a fragment of each block");
    }

    /// All members are about to have zeros in `extent`.
    pub(super) fn set_zeros(&self, extent: Extent) {
        self.set_all(extent, Expected::Is(self.zero()));
    }

    /// What members have in `extent` is unknown from now on.
    pub(super) fn forget(&self, extent: Extent) {
        self.set_all(extent, Expected::Unknown);
        spans_of(extent).for_each(|number| self.with(number, |span| span.has_forgotten = true));
    }

    fn set_all(&self, extent: Extent, expected: Expected) {
        let (count, all) = (count(self.layout), self.all_members());
        self.visit(extent, |span, block| {
            span.entries.iter_mut().skip(block).step_by(count).for_each(|entry| *entry = expected);
            span.behind = all;
        });
    }

    /// What all members agree on in `extent` is from now on expected where nothing was. Returns whether that is so anywhere.
    pub(super) fn learn(&self, place: usize, extent: Extent, run: &[u8]) -> bool {
        let (size, mut is_new) = (self.fragment_size(), false);
        for (index, (_, block)) in extent.pieces(self.block_size()).enumerate() {
            if self.expected(place, block) == Expected::Unknown {
                self.set(place, block, &run[index * size..][..size]);
                is_new = true;
            }
        }
        is_new
    }

    /// What member `place` is about to have in `block` is known to be wrong: what it is computed from was wrong.
    pub(super) fn refuse(&self, place: usize, block: Extent, fragment: &[u8]) {
        assert_eq!(block.length, self.block_size(), "GEOMETRY2: one block");
        let index = self.row_of(place) * count(self.layout);
        let all = self.all_members();
        self.visit(block, |span, number| {
            span.entries[index + number] = Expected::Is(!fragment_checksum(fragment));
            span.behind = all;
        });
    }

    /// The pages of member `place` for `extent` are to be written.
    pub(super) fn lag(&self, place: usize, extent: Extent) {
        assert!(place < self.layout.members(), "ARRAY3: member {place}");
        spans_of(extent).for_each(|number| self.with(number, |span| span.behind |= 1 << place));
    }

    /// What member `place` is expected to have in `block`.
    pub(super) fn expected(&self, place: usize, block: Extent) -> Expected {
        assert_eq!(block.length, self.block_size(), "GEOMETRY2: one block");
        let index = self.row_of(place) * count(self.layout);
        let mut found = Expected::Unread;
        self.visit(block, |span, number| found = span.entries[index + number]);
        found
    }

    /// Whether `run` may be what was written to member `place` in `extent`, of which all is known that can be.
    pub(super) fn allow(&self, place: usize, extent: Extent, run: &[u8]) -> bool {
        self.assert_run(extent, run);
        let index = self.row_of(place) * count(self.layout);
        let mut fragments = run.chunks_exact(self.fragment_size());
        let mut fits = true;
        self.visit(extent, |span, block| {
            let fragment = fragments.next().expect("COMBINE1: a fragment of each block");
            fits = fits && span.entries[index + block].allows(fragment);
        });
        fits
    }

    /// Bytes of what has a checksum.
    pub(super) fn fragment_size(&self) -> usize {
        usize::try_from(self.block_size() / self.layout.data_members()).expect("a fragment is small")
    }

    /// The first span of which pages must be read before all is known of `extent`.
    pub(super) fn unread(&self, extent: Extent) -> Option<u64> {
        let mut spans = spans_of(extent);
        spans.find(|number| {
            let part = span_extent(*number).intersect(extent).expect("it is one of its spans");
            let (rows, count) = (rows(self.layout), count(self.layout));
            let mut is_unread = false;
            self.visit(part, |span, block| {
                is_unread |= !span.was_read
                    && (0..rows).any(|row| span.entries[row * count + block] == Expected::Unread);
            });
            is_unread
        })
    }

    /// Whether pages of span `number` are to be read, by the caller. Else they are being read already, or were.
    pub(super) fn begin_reading(&self, number: u64) -> bool {
        self.with(number, |span| {
            let begins = !span.was_read && !span.is_being_read;
            span.is_being_read |= begins;
            begins
        })
    }

    /// The pages of span `number` were read: the page of each member that has one. What nothing says is unknown. Returns the
    /// members whose page is not as new as it should be.
    pub(super) fn end_reading(&self, number: u64, pages: &[Option<ChecksumPage>]) -> Vec<usize> {
        let (rows, count) = (rows(self.layout), count(self.layout));
        let is_one = |place: usize, page: &&ChecksumPage| {
            (page.array, page.span, page.place as usize) == (self.array, number, place)
                && page.rows.len() == rows.min(2)
                && page.rows[0].len() == count
        };
        let page = |place: usize| pages[place].as_ref().filter(|page| is_one(place, page));
        let newest = (0..pages.len()).filter_map(page).map(|page| page.generation).max();
        let stale = |place: &usize| newest.is_some() && page(*place).map(|page| page.generation) != newest;
        self.with(number, |span| {
            assert!(span.is_being_read, "CHECKSUMS2: nobody reads its pages");
            span.is_of_one_time = newest.is_some();
            span.has_forgotten |= (0..pages.len()).filter_map(page).any(|page| page.forgotten);
            for (row, entries) in span.entries.chunks_mut(count).enumerate() {
                let mut sources: Vec<(u64, &[Option<u32>])> = if rows == 1 {
                    (0..pages.len())
                        .filter_map(page)
                        .map(|page| (page.generation, &page.rows[0][..]))
                        .collect()
                } else {
                    let next = (row + 1) % rows;
                    let own = page(row).map(|page| (page.generation, &page.rows[0][..]));
                    own.into_iter()
                        .chain(page(next).map(|page| (page.generation, &page.rows[1][..])))
                        .collect()
                };
                // Of two the newer one; of those as new that of the next member, which is on another disk.
                sources.sort_by_key(|(generation, _)| *generation);
                let source = sources.last().map(|(_, sums)| *sums);
                span.is_of_one_time &= sources.last().map(|(generation, _)| *generation) == newest;
                let unread = entries.iter_mut().enumerate().filter(|(_, entry)| **entry == Expected::Unread);
                for (index, entry) in unread {
                    let sum = source.and_then(|sums| sums[index]);
                    *entry = sum.map_or(Expected::Unknown, Expected::Is); // CHECKSUMS2
                }
            }
            span.generation = span.generation.max(newest.unwrap_or(0));
            (span.was_read, span.is_being_read) = (true, false);
        });
        self.read.notify_all();
        (0..pages.len()).filter(stale).collect()
    }

    /// Whether the run of each member in `extent` matches checksums that were written at one time; what was never written is zeros
    /// (ARRAYLOST2).
    pub(super) fn match_all(&self, extent: Extent, runs: &[(usize, &[u8])]) -> bool {
        assert_eq!(runs.len(), self.layout.members(), "ARRAYLOST2: a run of each member");
        let count = count(self.layout);
        let size = self.fragment_size();
        let (mut is_known, mut number) = (true, 0);
        self.visit(extent, |span, block| {
            let is_unknown = |entry: &&Expected| !matches!(entry, Expected::Is(_));
            let unknown = span.entries.iter().skip(block).step_by(count).filter(is_unknown).count();
            let is_zero = || runs.iter().all(|(_, run)| is_zero(&run[number * size..][..size]));
            is_known &= span.was_read && span.is_of_one_time;
            is_known &= unknown == 0 || (unknown == runs.len() && !span.has_forgotten && is_zero());
            number += 1;
        });
        is_known && runs.iter().all(|(place, run)| self.allow(*place, extent, run))
    }

    /// Whether the pages of span `number` were read, or say nothing.
    pub(super) fn was_read(&self, number: u64) -> bool {
        self.with(number, |span| span.was_read)
    }

    /// Waits while the pages of span `number` are being read.
    pub(super) async fn being_read(&self, number: u64) {
        let is_being_read = || self.spans.borrow().get(&number).is_some_and(|span| span.is_being_read);
        self.read.until(|| !is_being_read()).await;
    }

    /// The spans that are behind.
    pub(super) fn behind(&self) -> Vec<u64> {
        let spans = self.spans.borrow();
        let mut behind: Vec<u64> =
            spans.iter().filter(|(_, span)| span.behind != 0).map(|(number, _)| *number).collect();
        behind.sort_unstable();
        behind
    }

    /// The pages of span `number`, which was read, that are behind on the members at `places`; they are not behind any more.
    pub(super) fn begin_writing(&self, number: u64, places: &[usize]) -> Vec<ChecksumPage> {
        let (rows, count, all) = (rows(self.layout), count(self.layout), self.all_members());
        self.with(number, |span| {
            assert!(span.was_read && !span.is_being_written, "CHECKSUMS1: span {number}");
            span.is_being_written = true;
            span.generation += u64::from(span.behind == all || span.generation == 0);
            let behind = std::mem::take(&mut span.behind);
            let row = |row: usize| {
                let entries = &span.entries[row * count..][..count];
                let sum = |entry: &Expected| match entry {
                    Expected::Is(sum) => Some(*sum),
                    Expected::Unread | Expected::Unknown => None,
                };
                entries.iter().map(sum).collect::<Vec<_>>()
            };
            let page = |place: &usize| ChecksumPage {
                array: self.array,
                span: number,
                place: u32::try_from(*place).expect("ARRAY3: members are few"),
                generation: span.generation,
                forgotten: span.has_forgotten,
                rows: match rows {
                    1 => vec![row(0)],
                    _ => vec![row(*place), row((place + rows - 1) % rows)],
                },
            };
            places.iter().filter(|place| behind >> **place & 1 == 1).map(page).collect()
        })
    }

    /// The pages of span `number` were written, or their members leave.
    pub(super) fn end_writing(&self, number: u64, durability: Durability) {
        self.with(number, |span| {
            assert!(span.is_being_written, "CHECKSUMS1: nobody writes its pages");
            span.is_being_written = false;
            span.is_cached = durability == Durability::Volatile;
        });
    }

    /// Whether pages of span `number` are to be written before all that is known of it is durable: they are behind, or a flush that
    /// may not have ended has written them.
    pub(super) fn lacks_durable_pages(&self, number: u64) -> bool {
        let all = self.all_members();
        self.with(number, |span| {
            if span.is_cached {
                span.behind = all;
            }
            span.behind != 0
        })
    }

    /// What is not behind in `extent` is to be read again.
    pub(super) fn drop_read(&self, extent: Extent) {
        let mut spans = self.spans.borrow_mut();
        for number in spans_of(extent) {
            if spans.get(&number).is_some_and(Span::may_go) {
                spans.remove(&number);
                self.order.borrow_mut().retain(|other| *other != number);
            }
        }
    }

    /// Those of `spans` that lie in regions of `size` bytes which are not in `regions`.
    pub(super) fn outside(spans: Vec<u64>, regions: &RegionSet, size: u64) -> Vec<u64> {
        spans.into_iter().filter(|span| !regions.contains(span * SPAN_SIZE / size)).collect()
    }
}

/// Rows of a span: one for each member, or one for all.
fn rows(layout: ArrayLayout) -> usize {
    match layout {
        ArrayLayout::Mirror { .. } => 1,
        ArrayLayout::Ddraid { .. } => layout.members(),
    }
}

/// Bytes of the array that have one checksum on each member.
pub(super) fn block_size(layout: ArrayLayout) -> u64 {
    layout.block_size().max(varve_format::array::BLOCK_SIZE)
}

/// Entries of a row.
fn count(layout: ArrayLayout) -> usize {
    usize::try_from(SPAN_SIZE / block_size(layout)).expect("a span is small")
}

/// The spans that `extent` touches.
pub(super) fn spans_of(extent: Extent) -> Range<u64> {
    extent.offset / SPAN_SIZE..extent.end().div_ceil(SPAN_SIZE)
}

fn span_extent(number: u64) -> Extent {
    Extent::new(number * SPAN_SIZE, SPAN_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: ArrayLayout = ArrayLayout::Ddraid { order: 2, block_size: 4096 };
    const BLOCK: Extent = Extent { offset: 0, length: 4096 };

    /// The fragments of a block of these bytes, and their parity.
    fn fragments(bytes: [u8; 4]) -> Vec<Vec<u8>> {
        let parity = bytes.iter().fold(0, |sum, byte| sum ^ byte);
        bytes.into_iter().chain([parity]).map(|byte| vec![byte; 1024]).collect()
    }

    /// The page of member `place`, which says that the first block is `block`.
    fn page(place: usize, generation: u64, block: &[Vec<u8>]) -> ChecksumPage {
        let row = |member: usize| vec![Some(fragment_checksum(&block[member])); count(LAYOUT)];
        let rows = vec![row(place), row((place + block.len() - 1) % block.len())];
        ChecksumPage { array: 7, span: 0, place: place as u32, generation, forgotten: false, rows }
    }

    fn match_pages(pages: &[Option<ChecksumPage>], held: &[Vec<u8>]) -> bool {
        let checksums = Checksums::new(LAYOUT, 7, 0);
        assert!(checksums.begin_reading(0));
        checksums.end_reading(0, pages);
        let runs: Vec<(usize, &[u8])> = held.iter().map(|run| &run[..]).enumerate().collect();
        assert!(runs.iter().all(|(place, run)| checksums.allow(*place, BLOCK, run)), "all of it fits");
        checksums.match_all(BLOCK, &runs)
    }

    /// Two data members exchange what they hold: half of the one version and half of the other one are a block, too.
    #[test]
    fn pages_of_two_times_can_fit_what_was_never_written() {
        let (before, after) = (fragments([1, 2, 3, 4]), fragments([1, 4, 9, 2]));
        let pages = |newer: &[usize]| -> Vec<Option<ChecksumPage>> {
            let page = |place: usize| match newer.contains(&place) {
                true => page(place, 2, &after),
                false => page(place, 1, &before),
            };
            (0..5).map(|place| Some(page(place))).collect()
        };
        assert!(match_pages(&pages(&[]), &before) && match_pages(&pages(&[0, 1, 2, 3, 4]), &after));
        // Rows 1 and 3 are the newer ones: pages 1 and 3 say so, and what they say of rows 0 and 2 is newer as well.
        let (mut mixed, mut pages) = (before.clone(), pages(&[1, 3]));
        (mixed[1], mixed[3]) = (after[1].clone(), after[3].clone());
        assert!((0..1024).all(|at| mixed.iter().fold(0, |sum, run| sum ^ run[at]) == 0), "its parity fits");
        for place in [1, 3] {
            let page = pages[place].as_mut().expect("made so");
            page.rows[1] = vec![Some(fragment_checksum(&before[place - 1])); count(LAYOUT)];
        }
        assert!(!match_pages(&pages, &mixed), "ARRAYLOST2: nobody has ever written it");
    }

    #[test]
    fn a_page_that_is_lost_costs_nothing_while_the_next_one_is_there() {
        let block = fragments([1, 2, 3, 4]);
        let pages = |lost: &[usize]| -> Vec<Option<ChecksumPage>> {
            (0..5).map(|place| (!lost.contains(&place)).then(|| page(place, 1, &block))).collect()
        };
        assert!(match_pages(&pages(&[0]), &block) && match_pages(&pages(&[2, 4]), &block));
        assert!(!match_pages(&pages(&[2, 3]), &block), "ARRAYLOST2: of member 2 nothing is known");
    }

    #[test]
    fn a_page_that_is_older_costs_nothing_while_the_next_one_is_newer() {
        let (before, after) = (fragments([1, 2, 3, 4]), fragments([1, 4, 9, 2]));
        let pages: Vec<_> = (0..5)
            .map(|place| Some(if place == 2 { page(place, 1, &before) } else { page(place, 2, &after) }))
            .collect();
        assert!(match_pages(&pages, &after), "the next page says what member 2 has");
    }

    #[test]
    fn what_was_never_written_is_zeros_and_nothing_else() {
        let unknown = |forgotten: bool| -> Vec<Option<ChecksumPage>> {
            let rows = vec![vec![None; count(LAYOUT)]; 2];
            let page = |place: usize| ChecksumPage {
                forgotten,
                rows: rows.clone(),
                ..page(place, 1, &fragments([0; 4]))
            };
            (0..5).map(|place| Some(page(place))).collect()
        };
        assert!(match_pages(&unknown(false), &fragments([0; 4])));
        assert!(
            !match_pages(&unknown(false), &fragments([1, 1, 0, 0])),
            "ARRAYLOST2: something has been written"
        );
        assert!(
            !match_pages(&unknown(true), &fragments([0; 4])),
            "ARRAYLOST2: it may have been something else"
        );
    }
    /// A durable write meets the pages that a flush has just written, and that may be in caches alone.
    #[test]
    fn pages_that_a_flush_has_written_are_not_durable_yet() {
        let checksums = Checksums::new(LAYOUT, 7, 0);
        let pages = || checksums.begin_writing(0, &[0, 1, 2, 3, 4]).len();
        checksums.begin(BLOCK, false);
        checksums.set_zeros(BLOCK);
        assert!(checksums.lacks_durable_pages(0), "they are behind");
        assert_eq!(pages(), 5);
        checksums.end_writing(0, Durability::Volatile);
        assert!(checksums.behind().is_empty() && checksums.lacks_durable_pages(0), "PAGES3");
        assert_eq!(pages(), 5);
        checksums.end_writing(0, Durability::Durable);
        assert!(!checksums.lacks_durable_pages(0));
    }
}
