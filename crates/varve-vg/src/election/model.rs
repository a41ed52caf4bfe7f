//! Every history of a group on a few disks, in a small model of the protocol: each boot with each set of disks, each commit cut off on
//! each set of them, and a disk that is replaced by an older copy of itself.
//!
//! The oracle: what was acknowledged, and is known to a disk that is there, is never passed over. It counts, or the disks are refused.

use super::tests::{DISKS, first, next_numbered};
use super::*;
use crate::injected_bug::inject;
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;
use varve_block::Extent;

/// A set of disks, by their bits.
type Disks = u8;
type Ring = Vec<Rc<Version>>;
type Elected = (Uuid, Vec<ReplicaState>);

const ALL: Disks = (1 << DISKS.len()) - 1;
const LETTERS: [&str; 3] = ["a", "b", "d"];

fn numbers(disks: Disks) -> impl Iterator<Item = usize> {
    (0..DISKS.len()).filter(move |number| disks & 1 << number != 0)
}

/// The sets that are part of `disks`, itself and the empty one too.
fn parts(disks: Disks) -> impl Iterator<Item = Disks> {
    (0..=ALL).filter(move |part| part & !disks == 0)
}

fn names(disks: Disks) -> String {
    numbers(disks).map(|number| LETTERS[number]).collect()
}

fn ids(ring: &Ring) -> Vec<Uuid> {
    ring.iter().map(|version| version.id).collect()
}

struct Version {
    slot: Slot,
    id: Uuid,
    parent: Option<Rc<Version>>,
    missing: Disks,
}

impl Version {
    /// Whether it is `other`, or follows it.
    fn has(&self, other: &Version) -> bool {
        self.id == other.id || self.parent.as_ref().is_some_and(|parent| parent.has(other))
    }
}

#[derive(Clone)]
struct State {
    rings: [Ring; DISKS.len()],
    acknowledged: Vec<Rc<Version>>,
    /// An older state of a disk, which may take its place.
    copy: Option<(usize, Ring)>,
    copies: u8,
    story: Rc<Story>,
}

/// What has happened, for a report.
struct Story(String, Option<Rc<Story>>);

impl Story {
    fn tell(&self) -> String {
        let before = self.1.as_ref().map(|before| before.tell()).unwrap_or_default();
        format!("{before}\n  {}", self.0)
    }
}

impl State {
    fn key(&self) -> String {
        let acknowledged: BTreeSet<Uuid> = self.acknowledged.iter().map(|version| version.id).collect();
        let copy = self.copy.as_ref().map(|(number, held)| (*number, ids(held)));
        format!("{:?} {acknowledged:?} {copy:?} {}", self.rings.each_ref().map(ids), self.copies)
    }

    fn with(&self, event: String) -> State {
        State { story: Rc::new(Story(event, Some(Rc::clone(&self.story)))), ..self.clone() }
    }

    fn written(&self, version: &Rc<Version>, disks: Disks) -> State {
        let mut state = self.clone();
        for number in numbers(disks) {
            if !state.rings[number].iter().any(|held| held.id == version.id) {
                state.rings[number].push(Rc::clone(version));
            }
        }
        state
    }

    fn acknowledge(mut self, version: &Rc<Version>) -> State {
        if !self.acknowledged.iter().any(|other| other.id == version.id) {
            self.acknowledged.push(Rc::clone(version));
        }
        self
    }

    /// Whether a copy of the disk lacks more than one version that it had acknowledged. One that lacks the last alone cannot be told from a
    /// disk that a crash has kept it from.
    fn has_lost_much(&self, number: usize, copy: &Ring) -> bool {
        let is_acknowledged =
            |version: &&Rc<Version>| self.acknowledged.iter().any(|other| other.id == version.id);
        self.rings[number][copy.len()..].iter().filter(is_acknowledged).count() > 1
    }

    /// Whether nothing was acknowledged beside anything else.
    fn is_one_line(&self) -> bool {
        let all = &self.acknowledged;
        all.iter().all(|one| all.iter().all(|other| one.has(other) || other.has(one)))
    }

    fn is_known(&self, version: &Version, disks: Disks) -> bool {
        numbers(disks).any(|number| self.rings[number].iter().any(|held| held.has(version)))
    }

    fn newest(&self, number: usize) -> u64 {
        self.rings[number].last().map_or(0, |version| version.slot.sequence)
    }

