//! Which version of a group's description is the truth, when its disks disagree: pure.
//!
//! Every version names the one before it, and every disk's ring keeps the last ones; so the versions form a tree. A
//! version is *acknowledged* once every disk that it counts on holds it. A disk may lag behind by a crash in the middle
//! of a commit, or because it was away; it may hold a version that no other disk has, because the crash came after it
//! alone was written; or because it was used alone, elsewhere.
//!
//! Invariants of the protocol, on which the election rests:
//! - VERSION1. A version is written only to disks that it counts on (belong to it and are not marked missing), and only
//!   after the version before it was durable on every disk that both count on; and before, to those that it removes.
//! - VERSION2. Before a group is used while disks are absent, a version that marks them missing is acknowledged.
//! - VERSION3. A version's number is higher than that of any version that a disk held on which it is written; of a disk that
//!   joins its ring is read before: it may hold versions of a line that was abandoned.
//!
//! From these follow the rules:
//! - ELECT1. A version that is an ancestor of another disk's is older, not different.
//! - ELECT2. If one line of versions has left a disk out since the lines parted, the other line's versions that only that
//!   disk holds were superseded while it was away. If the line has taken the disk back, its number says so (VERSION3): a disk
//!   of a higher number than the line has seen what came later. Nor does the line decide by its head over one of a higher number that
//!   names its disks as present: that one may have taken them back. Nor does it decide if the other line may have left its disks out as
//!   well, by a version of a lower number or one that no disk has: both may have been used.
//! - ELECT3. A single version beyond the fork that a present disk ought to hold and never got was not acknowledged. A disk that lacks
//!   the version before it, too, proves nothing: it is older than what it had acknowledged (ELECT5).
//! - ELECT4. If neither rule decides, two halves of the group were used apart. That is refused, and never guessed.
//! - ELECT5. A disk that lacks a version with a successor, both counting on it, has lost what it had acknowledged: its
//!   data may be as old as its description.
//! - ELECT6. If its newest number is lower than that of such a version, it held this one after its newest (VERSION3): the line of that
//!   version has passed those that only such disks hold, whatever they say of others.

use crate::injected_bug::{InjectedBug, has};
use crate::model::{Group, TextError};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;
use varve_format::{Damaged, Placed, RingContent, SEQUENCE_END, Slot};

/// What one disk says of the group.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The disk.
    pub pv: Uuid,
    /// The versions in its ring.
    pub ring: RingContent,
}

/// How a disk stands to the version that was elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It holds it.
    Current,
    /// It lacks the last version, which a crash kept from it; it is brought forward.
    Behind,
    /// It was marked missing, and holds all that it had acknowledged; it can be taken back.
    Returned,
    /// It has lost versions that it had acknowledged, or may have: ELECT5. It is not used.
    Stale,
    /// It was removed from the group.
    Removed,
}

/// The version that counts, and the states of the replicas.
#[derive(Clone, Debug)]
pub struct Election {
    /// The version that counts, as one disk holds it.
    pub slot: Slot,
    /// What it says.
    pub group: Group,
    /// The state of every replica, in the order in which they were given.
    pub replica_states: Vec<ReplicaState>,
}

/// Why no version was elected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// No disk holds a whole description.
    Nothing,
    /// ELECT4: each of these sets of disks was used without the others.
    Divergent(Vec<Vec<Uuid>>),
    /// The version that counts cannot be read by this program.
    Text(TextError),
    /// The disks that the version counts on are missing, of which this is where they were last: those that are here have left the group, or
    /// were left out of it.
    Left(Vec<String>),
    /// The version that counts is whole, and cannot be true.
    Contradiction(&'static str),
}

