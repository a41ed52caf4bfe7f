//! Tests of arrays that lose a member and the power at once.

use super::*;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use varve_api::{
    ArrayChange, ArrayFail, ArrayMember, ArrayReplace, ArrayScrub, GroupReduce, MemberState,
    PhysicalVolumeChange, PhysicalVolumeRemove, PhysicalVolumeReplace, Resize,
};
use varve_block::host::DiskState;
use varve_sim::CrashKind;

/// Runs `work` beside a control with what the host remembers, until the power fails.
pub(super) fn live<W>(host: &Rc<Host>, work: W)
where
    W: AsyncFnOnce(Rc<Control>) + Send + 'static,
{
    live_until(host, CrashKind::Power, work);
}

/// Runs `work` beside a control with what the host remembers, which ends without a warning then.
pub(super) fn live_until<W>(host: &Rc<Host>, end: CrashKind, work: W)
where
    W: AsyncFnOnce(Rc<Control>) + Send + 'static,
{
    HOST.set(Some(Rc::clone(host)));
    host.world.run(async {
        let (shards, events) = host.begin_shards();
        let options = ControlOptions::for_tests(Path::new("/"));
        let handle = ControlHandle::start(shards, events, options, host.files.remembered()).await;
        let handle = handle.expect("it starts");
        let worked = handle.call(async move |control| {
            work(control).await;
            Ok(())
        });
        worked.await.expect("no check failed");
    });
    host.world.crash(end);
    host.files.process_ended();
    HOST.set(None);
}

/// The group `data` on new disks.
pub(super) async fn make_group(control: &Control, paths: &[String]) {
    let label =
        PhysicalVolumeCreate { paths: paths.to_vec(), size: Some("64M".into()), ..Default::default() };
    control.create_disks(label).await.expect("disks");
    let group = GroupCreate { name: "data".into(), paths: paths.to_vec(), ..Default::default() };
    control.create_group(group).await.expect("a group");
}

#[test]
fn a_pool_whose_own_regions_were_lost_is_served_again_when_the_member_returns() {
    let host = Host::new(1, Duration::from_micros(200));
    let disks: Vec<String> = (0..3).map(|number| format!("/disk{number}")).collect();
    let paths = disks.clone();
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        let pool = PoolCreate {
            name: "data/p".into(),
            size: "16M".into(),
            layout: Some(ShownLayout::Ddraid),
            order: Some(1),
            ..Default::default()
        };
        control.create_pool(pool).await.expect("there is space");
        make_volume(&control, "data/v", Some("p"), None).await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
    });
    host.set_gone(&disks[0], true);
    live(&host, async move |control| {
        let pool = control.show_pool("data/p").await.expect("it is there");
        assert_eq!(pool.state, VolumeState::Unusable, "nobody knows what its regions hold");
        let reason = pool.reason.clone().expect("it says why");
        assert!(reason.contains("wait for a member that is missing"), "{reason}");
        let problems = control.status_with_problems().await.expect("it runs").problems;
        assert!(problems.iter().any(|problem| problem.contains("wait for a member")), "{problems:?}");
        self::host().set_gone("/disk0", false);
        scan(&control).await;
        let pool = control.show_pool("data/p").await.expect("it is there");
        assert_ne!(pool.state, VolumeState::Unusable, "OPENARRAY2: {:?}", pool.reason);
        assert_eq!(content(&control, "data/v").await[0], 7);
    });
}

#[test]
fn a_group_is_used_without_a_disk_that_does_not_take_its_text() {
    with_disks(3, "64M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks[..2]).await;
        set_refusing(&disks[2], true);
        let request = VolumeCreate { name: "data/w".into(), size: "4M".into(), ..Default::default() };
        assert!(control.create_volume(request).await.is_err(), "the commit failed");
        scan(&control).await;
        assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Incomplete));
        let located = control.find_volume(&name("data/v")).expect("it is there");
        assert!(control.portal(&located, None, false, DoorOf::Client).await.is_ok(), "START1");
        make_linear(&control, "data/u", "4M").await;
        set_refusing(&disks[2], false);
        scan(&control).await;
        assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
    });
}

