//! What of a pool's maps and log is believed: checksums say that a block is what was written, not that it fits the others.
//!
//! Invariants:
//! - Z1. What was read decides nothing before it was compared with what it leads to: no number of it is used as a place, a
//!   length or a count that the rest of the pool rules out. What does not fit is an error that names the block.

use super::manage::{check_origin, check_size, check_volume_name};
use super::runs::PARTS_MAX;
use super::volume::Volume;
use super::{Pool, PoolError};
use crate::pdata::MapError;
use varve_block::IoError;
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
use varve_format::thin::{Change, NUMBER_MAX, VolumeFlags, VolumeRows};

/// All flags that a volume can have.
const FLAGS_ALL: u32 = VolumeFlags::READ_ONLY
    | VolumeFlags::REMOVING
    | VolumeFlags::ORIGIN
    | VolumeFlags::HELD
    | VolumeFlags::BASE;

/// Where data can lie in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Block where the groups of the space map begin.
    pub(super) base: u64,
    /// The first block behind the pool.
    pub(super) end: u64,
}

impl Bounds {
    /// Whether these blocks lie behind the log and in the pool.
    pub(super) fn contain(&self, first: u64, blocks: u64) -> bool {
        let end = first.checked_add(blocks);
        first >= self.base && end.is_some_and(|end| end <= self.end)
    }

    /// Whether data can lie in these blocks: no page of the space map does.
    pub(super) fn may_hold_data(&self, first: u64, blocks: u64) -> bool {
        if !self.contain(first, blocks) {
            return false;
        }
        let at = (first - self.base) % GROUP_BLOCKS;
        // What leaves out the pages' places lies in one group.
        at >= PAGE_PLACES && at + blocks <= GROUP_BLOCKS
    }
}

/// Why there cannot be a volume with these rows in a pool whose maps are of transaction `generation`, where `next` is
/// the number that no volume has had yet.
pub(super) fn objection(
    rows: &VolumeRows,
    bounds: Bounds,
    generation: u64,
    next: u64,
) -> Option<&'static str> {
    let is_removing = rows.flags.has(VolumeFlags::REMOVING);
    if rows.volume == 0 || rows.volume >= next {
        return Some("a volume has a number that none has had yet");
    }
    if !rows.root.is_none() && !bounds.contain(rows.root.block(), 1) {
        return Some("the map of a volume begins where no node can lie");
    }
    if rows.since >= generation {
        return Some("a volume was cloned in a transaction that there was not yet");
    }
    if check_size(rows.bytes).is_err() || rows.mapped > PARTS_MAX {
        return Some("a volume has a size, or a number of mapped blocks, that none can have");
    }
    if !is_removing && check_volume_name(&rows.name).is_err() {
        return Some("a volume has a name that none can have");
    }
    None
}

/// Which volume of which pool says what cannot be.
pub(super) fn tell_of_volume(pool: &Pool, volume: u64, why: &'static str) {
    tracing::error!(pool = %pool.id, volume, why, "a volume of a pool contradicts the pool");
}

