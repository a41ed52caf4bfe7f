//! Histories of a whole daemon below HTTP on a simulated host: random commands and requests, with crashes at any step.
//!
//! Invariants:
//! - M1. After a crash the lists show the model as it was before the command that was under way, or as it is after it.
//! - M2. Every volume and snapshot reads what the model says.
//! - M3. Once nothing goes wrong any more, all jobs end, and everything is well.

mod daemon;
mod host;
mod model;
mod verbs;

use daemon::Daemon;
use host::Host;
use model::{Lists, Model};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_api::{Code, Failure};
use varve_block::IoError;
use varve_sim::{Client, CrashAt, CrashKind, Mix, Random, run_seeds, test_name};
use verbs::Verb;

/// Lives of the daemon in a history; the last one is not cut short.
const LIVES: usize = 4;
/// Commands and batches of requests in a life, at most.
const STEPS_MAX: u64 = 14;

/// Errors that a command may end with though nothing went wrong: there is not always room.
const NO_ROOM: [Code; 6] = [
    Code::NoSpaceInGroup,
    Code::SnapshotsFull,
    Code::NoSpaceForSnapshots,
    Code::PoolFull,
    Code::VolumeBusy,
    Code::SnapshotMergesNow,
];

struct History {
    host: Rc<Host>,
    random: RefCell<Random>,
    /// What there may be: one model, or what a command that was cut short was to lead from and to.
    models: RefCell<Vec<Model>>,
}

impl History {
    fn new(seed: u64) -> Self {
        let host = Host::new(seed);
        let random = RefCell::new(host.world.random());
        Self { host, random, models: RefCell::new(vec![Model::default()]) }
    }

    fn run(&self) {
        for life in 1..=LIVES {
            let is_last = life == LIVES;
            let (at, kind) = {
                let mut random = self.random.borrow_mut();
                let events_max = *random.pick(&[30, 300, 3000]);
                let kind = *random.pick(&[CrashKind::Power, CrashKind::Power, CrashKind::Process]);
                (CrashAt::Event(random.between(1, events_max)), kind)
            };
            if !is_last {
                self.host.world.schedule(at, kind);
            }
            let ran = self.host.world.run_until_crash(self.live(is_last));
            if !ran.crashed() {
                self.host.world.crash(kind);
            }
            model::crashed(&self.models.borrow());
        }
    }

    /// One life of a daemon.
    async fn live(&self, is_last: bool) {
        let daemon = Daemon::start(&self.host).await;
        daemon.idle().await; // M3
        self.settle(&daemon).await;
        let steps = self.random.borrow_mut().below(STEPS_MAX);
        for _ in 0..steps {
            if self.random.borrow_mut().chance(1, 2) {
                self.command(&daemon).await
            } else {
                self.requests(&daemon).await
            }
        }
        if is_last || self.random.borrow_mut().chance(1, 4) {
            daemon.idle().await;
            self.settle(&daemon).await;
            daemon.stop().await;
            model::stopped(&self.models.borrow());
        }
    }

    /// Finds out which of the models is true (M1, M2).
    async fn settle(&self, daemon: &Daemon) {
        let shown = daemon.lists().await.expect("it runs");
        let mut models = self.models.borrow().clone();
        let wanted: Vec<Lists> = models.iter().map(Model::lists).collect();
        models.retain(|model| model.lists() == shown);
        assert!(!models.is_empty(), "M1: it shows {shown:#?}, and is to show one of {wanted:#?}");
        let contents = daemon.contents(&models[0]).await;
        let mut wrong = Vec::new();
        models.retain(|model| match compare(model, &contents) {
            Ok(()) => true,
            Err(problem) => {
                wrong.push(problem);
                false
            }
        });
        assert!(!models.is_empty(), "M2: {wrong:#?}");
        models.truncate(1);
        for (name, oracle) in models[0].contents() {
            oracle.borrow_mut().check(0, &contents[&name]).expect("it was compared");
        }
        self.models.replace(models);
    }

    /// Gives a command; the model follows.
    async fn command(&self, daemon: &Daemon) {
        let before = self.models.borrow()[0].clone();
        let verb = Verb::pick(&before, &mut self.random.borrow_mut());
        let after = verb.apply(&before);
        self.models.replace(vec![before.clone(), after.clone()]);
        let outcome: Result<(), Failure> = verb.clone().issue(daemon).await;
        self.models.replace(vec![match outcome {
            Ok(()) => after,
            Err(failure) if NO_ROOM.contains(&failure.code) => before,
            Err(failure) => panic!("{verb:?} fails: {failure:?}"),
        }]);
        let (shown, model) = (daemon.lists().await.expect("it runs"), self.models.borrow()[0].lists());
        assert_eq!(shown, model, "M1, after {verb:?}");
    }

    /// Lets a client use a volume or snapshot.
    async fn requests(&self, daemon: &Daemon) {
        let model = self.models.borrow()[0].clone();
        let writable = |name: &String| match name.split_once('@') {
            Some((volume, own)) => !model.volumes[volume].snapshots[own].read_only,
            None => true,
        };
        let names: Vec<String> = model.contents().into_keys().filter(writable).collect();
        if names.is_empty() {
            return;
        }
        let name = self.random.borrow_mut().pick(&names).clone();
        let device = daemon.device(&name).await;
        let client = Client::new(device, self.host.world.arena(), Rc::clone(&model.contents()[&name]));
        let mut random = self.random.borrow_mut().fork();
        let count = random.between(1, 30);
        match client.exercise(&Mix::default(), count, &mut random).await {
            Ok(()) | Err(IoError::NoSpace) => {}
            Err(error) => panic!("{name} can be used: {error}"),
        }
    }
}

/// Whether a model allows these contents.
fn compare(model: &Model, contents: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    for (name, oracle) in model.contents() {
        let checked = oracle.borrow().fork().check(0, &contents[&name]);
        checked.map_err(|mismatch| format!("{name}: {mismatch}"))?;
    }
    Ok(())
}

#[test]
fn histories_of_a_daemon_with_crashes() {
    run_seeds(test_name!("histories_of_a_daemon_with_crashes"), 100, |seed| History::new(seed).run());
}
