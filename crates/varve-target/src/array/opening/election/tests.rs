//! Which members are believed, by small examples; `tests/array/election_model.rs` goes through all.

use super::*;
use crate::array::members::may_go_on;
use varve_format::array::{Epoch, Kind, MemberEntry, Uuid};

const MIRROR: ArrayLayout = ArrayLayout::Mirror { copies: 2 };
const DDRAID: ArrayLayout = ArrayLayout::Ddraid { order: 1, block_size: 4096 };

fn superblock(number: u64, states: &[MemberState]) -> Found {
    let member = |(place, state): (usize, &MemberState)| MemberEntry {
        id: Uuid::from_u128(place as u128 + 1),
        state: *state,
        away_since: if *state == MemberState::InSync { 0 } else { 1 },
        left_at: 0,
        is_behind: false,
    };
    Found::Superblock(Superblock {
        number,
        array: Uuid::from_u128(9),
        place: 0,
        kind: if states.len().is_multiple_of(2) { Kind::Mirror } else { Kind::Ddraid },
        block_size: if states.len().is_multiple_of(2) { 1 } else { 4096 },
        size: 1 << 20,
        metadata_size: 1 << 20,
        region_size: 1 << 20,
        head: 0,
        sequence: 1,
        epoch: Epoch::default(),
        log_members: 1,
        log_disk: Uuid::nil(),
        previous: 0,
        checksums: false,
        pages_current: false,
        stamp: 0,
        members: states.iter().enumerate().map(member).collect(),
        dirty: vec![0],
        missed: vec![0],
        written: vec![0],
        known: Vec::new(),
    })
}

/// A superblock that follows `before`.
fn next(before: &Found, states: &[MemberState]) -> Found {
    let before = before.superblock().expect("one");
    let Found::Superblock(superblock) = superblock(before.number + 1, states) else {
        unreachable!("made so")
    };
    Found::Superblock(Superblock { previous: before.identity(), ..superblock })
}

fn worth(layout: ArrayLayout, found: &[Found]) -> Result<Vec<Worth>, ArrayError> {
    worth_with(layout, found, &[])
}

/// As [`worth`], where members have these stamps at their ends.
fn worth_with(layout: ArrayLayout, found: &[Found], newer: &[u64]) -> Result<Vec<Worth>, ArrayError> {
    elect(layout, (found, &shown(found, newer)), false, None).map(|election| election.members)
}

fn shown(found: &[Found], newer: &[u64]) -> Vec<Shown> {
    let newer = newer.iter().copied().chain(std::iter::repeat(0));
    let of = |(found, stamp): (&Found, u64)| {
        let own = found.superblock().map(Shown::of).unwrap_or_default();
        if stamp > own.stamp { Shown { stamp, acknowledged: stamp - 1, ..own } } else { own }
    };
    found.iter().zip(newer).map(of).collect()
}

#[test]
fn the_newest_superblock_says_who_is_believed() {
    use MemberState::{Away, CatchingUp, InSync};
    let (all, without) = ([InSync; 3], [InSync, Away, InSync]);
    let before = superblock(4, &all);
    let now = next(&before, &without);
    let stale = [now.clone(), before.clone(), now];
    assert_eq!(worth(DDRAID, &stale), Ok(vec![Worth::InSync, Worth::Returned, Worth::InSync]), "ELECTION2");
    let now = next(&before, &all);
    let half_written = [now.clone(), before.clone(), before.clone()];
    assert_eq!(worth(DDRAID, &half_written), Ok(vec![Worth::InSync; 3]), "ELECTION2");
    let old = [now.clone(), superblock(3, &all), now.clone()];
    assert_eq!(worth(DDRAID, &old), Ok(vec![Worth::InSync, Worth::Returned, Worth::InSync]), "ELECTION2");
    let overtaken = [next(&before, &without), now.clone(), now];
    assert_eq!(
        worth(DDRAID, &overtaken),
        Ok(vec![Worth::Returned, Worth::InSync, Worth::InSync]),
        "ELECTION1"
    );
    let behind = [InSync, CatchingUp, InSync];
    let going_on = [superblock(5, &behind), superblock(5, &behind), superblock(5, &behind)];
    assert_eq!(worth(DDRAID, &going_on), Ok(vec![Worth::InSync, Worth::CatchingUp, Worth::InSync]));
    let blank = [superblock(5, &all), Found::Blank, superblock(5, &all)];
    assert_eq!(worth(DDRAID, &blank), Ok(vec![Worth::InSync, Worth::Absent, Worth::InSync]));
}

