//! The specification of stamps: every order in which a mirror of a few regions is marked, written, cleaned, taken into use again over a clean
//! stop or a crash, loses members and gets them back, where one of them may come back as a copy that was made of it at any moment
//! (`docs/decisions/0151-members-as-new-as-they-left.md`).
//!
//! A write reaches all members in use and is flushed. The contract: what a member in sync holds is what was written last, and in dirty
//! regions the member that decides does. Three cases are left out, for nobody can know better: over a crash, a copy with the newest stamp
//! lacks what was written since in regions that were dirty all the while; so does one that lacks the newest stamp, if another crash or
//! failure had come just before, and members were not equal again; and nothing tells how new the only member in use was.

use std::collections::HashSet;
use std::io::Write;

const REGIONS: usize = 2;
const MEMBERS_MAX: usize = 3;

/// A set of members, or of regions.
type Set = u8;

const ALL_REGIONS: Set = (1 << REGIONS) - 1;

fn has(set: Set, one: usize) -> bool {
    set & (1 << one) != 0
}

fn each(set: Set) -> impl Iterator<Item = usize> + Clone {
    (0..8).filter(move |one| has(set, *one))
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Superblock {
    number: u8,
    stamp: u8,
    away: Set,
    since: [u8; MEMBERS_MAX],
    left_at: [u8; MEMBERS_MAX],
    lacks: [Set; MEMBERS_MAX],
    dirty: Set,
    behind: Set,
}

/// Regions that are marked or clean, with a stamp and the newest one that all had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Record {
    stamp: u8,
    acknowledged: u8,
    marks: Set,
    cleans: Set,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Member {
    content: [u8; REGIONS],
    superblock: Superblock,
    /// The newest stamp, the newest one that all had by it, and whether it says that the member is behind.
    stamp: u8,
    acknowledged: u8,
    is_behind: bool,
    /// Behind the superblock.
    records: Vec<Record>,
}

/// What is being written to one member after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Writing {
    Nothing,
    Record(Record),
    Stamp,
    Superblock,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Run {
    in_use: Set,
    writing: Writing,
    lacking: Set,
    newest: u8,
    acknowledged: u8,
    /// Marked and not clean; differing since a crash; named by stamps that not all have.
    marked: Set,
    named: Set,
    next: Superblock,
    is_stopping: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    members: Vec<Member>,
    copy: Option<(usize, Box<Member>)>,
    /// A copy has been in its member's place at an opening: no other one comes, for both together are more than a mirror of two survives.
    is_spent: bool,
    written: [u8; REGIONS],
    run: Option<Run>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    Stamps,
    /// A member is as new as the number of its superblock says.
    NumbersAlone,
    /// What is clean is no stamp.
    MarksAlone,
    /// What is marked is no stamp.
    CleansAlone,
    /// The first member in sync decides, behind or not.
    AnySource,
    /// A superblock is written without a stamp before.
    UnstampedSuperblocks,
}

struct Model {
    members: usize,
    rule: Rule,
    writes_max: u8,
    stamps_max: u8,
    numbers_max: u8,
}

/// What an opening makes of the members: the run, or that the contract is broken; none if it is refused, or nobody can know.
type Opened = Option<Result<Run, &'static str>>;

/// The newest stamp that all who are `believed` are known to have.
fn had_by_all(members: &[Member], believed: Set, elected: &Superblock, newest: &Member) -> u8 {
    let least = each(believed).map(|place| members[place].stamp).min().unwrap_or(0);
    let is_any_behind = each(believed).any(|place| members[place].is_behind);
    match is_any_behind || (least < newest.stamp && elected.dirty != 0) {
        true => newest.acknowledged,
        false => least.max(newest.acknowledged),
    }
}

/// Whether one of those that are `believed` lacks the newest stamp, and which of them do not decide what dirty regions hold.
fn lagging(members: &[Member], believed: Set, elected: &Superblock, newest: u8) -> (bool, Set) {
    let lags = |place: usize| members[place].stamp < newest || members[place].is_behind;
    let never_behind = each(believed).filter(|place| !members[*place].is_behind);
    let most = never_behind.map(|place| members[place].stamp).max().unwrap_or(0);
    let does_lag = |place: usize| members[place].stamp < most && elected.dirty == 0;
    let is_behind = |place: &usize| members[*place].is_behind || does_lag(*place);
    (each(believed).any(lags), each(believed).filter(is_behind).fold(0, |set: Set, place| set | 1 << place))
}

/// The regions that are dirty behind a superblock that says so of `dirty`, and those that stamps name which not all are known to have.
fn replayed(
    mut dirty: Set,
    log: &[Record],
    (acknowledged, had_by_all): (u8, u8),
    is_any_lagging: bool,
) -> (Set, Set) {
    let mut named = 0;
    for record in log {
        let is_open = record.stamp > acknowledged;
        dirty |= record.marks;
        dirty &= if record.stamp > had_by_all && is_any_lagging { ALL_REGIONS } else { !record.cleans };
        named |= if is_open { record.marks | record.cleans } else { 0 };
    }
    (dirty, named)
}

/// What the superblock behind `elected` says: who is away and since when, and what those lack.
fn next_superblock(
    elected: Superblock,
    (believed, behind): (Set, Set),
    (dirty, named): (Set, Set),
    acknowledged: u8,
    (members, log): (usize, &[Record]),
) -> Superblock {
    let dirty = if believed.count_ones() > 1 { dirty } else { 0 };
    let mut next = Superblock { dirty, behind: if dirty == 0 { 0 } else { behind }, ..elected };
    let marked = log.iter().fold(0, |set, record| set | record.marks);
    for place in (0..members).filter(|place| !has(believed, *place)) {
        if has(elected.away, place) {
            next.lacks[place] |= dirty | named | marked;
        } else {
            (next.since[place], next.left_at[place]) = (elected.number + 1, acknowledged);
            next.lacks[place] = dirty | named;
        }
        next.away |= 1 << place;
    }
    next
}

impl Model {
    fn steps(&self, state: &State) -> Result<Vec<State>, &'static str> {
        let mut next = Vec::new();
        if let Some(run) = state.run {
            self.run(state, run, &mut next)?;
            return Ok(next);
        }
        for uses_copy in [false, true] {
            let mut after = state.clone();
            if uses_copy {
                let Some((place, copy)) = after.copy.take() else { continue };
                after.members[place] = *copy;
                after.is_spent = true;
            }
            let copied = state.copy.as_ref().map(|copy| copy.0).filter(|_| uses_copy);
            // Nobody else knows what the only member in use has.
            let is_alone = |member: &Member| member.superblock.away.count_ones() as usize + 1 == self.members;
            let is_known = copied.is_none_or(|place| {
                ![&state.members[place], &after.members[place]].into_iter().any(is_alone)
            });
            if let Some(run) = self.open(&after, copied).filter(|_| is_known) {
                next.extend(self.publish(&after, run?));
            }
        }
        Ok(next)
    }

    fn run(&self, state: &State, run: Run, next: &mut Vec<State>) -> Result<(), &'static str> {
        next.push(State { run: None, ..state.clone() }); // The power fails.
        if state.copy.is_none() && !state.is_spent {
            next.extend(each(run.in_use).map(|place| {
                let copy = Some((place, Box::new(state.members[place].clone())));
                State { copy, ..state.clone() }
            }));
        }
        for place in each(run.lacking) {
            let mut after = state.clone();
            self.write_to(&mut after.members[place], run, place);
            let lacking = run.lacking & !(1 << place);
            after.run = Some(Run { lacking, ..run });
            next.extend(if lacking == 0 { self.written(after, run) } else { Some(after) });
        }
        if matches!(run.writing, Writing::Record(_) | Writing::Nothing) {
            // If those that decide leave before all are equal, and the copy stays, two are lost.
            let may_leave = |place: &usize| run.in_use & !(1 << place) & !run.next.behind != 0;
            for place in each(run.in_use).filter(may_leave) {
                next.extend(self.publish(state, without(run, place)));
            }
        }
        if run.writing != Writing::Nothing {
            return Ok(());
        }
        for region in 0..REGIONS {
            let (bit, is_dirty) = (1 << region, has(run.next.dirty, region));
            let record = |marks, cleans| Writing::Record(Record { marks, cleans, ..Record::default() });
            if has(run.marked, region) {
                if state.written.iter().sum::<u8>() < self.writes_max {
                    let mut after = state.clone();
                    after.written[region] += 1;
                    each(run.in_use)
                        .for_each(|place| after.members[place].content[region] = after.written[region]);
                    next.push(after);
                }
                next.extend(self.begin(state, run, record(0, bit)));
            } else if is_dirty {
                next.extend(self.resync(state, run, region));
            } else {
                next.extend(self.begin(state, run, record(bit, 0)));
            }
        }
        next.extend(self.publish(state, Run { is_stopping: true, ..run }));
        for place in each(run.next.away) {
            let copy = state.copy.iter().filter(|copy| copy.0 == place).map(|copy| (*copy.1).clone());
            for member in copy.chain([state.members[place].clone()]) {
                next.extend(self.take_back(state, run, place, member)?);
            }
        }
        Ok(())
    }

    fn is_stamp(&self, writing: Writing) -> bool {
        match (self.rule, writing) {
            (Rule::MarksAlone, Writing::Record(record)) => record.marks != 0,
            (Rule::CleansAlone, Writing::Record(record)) => record.cleans != 0,
            (Rule::UnstampedSuperblocks, Writing::Stamp) => false,
            _ => true,
        }
    }

    /// Begins to write a record or a stamp.
    fn begin(&self, state: &State, run: Run, writing: Writing) -> Option<State> {
        let newest = run.newest + u8::from(self.is_stamp(writing));
        let (writing, named) = match writing {
            Writing::Record(record) => {
                let stamped = Record { stamp: newest, acknowledged: run.acknowledged, ..record };
                (Writing::Record(stamped), record.marks | record.cleans)
            }
            other => (other, 0),
        };
        let cleaned = if let Writing::Record(record) = writing { record.cleans } else { 0 };
        let marked = run.marked & !cleaned;
        let run = Run { writing, newest, lacking: run.in_use, marked, named: run.named | named, ..run };
        (newest <= self.stamps_max).then(|| State { run: Some(run), ..state.clone() })
    }

    /// A superblock is due, and a stamp before.
    fn publish(&self, state: &State, run: Run) -> Option<State> {
        let is_room = run.next.number < self.numbers_max;
        is_room.then(|| self.begin(state, run, Writing::Stamp)).flatten()
    }

    fn write_to(&self, member: &mut Member, run: Run, place: usize) {
        match run.writing {
            Writing::Nothing => unreachable!("nothing is lacking"),
            Writing::Superblock => {
                member.superblock = run.next;
                member.records.clear();
                (member.stamp, member.acknowledged) = (run.newest, run.newest);
                member.is_behind = has(run.next.behind, place);
            }
            Writing::Record(record) => {
                member.records.push(record);
                (member.stamp, member.acknowledged) = (run.newest, run.acknowledged);
            }
            Writing::Stamp => {
                (member.stamp, member.acknowledged) = (run.newest, run.acknowledged);
                member.is_behind = has(run.next.behind, place);
            }
        }
    }

    /// All members in use have what was written.
    fn written(&self, state: State, run: Run) -> Option<State> {
        let run = Run { lacking: 0, acknowledged: run.newest, named: 0, ..run };
        let run = match run.writing {
            Writing::Record(record) => {
                let mut next = run.next;
                each(next.away).for_each(|place| next.lacks[place] |= record.marks);
                Run { writing: Writing::Nothing, marked: run.marked | record.marks, next, ..run }
            }
            Writing::Stamp => {
                let next = Superblock { number: run.next.number + 1, stamp: run.newest, ..run.next };
                let is_dated = |place: usize| next.since[place] > 0;
                assert!(each(next.away).all(is_dated), "each is away since some superblock");
                Run { writing: Writing::Superblock, lacking: run.in_use, marked: 0, next, ..run }
            }
            Writing::Superblock if run.is_stopping => return Some(State { run: None, ..state }),
            Writing::Superblock | Writing::Nothing => Run { writing: Writing::Nothing, ..run },
        };
        Some(State { run: Some(run), ..state })
    }

    /// The members in sync of which the first decides what dirty regions hold.
    fn sources(&self, in_sync: Set, behind: Set) -> Vec<usize> {
        let mut sources: Vec<usize> = each(in_sync).collect();
        if self.rule != Rule::AnySource {
            sources.sort_by_key(|place| has(behind, *place));
        }
        sources
    }

    fn resync(&self, state: &State, run: Run, region: usize) -> Option<State> {
        let source = self.sources(run.in_use, run.next.behind)[0];
        let mut after = state.clone();
        each(run.in_use)
            .for_each(|place| after.members[place].content[region] = state.members[source].content[region]);
        let next = Superblock { dirty: run.next.dirty & !(1 << region), ..run.next };
        let behind = if next.dirty == 0 { 0 } else { next.behind };
        let next = Superblock { behind, ..next };
        let run = Run { marked: run.marked | 1 << region, next, ..run };
        after.run = Some(run);
        if next.dirty == 0 { self.publish(&after, run) } else { Some(after) }
    }

    /// What is in `place` comes back, and is caught up at once.
    fn take_back(
        &self,
        state: &State,
        run: Run,
        place: usize,
        mut member: Member,
    ) -> Result<Option<State>, &'static str> {
        if run.next.dirty != 0 {
            return Ok(None);
        }
        let is_known = member.superblock.number + 1 == run.next.since[place]
            && (member.stamp >= run.next.left_at[place] || self.rule == Rule::NumbersAlone);
        let lacks = if is_known { run.next.lacks[place] } else { ALL_REGIONS };
        let source = each(run.in_use).next().expect("some are in use");
        each(lacks).for_each(|region| member.content[region] = state.members[source].content[region]);
        if member.content != state.written {
            return Err("a member that came back lacks something");
        }
        let mut after = state.clone();
        after.members[place] = member;
        let mut next = Superblock { away: run.next.away & !(1 << place), ..run.next };
        (next.since[place], next.left_at[place], next.lacks[place]) = (0, 0, 0);
        // As one that catches up it got the superblock before.
        after.members[place].superblock = Superblock { away: run.next.away, ..run.next };
        Ok(self.publish(&after, Run { in_use: run.in_use | 1 << place, next, ..run }))
    }

    /// `copied` is the member that came as a copy.
    fn open(&self, state: &State, copied: Option<usize>) -> Opened {
        let members = &state.members;
        let elected = members.iter().map(|member| member.superblock).max_by_key(|own| own.number)?;
        let called = (0..self.members).filter(|place| !has(elected.away, *place));
        let follows = |place: &usize| {
            let own = members[*place].superblock;
            own == elected || own.number + 1 == elected.number
        };
        let used: Vec<usize> = called.clone().filter(follows).collect();
        // One that is away has the superblock that says so only if it was catching up.
        let shows = |place: &usize| used.contains(place) || members[*place].superblock == elected;
        let showing = (0..self.members).filter(shows);
        let newest = showing.map(|place| &members[place]).max_by_key(|member| member.stamp)?;
        let least = newest.acknowledged.max(elected.stamp);
        let is_new = |place: &usize| members[*place].stamp >= least || self.rule == Rule::NumbersAlone;
        let believed = used.iter().copied().filter(is_new).fold(0, |set: Set, place| set | 1 << place);
        let is_majority = |own: Superblock| {
            let called = self.members as u32 - own.away.count_ones();
            believed.count_ones() * 2 > called || believed.count_ones() == called
        };
        if believed == 0 || !each(believed).all(|place| is_majority(members[place].superblock)) {
            return None;
        }
        let (is_any_lagging, behind) = lagging(members, believed, &elected, newest.stamp);
        let logs = each(believed).filter(|place| members[*place].superblock == elected);
        let log = logs.map(|place| &members[place].records).max_by_key(|records| records.len())?;
        let had_by_all = had_by_all(members, believed, &elected, newest);
        let (dirty, named) = replayed(elected.dirty, log, (newest.acknowledged, had_by_all), is_any_lagging);
        let source = self.sources(believed, behind)[0];
        let lacks =
            |place: usize| each(dirty).any(|region| members[place].content[region] != state.written[region]);
        let was_cut_short = elected.dirty != 0 || newest.stamp > newest.acknowledged + 1;
        let most = each(believed).map(|place| members[place].stamp).max();
        let has_all = |place: usize| match self.rule {
            Rule::CleansAlone => members[place].records.len() == log.len(),
            _ => Some(members[place].stamp) == most,
        };
        let is_unknown = |place: usize| has_all(place) || was_cut_short;
        if copied.is_some_and(|place| has(believed, place) && is_unknown(place) && lacks(place)) {
            return None;
        }
        for region in 0..REGIONS {
            let holds = |place: usize| members[place].content[region] == state.written[region];
            if has(dirty, region) && !holds(source) {
                return Some(Err("a member decides that lacks something"));
            }
            if !has(dirty, region) && !each(believed).all(holds) {
                return Some(Err("a member in sync lacks something"));
            }
        }
        let next = next_superblock(
            elected,
            (believed, behind),
            (dirty, named),
            newest.acknowledged,
            (self.members, log),
        );
        assert_eq!(next.away | believed, (1 << self.members) - 1, "each is away or believed");
        Some(Ok(Run {
            in_use: believed,
            writing: Writing::Nothing,
            lacking: 0,
            newest: newest.stamp,
            acknowledged: if next.away == 0 { had_by_all } else { newest.acknowledged },
            marked: 0,
            named,
            next,
            is_stopping: false,
        }))
    }

    /// How many states there are, and whether something is believed in one of them that is older.
    fn count(&self) -> (usize, usize) {
        let members = vec![Member::default(); self.members];
        let first = State { members, ..State::default() };
        let (mut known, mut queue, mut stale) = (HashSet::from([first.clone()]), vec![first], 0);
        while let Some(state) = queue.pop() {
            match self.steps(&state) {
                Ok(steps) => queue.extend(steps.into_iter().filter(|after| known.insert(after.clone()))),
                Err(why) => {
                    assert!(self.rule != Rule::Stamps, "{why}: {state:#?}");
                    stale += 1;
                    break;
                }
            }
        }
        (known.len(), stale)
    }
}

