//! Histories of a whole daemon below HTTP on a simulated host: random commands and requests, with crashes at any step, disks
//! that go away, come back as they were, fail or answer late, and state directories that are lost.
//!
//! Invariants:
//! - HISTORY1. After a crash the lists show the model as it was before the command that was under way, or as it is after it.
//! - HISTORY2. Every volume and snapshot reads what the model says: what was flushed is there, also if the disk has failed and was
//!   opened anew between a write and the flush of the same client.
//! - HISTORY3. Once nothing goes wrong any more, all jobs end, and everything is well.
//! - HISTORY4. A command that is refused has changed nothing.
//! - HISTORY5. A disk that fails harms its own group only; once it is sound again `pv scan` brings everything back.
//! - HISTORY6. A job that was begun when its command was answered goes on over crashes, under its number, also if the state directory is
//!   lost; or the crash came between its end and the answer to those who waited for that: then the group's history has its end.
//! - HISTORY7. Every extent of a group is owned once, and what is owned and what is free add up to its size.
//! - HISTORY8. Whatever two states of a volume differ in is named by `snap diff`.
//! - HISTORY9. While a disk is in trouble that arrays can do without, all that is on them alone is served: no request fails, and none
//!   waits for one that stalls.
//! - HISTORY10. Once disks are sound again, arrays become whole.
//! - HISTORY12. Where nothing went wrong the daemon says at every look that all is well, but for what is full, catches up, or waits
//!   for a mapper that goes and comes.
//! - HISTORY11. A command about a group one of whose disks refuses requests now and then, or does not answer for a while, is answered, and
//!   once the disk is sound again it has done all or nothing.
//! - HISTORY13. Commands that are given together do what they do in some order of them: what each was answered, and what is found
//!   afterwards, has one.
//! - HISTORY15. What is on a file that was deleted or renamed while it is open is served, the status names the file, and says ok once the
//!   file has its name again, or was scanned where it is.
//! - HISTORY14. What is on a disk whose file was cut short is answered by errors alone until the file is whole and was opened anew, and
//!   the status says so.

mod array_trouble;
mod array_verbs;
pub(crate) mod attached;
mod boundaries;
mod costs;
mod daemon;
mod files;
pub(crate) mod host;
mod mapper;
mod model;
pub(crate) mod remote;
mod resizes;
mod schedules;
mod together;
mod trouble;
mod verbs;
mod watched;

use crate::injected_bug::{self, InjectedBug};
use boundaries::{BoundaryCounts, Disturbed};
use daemon::{Daemon, RunningJob};
use futures_util::future::join;
use host::{Host, base_of, image_over};
use model::{Lists, Model};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use trouble::Trouble;
use varve_api::{Code, Job};
use varve_block::IoError;
use varve_sim::{
    Client, CrashAt, CrashKind, FaultPlan, Mix, Random, TestName, caught_share, run_seeds, test_name,
};
use varve_vg::injected_bug::InjectedBug as GroupBug;
use varve_volume::injected_bug::InjectedBug as VolumeBug;
use verbs::Verb;

/// Lives of the daemon in a history; the last one is not cut short.
const LIVES: usize = 6;
/// Commands and batches of requests in a life, at most.
const STEPS_MAX: u64 = 40;

/// Requests without a flush among them.
const UNFLUSHED: Mix = Mix {
    reads: 2,
    writes: 10,
    durable_writes: 0,
    zeros: 1,
    discards: 0,
    flushes: 0,
    length_max: 16 << 10,
    depth: 4,
    overlaps: 25,
};

/// Errors that a command may end with though nothing went wrong: there is not always room, and some things exclude others.
const REFUSALS: [Code; 15] = [
    Code::NoSpaceInGroup,
    Code::SnapshotsFull,
    Code::NoSpaceForSnapshots,
    Code::PoolFull,
    Code::VolumeBusy,
    Code::SnapshotMergesNow,
    Code::VolumeExported,
    Code::RollbackBesideIndependent,
    Code::PhysicalVolumeInGroup,
    Code::SnapshotIsOrigin,
    Code::SnapshotExported,
    Code::SnapshotHeld,
    Code::DiskHoldsExtents,
    Code::DiskIsEmpty,
    Code::LastDisk,
];
/// And those that only a command about arrays may end with.
const ARRAY_REFUSALS: [Code; 7] = [
    Code::ArrayDegraded,
    Code::DiskIsSpare,
    Code::NotAnArray,
    Code::VolumeHasSnapshots,
    Code::BadLayout,
    Code::BadVolumeSize,
    Code::PhysicalVolumeNotFound,
];
/// Histories in which an injected bug is looked for.
const CONTROLS: u64 = 100;

