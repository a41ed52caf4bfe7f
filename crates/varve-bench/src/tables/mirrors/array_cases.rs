//! The rows of the table of arrays.

use crate::prelude::*;
use varve_sim::{Direction, Load, Order};
use varve_target::array::{ArrayLayout, METADATA_SIZE_MIN, ReadPolicy};

/// Bytes of each array.
pub(in crate::tables) const SIZE: u64 = 96 * MIB;
/// The arrays.
pub(in crate::tables) const MIRROR: ArrayLayout = ArrayLayout::Mirror { copies: 2 };
pub(in crate::tables) const ORDER_1: ArrayLayout = ArrayLayout::Ddraid { order: 1, block_size: 4 * KIB };
pub(in crate::tables) const ORDER_2: ArrayLayout = ArrayLayout::Ddraid { order: 2, block_size: 4 * KIB };
/// Small requests at random places.
const RANDOM: Order = Order::Random { unit: 4 * KIB };

/// What state an array is in when it is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::tables) enum State {
    /// Its regions were written, and are dirty.
    Warm,
    /// No region was ever written.
    Cold,
    /// As warm, and its first member is away.
    Degraded,
    /// As warm, and its last member, that of the parity, is away.
    WithoutParity,
}

/// What the log does while an array is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::tables) enum LogUse {
    /// What was marked before stays marked, and it has nothing to do.
    Warm,
    /// Regions are clean again after this time without a write, and are marked anew.
    Released(Duration),
    /// Nothing is marked: after a crash it would be unknown where members differ. Only to see what the log costs.
    Off,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub(in crate::tables) struct Case {
    pub(in crate::tables) layout: ArrayLayout,
    pub(in crate::tables) policy: ReadPolicy,
    pub(in crate::tables) state: State,
    pub(in crate::tables) checksums: bool,
    pub(in crate::tables) log: LogUse,
    /// Whether the log is on a disk of its own.
    pub(in crate::tables) log_disk: bool,
    /// Whether it is measured on real members, too.
    pub(in crate::tables) is_real: bool,
    /// Whether members are slowed down. If they are not, the processor is measured, which takes no virtual time.
    pub(in crate::tables) is_slow: bool,
    pub(in crate::tables) load: Load,
    pub(in crate::tables) goal: Option<f64>,
}

impl Case {
    pub(in crate::tables) const fn new(
        layout: ArrayLayout,
        policy: ReadPolicy,
        load: Load,
        goal: f64,
    ) -> Self {
        Self {
            layout,
            policy,
            state: State::Warm,
            checksums: false,
            log: LogUse::Warm,
            log_disk: false,
            is_real: true,
            is_slow: true,
            load,
            goal: Some(goal),
        }
    }

    /// Bytes in front of a member's data; a page of checksums is 4 KiB for each MiB.
    pub(in crate::tables) fn metadata_size(&self) -> u64 {
        METADATA_SIZE_MIN + if self.checksums { SIZE / MIB * 4 * KIB } else { 0 }
    }

    /// The array and the load.
    pub(in crate::tables) fn name(&self) -> String {
        format!("{}: {}", self.array_name(), self.load_name())
    }

    fn array_name(&self) -> String {
        let layout = layout_name(self.layout);
        let state = match self.state {
            State::Warm => "",
            State::Cold => ", regions cold",
            State::Degraded => ", a member away",
            State::WithoutParity => ", parity away",
        };
        let checksums = if self.checksums { ", checksums" } else { "" };
        let log = match self.log {
            LogUse::Warm => String::new(),
            LogUse::Released(after) => format!(", log released after {} s", after.as_secs()),
            LogUse::Off => ", no log".to_owned(),
        };
        let policy = format!("{:?}", self.policy).to_lowercase();
        let speed = if self.is_slow { "" } else { ", members as fast as memory" };
        let log_disk = if self.log_disk { ", log on its own disk" } else { "" };
        format!("{layout}, {policy}{checksums}{state}{log}{log_disk}{speed}")
    }

    pub(in crate::tables) fn load_name(&self) -> String {
        let Load { direction, order, request_bytes, depth, .. } = self.load;
        let verb = if direction == Direction::Read { "reads" } else { "writes" };
        let order = if order == Order::Sequential { "sequential" } else { "random" };
        format!("{order} {verb} of {} KiB QD{depth}", request_bytes / KIB)
    }
}

pub(in crate::tables) fn load(direction: Direction, order: Order, kib: u64) -> Load {
    let request_bytes = kib * KIB;
    Load { direction, order, request_bytes, depth: 8, count: 24 * MIB / request_bytes }
}

