//! The end of the daemon: exports closed, volumes made durable, within a deadline. What does not end is named and left
//! behind.
//!
//! Invariants:
//! - Z1. Writes that wait for space fail before anything waits for them.
//! - Z2. A disk that does not answer keeps nothing of other disks from being made durable.

use super::{Control, PROBE};
use crate::shard::{NoAnswer, ShardHandle, family, here};
use futures_util::future::{Either, join_all, select};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;
use uuid::Uuid;
use varve_block::Moment;
use varve_os::ShardContext;

/// How long volumes may take at least, whatever exports have taken.
const VOLUMES_MIN: Duration = Duration::from_secs(5);

impl Control {
    /// Closes every export, makes every volume durable, lets go of everything; notes what could not be done.
    pub(super) async fn stop(&self) {
        self.stopping.set(true);
        let clock = self.context.clock();
        let deadline = clock.now().after(self.stop_max);
        self.fail_waiting(deadline).await;
        let half = clock.now().after(self.stop_max / 2);
        let changes = self.until(half, self.all_turns()).await;
        if changes.is_none() {
            tracing::warn!("a command does not end: the daemon stops without it");
        }
        self.close_exports(deadline).await;
        let deadline = deadline.max(clock.now().after(VOLUMES_MIN));
        self.close_volumes(deadline).await;
        let silent = self.silent_disks().await;
        for path in &silent {
            self.fault(format!("the disk {} does not answer: it is left behind", path.display()));
        }
        if self.until(clock.now().after(VOLUMES_MIN), self.save_or_warn()).await.is_none() {
            self.fault("the state directory does not answer".to_owned());
        }
        self.groups.borrow_mut().clear();
        self.disks.borrow_mut().clear();
    }

    /// Z1.
    async fn fail_waiting(&self, deadline: Moment) {
        let told = self.shards.iter().map(|shard| {
            shard.run(async move |_: ShardContext| {
                here().pools.borrow().values().for_each(|pool| pool.let_writes_fail(true));
                here().families.borrow().values().for_each(|family| family.let_writes_fail(true));
            })
        });
        let _ = self.until(deadline, join_all(told)).await;
    }

    /// Z2.
    async fn close_volumes(&self, deadline: Moment) {
        let homes: Vec<(Uuid, ShardHandle)> = {
            let groups = self.groups.borrow();
            let homes = groups.values().flat_map(|known| &known.homes);
            let used = homes.filter(|(_, home)| home.unusable.is_none());
            used.map(|(volume, home)| (*volume, home.shard.clone())).collect()
        };
        join_all(homes.into_iter().map(async |(volume, shard)| {
            let closed = shard.run(async move |_: ShardContext| family::deactivate(volume).await);
            let trouble = match self.until(deadline, closed).await {
                Some(Ok(Ok(()))) => return,
                Some(Ok(Err(failure))) => failure.message,
                Some(Err(NoAnswer::Gone)) => "its shard has ended".to_owned(),
                Some(Err(NoAnswer::Failed)) => "it failed".to_owned(),
                None => "it did not end in time".to_owned(),
            };
            self.fault(format!("{} could not be made durable: {trouble}", self.subject(volume)));
        }))
        .await;
    }

    /// `work`, unless it takes longer than until `deadline`.
    pub(super) async fn until<T>(&self, deadline: Moment, work: impl Future<Output = T>) -> Option<T> {
        let clock = self.context.clock();
        let left = deadline.since(clock.now());
        match select(pin!(work), clock.sleep(left)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    /// Disks that are known and do not answer a small read soon.
    pub(super) async fn silent_disks(&self) -> Vec<PathBuf> {
        let disks: Vec<_> = {
            let disks = self.disks.borrow();
            disks.iter().map(|(path, known)| (path.clone(), self.context.disk(&known.file))).collect()
        };
        let deadline = self.context.clock().now().after(PROBE);
        let arena = self.context.arena();
        let asked = disks.into_iter().map(async |(path, disk)| {
            let length = usize::try_from(disk.shape().block_size).expect("a block is small");
            let answer = self.until(deadline, disk.read(0, arena.take(length))).await;
            answer.is_none().then_some(path)
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Something went wrong that the exit status of the daemon is to tell.
    pub(super) fn fault(&self, what: String) {
        tracing::error!(what, "the exit status will say so");
        self.faults.borrow_mut().push(what);
    }
}