/// What happened over all histories.
#[derive(Default)]
struct Counts {
    commands: AtomicU64,
    refused: AtomicU64,
    requests: AtomicU64,
    crashes: AtomicU64,
    in_commands: AtomicU64,
    in_jobs: AtomicU64,
    troubles: AtomicU64,
    lost_states: AtomicU64,
    lost_in_jobs: AtomicU64,
    /// What happened to arrays.
    arrays: [AtomicU64; EVENTS],
    boundaries: Arc<BoundaryCounts>,
}

/// Tells what happens if `VARVE_SIM_LOG` is set: for a seed that is repeated.
fn log(words: std::fmt::Arguments<'_>) {
    if std::env::var_os("VARVE_SIM_LOG").is_some() {
        eprintln!("{words}");
    }
}

impl Counts {
    fn report(&self) {
        let now = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (commands, refused, requests) = (now(&self.commands), now(&self.refused), now(&self.requests));
        let (crashes, in_commands, in_jobs) =
            (now(&self.crashes), now(&self.in_commands), now(&self.in_jobs));
        let (troubles, states, with_job) =
            (now(&self.troubles), now(&self.lost_states), now(&self.lost_in_jobs));
        eprintln!(
            "sim: daemon: {commands} commands ({refused} refused), {requests} batches of requests, {crashes} crashes \
             ({in_commands} in commands, {in_jobs} in jobs), {troubles} disks in trouble, {states} lost state directories \
             ({with_job} in jobs)"
        );
        let (crashes, repeated) = (now(&self.boundaries.crashes), now(&self.boundaries.repeated));
        eprintln!(
            "sim: daemon: {crashes} crashes between actions of controllers, {repeated} actions repeated"
        );
        if self.arrays.iter().any(|number| now(number) > 0) {
            let counted =
                |(event, words): &(Event, &str)| format!("{} {words}", now(&self.arrays[*event as usize]));
            let counted: Vec<String> = EVENT_WORDS.iter().map(counted).collect();
            eprintln!("sim: daemon: {}", counted.join(", "));
        }
    }
}

/// What happens to arrays.
#[derive(Clone, Copy, Debug)]
enum Event {
    Vanished,
    CutOff,
    Failed,
    Stalled,
    Ejected,
    SecondFailure,
    ReplacedInTrouble,
    Replaced,
    Scrubbed,
    Converted,
    Split,
    Spares,
    ServedInTrouble,
    EndedInTrouble,
    Exchanged,
}

const EVENTS: usize = Event::Exchanged as usize + 1;
/// How they are reported.
const EVENT_WORDS: [(Event, &str); EVENTS] = [
    (Event::Vanished, "disks of arrays vanished"),
    (Event::CutOff, "cut off"),
    (Event::Failed, "failed"),
    (Event::Stalled, "stalled"),
    (Event::Ejected, "ejected by hand"),
    (Event::SecondFailure, "of these before arrays were whole"),
    (Event::ReplacedInTrouble, "replaced in trouble"),
    (Event::Replaced, "replaced while sound"),
    (Event::Scrubbed, "scrubs"),
    (Event::Converted, "conversions"),
    (Event::Split, "splits"),
    (Event::Spares, "changes of spares"),
    (Event::ServedInTrouble, "batches served in trouble"),
    (Event::EndedInTrouble, "ends of hosts in trouble"),
    (Event::Exchanged, "disks exchanged"),
];

fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}

/// What a history is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A bit of everything.
    Plain,
    /// Jobs that take long, on slow disks.
    Jobs,
    /// Disks that are in trouble again and again, just when there is much that was not flushed, and are not used meanwhile.
    Troubles,
    /// Disks that go away, are taken out of their group, and come back when no group counts on them any more.
    Away,
    /// Disks that refuse writes and flushes now and then, or do not answer for a while, as commands are given to their groups.
    Refused,
    /// Commands that are given together, in two groups.
    Together,
    /// Mirrors and ddraid of which disks fail, one at a time, while they are used, rebuilt, scrubbed and converted.
    Arrays,
}

