//! The specification of arrays: every state that a crash can leave one region in, and what may be read then.
//!
//! A region has three blocks and gets up to three writes, of the same block or of several. The protocol below (mark, write,
//! acknowledge, flush, clear, eject) is walked through in every order. After each step the power may fail: then every
//! fragment on every member holds, independently, any version since the last flush; and one member may be lost with it.
//! Each of these states is opened by the rules of recovery, read, and resynced. Where the region cannot be read because a data member is
//! missing, a block is written twice, the power fails again, and the array is opened without the member and with it.
//!
//! A fragment's content is a number of 64 bits that says what it is, so that a wrong reconstruction is never taken for
//! content. Writes of the same block follow each other, since changes hold their blocks alone.

use std::collections::HashSet;
use std::io::Write;
use varve_target::array::ArrayLayout;

const BLOCKS: usize = 3;
const MEMBERS_MAX: usize = 9;
/// Of a block: what was there before, three writes, and two while it cannot be read.
const VERSIONS: usize = 6;

/// Of each block, what each member holds.
type Held<T> = [[T; MEMBERS_MAX]; BLOCKS];

/// Ways in which the protocol or the recovery may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// A member that is missing is computed from the others in a dirty region.
    ReconstructDirty,
    /// A region is called clean before its members have flushed.
    ClearBeforeFlush,
    /// A member is written before the mark is durable.
    WriteBeforeMark,
    /// A member that the others call away is read.
    BelieveStale,
    /// Writes that a failed member missed are acknowledged before the others call it away.
    AcknowledgeBeforeEjection,
    /// While a data member is away, blocks are written without their data in the log.
    WriteUnloggedWhileAway,
    /// A resync of ddraid copies the first member over all others, as one of a mirror does.
    ResyncByCopy,
    /// A region that cannot be read because a data member is missing is written: what that member holds of it, which
    /// decides when it returns, is then stale in some blocks.
    WriteWhileGated,
    /// It is written without its content in the log.
    WriteGatedUnlogged,
    /// What was written there is forgotten when the log begins anew.
    ForgetKnown,
    /// What is about to be written there is known before the log has it.
    KnowBeforeLog,
}

/// A block of a region that cannot be read, after it was written there and the power has failed again.
struct GatedWrite {
    /// Whether the log or the superblock says that it was written; and whether it was acknowledged.
    is_known: bool,
    is_acknowledged: bool,
    /// The version whose data the log holds, if any.
    logged: Option<u8>,
    /// What the first members that are here have, and what the others do.
    held: (usize, u8, u8),
    allowed: (u8, u8),
}

/// How far the writes of a block have come, in versions: 0 is what was there before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Block {
    /// Handed to the members.
    issued: u8,
    acknowledged: u8,
    /// Covered by a flush that was acknowledged.
    promised: u8,
    /// The oldest version that a member in use may hold after a crash.
    durable: u8,
    /// The version whose data the log holds, if any.
    logged: u8,
    /// The versions that a failed member may hold.
    lapsed: (u8, u8),
}

/// A region of an array that runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    blocks: [Block; BLOCKS],
    /// The region's mark is durable.
    dirty: bool,
    failed: Option<usize>,
    /// The others' superblocks call the failed member away.
    ejected: bool,
}

/// What a crash leaves: of each fragment, the oldest and the newest version that it may hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Remains {
    versions: Held<(u8, u8)>,
    blocks: [(u8, u8, u8); BLOCKS],
    dirty: bool,
    away: Option<usize>,
}

