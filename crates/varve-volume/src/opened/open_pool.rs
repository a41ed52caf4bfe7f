//! A thin pool in use: it commits what waits too long, grows before it is full, and gives removed volumes' space back in
//! small batches.
//!
//! How a pool grows is in `growth.rs`, how batches are taken in `background.rs`.

use super::children::Opened;
use super::growth::{Growth, Vessel, Words};
use super::quota::CacheQuota;
use crate::content::pool_error::store_error;
use crate::events::VolumeEvent;
use crate::failures;
use crate::layers::Image;
use crate::lifecycle::background::{Background, BatchEnd};
use crate::lifecycle::placement::Placement;
use crate::lifecycle::reason::Reason;
use crate::spec::{ActivationSpec, Disks};
use crate::world::{DiskRef, Opening, opening_of};
use futures_util::future::LocalBoxFuture;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::host::DiskState;
use varve_block::{IoError, TrackerGuard};
use varve_target::array::ArrayStatus;
use varve_target::snapshot::StoreError;
use varve_target::thin::{Backing, Origin, Pool, PoolError, PoolEvent, WhenFull as PoolWhenFull};
use varve_vg::model::{StorePolicy, WhenFull};
use varve_vg::table::Table;

/// Of what a pool can hold, one part in so many is not promised: the maps of volumes that are written at random, 4 KiB by
/// 4 KiB, take less.
const MAPS_SHARE: u64 = 32;
/// Leaves, or larger parts that others hold too, of a batch.
const BATCH_STEPS: u64 = 8;

/// A pool in use. It works in the background until it is closed.
pub struct OpenPool {
    /// Its id in the group.
    pub id: Uuid,
    /// What it is called: `VG/POOL`.
    pub(crate) name: String,
    /// The pool itself.
    pub pool: Rc<Pool>,
    /// Below it.
    pub(crate) opened: Rc<Opened>,
    /// Where it is.
    pub(crate) placement: RefCell<Placement>,
    /// The files of images that are origins in it.
    origin_files: RefCell<Vec<(Backing, Opening)>>,
    /// Those of these images that were out of use when their files were looked at last.
    lost_images: RefCell<BTreeSet<Backing>>,
    growth: Rc<Growth<Pool>>,
    background: Background,
}

/// What a pool is like now.
#[derive(Clone, Debug, Default)]
pub struct PoolFacts {
    /// Bytes of the pool.
    pub size: u64,
    /// Bytes that are allocated at a time.
    pub block_size: u64,
    /// Bytes that volumes and snapshots have.
    pub allocated: u64,
    /// Bytes that can be allocated.
    pub free: u64,
    /// How full it is.
    pub percent: u64,
    /// Bytes that its volumes and snapshots show.
    pub virtual_bytes: u64,
    /// Bytes that it could keep at most.
    pub promise_max: u64,
    /// Volumes in it, outside of the trash.
    pub volumes: u32,
    /// Snapshots of these.
    pub snapshots: u32,
    /// Volumes and snapshots that are being removed.
    pub removing: u32,
    /// Whether writes wait for space.
    pub is_paused: bool,
    /// Whether writes failed for want of space, and none has come since.
    pub is_refusing: bool,
    /// Whether it grows when it is nearly full.
    pub can_grow: bool,
    /// Writes that waited for space for too long.
    pub timed_out: u64,
    /// How its array does, if it is one.
    pub array: Option<ArrayStatus>,
    /// Why it takes no changes any more, if so.
    pub failure: Option<IoError>,
}

impl OpenPool {
    /// `pool`, kept from now on.
    pub(crate) fn new(spec: &ActivationSpec, pool: Rc<Pool>, opened: &Rc<Opened>) -> Rc<Self> {
        let (id, policy, host) = (spec.node.id, spec.policy, &opened.host);
        pool.set_discards(policy.discards);
        let growth = Growth::new(Rc::clone(&pool), id, id, host, policy);
        let open = Rc::new(Self {
            id,
            name: spec.name.clone(),
            pool,
            opened: Rc::clone(opened),
            placement: RefCell::new(Placement::at(&spec.node.table, &spec.disks)),
            origin_files: RefCell::default(),
            lost_images: RefCell::default(),
            growth,
            background: Background::new(host, &opened.health),
        });
        open.background.listen(Rc::clone(&open.growth).watch());
        open.background.listen(Rc::clone(&open).listen());
        let committer = Rc::clone(&open);
        open.background.work(async move || committer.commit_if_due().await);
        open.reclaim();
        open
    }

