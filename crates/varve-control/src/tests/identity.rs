//! Tests of which disk a path leads to: another path, a clone, a name that was changed.

use super::*;
use varve_api::{
    GroupExtend, GroupReduce, PhysicalVolume, PhysicalVolumeRemove, PhysicalVolumeReplace,
    PhysicalVolumeState,
};

async fn label(
    control: &Control,
    path: &str,
    dry_run: bool,
) -> Result<Changed<Vec<PhysicalVolume>>, Failure> {
    let paths = vec![path.to_owned()];
    control.create_disks(PhysicalVolumeCreate { paths, overwrite: true, dry_run, ..Default::default() }).await
}

async fn extend(control: &Control, path: &str) -> Result<(), Failure> {
    let request = GroupExtend { paths: vec![path.to_owned()], overwrite: true, ..Default::default() };
    control.extend_group("data", request).await.map(drop)
}

/// Asserts that the group has its disk and its volume still, also after all disks are read again.
async fn assert_whole(control: &Control, disk: &str) {
    let (device, arena) = (host().disk_at(disk).device(&host().world), control.context.arena());
    let found = varve_vg::disks::identity::label_of(&device, &arena);
    let found = found.await.expect("it has its label");
    assert!(found.vg.is_some(), "IDENTITY3: the label is the group's");
    scan(control).await;
    assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
    assert_eq!(content(control, "data/v").await[0], 7);
}

#[test]
fn a_disk_in_use_is_not_labelled_by_another_path() {
    for is_known in [true, false] {
        with_disks(1, "64M", async move |control, disks| {
            make_linear(&control, "data/v", "4M").await;
            write_block(&control, "data/v", 0, 7).await.expect("it is served");
            host().files.link(&disks[0], "/other", is_known);
            let commands = [
                label(&control, "/other", false).await.map(drop),
                label(&control, "/other", true).await.map(drop),
                extend(&control, "/other").await,
            ];
            for command in commands {
                let failure = command.expect_err("IDENTITY2, IDENTITY3");
                let code = if is_known { Code::PhysicalVolumeInGroup } else { Code::DiskInUse };
                assert_eq!(failure.code, code, "{failure}");
                assert!(
                    failure.message.contains("/other") && failure.message.contains("/disk0"),
                    "{failure}"
                );
                assert!(failure.message.contains("group data"), "{failure}");
                assert!(!failure.help.contains("--yes"), "no help advises it");
            }
            assert_whole(&control, &disks[0]).await;
        });
    }
}

#[test]
fn a_clone_is_relabelled_and_the_plan_names_what_goes() {
    with_disks(1, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        host().clone_disk(&disks[0], "/clone");
        let scan = PhysicalVolumeScan { paths: vec!["/clone".into()], ..Default::default() };
        let refused = control.scan_disks(scan).await.map(drop);
        assert_eq!(refused.map_err(|failure| failure.code), Err(Code::DuplicateDisk));
        let Ok(Changed::Planned(plan)) = label(&control, "/clone", true).await else { panic!("a plan") };
        assert_eq!(plan.steps[1], "would destroy what is on /clone: group data with data/v");
        label(&control, "/clone", false).await.expect("it is a copy");
        let request = GroupExtend { paths: vec!["/clone".into()], ..Default::default() };
        let group = control.extend_group("data", request).await;
        assert!(matches!(group, Ok(Changed::Done(group)) if group.physical_volumes.len() == 2));
        assert_whole(&control, &disks[0]).await;
    });
}

