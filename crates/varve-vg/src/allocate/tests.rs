//! Tests of the allocator: what it prefers, and that it neither loses nor doubles an extent.

use super::*;
use crate::model::ReadPolicy;
use proptest::prelude::*;

fn run(pv: u32, start: u64, count: u64) -> Area {
    Area { pv: PvName(pv), start, count }
}

fn map(runs: &[Area]) -> FreeMap {
    FreeMap { runs: runs.to_vec() }
}

fn areas_of(segments: &[Segment]) -> impl Iterator<Item = Area> {
    segments.iter().flat_map(|segment| segment.areas.iter().copied())
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
    assert_eq!(areas_of(&segments).map(|area| area.count).sum::<u64>(), 30);
    assert_eq!(free.total(), 0);
    assert_eq!(map(&[run(0, 0, 100)]).take_striped(1, 2, &[]), Err(Shortage { free: 100, disks: 1 }));
}

fn need(rows: u64, metadata: u64) -> MemberNeed {
    MemberNeed { rows, metadata }
}

#[test]
fn members_of_an_array_lie_on_disks_of_their_own_and_grow_there() {
    let mut free = map(&[run(0, 0, 10), run(1, 0, 12), run(2, 0, 4), run(3, 0, 3)]);
    let new = vec![Vec::new(); 2];
    let first = free.take_array(need(5, 1), &new).expect("there is space");
    assert_eq!(first.metadata, [run(1, 0, 1), run(0, 0, 1)], "the emptiest disks");
    assert_eq!(
        first.segments,
        [Segment { areas: vec![run(1, 1, 5), run(0, 1, 5)] }],
        "data follows metadata"
    );
    // Member 0 has six extents left on its disk, member 1 four: it needs another one, and gets the emptiest.
    let own = vec![vec![run(1, 0, 6)], vec![run(0, 0, 6)]];
    let more = free.take_array(need(6, 0), &own).expect("there is space");
    let expected = [
        Segment { areas: vec![run(1, 6, 4), run(0, 6, 4)] },
        Segment { areas: vec![run(1, 10, 2), run(2, 0, 2)] },
    ];
    assert_eq!((more.metadata, more.segments), (vec![], expected.to_vec()), "ALLOCATEARRAY1");
    assert_eq!(free.runs(), [run(2, 2, 2), run(3, 0, 3)]);
}

#[test]
fn small_disks_are_joined_for_members_that_fit_on_none() {
    let mut free = map(&[run(0, 0, 10), run(1, 0, 5), run(2, 0, 4), run(3, 0, 2), run(4, 0, 1)]);
    let new = vec![Vec::new(); 2];
    assert_eq!(free.rows_max(1, &new), 10);
    let refused = free.clone().take_array(need(11, 1), &new);
    assert_eq!(refused, Err(Shortage { free: 22, disks: 0 }), "disks with room for a member");
    let taken = free.take_array(need(10, 1), &new).expect("10 + 1 and 5 + 4 + 2");
    assert_eq!(taken.metadata, [run(0, 0, 1), run(1, 0, 1)]);
    let disks = disks_of_members(&taken.metadata, &taken.segments);
    assert_eq!(disks, [vec![PvName(0), PvName(4)], vec![PvName(1), PvName(2), PvName(3)]]);
    assert_eq!(map(&[run(0, 0, 9), run(0, 10, 9), run(1, 0, 9)]).rows_max(0, &new), 9);
}

#[test]
fn metadata_lies_in_one_run() {
    let fragmented = [run(0, 0, 2), run(0, 3, 2), run(0, 6, 2), run(0, 9, 2), run(1, 0, 8), run(2, 0, 7)];
    let taken = map(&fragmented).take_array(need(3, 4), &vec![Vec::new(); 2]).expect("there is space");
    assert_eq!(taken.metadata, [run(1, 0, 4), run(2, 0, 4)], "not on pv0, which is as empty");
    let short = map(&fragmented[..5]).take_array(need(3, 4), &vec![Vec::new(); 2]);
    assert_eq!(short, Err(Shortage { free: 16, disks: 1 }));
}

