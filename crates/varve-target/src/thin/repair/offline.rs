//! A pool that is not served, looked at without a write: as it would be opened, or else as its last checkpoint left it.

use super::super::lifecycle::volume::Volume;
use super::super::recover::{read_superblock, volumes_in};
use super::super::{Pool, PoolDamage, PoolError, PoolOptions, PoolReport};
use super::overlay::Overlay;
use crate::pdata::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_block::{Arena, Clock, Device, Extent, joined};
use varve_format::pdata::Block;
use varve_format::pdata::node::Entries;
use varve_format::thin::{Change, PART_SIZE, VolumeFlags, is_stored_name};

const UNDONE: &str = "the log speaks of changes of these bytes that cannot be made again";

/// Reads and verifies the pool on `device`; nothing is written. An error says that no superblock can be read, or that the
/// device is smaller than the pool on it.
pub async fn check_pool(device: &Device, arena: &Arena, clock: &Clock) -> Result<PoolReport, PoolError> {
    let first = read_superblock(device, arena).await?.sequence;
    let (pool, errors) = look_at(device, arena, clock).await?;
    let mut report = pool.check().await?;
    report.errors.splice(0..0, errors);
    pool.check_log(first, &mut report).await;
    Ok(report)
}

/// The pool as it would be opened; if it cannot be, as its last checkpoint left it, and what is wrong.
pub(in crate::thin) async fn look_at(
    device: &Device,
    arena: &Arena,
    clock: &Clock,
) -> Result<(Rc<Pool>, Vec<String>), PoolError> {
    let overlay = Overlay::over(device);
    match Pool::open(overlay, arena.clone(), clock.clone(), PoolOptions::default()).await {
        Ok(pool) => Ok((pool, Vec::new())),
        Err(error) => {
            let (pool, mut errors) = last_checkpoint(device, arena, clock).await?;
            errors.insert(0, format!("it cannot be opened: {error}; this is what the last checkpoint says"));
            Ok((pool, errors))
        }
    }
}

/// The pool as its last checkpoint left it, with the volumes that can be read, and what cannot.
pub(in crate::thin) async fn last_checkpoint(
    device: &Device,
    arena: &Arena,
    clock: &Clock,
) -> Result<(Rc<Pool>, Vec<String>), PoolError> {
    let superblock = read_superblock(device, arena).await?;
    if Block::end_of(device.shape().size) < superblock.end_block {
        return Err(PoolError::Misfit("the device is smaller than the pool on it"));
    }
    let (overlay, options) = (Overlay::over(device), PoolOptions::default());
    let pool = Rc::new(Pool::build(overlay, arena.clone(), clock.clone(), options, &superblock));
    let (volumes, errors) = pool.readable_volumes(pool.table.get()).await;
    for volume in volumes {
        pool.volumes.take_in(volume);
    }
    Ok((pool, errors))
}

impl Pool {
    /// As many of the volumes that a map of volumes names as can be read; and what cannot.
    pub(in crate::thin) async fn readable_volumes(&self, table: Tree) -> (Vec<Volume>, Vec<String>) {
        let mut ahead = Vec::from_iter(self.top(table));
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        while let Some(below) = ahead.pop() {
            let (down, _) = below;
            let Ok(node) = self.node_below(below).await else {
                let block = down.address();
                errors.push(format!("the map of volumes: node {block} cannot be read; volumes are lost"));
                continue;
            };
            match &node.entries {
                Entries::Branch(children) => {
                    let child = |index| (down.to_child(&node, children, index), node.generation);
                    ahead.extend((0..children.len()).rev().map(child));
                }
                Entries::Leaf(rows) => entries.extend(rows.iter().copied()),
            }
        }
        assert!(entries.is_sorted_by(|one, two| one.0 < two.0), "DESCENT1: each leaf has its own keys");
        let mut volumes = Vec::new();
        let mut names = BTreeSet::new();
        for (id, rows) in volumes_in(&entries) {
            let mut rows = match rows {
                Ok(rows) => rows,
                Err(error) => {
                    errors.push(format!("volume {id} is lost: {error}"));
                    continue;
                }
            };
            let is_named = !rows.flags.has(VolumeFlags::REMOVING);
            if is_named
                && (!is_stored_name(&rows.name) || !names.insert((rows.snapshot_of, rows.name.clone())))
            {
                errors.push(format!("volume {id} has no name of its own: it is called volume-{id} here"));
                rows.name = format!("volume-{id}");
                names.insert((rows.snapshot_of, rows.name.clone()));
            }
            match self.objection(&rows) {
                None => volumes.push(Volume::from_rows(rows, false)),
                Some(why) => errors.push(format!("volume {id} is lost: {why}")),
            }
        }
        (volumes, errors)
    }

