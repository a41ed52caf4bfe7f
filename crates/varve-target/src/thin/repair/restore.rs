//! A pool's metadata written anew, from a text or from what can be read of it; data stays where it is.
//!
//! The new metadata goes to blocks that neither data nor the old metadata has, and one superblock, in the slot of the
//! older of the two, makes it the pool's. So a crash leaves the old or the new, and up to the first write to the pool the
//! old one is there still, whole.
//!
//! Invariants:
//! - RESTORE1. What is restored says the same as the text: whatever does not fit is an error, and nothing was written then.
//! - RESTORE2. Metadata is put where no data is by the text, where none of the old metadata is that can be read, and where
//!   none is to which the old log leads: a crash before the new superblock leaves the old pool, log and all.
//! - RESTORE3. A block that several volumes map is counted so, and everything restored is older than the last clone of every
//!   volume if anything is shared: nothing of it is overwritten without a look at the counts.
//! - RESTORE4. A volume of which a whole change of the log could not be made again stays as it was before that: no later change
//!   is made to it, nor to what would come from it.

use super::super::arguments::{check_origin, check_size};
use super::super::committing::commits::DIFFERENCES_MAX;
use super::super::lifecycle::volume::Volume;
use super::super::maps::diff::Damage;
use super::super::maps::runs::Content;
use super::super::recover::read_superblock;
use super::super::{Pool, PoolError, PoolOptions, index};
use super::offline::last_checkpoint;
use super::overlay::Overlay;
use super::text::{Head, Line, POOL_TEXT_TITLE, VolumeLine, parse_head, parse_line};
use crate::pdata::{MapError, MapOptions, Pace, Pages};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_block::{Arena, Clock, Device, Durability};
use varve_format::epoch::Epoch;
use varve_format::pdata::link::Link;
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{Change, Mapping, PART_SIZE, Record, Superblock, VolumeFlags, VolumeRows};

const NOT_A_TEXT: PoolError = PoolError::Misfit("a pool's text begins with: varve-thin-pool 2");
const TWICE: PoolError = PoolError::Misfit("a line of the text is about parts that an earlier one was about");

/// What was written anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Volumes of the pool.
    pub volumes: u64,
    /// Bytes that are mapped, in all volumes together.
    pub mapped_bytes: u64,
    /// Changes that the log speaks of and that could not be made.
    pub changes_lost: u64,
    /// Volumes that are what they were before one of these (RESTORE4), by name.
    pub behind: Vec<String>,
}

/// Writes the metadata that `text` says into the pool on `device`, whose data is where the text says. With `dry_run`
/// nothing is written.
pub async fn restore_pool(
    device: &Device,
    arena: &Arena,
    clock: &Clock,
    text: &str,
    dry_run: bool,
) -> Result<Restored, PoolError> {
    let target = if dry_run { Overlay::over(device) } else { device.clone() };
    let old = last_checkpoint(device, arena, clock).await.ok();
    let old = old.as_ref().map(|(old, _)| &**old);
    let (records, _) = match old {
        Some(old) => old.records().await,
        None => (Vec::new(), None),
    };
    let mut renewal = Renewal::begin(&target, arena, clock, old, &records, text).await?;
    renewal.make(text).await?;
    renewal.end(0, &BTreeSet::new()).await
}

/// Writes the metadata of the pool on `device` anew, from what can be read of it. `check_pool` reports before what is lost.
pub async fn repair_pool(
    device: &Device,
    arena: &Arena,
    clock: &Clock,
    dry_run: bool,
) -> Result<Restored, PoolError> {
    let target = if dry_run { Overlay::over(device) } else { device.clone() };
    let (old, _) = last_checkpoint(device, arena, clock).await?;
    let text = old.text(Damage::PassOver).await?;
    let (records, error) = old.records().await;
    if let Some(error @ PoolError::Format(_)) = error {
        return Err(error); // A later version has written it: it is not to be lost.
    }
    let mut renewal = Renewal::begin(&target, arena, clock, Some(&old), &records, &text).await?;
    renewal.make(&text).await?;
    let (lost, behind) = renewal.redo(&records).await;
    renewal.end(lost, &behind).await
}

