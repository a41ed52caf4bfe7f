//! The specification of which members are believed when an array is opened: every order in which superblocks can be written,
//! members be missing, fail, return and catch up, and the power fail, for a few members.
//!
//! A superblock is a number and what it calls each member. It is written to one member after the other, and the power may fail
//! between any two, or members that lack it fail. The contract: a member that is believed holds all that was ever acknowledged, and when
//! all members are here an array can be opened.

use std::collections::HashSet;
use std::io::Write;

const MEMBERS_MAX: usize = 5;

/// A set of members.
type Set = u8;

fn has(set: Set, member: usize) -> bool {
    set & (1 << member) != 0
}

fn set_of(members: impl Iterator<Item = usize>) -> Set {
    members.fold(0, |set, member| set | 1 << member)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Superblock {
    number: u8,
    in_sync: Set,
    catching_up: Set,
    /// The checksum of the superblock that it follows, and its own.
    previous: u32,
    checksum: u32,
}

/// What the members hold, and the array that runs on them, if one does.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    superblocks: [Superblock; MEMBERS_MAX],
    /// The members that hold all that was acknowledged.
    fresh: Set,
    run: Option<Run>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Run {
    /// The superblock that is being written, and the members that lack it.
    superblock: Superblock,
    lacking: Set,
    /// What the members are by the next one, and whether that one is due.
    in_sync: Set,
    catching_up: Set,
    is_due: bool,
    /// The members in sync by each superblock that one which leaves may have.
    called: Vec<Set>,
}

/// How elections may be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// The highest number counts. An array that is opened writes the next one.
    Number,
    /// Those members are believed that have a superblock or the one that it follows, and no others may have gone on without them. An
    /// array that is opened first writes the superblock that counts to all members that lack it, and then the next one.
    Successor,
    /// All that are not believed may have gone on, those that are here as they left included.
    AllOthers,
    /// Members that are believed make up for others by a superblock that does not call them in sync.
    AnyMajority,
    /// Members that leave are half at most of those that were in sync just before.
    LastLoss,
    /// A member is taken back by the superblock that calls another one away.
    BesideLosses,
}

#[derive(Clone, Copy)]
struct Model {
    members: usize,
    /// How many members hold all data.
    needed: u32,
    /// Superblocks with numbers up to this are written.
    number_max: u8,
    /// So many members fail at one instant.
    failing_max: u32,
    rule: Rule,
}

impl Model {
    fn all(&self) -> Set {
        (1 << self.members) - 1
    }

    fn members_of(&self, set: Set) -> impl Iterator<Item = usize> + Clone {
        (0..self.members).filter(move |member| has(set, *member))
    }

    /// The superblock that counts, and the members that it calls in sync and catching up and that are believed.
    fn elect(&self, state: &State, present: Set) -> Option<(Superblock, Set, Set)> {
        let mut candidates: Vec<Superblock> =
            self.members_of(present).map(|member| state.superblocks[member]).collect();
        candidates.sort_by_key(|superblock| std::cmp::Reverse(superblock.number));
        if self.rule == Rule::Number {
            candidates.truncate(1);
        }
        candidates.into_iter().find_map(|elected| {
            let own = |member: usize| state.superblocks[member];
            let follows = |member: &usize| match self.rule {
                Rule::Number => own(*member).number + 1 >= elected.number,
                _ => is_followed(own(*member), elected),
            };
            let believed_of = |set: Set| set_of(self.members_of(present & set).filter(follows));
            let believed = believed_of(elected.in_sync);
            let is_overtaken = |member: usize| own(member).number > elected.number;
            let in_use = elected.in_sync | elected.catching_up;
            let agreed = self.members_of(believed).map(own).chain([elected]).all(|called| {
                let (others, called) = self.others(state, present, believed, called);
                others < self.needed || others * 2 < called
            });
            let is_enough = believed.count_ones() >= self.needed && agreed;
            let counts = is_enough && !self.members_of(present & in_use).any(is_overtaken);
            counts.then_some((elected, believed, believed_of(elected.catching_up)))
        })
    }

    /// Of those that `called` calls in sync: how many may have gone on without those that are believed, and of how many.
    fn others(&self, state: &State, present: Set, believed: Set, called: Superblock) -> (u32, u32) {
        let absent = called.in_sync & !believed;
        let own = |member: usize| state.superblocks[member];
        let total = called.in_sync.count_ones();
        match self.rule {
            Rule::Number | Rule::AllOthers => return (absent.count_ones(), total),
            Rule::AnyMajority if believed & !called.in_sync != 0 => {
                return (total.saturating_sub(believed.count_ones()), total);
            }
            _ => {}
        }
        let has_left = |member: &usize| is_followed(own(*member), called);
        let is_uncounted = |member: &usize| {
            let own = own(*member);
            (own.number, own.previous) == (called.number, called.previous) && !has(own.in_sync, *member)
        };
        let here = self.members_of(absent & present);
        let uncounted = here.clone().filter(is_uncounted).count() as u32;
        let others = absent.count_ones() - here.filter(has_left).count() as u32 - uncounted;
        (others, total - uncounted)
    }