/// Finds the version that counts.
pub fn elect(replicas: &[Replica]) -> Result<Election, Undecided> {
    let tree = Tree::of(replicas);
    let version = tree.winner()?;
    let slot = (*tree.slots.get(&version).expect("the winner is a version that a disk holds")).clone();
    let group = Group::from_text(&slot.text).map_err(Undecided::Text)?;
    if (group.id(), group.entry().sequence) != (slot.vg, slot.sequence) {
        return Err(Undecided::Contradiction("its text is of another group or version than its slot"));
    }
    if slot.sequence >= SEQUENCE_END {
        return Err(Undecided::Contradiction("its number is so high that none can follow"));
    }
    let chain = tree.chain(version);
    assert_eq!(chain.first(), Some(&version), "a line begins with its head");
    let replica_states: Vec<_> =
        replicas.iter().map(|replica| tree.state_of(replica, &chain, &group)).collect();
    let is_of_it = |state: &ReplicaState| matches!(state, ReplicaState::Current | ReplicaState::Behind);
    if !replica_states.iter().any(is_of_it) && !has(InjectedBug::BelieveStale) {
        let counted = group.physical_volumes().iter().filter(|disk| !disk.missing);
        let paths: Vec<String> = counted.map(|disk| disk.path.clone()).collect();
        return Err(match paths.is_empty() {
            true => Undecided::Contradiction("it counts on no disk"),
            false => Undecided::Left(paths),
        });
    }
    Ok(Election { slot, group, replica_states })
}

/// All versions that any disk holds.
struct Tree<'a> {
    replicas: &'a [Replica],
    slots: HashMap<Uuid, &'a Slot>,
    /// The newest version of each disk, and which disks have it.
    heads: BTreeMap<Uuid, Vec<Uuid>>,
}

impl<'a> Tree<'a> {
    fn of(replicas: &'a [Replica]) -> Self {
        let placed = replicas.iter().flat_map(|replica| &replica.ring.slots);
        let slots: HashMap<Uuid, &Slot> = placed.map(|placed| (placed.version, &placed.slot)).collect();
        let mut heads: BTreeMap<Uuid, Vec<Uuid>> = BTreeMap::new();
        for replica in replicas {
            if let Some(newest) = replica.ring.newest() {
                heads.entry(newest.version).or_default().push(replica.pv);
            }
        }
        assert!(
            heads.keys().all(|head| slots.contains_key(head)),
            "ELECT1: a head is a version that a disk holds"
        );
        Tree { replicas, slots, heads }
    }

    fn winner(&self) -> Result<Uuid, Undecided> {
        if has(InjectedBug::BelieveStale) {
            let first = self.replicas.iter().find_map(|replica| replica.ring.newest());
            return first.map(|placed| placed.version).ok_or(Undecided::Nothing);
        }
        let chains: Vec<(Uuid, Vec<Uuid>)> =
            self.heads.keys().map(|head| (*head, self.chain(*head))).collect();
        // An ancestor of another disk's version is older, not different (ELECT1).
        let older = |head: &Uuid| chains.iter().any(|(other, chain)| other != head && chain.contains(head));
        let candidates: Vec<_> = chains.iter().filter(|(head, _)| !older(head)).collect();
        let Some((any, _)) = candidates.first() else { return Err(Undecided::Nothing) };
        if candidates.len() == 1 {
            return Ok(*any);
        }
        let beats_all = |one: &(Uuid, Vec<Uuid>)| {
            candidates.iter().filter(|other| other.0 != one.0).all(|other| self.beats(one, other))
        };
        if let Some(winner) = candidates.iter().find(|candidate| beats_all(candidate)) {
            return Ok(winner.0);
        }
        let unacknowledged = |one: &(Uuid, Vec<Uuid>)| {
            candidates.iter().filter(|other| other.0 != one.0).all(|other| self.unacknowledged(one, other))
        };
        if candidates.iter().all(|candidate| unacknowledged(candidate)) {
            // ELECT3: none of them was acknowledged, so any will do; all disks must lead to the same choice.
            let chosen =
                candidates.iter().map(|(head, _)| *head).max_by_key(|head| (self.number(*head), *head));
            return chosen.ok_or(Undecided::Nothing);
        }
        let sides = candidates.iter().filter_map(|(head, _)| self.heads.get(head).cloned());
        Err(Undecided::Divergent(sides.collect()))
    }

