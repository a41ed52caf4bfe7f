//! Tests of plans that empty a disk.

use super::*;
use crate::model::{Space, Store};
use std::collections::BTreeMap;

fn begin(from: u32, to: &[u32]) -> Change {
    let on = to.iter().map(|pv| PvName(*pv)).collect();
    let disks = DiskChoice { on, ..DiskChoice::default() };
    Change::BeginMove { job: 1, from: PvName(from), disks, rate: None }
}

fn next(from: u32, extents: u64) -> Change {
    let (from, bytes_max) = (PvName(from), extents * MIB4);
    Change::MoveNext { from, sectors: BTreeMap::new(), bytes_max }
}

fn switch(from: u32) -> Change {
    Change::MoveSwitch { from: PvName(from) }
}

fn array(name: &str, extents: u64, layout: Layout) -> Change {
    match linear(name, extents) {
        Change::CreateVolume { name, id, size, role, policy, disks, .. } => {
            Change::CreateVolume { name, id, size, role, layout, policy, disks }
        }
        other => other,
    }
}

/// Every extent of everything that is in the group, in order, by what it belongs to and by its member or stripe.
fn places(group: &Group) -> BTreeMap<(Uuid, usize), Vec<(PvName, u64)>> {
    let mut places = BTreeMap::new();
    let mut add = |id: Uuid, space: Space<'_>| {
        let width = space.segments.first().map_or(0, |segment| segment.areas.len());
        for index in 0..width {
            let metadata = space.layout.members().get(index).map(|member| member.metadata);
            let data = space.segments.iter().map(|segment| segment.areas[index]);
            let areas = metadata.into_iter().chain(data);
            let extents =
                areas.flat_map(|area| (area.start..area.end()).map(move |extent| (area.pv, extent)));
            places.insert((id, index), extents.collect());
        }
    };
    for lv in group.logical_volumes() {
        add(lv.id, lv.space());
        lv.stores().for_each(|store: &Store| add(store.id, store.space()));
    }
    places
}

/// What `places` becomes when the step in hand has switched.
fn switched(group: &Group, from: u32) -> BTreeMap<(Uuid, usize), Vec<(PvName, u64)>> {
    let step = group.move_from(PvName(from)).and_then(|entry| entry.step).expect("a step");
    let mut places = places(group);
    for ((id, _), extents) in &mut places {
        for (pv, extent) in extents.iter_mut().filter(|_| *id == step.of) {
            if *pv == step.old.pv && (step.old.start..step.old.end()).contains(extent) {
                (*pv, *extent) = (step.new.pv, step.new.start + (*extent - step.old.start));
            }
        }
    }
    places
}

/// Empties a disk in steps of at most `extents`; how many there were.
fn emptied(group: &mut Group, from: u32, extents: u64) -> usize {
    for steps in 0.. {
        *group = made(group, next(from, extents));
        if group.move_from(PvName(from)).is_none() {
            return steps;
        }
        let (before, expected) = (places(group), switched(group, from));
        assert_eq!(
            made(group, next(from, extents)).jobs(),
            group.jobs(),
            "a step that was cut short begins anew"
        );
        *group = made(group, switch(from));
        assert_ne!(places(group), before);
        assert_eq!(places(group), expected, "PLAN2: what is moved moves, and nothing else");
    }
    unreachable!("a move ends")
}

#[test]
fn a_disk_is_emptied_step_by_step_and_its_extents_are_free_afterwards() {
    let mut group = made(&group(&[20, 20]), linear("vm1", 10));
    let plan = planned(&group, begin(0, &[])).expect("there is room");
    assert_eq!(plan.steps[0], "empty /dev/sd0 (pv0)");
    assert_eq!(plan.steps[1], "move 40.0 MiB of data/vm1 from pv0:0+10 to pv1:0+10");
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (0, 0), "a move that has begun has nothing in hand");
    group = plan.after;
    assert_eq!(group.usage().free, 20 * MIB4, "nothing is allocated on a disk that is emptied");
    let first = planned(&group, next(0, 4)).expect("there is room");
    assert_eq!((first.bytes_taken, first.bytes_freed), (4 * MIB4, 0), "PLANMOVE2");
    let switched = planned(&first.after, switch(0)).expect("it was reserved");
    assert_eq!(
        (switched.bytes_taken, switched.bytes_freed),
        (0, 0),
        "PLANMOVE2: the old place is still owned"
    );
    let second = planned(&switched.after, next(0, 4)).expect("there is room");
    assert_eq!((second.bytes_taken, second.bytes_freed), (4 * MIB4, 4 * MIB4));
    assert_eq!(emptied(&mut group, 0, 4), 3);
    let segments = group.lv("vm1").map(|lv| lv.segments.len());
    assert_eq!((segments, group.usage().free), (Some(1), 30 * MIB4), "steps are joined again");
    let reduced = planned(&group, Change::RemoveDisk { id: disk(0, 0).id });
    assert!(reduced.is_ok(), "{reduced:?}");
}

