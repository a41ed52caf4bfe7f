//! Calls that concern a thin pool, its volumes, and the origins of these.

use crate::content::origins::{self, Above, Below, Gone};
use crate::content::thin::ThinVolume;
use crate::content::thin_volumes::{self, State};
use crate::context::ShardContext;
use crate::copies::pool_check;
use crate::copies::progress::Progress;
use crate::handle::{Answer, ShardHandle};
use crate::opened::open_pool::PoolFacts;
use crate::spec::ActivationSpec;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::Extent;
use varve_target::snapshot::StoreError;
use varve_target::thin::{Backing, Origin, PoolReport, Trashed};

/// Calls that concern one pool.
#[derive(Clone, Copy)]
pub struct PoolCalls<'a> {
    pub(super) shard: &'a ShardHandle,
    pub(super) id: Uuid,
}

impl PoolCalls<'_> {
    /// What it is like, and its volumes.
    pub fn look(&self) -> Answer<Result<(PoolFacts, Vec<ThinVolume>), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::look(&here, id))
    }

    /// The volume of a number, if there is one.
    pub fn look_at(&self, number: u64) -> Answer<Result<Option<ThinVolume>, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::look_at(&here, id, number))
    }

    /// Bytes that it could keep at most, and that its volumes may ask for.
    pub fn promises(&self) -> Answer<Result<(u64, u64), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::promises(&here, id))
    }

    /// The most bytes that it can have; none if it is not active.
    pub fn size_max(&self) -> Answer<Option<u64>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| here.pool(id).map(|open| open.pool.size_max()))
    }

    /// Whether writes wait for space in it.
    pub fn is_paused(&self) -> Answer<bool> {
        let id = self.id;
        self.shard
            .run(async move |here: ShardContext| here.pool(id).is_some_and(|open| open.pool.is_paused()))
    }

    /// Makes a volume in the pool that `spec` describes, over something if that is named. The answer is its number.
    pub fn create(
        &self,
        spec: ActivationSpec,
        name: String,
        bytes: u64,
        over: Option<(Origin, Below)>,
    ) -> Answer<Result<u64, Failure>> {
        self.shard
            .run(async move |here: ShardContext| thin_volumes::create(&here, &spec, &name, bytes, over).await)
    }

    /// Gives the volume of a number another name.
    pub fn rename(&self, number: u64, name: String) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::rename(&here, id, number, &name).await)
    }

    /// Puts the volume of a number into the trash.
    pub fn put_into_trash(&self, number: u64, trashed: Trashed) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| {
            thin_volumes::put_into_trash(&here, id, number, trashed).await
        })
    }

    /// Brings the volume of a number back from the trash under this name.
    pub fn restore(&self, number: u64, name: String) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::restore(&here, id, number, &name).await)
    }

    /// Removes volumes that are in the trash, with their snapshots.
    pub fn give_up(&self, numbers: Vec<u64>) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::give_up(&here, id, &numbers).await)
    }

    /// Removes the volume of a number.
    pub fn remove(&self, number: u64) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::remove(&here, id, number).await)
    }

    /// Where two volumes or snapshots differ, and whether that is all.
    pub fn diff(&self, one: State, two: State) -> Answer<Result<(Vec<Extent>, bool), StoreError>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| thin_volumes::diff(&here, id, one, two).await)
    }

    /// Reads all its metadata.
    pub fn check(&self, progress: Arc<Progress>) -> Answer<Result<PoolReport, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| pool_check::check(&here, id, &progress).await)
    }

    /// Origins of its volumes that are not attached.
    pub fn missing_origins(&self) -> Answer<Vec<Origin>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::missing(&here, id))
    }

    /// Names of its volumes that are backed by `below`.
    pub fn above(&self, below: Backing) -> Answer<Result<Vec<String>, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::above(&here, id, below).await)
    }

    /// Its volumes that have an origin.
    pub fn all_above(&self) -> Answer<Vec<Above>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::above_all(&here, id))
    }

    /// All that its volumes and their snapshots need below them.
    pub fn origins(&self) -> Answer<Result<Vec<Origin>, Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::over(&here, id).await)
    }

    /// Attaches an origin to its volumes.
    pub fn attach(&self, origin: Origin, below: Below) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::attach(&here, id, origin, below).await)
    }

    /// The number of a volume, or of its snapshot, and its origin.
    pub fn origin_of(
        &self,
        number: u64,
        snapshot: Option<String>,
    ) -> Answer<Result<(u64, Option<Origin>), Failure>> {
        let id = self.id;
        self.shard
            .run(async move |here: ShardContext| origins::origin_of(&here, id, number, snapshot.as_deref()))
    }

    /// Whether the origin of a volume or snapshot is there, so that it can be copied.
    pub fn may_be_flattened(&self, number: u64) -> Answer<Result<bool, Gone>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::may_be_flattened(&here, id, number))
    }

    /// Copies what a volume or snapshot shows of its origin, and detaches it from that.
    pub fn flatten(&self, number: u64, progress: Arc<Progress>) -> Answer<Result<(), Failure>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| origins::flatten(&here, id, number, &progress).await)
    }
}