impl Pool {
    /// Where data can lie.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { base: self.base_block(), end: self.end_block.get() }
    }

    /// Why there cannot be a volume with these rows.
    pub(super) fn objection(&self, rows: &VolumeRows) -> Option<&'static str> {
        objection(rows, self.bounds(), self.map.pages().generation(), self.next_volume.get())
    }

    /// Whether the log may say that `change` was made to the pool as it is now (Z1).
    pub(super) fn may_be_made(&self, change: &Change) -> Result<(), PoolError> {
        let objection = self.objection_to(change);
        if let Some(why) = objection {
            tracing::error!(pool = %self.id, ?change, why, "the log of a pool contradicts the pool");
        }
        objection.map_or(Ok(()), |why| Err(PoolError::Corrupt(why)))
    }

    fn objection_to(&self, change: &Change) -> Option<&'static str> {
        const TAKEN: &str = "the log makes a volume whose number another one has had";
        const NAME: &str = "the log gives a volume a name that none can have";
        const FLAGS: &str = "the log gives a volume flags that do not fit it";
        const SIZE: &str = "the log gives a volume a size that none can have";
        const PARTS: &str = "the log changes blocks that no volume has";
        let is_new = |id: u64| (self.next_volume.get()..NUMBER_MAX).contains(&id);
        let fits = |flags: u32, name: &str| {
            let is_removing = VolumeFlags(flags).has(VolumeFlags::REMOVING);
            flags & !FLAGS_ALL == 0 && is_removing == name.is_empty()
        };
        let is_name = |name: &str| name.is_empty() || check_volume_name(name).is_ok();
        let is = |id: u64, flag: u32| self.volumes.borrow().get(&id).is_some_and(|volume| volume.has(flag));
        let rules: [(bool, &'static str); 4] = match change {
            Change::Create { volume, bytes, flags, origin, name, .. } => [
                (is_new(*volume), TAKEN),
                (check_size(*bytes).is_ok() && check_origin(*origin, *bytes).is_ok(), SIZE),
                (fits(*flags, name), FLAGS),
                (is_name(name), NAME),
            ],
            Change::Clone { volume, flags, name, .. } => [
                (is_new(*volume), TAKEN),
                (fits(*flags, name) && !VolumeFlags(*flags).has(VolumeFlags::ORIGIN), FLAGS),
                (is_name(name), NAME),
                (true, NAME),
            ],
            Change::RollBack { volume, source, rest } => {
                [(is_new(*rest), TAKEN), (volume != source, PARTS), (true, NAME), (true, NAME)]
            }
            Change::Empty { rest, .. } => one((is_new(*rest), TAKEN)),
            Change::Resize { bytes, .. } | Change::ShowLess { bytes, .. } => {
                one((check_size(*bytes).is_ok(), SIZE))
            }
            Change::SetFlags { volume, flags } => {
                let is_removing = is(*volume, VolumeFlags::REMOVING);
                let stays = VolumeFlags(*flags).has(VolumeFlags::REMOVING) == is_removing;
                one((stays && flags & !FLAGS_ALL == 0, FLAGS))
            }
            Change::Rename { volume, name } => {
                one((!is(*volume, VolumeFlags::REMOVING) && check_volume_name(name).is_ok(), NAME))
            }
            Change::Forget { volume } => one((is(*volume, VolumeFlags::REMOVING), FLAGS)),
            Change::Map { start, count, .. } => {
                one((*count > 0 && start.checked_add(*count).is_some_and(|end| end <= PARTS_MAX), PARTS))
            }
            Change::Zero { end, .. } => one((*end <= PARTS_MAX, PARTS)),
            Change::Unmap { .. } | Change::Remove { .. } => one((true, PARTS)),
        };
        rules.into_iter().find(|rule| !rule.0).map(|rule| rule.1)
    }

    /// Whether a change of parts is about parts that its volume has.
    pub(super) fn lies_inside(&self, change: &Change) -> bool {
        let parts = |volume: &u64| self.volumes.borrow().get(volume).map_or(0, |volume| volume.parts());
        match change {
            Change::Map { volume, start, count, .. } => start.saturating_add(*count) <= parts(volume),
            Change::Zero { volume, end, .. } => *end <= parts(volume),
            _ => true,
        }
    }

    /// What a request to `volume` is told of `error`; what is damaged is told once to those who read the log of events.
    pub(super) fn told(&self, volume: &Volume, error: MapError) -> IoError {
        let MapError::Damaged { block, error: why } = error else { return super::io_error(error) };
        if self.told_of.replace(Some(block)) != Some(block) {
            tracing::error!(pool = %self.id, volume = volume.id, block, %why, "a block of a pool's maps is damaged");
        }
        IoError::Corrupt
    }
}

/// One rule, and three that always hold.
const fn one(rule: (bool, &'static str)) -> [(bool, &'static str); 4] {
    [rule, (true, ""), (true, ""), (true, "")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_format::pdata::link::Link;

    #[test]
    fn a_map_begins_in_the_pool_if_anywhere() {
        let bounds = Bounds { base: 100, end: 200 };
        let objection_to = |root: u64| {
            let rows = VolumeRows {
                volume: 1,
                root: Link::unpack(root),
                since: 0,
                bytes: 1 << 20,
                mapped: 0,
                flags: VolumeFlags::default(),
                source: 0,
                created: 0,
                origin: None,
                name: "vm1".into(),
            };
            objection(&rows, bounds, 5, 2)
        };
        for root in [0, 100, 199] {
            assert_eq!(objection_to(root), None, "Z1: {root}");
        }
        for root in [1, 99, 200, u64::MAX] {
            assert!(objection_to(root).is_some_and(|why| why.contains("no node can lie")), "Z1: {root}");
        }
    }
}