#[test]
fn what_cannot_be_moved_is_refused_before_anything_moves() {
    let full = made(&group(&[20, 5]), linear("vm1", 10));
    let (kind, words) = refusal(&full, begin(0, &[]));
    assert_eq!(kind, ErrorKind::NoSpace);
    assert!(words.contains("no place for"), "{words}");
    let striped = made(&group(&[20, 20]), striped("fast", SizeArgument::bytes(8 * MIB4), 2, 64 * KIB));
    assert_eq!(refusal(&striped, begin(0, &[])).0, ErrorKind::NoSpace, "TEXT6: stripes stay apart");
    let empty = made(&group(&[20, 20]), linear("vm1", 1));
    assert_eq!(refusal(&empty, begin(1, &[])), (ErrorKind::NotFound, "nothing lies on /dev/sd1".into()));
    assert_eq!(refusal(&empty, begin(7, &[])).0, ErrorKind::NotFound);
    assert_eq!(refusal(&empty, begin(0, &[0])).0, ErrorKind::Usage);
    let moving = made(&empty, begin(0, &[]));
    assert_eq!(refusal(&moving, begin(0, &[])).0, ErrorKind::Busy);
    assert_eq!(refusal(&moving, begin(1, &[0])).0, ErrorKind::Busy);
    assert_eq!(refusal(&moving, Change::RemoveDisk { id: disk(0, 0).id }).0, ErrorKind::Busy);
    let ended = made(&moving, Change::EndMove { from: PvName(0) });
    assert_eq!((ended.jobs().len(), ended.usage().free), (0, 39 * MIB4));
}

/// The smallest free run that holds the metadata of a member is on a disk that has no room for its data.
#[test]
fn a_member_that_moves_lies_on_one_disk_afterwards() {
    let layout = || Layout::Mirror { copies: 2, read_policy: None, checksums: false };
    let mirror = |name: &str| array(name, 6, layout());
    let group = made(&made(&group(&[20, 20, 3, 9, 9]), mirror("m")), mirror("n"));
    for (from, extents) in [(0, 2), (1, 100)] {
        let mut moved = made(&group, begin(from, &[]));
        emptied(&mut moved, from, extents);
        for ((_, member), places) in places(&moved) {
            let disks: BTreeSet<PvName> = places.iter().map(|(pv, _)| *pv).collect();
            assert_eq!(disks.len(), 1, "PLANMOVE3: member {member} lies at {places:?}");
        }
    }
}

#[test]
fn larger_sectors_do_not_take_what_smaller_ones_held() {
    let group = made(&group(&[20, 20]), linear("vm1", 4));
    let sectors = |logical| Sectors { logical, physical: 4096 };
    let disks = DiskChoice {
        on: Vec::new(),
        sectors: [(PvName(0), sectors(512)), (PvName(1), sectors(4096))].into(),
        log: None,
    };
    let begin = || Change::BeginMove { job: 1, from: PvName(0), disks: disks.clone(), rate: None };
    let words = "data/vm1 takes disks with sectors of at most 512 bytes, and /dev/sd1 is written in sectors of 4096 bytes";
    assert_eq!(refusal(&group, begin()), (ErrorKind::Usage, words.to_owned()));
    let help = planned(&group, begin()).expect_err("refused").help();
    assert!(help.contains("`varve lv convert data/vm1 "), "{help}");
    let full = made(&group, linear("vm2", 31));
    assert_eq!(refusal(&full, begin()).0, ErrorKind::NoSpace, "it has no room either");
}

