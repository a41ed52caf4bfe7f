//! What a crash leaves behind is chosen here: at random, or one possibility after the other.

use crate::random::{Random, mix};
use std::cell::Cell;

/// What happened at crashes, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CrashTally {
    /// Crash states visited: one for each crash.
    pub states: u64,
    /// Of these, the ones in which something written was lost.
    pub states_lossy: u64,
    /// Sectors that do not hold the newest version written to them, over all crashes.
    pub sectors_lost: u64,
    /// Requests of which some sectors were kept and some lost, over all crashes.
    pub requests_torn: u64,
    /// Requests of clients that touched what another one under way touched too.
    pub overlaps: u64,
}

impl CrashTally {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: CrashTally) {
        self.states += other.states;
        self.states_lossy += other.states_lossy;
        self.sectors_lost += other.sectors_lost;
        self.requests_torn += other.requests_torn;
        self.overlaps += other.overlaps;
    }

    /// Adds one crash in which `lost` was lost.
    pub(crate) fn add_state(&mut self, lost: CrashTally) {
        self.merge(lost);
        self.states += 1;
        self.states_lossy += u64::from(lost.sectors_lost > 0);
    }
}

thread_local! {
    /// The crashes of all worlds of this thread, for the harness that prints them.
    static TALLY: Cell<CrashTally> = const { Cell::new(CrashTally {
        states: 0, states_lossy: 0, sectors_lost: 0, requests_torn: 0, overlaps: 0,
    }) };
}

pub(crate) fn count_on_this_thread(lost: CrashTally) {
    TALLY.with(|cell| {
        let mut tally = cell.get();
        tally.add_state(lost);
        cell.set(tally);
    });
}

pub(crate) fn count_overlap_on_this_thread() {
    TALLY.with(|cell| cell.set(CrashTally { overlaps: cell.get().overlaps + 1, ..cell.get() }));
}

/// Takes the crashes counted on this thread since it was last asked.
pub fn take_tally_of_this_thread() -> CrashTally {
    TALLY.with(Cell::take)
}

/// One version that a sector may keep: its place in the order of writes, and the request that wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) order: u64,
    pub(crate) request: u64,
}

/// Chooses which version each sector keeps at a crash. Every choice keeps the rule "any version since the last
/// flush"; the ways differ in which corners of that space they visit often.
pub(crate) enum Chooser {
    Random { random: Random, way: Way, salt: u64 },
    Explore(Path),
}

/// How a random crash chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Every sector by itself: torn requests.
    Sectors,
    /// Every request is kept or lost as a whole: reordered requests.
    Requests,
    /// What was written up to some point, and nothing after it.
    Prefix,
    /// All but one request.
    AllButOne,
    /// Nothing since the last flush.
    Nothing,
    /// Everything.
    Everything,
}

impl Chooser {
    pub(crate) fn random(random: Random) -> Self {
        Chooser::Random { random, way: Way::Sectors, salt: 0 }
    }

    /// Called once at each crash.
    pub(crate) fn begin(&mut self) {
        if let Chooser::Random { random, way, salt } = self {
            *salt = random.bits();
            *way = match random.below(100) {
                0..40 => Way::Sectors,
                40..62 => Way::Requests,
                62..75 => Way::Prefix,
                75..88 => Way::AllButOne,
                88..95 => Way::Nothing,
                _ => Way::Everything,
            };
        }
    }

    /// Which of `candidates`, oldest first, a sector keeps; `None` for what it held at the last flush.
    /// `orders` bounds the orders of all versions on the disk, `requests` are the requests with versions there.
    pub(crate) fn keep(
        &mut self,
        candidates: &[Candidate],
        orders: (u64, u64),
        requests: &[u64],
    ) -> Option<usize> {
        match self {
            Chooser::Explore(path) => path.choose(candidates.len() + 1).checked_sub(1),
            Chooser::Random { random, way, salt } => match way {
                Way::Sectors => random.index(candidates.len() + 1).checked_sub(1),
                Way::Requests => last(candidates, |version| mix(version.request ^ *salt) & 1 == 0),
                Way::Prefix => {
                    let cut = orders.0 + mix(*salt) % (orders.1 - orders.0 + 1);
                    last(candidates, |version| version.order <= cut)
                }
                Way::AllButOne => {
                    let victim = pick(requests, mix(*salt));
                    last(candidates, |version| Some(version.request) != victim)
                }
                Way::Nothing => None,
                Way::Everything => candidates.len().checked_sub(1),
            },
        }
    }
}

fn last(candidates: &[Candidate], keeps: impl Fn(&Candidate) -> bool) -> Option<usize> {
    candidates.iter().rposition(keeps)
}

fn pick(members: &[u64], bits: u64) -> Option<u64> {
    let count = members.len() as u64;
    let index = bits.checked_rem(count)?;
    members.get(usize::try_from(index).ok()?).copied()
}

/// A walk through a tree of choices, depth first: replays a path, then takes the first branch at each new fork.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// The branch taken at each fork, and how many there are.
    forks: Vec<(usize, usize)>,
    depth: usize,
}

impl Path {
    fn choose(&mut self, branches: usize) -> usize {
        if self.depth == self.forks.len() {
            self.forks.push((0, branches));
        }
        let (branch, known) = self.forks[self.depth];
        assert_eq!(known, branches, "the same path leads to the same fork");
        self.depth += 1;
        branch
    }

    /// Turns to the next path. False when all were walked.
    pub(crate) fn turn(&mut self) -> bool {
        self.depth = 0;
        while let Some((branch, branches)) = self.forks.pop() {
            if branch + 1 < branches {
                self.forks.push((branch + 1, branches));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_visits_every_leaf_once() {
        let mut path = Path::default();
        let mut leaves = Vec::new();
        loop {
            let first = path.choose(3);
            let second = if first == 1 { path.choose(2) } else { 9 };
            leaves.push((first, second));
            if !path.turn() {
                break;
            }
        }
        assert_eq!(leaves, [(0, 9), (1, 0), (1, 1), (2, 9)]);
    }
}
