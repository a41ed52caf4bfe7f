//! Tests of planning: arrays, what is kept for them, and the disks on which all of it is.

use super::*;
use crate::model::MEMBER_METADATA_SIZE_MIN;
use crate::table::{IncompleteVolume, Parts, Table, store_table, table};

pub(super) const MIRROR: Layout = Layout::Mirror { copies: 2, read_policy: None, checksums: false };

pub(super) fn ddraid(order: u32, block_size: Option<u64>) -> Layout {
    Layout::Ddraid { order, block_size, read_policy: None, checksums: false }
}

pub(super) fn create(name: &str, size: SizeArgument, layout: Layout, disks: DiskChoice) -> Change {
    let id = Uuid::from_u128(0x6000 + u128::from(name.as_bytes()[0]));
    let (name, role, policy) = (name.into(), Role::Volume, StorePolicy::default());
    Change::CreateVolume { name, id, size, role, layout, policy, disks }
}

/// A volume of so many extents anywhere.
pub(super) fn volume(name: &str, extents: u64, layout: Layout) -> Change {
    create(name, SizeArgument::bytes(extents * MIB4), layout, DiskChoice::default())
}

pub(super) fn on(disks: &[u32]) -> DiskChoice {
    DiskChoice { on: disks.iter().map(|number| PvName(*number)).collect(), ..DiskChoice::default() }
}

/// Disks with these sectors.
pub(super) fn with_sectors(sectors: &[(u64, u64)]) -> DiskChoice {
    let numbered = (0..).zip(sectors);
    let sectors = numbered.map(|(number, (logical, physical))| {
        (PvName(number), Sectors { logical: *logical, physical: *physical })
    });
    DiskChoice { sectors: sectors.collect(), ..DiskChoice::default() }
}

#[test]
fn a_mirror_takes_a_disk_for_each_copy_and_says_so() {
    assert_eq!(MEMBER_METADATA_SIZE_MIN, 1 << 20, "an extent of these groups");
    let plan = planned(&group(&[20, 20, 9]), volume("safe", 8, MIRROR)).expect("possible");
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (18 * MIB4, 0), "two copies, and metadata");
    let step = "would create mirrored volume (2 copies) data/safe of 32.0 MiB (8 extents: pv0:1+8 pv1:1+8; metadata: \
        pv0:0+1 pv1:0+1)";
    assert_eq!(plan.lines().collect::<Vec<_>>(), [step]);
    let lv = plan.after.lv("safe").expect("made");
    let ids: Vec<Uuid> = lv.layout.members().iter().map(|member| member.id).collect();
    assert!(ids[0] != ids[1] && !ids.contains(&lv.id), "{ids:?}");
    let again = planned(&group(&[20, 20, 9]), volume("safe", 8, MIRROR)).expect("possible");
    assert_eq!(again, plan, "a plan is a function of what it is made of");
}

#[test]
fn arrays_grow_on_the_disks_of_their_members_and_shrink_by_whole_rows() {
    let first = made(&group(&[10, 10, 10, 10]), volume("v", 3, ddraid(1, None)));
    let lv = first.lv("v").expect("made");
    assert_eq!(
        (lv.extents, lv.segments[0].to_string().as_str()),
        (4, "pv0:1+2 pv1:1+2 pv2:1+2"),
        "whole rows"
    );
    let grown = made(&first, extend("v", "+1"));
    let lv = grown.lv("v").expect("grown");
    assert_eq!((lv.extents, lv.segments.len(), lv.segments[0].areas[0].count), (6, 1, 3), "in place");
    let all = made(&grown, extend("v", "+100%FREE"));
    let lv = all.lv("v").expect("grown");
    assert_eq!(lv.extents, 18, "nine of ten extents of three disks, two of which hold data");
    assert_eq!(all.usage().free, 10 * MIB4, "a disk serves one member only");
    let reduce = |extents| Change::ReduceVolume { name: "v".into(), size: extents * MIB4 };
    let less = planned(&all, reduce(5)).expect("possible");
    assert_eq!((less.after.lv("v").map(|lv| lv.extents), less.bytes_freed), (Some(6), 18 * MIB4));
    let gone = planned(&less.after, Change::RemoveVolume { name: "v".into() }).expect("possible");
    assert_eq!((gone.bytes_freed, gone.after.usage().free), (12 * MIB4, 40 * MIB4), "with its metadata");
}

