//! The specification of which members are believed when an array is opened: every order in which superblocks can be written,
//! members be missing and the power fail, for a few members.
//!
//! A superblock is a number and the set of members that are away. It is written to one member after the other, and the power
//! may fail between any two. The contract: a member that is believed holds all that was ever acknowledged.

use std::collections::HashSet;
use std::io::Write;

const MEMBERS_MAX: usize = 5;

/// A set of members.
type Set = u8;

fn has(set: Set, member: usize) -> bool {
    set & (1 << member) != 0
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Superblock {
    number: u8,
    away: Set,
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

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Run {
    in_use: Set,
    /// The superblock that is being written, and the members that lack it.
    superblock: Superblock,
    lacking: Set,
    /// The members that are away from the next one on, and whether that one is due.
    away: Set,
    is_due: bool,
}

/// How elections may be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// The highest number counts. An array that is opened writes the next one.
    Number,
    /// Those members are believed that have a superblock or the one that it follows, and they are the majority by both. An array
    /// that is opened first writes the superblock that counts to all members that lack it, and then the next one.
    Successor,
}

struct Model {
    members: usize,
    /// How many members hold all data.
    needed: u32,
    /// Superblocks with numbers up to this are written.
    number_max: u8,
    rule: Rule,
}

impl Model {
    fn all(&self) -> Set {
        (1 << self.members) - 1
    }

    fn members_of(&self, set: Set) -> impl Iterator<Item = usize> + Clone {
        (0..self.members).filter(move |member| has(set, *member))
    }

    /// The superblock that counts, and the members that are believed.
    fn elect(&self, state: &State, present: Set) -> Option<(Superblock, Set)> {
        let mut candidates: Vec<Superblock> =
            self.members_of(present).map(|member| state.superblocks[member]).collect();
        candidates.sort_by_key(|superblock| std::cmp::Reverse(superblock.number));
        if self.rule == Rule::Number {
            candidates.truncate(1);
        }
        candidates.into_iter().find_map(|elected| {
            let own = |member: usize| state.superblocks[member];
            let believed: Set = self
                .members_of(present & !elected.away)
                .filter(|member| match self.rule {
                    Rule::Number => own(*member).number + 1 >= elected.number,
                    Rule::Successor => [elected.checksum, elected.previous].contains(&own(*member).checksum),
                })
                .fold(0, |set, member| set | 1 << member);
            let count = believed.count_ones();
            let is_majority = |superblock: Superblock| {
                let called = (self.all() & !superblock.away).count_ones();
                count * 2 > called || count == called
            };
            let agreed = match self.rule {
                Rule::Number => is_majority(elected),
                Rule::Successor => self.members_of(believed).all(|member| is_majority(own(member))),
            };
            (count >= self.needed && agreed).then_some((elected, believed))
        })
    }

    /// What may happen next.
    fn steps(&self, state: &State) -> Vec<State> {
        let Some(run) = state.run else {
            let openings = (1..=self.all()).filter_map(|present| self.open(state, present));
            return openings.collect();
        };
        // The power fails.
        let mut next = vec![State { run: None, ..state.clone() }];
        for member in self.members_of(run.lacking) {
            let mut after = state.clone();
            after.superblocks[member] = run.superblock;
            after.run = Some(Run { lacking: run.lacking & !(1 << member), ..run });
            next.push(after);
        }
        if run.lacking != 0 {
            return next;
        }
        if run.is_due {
            next.extend(self.write(state, run));
            return next;
        }
        next.push(State { fresh: run.in_use, ..state.clone() });
        for member in 0..self.members {
            let changed = Run { in_use: run.in_use ^ (1 << member), away: run.away ^ (1 << member), ..run };
            let mut after = state.clone();
            if has(run.in_use, member) {
                // It fails, and too few are left, or half of those that were in use cannot be told from the other half.
                if changed.in_use.count_ones() < self.needed {
                    continue;
                }
            } else {
                // It is caught up, as one that is away until the next superblock.
                after.superblocks[member] = run.superblock;
                after.fresh |= if after.fresh == run.in_use { 1 << member } else { continue };
            }
            next.extend(self.write(&after, changed));
        }
        next
    }

    /// Begins to write the next superblock.
    fn write(&self, state: &State, run: Run) -> Option<State> {
        let number = run.superblock.number + 1;
        let previous = run.superblock.checksum;
        let checksum = match self.rule {
            Rule::Number => 0,
            Rule::Successor => checksum(&[previous, u32::from(number), u32::from(run.away)]),
        };
        let superblock = Superblock { number, away: run.away, previous, checksum };
        let run = Run { superblock, lacking: run.in_use, is_due: false, ..run };
        (number <= self.number_max).then(|| State { run: Some(run), ..state.clone() })
    }

    fn open(&self, state: &State, present: Set) -> Option<State> {
        let (superblock, believed) = self.elect(state, present)?;
        let away = self.all() & !believed;
        let lacking = self.members_of(believed).filter(|member| state.superblocks[*member] != superblock);
        let lacking = lacking.fold(0, |set, member| set | 1 << member);
        let run = Run { in_use: believed, superblock, lacking, away, is_due: true };
        match self.rule {
            Rule::Number => self.write(state, run),
            Rule::Successor => Some(State { run: Some(run), ..state.clone() }),
        }
    }

    /// How many states there are, and in how many of them a member is believed that lacks something.
    fn count(&self) -> (usize, usize) {
        let first = State { fresh: self.all(), ..State::default() };
        let (mut known, mut queue, mut stale) = (HashSet::from([first.clone()]), vec![first], 0);
        while let Some(state) = queue.pop() {
            if state.run.is_some_and(|run| run.in_use & !state.fresh != 0) {
                stale += 1;
                continue;
            }
            let can_go_on = state.run.is_some() || self.elect(&state, self.all()).is_some();
            assert!(
                can_go_on || self.rule == Rule::Number,
                "with all members an array can be opened: {state:?}"
            );
            queue.extend(self.steps(&state).into_iter().filter(|after| known.insert(after.clone())));
        }
        (known.len(), stale)
    }
}

fn checksum(words: &[u32]) -> u32 {
    words.iter().fold(0x811c_9dc5, |sum, word| (sum ^ word).wrapping_mul(0x0100_0193).rotate_left(7))
}

fn models(rule: Rule) -> impl Iterator<Item = Model> {
    // Mirrors of 2 to 4, and ddraid of orders 1 and 2.
    [(2, 1, 7), (3, 1, 5), (4, 1, 4), (3, 2, 6), (5, 4, 4)]
        .into_iter()
        .map(move |(members, needed, number_max)| Model { members, needed, number_max, rule })
}

fn say(model: &Model, counted: (usize, usize)) {
    let Model { members, needed, rule, .. } = model;
    let (states, stale) = counted;
    let _ = writeln!(
        std::io::stderr(),
        "model: {members} members of which {needed} are needed, {rule:?}: {stale} of {states} states believe a stale one"
    );
}

#[test]
fn nobody_is_believed_who_lacks_something_acknowledged() {
    for model in models(Rule::Successor) {
        let counted = model.count();
        say(&model, counted);
        assert_eq!(counted.1, 0, "a stale member is believed");
    }
}

#[test]
fn numbers_alone_do_not_tell_who_is_stale() {
    for model in models(Rule::Number).filter(|model| model.members > 2) {
        let counted = model.count();
        say(&model, counted);
        assert!(counted.1 > 0, "two boots with different members write the same number");
    }
}