    /// `version` and its known ancestors, newest first. A slot names several, so that the line goes on where no disk
    /// holds one of them.
    fn chain(&self, version: Uuid) -> Vec<Uuid> {
        let mut chain = vec![version];
        let mut at = self.slots.get(&version);
        while let Some(slot) = at.take() {
            for ancestor in slot.version_history() {
                chain.push(ancestor);
                // VERSION3: numbers fall along a line, so following it comes to an end.
                at = self.slots.get(&ancestor).filter(|older| older.sequence < slot.sequence);
                if at.is_some() {
                    break;
                }
            }
        }
        chain
    }

    /// ELECT6, then ELECT2, then ELECT3.
    fn beats(&self, one: &(Uuid, Vec<Uuid>), other: &(Uuid, Vec<Uuid>)) -> bool {
        let passed = (self.has_passed(one, other), self.has_passed(other, one));
        if passed.0 != passed.1 {
            return passed.0;
        }
        let decides = |one, other| {
            self.leaves_out(one, other)
                && !self.may_have_returned(one, other)
                && (!self.may_have_left_out(other, one) || has(InjectedBug::NumbersDecide))
        };
        match (decides(one, other), decides(other, one)) {
            (true, false) => true,
            (false, true) => false,
            _ => self.unacknowledged(other, one) && !self.unacknowledged(one, other),
        }
    }

    /// ELECT2: whether the line of `one` leaves out every disk whose newest version is `other`, or has done so before by a version of a
    /// higher number (VERSION3).
    fn leaves_out(&self, one: &(Uuid, Vec<Uuid>), other: &(Uuid, Vec<Uuid>)) -> bool {
        let head = self.group(one.0).is_some_and(|group| self.is_without(&group, other.0));
        head || self.number(one.0) > self.number(other.0) && self.has_left_out(one, other)
    }

    /// Whether the line of `one`, since it parted from that of `other`, was ever without all disks whose newest version is `other`.
    fn has_left_out(&self, one: &(Uuid, Vec<Uuid>), other: &(Uuid, Vec<Uuid>)) -> bool {
        let mut line = beyond_fork(one, other).filter_map(|version| self.group(version));
        line.any(|group| self.is_without(&group, other.0))
    }

    /// Whether it may have been: no disk that is here has one of its versions. Those before all that any disk has tell nothing.
    fn may_have_left_out(&self, one: &(Uuid, Vec<Uuid>), other: &(Uuid, Vec<Uuid>)) -> bool {
        let mut beyond: Vec<Uuid> = beyond_fork(one, other).collect();
        if beyond.len() == one.1.len() {
            let oldest = beyond.iter().rposition(|version| self.slots.contains_key(version));
            beyond.truncate(oldest.map_or(0, |oldest| oldest + 1)); // The two have no version in common.
        }
        beyond.iter().any(|version| !self.slots.contains_key(version)) || self.has_left_out(one, other)
    }

    /// Whether `group` is without every disk whose newest version is `head`.
    fn is_without(&self, group: &Group, head: Uuid) -> bool {
        self.holders(head).all(|pv| !group.counts_on(pv))
    }

    /// Whether every disk whose newest version is `one` may have been back when `other` was written, which has the higher number.
    fn may_have_returned(&self, one: &(Uuid, Vec<Uuid>), other: &(Uuid, Vec<Uuid>)) -> bool {
        let later = self.group(other.0).filter(|_| self.number(one.0) < self.number(other.0));
        later.is_some_and(|group| self.holders(one.0).all(|pv| group.counts_on(pv)))
    }

