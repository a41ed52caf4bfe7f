//! Tests of what a crash or a failed disk leaves behind, and of what is done with it then.

use super::losses::{live, live_until, make_group};
use super::problems::make_image_volume;
use super::*;
use crate::jobs::clearing::places_of;
use varve_api::{Commit, Flatten, JobCancel, JobState, SnapshotRemove};
use varve_block::host::DiskState;
use varve_format::qcow2::Backing;
use varve_sim::CrashKind;
use varve_target::qcow2::NewImage;
use varve_vg::model::JobWork;

fn new_host(latency_max: Duration) -> (Rc<Host>, Vec<String>) {
    (Host::new(1, latency_max), (0..2).map(|number| format!("/disk{number}")).collect())
}

/// So many blocks that a crash loses some of them if they are not durable.
const BLOCKS: u64 = 64;

async fn write_volatile(control: &Control, volume: &str) {
    for at in 0..BLOCKS {
        write_with(control, volume, (at * 4096, 7), Durability::Volatile).await.expect("it is served");
    }
}

/// Whether all of these blocks are what [`write_volatile`] wrote.
async fn has_all(control: &Control, volume: &str) -> bool {
    let all = content(control, volume).await;
    (0..BLOCKS).all(|at| all[usize::try_from(at * 4096).expect("it is small")] == 7)
}

#[test]
fn a_volume_counts_as_cleared_only_when_the_zeros_are_durable() {
    let (host, paths) = new_host(Duration::from_millis(5));
    host.take_fast_zero();
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        make_linear(&control, "data/v", "40M").await;
        for path in &paths {
            self::host().set_faults(path, FaultPlan { flush_error: 1_000_000, ..FaultPlan::default() });
        }
        let jobs = control.jobs.list.all();
        let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
        assert_eq!((job.kind.as_str(), job.state), ("clear", JobState::Running), "{job:?}");
        let shown = || control.jobs.list.show(&job.id).expect("it is known");
        while shown().error.is_none() {
            control.context.clock().sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(shown().state, JobState::Running, "RUN3: it says what it waits for");
        let group = control.find_group("data").expect("it is there");
        let is_tried = control.with_group(group, |known| known.is_half_committed());
        assert_eq!(is_tried, Ok(false), "CLEARING2: nothing is written that says that it is cleared");
        for path in &paths {
            self::host().set_faults(path, FaultPlan::default());
        }
        control
            .scan_disks(PhysicalVolumeScan { paths: paths.clone(), ..Default::default() })
            .await
            .expect("all is well");
        let _ = control.jobs.list.ended(&job.id).expect("it is known").await;
        assert_eq!(shown().state, JobState::Done, "{:?}", shown());
        assert!(content(&control, "data/v").await.iter().all(|byte| *byte == 0), "CLEARING1");
    });
}

/// The jobs in the text of the group `data`: their numbers, and where their clearings are.
fn clearings(control: &Control) -> Vec<(String, Option<u64>)> {
    let group = control.find_group("data").expect("it is there");
    let jobs = control.with_group(group, |known| known.group.jobs().to_vec()).expect("it is there");
    let from = |work: &JobWork| match work {
        JobWork::Clear { from, .. } => Some(*from),
        _ => None,
    };
    jobs.iter().map(|job| (job.id.to_string(), from(&job.work))).collect()
}

