//! Jobs in the group's text: written down, changed, forgotten, and what a backup says of them.

use super::*;
use crate::model::{DiskMove, Job, JobWork, RemovedSnapshots};
use crate::plan::JobStep;
use std::collections::BTreeMap;
use varve_format::text::{JOBS_MAX, REMOVED_MAX};

fn removal(id: u64, numbers: std::ops::Range<u64>) -> Job {
    let (volume, store) = (Uuid::from_u128(0x2001), Uuid::from_u128(0x4000 + u128::from(id)));
    let snapshots = vec![RemovedSnapshots { volume, store, numbers: numbers.collect(), bytes: 4096 }];
    let work = JobWork::RemoveSnapshots { snapshots };
    Job { id, subject: "data/vm1@a".into(), started: UnixTime(5), groups: Vec::new(), work }
}

fn rollback(id: u64) -> Job {
    let (volume, store) = (Uuid::from_u128(0x2001), Uuid::from_u128(0x4000));
    let work = JobWork::Rollback { volume, store, number: 3, bytes: 4096, mark: None, begun: false };
    Job { work, ..removal(id, 1..2) }
}

fn begin(job: Job) -> Change {
    Change::Jobs(JobStep::Begin(job))
}

fn end(id: u64) -> Change {
    Change::Jobs(JobStep::End { ids: vec![id] })
}

#[test]
fn a_job_is_written_down_and_forgotten_and_its_number_is_not_given_again() {
    let empty = group(&[20]);
    let begun = planned(&empty, begin(removal(7, 1..3))).expect("possible");
    assert_eq!((begun.after.jobs(), begun.after.last_job()), (&[removal(7, 1..3)][..], 7));
    assert_eq!((begun.bytes_taken, begun.bytes_freed), (0, 0));
    assert_eq!(begun.steps, ["write down job 7: data/vm1@a"]);
    assert_eq!(Group::from_text(&begun.after.text()).as_ref(), Ok(&begun.after));
    let ended = made(&begun.after, end(7));
    assert_eq!((ended.jobs(), ended.last_job()), (&[][..], 7), "PLANJOB1");
    assert_eq!(made(&ended, begin(removal(5, 1..2))).last_job(), 7, "PLANJOB1: it is that of another group");
    assert_eq!(made(&begun.after, end(8)).jobs().len(), 1, "there is no such job");
    let again = planned(&begun.after, begin(removal(7, 5..6)));
    assert!(matches!(again, Err(PlanError::Invalid(_))), "TEXT25: {again:?}");
}

#[test]
fn a_rollback_that_has_begun_and_a_new_number_are_written_down() {
    let begun = made(&made(&group(&[20]), begin(rollback(7))), Change::Jobs(JobStep::RolledBack { id: 7 }));
    let JobWork::Rollback { begun: true, .. } = begun.jobs()[0].work else { panic!("{:?}", begun.jobs()) };
    let renumbered = made(&begun, Change::Jobs(JobStep::Renumber { from: 7, to: 9 }));
    let numbers: Vec<u64> = renumbered.jobs().iter().map(|job| job.id).collect();
    assert_eq!((numbers, renumbered.last_job()), (vec![9], 9));
    let late = made(
        &made(&renumbered, begin(removal(12, 1..2))),
        Change::Jobs(JobStep::Renumber { from: 9, to: 11 }),
    );
    assert_eq!(
        (late.jobs()[0].id, late.last_job()),
        (11, 12),
        "PLANJOB1: another job began before it was written down"
    );
    for step in [JobStep::RolledBack { id: 7 }, JobStep::Renumber { from: 7, to: 10 }] {
        let refused = refusal(&renumbered, Change::Jobs(step));
        assert_eq!(refused, (ErrorKind::NotFound, "data has no job 7".to_owned()));
    }
}

#[test]
fn there_are_so_many_jobs_and_no_more() {
    let most = (1..=JOBS_MAX as u64).fold(group(&[20]), |group, id| made(&group, begin(removal(id, 1..2))));
    assert_eq!(refusal(&most, begin(rollback(100))).0, ErrorKind::Busy);
    let all = removal(1, 1..1 + REMOVED_MAX as u64);
    let full = made(&group(&[20]), begin(all));
    let (kind, message) = refusal(&full, begin(removal(2, 1..2)));
    assert!(kind == ErrorKind::Busy && message.contains("64, which remove 8192 snapshots"), "{message}");
    made(&full, begin(rollback(2)));
}

#[test]
fn a_backup_brings_no_jobs_and_takes_none() {
    let group = made(&group(&[20]), linear("vm1", 4));
    let then = made(&group, begin(rollback(3)));
    let now = made(&made(&then, end(3)), begin(removal(4, 1..3)));
    let restored = made(&now, Change::Restore { backup: Box::new(then.description().clone()) });
    assert_eq!((restored.jobs(), restored.last_job()), (&[removal(4, 1..3)][..], 4), "PLANJOB2");
}

#[test]
fn a_move_is_a_job_from_its_first_version_on_and_ends_by_its_own_steps_alone() {
    let group = made(&made(&group(&[20, 20]), linear("vm1", 4)), begin(rollback(3)));
    let from = PvName(0);
    let begun = made(&group, Change::BeginMove { job: 4, from, disks: DiskChoice::default(), rate: None });
    let entry = DiskMove { from, to: Vec::new(), rate: None, step: None };
    let numbers = |group: &Group| group.jobs().iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!((numbers(&begun), begun.last_job()), (vec![3, 4], 4));
    assert_eq!((&begun.jobs()[1].work, begun.jobs()[1].subject.as_str()), (&JobWork::Move(entry), "pv0"));
    let next = made(&begun, Change::MoveNext { from, sectors: BTreeMap::new(), bytes_max: MIB4 });
    assert_eq!(numbers(&next), [3, 4]);
    assert_eq!(Group::from_text(&next.text()).as_ref(), Ok(&next));
    let renumbered = made(&next, Change::Jobs(JobStep::Renumber { from: 4, to: 9 }));
    assert_eq!((numbers(&renumbered), renumbered.moves().count()), (vec![3, 9], 1));
    for taken in [3, 1 << 63] {
        let change = Change::BeginMove { job: taken, from, disks: DiskChoice::default(), rate: None };
        let refused = planned(&group, change);
        assert!(matches!(refused, Err(PlanError::Invalid(_))), "TEXT25: {refused:?}");
    }
    let ended = std::panic::catch_unwind(|| planned(&next, end(4)).map(drop));
    assert!(ended.is_err(), "PLANJOB3: its volume may lie in either place");
    assert_eq!(numbers(&made(&next, Change::EndMove { from })), [3]);
}

#[test]
fn moves_conversions_and_clearings_are_none_of_the_jobs_that_there_are_at_most() {
    let made_volume = made(&group(&[20, 20]), linear("vm1", 4));
    let most = (1..=JOBS_MAX as u64).fold(made_volume, |group, id| made(&group, begin(removal(id, 1..2))));
    let begun = Change::BeginMove { job: 80, from: PvName(0), disks: DiskChoice::default(), rate: None };
    let moving = planned(&most, begun).expect("no disk has two");
    let id = most.lv("vm1").expect("just made").id;
    let cleared = moving.with_clearing(id, 2, 81).expect("no volume has two").after;
    assert_eq!((cleared.jobs().len(), cleared.last_job()), (JOBS_MAX + 2, 81));
    assert_eq!(refusal(&cleared, begin(rollback(100))).0, ErrorKind::Busy);
}
