//! Tests of conversions and moves to a disk that fails meanwhile, and is not repaired.

use super::losses::{live, make_group};
use super::*;
use varve_api::{Convert, Job, JobCancel, JobState, PhysicalVolumeMove};

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Refusing,
    Gone,
    Dead,
    Unflushed,
    Full,
}

fn set_failed(path: &str, how: How, is_failed: bool) {
    match how {
        How::Refusing => set_refusing(path, is_failed),
        How::Gone => host().set_gone(path, is_failed),
        other => {
            let all = if is_failed { 1_000_000 } else { 0 };
            let none = FaultPlan::default();
            let plan = match other {
                How::Dead => FaultPlan { write_error: all, latent: all, flush_error: all, ..none },
                How::Full => FaultPlan { no_space: all, ..none },
                _ => FaultPlan { flush_error: all, ..none },
            };
            host().set_faults(path, plan);
        }
    }
}

async fn pause(control: &Control, seconds: u64) {
    control.context.clock().sleep(Duration::from_secs(seconds)).await;
}

/// A job that has ended soon, which it must.
async fn soon_ended(control: &Control, id: &str) -> Job {
    let job = control.job_soon(id.parse().expect("a number"), Duration::from_secs(30)).await;
    let job = job.expect("it is known");
    assert_ne!(job.state, JobState::Running, "{job:?}");
    job
}

/// A job whose target has failed, and which was cancelled so many seconds later, if at all; it has ended.
async fn fail_and_end(control: &Control, disk: &str, how: How, cancelled: Option<u64>, id: &str) -> Job {
    pause(control, 2).await;
    set_failed(disk, how, true);
    if let Some(seconds) = cancelled {
        pause(control, seconds).await;
        let _ = control.jobs.list.cancel(id, &JobCancel::default());
    }
    soon_ended(control, id).await
}

/// The volume is served, with what it had and what is written now; and so is the group.
async fn check_served(control: &Control, disk: &str, how: How) {
    write_block(control, "data/v", 8 * MIB, 8).await.expect("it is served");
    let found = content(control, "data/v").await;
    assert_eq!((found[4096], found[8 << 20]), (7, 8));
    check_group(control, disk, how).await;
}

fn begun(job: Result<Changed<Job>, Failure>) -> String {
    match job {
        Ok(Changed::Done(job)) => job.id,
        other => panic!("{other:?}"),
    }
}

/// All that volumes, pools and what is done with them own of the group.
fn owned(control: &Control) -> usize {
    let group = control.find_group("data").expect("it is there");
    control.with_group(group, |known| known.group.owned_areas().count()).expect("it is known")
}

fn to_mirror(on: &[String]) -> Convert {
    Convert {
        layout: Some(ShownLayout::Mirror),
        copies: Some(2),
        on: on.to_vec(),
        rate: Some("2M".into()),
        ..Default::default()
    }
}

/// The group is used without the failed disk, and with it once it is back.
async fn check_group(control: &Control, disk: &str, how: How) {
    // The first change may be the one that finds out that the disk takes no writes (RESCAN2).
    let first = VolumeCreate { name: "data/first".into(), size: "4M".into(), ..Default::default() };
    if control.create_volume(first).await.is_err() {
        pause(control, 10).await;
    }
    make_linear(control, "data/later", "4M").await;
    set_failed(disk, how, false);
    scan(control).await;
    assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
}

/// Converts a volume while a disk of its new layout fails; it is cancelled so many seconds later, if at all.
fn convert_and_fail(how: How, cancelled: Option<u64>) {
    with_disks(3, "64M", async move |control, disks| {
        let request = VolumeCreate {
            name: "data/v".into(),
            size: "16M".into(),
            on: disks[..1].to_vec(),
            ..Default::default()
        };
        control.create_volume(request).await.expect("there is space");
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        let (before, owned_before) =
            (control.show_volume("data/v").await.expect("it is there").segments, owned(&control));
        let id = begun(control.convert_volume("data/v", to_mirror(&disks[1..])).await);
        let job = fail_and_end(&control, &disks[2], how, cancelled, &id).await;
        assert!(matches!(job.state, JobState::Cancelled | JobState::Failed), "{job:?}");
        assert_eq!(control.show_volume("data/v").await.expect("it is there").segments, before);
        assert_eq!(owned(&control), owned_before, "CONVERTJOB4, RUN1: what was reserved is free");
        check_served(&control, &disks[2], how).await;
    });
}

