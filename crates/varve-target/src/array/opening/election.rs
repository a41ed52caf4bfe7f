//! What the members of an array are worth when it is taken into use: pure.
//!
//! Superblocks are written to all members, one number after the other. Each names the one that it follows, because hosts with
//! different members may write different ones under one number. `tests/array/election_model.rs` goes through every order in
//! which they can be written, members be missing and the power fail.
//!
//! Invariants:
//! - ELECTION1. The superblock with the highest number is authoritative for which ELECTION2 and ELECTION3 hold, of the members that are here. One that
//!   calls a member in use which has a higher number does not.
//! - ELECTION2. A member is believed that it calls in sync and that has it, or the one that it follows, and is as new as the others
//!   (STAMP4). A member that it calls away or
//!   catching up is not read, whatever its own superblock says.
//! - ELECTION3. The members that are believed hold all data, and no other ones may have been used without them, or may be later: of those
//!   that the authoritative superblock or the one of any of them calls in sync the others are fewer than half, or do not hold all data. One
//!   that is here is none of the others if it was called away and has not gone on since it left: its superblock is not newer, and its stamp
//!   is not older. One that is here with another superblock in the same place, which does not call it in sync, is not counted at all.
//! - ELECTION4. A member that returns is caught up from the log only if its number is the last one before it was called away;
//!   else it is caught up with everything.
//! - ELECTION5. Members that leave are half at most of those that any superblock calls in sync which one of them may have as its newest: the
//!   last one that took effect, and all that were written since. Else they could be used without the rest later (ELECTION3).
//! - ELECTION6. No member is called in sync again by the superblock that calls another one away: half of the members before and half of those
//!   after could have none in common.

use super::super::dirty_log::stamps::Shown;
use super::super::error::ArrayError;
use super::super::geometry::ArrayLayout;
use super::super::injected_bug::InjectedBug;
use varve_format::array::{MemberEntry, MemberState, Superblock};

/// What was found in a member's place.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each member, and only while an array is opened"
)]
pub(in crate::array) enum Found {
    /// No device.
    Missing,
    /// A device without a superblock of this array's member, or one that cannot be read.
    Blank,
    /// The newer of its superblocks.
    Superblock(Superblock),
}

impl Found {
    pub(in crate::array) fn superblock(&self) -> Option<&Superblock> {
        match self {
            Found::Superblock(superblock) => Some(superblock),
            Found::Missing | Found::Blank => None,
        }
    }
}

/// What is decided.
#[derive(Clone, Debug)]
pub(in crate::array) struct Election {
    /// The authoritative superblock.
    pub(in crate::array) superblock: Superblock,
    /// What each member is worth now.
    pub(in crate::array) members: Vec<Worth>,
    /// The newest stamp.
    pub(in crate::array) newest: Shown,
    /// The newest one that all members in use are known to have: they have acknowledged it, or show it or a later one (STAMP5).
    pub(in crate::array) had_by_all: u64,
    /// Members that lack the newest or did at an earlier opening, and of those in sync the ones that do not decide what dirty regions hold (STAMP5).
    pub(in crate::array) lagging: Vec<bool>,
    pub(in crate::array) behind: Vec<bool>,
}

impl Election {
    /// Whether what `stamp` calls clean is not: a member in sync may lack it, for not all have acknowledged it, or that member is a copy
    /// (STAMP5).
    pub(in crate::array) fn voids_cleans(&self, stamp: u64) -> bool {
        assert!(self.had_by_all <= self.newest.stamp, "STAMP5: {} of {:?}", self.had_by_all, self.newest);
        let mut members = self.members.iter().zip(&self.lagging);
        stamp > self.had_by_all && members.any(|(worth, lags)| *worth == Worth::InSync && *lags)
    }
}

/// What a member is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Worth {
    /// It is read and written.
    InSync,
    /// It was catching up, and goes on.
    CatchingUp,
    /// It is here, and was away.
    Returned,
    /// It is missing, or is not a member of the array yet.
    Absent,
}

