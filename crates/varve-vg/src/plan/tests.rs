//! Tests of planning: what each change does, what it refuses, and that no history of changes breaks a group.

mod arrays;
mod conversions;
mod granted;
mod images;
mod jobs;
mod logs;
mod mapper;
mod moves;
mod replace;
mod schedules;
mod trash;
mod under_way;

use super::*;
use crate::model::{self, Role, SetMember, areas};
use crate::model::{ArrayPolicy, PvName, SnapshotSet, StorePolicy};
use crate::size::Amount;
use crate::size::SizeArgument;
use proptest::prelude::*;
use std::collections::BTreeSet;
use varve_block::KIB;

const MIB4: u64 = 4 << 20;

fn stamp(change: &str) -> Stamp {
    Stamp { date: UnixTime(1_750_000_000), change: change.into() }
}

fn disk(number: u128, extents: u64) -> NewDisk {
    NewDisk {
        id: Uuid::from_u128(0x1000 + number),
        size: (1 << 20) + extents * MIB4 + crate::TAIL_SIZE + 4096,
        data_offset: 1 << 20,
        path: format!("/dev/sd{number}"),
    }
}

/// A group `data` of disks with these numbers of extents of 4 MiB.
fn group(extents: &[u64]) -> Group {
    let disks: Vec<_> = (0..).zip(extents).map(|(number, count)| disk(number, *count)).collect();
    plan_group("data", Uuid::from_u128(1), MIB4, &disks, &stamp("vg create data"))
        .expect("a sound group")
        .after
}

fn planned(group: &Group, change: Change) -> Result<Plan, PlanError> {
    plan(group, change, &stamp("test"))
}

fn linear(name: &str, extents: u64) -> Change {
    let id = Uuid::from_u128(0x2000 + name.bytes().fold(0, |sum, byte| sum * 256 + u128::from(byte)));
    Change::CreateVolume {
        name: name.into(),
        id,
        size: SizeArgument::bytes(extents * MIB4),
        role: Role::Volume,
        layout: Layout::Linear,
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    }
}

fn striped(name: &str, size: SizeArgument, stripes: usize, stripe_size: u64) -> Change {
    let layout = Layout::Striped { stripes, stripe_size };
    Change::CreateVolume {
        name: name.into(),
        id: Uuid::from_u128(0x3000),
        size,
        role: Role::Volume,
        layout,
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    }
}

fn made(group: &Group, change: Change) -> Group {
    planned(group, change).expect("possible").after
}

fn extend(name: &str, size: &str) -> Change {
    Change::ExtendVolume {
        name: name.into(),
        size: SizeArgument::parse(size).expect("a size"),
        disks: DiskChoice::default(),
    }
}

fn refusal(group: &Group, change: Change) -> (ErrorKind, String) {
    let error = planned(group, change).expect_err("refused");
    assert!(!error.help().is_empty(), "{error}");
    (error.kind(), error.to_string())
}

#[test]
fn a_new_group_has_sequence_1_and_says_what_it_is_made_of() {
    let disks = [disk(0, 10), disk(1, 20)];
    let plan = plan_group("data", Uuid::from_u128(1), MIB4, &disks, &stamp("vg create")).expect("sound");
    assert_eq!((plan.after.entry().sequence, plan.based_on), (1, 0));
    assert_eq!(plan.after.usage().free, 30 * MIB4);
    let lines: Vec<_> = plan.lines().collect();
    assert_eq!(lines[0], "would create group data with extents of 4.0 MiB");
    assert_eq!(lines[2], "would add /dev/sd1 as pv1 with 20 extents (80.0 MiB)");
    let small = plan_group("data", Uuid::from_u128(1), MIB4, &[disk(0, 0)], &stamp("x"));
    assert!(matches!(small, Err(PlanError::DiskTooSmall { .. })));
    let size = plan_group("data", Uuid::from_u128(1), 3 << 20, &disks, &stamp("x"));
    assert!(matches!(size, Err(PlanError::Invalid(_))));
}

#[test]
fn creating_extending_and_removing_a_volume_takes_and_frees_bytes() {
    let plan = planned(&group(&[10, 10]), linear("vm1", 4)).expect("possible");
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (4 * MIB4, 0));
    let lines: Vec<_> = plan.lines().collect();
    assert_eq!(lines, ["would create linear volume data/vm1 of 16.0 MiB (4 extents: pv0:0+4)"]);
    assert_eq!(plan.after.entry().sequence, 2);
    assert_eq!(plan.after.entry().change, "test");

    let grown = planned(&plan.after, extend("vm1", "+5M")).expect("possible");
    assert_eq!(grown.bytes_taken, 2 * MIB4, "rounded up");
    assert_eq!(grown.after.lv("vm1").map(|lv| lv.segments.len()), Some(1), "grown in place");
    let absolute = planned(&plan.after, extend("vm1", "20M")).expect("possible");
    assert_eq!(absolute.bytes_taken, MIB4);
    let share = planned(&plan.after, extend("vm1", "+50%FREE")).expect("possible");
    assert_eq!(share.bytes_taken, 8 * MIB4);

    let reduced =
        planned(&grown.after, Change::ReduceVolume { name: "vm1".into(), size: 1 }).expect("possible");
    assert_eq!((reduced.bytes_taken, reduced.bytes_freed), (0, 5 * MIB4));
    let removed = planned(&grown.after, Change::RemoveVolume { name: "vm1".into() }).expect("possible");
    assert_eq!(removed.bytes_freed, 6 * MIB4);
    assert!(removed.after.logical_volumes().is_empty());
}