#[test]
fn members_that_others_may_have_left_behind_are_not_used() {
    use MemberState::{Away, InSync};
    let both = [InSync; 2];
    let alone = [Found::Missing, superblock(4, &both)];
    assert_eq!(worth(MIRROR, &alone), Err(ArrayError::MaybeStale), "ELECTION3");
    assert!(
        elect(MIRROR, (&alone, &shown(&alone, &[])), true, None).is_ok(),
        "a person says that it is the last one"
    );
    let last = [Found::Missing, superblock(4, &[Away, InSync])];
    assert_eq!(worth(MIRROR, &last), Ok(vec![Worth::Absent, Worth::InSync]), "ELECTION3");
    let two = [Found::Missing, superblock(4, &[InSync; 3]), superblock(4, &[InSync; 3])];
    assert_eq!(worth(DDRAID, &two), Ok(vec![Worth::Absent, Worth::InSync, Worth::InSync]), "ELECTION3");
    let older = [superblock(4, &both), next(&next(&superblock(4, &both), &both), &both)];
    assert_eq!(
        worth(MIRROR, &older),
        Err(ArrayError::Older { place: 0 }),
        "ELECTION3: it is the newer one that is not used alone"
    );
    let order_2 = ArrayLayout::Ddraid { order: 2, block_size: 4096 };
    let five = next(&superblock(4, &[InSync; 5]), &[InSync; 5]);
    let few = [five.clone(), five.clone(), five, superblock(2, &[InSync; 5]), Found::Missing];
    assert_eq!(
        worth(order_2, &few),
        Err(ArrayError::TooFew { present: 3, needed: 4 }),
        "of the most that belong together"
    );
    let one = [Found::Missing, Found::Missing, superblock(4, &[InSync; 3])];
    assert_eq!(worth(DDRAID, &one), Err(ArrayError::TooFew { present: 1, needed: 2 }));
}

#[test]
fn a_superblock_that_a_member_alone_has_which_catches_up_stops_no_mirror() {
    use MemberState::{Away, CatchingUp, InSync};
    let layout = ArrayLayout::Mirror { copies: 3 };
    let before = superblock(6, &[InSync, InSync, CatchingUp]);
    let now = next(&before, &[InSync, Away, CatchingUp]);
    let found = [before.clone(), before.clone(), now.clone()];
    let members = Ok(vec![Worth::InSync, Worth::Returned, Worth::CatchingUp]);
    assert_eq!(worth(layout, &found), members, "ELECTION3: the one that was called away is here as it left");
    let first = superblock(5, &[InSync, InSync, Away]);
    let second = next(&first, &[InSync, InSync, CatchingUp]);
    let third = next(&second, &[InSync, Away, CatchingUp]);
    assert_eq!(
        worth(layout, &[second, first, third]),
        members,
        "ELECTION3: it failed when it was to get the second"
    );
    let absent = [before.clone(), Found::Missing, now.clone()];
    assert_eq!(worth(layout, &absent), Err(ArrayError::MaybeStale), "ELECTION3: it may have gone on");
    let gone_on = next(&before, &[Away, InSync, Away]);
    assert_eq!(
        worth(layout, &[before.clone(), gone_on, now.clone()]),
        Ok(vec![Worth::Returned, Worth::InSync, Worth::Returned]),
        "ELECTION3: it has gone on"
    );
    let Found::Superblock(mut left) = now else { unreachable!("made so") };
    (left.stamp, left.members[1].left_at) = (7, 7);
    let copied = [before.clone(), before, Found::Superblock(left)];
    let of = |newer: &[u64]| worth_with(layout, &copied, newer);
    assert_eq!(of(&[7, 6, 7]), Err(ArrayError::MaybeStale), "STAMP3: what is here is older than what left");
    assert_eq!(of(&[7, 7, 7]), members);
}