/// A pool whose metadata is being made anew; nothing is written before its end, but to blocks that are not in use.
struct Renewal {
    pool: Rc<Pool>,
    /// Blocks of data that some volume holds already.
    held: Blocks,
    is_anything_shared: bool,
    /// Volumes that were being removed: they are left out.
    left: BTreeSet<u64>,
    /// Changes of the log whose blocks are in use already.
    refused: BTreeSet<(u64, usize)>,
}

/// Blocks, a bit each.
#[derive(Default)]
struct Blocks {
    groups: BTreeMap<u64, Vec<u64>>,
}

impl Blocks {
    /// Adds a block; whether it is new.
    fn insert(&mut self, block: Block) -> bool {
        let words = self.groups.entry(block.number() / GROUP_BLOCKS).or_insert_with(|| vec![0; 504]);
        let at = block.number() % GROUP_BLOCKS;
        let (word, bit) = (index(at / 64), 1 << (at % 64));
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }
}

/// The lines behind the first two, with their errors.
fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>, PoolError>> {
    let rest = text.lines().skip(2).filter(|line| !line.trim().is_empty());
    rest.map(|line| parse_line(line).ok_or(PoolError::Misfit("a line of the text has an unknown form")))
}

impl Renewal {
    /// A pool of which nothing is in use but what the text says is data, the old metadata, and that to which the old log,
    /// `records`, leads (RESTORE2).
    async fn begin(
        device: &Device,
        arena: &Arena,
        clock: &Clock,
        old: Option<&Pool>,
        records: &[Record],
        text: &str,
    ) -> Result<Renewal, PoolError> {
        let mut first = text.lines();
        if first.next() != Some(POOL_TEXT_TITLE) {
            return Err(NOT_A_TEXT);
        }
        let head = parse_head(first.next().unwrap_or_default()).ok_or(PoolError::Misfit(
            "the second line of the text must be: pool UUID block N slot N log N size N next N",
        ))?;
        let superblock = empty_superblock(device, arena, head).await?;
        let options = PoolOptions::default();
        let pool = Pool::build(device.clone(), arena.clone(), clock.clone(), options, &superblock);
        pool.map.pages().forget_all_use();
        let mut renewal = Renewal {
            pool: Rc::new(pool),
            held: Blocks::default(),
            is_anything_shared: false,
            left: BTreeSet::new(),
            refused: BTreeSet::new(),
        };
        // Behind everything that may be taken for a record, now or by a later version.
        let claims = renewal.pool.ring_reader().claims_from::<Record>(0).await;
        let behind = claims.iter().filter_map(|(_, number)| number.checked_add(1)).max();
        renewal.pool.commits.ring.skip_to(behind.unwrap_or(0));
        for line in lines(text) {
            if let Line::Parts { start, end, content: Content::Data(place) } = line? {
                renewal.claim(BlockRun::new(place, end - start)).await?;
            }
        }
        if let Some(old) = old {
            renewal.spare(old).await?;
        }
        renewal.claim_records(records).await?;
        Ok(renewal)
    }

    /// RESTORE2: marks as in use where data is.
    async fn claim(&mut self, run: BlockRun) -> Result<(), PoolError> {
        assert!(run.count > 0, "MAPPING1: data has blocks");
        if !self.pool.may_hold_data(run) {
            return Err(PoolError::Misfit("data lies where none can be"));
        }
        if self.pool.map.run(|pages| pages.claim(run)).await? {
            return Ok(());
        }
        // Others hold some of it too.
        let claim = |pages: &mut Pages, block: Block| {
            if pages.is_used(block)? { Ok(true) } else { pages.claim(BlockRun::one(block)) }
        };
        for block in run.blocks() {
            self.pool.map.run(|pages| claim(pages, block)).await?;
        }
        Ok(())
    }

