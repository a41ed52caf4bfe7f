//! Tests of rules that hold between commands: locks, promises of pools, spares.

use super::losses::{ejected, scan_first};
use super::*;
use varve_api::{PhysicalVolumeChange, Resize};

#[test]
fn commands_on_several_groups_do_not_wait_for_each_other_in_a_circle() {
    with_control(async |control| {
        let paths = vec!["/other".to_owned()];
        let label =
            PhysicalVolumeCreate { paths: paths.clone(), size: Some("64M".into()), ..Default::default() };
        control.create_disks(label).await.expect("a disk");
        let group = GroupCreate { name: "other".into(), paths, ..Default::default() };
        control.create_group(group).await.expect("a group");
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