/// What an array makes of what a crash has left.
#[derive(Debug, PartialEq, Eq)]
enum Opened {
    /// It may serve, and all that can be read is allowed.
    Sound,
    /// Reads of the region fail.
    Gated,
    /// The contract is broken.
    Broken(&'static str),
}

#[derive(Default, Debug)]
struct Counts {
    remains: u64,
    states: u64,
    gated: u64,
    refused: u64,
    broken: u64,
}

struct Model {
    layout: ArrayLayout,
    members: usize,
    /// Of each block, how many writes it gets.
    writes: [u8; BLOCKS],
    bug: Option<Bug>,
    /// Of each version, what each member holds of each block.
    contents: [Held<u64>; VERSIONS],
}

/// A number that no exclusive or of a few others equals.
fn number(block: usize, fragment: usize, version: usize) -> u64 {
    let mut value = ((block * 100 + fragment) * 100 + version + 1) as u64;
    for _ in 0..3 {
        value =
            (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9_7f4a_7c15);
        value ^= value >> 27;
    }
    value
}

impl Model {
    fn new(layout: ArrayLayout, writes: [u8; BLOCKS], bug: Option<Bug>) -> Model {
        let members = layout.members();
        let mut contents = [[[0; MEMBERS_MAX]; BLOCKS]; VERSIONS];
        for (version, blocks) in contents.iter_mut().enumerate() {
            for (block, held) in blocks.iter_mut().enumerate() {
                match layout {
                    ArrayLayout::Mirror { .. } => held[..members].fill(number(block, 0, version)),
                    ArrayLayout::Ddraid { .. } => {
                        (0..members - 1).for_each(|member| held[member] = number(block, member, version));
                        held[members - 1] = parity(&held[..members - 1]);
                    }
                }
            }
        }
        Model { layout, members, writes, bug, contents }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn is_mirror(&self) -> bool {
        matches!(self.layout, ArrayLayout::Mirror { .. })
    }

    /// Whether `member` holds data that no other member has.
    fn holds_data_alone(&self, member: usize) -> bool {
        !self.is_mirror() && member < self.members - 1
    }

    /// What may happen next.
    fn steps(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        let mut step = |change: &dyn Fn(&mut State)| {
            let mut after = *state;
            change(&mut after);
            next.push(after);
        };
        let blocks = &state.blocks;
        if state.failed.is_none() {
            for member in 0..self.members {
                step(&|after| {
                    after.failed = Some(member);
                    after.blocks.iter_mut().for_each(|block| block.lapsed = (block.durable, block.issued));
                });
            }
        }
        let logs_data = state.ejected && state.failed.is_some_and(|member| self.holds_data_alone(member));
        if state.failed.is_some() && !state.ejected {
            // What was under way ends on the others, which flush before their superblocks call the member away: they agree.
            step(&|after| {
                after.blocks.iter_mut().for_each(|block| block.durable = block.issued);
                after.ejected = true;
                after.dirty &= state.failed.is_none_or(|member| !self.holds_data_alone(member));
            });
            if !self.has(Bug::AcknowledgeBeforeEjection) {
                return next;
            }
        }
        if !state.dirty && !logs_data {
            step(&|after| after.dirty = true);
        }
        let flushed = |block: &Block| block.durable == block.issued || self.has(Bug::ClearBeforeFlush);
        if state.dirty && blocks.iter().all(|block| block.acknowledged == block.issued && flushed(block)) {
            step(&|after| after.dirty = false);
        }
        for (index, block) in blocks.iter().enumerate() {
            let may_write = state.dirty || logs_data || self.has(Bug::WriteBeforeMark);
            if block.acknowledged < block.issued {
                step(&|after| after.blocks[index].acknowledged = block.issued);
            } else if block.issued < self.writes[index] && may_write {
                step(&|after| {
                    after.blocks[index].issued += 1;
                    if logs_data && !self.has(Bug::WriteUnloggedWhileAway) {
                        after.blocks[index].logged = block.issued + 1;
                    }
                });
            }
            if block.logged > 0 && block.durable == block.issued {
                step(&|after| after.blocks[index].logged = 0);
            }
        }
        step(&|after| {
            for block in &mut after.blocks {
                block.promised = block.acknowledged;
                block.durable = block.durable.max(block.acknowledged);
            }
        });
        next
    }

    /// What is left if the power fails now.
    fn crash(&self, state: &State) -> Remains {
        let mut versions = [[(0, 0); MEMBERS_MAX]; BLOCKS];
        for (held, block) in versions.iter_mut().zip(&state.blocks) {
            for (member, range) in held.iter_mut().enumerate().take(self.members) {
                *range =
                    if state.failed == Some(member) { block.lapsed } else { (block.durable, block.issued) };
            }
        }
        let blocks = state.blocks.map(|block| (block.promised, block.issued, block.logged));
        Remains { versions, blocks, dirty: state.dirty, away: state.failed.filter(|_| state.ejected) }
    }

    /// All that crashes may leave.
    fn all_remains(&self) -> HashSet<Remains> {
        let (mut known, mut queue) = (HashSet::from([State::default()]), vec![State::default()]);
        let mut remains = HashSet::new();
        while let Some(state) = queue.pop() {
            remains.insert(self.crash(&state));
            queue.extend(self.steps(&state).into_iter().filter(|after| known.insert(*after)));
        }
        remains
    }

    /// Opens every state that `remains` stands for, with no member lost and with each of them.
    fn check(&self, remains: &Remains, counts: &mut Counts) {
        counts.remains += 1;
        for lost in std::iter::once(None).chain((0..self.members).map(Some)) {
            let believed = self.believed(remains, lost);
            if let Some(why) = self.refuses(remains, believed) {
                counts.refused += 1;
                assert!(
                    lost.is_some() && (remains.away.is_some() || self.members == 2),
                    "{why}: {remains:?}"
                );
                continue;
            }
            self.each_state(remains, |held| {
                counts.states += 1;
                match self.open(remains, believed, held) {
                    Opened::Sound => {}
                    Opened::Gated => counts.gated += 1,
                    Opened::Broken(what) => {
                        assert!(self.bug.is_some(), "{what}: {:?}, lost {lost:?}: {remains:?}", self.layout);
                        counts.broken += 1;
                    }
                }
            });
        }
    }

    /// Calls `visit` with every combination of versions.
    fn each_state(&self, remains: &Remains, mut visit: impl FnMut(&Held<u64>)) {
        let places: Vec<(usize, usize)> =
            (0..BLOCKS).flat_map(|block| (0..self.members).map(move |member| (block, member))).collect();
        let range = |(block, member): (usize, usize)| remains.versions[block][member];
        let content =
            |(block, member): (usize, usize), version: u8| self.contents[usize::from(version)][block][member];
        let (mut versions, mut held) = ([[0; MEMBERS_MAX]; BLOCKS], [[0; MEMBERS_MAX]; BLOCKS]);
        for place in &places {
            versions[place.0][place.1] = range(*place).0;
            held[place.0][place.1] = content(*place, range(*place).0);
        }
        loop {
            visit(&held);
            let Some(turned) = places.iter().position(|place| versions[place.0][place.1] < range(*place).1)
            else {
                return;
            };
            for (index, place) in places[..=turned].iter().enumerate() {
                let version = &mut versions[place.0][place.1];
                *version = if index == turned { *version + 1 } else { range(*place).0 };
                held[place.0][place.1] = content(*place, *version);
            }
        }
    }

    /// The members that are there and that no other one calls away.
    fn believed(&self, remains: &Remains, lost: Option<usize>) -> [bool; MEMBERS_MAX] {
        let is_there = |member: usize| member < self.members && Some(member) != lost;
        std::array::from_fn(|member| {
            let called_away = remains.away == Some(member)
                && (0..self.members).any(|other| other != member && is_there(other));
            is_there(member) && (!called_away || self.has(Bug::BelieveStale))
        })
    }

    fn refuses(&self, remains: &Remains, believed: [bool; MEMBERS_MAX]) -> Option<&'static str> {
        let missing: Vec<usize> = (0..self.members).filter(|member| !believed[*member]).collect();
        if missing.len() > self.layout.tolerates() {
            return Some("too many are missing");
        }
        let is_known = |member: &usize| remains.away == Some(*member);
        let alone = self.is_mirror() && self.members == 2 && missing.len() == 1;
        (alone && !missing.iter().all(is_known)).then_some("the other one may be newer")
    }