impl Worth {
    /// Whether the member is written.
    fn is_in_use(self) -> bool {
        matches!(self, Worth::InSync | Worth::CatchingUp)
    }
}

/// Decides, by what was `found` of members and the newest stamps that they have. `accept_missing`: ELECTION3's second half was answered by a person; `bug`: a fault for tests.
pub(in crate::array) fn elect(
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
    let (mut present_max, mut refused) = (0, None);
    for superblock in candidates {
        let (members, newest) = worths(superblock, (found, shown), bug);
        let present = members.iter().filter(|worth| **worth == Worth::InSync).count();
        if present < needed {
            present_max = present_max.max(present);
        } else if (are_enough(layout, (superblock, &members), (found, shown))
            && !is_overtaken(superblock, found))
            || accept_missing
            || bug == Some(InjectedBug::BelieveStale)
        {
            assert_eq!(members.len(), layout.members(), "ARRAY3: the members of the superblock that counts");
            let lagging = shown.iter().map(|own| own.is_behind || own.stamp < newest.stamp).collect();
            let was_equal = superblock.dirty.iter().all(|word| *word == 0);
            let never_behind = members.iter().zip(shown).filter(|(_, own)| !own.is_behind);
            let in_sync = never_behind.filter(|(worth, _)| **worth == Worth::InSync);
            let most = in_sync.map(|(_, own)| own.stamp).max().unwrap_or(0);
            let is_behind = |own: &Shown| own.is_behind || (own.stamp < most && was_equal);
            let behind = shown.iter().map(is_behind).collect();
            let had_by_all = had_by_all((&members, shown), &newest, was_equal);
            let superblock = superblock.clone();
            return Ok(Election { superblock, members, newest, had_by_all, lagging, behind });
        } else {
            refused = refused.or(Some(why_not_alone(superblock, &members))); // ELECTION3
        }
    }
    Err(refused.unwrap_or(ArrayError::TooFew { present: present_max, needed }))
}

/// STAMP5: the newest stamp that all `members` in use are known to have. One that is behind may have got a later stamp than one that it lacks, and
/// nothing says that it is if members were not equal then.
fn had_by_all((members, shown): (&[Worth], &[Shown]), newest: &Shown, was_equal: bool) -> u64 {
    let in_use = members.iter().zip(shown).filter(|(worth, _)| worth.is_in_use());
    let in_use: Vec<&Shown> = in_use.map(|(_, own)| own).collect();
    let least = in_use.iter().map(|own| own.stamp).min().unwrap_or(0);
    let is_unknown = in_use.iter().any(|own| own.is_behind) || (least < newest.stamp && !was_equal);
    if is_unknown { newest.acknowledged } else { least.max(newest.acknowledged) }
}

/// Why `members` of which `superblock` tells are not used without the others: one of these may be here as it was before.
fn why_not_alone(superblock: &Superblock, members: &[Worth]) -> ArrayError {
    let mut places = members.iter().zip(&superblock.members);
    let is_older = |(worth, entry): (&Worth, &MemberEntry)| {
        *worth == Worth::Returned && entry.state == MemberState::InSync
    };
    places.position(is_older).map_or(ArrayError::MaybeStale, |place| ArrayError::Older { place })
}

/// ELECTION1: whether a member that `superblock` calls in use has a higher number: it went on with others, and `superblock` is of an
/// older state of those that have it.
fn is_overtaken(superblock: &Superblock, found: &[Found]) -> bool {
    found.iter().zip(&superblock.members).any(|(found, entry)| {
        entry.state != MemberState::Away
            && found.superblock().is_some_and(|other| other.number > superblock.number)
    })
}