    /// RESTORE2: what was in use is not overwritten, and free when the new metadata is there, if nothing leads to it.
    async fn spare(&mut self, old: &Pool) -> Result<(), PoolError> {
        let (base, end) = (self.pool.base_block(), self.pool.end_block.get().min(old.end_block.get()));
        self.left = old.volumes.removing();
        for group in (0..end.max(base) - base).step_by(index(GROUP_BLOCKS)) {
            let group = BlockRun::new(base + group, GROUP_BLOCKS.min(end - base - group));
            // A page that cannot be read says nothing; the nodes below are spared then.
            let was_used = old.map.run(|pages: &mut Pages| pages.marks(group)).await.unwrap_or_default();
            let is_used = self.pool.map.run(|pages| pages.marks(group)).await?;
            let to_spare = |(was, is): (bool, bool)| was && !is;
            let to_spare: Vec<bool> = was_used.into_iter().zip(is_used).map(to_spare).collect();
            let mut first = group.first;
            for run in to_spare.chunk_by(|one, two| one == two) {
                let blocks = BlockRun::new(first, run.len() as u64);
                if run[0] {
                    let spared = self.pool.map.run(|pages| pages.claim_unpublished(blocks)).await?;
                    assert!(spared, "RESTORE2: none of them is in use");
                }
                first = blocks.end();
            }
        }
        for block in old.nodes_below_roots().await.range(base..end) {
            self.spare_block(*block).await?;
        }
        Ok(())
    }

    async fn spare_block(&self, block: Block) -> Result<(), MapError> {
        assert!(block >= self.pool.base_block(), "RESTORE2: it lies behind the log");
        let spare = |pages: &mut Pages| {
            if pages.is_used(block)? { Ok(true) } else { pages.claim_unpublished(BlockRun::one(block)) }
        };
        self.pool.map.run(spare).await.map(drop)
    }

    /// REPLAY2 of the journal, and RESTORE2: no node is put where a record of the log maps something.
    async fn claim_records(&mut self, records: &[Record]) -> Result<(), PoolError> {
        let (base, end) = (self.pool.base_block(), self.pool.end_block.get());
        for (record, at, change) in numbered(records) {
            let Change::Map { count, place, .. } = change else { continue };
            let run = BlockRun::new(*place, *count);
            if self.pool.map.run(|pages| pages.claim_unpublished(run)).await? {
                continue;
            }
            self.refused.insert((record, at));
            let last = run.checked_end().unwrap_or(end).min(end);
            for block in BlockRun::between(base.max(*place).min(last), last).blocks() {
                self.spare_block(block).await?;
            }
        }
        Ok(())
    }

    /// Makes everything that the text says.
    async fn make(&mut self, text: &str) -> Result<(), PoolError> {
        let (mut current, mut last): (Option<Rc<Volume>>, u64) = (None, 0);
        for line in lines(text) {
            match line? {
                Line::Volume(line) => (current, last) = (Some(self.volume(&line)?), 0),
                Line::Parts { start, end, content } => {
                    let volume = current.as_ref();
                    let volume =
                        volume.ok_or(PoolError::Misfit("the text speaks of parts before any volume"))?;
                    if start < last {
                        return Err(TWICE);
                    }
                    last = end;
                    if content != Content::Hole && end > volume.parts() {
                        return Err(PoolError::Misfit(
                            "the text speaks of parts beyond the end of their volume",
                        ));
                    }
                    self.parts(volume, start, end, content).await?;
                    self.relieve().await?;
                }
            }
        }
        if self.is_anything_shared {
            let fence = self.pool.map.pages().fence();
            assert!(fence < self.pool.map.pages().generation(), "RESTORE3: what comes now is younger");
            for volume in self.pool.volumes.all().values() {
                volume.last_clone.set(fence);
                volume.dirty.set(true);
            }
        }
        Ok(())
    }

    fn volume(&mut self, line: &VolumeLine<'_>) -> Result<Rc<Volume>, PoolError> {
        let pool = &self.pool;
        pool.check_stored_name(line.snapshot_of, line.name)?;
        let known = pool.volumes.all().contains_key(&line.id);
        if known || line.id == 0 || line.id >= pool.volumes.next_id() {
            return Err(PoolError::Misfit("a volume has an id that another one has, or none has had yet"));
        }
        check_size(line.bytes)?;
        check_origin(line.origin, line.bytes)?;
        let mut rows = VolumeRows {
            volume: line.id,
            root: Link::NONE,
            since: 0,
            bytes: line.bytes,
            mapped: 0,
            flags: line.flags,
            source: line.source,
            created: line.created,
            snapshot_of: line.snapshot_of,
            origin: line.origin,
            name: line.name.to_owned(),
        };
        if let Some(like) = line.like {
            const NOT_ABOVE: PoolError = PoolError::Misfit("a volume is like one that is not above it");
            let like = pool.volumes.find(like).map_err(|_| NOT_ABOVE)?;
            rows.root = pool.share(&mut pool.map.pages(), &like);
            (rows.since, rows.mapped) = (like.last_clone.get(), like.mapped.get());
            assert!(rows.since > 0, "RESTORE3: what is shared was fenced");
            self.is_anything_shared = true;
        }
        Ok(pool.volumes.enter(rows))
    }

