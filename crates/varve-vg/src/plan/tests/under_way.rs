//! Tests of restores of backups that were taken while work was under way.

use super::*;
use crate::model::{Job, JobWork};
use crate::plan::JobStep;
use std::collections::BTreeMap;

fn mirror() -> Layout {
    Layout::Mirror { copies: 2, read_policy: None, checksums: false }
}

fn volume_of(group: &Group) -> &LogicalVolume {
    group.lv("vm1").expect("it is there")
}

/// The backup restored into `now`: the volume as the backup has it, its mark apart, and nothing that goes on; what is said.
fn put_back(now: &Group, backup: &Group) -> Vec<String> {
    let plan = restored(now, backup);
    let after = plan.after.description();
    assert_eq!(after.jobs, [], "UNDERWAY1");
    let wanted = volume_of(backup);
    assert_eq!(volume_of(&plan.after), wanted, "UNDERWAY1: what counted in the backup counts");
    assert_eq!(plan.after.owned_areas().count(), areas(wanted).count(), "what was prepared is free");
    let lines: Vec<String> = plan.lines().collect();
    assert!(plan.warnings.iter().all(|words| lines.contains(&format!("warning: {words}"))), "{lines:?}");
    plan.warnings
}

#[test]
fn a_move_of_a_backup_does_not_go_on() {
    let before = made(&group(&[20, 20]), linear("vm1", 4));
    let from = PvName(0);
    let begin = Change::BeginMove { job: 1, from, disks: DiskChoice::default(), rate: None };
    let next = Change::MoveNext { from, sectors: BTreeMap::new(), bytes_max: u64::MAX };
    let copied = made(&made(&before, begin), next);
    let switched = made(&copied, Change::MoveSwitch { from });
    assert_ne!(volume_of(&copied).segments, volume_of(&switched).segments);
    for backup in [copied, switched] {
        let now = made(&made(&backup, Change::EndMove { from }), Change::RemoveVolume { name: "vm1".into() });
        let said = put_back(&now, &backup);
        assert!(said.len() == 1 && said[0].starts_with("the move from pv0 was under way"), "{said:?}");
    }
}

#[test]
fn a_conversion_of_a_backup_does_not_go_on() {
    let before = made(&group(&[20, 20, 20]), linear("vm1", 4));
    let (volume, id) = (volume_of(&before).id, Uuid::from_u128(0xc0de));
    let step = |step| Change::Convert { volume, step };
    let (layout, disks) = (mirror(), DiskChoice::default());
    let begun = made(&before, step(ConversionStep::Begin { job: 1, id, layout, disks, rate: None }));
    let switched = made(&begun, step(ConversionStep::Switch));
    for (backup, dropped) in [(begun, "its new layout is dropped"), (switched, "its old layout is dropped")] {
        let ended = made(&backup, step(ConversionStep::End));
        let now = made(&ended, Change::RemoveVolume { name: "vm1".into() });
        let said = put_back(&now, &backup);
        assert!(said.len() == 1 && said[0].ends_with(dropped), "{said:?}");
    }
}

#[test]
fn what_was_to_be_cleared_in_a_backup_is_not_cleared_after_a_restore() {
    let marked = |group: &Group, change: Change, from: u64| {
        let plan = planned(group, change).expect("possible");
        let id = volume_of(&plan.after).id;
        plan.with_clearing(id, from, group.last_job() + 1).expect("sound").after
    };
    let remove = || Change::RemoveVolume { name: "vm1".into() };
    let fresh = marked(&group(&[20, 20]), linear("vm1", 8), 0);
    let cleared = made(&fresh, Change::Cleared { volume: volume_of(&fresh).id, until: 8 });
    let said = put_back(&made(&cleared, remove()), &fresh);
    assert_eq!(
        said,
        [
            "data/vm1 was being cleared in the backup, and is not: from its extent 0 on it shows what lies there"
        ]
    );
    // It has become smaller since, and its other extents were served meanwhile.
    let grown = marked(&cleared, extend("vm1", "+16M"), 8);
    let reduced = made(&grown, Change::ReduceVolume { name: "vm1".into(), size: 4 * MIB4 });
    assert_eq!(put_back(&reduced, &grown).len(), 1);
    // It is the same now, and cleared since.
    assert_eq!(put_back(&cleared, &fresh), [""; 0]);
    // It is still being cleared: that is its state now, and no backup's.
    let pending = restored(&grown, &fresh);
    assert_eq!((volume_of(&pending.after), &pending.warnings[..]), (volume_of(&grown), &[][..]));
    assert_eq!((pending.after.jobs(), grown.jobs().len()), (grown.jobs(), 1), "CLEARING1");
    let array = match linear("vm1", 8) {
        Change::CreateVolume { name, id, size, role, policy, disks, .. } => {
            Change::CreateVolume { name, id, size, role, layout: mirror(), policy, disks }
        }
        other => other,
    };
    let fresh = marked(&group(&[20, 20]), array, 0);
    let said = put_back(&made(&fresh, remove()), &fresh);
    assert!(said[0].ends_with("`varve array scrub data/vm1`"), "{said:?}");
}

#[test]
fn jobs_of_a_backup_do_not_go_on_and_are_named_unless_they_are_there_now() {
    let (volume, id) = (Uuid::from_u128(0x2001), 7);
    let work = JobWork::Flatten { volume, pool: Uuid::from_u128(9), number: 3 };
    let job = Job { id, subject: "data/thin".into(), started: UnixTime(5), groups: Vec::new(), work };
    let backup = made(&group(&[20]), Change::Jobs(JobStep::Begin(job.clone())));
    let now = made(&backup, Change::Jobs(JobStep::End { ids: vec![id] }));
    let plan = restored(&now, &backup);
    assert_eq!((plan.after.jobs().len(), plan.after.last_job()), (0, id), "UNDERWAY1");
    assert_eq!(plan.warnings, ["job 7 was under way in the backup and does not go on: data/thin"]);
    let plan = restored(&backup, &backup);
    assert_eq!((plan.after.jobs(), &plan.warnings[..]), (&[job][..], &[][..]), "PLANJOB2");
}
