//! A new copy of a snapshot store: content copied, metadata written anew, the old store kept as a volume.
//!
//! Invariants:
//! - RENEW1. Nothing that was there is written: the copy is in extents that nothing owned.
//! - RENEW2. The group's description changes last, at once, when the copy is durable.

use super::arrays::{incomplete, make};
use super::damage::{Contents, Loss};
use super::pools;
use super::renewal::{Done, Renewed, Wish, commit, io, kept_name};
use super::stores::{find_store, store_device, store_name};
use varve_api::{Code, Failure};
use varve_block::{Arena, Device, Durability, Extent, IoError, MIB};
use varve_control::shown_plan;
use varve_os::ShardContext;
use varve_target::snapshot::{Salvage, dump_store, restore_store, salvage_store};
use varve_vg::open::{Absent, CommitError};
use varve_vg::table::store_table;
use varve_vg::{Change, Disk, Stamp, plan, scan};

/// Makes a new copy of a store, or of a pool's metadata.
pub(super) async fn renew(context: &ShardContext, disks: Vec<Disk>, wish: Wish) -> Result<Renewed, Failure> {
    let arena = context.arena();
    let mut survey = scan(disks, &arena).await;
    if let Some(pool) = pools::find_pool(&survey, &wish.store) {
        return pools::renew(context, survey, pool, wish).await;
    }
    let (index, volume, store) = find_store(&survey, &wish.store)?;
    let mut open = survey.groups.swap_remove(index);
    let stamp = Stamp { date: context.clock().date(), change: wish.command.clone() };
    if !wish.dry_run {
        open.reconcile(Absent::Refuse, &stamp).await.map_err(|error| commit(&error))?;
    }
    let old = store_device(context, &open, &volume, &store).await?;
    let salvage = match wish.text {
        Some(text) => whole(text),
        None => read_metadata(&old, &arena, &wish.store).await?,
    };
    let kept_as = kept_name(open.group(), &volume);
    let change = Change::ReplaceStore {
        volume: volume.name.clone(),
        store: store.id,
        size: open.group().bytes(store.extents),
        kept_as: kept_as.clone(),
        kept_id: uuid::Uuid::new_v4(),
    };
    let planned = plan(open.group(), change, &stamp).map_err(|error| commit(&CommitError::Plan(error)))?;
    if wish.dry_run {
        return Ok(Renewed::Planned(shown_plan(&planned)));
    }
    let after = planned.after.lv(&volume.name).expect("the plan keeps this volume");
    let renewed = after.stores().find(|renewed| renewed.id == store.id).expect("and its store");
    let table = store_table(&planned.after, after, renewed).map_err(|error| incomplete(&error))?;
    // RENEW1: the plan took free extents for it.
    let opened = make(context, &table, &open).await?;
    let copy = opened.device.clone();
    assert!(planned.bytes_taken > 0 && planned.bytes_freed == 0, "RENEW1: the copy lies where nothing lay");
    let unreadable = copy_content(&old, &copy, &arena).await.map_err(|error| io(&wish.store, error))?;
    restore_store(&copy, &arena, &salvage.text).await.map_err(|error| {
        Failure::new(Code::BadBackup, format!("{}: {error}", wish.store))
            .help("nothing was changed; varve dump --store prints a text that fits")
    })?;
    copy.flush().await.map_err(|error| io(&wish.store, error))?;
    opened.close().await?;
    let name = store_name(&planned.after, after, renewed);
    assert_eq!(name, wish.store, "the new store has the old one's place");
    let group = open.group().name().to_owned();
    assert_eq!(planned.based_on, open.group().entry().sequence, "RENEW2: nothing is changed yet");
    open.apply(planned, Vec::new()).await.map_err(|error| commit(&error))?;
    let mut losses = Contents::parse(&salvage.text).losses(&unreadable);
    losses.extend(losses_of(salvage.lost, salvage.lost_of_volume));
    Ok(Renewed::Done(Box::new(Done {
        kept_as: format!("{group}/{kept_as}"),
        volume: format!("{group}/{}", volume.name),
        losses,
        lost_records: salvage.lost_records,
        doubtful: salvage.doubtful,
    })))
}

/// A text of which nothing is lost.
fn whole(text: String) -> Salvage {
    Salvage { text, lost: Vec::new(), lost_of_volume: Vec::new(), lost_records: 0, doubtful: Vec::new() }
}

/// What the snapshots have lost, and the volume.
fn losses_of(snapshots: Vec<(String, Vec<Extent>)>, volume: Vec<Extent>) -> Vec<Loss> {
    let of_snapshots = snapshots.into_iter().map(|(snapshot, extents)| (Some(snapshot), extents));
    let all = of_snapshots.chain([(None, volume)]);
    let losses = all.map(|(snapshot, extents)| Loss { snapshot, extents });
    losses.filter(|loss| !loss.extents.is_empty()).collect()
}

/// What a store says of itself, all of it or what can be read.
async fn read_metadata(store: &Device, arena: &Arena, name: &str) -> Result<Salvage, Failure> {
    if let Ok(text) = dump_store(store, arena).await {
        return Ok(whole(text));
    }
    salvage_store(store, arena).await.map_err(|error| {
        let message = format!("the metadata of the store {name} cannot be read: {error}");
        Failure::new(Code::DataCorrupt, message)
            .help(format!("varve restore FILE PATH… --store {name} writes a text of varve dump --store back"))
    })
}

/// Copies all of `old`; bytes that cannot be read become zeros. Which those are.
async fn copy_content(old: &Device, new: &Device, arena: &Arena) -> Result<Vec<Extent>, IoError> {
    let mut lost = Vec::new();
    for (_, piece) in Extent::new(0, old.shape().size.min(new.shape().size)).pieces(MIB) {
        let length = usize::try_from(piece.length).expect("a MiB fits");
        if let Ok(content) = old.read(piece.offset, arena.take(length)).await {
            new.write(piece.offset, content.freeze(), Durability::Volatile).await?;
            continue;
        }
        for (_, part) in piece.pieces(4096) {
            let length = usize::try_from(part.length).expect("a part fits");
            let content = match old.read(part.offset, arena.take(length)).await {
                Ok(content) => content,
                Err(_) => {
                    lost.push(part);
                    arena.take_zeroed(length)
                }
            };
            new.write(part.offset, content.freeze(), Durability::Volatile).await?;
        }
    }
    Ok(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_volume_has_lost_is_named_like_what_a_snapshot_has() {
        let (one, two) = (Extent::new(0, 4096), Extent::new(8192, 4096));
        let loss = |snapshot: Option<&str>, extent| Loss {
            snapshot: snapshot.map(str::to_owned),
            extents: vec![extent],
        };
        let of_old = vec![("old".to_owned(), vec![one])];
        assert_eq!(losses_of(of_old.clone(), Vec::new()), [loss(Some("old"), one)]);
        assert_eq!(losses_of(of_old, vec![two]), [loss(Some("old"), one), loss(None, two)]);
    }
}