#[test]
fn a_clearing_that_was_cancelled_stays_in_the_text_and_goes_on_under_another_number() {
    let (host, paths) = new_host(Duration::from_millis(5));
    host.take_fast_zero();
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        make_linear(&control, "data/v", "40M").await;
        assert_eq!(
            clearings(&control),
            [("1".to_owned(), Some(0))],
            "JOBRECORD4: it has a number from the start"
        );
        control.jobs.list.cancel("1", &JobCancel::default()).expect("it may be asked to end");
        let _ = control.jobs.list.ended("1").expect("it is known").await;
        let job = control.jobs.list.show("1").expect("it is known");
        assert_eq!(job.state, JobState::Cancelled, "{job:?}");
        assert_eq!(
            job.error.map(|error| error.message).unwrap_or_default(),
            "the volume is not cleared; varve pv scan begins again, varve lv remove gives it up"
        );
        assert_eq!(clearings(&control), [("1".to_owned(), Some(0))], "CLEARING1");
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Clearing, "CLEARING1");
        control.erase_job(1).await;
        assert_eq!(clearings(&control).len(), 1, "PLANJOB3: no end of a job takes it out of the text");
        scan(&control).await;
        let again = clearings(&control);
        assert_eq!(again, [("2".to_owned(), Some(0))], "JOBRECORD2");
        let _ = control.jobs.list.ended("2").expect("RUN3: it runs").await;
        assert_eq!(control.jobs.list.show("2").map(|job| job.state), Ok(JobState::Done));
        assert_eq!((clearings(&control), state_of(&control, "data/v").await), (vec![], VolumeState::Active));
        make_linear(&control, "data/w", "40M").await;
        assert_eq!(clearings(&control), [("3".to_owned(), Some(0))]);
        control.jobs.list.cancel("3", &JobCancel::default()).expect("it may be asked to end");
        let _ = control.jobs.list.ended("3").expect("it is known").await;
        control.remove_volume("data/w", VolumeRemove::at_once()).await.expect("a removal gives it up");
        assert_eq!(clearings(&control), [], "PLANJOB3: it ends with its volume");
        make_linear(&control, "data/x", "40M").await;
    });
    live(&host, async move |control| {
        assert_eq!(clearings(&control), [("4".to_owned(), Some(0))], "JOBRECORD4");
        let job = control.jobs.list.show("4").expect("RUN3");
        assert_eq!((job.kind.as_str(), job.subject.as_str()), ("clear", "data/x"));
        let _ = control.jobs.list.ended("4").expect("it is known").await;
        assert_eq!(control.jobs.list.show("4").map(|job| job.state), Ok(JobState::Done));
        assert_eq!(state_of(&control, "data/x").await, VolumeState::Active);
    });
}

#[test]
fn what_a_pool_gains_while_it_is_cleared_is_cleared_too() {
    let host = Host::new(1, Duration::from_micros(200));
    let paths: Vec<String> = (0..3).map(|number| format!("/disk{number}")).collect();
    host.take_fast_zero();
    live(&host, async move |control| {
        let (size, label) = (Some("256M".into()), paths.clone());
        let label = PhysicalVolumeCreate { paths: label, size, ..Default::default() };
        control.create_disks(label).await.expect("disks");
        let group = GroupCreate { name: "data".into(), paths: paths.clone(), ..Default::default() };
        control.create_group(group).await.expect("a group");
        for (path, at) in paths.iter().flat_map(|path| (16..250).map(move |at| (path, at * MIB))) {
            self::host().disk_at(path).poke(at, &[9; 4096]);
        }
        let layout = Some(ShownLayout::Ddraid);
        let (name, size, order) = ("data/p".into(), "160M".into(), Some(1));
        let request = PoolCreate { name, size, layout, order, ..Default::default() };
        control.create_pool(request).await.expect("there is space");
        let longer = Resize { size: "+32M".into(), ..Default::default() };
        control.extend_pool("data/p", longer).await.expect("there is space");
        let jobs = control.jobs.list.all();
        let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
        assert_eq!((job.kind.as_str(), job.state), ("clear", JobState::Running), "{job:?}");
        ended(&control, Ok(Changed::Done(job.clone()))).await;
        let pool = control.show_pool("data/p").await.expect("it is there");
        assert_eq!(pool.size, 192 * MIB, "all of it is served");
        let group = control.find_group("data").expect("it is there");
        let (version, disks) = control
            .with_group(group, |known| {
                (known.group.clone(), control.metadata_disks(&control.disk_files(known)))
            })
            .expect("it is there");
        let entry = version.lv("p").expect("it is there");
        let gained = Extent::new(160 * MIB, 32 * MIB);
        let places = places_of(&disks, &version, entry, gained).expect("no member is missing");
        assert!(places.len() >= 3, "it lies on three members");
        for (device, extent) in &places {
            let length = usize::try_from(extent.length).expect("it is small");
            let found = device.read(extent.offset, control.context.arena().take(length)).await;
            let soiled = found.expect("no faults").iter().filter(|byte| **byte != 0).count();
            assert_eq!(soiled, 0, "CLEARING2");
        }
    });
}

