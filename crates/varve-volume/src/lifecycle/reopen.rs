//! Volumes and pools that are opened anew: their doors wait, led to errors, until they lead to something again.

use super::open;
use crate::ShardContext;
use crate::doors::views::lead_to_errors;
use crate::volume_stack::VolumeStack;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::{Device, IoError, Suspended};

/// Whether a volume or pool takes no changes since one failed.
pub fn is_failing(context: &ShardContext, volume: Uuid) -> bool {
    match context.pool(volume) {
        Some(open) => open.failure().is_some() || open.has_lost_image(None),
        None => context.stack(volume).is_some_and(|stack| stack.failure().is_some()),
    }
}

/// Closes a volume, or a pool with its volumes, while the requests of its doors wait.
pub async fn set_aside(context: &ShardContext, volume: Uuid) -> Result<(), Failure> {
    let stacks = context.state().take_stacks(volume);
    context.state().aside.borrow_mut().extend(stacks.iter().map(|stack| stack.id()));
    let mut held: Vec<Vec<Suspended>> = Vec::with_capacity(stacks.len());
    for stack in &stacks {
        held.push(stack.suspend_doors().await);
    }
    for (stack, suspended) in stacks.iter().zip(&held) {
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
    context.state().held.borrow_mut().extend(held.into_iter().flatten());
    open::close(context, volume).await // A pool, without its volumes.
}

/// Lets all requests that waited go on.
pub fn resume_all(context: &ShardContext) {
    let held = context.state().held.take();
    drop(held);
    context.state().aside.take();
    context.state().resumed.notify_all();
}

/// A device for a new client; one that comes while the volume is opened anew waits, as the requests of others do.
pub async fn device_when_open(
    context: &ShardContext,
    volume: Uuid,
    snapshot: Option<&str>,
) -> Option<Device> {
    let state = context.state();
    let look = || {
        let device = open::device(context, volume, snapshot);
        (device.is_some() || !state.aside.borrow().contains(&volume)).then_some(device)
    };
    state.resumed.next(look).await
}

impl VolumeStack {
    /// The pool of a thin volume.
    pub(crate) fn pool(&self) -> Option<Uuid> {
        self.thin.as_ref().map(|thin| thin.open.id)
    }

    /// Why the volume takes no changes any more, if one of its stores or its pool has failed.
    pub(crate) fn failure(&self) -> Option<IoError> {
        match &self.thin {
            Some(thin) => {
                let lost = thin.open.has_lost_image(Some(thin.number)).then_some(IoError::Medium);
                thin.open.failure().or(lost)
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::retire::activate;
    use crate::opened::quota::CacheQuota;
    use crate::spec::{Accepts, ActivationSpec, Disks};
    use crate::testing::{TestDisk, on_a_shard};
    use crate::world::DiskRef;
    use futures_util::FutureExt;
    use std::pin::pin;
    use std::sync::Arc;
    use varve_block::{Durability, KIB};
    use varve_vg::model::{PvName, Role, StorePolicy};
    use varve_vg::table::{Line, Table, Target};
    use varve_vg::tree::VolumeNode;

    #[test]
    fn nothing_reaches_a_disk_through_a_volume_that_was_set_aside() {
        on_a_shard(async |context| {
            let id = Uuid::nil();
            let target = Target::Linear { pv: PvName(0), offset: 0 };
            let table = Table { lines: vec![Line { start: 0, length: 4 * KIB, target }], read_only: false };
            let disk: DiskRef = Arc::new(TestDisk);
            let spec = ActivationSpec {
                name: "data/v".to_owned(),
                node: VolumeNode { id, role: Role::Volume, table, stores: Vec::new() },
                policy: StorePolicy::default(),
                quota: CacheQuota::default(),
                disks: Disks::from([(PvName(0), disk)]),
                image: None,
                devices: Vec::new(),
                accepts: Accepts::default(),
            };
            activate(&context, &spec).await.expect("its disk is there");
            let stack = context.stack(id).expect("it is in use");
            let held = stack.bare(None).expect("it has no store");
            let write = async || {
                let data = context.arena().copy(&[7; 512]);
                held.write(0, data, Durability::Volatile).await.map(drop)
            };
            assert_eq!(write().await, Ok(()));
            set_aside(&context, id).await.expect("nothing is wrong");
            assert_eq!(write().await, Err(IoError::Gone), "VIEWS1, VOLGATE1");
            let mut waiting = pin!(device_when_open(&context, id, None));
            assert!((&mut waiting).now_or_never().is_none(), "a new client waits");
            activate(&context, &spec).await.expect("its disk is there");
            resume_all(&context);
            assert!(waiting.await.is_some(), "and is served then");
            set_aside(&context, id).await.expect("nothing is wrong");
            let waiting = pin!(device_when_open(&context, id, None));
            resume_all(&context);
            assert!(waiting.await.is_none(), "what cannot be opened is not waited for");
        });
    }
}