    /// Some parts of a volume lie there from now on.
    async fn parts(
        &mut self,
        volume: &Volume,
        start: u64,
        end: u64,
        content: Content,
    ) -> Result<(), PoolError> {
        assert!(start < end, "RESTORE1: a line says something");
        let mut at = start;
        while at < end {
            let place = match content {
                Content::Data(place) => Some(place + (at - start)),
                Content::Zeros => None,
                Content::Hole => {
                    let unmap = |pages: &mut Pages| self.pool.try_unmap(pages, volume, at, end);
                    at = self.pool.map.run(unmap).await?.0;
                    continue;
                }
            };
            let count = (end - at).min(Mapping::COUNT_MAX);
            at = self.adopt(volume, Mapping { start: at, count, place, birth: 0 }).await?;
        }
        Ok(())
    }

    /// Maps as many parts of `new` as lie in one leaf; their blocks were claimed. Where the rest begins.
    async fn adopt(&mut self, volume: &Volume, new: Mapping) -> Result<u64, PoolError> {
        let pool = Rc::clone(&self.pool);
        let end = pool.map.run(|pages| pool.try_put(pages, volume, new)).await?;
        assert!(new.start < end && end <= new.end(), "RUNS1: {end} for {new:?}");
        let adopted = new.place.map(|place| BlockRun::new(place, end - new.start));
        for block in adopted.into_iter().flat_map(BlockRun::blocks) {
            if !self.held.insert(block) {
                pool.ref_counts.increment(BlockRun::one(block)); // RESTORE3
                self.is_anything_shared = true;
            }
        }
        Ok(end)
    }

    /// Memory is bounded, whatever the text's length.
    async fn relieve(&self) -> Result<(), MapError> {
        let pool = &self.pool;
        if pool.ref_counts.differences() > DIFFERENCES_MAX {
            while pool.map.run(|pages| pool.ref_counts.try_fold(pages)).await? {}
        }
        let is_cache_dirty = pool.map.pages().wants_commit();
        if is_cache_dirty {
            pool.map.write_back(Pace::Prompt).await?;
        }
        Ok(())
    }

    /// Makes again what the log says was changed; how many changes could not be made, and which volumes are as they were
    /// before one of these (RESTORE4).
    async fn redo(&mut self, records: &[Record]) -> (u64, BTreeSet<u64>) {
        let (mut lost, mut behind) = (0, BTreeSet::new());
        for (record, at, change) in numbered(records) {
            let (volume, source) = concerned(change);
            let is_removal = matches!(
                change,
                Change::Map { .. } | Change::Unmap { .. } | Change::Zero { .. } | Change::Forget { .. }
            );
            if is_removal && self.left.contains(&volume) {
                continue; // It was being removed, and is gone now.
            }
            let is_behind = behind.contains(&volume) || source.is_some_and(|source| behind.contains(&source));
            if is_behind && matches!(change, Change::Remove { .. }) {
                let _is_there = self.pool.redo(change).await; // It is removed, whatever it holds.
                behind.remove(&volume);
                self.left.insert(volume);
                continue;
            }
            let may_be = !is_behind && !self.refused.contains(&(record, at)) && self.pool.lies_inside(change);
            if may_be && self.pool.redo(change).await.is_ok() {
                continue;
            }
            lost += 1;
            if let Change::RollBack { rest, .. } | Change::Empty { rest, .. } = change {
                self.left.insert(*rest); // There is none, and what is said of its removal is nothing lost.
            }
            let is_whole = matches!(
                change,
                Change::RollBack { .. } | Change::Empty { .. } | Change::Clone { .. } | Change::Create { .. }
            );
            if is_whole {
                behind.insert(volume);
            }
        }
        (lost, behind)
    }