    /// `VG/LV` of a volume in it.
    pub(crate) fn full_name(&self, number: u64) -> String {
        let name = self.pool.info(number).map_or(String::new(), |info| info.name);
        format!("{}/{name}", self.name.split('/').next().unwrap_or_default())
    }

    /// Keeps the pool from being closed during a task on all of it that checks by itself whether the pool is still served.
    pub(crate) fn enter(&self) -> TrackerGuard {
        self.background.enter()
    }

    /// Works no more, and closes what is open below it as soon as no other task holds it. Its volumes are not in use any more.
    pub(crate) async fn close(&self, reason: Reason) -> Result<(), Failure> {
        self.background.close().await;
        let committed = match reason {
            Reason::Fenced => Ok(()), // Nothing gets through any more.
            _ => self.commit_last().await,
        };
        self.pool.drop_origins();
        let closed = self.opened.close().await.map_err(|error| failures::io("the last flush", error));
        if reason == Reason::Fenced { Ok(()) } else { closed.and(committed) }
    }

    /// What is in the log need not be done again at the next start; without room for that it is.
    async fn commit_last(&self) -> Result<(), Failure> {
        let committed = match self.pool.checkpoint().await {
            Err(PoolError::NoSpace) => self.pool.commit().await,
            other => other,
        };
        committed.map_err(|error| failures::pool("the last commit", &error))
    }

    /// Its metadata has this quota from now on, of memory with its next commit.
    pub(crate) fn set_quota(&self, quota: CacheQuota) {
        self.pool.set_metadata_order(quota.order);
        self.pool.set_cache(quota.cache_bytes, quota.policy);
    }

