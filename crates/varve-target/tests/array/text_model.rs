//! The specification of what the text of a group could say of a mirror of two whose other copy is missing at the start: every order
//! of ejections, returns, commits, acknowledgements and power failures (`docs/decisions/0106-ejections-in-the-text.md`).
//!
//! The superblock of a member names the members that it calls away, and is durable before what they missed is acknowledged. The
//! text names the members that were ejected, as far as that was committed. The contract: a member in use holds all that was ever
//! acknowledged.

use std::collections::HashSet;

const BOTH: Set = 0b11;

/// A set of members.
type Set = u8;

fn has(set: Set, member: usize) -> bool {
    set & (1 << member) != 0
}

/// When an ejection is committed to the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Commit {
    /// Some time after it, or never.
    Later,
    /// Before what the member missed is acknowledged.
    First,
}

/// What of the text lets a member be used alone whose superblock calls no member away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Evidence {
    /// It does not say that this member was ejected.
    Silence,
    /// It says that the other one was.
    Mention,
}

/// Where the text is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// On other disks, enough of which are always there.
    Elsewhere,
    /// On the disks of both members only, as far as these are in use.
    OnMembers,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    /// The members that each superblock calls away.
    away: [Set; 2],
    /// The members that each copy of the text says were ejected.
    text: [Set; 2],
    /// The members that hold all that was acknowledged.
    fresh: Set,
    /// The members in use; none if the array is closed.
    in_use: Set,
}

struct Rule {
    commit: Commit,
    evidence: Evidence,
    place: Place,
    /// Whether a member that the text says was ejected is not used alone, whatever its superblock says.
    overrules: bool,
}

impl Rule {
    fn steps(&self, state: State) -> Vec<State> {
        if state.in_use == 0 {
            return [0b01, 0b10, BOTH].into_iter().filter_map(|present| self.open(state, present)).collect();
        }
        let members = || (0..2).filter(|member| has(state.in_use, *member));
        let lost = BOTH & !state.in_use;
        let mut next = vec![State { in_use: 0, ..state }];
        let mut told = state;
        let holds_text = |member: usize| self.place == Place::Elsewhere || has(state.in_use, member);
        (0..2).filter(|member| holds_text(*member)).for_each(|member| told.text[member] = lost);
        next.push(told);
        let is_called_away = members().all(|member| state.away[member] == lost);
        let is_told = members().all(|member| state.text[member] == lost);
        if is_called_away && (self.commit == Commit::Later || is_told || lost == 0) {
            next.push(State { fresh: state.in_use, ..state });
        }
        if state.in_use == BOTH {
            next.extend([0b01, 0b10].map(|left| State { in_use: left, ..state })); // One fails.
        } else {
            let mut called = state;
            members().for_each(|member| called.away[member] = lost);
            next.push(called);
            if is_called_away {
                // It returns, and is caught up.
                let fresh = if state.in_use & !state.fresh == 0 { BOTH } else { state.fresh };
                next.push(State { in_use: BOTH, away: [0, 0], fresh, ..state });
            }
        }
        next
    }

    fn open(&self, state: State, present: Set) -> Option<State> {
        let in_use = match present {
            BOTH => BOTH & !(state.away[0] | state.away[1]),
            alone => {
                let (member, other) = if has(alone, 0) { (0, 1) } else { (1, 0) };
                let is_last = has(state.away[member], other)
                    || match self.evidence {
                        Evidence::Silence => !has(state.text[member], member),
                        Evidence::Mention => has(state.text[member], other),
                    };
                let is_ejected = self.overrules && has(state.text[member], member);
                let is_allowed = is_last && !is_ejected;
                if is_allowed { alone } else { 0 }
            }
        };
        (in_use != 0).then_some(State { in_use, ..state })
    }

    /// In how many of all states a member is in use that lacks something.
    fn count_stale(&self) -> usize {
        let first = State { fresh: BOTH, ..State::default() };
        let (mut known, mut queue, mut stale) = (HashSet::from([first]), vec![first], 0);
        while let Some(state) = queue.pop() {
            if state.in_use & !state.fresh != 0 {
                stale += 1;
                continue;
            }
            queue.extend(self.steps(state).into_iter().filter(|after| known.insert(*after)));
        }
        stale
    }
}

#[test]
fn a_text_that_is_told_of_ejections_later_cannot_replace_a_person() {
    for place in [Place::Elsewhere, Place::OnMembers] {
        for evidence in [Evidence::Silence, Evidence::Mention] {
            let rule = Rule { commit: Commit::Later, evidence, place, overrules: true };
            assert!(rule.count_stale() > 0, "{place:?}, {evidence:?}: a stale copy is used");
        }
    }
}

#[test]
fn a_text_that_is_told_first_can_if_it_lies_on_other_disks_too_and_overrules_superblocks() {
    let stale = |place, overrules| {
        let (commit, evidence) = (Commit::First, Evidence::Silence);
        Rule { commit, evidence, place, overrules }.count_stale()
    };
    assert_eq!(stale(Place::Elsewhere, true), 0, "a commit before each acknowledgement would do");
    assert!(stale(Place::Elsewhere, false) > 0, "two copies may call each other away");
    assert!(stale(Place::OnMembers, true) > 0, "the copy that was left behind holds an old text");
}
