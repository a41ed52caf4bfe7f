//! The control: what is known of disks, groups, volumes, exports and jobs, and the changes to it, one at a time a group.
//!
//! It lives on the first shard. HTTP reaches it through a [`ControlHandle`]; volumes on other shards are reached by
//! sending futures there.
//!
//! Invariants:
//! - C1. Changes hold the lock of what they change (`turns.rs`) from their first look at what is known to the end, so each
//!   sees the last one's result.
//! - C2. What is known of a group is what was last committed to its disks.

mod abandoned;
mod activate;
mod activation;
mod address;
mod bases;
mod change;
mod clearing;
mod diff;
mod disks;
mod doors;
mod exports;
mod find;
mod flatten;
mod groups;
mod images;
mod instant;
mod jobs;
mod layout;
mod lost;
mod origins;
mod over_commit;
mod own_exports;
mod patience;
mod policy;
mod pool_check;
mod pools;
mod ration;
mod reconcile;
mod removal;
mod reopen;
mod rescan;
mod restore;
mod rollback;
mod sets;
mod snapshots;
mod stale;
mod stalled;
mod start;
mod stop;
mod store;
#[cfg(test)]
mod tests;
mod thin;
mod turns;
mod volumes;

pub(crate) use activation::volume_failed;
pub use change::shown as shown_plan;
pub use restore::{Lost, refuse_lost};
pub(crate) use store::{extend_store, snapshot_dropped, tell};

use crate::config::Config;
use crate::events::Events;
use crate::failures;
use crate::jobs::Jobs;
use crate::metrics::Figures;
use crate::shard::ShardHandle;
use crate::shard::nbd::DoorResources;
use crate::state::{self, Remembered};
use disks::KnownDisk;
use exports::KnownExport;
use futures_channel::oneshot;
use futures_util::future::{FutureExt, join_all, select_all};
use futures_util::lock::Mutex;
use groups::KnownGroup;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use turns::Turns;
use uuid::Uuid;
use varve_api::{Cache, Code, DaemonStatus, Failure, GroupState, PhysicalVolumeState, VolumeState};
use varve_os::ShardContext;
use varve_vg::RefusedGroup;

/// How long a disk may take for a small read before it counts as silent.
const PROBE: Duration = Duration::from_secs(1);

thread_local! {
    static CONTROL: RefCell<Option<Rc<Control>>> = const { RefCell::new(None) };
}

/// All that the daemon knows. Stays on the first shard.
pub(crate) struct Control {
    context: ShardContext,
    shards: Vec<ShardHandle>,
    is_ring: bool,
    state_dir: PathBuf,
    cache: Cache,
    started: Cell<u64>,
    stopping: Cell<bool>,
    /// Disks whose silence was told of.
    stalled: RefCell<BTreeSet<PathBuf>>,
    /// Dropped, it ends the watch over the disks.
    watching: RefCell<Option<oneshot::Sender<()>>>,
    turns: Turns,
    /// How long a stop may take.
    stop_max: Duration,
    /// What the exit status is to tell.
    faults: RefCell<Vec<String>>,
    saving: Mutex<()>,
    disks: RefCell<BTreeMap<PathBuf, KnownDisk>>,
    /// Remembered disks that cannot be opened.
    unopened: RefCell<BTreeMap<PathBuf, Failure>>,
    /// Groups in use, as they were last committed (C2).
    groups: RefCell<BTreeMap<Uuid, KnownGroup>>,
    /// Groups that were found and cannot be used.
    refused: RefCell<Vec<RefusedGroup>>,
    exports: RefCell<BTreeMap<String, KnownExport>>,
    doors: DoorResources,
    jobs: Jobs,
    /// Volumes on which a job works, and which one.
    busy: RefCell<BTreeMap<Uuid, u64>>,
    events: Events,
    remembered: RefCell<Remembered>,
}

/// Reaches the control from any thread.
#[derive(Clone)]
pub(crate) struct ControlHandle {
    shards: Vec<ShardHandle>,
}