/// Member `place` leaves, and is away from the next superblock on.
fn without(run: Run, place: usize) -> Run {
    let mut next = run.next;
    next.away |= 1 << place;
    (next.since[place], next.left_at[place]) = (next.number + 1, run.acknowledged);
    for other in each(next.away) {
        next.lacks[other] |= run.marked | run.named | next.dirty;
    }
    let in_use = run.in_use & !(1 << place);
    next.dirty = if in_use.count_ones() > 1 { next.dirty } else { 0 };
    next.behind &= if next.dirty == 0 { 0 } else { in_use };
    Run { in_use, writing: Writing::Nothing, lacking: 0, next, ..run }
}

fn models(rule: Rule) -> [Model; 2] {
    [(2, 2, 5, 3), (3, 1, 4, 2)].map(|(members, writes_max, stamps_max, numbers_max)| Model {
        members,
        rule,
        writes_max,
        stamps_max,
        numbers_max,
    })
}

/// Whether something older is believed under `rule` in a model.
fn believes_older(model: &Model) -> bool {
    let (states, stale) = model.count();
    let Model { members, rule, .. } = model;
    let line = format!(
        "stamps: {members} members, {rule:?}: {states} states, of which {stale} believe an older one"
    );
    let _ = writeln!(std::io::stderr(), "{line}");
    stale > 0
}

/// As [`believes_older`], of a mirror of two.
fn is_noticed(rule: Rule) -> bool {
    let [two, _] = models(rule);
    believes_older(&two)
}

#[test]
fn a_copy_of_a_member_is_never_believed_where_it_is_older() {
    assert!(!models(Rule::Stamps).iter().any(believes_older), "STAMP3, STAMP4, STAMP5");
}

#[test]
fn numbers_of_superblocks_do_not_tell_how_new_a_member_is() {
    assert!(is_noticed(Rule::NumbersAlone), "STAMP3");
}

#[test]
fn marks_and_cleans_are_both_stamps() {
    assert!(is_noticed(Rule::MarksAlone) && is_noticed(Rule::CleansAlone), "STAMP1");
}

#[test]
fn a_member_one_stamp_behind_must_not_decide() {
    assert!(is_noticed(Rule::AnySource), "STAMP5");
}

#[test]
fn a_superblock_needs_a_stamp_of_its_own() {
    assert!(is_noticed(Rule::UnstampedSuperblocks), "STAMP1");
}
