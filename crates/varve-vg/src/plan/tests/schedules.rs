//! Schedules in the group's text: declared, changed, run, and what becomes of them with their volumes and with a backup.

use super::*;
use crate::model::{MadeSnapshots, Schedule, ScheduledVolume};
use varve_format::text::{MADE_MAX, SCHEDULES_MAX};

const STORE: Uuid = Uuid::from_u128(0x4000);

fn of(name: &str, id: u128, volumes: &[(Uuid, Option<Uuid>)]) -> Schedule {
    let volume =
        |(id, pool): &(Uuid, Option<Uuid>)| ScheduledVolume { id: *id, pool: *pool, made: Vec::new() };
    Schedule {
        name: name.to_owned(),
        id: Uuid::from_u128(id),
        created: UnixTime(5),
        every_s: 3600,
        keep: "3d".parse().expect("classes"),
        last_run: None,
        volumes: volumes.iter().map(volume).collect(),
    }
}

fn create(schedule: Schedule) -> Change {
    Change::Schedule(ScheduleStep::Create(Box::new(schedule)))
}

fn ran(schedule: u128, volume: Uuid, numbers: Vec<u64>) -> ScheduleRun {
    let made = vec![(volume, vec![MadeSnapshots { store: STORE, numbers }])];
    ScheduleRun { schedule: Uuid::from_u128(schedule), at: UnixTime(7200), made }
}

fn names(group: &Group) -> Vec<&str> {
    group.schedules().iter().map(|schedule| schedule.name.as_str()).collect()
}

#[test]
fn a_schedule_is_declared_changed_and_removed_in_words() {
    let volume = made(&group(&[20]), linear("vm1", 4));
    let id = volume.lv("vm1").expect("just made").id;
    let plan = planned(&volume, create(of("vm1", 0x60, &[(id, None)]))).expect("possible");
    assert_eq!(plan.steps, ["create schedule data/vm1: a snapshot every 1h; keeps 3d"]);
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (0, 0));
    let (declared, change) = (plan.after, |name, every_s, keep| {
        Change::Schedule(ScheduleStep::Change { id: Uuid::from_u128(0x60), name, every_s, keep })
    });
    assert_eq!(refusal(&declared, create(of("vm1", 0x61, &[(id, None)]))).0, ErrorKind::Exists);
    assert_eq!(refusal(&declared, create(of("a/b", 0x61, &[(id, None)]))).0, ErrorKind::Usage);
    let plan = planned(&declared, change(Some("daily".to_owned()), Some(86_400), "5".parse().ok()))
        .expect("possible");
    let words = "rename schedule data/vm1 to data/daily; run schedule data/vm1 every 1d; let schedule data/vm1 keep 5";
    assert_eq!(plan.steps, [words]);
    let changed = plan.after.schedule("daily").expect("it is called so");
    assert_eq!((changed.every_s, changed.keep.last, changed.keep.days), (86_400, 5, 0));
    assert!(planned(&plan.after, change(Some("daily".to_owned()), None, None)).is_ok(), "it is its own name");
    let remove = |id| Change::Schedule(ScheduleStep::Remove { id: Uuid::from_u128(id) });
    assert_eq!(names(&made(&plan.after, remove(0x60))), [""; 0]);
    assert_eq!(refusal(&plan.after, remove(0x61)).0, ErrorKind::NotFound);
}

#[test]
fn a_run_ends_with_the_change_that_makes_its_snapshots_valid() {
    let volume = made(&group(&[20]), linear("vm1", 4));
    let id = volume.lv("vm1").expect("just made").id;
    let declared = made(&volume, create(of("vm1", 0x60, &[(id, None)])));
    let member = SetMember { volume: id, store: STORE, after: 7, names: vec!["a".into()] };
    let set = SnapshotSet { id: Uuid::from_u128(0x4001), groups: Vec::new(), members: vec![member] };
    let begun = made(&declared, Change::BeginSnapshots { set: set.clone() });
    assert_eq!(begun.schedules(), declared.schedules(), "PLANSCHEDULE3");
    let run = Some(ran(0x60, id, vec![3, 8]));
    let ended = made(&begun, Change::EndSnapshots { set: set.id, job: None, run });
    let schedule = ended.schedule("vm1").expect("it is there");
    assert_eq!(schedule.made().collect::<Vec<_>>(), [(id, STORE, 3), (id, STORE, 8)]);
    assert_eq!((schedule.last_run, ended.snapshot_sets()), (Some(UnixTime(7200)), &[][..]));
    let too_many = (1..=MADE_MAX as u64 + 1).collect();
    let run = Change::Schedule(ScheduleStep::Ran(ran(0x60, id, too_many)));
    assert_eq!(refusal(&ended, run).0, ErrorKind::NoSpace, "TEXT27");
    let full = (0..SCHEDULES_MAX as u128 - 1).fold(declared, |group, number| {
        made(&group, create(of(&format!("s{number}"), 0x6000 + number, &[(id, None)])))
    });
    assert_eq!(refusal(&full, create(of("last", 0x61, &[(id, None)]))).0, ErrorKind::NoSpace, "TEXT27");
}

#[test]
fn schedules_go_with_their_volumes_and_come_back_with_them() {
    let two = made(&made(&group(&[20]), linear("vm1", 4)), linear("vm2", 4));
    let id = |name| two.lv(name).expect("just made").id;
    let (one, other, thin) = (id("vm1"), id("vm2"), Uuid::from_u128(0x77));
    let declared = [
        of("alone", 0x60, &[(one, None)]),
        of("both", 0x61, &[(one, None), (other, None)]),
        of("thin", 0x62, &[(thin, Some(other))]),
    ];
    let declared = declared.into_iter().fold(two.clone(), |group, schedule| made(&group, create(schedule)));
    let declared = made(&declared, Change::Schedule(ScheduleStep::Ran(ran(0x60, one, vec![3]))));
    let plan = planned(&declared, Change::RemoveVolume { name: "vm1".into() }).expect("possible");
    assert_eq!(
        plan.steps.last().map(String::as_str),
        Some("remove schedule data/alone, whose volumes are gone")
    );
    assert_eq!(names(&plan.after), ["both", "thin"], "PLANSCHEDULE1");
    assert_eq!(plan.after.schedules()[0].volumes.len(), 1);
    let gone = made(&plan.after, Change::Schedule(ScheduleStep::VolumeGone { volume: thin }));
    assert_eq!(names(&gone), ["both"], "PLANSCHEDULE1");
    let without = made(&gone, Change::RemoveVolume { name: "vm2".into() });
    assert_eq!(names(&without), [""; 0], "PLANSCHEDULE1: with the pool of its volumes");
    let backup = Box::new(declared.description().clone());
    let back = made(&plan.after, Change::Restore { backup });
    assert_eq!(names(&back), ["both", "thin", "alone"], "PLANSCHEDULE2");
    assert_eq!(back.schedules()[2].made().count(), 0);
    assert_eq!(back.schedules()[0].volumes.len(), 1, "PLANSCHEDULE2: it is what it is now");
}
