//! The control: what is known of disks, groups, volumes, exports and jobs, and the changes to it, one at a time a group.
//!
//! It lives on the first shard. HTTP reaches it through a [`ControlHandle`]; it sends work to the volumes on their shards, and
//! hears of them by events.
//!
//! Invariants:
//! - CONTROL1. Changes hold the lock of what they change (`locking.rs`) from their first look at what is known to the end, so each
//!   sees the last one's result.
//! - CONTROL2. What is known of a group is what was last committed to its disks.

mod abandoned;
mod activate;
mod activation;
mod address;
mod array_log;
mod array_policy;
mod arrays;
mod bases;
mod change;
mod clearing;
mod committing;
mod conversions;
mod diff;
mod disks;
mod doors;
mod events;
mod exports;
mod failures;
mod figures;
mod find;
mod flatten;
mod groups;
mod handle;
mod identity;
mod image_commit;
mod image_jobs;
mod image_volumes;
mod images;
mod injected_bug;
mod instant;
mod job_list;
mod jobs;
mod known_disk;
mod known_export;
mod known_group;
mod known_jobs;
mod layers;
mod layout;
mod left_images;
mod limited;
mod locking;
mod locks;
mod looks;
mod lost;
mod lost_disks;
mod mappers;
mod moves;
mod options;
mod origins;
mod over_commit;
mod path_calls;
mod policy;
mod pool_check;
mod pools;
mod problems;
mod quotas;
mod rebuild;
mod reconcile;
mod records;
mod remembered;
mod removal;
mod reopen;
mod rescan;
mod restore;
mod rollback;
mod scrub;
mod shown_volume;
#[cfg(test)]
mod simulation;
mod snapshot_change;
mod snapshot_sets;
mod snapshots;
mod spares;
mod split;
mod stale;
mod stalled;
mod start;
mod stop;
mod store;
#[cfg(test)]
mod tests;
mod thin;
mod volume_map;
mod volumes;
mod watch;

pub use change::shown as shown_plan;
pub use failures::state_unusable;
pub use figures::Figures;
pub use handle::{ControlHandle, ControlOptions};
pub use job_list::Jobs;
pub use remembered::Remembered;
pub use restore::{Lost, refuse_lost};

use crate::events::Events;
use committing::Committing;
use futures_channel::oneshot;
use futures_util::lock::Mutex;
use known_disk::{DepartedDisk, KnownDisk};
use known_export::KnownExport;
use known_group::KnownGroup;
use known_jobs::Records;
use limited::Limits;
use locks::Locks;
use lost_disks::LostDisks;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Weak;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Cache, DaemonStatus, Failure, Health};
use varve_vg::RefusedGroup;
use varve_vg::model::PvName;
use varve_volume::nbd::DoorResources;
use varve_volume::spec::Accepts;
use varve_volume::{Host, ShardHandle};
use watch::Watch;

/// How long a disk may take for a small read before it counts as silent.
const PROBE: Duration = Duration::from_secs(1);