#[test]
fn a_disk_that_no_spare_replaces_is_no_trouble_any_more_when_its_members_are_back_and_there_is_no_spare() {
    with_disks(4, "64M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks[..2]).await;
        let request = VolumeCreate {
            name: "data/l".into(),
            size: "8M".into(),
            on: disks[..1].to_vec(),
            ..Default::default()
        };
        control.create_volume(request).await.expect("there is space");
        let set_spare = async |is_spare| {
            let request =
                PhysicalVolumeChange { disk: disks[3].clone(), spare: Some(is_spare), ..Default::default() };
            control.change_disk(request).await.expect("nothing lies there");
        };
        let refused = async || {
            control.context.clock().sleep(Duration::from_secs(30)).await;
            let problems = control.status_with_problems().await.expect("it runs").problems;
            problems.iter().any(|problem| problem.contains("not replaced by a spare"))
        };
        set_spare(true).await;
        let request = ArrayFail { disk: disks[0].clone(), ..Default::default() };
        control.fail_members("data/v", request).await.expect("the other copy has all data");
        assert!(refused().await, "nothing makes up for data/l");
        set_spare(false).await;
        let request = PhysicalVolumeScan { paths: disks[..1].to_vec(), ..Default::default() };
        control.scan_disks(request).await.expect("it is sound");
        assert!(!refused().await, "all members are in sync");
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Active);
    });
}

#[test]
fn what_was_taken_out_of_use_stays_so_when_its_array_becomes_larger() {
    with_disks(3, "64M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks[..2]).await;
        let log = ArrayChange { log: Some(disks[2].clone()), ..Default::default() };
        control.change_arrays("data/v", log).await.expect("there is space");
        for disk in [&disks[0], &disks[2]] {
            let request = ArrayFail { disk: disk.clone(), ..Default::default() };
            control.fail_members("data/v", request).await.expect("the other copy has all data");
        }
        let away = async || {
            let arrays = control.show_arrays("data/v").await.expect("it is there");
            let array = &arrays[0].array;
            let away =
                array.members.iter().map(|member| member.state == MemberState::Away).collect::<Vec<_>>();
            (away, array.log.as_ref().map(|log| log.in_use))
        };
        for size in ["+8M", "+4M"] {
            let resize = Resize { size: size.into(), ..Default::default() };
            control.extend_volume("data/v", resize).await.expect("there is space");
            control.context.clock().sleep(Duration::from_secs(60)).await;
            assert_eq!(away().await, (vec![true, false], Some(false)), "ARRAYS2");
        }
        let named =
            PhysicalVolumeScan { paths: vec![disks[0].clone(), disks[2].clone()], ..Default::default() };
        control.scan_disks(named).await.expect("they are sound");
        control.context.clock().sleep(Duration::from_secs(60)).await;
        assert_eq!(away().await, (vec![false, false], Some(true)), "it was named");
    });
}

#[test]
fn what_only_a_missing_member_has_is_not_given_up_by_a_replacement() {
    let host = Host::new(1, Duration::from_micros(200));
    let disks: Vec<String> = (0..4).map(|number| format!("/disk{number}")).collect();
    let paths = disks.clone();
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        let request = VolumeCreate {
            name: "data/v".into(),
            size: "16M".into(),
            layout: Some(ShownLayout::Ddraid),
            order: Some(1),
            on: paths[..3].to_vec(),
            ..Default::default()
        };
        control.create_volume(request).await.expect("there is space");
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
    });
    host.set_gone(&disks[0], true);
    live(&host, async move |control| {
        let request = ArrayReplace { disk: "/disk0".into(), ..Default::default() };
        let refused = control.replace_members("data/v", request.clone()).await.expect_err("DETACH1");
        assert_eq!(refused.code, Code::VolumeBusy, "{refused}");
        assert!(refused.help.contains("--accept-stale"), "the remedy is named");
        self::host().set_gone("/disk0", false);
        scan(&control).await;
        control.context.clock().sleep(Duration::from_secs(60)).await;
        assert_eq!(content(&control, "data/v").await[0], 7, "it was caught up");
        control.replace_members("data/v", request).await.expect("the others have all of it now");
    });
}

