//! Properties of [`next`], from random pairs of what is wanted and what is there.

use super::action::Action;
use super::next::next;
use super::view::{Facts, Presence, View, Volume};
use crate::jobs::records::RestingJob;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_sim::Random;
use varve_volume::lifecycle::placement::PlacementState;

const CASES: u64 = 3000;

/// A group whose actions succeed, fail, or do nothing, as a seed decides.
struct Model {
    view: View,
    facts: Facts,
    /// How what has a home stands to the text.
    placements: BTreeMap<Uuid, PlacementState>,
    down: Vec<String>,
    random: Random,
    /// Of ten actions so many fail.
    failing: u64,
    /// Whether those that are returned together are carried out in the opposite order.
    is_reversed: bool,
    log: Vec<Action>,
}

impl Model {
    fn new(seed: u64, failing: u64) -> Self {
        let mut random = Random::new(seed);
        let mut volumes: Vec<Volume> = Vec::new();
        for number in 0..random.below(7) {
            let before: Vec<Uuid> =
                volumes.iter().filter(|volume| volume.devices.is_empty()).map(|volume| volume.id).collect();
            let is_mapped = !before.is_empty() && random.chance(1, 3);
            let is_pool = !is_mapped && random.chance(1, 3);
            let presence = *random.pick(&[Presence::Absent, Presence::OutOfUse, Presence::InUse]);
            volumes.push(Volume {
                id: Uuid::from_u128(number.into()),
                is_in_text: presence == Presence::Absent || random.chance(4, 5),
                is_pool,
                presence,
                is_unasked: presence == Presence::InUse && random.chance(1, 3),
                devices: if is_mapped { vec![*random.pick(&before)] } else { Vec::new() },
            });
        }
        let states = [PlacementState::Same, PlacementState::Changed, PlacementState::Fenced];
        let homes = volumes.iter().filter(|volume| volume.presence != Presence::Absent);
        let placements = homes.map(|volume| (volume.id, *random.pick(&states))).collect();
        let holds =
            |random: &mut Random| random.chance(1, 2).then(|| Uuid::from_u128(random.below(3).into()));
        let jobs = (0..random.below(5))
            .map(|id| RestingJob { id, may_begin: random.chance(2, 3), holds: holds(&mut random) })
            .collect();
        let view = View {
            volumes,
            is_undecided: random.chance(1, 5),
            is_draining: random.chance(1, 5),
            is_unserved: random.chance(1, 2),
            has_sets: random.chance(1, 3),
            expired: (0..random.below(3)).map(|id| Uuid::from_u128(u128::from(id))).collect(),
            jobs,
            is_started: random.chance(2, 3),
            is_stopping: random.chance(1, 10),
        };
        let down = (0..random.below(3)).map(|id| id.to_string()).collect();
        let (facts, log) = (Facts::default(), Vec::new());
        Self { view, facts, placements, down, random, failing, is_reversed: false, log }
    }

    fn volume(&mut self, id: Uuid) -> &mut Volume {
        self.view.volumes.iter_mut().find(|volume| volume.id == id).expect("actions name what is seen")
    }

    /// One convergence.
    fn converge(&mut self) {
        self.facts = Facts::default();
        loop {
            let mut actions = next(&self.view, &self.facts);
            assert!(actions.iter().all(|action| !self.facts.tried.contains(action)), "NEXT1: {actions:?}");
            if actions.is_empty() {
                return;
            }
            if self.is_reversed {
                actions.reverse(); // NEXT2
            }
            for action in actions {
                self.act(&action);
                self.log.push(action.clone());
                self.facts.tried.insert(action);
            }
        }
    }