#[test]
fn cutting_undoes_appending() {
    let mut segments = vec![Segment::linear(run(0, 0, 10))];
    append(&mut segments, [run(0, 10, 2), run(1, 5, 7)].map(Segment::linear));
    assert_eq!(segments, [Segment::linear(run(0, 0, 12)), Segment::linear(run(1, 5, 7))]);
    cut(&Layout::Linear, &mut segments, 9);
    assert_eq!(segments, [Segment::linear(run(0, 0, 10))]);
    let ddraid = Layout::Ddraid {
        order: 1,
        block_size: 4096,
        read_policy: ReadPolicy::Verify,
        checksums: false,
        log: None,
        members: Vec::new(),
    };
    let row = |start, count| Segment { areas: (0..3).map(|pv| run(pv, start, count)).collect() };
    let mut rows = vec![row(0, 4), row(9, 2)];
    cut(&ddraid, &mut rows, 6);
    assert_eq!(rows, [row(0, 3)], "two extents of the volume are one of each member");
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
                prop_assert_eq!(areas_of(&segments).map(|area| area.count).sum::<u64>(), count * stripes as u64);
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

/// The disks of each member: of `metadata`, and of `segments`.
fn disks_of_members(metadata: &[Area], segments: &[Segment]) -> Vec<Vec<PvName>> {
    let of = |index: usize| {
        let data = segments.iter().map(move |segment| segment.areas[index]);
        let mut disks: Vec<PvName> = data.chain(metadata.get(index).copied()).map(|area| area.pv).collect();
        disks.sort_unstable();
        disks.dedup();
        disks
    };
    (0..segments[0].areas.len()).map(of).collect()
}

proptest! {
    #[test]
    fn array_allocation_conserves_extents_and_keeps_members_apart(
        runs in free_runs(), rows in 1_u64..40, more in 1_u64..40, members in 2_usize..5, metadata in 1_u64..5,
    ) {
        let before = map(&runs);
        let mut after = before.clone();
        let new = vec![Vec::new(); members];
        match after.take_array(need(rows, metadata), &new) {
            Ok(taken) => {
                let data: u64 = taken.segments.iter().map(|segment| segment.areas[0].count).sum();
                prop_assert_eq!(data, rows);
                prop_assert!(rows <= before.rows_max(metadata, &new));
                for segment in &taken.segments {
                    prop_assert_eq!(segment.areas.len(), members);
                    prop_assert!(segment.areas.iter().all(|area| area.count == segment.areas[0].count), "ALLOCATE3");
                }
                prop_assert!(taken.metadata.iter().all(|area| area.count == metadata));
                let all = areas_of(&taken.segments).chain(taken.metadata.iter().copied()).collect();
                conserved(&before, all, &after);
                let owned: Vec<Vec<Area>> = (0..members).map(|index| {
                    let data = taken.segments.iter().map(|segment| segment.areas[index]);
                    std::iter::once(taken.metadata[index]).chain(data).collect()
                }).collect();
                let mut segments = taken.segments;
                let between = after.clone();
                if let Ok(grown) = after.take_array(need(more, 0), &owned) {
                    conserved(&between, areas_of(&grown.segments).collect(), &after);
                    append(&mut segments, grown.segments);
                }
                let mut disks = disks_of_members(&taken.metadata, &segments).concat();
                let count = disks.len();
                disks.sort_unstable();
                disks.dedup();
                prop_assert_eq!(disks.len(), count, "ALLOCATEARRAY1");
            }
            Err(shortage) => {
                prop_assert!(shortage.disks < members as u64, "ALLOCATEARRAY2");
                prop_assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn areas_of_different_disks_are_never_joined() {
    let mut segments = vec![Segment::linear(run(0, 5, 5))];
    append(&mut segments, [Segment::linear(run(1, 10, 4))]);
    assert_eq!(segments, [Segment::linear(run(0, 5, 5)), Segment::linear(run(1, 10, 4))]);
    // Of stripes all areas must follow theirs.
    let striped = |one: Area, other: Area| Segment { areas: vec![one, other] };
    let mut segments = vec![striped(run(0, 0, 4), run(1, 0, 4))];
    append(&mut segments, [striped(run(0, 4, 2), run(2, 4, 2)), striped(run(0, 6, 1), run(2, 6, 1))]);
    assert_eq!(segments, [striped(run(0, 0, 4), run(1, 0, 4)), striped(run(0, 4, 3), run(2, 4, 3))]);
}