    fn replicas(&self, disks: Disks) -> Vec<Replica> {
        let replica = |number: usize| {
            let placed = (0..).zip(&self.rings[number]).map(|(at, version)| Placed {
                extent: Extent::new(at * 4096, 4096),
                version: version.id,
                slot: version.slot.clone(),
            });
            let ring = RingContent { slots: placed.collect(), damaged: Vec::new() };
            Replica { pv: Uuid::from_u128(DISKS[number]), ring }
        };
        numbers(disks).map(replica).collect()
    }
}

#[derive(Default)]
struct Model {
    elected: u64,
    refused: u64,
    /// Histories after which something was passed over.
    lost: Vec<String>,
    /// Elections that were held already.
    found: HashMap<Vec<(usize, Vec<Uuid>)>, Option<Elected>>,
    /// Versions that were made already.
    made: HashMap<(Uuid, Disks, u64, &'static str), Rc<Version>>,
}

impl Model {
    fn next(
        &mut self,
        parent: &Rc<Version>,
        missing: Disks,
        number: u64,
        change: &'static str,
    ) -> Rc<Version> {
        let make = || {
            let slot = next_numbered(&parent.slot, change, &names(missing), number);
            let id = slot.version();
            Rc::new(Version { slot, id, parent: Some(Rc::clone(parent)), missing })
        };
        Rc::clone(self.made.entry((parent.id, missing, number, change)).or_insert_with(make))
    }

    /// The version that counts, and how each of `disks` stands to it, if they are not refused.
    fn elect(&mut self, state: &State, disks: Disks) -> Option<Elected> {
        let rings = numbers(disks).map(|number| (number, ids(&state.rings[number]))).collect();
        let found = || {
            let election = elect(&state.replicas(disks)).ok()?;
            Some((election.slot.version(), election.replica_states))
        };
        self.found.entry(rings).or_insert_with(found).clone()
    }

    /// The states that a boot with `disks` may leave.
    fn boot(&mut self, state: &State, disks: Disks) -> Vec<State> {
        let is_known = |version: &Rc<Version>| state.is_known(version, disks);
        // That an older copy is one cannot be known if it is used alone, or where halves were used apart.
        if state.copies > 0 && !(state.acknowledged.iter().all(is_known) && state.is_one_line()) {
            return Vec::new();
        }
        let Some((id, found)) = self.elect(state, disks) else {
            self.refused += 1;
            return Vec::new();
        };
        self.elected += 1;
        let all = state.rings.iter().flatten();
        let winner = Rc::clone(all.into_iter().find(|version| version.id == id).expect("a disk holds it"));
        for lost in &state.acknowledged {
            if !winner.has(lost) && state.is_known(lost, disks) {
                let (counts, lost) = (winner.slot.sequence, lost.slot.sequence);
                let story = state.story.tell();
                self.lost.push(format!("with {}: {counts} counts, {lost} is lost{story}", names(disks)));
                return Vec::new();
            }
        }
        self.reconcile(state, disks, &winner, &found)
    }

    fn reconcile(
        &mut self,
        state: &State,
        disks: Disks,
        winner: &Rc<Version>,
        found: &[ReplicaState],
    ) -> Vec<State> {
        let of = |wanted: ReplicaState| -> Disks {
            let these = numbers(disks).zip(found).filter(|(_, state)| **state == wanted);
            these.fold(0, |all, (number, _)| all | 1 << number)
        };
        let (current, behind, returned) =
            (of(ReplicaState::Current), of(ReplicaState::Behind), of(ReplicaState::Returned));
        let number = winner.slot.sequence;
        let forward =
            numbers(behind).filter(|disk| state.newest(*disk) < number).fold(0, |all, disk| all | 1 << disk);
        let superseded = behind & !forward;
        if current | forward == 0 {
            return Vec::new();
        }
        let begun = state.with(format!(
            "boot with {}: {number} [missing {}] counts, {} behind, {} superseded, {} back",
            names(disks),
            names(winner.missing),
            names(forward),
            names(superseded),
            names(returned)
        ));
        let mut ends: Vec<State> = parts(forward)
            .filter(|part| *part != forward || forward != 0)
            .map(|part| {
                begun.written(winner, part).with(format!("cut off: {number} brought to {}", names(part)))
            })
            .collect();
        let here = current | behind | returned;
        let whole = begun.written(winner, forward);
        let absent = ALL & !here & !winner.missing;
        let mut missing = (winner.missing & !returned) | absent | superseded;
        let mut ready = (whole, Rc::clone(winner));
        if absent | superseded | returned != 0 {
            let Some(next) = self.commit(&ready.0, &ready.1, here, missing, "marks", &mut ends) else {
                return ends;
            };
            ready = next;
        } else {
            ready.0 = ready.0.acknowledge(winner);
        }
        if superseded != 0 {
            missing &= !superseded;
            let Some(next) = self.commit(&ready.0, &ready.1, here, missing, "taken back", &mut ends) else {
                return ends;
            };
            ready = next;
        }
        ends.push(ready.0.clone());
        if let Some((changed, _)) = self.commit(&ready.0, &ready.1, here, missing, "change", &mut ends) {
            ends.push(changed);
        }
        ends
    }

