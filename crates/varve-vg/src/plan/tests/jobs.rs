//! Jobs in the group's text: written down, changed, forgotten, and what a backup says of them.

use super::*;
use crate::model::{Job, JobWork, RemovedSnapshots};
use crate::plan::{JobStep, Numbered};
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
fn a_move_has_the_number_of_its_job_from_its_first_version_on() {
    let group = made(&made(&group(&[20, 20]), linear("vm1", 4)), begin(rollback(3)));
    let begun = Change::BeginMove { from: PvName(0), disks: DiskChoice::default(), rate: None };
    let plan = planned(&group, begun).expect("possible").with_job(Numbered::Move(PvName(0)), 4);
    let after = plan.expect("sound").after;
    assert_eq!((after.moves()[0].job, after.last_job()), (Some(4), 4));
    let next = Change::MoveNext { from: PvName(0), sectors: BTreeMap::new(), bytes_max: MIB4 };
    assert_eq!(made(&after, next).moves()[0].job, Some(4));
}
