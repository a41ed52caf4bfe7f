//! What may be asked of a shard from any thread: typed calls, grouped by what they concern. Plain data goes in and out.
//!
//! A call begins when its method returns, whether its [`Answer`] is awaited or not, and goes on if that is dropped.

mod arrays;
mod exports;
mod moves;
mod pools;
mod rollbacks;
mod snapshots;
mod volumes;

pub use crate::content::instant::NewSnapshots;
pub use arrays::ArrayCalls;
pub use exports::{ExportCalls, NewExport};
pub use pools::PoolCalls;
pub use snapshots::Difference;
pub use volumes::VolumeCalls;

use crate::context::ShardContext;
use crate::copies::movable::MovingRun;
use crate::copies::moves as moving;
use crate::handle::{Answer, ShardHandle};
use crate::host::Host;
use crate::lifecycle::placement::PlacementState;
use crate::lifecycle::reconcile;
use crate::lifecycle::{open, reopen};
use crate::opened::children::Opened;
use crate::opened::metadata;
use crate::opened::quota::CacheQuota;
use crate::served::Served;
use crate::spec::ActivationSpec;
use crate::spec::Wanted;
use crate::world::DiskRef;
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Failure, MetadataMemory};

impl ShardHandle {
    /// Calls that concern a volume of the shard, thick or thin; those that any volume or pool answers, too.
    pub fn volume(&self, id: Uuid) -> VolumeCalls<'_> {
        VolumeCalls { shard: self, id }
    }

    /// Calls that concern a thin pool of the shard.
    pub fn pool(&self, id: Uuid) -> PoolCalls<'_> {
        PoolCalls { shard: self, id }
    }

    /// Calls that concern the array of a volume, a store or a pool of the shard.
    pub fn array(&self, id: Uuid) -> ArrayCalls<'_> {
        ArrayCalls { shard: self, id }
    }

    /// Calls that concern the NBD exports at one address.
    pub fn exports(&self, address: &str) -> ExportCalls<'_> {
        ExportCalls { shard: self, address: address.to_owned() }
    }

    /// Starts something that lives on the shard beside the volumes: it is given the host, and reaches volumes by calls only.
    pub fn spawn<T, F, W>(&self, begin: W) -> Answer<T>
    where
        W: FnOnce(Host) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.run(move |here: ShardContext| begin(here.host().clone()))
    }

    /// Whether the shard lives: it answers at once, or never if it hangs.
    pub fn is_alive(&self) -> Answer<()> {
        self.run(async |_: ShardContext| ())
    }

    /// Answers when the shard has ended.
    pub fn ended(&self) -> Answer<()> {
        self.run(async |_: ShardContext| std::future::pending::<()>().await)
    }

    /// Takes a volume or pool into use.
    pub fn activate(&self, spec: ActivationSpec) -> Answer<Result<(), Failure>> {
        self.run(async move |here: ShardContext| open::activate(&here, &spec).await)
    }

    /// The files of images in which volumes lie, with these, and of images that are origins in pools, with these.
    pub fn image_files(&self) -> Answer<Vec<(Uuid, DiskRef)>> {
        self.run(async move |here: ShardContext| {
            let mut files = Vec::new();
            for opened in here.state().opened.all() {
                files.extend(opened.image_files().into_iter().map(|file| (opened.id, file)));
            }
            for served in here.state().served.borrow().values() {
                if let Served::Pool(open) = served {
                    files.extend(open.look_at_origin_files().into_iter().map(|file| (open.id, file)));
                }
            }
            files
        })
    }

    /// The volumes and pools with arrays that make members equal or catch one up.
    pub fn arrays_at_work(&self) -> Answer<BTreeSet<Uuid>> {
        self.run(async move |here: ShardContext| {
            let has_work =
                |opened: &Rc<Opened>| opened.arrays.all().iter().any(|(_, array)| array.has_work());
            here.state()
                .opened
                .all()
                .iter()
                .filter(|opened| has_work(opened))
                .map(|opened| opened.id)
                .collect()
        })
    }

    /// Leads the doors whose requests wait to volumes that were opened anew.
    pub fn resume_doors(&self) -> Answer<()> {
        self.run(async move |here: ShardContext| reopen::resume_all(&here))
    }

    /// The volumes and pools of which writes wait for space.
    pub fn waiting_for_space(&self) -> Answer<Vec<Uuid>> {
        self.run(async move |here: ShardContext| {
            let state = here.state();
            let served = state.served.borrow();
            served.iter().filter(|(_, served)| served.is_paused()).map(|(id, _)| *id).collect()
        })
    }

    /// Lets all requests that wait for space fail, now and from now on.
    pub fn fail_waiting(&self) -> Answer<()> {
        self.run(async move |here: ShardContext| {
            here.state().served.borrow().values().for_each(|served| served.let_writes_fail(true));
        })
    }

    /// Takes those of `served` out of use that are not served as all versions of them say; how each stands.
    pub fn fence(&self, served: Vec<(Uuid, Vec<Option<Wanted>>)>) -> Answer<Vec<(Uuid, PlacementState)>> {
        self.run(async move |here: ShardContext| {
            let fence = |(id, versions): (Uuid, Vec<_>)| (id, reconcile::fence(&here, id, &versions));
            served.into_iter().map(fence).collect::<Vec<_>>()
        })
    }

    /// Gives the metadata of volumes and pools other quotas of the memory.
    pub fn give_quotas(&self, shares: Vec<(Uuid, CacheQuota)>) -> Answer<()> {
        self.run(async move |here: ShardContext| metadata::give(&here, shares).await)
    }

    /// What the metadata of volumes and pools takes in memory.
    pub fn metadata_memory(&self, volumes: Vec<Uuid>) -> Answer<MetadataMemory> {
        self.run(async move |here: ShardContext| metadata::figures(&here, &volumes))
    }

    /// In how many regions members of arrays may differ since a crash.
    #[cfg(any(test, feature = "injected-bugs"))]
    pub fn unsynced_regions(&self) -> Answer<u64> {
        self.run(async |here: ShardContext| {
            let arrays = here.state().opened.all().into_iter().flat_map(|opened| opened.arrays.all());
            let status = arrays.map(|(_, array)| array.status()).filter(|status| !status.is_content_lost);
            status.map(|status| status.unsynced).sum()
        })
    }

    /// Begins to move a run of extents.
    pub fn begin_move(&self, run: MovingRun) -> Answer<Result<(), Failure>> {
        self.run(async move |here: ShardContext| moving::begin(&here, run).await)
    }
}