#[test]
fn what_a_move_has_in_hand_stays_with_its_volume() {
    let group = made(&made(&group(&[20, 20]), linear("vm1", 4)), begin(0, &[]));
    let moving = made(&group, next(0, 2));
    let remove = || Change::RemoveVolume { name: "vm1".into() };
    let (kind, words) = refusal(&moving, remove());
    assert_eq!(
        (kind, words.as_str()),
        (ErrorKind::Busy, "a move from pv0 of data concerns data/vm1"),
        "PLAN5"
    );
    assert!(planned(&group, remove()).is_ok(), "nothing is in hand");
    let back = || Change::Restore { backup: Box::new(moving.description().clone()) };
    assert_eq!(refusal(&moving, back()).0, ErrorKind::Busy);
    assert_eq!(refusal(&group, back()).0, ErrorKind::Busy, "a backup may call disks otherwise");
}

#[test]
fn a_disk_to_which_a_move_has_something_in_hand_stays_in_the_group() {
    let group = made(&made(&group(&[20, 20, 20]), linear("vm1", 4)), begin(0, &[]));
    let moving = made(&group, next(0, 2));
    let (remove, keep) =
        (Change::RemoveDisk { id: disk(1, 0).id }, Change::SetSpare { disk: disk(1, 0).id, is_spare: true });
    for change in [remove, keep] {
        assert!(planned(&group, change.clone()).is_ok(), "nothing is in hand");
        let (kind, words) = refusal(&moving, change);
        assert_eq!((kind, words.as_str()), (ErrorKind::Busy, "a move from pv0 of data concerns pv1"));
    }
}

#[test]
fn a_move_ends_while_a_disk_is_missing_and_goes_with_it() {
    let group = made(&made(&group(&[20, 20, 20]), linear("vm1", 4)), begin(0, &[1]));
    let moving = made(&group, next(0, 2));
    let missing = made(&moving, Change::MarkMissing { missing: vec![disk(1, 0).id], returned: vec![] });
    assert_eq!(refusal(&missing, switch(0)).0, ErrorKind::Failed, "PLAN3");
    assert!(made(&missing, Change::EndMove { from: PvName(0) }).jobs().is_empty());
    let without = made(&missing, Change::RemoveMissing { with_volumes: false });
    assert!(without.jobs().is_empty() && without.lv("vm1").is_some());
}

proptest! {
    #[test]
    fn every_layout_moves_and_stays_sound(
        kinds in proptest::collection::vec((0_u8..5, 1_u64..9), 1..6),
        from in 0_u32..5,
        extents in 1_u64..7,
    ) {
        let mut group = group(&[40, 60, 50, 60, 50]);
        for (index, (kind, size)) in kinds.into_iter().enumerate() {
            let name = format!("v{index}");
            let mirror = Layout::Mirror { copies: 2, read_policy: None, checksums: false };
            let ddraid = Layout::Ddraid { order: 1, block_size: None, read_policy: None, checksums: false };
            let change = match kind {
                0 => linear(&name, size),
                1 => array(&name, size * 2, Layout::Striped { stripes: 2, stripe_size: 64 * KIB }),
                2 => array(&name, size, mirror),
                3 => array(&name, size * 2, ddraid),
                _ => Change::CreateStore {
                    volume: format!("v{}", index.saturating_sub(1)),
                    id: Uuid::from_u128(0x9000 + index as u128),
                    size: size * MIB4,
                    chunk_size: 64 * KIB,
                    kind: StoreKind::Dependent,
                },
            };
            if let Ok(plan) = planned(&group, change) {
                group = plan.after;
            }
        }
        let sizes = |group: &Group| places(group).into_iter().map(|(key, own)| (key, own.len())).collect::<Vec<_>>();
        let before = sizes(&group);
        let Ok(plan) = planned(&group, begin(from, &[])) else { return Ok(()) };
        group = plan.after;
        emptied(&mut group, from, extents);
        prop_assert!(group.volumes_on(PvName(from)).is_empty(), "PLANMOVE1");
        prop_assert_eq!(before, sizes(&group));
        prop_assert_eq!(Group::from_text(&group.text()), Ok(group));
    }
}