#[test]
fn a_disk_that_could_not_be_read_for_a_while_is_known_by_its_label_still() {
    with_disks(1, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        host().set_gone(&disks[0], true);
        let (paths, size) = (vec!["/extra".to_owned()], Some("64M".to_owned()));
        let create = PhysicalVolumeCreate { paths: paths.clone(), size, ..Default::default() };
        control.create_disks(create).await.expect("nothing is there");
        let request = GroupCreate { name: "other".into(), paths, ..Default::default() };
        control.create_group(request).await.expect("it has nothing to do with the disk");
        scan(&control).await;
        host().set_gone(&disks[0], false);
        scan(&control).await;
        let listed = control.list_disks();
        let states: Vec<_> = listed.iter().map(|disk| (disk.path.as_deref(), disk.state)).collect();
        let expected = [&disks[0], "/extra"].map(|path| (Some(path), PhysicalVolumeState::Ok));
        assert_eq!(states, expected);
        host().files.link(&disks[0], "/other", false);
        let failure = label(&control, "/other", false).await.expect_err("IDENTITY3");
        assert_eq!(failure.code, Code::DiskInUse, "{failure}");
        host().files.rename(&disks[0], "/moved");
        let request = PhysicalVolumeScan { paths: vec!["/moved".into()], ..Default::default() };
        control.scan_disks(request).await.expect("it is known");
        assert_whole(&control, "/moved").await;
    });
}

#[test]
fn a_disk_that_its_group_misses_is_not_labelled() {
    with_disks(2, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        host().set_gone(&disks[1], true);
        scan(&control).await;
        scan(&control).await; // It is released.
        host().files.rename(&disks[1], "/moved");
        host().set_gone("/moved", false);
        for command in [label(&control, "/moved", false).await.map(drop), extend(&control, "/moved").await] {
            let failure = command.expect_err("IDENTITY3");
            assert_eq!(failure.code, Code::PhysicalVolumeInGroup, "{failure}");
        }
        let scan = PhysicalVolumeScan { paths: vec!["/moved".into()], ..Default::default() };
        control.scan_disks(scan).await.expect("it is found again");
        assert_whole(&control, &disks[0]).await;
    });
}

#[test]
fn a_disk_is_known_by_every_path_that_leads_to_it() {
    with_disks(2, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        host().files.link(&disks[1], "/link", true);
        let scan = PhysicalVolumeScan { paths: vec!["/link".into()], ..Default::default() };
        control.scan_disks(scan).await.expect("it is known already");
        let listed: Vec<_> = control.list_disks().into_iter().filter_map(|disk| disk.path).collect();
        assert_eq!(listed, disks, "it keeps the path by which it is known");
        make_mirror(&control, "data/m", "4M", &[disks[0].clone(), "/link".into()]).await;
        control.remove_volume("data/m", VolumeRemove::at_once()).await.expect("it is there");
        let reduce = GroupReduce { path: Some("/link".into()), ..Default::default() };
        control.reduce_group("data", reduce.clone()).await.expect("nothing lies there");
        extend(&control, "/link").await.expect("it is known, and no group uses it");
        let listed: Vec<_> = control.show_group("data").await.expect("it is there").physical_volumes;
        assert_eq!(listed.iter().filter_map(|disk| disk.path.clone()).collect::<Vec<_>>(), disks);
        control.reduce_group("data", reduce).await.expect("nothing lies there");
        let request = GroupCreate { name: "other".into(), paths: vec!["/link".into()], ..Default::default() };
        control.create_group(request).await.expect("no group uses it");
        control.remove_group("other", Remove::default()).await.expect("nothing lies there");
        let remove = PhysicalVolumeRemove { path: "/link".into(), ..Default::default() };
        control.remove_disk(remove).await.expect("no group uses it");
        assert_whole(&control, &disks[0]).await;
    });
}

#[test]
fn a_disk_whose_file_was_renamed_is_known_by_its_new_name() {
    with_disks(3, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        let files = &host().files;
        files.rename(&disks[0], "/new");
        files.exchange(Path::new(&disks[1]), Path::new(&disks[2]));
        let ids = |control: &Control| -> Vec<(String, String)> {
            control.list_disks().into_iter().filter_map(|disk| Some((disk.path?, disk.id))).collect()
        };
        let before = ids(&control);
        let paths = vec!["/new".to_owned(), disks[1].clone(), disks[2].clone()];
        control.scan_disks(PhysicalVolumeScan { paths, ..Default::default() }).await.expect("they are known");
        let id = |index: usize| before[index].1.clone();
        let expected = [(disks[1].clone(), id(2)), (disks[2].clone(), id(1)), ("/new".to_owned(), id(0))];
        assert_eq!(ids(&control), expected);
        assert_whole(&control, "/new").await;
        assert_eq!(content(&control, "data/v").await[0], 7);
    });
}