#[test]
fn an_array_that_does_not_fit_says_how_many_disks_it_needs() {
    let two = group(&[10, 10, 3]);
    let three = Layout::Mirror { copies: 3, read_policy: None, checksums: false };
    for (change, message) in [
        (
            volume("x", 4, three),
            "a mirror of 3 copies needs 20.0 MiB free on each of 3 disks; 2 disks of data have as",
        ),
        (
            volume("x", 8, ddraid(2, None)),
            "ddraid of order 2 needs 12.0 MiB free on each of 5 disks; 3 disks of data",
        ),
        (
            create("x", SizeArgument::bytes(MIB4), MIRROR, on(&[1])),
            "a mirror of 2 copies needs 8.0 MiB free on each of 2 disks; 1 disks of data on pv1 have as much",
        ),
        (
            create("x", SizeArgument::bytes(11 * MIB4), Layout::Linear, on(&[0])),
            "data has 40.0 MiB free on pv0, 44.0 MiB are needed",
        ),
    ] {
        let (kind, found) = refusal(&two, change);
        assert!(kind == ErrorKind::NoSpace && found.starts_with(message), "{found}");
    }
    for layout in [
        Layout::Mirror { copies: 9, read_policy: None, checksums: false },
        ddraid(4, None),
        ddraid(1, Some(2048)),
    ] {
        assert_eq!(refusal(&two, volume("x", 1, layout)).0, ErrorKind::Usage);
    }
}

#[test]
fn any_layout_lies_on_the_disks_that_are_named() {
    let three = group(&[10, 10, 10]);
    let striped = Layout::Striped { stripes: 2, stripe_size: 4096 };
    for (layout, disks) in [(Layout::Linear, vec![2]), (striped, vec![0, 2]), (MIRROR, vec![1, 2])] {
        let size = SizeArgument::bytes(2 * MIB4);
        let made_on = made(&three, create("v", size, layout, on(&disks)));
        let expected: Vec<PvName> = disks.iter().map(|number| PvName(*number)).collect();
        assert_eq!(made_on.disks_of(made_on.lv("v").expect("made")), expected);
    }
    let linear = made(&three, create("v", SizeArgument::bytes(MIB4), Layout::Linear, on(&[2])));
    let size = SizeArgument::parse("+100%FREE").expect("a share");
    let grown = made(&linear, Change::ExtendVolume { name: "v".into(), size, disks: on(&[1]) });
    let lv = grown.lv("v").expect("grown");
    assert_eq!(
        (lv.extents, lv.segments[1].to_string().as_str()),
        (11, "pv1:0+10"),
        "a share of what is free there"
    );
    let unknown = refusal(&three, create("v", SizeArgument::bytes(1), Layout::Linear, on(&[1, 7])));
    assert_eq!(unknown, (ErrorKind::NotFound, "the disk pv7 does not belong to data".into()));
    let lost = made(&three, Change::MarkMissing { missing: vec![disk(1, 0).id], returned: vec![] });
    let missing = refusal(&lost, create("v", SizeArgument::bytes(1), Layout::Linear, on(&[1])));
    assert_eq!(missing, (ErrorKind::Failed, "pv1 (/dev/sd1) is missing".into()));
}

#[test]
fn what_protects_a_volume_protects_its_exception_stores() {
    let replace = Change::ReplaceStore {
        volume: "v".into(),
        store: Uuid::from_u128(7),
        size: MIB4,
        kept_as: "v-old".into(),
        kept_id: Uuid::from_u128(70),
    };
    let kind = StoreKind::Dependent;
    for (layout, copies) in [
        (MIRROR, 2),
        (Layout::Mirror { copies: 3, read_policy: None, checksums: false }, 3),
        (ddraid(1, None), 3),
    ] {
        let group = made(&group(&[20, 20, 20]), volume("v", 4, layout));
        let store = Change::CreateStore {
            volume: "v".into(),
            id: Uuid::from_u128(7),
            size: 2 * MIB4,
            chunk_size: 65_536,
            kind,
        };
        let plan = planned(&group, store).expect("possible");
        assert_eq!(plan.bytes_taken, 3 * copies * MIB4, "an extent of metadata with each copy");
        let grown = made(
            &plan.after,
            Change::ExtendStore { volume: "v".into(), store: Uuid::from_u128(7), by: MIB4 },
        );
        let old = grown.lv("v").and_then(|lv| lv.store.clone()).expect("it has a store");
        assert!(
            matches!(&old.layout, model::Layout::Mirror { members, .. } if members.len() as u64 == copies)
        );
        assert_eq!(old.extents, 3);
        let after = made(&grown, replace.clone());
        let kept = after.lv("v-old").expect("kept");
        assert_eq!((&kept.layout, &kept.segments), (&old.layout, &old.segments));
        let new = after.lv("v").and_then(|lv| lv.store.clone()).expect("it has a store");
        assert_eq!(new.layout.members().len() as u64, copies);
        let ids = |table: Result<Table, IncompleteVolume>| {
            table.expect("complete").array().map(|array| (array.id.as_u128(), array.superblock_id.as_u128()))
        };
        let kept_ids = ids(table(&after, kept, Parts::All));
        assert_eq!(kept_ids, Some((70, 7)), "its superblocks name the store that it was");
        assert_eq!(ids(store_table(&after, after.lv("v").expect("there"), &new)), Some((7, 7)));
        let members = |layout: &model::Layout| -> Vec<Uuid> {
            layout.members().iter().map(|member| member.id).collect()
        };
        assert!(
            !members(&new.layout).iter().any(|id| members(&old.layout).contains(id)),
            "and no member is in both"
        );
        let lost = losses(&after, &grown);
        assert!(
            lost.iter().any(|loss| loss.kind == LossKind::Store),
            "another layout is another store: {lost:?}"
        );
    }
}

