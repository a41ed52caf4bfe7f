//! Tests of rules that hold between commands: locks, promises of pools, spares.

use super::losses::{ejected, scan_first};
use super::*;
use varve_api::{
    ArrayChange, ExportCreate, ExportRemove, GroupExtend, GroupReduce, GroupState, PhysicalVolumeChange,
    PhysicalVolumeReplace, PhysicalVolumeResize, PhysicalVolumeState, Rename, Resize,
};
use varve_sim::FaultBudget;
use varve_vg::Change;

#[test]
fn commands_on_several_groups_do_not_wait_for_each_other_in_a_circle() {
    with_control(async |control| {
        make_group(&control, "other", &["/other".to_owned()], "64M").await;
        let clock = control.context.clock();
        let locked =
            async |names: [&str; 2]| drop(control.lock_all_of(names).await.expect("it does not stop"));
        let held = join(control.lock_of("data/a"), control.lock_of("other/b")).await;
        let released = async {
            clock.sleep(Duration::from_millis(1)).await;
            drop(held.0);
            clock.sleep(Duration::from_millis(1)).await;
            drop(held.1);
        };
        let both = join(locked(["data/a", "other/b"]), locked(["other/b", "data/a"]));
        let ended = varve_block::timeout(&clock, Duration::from_secs(60), join(both, released)).await;
        assert!(ended.is_some(), "LOCKING1: the order is that of the groups, not of the words");
    });
}

#[test]
fn a_command_that_waited_while_its_group_was_renamed_does_not_take_it_for_the_one_it_named() {
    with_control(async |control| {
        make_group(&control, "other", &["/other".to_owned()], "64M").await;
        let id = |name: &str| control.find_group(name).expect("it is there");
        let (renamed, other) = (id("data"), id("other"));
        let held = control.lock_group(renamed).await;
        let rename = async |name: &str, to: &str| {
            let to = Rename { to: to.to_owned(), ..Default::default() };
            control.rename_group(name, to).await.map(drop).expect("the name is free");
        };
        let renamed_both = async {
            rename("data", "old").await;
            rename("other", "data").await;
        };
        let waited = async {
            varve_block::yield_now().await;
            control.lock_of("data/a").await.expect("it does not stop")
        };
        let released = async {
            control.context.clock().sleep(Duration::from_millis(1)).await;
            drop(held);
        };
        let ((), (lock, ())) = join(renamed_both, join(waited, released)).await;
        assert!(!control.locks.is_held(renamed), "CONTROL1: it is another group's name now");
        assert_eq!(id("data"), other);
        drop(lock);
    });
}

#[test]
fn a_disk_that_came_to_another_group_while_a_command_waited_is_changed_under_the_lock_of_that_one() {
    with_disks(2, "64M", async |control, disks| {
        make_group(&control, "other", &["/other".to_owned()], "64M").await;
        let id = |name: &str| control.find_group(name).expect("it is there");
        let (data, other) = (id("data"), id("other"));
        let size =
            || control.with_group(other, |known| known.group.physical_volumes().last().map(|disk| disk.size));
        let held = control.lock_group(data).await;
        let moved = async {
            let path = Some(disks[1].clone());
            let reduced = control.reduce_group("data", GroupReduce { path, ..Default::default() }).await;
            reduced.map(drop).expect("nothing lies there");
        };
        let extended = async {
            let held = control.lock_group(data).await;
            let paths = vec![disks[1].clone()];
            let extended = control.extend_group("other", GroupExtend { paths, ..Default::default() }).await;
            extended.map(drop).expect("it is free");
            let locked = control.lock_group(other).await;
            drop(held);
            control.context.clock().sleep(Duration::from_secs(1)).await;
            assert_eq!(size(), Ok(Some(64 * MIB)), "LOCKING1");
            drop(locked);
        };
        let resized = async {
            let request = PhysicalVolumeResize {
                disk: disks[1].clone(),
                size: Some("32M".into()),
                ..Default::default()
            };
            control.resize_disk(request).await.map(drop)
        };
        let released = async {
            control.context.clock().sleep(Duration::from_millis(1)).await;
            drop(held);
        };
        let ((), (), resized, ()) = futures_util::join!(moved, extended, resized, released);
        assert_eq!((resized, size()), (Ok(()), Ok(Some(32 * MIB))));
    });
}

