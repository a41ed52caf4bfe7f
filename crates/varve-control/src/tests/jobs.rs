//! Tests of jobs in the texts of groups, of what is done in several groups, and of the numbers of jobs.

use super::*;
use crate::group::known_group::KnownGroup;
use varve_api::{PhysicalVolumeMove, SnapshotRemove};
use varve_block::UnixTime;
use varve_vg::Change;
use varve_vg::model::{Job, JobWork, RemovedSnapshots};
use varve_vg::plan::JobStep;

/// Makes the group `other`; the paths of its disks.
async fn make_other(control: &Control) -> Vec<String> {
    let paths = vec!["/other0".to_owned(), "/other1".to_owned()];
    make_group(control, "other", &paths, "64M").await;
    paths
}

/// A volume on the first disk of each of the groups `data` and `other`, with a snapshot.
async fn make_snapshots_in_two_groups(control: &Control, disks: &[String]) {
    let others = make_other(control).await;
    for (name, disk) in [("data/v", &disks[0]), ("other/v", &others[0])] {
        let on = vec![disk.clone()];
        let request = VolumeCreate { name: name.into(), size: "4M".into(), on, ..Default::default() };
        control.create_volume(request).await.expect("there is space");
        make_snapshot(control, &format!("{name}@a")).await;
    }
}

/// The names of all snapshots, and the numbers of the jobs in the texts of both groups.
async fn left(control: &Control) -> (Vec<String>, Vec<u64>) {
    let snapshots = control.list_snapshots(None).await.expect("they are there");
    let jobs = ["data", "other"].map(|group| {
        let group = control.find_group(group).expect("it is there");
        let ids = control.with_group(group, |known| known.group.jobs().iter().map(|job| job.id).collect());
        ids.unwrap_or_else(|failure| panic!("{failure:?}"))
    });
    (
        snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
        jobs.iter().flat_map(Vec::clone).collect(),
    )
}

/// Waits until `is_so` of the group `data`.
pub(super) async fn until(control: &Control, is_so: fn(&KnownGroup) -> bool) {
    let group = control.find_group("data").expect("it is there");
    while control.with_group(group, is_so) == Ok(false) {
        control.context.clock().sleep(Duration::from_micros(5)).await;
    }
}

/// Lets the disk take writes again; what its refusal left undecided is decided, and jobs go on.
pub(super) async fn accept_again(control: &Control, disk: &str) {
    let undecided = control.show_group("data").await.expect("it is there");
    assert_eq!(undecided.state, GroupState::Undecided);
    set_refusing(disk, false);
    scan(control).await;
    control.context.clock().sleep(Duration::from_secs(1)).await;
}

#[test]
fn a_removal_in_two_groups_that_failed_removes_nothing_though_its_job_reached_a_disk() {
    with_disks(3, "64M", async |control, disks| {
        make_snapshots_in_two_groups(&control, &disks).await;
        set_refusing(&disks[2], true);
        let names = ["data/v@a", "other/v@a"].map(String::from).to_vec();
        let removed = control.remove_snapshots(SnapshotRemove { names: names.clone(), ..Default::default() });
        assert_eq!(removed.await.map(drop).map_err(|failure| failure.code), Err(Code::MediumFailed));
        accept_again(&control, &disks[2]).await;
        assert_eq!(left(&control).await, (names, vec![]), "JOBRECORD3: it counts in both groups or in none");
    });
}

#[test]
fn a_job_of_two_groups_whose_new_number_reached_a_disk_goes_on_and_leaves_no_part() {
    with_disks(3, "64M", async |control, disks| {
        make_snapshots_in_two_groups(&control, &disks).await;
        let groups = ["data", "other"].map(|group| control.find_group(group).expect("it is there")).to_vec();
        let id = control.next_job_of(&groups);
        for (group, volume) in groups.iter().zip(["data/v", "other/v"]) {
            let located = control.find_volume(&name(volume)).expect("it is there");
            let target = control.facts(&located).await[0].target;
            let part = RemovedSnapshots {
                volume: located.volume.id,
                store: target.store,
                numbers: vec![target.number],
                bytes: 4 * MIB,
            };
            let work = JobWork::RemoveSnapshots { snapshots: vec![part] };
            let (subject, started) = ("data/v@a other/v@a".into(), UnixTime(0));
            let step = JobStep::Begin(Job { id, subject, started, groups: groups.clone(), work });
            control.commits(*group).await.make(*group, Change::Jobs(step), "a test").await.expect("it fits");
        }
        control.jobs.records.insert(id, groups);
        assert!(control.let_wait(id));
        set_refusing(&disks[2], true);
        converge(&control, "data").await;
        accept_again(&control, &disks[2]).await;
        assert_eq!(left(&control).await, (vec![], vec![]), "JOBRECORD3");
    });
}

