//! Tests of plans that convert volumes.

use super::*;
use crate::model::Conversion;

fn begin_on(volume: u128, layout: Layout, on: &[u32]) -> Change {
    let on = on.iter().map(|pv| PvName(*pv)).collect();
    let disks = DiskChoice { on, ..DiskChoice::default() };
    let id = Uuid::from_u128(0xc0de);
    let step = ConversionStep::Begin { job: 1, id, layout, disks, rate: Some(1 << 20) };
    Change::Convert { volume: Uuid::from_u128(volume), step }
}

fn begin(volume: u128, layout: Layout) -> Change {
    begin_on(volume, layout, &[])
}

fn mirror(copies: usize) -> Layout {
    Layout::Mirror { copies, read_policy: None, checksums: false }
}

fn ddraid() -> Layout {
    Layout::Ddraid { order: 1, block_size: None, read_policy: None, checksums: false }
}

fn step(volume: &LogicalVolume, step: ConversionStep) -> Change {
    Change::Convert { volume: volume.id, step }
}

fn vm(group: &Group) -> LogicalVolume {
    group.lv("vm1").expect("it was made").clone()
}

/// What a group owns, disk by disk.
fn owned(group: &Group) -> u64 {
    group.owned_areas().map(|area| area.count).sum()
}

fn conversion(group: &Group) -> Conversion {
    group.conversions().next().expect("it is being converted").clone()
}

#[test]
fn a_volume_has_its_old_layout_until_the_switch_and_its_new_one_afterwards() {
    let before = made(&group(&[20, 20, 20, 20]), linear("vm1", 10));
    let volume = vm(&before);
    for (layout, taken) in [
        (mirror(2), 22),
        (ddraid(), 18),
        (Layout::Striped { stripes: 2, stripe_size: 65_536 }, 10),
        (Layout::Linear, 10),
    ] {
        let plan = planned(&before, begin(volume.id.as_u128(), layout)).expect("there is room");
        assert!(plan.steps[0].starts_with("copy 40.0 MiB of data/vm1 to "), "{:?}", plan.steps);
        assert_eq!((plan.bytes_taken, plan.bytes_freed), (taken * MIB4, 0));
        let begun = plan.after;
        assert_eq!(vm(&begun), volume, "PLANCONVERT1");
        let new = conversion(&begun).parts[0].clone();
        let switched = made(&begun, step(&volume, ConversionStep::Switch));
        assert_eq!(owned(&switched), owned(&begun), "PLANCONVERT1: both layouts are still owned");
        let now = vm(&switched);
        assert_eq!((&now.layout, &now.segments, now.extents), (&new.layout, &new.segments, volume.extents));
        let old = conversion(&switched);
        assert_eq!((&old.parts[0].layout, &old.parts[0].segments), (&volume.layout, &volume.segments));
        let ended = made(&switched, step(&volume, ConversionStep::End));
        assert_eq!((vm(&ended), owned(&ended)), (now, taken), "the old layout is free");
        let cancelled = made(&begun, step(&volume, ConversionStep::End));
        assert_eq!((vm(&cancelled), owned(&cancelled)), (volume.clone(), 10), "as it was");
    }
}

#[test]
fn stores_get_the_protection_of_the_new_layout_with_their_volume() {
    let store = Change::CreateStore {
        volume: "vm1".into(),
        id: Uuid::from_u128(77),
        size: 3 * MIB4,
        chunk_size: 65_536,
        kind: StoreKind::Dependent,
    };
    let mut group = made(&made(&group(&[30, 30, 30, 30]), linear("vm1", 10)), store);
    let volume = vm(&group).id.as_u128();
    let layouts = [
        (mirror(2), 2, 2),
        (ddraid(), 2, 3),
        (ddraid(), 1, 3),
        (Layout::Linear, 2, 0),
        (Layout::Linear, 1, 0),
    ];
    for (number, (layout, parts, copies)) in (0_u128..).zip(layouts) {
        let Change::Convert { step: ConversionStep::Begin { layout, disks, rate, .. }, volume } =
            begin(volume, layout)
        else {
            unreachable!("it begins one")
        };
        let (job, id) = (1 + number as u64, Uuid::from_u128(0xc0de + number));
        let step_of = ConversionStep::Begin { job, id, layout, disks, rate };
        group = made(&group, Change::Convert { volume, step: step_of });
        assert_eq!(conversion(&group).parts.len(), parts, "only what is protected otherwise is converted");
        for next in [ConversionStep::Switch, ConversionStep::End] {
            group = made(&group, step(&vm(&group), next));
        }
        let store = vm(&group).store.expect("it stays");
        assert_eq!((store.layout.members().len(), store.extents), (copies, 3));
    }
}