#[test]
fn a_conversion_whose_new_disk_fails_ends_and_leaves_the_volume_as_it_was() {
    for how in [How::Refusing, How::Gone, How::Dead, How::Unflushed, How::Full] {
        for cancelled in [None, Some(0), Some(1), Some(5)] {
            convert_and_fail(how, cancelled);
        }
    }
}

/// Converts a pool while a disk of its new layout fails.
fn convert_pool_and_fail(how: How, cancelled: Option<u64>) {
    with_disks(3, "200M", async move |control, disks| {
        let request = PoolCreate {
            name: "data/p".into(),
            size: "32M".into(),
            on: disks[..1].to_vec(),
            ..Default::default()
        };
        control.create_pool(request).await.expect("there is space");
        make_volume(&control, "data/v", Some("p"), None).await;
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        let owned_before = owned(&control);
        let id = begun(control.convert_pool("data/p", to_mirror(&disks[1..])).await);
        let job = fail_and_end(&control, &disks[2], how, cancelled, &id).await;
        assert!(matches!(job.state, JobState::Cancelled | JobState::Failed), "{job:?}");
        assert_eq!(owned(&control), owned_before, "CONVERTJOB4: what was reserved is free");
        check_served(&control, &disks[2], how).await;
    });
}

#[test]
fn a_conversion_of_a_pool_whose_new_disk_fails_ends_and_leaves_the_pool_as_it_was() {
    for how in [How::Refusing, How::Gone, How::Dead, How::Unflushed, How::Full] {
        for cancelled in [None, Some(0), Some(5)] {
            convert_pool_and_fail(how, cancelled);
        }
    }
}

/// Empties a disk to another one, which fails meanwhile.
fn move_and_fail(how: How, cancelled: Option<u64>) {
    with_disks(3, "64M", async move |control, disks| {
        let request = VolumeCreate {
            name: "data/v".into(),
            size: "16M".into(),
            on: disks[..1].to_vec(),
            ..Default::default()
        };
        control.create_volume(request).await.expect("there is space");
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        let (before, owned_before) =
            (control.show_volume("data/v").await.expect("it is there").segments, owned(&control));
        let request = PhysicalVolumeMove {
            from: disks[0].clone(),
            to: disks[2..].to_vec(),
            rate: Some("2M".into()),
            ..Default::default()
        };
        let id = begun(control.move_disk(request).await);
        let job = fail_and_end(&control, &disks[2], how, cancelled, &id).await;
        assert_eq!(owned(&control), owned_before, "MOVEJOB4: {how:?} {job:?}");
        let said = &job.error.as_ref().expect("it has not moved all").message;
        assert!(job.state == JobState::Cancelled || said.contains(&disks[2]), "{job:?}");
        pause(&control, 20).await;
        let running: Vec<Job> =
            control.jobs.list.all().into_iter().filter(|job| job.state == JobState::Running).collect();
        assert!(running.is_empty(), "{running:?} after {job:?}");
        assert_eq!(control.show_volume("data/v").await.expect("it is there").segments, before);
        assert_eq!(owned(&control), owned_before, "CONVERTJOB4: what was reserved is free");
        check_served(&control, &disks[2], how).await;
    });
}

#[test]
fn a_move_whose_target_fails_ends_and_what_has_moved_stays() {
    for how in [How::Refusing, How::Gone, How::Dead, How::Unflushed] {
        for cancelled in [None, Some(0), Some(1), Some(5)] {
            move_and_fail(how, cancelled);
        }
    }
}