#[test]
fn snapshots_of_two_groups_whose_end_reached_a_disk_are_all_there_or_none() {
    with_disks(3, "64M", async |control, disks| {
        make_snapshots_in_two_groups(&control, &disks).await;
        let request = SnapshotCreate {
            names: ["data/v@b", "other/v@b"].map(String::from).to_vec(),
            ..Default::default()
        };
        let refuse = async {
            until(&control, |known| !known.group.snapshot_sets().is_empty()).await;
            set_refusing(&disks[2], true); // the end of the set does not reach this disk
            until(&control, |known| known.undecided.is_some()).await;
            disks[..2].iter().for_each(|disk| set_refusing(disk, true)); // and nothing is removed from the store
        };
        let (made, ()) = join(control.create_snapshots(request), refuse).await;
        assert_eq!(made.map(drop).map_err(|failure| failure.code), Err(Code::MediumFailed));
        disks[..2].iter().for_each(|disk| set_refusing(disk, false));
        accept_again(&control, &disks[2]).await;
        let (names, _) = left(&control).await;
        assert_eq!(
            names,
            ["data/v@a", "data/v@b", "other/v@a", "other/v@b"],
            "SETS3: what ends the set counts"
        );
    });
}

#[test]
fn a_removal_of_several_snapshots_that_a_disk_interrupts_goes_on_when_it_can_be_used_again() {
    with_disks(1, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        let names = ["data/v@a", "data/v@b"].map(String::from).to_vec();
        for name in &names {
            make_snapshot(&control, name).await;
        }
        let removal = control.remove_snapshots(SnapshotRemove { names, ..Default::default() });
        let refuse = async {
            until(&control, |known| !known.group.jobs().is_empty()).await;
            set_refusing(&disks[0], true);
        };
        let (removed, ()) = join(removal, refuse).await;
        let Ok(Changed::Done(job)) = removed else { panic!("REMOVAL4: {removed:?}") };
        let _ = control.jobs.list.ended(&job.id).expect("it is known").await;
        assert!(control.jobs.list.show(&job.id).is_ok_and(|job| job.error.is_some()), "it is put off");
        assert!(!control.list_snapshots(None).await.expect("they are there").is_empty());
        set_refusing(&disks[0], false);
        scan(&control).await;
        control.context.clock().sleep(Duration::from_secs(1)).await;
        assert_eq!(control.list_snapshots(None).await, Ok(vec![]), "REMOVAL4");
        let group = control.find_group("data").expect("it is there");
        assert_eq!(control.with_group(group, |known| known.group.jobs().len()), Ok(0));
    });
}

#[test]
fn a_group_that_has_used_up_its_numbers_of_jobs_takes_those_of_no_other_group() {
    with_disks(2, "64M", async |control, disks| {
        let paths = make_other(&control).await;
        for (name, disk) in [("data/v", &disks[0]), ("other/v", &paths[0])] {
            let on = vec![disk.clone()];
            let request = VolumeCreate { name: name.into(), size: "4M".into(), on, ..Default::default() };
            control.create_volume(request).await.expect("there is space");
        }
        let group = control.find_group("data").expect("it is there");
        let id = i64::MAX.unsigned_abs();
        let work = JobWork::FlattenImage { volume: Uuid::nil(), image: "/image".into() };
        let last = Job { id, subject: "data/v".into(), started: UnixTime(0), groups: Vec::new(), work };
        for step in [JobStep::Begin(last), JobStep::End { ids: vec![id] }] {
            control
                .commits(group)
                .await
                .make(group, Change::Jobs(step), "a test")
                .await
                .expect("it is allowed");
        }
        let empty = async |from: &String| {
            let request = PhysicalVolumeMove { from: from.clone(), ..Default::default() };
            control.move_disk(request).await
        };
        let refused = empty(&disks[0]).await.map(drop);
        assert!(refused.is_err(), "it has no number left");
        let moved = empty(&paths[0]).await;
        let Ok(Changed::Done(job)) = &moved else { panic!("{moved:?}") };
        assert!(job.id.parse::<u64>().expect("a number") < 100, "{}", job.id);
        ended(&control, moved).await;
    });
}

#[test]
fn what_is_backed_by_a_snapshot_is_served_after_the_scan_that_opens_its_volume_anew() {
    with_disks(3, "300M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        make_linear(&control, "data/u", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        make_snapshot(&control, "data/v@gold").await;
        make_pool(&control, "data/pool").await;
        make_volume(&control, "data/w", Some("data/pool"), Some("data/v@gold")).await;
        let are_made = |known: &KnownGroup| {
            known.group.logical_volumes().iter().map(|volume| volume.stores().count()).sum::<usize>() == 3
        };
        let refuse = async {
            until(&control, are_made).await;
            set_refusing(&disks[2], true); // The stores that were made are given back, which does not count at once.
        };
        let request = SnapshotCreate {
            names: ["data/v@b", "data/u@b"].map(String::from).to_vec(),
            mode: Some(SnapshotMode::Independent),
            ..Default::default()
        };
        let (made, ()) = join(control.create_snapshots(request), refuse).await;
        assert_eq!(made.map(drop).map_err(|failure| failure.code), Err(Code::MediumFailed));
        accept_again(&control, &disks[2]).await;
        assert_eq!(content(&control, "data/w").await[..4096], [7; 4096], "REOPEN3");
    });
}
