//! Disks of which more or less is managed: at any moment of a crash each has one end, by its label, its tail and its group's text.

use super::{EXTENT, EXTENTS, Lab, RING, content, group_plan, pv_id, stamp};
use crate::disks::disk::read_label;
use crate::disks::tail::{TAIL_SIZE, read_tail};
use crate::injected_bug::{InjectedBug, inject};
use crate::model::{Role, StorePolicy};
use crate::plan::{Change, DiskChoice, Layout, PlanError, plan};
use crate::size::SizeArgument;
use crate::{Absent, CommitError, OpenGroup, scan};
use std::cell::Cell;
use uuid::Uuid;
use varve_block::Extent;
use varve_format::{BLOCK_SIZE, Label};
use varve_sim::{CrashAt, CrashKind, Ran, SimDisk, World};

/// What of the disks is managed in turn: by whole extents more and less, by less than one, and by as much as there is.
const SIZES: [u64; 5] = [
    RING.end() + EXTENTS * EXTENT + TAIL_SIZE,
    RING.end() + 2 * EXTENTS * EXTENT + TAIL_SIZE,
    RING.end() + 2 * EXTENTS * EXTENT + TAIL_SIZE + 3 * BLOCK_SIZE,
    RING.end() + (EXTENTS / 2) * EXTENT + TAIL_SIZE,
    RING.end() + 3 * EXTENTS * EXTENT + 2 * TAIL_SIZE,
];
/// Extents of the volume that is there meanwhile.
const USED: u64 = 8;

/// Two disks of which the second is resized.
fn lab(seed: u64) -> Lab {
    let disks = (0..2).map(|_| SimDisk::new(SIZES[4])).collect();
    Lab { world: World::new(seed), disks }
}

async fn create_on(lab: &Lab) -> OpenGroup {
    let free = vec![lab.label_with(0, SIZES[0]).await, lab.label_with(1, SIZES[0]).await];
    let mut open = OpenGroup::create(group_plan(&free), free, lab.world.arena()).await.expect("no faults");
    let on = DiskChoice { on: vec![crate::model::PvName(1)], ..DiskChoice::default() };
    let (name, id, size) = ("v".to_owned(), Uuid::from_u128(0x77), SizeArgument::bytes(USED * EXTENT));
    let (role, layout, policy) = (Role::Volume, Layout::Linear, StorePolicy::default());
    let create = Change::CreateVolume { name, id, size, role, layout, policy, disks: on };
    let made = plan(open.group(), create, &stamp("test")).expect("there is room");
    open.apply(made, Vec::new()).await.expect("no faults");
    open
}

async fn resize(open: &mut OpenGroup, size: u64) -> Result<(), CommitError> {
    let made = plan(open.group(), Change::ResizeDisk { id: pv_id(1), size }, &stamp("test"));
    open.apply(made.expect("nothing lies behind"), Vec::new()).await
}

/// The group again, and whether its second disk has one of these sizes, by everything that says one.
async fn ends_at_one_of(lab: &Lab, sizes: &[u64]) -> bool {
    let arena = lab.world.arena();
    let mut survey = scan(lab.boot(&lab.all()), &arena).await;
    assert!(survey.refused.is_empty() && survey.problems.is_empty(), "{:?}", survey.problems);
    let mut open = survey.groups.remove(0);
    assert_eq!(open.newly_missing(), Vec::<Uuid>::new(), "RESIZE1: {:?}", open.notes());
    open.reconcile(Absent::Refuse, &stamp("activate")).await.expect("no faults");
    let (entry, device) = (open.group().pv_by_id(pv_id(1)).expect("it is there").clone(), lab.disk(1).device);
    let (label, is_worn) = read_label(&device, &arena).await.expect("METADATA1");
    assert_eq!((label.size, is_worn), (entry.size, false), "RESIZE1");
    assert_eq!(open.tail_notes().await, [], "TAIL2");
    let mut believed = Vec::new();
    for size in SIZES {
        believed.extend(read_tail(&device, size, &arena).await.map(|found| found.label.size));
    }
    sizes.contains(&entry.size) && believed == [entry.size] // RESIZE2
}