/// Beyond 128 GiB regions become larger, and one that cannot be read would take its neighbours with it.
#[test]
fn an_array_that_waits_for_lost_regions_does_not_grow_to_larger_ones() {
    const GIB: u64 = 1 << 30;
    let host = Host::new(1, Duration::from_micros(200));
    let disks: Vec<String> = (0..3).map(|number| format!("/disk{number}")).collect();
    let paths = disks.clone();
    live(&host, async move |control| {
        super::make_group(&control, "data", &paths, "100G").await;
        let request = VolumeCreate {
            name: "data/v".into(),
            size: "100G".into(),
            layout: Some(ShownLayout::Ddraid),
            order: Some(1),
            ..Default::default()
        };
        control.create_volume(request).await.expect("there is space");
        let policy = varve_api::ArrayPolicyWords { resync_rate: Some("1M..1M".into()), ..Default::default() };
        let request = ArrayChange { policy, ..Default::default() };
        control.change_arrays("data/v", request).await.expect("it is an array");
        for at in (0..32 * MIB).step_by(MIB as usize) {
            write_block(&control, "data/v", at, 7).await.expect("it is served");
        }
    });
    host.set_gone(&disks[0], true);
    live(&host, async move |control| {
        let extend = async |size: &str, dry_run| {
            let request = Resize { size: size.into(), dry_run, ..Default::default() };
            control.extend_volume("data/v", request).await.map(drop)
        };
        // The member returns, and lacks so much that it is caught up for a while.
        for at in (GIB..GIB + 32 * MIB).step_by(MIB as usize) {
            write_block(&control, "data/v", at, 8).await.expect("the others serve");
        }
        self::host().set_gone("/disk0", false);
        scan(&control).await;
        for dry_run in [true, false] {
            let refused = extend("140G", dry_run).await.expect_err("regions would become larger");
            assert_eq!(refused.code, Code::VolumeBusy, "{refused}");
            assert!(refused.message.contains("would take others with them"), "{refused}");
            assert!(refused.help.contains("varve array rebuild data/v --accept-stale all"), "{refused}");
        }
        control.context.clock().sleep(Duration::from_secs(120)).await;
        extend("140G", false).await.expect("all regions can be read");
        let volume = control.show_volume("data/v").await.expect("it is there");
        assert_eq!((volume.size, volume.state), (140 * GIB, VolumeState::Active));
        let located = control.find_any_volume(&name("data/v")).expect("it is there");
        let id = located.volume.id;
        let read = located.home.run_for_test(async move |context: ShardContext| {
            let device = open::device(&context, id, None).expect("it is served");
            device.read(0, context.arena().take(4096)).await.map(|bytes| bytes[0])
        });
        assert_eq!(read.await.expect("a shard"), Ok(7));
    });
}

#[test]
fn a_disk_that_fails_keeps_others_from_changes_of_their_group_for_a_moment_only() {
    with_disks(3, "64M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks[..2]).await;
        set_refusing(&disks[1], true);
        let request = VolumeCreate { name: "data/w".into(), size: "4M".into(), ..Default::default() };
        assert!(control.create_volume(request).await.is_err(), "the commit failed");
        control.context.clock().sleep(Duration::from_secs(10)).await;
        let group = control.show_group("data").await.map(|group| group.state);
        assert_eq!(group, Ok(GroupState::Incomplete), "RESCAN2");
        make_linear(&control, "data/u", "4M").await;
        set_refusing(&disks[1], false);
        scan(&control).await;
        assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
    });
}

