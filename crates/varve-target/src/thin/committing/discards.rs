//! What becomes of discards, beside that parts are no longer mapped: free blocks may be discarded on the disks below.
//!
//! ```text
//!   discard ─► unmapped ─► record or checkpoint durable ─► no reader left ─► discarded on the disks ─► free
//! ```
//!
//! Invariant DISCARD1: discards are sent to the disks for blocks that are free on the disk, that are not being read, and that
//! cannot be taken before the disks have answered. So no crash leads to a discarded block, and no write to one is lost.

use super::super::{InjectedBug, Pool, PoolError};
use super::discard_state::{AT_ONCE, PASS_INTERVAL};
use crate::fan_out::fan_out;
use std::time::Duration;
use varve_block::{Extent, Io, LockMode};
use varve_format::text::Discards;

impl Pool {
    /// Declares what becomes of discards from now on.
    pub fn set_discards(&self, policy: Discards) {
        self.passing.policy.set(policy);
        self.map.pages().queue_discards(policy == Discards::PassDown);
        self.waiters.room_came();
    }

    /// What becomes of discards.
    pub fn discards(&self) -> Discards {
        self.passing.policy.get()
    }

    /// DISCARD1: sends the disks discards of what has become free, and then makes it free.
    pub(in crate::thin) async fn pass_down(&self) {
        let _turn = self.passing.turn.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        let runs = self.map.pages().take_discards();
        if runs.is_empty() {
            return;
        }
        assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].first), "DISCARD1: joined and in order");
        let device = self.device();
        if self.has_bug(InjectedBug::PassDownLate) {
            self.map.pages().discarded();
            self.clock.sleep(Duration::from_millis(5)).await;
        }
        for some in runs.chunks(AT_ONCE) {
            let told = fan_out(some.iter().map(|run| (&device, Io::Discard { extent: run.extent() }))).await;
            if let Err(error) = told {
                tracing::debug!(%error, "a disk does not want to know what is free"); // it was a hint
            }
        }
        self.map.pages().discarded();
        self.waiters.notify();
    }

    /// Brings back what was freed, and sends its discards to the disks, if that has waited long enough.
    pub(in crate::thin) async fn pass_down_in_time(&self) -> Result<(), PoolError> {
        let (now, freed) = (self.clock.now(), self.map.pages().data_freed());
        let is_new = self.discards() == Discards::PassDown && freed != self.passing.told.get();
        if !is_new || self.passing.told_at.get().is_some_and(|at| now.since(at) < PASS_INTERVAL) {
            return Ok(());
        }
        assert!(self.passing.told_at.get().is_none_or(|at| at <= now), "DISCARD1: time goes on");
        self.passing.told_at.set(Some(now));
        self.checkpoint().await?;
        self.passing.told.set(freed);
        Ok(())
    }
}