#[test]
fn a_block_of_ddraid_fits_the_sectors_of_its_disks() {
    let five = group(&[9, 9, 9, 9, 9]);
    let size = SizeArgument::bytes(MIB4);
    let block_size = |order, sectors: &[(u64, u64)]| {
        let plan =
            planned(&five, create("v", size, ddraid(order, None), with_sectors(sectors))).expect("possible");
        assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
        match plan.after.lv("v").expect("made").layout {
            model::Layout::Ddraid { block_size, .. } => block_size,
            _ => unreachable!("it is ddraid"),
        }
    };
    assert_eq!(block_size(1, &[]), 8 * KIB);
    assert_eq!(block_size(2, &[(512, 512); 5]), 16 * KIB);
    assert_eq!(block_size(1, &[(512, 4096), (512, 16 * KIB), (512, 512)]), 32 * KIB);
    assert_eq!(
        block_size(1, &[(512, 512), (512, 512), (512, 512), (512, 32 * KIB)]),
        8 * KIB,
        "where it does not lie"
    );

    let asked = |order, block_size, sectors: &[(u64, u64)]| {
        planned(&five, create("v", size, ddraid(order, Some(block_size)), with_sectors(sectors)))
    };
    let refused =
        asked(1, 4 * KIB, &[(512, 4096), (4096, 4096), (512, 512)]).expect_err("sectors of 4096 bytes");
    assert_eq!(
        (refused.to_string().as_str(), refused.help().as_str()),
        (
            "a fragment of a block has 2048 bytes, and /dev/sd1 is written in sectors of 4096 bytes",
            "--array-block-size 8192 fits"
        )
    );
    let warned = asked(1, 4 * KIB, &[(512, 4096); 3]).expect("possible");
    let line = warned.lines().last().expect("a warning");
    assert!(
        line.starts_with("warning: fragments of 2048 bytes")
            && line.ends_with("--array-block-size 8192 fits")
    );
    assert!(asked(1, 4 * KIB, &[(512, 2048); 3]).expect("possible").warnings.is_empty());

    // A disk that joins later must fit, too.
    let full =
        made(&group(&[2, 2, 2]), create("v", size, ddraid(1, Some(4 * KIB)), with_sectors(&[(512, 512); 3])));
    let more = made(&full, Change::AddDisks { disks: (3..6).map(|number| disk(number, 9)).collect() });
    let grow = |sector| Change::ExtendVolume {
        name: "v".into(),
        size: SizeArgument::parse("+8M").expect("a size"),
        disks: with_sectors(&[(512, 512), (512, 512), (512, 512), (512, 512), (sector, sector), (512, 512)]),
    };
    assert!(planned(&more, grow(512)).is_ok());
    let refused = planned(&more, grow(4096)).expect_err("sectors of 4096 bytes");
    assert!(matches!(refused, PlanError::Fragment { fits: None, .. }), "its blocks stay as they are");
    assert!(refused.help().contains("--on"), "{}", refused.help());
}

#[test]
fn a_degraded_volume_is_not_incomplete_and_is_never_removed_with_its_missing_disks() {
    let both = made(&made(&group(&[10, 10]), volume("m", 2, MIRROR)), volume("l", 12, Layout::Linear));
    let lost = made(&both, Change::MarkMissing { missing: vec![disk(1, 0).id], returned: vec![] });
    let of = |name: &str| {
        let lv = lost.lv(name).expect("made");
        (lost.missing_disks_of(lv), lost.degraded_disks_of(lv))
    };
    assert_eq!(of("m"), (vec![], vec![PvName(1)]));
    assert_eq!(of("l"), (vec![PvName(1)], vec![]));
    let give_up = |with_volumes| planned(&lost, Change::RemoveMissing { with_volumes }).expect_err("refused");
    assert!(matches!(give_up(false), PlanError::VolumeIncomplete { volume, .. } if volume == "l"));
    let degraded = give_up(true);
    assert_eq!(degraded.to_string(), "data/m is used without pv1, and has members there");
    assert!(degraded.help().contains("varve pv replace /dev/sd1"), "{}", degraded.help());

    let none = made(&group(&[9, 9, 9]), volume("m", 2, ddraid(1, None)));
    let missing = vec![disk(0, 0).id, disk(1, 0).id];
    let lost = made(&none, Change::MarkMissing { missing, returned: vec![] });
    let lv = lost.lv("m").expect("made");
    assert_eq!(lost.missing_disks_of(lv), [PvName(0), PvName(1)], "parity makes up for one");
    let left = made(&lost, Change::RemoveMissing { with_volumes: true });
    assert!(left.logical_volumes().is_empty());
}

