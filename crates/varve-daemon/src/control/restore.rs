//! A group's description written back from a backup: what would be lost is found first, named, and agreed to one by one.
//!
//! Invariants:
//! - D1. A restore takes nothing from a volume or pool of the group that was not named with `--drop`.
//! - D2. A pool or store is not given less than its superblock says that it is, as read from its disks: it could not be
//!   opened, and what it holds beyond would be given to others.

use super::Control;
use super::activate::tables;
use super::change::{Commits, shown};
use crate::shard::family;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, GroupRestore, Restored};
use varve_block::{Arena, Device};
use varve_format::{store, thin};
use varve_vg::model::{Description, LogicalVolume};
use varve_vg::plan::{LossKind, losses};
use varve_vg::size::format_size;
use varve_vg::{Change, Group, Plan};

/// What a restore would take from the group.
struct Lost {
    /// `VG/LV`.
    name: String,
    /// What it is, in words.
    words: String,
}

impl Control {
    /// Writes a description back. No volume of the group may be in use.
    pub(crate) async fn restore_group(
        &self,
        name: &str,
        request: GroupRestore,
    ) -> Result<Changed<Restored>, Failure> {
        let _turn = self.turn().await?;
        let id = self.find_group(name)?;
        let backup = Group::from_text(&request.text).map_err(|error| {
            Failure::new(Code::BadBackup, format!("the backup cannot be read: {error}"))
                .help("varve explain V0208")
        })?;
        self.refuse_if_used(id)?;
        let words = format!("vg restore {name}, version {}", backup.entry().sequence);
        let wanted = self.without_dropped_pools(id, backup.description(), &request.drop)?;
        let change = Change::Restore { backup: Box::new(wanted) };
        let commits = self.commits().await;
        let planned = commits.plan(id, change.clone(), &words)?;
        let (lost, before) = (self.lost_by(id, &planned).await?, commits.group(id)?);
        drop(commits);
        refuse_lost(&before, &lost, &request.drop, request.dry_run)?;
        if request.dry_run {
            let mut plan = shown(&planned);
            let more = lost.iter().map(|lost| format!("would need --drop {}: {}", lost.name, lost.words));
            plan.steps.extend(more);
            return Ok(Changed::Planned(plan));
        }
        let changed = match self.deactivate_group(id).await {
            Ok(()) => {
                let commits = self.commits().await;
                self.commit_restore(&commits, id, change, &words, &request.drop).await // planned anew (G1)
            }
            Err(failure) => Err(failure),
        };
        self.reconcile(id).await;
        self.activate_group(id).await;
        let after = changed?;
        let group = self.show_group(&id.to_string()).await?;
        let names = |one: &Group, other: &Group| names_only_in(one, other);
        let (dropped, added) = (names(&before, &after), names(&after, &before));
        Ok(Changed::Done(Restored { group, dropped, added }))
    }

    async fn commit_restore(
        &self,
        commits: &Commits<'_>,
        group: Uuid,
        change: Change,
        words: &str,
        agreed: &[String],
    ) -> Result<Group, Failure> {
        let planned = commits.plan(group, change, words)?;
        let lost = self.lost_by(group, &planned).await?;
        refuse_lost(&commits.group(group)?, &lost, agreed, false)?;
        let after = planned.after.clone();
        commits.commit(group, planned, Vec::new()).await?;
        for lost in lost {
            self.event(&lost.name, &format!("lost by a restore of its group: {}", lost.words));
        }
        Ok(after)
    }

    /// The backup without the pools that are to be dropped: a pool that is given less than it holds is none any more.
    fn without_dropped_pools(
        &self,
        group: Uuid,
        backup: &Description,
        agreed: &[String],
    ) -> Result<Description, Failure> {
        let dropped: BTreeSet<Uuid> = self.with_group(group, |known| {
            let entries = known.group.logical_volumes().iter().filter(|entry| entry.is_pool());
            let is_agreed = |entry: &&LogicalVolume| agreed.contains(&full_name(&known.group, &entry.name));
            entries.filter(is_agreed).map(|entry| entry.id).collect()
        })?;
        let mut wanted = backup.clone();
        wanted.logical_volumes.retain(|entry| !dropped.contains(&entry.id));
        Ok(wanted)
    }

    /// What the group would lose (D1, D2).
    async fn lost_by(&self, group: Uuid, planned: &Plan) -> Result<Vec<Lost>, Failure> {
        let before = self.with_group(group, |known| known.group.clone())?;
        let mut lost = Vec::new();
        for loss in losses(&before, &planned.after) {
            let volumes = if loss.is_pool { self.volumes_in(group, loss.volume) } else { String::new() };
            let words = match loss.kind {
                LossKind::All(bytes) => format!("all of it, {}{volumes}", format_size(bytes)),
                LossKind::Places { now, then } => {
                    let (now, then) = (format_size(now), format_size(then));
                    format!("it has {now}, and would have {then} as the backup says{volumes}")
                }
                LossKind::Store => "snapshots of it".to_owned(),
            };
            lost.push(Lost { name: full_name(&before, &loss.name), words });
        }
        for entry in planned.after.logical_volumes() {
            let name = full_name(&before, &entry.name);
            if !lost.iter().any(|known| known.name == name)
                && let Some(words) = self.held_beyond(group, &planned.after, entry).await?
            {
                let volumes = if entry.is_pool() { self.volumes_in(group, entry.id) } else { String::new() };
                lost.push(Lost { name, words: format!("{words}{volumes}") });
            }
        }
        Ok(lost)
    }

