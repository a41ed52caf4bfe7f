//! What of a pool's maps and log is believed: checksums say that a block is what was written, not that it fits the others.
//!
//! Invariants:
//! - PLAUSIBLE1. What was read decides nothing before it was compared with what it leads to: no number of it is used as a place, a
//!   length or a count that the rest of the pool rules out. What does not fit is an error that names the block.

use super::super::arguments::{check_origin, check_size};
use super::super::lifecycle::volume::Volume;
use super::super::{Pool, PoolError};
use super::bounds::PARTS_MAX;
use super::bounds::{Bounds, FLAGS_ALL, objection};
use crate::pdata::MapError;
use varve_block::IoError;
use varve_format::thin::{Change, NUMBER_MAX, VolumeFlags, VolumeRows, is_stored_name};

/// Which volume of which pool says what cannot be.
pub(in crate::thin) fn tell_of_volume(pool: &Pool, volume: u64, why: &'static str) {
    tracing::error!(pool = %pool.id, volume, why, "a volume of a pool contradicts the pool");
}

impl Pool {
    /// Where data can lie.
    pub(in crate::thin) fn bounds(&self) -> Bounds {
        Bounds { base: self.base_block(), end: self.end_block.get() }
    }

    /// Why there cannot be a volume with these rows.
    pub(in crate::thin) fn objection(&self, rows: &VolumeRows) -> Option<&'static str> {
        objection(rows, self.bounds(), self.map.pages().generation(), self.volumes.next_id())
    }

    /// Whether the log may say that `change` was made to the pool as it is now (PLAUSIBLE1).
    pub(in crate::thin) fn may_be_made(&self, change: &Change) -> Result<(), PoolError> {
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
        let is_new = |id: u64| (self.volumes.next_id()..NUMBER_MAX).contains(&id);
        let fits = |flags: u32, name: &str| {
            let is_removing = VolumeFlags(flags).has(VolumeFlags::REMOVING);
            flags & !FLAGS_ALL == 0 && is_removing == name.is_empty()
        };
        let is_name = |name: &str| name.is_empty() || is_stored_name(name);
        let is = |id: u64, flag: u32| self.volumes.all().get(&id).is_some_and(|volume| volume.has(flag));
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
                one((!is(*volume, VolumeFlags::REMOVING) && is_stored_name(name), NAME))
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
    pub(in crate::thin) fn lies_inside(&self, change: &Change) -> bool {
        let parts = |volume: &u64| self.volumes.all().get(volume).map_or(0, |volume| volume.parts());
        match change {
            Change::Map { volume, start, count, .. } => start.saturating_add(*count) <= parts(volume),
            Change::Zero { volume, end, .. } => *end <= parts(volume),
            _ => true,
        }
    }

    /// What a request to `volume` returns for `error`; a damaged block is logged unless it was the last one logged.
    pub(in crate::thin) fn told(&self, volume: &Volume, error: MapError) -> IoError {
        let MapError::Damaged { block, error: why } = error else { return super::super::io_error(error) };
        if self.told_of.replace(Some(block)) != Some(block) {
            tracing::error!(pool = %self.id, volume = volume.id, block = block.number(), %why, "a block of a pool's maps is damaged");
        }
        IoError::Corrupt
    }
}

/// One rule, and three that always hold.
const fn one(rule: (bool, &'static str)) -> [(bool, &'static str); 4] {
    [rule, (true, ""), (true, ""), (true, "")]
}