    /// Recovers from a crash.
    fn open(&self, remains: &Remains, believed: [bool; MEMBERS_MAX], held: &Held<u64>) -> Opened {
        let (mut held, blocks) = (*held, remains.blocks);
        let missing = (0..self.members).find(|member| !believed[*member] && self.holds_data_alone(*member));
        if missing.is_none() || !remains.dirty || self.has(Bug::ReconstructDirty) {
            for (index, block) in
                blocks.iter().enumerate().filter(|(_, block)| missing.is_some() && block.2 > 0)
            {
                held[index] = self.contents[usize::from(block.2)][index];
            }
            return self.serve(&held, &blocks, remains.dirty, believed, missing);
        }
        if missing == remains.away {
            return Opened::Broken("a region cannot be read although its members agreed");
        }
        // Until the missing member returns: then the data win, its own too.
        let all = std::array::from_fn(|member| member < self.members);
        match self.serve(&held, &blocks, true, all, None) {
            Opened::Sound => self.write_gated(&held, &blocks, missing.expect("a region is gated without it")),
            other => other,
        }
    }

    /// Writes the first block of a region that cannot be read because member `missing` is not there, twice; the power fails after
    /// each step.
    fn write_gated(&self, held: &Held<u64>, blocks: &[(u8, u8, u8); BLOCKS], missing: usize) -> Opened {
        if self.members > 5 {
            return Opened::Gated; // Their states are too many, and nothing depends on how many members there are.
        }
        let (first, second) = (blocks[0].1 + 1, blocks[0].1 + 2);
        let here = self.members - 1;
        let is_logged = !self.has(Bug::WriteGatedUnlogged);
        let mut crashes = Vec::new();
        for count in 0..=here {
            let is_acknowledged = count == here;
            crashes.push(GatedWrite {
                is_known: is_logged,
                is_acknowledged,
                logged: is_logged.then_some(first),
                held: (count, first, 0),
                allowed: (first, first),
            });
            crashes.push(GatedWrite {
                is_known: !self.has(Bug::ForgetKnown) || is_logged,
                is_acknowledged: true,
                logged: is_logged.then_some(second),
                held: (count, second, first),
                allowed: (first, second),
            });
        }
        crashes.push(GatedWrite {
            is_known: !self.has(Bug::ForgetKnown), // The log has begun anew.
            is_acknowledged: true,
            logged: None,
            held: (here, first, first),
            allowed: (first, first),
        });
        if self.has(Bug::KnowBeforeLog) {
            let (logged, allowed) = (None, (first, first));
            crashes.push(GatedWrite {
                is_known: true,
                is_acknowledged: false,
                logged,
                held: (0, first, 0),
                allowed,
            });
        }
        let opened = crashes.iter().map(|crash| self.open_written(held, blocks, missing, crash));
        opened.into_iter().find(|opened| *opened != Opened::Gated).unwrap_or(Opened::Gated)
    }