impl ControlHandle {
    /// Makes the control on the first of `shards`: finds disks, activates volumes, brings exports back.
    pub(crate) async fn start(
        shards: Vec<varve_os::ShardHandle>,
        is_ring: bool,
        config: &Config,
        remembered: Remembered,
    ) -> Result<Self, Failure> {
        let shards: Vec<ShardHandle> = shards.into_iter().map(ShardHandle::from).collect();
        let handle = Self { shards: shards.clone() };
        let (state_dir, cache, stop_max) = (config.state.clone(), config.cache, config.stop_timeout);
        let (first, doors) = (shards[0].clone(), DoorResources::new(config));
        let started = first.run(async move |context: ShardContext| {
            let control = Rc::new(Control {
                context,
                shards,
                is_ring,
                state_dir,
                cache,
                started: Cell::new(0),
                stopping: Cell::new(false),
                stalled: RefCell::default(),
                watching: RefCell::default(),
                turns: Turns::default(),
                stop_max,
                faults: RefCell::default(),
                saving: Mutex::new(()),
                disks: RefCell::default(),
                unopened: RefCell::default(),
                groups: RefCell::default(),
                refused: RefCell::default(),
                exports: RefCell::default(),
                doors,
                jobs: Jobs::default(),
                busy: RefCell::default(),
                events: Events::default(),
                remembered: RefCell::new(remembered),
            });
            CONTROL.with(|place| place.replace(Some(Rc::clone(&control))));
            control.start().await
        });
        started.await.map_err(failures::gone)??;
        Ok(handle)
    }

    /// Runs `work` beside the control and answers with its result.
    pub(crate) async fn call<T, W>(&self, work: W) -> Result<T, Failure>
    where
        T: Send + 'static,
        W: AsyncFnOnce(Rc<Control>) -> Result<T, Failure> + Send + 'static,
    {
        let answer = self.shards[0].run(async move |_: ShardContext| match current() {
            Some(control) => {
                let worked = AssertUnwindSafe(work(Rc::clone(&control))).catch_unwind().await;
                worked.unwrap_or_else(|payload| Err(control.panicked(&*payload)))
            }
            None => Err(Failure::new(Code::Stopping, "the daemon is stopping")),
        });
        answer.await.map_err(failures::gone)?
    }

    /// Completes when a shard has broken down.
    pub(crate) async fn broken(&self) {
        let watch = |shard: &ShardHandle| {
            Box::pin(shard.run(async |_: ShardContext| std::future::pending::<()>().await))
        };
        let _ = select_all(self.shards.iter().map(watch)).await;
    }

    /// Closes every export, makes every volume durable, lets go of every disk. An error tells what went wrong in the
    /// daemon's life, or could not be made durable. Nothing happens if it has stopped already.
    pub(crate) async fn stop(&self) -> Result<(), Failure> {
        let stopped = self.shards[0].run(async move |_: ShardContext| {
            let Some(control) = current() else { return Vec::new() };
            control.stop().await;
            control.watching.take();
            CONTROL.with(RefCell::take);
            control.faults.take()
        });
        let faults = stopped.await.map_err(|_| {
            Failure::new(Code::Failed, "the control has ended: what was in use may not be durable")
        })?;
        let Some(first) = faults.first() else { return Ok(()) };
        let more = if faults.len() > 1 { format!(", and {} more", faults.len() - 1) } else { String::new() };
        Err(Failure::new(Code::Failed, format!("not all went well: {first}{more}"))
            .help("the daemon's log has all of it"))
    }

    /// Whether every shard answers within `patience`; else which one does not.
    pub(crate) async fn answers(&self, patience: Duration) -> Result<(), Failure> {
        let ask = |shard: &ShardHandle| {
            let (index, answer) = (shard.index(), shard.run(async |_: ShardContext| ()));
            async move { (index, tokio::time::timeout(patience, answer).await) }
        };
        for (index, answer) in join_all(self.shards.iter().map(ask)).await {
            match answer {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Failure::new(Code::Failed, format!("shard {index} has ended"))),
                Err(_) => return Err(Failure::new(Code::Failed, format!("shard {index} does not answer"))),
            }
        }
        Ok(())
    }
}

/// The control, on its shard, while the daemon runs.
fn current() -> Option<Rc<Control>> {
    CONTROL.with(|place| place.borrow().clone())
}

