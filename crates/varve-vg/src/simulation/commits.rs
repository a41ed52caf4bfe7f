//! Histories of changes with crashes at any step, on changing sets of disks.
//!
//! The oracle: after a crash the group is exactly the last acknowledged one or one whose commit was under way; once a
//! boot has settled, it is that one and no other, whichever disks were there and whichever come back later.

use super::{Content, Lab, content, number_of, stamp};
use crate::flaw::{Flaw, make};
use crate::model::{Role, StorePolicy};
use crate::plan::{Change, Layout, Plan, plan};
use crate::size::SizeArgument;
use crate::{Absent, GroupProblem, Note, OpenGroup, scan};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;
use varve_sim::{CrashAt, CrashKind, DiskImage, Random, World, caught, caught_share, run_seeds, test_name};

/// What may be read.
struct Oracle {
    acknowledged: Content,
    /// Of commits that a crash has cut off since the last boot that settled.
    under_way: Vec<Content>,
    /// The disks of the last boot that settled: one of them must be there, or nobody can know the truth.
    holders: BTreeSet<usize>,
    /// The boots since all disks were together and settled.
    boots: Vec<BTreeSet<usize>>,
    /// Disks that were replaced by an old image.
    stale: BTreeSet<usize>,
}

impl Oracle {
    fn observe(&self, found: &Content) {
        let allowed = *found == self.acknowledged || self.under_way.contains(found);
        assert!(
            allowed,
            "found {found:#?}\nacknowledged {:#?}\nunder way {:#?}",
            self.acknowledged, self.under_way
        );
    }

    fn acknowledge(&mut self, content: Content) {
        self.acknowledged = content;
        self.under_way.clear();
    }

    /// Whether two boots had no disk in common: then two halves may really have been used apart.
    fn may_be_divergent(&self, present: &BTreeSet<usize>) -> bool {
        let all_present = present.len() == self.disks();
        let apart = |one: &BTreeSet<usize>| self.boots.iter().any(|other| one.is_disjoint(other));
        !self.stale.is_empty() || !all_present && self.boots.len() > 1 || self.boots.iter().any(apart)
    }

    fn disks(&self) -> usize {
        self.acknowledged.disks.len()
    }
}

struct Run {
    lab: Lab,
    oracle: RefCell<Oracle>,
    random: RefCell<Random>,
    /// An older state of one disk.
    image: Option<(usize, DiskImage)>,
}

/// How often the disks were found to have been used apart.
static DIVERGENT: AtomicU64 = AtomicU64::new(0);
/// How often a boot found the group and settled it.
static SETTLED: AtomicU64 = AtomicU64::new(0);

fn history(seed: u64) {
    let world = World::new(seed);
    let mut random = world.random();
    let count = random.index(4) + 1;
    let lab = Lab::new(world, count);
    let made = lab.world.run(lab.create());
    let oracle = Oracle {
        acknowledged: content(made.group()),
        under_way: Vec::new(),
        holders: lab.all(),
        boots: vec![lab.all()],
        stale: BTreeSet::new(),
    };
    drop(made);
    let mut run = Run { lab, oracle: RefCell::new(oracle), random: RefCell::new(random), image: None };
    for _ in 0..random_rounds(&run) {
        run.play_with_images();
        if !run.boot() {
            return;
        }
    }
}

fn random_rounds(run: &Run) -> u64 {
    run.random.borrow_mut().between(2, 9)
}