#[test]
fn a_missing_disk_that_is_to_leave_its_group_is_told_from_one_of_no_group() {
    let host = Host::new(1, Duration::from_micros(200));
    let disks: Vec<String> = (0..2).map(|number| format!("/disk{number}")).collect();
    let paths = disks.clone();
    live(&host, async move |control| make_group(&control, &paths).await);
    host.set_gone(&disks[1], true);
    live(&host, async move |control| {
        let reduce = async |path: &str| {
            let request = GroupReduce { path: Some(path.into()), ..Default::default() };
            control.reduce_group("data", request).await.expect_err("it is not here")
        };
        let refused = reduce("/disk1").await;
        assert!(refused.message.contains("is missing"), "{refused}");
        assert!(refused.help.contains("varve vg reduce data --missing"), "{refused}");
        assert_eq!(reduce("/disk7").await.code, Code::NotInGroup);
        let request = GroupReduce { missing: true, ..Default::default() };
        control.reduce_group("data", request).await.expect("nothing lies there");
    });
}

#[test]
fn disks_that_have_changed_places_are_named_by_where_they_are() {
    let host = Host::new(1, Duration::from_micros(200));
    let paths: Vec<String> = (0..2).map(|number| format!("/disk{number}")).collect();
    live(&host, async move |control| {
        make_group(&control, &paths).await;
        let on = paths[..1].to_vec();
        let request = VolumeCreate { name: "data/v".into(), size: "8M".into(), on, ..Default::default() };
        control.create_volume(request).await.expect("there is space");
    });
    host.files.exchange(Path::new("/disk0"), Path::new("/disk1"));
    live(&host, async move |control| {
        let request = GroupReduce { path: Some("/disk1".into()), ..Default::default() };
        let refused = control.reduce_group("data", request).await.expect_err("a volume lies there");
        let said = format!("{refused}");
        assert!(said.contains("/disk1") && !said.contains("/disk0"), "{said}");
        make_linear(&control, "data/w", "4M").await;
        let group = control.find_group("data").expect("it is there");
        let text = control.with_group(group, |known| known.group.text()).expect("it is known");
        let at = text.find("name = \"pv0\"").expect("it is described");
        assert!(text[at..].contains("path = \"/disk1\""), "{text}");
    });
}

#[test]
fn what_lay_on_the_disks_of_a_new_mirror_is_no_difference_between_its_copies() {
    with_disks(2, "200M", async |control, disks| {
        for (name, disk, byte) in [("data/a", &disks[0], 1), ("data/b", &disks[1], 2)] {
            let on = vec![disk.clone()];
            let request = VolumeCreate { name: name.into(), size: "180M".into(), on, ..Default::default() };
            control.create_volume(request).await.expect("there is space");
            for at in (0..180 * MIB).step_by(256 << 10) {
                write_block(&control, name, at, byte).await.expect("it is served");
            }
            control.remove_volume(name, VolumeRemove::at_once()).await.expect("nobody uses it");
        }
        make_mirror(&control, "data/v", "8M", &disks).await;
        make_snapshot(&control, "data/v@s").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        ended(&control, control.scrub_array("data/v", ArrayScrub::default()).await).await;
        let scrub =
            control.show_volume("data/v").await.expect("it is there").array.and_then(|array| array.scrub);
        let scrub = scrub.expect("it was scrubbed");
        assert_eq!(scrub.mismatches, 0, "OPENARRAY3: {scrub:?}");
    });
}