#[test]
fn a_restore_keeps_what_an_array_has_gained_and_names_what_it_loses() {
    let old = made(&group(&[10, 10, 10]), volume("v", 2, MIRROR));
    let now = made(&old, extend("v", "+4M"));
    assert_eq!(restored(&now, &old).after.lv("v"), now.lv("v"));
    assert!(losses(&now, &old).iter().any(|loss| matches!(loss.kind, LossKind::Places { .. })));
}

#[test]
fn what_arrays_declare_stands_in_the_text_and_in_the_tables_of_all_that_lie_there() {
    let plan = planned(&group(&[20, 20, 20]), volume("m", 4, MIRROR)).expect("possible");
    let policy = ArrayPolicy {
        slow_after_ms: 10_500,
        resync_rate_max: Some(200 << 20),
        release_after_ms: 250,
        ..ArrayPolicy::default()
    };
    let plan = plan.with_array_policy("m", policy).expect("sound");
    let step = "let its arrays wait 10.5 s for a member, and be made equal by at least 8.0 MiB, and at most 200.0 MiB a second";
    assert_eq!(plan.steps[1], format!("{step}; regions are clean again after 0.25 s without writes"));
    let store = Change::CreateStore {
        volume: "m".into(),
        id: Uuid::from_u128(7),
        size: 2 * MIB4,
        chunk_size: 65_536,
        kind: StoreKind::Dependent,
    };
    let made_group = Group::from_text(&made(&plan.after, store).text()).expect("sound");
    let policies = |group: &Group| {
        let node = crate::tree::VolumeNode::of(group, group.lv("m").expect("made")).expect("all is here");
        [&node.table, &node.stores[0].table].map(|table| table.array().expect("an array").policy)
    };
    assert_eq!(policies(&made_group), [policy; 2]);
    let set = |policy| Change::SetArrayPolicy { volume: "m".into(), policy };
    let usual = made(&made_group, set(ArrayPolicy::default()));
    assert_eq!(policies(&usual), [ArrayPolicy::default(); 2]);
    assert!(!usual.text().contains("array_policy"), "what is usual is not written");
    let wrong = ArrayPolicy { slow_after_ms: 1, ..ArrayPolicy::default() };
    assert_eq!(refusal(&usual, set(wrong)).0, ErrorKind::Usage, "TEXT19");
}

#[test]
fn an_array_with_checksums_has_room_for_them_and_grows_as_far_as_that() {
    let checked = Layout::Mirror { copies: 2, read_policy: None, checksums: true };
    let disks = group(&[600, 600]);
    let first = made(&disks, volume("v", 8, checked.clone()));
    let member = first.lv("v").expect("made").layout.members()[0];
    assert_eq!(member.metadata.count, 2, "1 MiB, and 4 KiB for each MiB of 1 GiB");
    let room = (2 * MIB4 - (1 << 20)) / 4096 * (1 << 20) / MIB4;
    assert!(planned(&first, extend("v", &format!("+{}M", (room - 8) * 4))).is_ok());
    let refused = planned(&first, extend("v", &format!("+{}M", (room - 7) * 4)));
    assert!(matches!(refused, Err(PlanError::ChecksumRoom { most }) if most == room * MIB4), "{refused:?}");
    let all = SizeArgument { amount: Amount::PercentFree(100), ..SizeArgument::bytes(0) };
    let all = made(&disks, create("v", all, checked, DiskChoice::default()));
    let lv = all.lv("v").expect("made");
    let pages = lv.layout.members()[0].metadata.count;
    assert!(pages >= 10 && lv.extents + pages >= 598, "{} extents, {pages} of metadata", lv.extents);
    let (order, block_size, read_policy, checksums) = (1, None, None, true);
    let ddraid = Layout::Ddraid { order, block_size, read_policy, checksums };
    let made = made(&group(&[20, 20, 20]), volume("d", 8, ddraid));
    let layout = &made.lv("d").expect("made").layout;
    let usual = matches!(layout, model::Layout::Ddraid { read_policy: model::ReadPolicy::Rotate, .. });
    assert!(
        usual && Layout::of_store(layout) == Layout::Mirror { copies: 3, read_policy: None, checksums: true }
    );
}