#[test]
fn what_a_killed_daemon_wrote_to_an_image_is_durable_before_that_is_written_again() {
    let (host, paths) = new_host(Duration::from_micros(200));
    live_until(&host, CrashKind::Process, async move |control| {
        make_group(&control, &paths).await;
        self::host().make_image("/images/i", 8 * MIB, None, None).await;
        let (image, format) = (Some("/images/i".into()), Some("raw".into()));
        let request = VolumeCreate { name: "data/i".into(), image, format, ..Default::default() };
        control.create_volume(request).await.expect("it is an image");
        write_volatile(&control, "data/i").await;
    });
    live(&host, async |control| assert_eq!(state_of(&control, "data/i").await, VolumeState::Active));
    live(&host, async |control| assert!(has_all(&control, "data/i").await, "IMAGE3"));
}

#[test]
fn a_removal_that_stands_in_no_text_is_taken_up_after_a_crash() {
    let (host, paths) = new_host(Duration::from_micros(200));
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        make_linear(&control, "data/v", "16M").await;
        make_snapshot(&control, "data/v@one").await;
        write_volatile(&control, "data/v").await;
        let located = control.find_volume(&name("data/v")).expect("it is there");
        let target = control.facts(&located).await[0].target;
        let begun = located.home.volume(located.volume.id).remove_snapshot(target).await;
        assert_eq!(begun, Ok(Some(Ok(()))), "its store knows");
    });
    live(&host, async |control| {
        let jobs = control.jobs.list.all();
        assert!(jobs.iter().any(|job| job.kind == "snapshot-remove"), "REMOVAL2: {jobs:?}");
        control.context.clock().sleep(Duration::from_secs(60)).await;
        let located = control.find_volume(&name("data/v")).expect("it is there");
        assert_eq!(located.volume.stores().count(), 0, "REMOVAL2: nothing is left of it");
    });
}

/// Whether the daemon ends in order or with the power, a while after its jobs.
/// What the group records of its changes.
async fn changes(control: &Control) -> Result<Vec<String>, Failure> {
    let history = control.group_history("data").await?;
    Ok(history.entries.into_iter().map(|entry| entry.change).collect())
}

#[test]
fn a_removal_that_has_ended_is_not_taken_up_at_the_next_start() {
    for is_orderly in [true, false] {
        let (host, paths) = new_host(Duration::from_micros(200));
        HOST.set(Some(Rc::clone(&host)));
        let before = host.world.run(async {
            let (shards, events) = host.begin_shards();
            let options = ControlOptions::for_tests(Path::new("/"));
            let handle = ControlHandle::start(shards, events, options, Remembered::default()).await;
            let handle = handle.expect("it starts");
            let removed = handle.call(async move |control| {
                make_group(&control, &paths).await;
                make_linear(&control, "data/v", "16M").await;
                for (snapshot, byte) in [("data/v@a", 1), ("data/v@b", 2), ("data/v@c", 3)] {
                    make_snapshot(&control, snapshot).await;
                    write_block(&control, "data/v", 0, byte).await.expect("it is served");
                }
                for snapshot in ["data/v@a", "data/v@b"] {
                    let names = vec![snapshot.into()];
                    let job = control.remove_snapshots(SnapshotRemove { names, ..Default::default() }).await;
                    ended(&control, job).await;
                }
                let rest = Duration::from_secs(if is_orderly { 0 } else { 5 });
                control.context.clock().sleep(rest).await;
                changes(&control).await
            });
            let changes = removed.await.expect("no check failed");
            if is_orderly {
                assert_eq!(handle.stop().await, Ok(()));
            }
            changes
        });
        host.world.crash(if is_orderly { CrashKind::Process } else { CrashKind::Power });
        host.files.process_ended();
        live(&host, async move |control| {
            control.context.clock().sleep(Duration::from_secs(5)).await;
            let jobs = control.jobs.list.all();
            assert!(jobs.is_empty(), "{is_orderly}: they are done: {jobs:?}");
            let after = changes(&control).await.expect("it is read");
            assert_eq!(after, before, "{is_orderly}: nothing is recorded again");
            assert_eq!(
                after.iter().filter(|change| change.starts_with("snap remove ")).count(),
                2,
                "{after:?}"
            );
            let located = control.find_volume(&name("data/v")).expect("it is there");
            let facts = control.facts(&located).await;
            assert_eq!(facts.iter().map(|facts| &facts.name[..]).collect::<Vec<_>>(), ["c"]);
        });
    }
}

