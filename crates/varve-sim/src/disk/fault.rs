//! What can be wrong with a simulated disk: how often, how much of it, and what it does to reads.
//!
//! Invariants:
//! - FAULT1. A fault never changes the medium below it: switched off, the disk holds what was written to it.
//! - FAULT2. No more faults happen than the budget has, on no more disks than it allows.
//! - FAULT3. A sector that is written again is whole again.

use super::medium::Content;
use crate::random::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use varve_block::Extent;

/// How often things go wrong on a disk, in millionths of the requests concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// A sector that is read can no longer be read, until it is written again.
    pub latent: u32,
    /// A bit of a sector that is read has changed, and stays so until it is written again.
    pub rot: u32,
    /// A write, zero or discard fails, and happens in part.
    pub write_error: u32,
    /// A write fails for lack of space, and does not happen.
    pub no_space: u32,
    /// A flush fails, and makes nothing durable.
    pub flush_error: u32,
    /// A flush fails, and some of what it was to make durable never will be, though reads see it until the next crash:
    /// so Linux treats its cached pages. As `varve-os` does then, the disk refuses every change and every flush until
    /// it is opened again, at the next boot.
    pub flush_loss: u32,
    /// A write goes to another place on the disk; it is acknowledged.
    pub misdirected: u32,
    /// A write is acknowledged and does not happen at all.
    pub lost: u32,
    /// A request takes [`FaultPlan::STALL`] longer.
    pub stall: u32,
    /// The disk vanishes.
    pub vanish: u32,
    /// Rot, lost and misdirected writes strike only sectors that hold neither zeros nor a pattern: metadata, which has
    /// checksums, and not the content of volumes, which has none.
    pub spares_content: bool,
    /// They strike nothing here either: the end of a log, where what rots looks like what is torn.
    pub spared: Option<Extent>,
    /// Lost and misdirected writes strike only these blocks.
    pub only: Option<Struck>,
}

/// Blocks of 4 KiB of one kind, of which one that is written again with the same version is spared: it takes the place of
/// what is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Struck {
    /// How they begin.
    pub magic: [u8; 4],
    /// Where the 8 bytes of their version lie.
    pub version: usize,
}

impl Struck {
    /// Whether `block` is of this kind.
    pub(crate) fn is_one(&self, block: &[u8]) -> bool {
        block.starts_with(&self.magic)
    }

    /// Whether `block` is of this kind, and what is there, `before`, is not the same version of it.
    pub(crate) fn strikes(&self, block: &[u8], before: &[u8]) -> bool {
        let version = |block: &[u8]| block[self.version..self.version + 8].to_vec();
        self.is_one(block) && !(self.is_one(before) && version(block) == version(before))
    }
}

impl FaultPlan {
    /// How long a stalled request takes.
    pub const STALL: Duration = Duration::from_secs(30);
}

/// How many faults may happen, and on how many disks: shared by the disks among which there is redundancy, it keeps
/// the damage within what the redundancy can heal.
#[derive(Clone, Debug)]
pub struct FaultBudget(Rc<RefCell<Budget>>);

#[derive(Debug)]
struct Budget {
    faults_left: u64,
    disks_max: usize,
    disks: BTreeSet<u64>,
}

impl FaultBudget {
    /// At most `faults_max` faults, on at most `disks_max` disks.
    pub fn new(faults_max: u64, disks_max: usize) -> Self {
        let budget = Budget { faults_left: faults_max, disks_max, disks: BTreeSet::new() };
        Self(Rc::new(RefCell::new(budget)))
    }

    /// No limit at all.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX, usize::MAX)
    }

    /// Faults that may still happen.
    pub fn faults_left(&self) -> u64 {
        self.0.borrow().faults_left
    }

    /// Takes one fault for the disk `disk`, if there is one (FAULT2).
    fn take(&self, disk: u64) -> bool {
        let mut budget = self.0.borrow_mut();
        let allowed = budget.disks.contains(&disk) || budget.disks.len() < budget.disks_max;
        if budget.faults_left == 0 || !allowed {
            return false;
        }
        budget.faults_left -= 1;
        budget.disks.insert(disk);
        true
    }
}

/// What is wrong with a sector.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    /// It cannot be read.
    Unreadable,
    /// The bits of `mask` of byte `byte` are turned over.
    Flipped { byte: usize, mask: u8 },
    /// It reads as this.
    Shows(Content),
}

/// What happens to a request beside what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    Stall,
    /// A medium error; a change happens in part.
    Fail,
    /// A flush fails, and what it covers is lost.
    FailAndLose,
    NoSpace,
    Misdirected,
    Lost,
    Vanish,
    /// One sector that is read gets damaged first.
    Latent,
    Rot,
}

/// The faults of one disk.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) plan: FaultPlan,
    pub(crate) budget: FaultBudget,
    pub(crate) enabled: bool,
    damaged: BTreeMap<u64, Damage>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            plan: FaultPlan::default(),
            budget: FaultBudget::unlimited(),
            enabled: true,
            damaged: BTreeMap::new(),
        }
    }
}

impl Faults {
    /// What is to happen to a request with this verb to disk `disk`.
    pub(crate) fn draw(&self, disk: u64, verb: &str, random: &mut Random) -> Fault {
        if !self.enabled || self.plan == FaultPlan::default() {
            return Fault::None;
        }
        let plan = &self.plan;
        let common = [(plan.stall, Fault::Stall), (plan.vanish, Fault::Vanish)];
        let special: &[(u32, Fault)] = match verb {
            "read" => &[(plan.latent, Fault::Latent), (plan.rot, Fault::Rot)],
            "write" => &[
                (plan.write_error, Fault::Fail),
                (plan.no_space, Fault::NoSpace),
                (plan.misdirected, Fault::Misdirected),
                (plan.lost, Fault::Lost),
            ],
            "flush" => &[(plan.flush_error, Fault::Fail), (plan.flush_loss, Fault::FailAndLose)],
            _ => &[(plan.write_error, Fault::Fail)],
        };
        for (millionths, fault) in special.iter().chain(&common) {
            if *millionths > 0 && random.chance(u64::from(*millionths), 1_000_000) && self.budget.take(disk) {
                return *fault;
            }
        }
        Fault::None
    }

    pub(crate) fn damage(&mut self, sector: u64, damage: Damage) {
        self.damaged.insert(sector, damage);
    }

    /// A sector that is written again can be read (FAULT3).
    pub(crate) fn written(&mut self, sector: u64) {
        if !self.damaged.is_empty() {
            self.damaged.remove(&sector);
        }
    }

    pub(crate) fn forget_damage(&mut self) {
        self.damaged.clear();
    }

    /// What is wrong with these sectors now.
    pub(crate) fn within(&self, sectors: Range<u64>) -> impl Iterator<Item = (u64, &Damage)> {
        let damaged = self.damaged.range(sectors).map(|(sector, damage)| (*sector, damage));
        damaged.filter(|_| self.enabled)
    }
}