    fn act(&mut self, action: &Action) {
        let fails = self.random.below(10) < self.failing;
        match action {
            Action::Compare => self.facts.placements = self.placements.clone(),
            Action::Close(id) => {
                self.volume(*id).presence = Presence::OutOfUse;
                self.placements.insert(*id, PlacementState::Same);
                self.view.is_draining |= fails;
                self.facts.is_still_in_use |= fails;
            }
            Action::Extend(id) if fails => self.volume(*id).presence = Presence::OutOfUse,
            Action::Extend(id) => drop(self.placements.insert(*id, PlacementState::Same)),
            Action::Forget => self.view.volumes.retain(|volume| volume.is_in_text),
            Action::EndDraining => self.view.is_draining = false,
            Action::CutOff(id) => self.volume(*id).presence = Presence::OutOfUse,
            Action::Activate(id) if fails => self.volume(*id).presence = Presence::OutOfUse,
            Action::Activate(id) => {
                let volume = self.volume(*id);
                (volume.presence, volume.is_unasked) = (Presence::InUse, true);
            }
            Action::NoteServed => self.view.is_unserved = false,
            Action::ResolveSets if !fails => self.view.has_sets = false,
            Action::EmptyTrash(ids) if !fails => self.view.expired.retain(|id| !ids.contains(id)),
            Action::Job(id) if !fails => self.begin_job(*id),
            Action::Ask(id) => self.volume(*id).is_unasked = false,
            Action::ListExports => self.facts.down.clone_from(&self.down),
            Action::OpenExport(id) if !fails => self.down.retain(|down| down != id),
            _ => {}
        }
    }

    /// It runs, and others wait that hold the same volume.
    fn begin_job(&mut self, id: u64) {
        let place = self.view.jobs.iter().position(|job| job.id == id).expect("actions name what is seen");
        let held = self.view.jobs.remove(place).holds;
        let others = self.view.jobs.iter_mut().filter(|job| held.is_some() && job.holds == held);
        others.for_each(|job| job.may_begin = false);
    }

    /// When an action was carried out, if it was.
    fn place(&self, action: &Action) -> Option<usize> {
        self.log.iter().position(|done| done == action)
    }
}

/// Whether an action changes something in a group that has converged.
fn changes(action: &Action) -> bool {
    matches!(
        action,
        Action::Close(_)
            | Action::Extend(_)
            | Action::Forget
            | Action::EndDraining
            | Action::CutOff(_)
            | Action::Activate(_)
            | Action::NoteServed
            | Action::ResolveSets
            | Action::EmptyTrash(_)
            | Action::Job(_)
            | Action::Ask(_)
            | Action::OpenExport(_)
    )
}

#[test]
fn a_convergence_ends_whatever_fails() {
    for seed in 0..CASES {
        let mut model = Model::new(seed, seed % 11);
        let volumes = model.view.volumes.len();
        // Each volume is closed, extended, cut off, activated, asked and redirected once at most.
        let actions_max = 6 * volumes + model.view.jobs.len() + model.down.len() + 14;
        model.converge();
        assert!(model.log.len() <= actions_max, "NEXT1: {:?}", model.log);
    }
}

#[test]
fn what_has_converged_without_a_failure_stays_as_it_is() {
    let mut changed = 0;
    for seed in 0..CASES {
        let mut model = Model::new(seed, 0);
        model.converge();
        changed += model.log.iter().filter(|action| changes(action)).count();
        model.log.clear();
        model.converge();
        let again: Vec<&Action> = model.log.iter().filter(|action| changes(action)).collect();
        assert_eq!(again, Vec::<&Action>::new(), "seed {seed}");
        let view = &model.view;
        assert!(view.volumes.iter().all(|volume| volume.is_in_text && volume.presence == Presence::InUse));
        assert!(!view.is_draining && !view.is_unserved && !view.has_sets, "seed {seed}");
        assert!(view.expired.is_empty() || view.is_undecided, "seed {seed}: {:?}", view.expired);
        let left = view.jobs.iter().filter(|job| job.may_begin && !view.is_stopping).count();
        assert_eq!(left, 0, "seed {seed}: {:?}", view.jobs);
        assert!(!view.is_started || model.down.is_empty(), "seed {seed}");
        let waits = |state: &PlacementState| *state == PlacementState::Changed && !view.is_undecided;
        let elsewhere = |state: &PlacementState| *state == PlacementState::Fenced || waits(state);
        assert!(!model.placements.values().any(elsewhere), "seed {seed}");
    }
    assert!(changed > CASES as usize, "most views have something to be done: {changed}");
}

