//! Tests of plans that put the log of an array on a disk of its own.

use super::arrays::{MIRROR, create, ddraid, on};
use super::*;
use crate::model::Area;

fn with_log(disks: &[u32], log: u32) -> DiskChoice {
    DiskChoice { log: Some(PvName(log)), ..on(disks) }
}

fn array(layout: Layout, disks: DiskChoice) -> Change {
    create("v", SizeArgument::bytes(4 * MIB4), layout, disks)
}

fn set_log(log: Option<u32>) -> Change {
    let id = Uuid::from_u128(0x7700);
    Change::SetLog { volume: "v".into(), log: log.map(|disk| (PvName(disk), id)) }
}

fn log_of(group: &Group) -> Option<Area> {
    group.lv("v").expect("made").layout.log().map(|log| log.area)
}

fn area(pv: u32, start: u64) -> Area {
    Area { pv: PvName(pv), start, count: 1 }
}

#[test]
fn a_log_lies_on_the_disk_that_is_named_and_members_never_do() {
    let plan = planned(&group(&[9, 20, 20]), array(MIRROR, with_log(&[], 1))).expect("possible");
    let step = "would create mirrored volume (2 copies) data/v of 16.0 MiB (4 extents: pv2:1+4 pv0:1+4; metadata: \
        pv2:0+1 pv0:0+1; log: pv1:0+1)";
    assert_eq!(plan.lines().collect::<Vec<_>>(), [step], "not on pv1, which is as empty");
    assert_eq!(plan.bytes_taken, 11 * MIB4);
    let lv = plan.after.lv("v").expect("made");
    assert!(plan.after.volumes_on(PvName(1)) == ["v"] && plan.after.disks_of(lv).len() == 3);
    let grown = made(&plan.after, extend("v", "+100%FREE"));
    assert_eq!((grown.lv("v").map(|lv| lv.extents), log_of(&grown)), (Some(8), Some(area(1, 0))), "TEXT24");
    let gone = planned(&grown, Change::RemoveVolume { name: "v".into() }).expect("possible");
    assert_eq!(gone.bytes_freed, 19 * MIB4, "with its log");
    let (kind, message) = refusal(&group(&[9, 9, 9]), array(MIRROR, with_log(&[0, 1], 1)));
    assert_eq!(kind, ErrorKind::Usage);
    assert!(
        message.starts_with("the log of an array lies on a disk that holds no member of it, and /dev/sd1")
    );
    let (kind, message) = refusal(&group(&[9, 9, 9]), array(ddraid(1, None), with_log(&[], 2)));
    assert!(kind == ErrorKind::NoSpace && message.contains("2 disks of data have as much"), "{message}");
    let (kind, _) = refusal(&group(&[9, 9, 9]), array(Layout::Linear, with_log(&[], 2)));
    assert_eq!(kind, ErrorKind::Usage, "only arrays have a log");
    let full = made(&group(&[9, 9, 2]), create("x", SizeArgument::bytes(2 * MIB4), Layout::Linear, on(&[2])));
    let (kind, message) = refusal(&full, array(MIRROR, with_log(&[], 2)));
    assert!(kind == ErrorKind::NoSpace && message.contains("in one run on /dev/sd2"), "{message}");
}

#[test]
fn a_log_with_checksums_is_as_long_as_the_log_of_a_member() {
    let layout = Layout::Mirror { copies: 2, read_policy: None, checksums: true };
    let lv = made(&group(&[20, 20, 20]), array(layout, with_log(&[], 2)));
    let members = lv.lv("v").expect("made").layout.members();
    assert_eq!((members[0].metadata.count, log_of(&lv)), (2, Some(area(2, 0))));
}

#[test]
fn a_log_goes_to_another_disk_and_back_to_the_members() {
    let before = made(&group(&[20, 20, 20, 20]), array(MIRROR, on(&[0, 1])));
    let plan = planned(&before, set_log(Some(2))).expect("possible");
    assert_eq!(plan.lines().collect::<Vec<_>>(), ["would put the log of data/v on /dev/sd2 (pv2:0+1)"]);
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (MIB4, 0), "PLANLOG1");
    let plan = planned(&plan.after, set_log(Some(3))).expect("possible");
    let step = "would put the log of data/v on /dev/sd3 (pv3:0+1), and free pv2:0+1";
    assert_eq!(plan.lines().collect::<Vec<_>>(), [step]);
    let back = planned(&plan.after, set_log(None)).expect("possible");
    let step = "would put the log of data/v on its members, and free pv3:0+1";
    assert_eq!(back.lines().collect::<Vec<_>>(), [step]);
    assert_eq!(back.after.lv("v"), before.lv("v"));
    for (group, log) in [(&before, None), (&plan.after, Some(3)), (&before, Some(0))] {
        assert_eq!(refusal(group, set_log(log)).0, ErrorKind::Usage, "{log:?}");
    }
    assert_eq!(refusal(&before, set_log(Some(9))).0, ErrorKind::NotFound);
    let linear = made(&before, linear("w", 1));
    let of_linear = Change::SetLog { volume: "w".into(), log: None };
    assert_eq!(refusal(&linear, of_linear).0, ErrorKind::Usage);
}