#[test]
fn a_disk_that_hangs_keeps_others_from_changes_of_their_group_for_a_moment_only() {
    with_disks(3, "64M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks[..2]).await;
        let spare = PhysicalVolumeChange { disk: disks[2].clone(), spare: Some(true), ..Default::default() };
        control.change_disk(spare).await.expect("nothing lies there");
        let clock = control.context.clock();
        // Each request takes longer than a change waits for it.
        host().set_faults(&disks[1], FaultPlan { stall: 1_000_000, ..FaultPlan::default() });
        let on = disks[..1].to_vec();
        let request = VolumeCreate { name: "data/w".into(), size: "4M".into(), on, ..Default::default() };
        let begun = clock.now();
        let failure = control.create_volume(request).await.expect_err("one disk hangs");
        assert!(clock.now().since(begun) < Duration::from_secs(20), "LIMIT1");
        let said = format!("{failure}");
        assert!(said.contains("/disk1 did not answer for 10 seconds"), "{said}");
        assert!(!said.contains("gone") && failure.help.contains("varve pv scan /disk1"), "{said}");
        clock.sleep(Duration::from_secs(40)).await;
        let group = control.show_group("data").await.map(|group| group.state);
        assert_eq!(group, Ok(GroupState::Incomplete), "RESCAN2");
        write_block(&control, "data/v", 0, 7).await.expect("its other copy serves");
        let begun = clock.now();
        make_linear(&control, "data/u", "4M").await;
        assert!(clock.now().since(begun) < Duration::from_secs(20), "the group does without the disk");
        clock.sleep(Duration::from_secs(400)).await; // A missing disk may only be late.
        let array = control.show_volume("data/v").await.expect("it is there").array.expect("it is one");
        let shown = format!("{array:?}");
        assert!(shown.contains("/disk2") && !shown.contains("/disk1"), "the spare is taken: {shown}");
        host().set_faults(&disks[1], FaultPlan::default());
        clock.sleep(Duration::from_secs(40)).await;
        scan(&control).await;
        assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
        let volume =
            control.show_volume("data/u").await.expect("LIMIT2: no late write goes over what is newer");
        assert_eq!(volume.state, VolumeState::Active);
        assert_eq!(content(&control, "data/v").await[0], 7);
    });
}

/// Ddraid `data/v` on three disks, the first of which it has ejected for a write that failed.
pub(super) async fn ejected(control: &Control, disks: &[String]) {
    let request = VolumeCreate {
        name: "data/v".into(),
        size: "8M".into(),
        layout: Some(ShownLayout::Ddraid),
        order: Some(1),
        on: disks[..3].to_vec(),
        ..Default::default()
    };
    control.create_volume(request).await.expect("there is space");
    // The region is marked before, durably: the write that fails is a plain one, after which the disk may still be used.
    write_block(control, "data/v", 0, 7).await.expect("it is served");
    set_refusing(&disks[0], true);
    write_with(control, "data/v", (0, 8), Durability::Volatile).await.expect("the others have it");
    control.context.clock().sleep(Duration::from_secs(10)).await;
    let state = control.disks.known.borrow()[Path::new(&disks[0])].file.state();
    assert_eq!(state, DiskState::InUse, "no durable write of it has failed");
}

/// The first disk fails no more, and what is there has caught up.
pub(super) async fn scan_first(control: &Control, disks: &[String]) {
    set_refusing(&disks[0], false);
    let request = PhysicalVolumeScan { paths: disks[..1].to_vec(), ..Default::default() };
    control.scan_disks(request).await.expect("it is sound");
    control.context.clock().sleep(Duration::from_secs(60)).await;
    assert_eq!(state_of(control, "data/v").await, VolumeState::Active);
}

/// Puts what is on the first disk on another one; the state of the group then.
async fn replaced(control: &Control, disks: &[String]) -> GroupState {
    let request = PhysicalVolumeReplace { from: disks[0].clone(), ..Default::default() };
    let replaced = control.replace_disk(request).await;
    assert!(matches!(replaced, Ok(Changed::Done(_))), "{replaced:?}");
    control.show_group("data").await.expect("it is there").state
}

#[test]
fn a_disk_that_arrays_have_ejected_for_a_write_that_failed_is_replaced_without_writing_to_it() {
    with_disks(4, "64M", async |control, disks| {
        ejected(&control, &disks).await;
        let before = host().disk_at(&disks[0]).counters().writes;
        assert_eq!(replaced(&control, &disks).await, GroupState::Incomplete, "it is recorded as missing");
        assert_eq!(host().disk_at(&disks[0]).counters().writes, before, "nothing is written to it");
        control.context.clock().sleep(Duration::from_secs(60)).await;
        let array = control.show_volume("data/v").await.expect("it is there").array.expect("it is one");
        let in_sync = |member: &ArrayMember| member.state == MemberState::InSync;
        assert!(array.members.iter().all(in_sync), "{array:?}");
        assert_eq!(content(&control, "data/v").await[0], 8);
    });
}