impl Kind {
    fn latency_max(self) -> Duration {
        match self {
            Kind::Jobs => Duration::from_millis(200),
            _ => Duration::from_micros(400),
        }
    }
}

struct History<'a> {
    host: Rc<Host>,
    random: RefCell<Random>,
    /// What happens between actions of controllers.
    disturbances: RefCell<Random>,
    /// What there may be: one model, or what a command that was cut short was to lead from and to.
    models: RefCell<Vec<Model>>,
    /// The job that ran when the crash came.
    job: RefCell<Option<RunningJob>>,
    trouble: RefCell<Option<Trouble>>,
    /// Disks that were removed from their groups while they were gone, and are forgotten.
    given_up: RefCell<Vec<String>>,
    life: Cell<usize>,
    /// The state directory was lost, and the daemon was not shown its disks since.
    is_new_host: Cell<bool>,
    kind: Kind,
    /// Clients that stay connected to volumes, while these keep their names and sizes.
    clients: RefCell<BTreeMap<String, Client>>,
    counts: &'a Counts,
}

impl<'a> History<'a> {
    fn new(seed: u64, kind: Kind, counts: &'a Counts) -> Self {
        let host = Host::new(seed, kind.latency_max());
        let random = RefCell::new(host.world.random());
        let disturbances = RefCell::new(Random::new(seed ^ 0x626f_756e_6461_7279));
        let (models, trouble) = (RefCell::new(vec![Model::default()]), RefCell::default());
        Self {
            host,
            random,
            disturbances,
            models,
            job: RefCell::default(),
            life: Cell::new(0),
            is_new_host: Cell::new(false),
            kind,
            trouble,
            given_up: RefCell::default(),
            clients: RefCell::default(),
            counts,
        }
    }

    fn run(&self) {
        for life in 1..=LIVES {
            let is_last = life == LIVES;
            self.life.set(life);
            let kind =
                *self.random.borrow_mut().pick(&[CrashKind::Power, CrashKind::Power, CrashKind::Process]);
            // Commands that are given together are cut short themselves.
            let may_crash = life > 1 && !is_last && self.kind != Kind::Together;
            let _disturbed = Disturbed::new(
                &self.host,
                &mut self.disturbances.borrow_mut(),
                may_crash.then_some(kind),
                &self.counts.boundaries,
            );
            if may_crash {
                let events_max = *self.random.borrow_mut().pick(&[30, 300, 3000]);
                let at = CrashAt::Event(self.random.borrow_mut().between(1, events_max));
                self.host.world.schedule(at, kind);
            }
            let ran = self.host.world.run_until_crash(self.live(is_last));
            log(format_args!("life {life} ends: {ran:?}, {kind:?}"));
            if ran.crashed() {
                count(&self.counts.crashes);
            } else {
                self.host.world.crash(kind);
            }
            if self.models.borrow().len() > 1 {
                count(&self.counts.in_commands);
            }
            self.clients.borrow_mut().clear();
            model::crashed(&self.models.borrow());
            self.host.files.process_ended();
            self.after_crash();
        }
    }