#[test]
fn the_disk_of_a_log_is_replaced_and_emptied_and_missing_it_degrades_the_volume() {
    let before = made(&group(&[20, 20, 9, 20]), array(MIRROR, with_log(&[0, 1], 2)));
    let replace = |disks: &[u32]| Change::ReplaceMembers {
        from: Uuid::from_u128(0x1002),
        volume: None,
        id: Uuid::from_u128(0x7800),
        disks: on(disks),
    };
    let replaced = planned(&before, replace(&[])).expect("possible");
    let step = "would put the log of data/v on /dev/sd3 (pv3:0+1), and free pv2:0+1";
    assert_eq!(replaced.lines().collect::<Vec<_>>(), [step]);
    let ids = [&before, &replaced.after].map(|group| group.lv("v").and_then(|lv| lv.layout.log().copied()));
    assert_ne!(ids[0].map(|log| log.id), ids[1].map(|log| log.id), "another disk is another log disk");
    assert_eq!(refusal(&before, replace(&[1])).0, ErrorKind::NoSpace, "a member lies there");
    let three = made(&group(&[20, 20, 9]), array(MIRROR, with_log(&[0, 1], 2)));
    assert_eq!(log_of(&made(&three, replace(&[]))), None, "no other disk is there: the members have it");

    let missing = Change::MarkMissing { missing: vec![Uuid::from_u128(0x1002)], returned: Vec::new() };
    let missing = made(&before, missing);
    let lv = missing.lv("v").expect("made");
    assert!(missing.missing_disks_of(lv).is_empty() && missing.is_log_missing(lv.space()));
    assert_eq!(missing.degraded_disks_of(lv), [PvName(2)]);
    let gives_up = Change::RemoveMissing { with_volumes: false };
    let (kind, message) = refusal(&missing, gives_up.clone());
    assert!(
        kind == ErrorKind::Busy && message.contains("is used without pv2, and has its log there"),
        "{message}"
    );
    let replaced = made(&missing, replace(&[]));
    assert_eq!(made(&replaced, gives_up).physical_volumes().len(), 3);

    let begin = Change::BeginMove { job: 1, from: PvName(2), disks: DiskChoice::default(), rate: None };
    let next = Change::MoveNext { from: PvName(2), sectors: Default::default(), bytes_max: 10 * MIB4 };
    let moving = made(&made(&before, begin), next.clone());
    let switched = made(&moving, Change::MoveSwitch { from: PvName(2) });
    assert_eq!(log_of(&switched), Some(area(3, 0)), "PLANMOVE2");
    assert!(made(&switched, next).jobs().is_empty());
    let member = Change::BeginMove { job: 1, from: PvName(1), disks: on(&[2]), rate: None };
    assert_eq!(refusal(&before, member).0, ErrorKind::NoSpace, "the log lies there");
}

#[test]
fn a_copy_that_is_split_off_leaves_the_log_or_frees_it() {
    let split = |group: &Group| {
        let volume = group.lv("v").expect("made").id;
        let step = ConversionStep::Split { to: "w".into(), id: Uuid::from_u128(0x7900) };
        made(group, Change::Convert { volume, step })
    };
    let three = Layout::Mirror { copies: 3, read_policy: None, checksums: false };
    let of_three = made(&group(&[20, 20, 20, 20]), array(three, with_log(&[0, 1, 2], 3)));
    assert_eq!(log_of(&split(&of_three)), Some(area(3, 0)));
    let of_two = made(&group(&[20, 20, 20]), array(MIRROR, with_log(&[0, 1], 2)));
    let after = split(&of_two);
    assert!(log_of(&after).is_none() && after.volumes_on(PvName(2)).is_empty(), "PLANSPLIT1");
}

#[test]
fn a_restore_keeps_the_present_log() {
    let without = made(&group(&[20, 20, 20]), array(MIRROR, on(&[0, 1])));
    let with = made(&without, set_log(Some(2)));
    let restored = |now: &Group, then: &Group| {
        made(now, Change::Restore { backup: Box::new(then.description().clone()) })
    };
    assert_eq!(log_of(&restored(&with, &without)), Some(area(2, 0)));
    assert_eq!(log_of(&restored(&without, &with)), None);
    assert!(losses(&with, &without).is_empty(), "no byte of a volume lies on a log disk");
}
