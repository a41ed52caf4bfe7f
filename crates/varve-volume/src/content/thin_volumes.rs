//! Thin volumes on the shard of their pool: made, named, removed, listed, compared.

use super::origins::{self, Below};
use super::pool_error::store_error;
use super::thin::{InTrash, ThinVolume, is_volume, volume_id};
use crate::ShardContext;
use crate::failures;
use crate::opened::open_pool::{OpenPool, PoolFacts};
use crate::opened::pool_serving::{enter, pool};
use crate::spec::ActivationSpec;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::Extent;
use varve_target::snapshot::StoreError;
use varve_target::thin::{NewVolume, Origin, Pool, PoolError, Trashed, VolumeInfo};

/// What a pool is like now, and its volumes.
pub fn look(context: &ShardContext, id: Uuid) -> Result<(PoolFacts, Vec<ThinVolume>), Failure> {
    let open = pool(context, id)?;
    let volumes =
        open.pool.list().into_iter().filter(is_volume).map(|info| thin_volume(context, &open, info));
    Ok((open.facts(), volumes.collect()))
}

/// The volume of a pool that has this number, if there is one.
pub fn look_at(context: &ShardContext, id: Uuid, number: u64) -> Result<Option<ThinVolume>, Failure> {
    let open = pool(context, id)?;
    let info = open.pool.info(number).filter(is_volume);
    Ok(info.map(|info| thin_volume(context, &open, info)))
}

fn thin_volume(context: &ShardContext, open: &OpenPool, info: VolumeInfo) -> ThinVolume {
    let id = volume_id(open.id, info.id);
    ThinVolume {
        id,
        pool: open.id,
        trash: info.trashed.map(|time| in_trash(&open.pool, &info, time)),
        number: info.id,
        name: info.name,
        bytes: info.bytes,
        created: info.created,
        origin: info.origin,
        is_served: context.stack(id).is_some_and(|stack| !stack.lacks_origin()),
    }
}

fn in_trash(pool: &Pool, info: &VolumeInfo, time: Trashed) -> InTrash {
    let snapshots = pool.snapshots_of(info.id);
    let sum = |sum: u64, bytes: u64| sum.saturating_add(bytes);
    InTrash {
        time,
        snapshots: snapshots.len(),
        mapped: info.mapped_bytes,
        promised: snapshots.iter().map(|snapshot| snapshot.bytes).fold(info.bytes, sum),
    }
}

/// How many bytes a pool can promise, and how many it has promised.
pub fn promises(context: &ShardContext, id: Uuid) -> Result<(u64, u64), Failure> {
    let facts = pool(context, id)?.facts();
    Ok((facts.promise_max, facts.virtual_bytes))
}

/// Makes a volume in a pool, over an origin or not, and serves it. Returns its number.
pub async fn create(
    context: &ShardContext,
    spec: &ActivationSpec,
    name: &str,
    bytes: u64,
    over: Option<(Origin, Below)>,
) -> Result<u64, Failure> {
    let open = pool(context, spec.node.id)?;
    let over = match over {
        // Before there is a volume that needs it.
        Some((origin, below)) => {
            let device = origins::reach(context, &below, &origin).await?;
            Some((origin, below, device))
        }
        None => None,
    };
    let new = NewVolume { name: name.to_owned(), bytes, origin: over.as_ref().map(|(origin, ..)| *origin) };
    let number = open.pool.create(&new).await.map_err(|error| failures::pool(name, &error))?;
    match over {
        Some((origin, below, device)) => {
            origins::attach_device(context, spec.node.id, origin, (&below, &device)).await?;
        }
        None => enter(&open, context, number).await?,
    }
    Ok(number)
}

/// Gives a volume of a pool another name.
pub async fn rename(context: &ShardContext, id: Uuid, number: u64, name: &str) -> Result<(), Failure> {
    pool(context, id)?.pool.rename(number, name).await.map_err(|error| failures::pool(name, &error))
}

/// Puts a volume of a pool into the trash: it is not served any more, and keeps what it holds.
pub async fn put_into_trash(
    context: &ShardContext,
    id: Uuid,
    number: u64,
    trashed: Trashed,
) -> Result<(), Failure> {
    let open = pool(context, id)?;
    let put = open.pool.trash().put(number, trashed).await;
    put.map_err(|error| failures::pool("the volume", &error))?;
    context.state().forget(volume_id(id, number));
    open.trash_changed();
    Ok(())
}

/// Brings a volume of a pool back from the trash, and serves it.
pub async fn restore(context: &ShardContext, id: Uuid, number: u64, name: &str) -> Result<(), Failure> {
    let open = pool(context, id)?;
    open.pool.rename(number, name).await.map_err(|error| failures::pool(name, &error))?;
    open.trash_changed();
    enter(&open, context, number).await
}

/// Removes volumes of a pool that are in the trash, and their snapshots. One that is gone is removed already.
pub async fn give_up(context: &ShardContext, id: Uuid, numbers: &[u64]) -> Result<(), Failure> {
    let open = pool(context, id)?;
    for number in numbers {
        match open.pool.trash().give_up(*number).await {
            Ok(()) | Err(PoolError::NotFound) => {}
            Err(error) => return Err(failures::pool("the volume", &error)),
        }
    }
    open.reclaim();
    open.trash_changed();
    Ok(())
}

/// Removes a volume of a pool from view at once; its space is freed bit by bit.
pub async fn remove(context: &ShardContext, id: Uuid, number: u64) -> Result<(), Failure> {
    let open = pool(context, id)?;
    if open.pool.count_snapshots(number) > 0 {
        return Err(
            Failure::new(Code::VolumeHasSnapshots, "the volume has snapshots").help("varve snap list")
        );
    }
    open.pool.remove(number).await.map_err(|error| failures::pool("the volume", &error))?;
    // Only now: a volume that is still there is served.
    context.state().forget(volume_id(id, number));
    open.reclaim();
    Ok(())
}

/// A volume of a pool by its number, or a snapshot of it by its own name.
pub type State = (u64, Option<String>);

/// In which extents two volumes or snapshots of a pool differ, and whether none of them is there without need.
pub async fn diff(
    context: &ShardContext,
    id: Uuid,
    one: State,
    two: State,
) -> Result<(Vec<Extent>, bool), StoreError> {
    let open = pool(context, id).map_err(|_| StoreError::NotFound)?;
    let find = |(number, snapshot): State| match snapshot {
        None => Ok(number),
        Some(own) => open.pool.snapshot_named(number, &own).map(|found| found.id).ok_or(StoreError::NotFound),
    };
    let (one, two) = (find(one)?, find(two)?);
    if one == two {
        return Ok((Vec::new(), true));
    }
    let extents = open.pool.diff(one, two).await.map_err(store_error)?;
    Ok((extents, open.pool.have_same_origin(one, two)))
}