    /// ELECT6: whether each disk whose newest version is `other` has held a later one of the line of `one`, and lacks it.
    fn has_passed(&self, one: &(Uuid, Vec<Uuid>), other: &(Uuid, Vec<Uuid>)) -> bool {
        let beyond: Vec<Uuid> = beyond_fork(one, other).collect();
        let counts_on =
            |version: &Uuid, pv: Uuid| self.group(*version).is_some_and(|group| group.counts_on(pv));
        let was_durable = |pv: Uuid| {
            // VERSION1: the next version, the first of a pair, was written nowhere before.
            let both = |pair: &[Uuid]| pair.iter().all(|version| counts_on(version, pv));
            beyond.windows(2).any(|pair| self.number(pair[1]) > self.number(other.0) && both(pair))
        };
        self.holders(other.0).all(was_durable)
    }

    /// ELECT3: whether `one` is a single version beyond the fork, and a disk that it counts on never got it.
    fn unacknowledged(&self, one: &(Uuid, Vec<Uuid>), other: &(Uuid, Vec<Uuid>)) -> bool {
        assert_ne!(one.0, other.0, "two versions are compared");
        if beyond_fork(one, other).count() != 1 {
            return false;
        }
        let (Some(group), Some(slot)) = (self.group(one.0), self.slots.get(&one.0)) else { return false };
        let is_witness = |replica: &&Replica| {
            group.counts_on(replica.pv) && self.state_of(replica, &one.1, &group) != ReplicaState::Stale
        };
        let mut witnesses = self.replicas.iter().filter(is_witness);
        witnesses.any(|replica| never_held(&replica.ring, one.0, slot.sequence))
    }

    /// The disks whose newest version is `head`.
    fn holders(&self, head: Uuid) -> impl Iterator<Item = Uuid> {
        let holders = self.heads.get(&head).expect("ELECT1: a head is the newest version of a disk");
        holders.iter().copied()
    }

    /// The number of a version that a disk holds.
    fn number(&self, version: Uuid) -> Option<u64> {
        self.slots.get(&version).map(|slot| slot.sequence)
    }

    fn group(&self, version: Uuid) -> Option<Group> {
        Group::from_text(&self.slots.get(&version)?.text).ok()
    }

    fn state_of(&self, replica: &Replica, chain: &[Uuid], truth: &Group) -> ReplicaState {
        if truth.pv_by_id(replica.pv).is_none() {
            return ReplicaState::Removed;
        }
        assert!(!chain.is_empty(), "a line holds its head");
        let held = |version: &Uuid| replica.ring.slots.iter().any(|placed| placed.version == *version);
        let Some(base) = chain.iter().position(held) else { return ReplicaState::Stale };
        if base == 0 && truth.counts_on(replica.pv) {
            return ReplicaState::Current;
        }
        // The versions that it lacks, newest first; whether each counts on it.
        let lacks =
            chain[..base].iter().map(|version| self.group(*version).map(|group| group.counts_on(replica.pv)));
        let Some(lacks) = lacks.collect::<Option<Vec<bool>>>() else { return ReplicaState::Stale };
        if lacks.windows(2).any(|pair| pair[0] && pair[1]) {
            return ReplicaState::Stale;
        }
        if truth.counts_on(replica.pv) { ReplicaState::Behind } else { ReplicaState::Returned }
    }
}

/// The versions of `one`'s chain that are not in `other`'s.
fn beyond_fork<'a>(
    one: &'a (Uuid, Vec<Uuid>),
    other: &'a (Uuid, Vec<Uuid>),
) -> impl Iterator<Item = Uuid> + 'a {
    one.1.iter().copied().filter(|version| !other.1.contains(version))
}

/// Whether a disk with this ring can never have held version `version` of number `sequence`: it is not there, nothing
/// damaged may be it, and the ring reaches back that far or ends before.
fn never_held(ring: &RingContent, version: Uuid, sequence: u64) -> bool {
    let here = |placed: &Placed| placed.version == version;
    let (Some(oldest), Some(newest)) = (ring.slots.first(), ring.newest()) else { return false };
    let covered = newest.slot.sequence < sequence || oldest.slot.sequence <= sequence;
    let may_be = |damaged: &Damaged| damaged.version.is_none_or(|torn| torn == version);
    covered && !ring.damaged.iter().any(may_be) && !ring.slots.iter().any(here)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
