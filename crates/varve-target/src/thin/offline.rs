//! A pool that nobody serves, looked at without a write: as it would be opened, or else as its last checkpoint left it.

use super::overlay::Overlay;
use super::recover::read_superblock;
use super::volume::Volume;
use super::{Pool, PoolDamage, PoolError, PoolOptions, PoolReport, index};
use crate::pdata::Pages;
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{Arena, Clock, Device, Extent, MIB, joined};
use varve_format::pdata::node::{Entries, Key, Value};
use varve_format::thin::{Change, PART_SIZE, Record, VolumeRows};

const UNDONE: &str = "the log speaks of changes of these bytes that cannot be made again";

/// Reads and verifies the pool on `device`; nothing is written. An error says that not even a superblock can be read.
pub async fn check_pool(device: &Device, arena: &Arena, clock: &Clock) -> Result<PoolReport, PoolError> {
    read_superblock(device, arena).await?;
    let (pool, errors) = look_at(device, arena, clock).await?;
    let mut report = pool.check().await?;
    report.errors.splice(0..0, errors);
    pool.check_log(&mut report).await?;
    Ok(report)
}

/// The pool as it would be opened; if it cannot be, as its last checkpoint left it, and what is wrong.
pub(super) async fn look_at(
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
pub(super) async fn last_checkpoint(
    device: &Device,
    arena: &Arena,
    clock: &Clock,
) -> Result<(Rc<Pool>, Vec<String>), PoolError> {
    let superblock = read_superblock(device, arena).await?;
    if device.shape().size / PART_SIZE < superblock.end_block {
        return Err(PoolError::Misfit("the device is smaller than the pool on it"));
    }
    let (overlay, options) = (Overlay::over(device), PoolOptions::default());
    let pool = Rc::new(Pool::build(overlay, arena.clone(), clock.clone(), options, &superblock));
    let errors = pool.load_readable_volumes().await;
    Ok((pool, errors))
}

impl Pool {
    /// As much of the map of volumes as can be read; what cannot.
    async fn load_readable_volumes(&self) -> Vec<String> {
        assert!(self.volumes.borrow().is_empty(), "nothing was read before");
        let (mut ahead, mut entries, mut errors) =
            (vec![(self.table.get().root, None)], Vec::new(), Vec::new());
        while let Some((block, level)) = ahead.pop() {
            if block < self.base_block() || block >= self.end_block.get() {
                continue;
            }
            let Ok(node) = self.map.run(|pages: &mut Pages| pages.node(block)).await else {
                errors.push(format!("the map of volumes: node {block} cannot be read; volumes are lost"));
                continue;
            };
            match &node.entries {
                Entries::Branch(children) if level.is_none_or(|level| level == node.level) => {
                    ahead.extend(children.iter().rev().map(|child| (child.1, Some(node.level - 1))));
                }
                Entries::Branch(_) => {
                    errors.push(format!("the map of volumes: node {block} is on another level"));
                }
                Entries::Leaf(rows) => entries.extend(rows.iter().copied()),
            }
        }
        self.enter_readable(&entries, &mut errors);
        errors
    }

    fn enter_readable(&self, entries: &[(Key, Value)], errors: &mut Vec<String>) {
        for rows in entries.chunk_by(|one, two| one.0 >> 64 == two.0 >> 64) {
            let id = u64::try_from(rows[0].0 >> 64).expect("half of a key");
            match VolumeRows::decode(id, rows) {
                Ok(rows) => drop(self.take_in(Volume::from_rows(rows, false))),
                Err(error) => errors.push(format!("volume {id} is lost: {error}")),
            }
        }
    }

    /// Whether the log ends where its last record is, and not where one is damaged.
    async fn check_log(&self, report: &mut PoolReport) -> Result<(), PoolError> {
        let (next, count) = {
            let ring = self.commits.ring.borrow();
            (ring.sequence, ring.live.len() as u64)
        };
        let unread = self.read_log().await?;
        report.records = count + unread.len() as u64;
        let next = unread.last().map_or(next, |(record, _)| record.sequence + 1);
        let later = self.records_from(next).await?;
        let Some((first, _)) = later.first_key_value() else { return Ok(()) };
        assert!(*first >= next, "T3: what was read is no later record");
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
            let known = self.volumes.borrow().get(&volume).cloned();
            let name = known.as_ref().map_or(String::new(), |known| known.name.borrow().clone());
            let size = Extent::new(0, known.map_or(u64::MAX, |known| known.bytes.get()));
            let extents = joined(extents).into_iter().filter_map(|extent| extent.intersect(size)).collect();
            report.damage.push(PoolDamage { volume, name, extents, why: UNDONE });
        }
        Ok(())
    }

    /// All whole records of this pool in the ring with this number or a higher one.
    pub(super) async fn records_from(&self, sequence: u64) -> Result<BTreeMap<u64, Record>, PoolError> {
        let (first, blocks) = {
            let ring = self.commits.ring.borrow();
            (ring.first, ring.blocks)
        };
        assert!(blocks > 0, "B4: there is a ring");
        let (device, mut found) = (self.device(), BTreeMap::new());
        for (_, piece) in Extent::new(first * PART_SIZE, blocks * PART_SIZE).pieces(MIB) {
            let bytes = device.read(piece.offset, self.arena.take(index(piece.length))).await?;
            for (at, block) in bytes.chunks_exact(index(PART_SIZE)).enumerate() {
                let Some((number, length)) = Record::claims(block, self.store_id()) else { continue };
                let start = piece.offset / PART_SIZE + at as u64;
                if number < sequence || start + length > first + blocks {
                    continue;
                }
                let whole = self.arena.take(index(length * PART_SIZE));
                let whole = device.read(start * PART_SIZE, whole).await?;
                if let Ok(record) = Record::decode(&whole) {
                    found.insert(number, record);
                }
            }
        }
        Ok(found)
    }
}

/// A volume by its name, or a snapshot of it by its own.
pub type VolumeAndSnapshot = (String, Option<String>);

/// In which extents two volumes or snapshots of the pool on `device` differ, as [`Pool::diff`]. `NotFound` if one of them
/// is not in the pool.
pub async fn compare_volumes(
    device: &Device,
    arena: &Arena,
    clock: &Clock,
    one: VolumeAndSnapshot,
    two: VolumeAndSnapshot,
) -> Result<Vec<Extent>, PoolError> {
    let (pool, errors) = look_at(device, arena, clock).await?;
    if !errors.is_empty() {
        return Err(PoolError::Corrupt("the pool cannot be opened: varve check says what is damaged"));
    }
    let find = |(volume, snapshot): VolumeAndSnapshot| {
        let volume = pool.named(&volume).ok_or(PoolError::NotFound)?;
        match snapshot {
            None => Ok(volume.id),
            Some(own) => {
                let name = format!("{}@{own}", volume.id);
                pool.named(&name).map(|snapshot| snapshot.id).ok_or(PoolError::NotFound)
            }
        }
    };
    let (one, two) = (find(one)?, find(two)?);
    pool.diff(one, two).await
}