/// Removes a volume whose last flush fails: that is told, and one removal is enough.
async fn remove_unflushed(control: &Control, volume: &str) {
    let removed = control.remove_volume(volume, VolumeRemove::at_once()).await;
    removed.expect("nothing of it is needed any more");
    let shown = control.show_volume(volume).await.map_err(|failure| failure.code);
    assert_eq!(shown.err(), Some(Code::VolumeNotFound));
    let is_of = |event: &varve_api::Event| event.subject == volume;
    let events: Vec<_> = control.events.list().into_iter().filter(is_of).map(|event| event.message).collect();
    let told =
        events.iter().filter(|message| message.starts_with("removed although its last flush failed: "));
    assert_eq!(told.count(), 1, "what may be lost of it is told once: {events:?}");
}

#[test]
fn a_volume_in_an_image_whose_last_flush_fails_is_removed_at_once_and_its_image_stays() {
    with_disks(1, "64M", async |control, _| {
        make_image_volume(&control).await;
        write_block(&control, "data/i", 4096, 8).await.expect("it is served");
        write_with(&control, "data/i", (MIB, 9), Durability::Volatile).await.expect("it is served");
        host().set_faults("/images/i", FaultPlan { flush_error: 1_000_000, ..FaultPlan::default() });
        remove_unflushed(&control, "data/i").await;
        host().set_faults("/images/i", FaultPlan::default());
        let (image, format) = (Some("/images/i".to_owned()), Some("qcow2".to_owned()));
        let request = VolumeCreate { name: "data/again".into(), image, format, ..Default::default() };
        control.create_volume(request).await.expect("the image is as it was");
        assert_eq!(content(&control, "data/again").await[4096], 8, "what was flushed is there");
    });
}

#[test]
fn a_mapped_volume_whose_mapper_has_gone_with_unflushed_writes_is_removed_at_once() {
    with_disks(1, "64M", async |control, _| {
        make_linear(&control, "data/device", "4M").await;
        for number in 0..2 {
            let request = VolumeCreate {
                name: "data/v".into(),
                size: "4M".into(),
                mapper: Some("unix:/mappers/1".to_owned()),
                devices: vec!["data/device".to_owned()],
                ..Default::default()
            };
            control.create_volume(request).await.expect("the mapper is there");
            write_with(&control, "data/v", (0, 7), Durability::Volatile).await.expect("it is served");
            if number == 0 {
                host().set_gone("/mappers/1", true);
                remove_unflushed(&control, "data/v").await;
                host().set_gone("/mappers/1", false);
            }
        }
        control.remove_volume("data/v", VolumeRemove::at_once()).await.expect("nobody uses it");
    });
}

