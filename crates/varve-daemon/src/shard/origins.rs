//! What thin volumes lie over, on the shards: found where it lives, attached where the pool is, copied when a volume is to
//! need it no more.
//!
//! Invariant A1: an origin is a read-only snapshot with the number and the date that the pool remembers, or a read-only
//! volume, or an image that was compared; so nobody ever sees what another one holds.

use super::open_pool::OpenPool;
use super::states::Target;
use super::{here, thin};
use crate::failures;
use crate::jobs::Progress;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Access, Device, read_only, widen};
use varve_format::thin::PART_SIZE;
use varve_os::{DiskFile, ShardContext, ShardHandle};
use varve_target::Padded;
use varve_target::thin::{Origin, PoolError, VolumeFlags, VolumeInfo};

/// The least rest after a dose of copying.
const REST_MIN: Duration = Duration::from_micros(200);

/// How long copying rests when the pool has no room, and how often in a row before it gives up.
const REST_FULL: Duration = Duration::from_millis(200);
const RESTS_MAX: u32 = 300;

/// Where an origin lives.
#[derive(Clone)]
pub(crate) struct Place {
    /// On this shard.
    pub(crate) home: ShardHandle,
    /// The volume of which it is a snapshot, or the pool that it is in.
    pub(crate) owner: Uuid,
}

/// A disk image that is open. It has the right not to be written, as far as others ask for that right.
#[derive(Clone)]
pub(crate) struct Image {
    /// The file.
    pub(crate) file: Arc<DiskFile>,
    /// What lies behind its last whole sector.
    pub(crate) tail: Arc<[u8]>,
}

impl Image {
    /// The image on this shard, in whole blocks of a thin volume; zeros follow its end.
    pub(crate) fn device(&self, context: &ShardContext) -> Device {
        let block_size = u32::try_from(PART_SIZE).expect("a part is 4 KiB");
        Device::new(Padded::new(context.disk(&self.file), Arc::clone(&self.tail), block_size))
    }
}

/// What volumes are led to.
#[derive(Clone)]
pub(crate) enum Below {
    /// A snapshot, or a read-only volume.
    Stored(Place),
    /// A disk image.
    Image(Image),
}

/// What volumes of a pool lie over that cannot be used yet.
pub(crate) fn missing(pool: Uuid) -> Vec<Origin> {
    here().pool(pool).map(|open| open.pool.missing_origins()).unwrap_or_default()
}

/// What lies over a snapshot: `LV` or `LV@SNAP` each. Whoever has let go of it in memory only would need it again after a
/// crash: that is made durable first.
pub(crate) async fn above(pool: Uuid, target: Target) -> Result<Vec<String>, Failure> {
    let open = thin::pool(pool)?;
    open.pool.commit().await.map_err(|error| failures::pool("a commit of the pool", &error))?;
    let list = open.pool.list();
    let lies_over = |volume: &&VolumeInfo| {
        let over =
            volume.origin.is_some_and(|over| (over.store, over.snapshot) == (target.store, target.number));
        over && !volume.flags.has(VolumeFlags::REMOVING)
    };
    Ok(list.iter().filter(lies_over).map(|volume| own_name(volume, &list)).collect())
}

/// What the volumes and snapshots of a pool lie over, or would after a crash: stores, pools, images, volumes.
pub(crate) async fn needed(pool: Uuid) -> Result<Vec<Uuid>, Failure> {
    let open = thin::pool(pool)?;
    open.pool.commit().await.map_err(|error| failures::pool("a commit of the pool", &error))?;
    let list = open.pool.list();
    let alive = list.iter().filter(|volume| !volume.flags.has(VolumeFlags::REMOVING));
    Ok(alive.filter_map(|volume| Some(volume.origin?.store)).collect())
}

/// The name of a volume or snapshot of a pool, without its group.
fn own_name(volume: &VolumeInfo, list: &[VolumeInfo]) -> String {
    let Some((number, snapshot)) = volume.name.split_once('@') else { return volume.name.clone() };
    let family = list.iter().find(|known| known.id.to_string() == number);
    format!("{}@{snapshot}", family.map_or(number, |family| &family.name))
}

/// The name of a snapshot behind that of its volume: `LV@SNAP` in a pool, else `SNAP`.
pub(crate) fn name(owner: Uuid, origin: &Origin) -> Option<String> {
    if let Some(open) = here().pool(origin.store) {
        let list = open.pool.list();
        let volume = list.iter().find(|volume| is_origin(volume, origin))?;
        return Some(own_name(volume, &list));
    }
    let descriptor = here().family(owner)?.open(origin.store)?.store.descriptor(origin.snapshot).ok()?;
    Some(descriptor.name)
}

/// A1, in a pool.
fn is_origin(volume: &VolumeInfo, origin: &Origin) -> bool {
    let is_itself = volume.id == origin.snapshot && volume.created == origin.created;
    is_itself && volume.flags.has(VolumeFlags::READ_ONLY) && !volume.flags.has(VolumeFlags::REMOVING)
}