/// Its group is what uses it, under either name.
#[test]
fn a_disk_that_has_failed_and_was_renamed_is_used_again_by_its_new_name() {
    with_disks(1, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        host().set_faults(&disks[0], FaultPlan { write_error: 1_000_000, ..FaultPlan::default() });
        write_block(&control, "data/v", 0, 7).await.expect_err("it cannot be written");
        host().set_faults(&disks[0], FaultPlan::default());
        host().files.rename(&disks[0], "/new");
        let request = PhysicalVolumeScan { paths: vec!["/new".to_owned()], ..Default::default() };
        control.scan_disks(request).await.expect("it is known");
        assert_whole(&control, "/new").await;
        assert_eq!(content(&control, "data/v").await[0], 7);
    });
}

#[test]
fn a_missing_disk_is_not_called_by_the_path_of_another() {
    with_disks(3, "64M", async |control, disks| {
        make_mirror(&control, "data/m", "4M", &disks[..2]).await;
        let id = |path: &str| {
            control
                .list_disks()
                .into_iter()
                .find(|disk| disk.path.as_deref() == Some(path))
                .map(|disk| disk.id)
        };
        let (first, second) = (id(&disks[0]).expect("here"), id(&disks[1]).expect("here"));
        host().files.rename(&disks[0], "/aside");
        host().files.rename(&disks[1], &disks[0]); // The second is where the first was, which is lost.
        host().set_gone("/aside", true);
        control
            .scan_disks(PhysicalVolumeScan { paths: disks[..1].to_vec(), ..Default::default() })
            .await
            .expect("it is known");
        for _ in 0..2 {
            let _ = write_block(&control, "data/m", 0, 9).await;
            scan(&control).await;
        }
        let shown = control.list_disks();
        let missing: Vec<_> =
            shown.iter().filter(|disk| disk.state == PhysicalVolumeState::Missing).collect();
        assert_eq!(missing.len(), 1, "{shown:?}");
        assert_eq!(missing[0].id, first, "{shown:?}");
        assert_ne!(missing[0].path.as_deref(), Some(disks[0].as_str()), "another one is there");
        assert_eq!(id(&disks[0]), Some(second.clone()));
        let problems = control.status_with_problems().await.expect("it is asked").problems;
        assert!(problems.iter().any(|problem| problem.contains(&first)), "{problems:?}");
        let is_advised = |reason: &str| {
            reason.ends_with("; nothing lies there: varve vg reduce data --missing takes it out")
        };
        assert!(!missing[0].reason.as_deref().is_some_and(is_advised), "a member of it is there: {shown:?}");
        assert!(!problems.iter().any(|problem| problem.contains("nothing lies there")), "{problems:?}");
        assert!(
            problems.iter().all(|problem| !problem.contains(&format!("missing: {}", disks[0]))),
            "{problems:?}"
        );
        let replace = PhysicalVolumeReplace { from: first.clone(), ..Default::default() };
        control.replace_disk(replace).await.expect("there is a third disk");
        let shown = control.list_disks();
        let reason = shown.iter().find(|disk| disk.id == first).and_then(|disk| disk.reason.clone());
        assert!(reason.as_deref().is_some_and(is_advised), "{shown:?}");
        let problems = control.status_with_problems().await.expect("it is asked").problems;
        let told =
            problems.iter().filter(|problem| problem.contains("varve vg reduce data --missing takes it out"));
        assert_eq!(told.count(), 1, "{problems:?}");
        let reduce = GroupReduce { missing: true, ..Default::default() };
        control.reduce_group("data", reduce).await.expect("nothing lies there any more");
        assert_eq!(id(&disks[0]), Some(second), "the healthy member stays");
        let problems = control.status_with_problems().await.expect("it is asked").problems;
        assert!(problems.iter().all(|problem| !problem.starts_with("pv ")), "it is given up: {problems:?}");
    });
}
