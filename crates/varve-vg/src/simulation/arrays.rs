//! Arrays in the histories of groups: where they lie, which are complete while disks are away, and what their members are.

use super::{EXTENT, Lab, RING, stamp};
use crate::activate::members;
use crate::model::{Area, Group, LogicalVolume, PvName, Role, StorePolicy, areas};
use crate::plan::{Change, DiskChoice, Layout, plan};
use crate::size::SizeArgument;
use crate::table::{Parts, table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;
use varve_block::{Durability, Extent};
use varve_sim::World;

/// Arrays that were complete, those of them without a disk, and those that were not complete.
static SEEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// TEXT5 and TEXT16, counted anew; and that an array is complete exactly while enough of its members are there.
pub(super) fn check_places(group: &Group) {
    let mut owned = BTreeSet::new();
    for area in group.logical_volumes().iter().flat_map(areas) {
        (area.start..area.end()).for_each(|extent| assert!(owned.insert((area.pv, extent)), "TEXT5: {area}"));
    }
    for lv in group.logical_volumes().iter().filter(|lv| !lv.layout.members().is_empty()) {
        check_members(group, lv);
    }
}

fn check_members(group: &Group, lv: &LogicalVolume) {
    let count = lv.layout.members().len();
    let of = |index| lv.space().areas_of_member(index).map(|area: Area| area.pv).collect::<BTreeSet<_>>();
    let disks: Vec<BTreeSet<PvName>> = (0..count).map(of).collect();
    let all: BTreeSet<PvName> = disks.iter().flatten().copied().collect();
    assert_eq!(all.len(), disks.iter().map(BTreeSet::len).sum::<usize>(), "TEXT16: {disks:?}");
    let is_away = |pv: &PvName| group.pv(*pv).is_some_and(|pv| pv.missing);
    let away = disks.iter().filter(|disks| disks.iter().any(is_away)).count();
    let found = table(group, lv, Parts::All);
    assert_eq!(found.is_ok(), away <= 1, "one copy, and parity, make up for one member: {lv:?}");
    let degraded = group.degraded_disks_of(lv);
    assert_eq!((group.missing_disks_of(lv).is_empty(), degraded.is_empty()), (away <= 1, away != 1));
    SEEN[away.min(2)].fetch_add(1, Ordering::Relaxed);
}

/// What the histories had of arrays.
pub(super) fn seen() -> [u64; 3] {
    [&SEEN[0], &SEEN[1], &SEEN[2]].map(|number| number.load(Ordering::Relaxed))
}

#[test]
fn a_member_is_its_metadata_and_then_its_share_of_the_volume() {
    let lab = Lab::new(World::new(7), 3);
    let mut open = lab.world.run(lab.create());
    let change = Change::CreateVolume {
        name: "a".into(),
        id: Uuid::from_u128(0x5000),
        size: SizeArgument::bytes(8 * EXTENT),
        role: Role::Volume,
        layout: Layout::Ddraid { order: 1, block_size: None, read_policy: None, checksums: false },
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    };
    let made = plan(open.group(), change, &stamp("test")).expect("possible");
    lab.world.run(open.apply(made, Vec::new())).expect("no faults");
    let table = table(open.group(), open.group().lv("a").expect("made"), Parts::All).expect("complete");
    let array = table.array().expect("ddraid");
    let mut disks = open.devices();
    assert!(
        crate::activate::build(&table, &disks, &BTreeMap::new()).is_err(),
        "somebody opens arrays before"
    );
    let arena = lab.world.arena();
    let found = members(array, &disks);
    let pattern = vec![0xa5; 4096];
    lab.world.run(async {
        for device in found.iter().map(|device| device.as_ref().expect("its disk is here")) {
            assert_eq!(device.shape().size, array.metadata_size + 4 * EXTENT);
            device
                .write(array.metadata_size, arena.copy(&pattern), Durability::Durable)
                .await
                .expect("no faults");
        }
    });
    for disk in &lab.disks {
        assert_eq!(disk.peek(Extent::new(RING.end() + (1 << 20), 4096)), pattern, "behind 1 MiB of metadata");
    }
    disks.remove(&PvName(1));
    let here: Vec<bool> = members(array, &disks).iter().map(Option::is_some).collect();
    assert_eq!(here, [true, false, true]);
}