    /// Opens what a crash has left of the first block, without member `missing` and with it.
    fn open_written(
        &self,
        held: &Held<u64>,
        blocks: &[(u8, u8, u8); BLOCKS],
        missing: usize,
        crash: &GatedWrite,
    ) -> Opened {
        let (mut held, mut blocks) = (*held, *blocks);
        let places = (0..self.members).filter(|member| *member != missing);
        for (index, member) in places.enumerate() {
            let (count, new, old) = crash.held;
            let version = crash.logged.unwrap_or(if index < count { new } else { old });
            if version > 0 {
                held[0][member] = self.contents[usize::from(version)][0][member];
            } // Else it has what was there.
        }
        if !crash.is_known {
            return match crash.is_acknowledged {
                true => Opened::Broken("what was written is refused"),
                false => Opened::Gated,
            };
        }
        (blocks[0].0, blocks[0].1) = crash.allowed;
        let data = self.read(&held[0], 0, Some(missing));
        let is_version = |version: u8| {
            self.contents[usize::from(version)][0][..self.members - 1] == data[..self.members - 1]
        };
        if !(crash.allowed.0..=crash.allowed.1).any(is_version) {
            return Opened::Broken("a block that was written is read wrongly");
        }
        if !self.has(Bug::WriteWhileGated) {
            held[0][missing] = data[missing];
        }
        let all = std::array::from_fn(|member| member < self.members);
        match self.serve(&held, &blocks, true, all, None) {
            Opened::Sound => Opened::Gated,
            other => other,
        }
    }

    /// Reads everything, makes the members equal, and reads it again.
    fn serve(
        &self,
        held: &Held<u64>,
        blocks: &[(u8, u8, u8); BLOCKS],
        dirty: bool,
        believed: [bool; MEMBERS_MAX],
        missing: Option<usize>,
    ) -> Opened {
        let mut held = *held;
        let elected = (0..self.members).find(|member| believed[*member]).expect("not refused");
        let read = |held: &[u64; MEMBERS_MAX]| self.read(held, elected, missing);
        for (index, block) in blocks.iter().enumerate() {
            let allowed = usize::from(block.0)..=usize::from(block.1);
            let data = read(&held[index]);
            let fragments = if self.is_mirror() { 1 } else { self.members - 1 };
            for (fragment, data) in data.iter().enumerate().take(fragments) {
                if !allowed.clone().any(|version| self.contents[version][index][fragment] == *data) {
                    return Opened::Broken("a read returns what it must not");
                }
            }
        }
        if dirty {
            let before = held.map(|block| read(&block));
            held.iter_mut().for_each(|block| self.resync(block, elected, believed));
            if held.map(|block| read(&block)) != before {
                return Opened::Broken("a resync changes what is read");
            }
        }
        if held.iter().all(|block| self.agrees(block, elected, believed)) {
            Opened::Sound
        } else {
            Opened::Broken("members differ in a clean region")
        }
    }

    /// The data of a block.
    fn read(&self, held: &[u64; MEMBERS_MAX], elected: usize, missing: Option<usize>) -> [u64; MEMBERS_MAX] {
        let mut data = *held;
        if self.is_mirror() {
            return [held[elected]; MEMBERS_MAX];
        }
        if let Some(missing) = missing {
            data[missing] = 0;
            data[missing] = parity(&data[..self.members]);
        }
        data[self.members - 1] = 0;
        data
    }

