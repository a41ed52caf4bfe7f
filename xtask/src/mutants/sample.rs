//! Which points of all become the mutants of a round.

use super::points::{Kind, Point};
use std::collections::{BTreeMap, BTreeSet};

/// A mutant, and the seed of the sample that it was drawn for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Drawn {
    pub(super) seed: u64,
    pub(super) point: Point,
}

/// The bytes of each file that mutants replace.
type Taken = BTreeMap<String, BTreeSet<(usize, usize)>>;

/// Draws up to `wanted` mutants for each seed and numbers all from one.
pub(super) fn draw(points: &[Point], wanted: usize, seeds: &[u64]) -> BTreeMap<u32, Drawn> {
    let mut taken = Taken::new();
    let samples = seeds.iter().flat_map(|&seed| {
        let sample = draw_one(points, wanted, seed, &mut taken);
        sample.into_iter().map(move |point| Drawn { seed, point })
    });
    (1..).zip(samples).collect()
}

/// Draws a sample. Each kind of fault is drawn as often as the others while it has points left; otherwise a sample would
/// be mostly numbers.
fn draw_one(points: &[Point], wanted: usize, seed: u64, taken: &mut Taken) -> Vec<Point> {
    let mut by_kind: BTreeMap<Kind, Vec<Point>> = BTreeMap::new();
    for point in points {
        by_kind.entry(point.kind).or_default().push(point.clone());
    }
    let mut chance = Chance(seed);
    let mut chosen = Vec::new();
    while chosen.len() < wanted && !by_kind.is_empty() {
        let kinds: Vec<Kind> = by_kind.keys().copied().collect();
        let kind = kinds[chance.below(kinds.len())];
        let Some(left) = by_kind.get_mut(&kind) else { continue };
        let point = left.swap_remove(chance.below(left.len()));
        if left.is_empty() {
            by_kind.remove(&kind);
        }
        let ranges = taken.entry(point.path.clone()).or_default();
        // MUTANT2: they touch neither each other nor a place where another is put in.
        let (start, end) = (point.range.start, point.range.end);
        if ranges.iter().all(|&(other_start, other_end)| end < other_start || other_end < start) {
            ranges.insert((start, end));
            chosen.push(point);
        }
    }
    chosen.sort_by(|one, other| (&one.path, one.range.start).cmp(&(&other.path, other.range.start)));
    chosen
}

/// MUTANT3: numbers that follow from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}