/// A history: a disk is resized until the machine crashes, perhaps again while the group is opened anew.
fn history(seed: u64) -> bool {
    let lab = lab(seed);
    let truth = lab.world.run(async { content(create_on(&lab).await.group()) });
    let mut random = lab.world.random();
    let sizes: Vec<u64> = (0..4).map(|_| SIZES[usize::try_from(random.below(5)).expect("few")]).collect();
    let (done, asked) = (Cell::new(SIZES[0]), Cell::new(SIZES[0]));
    lab.world.schedule(CrashAt::Event(1 + random.below(120)), CrashKind::Power);
    let ran = lab.world.run_until_crash(async {
        let mut open = scan(lab.boot(&lab.all()), &lab.world.arena()).await.groups.remove(0);
        open.reconcile(Absent::Refuse, &stamp("activate")).await.expect("no faults");
        for size in sizes {
            asked.set(size);
            resize(&mut open, size).await.expect("no faults");
            done.set(size);
        }
    });
    if matches!(ran, Ran::Finished(())) {
        lab.world.crash(CrashKind::Power);
    }
    lab.world.schedule(CrashAt::Event(1 + random.below(60)), CrashKind::Power);
    let again = lab.world.run_until_crash(async {
        let mut open = scan(lab.boot(&lab.all()), &lab.world.arena()).await.groups.remove(0);
        open.reconcile(Absent::Refuse, &stamp("activate")).await.expect("no faults");
    });
    if matches!(again, Ran::Finished(())) {
        lab.world.crash(CrashKind::Power);
    }
    lab.world.disarm();
    lab.world.run(async {
        let is_so = ends_at_one_of(&lab, &[done.get(), asked.get()]).await;
        let survey = scan(lab.boot(&lab.all()), &lab.world.arena()).await;
        is_so && content(survey.groups[0].group()) == truth
    })
}

#[test]
fn a_disk_that_is_resized_has_one_end_after_a_crash() {
    for seed in 0..150 {
        assert!(history(seed), "RESIZE2: seed {seed}");
    }
    inject(Some(InjectedBug::KeepOldTail));
    let believed = (0..60).filter(|seed| !history(*seed)).count();
    inject(None);
    assert!(believed > 0, "RESIZE2: no history notices that an old tail is left");
}

#[test]
fn a_disk_gains_and_loses_what_nothing_owns() {
    let lab = lab(7);
    lab.world.run(async {
        let mut open = create_on(&lab).await;
        resize(&mut open, SIZES[1] + 17).await.expect("no faults");
        let entry = open.group().pv_by_id(pv_id(1)).expect("it is there").clone();
        assert_eq!((entry.size, entry.extents), (SIZES[1], 2 * EXTENTS), "whole blocks");
        let too_small = RING.end() + (USED - 1) * EXTENT + TAIL_SIZE;
        let refused =
            plan(open.group(), Change::ResizeDisk { id: pv_id(1), size: too_small }, &stamp("test"));
        let (least, volumes) = (RING.end() + USED * EXTENT + TAIL_SIZE, vec!["data/v".to_owned()]);
        let path = "/dev/sd1".to_owned();
        assert_eq!(refused.err(), Some(PlanError::DiskEndInUse { path, size: too_small, least, volumes }));
        resize(&mut open, least).await.expect("as small as it can be");
        assert_eq!(open.group().pv_by_id(pv_id(1)).map(|entry| entry.extents), Some(USED));
        let reduced = open.group().description().clone();
        resize(&mut open, SIZES[1]).await.expect("there is more");
        let restore =
            |backup| plan(open.group(), Change::Restore { backup: Box::new(backup) }, &stamp("test"));
        let back = restore(reduced).expect("the disk has all that was on it").after;
        assert_eq!(
            back.pv_by_id(pv_id(1)).map(|entry| (entry.size, entry.extents)),
            Some((SIZES[1], 2 * EXTENTS))
        );
        let mut beyond = open.group().description().clone();
        beyond.logical_volumes[0].segments[0].areas[0].start = 4 * USED;
        resize(&mut open, least).await.expect("nothing lies behind");
        let refused = plan(open.group(), Change::Restore { backup: Box::new(beyond) }, &stamp("test"));
        let why = refused.expect_err("it was reduced").to_string();
        assert!(why.contains("the disk /dev/sd1 was reduced since, and has not all that was on it"), "{why}");
        drop(open);
        // What was cut off may go: here it is overwritten, and the disk is used as before.
        lab.disks[1].clear(Extent::between(least, SIZES[4]));
        let arena = lab.world.arena();
        let mut survey = scan(lab.boot(&lab.all()), &arena).await;
        let mut open = survey.groups.remove(0);
        open.reconcile(Absent::Refuse, &stamp("activate")).await.expect("no faults");
        let found = read_tail(&lab.disk(1).device, least, &arena).await.map(|found| found.label);
        assert!(matches!(found, Some(Label { size, .. }) if size == least), "TAIL2");
        let nothing =
            plan(open.group(), Change::ResizeDisk { id: pv_id(1), size: RING.end() }, &stamp("test"));
        assert!(matches!(nothing, Err(PlanError::DiskTooSmall { .. })));
    });
}