#[test]
fn each_change_of_a_volume_is_one_line_of_the_plan() {
    let mut group = made(&group(&[20]), linear("vm1", 4));
    let (name, to) = ("vm1".to_owned(), "vm2".to_owned());
    let inactive = |reason: Option<&str>| Change::SetInactive {
        volume: "vm2".into(),
        reason: reason.map(str::to_owned),
    };
    for (change, line) in [
        (extend("vm1", "+8M"), "would extend data/vm1 from 16.0 MiB to 24.0 MiB (now 6 extents: pv0:0+6)"),
        (
            Change::ReduceVolume { name: name.clone(), size: 1 },
            "would reduce data/vm1 from 24.0 MiB to 4.0 MiB; its last 20.0 MiB are lost",
        ),
        (Change::RenameVolume { from: name, to }, "would rename data/vm1 to data/vm2"),
        (inactive(Some("it panicked")), "would take data/vm2 out of use (it panicked)"),
        (inactive(None), "would take data/vm2 into use"),
        (Change::RemoveVolume { name: "vm2".into() }, "would remove data/vm2 and all its data (4.0 MiB)"),
    ] {
        let plan = planned(&group, change).expect("possible");
        assert_eq!(plan.lines().collect::<Vec<_>>(), [line]);
        group = plan.after;
    }
}

#[test]
fn a_disk_in_use_names_the_command_that_empties_it() {
    let busy = made(&group(&[20]), linear("vm1", 4));
    let error = planned(&busy, Change::RemoveDisk { id: disk(0, 20).id }).expect_err("in use");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(error.help(), "`varve pv move /dev/sd0` moves it to other disks");
}

#[test]
fn striped_volumes_grow_and_shrink_by_whole_rows() {
    let size = SizeArgument::bytes(3 * MIB4);
    let made_one = made(&group(&[10, 10]), striped("fast", size, 2, 65_536));
    let lv = made_one.lv("fast").expect("made");
    assert_eq!((lv.extents, &lv.layout), (4, &model::Layout::Striped { stripe_size: 65_536 }));
    let grown = made(&made_one, extend("fast", "+1"));
    assert_eq!(grown.lv("fast").map(|lv| (lv.extents, lv.segments.len())), Some((6, 1)));
    let less = made(&grown, Change::ReduceVolume { name: "fast".into(), size: 3 * MIB4 });
    assert_eq!(less.lv("fast").map(|lv| lv.extents), Some(4));
    let all =
        made(&group(&[10, 7]), striped("fast", SizeArgument::parse("50%FREE").expect("a share"), 2, 4096));
    assert_eq!(all.lv("fast").map(|lv| lv.extents), Some(8));
}

#[test]
fn refusals_have_a_kind_and_a_message() {
    let group = made(&group(&[10, 2]), linear("vm1", 4));
    let cases = [
        (linear("vm1", 1), ErrorKind::Exists, "there is a volume data/vm1 already"),
        (linear("a/b", 1), ErrorKind::Usage, "\"a/b\" cannot be a name"),
        (linear("x", 9), ErrorKind::NoSpace, "data has 32.0 MiB free, 36.0 MiB are needed"),
        (linear("x", 0), ErrorKind::Usage, "0 bytes is no size"),
        (extend("x", "+1"), ErrorKind::NotFound, "there is no volume data/x"),
        (extend("vm1", "1G"), ErrorKind::NoSpace, "data has 32.0 MiB free"),
        (extend("vm1", "16M"), ErrorKind::Usage, "data/vm1 has 16.0 MiB now: 16.0 MiB is not larger"),
        (extend("vm1", "+1%FREE"), ErrorKind::NoSpace, "the share of the free space is less"),
        (extend("vm1", "15E"), ErrorKind::Usage, "17293822569102704640 bytes is no size"),
        (extend("vm1", "+8E"), ErrorKind::NoSpace, "data has 32.0 MiB free, 8.0 EiB are needed"),
        (
            Change::ReduceVolume { name: "vm1".into(), size: 16 << 20 },
            ErrorKind::Usage,
            "data/vm1 has 16.0 MiB",
        ),
        (
            striped("x", SizeArgument::bytes(6 * MIB4), 2, 4096),
            ErrorKind::NoSpace,
            "2 stripes need 12.0 MiB free",
        ),
        (striped("x", SizeArgument::bytes(1), 1, 4096), ErrorKind::Usage, "a striped volume has 2 to 128"),
        (striped("x", SizeArgument::bytes(1), 2, 5000), ErrorKind::Usage, "a stripe is a power of two"),
        (Change::RemoveDisk { id: disk(0, 0).id }, ErrorKind::Busy, "/dev/sd0 holds extents of vm1"),
        (Change::RemoveDisk { id: Uuid::from_u128(9) }, ErrorKind::NotFound, "the disk 00000000-"),
        (Change::AddDisks { disks: vec![disk(0, 9)] }, ErrorKind::Exists, "/dev/sd0 belongs to data already"),
        (Change::RemoveMissing { with_volumes: true }, ErrorKind::NotFound, "no disk of data is missing"),
        (
            Change::RemoveStore { volume: "vm1".into(), store: Uuid::from_u128(7) },
            ErrorKind::NotFound,
            "data/vm1 has no exception store",
        ),
        (Change::RenameGroup { to: "".into() }, ErrorKind::Usage, "\"\" cannot be a name"),
    ];
    for (change, kind, message) in cases {
        let text = format!("{change:?}");
        let (found, words) = refusal(&group, change);
        assert_eq!(found, kind, "{text}");
        assert!(words.starts_with(message), "{text}: {words}");
    }
    let alone = made(&group, Change::RemoveDisk { id: disk(1, 0).id });
    let alone = made(&alone, Change::RemoveVolume { name: "vm1".into() });
    assert_eq!(refusal(&alone, Change::RemoveDisk { id: disk(0, 0).id }).0, ErrorKind::Busy);
}