/// All that the daemon knows. Stays on the first shard.
pub struct Control {
    /// Itself, for tasks that outlive the command that began them.
    me: Weak<Control>,
    /// The host, as the first shard sees it.
    context: Host,
    shards: Vec<ShardHandle>,
    is_ring: bool,
    state_dir: PathBuf,
    cache: Cache,
    /// Folders in which the backing files of images may lie (LAYERS1 of `layers.rs`).
    image_dirs: Vec<PathBuf>,
    started: Cell<u64>,
    stopping: Cell<bool>,
    /// What is looked at again and again.
    watch: Watch,
    /// Dropped, it ends the watch over the disks.
    watching: RefCell<Vec<oneshot::Sender<()>>>,
    /// Dropped, it ends the control: nothing reaches it any more.
    serving: RefCell<Option<oneshot::Sender<()>>>,
    locks: Locks,
    /// How long a stop may take.
    stop_max: Duration,
    /// What the exit status is to tell.
    faults: RefCell<Vec<String>>,
    saving: Mutex<()>,
    disks: RefCell<BTreeMap<PathBuf, KnownDisk>>,
    /// Disks that were in use since the daemon started, by what their labels say (RESCAN4 of `rescan.rs`).
    departed: RefCell<BTreeMap<Uuid, DepartedDisk>>,
    limits: Limits,
    /// Remembered disks that cannot be opened.
    unopened: RefCell<BTreeMap<PathBuf, Failure>>,
    /// What a person has accepted of the arrays of volumes, while they are taken into use.
    accepted: RefCell<BTreeMap<Uuid, Accepts>>,
    /// How often arrays have gone on without what they have on a disk, by what its label says.
    ejections: RefCell<BTreeMap<Uuid, u64>>,
    /// Groups that are looked at anew until it is known which version of them counts (RESCAN2).
    settling: RefCell<BTreeSet<Uuid>>,
    /// Mismatches of the arrays of volumes and pools that a scrub has made good since the daemon started.
    made_good: RefCell<BTreeMap<Uuid, u64>>,
    lost_disks: LostDisks,
    /// Groups in use, as they were last committed (CONTROL2).
    groups: RefCell<BTreeMap<Uuid, KnownGroup>>,
    /// Groups that were found and cannot be used.
    refused: RefCell<Vec<RefusedGroup>>,
    exports: RefCell<BTreeMap<String, KnownExport>>,
    doors: DoorResources,
    jobs: Jobs,
    /// Those that stand in the texts of groups.
    records: Records,
    /// Volumes on which a job works, and which one.
    busy: RefCell<BTreeMap<Uuid, u64>>,
    /// Disks of groups that are being emptied, and by which job.
    moving: RefCell<BTreeMap<(Uuid, PvName), u64>>,
    /// Volumes and pools that jobs convert.
    converting: RefCell<BTreeSet<Uuid>>,
    /// Volumes whose images give what they hold to the images below them.
    committing: Committing,
    events: Events,
    remembered: RefCell<Remembered>,
}

impl Control {
    /// Itself, for a task that may outlive it.
    fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// Jobs that run or ended lately.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The daemon itself.
    pub fn status(&self) -> DaemonStatus {
        DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.started.get(),
            shards: u32::try_from(self.shards.len()).expect("there are fewer shards than that"),
            io: if self.is_ring { "ring" } else { "pool" }.to_owned(),
            state_dir: self.state_dir.display().to_string(),
            health: Health::Ok,
            problems: Vec::new(),
            attention: Vec::new(),
            events: self.events.list(),
        }
    }

    /// All that is exposed as metrics.
    pub async fn figures(&self) -> Result<Figures, Failure> {
        let mut groups = self.list_groups();
        for group in &mut groups {
            self.add_memory(group).await;
        }
        let running = |job: &varve_api::Job| job.state == varve_api::JobState::Running;
        Ok(Figures {
            status: self.status_with_problems().await?,
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
        let words = varve_volume::health::words(payload);
        self.fault(format!("a command ended with a panic: {words}"));
        self.warn("daemon", &format!("a command ended with a panic: {words}"));
        failures::internal(&words)
    }

    /// Makes what is remembered durable.
    async fn save(&self) -> Result<(), Failure> {
        let _alone = self.saving.lock().await;
        let remembered = self.remembered.borrow().text();
        let saved = self.context.files_at(&self.state_dir, move |files| files.save(&remembered)).await?;
        let saved = saved.map_err(|error| state_unusable(&self.state_dir, &error));
        self.watch.unsaved.replace(saved.clone().err());
        saved
    }

    /// Like [`Control::save`], where a failure must not undo what was done: it is logged.
    async fn save_or_warn(&self) {
        if let Err(failure) = self.save().await {
            tracing::warn!(%failure, "what is remembered could not be written; after a restart use varve pv scan");
        }
    }

    /// Something happened.
    fn event(&self, subject: &str, message: &str) {
        self.events.record(self.now(), subject, message);
    }

    /// Something happened that needs attention.
    pub fn warn(&self, subject: &str, message: &str) {
        self.events.warn(self.now(), subject, message);
    }

    /// A new identity.
    fn new_id(&self) -> Uuid {
        self.context.new_id()
    }
}
