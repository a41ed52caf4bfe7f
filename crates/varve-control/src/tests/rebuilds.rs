//! Tests of the jobs of members that are filled, made equal, or scrubbed.

use super::losses::{live, live_until, make_group};
use super::*;
use varve_api::{
    ArrayChange, ArrayFail, ArrayRebuild, ArrayReplace, ArrayScrub, Job, JobCancel, JobState, MemberState,
    PhysicalVolumeReplace,
};
use varve_sim::CrashKind;

/// Writes that take members of `data/v` some seconds at the rate of `slowly`.
async fn write_much(control: &Control) {
    for at in (0..32 * MIB).step_by(64 << 10) {
        write_with(control, "data/v", (at, 7), Durability::Volatile).await.expect("it is served");
    }
    write_block(control, "data/v", 0, 7).await.expect("it is served");
}

/// Has arrays of a volume filled at no more than 4 MiB a second.
async fn slowly(control: &Control, volume: &str) {
    let policy = varve_api::ArrayPolicyWords { resync_rate: Some("1M..4M".into()), ..Default::default() };
    let request = ArrayChange { policy, ..Default::default() };
    control.change_arrays(volume, request).await.expect("it is an array");
}

/// A mirror of 32 MiB on the first two disks, all of which was written.
async fn make_slow_mirror(control: &Control, disks: &[String]) {
    make_mirror(control, "data/v", "32M", &disks[..2]).await;
    slowly(control, "data/v").await;
    write_much(control).await;
}

fn jobs_of(control: &Control, kind: &str) -> Vec<Job> {
    control.jobs.list.all().into_iter().filter(|job| job.kind == kind).collect()
}

/// The one job that fills members, some seconds after it began.
async fn filling(control: &Control) -> Job {
    control.context.clock().sleep(Duration::from_secs(5)).await;
    let jobs = jobs_of(control, "array-rebuild");
    assert_eq!(jobs.len(), 1, "REBUILDJOB1: {jobs:?}");
    jobs.into_iter().next().expect("there is one")
}

/// A job when it has ended.
async fn end_of(control: &Control, job: &str) -> Job {
    let _ = control.jobs.list.ended(job).expect("it is known").await;
    control.jobs.list.show(job).expect("it is known")
}

async fn states(control: &Control) -> Vec<MemberState> {
    let arrays = control.show_arrays("data/v").await.expect("it is there");
    arrays[0].array.members.iter().map(|member| member.state).collect()
}

#[test]
fn a_member_that_is_replaced_is_filled_by_a_job_which_all_lists_name() {
    with_disks(3, "300M", async |control, disks| {
        make_slow_mirror(&control, &disks).await;
        let request = ArrayReplace { disk: disks[0].clone(), ..Default::default() };
        let replaced = control.replace_members("data/v", request).await;
        let Ok(Changed::Done(arrays)) = replaced else { panic!("{replaced:?}") };
        let job = filling(&control).await;
        assert_eq!(arrays[0].job, Some(job.id.clone()), "the answer names it");
        assert_eq!((job.subject.as_str(), job.state), ("data/v", JobState::Running));
        assert!(job.done > 0 && job.done < job.total && job.total == 32 * MIB, "{job:?}");
        assert!(job.rate.is_some_and(|rate| rate <= 8 * MIB), "{job:?}");
        let problems = control.status_with_problems().await.expect("it runs").problems;
        let named = format!("job {} fills members", job.id);
        assert!(problems.iter().any(|problem| problem.contains(&named)), "{problems:?}");
        let refused = control.jobs.list.cancel(&job.id, &JobCancel::default()).expect_err("it is needed");
        assert_eq!(refused.code, Code::JobNotCancellable);
        assert!(refused.help.contains("varve array fail data/v PATH"), "{refused}");
        // The volume is not busy with it.
        make_snapshot(&control, "data/v@a").await;
        let ended = end_of(&control, &job.id).await;
        assert_eq!(
            (ended.state, ended.done, ended.total, ended.rate),
            (JobState::Done, 32 * MIB, 32 * MIB, None)
        );
        assert_eq!(states(&control).await, [MemberState::InSync; 2]);
        assert_eq!(control.show_arrays("data/v").await.expect("it is there")[0].job, None);
        let told = control.events.list().into_iter().any(|event| event.message.contains("are in sync"));
        assert!(told, "its end is an event");
    });
}

