//! What a simulated disk holds: for each sector the content that survives a crash, and every version since.
//!
//! Invariants:
//! - MEDIUM1. A sector's versions stand in the order in which they were written; a read sees the last one.
//! - MEDIUM2. A sector is in `dirty` exactly if its page has versions.
//! - MEDIUM3. After a crash no sector has versions: what it kept is what survives the next crash too.

use crate::SECTOR_SIZE;
use crate::chance::{Candidate, Chooser, CrashTally};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use varve_block::is_zero;

/// Sectors in a page, the unit in which the medium is stored.
const PAGE_SECTORS: u64 = 8;

/// The content of one sector.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Zeros,
    /// The sector's worth of bytes from `start` on; shared with its neighbours of the same request.
    Data {
        bytes: Rc<[u8]>,
        start: usize,
    },
}

impl Content {
    pub(crate) fn copy_to(&self, target: &mut [u8]) {
        match self {
            Content::Zeros => target.fill(0),
            Content::Data { bytes, start } => {
                target.copy_from_slice(&bytes[*start..*start + target.len()]);
            }
        }
    }

    fn same(&self, other: &Content) -> bool {
        fn bytes(content: &Content) -> Option<&[u8]> {
            match content {
                Content::Zeros => None,
                Content::Data { bytes, start } => Some(&bytes[*start..*start + SECTOR_SIZE]),
            }
        }
        match (bytes(self), bytes(other)) {
            (None, None) => true,
            (Some(one), Some(two)) => one == two,
            (None, Some(data)) | (Some(data), None) => is_zero(data),
        }
    }
}

#[derive(Clone, Debug)]
struct Page {
    settled: [Content; PAGE_SECTORS as usize],
    versions: Vec<Version>,
}

#[derive(Clone, Debug)]
struct Version {
    slot: u8,
    order: u64,
    request: u64,
    content: Content,
    /// A flush that was to make it durable has failed: it goes at the next crash.
    is_lost: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self { settled: [const { Content::Zeros }; PAGE_SECTORS as usize], versions: Vec::new() }
    }
}

impl Page {
    /// What a read of the sector sees (MEDIUM1).
    fn newest(&self, slot: u8) -> &Content {
        match self.versions.iter().rfind(|version| version.slot == slot) {
            Some(version) => &version.content,
            None => &self.settled[usize::from(slot)],
        }
    }

    /// Settles `slot` on its last version that is `covered`, and forgets that one and those before it.
    fn settle(&mut self, slot: u8, covered: impl Fn(&Version) -> bool) {
        let last = self.versions.iter().rfind(|version| version.slot == slot && covered(version));
        let Some(last) = last else { return };
        let order = last.order;
        self.settled[usize::from(slot)] = last.content.clone();
        self.versions.retain(|version| version.slot != slot || version.order > order);
    }

    fn is_hole(&self) -> bool {
        self.versions.is_empty() && self.settled.iter().all(|content| matches!(content, Content::Zeros))
    }
}

/// All sectors of a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Medium {
    pages: BTreeMap<u64, Page>,
    dirty: BTreeSet<u64>,
    order: u64,
}

fn split(sector: u64) -> (u64, u8) {
    (sector / PAGE_SECTORS, (sector % PAGE_SECTORS) as u8)
}

/// Bytes of so many sectors.
fn bytes(sectors: u64) -> usize {
    usize::try_from(sectors).expect("a request in memory is shorter than the address space") * SECTOR_SIZE
}

impl Medium {
    /// What a read of `sector` sees.
    pub(crate) fn newest(&self, sector: u64) -> Content {
        let (page, slot) = split(sector);
        self.pages.get(&page).map_or(Content::Zeros, |page| page.newest(slot).clone())
    }

    /// What a read of these sectors sees, page by page.
    pub(crate) fn read(&self, range: Range<u64>, target: &mut [u8]) {
        let mut next = range.start;
        let mut rest = target;
        let pages = range.start / PAGE_SECTORS..range.end.div_ceil(PAGE_SECTORS);
        for (index, page) in self.pages.range(pages) {
            let first = (index * PAGE_SECTORS).max(range.start);
            let (hole, own) = rest.split_at_mut(bytes(first - next));
            hole.fill(0);
            let last = ((index + 1) * PAGE_SECTORS).min(range.end);
            let (own, behind) = own.split_at_mut(bytes(last - first));
            for (sector, target) in (first..last).zip(own.chunks_mut(SECTOR_SIZE)) {
                page.newest(split(sector).1).copy_to(target);
            }
            (rest, next) = (behind, last);
        }
        rest.fill(0);
    }

    /// What `sector` held at its last flush.
    pub(crate) fn settled(&self, sector: u64) -> Content {
        let (page, slot) = split(sector);
        self.pages.get(&page).map_or(Content::Zeros, |page| page.settled[usize::from(slot)].clone())
    }

    /// Adds a version, which `request` wrote.
    pub(crate) fn apply(&mut self, sector: u64, request: u64, content: Content) {
        let (index, slot) = split(sector);
        let page = self.pages.entry(index).or_default();
        let last = page.versions.last();
        assert!(last.is_none_or(|last| last.order < self.order), "MEDIUM1: versions stand in their order");
        page.versions.push(Version { slot, order: self.order, request, content, is_lost: false });
        self.dirty.insert(index);
        self.order += 1;
    }