#[test]
fn a_disk_of_no_group_is_not_resized_and_what_makes_it_larger_is_said() {
    with_control(async |control| {
        let paths = vec!["/free".to_owned()];
        let request = PhysicalVolumeCreate { paths, size: Some("64M".into()), ..Default::default() };
        control.create_disks(request).await.map(drop).expect("it is new");
        let request = PhysicalVolumeResize { disk: "/free".into(), ..Default::default() };
        let refused = control.resize_disk(request).await.map(drop).expect_err("it is in no group");
        assert_eq!((refused.code, refused.message.as_str()), (Code::NotInGroup, "/free is in no group"));
        assert_eq!(refused.help, "varve pv remove /free; varve pv create /free labels it anew, to its end");
    });
}

#[test]
fn a_pool_that_forbids_over_commitment_promises_no_more_than_it_can_hold() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        let policy = PolicyWords { over_commit: Some(OverCommit::Forbid), ..Default::default() };
        control
            .change_pool("data/p", PoolChange { policy, ..Default::default() })
            .await
            .expect("it is there");
        make_volume(&control, "data/a", Some("p"), None).await;
        make_volume(&control, "data/b", Some("p"), None).await;
        let pool = Some("p".to_owned());
        let more = VolumeCreate { name: "data/c".into(), size: "40M".into(), pool, ..Default::default() };
        let code = |refused: Failure| refused.code;
        let refused = control.create_volume(more).await.map(drop);
        assert_eq!(refused.map_err(code), Err(Code::OverCommitted), "OVERCOMMIT1: 72 MiB of 64");
        let larger = Resize { size: "+40M".into(), ..Default::default() };
        let refused = control.extend_volume("data/a", larger).await.map(drop);
        assert_eq!(refused.map_err(code), Err(Code::OverCommitted), "OVERCOMMIT1");
        make_snapshot(&control, "data/a@one").await;
        let names = vec!["data/a@two".to_owned(), "data/b@two".to_owned()];
        let snapshots = SnapshotCreate { names, ..Default::default() };
        let refused = control.create_snapshots(snapshots).await.map(drop);
        assert_eq!(refused.map_err(code), Err(Code::OverCommitted), "OVERCOMMIT1: each may differ in all");
    });
}

#[test]
fn a_disk_whose_members_are_back_is_not_replaced_by_a_spare_that_comes_later() {
    with_disks(4, "64M", async |control, disks| {
        ejected(&control, &disks).await;
        scan_first(&control, &disks).await;
        let spare = PhysicalVolumeChange { disk: disks[3].clone(), spare: Some(true), ..Default::default() };
        control.change_disk(spare).await.expect("nothing lies there");
        control.context.clock().sleep(Duration::from_secs(60)).await;
        let array = control.show_volume("data/v").await.expect("it is there").array.expect("it is one");
        let on: Vec<&String> = array.members.iter().flat_map(|member| &member.disks).collect();
        assert_eq!(on, disks[..3].iter().collect::<Vec<_>>(), "SPARES1: no array does without it");
    });
}

/// Writes every byte of a volume.
async fn write_all(control: &Control, volume: &str, byte: u8) {
    let located = control.find_volume(&name(volume)).expect("it is there");
    let id = located.volume.id;
    let written = located.home.run_for_test(async move |context: ShardContext| {
        let device = open::device(&context, id, None).expect("it is served");
        for (_, piece) in device.shape().extent().pieces(MIB) {
            let data = context.arena().copy(&vec![byte; usize::try_from(piece.length).expect("a MiB")]);
            device.write(piece.offset, data, Durability::Volatile).await.expect("there is space");
        }
    });
    written.await.expect("a shard");
}

#[test]
fn a_pool_that_is_extended_twice_keeps_what_was_written_between() {
    with_disks(4, "64M", async |control, _| {
        let (layout, order) = (Some(ShownLayout::Ddraid), Some(1));
        let request =
            PoolCreate { name: "data/p".into(), size: "4M".into(), layout, order, ..Default::default() };
        control.create_pool(request).await.expect("there is space");
        make_volume(&control, "data/v", Some("p"), None).await;
        let group = control.find_group("data").expect("it is there");
        let after = async |ms| control.context.clock().sleep(Duration::from_millis(ms)).await;
        let extend = async |ms| {
            after(ms).await;
            let request = Resize { size: "+16M".into(), ..Default::default() };
            control.extend_pool("data/p", request).await.expect("there is space");
        };
        let held = control.commits(group).await;
        let begin = async {
            after(300).await;
            drop(held);
        };
        let write = async {
            after(100).await;
            let _held = control.commits(group).await;
            after(100).await; // The pool has grown.
            write_all(&control, "data/v", 7).await;
        };
        join(join(extend(0), write), join(extend(200), begin)).await;
        let content = content(&control, "data/v").await;
        let lost = content.iter().filter(|byte| **byte != 7).count();
        assert_eq!(lost, 0, "CHANGE3: bytes that were cleared after they were written");
    });
}

