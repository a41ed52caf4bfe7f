//! Calls that concern a volume as a whole: whether it is in use, its size, its stores, its image, its array.

use crate::content::origins;
use crate::content::snapshot_facts::Target;
use crate::context::ShardContext;
use crate::copies::image_jobs::{self, Below, ImageWork};
use crate::copies::progress::Progress;
use crate::copies::scrub::{self, ScrubPosition, Scrubbed};
use crate::doors::export_target;
use crate::failures;
use crate::handle::{Answer, ShardHandle};
use crate::lifecycle::close::close;
use crate::lifecycle::losses::DoorOf;
use crate::lifecycle::open;
use crate::lifecycle::reason::Reason;
use crate::lifecycle::reconcile;
use crate::opened::mappers::MapperFacts;
use crate::spec::Wanted;
use crate::spec::{ActivationSpec, Disks};
use crate::volume_stack::{VolumeFacts, VolumeStack};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Moment, Portal};
use varve_target::array::ScrubOptions;
use varve_target::thin::Origin;
use varve_vg::model::{PvName, StorePolicy};
use varve_vg::tree::StoreNode;

/// Calls that concern one volume.
#[derive(Clone, Copy)]
pub struct VolumeCalls<'a> {
    pub(super) shard: &'a ShardHandle,
    pub(super) id: Uuid,
}

