//! Commands that are given together: there is an order of them that explains every answer, and what is found afterwards.

use super::daemon::Daemon;
use super::model::Model;
use super::verbs::{Verb, pick};
use super::{History, Kind, LIVES, count, log};
use futures_util::future::{join, join_all};
use std::cell::RefCell;
use std::time::Duration;
use varve_api::{Code, Exit};
use varve_sim::{CrashAt, CrashKind, Mix, Random};

/// How late a command of several is given at most, in µs.
const DELAYS_MAX: [u64; 3] = [200, 2000, 6000];

/// What is known of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// It may have happened.
    Awaited,
    Done,
    Refused(Code),
}

/// Commands that are given together, and what each was answered.
struct Round {
    before: Model,
    verbs: Vec<Verb>,
    delays: Vec<Duration>,
    answers: RefCell<Vec<Answer>>,
}

impl Round {
    fn pick(before: Model, random: &mut Random) -> Self {
        let verbs = Verb::pick_several(&before, random);
        let answers = RefCell::new(vec![Answer::Awaited; verbs.len()]);
        let most = *random.pick(&DELAYS_MAX);
        let delays = verbs.iter().map(|_| Duration::from_micros(random.below(most))).collect();
        Self { before, verbs, delays, answers }
    }

    /// What there may be: after each order in which all commands that are done are possible, and those that were refused for what is
    /// there or is not are impossible.
    fn outcomes(&self) -> Vec<Model> {
        let answers = self.answers.borrow().clone();
        let given: Vec<Given<'_>> = self.verbs.iter().zip(answers).enumerate().collect();
        let mut found = Vec::new();
        follow(&self.before, None, &given, &mut found);
        assert!(!found.is_empty(), "HISTORY13: in no order is {given:?} possible");
        found
    }

    fn note(&self, number: usize, answer: Answer) -> Vec<Model> {
        self.answers.borrow_mut()[number] = answer;
        self.outcomes()
    }

    /// What clients may write to meanwhile: what no order of the commands changes.
    fn unchanged(&self) -> Vec<String> {
        let outcomes = self.outcomes().into_iter().map(|after| self.before.unchanged(&after));
        outcomes
            .reduce(|names, more| names.into_iter().filter(|name| more.contains(name)).collect())
            .unwrap_or_default()
    }
}

/// A command of several, its number, and its answer.
type Given<'a> = (usize, (&'a Verb, Answer));