#[test]
fn an_export_that_is_removed_twice_is_removed_by_one_of_them() {
    with_control(async |control| {
        make_linear(&control, "data/v", "8M").await;
        let (address, door) = ("unix:/sockets/v".to_owned(), Some(varve_api::Door::Nbd));
        let request =
            ExportCreate { volume: "data/v".into(), address: address.clone(), door, ..Default::default() };
        for round in 0..60 {
            control.create_export(request.clone()).await.expect("nothing is there");
            let remove = async |delay_us| {
                control.context.clock().sleep(Duration::from_micros(delay_us)).await;
                control.remove_export(&address, ExportRemove::default()).await.is_ok()
            };
            let removed = join(remove(0), remove(round * 20)).await;
            assert_eq!(removed, (true, false), "EXPORTS2");
        }
    });
}

#[test]
fn a_group_whose_only_disk_cannot_be_opened_anew_is_incomplete_until_it_can() {
    with_disks(1, "64M", async |control, disks| {
        let looked = async || {
            control.scan_disks(Default::default()).await.expect("it is no error that a disk is away");
            let (group, disk) = (control.list_groups().remove(0), control.list_disks().remove(0));
            (group.state, disk.state)
        };
        host().shrink(&disks[0]);
        assert_eq!(looked().await, (GroupState::Incomplete, PhysicalVolumeState::Missing));
        host().set_gone(&disks[0], false);
        assert_eq!(looked().await, (GroupState::Ok, PhysicalVolumeState::Ok));
    });
}

#[test]
fn two_who_find_a_store_too_small_have_it_grow_once() {
    with_control(async |control| {
        make_linear(&control, "data/a", "64M").await;
        make_snapshot(&control, "data/a@one").await;
        let located = control.find_volume(&name("data/a")).expect("it is there");
        let (id, home, group) = (located.volume.id, located.home, located.group);
        let size = home.volume(id).facts().await.expect("a shard").stores[0].size;
        let commits =
            || control.with_group(group, |known| known.group.entry().sequence).expect("it is known");
        let before = commits();
        let grown = join(home.volume(id).grow_dependent(size), home.volume(id).grow_dependent(size)).await;
        assert_eq!(grown, (Ok(true), Ok(true)));
        assert_eq!(commits() - before, 1, "GROWTH1: the second one shares what the first one got");
    });
}

#[test]
fn what_is_known_of_a_group_is_what_its_disks_hold_also_after_a_change_that_failed() {
    with_disks(2, "64M", async |control, disks| {
        make_linear(&control, "data/v", "8M").await;
        let group = control.find_group("data").expect("it is there");
        let known = || control.with_group(group, |known| known.group.text()).expect("it is known");
        let held = async || {
            let disk = |path: &String| {
                let file = &control.disks.known.borrow()[Path::new(path)].file;
                varve_vg::Disk { path: path.clone(), device: control.context.disk(file) }
            };
            let found = varve_vg::scan(disks.iter().map(disk).collect(), &control.context.arena()).await;
            found.groups[0].group().text()
        };
        assert_eq!(known(), held().await, "CONTROL2");
        disks.iter().for_each(|disk| {
            host().set_faults(disk, FaultPlan { no_space: 1_000_000, ..FaultPlan::default() });
        });
        let request = VolumeCreate { name: "data/w".into(), size: "8M".into(), ..Default::default() };
        assert!(control.create_volume(request).await.is_err(), "the commit failed");
        assert_eq!(known(), held().await, "CONTROL2: the change does not count");
        disks.iter().for_each(|disk| host().set_faults(disk, FaultPlan::default()));
        scan(&control).await;
        make_linear(&control, "data/u", "8M").await;
        assert_eq!(known(), held().await, "CONTROL2");
    });
}

#[test]
fn extents_of_a_volume_with_a_write_under_way_are_given_to_nobody() {
    with_disks(1, "64M", async |control, disks| {
        let clock = control.context.clock();
        make_linear(&control, "data/v", "40M").await;
        let group = control.find_group("data").expect("it is there");
        let others = async {
            clock.sleep(Duration::from_millis(10)).await;
            host().set_faults(&disks[0], FaultPlan::default());
            let gone = Change::RemoveVolume { name: "v".into() };
            control.commits(group).await.make(group, gone, "a test").await.expect("it is allowed");
            let begun = clock.now();
            let request = VolumeCreate { name: "data/w".into(), size: "40M".into(), ..Default::default() };
            let early =
                control.create_volume(request.clone()).await.map(drop).map_err(|failure| failure.code);
            assert_eq!(early, Err(Code::GroupIncomplete), "RECONCILE2");
            converge_group(&control, group).await;
            assert!(clock.now().since(begun) > Duration::from_secs(20), "RECONCILE2: it waits for the write");
            control.create_volume(request).await.expect("nothing is under way any more");
        };
        host().set_faults(&disks[0], FaultPlan { stall: 1_000_000, ..FaultPlan::default() });
        let (written, ()) = join(write_block(&control, "data/v", 0, 7), others).await;
        written.expect("it is carried out");
        assert_eq!(content(&control, "data/w").await[0], 0);
    });
}