    /// Whether the log, which begins with record `first`, ends where its last record is, and not where one is damaged.
    async fn check_log(&self, first: u64, report: &mut PoolReport) {
        let next = self.commits.ring.sequence();
        assert!(next >= first, "THIN3: numbers rise");
        let (unread, error) = self.records().await;
        report.records = next - first + unread.len() as u64;
        let next = unread.last().map_or(next, |record| record.sequence + 1);
        if let Some(error) = error {
            report.error(format!("the log: whether there is a record {next} cannot be read: {error}"));
        }
        let later = self.records_from(next).await;
        let Some((first, _)) = later.first_key_value() else { return };
        assert!(*first >= next, "THIN3: what was read is no later record");
        let lost = format!(
            "the log: record {next} is damaged, and {} behind it, which were durable, cannot be used",
            later.len()
        );
        report.error(lost);
        let mut concerned: BTreeMap<u64, Vec<Extent>> = BTreeMap::new();
        for change in later.values().flat_map(|record| &record.changes) {
            let (volume, start, end) = match change {
                Change::Map { volume, start, count, .. } => (*volume, *start, start.saturating_add(*count)),
                Change::Unmap { volume, start, end } | Change::Zero { volume, start, end } => {
                    (*volume, *start, *end)
                }
                _ => continue,
            };
            let extent =
                Extent::between(start.min(end).saturating_mul(PART_SIZE), end.saturating_mul(PART_SIZE));
            concerned.entry(volume).or_default().push(extent);
        }
        for (volume, extents) in concerned {
            let known = self.volumes.get(volume);
            let name = known.as_ref().map_or(String::new(), |known| known.known_name());
            let snapshot_of = known.as_ref().and_then(|known| known.snapshot_of);
            let size = Extent::new(0, known.map_or(u64::MAX, |known| known.bytes.get()));
            let extents = joined(extents).into_iter().filter_map(|extent| extent.intersect(size)).collect();
            report.damage.push(PoolDamage { volume, snapshot_of, name, extents, why: UNDONE });
        }
    }
}

/// A volume by its name, or a snapshot of it by its own.
pub type VolumeAndSnapshot = (String, Option<String>);

/// In which extents two volumes or snapshots of the pool on `device` differ, as [`Pool::diff`], and whether none of them is
/// there without need. `NotFound` if one of them is not in the pool.
pub async fn compare_volumes(
    device: &Device,
    arena: &Arena,
    clock: &Clock,
    one: VolumeAndSnapshot,
    two: VolumeAndSnapshot,
) -> Result<(Vec<Extent>, bool), PoolError> {
    let (pool, errors) = look_at(device, arena, clock).await?;
    if !errors.is_empty() {
        return Err(PoolError::Corrupt("the pool cannot be opened: varve check says what is damaged"));
    }
    let find = |(volume, snapshot): VolumeAndSnapshot| {
        let volume = pool.named(&volume).ok_or(PoolError::NotFound)?;
        match snapshot {
            None => Ok(volume.id),
            Some(own) => {
                pool.snapshot_named(volume.id, &own).map(|found| found.id).ok_or(PoolError::NotFound)
            }
        }
    };
    let (one, two) = (find(one)?, find(two)?);
    Ok((pool.diff(one, two).await?, pool.have_same_origin(one, two)))
}