    /// One life of a daemon.
    async fn live(&self, is_last: bool) {
        let job = self.job.take();
        let daemon = Daemon::start(&self.host).await;
        self.find_disks(&daemon).await;
        if let Some(mut known) = job
            && !known.has_ended()
        {
            count(&self.counts.in_jobs);
            let job = known.job;
            let listed = daemon.jobs().await;
            let name = |job: &Job| (job.id.clone(), job.kind.clone(), job.subject.clone());
            let goes_on = listed.iter().any(|known| name(known) == name(&job));
            assert!(goes_on || daemon.has_erased(&job).await, "HISTORY6: {job:?} goes on: {listed:?}");
        }
        if self.trouble.borrow().is_some() && self.work_in_trouble(&daemon).await {
            return;
        }
        daemon.idle().await; // HISTORY3
        self.resolve_models(&daemon).await;
        let steps = self.random.borrow_mut().below(STEPS_MAX);
        for _ in 0..steps {
            let step = self.random.borrow_mut().below(24);
            match step {
                0 | 18.. if self.kind == Kind::Arrays => self.begin_array_trouble(&daemon).await,
                0 => self.begin_trouble(),
                18.. if matches!(self.kind, Kind::Away | Kind::Refused) => self.begin_trouble(),
                20.. if self.kind == Kind::Troubles => {
                    for _ in 0..4 {
                        self.requests(&daemon, &UNFLUSHED).await;
                    }
                    self.begin_trouble();
                }
                1..=12 | 18.. if self.is_for_several() => self.commands_together(&daemon).await,
                1..=12 => {
                    let model = self.models.borrow()[0].clone();
                    self.command(&daemon, &model).await;
                }
                _ => self.requests(&daemon, &Mix::default()).await,
            }
            if self.trouble.borrow().is_some() {
                if self.work_in_trouble(&daemon).await {
                    return;
                }
                daemon.idle().await;
                self.resolve_models(&daemon).await;
            } else {
                daemon.says_ok().await;
            }
        }
        if is_last || self.random.borrow_mut().chance(1, 4) {
            self.host.mappers.lose_connections(false);
            daemon.idle().await;
            self.resolve_models(&daemon).await;
            daemon.stop().await;
            model::stopped(&self.models.borrow());
        }
    }

    /// Finds out which of the models is true (HISTORY1, HISTORY2).
    async fn resolve_models(&self, daemon: &Daemon) {
        let shown = daemon.lists().await.expect("it runs");
        let mut models = self.models.borrow().clone();
        let wanted: Vec<Lists> = models.iter().map(Model::lists).collect();
        models.retain(|model| model.lists_as(&shown) == shown);
        assert!(!models.is_empty(), "HISTORY1: it shows {shown:#?}, and is to show one of {wanted:#?}");
        let contents = daemon.contents(&models[0]).await;
        let mut wrong = Vec::new();
        models.retain(|model| match compare(model, &contents) {
            Ok(()) => true,
            Err(problem) => {
                wrong.push(problem);
                false
            }
        });
        assert!(!models.is_empty(), "HISTORY2: {wrong:#?}");
        models.truncate(1);
        for (name, oracle) in models[0].contents() {
            oracle.borrow_mut().check(0, &contents[&name]).expect("it was compared");
        }
        daemon.check_space().await;
        self.spoil_what_nobody_needs(daemon, &mut models[0]).await;
        for (name, volume) in &models[0].volumes {
            let states: Vec<String> = volume.snapshots.keys().map(|own| format!("{name}@{own}")).collect();
            let Some(from) = states.first() else { continue };
            let to = states.get(1).unwrap_or(name);
            daemon.check_difference(from, to, &contents).await;
        }
        self.models.replace(models);
    }

    /// What was the backing image of a flattened image is anything from now on, and so is an image that was committed.
    async fn spoil_what_nobody_needs(&self, daemon: &Daemon, model: &mut Model) {
        for (name, volume) in &mut model.volumes {
            let Some(image) = daemon.image_of(name).await else {
                // A crash before a flattening was answered leaves open whether it goes on.
                volume.has_origin = volume.has_origin && daemon.is_backed(name).await;
                continue;
            };
            let is_backed = self.host.is_backed(&image).await;
            assert!(volume.has_origin || !is_backed, "HISTORY6: {name} was given all that lay below {image}");
            volume.has_origin = is_backed;
            if !is_backed {
                self.host.spoil(&base_of(&image));
            }
            if let Some(committed) = image_over(&image) {
                self.host.spoil(committed);
            }
            volume.image = Some(image);
        }
    }

    fn pick(&self, part: &Model) -> Verb {
        let mut random = self.random.borrow_mut();
        if self.kind == Kind::Arrays {
            return Verb::pick_of_arrays(part, &mut random);
        }
        if self.kind == Kind::Together
            && let Some(verb) = Verb::pick_what_lacks(part, &mut random)
        {
            return verb;
        }
        let mut verb = Verb::pick(part, &mut random);
        for _ in 0..4 {
            let is_wanted = match self.kind {
                Kind::Jobs => verb.starts_a_job(),
                Kind::Away => matches!(verb, Verb::CreateMapped { .. }), // It needs disks that other volumes lie on.
                _ => true,
            };
            if !is_wanted {
                verb = Verb::pick(part, &mut random);
            }
        }
        verb
    }