impl VolumeCalls<'_> {
    /// Asks the volume, if it is active.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&VolumeStack) -> T + Send + 'static,
    ) -> Answer<Option<T>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| here.stack(id).map(|stack| ask(&stack)))
    }

    /// Does `work` on the volume, if it is active.
    pub(super) fn work<T, F, W>(&self, work: W) -> Answer<Option<T>>
    where
        W: FnOnce(Rc<VolumeStack>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.stack(id) {
            Some(stack) => Some(work(stack).await),
            None => None,
        })
    }

    /// Does `work` on the volume, or says that it is not active.
    pub(super) fn work_if_active<T, F, W>(&self, work: W) -> Answer<Result<T, Failure>>
    where
        W: FnOnce(Rc<VolumeStack>) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure>> + 'static,
        T: Send + 'static,
    {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.stack(id) {
            Some(stack) => work(stack).await,
            None => Err(Failure::new(Code::VolumeUnusable, "the volume is not active").help("varve lv list")),
        })
    }

    /// Closes the volume or pool; unless it is fenced, what was written is durable then.
    pub fn close(&self, reason: Reason) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| close(&here, id, reason).await)
    }

    /// Whether the volume or pool takes no changes any more.
    pub fn is_failing(&self) -> Answer<bool> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            here.served(id).is_some_and(|served| served.failure().is_some())
        })
    }

    /// Takes members on `disk` back into the arrays of the volume or pool.
    pub fn take_back(&self, wanted: Wanted, disk: PvName) -> Answer<()> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| reconcile::take_back(&here, id, &wanted, disk).await)
    }

    /// Makes the volume or pool as large as its group says.
    pub fn grow(&self, wanted: Wanted) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.served(id) {
            Some(served) => served.grow(&wanted).await,
            None => Ok(()),
        })
    }

    /// The way from any thread to the volume or a snapshot; none if it is not active.
    pub fn portal(&self, target: export_target::Target, of: DoorOf) -> Answer<Option<Portal>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            let export_target::Target { snapshot, read_only, limits, .. } = target;
            let device = open::door(&here, id, snapshot.as_deref(), of)?;
            let device = limits.guard(device, here.clock());
            let device = if read_only { varve_block::read_only(device) } else { device };
            Some(here.portal(&device))
        })
    }

    /// What is reported of the volume.
    pub fn facts(&self) -> Answer<VolumeFacts> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.stack(id) {
            Some(stack) => stack.facts().await,
            None => VolumeFacts::default(),
        })
    }

    /// Bytes; none if it is not active.
    pub fn size(&self) -> Answer<Option<u64>> {
        self.ask(VolumeStack::size)
    }

    /// Makes all durable that was written; nothing if it is not active.
    pub fn flush(&self) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.stack(id) {
            Some(stack) => stack.flush().await.map_err(|error| failures::io("the flush", error)),
            None => Ok(()),
        })
    }

    /// Lets the volume or pool keep another policy.
    pub fn set_policy(&self, policy: StorePolicy) -> Answer<()> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            if let Some(served) = here.served(id) {
                served.set_policy(policy);
            }
        })
    }

    /// Lets requests of the volume that wait for space fail, or wait again.
    pub fn let_writes_fail(&self, fail: bool) -> Answer<Option<()>> {
        self.ask(move |stack| stack.let_writes_fail(fail))
    }

    /// Tells the stores of the volume, or the pool, that the group has space.
    pub fn group_has_space(&self) -> Answer<()> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            if let Some(served) = here.served(id) {
                served.group_has_space();
            }
        })
    }

    /// Whether writes wait for space for its snapshots; not if it is not active.
    pub fn is_paused(&self) -> Answer<Option<bool>> {
        self.ask(VolumeStack::is_paused)
    }

    /// Its stores that hold no snapshot.
    pub fn empty_stores(&self) -> Answer<Option<Vec<Uuid>>> {
        self.ask(VolumeStack::empty_stores)
    }

    /// Opens a new store.
    pub fn add_store(&self, store: StoreNode, disks: Disks) -> Answer<Result<(), Failure>> {
        self.work_if_active(async move |stack: Rc<VolumeStack>| stack.add_store(&store, &disks).await)
    }

    /// Closes a store that holds no snapshot.
    pub fn remove_store(&self, store: Uuid) -> Answer<Option<Result<(), Failure>>> {
        self.work(async move |stack: Rc<VolumeStack>| stack.remove_store(store).await)
    }

    /// Lets a store of the volume, or the pool itself, be as large as `spec` says.
    pub fn grow_store(&self, store: Uuid, spec: ActivationSpec) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.served(id) {
            Some(served) => served.grow_store(store, &spec).await,
            None => Ok(()),
        })
    }

    /// Lets the store of dependent snapshots grow beyond the `seen` bytes that were too few; whether it did.
    pub fn grow_dependent(&self, seen: u64) -> Answer<bool> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            match here.stack(id).and_then(|stack| stack.dependent()) {
                Some(open) => open.grow(seen).await,
                None => false,
            }
        })
    }

    /// Gives a thin volume another size.
    pub fn resize_thin(&self, bytes: u64) -> Answer<Result<(), Failure>> {
        self.work_if_active(async move |stack: Rc<VolumeStack>| stack.resize_thin(bytes).await)
    }

    /// Snapshots of the volume, or of the pool's volumes, that are marked as origins.
    pub fn bases(&self) -> Answer<Vec<Target>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::bases(&here, id))
    }

    /// Marks a snapshot as an origin of others, or removes the mark.
    pub fn set_base(&self, target: Target, is_base: bool) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::set_base(&here, id, target, is_base).await)
    }

    /// The name of an origin.
    pub fn origin_name(&self, origin: Origin) -> Answer<Option<String>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::name(&here, id, &origin))
    }

    /// What is asked of the volume's image before a job.
    pub fn image_below(&self) -> Answer<Option<Below>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| image_jobs::below(&here, id))
    }

    /// Works on the volume's image.
    pub fn work_on_image(&self, work: ImageWork, progress: Arc<Progress>) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| image_jobs::run(&here, id, work, &progress).await)
    }

    /// How the program that maps the volume is.
    pub fn mapper_facts(&self) -> Answer<Option<MapperFacts>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| here.opened(id)?.mapper.facts())
    }

    /// Whether the program that maps the volume answers; none if none does.
    pub fn mapper_answers(&self) -> Answer<Option<bool>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            let delegate = here.opened(id)?.mapper.delegate()?;
            Some(delegate.is_answering().await)
        })
    }

    /// Bytes that a scrub of the volume or pool, called `name`, compares.
    pub fn scrub_size(&self, name: String) -> Answer<Result<u64, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| scrub::ask(&here, id, &name))
    }

    /// Compares the members of the arrays of the volume or pool from a position on, until a moment.
    pub fn scrub(
        &self,
        name: String,
        options: ScrubOptions,
        part: (ScrubPosition, Moment),
        progress: Arc<Progress>,
    ) -> Answer<Result<Scrubbed, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            scrub::scrub(&here, (id, &name), options, part, &progress).await
        })
    }
}