/// ELECTION2: what each member is worth if `superblock` is authoritative, and the newest stamp.
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
    let used = members.iter().zip(shown).filter(|(worth, _)| worth.is_in_use()).map(|(_, own)| own);
    let newest = used.max_by_key(|own| own.stamp).filter(|own| own.stamp > superblock.stamp);
    let newest = newest.cloned().unwrap_or_else(|| Shown::of(superblock));
    let believes_older = believes_stale || bug == Some(InjectedBug::NumbersAlone);
    for (worth, own) in members.iter_mut().zip(shown).filter(|(worth, _)| worth.is_in_use()) {
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

/// ELECTION3: whether no others may have been used without the `members` in sync by `superblock`, or may be later.
fn are_enough(
    layout: ArrayLayout,
    (superblock, members): (&Superblock, &[Worth]),
    (found, shown): (&[Found], &[Shown]),
) -> bool {
    let in_sync = members.iter().zip(found).filter(|(worth, _)| **worth == Worth::InSync);
    let own = in_sync.filter_map(|(_, found)| found.superblock());
    let role = |place: usize, called: &Superblock| {
        role_of(place, members[place], called, (superblock, found[place].superblock(), &shown[place]))
    };
    own.chain([superblock]).all(|called| {
        let in_sync =
            called.members.iter().enumerate().filter(|(_, entry)| entry.state == MemberState::InSync);
        let roles: Vec<Role> = in_sync.map(|(place, _)| role(place, called)).collect();
        let count = |role| roles.iter().filter(|other| **other == role).count();
        !may_be_used(layout, count(Role::Other), count(Role::Here) + count(Role::Other))
    })
}

/// What a member that some superblock calls in sync says about an election.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is believed, or has not gone on without those that are.
    Here,
    /// It may have gone on without them.
    Other,
    /// It was about to be called in sync, and was not.
    Uncounted,
}

/// The role of the member in `place`, which `called` calls in sync, if it is worth so much by `superblock`, and has its `own` superblock and stamp.
fn role_of(
    place: usize,
    worth: Worth,
    called: &Superblock,
    (superblock, own, shown): (&Superblock, Option<&Superblock>, &Shown),
) -> Role {
    let (Some(own), entry) = (own, &superblock.members[place]) else { return Role::Other };
    let is_as_it_left = entry.state == MemberState::Away && shown.stamp >= entry.left_at; // STAMP3
    let is_in_place = own.number == called.number && own.previous == called.previous;
    if worth == Worth::InSync || (is_as_it_left && is_followed(own, called)) {
        Role::Here
    } else if is_in_place && own.members[place].state != MemberState::InSync {
        Role::Uncounted
    } else {
        Role::Other
    }
}

/// Whether `some` of the members that a superblock calls in sync can be used without the rest, at once or with a failure of these.
fn may_be_used(layout: ArrayLayout, some: usize, called: usize) -> bool {
    assert!(some <= called, "ELECTION3: {some} of {called}");
    some as u64 >= layout.data_members() && some * 2 >= called
}

/// ELECTION4: whether a member with its own superblock number `own` and stamp lacks only what was written since it was called away.
pub(in crate::array) fn lacks_only_missed(own: (u64, u64), before: &MemberEntry) -> bool {
    own.0 + 1 == before.away_since && own.1 >= before.left_at // STAMP3
}

/// The members in sync by each superblock that one may have as its newest when an array is taken into use as `election` says
/// (ELECTION5). Those that a person says are not to be waited for are none of them.
pub(in crate::array) fn called_in_sync(
    election: &Election,
    found: &[Found],
    accept_missing: bool,
) -> Vec<Vec<usize>> {
    let believed = |place: &usize| election.members[*place] == Worth::InSync;
    let in_sync = |superblock: &Superblock| -> Vec<usize> {
        let places =
            superblock.members.iter().enumerate().filter(|(_, entry)| entry.state == MemberState::InSync);
        places.map(|(place, _)| place).filter(|place| !accept_missing || believed(place)).collect()
    };
    let own = (0..found.len()).filter(believed).filter_map(|place| found[place].superblock());
    let mut called: Vec<Vec<usize>> = own.chain([&election.superblock]).map(in_sync).collect();
    called.sort();
    called.dedup();
    called
}

#[cfg(test)]
mod tests;