    /// Why removed volumes are not given back, if they are not.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        self.background.trouble()
    }

    /// Why it takes no changes any more, if a commit has failed.
    pub(crate) fn failure(&self) -> Option<IoError> {
        self.pool.last_failure()
    }

    /// An image is an origin in it.
    pub(crate) fn note_image(&self, origin: &Origin, image: &Image) {
        let layers = std::iter::once(&image.top).chain(&image.below);
        let files = layers.map(|layer| (origin.backing, opening_of(&layer.file)));
        let mut known = self.origin_files.borrow_mut();
        known.retain(|(_, file)| file.strong_count() > 0);
        known.extend(files);
    }

    /// Looks at the files of images that are origins in it, which may be as many as it has volumes.
    pub(crate) fn look_at_origin_files(&self) -> Vec<DiskRef> {
        let known = self.origin_files.borrow();
        let open = known
            .iter()
            .filter_map(|(backing, file)| Some((*backing, self.opened.host.world.disk_of(file.upgrade()?))));
        let open: Vec<(Backing, DiskRef)> = open.collect();
        let lost = open.iter().filter(|(_, file)| file.state() != DiskState::InUse);
        self.lost_images.replace(lost.map(|(backing, _)| *backing).collect());
        open.into_iter().map(|(_, file)| file).collect()
    }

    /// Whether an image was out of use at the last look that is the origin of the volume with this number, or of any.
    pub(crate) fn has_lost_image(&self, number: Option<u64>) -> bool {
        let lost = self.lost_images.borrow();
        let own = |number| self.pool.info(number).and_then(|info| info.origin).map(|origin| origin.backing);
        !lost.is_empty()
            && number.is_none_or(|number| own(number).is_some_and(|backing| lost.contains(&backing)))
    }

    /// What it is like now.
    pub fn facts(&self) -> PoolFacts {
        let usage = self.pool.usage();
        let free = usage.free + usage.returning;
        let room = usage.size.saturating_sub(usage.reserve + usage.fixed);
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        PoolFacts {
            size: usage.size,
            block_size: self.pool.block_size(),
            allocated: usage.size.saturating_sub(usage.reserve + free),
            free,
            percent: self.pool.percent(),
            virtual_bytes: usage.virtual_bytes,
            promise_max: room - room / MAPS_SHARE,
            volumes: count(usage.volumes),
            snapshots: count(usage.snapshots),
            removing: count(usage.removing),
            is_paused: self.pool.is_paused(),
            is_refusing: self.pool.is_refusing(),
            can_grow: self.growth.can_grow(),
            timed_out: self.growth.timed_out(),
            array: self.opened.arrays.status(self.id),
            failure: self.failure(),
        }
    }

    /// Something else is declared for it from now on.
    pub fn set_policy(&self, policy: StorePolicy) {
        self.growth.set_policy(policy);
        self.pool.set_discards(policy.discards);
    }

    /// A volume went to the trash, or left it.
    pub(crate) fn trash_changed(&self) {
        self.growth.kept_changed();
    }

    /// Writes that wait for space fail, now and until they may wait again.
    pub fn let_writes_fail(&self, fail: bool) {
        self.growth.let_fail(fail);
    }

    /// The group has more free space than before.
    pub fn group_has_space(&self) {
        self.growth.group_has_space();
    }

    /// It is where `table` says now, which is more than before.
    pub async fn grown(self: &Rc<Self>, table: &Table, disks: &Disks) -> Result<(), Failure> {
        let device = self.opened.device_of(self.id, table, disks).await?;
        self.pool.grown(device).map_err(|error| failures::pool("the pool", &error))?;
        self.placement.replace(Placement::at(table, disks));
        self.growth.group_has_space();
        self.reclaim();
        Ok(())
    }

    /// Commits what waits too long; when to look again, unless that failed: then the pool takes no changes any more.
    async fn commit_if_due(&self) -> Option<Duration> {
        let Err(error) = self.pool.commit_if_due().await else { return Some(self.pool.commit_interval()) };
        let remedy = "it takes no changes until varve pv scan opens it anew, on disks that work";
        self.growth.tell(format!("a commit failed ({error}): {remedy}"));
        None
    }

    /// Passes on what the pool says happened to it.
    async fn listen(self: Rc<Self>) {
        loop {
            match self.pool.next_event().await {
                PoolEvent::Paused => self.growth.paused(),
                PoolEvent::Resumed => self.growth.resumed(),
                PoolEvent::TimedOut => self.growth.waited_in_vain(),
                PoolEvent::Dropped(volume) => {
                    self.reclaim();
                    let (pool, number) = (self.id, volume.id);
                    self.opened.host.tell(VolumeEvent::TrashDropped { pool, number, name: volume.name });
                }
            }
        }
    }

    /// Gives back, bit by bit, what removed volumes held.
    pub(crate) fn reclaim(self: &Rc<Self>) {
        let open = Rc::clone(self);
        self.background.reclaim(async move || open.reclaim_batch().await);
    }

    /// Takes a batch.
    async fn reclaim_batch(&self) -> BatchEnd {
        match self.pool.remove_some(BATCH_STEPS).await {
            Ok(removal) if removal.volumes > 0 => BatchEnd::More,
            Ok(_) => BatchEnd::Done,
            Err(PoolError::NoSpace) => BatchEnd::NoRoom,
            Err(error) => {
                tracing::warn!(pool = %self.id, %error, "removed volumes are not given back now");
                BatchEnd::Failed(store_error(error))
            }
        }
    }
}

impl Vessel for Pool {
    fn size(&self) -> u64 {
        self.usage().size
    }

    fn percent(&self) -> u64 {
        Pool::percent(self)
    }

    fn is_paused(&self) -> bool {
        Pool::is_paused(self)
    }

    fn declare(&self, when_full: WhenFull, timeout: Duration) {
        self.set_when_full(match when_full {
            WhenFull::Pause => PoolWhenFull::Pause { timeout },
            // T12 of the group's text: no group declares that a pool drops anything.
            WhenFull::DropOldest | WhenFull::Error => PoolWhenFull::Error,
        });
    }

    fn filled(&self, percent: u64) -> LocalBoxFuture<'_, ()> {
        Box::pin(Pool::filled(self, percent))
    }

    fn can_give_up(&self) -> bool {
        self.trash().has_room()
    }

    fn give_up(&self) -> LocalBoxFuture<'_, bool> {
        Box::pin(async move {
            let dropped = self.trash().drop_oldest().await;
            dropped
                .inspect_err(|error| tracing::warn!(%error, "a pool cannot empty its trash"))
                .unwrap_or(false)
        })
    }

    fn words(&self) -> Words {
        Words { vessel: "the pool", changes: "writes" }
    }
}