#[test]
fn half_of_a_mirror_opens_if_the_other_half_is_here_as_it_left() {
    use MemberState::{Away, InSync};
    let layout = ArrayLayout::Mirror { copies: 4 };
    let before = superblock(4, &[InSync; 4]);
    let now = next(&before, &[InSync, InSync, Away, Away]);
    let found = |last| [now.clone(), before.clone(), before.clone(), last];
    let members = |last| Ok(vec![Worth::InSync, Worth::InSync, Worth::Returned, last]);
    assert_eq!(worth(layout, &found(before.clone())), members(Worth::Returned), "ELECTION3");
    assert_eq!(worth(layout, &found(Found::Missing)), members(Worth::Absent), "ELECTION3: it is one of four");
    let two = [now.clone(), before.clone(), Found::Missing, Found::Missing];
    assert_eq!(
        worth(layout, &two),
        Err(ArrayError::MaybeStale),
        "ELECTION3: the other half may have gone on"
    );
}

#[test]
fn a_member_that_was_catching_up_does_not_make_up_for_one_that_is_missing() {
    use MemberState::{CatchingUp, InSync};
    let layout = ArrayLayout::Mirror { copies: 3 };
    let before = superblock(6, &[InSync, InSync, CatchingUp]);
    let now = next(&before, &[InSync; 3]);
    let absent = [before.clone(), Found::Missing, now.clone()];
    assert_eq!(worth(layout, &absent), Err(ArrayError::MaybeStale), "ELECTION3: it may have gone on alone");
    assert_eq!(
        worth(DDRAID, &absent),
        Ok(vec![Worth::InSync, Worth::Absent, Worth::InSync]),
        "ELECTION3: one of ddraid does not go on alone"
    );
    assert_eq!(worth(layout, &[before.clone(), before, now]), Ok(vec![Worth::InSync; 3]));
    let catching_up = superblock(3, &[CatchingUp, InSync, CatchingUp]);
    let back = next(&catching_up, &[InSync, InSync, CatchingUp]);
    let not_back = next(&catching_up, &[CatchingUp, InSync, MemberState::Away]);
    assert_eq!(
        worth(layout, &[not_back, back.clone(), back]),
        Ok(vec![Worth::Returned, Worth::InSync, Worth::CatchingUp]),
        "ELECTION3: one that was never in sync has not gone on"
    );
}

#[test]
fn what_has_left_can_never_go_on_alone() {
    for copies in ArrayLayout::COPIES {
        let layout = ArrayLayout::Mirror { copies };
        let all: Vec<usize> = (0..copies).collect();
        for lost in 1..=copies {
            let goes_on = may_go_on(layout, std::slice::from_ref(&all), &all[lost..]);
            let could_start_alone = lost * 2 > copies;
            assert!(!(goes_on && could_start_alone), "ELECTION5: {lost} of {copies}");
            assert_eq!(goes_on, lost < copies && lost * 2 <= copies);
        }
    }
    let mirror = ArrayLayout::Mirror { copies: 3 };
    assert!(may_go_on(mirror, &[vec![0, 1]], &[0]), "one after the other");
    assert!(
        !may_go_on(mirror, &[vec![0, 1, 2], vec![0, 1]], &[0]),
        "ELECTION5: the first did not take effect"
    );
    assert!(
        !may_go_on(MIRROR, &[vec![1], vec![0, 1]], &[0]),
        "ELECTION5: the other one is the last by the first"
    );
    assert!(may_go_on(DDRAID, &[vec![0, 1, 2]], &[0, 2]) && !may_go_on(DDRAID, &[vec![0, 1]], &[0]));
}

#[test]
fn who_may_go_on_is_asked_by_all_superblocks_that_were_found() {
    use MemberState::{Away, InSync};
    let layout = ArrayLayout::Mirror { copies: 3 };
    let before = superblock(4, &[InSync; 3]);
    let now = next(&before, &[InSync, InSync, Away]);
    let found = [now, before, Found::Missing];
    let election = elect(layout, (&found, &shown(&found, &[])), false, None).expect("two are here");
    assert_eq!(called_in_sync(&election, &found, false), [vec![0, 1], vec![0, 1, 2]], "ELECTION5");
    assert_eq!(called_in_sync(&election, &found, true), [vec![0, 1]], "a person answers for the rest");
}

#[test]
fn a_member_that_returns_lacks_what_was_missed_if_it_is_as_new_as_it_left() {
    let Found::Superblock(away) = superblock(6, &[MemberState::Away; 2]) else { unreachable!("made so") };
    let before = MemberEntry { away_since: 5, left_at: 7, ..away.members[0] };
    let returns = |number, stamp| lacks_only_missed((number, stamp), &before);
    assert!(returns(4, 7) && returns(4, 8) && !returns(3, 7), "ELECTION4");
    assert!(!returns(4, 6), "STAMP3: it is older than the one that left");
}