/// The device of an origin that lives on this shard.
fn find(context: &ShardContext, owner: Uuid, origin: &Origin) -> Result<Device, Failure> {
    let lost = || {
        let message = "the snapshot or read-only volume that it lies over is not there";
        Failure::new(Code::VolumeUnusable, message).help("varve snap list")
    };
    if let Some(open) = here().pool(origin.store) {
        let list = open.pool.list();
        let volume = list.iter().find(|volume| is_origin(volume, origin)).ok_or_else(lost)?;
        let device = open.pool.volume(volume.id).map_err(|error| failures::pool("its origin", &error))?;
        return Ok(read_only(widen(device, context.arena())));
    }
    if origin.store == owner {
        let volume = super::family::device(owner, None).ok_or_else(lost)?;
        let is_whole = volume.shape().access == Access::ReadOnly && volume.shape().size >= origin.bytes;
        return if is_whole { Ok(volume) } else { Err(lost()) }; // A1
    }
    let family = here().family(owner).ok_or_else(lost)?;
    let open = family.open(origin.store).ok_or_else(lost)?;
    let descriptor = open.store.descriptor(origin.snapshot).map_err(|_| lost())?;
    if descriptor.created.0 != origin.created || !descriptor.read_only {
        return Err(lost()); // A1
    }
    let view = family.view(&descriptor.name).map_err(|error| failures::store("its origin", &error))?;
    Ok(read_only(view))
}

/// A device for this shard onto an origin that lives on this one or another.
pub(super) async fn reach(context: &ShardContext, below: &Below, origin: &Origin) -> Result<Device, Failure> {
    let place = match below {
        Below::Image(image) => return Ok(image.device(context)),
        Below::Stored(place) => place,
    };
    if place.home.index() == context.index() {
        return find(context, place.owner, origin);
    }
    let (owner, wanted) = (place.owner, *origin);
    let portal = place.home.run(async move |there: ShardContext| {
        find(&there, owner, &wanted).map(|device| there.portal(&device))
    });
    let portal = portal.await.map_err(failures::gone)??;
    Ok(context.import(&portal))
}

/// Leads all volumes of a pool that lie over `origin` to it, and serves them.
pub(crate) async fn attach(
    context: &ShardContext,
    pool: Uuid,
    origin: Origin,
    below: Below,
    control: &ShardHandle,
) -> Result<(), Failure> {
    let open = thin::pool(pool)?;
    let device = reach(context, &below, &origin).await?;
    open.pool.attach_origin(&origin, &device).map_err(|error| failures::pool("its origin", &error))?;
    for volume in open.pool.list().iter().filter(|volume| thin::is_volume(volume)) {
        let is_served = here().family(thin::volume_id(pool, volume.id)).is_some();
        if !is_served && open.pool.volume(volume.id).is_ok() {
            thin::enter(&open, control, context, volume.id).await?;
        }
    }
    Ok(())
}

/// The number of a volume of a pool, or of a snapshot of it, and what that lies over.
pub(crate) fn lies_over(
    pool: Uuid,
    number: u64,
    snapshot: Option<&str>,
) -> Result<(u64, Option<Origin>), Failure> {
    let open = thin::pool(pool)?;
    let list = open.pool.list();
    let full = snapshot.map(|snapshot| format!("{number}@{snapshot}"));
    let found = list.iter().find(|volume| match &full {
        Some(full) => volume.name == *full,
        None => volume.id == number,
    });
    let missing = || Failure::new(Code::VolumeNotFound, "the volume is gone").help("varve lv list");
    found.map(|volume| (volume.id, volume.origin)).ok_or_else(missing)
}

/// Copies what a volume of a pool shows of its origin, until it needs that no more. Rests as long as it works.
pub(crate) async fn flatten(
    context: &ShardContext,
    pool: Uuid,
    number: u64,
    progress: &Progress,
) -> Result<(), Failure> {
    let (clock, mut rests) = (context.clock(), RESTS_MAX);
    loop {
        if progress.is_cancelled() {
            return Err(Failure::new(Code::JobCancelled, "cancelled; what was copied stays"));
        }
        let open: Rc<OpenPool> = thin::pool(pool)?;
        let begun = clock.now();
        let flattened = open.pool.flatten_some(number).await;
        if flattened == Err(PoolError::NoSpace) && rests > 0 {
            rests -= 1; // the pool may grow, or be given more
            clock.sleep(REST_FULL).await;
            continue;
        }
        rests = RESTS_MAX;
        match flattened.map_err(|error| failures::pool("the copy of the origin", &error))? {
            None => return Ok(()),
            Some(how_far) => progress.report(how_far.done, how_far.total),
        }
        clock.sleep(clock.now().since(begun).max(REST_MIN)).await;
    }
}
