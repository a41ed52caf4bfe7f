//! What the members of an array are worth when it is taken into use: pure.
//!
//! Superblocks are written to all members, one number after the other. Each names the one that it follows, because hosts with
//! different members may write different ones under one number. `tests/array/election_model.rs` goes through every order in
//! which they can be written, members be missing and the power fail.
//!
//! Invariants:
//! - ELECTION1. The superblock with the highest number counts for which ELECTION2 and ELECTION3 hold, of the members that are here.
//! - ELECTION2. A member is believed that it calls in sync and that has it, or the one that it follows, and is as new as the others
//!   (STAMP4). A member that it calls away or
//!   catching up is not read, whatever its own superblock says.
//! - ELECTION3. The members that are believed hold all data, and no other ones may have been used without them: of those that the
//!   superblock of any of them calls in sync they are more than half, or all.
//! - ELECTION4. A member that returns is caught up from the log only if its number is the last one before it was called away;
//!   else it is caught up with everything.

use super::error::ArrayError;
use super::geometry::ArrayLayout;
use super::injected_bug::InjectedBug;
use super::stamps::Shown;
use varve_format::array::{MemberEntry, MemberState, Superblock};

/// What was found in a member's place.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each member, and only while an array is opened"
)]
pub(super) enum Found {
    /// No device.
    Missing,
    /// A device without a superblock of this array's member, or one that cannot be read.
    Blank,
    /// The newer of its superblocks.
    Superblock(Superblock),
}

impl Found {
    pub(super) fn superblock(&self) -> Option<&Superblock> {
        match self {
            Found::Superblock(superblock) => Some(superblock),
            Found::Missing | Found::Blank => None,
        }
    }
}

/// What is decided.
#[derive(Clone, Debug)]
pub(super) struct Election {
    /// The superblock that counts.
    pub(super) superblock: Superblock,
    /// What each member is worth now.
    pub(super) members: Vec<Worth>,
    /// The newest stamp.
    pub(super) newest: Shown,
    /// Members that lack it or did at an earlier opening, and of those in sync the ones that do not decide what dirty regions hold (STAMP5).
    pub(super) lagging: Vec<bool>,
    pub(super) behind: Vec<bool>,
}

impl Election {
    /// Whether a member in sync lacks the newest stamp: then not all have acknowledged it, or that member is a copy.
    pub(super) fn is_any_lagging(&self) -> bool {
        self.members.iter().zip(&self.lagging).any(|(worth, lags)| *worth == Worth::InSync && *lags)
    }
}

/// What a member is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// It is read and written.
    InSync,
    /// It was catching up, and goes on.
    CatchingUp,
    /// It is here, and was away.
    Returned,
    /// It is missing, or is not a member of the array yet.
    Absent,
}

/// Decides, by what was `found` of members and the newest stamps that they have. `accept_missing`: ELECTION3's second half was answered by a person; `bug`: a fault for tests.
pub(super) fn elect(
    layout: ArrayLayout,
    (found, shown): (&[Found], &[Shown]),
    accept_missing: bool,
    bug: Option<InjectedBug>,
) -> Result<Election, ArrayError> {
    assert_eq!(found.len(), layout.members(), "ARRAY3: a place for each member");
    assert_eq!(found.len(), shown.len(), "STAMP4: each member has one, if it has a superblock");
    let mut candidates: Vec<&Superblock> = found.iter().filter_map(Found::superblock).collect();
    candidates.sort_by_key(|superblock| std::cmp::Reverse(superblock.number)); // ELECTION1
    let needed = usize::try_from(layout.data_members()).expect("members are few");
    let mut refused = ArrayError::TooFew { present: 0, needed };
    for superblock in candidates {
        let (members, newest) = worths(superblock, (found, shown), bug);
        let present = members.iter().filter(|worth| **worth == Worth::InSync).count();
        if present < needed {
            if refused != ArrayError::MaybeStale {
                refused = ArrayError::TooFew { present, needed };
            }
        } else if are_majority(&members, found) || accept_missing || bug == Some(InjectedBug::BelieveStale) {
            assert_eq!(members.len(), layout.members(), "ARRAY3: the members of the superblock that counts");
            let lagging = shown.iter().map(|own| own.is_behind || own.stamp < newest.stamp).collect();
            let was_equal = superblock.dirty.iter().all(|word| *word == 0);
            let never_behind = members.iter().zip(shown).filter(|(_, own)| !own.is_behind);
            let in_sync = never_behind.filter(|(worth, _)| **worth == Worth::InSync);
            let most = in_sync.map(|(_, own)| own.stamp).max().unwrap_or(0);
            let is_behind = |own: &Shown| own.is_behind || (own.stamp < most && was_equal);
            let behind = shown.iter().map(is_behind).collect();
            return Ok(Election { superblock: superblock.clone(), members, newest, lagging, behind });
        } else {
            refused = ArrayError::MaybeStale; // ELECTION3
        }
    }
    Err(refused)
}