#[test]
fn a_disk_is_opened_anew_though_pools_have_volumes_over_snapshots_that_lie_there() {
    with_disks(1, "600M", async |control, disks| {
        make_volume(&control, "data/base", None, None).await;
        make_snapshot(&control, "data/base@gold").await;
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/over", Some("p"), Some("data/base@gold")).await;
        write_block(&control, "data/over", 0, 7).await.expect("it is served");
        set_refusing(&disks[0], true);
        assert!(write_block(&control, "data/base", 0, 8).await.is_err(), "the disk takes no writes");
        set_refusing(&disks[0], false);
        scan(&control).await;
        let state = control.disks.known.borrow().get(Path::new(&disks[0])).map(|known| known.file.state());
        assert_eq!(state, Some(DiskState::InUse), "REOPEN2: nothing had it open any more");
        for volume in ["data/base", "data/over"] {
            write_block(&control, volume, 4096, 9).await.expect("it is served again");
        }
        assert_eq!(content(&control, "data/over").await[0], 7);
    });
}

#[test]
fn a_rollback_that_meets_an_error_rests_and_goes_on_and_meanwhile_there_is_no_other_one() {
    with_disks(1, "600M", async |control, disks| {
        make_linear(&control, "data/v", "16M").await;
        write_volatile(&control, "data/v").await;
        for snapshot in ["data/v@one", "data/v@two"] {
            make_snapshot(&control, snapshot).await;
        }
        for at in 0..BLOCKS {
            write_block(&control, "data/v", at * 4096, 8).await.expect("it is served");
        }
        let roll_back = async |name: &str| {
            control.rollback_snapshot(SnapshotRollback { name: name.into(), ..Default::default() }).await
        };
        host().set_faults(&disks[0], FaultPlan { latent: 1_000_000, ..FaultPlan::default() });
        let begun = roll_back("data/v@one").await;
        control.context.clock().sleep(Duration::from_secs(60)).await;
        let Ok(Changed::Done(job)) = &begun else { panic!("{begun:?}") };
        let job = control.jobs.list.show(&job.id).expect("it is known");
        assert_eq!(job.state, JobState::Running, "ROLLJOB3: {job:?}");
        assert!(job.error.is_some(), "ROLLJOB3: it says so");
        let clock = control.context.clock();
        let second = varve_block::timeout(&clock, Duration::from_secs(60), roll_back("data/v@two")).await;
        let second = second.map(|second| second.map(drop).map_err(|failure| failure.code));
        assert_eq!(second, Some(Err(Code::VolumeBusy)), "JOBS1");
        make_snapshot(&control, "data/v@three").await; // JOBS1
        host().set_faults(&disks[0], FaultPlan::default());
        ended(&control, begun).await;
        assert!(has_all(&control, "data/v").await, "it shows the snapshot");
    });
}

/// How often these disks were written to.
fn writes_to(paths: &[String]) -> u64 {
    paths.iter().map(|path| host().disk_at(path).counters()).map(|counters| counters.writes).sum()
}

/// How many writes two checkpoints of a pool make in which nothing has changed.
async fn writes_of_two_checkpoints(control: &Control, pool: &str, paths: &[String]) -> u64 {
    let before = writes_to(paths);
    let located = control.find_pool(&name(pool)).expect("it is there").usable().expect("it is served");
    let id = located.volume.id;
    let written = located.home.run_for_test(async move |context: ShardContext| {
        let open = context.pool(id).expect("it is served");
        for _ in 0..2 {
            open.pool.checkpoint().await.expect("no faults");
        }
    });
    written.await.expect("a shard");
    writes_to(paths) - before
}