    /// Whether the array may go on when the members `lost` fail.
    fn may_go_on(&self, run: &Run, lost: Set) -> bool {
        let rest = run.in_sync & !lost;
        let are_half = |called: Set| (called & !rest).count_ones() * 2 <= called.count_ones();
        let called = match self.rule {
            Rule::LastLoss => &[run.in_sync][..],
            _ => &run.called,
        };
        lost & run.in_sync == 0
            || (rest.count_ones() >= self.needed && called.iter().all(|set| are_half(*set)))
    }

    /// What may happen next.
    fn steps(&self, state: &State) -> Vec<State> {
        let Some(run) = &state.run else {
            let openings = (1..=self.all()).filter_map(|present| self.open(state, present));
            return openings.collect();
        };
        // The power fails.
        let mut next = vec![State { run: None, ..state.clone() }];
        for member in self.members_of(run.lacking) {
            let mut after = state.clone();
            after.superblocks[member] = run.superblock;
            after.run = Some(Run { lacking: run.lacking & !(1 << member), ..run.clone() });
            next.push(after);
        }
        let failing = (0..=self.all()).filter(|set| set & !(run.in_sync | run.catching_up) == 0);
        let failing = failing.filter(|set| set.count_ones() <= self.failing_max);
        if run.is_due {
            if run.lacking == 0 {
                next.extend(failing.filter_map(|failed| self.lose(state, run, failed)));
            }
        } else if run.lacking != 0 {
            // All that lack it fail, or the power does.
            let mut run = run.clone();
            run.called.push(run.superblock.in_sync);
            let failing = failing.filter(|failed| run.lacking & !failed == 0);
            next.extend(failing.filter_map(|failed| self.lose(state, &run, failed)));
        } else {
            let run = Run { called: vec![run.superblock.in_sync], ..run.clone() };
            next.push(State { fresh: run.in_sync | run.catching_up & state.fresh, ..state.clone() });
            for failed in failing {
                next.extend((failed != 0).then(|| self.lose(state, &run, failed)).flatten());
                self.change(state, &run, failed, &mut next);
            }
        }
        next
    }

    /// A member returns, or has caught up, when `failed` leave.
    fn change(&self, state: &State, run: &Run, failed: Set, next: &mut Vec<State>) {
        for member in self.members_of(self.all() & !failed & !run.in_sync) {
            let bit = 1 << member;
            if !has(run.catching_up, member) {
                let run = Run { catching_up: run.catching_up | bit, ..run.clone() };
                next.extend(self.lose(state, &run, failed));
                continue;
            }
            let is_alone = failed & run.in_sync == 0 || self.rule == Rule::BesideLosses;
            if is_alone && state.fresh & run.in_sync == run.in_sync {
                let after = State { fresh: state.fresh | bit, ..state.clone() };
                let (in_sync, catching_up) = (run.in_sync | bit, run.catching_up & !bit);
                next.extend(self.lose(&after, &Run { in_sync, catching_up, ..run.clone() }, failed));
            }
        }
    }

    /// Begins to write the next superblock, by which the members `failed` are away.
    fn lose(&self, state: &State, run: &Run, failed: Set) -> Option<State> {
        if !self.may_go_on(run, failed) {
            return None;
        }
        let (in_sync, catching_up) = (run.in_sync & !failed, run.catching_up & !failed);
        let (number, previous) = (run.superblock.number + 1, run.superblock.checksum);
        let checksum = match self.rule {
            Rule::Number => 0,
            _ => checksum(&[previous, u32::from(number), u32::from(in_sync), u32::from(catching_up)]),
        };
        let superblock = Superblock { number, in_sync, catching_up, previous, checksum };
        let lacking = in_sync | catching_up;
        let run =
            Run { superblock, lacking, in_sync, catching_up, is_due: false, called: run.called.clone() };
        (number <= self.number_max).then(|| State { run: Some(run), ..state.clone() })
    }

    fn open(&self, state: &State, present: Set) -> Option<State> {
        let (superblock, in_sync, catching_up) = self.elect(state, present)?;
        let lacks = |member: &usize| state.superblocks[*member] != superblock;
        let lacking = set_of(self.members_of(in_sync | catching_up).filter(lacks));
        let own = self.members_of(in_sync).map(|member| state.superblocks[member]);
        let mut called: Vec<Set> = own.chain([superblock]).map(|superblock| superblock.in_sync).collect();
        called.sort_unstable();
        called.dedup();
        let run = Run { superblock, lacking, in_sync, catching_up, is_due: true, called };
        match self.rule {
            Rule::Number => self.lose(state, &run, 0),
            _ => Some(State { run: Some(run), ..state.clone() }),
        }
    }