#[test]
fn a_disk_that_had_errors_and_whose_members_are_back_stays_in_its_group_when_it_is_replaced() {
    with_disks(4, "64M", async |control, disks| {
        ejected(&control, &disks).await;
        scan_first(&control, &disks).await;
        assert_eq!(replaced(&control, &disks).await, GroupState::Ok, "it is as good as any other");
    });
}

#[test]
fn a_disk_that_hangs_and_is_to_become_a_physical_volume_is_told_from_one_that_is_none() {
    with_disks(1, "64M", async |control, _| {
        let label = async |size: Option<&str>| {
            let (paths, size) = (vec!["/new".to_owned()], size.map(str::to_owned));
            control.create_disks(PhysicalVolumeCreate { paths, size, ..Default::default() }).await
        };
        label(Some("64M")).await.expect("a disk");
        let remove = PhysicalVolumeRemove { path: "/new".into(), ..Default::default() };
        control.remove_disk(remove).await.expect("no group uses it");
        host().set_faults("/new", FaultPlan { stall: 1_000_000, ..FaultPlan::default() });
        let labelled = label(None).await.map(drop);
        control.context.clock().sleep(Duration::from_secs(120)).await; // A late request keeps it open.
        let scan = PhysicalVolumeScan { paths: vec!["/new".into()], ..Default::default() };
        let scanned = control.scan_disks(scan).await.map(drop);
        for failed in [labelled, scanned] {
            let failure = failed.expect_err("it hangs");
            assert_eq!(failure.code, Code::MediumFailed, "{failure}");
            assert!(failure.message.contains("/new did not answer for 10 seconds"), "{failure}");
        }
    });
}

#[test]
fn a_disk_that_hangs_holds_up_no_volume_that_is_to_lie_there() {
    with_disks(3, "64M", async |control, disks| {
        let clock = control.context.clock();
        host().set_faults(&disks[1], FaultPlan { stall: 1_000_000, ..FaultPlan::default() });
        let on = |disks: &[String]| disks.to_vec();
        let mirror = VolumeCreate {
            name: "data/m".into(),
            size: "4M".into(),
            layout: Some(ShownLayout::Mirror),
            copies: Some(2),
            on: on(&disks[..2]),
            ..Default::default()
        };
        let linear = VolumeCreate {
            name: "data/l".into(),
            size: "4M".into(),
            on: on(&disks[1..2]),
            ..Default::default()
        };
        for request in [linear, mirror] {
            let begun = clock.now();
            let failure = control.create_volume(request).await.expect_err("it hangs");
            assert!(
                clock.now().since(begun) < Duration::from_secs(20),
                "LIMIT1: the lock of the group is held"
            );
            assert!(failure.message.contains("/disk1 did not answer for 10 seconds"), "{failure}");
            clock.sleep(Duration::from_secs(60)).await; // The late request ends.
        }
        host().set_faults(&disks[1], FaultPlan::default());
        scan(&control).await;
        make_linear(&control, "data/u", "4M").await;
        assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
    });
}

/// Scans while the disk at `path` answers `reads` requests more, and then none for 30 s each; whether it came to that.
async fn scan_while_it_falls_silent(control: &Control, path: &str, reads: u64) -> bool {
    let disk = host().disk_at(path);
    let before = disk.counters().reads;
    let mut scanned = std::pin::pin!(control.scan_disks(PhysicalVolumeScan::default()));
    while disk.counters().reads < before + reads {
        let moment = control.context.clock().sleep(Duration::from_micros(10));
        if let Either::Left((result, _)) = select(&mut scanned, moment).await {
            result.expect("it is as it was");
            return false;
        }
    }
    set_slow(path, true);
    scanned.await.expect("it leaves out what does not answer");
    true
}

