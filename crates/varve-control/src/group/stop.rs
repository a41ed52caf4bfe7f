//! The end of the daemon: exports closed, volumes made durable, within a deadline. What does not end is named and left
//! behind.
//!
//! Invariants:
//! - STOP1. Writes that wait for space fail before anything waits for them.
//! - STOP2. A disk that does not answer keeps nothing of other disks from being made durable.
//! - STOP3. All stages together take no longer than the stop may.
//! - STOP4. A mapper that is away keeps no volume waiting but the one that it maps and the devices of that.

use super::known_group::KnownGroup;
use crate::backing::mappers::mapper_trouble;
use crate::host::known_disk::KnownDisk;
use crate::{Control, PROBE};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;
use varve_block::Moment;
use varve_volume::lifecycle::reason::Reason;
use varve_volume::{NoAnswer, ShardHandle};

/// Until when the stages of a stop may take, the earlier ones included: what one leaves the next ones have. The last twelfth is
/// that of the shards.
struct Stages {
    commands: Moment,
    exports: Moment,
    volumes: Moment,
    devices: Moment,
    state: Moment,
}

impl Stages {
    fn of(begin: Moment, all: Duration) -> Self {
        let after = |twelfths: u32| begin.after(all * twelfths / 12);
        Self {
            commands: after(3),
            exports: after(6),
            volumes: after(9),
            devices: after(10),
            state: after(11),
        }
    }
}

impl Control {
    /// Closes every export, makes every volume durable, releases everything; notes what could not be done.
    pub(crate) async fn stop(&self) {
        self.life.stopping.set(true);
        let stages = Stages::of(self.context.clock().now(), self.life.stop_max); // STOP3
        self.fail_waiting(stages.commands).await;
        let changes = self.until(stages.commands, self.lock_everything()).await;
        if changes.is_none() {
            tracing::warn!("a command does not end: the daemon stops without it");
        }
        self.close_exports(stages.exports).await;
        self.close_volumes(stages.volumes, false).await;
        self.close_volumes(stages.devices, true).await; // CONTROLMAPPER2 of `mappers.rs`
        let _ = self.until(stages.state, self.erase_ended_jobs()).await;
        if self.until(stages.state, self.save_or_warn()).await.is_none() {
            self.fault("the state directory does not answer".to_owned());
        }
        if self.until(stages.state, self.memory.archive.write()).await.is_none() {
            tracing::warn!(
                "the state directory does not answer: the archive of groups lacks their last texts"
            );
        }
        let now = self.context.clock().now();
        let probe = stages.state.min(now.after(PROBE)).max(now.after(PROBE / 4));
        for path in &self.silent_disks(probe).await {
            self.fault(format!("the disk {} does not answer: it is left behind", path.display()));
        }
        self.groups.known.borrow_mut().clear();
        self.disks.known.borrow_mut().clear();
    }

    /// Fails the writes that wait for space, which nothing could wait for (STOP1).
    async fn fail_waiting(&self, deadline: Moment) {
        let told = self.shards.iter().map(ShardHandle::fail_waiting);
        let _ = self.until(deadline, join_all(told)).await;
    }

    /// STOP2, STOP4, of volumes that are devices of mappers, or of the others.
    async fn close_volumes(&self, deadline: Moment, are_devices: bool) {
        let homes: Vec<(Uuid, ShardHandle)> = {
            let groups = self.groups.known.borrow();
            let devices: BTreeSet<Uuid> = groups.values().flat_map(KnownGroup::devices).collect();
            let homes = groups.values().flat_map(|known| &known.homes);
            let used =
                homes.filter(|(id, home)| home.unusable.is_none() && devices.contains(id) == are_devices);
            used.map(|(volume, home)| (*volume, home.shard.clone())).collect()
        };
        let closed = join_all(homes.into_iter().map(async |(volume, shard)| {
            let closed = shard.volume(volume).close(Reason::Deactivated);
            let trouble = match self.until(deadline, closed).await {
                Some(Ok(Ok(()))) => return Some(volume),
                Some(Ok(Err(failure))) => failure.message,
                Some(Err(NoAnswer::Gone)) => "its shard has ended".to_owned(),
                Some(Err(NoAnswer::Failed)) => "it failed".to_owned(),
                None => {
                    // Its shard may not answer, either.
                    let soon = self.context.clock().now().after(PROBE);
                    let trouble = self.until(soon, mapper_trouble(&shard, volume)).await.flatten();
                    trouble.unwrap_or_else(|| "it did not end in time".to_owned())
                }
            };
            self.fault(format!("{} could not be made durable: {trouble}", self.subject(volume)));
            None
        }))
        .await;
        let closed: Vec<Uuid> = closed.into_iter().flatten().collect();
        let _ = self.until(deadline, self.remember_left(&closed)).await;
    }

    /// Disks that are known and do not answer a small read until `deadline`.
    pub(crate) async fn silent_disks(&self, deadline: Moment) -> Vec<PathBuf> {
        let disks: Vec<_> = {
            let disks = self.disks.known.borrow();
            let disk = |known: &KnownDisk| {
                (self.context.disk(&known.file), self.disks.limits.is_overdue(&known.file))
            };
            disks.iter().map(|(path, known)| (path.clone(), disk(known))).collect()
        };
        let arena = self.context.arena();
        let asked = disks.into_iter().map(async |(path, (disk, is_overdue))| {
            if is_overdue {
                return Some(path); // LIMIT2: what it answers now would not be read.
            }
            let length = usize::try_from(disk.shape().block_size).expect("a block is small");
            let answer = self.until(deadline, disk.read(0, arena.take(length))).await;
            answer.is_none().then_some(path)
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Something went wrong that the exit status of the daemon is to tell.
    pub(crate) fn fault(&self, what: String) {
        tracing::error!(what, "the exit status will say so");
        self.life.faults.borrow_mut().push(what);
    }
}