impl Control {
    /// Jobs that run or ended lately.
    pub(crate) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The daemon itself, and what is not as it should be.
    pub(crate) async fn status_with_problems(&self) -> Result<DaemonStatus, Failure> {
        let mut problems = Vec::new();
        let mut add = |noun: &str, name: &str, state: &str, reason: &Option<String>| {
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            problems.push(format!("{noun} {name} is {state}{reason}"));
        };
        for disk in self.list_disks() {
            if !matches!(disk.state, PhysicalVolumeState::Ok | PhysicalVolumeState::Unused) {
                add("pv", disk.path.as_deref().unwrap_or(&disk.id), disk.state.word(), &disk.reason);
            }
        }
        for group in self.list_groups().iter().filter(|group| group.state != GroupState::Ok) {
            add("vg", &group.name, group.state.word(), &group.reason);
        }
        for pool in self.list_pools(None).await? {
            if pool.state != VolumeState::Active {
                add("pool", &pool.name, pool.state.word(), &pool.reason);
            }
        }
        for volume in self.list_volumes(None).await? {
            if volume.state != VolumeState::Active {
                add("lv", &volume.name, volume.state.word(), &volume.reason);
            }
        }
        Ok(DaemonStatus { problems, ..self.status() })
    }

    /// The daemon itself.
    pub(crate) fn status(&self) -> DaemonStatus {
        DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.started.get(),
            shards: u32::try_from(self.shards.len()).expect("there are fewer shards than that"),
            io: if self.is_ring { "ring" } else { "pool" }.to_owned(),
            state_dir: self.state_dir.display().to_string(),
            problems: Vec::new(),
            events: self.events.list(),
        }
    }

    /// All that is exposed as metrics.
    pub(crate) async fn figures(&self) -> Result<Figures, Failure> {
        let mut groups = self.list_groups();
        for group in &mut groups {
            self.add_memory(group).await;
        }
        let running = |job: &varve_api::Job| job.state == varve_api::JobState::Running;
        Ok(Figures {
            status: self.status(),
            groups,
            volumes: self.list_volumes(None).await?,
            pools: self.list_pools(None).await?,
            exports: self.list_exports().await?,
            arena: self.context.arena().usage(),
            jobs_running: self.jobs.list().iter().filter(|job| running(job)).count() as u64,
        })
    }

    /// Seconds since 1970.
    fn now(&self) -> u64 {
        self.context.clock().date().0
    }

    /// A command ended with a panic.
    fn panicked(&self, payload: &(dyn std::any::Any + Send)) -> Failure {
        let words = crate::shard::health::words(payload);
        self.fault(format!("a command ended with a panic: {words}"));
        self.warn("daemon", &format!("a command ended with a panic: {words}"));
        failures::internal(&words)
    }

    /// Makes what is remembered durable.
    async fn save(&self) -> Result<(), Failure> {
        let _alone = self.saving.lock().await;
        let (directory, remembered) = (self.state_dir.clone(), self.remembered.borrow().clone());
        let place = directory.clone();
        let saved = self.context.blocking_at(place, move || state::save(&directory, &remembered)).await;
        saved.map_err(failures::gone)?
    }

    /// Like [`Control::save`], where a failure must not undo what was done: it is told in the log.
    async fn save_or_warn(&self) {
        if let Err(failure) = self.save().await {
            tracing::warn!(%failure, "what is remembered could not be written; after a restart use varve pv scan");
        }
    }

    /// Makes what is remembered durable while others go on; completes when it is.
    fn save_soon(&self) -> oneshot::Receiver<()> {
        let (sender, saved) = oneshot::channel();
        self.context.spawner().spawn(async {
            if let Some(control) = current() {
                control.save_or_warn().await;
                let _ = sender.send(());
            }
        });
        saved
    }

    /// Something happened.
    fn event(&self, subject: &str, message: &str) {
        self.events.record(self.now(), subject, message);
    }

    /// Something happened that somebody should look at.
    pub(crate) fn warn(&self, subject: &str, message: &str) {
        self.events.warn(self.now(), subject, message);
    }

    /// A new identity.
    fn new_id(&self) -> Uuid {
        Uuid::new_v4()
    }
}