    /// Writes everything, and the superblock that makes it the pool's.
    async fn end(self, changes_lost: u64, behind: &BTreeSet<u64>) -> Result<Restored, PoolError> {
        let before = self.pool.number.get();
        if !self.pool.write_checkpoint().await? {
            return Err(PoolError::NoSpace);
        }
        assert_eq!(self.pool.number.get(), before + 1, "one superblock makes it the pool's");
        if before == 0 {
            // No superblock could be read. One of another version would refuse the new one, too (PAIR3).
            let zeros = self.pool.arena.take_zeroed(index(self.pool.layout.slot_blocks * PART_SIZE));
            self.pool.device().write(0, zeros.freeze(), Durability::Volatile).await?;
        }
        self.pool.ring_reader().mend().await?;
        let volumes = self.pool.volumes.all();
        let alive = volumes.values().filter(|volume| !volume.has(VolumeFlags::REMOVING));
        let mapped = alive.clone().map(|volume| volume.mapped.get()).sum::<u64>();
        let named = alive.clone().filter(|volume| behind.contains(&volume.id));
        let behind = named.map(|volume| self.pool.volumes.full_name(volume)).collect();
        let (volumes, mapped_bytes) = (alive.count() as u64, mapped * PART_SIZE);
        Ok(Restored { volumes, mapped_bytes, changes_lost, behind })
    }
}

/// All changes, with the numbers of their records and their own.
fn numbered(records: &[Record]) -> impl Iterator<Item = (u64, usize, &Change)> {
    records.iter().flat_map(|record| {
        record.changes.iter().enumerate().map(move |(at, change)| (record.sequence, at, change))
    })
}

/// The volume that is changed, and the one that it gets what it holds from.
fn concerned(change: &Change) -> (u64, Option<u64>) {
    match change {
        Change::Clone { volume, source, .. } | Change::RollBack { volume, source, .. } => {
            (*volume, Some(*source))
        }
        Change::Map { volume, .. }
        | Change::Unmap { volume, .. }
        | Change::Zero { volume, .. }
        | Change::Create { volume, .. }
        | Change::Remove { volume }
        | Change::Forget { volume }
        | Change::Resize { volume, .. }
        | Change::SetFlags { volume, .. }
        | Change::Rename { volume, .. }
        | Change::ShowLess { volume, .. }
        | Change::Empty { volume, .. } => (*volume, None),
    }
}

/// The superblock of a pool in which nothing is, laid out as the text says, younger than any that can be read.
async fn empty_superblock(device: &Device, arena: &Arena, head: Head) -> Result<Superblock, PoolError> {
    let known = read_superblock(device, arena).await.ok();
    let mut superblock = Superblock {
        number: known.as_ref().map_or(0, |known| known.number),
        pool: head.pool,
        block_size: head.block_size,
        slot_blocks: head.slot_size / PART_SIZE,
        log_blocks: head.log_size / PART_SIZE,
        end_block: Block::end_of(head.size),
        generation: known.as_ref().map_or(0, |known| known.generation),
        free_blocks: 0,
        nodes: 0,
        epoch: known.as_ref().map_or(Epoch::default(), |known| known.epoch),
        shares: Link::NONE,
        volumes: Link::NONE,
        head: 0,
        sequence: known.as_ref().map_or(1, |known| known.sequence),
        next_volume: head.next_volume,
        places: known.as_ref().map_or(Vec::new(), |known| known.places.clone()),
    };
    superblock.check().map_err(PoolError::Format)?;
    let alike = |known: &Superblock| {
        (known.pool, known.slot_blocks, known.log_blocks)
            == (superblock.pool, superblock.slot_blocks, superblock.log_blocks)
    };
    if !known.as_ref().is_none_or(alike) {
        return Err(PoolError::Misfit(
            "the text is of another pool, or of one that is laid out in another way",
        ));
    }
    if superblock.end_block < superblock.base_block() + 2 * PAGE_PLACES {
        return Err(PoolError::Misfit("a pool of the size that the text names has no room for anything"));
    }
    if Block::end_of(device.shape().size) < superblock.end_block {
        return Err(PoolError::Misfit("the device is smaller than the pool was"));
    }
    assert!(superblock.nodes == 0 && superblock.volumes.is_none(), "RESTORE1: there is nothing yet");
    superblock.free_blocks = MapOptions::fresh(0, superblock.base_block(), superblock.end_block).free_blocks;
    Ok(superblock)
}
