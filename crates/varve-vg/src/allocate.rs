//! Which free extents a volume gets: contiguous ones when that is possible.
//!
//! Invariants:
//! - ALLOCATE1. The runs of a [`FreeMap`] are sorted, disjoint, not empty, and no two of them touch.
//! - ALLOCATE2. What is allocated was free and is free no more; nothing else changes.
//! - ALLOCATE3. The areas of a striped segment lie on different disks and are equally long.

mod array;

pub(crate) use array::side_by_side;
pub use array::{ArrayAreas, MemberNeed};

use crate::model::{Area, Group, Layout, PvName, Segment};
use std::cmp::Reverse;

/// The free extents of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeMap {
    runs: Vec<Area>,
}

/// There are not enough free extents, or not on enough disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Free extents.
    pub free: u64,
    /// Disks that have a free extent; of an array those that have room for a member.
    pub disks: u64,
}

impl FreeMap {
    /// What is free in `group`, on disks that are not missing, and no spares.
    pub fn of(group: &Group) -> Self {
        Self::of_runs(group.free_areas())
    }

    /// The same, and what is free on spares.
    pub fn with_spares(group: &Group) -> Self {
        Self::of_runs(group.free_areas_with_spares())
    }

    fn of_runs(runs: Vec<Area>) -> Self {
        let free = Self { runs };
        free.assert_consistent();
        free
    }

    /// The same, on `disks` only.
    #[must_use]
    pub fn on_disks(mut self, disks: &[PvName]) -> Self {
        self.runs.retain(|run| disks.contains(&run.pv));
        self
    }

    /// The same, but not on `disk`.
    #[must_use]
    pub fn without_disk(mut self, disk: PvName) -> Self {
        self.runs.retain(|run| run.pv != disk);
        self
    }

    /// Panics if runs are out of order or could be one (ALLOCATE1).
    fn assert_consistent(&self) {
        let apart = |pair: &[Area]| pair[0].pv < pair[1].pv || pair[0].end() < pair[1].start;
        assert!(self.runs.windows(2).all(apart), "ALLOCATE1: {:?}", self.runs);
        assert!(self.runs.iter().all(|run| run.count > 0), "ALLOCATE1: {:?}", self.runs);
    }