    /// Makes the members equal that are believed: the data win.
    fn resync(&self, held: &mut [u64; MEMBERS_MAX], elected: usize, believed: [bool; MEMBERS_MAX]) {
        let copied = held[elected];
        for member in (0..self.members).filter(|member| believed[*member]) {
            if self.is_mirror() || self.has(Bug::ResyncByCopy) {
                held[member] = copied;
            } else if member == self.members - 1 && believed[..member].iter().all(|member| *member) {
                held[member] = parity(&held[..member]);
            }
        }
    }

    /// Whether the members that are believed hold one and the same block.
    fn agrees(&self, held: &[u64; MEMBERS_MAX], elected: usize, believed: [bool; MEMBERS_MAX]) -> bool {
        let mut all = (0..self.members).filter(|member| believed[*member]);
        if self.is_mirror() {
            all.all(|member| held[member] == held[elected])
        } else {
            all.count() < self.members || parity(&held[..self.members]) == 0
        }
    }

    fn count(&self) -> Counts {
        let mut counts = Counts::default();
        self.all_remains().iter().for_each(|remains| self.check(remains, &mut counts));
        counts
    }
}

fn parity(fragments: &[u64]) -> u64 {
    fragments.iter().fold(0, |sum, fragment| sum ^ fragment)
}

fn ddraid(order: u32) -> ArrayLayout {
    ArrayLayout::Ddraid { order, block_size: 4096 }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn no_crash_breaks_the_contract() {
    let few = [ArrayLayout::Mirror { copies: 2 }, ArrayLayout::Mirror { copies: 3 }, ddraid(1), ddraid(2)];
    let many =
        few.into_iter().flat_map(|layout| [[3, 0, 0], [2, 1, 0], [1, 1, 1]].map(|writes| (layout, writes)));
    // Blocks share nothing but the mark: with nine members two of them are enough.
    for (layout, writes) in many.chain([(ddraid(3), [3, 0, 0]), (ddraid(3), [1, 1, 0])]) {
        let counts = Model::new(layout, writes, None).count();
        say(&format!(
            "model: {layout:?}, {writes:?} writes: {} states of {} kinds, {} with a region that cannot be read, {} refused",
            counts.states, counts.remains, counts.gated, counts.refused
        ));
    }
}

/// One write is under way on one block; every subset of the members has got it, and each member in turn is lost.
#[test]
fn a_dirty_block_that_is_reconstructed_would_be_garbage_this_often() {
    for (order, garbage, states) in [(1, 8, 24), (2, 112, 160), (3, 4064, 4608)] {
        let model = Model::new(ddraid(order), [1, 0, 0], Some(Bug::ReconstructDirty));
        let mut state = State { dirty: true, ..State::default() };
        state.blocks[0].issued = 1;
        let (remains, mut counts) = (model.crash(&state), Counts::default());
        model.check(&remains, &mut counts);
        let healthy = 1 << model.members;
        say(&format!(
            "model: order {order}: {} garbage in {} states",
            counts.broken,
            counts.states - healthy
        ));
        assert_eq!((counts.broken, counts.states - healthy), (garbage, states));

        let mut counts = Counts::default();
        Model::new(ddraid(order), [1, 0, 0], None).check(&remains, &mut counts);
        assert_eq!(counts.gated, states - healthy, "all of them but those without the parity are refused");
    }
}

#[test]
fn every_bug_is_caught() {
    let mirrors = [ArrayLayout::Mirror { copies: 2 }, ArrayLayout::Mirror { copies: 3 }];
    let both = [mirrors[0], mirrors[1], ddraid(1), ddraid(2)];
    let bugs: [(Bug, &[ArrayLayout]); 11] = [
        (Bug::ReconstructDirty, &both[2..]),
        (Bug::ClearBeforeFlush, &both),
        (Bug::WriteBeforeMark, &both),
        (Bug::BelieveStale, &both),
        (Bug::AcknowledgeBeforeEjection, &both),
        (Bug::WriteUnloggedWhileAway, &both[2..]),
        (Bug::ResyncByCopy, &both[2..]),
        (Bug::WriteWhileGated, &both[2..]),
        (Bug::WriteGatedUnlogged, &both[2..]),
        (Bug::ForgetKnown, &both[2..]),
        (Bug::KnowBeforeLog, &both[2..]),
    ];
    for (bug, layouts) in bugs {
        for layout in layouts {
            let counts = Model::new(*layout, [2, 1, 0], Some(bug)).count();
            say(&format!(
                "model: {bug:?}, {layout:?}: caught in {} of {} states",
                counts.broken, counts.states
            ));
            assert!(counts.broken > 0, "{bug:?} is not noticed by {layout:?}");
        }
    }
}