#[test]
fn a_check_of_a_pool_writes_no_more_than_checkpoints_do_and_is_forgotten_by_a_restart() {
    let (host, paths) = new_host(Duration::from_micros(200));
    let disks = paths.clone();
    live(&host, async move |control| {
        make_group(&control, &disks).await;
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/v", Some("p"), None).await;
        write_volatile(&control, "data/v").await;
        let group = control.find_group("data").expect("it is there");
        let text = || control.with_group(group, |known| known.group.text()).expect("it is known");
        writes_of_two_checkpoints(&control, "data/p", &disks).await; // What was written before.
        let (before, least) = (text(), writes_of_two_checkpoints(&control, "data/p", &disks).await);
        let writes = writes_to(&disks);
        ended(&control, control.check_pool("data/p").await.map(Changed::Done)).await;
        assert_eq!(writes_to(&disks) - writes, least, "CHECKJOB1: it makes two checkpoints");
        for disk in &disks {
            self::host().set_faults(disk, FaultPlan { stall: 1_000_000, ..FaultPlan::default() });
        }
        let job = control.check_pool("data/p").await.expect("it begins");
        assert_eq!((job.state, text()), (JobState::Running, before), "CHECKJOB1: it stands in no text");
    });
    for disk in &paths {
        host.set_faults(disk, FaultPlan::default());
    }
    live(&host, async |control| {
        assert!(control.jobs.list.all().is_empty(), "CHECKJOB1: {:?}", control.jobs.list.all());
        assert!(has_all(&control, "data/v").await, "it is served as it was");
    });
}

/// The volume `data/i` in the qcow2 image `path`.
async fn lie_in_image(control: &Control, path: &str) {
    let (image, format) = (Some(path.into()), Some("qcow2".into()));
    let request = VolumeCreate { name: "data/i".into(), image, format, ..Default::default() };
    control.create_volume(request).await.expect("it is an image");
}

#[test]
fn an_image_that_was_closed_is_written_no_more_by_the_work_that_was_under_way() {
    with_disks(1, "64M", async |control, _| {
        host().make_image("/images/i", 8 * MIB, Some(64 << 10), Some(7)).await;
        lie_in_image(&control, "/images/i").await;
        set_slow("/images/i-base", true);
        let job = control.flatten_volume("data/i", Flatten::default()).await.expect("it begins");
        assert!(matches!(&job, Changed::Done(job) if job.state == JobState::Running), "{job:?}");
        let located = control.find_volume(&name("data/i")).expect("it is there");
        let (group, id, home) = (located.group, located.volume.id, located.home);
        let lock = control.lock_group(group).await;
        control.deactivate(group, id, &home).await.expect("nothing fails");
        let image = [String::from("/images/i")];
        let before = writes_to(&image);
        control.context.clock().sleep(Duration::from_secs(300)).await;
        assert_eq!(writes_to(&image), before, "IMAGE4");
        set_slow("/images/i-base", false);
        control.converge(group).await;
        drop(lock);
        assert_eq!(state_of(&control, "data/i").await, VolumeState::Active);
    });
}

#[test]
fn an_image_is_closed_before_the_one_below_it_that_it_is_committed_to() {
    let (host, paths) = new_host(Duration::from_millis(5));
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        let (upper, lower, host) = ("/images/i", "/images/below", self::host());
        let below = NewImage { cluster_size: 64 << 10, ..NewImage::new(32 * MIB) };
        host.make_qcow2(lower, &below).await;
        let backing = Some(Backing { name: lower.into(), format: Some("qcow2".into()) });
        host.make_qcow2(upper, &NewImage { backing, ..below }).await;
        lie_in_image(&control, upper).await;
        for at in (0..32 * MIB).step_by(64 << 10) {
            write_with(&control, "data/i", (at, 7), Durability::Volatile).await.expect("it is served");
        }
        let job = control.commit_volume("data/i", Commit::default()).await.expect("it begins");
        assert!(matches!(&job, Changed::Done(job) if job.state == JobState::Running), "{job:?}");
        let located = control.find_volume(&name("data/i")).expect("it is there");
        let (group, id, home) = (located.group, located.volume.id, located.home);
        let lengths = || [upper, lower].map(|path| host.files.length(Path::new(path)));
        let open = lengths();
        let _lock = control.lock_group(group).await;
        set_slow(upper, true);
        let clock = control.context.clock();
        let is_closed = Cell::new(false);
        let closed = async {
            control.deactivate(group, id, &home).await.expect("nothing fails");
            is_closed.set(true);
        };
        let watched = async {
            while !is_closed.get() {
                let [above, below] = lengths();
                assert!(above < open[0] || below == open[1], "IMAGE4: the one above is not closed yet");
                clock.sleep(Duration::from_secs(1)).await;
            }
        };
        join(closed, watched).await;
        let [above, below] = lengths();
        assert!(above < open[0] && below < open[1], "IMAGE2: {open:?} before, {above} and {below} now");
    });
}