#[test]
fn the_job_of_a_disk_that_is_lost_while_it_is_filled_ends_and_names_it() {
    with_disks(3, "64M", async |control, disks| {
        make_slow_mirror(&control, &disks).await;
        let request = PhysicalVolumeReplace { from: disks[0].clone(), ..Default::default() };
        control.replace_disk(request).await.expect("there is another disk");
        let job = filling(&control).await;
        set_refusing(&disks[2], true);
        let ended = end_of(&control, &job.id).await;
        let why = ended.error.expect("it failed");
        assert_eq!((ended.state, why.code), (JobState::Failed, Code::MediumFailed));
        assert!(why.message.contains("member 0 of data/v on /disk2 left"), "REBUILDJOB2: {why}");
        assert_eq!(states(&control).await, [MemberState::Away, MemberState::InSync]);
        set_refusing(&disks[2], false);
        let request = PhysicalVolumeScan { paths: disks[2..].to_vec(), ..Default::default() };
        control.scan_disks(request).await.expect("it is sound");
        let jobs = jobs_of(&control, "array-rebuild");
        let again = jobs.last().expect("REBUILDJOB1");
        assert_ne!(again.id, job.id, "it came back, and another job fills it");
        assert_eq!(end_of(&control, &again.id).await.state, JobState::Done);
        assert_eq!(states(&control).await, [MemberState::InSync; 2]);
    });
}

#[test]
fn a_member_that_is_filled_anew_or_returns_has_a_job() {
    with_disks(2, "64M", async |control, disks| {
        make_slow_mirror(&control, &disks).await;
        let request = ArrayRebuild { disk: Some(disks[1].clone()), ..Default::default() };
        let rebuilt = control.rebuild_array("data/v", request).await;
        let Ok(Changed::Done(arrays)) = rebuilt else { panic!("{rebuilt:?}") };
        let job = arrays[0].job.clone().expect("REBUILDJOB1");
        assert_eq!(end_of(&control, &job).await.state, JobState::Done);
        let request = ArrayFail { disk: disks[1].clone(), ..Default::default() };
        control.fail_members("data/v", request).await.expect("the other copy has all data");
        write_much(&control).await;
        let request = PhysicalVolumeScan { paths: disks[1..].to_vec(), ..Default::default() };
        control.scan_disks(request).await.expect("it is sound");
        let jobs = jobs_of(&control, "array-rebuild");
        assert_eq!(jobs.len(), 2, "REBUILDJOB1");
        assert_eq!(end_of(&control, &jobs[1].id).await.state, JobState::Done);
        assert_eq!(states(&control).await, [MemberState::InSync; 2]);
    });
}

#[test]
fn a_member_that_is_taken_out_of_use_ends_its_job() {
    with_disks(2, "64M", async |control, disks| {
        make_slow_mirror(&control, &disks).await;
        let request = ArrayRebuild { disk: Some(disks[1].clone()), ..Default::default() };
        control.rebuild_array("data/v", request).await.expect("the other copy has all data");
        let job = filling(&control).await;
        let request = ArrayFail { disk: disks[1].clone(), ..Default::default() };
        control.fail_members("data/v", request).await.expect("the other copy has all data");
        assert_eq!(end_of(&control, &job.id).await.state, JobState::Failed, "REBUILDJOB2");
        assert_eq!(states(&control).await, [MemberState::InSync, MemberState::Away]);
    });
}

#[test]
fn a_volume_that_is_taken_out_of_use_ends_its_job_and_begins_it_again() {
    with_disks(2, "64M", async |control, disks| {
        make_slow_mirror(&control, &disks).await;
        let request = ArrayRebuild { disk: Some(disks[1].clone()), ..Default::default() };
        control.rebuild_array("data/v", request).await.expect("the other copy has all data");
        let job = filling(&control).await;
        control.deactivate_volume("data/v", Default::default()).await.expect("nobody uses it");
        let ended = end_of(&control, &job.id).await;
        assert_eq!(ended.state, JobState::Cancelled, "{ended:?}");
        control.activate_volume("data/v", Default::default()).await.expect("it is sound");
        let jobs = jobs_of(&control, "array-rebuild");
        assert_eq!(jobs.len(), 2, "REBUILDJOB1");
        assert_eq!(end_of(&control, &jobs[1].id).await.state, JobState::Done);
    });
}

