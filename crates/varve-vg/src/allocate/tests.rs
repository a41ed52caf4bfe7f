//! Tests of the allocator: what it prefers, and that it neither loses nor doubles an extent.

use super::*;
use proptest::prelude::*;

fn run(pv: u32, start: u64, count: u64) -> Area {
    Area { pv: PvName(pv), start, count }
}

fn map(runs: &[Area]) -> FreeMap {
    FreeMap { runs: runs.to_vec() }
}

#[test]
fn a_volume_grows_in_place_when_it_can() {
    let mut free = map(&[run(0, 10, 5), run(0, 20, 3), run(1, 0, 100)]);
    assert_eq!(free.take_linear(4, Some(run(0, 5, 5))), Ok(vec![run(0, 10, 4)]));
    assert_eq!(free.runs(), [run(0, 14, 1), run(0, 20, 3), run(1, 0, 100)]);
}

#[test]
fn otherwise_it_gets_the_smallest_run_that_holds_all() {
    let mut free = map(&[run(0, 10, 5), run(0, 20, 30), run(1, 0, 100)]);
    assert_eq!(free.take_linear(6, Some(run(0, 5, 5))), Ok(vec![run(0, 20, 6)]));
}

#[test]
fn otherwise_few_fragments() {
    let mut free = map(&[run(0, 10, 5), run(0, 20, 30), run(1, 0, 2), run(1, 10, 40)]);
    assert_eq!(
        free.take_linear(50, Some(run(0, 5, 5))),
        Ok(vec![run(0, 10, 5), run(1, 10, 40), run(0, 20, 5)])
    );
    let shortage = Shortage { free: 27, disks: 2 };
    assert_eq!(free.take_linear(28, None), Err(shortage));
    assert_eq!(free.take_linear(27, None).map(|areas| areas.len()), Ok(2));
    assert_eq!(free.total(), 0);
}

#[test]
fn stripes_lie_on_different_disks_and_grow_in_place() {
    let mut free = map(&[run(0, 0, 10), run(1, 0, 10), run(2, 0, 4)]);
    let first = free.take_striped(3, 2, &[]).expect("there is space");
    assert_eq!(first, [Segment { areas: vec![run(0, 0, 3), run(1, 0, 3)] }]);
    let more = free.take_striped(2, 2, &first[0].areas).expect("there is space");
    assert_eq!(more, [Segment { areas: vec![run(0, 3, 2), run(1, 3, 2)] }]);
    let mut segments = first;
    append(&mut segments, more);
    assert_eq!(segments, [Segment { areas: vec![run(0, 0, 5), run(1, 0, 5)] }]);
}

#[test]
fn stripes_use_the_last_row_that_is_possible() {
    let mut free = map(&[run(0, 0, 10), run(1, 0, 10), run(2, 0, 10)]);
    let segments = free.take_striped(15, 2, &[]).expect("30 extents on three disks are 15 rows of two");
    assert_eq!(segments.iter().map(Segment::extents).sum::<u64>(), 30);
    assert_eq!(free.total(), 0);
    assert_eq!(map(&[run(0, 0, 100)]).take_striped(1, 2, &[]), Err(Shortage { free: 100, disks: 1 }));
}

#[test]
fn cutting_undoes_appending() {
    let mut segments = vec![Segment::linear(run(0, 0, 10))];
    append_linear(&mut segments, vec![run(0, 10, 2), run(1, 5, 7)]);
    assert_eq!(segments, [Segment::linear(run(0, 0, 12)), Segment::linear(run(1, 5, 7))]);
    cut(&mut segments, 9);
    assert_eq!(segments, [Segment::linear(run(0, 0, 10))]);
}

prop_compose! {
    /// Free runs on up to five disks: sorted, disjoint, not touching (ALLOCATE1).
    fn free_runs()(disks in proptest::collection::vec(
        proptest::collection::vec((1_u64..20, 1_u64..30), 0..6), 1..5,
    )) -> Vec<Area> {
        let mut runs = Vec::new();
        for (pv, gaps) in disks.into_iter().enumerate() {
            let mut at = 0;
            for (gap, count) in gaps {
                runs.push(run(u32::try_from(pv).expect("small"), at + gap, count));
                at += gap + count;
            }
        }
        runs
    }
}

