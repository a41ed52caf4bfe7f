//! Volumes and pools that are opened anew: their doors wait, led to errors, until they lead to something again.

use super::ShardContext;
use super::family::Family;
use super::open;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::{Device, IoError, Suspended};

/// Whether a volume or pool takes no changes since one failed.
pub fn is_failing(context: &ShardContext, volume: Uuid) -> bool {
    match context.pool(volume) {
        Some(open) => open.failure().is_some(),
        None => context.family(volume).is_some_and(|family| family.failure().is_some()),
    }
}

/// Closes a volume, or a pool with its volumes, while the requests of its doors wait.
pub async fn set_aside(context: &ShardContext, volume: Uuid) -> Result<(), Failure> {
    let families = context.state().take_families(volume);
    let mut held: Vec<(Uuid, Suspended)> = Vec::with_capacity(families.len());
    for family in &families {
        held.push((family.id(), family.top().suspend().await));
    }
    // The last flush goes past the doors.
    for family in &families {
        let last: Device = family.top().current();
        if last.flush().await.is_err() {
            family.note_loss();
        }
    }
    for ((_, suspended), family) in held.iter().zip(&families) {
        family.lead_to_error(suspended, IoError::Medium);
    }
    for family in families {
        family.close().await;
    }
    context.state().held.borrow_mut().extend(held);
    open::close(context, volume).await // A pool, without its volumes.
}

/// Lets all requests that waited go on.
pub fn resume_all(context: &ShardContext) {
    let held = context.state().held.take();
    drop(held);
}

impl Family {
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