    /// The sectors of `range` that may hold something else than zeros.
    pub(crate) fn touched(&self, range: Range<u64>) -> Vec<u64> {
        let pages = range.start / PAGE_SECTORS..range.end.div_ceil(PAGE_SECTORS);
        let all =
            self.pages.range(pages).flat_map(|(index, _)| index * PAGE_SECTORS..(index + 1) * PAGE_SECTORS);
        all.filter(|sector| range.contains(sector)).collect()
    }

    /// Whether the page that holds `sector` was never written, and the first sector after it.
    pub(crate) fn hole_at(&self, sector: u64) -> (bool, u64) {
        let (index, _) = split(sector);
        (self.pages.get(&index).is_none_or(Page::is_hole), (index + 1) * PAGE_SECTORS)
    }

    /// The order that the next version gets.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    /// A flush (SIMDISK2 of the disk): settles every version before `mark`, except those of requests that were not acknowledged then.
    pub(crate) fn flush(&mut self, mark: u64, unacknowledged: &BTreeSet<u64>) {
        let Self { pages, dirty, .. } = self;
        dirty.retain(|index| {
            let page = pages.get_mut(index).expect("MEDIUM2: a dirty page is there");
            for slot in 0..PAGE_SECTORS as u8 {
                page.settle(slot, |version| {
                    version.order < mark && !unacknowledged.contains(&version.request)
                });
            }
            !page.versions.is_empty()
        });
    }

    /// A flush that fails: of the versions that it would have settled, those that `loses` picks go at the next crash.
    pub(crate) fn lose(
        &mut self,
        mark: u64,
        unacknowledged: &BTreeSet<u64>,
        mut loses: impl FnMut() -> bool,
    ) {
        for index in &self.dirty {
            let page = self.pages.get_mut(index).expect("MEDIUM2: a dirty page is there");
            for version in &mut page.versions {
                let covered = version.order < mark && !unacknowledged.contains(&version.request);
                version.is_lost |= covered && loses();
            }
        }
    }

    /// Forgets all versions that a failed flush has lost. How many those were.
    pub(crate) fn drop_lost(&mut self) -> u64 {
        let mut dropped = 0;
        let Self { pages, dirty, .. } = self;
        dirty.retain(|index| {
            let page = pages.get_mut(index).expect("MEDIUM2: a dirty page is there");
            let before = page.versions.len();
            page.versions.retain(|version| !version.is_lost);
            dropped += (before - page.versions.len()) as u64;
            !page.versions.is_empty()
        });
        dropped
    }

    /// Makes what `request` wrote to `sector` survive a crash.
    pub(crate) fn settle(&mut self, sector: u64, request: u64) {
        let (index, slot) = split(sector);
        let Some(page) = self.pages.get_mut(&index) else { return };
        page.settle(slot, |version| version.request == request);
        if page.versions.is_empty() {
            self.dirty.remove(&index);
        }
    }

    /// Every sector keeps what it held at its last flush, or any version since: `chooser` decides.
    pub(crate) fn crash(&mut self, chooser: &mut Chooser) -> CrashTally {
        let dirty = std::mem::take(&mut self.dirty);
        let versions = || dirty.iter().flat_map(|index| self.pages[index].versions.iter());
        let first = versions().map(|version| version.order).min().unwrap_or(0);
        let requests: BTreeSet<u64> = versions().map(|version| version.request).collect();
        let requests: Vec<u64> = requests.into_iter().collect();
        let mut loss = Loss::default();
        for index in dirty {
            let page = self.pages.get_mut(&index).expect("MEDIUM2: a dirty page is there");
            crash_page(page, chooser, (first, self.order), &requests, &mut loss);
        }
        loss.tally()
    }
}

/// MEDIUM3 for one page.
fn crash_page(page: &mut Page, chooser: &mut Chooser, orders: (u64, u64), requests: &[u64], loss: &mut Loss) {
    let versions = std::mem::take(&mut page.versions);
    let mut candidates: Vec<Candidate> = Vec::new();
    for slot in 0..PAGE_SECTORS as u8 {
        let here: Vec<&Version> = versions.iter().filter(|version| version.slot == slot).collect();
        let Some(newest) = here.last() else { continue };
        candidates.clear();
        candidates.extend(here.iter().map(|v| Candidate { order: v.order, request: v.request }));
        let kept = chooser.keep(&candidates, orders, requests);
        let settled = &mut page.settled[usize::from(slot)];
        let content = kept.map_or_else(|| settled.clone(), |index| here[index].content.clone());
        loss.count(newest.request, kept == Some(here.len() - 1), content.same(&newest.content));
        *settled = content;
    }
}

/// Which requests kept and lost sectors.
#[derive(Default)]
struct Loss {
    kept: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    sectors_lost: u64,
}

impl Loss {
    fn count(&mut self, request: u64, kept: bool, same: bool) {
        if kept || same {
            self.kept.insert(request);
        } else {
            self.lost.insert(request);
            self.sectors_lost += 1;
        }
    }

    fn tally(&self) -> CrashTally {
        CrashTally {
            sectors_lost: self.sectors_lost,
            requests_torn: self.kept.intersection(&self.lost).count() as u64,
            ..CrashTally::default()
        }
    }
}