    /// D2: what a pool, or a store of a volume, holds beyond its end in `after`.
    async fn held_beyond(
        &self,
        group: Uuid,
        after: &Group,
        entry: &LogicalVolume,
    ) -> Result<Option<String>, Failure> {
        let Ok((table, stores)) = tables(after, entry) else { return Ok(None) };
        let disks = self.with_group(group, |known| self.files_of(known, after))?;
        let arena = self.context.arena();
        if entry.is_pool() {
            let device = family::device_of(&self.context, &table, &disks)?;
            let held = pool_size(&device, entry.id, &arena).await;
            return Ok(beyond("the pool", held, device.shape().size));
        }
        for recipe in stores {
            let device = family::device_of(&self.context, &recipe.table, &disks)?;
            let held = store_size(&device, recipe.id, &arena).await;
            if let Some(words) = beyond("its snapshot store", held, device.shape().size) {
                return Ok(Some(words));
            }
        }
        Ok(None)
    }

    /// The thin volumes of a pool, for people.
    fn volumes_in(&self, group: Uuid, pool: Uuid) -> String {
        let names = self.with_group(group, |known| {
            let own = known.thin.get(&pool).into_iter().flatten();
            own.map(|thin| full_name(&known.group, &thin.name)).collect::<Vec<_>>()
        });
        match names.unwrap_or_default() {
            names if names.is_empty() => String::new(),
            names => format!(", and with it {}", super::groups::few(&names)),
        }
    }
}

fn full_name(group: &Group, volume: &str) -> String {
    format!("{}/{volume}", group.name())
}

fn names_only_in(one: &Group, other: &Group) -> Vec<String> {
    let is_there = |entry: &&LogicalVolume| !other.logical_volumes().iter().any(|known| known.id == entry.id);
    one.logical_volumes().iter().filter(is_there).map(|entry| full_name(one, &entry.name)).collect()
}

fn beyond(what: &str, held: Option<u64>, has: u64) -> Option<String> {
    let held = held.filter(|held| *held > has)?;
    let (held, has) = (format_size(held), format_size(has));
    Some(format!("{what} has {held} by its own account, and would have {has} as the backup says"))
}

/// Bytes of the pool `id` by its superblocks, if one of them lies on `device` and can be read.
async fn pool_size(device: &Device, id: Uuid, arena: &Arena) -> Option<u64> {
    let mut newest: Option<thin::Superblock> = None;
    let mut addresses = vec![0];
    while let Some(address) = addresses.pop() {
        let block = read(device, address * thin::PART_SIZE, thin::PART_SIZE, arena).await;
        let length = block.and_then(|block| thin::Superblock::slot_length(&block, address));
        let Some(length) = length else {
            // The first slot is damaged: the second lies behind it, wherever that is.
            if address == 0 {
                let lengths = std::iter::successors(Some(1), |length| Some(length * 2));
                addresses = lengths.take_while(|length| *length <= thin::SLOT_BLOCKS_MAX).collect();
            }
            continue;
        };
        let slot = read(device, address * thin::PART_SIZE, length * thin::PART_SIZE, arena).await;
        if address == 0 {
            addresses = vec![length];
        }
        let Some(found) = slot.and_then(|slot| thin::Superblock::decode(&slot, address).ok()) else {
            continue;
        };
        if found.pool == id && newest.as_ref().is_none_or(|known| known.number < found.number) {
            newest = Some(found);
        }
    }
    newest.map(|superblock| superblock.end_block * thin::PART_SIZE)
}

/// Bytes of the store `id` by its superblocks, if one of them lies on `device` and can be read.
async fn store_size(device: &Device, id: Uuid, arena: &Arena) -> Option<u64> {
    let mut newest: Option<store::Superblock> = None;
    for address in store::SLOT_ADDRESSES {
        let block = read(device, address, thin::PART_SIZE, arena).await;
        let Some(found) = block.and_then(|block| store::Superblock::decode(&block, address).ok()) else {
            continue;
        };
        if found.store == id && newest.as_ref().is_none_or(|known| known.generation < found.generation) {
            newest = Some(found);
        }
    }
    newest.map(|superblock| superblock.store_size)
}

async fn read(device: &Device, offset: u64, length: u64, arena: &Arena) -> Option<varve_block::Buffer> {
    let is_inside = offset.checked_add(length).is_some_and(|end| end <= device.shape().size);
    let length = usize::try_from(length).ok().filter(|_| is_inside)?;
    device.read(offset, arena.take(length)).await.ok()
}

/// D1. Nothing is refused in a dry run, but names that lose nothing are.
fn refuse_lost(before: &Group, lost: &[Lost], agreed: &[String], dry_run: bool) -> Result<(), Failure> {
    let pools = before.logical_volumes().iter().filter(|entry| entry.is_pool());
    let pools: Vec<String> = pools.map(|entry| full_name(before, &entry.name)).collect();
    let loses = |name: &&String| lost.iter().any(|lost| lost.name == **name) || pools.contains(name);
    if let Some(name) = agreed.iter().find(|name| !loses(name)) {
        let message = format!("{name} would lose nothing by this restore, or is not there");
        return Err(Failure::new(Code::BadBackup, message).help("leave its --drop out"));
    }
    let unnamed: Vec<&Lost> = lost.iter().filter(|lost| !agreed.contains(&lost.name)).collect();
    if unnamed.is_empty() || dry_run {
        return Ok(());
    }
    let words: Vec<String> = unnamed.iter().map(|lost| format!("{}: {}", lost.name, lost.words)).collect();
    let drops: Vec<String> = lost.iter().map(|lost| format!("--drop {}", lost.name)).collect();
    let message = format!("the restore would lose what is there now: {}", words.join("; "));
    let help = format!("to agree to that: varve vg restore {} FILE {}", before.name(), drops.join(" "));
    Err(Failure::new(Code::RestoreLoses, message).help(help))
}
