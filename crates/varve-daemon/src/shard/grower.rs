//! Asks the control for a larger snapshot store: before it is full, and when a change does not fit.
//!
//! Invariant Y1: at most one request of a volume is under way; who comes meanwhile shares its result.

use crate::control;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use futures_util::lock::Mutex;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_os::{ShardContext, ShardHandle};
use varve_target::snapshot::SnapshotStore;

/// How long a volume waits before it asks again, after the group had no space for it.
const PAUSE: Duration = Duration::from_secs(20);

/// The way to the control, for one volume. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Grower {
    volume: Uuid,
    control: ShardHandle,
    turn: Rc<Mutex<()>>,
}

impl Grower {
    /// For the volume `volume`; the control lives on `control`.
    pub(super) fn new(volume: Uuid, control: ShardHandle) -> Self {
        Self { volume, control, turn: Rc::default() }
    }

    /// Has the store made larger than `seen` bytes. Whether it is.
    pub(super) async fn grow(&self, store: &SnapshotStore, seen: u64) -> bool {
        let _turn = self.turn.lock().await;
        if store.usage().size > seen {
            return true; // Y1: somebody else has asked
        }
        let volume = self.volume;
        let asked = self.control.run(async move |_: ShardContext| control::extend_store(volume).await);
        match asked.await {
            Ok(Ok(())) => store.usage().size > seen,
            Ok(Err(failure)) => {
                tracing::warn!(%volume, %failure, "a snapshot store could not be extended");
                false
            }
            Err(_) => false,
        }
    }

    /// Watches `store` and has it grown whenever it runs low, until the sender is dropped.
    pub(super) async fn watch(
        self,
        store: Rc<SnapshotStore>,
        context: ShardContext,
        end: oneshot::Receiver<()>,
    ) {
        let clock = context.clock();
        let mut end = end;
        loop {
            let low = Box::pin(store.low_space());
            let usage = match select(low, end).await {
                Either::Left((usage, rest)) => {
                    end = rest;
                    usage
                }
                Either::Right(_) => return,
            };
            if !self.grow(&store, usage.size).await {
                match select(clock.sleep(PAUSE), end).await {
                    Either::Left((_, rest)) => end = rest,
                    Either::Right(_) => return,
                }
            }
        }
    }
}