fn store(number: u128, chunk_size: u64, kind: StoreKind) -> Change {
    let (volume, id) = ("vm1".into(), Uuid::from_u128(number));
    Change::CreateStore { volume, id, size: MIB4, chunk_size, kind }
}

#[test]
fn a_volume_with_a_store_is_neither_removed_nor_reduced() {
    let group = made(&group(&[20]), linear("vm1", 4));
    let id = Uuid::from_u128(7);
    let with = planned(&group, store(7, 65_536, StoreKind::Dependent)).expect("possible");
    assert_eq!(with.bytes_taken, MIB4);
    let with = with.after;
    let alone = made(&group, store(8, 65_536, StoreKind::Independent));
    for with in [&with, &alone] {
        for change in [
            Change::RemoveVolume { name: "vm1".into() },
            Change::ReduceVolume { name: "vm1".into(), size: 1 },
        ] {
            assert_eq!(refusal(with, change).0, ErrorKind::Busy);
        }
    }
    assert_eq!(refusal(&with, store(9, 65_536, StoreKind::Dependent)).0, ErrorKind::Busy);
    let more = made(&with, Change::ExtendStore { volume: "vm1".into(), store: id, by: 2 * MIB4 });
    let found = more.lv("vm1").and_then(|lv| lv.store.clone()).expect("it has a store");
    assert_eq!((found.extents, found.segments.len()), (3, 1));
    let none = planned(&more, Change::RemoveStore { volume: "vm1".into(), store: id }).expect("possible");
    assert_eq!(none.bytes_freed, 3 * MIB4);
    assert_eq!(refusal(&group, store(7, 3, StoreKind::Dependent)).0, ErrorKind::Usage);
}

#[test]
fn independent_stores_come_and_go_beside_the_shared_one() {
    let group = made(&group(&[20]), linear("vm1", 4));
    let one = made(&group, store(7, 65_536, StoreKind::Dependent));
    let three =
        made(&made(&one, store(8, 4096, StoreKind::Independent)), store(9, 4096, StoreKind::Independent));
    let ids = |group: &Group| -> Vec<u128> {
        group.lv("vm1").expect("it is there").stores().map(|store| store.id.as_u128()).collect()
    };
    assert_eq!(ids(&three), [7, 8, 9]);
    let change = Change::RemoveStore { volume: "vm1".into(), store: Uuid::from_u128(8) };
    assert_eq!(ids(&made(&three, change)), [7, 9]);
    let change = Change::ExtendStore { volume: "vm1".into(), store: Uuid::from_u128(9), by: 1 };
    assert_eq!(made(&three, change).lv("vm1").map(|lv| lv.independent_stores[1].extents), Some(2));
}

#[test]
fn a_replaced_store_is_kept_as_a_volume() {
    let group = made(&made(&group(&[20]), linear("vm1", 4)), store(7, 65_536, StoreKind::Dependent));
    let change = Change::ReplaceStore {
        volume: "vm1".into(),
        store: Uuid::from_u128(7),
        size: MIB4,
        kept_as: "vm1-old".into(),
        kept_id: Uuid::from_u128(70),
    };
    let plan = planned(&group, change.clone()).expect("possible");
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (MIB4, 0));
    let (before, after) = (group.lv("vm1").expect("there"), plan.after.lv("vm1").expect("there"));
    let kept = plan.after.lv("vm1-old").expect("the old store is kept");
    assert_eq!(Some(&kept.segments), before.store.as_ref().map(|store| &store.segments));
    assert!(kept.read_only && after.store.as_ref().is_some_and(|store| store.segments != kept.segments));
    assert_eq!(after.store.as_ref().map(|store| store.id), before.store.as_ref().map(|store| store.id));
    assert_eq!(refusal(&plan.after, change).0, ErrorKind::Exists);
}