#[test]
fn a_member_is_as_new_as_the_others() {
    use MemberState::InSync;
    let all = || [superblock(4, &[InSync; 3]), superblock(4, &[InSync; 3]), superblock(4, &[InSync; 3])];
    let worth_of = |newer: [u64; 3]| worth_with(DDRAID, &all(), &newer);
    assert_eq!(worth_of([9, 9, 9]), Ok(vec![Worth::InSync; 3]), "STAMP4");
    assert_eq!(worth_of([9, 8, 8]), Ok(vec![Worth::InSync; 3]), "STAMP4: stamp 9 was being written");
    assert_eq!(worth_of([9, 9, 7]), Ok(vec![Worth::InSync, Worth::InSync, Worth::Returned]), "STAMP4");
    let both = [superblock(4, &[InSync; 2]), superblock(4, &[InSync; 2])];
    assert_eq!(worth_with(MIRROR, &both, &[9, 7]), Err(ArrayError::Older { place: 1 }), "STAMP4, ELECTION3");
    let now = next(&both[0], &[InSync; 2]);
    let Found::Superblock(now) = now else { unreachable!("made so") };
    let cut_short = [Found::Superblock(Superblock { stamp: 9, ..now }), both[1].clone()];
    assert_eq!(worth_with(MIRROR, &cut_short, &[0, 9]), Ok(vec![Worth::InSync; 2]), "STAMP4");
    assert_eq!(worth_with(MIRROR, &cut_short, &[0, 8]), Err(ArrayError::Older { place: 1 }), "STAMP4");
    let election = elect(MIRROR, (&both, &shown(&both, &[8, 9])), false, None).expect("both are here");
    assert_eq!((election.behind.as_slice(), election.newest.stamp), (&[true, false][..], 9), "STAMP5");
}

#[test]
fn a_superblock_of_before_others_went_on_does_not_count() {
    use MemberState::{Away, CatchingUp, InSync};
    let layout = ArrayLayout::Mirror { copies: 3 };
    let after = || superblock(14, &[InSync, CatchingUp, InSync]);
    let copy = superblock(10, &[InSync, Away, CatchingUp]);
    let found = [copy.clone(), after(), after()];
    assert_eq!(worth(layout, &found), Err(ArrayError::Older { place: 0 }), "ELECTION1, ELECTION3");
    let alone = [copy, Found::Missing, superblock(9, &[InSync, Away, CatchingUp])];
    assert_eq!(worth(layout, &alone).map(|found| found[0]), Ok(Worth::InSync), "it was the last one");
}

/// STAMP5.
#[test]
fn what_a_stamp_calls_clean_is_so_if_all_members_show_that_one_or_a_later_one() {
    use MemberState::InSync;
    let all = || [superblock(4, &[InSync; 3]), superblock(4, &[InSync; 3]), superblock(4, &[InSync; 3])];
    let of = |found: &[Found], stamps: [u64; 3], behind: Option<usize>| {
        let shown = |(place, stamp)| Shown {
            stamp,
            acknowledged: 6,
            is_behind: behind == Some(place),
            sequence: 1,
            changes: Vec::new(),
        };
        let shown: Vec<Shown> = stamps.into_iter().enumerate().map(shown).collect();
        let election = elect(DDRAID, (found, &shown), false, None).expect("all are here");
        (election.had_by_all, [6, 7, 8].map(|stamp| election.voids_cleans(stamp)))
    };
    assert_eq!(of(&all(), [8, 8, 8], None), (8, [false; 3]));
    assert_eq!(of(&all(), [8, 8, 7], None), (7, [false, false, true]), "an opening was cut short at stamp 8");
    assert_eq!(of(&all(), [8, 7, 6], None), (6, [false, true, true]));
    assert_eq!(of(&all(), [8, 7, 8], Some(0)), (6, [false, true, true]), "it may have got 8, and lack 7");
    let unequal = all().map(|found| match found {
        Found::Superblock(own) => Found::Superblock(Superblock { dirty: vec![1], ..own }),
        other => other,
    });
    assert_eq!(of(&unequal, [8, 8, 7], None), (6, [false, true, true]), "nothing says who was behind");
    assert_eq!(of(&unequal, [8, 8, 8], None), (8, [false; 3]));
}
