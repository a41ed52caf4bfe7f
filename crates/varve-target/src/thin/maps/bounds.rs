//! Where data can lie in a pool, and what the rows of a volume can say.

use super::super::arguments::check_size;
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::PART_SIZE;
use varve_format::thin::{VolumeFlags, VolumeRows, is_stored_name};

/// More parts no volume has: 1 EiB.
pub(in crate::thin) const PARTS_MAX: u64 = (1 << 60) / PART_SIZE;

/// All flags that a volume can have.
pub(in crate::thin) const FLAGS_ALL: u32 = VolumeFlags::READ_ONLY
    | VolumeFlags::REMOVING
    | VolumeFlags::ORIGIN
    | VolumeFlags::HELD
    | VolumeFlags::BASE;

/// Where data can lie in a pool.
#[derive(Clone, Copy, Debug)]
pub(in crate::thin) struct Bounds {
    /// Block where the groups of the space map begin.
    pub(in crate::thin) base: Block,
    /// The first block behind the pool.
    pub(in crate::thin) end: Block,
}

impl Bounds {
    /// Whether these blocks lie behind the log and in the pool.
    pub(in crate::thin) fn contain(&self, run: BlockRun) -> bool {
        run.first >= self.base && run.checked_end().is_some_and(|end| end <= self.end)
    }

    /// Whether data can lie in these blocks: no page of the space map does.
    pub(in crate::thin) fn may_hold_data(&self, run: BlockRun) -> bool {
        if !self.contain(run) {
            return false;
        }
        let at = (run.first - self.base) % GROUP_BLOCKS;
        // What leaves out the pages' places is in one group.
        at >= PAGE_PLACES && at + run.count <= GROUP_BLOCKS
    }
}

/// Why there cannot be a volume with these rows in a pool whose maps are of transaction `generation`, where `next` is
/// the number that no volume has had yet.
pub(in crate::thin) fn objection(
    rows: &VolumeRows,
    bounds: Bounds,
    generation: u64,
    next: u64,
) -> Option<&'static str> {
    let is_removing = rows.flags.has(VolumeFlags::REMOVING);
    if rows.volume == 0 || rows.volume >= next {
        return Some("a volume has a number that none has had yet");
    }
    if !rows.root.is_none() && !bounds.contain(BlockRun::one(rows.root.block())) {
        return Some("the map of a volume begins where no node can lie");
    }
    if rows.since >= generation {
        return Some("a volume was cloned in a transaction that there was not yet");
    }
    if check_size(rows.bytes).is_err() || rows.mapped > PARTS_MAX {
        return Some("a volume has a size, or a number of mapped blocks, that none can have");
    }
    if !is_removing && !is_stored_name(&rows.name) {
        return Some("a volume has a name that none can have");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_format::pdata::link::Link;

    #[test]
    fn a_map_begins_in_the_pool_if_anywhere() {
        let bounds = Bounds { base: Block::new(100), end: Block::new(200) };
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
                snapshot_of: None,
                origin: None,
                name: "vm1".into(),
            };
            objection(&rows, bounds, 5, 2)
        };
        for root in [0, 100, 199] {
            assert_eq!(objection_to(root), None, "PLAUSIBLE1: {root}");
        }
        for root in [1, 99, 200, u64::MAX] {
            assert!(
                objection_to(root).is_some_and(|why| why.contains("no node can lie")),
                "PLAUSIBLE1: {root}"
            );
        }
    }
}