#[test]
fn a_policy_is_declared_and_the_usual_one_is_not_written() {
    let group = made(&group(&[20]), linear("vm1", 4));
    let policy = StorePolicy { extend_at_percent: None, ..StorePolicy::default() };
    let set = |policy| Change::SetStorePolicy { volume: "vm1".into(), policy };
    let declared = made(&group, set(policy));
    assert_eq!(declared.lv("vm1").and_then(|lv| lv.store_policy), Some(policy));
    let usual = made(&declared, set(StorePolicy::default()));
    assert_eq!(usual.lv("vm1").and_then(|lv| lv.store_policy), None);
    let odd = StorePolicy { extend_at_percent: Some(0), ..StorePolicy::default() };
    assert!(planned(&group, set(odd)).is_err(), "TEXT10");
    let Change::CreateVolume { name, id, size, layout, disks, .. } = linear("vm2", 4) else {
        unreachable!("it is")
    };
    let plan =
        planned(&group, Change::CreateVolume { name, id, size, role: Role::Volume, layout, policy, disks })
            .expect("possible");
    assert_eq!(plan.after.lv("vm2").and_then(|lv| lv.store_policy), Some(policy), "in the same version");
    assert_eq!(plan.steps.len(), 2);
}

#[test]
fn a_set_of_snapshots_is_written_down_and_forgotten_and_comes_with_no_backup() {
    let group = made(&group(&[20]), linear("vm1", 4));
    let volume = group.lv("vm1").expect("just made").id;
    let member =
        SetMember { volume, store: Uuid::from_u128(0x4001), after: 7, names: vec!["a".into(), "b".into()] };
    let set = SnapshotSet { id: Uuid::from_u128(0x4000), groups: Vec::new(), members: vec![member] };
    let begun = planned(&group, Change::BeginSnapshots { set: set.clone() }).expect("possible");
    assert_eq!((begun.after.snapshot_sets(), begun.bytes_taken), (&[set.clone()][..], 0));
    let again = Change::BeginSnapshots { set: set.clone() };
    assert!(matches!(planned(&begun.after, again), Err(PlanError::Invalid(_))), "TEXT1: an id is used once");
    let backup = Box::new(begun.after.description().clone());
    let restored = made(&group, Change::Restore { backup });
    assert!(restored.snapshot_sets().is_empty(), "what a backup says of snapshots is over");
    let ended = made(&begun.after, Change::EndSnapshots { set: set.id, job: None, run: None });
    assert!(ended.snapshot_sets().is_empty());
    assert_eq!(ended.logical_volumes(), group.logical_volumes());
}

#[test]
fn while_a_disk_is_missing_what_lies_on_others_is_changed() {
    let two = made(&made(&group(&[4, 4]), linear("vm1", 4)), linear("vm2", 2));
    let missing = Change::MarkMissing { missing: vec![disk(1, 0).id], returned: vec![] };
    let degraded = made(&two, missing);
    assert_eq!(degraded.usage().missing, 4 * MIB4);
    assert_eq!(refusal(&degraded, linear("x", 1)).0, ErrorKind::NoSpace, "PLAN3: pv1 is given to nothing");
    for change in [
        extend("vm2", "+4M"),
        Change::ReduceVolume { name: "vm2".into(), size: MIB4 },
        Change::CreateStore {
            volume: "vm2".into(),
            id: Uuid::from_u128(7),
            size: MIB4,
            chunk_size: 65_536,
            kind: StoreKind::Dependent,
        },
    ] {
        assert_eq!(refusal(&degraded, change).1, "data/vm2 lies on pv1, which is missing", "PLAN3");
    }
    let backup = Box::new(two.description().clone());
    let (_, words) = refusal(&degraded, Change::Restore { backup });
    assert_eq!(words, "no backup is written back to data while disks are missing: pv1 (/dev/sd1)");
    let larger = made(&degraded, Change::AddDisks { disks: vec![disk(2, 4)] });
    let larger = made(&made(&larger, extend("vm1", "+4M")), linear("x", 2));
    assert_eq!(larger.lv("x").map(|lv| lv.segments[0].areas[0].pv), Some(PvName(2)));
    assert_eq!(larger.lv("vm2"), two.lv("vm2"));

    let keeping = refusal(&degraded, Change::RemoveMissing { with_volumes: false });
    assert_eq!(keeping.1, "data/vm2 lies on pv1, which is missing");
    let without = made(&degraded, Change::RemoveMissing { with_volumes: true });
    assert_eq!(without.logical_volumes().len(), 1);
    assert_eq!(without.physical_volumes().len(), 1);
    let back =
        |group: &Group| made(group, Change::MarkMissing { missing: vec![], returned: vec![disk(1, 0).id] });
    assert_eq!(back(&degraded).logical_volumes(), two.logical_volumes());
    let removed = made(&larger, Change::RemoveVolume { name: "vm2".into() });
    assert_eq!(removed.usage().free, MIB4, "nothing of pv1 is free while it is missing");
    assert_eq!(back(&removed).usage().free, 5 * MIB4, "all of it is when it is back");
}

