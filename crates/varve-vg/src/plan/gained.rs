//! What a group owns after a change that it did not own before.

use crate::model::{Area, Group, PvName};

/// Extents of disks that are `counted` that something owns in `after` and nothing owns in `before`.
pub(super) fn gained(before: &Group, after: &Group, counted: impl Fn(PvName) -> bool) -> u64 {
    let owned = |group: &Group| {
        let mut areas: Vec<Area> = group.owned_areas().filter(|area| counted(area.pv)).collect();
        areas.sort();
        areas
    };
    let (old, new) = (owned(before), owned(after));
    let total: u64 = new.iter().map(|area| area.count).sum();
    let mut shared = 0;
    let mut index = 0;
    for area in &new {
        while old.get(index).is_some_and(|other| (other.pv, other.end()) <= (area.pv, area.start)) {
            index += 1;
        }
        let overlaps =
            old[index..].iter().take_while(|other| other.pv == area.pv && other.start < area.end());
        shared +=
            overlaps.map(|other| other.end().min(area.end()) - other.start.max(area.start)).sum::<u64>();
    }
    assert!(shared <= total, "GROUP1, TEXT5: an extent is owned once");
    total - shared
}