    /// Gives a command that `part` of the model allows; the model follows.
    async fn command(&self, daemon: &Daemon, part: &Model) {
        let before = self.models.borrow()[0].clone();
        let verb = self.pick(part);
        if verb.makes_what_is_in(&before) {
            return;
        }
        self.disconnect(part).await;
        let after = verb.apply(&before);
        self.models.replace(vec![before.clone(), after.clone()]);
        let issued = self.beside_requests(daemon, &verb, (&before, &after), verb.clone().issue(daemon)).await;
        log(format_args!("{verb:?}: {issued:?}"));
        if matches!(verb, Verb::Scan) && self.trouble.borrow().is_some() {
            self.hear_of_losses().await;
        }
        let outcome = match issued {
            Ok(Some(job)) => {
                // The job goes on if the daemon crashes now (HISTORY6).
                self.models.replace(vec![after.clone()]);
                self.job.replace(daemon.running_job(&job).await);
                self.cut_short_soon();
                match daemon.wait_for_job(&job).await {
                    Ok(()) => {
                        self.job.take(); // Whether a crash finds it remembered is a matter of moments.
                        daemon.outcome_of_job(job).await
                    }
                    unknown => unknown,
                }
            }
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        self.job.take();
        count(&self.counts.commands);
        self.models.replace(vec![match outcome {
            Ok(()) => {
                assert!(!verb.must_be_refused(&before), "HISTORY1: {verb:?}");
                if let Verb::Array(verb) = &verb {
                    verb.event().into_iter().for_each(|event| self.count(event));
                }
                if let Verb::ResizeDisk { disk, size } = &verb
                    && self.random.borrow_mut().chance(1, 2)
                {
                    self.host.set_length(disk, *size); // What is behind is none of the group's.
                }
                if let Verb::Flatten { name } = &verb
                    && let Some(image) = &after.volumes[name].image
                {
                    assert!(!self.host.is_backed(image).await, "HISTORY3: {verb:?}");
                }
                if let Verb::CommitImage { name } = &verb {
                    assert_eq!(daemon.image_of(name).await, after.volumes[name].image, "HISTORY3: {verb:?}");
                }
                after
            }
            Err(failure) if verb.may_be_refused(failure.code) || verb.must_be_refused(&before) => {
                if let Verb::ResizeDisk { disk, size } = &verb {
                    assert!(daemon.is_used_beyond(disk, *size).await, "HISTORY4: {verb:?}: {failure:?}");
                }
                count(&self.counts.refused);
                before
            }
            Err(failure) => panic!("{verb:?} fails: {failure:?}"),
        }]);
        if self.trouble.borrow().is_none() {
            let shown = daemon.lists().await.expect("it runs");
            let model = self.models.borrow()[0].lists_as(&shown);
            assert_eq!(shown, model, "HISTORY1, HISTORY4, after {verb:?}");
        }
    }

    fn count(&self, event: Event) {
        count(&self.counts.arrays[event as usize]);
    }

    /// Lets a crash come in the middle of a job, now and then.
    fn cut_short_soon(&self) {
        let mut random = self.random.borrow_mut();
        if self.life.get() < LIVES && random.chance(2, 3) {
            self.host.world.schedule(CrashAt::Event(random.between(1, 30)), CrashKind::Power);
        }
    }

    /// Lets a client use a volume or snapshot.
    async fn requests(&self, daemon: &Daemon, mix: &Mix) {
        if self.models.borrow().len() > 1 {
            return; // It is not known yet what there is.
        }
        let model = self.models.borrow()[0].clone();
        let names: Vec<String> = model.writable().into_keys().collect();
        self.requests_to_one(daemon, &model, &names, mix).await;
    }

    /// Carries out a command; a client uses a volume or snapshot meanwhile that stays as it is, now and then.
    async fn beside_requests<T>(
        &self,
        daemon: &Daemon,
        verb: &Verb,
        (before, after): (&Model, &Model),
        command: impl Future<Output = T>,
    ) -> T {
        let names = before.unchanged(after);
        // What a scan opens anew is flushed before it is read again, so that its client hears of losses.
        let opens_anew = matches!(verb, Verb::Scan) && self.trouble.borrow().is_some();
        if opens_anew || self.random.borrow_mut().chance(1, 2) {
            return command.await;
        }
        let mix = Mix::default();
        let requests = self.requests_to_one(daemon, before, &names, &mix);
        join(command, requests).await.0
    }

    /// Lets a client use one of the volumes and snapshots `names` of a model.
    async fn requests_to_one(&self, daemon: &Daemon, model: &Model, names: &[String], mix: &Mix) {
        if names.is_empty() {
            return;
        }
        let name = self.pick_used(names);
        let is_hurt = self.trouble.borrow().as_ref().is_some_and(|trouble| trouble.hurts(&name));
        let Some(client) = self.connect(daemon, model, &name, is_hurt).await else { return };
        let mut random = self.random.borrow_mut().fork();
        let number = random.between(1, 30);
        count(&self.counts.requests);
        let began = self.host.world.clock().now();
        let used = client.exercise_to_the_end(mix, number, &mut random).await;
        log(format_args!("{number} requests to {name}: {used:?}"));
        match used {
            Ok(()) | Err(IoError::NoSpace) => {}
            Err(_) if is_hurt => {}
            Err(error) => panic!("HISTORY9: {name} can be used: {error}"),
        }
        if let Some(trouble) = self.trouble.borrow().as_ref().filter(|trouble| trouble.has_survivor(&name)) {
            self.count(Event::ServedInTrouble);
            let took = self.host.world.clock().now().since(began);
            assert!(took < FaultPlan::STALL, "HISTORY9: {name} was served in {took:?}: {trouble:?}");
        }
        self.clients.borrow_mut().insert(name, client);
    }

    /// The volume or snapshot that a client uses next: one that is served although a disk is in trouble, more often than not.
    fn pick_used(&self, names: &[String]) -> String {
        let (trouble, mut random) = (self.trouble.borrow(), self.random.borrow_mut());
        let survives = |name: &&String| trouble.as_ref().is_some_and(|trouble| trouble.has_survivor(name));
        let survivors: Vec<&String> = names.iter().filter(survives).collect();
        match survivors.is_empty() || random.chance(1, 4) {
            true => random.pick(names).clone(),
            false => (*random.pick(&survivors)).clone(),
        }
    }

    /// A client of a volume or snapshot, if it is served; the one that is connected already, if one is.
    async fn connect(&self, daemon: &Daemon, model: &Model, name: &str, is_hurt: bool) -> Option<Client> {
        let connected = self.clients.borrow().get(name).cloned();
        if connected.is_some() {
            return connected;
        }
        let device = match daemon.device(name).await {
            Ok(device) => device,
            Err(_) if is_hurt => return None,
            Err(failure) => panic!("{name} can be used: {failure:?}"),
        };
        let oracle = Rc::clone(&model.contents()[name]);
        if device.shape().size != oracle.borrow().size() {
            assert!(is_hurt, "{name} has its size");
            return None;
        }
        Some(Client::new(device, self.host.world.arena(), oracle))
    }

    /// Clients of volumes of `part` of the model, and of their snapshots, make everything durable, and go.
    async fn disconnect(&self, part: &Model) {
        let is_in = |name: &String, _: &mut Client| part.volumes.contains_key(volume_of(name));
        let gone: Vec<(String, Client)> = self.clients.borrow_mut().extract_if(.., is_in).collect();
        for (_, client) in gone {
            let _ = client.flush().await;
        }
    }
}

/// The volume of which this names it, or a snapshot of it.
fn volume_of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// Whether a model allows these contents.
fn compare(model: &Model, contents: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    for (name, oracle) in model.contents() {
        let checked = oracle.borrow().fork().check(0, &contents[&name]);
        checked.map_err(|mismatch| format!("{name}: {mismatch}"))?;
    }
    Ok(())
}

/// Runs histories of one kind and tells what happened.
fn run_histories(name: TestName, kind: Kind, seeds: u64) {
    if std::env::var_os("VARVE_SIM_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().try_init();
    }
    let counts = Counts::default();
    run_seeds(name, seeds, |seed| History::new(seed, kind, &counts).run());
    counts.report();
}

#[test]
fn histories_of_a_daemon_with_crashes() {
    run_histories(test_name!("histories_of_a_daemon_with_crashes"), Kind::Plain, 600);
}

#[test]
fn histories_of_jobs_with_crashes() {
    run_histories(test_name!("histories_of_jobs_with_crashes"), Kind::Jobs, 300);
}

#[test]
fn histories_of_commands_given_together() {
    run_histories(test_name!("histories_of_commands_given_together"), Kind::Together, 15);
}

#[test]
fn histories_of_disks_in_trouble() {
    run_histories(test_name!("histories_of_disks_in_trouble"), Kind::Troubles, 200);
}

#[test]
fn histories_of_arrays_that_fail() {
    run_histories(test_name!("histories_of_arrays_that_fail"), Kind::Arrays, 50);
}

#[test]
fn histories_of_commands_that_fail() {
    run_histories(test_name!("histories_of_commands_that_fail"), Kind::Refused, 150);
}

#[test]
fn histories_of_disks_that_are_given_up() {
    run_histories(test_name!("histories_of_disks_that_are_given_up"), Kind::Away, 100);
}

/// With at least how many percent of the histories the oracle notices a bug that `inject` puts in and takes out.
fn control_of(bug: &str, kind: Kind, percent_min: u64, inject: impl Fn(bool)) {
    control_in(CONTROLS, bug, kind, percent_min, inject);
}

fn control_in(histories: u64, bug: &str, kind: Kind, percent_min: u64, inject: impl Fn(bool)) {
    let counts = Counts::default();
    caught_share(&format!("daemon, {bug}"), histories, percent_min, |seed| {
        inject(true);
        let noticed = catch_unwind(AssertUnwindSafe(|| History::new(seed, kind, &counts).run()));
        inject(false);
        if let Err(payload) = noticed {
            resume_unwind(payload);
        }
    });
}

#[test]
fn bugs_of_the_control_are_noticed() {
    let inject = |bug| move |is_in: bool| injected_bug::inject(is_in.then_some(bug));
    let text = "the text hears of a store when that is in use";
    control_of(text, Kind::Plain, 5, inject(InjectedBug::CommitLater));
    control_of("a job is forgotten", Kind::Jobs, 5, inject(InjectedBug::ForgetJob));
    control_of("two groups share a disk", Kind::Plain, 5, inject(InjectedBug::ShareDisk));
    let text = "a volume out of use keeps its disks";
    control_of(text, Kind::Refused, 5, inject(InjectedBug::KeepFenced));
    control_of("a mapped volume keeps a lost device", Kind::Away, 1, inject(InjectedBug::KeepDevice));
    let inject = |bug| move |is_in: bool| varve_volume::injected_bug::inject(is_in.then_some(bug));
    control_of("doors hear nothing of lost writes", Kind::Troubles, 3, inject(VolumeBug::HideLoss));
    let inject = |bug| move |is_in: bool| varve_vg::injected_bug::inject(is_in.then_some(bug));
    let text = "a group's text is acknowledged before it is durable";
    control_of(text, Kind::Plain, 10, inject(GroupBug::SkipFlush));
    control_of("a stale disk is believed", Kind::Away, 5, inject(GroupBug::BelieveStale));
}

#[test]
fn a_disk_that_answers_zeros_after_it_was_cut_is_noticed() {
    control_in(30, "a disk answers zeros after it was cut", Kind::Troubles, 10, |is_in| {
        watched::ANSWERS_CUT.set(is_in);
    });
}

#[test]
fn a_file_whose_lost_name_the_status_hides_is_noticed() {
    control_of("the status hides that a file has lost its name", Kind::Plain, 5, |is_in| {
        injected_bug::inject(is_in.then_some(InjectedBug::ForgetLooks));
    });
}

#[test]
fn a_set_that_is_undone_while_its_command_makes_it_is_noticed() {
    control_of("a set is undone while its command makes it", Kind::Together, 1, |is_in| {
        injected_bug::inject(is_in.then_some(InjectedBug::UndoUnlocked));
    });
}

#[test]
fn a_member_that_is_believed_though_part_of_it_was_cut_off_is_noticed() {
    control_in(30, "a member that was cut off is believed", Kind::Arrays, 20, |is_in| {
        injected_bug::inject(is_in.then_some(InjectedBug::KeepCutOff));
    });
}

#[test]
fn a_stale_member_of_an_array_that_is_believed_is_noticed() {
    control_in(20, "a stale member of an array is believed", Kind::Arrays, 40, |is_in| {
        varve_volume::injected_bug::inject(is_in.then_some(VolumeBug::BelieveMember));
    });
}