#[test]
fn a_backup_is_restored_on_its_own_disks_only() {
    let old = made(&group(&[8, 8]), linear("vm1", 4));
    let backup = Box::new(old.description().clone());
    let now = made(&made(&old, Change::RemoveVolume { name: "vm1".into() }), linear("vm2", 9));
    let plan = planned(&now, Change::Restore { backup: backup.clone() }).expect("possible");
    assert_eq!(plan.after.logical_volumes(), old.logical_volumes());
    assert_eq!(plan.after.entry().sequence, now.entry().sequence + 1);
    let larger = made(&now, Change::AddDisks { disks: vec![disk(2, 8)] });
    let misfit = refusal(&larger, Change::Restore { backup: backup.clone() });
    assert!(misfit.1.contains("does not know the disk /dev/sd2"), "{}", misfit.1);
    let other =
        plan_group("data", Uuid::from_u128(2), MIB4, &[disk(0, 8)], &stamp("x")).expect("sound").after;
    assert!(refusal(&other, Change::Restore { backup }).1.contains("it is of the group data"));
}

/// One of few ids, so that a later change finds what an earlier one made.
fn store_id(volume: &str, number: u128) -> Uuid {
    Uuid::from_u128(0x5000 + u128::from(volume.as_bytes()[0]) * 2 + number % 2)
}

/// A change of the disks of a group, or of what is on one of them.
fn change_of_disks(kind: i32, name: String, number: u128, bytes: u64) -> Change {
    let (id, small) = (Uuid::from_u128(number | 1), number % 6);
    match kind {
        11 => Change::MarkMissing { missing: vec![disk(small, 0).id], returned: vec![] },
        12 => Change::MarkMissing { missing: vec![], returned: vec![disk(small, 0).id] },
        13 => {
            let volume = number.is_multiple_of(4).then_some(name);
            Change::ReplaceMembers { from: disk(small, 0).id, volume, id, disks: DiskChoice::default() }
        }
        14 if number.is_multiple_of(7) => {
            Change::ResizeDisk { id: disk(small, 0).id, size: bytes * 2 + 4097 }
        }
        14 if number.is_multiple_of(5) => {
            Change::SetSpare { disk: disk(small, 0).id, is_spare: number.is_multiple_of(3) }
        }
        _ if number.is_multiple_of(2) => Change::RemoveDisk { id: disk(small, 0).id },
        _ => Change::AddDisks { disks: vec![disk(small, 5 + bytes / MIB4)] },
    }
}

/// A change that may or may not be possible.
fn any_change() -> impl Strategy<Value = Change> {
    let name = prop_oneof!["a", "b", "c", "d"];
    let size = prop_oneof![
        (0_u64..40).prop_map(|count| SizeArgument::bytes(count * MIB4 / 2)),
        (1_u64..=100)
            .prop_map(|percent| SizeArgument { relative: true, amount: Amount::PercentFree(percent) }),
        (1_u64..20).prop_map(|count| SizeArgument { relative: true, amount: Amount::Bytes(count * MIB4) }),
    ];
    (0..15, name.clone(), name, size, 2..5_usize, any::<u128>()).prop_map(
        |(kind, name, to, size, stripes, number)| {
            let id = Uuid::from_u128(number | 1);
            let bytes = match size.amount {
                Amount::Bytes(bytes) => bytes,
                Amount::PercentFree(percent) => percent * MIB4 / 10,
            };
            let store = store_id(&name, number);
            match kind {
                0 | 1 => Change::CreateVolume {
                    name,
                    id,
                    size,
                    role: Role::Volume,
                    layout: Layout::Linear,
                    policy: StorePolicy::default(),
                    disks: DiskChoice::default(),
                },
                2 => Change::CreateVolume {
                    name,
                    id,
                    size,
                    role: Role::Volume,
                    layout: Layout::Striped { stripes, stripe_size: 4096 },
                    policy: StorePolicy::default(),
                    disks: DiskChoice::default(),
                },
                3 => Change::ExtendVolume { name, size, disks: DiskChoice::default() },
                4 => Change::ReduceVolume { name, size: bytes },
                5 if number.is_multiple_of(2) => Change::Trash(TrashStep::Put { name }),
                5 => Change::RemoveVolume { name },
                6 => Change::RenameVolume { from: name, to },
                7 => {
                    let kind = [StoreKind::Dependent, StoreKind::Independent][usize::from(number % 2 == 1)];
                    Change::CreateStore { volume: name, id: store, size: bytes, chunk_size: 65_536, kind }
                }
                8 => Change::ExtendStore { volume: name, store, by: bytes },
                9 => Change::RemoveStore { volume: name, store },
                10 => Change::CreateVolume {
                    name,
                    id,
                    size,
                    role: [Role::Volume, Role::Pool][usize::from(number % 4 == 1)],
                    layout: match stripes {
                        2 | 3 => {
                            Layout::Mirror { copies: stripes, read_policy: None, checksums: stripes == 3 }
                        }
                        _ => {
                            Layout::Ddraid { order: 1, block_size: None, read_policy: None, checksums: false }
                        }
                    },
                    policy: StorePolicy::default(),
                    disks: DiskChoice::default(),
                },
                _ => change_of_disks(kind, name, number, bytes),
            }
        },
    )
}

