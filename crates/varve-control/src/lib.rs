//! The control: what is known of disks, groups, volumes, exports and jobs, and the changes to it, one at a time a group.
//!
//! It lives on the first shard. HTTP reaches it through a [`ControlHandle`]; it sends work to the volumes on their shards, and
//! hears of them by events.
//!
//! Invariants:
//! - CONTROL1. Changes hold the lock of what they change (`locking.rs`) from their first look at what is known to the end, so each
//!   sees the last one's result.
//! - CONTROL2. What is known of a group is what was last committed to its disks.

mod backing;
mod commands;
mod exports;
mod failures;
mod find;
mod group;
mod handle;
mod host;
mod injected_bug;
mod jobs;
mod schedules;
#[cfg(test)]
mod simulation;
mod status;
#[cfg(test)]
mod tests;
mod trash;

pub use commands::restore::{Lost, refuse_lost};
pub use exports::handover::Handover;
pub use exports::server::HandedSocket;
pub use failures::state_unusable;
pub use group::change::shown as shown_plan;
pub use handle::{ControlHandle, ControlOptions};
pub use host::remembered::Remembered;
pub use jobs::job_list::Jobs;
pub use schedules::Schedules;
pub use status::figures::{DiskFigures, Figures};
pub use trash::Trash;

use crate::status::events::Events;
use exports::known_exports::Exports;
use group::known_groups::{Arrays, Groups};
use group::locks::Locks;
use host::known_disks::Disks;
use host::life::Life;
use host::memory::Memory;
use host::path_calls::{at_path, within};
use jobs::known_jobs::KnownJobs;
use status::watch::Watch;
use std::path::{Path, PathBuf};
use std::rc::Weak;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Cache, DaemonStatus, Failure, Health};
use varve_block::Moment;
use varve_format::version_of;
use varve_volume::world::{ArchivedText, Files};
use varve_volume::{Host, ShardHandle};

/// How long a disk may take for a small read before it is called silent.
const PROBE: Duration = Duration::from_secs(1);

/// All that the daemon knows. Stays on the first shard.
pub struct Control {
    /// Itself, for tasks that outlive the command that began them.
    me: Weak<Control>,
    /// The host, as the first shard sees it.
    context: Host,
    shards: Vec<ShardHandle>,
    is_ring: bool,
    cache: Cache,
    /// Folders in which the backing files of images may be (LAYERS1 of `layers.rs`).
    image_dirs: Vec<PathBuf>,
    life: Life,
    /// What is looked at again and again.
    watch: Watch,
    locks: Locks,
    disks: Disks,
    arrays: Arrays,
    groups: Groups,
    exports: Exports,
    jobs: KnownJobs,
    events: Events,
    memory: Memory,
}

impl Control {
    /// Itself, for a task that may outlive it.
    fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// Jobs that run or ended lately.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs.list
    }

    /// The daemon itself.
    pub fn status(&self) -> DaemonStatus {
        DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.life.started.get().unwrap_or_default(),
            shards: u32::try_from(self.shards.len()).expect("there are fewer shards than that"),
            io: if self.is_ring { "ring" } else { "pool" }.to_owned(),
            state_dir: self.memory.state_dir.display().to_string(),
            trash: self.groups.known.borrow().values().map(|known| known.group.trash_bytes()).sum(),
            health: Health::Ok,
            problems: Vec::new(),
            attention: Vec::new(),
            events: self.events.list(),
        }
    }

    /// Seconds since 1970.
    fn now(&self) -> u64 {
        self.context.clock().date().0
    }

    /// `work`, unless it takes longer than until `deadline`.
    async fn until<T>(&self, deadline: Moment, work: impl Future<Output = T>) -> Option<T> {
        within(&self.context, deadline.since(self.context.clock().now()), work).await
    }

    /// Does `work` with what is at `path`, on a thread of its own (PATHCALL1 of `path_calls.rs`).
    async fn at_path<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&dyn Files) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        at_path(&self.context, path, work).await
    }

    /// A command ended with a panic.
    fn panicked(&self, payload: &(dyn std::any::Any + Send)) -> Failure {
        let words = varve_volume::lifecycle::health::words(payload);
        self.fault(format!("a command ended with a panic: {words}"));
        self.warn("daemon", &format!("a command ended with a panic: {words}"));
        failures::internal(&words)
    }

    /// Makes what is remembered durable.
    async fn save(&self) -> Result<(), Failure> {
        let _alone = self.memory.saving.lock().await;
        let remembered = self.memory.remembered.borrow().text();
        let saved =
            self.context.files_at(&self.memory.state_dir, move |files| files.save(&remembered)).await?;
        let saved = saved.map_err(|error| state_unusable(&self.memory.state_dir, &error));
        self.watch.unsaved.replace(saved.clone().err());
        saved
    }

    /// Like [`Control::save`], where a failure must not undo what was done: it is logged.
    async fn save_or_warn(&self) {
        if let Err(failure) = self.save().await {
            tracing::warn!(%failure, "what is remembered could not be written; after a restart use varve pv scan");
        }
    }

    /// Archives the text of a group soon, if it is another one than before and no other may be valid instead.
    fn archive_soon(&self, group: Uuid) {
        let found = self.with_group(group, |known| {
            let (name, text) = (known.group.name().to_owned(), known.group.text());
            let sequence = known.group.entry().sequence;
            let version = version_of(group, sequence, None, &text);
            known.undecided.is_none().then_some(ArchivedText { name, sequence, version, text })
        });
        if let Ok(Some(text)) = found {
            self.memory.archive.keep(group, text);
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