#[test]
fn what_is_left_after_a_restart_or_a_crash_has_a_job_again() {
    let host = Host::new(1, Duration::from_micros(200));
    let paths: Vec<String> = (0..3).map(|number| format!("/disk{number}")).collect();
    live_until(&host, CrashKind::Process, async move |control| {
        make_group(&control, &paths).await;
        make_slow_mirror(&control, &paths).await;
        let request = ArrayReplace { disk: paths[0].clone(), ..Default::default() };
        control.replace_members("data/v", request).await.expect("there is another disk");
        filling(&control).await;
    });
    live(&host, async move |control| {
        let job = filling(&control).await;
        assert_eq!(job.state, JobState::Running);
        assert_eq!(end_of(&control, &job.id).await.state, JobState::Done);
        assert_eq!(states(&control).await, [MemberState::InSync; 2]);
        write_much(&control).await;
    });
    live(&host, async move |control| {
        let jobs = jobs_of(&control, "array-resync");
        assert_eq!(jobs.len(), 1, "REBUILDJOB1: the power failed while regions were dirty");
        assert_eq!(end_of(&control, &jobs[0].id).await.state, JobState::Done);
        assert_eq!(jobs_of(&control, "array-rebuild"), vec![]);
    });
}

/// Changes the one block of the disk at `path` that is full of `byte`.
fn rot(path: &str, byte: u8) {
    let disk = host().disk_at(path);
    let mut blocks = Extent::new(0, disk.options().size).pieces(4096).map(|(_, block)| block);
    let block = blocks.find(|block| disk.peek(*block).iter().all(|found| *found == byte));
    disk.poke(block.expect("it lies there").offset, &[0; 4096]);
}

#[test]
fn a_scrub_goes_on_after_a_restart_with_what_it_has_found() {
    let host = Host::new(1, Duration::from_micros(200));
    let paths: Vec<String> = (0..2).map(|number| format!("/disk{number}")).collect();
    live_until(&host, CrashKind::Process, async move |control| {
        make_group(&control, &paths).await;
        make_mirror(&control, "data/v", "32M", &paths).await;
        write_much(&control).await;
        for (at, byte) in [(0, 8), (32 * MIB - 4096, 9)] {
            write_block(&control, "data/v", at, byte).await.expect("it is served");
        }
        control.context.clock().sleep(Duration::from_secs(60)).await;
        rot(&paths[1], 8);
        rot(&paths[1], 9);
        let request = ArrayScrub { check_only: true, rate: Some("64K".into()), ..Default::default() };
        let Ok(Changed::Done(job)) = control.scrub_array("data/v", request).await else {
            panic!("it is sound")
        };
        control.context.clock().sleep(Duration::from_secs(400)).await;
        let job = control.jobs.list.show(&job.id).expect("it is known");
        assert!(job.state == JobState::Running && job.done < 30 * MIB, "{job:?}");
    });
    live(&host, async move |control| {
        control.context.clock().sleep(Duration::from_secs(1)).await;
        let jobs = jobs_of(&control, "array-scrub");
        assert_eq!(jobs.len(), 1, "SCRUBJOB1");
        assert!(jobs[0].done > 16 * MIB && jobs[0].total == 32 * MIB, "SCRUBJOB1: {jobs:?}");
        let ended = end_of(&control, &jobs[0].id).await;
        assert_eq!(ended.error.map(|failure| failure.code), Some(Code::CheckFound));
        let found = ended.scrub.map(|scrub| (scrub.complete, scrub.verified, scrub.mismatches));
        assert_eq!(found, Some((true, 32 * MIB, 2)), "of both lives");
        let group = control.find_group("data").expect("it is there");
        assert_eq!(control.with_group(group, |known| known.group.jobs().len()), Ok(0), "RUN1");
    });
}