/// PLAN2: volumes with other names keep their places.
fn untouched(before: &Group, after: &Group, names: &[&str]) {
    for lv in before.logical_volumes().iter().filter(|lv| !names.contains(&lv.name.as_str())) {
        assert_eq!(after.lv(&lv.name), Some(lv), "PLAN2");
    }
}

/// All extents that something owns.
fn owned(group: &Group) -> BTreeSet<(Uuid, u64)> {
    let id = |area: &Area| group.pv(area.pv).expect("TEXT4").id;
    group
        .owned_areas()
        .flat_map(|area| (area.start..area.end()).map(move |extent| (id(&area), extent)))
        .collect()
}

/// Those of missing disks.
fn on_missing(group: &Group) -> BTreeSet<(Uuid, u64)> {
    owned(group).into_iter().filter(|(id, _)| !group.counts_on(*id)).collect()
}

proptest! {
    #[test]
    fn no_history_of_changes_breaks_a_group(changes in proptest::collection::vec(any_change(), 1..40)) {
        let mut group = group(&[20, 15, 10]);
        for change in changes {
            let named: Vec<String> = match &change {
                Change::CreateVolume { name, .. } | Change::ExtendVolume { name, .. }
                | Change::ReduceVolume { name, .. } | Change::RemoveVolume { name } => vec![name.clone()],
                Change::Trash(TrashStep::Put { name }) => vec![name.clone()],
                Change::RenameVolume { from, to } => vec![from.clone(), to.clone()],
                Change::CreateStore { volume, .. } | Change::ExtendStore { volume, .. }
                | Change::RemoveStore { volume, .. } => vec![volume.clone()],
                Change::ReplaceMembers { from, volume, .. } => {
                    let on = group.pv_by_id(*from).map(|pv| group.volumes_on(pv.name)).unwrap_or_default();
                    on.into_iter().filter(|name| volume.as_ref().is_none_or(|only| only == name)).collect()
                }
                _ => vec![],
            };
            let Ok(plan) = planned(&group, change) else { continue };
            let names: Vec<&str> = named.iter().map(String::as_str).collect();
            untouched(&group, &plan.after, &names);
            prop_assert_eq!(plan.after.entry().sequence, group.entry().sequence + 1, "PLAN1");
            let used = |group: &Group| -> u64 {
                group.owned_areas().map(|area| area.count * MIB4).sum()
            };
            prop_assert_eq!(used(&group) + plan.bytes_taken - plan.bytes_freed, used(&plan.after));
            let usage = plan.after.usage();
            prop_assert_eq!(usage.size - usage.missing - usage.spare, usage.free + used(&plan.after) - on_missing(&plan.after).len() as u64 * MIB4);
            prop_assert!(on_missing(&plan.after).is_subset(&owned(&group)), "PLAN3");
            let again = Group::from_text(&plan.after.text());
            prop_assert_eq!(again.as_ref(), Ok(&plan.after));
            for lv in plan.after.logical_volumes() {
                let extents = lv.segments.iter().map(|segment| lv.layout.extents_of(segment));
                prop_assert_eq!(lv.extents, extents.sum::<u64>());
            }
            group = plan.after;
        }
    }
}

#[test]
fn a_pool_is_a_volume_of_the_group_that_grows_and_never_shrinks() {
    let before = group(&[100]);
    let create = |name: &str| Change::CreateVolume {
        name: name.into(),
        id: Uuid::from_u128(0x4000),
        size: SizeArgument::bytes(10 * MIB4),
        role: Role::Pool,
        layout: Layout::Linear,
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    };
    let plan = planned(&before, create("thin")).expect("possible");
    assert!(plan.steps[0].starts_with("create thin pool data/thin of 40.0 MiB"), "{:?}", plan.steps);
    let made_pool = plan.after;
    assert!(made_pool.lv("thin").is_some_and(LogicalVolume::is_pool));
    let text = made_pool.text();
    assert_eq!(Group::from_text(&text).as_ref(), Ok(&made_pool), "it is written and read");
    // One name, whatever it is of.
    assert_eq!(refusal(&made_pool, linear("thin", 1)).0, ErrorKind::Exists);
    let larger = made(&made_pool, extend("thin", "+40M"));
    assert_eq!(larger.lv("thin").map(|lv| (lv.extents, lv.role)), Some((20, Role::Pool)));
    let smaller = Change::ReduceVolume { name: "thin".into(), size: MIB4 };
    assert!(refusal(&larger, smaller).1.contains("a pool does not shrink"));
    let store = Change::CreateStore {
        volume: "thin".into(),
        id: Uuid::from_u128(0x5000),
        size: MIB4,
        chunk_size: 65536,
        kind: StoreKind::Dependent,
    };
    assert!(refusal(&larger, store).1.contains("a pool has no snapshots"));
    let drops = StorePolicy { when_full: model::WhenFull::DropOldest, ..StorePolicy::default() };
    let policy = Change::SetStorePolicy { volume: "thin".into(), policy: drops };
    assert!(refusal(&larger, policy).1.contains("a pool drops no snapshots"));
    let strict = StorePolicy {
        discards: model::Discards::PassDown,
        over_commit: model::OverCommit::Forbid,
        ..StorePolicy::default()
    };
    let declare = |volume: &str| Change::SetStorePolicy { volume: volume.into(), policy: strict };
    let declared = planned(&larger, declare("thin")).expect("possible");
    assert!(
        declared.steps[0].ends_with("; discards: pass-down; over-commitment: forbid"),
        "{:?}",
        declared.steps
    );
    let text = declared.after.text();
    assert!(text.contains("discards = \"pass-down\"") && text.contains("over_commit = \"forbid\""), "{text}");
    assert_eq!(Group::from_text(&text).as_ref(), Ok(&declared.after), "it is written and read");
    let with_volume = made(&larger, linear("plain", 1));
    assert!(refusal(&with_volume, declare("plain")).1.contains("only a pool declares"));
    let gone = planned(&larger, Change::RemoveVolume { name: "thin".into() }).expect("possible");
    assert!(gone.steps[0].contains("all volumes in it") && gone.bytes_freed == 20 * MIB4);
}

