//! External origins of thin volumes on the shards: found where the origin lives, attached where the pool is, copied when a volume
//! is to need its origin no more.
//!
//! Invariant ORIGINS1: an origin is a read-only snapshot with the number and the date that the pool remembers, or a read-only
//! volume, or an image that was compared; so no volume ever shows what another one holds.

use super::snapshot_facts::Target;
use super::thin::{is_alive, is_in_use};
use crate::ShardContext;
use crate::ShardHandle;
use crate::copies::progress::Progress;
use crate::doors::traffic::{Counters, counted};
use crate::failures;
use crate::layers::Image;
use crate::lifecycle::background::rest_after;
use crate::lifecycle::open;
use crate::opened::open_pool::OpenPool;
use crate::opened::pool_serving;
use crate::opened::pool_serving::serve;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Access, Device, accept_unaligned, read_only};
use varve_target::snapshot::StoreError;
use varve_target::thin::{Backing, Origin, PoolError, VolumeFlags, VolumeInfo};

/// After a batch of copying it rests so many times as long as that took.
const REST_FACTOR: u32 = 1;

/// How long copying rests when the pool has no room, and how often in a row before it is aborted.
const REST_FULL: Duration = Duration::from_millis(200);
const RESTS_MAX: u32 = 300;

/// Where an origin lives.
#[derive(Clone)]
pub struct Place {
    /// On this shard.
    pub home: ShardHandle,
    /// The volume of which it is a snapshot, or the pool that it is in.
    pub owner: Uuid,
}

/// What volumes are led to.
#[derive(Clone)]
pub enum Below {
    /// A snapshot, or a read-only volume.
    Stored(Place),
    /// A disk image.
    Image(Image),
}

/// Origins of volumes of a pool that cannot be used yet.
pub fn missing(context: &ShardContext, pool: Uuid) -> Vec<Origin> {
    context.pool(pool).map(|open| open.pool.missing_origins()).unwrap_or_default()
}

/// What is backed by `below`: `LV` or `LV@SNAP` each. A volume released from it in memory only would need it again after a crash:
/// the release is made durable first.
pub async fn above(context: &ShardContext, pool: Uuid, below: Backing) -> Result<Vec<String>, Failure> {
    let open = pool_serving::pool(context, pool)?;
    open.pool.commit().await.map_err(|error| failures::pool("a commit of the pool", &error))?;
    let list = open.pool.list();
    let is_backed =
        |volume: &&VolumeInfo| volume.origin.is_some_and(|over| over.backing == below) && is_alive(volume);
    Ok(list.iter().filter(is_backed).map(|volume| own_name(volume, &list)).collect())
}

/// Something that has an origin.
pub struct Above {
    /// Its pool, and its number there.
    pub pool: Uuid,
    /// The volume's number in the pool.
    pub number: u64,
    /// `LV` or `LV@SNAP`.
    pub name: String,
    /// Its origin.
    pub origin: Origin,
}

/// Everything in a pool that has an origin.
pub fn above_all(context: &ShardContext, pool: Uuid) -> Vec<Above> {
    let Some(open) = context.pool(pool) else { return Vec::new() };
    let list = open.pool.list();
    let above = |volume: &VolumeInfo| {
        let origin = volume.origin.filter(|_| is_alive(volume))?;
        Some(Above { pool, number: volume.id, name: own_name(volume, &list), origin })
    };
    list.iter().filter_map(above).collect()
}

/// The name of a volume or snapshot of a pool, without its group; `list` is all of the pool, in the order of numbers.
fn own_name(volume: &VolumeInfo, list: &[VolumeInfo]) -> String {
    let Some(of) = volume.snapshot_of else { return volume.name.clone() };
    let place = list.binary_search_by_key(&of, |known| known.id).ok();
    let of = place.map_or_else(|| of.to_string(), |place| list[place].name.clone());
    format!("{of}@{}", volume.name)
}

/// Every origin of something in a pool, or that would be one after a crash.
pub async fn over(context: &ShardContext, pool: Uuid) -> Result<Vec<Origin>, Failure> {
    let open = pool_serving::pool(context, pool)?;
    open.pool.commit().await.map_err(|error| failures::pool("a commit of the pool", &error))?;
    Ok(open.pool.origins())
}

/// Snapshots of a volume, or in a pool, that are marked as origins.
pub fn bases(context: &ShardContext, owner: Uuid) -> Vec<Target> {
    let Some(open) = context.pool(owner) else {
        return context.stack(owner).map(|stack| stack.bases()).unwrap_or_default();
    };
    let list = open.pool.list().into_iter();
    let noted = list.filter(|volume| volume.flags.has(VolumeFlags::BASE));
    noted.map(|volume| Target { store: owner, number: volume.id }).collect()
}

/// Marks a snapshot of a volume, or in a pool, as an origin of others, or removes the mark.
pub async fn set_base(
    context: &ShardContext,
    owner: Uuid,
    target: Target,
    is_base: bool,
) -> Result<(), Failure> {
    if let Some(open) = context.pool(owner) {
        let noted = open.pool.set_base(target.number, is_base).await;
        return noted.map_err(|error| failures::pool("its origin", &error));
    }
    let noted = match context.stack(owner) {
        Some(stack) => stack.set_base(target, is_base).await,
        None => Err(StoreError::NotFound),
    };
    noted.map_err(|error| failures::store("its origin", &error))
}