/// Adds what the commands may lead to from `model`, in every order. What is in different groups has one order.
fn follow(model: &Model, last: Option<(usize, &Verb)>, given: &[Given<'_>], found: &mut Vec<Model>) {
    if given.is_empty() {
        found.push(model.clone());
    }
    for (place, (number, (verb, answer))) in given.iter().enumerate() {
        if last.is_some_and(|(before, last)| before > *number && !last.touches(verb)) {
            continue; // The other order leads to the same.
        }
        let mut others = given.to_vec();
        others.remove(place);
        let is_possible = verb.is_possible(model) && !verb.must_be_refused(model);
        let (may_happen, may_fail) = match answer {
            Answer::Awaited => (is_possible, true),
            Answer::Done => (is_possible, false),
            Answer::Refused(code) => {
                (false, verb.may_be_refused(*code) || (!is_possible && is_conflict(*code)))
            }
        };
        if may_happen {
            follow(&verb.apply(model), Some((*number, verb)), &others, found);
        }
        if may_fail {
            follow(model, Some((*number, verb)), &others, found);
        }
    }
}

/// Whether a command is refused so for what there is, or is not.
fn is_conflict(code: Code) -> bool {
    matches!(code, Code::BadVolumeSize | Code::BadChunkSize | Code::BadOrigin | Code::VolumeUnusable)
        || matches!(code.exit(), Exit::NotFound | Exit::Exists | Exit::Busy)
}

impl History<'_> {
    /// Whether several commands are given together next.
    pub(super) fn is_for_several(&self) -> bool {
        let has_groups = self.models.borrow()[0].groups.len() > 1;
        self.kind == Kind::Together && has_groups && self.random.borrow_mut().chance(2, 3)
    }

    /// Gives two or three commands together, of one group or of several; the model follows.
    pub(super) async fn commands_together(&self, daemon: &Daemon) {
        let before = self.models.borrow()[0].clone();
        self.disconnect(&before).await;
        let round = Round::pick(before, &mut self.random.borrow_mut());
        let outcomes = round.outcomes();
        self.models.replace(outcomes);
        let names = round.unchanged();
        self.cut_short_soon_together();
        let commands =
            join_all((0..round.verbs.len()).map(|number| self.one_of_several(daemon, &round, number)));
        let mix = Mix::default();
        let requests = async {
            if self.random.borrow_mut().chance(1, 2) {
                self.requests_to_one(daemon, &round.before, &names, &mix).await;
            }
        };
        let looked = async { daemon.lists().await.expect("HISTORY13: lists are shown while commands run") };
        join(join(commands, looked), requests).await;
        self.explain(daemon, &round).await;
    }

    async fn one_of_several(&self, daemon: &Daemon, round: &Round, number: usize) {
        let verb = &round.verbs[number];
        self.host.world.clock().sleep(round.delays[number]).await;
        let outcome = match verb.clone().issue(daemon).await {
            Ok(Some(job)) => {
                self.models.replace(round.note(number, Answer::Done)); // HISTORY6
                match daemon.wait_for_job(&job).await {
                    Ok(()) => daemon.outcome_of_job(job).await,
                    unknown => unknown,
                }
            }
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        log(format_args!("together: {verb:?}: {outcome:?}"));
        count(&self.counts.commands);
        let answer = match outcome {
            Ok(()) => Answer::Done,
            Err(failure) => {
                count(&self.counts.refused);
                Answer::Refused(failure.code)
            }
        };
        self.models.replace(round.note(number, answer));
    }

    /// HISTORY13: what is shown, and what volumes hold, is explained by an order of the commands.
    async fn explain(&self, daemon: &Daemon, round: &Round) {
        let shown = daemon.lists().await.expect("it runs");
        let mut outcomes = round.outcomes();
        outcomes.retain(|model| model.lists_as(&shown) == shown);
        let given = || round.verbs.iter().zip(round.answers.borrow().clone()).collect::<Vec<_>>();
        assert!(
            !outcomes.is_empty(),
            "HISTORY13: it shows {shown:#?} after {:?}, from {:#?}",
            given(),
            round.before.lists()
        );
        // Of others the lists say what they hold.
        let is_order_seen = !round.verbs.iter().any(|verb| matches!(verb, Verb::RollBack { .. }));
        if is_order_seen {
            outcomes.truncate(1);
        }
        let are_several = outcomes.len() > 1;
        self.models.replace(outcomes);
        if are_several {
            self.resolve_models(daemon).await;
        }
    }

    /// Lets a crash come while several commands are carried out, now and then.
    fn cut_short_soon_together(&self) {
        let mut random = self.random.borrow_mut();
        if self.life.get() < LIVES && random.chance(1, 12) {
            let kind = *random.pick(&[CrashKind::Power, CrashKind::Process]);
            self.host.world.schedule(CrashAt::Event(random.between(1, 200)), kind);
        }
    }
}

impl Verb {
    /// What makes the second group, or one of a few volumes.
    pub(super) fn pick_what_lacks(model: &Model, random: &mut Random) -> Option<Verb> {
        match (model.groups.len(), model.volumes.len()) {
            (0 | 1, _) => Self::new_group(model, random),
            (_, 0..4) if random.chance(3, 4) => Self::new_volume(model, random),
            _ => None,
        }
    }

    /// Two or three commands that the model allows, one at a time; now and then one of them twice.
    fn pick_several(model: &Model, random: &mut Random) -> Vec<Verb> {
        let group = pick(model.groups.keys(), random).filter(|_| random.chance(1, 2));
        let part = group.map_or_else(|| model.clone(), |group| model.part(group, true));
        let count = random.between(2, 4);
        let mut verbs: Vec<Verb> = Vec::new();
        if random.chance(1, 2) {
            let parts = model.groups.keys().map(|group| model.part(group, true));
            verbs.extend(parts.filter_map(|part| Self::new_snapshots(&part, random)));
        }
        while (verbs.len() as u64) < count {
            let verb = match verbs.first() {
                Some(first) if first.can_come_twice() && random.chance(1, 8) => first.clone(),
                _ => Self::pick(&part, random),
            };
            if verb.comes_with_others() && verb.is_possible(model) && !verb.makes_what_is_in(model) {
                verbs.push(verb);
            }
        }
        verbs
    }

    /// Whether the model knows what it does beside others.
    fn comes_with_others(&self) -> bool {
        use Verb::{Array, CommitImage, CreateInImage, CreateMapped, Flatten, ReduceGroup, TakeUsedDisk};
        !matches!(
            self,
            Array(_)
                | CommitImage { .. }
                | CreateInImage { .. }
                | CreateMapped { .. }
                | Flatten { .. }
                | ReduceGroup { .. }
                | TakeUsedDisk { .. }
        )
    }

    /// Whether the order of both may matter.
    fn touches(&self, other: &Verb) -> bool {
        let groups = (self.groups(), other.groups());
        groups.0.is_empty() || groups.1.is_empty() || groups.0.iter().any(|group| groups.1.contains(group))
    }

    /// The groups that it is about; none if it may be about any.
    fn groups(&self) -> Vec<&str> {
        let names = match self {
            Verb::CreateGroup { .. } | Verb::RenameGroup { .. } | Verb::RemoveExport { .. } => Vec::new(),
            Verb::ExtendGroup { name, .. }
            | Verb::CreatePool { name, .. }
            | Verb::ExtendPool { name, .. }
            | Verb::RemovePool { name }
            | Verb::CreateVolume { name, .. }
            | Verb::CreateThin { name, .. }
            | Verb::CreateOver { name, .. }
            | Verb::Resize { name, .. }
            | Verb::RenameVolume { name, .. }
            | Verb::RemoveVolume { name }
            | Verb::Convert { name, .. }
            | Verb::RemoveSnapshots { volume: name, .. }
            | Verb::Hold { volume: name, .. }
            | Verb::ChangeSnapshot { volume: name, .. }
            | Verb::RenameSnapshot { volume: name, .. }
            | Verb::RollBack { volume: name, .. }
            | Verb::Export { target: name, .. } => vec![name],
            Verb::Snapshot { names, .. } => names.iter().map(|(volume, _)| volume).collect(),
            _ => Vec::new(),
        };
        names.into_iter().map(|name| name.split('/').next().unwrap_or_default()).collect()
    }

    /// Whether it is one call, and leaves nothing behind where it is refused.
    fn can_come_twice(&self) -> bool {
        !matches!(self, Verb::CreateGroup { .. } | Verb::ExtendGroup { .. })
    }

    /// Whether there is what it needs, and nothing that it excludes.
    fn is_possible(&self, model: &Model) -> bool {
        let group_of = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
        let is_new = |name: &str| model.groups.contains_key(&group_of(name)) && !model.is_used(name);
        let is_exported = |name: &str| model.exports.values().any(|target| target == name);
        let snapshot =
            |volume: &str, own: &str| model.volumes.get(volume).and_then(|found| found.snapshots.get(own));
        match self {
            Verb::CreateGroup { name, .. } => !model.groups.contains_key(name),
            Verb::ExtendGroup { name, .. } => model.groups.contains_key(name),
            Verb::RenameGroup { name, to } => {
                model.groups.contains_key(name) && !model.groups.contains_key(to)
            }
            Verb::MoveDisk { disk } | Verb::ResizeDisk { disk, .. } => {
                model.groups.values().any(|disks| disks.contains(disk))
            }
            Verb::CreatePool { name, .. } | Verb::CreateVolume { name, .. } => is_new(name),
            Verb::ExtendPool { name, .. } | Verb::Convert { name, is_pool: true, .. } => {
                model.pools.contains(name)
            }
            Verb::RemovePool { name } => {
                model.pools.contains(name)
                    && !model.volumes.values().any(|volume| volume.pool.as_ref() == Some(name))
            }
            Verb::CreateThin { name, pool, .. } => is_new(name) && model.pools.contains(pool),
            Verb::CreateOver { name, pool, volume, snapshot: own } => {
                let is_origin = snapshot(volume, own).is_some_and(|snapshot| snapshot.read_only);
                is_new(name) && model.pools.contains(pool) && is_origin
            }
            Verb::Convert { name, is_pool: false, .. } => model.volumes.contains_key(name),
            Verb::Resize { name, size, grows } => model.volumes.get(name).is_some_and(|volume| {
                let now = volume.oracle.borrow().size();
                if *grows { *size > now } else { *size < now && volume.may_shrink() }
            }),
            Verb::RenameVolume { name, to } => {
                model.volumes.contains_key(name) && !model.is_used(&format!("{}/{to}", group_of(name)))
            }
            Verb::RemoveVolume { name } => {
                model.volumes.get(name).is_some_and(|volume| volume.snapshots.is_empty())
                    && !is_exported(name)
                    && !model.is_granted(name)
            }
            Verb::Snapshot { names, .. } => names.iter().all(|(volume, own)| {
                model.volumes.get(volume).is_some_and(|volume| !volume.snapshots.contains_key(own))
            }),
            Verb::RemoveSnapshots { volume, names } => names.iter().all(|own| {
                snapshot(volume, own).is_some_and(|snapshot| !snapshot.held)
                    && !is_exported(&format!("{volume}@{own}"))
            }),
            Verb::Hold { volume, name, .. } | Verb::ChangeSnapshot { volume, name, .. } => {
                snapshot(volume, name).is_some()
            }
            Verb::RenameSnapshot { volume, name, to } => {
                snapshot(volume, name).is_some()
                    && snapshot(volume, to).is_none()
                    && !is_exported(&format!("{volume}@{name}"))
            }
            Verb::RollBack { volume, name, .. } => snapshot(volume, name).is_some(),
            Verb::Export { target, address } => {
                model.contents().contains_key(target) && !model.exports.contains_key(address)
            }
            Verb::RemoveExport { address } => model.exports.contains_key(address),
            _ => true,
        }
    }
}