fn restored(now: &Group, backup: &Group) -> Plan {
    planned(now, Change::Restore { backup: Box::new(backup.description().clone()) }).expect("possible")
}

fn extended(group: &Group, name: &str, extents: u64) -> Group {
    let size = SizeArgument { relative: true, amount: Amount::Bytes(extents * MIB4) };
    made(group, Change::ExtendVolume { name: name.into(), size, disks: DiskChoice::default() })
}

#[test]
fn a_restore_keeps_what_volumes_have_gained_since_where_it_is_given_to_nobody_else() {
    let old = made(&made(&group(&[20]), linear("grown", 4)), linear("gone", 4));
    let now = extended(&made(&old, Change::RemoveVolume { name: "gone".into() }), "grown", 8);
    // The backup gives `gone` what `grown` has now.
    let plan = restored(&now, &old);
    let all = losses(&now, &plan.after);
    let grown = now.lv("grown").expect("it is there");
    let kind = LossKind::Places { now: 12 * MIB4, then: 4 * MIB4 };
    assert_eq!(all, [Loss { volume: grown.id, name: "grown".into(), is_pool: false, kind }], "PLAN4");
    let steps: Vec<String> = plan.lines().collect();
    assert!(steps.iter().any(|step| step.starts_with("would drop what data/grown holds")), "{steps:?}");
    assert!(steps.iter().any(|step| step.starts_with("would bring back data/gone")), "{steps:?}");

    // Here the extents behind it were free when the backup was taken.
    let old = made(&made(&group(&[20]), linear("gone", 4)), linear("grown", 4));
    let now = extended(&made(&old, Change::RemoveVolume { name: "gone".into() }), "grown", 8);
    let plan = restored(&now, &old);
    assert_eq!(losses(&now, &plan.after), []);
    assert_eq!(plan.after.lv("grown"), now.lv("grown"));
    assert_eq!(plan.after.lv("gone"), old.lv("gone"));
}

#[test]
fn a_restore_that_lays_the_same_extents_out_otherwise_loses_what_they_hold() {
    let now = made(&group(&[10, 10]), striped("fast", SizeArgument::bytes(4 * MIB4), 2, 65_536));
    let mut backup = now.description().clone();
    backup.logical_volumes[0].layout = model::Layout::Striped { stripe_size: 4096 };
    let plan = restored(&now, &Group::new(backup).expect("sound"));
    let (volume, name) = (now.lv("fast").expect("it is there").id, "fast".into());
    let kind = LossKind::Places { now: 4 * MIB4, then: 4 * MIB4 };
    assert_eq!(losses(&now, &plan.after), [Loss { volume, name, is_pool: false, kind }], "PLAN4");
    assert_eq!(losses(&now, &restored(&now, &now).after), []);
}

#[test]
fn a_restore_keeps_present_stores_and_brings_back_none_that_was_given_back() {
    let id = |low: u128| Uuid::from_u128(low);
    let store = |low| Change::CreateStore {
        volume: "vm1".into(),
        id: id(low),
        size: MIB4,
        chunk_size: 4 * KIB,
        kind: StoreKind::Dependent,
    };
    let plain = made(&group(&[20]), linear("vm1", 4));
    let with = made(&plain, store(7));
    let plan = restored(&with, &plain);
    assert_eq!((losses(&with, &plan.after), plan.after.lv("vm1")), (vec![], with.lv("vm1")));
    assert_eq!(restored(&plain, &with).after.lv("vm1"), plain.lv("vm1"), "it was written without that store");
    let both = made(&with, linear("new", 2));
    let all = losses(&both, &restored(&both, &plain).after);
    let names: Vec<(&str, &LossKind)> = all.iter().map(|loss| (loss.name.as_str(), &loss.kind)).collect();
    assert_eq!(names, [("new", &LossKind::All(2 * MIB4))]);
}