    /// Number of free extents.
    pub fn total(&self) -> u64 {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// The free runs, in order.
    pub fn runs(&self) -> &[Area] {
        &self.runs
    }

    /// Takes `count` extents for a linear volume whose last area is `last`: right behind it if all of them fit there;
    /// else the smallest run that holds them all; else what is behind it and then the largest runs, so that there are
    /// few fragments.
    pub fn take_linear(&mut self, count: u64, last: Option<Area>) -> Result<Vec<Area>, Shortage> {
        assert!(count > 0, "a volume grows by at least one extent");
        let before = self.total();
        if before < count {
            return Err(self.shortage());
        }
        let taken = self.take_runs(count, last, None);
        assert_eq!(taken.iter().map(|area| area.count).sum::<u64>(), count, "ALLOCATE2");
        assert_eq!(self.total() + count, before, "ALLOCATE2");
        self.assert_consistent();
        Ok(taken)
    }

    /// The areas of [`FreeMap::take_linear`], on `disks` or anywhere; there are as many free extents.
    fn take_runs(&mut self, count: u64, last: Option<Area>, disks: Option<&[PvName]>) -> Vec<Area> {
        let behind = last.and_then(|last| self.behind(last));
        if let Some(run) = behind.filter(|run| run.count >= count).or_else(|| self.best_fit(count, disks)) {
            return vec![self.take_front(run, count)];
        }
        let mut taken: Vec<Area> = behind.map(|run| self.take_front(run, run.count)).into_iter().collect();
        let mut rest = count - taken.iter().map(|area| area.count).sum::<u64>();
        while rest > 0 {
            let whole = self.best_fit(rest, disks);
            let run = whole.or_else(|| self.largest(disks)).expect("the total was at least `count`");
            let area = self.take_front(run, rest.min(run.count));
            rest -= area.count;
            taken.push(area);
        }
        taken
    }

    /// Takes one run for what is moved away, of at most `most` of `count` extents: behind `last` if there is some, else from the
    /// smallest run that holds all of them, else from the largest. None if nothing is free.
    pub fn take_run(&mut self, count: u64, most: u64, last: Option<Area>) -> Option<Area> {
        let behind = last.and_then(|last| self.behind(last));
        let run = behind.or_else(|| self.best_fit(count, None)).or_else(|| self.largest(None))?;
        let taken = self.take_front(run, run.count.min(count).min(most));
        self.assert_consistent();
        Some(taken)
    }

    /// Takes `count` extents in one run, if there is one.
    pub fn take_whole(&mut self, count: u64) -> Option<Area> {
        let run = self.best_fit(count, None)?;
        Some(self.take_front(run, count))
    }

    /// Takes `count` extents of `disk` in one run, if there is one.
    pub fn take_whole_on(&mut self, count: u64, disk: PvName) -> Option<Area> {
        let run = self.best_fit(count, Some(&[disk]))?;
        Some(self.take_front(run, count))
    }

    /// Takes `count` extents on each of `stripes` different disks: right behind `last`, the areas of the volume's last
    /// segment, if all fit there; else in as few segments as the free runs of the emptiest disks allow.
    pub fn take_striped(
        &mut self,
        count: u64,
        stripes: usize,
        last: &[Area],
    ) -> Result<Vec<Segment>, Shortage> {
        assert!(count > 0 && stripes >= 2, "a striped volume grows by whole rows");
        if let Some(segment) = self.take_behind_all(count, stripes, last) {
            return Ok(vec![segment]);
        }
        if !feasible(&self.disks(), count, stripes) {
            return Err(self.shortage());
        }
        let mut segments = Vec::new();
        let (before, mut rest) = (self.total(), count);
        while rest > 0 {
            let segment = self.take_rows(rest, stripes);
            rest -= segment.areas[0].count;
            segments.push(segment);
        }
        assert_eq!(self.total() + count * stripes as u64, before, "ALLOCATE2");
        self.assert_consistent();
        Ok(segments)
    }

    /// One segment of at most `rest` rows on the emptiest disks, such that the remaining rows still fit.
    fn take_rows(&mut self, rest: u64, stripes: usize) -> Segment {
        let mut disks = self.disks();
        disks.sort_by_key(|(pv, free)| (Reverse(*free), *pv));
        let chosen: Vec<_> = disks.iter().take(stripes).map(|(pv, _)| *pv).collect();
        let longest = |pv: &PvName| self.largest(Some(&[*pv])).map_or(0, |run| run.count);
        let mut rows = chosen.iter().map(longest).min().expect("there are stripes").min(rest);
        // One row on the emptiest disks never spoils what is possible; many may.
        while rows > 1 && !feasible(&without(&disks, stripes, rows), rest - rows, stripes) {
            rows /= 2;
        }
        assert!(rows > 0, "ALLOCATE3: each of the emptiest disks has a free extent");
        let areas = chosen.iter().map(|pv| {
            let run = self.best_fit(rows, Some(&[*pv])).expect("its longest run has as many");
            self.take_front(run, rows)
        });
        Segment { areas: areas.collect() }
    }

    fn take_behind_all(&mut self, count: u64, stripes: usize, last: &[Area]) -> Option<Segment> {
        if last.len() != stripes {
            return None;
        }
        let runs: Option<Vec<_>> =
            last.iter().map(|area| self.behind(*area).filter(|run| run.count >= count)).collect();
        Some(Segment { areas: runs?.into_iter().map(|run| self.take_front(run, count)).collect() })
    }

    /// The free run that begins where `area` ends.
    fn behind(&self, area: Area) -> Option<Area> {
        self.runs.iter().copied().find(|run| run.pv == area.pv && run.start == area.end())
    }

    /// The smallest run of at least `count` extents, on `disks` or anywhere.
    fn best_fit(&self, count: u64, disks: Option<&[PvName]>) -> Option<Area> {
        self.on(disks).filter(|run| run.count >= count).min_by_key(|run| (run.count, *run))
    }

    fn largest(&self, disks: Option<&[PvName]>) -> Option<Area> {
        self.on(disks).max_by_key(|run| (run.count, Reverse(*run)))
    }

    fn on(&self, disks: Option<&[PvName]>) -> impl Iterator<Item = Area> {
        self.runs.iter().copied().filter(move |run| disks.is_none_or(|disks| disks.contains(&run.pv)))
    }

    /// Each disk that has free extents, and how many.
    pub(crate) fn disks(&self) -> Vec<(PvName, u64)> {
        let mut disks: Vec<(PvName, u64)> = Vec::new();
        for run in &self.runs {
            match disks.last_mut() {
                Some((pv, free)) if *pv == run.pv => *free += run.count,
                _ => disks.push((run.pv, run.count)),
            }
        }
        disks
    }

    /// Takes the first `count` extents of `run`.
    fn take_front(&mut self, run: Area, count: u64) -> Area {
        let index = self.runs.iter().position(|free| *free == run).expect("ALLOCATE2: the run is free");
        assert!(0 < count && count <= run.count, "ALLOCATE2: {count} of {run}");
        if count == run.count {
            self.runs.remove(index);
        } else {
            self.runs[index] = Area { start: run.start + count, count: run.count - count, ..run };
        }
        Area { count, ..run }
    }

    fn shortage(&self) -> Shortage {
        Shortage { free: self.total(), disks: self.disks().len() as u64 }
    }
}

/// Whether `rows` rows of one extent on each of `stripes` different disks can be had: each disk serves a row at most
/// once, so it counts for at most `rows` extents.
fn feasible(disks: &[(PvName, u64)], rows: u64, stripes: usize) -> bool {
    let usable: u128 = disks.iter().map(|(_, free)| u128::from(*free.min(&rows))).sum();
    usable >= u128::from(rows) * stripes as u128
}

/// `disks` when `rows` extents of each of the first `stripes` are gone.
fn without(disks: &[(PvName, u64)], stripes: usize, rows: u64) -> Vec<(PvName, u64)> {
    let taken = |index: usize| if index < stripes { rows } else { 0 };
    disks.iter().enumerate().map(|(index, (pv, free))| (*pv, free - taken(index))).collect()
}

/// Adds `more` to the end of `segments`, joining a segment to the one before it where every area follows its own.
pub fn append(segments: &mut Vec<Segment>, more: impl IntoIterator<Item = Segment>) {
    for segment in more {
        match segments.last_mut() {
            Some(last) if last.areas.len() == segment.areas.len() && follows(last, &segment) => {
                last.areas.iter_mut().zip(&segment.areas).for_each(|(area, next)| area.count += next.count);
            }
            _ => segments.push(segment),
        }
    }
}

fn follows(last: &Segment, next: &Segment) -> bool {
    last.areas.iter().zip(&next.areas).all(|(area, next)| area.pv == next.pv && area.end() == next.start)
}

/// Cuts `count` extents off the end of `segments`, which are laid out by `layout`: whole rows of every segment that is cut, and
/// less than they have.
pub fn cut(layout: &Layout, segments: &mut Vec<Segment>, count: u64) {
    let extents =
        |segments: &[Segment]| segments.iter().map(|segment| layout.extents_of(segment)).sum::<u64>();
    let before = extents(segments);
    assert!(count < before, "ALLOCATE2: {count} of {before} extents are cut");
    let mut rest = count;
    while rest > 0 {
        let last = segments.last_mut().expect("less is cut than there is");
        let extents = layout.extents_of(last);
        if extents <= rest {
            rest -= extents;
            segments.pop();
            continue;
        }
        let row = layout.row(last.areas.len());
        assert!(rest.is_multiple_of(row), "ALLOCATE3: {rest} extents are not whole rows of {row}");
        last.areas.iter_mut().for_each(|area| area.count -= rest / row);
        rest = 0;
    }
    assert_eq!(extents(segments) + count, before, "ALLOCATE2");
}

#[cfg(test)]
mod tests;