#[test]
fn extents_of_a_log_are_given_up_when_its_array_is_in_use_and_has_it_on_its_members() {
    with_disks(4, "64M", async |control, disks| {
        let request = VolumeCreate {
            name: "data/v".into(),
            size: "8M".into(),
            layout: Some(ShownLayout::Mirror),
            copies: Some(2),
            log: Some(disks[2].clone()),
            on: disks[..2].to_vec(),
            ..Default::default()
        };
        control.create_volume(request).await.expect("there is space");
        let located = control.find_volume(&name("data/v")).expect("it is there");
        let (group, id, home) = (located.group, located.volume.id, located.home);
        let text = || control.with_group(group, |known| known.group.text()).expect("it is known");
        let code = |failure: Failure| failure.code;
        let given_up = async || {
            let request = ArrayChange { log: Some("members".into()), ..Default::default() };
            let changed = control.change_arrays("data/v", request).await.map(drop).map_err(code);
            let request = PhysicalVolumeReplace { from: disks[2].clone(), ..Default::default() };
            (changed, control.replace_disk(request).await.map(drop).map_err(code))
        };
        let refused = |code| (Err(code), Err(code));
        control.deactivate_volume("data/v", Default::default()).await.expect("nobody uses it");
        let before = text();
        assert_eq!(given_up().await, refused(Code::VolumeInactive), "LOGCHANGE1: as a command left it");
        assert_eq!(text(), before, "LOGCHANGE1");
        control.activate_volume("data/v", Default::default()).await.expect("nothing is wrong");
        let before = text();
        control.deactivate(group, id, &home).await.expect("nothing fails");
        assert_eq!(given_up().await, refused(Code::VolumeUnusable), "LOGCHANGE1: it is opened anew");
        assert_eq!(text(), before, "LOGCHANGE1");
        converge_group(&control, group).await;
        set_refusing(&disks[3], true);
        let request = ArrayChange { log: Some("members".into()), ..Default::default() };
        assert!(control.change_arrays("data/v", request).await.is_err(), "the commit fails");
        let status = home.array(id).status().await.expect("a shard").expect("it is open");
        assert_eq!(status.log_disk, None, "LOGCHANGE1: its members have it before the commit");
        set_refusing(&disks[3], false);
        scan(&control).await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
    });
}

#[test]
fn a_snapshot_store_that_could_not_be_formatted_stands_in_no_text() {
    with_disks(1, "64M", async |control, disks| {
        make_linear(&control, "data/v", "8M").await;
        let group = control.find_group("data").expect("it is there");
        let text = || control.with_group(group, |known| known.group.text()).expect("it is known");
        let before = text();
        let plan = FaultPlan { write_error: 1_000_000, ..FaultPlan::default() };
        host().disk_at(&disks[0]).set_faults(plan, FaultBudget::new(1, 1));
        let request = SnapshotCreate { names: vec!["data/v@s".into()], ..Default::default() };
        assert!(control.create_snapshots(request).await.is_err(), "its first write failed");
        assert_eq!(text(), before, "STOREOPEN4: what is recorded is whole");
        host().set_faults(&disks[0], FaultPlan::default());
        make_snapshot(&control, "data/v@s").await;
    });
}

#[test]
fn snapshots_of_one_instant_in_another_group_are_left_to_their_command() {
    with_control(async |control| {
        make_group(&control, "other", &["/other".to_owned()], "600M").await;
        let volumes = ["data/a", "data/b", "other/a", "other/b"];
        for volume in volumes {
            make_volume(&control, volume, None, None).await;
        }
        let make = async |group: &str, round: usize, delay: usize| {
            control.context.clock().sleep(Duration::from_micros(delay as u64)).await;
            let names = ["a", "b"].map(|volume| format!("{group}/{volume}@s{round}")).to_vec();
            let request = SnapshotCreate { names, ..Default::default() };
            control.create_snapshots(request).await.expect("there is space");
        };
        for round in 1..=20 {
            join(make("data", round, 0), make("other", round, 100 * round)).await;
            for volume in volumes {
                let made = control.list_snapshots(Some(volume)).await.expect("it is there");
                assert_eq!(made.len(), round, "{volume}: SETS5");
            }
        }
    });
}
