//! Disks that have room for what is to be put there, but larger sectors than it may have.

use super::{Draft, PlanError, Sectors};
use crate::model::{Layout, LogicalVolume, PvName, Space};
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_target::array::ArrayLayout;

/// Why `space` of `lv` cannot lie on `disk`: its sectors have at most `sector_max` bytes.
pub(super) fn larger_sectors(
    draft: &Draft<'_>,
    (lv, space): (&LogicalVolume, Space<'_>),
    (disk, sectors): (PvName, &BTreeMap<PvName, Sectors>),
    sector_max: u64,
) -> PlanError {
    let sector = sectors.get(&disk).map_or(0, |sectors| sectors.logical);
    assert!(sector > sector_max, "{disk} has sectors of {sector} bytes, {sector_max} are possible");
    let fits = match space.layout {
        Layout::Ddraid { order, block_size, .. } => Some((*order, sector << order))
            .filter(|(_, size)| ArrayLayout::BLOCK_SIZES.contains(size) && size > block_size),
        _ => None,
    };
    PlanError::Sectors {
        volume: draft.full(&lv.name),
        is_pool: lv.is_pool(),
        disk: draft.path_of(disk),
        sector,
        sector_max,
        fits,
    }
}

/// The volume that is `of`, or has the store `of`, and its space or that of the store.
pub(super) fn owner_of(volumes: &[LogicalVolume], of: Uuid) -> (&LogicalVolume, Space<'_>) {
    let mut owners = volumes.iter().filter_map(|lv| {
        let store = lv.stores().find(|store| store.id == of).map(|store| store.space());
        Some((lv, store.or((lv.id == of).then(|| lv.space()))?))
    });
    owners.next().expect("PLAN5: what is moved belongs to a volume")
}
