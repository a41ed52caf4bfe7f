//! What the members of an array are worth when it is taken into use: pure.
//!
//! Invariants:
//! - ELECT1. The superblock with the highest number counts, of the members that are here.
//! - ELECT2. A member that it calls away or catching up is not read, whatever its own superblock says. Nor is one that it calls in sync
//!   and that has not its number or the one before: superblocks are written to all members, one number after the other, so a
//!   member in sync lacks at most the last.
//! - ELECT3. The array is used only if its members in sync hold all data, and if no other ones may have been used without
//!   them: of the members that the superblock calls in sync more than half are here, or nobody of them is missing.
//! - ELECT4. A member that returns is caught up from the log only if its number is the last one before it was called away;
//!   else it is caught up with everything.

use super::error::ArrayError;
use super::geometry::ArrayLayout;
use varve_format::array::{MemberState, Superblock};

/// What was found in a member's place.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// No device.
    Missing,
    /// A device without a superblock of this array's member, or one that cannot be read.
    Blank,
    /// The newer of its superblocks.
    Superblock(Superblock),
}

impl Found {
    fn superblock(&self) -> Option<&Superblock> {
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

/// Decides. `accept_missing`: ELECT3's second half was answered by a person; `believes_stale`: a fault for tests.
pub(super) fn elect(
    layout: ArrayLayout,
    found: &[Found],
    accept_missing: bool,
    believes_stale: bool,
) -> Result<Election, ArrayError> {
    let superblocks = found.iter().filter_map(Found::superblock);
    let newest = superblocks.max_by_key(|superblock| superblock.number).cloned(); // ELECT1
    let needed = usize::try_from(layout.data_members()).expect("members are few");
    let superblock = newest.ok_or(ArrayError::TooFew { present: 0, needed })?;
    let members: Vec<Worth> = found
        .iter()
        .zip(&superblock.members)
        .map(|(found, entry)| match (found.superblock(), entry.state) {
            (None, _) => Worth::Absent,
            (Some(_), _) if believes_stale => Worth::InSync,
            (Some(own), MemberState::InSync) if own.number + 1 >= superblock.number => Worth::InSync, // ELECT2
            (Some(own), MemberState::CatchingUp) if own.number + 1 >= superblock.number => Worth::CatchingUp,
            (Some(_), _) => Worth::Returned,
        })
        .collect();
    let present = members.iter().filter(|worth| **worth == Worth::InSync).count();
    let called = superblock.members.iter().filter(|member| member.state == MemberState::InSync).count();
    if present < needed {
        return Err(ArrayError::TooFew { present, needed });
    }
    if present * 2 <= called && present < called && !accept_missing && !believes_stale {
        return Err(ArrayError::MaybeStale); // ELECT3
    }
    Ok(Election { superblock, members })
}

/// ELECT4: whether a member with its own superblock number `own` lacks only what was written since it was called away.
pub(super) fn lacks_only_missed(own: u64, away_since: u64) -> bool {
    own + 1 == away_since
}

/// Whether the rest of the members may go on when `lost` of `in_sync` fail at one instant: the lost ones alone must not be
/// taken into use later (ELECT3).
pub(super) fn may_go_on(layout: ArrayLayout, in_sync: usize, lost: usize) -> bool {
    let rest = in_sync - lost;
    rest as u64 >= layout.data_members() && lost * 2 <= in_sync
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_format::array::{Kind, MemberEntry, Uuid};

    const MIRROR: ArrayLayout = ArrayLayout::Mirror { copies: 2 };
    const DDRAID: ArrayLayout = ArrayLayout::Ddraid { order: 1, block_size: 4096 };

    fn superblock(number: u64, states: &[MemberState]) -> Found {
        let member = |(place, state): (usize, &MemberState)| MemberEntry {
            id: Uuid::from_u128(place as u128 + 1),
            state: *state,
            away_since: if *state == MemberState::InSync { 0 } else { 1 },
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
            epoch: 0,
            log_members: 1,
            members: states.iter().enumerate().map(member).collect(),
            dirty: vec![0],
            missed: vec![0],
            written: vec![0],
        })
    }

    fn worth(layout: ArrayLayout, found: &[Found]) -> Result<Vec<Worth>, ArrayError> {
        elect(layout, found, false, false).map(|election| election.members)
    }

    #[test]
    fn the_newest_superblock_says_who_is_believed() {
        use MemberState::{Away, CatchingUp, InSync};
        let (all, without) = ([InSync; 3], [InSync, Away, InSync]);
        let stale = [superblock(5, &without), superblock(4, &all), superblock(5, &without)];
        assert_eq!(worth(DDRAID, &stale), Ok(vec![Worth::InSync, Worth::Returned, Worth::InSync]), "ELECT2");
        let half_written = [superblock(5, &all), superblock(4, &all), superblock(4, &all)];
        assert_eq!(worth(DDRAID, &half_written), Ok(vec![Worth::InSync; 3]), "ELECT2");
        let old = [superblock(5, &all), superblock(3, &all), superblock(5, &all)];
        assert_eq!(worth(DDRAID, &old), Ok(vec![Worth::InSync, Worth::Returned, Worth::InSync]), "ELECT2");
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
        assert_eq!(worth(MIRROR, &alone), Err(ArrayError::MaybeStale), "ELECT3");
        assert!(elect(MIRROR, &alone, true, false).is_ok(), "a person says that it is the last one");
        let last = [Found::Missing, superblock(4, &[Away, InSync])];
        assert_eq!(worth(MIRROR, &last), Ok(vec![Worth::Absent, Worth::InSync]), "ELECT3");
        let two = [Found::Missing, superblock(4, &[InSync; 3]), superblock(4, &[InSync; 3])];
        assert_eq!(worth(DDRAID, &two), Ok(vec![Worth::Absent, Worth::InSync, Worth::InSync]), "ELECT3");
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
                assert!(!(goes_on && could_start_alone), "ELECT3: {lost} of {copies}");
                assert_eq!(goes_on, lost < copies && lost * 2 <= copies);
            }
        }
        assert!(may_go_on(DDRAID, 3, 1) && !may_go_on(DDRAID, 2, 1));
        assert!(lacks_only_missed(4, 5) && !lacks_only_missed(3, 5), "ELECT4");
    }
}