#[test]
fn a_disk_that_falls_silent_while_a_scan_reads_it_is_not_damaged() {
    with_disks(2, "64M", async |control, disks| {
        make_mirror(&control, "data/m", "4M", &disks).await;
        let on = disks[1..].to_vec();
        let linear = VolumeCreate { name: "data/v".into(), size: "4M".into(), on, ..Default::default() };
        control.create_volume(linear).await.expect("there is space");
        let mut reads = 1;
        while scan_while_it_falls_silent(&control, &disks[1], reads).await {
            let problem = control.disks.known.borrow()[Path::new(&disks[1])].problem.clone();
            assert_eq!(problem, None, "it is what it was when it answers again");
            set_slow(&disks[1], false);
            control.context.clock().sleep(Duration::from_secs(60)).await;
            scan(&control).await;
            assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
            for volume in ["data/m", "data/v"] {
                write_block(&control, volume, 0, 7).await.expect("it is served");
            }
            reads += 1;
        }
        assert!(reads > 3, "a scan asks whether it answers, and reads its label and its ring");
    });
}

#[test]
fn a_request_that_does_not_end_keeps_no_other_group_from_its_changes() {
    let host = Host::new(1, Duration::from_micros(200));
    let paths: Vec<String> = (0..3).map(|number| format!("/disk{number}")).collect();
    live(&host, async move |control| {
        make_group(&control, &paths[..2]).await;
        let label = PhysicalVolumeCreate {
            paths: paths[2..].to_vec(),
            size: Some("64M".into()),
            ..Default::default()
        };
        control.create_disks(label).await.expect("a disk");
        let group = GroupCreate { name: "other".into(), paths: paths[2..].to_vec(), ..Default::default() };
        control.create_group(group).await.expect("a group");
        let on = paths[1..2].to_vec();
        let request = VolumeCreate { name: "data/v".into(), size: "8M".into(), on, ..Default::default() };
        control.create_volume(request).await.expect("there is space");
        let clock = control.context.clock();
        set_slow(&paths[1], true);
        let writer = Rc::clone(&control);
        let (ended_writes, writes) = oneshot::channel();
        control.context.spawner().spawn(async move {
            let first = write_block(&writer, "data/v", 0, 7);
            let last = async {
                writer.context.clock().sleep(Duration::from_secs(9)).await;
                write_block(&writer, "data/v", 4096, 7).await
            };
            let _ = ended_writes.send(join(first, last).await);
        });
        let on = paths[..1].to_vec();
        let request = VolumeCreate { name: "data/w".into(), size: "4M".into(), on, ..Default::default() };
        assert!(control.create_volume(request).await.is_err(), "it reaches one of the disks");
        clock.sleep(Duration::from_secs(8)).await;
        let begun = clock.now();
        make_linear(&control, "other/u", "4M").await;
        let paths = vec![paths[2].clone()];
        control.scan_disks(PhysicalVolumeScan { paths, ..Default::default() }).await.expect("START2");
        assert!(clock.now().since(begun) < Duration::from_secs(8), "LOCKING2");
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Unusable, "its disk counts as missing");
        let (begun, refused) = (clock.now(), control.lock_of("data/w").await.map(drop));
        let refused = refused.expect_err("what was taken out of use is not closed yet");
        assert!(
            refused.code == Code::VolumeBusy && refused.message.contains("/disk1"),
            "LOCKING4: {refused}"
        );
        assert!(clock.now().since(begun) < Duration::from_secs(3), "LOCKING4");
        set_slow("/disk1", false);
        clock.sleep(Duration::from_secs(15)).await; // Those for the group's text have ended.
        scan(&control).await;
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Unusable, "one has not ended");
        assert!(writes.await.is_ok(), "they end");
        clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Active, "START2");
        let group = control.show_group("data").await.expect("it is there");
        assert_eq!(group.state, GroupState::Ok, "LOCKING3: {group:?}");
    });
}
