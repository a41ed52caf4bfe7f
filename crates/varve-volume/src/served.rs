//! What a shard serves under an identity: a volume, or a pool of thin ones.

use super::lifecycle::placement::{Placement, PlacementState};
use super::lifecycle::reason::Reason;
use super::opened::children::Opened;
use super::opened::open_pool::OpenPool;
use super::opened::quota::{CacheQuota, memory};
use super::spec::{ActivationSpec, Wanted};
use super::volume_stack::VolumeStack;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Failure, MetadataMemory};
use varve_block::IoError;
use varve_vg::model::StorePolicy;

/// A volume or pool in use. Cloning shares it.
#[derive(Clone)]
pub(crate) enum Served {
    /// A volume, thin or not.
    Stack(Rc<VolumeStack>),
    /// A pool, without its volumes.
    Pool(Rc<OpenPool>),
}

impl Served {
    /// The volume, unless it is a pool.
    pub(crate) fn stack(&self) -> Option<&Rc<VolumeStack>> {
        match self {
            Served::Stack(stack) => Some(stack),
            Served::Pool(_) => None,
        }
    }

    /// What is open below it; below a thin volume that is its pool's.
    pub(crate) fn below(&self) -> &Rc<Opened> {
        match self {
            Served::Stack(stack) => stack.opened(),
            Served::Pool(open) => &open.opened,
        }
    }

    /// What it has open itself; a thin volume has nothing.
    pub(crate) fn own(&self) -> Option<&Rc<Opened>> {
        match self {
            Served::Stack(stack) if stack.is_thin() => None,
            _ => Some(self.below()),
        }
    }

    /// How it stands to what a version of its group says.
    pub(crate) fn compared(&self, wanted: &Wanted) -> PlacementState {
        match self {
            Served::Stack(stack) => stack.compared(wanted),
            Served::Pool(open) => {
                let placement = open.placement.borrow();
                placement.compared(&wanted.node.table, &wanted.disks, &open.opened.arrays)
            }
        }
    }

    /// Changes where it, and each of its stores, is known to be.
    pub(crate) fn each_placement(&self, change: impl Fn(Uuid, &mut Placement)) {
        match self {
            Served::Pool(open) => change(open.id, &mut open.placement.borrow_mut()),
            Served::Stack(stack) => {
                stack.placement.borrow_mut().iter_mut().for_each(|placement| change(stack.id(), placement));
                for store in stack.stores.borrow().iter() {
                    change(store.id, &mut store.placement.borrow_mut());
                }
            }
        }
    }

    /// Lets it, and its stores, be as large as its group says, which is more than before.
    pub(crate) async fn grow(&self, wanted: &Wanted) -> Result<(), Failure> {
        match self {
            Served::Pool(open) => open.grown(&wanted.node.table, &wanted.disks).await,
            Served::Stack(stack) => {
                stack.resize(&wanted.node.table, &wanted.disks).await?;
                for store in &wanted.node.stores {
                    stack.grow_store(store.id, &store.table, &wanted.disks).await?;
                }
                Ok(())
            }
        }
    }

    /// Lets a store of the volume, or the pool itself, be as large as `spec` says.
    pub(crate) async fn grow_store(&self, store: Uuid, spec: &ActivationSpec) -> Result<(), Failure> {
        match (self, spec.node.store(store)) {
            (Served::Pool(open), _) => open.grown(&spec.node.table, &spec.disks).await,
            (Served::Stack(stack), Some(known)) => stack.grow_store(store, &known.table, &spec.disks).await,
            (Served::Stack(_), None) => Ok(()),
        }
    }

    /// Another policy is declared for it, or for its stores.
    pub(crate) fn set_policy(&self, policy: StorePolicy) {
        match self {
            Served::Stack(stack) => stack.set_policy(policy),
            Served::Pool(open) => open.set_policy(policy),
        }
    }

    /// The group has more free space than before.
    pub(crate) fn group_has_space(&self) {
        match self {
            Served::Stack(stack) => stack.group_has_space(),
            Served::Pool(open) => open.group_has_space(),
        }
    }

    /// Whether writes wait for space: of a thin volume in its pool.
    pub(crate) fn is_paused(&self) -> bool {
        match self {
            Served::Stack(stack) => stack.is_paused(),
            Served::Pool(open) => open.pool.is_paused(),
        }
    }

    /// Writes that wait for space fail, now and until they may wait again.
    pub(crate) fn let_writes_fail(&self, fail: bool) {
        match self {
            Served::Stack(stack) => stack.let_writes_fail(fail),
            Served::Pool(open) => open.let_writes_fail(fail),
        }
    }

    /// Why it takes no changes any more, if so.
    pub(crate) fn failure(&self) -> Option<IoError> {
        match self {
            Served::Stack(stack) => stack.failure(),
            Served::Pool(open) => open.failure().or(open.has_lost_image(None).then_some(IoError::Medium)),
        }
    }

    /// Its metadata has another quota from now on.
    pub(crate) async fn set_quota(&self, quota: CacheQuota) {
        match self {
            Served::Stack(stack) => stack.set_quota(quota).await,
            Served::Pool(open) => open.set_quota(quota),
        }
    }

    /// What its metadata takes in memory.
    pub(crate) fn memory(&self) -> MetadataMemory {
        match self {
            Served::Stack(stack) => stack.memory(),
            Served::Pool(open) => memory(open.pool.cache_use()),
        }
    }

    /// Ends what works for it, and closes what it has open; no door leads to it any more.
    pub(crate) async fn close(&self, reason: Reason) -> Result<(), Failure> {
        match self {
            Served::Stack(stack) => stack.close().await,
            Served::Pool(open) => return open.close(reason).await,
        }
        Ok(())
    }
}
