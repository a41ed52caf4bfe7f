//! Volumes and pools that are opened anew: their doors wait, led to errors, until they lead to something again.

use super::ShardContext;
use super::open;
use super::views::lead_to_errors;
use super::volume_stack::VolumeStack;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::{IoError, Suspended};

/// Whether a volume or pool takes no changes since one failed.
pub fn is_failing(context: &ShardContext, volume: Uuid) -> bool {
    match context.pool(volume) {
        Some(open) => open.failure().is_some(),
        None => context.stack(volume).is_some_and(|stack| stack.failure().is_some()),
    }
}

/// Closes a volume, or a pool with its volumes, while the requests of its doors wait.
pub async fn set_aside(context: &ShardContext, volume: Uuid) -> Result<(), Failure> {
    let stacks = context.state().take_stacks(volume);
    let mut held: Vec<(Uuid, Vec<Suspended>)> = Vec::with_capacity(stacks.len());
    for stack in &stacks {
        held.push((stack.id(), stack.suspend_doors().await));
    }
    for ((_, suspended), stack) in held.iter().zip(&stacks) {
        // The last flush goes past the doors.
        for last in lead_to_errors(suspended, IoError::Medium) {
            if last.flush().await.is_err() {
                stack.note_loss();
            }
        }
    }
    for stack in stacks {
        stack.close().await;
        stack.gate.close(); // VIEWS1
    }
    context.state().held.borrow_mut().extend(held);
    open::close(context, volume).await // A pool, without its volumes.
}

/// Lets all requests that waited go on.
pub fn resume_all(context: &ShardContext) {
    let held = context.state().held.take();
    drop(held);
}

impl VolumeStack {
    /// The pool of a thin volume.
    pub(super) fn pool(&self) -> Option<Uuid> {
        self.thin.as_ref().map(|thin| thin.open.id)
    }

    /// Why the volume takes no changes any more, if one of its stores or its pool has failed.
    pub(super) fn failure(&self) -> Option<IoError> {
        match &self.thin {
            Some(thin) => thin.open.failure(),
            None => {
                let of_stores = self.stores.borrow().iter().find_map(|open| open.store.last_failure());
                of_stores.or_else(|| self.host.images.failure(self.id()))
            }
        }
    }

    /// Writes that wait for space fail, now and until they may wait again; those of a thin volume in all of its pool.
    pub fn let_writes_fail(&self, fail: bool) {
        match &self.thin {
            Some(thin) => thin.open.let_writes_fail(fail),
            None => self.stores.borrow().iter().for_each(|open| open.let_writes_fail(fail)),
        }
        self.host.mappers.let_fail(self.id(), fail);
    }
}