/// ELECTION2: what each member is worth if `superblock` counts, and the newest stamp.
fn worths(
    superblock: &Superblock,
    (found, shown): (&[Found], &[Shown]),
    bug: Option<InjectedBug>,
) -> (Vec<Worth>, Shown) {
    let believes_stale = bug == Some(InjectedBug::BelieveStale);
    let worth = |(found, entry): (&Found, &MemberEntry)| match (found.superblock(), entry.state) {
        (None, _) => Worth::Absent,
        (Some(_), _) if believes_stale => Worth::InSync,
        (Some(own), MemberState::InSync) if is_followed(own, superblock) => Worth::InSync,
        (Some(own), MemberState::CatchingUp) if is_followed(own, superblock) => Worth::CatchingUp,
        (Some(_), _) => Worth::Returned,
    };
    let mut members: Vec<Worth> = found.iter().zip(&superblock.members).map(worth).collect();
    let is_used = |worth: &Worth| matches!(worth, Worth::InSync | Worth::CatchingUp);
    let used = members.iter().zip(shown).filter(|(worth, _)| is_used(worth)).map(|(_, own)| own);
    let newest = used.max_by_key(|own| own.stamp).filter(|own| own.stamp > superblock.stamp);
    let newest = newest.cloned().unwrap_or_else(|| Shown::of(superblock));
    let believes_older = believes_stale || bug == Some(InjectedBug::NumbersAlone);
    for (worth, own) in members.iter_mut().zip(shown).filter(|(worth, _)| is_used(worth)) {
        if own.stamp < newest.acknowledged.max(superblock.stamp) && !believes_older {
            *worth = Worth::Returned; // STAMP4
        }
    }
    (members, newest)
}

/// ELECTION2: whether `superblock` is `own`, or follows it.
fn is_followed(own: &Superblock, superblock: &Superblock) -> bool {
    let is_it = own.number == superblock.number && own.identity() == superblock.identity();
    is_it || (own.number + 1 == superblock.number && own.identity() == superblock.previous)
}

/// ELECTION3: whether the members in sync are more than half, or all, of those that the superblock of any of them calls in sync.
fn are_majority(members: &[Worth], found: &[Found]) -> bool {
    let present = members.iter().filter(|worth| **worth == Worth::InSync).count();
    let called = |superblock: &Superblock| {
        superblock.members.iter().filter(|member| member.state == MemberState::InSync).count()
    };
    let in_sync = members.iter().zip(found).filter(|(worth, _)| **worth == Worth::InSync);
    let mut own = in_sync.filter_map(|(_, found)| found.superblock());
    own.all(|superblock| present * 2 > called(superblock) || present == called(superblock))
}

/// ELECTION4: whether a member with its own superblock number `own` and stamp lacks only what was written since it was called away.
pub(super) fn lacks_only_missed(own: (u64, u64), before: &MemberEntry) -> bool {
    own.0 + 1 == before.away_since && own.1 >= before.left_at // STAMP3
}

/// Whether the rest of the members may go on when `lost` of `in_sync` fail at one instant: the lost ones alone must not be
/// taken into use later (ELECTION3).
pub(super) fn may_go_on(layout: ArrayLayout, in_sync: usize, lost: usize) -> bool {
    assert!(lost <= in_sync, "ELECTION3: {lost} of {in_sync} are lost");
    let rest = in_sync - lost;
    rest as u64 >= layout.data_members() && lost * 2 <= in_sync
}

#[cfg(test)]
mod tests {
    use super::*;
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
            kind: if states.len() == 2 { Kind::Mirror } else { Kind::Ddraid },
            block_size: if states.len() == 2 { 1 } else { 4096 },
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
        assert_eq!(
            worth(DDRAID, &stale),
            Ok(vec![Worth::InSync, Worth::Returned, Worth::InSync]),
            "ELECTION2"
        );
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
        let one = [Found::Missing, Found::Missing, superblock(4, &[InSync; 3])];
        assert_eq!(worth(DDRAID, &one), Err(ArrayError::TooFew { present: 1, needed: 2 }));
    }

    #[test]
    fn what_is_lost_at_one_instant_can_never_go_on_alone() {
        for copies in ArrayLayout::COPIES {
            let layout = ArrayLayout::Mirror { copies };
            for lost in 1..=copies {
                let goes_on = may_go_on(layout, copies, lost);
                let could_start_alone = lost * 2 > copies;
                assert!(!(goes_on && could_start_alone), "ELECTION3: {lost} of {copies}");
                assert_eq!(goes_on, lost < copies && lost * 2 <= copies);
            }
        }
        assert!(may_go_on(DDRAID, 3, 1) && !may_go_on(DDRAID, 2, 1));
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
        assert_eq!(worth_with(MIRROR, &both, &[9, 7]), Err(ArrayError::MaybeStale), "STAMP4, ELECTION3");
        let now = next(&both[0], &[InSync; 2]);
        let Found::Superblock(now) = now else { unreachable!("made so") };
        let cut_short = [Found::Superblock(Superblock { stamp: 9, ..now }), both[1].clone()];
        assert_eq!(worth_with(MIRROR, &cut_short, &[0, 9]), Ok(vec![Worth::InSync; 2]), "STAMP4");
        assert_eq!(worth_with(MIRROR, &cut_short, &[0, 8]), Err(ArrayError::MaybeStale), "STAMP4");
        let election = elect(MIRROR, (&both, &shown(&both, &[8, 9])), false, None).expect("both are here");
        assert_eq!((election.behind.as_slice(), election.newest.stamp), (&[true, false][..], 9), "STAMP5");
    }
}