/// All rows.
pub(in crate::tables) fn cases() -> Vec<Case> {
    let sequential = |direction, kib| load(direction, Order::Sequential, kib);
    let random = |direction| load(direction, RANDOM, 4);
    let (read, write) = (Direction::Read, Direction::Write);
    let mut cases = Vec::new();
    for kib in [4, 8, 16, 32, 64, 128, 256, 512, 1024] {
        let goal = if kib < 32 { 1.0 } else { 1.9 };
        cases.push(Case::new(ORDER_1, ReadPolicy::Verify, sequential(write, kib), goal));
    }
    for kib in [4, 64, 1024] {
        let case = Case::new(ORDER_1, ReadPolicy::Verify, sequential(write, kib), 0.0);
        cases.push(Case { state: State::Cold, goal: None, ..case });
    }
    cases.extend(logs_and_parity());
    cases.extend(logs_on_disks());
    for (order, kib) in [(Order::Sequential, 64), (Order::Sequential, 1024), (RANDOM, 4)] {
        let case = Case::new(ORDER_1, ReadPolicy::Verify, load(write, order, kib), 0.0);
        cases.push(Case { checksums: true, goal: None, ..case });
    }
    cases.extend([
        Case::new(ORDER_1, ReadPolicy::Verify, random(write), 0.95),
        Case::new(ORDER_1, ReadPolicy::Data, sequential(read, 1024), 1.95),
        Case::new(ORDER_1, ReadPolicy::Verify, sequential(read, 1024), 1.85),
        Case::new(ORDER_1, ReadPolicy::Rotate, sequential(read, 1024), 2.8),
        Case::new(ORDER_2, ReadPolicy::Rotate, sequential(read, 1024), 4.6),
        Case::new(ORDER_1, ReadPolicy::Rotate, random(read), 1.45),
        Case { state: State::Degraded, ..Case::new(ORDER_1, ReadPolicy::Data, sequential(read, 1024), 1.75) },
        Case::new(MIRROR, ReadPolicy::Rotate, sequential(read, 1024), 1.9),
        Case::new(MIRROR, ReadPolicy::Rotate, random(read), 1.9),
        Case::new(MIRROR, ReadPolicy::Rotate, sequential(write, 4), 0.97),
        Case::new(MIRROR, ReadPolicy::Rotate, sequential(write, 1024), 0.97),
    ]);
    cases.extend(fast_members());
    cases
}

/// The seed's four combinations of log and parity, in virtual time. With the log the regions become clean again while the load runs,
/// at once or after a second, and are marked anew; without it nothing is marked. Without parity the member that has it is away.
fn logs_and_parity() -> Vec<Case> {
    let logs = [LogUse::Released(Duration::from_secs(1)), LogUse::Released(Duration::ZERO), LogUse::Off];
    let mut cases = Vec::new();
    for (state, log) in
        [State::Warm, State::WithoutParity].into_iter().flat_map(|state| logs.map(|log| (state, log)))
    {
        for kib in [4, 8, 32, 64, 256, 1024] {
            let load = load(Direction::Write, Order::Sequential, kib);
            let case = Case::new(ORDER_1, ReadPolicy::Verify, load, if kib < 32 { 1.0 } else { 1.9 });
            let goal = case.goal.filter(|_| state == State::Warm);
            cases.push(Case { state, log, is_real: false, goal, ..case });
        }
    }
    cases
}

/// Members as fast as memory: what the processor does is all that takes time.
fn fast_members() -> Vec<Case> {
    let (read, write) = (Direction::Read, Direction::Write);
    let loads = [
        load(write, Order::Sequential, 4),
        load(write, Order::Sequential, 64),
        load(write, Order::Sequential, 1024),
        load(read, RANDOM, 4),
        load(read, Order::Sequential, 1024),
    ];
    let arrays = [(MIRROR, ReadPolicy::Rotate), (ORDER_1, ReadPolicy::Verify), (ORDER_1, ReadPolicy::Rotate)];
    let case = |(layout, policy), load| Case::new(layout, policy, load, 0.0);
    let cases = arrays.into_iter().flat_map(|array| loads.map(|load| case(array, load)));
    cases.map(|case| Case { is_slow: false, goal: None, ..case }).collect()
}

/// The log on a disk of its own, in virtual time: where regions are marked all the while, and where a data member is away, so that
/// what is written is in the log first; each beside the log on members.
fn logs_on_disks() -> Vec<Case> {
    let mut cases = Vec::new();
    for (state, log) in [
        (State::Cold, LogUse::Warm),
        (State::Warm, LogUse::Released(Duration::ZERO)),
        (State::Warm, LogUse::Released(Duration::from_secs(1))),
        (State::Degraded, LogUse::Warm),
    ] {
        for kib in [4, 64, 1024] {
            let case =
                Case::new(ORDER_1, ReadPolicy::Verify, load(Direction::Write, Order::Sequential, kib), 0.0);
            let case = Case { state, log, is_real: false, goal: None, ..case };
            cases.extend((state == State::Degraded).then_some(case));
            cases.push(Case { log_disk: true, ..case });
        }
    }
    cases
}

pub(in crate::tables) fn layout_name(layout: ArrayLayout) -> String {
    match layout {
        ArrayLayout::Mirror { copies } => format!("mirror of {copies}"),
        ArrayLayout::Ddraid { order, .. } => format!("ddraid {}+1", 1 << order),
    }
}