    /// A commit to all of `here` that it counts on; `ends` gets the states in which it was cut off.
    fn commit(
        &mut self,
        state: &State,
        parent: &Rc<Version>,
        here: Disks,
        missing: Disks,
        change: &'static str,
        ends: &mut Vec<State>,
    ) -> Option<(State, Rc<Version>)> {
        let counted = here & !missing;
        if counted == 0 {
            return None;
        }
        let highest = numbers(here).map(|disk| state.newest(disk)).max().unwrap_or(0);
        let number = highest.max(parent.slot.sequence) + 1;
        let version = self.next(parent, missing, number, change);
        let said = format!("{number} [missing {}] {change}", names(missing));
        for part in parts(counted).filter(|part| *part != 0 && *part != counted) {
            ends.push(state.written(&version, part).with(format!("cut off: {said} on {}", names(part))));
        }
        // On all disks, and nobody was told: what is acknowledged does not include it.
        let whole = state.written(&version, counted).with(format!("{said} on {}", names(counted)));
        Some((whole.acknowledge(&version), version))
    }

    /// States in which a disk was copied, or a copy has taken its place.
    fn copied(state: &State) -> Vec<State> {
        match &state.copy {
            None if state.copies == 0 => (0..DISKS.len())
                .map(|number| State {
                    copy: Some((number, state.rings[number].clone())),
                    ..state.with(format!("{} is copied", LETTERS[number]))
                })
                .collect(),
            Some((number, ring)) if state.has_lost_much(*number, ring) => {
                let mut next = state.with(format!("{} is its older copy", LETTERS[*number]));
                next.rings[*number].clone_from(ring);
                (next.copy, next.copies) = (None, 1);
                vec![next]
            }
            _ => Vec::new(),
        }
    }
}

fn explore(boots: usize, with_copies: bool) -> Model {
    let slot = first();
    let id = slot.version();
    let one = Rc::new(Version { slot, id, parent: None, missing: 0 });
    let story = Rc::new(Story("1 on all".to_owned(), None));
    let rings = [0; DISKS.len()].map(|_| vec![Rc::clone(&one)]);
    let mut states = vec![State { rings, acknowledged: vec![one], copy: None, copies: 0, story }];
    let mut model = Model::default();
    for boot in 0..=boots {
        if with_copies {
            let copied: Vec<State> = states.iter().flat_map(Model::copied).collect();
            states.extend(copied);
        }
        let (mut seen, mut next) = (HashSet::new(), Vec::new());
        for state in &states {
            // At first all disks are alike.
            let differs = |disks: &Disks| boot > 0 || with_copies || matches!(disks, 1 | 3 | 7);
            for disks in parts(ALL).filter(|disks| *disks != 0).filter(differs) {
                let ends = model.boot(state, disks);
                next.extend(ends.into_iter().filter(|end| boot < boots && seen.insert(end.key())));
            }
        }
        states = next;
    }
    model
}

/// One boot more in long runs.
fn boots(usual: usize) -> usize {
    usual + usize::from(std::env::var_os("VARVE_SIM_SEEDS").is_some())
}

fn loses_nothing(model: &Model) {
    println!("sim: {} elections of the model, {} refused", model.elected, model.refused);
    assert!(model.elected > 20_000 && model.refused > 500, "{} and {}", model.elected, model.refused);
    assert!(model.lost.is_empty(), "{} times, first:\n{}", model.lost.len(), model.lost[0]);
}

#[test]
fn no_short_history_loses_what_was_acknowledged() {
    loses_nothing(&explore(boots(3), false));
}

#[test]
fn no_short_history_with_an_older_copy_loses_what_was_acknowledged() {
    loses_nothing(&explore(boots(2), true));
}

#[test]
fn numbers_that_decide_between_lines_that_left_each_other_out_are_noticed() {
    for (bug, boots, with_copies) in
        [(InjectedBug::NumbersDecide, 3, false), (InjectedBug::BelieveStale, 1, true)]
    {
        inject(Some(bug));
        let model = explore(boots, with_copies);
        inject(None);
        assert!(!model.lost.is_empty(), "{bug:?}");
    }
}