#[test]
fn a_commit_that_ends_while_the_daemon_stops_is_left_to_the_next_one() {
    let (host, paths) = new_host(Duration::from_millis(5));
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        let (upper, lower, host) = ("/images/i", "/images/below", self::host());
        let below = NewImage { cluster_size: 64 << 10, ..NewImage::new(4 * MIB) };
        host.make_qcow2(lower, &below).await;
        let backing = Some(Backing { name: lower.into(), format: Some("qcow2".into()) });
        host.make_qcow2(upper, &NewImage { backing, ..below }).await;
        lie_in_image(&control, upper).await;
        write_with(&control, "data/i", (0, 7), Durability::Volatile).await.expect("it is served");
        let begun = join(control.commit_volume("data/i", Commit::default()), async {
            while control.jobs.list.all().is_empty() {
                control.context.clock().sleep(Duration::from_micros(100)).await;
            }
            control.life.stopping.set(true);
        });
        let Ok(Changed::Done(job)) = begun.await.0 else { panic!("it begins") };
        let _ = control.jobs.list.ended(&job.id).expect("it is known").await;
        let shown = control.jobs.list.show(&job.id).expect("it is known");
        assert_eq!(shown.state, JobState::Cancelled, "RUN2: {shown:?}");
        let group = control.find_group("data").expect("it is there");
        let recorded = control.with_group(group, |known| known.group.jobs().len());
        assert_eq!(recorded, Ok(1), "IMAGEJOB1, COMMITIMAGE2: the volume is in its own image still");
    });
}

#[test]
fn a_disk_that_does_not_answer_takes_no_time_at_a_stop_from_volumes_of_another_one() {
    let (host, paths) = new_host(Duration::from_micros(200));
    let disks = paths.clone();
    HOST.set(Some(Rc::clone(&host)));
    let volumes = ["data/a", "data/b"];
    let served = host.world.run(async {
        let (shards, events) = host.begin_shards();
        let options = ControlOptions::for_tests(Path::new("/"));
        let handle = ControlHandle::start(shards, events, options, Remembered::default()).await;
        let handle = handle.expect("it starts");
        let hung = handle.call(async move |control| {
            make_group(&control, &paths).await;
            let mut ids = Vec::new();
            for (volume, disk) in volumes.into_iter().zip(&paths) {
                let (size, on) = ("16M".into(), vec![disk.clone()]);
                let request = VolumeCreate { name: volume.into(), size, on, ..Default::default() };
                control.create_volume(request).await.expect("there is space");
                write_volatile(&control, volume).await;
                ids.push(control.find_volume(&name(volume)).expect("it is there").volume.id);
            }
            let first = usize::from(ids[1] < ids[0]); // It would be the first one, if one followed the other.
            set_slow(&paths[first], true);
            Ok(first)
        });
        let hung = hung.await.expect("no check failed");
        let message = handle.stop().await.expect_err("a volume could not be made durable").message;
        let own = format!("{} could not be made durable: it did not end in time", volumes[hung]);
        assert!(message.contains(&own), "STOP2: {message}");
        assert!(message.ends_with(", and 1 more"), "STOP2: its disk alone does not answer: {message}");
        volumes[1 - hung]
    });
    disks.iter().for_each(|disk| set_slow(disk, false));
    host.world.crash(CrashKind::Power);
    host.files.process_ended();
    live(&host, async move |control| {
        assert!(has_all(&control, served).await, "STOP2: it was made durable");
    });
}