/// A conversion of `data/v` from the first disk to a mirror of the others, or else a move to the last one, which the loss of power
/// interrupts; and a host without the last disk.
fn interrupted(is_conversion: bool) -> Rc<Host> {
    let host = Host::new(1, Duration::from_micros(200));
    let disks: Vec<String> = (0..3).map(|number| format!("/disk{number}")).collect();
    let paths = disks.clone();
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        let on = paths[..1].to_vec();
        let request = VolumeCreate { name: "data/v".into(), size: "16M".into(), on, ..Default::default() };
        control.create_volume(request).await.expect("there is space");
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        let request = PhysicalVolumeMove {
            from: paths[0].clone(),
            to: paths[2..].to_vec(),
            rate: Some("2M".into()),
            ..Default::default()
        };
        begun(match is_conversion {
            true => control.convert_volume("data/v", to_mirror(&paths[1..])).await,
            false => control.move_disk(request).await,
        });
        pause(&control, 3).await;
    });
    host.set_gone(&disks[2], true);
    host
}

/// The job that waits for the last disk, and says so.
async fn waiting(control: &Control) -> String {
    pause(control, 30).await;
    let jobs = control.jobs.list.all();
    let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
    let error = job.error.as_ref().expect("JOBS2: it says what it waits for");
    assert!(job.state == JobState::Running && error.message.contains("/disk2"), "{job:?}");
    assert!(error.help.contains(&format!("varve job cancel {}", job.id)), "{error}");
    assert!(error.help.contains("varve pv scan /disk2"), "{error}");
    job.id.clone()
}

#[test]
fn a_conversion_goes_on_by_itself_when_its_missing_disk_is_back() {
    live(&interrupted(true), async |control| {
        let id = waiting(&control).await;
        host().set_gone("/disk2", false);
        pause(&control, 100).await; // RESCAN3
        let job = control.jobs.list.show(&id).expect("it is known");
        assert_eq!(job.state, JobState::Done, "{job:?}");
        let array = control.show_volume("data/v").await.expect("it is there").array;
        assert_eq!(array.map(|array| array.members.len()), Some(2));
        assert_eq!(content(&control, "data/v").await[4096], 7);
    });
}

#[test]
fn a_conversion_that_waits_for_a_missing_disk_is_cancelled_soon() {
    live(&interrupted(true), async |control| {
        let id = waiting(&control).await;
        control.jobs.list.cancel(&id, &JobCancel::default()).expect("it can be");
        assert_eq!(soon_ended(&control, &id).await.state, JobState::Cancelled);
        assert_eq!(owned(&control), 1, "CONVERTJOB4");
        assert_eq!(content(&control, "data/v").await[4096], 7);
    });
}

#[test]
fn a_disk_that_stays_away_ends_a_conversion_and_the_volume_is_as_it_was() {
    live(&interrupted(true), async |control| {
        let id = waiting(&control).await;
        pause(&control, 300).await;
        let job = control.jobs.list.show(&id).expect("it is known");
        assert_eq!(job.state, JobState::Failed, "JOBS2: {job:?}");
        assert_eq!(owned(&control), 1, "CONVERTJOB4");
        assert_eq!(content(&control, "data/v").await[4096], 7);
    });
}

#[test]
fn a_move_goes_on_by_itself_when_its_missing_target_is_back_and_can_be_cancelled_before() {
    live(&interrupted(false), async |control| {
        let id = waiting(&control).await;
        host().set_gone("/disk2", false);
        pause(&control, 100).await; // RESCAN3
        assert_eq!(control.jobs.list.show(&id).map(|job| (job.state, job.error)), Ok((JobState::Done, None)));
        assert_eq!(content(&control, "data/v").await[4096], 7);
    });
    live(&interrupted(false), async |control| {
        let id = waiting(&control).await;
        control.jobs.list.cancel(&id, &JobCancel::default()).expect("it can be");
        assert_eq!(soon_ended(&control, &id).await.state, JobState::Cancelled);
        assert_eq!(owned(&control), 1, "MOVEJOB4");
    });
}
