//! Volumes and pools that are opened anew: their doors wait, led to errors, until they lead to something again.

use super::open;
use crate::ShardContext;
use crate::volume_stack::VolumeStack;
use uuid::Uuid;
use varve_block::{Device, IoError};

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
    /// Why the volume takes no changes any more, if one of its stores or its pool has failed.
    pub(crate) fn failure(&self) -> Option<IoError> {
        match &self.thin {
            Some(thin) => {
                let lost = thin.open.has_lost_image(Some(thin.number)).then_some(IoError::Medium);
                thin.open.failure().or(lost)
            }
            None => {
                let of_stores = self.stores.borrow().iter().find_map(|open| open.store.last_failure());
                of_stores.or_else(|| self.opened().image_failure())
            }
        }
    }

    /// Writes that wait for space fail, now and until they may wait again; those of a thin volume in all of its pool.
    pub fn let_writes_fail(&self, fail: bool) {
        match &self.thin {
            Some(thin) => thin.open.let_writes_fail(fail),
            None => self.stores.borrow().iter().for_each(|open| open.let_writes_fail(fail)),
        }
        self.opened().mapper.let_fail(fail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{self, Injections};
    use crate::lifecycle::close::close;
    use crate::lifecycle::open::{activate, device};
    use crate::lifecycle::reason::Reason;
    use crate::opened::quota::CacheQuota;
    use crate::spec::{Accepts, ActivationSpec, Disks};
    use crate::testing::{TestDisk, on_a_shard};
    use crate::world::DiskRef;
    use futures_util::FutureExt;
    use std::pin::pin;
    use std::sync::Arc;
    use varve_api::Code;
    use varve_block::{Durability, KIB};
    use varve_vg::model::{PvName, Role, StorePolicy};
    use varve_vg::table::{Line, Table, Target};
    use varve_vg::tree::VolumeNode;

    fn spec(id: Uuid) -> ActivationSpec {
        let target = Target::Linear { pv: PvName(0), offset: 0 };
        let table = Table { lines: vec![Line { start: 0, length: 4 * KIB, target }], read_only: false };
        let disk: DiskRef = Arc::new(TestDisk);
        ActivationSpec {
            name: "data/v".to_owned(),
            node: VolumeNode { id, role: Role::Volume, table, stores: Vec::new() },
            policy: StorePolicy::default(),
            quota: CacheQuota::default(),
            disks: Disks::from([(PvName(0), disk)]),
            image: None,
            devices: Vec::new(),
            accepts: Accepts::default(),
        }
    }

    #[test]
    fn nothing_reaches_a_disk_through_a_volume_that_was_set_aside() {
        on_a_shard(async |context| {
            let id = Uuid::nil();
            let spec = spec(id);
            activate(&context, &spec).await.expect("its disk is there");
            let stack = context.stack(id).expect("it is in use");
            let held = stack.bare(None).expect("it has no store");
            let write = async || {
                let data = context.arena().copy(&[7; 512]);
                held.write(0, data, Durability::Volatile).await.map(drop)
            };
            assert_eq!(write().await, Ok(()));
            close(&context, id, Reason::Reopened).await.expect("nothing is wrong");
            assert_eq!(write().await, Err(IoError::Gone), "VIEWS1, VOLGATE1");
            let mut waiting = pin!(device_when_open(&context, id, None));
            assert!((&mut waiting).now_or_never().is_none(), "a new client waits");
            activate(&context, &spec).await.expect("its disk is there");
            resume_all(&context);
            assert!(waiting.await.is_some(), "and is served then");
            close(&context, id, Reason::Reopened).await.expect("nothing is wrong");
            let waiting = pin!(device_when_open(&context, id, None));
            resume_all(&context);
            assert!(waiting.await.is_none(), "what cannot be opened is not waited for");
        });
    }

    #[test]
    fn a_panic_while_a_volume_is_closed_to_be_opened_anew_is_of_that_volume() {
        on_a_shard(async |context| {
            let context = context.apart(); // A panic of a volume ends work that has used it.
            let (id, spare) = (Uuid::from_u128(1), Uuid::from_u128(2));
            let panic = Some(format!("{id}:reopen").into());
            fault::inject(Injections { panic, fault: None });
            for volume in [id, spare] {
                activate(&context, &spec(volume)).await.expect("its disk is there");
            }
            let door = device(&context, id, None).expect("it is in use");
            let flush = async || door.flush().await.map(drop);
            assert!(context.opened(id).is_some(), "OPENED2");
            let failed = close(&context, id, Reason::Reopened).await.map_err(|failure| failure.code);
            assert_eq!(failed, Err(Code::VolumeFailed), "CLOSE2");
            assert!(context.opened(id).is_none(), "OPENED1");
            let read = door.read(0, context.arena().take(512)).await.map(drop);
            assert_eq!(read, Err(IoError::Medium), "CLOSE2");
            let spare = device(&context, spare, None).expect("CLOSE2: the shard goes on");
            assert!(spare.flush().await.is_ok(), "CLOSE2");
            resume_all(&context);
            activate(&context, &spec(id)).await.expect("CLOSE1: nothing of it is left");
            assert_eq!(flush().await, Err(IoError::Medium), "LOSSES1");
            assert_eq!(flush().await, Ok(()), "LOSSES1: once");
        });
    }
}