/// The name of a snapshot behind that of its volume: `LV@SNAP` in a pool, else `SNAP`.
pub fn name(context: &ShardContext, owner: Uuid, origin: &Origin) -> Option<String> {
    let Backing::Snapshot { store, number, created } = origin.backing else { return None };
    if let Some(open) = context.pool(store) {
        let volume = open.pool.info(number).filter(|volume| is_origin(volume, created))?;
        let parent = volume.snapshot_of.and_then(|of| open.pool.info(of));
        return Some(own_name(&volume, parent.as_slice()));
    }
    let descriptor = context.stack(owner)?.open(store)?.store.descriptor(number).ok()?;
    Some(descriptor.name)
}

/// ORIGINS1, in a pool.
fn is_origin(volume: &VolumeInfo, created: u64) -> bool {
    volume.created == created && volume.flags.has(VolumeFlags::READ_ONLY) && is_alive(volume)
}

/// The device of an origin that lives on this shard.
fn find(context: &ShardContext, owner: Uuid, origin: &Origin) -> Result<Device, Failure> {
    let lost = || {
        let message = "the snapshot or read-only volume that is its origin is not there";
        Failure::new(Code::VolumeUnusable, message).help("varve snap list")
    };
    let (store, number, created) = match origin.backing {
        Backing::Snapshot { store, number, created } => (store, number, created),
        Backing::Volume { id } => {
            let volume = open::device(context, id, None).ok_or_else(lost)?;
            let is_whole = volume.shape().access == Access::ReadOnly && volume.shape().size >= origin.bytes;
            return if is_whole { Ok(volume) } else { Err(lost()) }; // ORIGINS1
        }
        Backing::Image { .. } => return Err(lost()),
    };
    if let Some(open) = context.pool(store) {
        let volume = open.pool.info(number).filter(|volume| is_origin(volume, created));
        let volume = volume.ok_or_else(lost)?;
        let device = open.pool.volume(volume.id).map_err(|error| failures::pool("its origin", &error))?;
        return Ok(read_only(counted(
            accept_unaligned(device, context.arena()),
            Counters::default(),
            open.opened.health.clone(),
        )));
    }
    let stack = context.stack(owner).ok_or_else(lost)?;
    let descriptor = stack.open(store).ok_or_else(lost)?.store.descriptor(number).map_err(|_| lost())?;
    if descriptor.created.0 != created || !descriptor.read_only {
        return Err(lost()); // ORIGINS1
    }
    let view = stack.origin_view(&descriptor.name).map_err(|error| failures::store("its origin", &error))?;
    Ok(read_only(view))
}

/// A device for this shard onto an origin that lives on this one or another.
pub(crate) async fn reach(context: &ShardContext, below: &Below, origin: &Origin) -> Result<Device, Failure> {
    let place = match below {
        Below::Image(image) => return image.device(context).await,
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

/// Attaches `origin` to all volumes of a pool that are backed by it, and serves them.
pub async fn attach(context: &ShardContext, pool: Uuid, origin: Origin, below: Below) -> Result<(), Failure> {
    let device = reach(context, &below, &origin).await?;
    attach_device(context, pool, origin, (&below, &device)).await
}

/// The same where the origin was reached already.
pub(crate) async fn attach_device(
    context: &ShardContext,
    pool: Uuid,
    origin: Origin,
    (below, device): (&Below, &Device),
) -> Result<(), Failure> {
    let open = pool_serving::pool(context, pool)?;
    if let Below::Image(image) = below {
        open.note_image(&origin, image);
    }
    open.pool.attach_origin(&origin, device).map_err(|error| failures::pool("its origin", &error))?;
    for volume in open.pool.list().iter().filter(|volume| is_in_use(volume)) {
        serve(&open, context, volume.id).await?;
    }
    Ok(())
}

/// The number of a volume of a pool, or of a snapshot of it, and its origin.
pub fn origin_of(
    context: &ShardContext,
    pool: Uuid,
    number: u64,
    snapshot: Option<&str>,
) -> Result<(u64, Option<Origin>), Failure> {
    let open = pool_serving::pool(context, pool)?;
    let found = match snapshot {
        Some(snapshot) => open.pool.snapshot_named(number, snapshot),
        None => open.pool.info(number),
    };
    let missing = || Failure::new(Code::VolumeNotFound, "the volume is gone").help("varve lv list");
    found.map(|volume| (volume.id, volume.origin)).ok_or_else(missing)
}

/// There is no such volume any more.
pub struct Gone;

/// Whether what a volume of a pool shows of its origin can be copied now.
pub fn may_be_flattened(context: &ShardContext, pool: Uuid, number: u64) -> Result<bool, Gone> {
    let Some(open) = context.pool(pool) else { return Ok(false) };
    match open.pool.volume(number) {
        Ok(_) => Ok(true),
        Err(PoolError::NotFound) => Err(Gone),
        Err(_) => Ok(false),
    }
}

/// Copies what a volume of a pool shows of its origin, until it needs that no more. Rests as long as it works.
pub async fn flatten(
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
        let open: Rc<OpenPool> = pool_serving::pool(context, pool)?;
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
        clock.sleep(rest_after(clock.now().since(begun), REST_FACTOR)).await;
    }
}