#[test]
fn a_mark_of_what_is_to_be_cleared_stays_until_it_is_and_never_grows_smaller() {
    let empty = group(&[40]);
    let made_marked = |group: &Group, change: Change, from: u64| {
        let plan = planned(group, change).expect("possible");
        let id = plan.after.lv("vm1").expect("it is planned").id;
        plan.with_clearing(id, from, group.last_job() + 1).expect("sound").after
    };
    let mark = |group: &Group| group.lv("vm1").and_then(|lv| group.uncleared(lv.id));
    let fresh = made_marked(&empty, linear("vm1", 8), 0);
    assert_eq!(Group::from_text(&fresh.text()).as_ref(), Ok(&fresh), "it is in the text");
    let id = fresh.lv("vm1").expect("just made").id;
    let longer = made_marked(&fresh, extend("vm1", "+16M"), 8);
    assert_eq!(mark(&longer), Some(0), "what was to be cleared before still is");
    let job =
        |group: &Group| group.jobs().iter().map(|job| (job.id, job.subject.clone())).collect::<Vec<_>>();
    assert_eq!(job(&longer), [(1, "data/vm1".to_owned())], "by the job that clears it already");
    let in_part = made(&longer, Change::Cleared { volume: id, until: 8 });
    assert_eq!(mark(&in_part), Some(8), "what was gained since is to be cleared still");
    let cleared = made(&in_part, Change::Cleared { volume: id, until: 12 });
    assert_eq!((mark(&cleared), cleared.lv("vm1").map(|lv| lv.extents)), (None, Some(12)));
    assert_eq!((job(&cleared), cleared.last_job()), (vec![], 1), "PLANJOB1");
    let grown = made_marked(&cleared, extend("vm1", "+16M"), 12);
    assert_eq!(mark(&grown), Some(12));
    let reduced =
        |extents: u64| mark(&made(&grown, Change::ReduceVolume { name: "vm1".into(), size: extents * MIB4 }));
    assert_eq!((reduced(14), reduced(12), reduced(3)), (Some(12), None, None));
    let renamed = made(&grown, Change::RenameVolume { from: "vm1".into(), to: "vm2".into() });
    assert_eq!(renamed.uncleared(id), Some(12));
    let removed = made(&grown, Change::RemoveVolume { name: "vm1".into() });
    assert_eq!((removed.uncleared(id), removed.jobs().len()), (None, 0), "PLANJOB3: it ends with its volume");
    assert_eq!(mark(&restored(&grown, &cleared).after), Some(12), "a restore takes nothing for cleared");
    let unknown = Change::Cleared { volume: Uuid::from_u128(99), until: 12 };
    assert!(matches!(planned(&grown, unknown), Err(PlanError::VolumeNotFound { .. })));
}

#[test]
fn a_restore_that_calls_disks_otherwise_keeps_no_areas_by_their_old_names() {
    let old = made(&group(&[8, 8]), linear("vm1", 4));
    let mut swapped = old.description().clone();
    for pv in &mut swapped.physical_volumes {
        pv.name = PvName(1 - pv.name.0);
    }
    let flip = |area: &mut Area| area.pv = PvName(1 - area.pv.0);
    swapped
        .logical_volumes
        .iter_mut()
        .flat_map(|lv| &mut lv.segments)
        .flat_map(|s| &mut s.areas)
        .for_each(flip);
    let backup = Group::new(swapped).expect("sound");
    let now = extended(&old, "vm1", 2);
    let plan = restored(&now, &backup);
    assert_eq!(plan.after.lv("vm1").map(|lv| &lv.segments), backup.lv("vm1").map(|lv| &lv.segments));
    assert_eq!(losses(&now, &plan.after).len(), 1, "PLAN4: what it has gained is named");
    let degraded = made(&old, Change::MarkMissing { missing: vec![disk(1, 0).id], returned: vec![] });
    let back = planned(&degraded, Change::Restore { backup: Box::new(old.description().clone()) });
    assert!(matches!(back, Err(PlanError::GroupIncomplete { .. })), "PLAN3");
}

#[test]
fn a_volume_is_taken_out_of_use_and_into_it_again() {
    let group = made(&group(&[20]), linear("vm1", 4));
    let set = |reason: Option<&str>| Change::SetInactive {
        volume: "vm1".into(),
        reason: reason.map(str::to_owned),
    };
    let failed = made(&group, set(Some("a panic: a bug")));
    assert_eq!(failed.lv("vm1").and_then(|lv| lv.inactive.as_deref()), Some("a panic: a bug"));
    assert!(planned(&group, set(Some("two\nlines"))).is_err(), "TEXT15 of the text");
    let active = made(&failed, set(None));
    assert_eq!(active.lv("vm1").map(|lv| (lv.inactive.clone(), lv.extents)), Some((None, 4)), "PLAN2");
}