#[test]
fn what_cannot_be_converted_is_refused_with_the_remedy() {
    let before = made(&group(&[20, 20, 20]), linear("vm1", 9));
    let volume = vm(&before).id.as_u128();
    let refused = |group: &Group, change| planned(group, change).expect_err("it is refused");
    let rows = refused(&before, begin(volume, ddraid()));
    assert_eq!(
        rows.to_string(),
        "data/vm1 has 9 extents; for ddraid of order 1 they must be a multiple of 2"
    );
    assert!(rows.help().contains("varve lv extend data/vm1 --size +4194304"), "{}", rows.help());
    let disks = refused(&before, begin(volume, mirror(4)));
    assert!(matches!(disks, PlanError::TooFewMembers { .. } | PlanError::TooFewDisks { .. }), "{disks:?}");
    assert!(matches!(refused(&before, begin(volume, Layout::Zero)), PlanError::Layout(_)));
    assert!(matches!(refused(&before, begin(0xdead, mirror(2))), PlanError::VolumeNotFound { .. }));
    let emptied = Change::BeginMove { job: 2, from: PvName(0), disks: DiskChoice::default(), rate: None };
    let emptied = made(&before, emptied);
    assert!(matches!(refused(&emptied, begin(volume, mirror(2))), PlanError::Moving { .. }));
    let none = refused(&before, step(&vm(&before), ConversionStep::Switch));
    assert!(matches!(none, PlanError::Conversion(ConversionError::NotConverting { .. })), "{none:?}");
}

#[test]
fn what_is_being_converted_stays_as_it_is_otherwise() {
    let before = made(&group(&[20, 20, 20]), linear("vm1", 10));
    let begun = made(&before, begin_on(vm(&before).id.as_u128(), mirror(2), &[1, 2]));
    let disks = DiskChoice::default();
    let size = SizeArgument { relative: true, amount: Amount::Bytes(MIB4) };
    let others = [
        begin(vm(&before).id.as_u128(), ddraid()),
        Change::ExtendVolume { name: "vm1".into(), size, disks: disks.clone() },
        Change::ReduceVolume { name: "vm1".into(), size: MIB4 },
        Change::RemoveVolume { name: "vm1".into() },
        Change::CreateStore {
            volume: "vm1".into(),
            id: Uuid::from_u128(77),
            size: MIB4,
            chunk_size: 65_536,
            kind: StoreKind::Dependent,
        },
        Change::BeginMove { job: 2, from: PvName(0), disks: disks.clone(), rate: None },
        Change::BeginMove { job: 2, from: PvName(1), disks, rate: None },
        Change::RemoveDisk { id: disk(2, 0).id },
        Change::Restore { backup: Box::new(before.description().clone()) },
    ];
    for change in others {
        let refused = planned(&begun, change.clone()).expect_err("it is refused");
        let is_busy = matches!(refused, PlanError::Conversion(ConversionError::Converting { .. }));
        assert!(is_busy, "PLAN5: {change:?}: {refused:?}");
    }
    let missing = made(&begun, Change::MarkMissing { missing: vec![disk(2, 0).id], returned: Vec::new() });
    let given_up = Change::RemoveMissing { with_volumes: false };
    let refused = planned(&missing, given_up.clone()).expect_err("it may still be written there");
    assert!(matches!(refused, PlanError::Conversion(ConversionError::Converting { .. })), "{refused:?}");
    let ended = made(&missing, step(&vm(&before), ConversionStep::End));
    assert_eq!(vm(&made(&ended, given_up)), vm(&before), "it is as good as before");
    let lost = made(&begun, Change::MarkMissing { missing: vec![disk(0, 0).id], returned: Vec::new() });
    let without = made(&lost, Change::RemoveMissing { with_volumes: true });
    assert!(without.jobs().is_empty() && without.lv("vm1").is_none());
}

#[test]
fn a_copy_of_a_mirror_goes_as_a_volume_of_its_own() {
    let mut group = made(&group(&[30, 30, 30]), linear("vm1", 10));
    group = made(&group, begin(vm(&group).id.as_u128(), mirror(3)));
    for next in [ConversionStep::Switch, ConversionStep::End] {
        group = made(&group, step(&vm(&group), next));
    }
    let split = |to: &str| ConversionStep::Split { to: to.into(), id: Uuid::from_u128(0x51) };
    let before = vm(&group);
    let taken = planned(&group, step(&before, split("vm1"))).expect_err("its name is taken");
    assert!(matches!(taken, PlanError::VolumeExists { .. }));
    let first = made(&group, step(&before, split("copy")));
    let (copy, rest) = (first.lv("copy").expect("made").clone(), vm(&first));
    assert_eq!((copy.layout.clone(), copy.extents), (model::Layout::Linear, 10));
    let leg = |lv: &LogicalVolume, place| -> Vec<Area> {
        lv.segments.iter().map(|segment| segment.areas[place]).collect()
    };
    assert_eq!(leg(&copy, 0), leg(&before, 2), "PLANSPLIT1");
    assert_eq!(rest.layout.members(), &before.layout.members()[..2], "they are the members that they were");
    assert_eq!(owned(&first), owned(&group) - 1, "the metadata of the copy is free");
    let again = ConversionStep::Split { to: "other".into(), id: Uuid::from_u128(0x52) };
    let second = made(&first, step(&rest, again));
    assert_eq!((vm(&second).layout, leg(&vm(&second), 0)), (model::Layout::Linear, leg(&before, 0)));
    assert_eq!(owned(&second), 30);
    let none = planned(&second, step(&vm(&second), split("third"))).expect_err("it is no mirror");
    assert!(matches!(none, PlanError::Layout(_)), "{none:?}");
}