    /// How many states there are, in how many of them a member is believed that lacks something, and in how many all members are here and
    /// the array cannot be opened.
    fn count(&self) -> Counted {
        let superblocks = [Superblock { in_sync: self.all(), ..Superblock::default() }; MEMBERS_MAX];
        let first = State { fresh: self.all(), superblocks, run: None };
        let (mut known, mut queue) = (HashSet::from([first.clone()]), vec![first]);
        let mut counted = Counted { states: 0, stale: 0, refused: 0 };
        while let Some(state) = queue.pop() {
            if state.run.as_ref().is_some_and(|run| run.in_sync & !state.fresh != 0) {
                assert_ne!(self.rule, Rule::Successor, "a stale member is believed: {state:?}");
                counted.stale += 1;
                continue;
            }
            if state.run.is_none() && self.elect(&state, self.all()).is_none() {
                assert_ne!(self.rule, Rule::Successor, "with all members an array can be opened: {state:?}");
                counted.refused += 1;
            }
            queue.extend(self.steps(&state).into_iter().filter(|after| known.insert(after.clone())));
        }
        counted.states = known.len();
        let Model { members, needed, rule, .. } = self;
        let Counted { states, stale, refused } = counted;
        let _ = writeln!(
            std::io::stderr(),
            "model: {members} members of which {needed} are needed, {rule:?}: {stale} of {states} states believe a stale one, {refused} are refused"
        );
        counted
    }
}

/// What was counted in a model.
struct Counted {
    states: usize,
    stale: usize,
    refused: usize,
}

/// Whether `superblock` is `own`, or follows it.
fn is_followed(own: Superblock, superblock: Superblock) -> bool {
    own == superblock || (own.number + 1 == superblock.number && own.checksum == superblock.previous)
}

fn checksum(words: &[u32]) -> u32 {
    words.iter().fold(0x811c_9dc5, |sum, word| (sum ^ word).wrapping_mul(0x0100_0193).rotate_left(7))
}

const TWO: Model = Model { members: 2, needed: 1, number_max: 7, failing_max: 1, rule: Rule::Successor };
const THREE: Model = Model { members: 3, needed: 1, number_max: 5, failing_max: 2, rule: Rule::Successor };
const FOUR: Model = Model { members: 4, needed: 1, number_max: 3, failing_max: 2, rule: Rule::Successor };

#[test]
fn nobody_is_believed_who_lacks_something_acknowledged() {
    let order_1 = Model { members: 3, needed: 2, number_max: 6, failing_max: 1, rule: Rule::Successor };
    let order_2 = Model { members: 5, needed: 4, number_max: 4, failing_max: 1, rule: Rule::Successor };
    for model in [TWO, THREE, FOUR, order_1, order_2] {
        let counted = model.count();
        assert_eq!((counted.stale, counted.refused), (0, 0), "ELECTION3, ELECTION5, ELECTION6");
        assert!(counted.states > 10_000, "{} states", counted.states);
    }
}

#[test]
fn numbers_alone_do_not_tell_who_is_stale() {
    let ddraid = Model { needed: 2, ..THREE };
    for model in [THREE, ddraid] {
        let counted = Model { number_max: 3, rule: Rule::Number, ..model }.count();
        assert!(counted.stale > 0, "two boots with different members write the same number");
    }
}

#[test]
fn members_that_are_here_as_they_left_must_not_be_feared() {
    let counted = Model { number_max: 3, rule: Rule::AllOthers, ..THREE }.count();
    assert!(
        counted.refused > 0,
        "ELECTION3: a superblock that only a member that catches up has stops the array"
    );
}

#[test]
fn a_member_that_was_catching_up_does_not_make_up_for_one_that_went_on() {
    let counted = Model { number_max: 3, rule: Rule::AnyMajority, ..THREE }.count();
    assert!(counted.stale > 0, "ELECTION3: the other half went on");
}

#[test]
fn losses_are_counted_from_the_last_superblock_that_took_effect() {
    for model in [Model { number_max: 4, ..TWO }, Model { number_max: 3, ..THREE }] {
        let counted = Model { rule: Rule::LastLoss, ..model }.count();
        assert!(counted.stale > 0, "ELECTION5: two that leave one after the other go on together");
    }
}

#[test]
fn a_member_must_not_be_taken_back_beside_a_loss() {
    let counted = Model { rule: Rule::BesideLosses, ..FOUR }.count();
    assert!(counted.stale > 0, "ELECTION6");
}