/// Every extent of `areas`, as (disk, number).
fn extents(areas: impl IntoIterator<Item = Area>) -> Vec<(PvName, u64)> {
    let mut all: Vec<_> =
        areas.into_iter().flat_map(|area| (area.start..area.end()).map(move |at| (area.pv, at))).collect();
    all.sort_unstable();
    all
}

/// ALLOCATE1 and ALLOCATE2 after `taken` was taken from `before`, leaving `after`.
fn conserved(before: &FreeMap, taken: Vec<Area>, after: &FreeMap) {
    let both = extents(taken.into_iter().chain(after.runs.iter().copied()));
    assert_eq!(both, extents(before.runs.iter().copied()), "ALLOCATE2");
    let apart = |pair: &[Area]| pair[0].pv < pair[1].pv || pair[0].end() < pair[1].start;
    assert!(after.runs.windows(2).all(apart) && after.runs.iter().all(|run| run.count > 0), "ALLOCATE1");
}

proptest! {
    #[test]
    fn linear_allocation_conserves_extents_and_fails_only_when_it_must(
        runs in free_runs(), count in 1_u64..200, last in proptest::option::of((0_u32..5, 0_u64..60)),
    ) {
        let before = map(&runs);
        let mut after = before.clone();
        let last = last.map(|(pv, at)| run(pv, at, 1));
        match after.take_linear(count, last) {
            Ok(areas) => {
                prop_assert_eq!(areas.iter().map(|area| area.count).sum::<u64>(), count);
                let fits = before.runs.iter().any(|run| run.count >= count);
                prop_assert!(!fits || areas.len() == 1, "contiguous when possible");
                conserved(&before, areas, &after);
            }
            Err(shortage) => {
                prop_assert!(shortage.free < count);
                prop_assert_eq!(after, before);
            }
        }
    }

    #[test]
    fn striped_allocation_conserves_extents_and_fails_only_when_it_must(
        runs in free_runs(), count in 1_u64..60, stripes in 2_usize..5,
    ) {
        let before = map(&runs);
        let mut after = before.clone();
        match after.take_striped(count, stripes, &[]) {
            Ok(segments) => {
                prop_assert_eq!(segments.iter().map(Segment::extents).sum::<u64>(), count * stripes as u64);
                for segment in &segments {
                    let mut disks: Vec<_> = segment.areas.iter().map(|area| area.pv).collect();
                    disks.sort_unstable();
                    disks.dedup();
                    prop_assert_eq!(disks.len(), stripes, "ALLOCATE3");
                    prop_assert!(segment.areas.iter().all(|area| area.count == segment.areas[0].count), "ALLOCATE3");
                }
                conserved(&before, segments.into_iter().flat_map(|segment| segment.areas).collect(), &after);
            }
            Err(_) => {
                prop_assert!(!feasible(&before.disks(), count, stripes));
                prop_assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn areas_of_different_disks_are_never_joined() {
    let mut segments = vec![Segment::linear(run(0, 5, 5))];
    append_linear(&mut segments, vec![run(1, 10, 4)]);
    assert_eq!(segments, [Segment::linear(run(0, 5, 5)), Segment::linear(run(1, 10, 4))]);
    // Of stripes all areas must follow theirs.
    let striped = |one: Area, other: Area| Segment { areas: vec![one, other] };
    let mut segments = vec![striped(run(0, 0, 4), run(1, 0, 4))];
    append(&mut segments, [striped(run(0, 4, 2), run(2, 4, 2)), striped(run(0, 6, 1), run(2, 6, 1))]);
    assert_eq!(segments, [striped(run(0, 0, 4), run(1, 0, 4)), striped(run(0, 4, 3), run(2, 4, 3))]);
}