#[test]
fn what_failed_is_done_again_by_the_next_convergence() {
    for seed in 0..CASES {
        let mut model = Model::new(seed, 5);
        model.converge();
        model.failing = 0;
        model.converge();
        assert!(model.view.volumes.iter().all(|volume| volume.presence == Presence::InUse), "seed {seed}");
        assert!(!model.view.is_started || model.down.is_empty(), "seed {seed}");
        assert!(!model.view.is_draining && !model.view.has_sets, "seed {seed}");
    }
}

#[test]
fn actions_come_in_their_order() {
    let (mut closed, mut mapped, mut jobs) = (0, 0, 0);
    for seed in 0..CASES {
        let mut model = Model::new(seed, seed % 5);
        model.converge();
        let last = |is_meant: fn(&Action) -> bool| model.log.iter().rposition(is_meant);
        let first = |is_meant: fn(&Action) -> bool| model.log.iter().position(is_meant);
        let activated = first(|action| matches!(action, Action::Activate(_)));
        let is_after =
            |early: Option<usize>, late: Option<usize>| early.is_none() || late.is_none() || early < late;
        let last_close = last(|action| matches!(action, Action::Close(_)));
        assert!(is_after(last_close, activated), "NEXT3: {:?}", model.log);
        closed += usize::from(last_close.is_some() && activated.is_some());
        let last_activated = last(|action| matches!(action, Action::Activate(_)));
        let above =
            first(|action| matches!(action, Action::Job(_) | Action::RenameExports | Action::OpenExport(_)));
        assert!(is_after(last_activated, above), "NEXT5: {:?}", model.log);
        assert!(is_after(model.place(&Action::NoteServed), first(|action| matches!(action, Action::Job(_)))));
        jobs +=
            usize::from(last_activated.is_some() && model.log.iter().any(|it| matches!(it, Action::Job(_))));
        for volume in &model.view.volumes {
            let own = model.place(&Action::Activate(volume.id));
            for device in &volume.devices {
                let device = model.place(&Action::Activate(*device));
                assert!(is_after(device, own), "NEXT4: {:?}", model.log);
                mapped += usize::from(device.is_some() && own.is_some());
            }
        }
    }
    assert!(closed > 100 && mapped > 100 && jobs > 100, "{closed} {mapped} {jobs}");
}

#[test]
fn actions_that_are_returned_together_come_in_any_order() {
    for seed in 0..CASES {
        let (mut forward, mut backward) = (Model::new(seed, 0), Model::new(seed, 0));
        backward.is_reversed = true;
        forward.converge();
        backward.converge();
        let seen = |model: &Model| (model.view.volumes.clone(), model.down.clone(), model.placements.clone());
        assert_eq!(seen(&forward), seen(&backward), "NEXT2: seed {seed}");
    }
}

#[test]
fn of_jobs_that_hold_one_volume_one_begins() {
    for seed in 0..CASES {
        let mut model = Model::new(seed, 0);
        let held = model.view.jobs.clone();
        model.converge();
        for volume in (0..3).map(Uuid::from_u128) {
            let begun = held
                .iter()
                .filter(|job| job.holds == Some(volume) && model.place(&Action::Job(job.id)).is_some());
            assert!(begun.count() <= 1, "seed {seed}: {:?}", model.log);
        }
    }
}

#[test]
fn a_mapped_volume_goes_with_its_device_and_comes_after_it() {
    let device = Volume {
        id: Uuid::from_u128(1),
        is_in_text: true,
        is_pool: false,
        presence: Presence::OutOfUse,
        is_unasked: false,
        devices: Vec::new(),
    };
    let (id, presence) = (Uuid::from_u128(2), Presence::InUse);
    let mapped = Volume { id, presence, devices: vec![device.id], ..device };
    let mut model = Model::new(1, 0);
    let own = device.id;
    model.view = View { volumes: vec![device, mapped], ..View::default() };
    (model.placements, model.down) = (BTreeMap::new(), Vec::new());
    model.converge();
    let expected = [
        Action::Compare,
        Action::CutOff(id),
        Action::ReserveMemory,
        Action::Activate(own),
        Action::Activate(id),
        Action::HoldOrigins,
        Action::DivideMemory,
        Action::RenameExports,
        Action::FollowArrays,
        Action::Ask(own),
        Action::Ask(id),
        Action::WakeCoordinators,
        Action::Redirect(own),
        Action::Redirect(id),
    ];
    assert_eq!(model.log, expected);
}