impl Run {
    fn chance(&self, times: u64, out_of: u64) -> bool {
        self.random.borrow_mut().chance(times, out_of)
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// Now and then keeps an image of a disk, and puts it back later.
    fn play_with_images(&mut self) {
        if self.chance(1, 8) && self.image.is_none() {
            let number = self.random.borrow_mut().index(self.lab.disks.len());
            self.image = Some((number, self.lab.disks[number].image()));
        } else if self.chance(1, 8)
            && let Some((number, image)) = self.image.take()
        {
            let mut oracle = self.oracle.borrow_mut();
            let others = oracle.holders.iter().any(|holder| *holder != number);
            if others {
                self.lab.disks[number].restore(&image);
                oracle.holders.remove(&number);
                oracle.stale.insert(number);
            }
        }
    }

    /// Disks for the next boot, one of which knows the truth.
    fn present(&self) -> BTreeSet<usize> {
        let oracle = self.oracle.borrow();
        loop {
            let all = self.chance(3, 5);
            let mut present = self.lab.all();
            present.retain(|_| all || self.chance(1, 2));
            if present.iter().any(|number| oracle.holders.contains(number)) {
                return present;
            }
        }
    }

    /// One boot, with or without a crash in it. Whether there can be another.
    fn boot(&self) -> bool {
        let present = self.present();
        self.oracle.borrow_mut().boots.push(present.clone());
        if self.chance(4, 5) {
            let kind = if self.chance(3, 4) { CrashKind::Power } else { CrashKind::Process };
            let reach = if self.chance(1, 2) { 12 } else { 60 };
            self.lab.world.schedule(CrashAt::Event(1 + self.below(reach)), kind);
        }
        let ran = self.lab.world.run_until_crash(self.use_group(&present));
        match ran {
            varve_sim::Ran::Finished(usable) => usable,
            varve_sim::Ran::Crashed => true,
        }
    }

    async fn use_group(&self, present: &BTreeSet<usize>) -> bool {
        let mut survey = scan(self.lab.boot(present), &self.lab.world.arena()).await;
        assert!(survey.problems.is_empty(), "{:?}", survey.problems);
        if let Some(refused) = survey.refused.pop() {
            let divergent = matches!(refused.problem, GroupProblem::Divergent { .. });
            let allowed = divergent && self.oracle.borrow().may_be_divergent(present);
            assert!(allowed, "{refused:?} with {present:?} after {:?}", self.oracle.borrow().boots);
            DIVERGENT.fetch_add(1, Ordering::Relaxed);
            return present.len() < self.lab.disks.len();
        }
        let mut open = survey.groups.pop().expect("there is a group");
        assert!(survey.groups.is_empty() && survey.unassigned.is_empty());
        self.oracle.borrow().observe(&content(open.group()));
        self.check_notes(&open, present);
        open.settle(Absent::Accept, &stamp("activate")).await.expect("no faults");
        self.settled(&open, present);
        for _ in 0..self.below(5) {
            self.change(&mut open).await;
        }
        true
    }

    /// A disk that is not there is named.
    fn check_notes(&self, open: &OpenGroup, present: &BTreeSet<usize>) {
        for pv in open.group().physical_volumes().iter().filter(|pv| !pv.missing) {
            let named =
                open.notes().iter().any(|note| matches!(note, Note::Missing { pv: id, .. } if *id == pv.id));
            assert!(named || present.contains(&number_of(pv.id)), "{pv:?} is missed by nobody");
        }
    }

    fn settled(&self, open: &OpenGroup, present: &BTreeSet<usize>) {
        SETTLED.fetch_add(1, Ordering::Relaxed);
        let mut oracle = self.oracle.borrow_mut();
        oracle.acknowledge(content(open.group()));
        let counted: BTreeSet<usize> =
            present.iter().copied().filter(|number| open.group().counts_on(super::pv_id(*number))).collect();
        assert!(!counted.is_empty());
        for number in &counted {
            oracle.stale.remove(number);
        }
        if counted.len() == self.lab.disks.len() {
            oracle.boots = vec![counted.clone()];
        }
        oracle.holders = counted;
    }

    async fn change(&self, open: &mut OpenGroup) {
        let Some(plan) = self.random_plan(open) else { return };
        let after = content(&plan.after);
        self.oracle.borrow_mut().under_way.push(after.clone());
        open.apply(plan, Vec::new()).await.expect("no faults");
        assert_eq!(content(open.group()), after);
        self.oracle.borrow_mut().acknowledge(after);
    }

    fn random_plan(&self, open: &OpenGroup) -> Option<Plan> {
        let name = format!("v{}", self.below(4));
        let size = SizeArgument::bytes((1 + self.below(6)) * super::EXTENT);
        let change = match self.below(6) {
            0 | 1 => {
                let id = Uuid::from_u128(u128::from(self.random.borrow_mut().bits()) | 1 << 100);
                let layout = match self.below(2) {
                    0 => Layout::Linear,
                    _ => Layout::Striped { stripes: 2, stripe_size: 4096 },
                };
                let (role, policy) = (Role::Volume, StorePolicy::default());
                Change::CreateVolume { name, id, size, role, layout, policy }
            }
            2 => Change::ExtendVolume { name, size: SizeArgument { relative: true, ..size } },
            3 => Change::RenameVolume { from: name, to: format!("v{}", self.below(4)) },
            4 => Change::RemoveVolume { name },
            _ => Change::RenameGroup { to: format!("data{}", self.below(3)) },
        };
        // Long texts take several blocks, so that slots tear and the ring wraps around.
        let length = if self.chance(1, 3) { 20_000 } else { 50 };
        let words = "x".repeat(usize::try_from(self.below(length)).expect("small"));
        plan(open.group(), change, &stamp(&words)).ok()
    }
}

#[test]
fn group_commits_are_atomic() {
    run_seeds(test_name!("group_commits_are_atomic"), 4_000, history);
    let (settled, divergent) = (SETTLED.load(Ordering::Relaxed), DIVERGENT.load(Ordering::Relaxed));
    println!("{settled} boots settled, {divergent} refused because disks were used apart");
}

/// Asserts that the oracle finds a violation with at least so many percent of some seeds when the program makes `flaw`.
fn caught_with(flaw: Flaw, histories: u64, percent_min: u64) {
    make(Some(flaw));
    caught_share(&format!("{flaw:?}"), histories, percent_min, history);
    make(None);
}

#[test]
fn a_skipped_flush_is_caught() {
    caught_with(Flaw::SkipFlush, 300, 3);
}

#[test]
fn a_newest_slot_overwritten_in_place_is_caught() {
    caught_with(Flaw::OverwriteNewest, 200, 5);
}

#[test]
fn a_stale_disk_believed_is_caught() {
    caught_with(Flaw::BelieveStale, 1000, 1);
}

#[test]
fn a_missing_disk_forgotten_is_caught() {
    caught_with(Flaw::ForgetMissing, 1000, 1);
}

#[test]
fn without_a_flaw_nothing_is_caught() {
    assert_eq!(caught(200, history), 0);
}
