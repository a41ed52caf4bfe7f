//! Tests of the table of problems: each row begins, names its remedy, is told once, and ends with the remedy.

use super::*;
use crate::host::remembered::{Remembered, RememberedExport};
use std::sync::Arc;
use varve_api::{
    Activate, ArrayFail, Code, Deactivate, Door, ExportCreate, ExportRemove, ExportState, Health,
    PhysicalVolumeRemove, ProblemKind, Rename, SnapshotRemove, VolumeChange,
};

/// Longer than it takes until files are looked at and what can be is tried again.
const SOON: Duration = Duration::from_secs(5);

/// What is not as it should be, by kind and name.
async fn problems(control: &Control) -> Vec<(ProblemKind, String)> {
    let status = control.status_with_problems().await.expect("it runs");
    assert!(status.attention.iter().all(|problem| !problem.help.is_empty()), "{:?}", status.attention);
    let is_named = |problem: &varve_api::Problem| !problem.help.contains("VG/");
    assert!(status.attention.iter().all(is_named), "a remedy names what it is for: {:?}", status.attention);
    assert_eq!(status.problems.len(), status.attention.len());
    status.attention.into_iter().map(|problem| (problem.kind, problem.name)).collect()
}

/// Waits for a while; then this is not as it should be, and nothing else.
async fn expect(control: &Control, wanted: &[(ProblemKind, &str)]) {
    control.context.clock().sleep(SOON).await;
    let wanted: Vec<_> = wanted.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
    assert_eq!(problems(control).await, wanted);
    if wanted.iter().all(|(_, name)| name.starts_with("data/")) {
        let groups = control.list_groups_with_health().await.expect("it runs");
        let health = if wanted.is_empty() { Health::Ok } else { Health::Attention };
        assert_eq!(groups[0].health, Some(health), "{wanted:?}");
    }
}

/// How often events of a subject begin so.
fn told(control: &Control, subject: &str, words: &str) -> usize {
    let events = control.events.list();
    events.iter().filter(|event| event.subject == subject && event.message.starts_with(words)).count()
}

/// Makes data/i, a volume in the image /images/i, which is over /images/i-base.
pub(super) async fn make_image_volume(control: &Control) {
    host().make_image("/images/i", 8 * MIB, Some(64 << 10), Some(7)).await;
    let (image, format) = (Some("/images/i".to_owned()), Some("qcow2".to_owned()));
    let request = VolumeCreate { name: "data/i".into(), image, format, ..Default::default() };
    control.create_volume(request).await.expect("it is an image");
}

/// Writes a MiB to `volume` at `at`.
async fn write_mib(control: &Control, volume: &str, at: u64) -> Result<(), IoError> {
    let located = control.find_any_volume(&name(volume)).expect("it is there");
    let id = located.volume.id;
    let written = located.home.run_for_test(async move |context: ShardContext| {
        let device = open::device(&context, id, None).ok_or(IoError::Gone)?;
        let data = context.arena().copy(&vec![7; usize::try_from(MIB).expect("it is small")]);
        device.write(at * MIB, data, Durability::Volatile).await.map(drop)
    });
    written.await.expect("a shard")
}

/// Writes so many MiB to `volume`, until one fails.
async fn fill(control: &Control, volume: &str, count: u64) -> Result<(), IoError> {
    for at in 0..count {
        write_mib(control, volume, at).await?;
    }
    Ok(())
}

fn fixed(when_full: WhenFull) -> PolicyWords {
    PolicyWords { when_full: Some(when_full), auto_extend: Some("off".into()), ..Default::default() }
}

#[test]
fn a_pool_without_space_is_a_problem_until_it_is_larger() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        let change = |policy| PoolChange { policy, ..Default::default() };
        control.change_pool("data/p", change(fixed(WhenFull::Error))).await.expect("it is there");
        let pool = Some("p".to_owned());
        let large = VolumeCreate { name: "data/t".into(), size: "1G".into(), pool, ..Default::default() };
        control.create_volume(large).await.expect("over-committed");
        expect(&control, &[]).await;
        assert_eq!(fill(&control, "data/t", 100).await, Err(IoError::NoSpace));
        expect(&control, &[(ProblemKind::SpaceRefused, "data/p")]).await;
        assert_eq!(told(&control, "data/p", "is full: writes failed"), 1, "WATCH1");
        let timeout = Some("20s".to_owned());
        let pause = PolicyWords { pause_timeout: timeout, ..fixed(WhenFull::Pause) };
        control.change_pool("data/p", change(pause)).await.expect("it is there");
        expect(&control, &[(ProblemKind::PoolFull, "data/p")]).await;
        let clock = control.context.clock();
        let begun = clock.now();
        let write = write_mib(&control, "data/t", 900);
        let look = async {
            clock.sleep(SOON).await;
            expect(&control, &[(ProblemKind::SpaceWaited, "data/p")]).await;
        };
        assert_eq!(join(write, look).await.0, Err(IoError::NoSpace));
        assert!(clock.now().since(begun) >= Duration::from_secs(20), "the first one waits");
        let begun = clock.now();
        for at in 901..921 {
            assert_eq!(write_mib(&control, "data/t", at).await, Err(IoError::NoSpace));
        }
        assert!(clock.now().since(begun) < Duration::from_secs(1), "WAITERS3");
        let more = Resize { size: "+64M".into(), ..Default::default() };
        control.extend_pool("data/p", more).await.expect("there is space");
        expect(&control, &[]).await;
        assert_eq!(write_mib(&control, "data/t", 900).await, Ok(()), "there is room");
        assert_eq!(told(&control, "data/p", "no longer: is full: writes failed"), 1, "WATCH1");
    });
}

#[test]
fn a_full_snapshot_store_and_a_dropped_snapshot_are_problems() {
    with_disks(1, "300M", async |control, _| {
        make_linear(&control, "data/a", "100M").await;
        let declare = async |when_full| {
            let policy = fixed(when_full);
            let change = VolumeChange { snapshot_policy: policy, ..Default::default() };
            control.change_volume("data/a", change).await.expect("it is there");
        };
        fill(&control, "data/a", 100).await.expect("it has no snapshot");
        declare(WhenFull::Error).await;
        make_snapshot(&control, "data/a@one").await;
        assert_eq!(fill(&control, "data/a", 100).await, Err(IoError::NoSpace));
        expect(&control, &[(ProblemKind::SpaceRefused, "data/a")]).await;
        let names = vec!["data/a@one".to_owned()];
        let remove = SnapshotRemove { names, ..Default::default() };
        control.remove_snapshots(remove).await.expect("it is there");
        expect(&control, &[]).await;
        declare(WhenFull::DropOldest).await;
        make_snapshot(&control, "data/a@two").await;
        assert_eq!(fill(&control, "data/a", 100).await, Ok(()), "the snapshot makes room");
        expect(&control, &[(ProblemKind::SnapshotDropped, "data/a")]).await;
        declare(WhenFull::Pause).await;
        expect(&control, &[]).await;
    });
}

#[test]
fn what_a_person_deactivated_is_as_it_should_be() {
    with_control(async |control| {
        make_linear(&control, "data/a", "16M").await;
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/t", Some("p"), None).await;
        control.deactivate_whole_group("data", Deactivate::default()).await.expect("nothing is exported");
        assert_ne!(state_of(&control, "data/a").await, VolumeState::Active);
        expect(&control, &[]).await;
        control.activate_whole_group("data", Activate::default()).await.expect("it is sound");
        assert_eq!(state_of(&control, "data/t").await, VolumeState::Active);
        expect(&control, &[]).await;
    });
}

#[test]
fn an_export_whose_socket_or_folder_goes_is_served_again_when_that_can_be() {
    with_control(async |control| {
        make_linear(&control, "data/a", "16M").await;
        make_linear(&control, "data/b", "16M").await;
        for volume in ["data/a", "data/b"] {
            let request = ExportCreate {
                volume: volume.to_owned(),
                door: Some(Door::Nbd),
                address: "unix:/run/x.sock".to_owned(),
                ..Default::default()
            };
            control.create_export(request).await.expect("the address is free");
        }
        let (files, state) = (Arc::clone(&host().files), async || {
            let exports = control.list_exports().await.expect("it runs");
            exports.iter().map(|export| export.state).collect::<Vec<_>>()
        });
        expect(&control, &[]).await;
        files.delete_socket(Path::new("/run/x.sock"));
        expect(&control, &[]).await;
        assert!(files.has_socket(Path::new("/run/x.sock")), "EXPORTS3: it listens anew");
        files.set_folder(Path::new("/run"), false);
        expect(&control, &[(ProblemKind::ExportDown, "e1"), (ProblemKind::ExportDown, "e2")]).await;
        assert_eq!(state().await, [ExportState::Down; 2]);
        files.set_folder(Path::new("/run"), true);
        expect(&control, &[]).await;
        assert_eq!(state().await, [ExportState::Serving; 2], "EXPORTS3");
        assert!(files.has_socket(Path::new("/run/x.sock")), "EXPORTS3");
        assert_eq!(told(&control, "e1", "of data/a at unix:/run/x.sock is down"), 1, "WATCH1");
    });
}

#[test]
fn an_export_that_other_hosts_reach_is_down_until_a_user_agrees() {
    with_control(async |control| {
        make_linear(&control, "data/a", "16M").await;
        let address = "tcp:192.0.2.1:10809".to_owned();
        let request = |insecure| {
            let (volume, door, address) = ("data/a".to_owned(), Some(Door::Nbd), address.clone());
            ExportCreate { volume, door, address, insecure, ..Default::default() }
        };
        let refused = control.create_export(request(false)).await.expect_err("other hosts reach it");
        assert_eq!(refused.code, Code::Exposed);
        // What an earlier version has made says nothing of it.
        let volume = control.find_volume(&name("data/a")).expect("it is there").volume.id;
        let text = format!(
            r#"{{"id":"e1","volume":"{volume}","name":"data/a","door":"nbd","address":"{address}","read_only":true}}"#
        );
        let remembered: RememberedExport = serde_json::from_str(&text).expect("a state of before");
        control.memory.remembered.borrow_mut().exports.push(remembered.clone());
        control.restore_export(remembered, control.context.clock().now()).await;
        expect(&control, &[(ProblemKind::ExportDown, "e1")]).await;
        let status = control.status_with_problems().await.expect("it runs");
        let mend = "varve export remove e1; varve export create data/a --nbd tcp:192.0.2.1:10809 --read-only --insecure";
        assert!(status.attention[0].help.starts_with(mend), "{:?}", status.attention);
        control.remove_export("e1", ExportRemove::default()).await.expect("it is known");
        control.create_export(request(true)).await.expect("a user agreed");
        expect(&control, &[]).await;
    });
}

#[test]
fn an_export_keeps_the_names_that_it_had_until_another_one_at_its_address_gets_them() {
    with_control(async |control| {
        let export = async |volume: &str| {
            let (volume, door, address) = (volume.to_owned(), Some(Door::Nbd), "unix:/run/x.sock".to_owned());
            let request = ExportCreate { volume, door, address, ..Default::default() };
            control.create_export(request).await.expect("the name is free");
        };
        let rename = async |from: &str, to: &str| {
            let request = Rename { to: to.to_owned(), ..Default::default() };
            control.rename_volume(from, request).await.expect("the name is free");
        };
        let aliases = || {
            let remembered = control.memory.remembered.borrow().text();
            let remembered = Remembered::parse(&remembered).expect("it was written just now");
            remembered.exports.into_iter().map(|export| (export.name, export.aliases)).collect::<Vec<_>>()
        };
        let known = |name: &str, aliases: &[&str]| {
            (name.to_owned(), aliases.iter().map(|alias| (*alias).to_owned()).collect())
        };
        make_linear(&control, "data/a", "16M").await;
        export("data/a").await;
        rename("data/a", "b").await;
        rename("data/b", "c").await;
        assert_eq!(aliases(), [known("data/c", &["data/a", "data/b"])]);
        make_linear(&control, "data/a", "16M").await;
        assert_eq!(aliases(), [known("data/c", &["data/a", "data/b"])], "it is exported nowhere");
        export("data/a").await;
        rename("data/c", "b").await;
        assert_eq!(aliases(), [known("data/b", &["data/c"]), known("data/a", &[])]);
        rename("data/a", "c").await;
        assert_eq!(aliases(), [known("data/b", &[]), known("data/c", &["data/a"])]);
    });
}

#[test]
fn a_full_file_system_and_a_deleted_file_are_problems_of_their_disk() {
    with_disks(1, "64M", async |control, disks| {
        let disk = disks[0].as_str();
        expect(&control, &[]).await;
        host().files.set_room(Some(4096));
        expect(&control, &[(ProblemKind::HostFull, disk)]).await;
        host().files.set_room(Some(1 << 30));
        expect(&control, &[]).await;
        host().files.delete(Path::new(disk));
        expect(&control, &[(ProblemKind::DiskUnlinked, disk)]).await;
        host().files.restore(Path::new(disk));
        expect(&control, &[]).await;
    });
}

#[test]
fn an_image_whose_file_has_lost_its_name_is_a_problem_of_its_volume_until_it_has_it_again() {
    with_control(async |control| {
        make_image_volume(&control).await;
        expect(&control, &[]).await;
        for file in ["/images/i", "/images/i-base"] {
            host().files.rename(file, "/elsewhere");
            expect(&control, &[(ProblemKind::ImageMoved, "data/i")]).await;
            host().files.make(Path::new(file), MIB);
            expect(&control, &[(ProblemKind::ImageMoved, "data/i")]).await;
            host().files.rename("/elsewhere", file);
            expect(&control, &[]).await;
            host().files.delete(Path::new(file));
            expect(&control, &[(ProblemKind::ImageDeleted, "data/i")]).await;
            host().files.restore(Path::new(file));
            expect(&control, &[]).await;
        }
    });
}

#[test]
fn a_full_file_system_below_an_image_is_a_problem_of_its_volume() {
    with_control(async |control| {
        make_image_volume(&control).await;
        host().files.set_room(Some(4096));
        control.context.clock().sleep(SOON).await;
        let status = control.status_with_problems().await.expect("it runs");
        let full = status.attention.iter().find(|problem| problem.name == "data/i").expect("STATUS");
        assert!(full.kind == ProblemKind::HostFull && full.message.contains("/images/i"), "{full:?}");
        host().files.set_room(Some(1 << 30));
        expect(&control, &[]).await;
    });
}

/// A disk of no group whose label cannot be wiped is forgotten, as the refusal says.
#[test]
fn a_disk_that_has_failed_and_is_in_no_group_is_forgotten() {
    with_control(async |control| {
        host().files.make(Path::new("/other"), 64 * MIB);
        let request = PhysicalVolumeCreate { paths: vec!["/other".to_owned()], ..Default::default() };
        control.create_disks(request).await.expect("it is free");
        host().set_faults("/other", FaultPlan { write_error: 1_000_000, ..FaultPlan::default() });
        let request = || PhysicalVolumeRemove { path: "/other".to_owned(), ..Default::default() };
        let refused = control.remove_disk(request()).await.expect_err("its label cannot be wiped");
        assert_eq!(refused.help, "varve pv forget /other leaves what is on it as it is");
        control.forget_disk(request()).await.expect("nothing is written");
        let is_known = || control.list_disks().iter().any(|disk| disk.path.as_deref() == Some("/other"));
        assert!(!is_known());
        control.scan_disks(PhysicalVolumeScan::default()).await.expect("all others are well");
        assert!(!is_known(), "it is remembered no more");
    });
}

#[test]
fn requests_that_failed_are_a_problem_until_a_person_scans() {
    with_disks(1, "64M", async |control, disks| {
        make_linear(&control, "data/a", "16M").await;
        host().set_faults(&disks[0], FaultPlan { latent: 1_000_000, ..FaultPlan::default() });
        let located = control.find_volume(&name("data/a")).expect("it is there");
        let id = located.volume.id;
        let read = located.home.run_for_test(async move |context: ShardContext| {
            let device = open::device(&context, id, None).expect("it is served");
            device.read(0, context.arena().take(4096)).await.map(drop)
        });
        assert_eq!(read.await.expect("a shard"), Err(IoError::Medium));
        host().set_faults(&disks[0], FaultPlan::default());
        expect(&control, &[(ProblemKind::DiskErrors, &disks[0])]).await;
        control.scan_disks(PhysicalVolumeScan::default()).await.expect("it is sound");
        expect(&control, &[]).await;
    });
}

#[test]
fn a_snapshot_store_whose_array_does_without_a_member_is_a_problem_of_its_volume() {
    with_disks(4, "128M", async |control, disks| {
        make_mirror(&control, "data/v", "96M", &disks[..2]).await; // The other disks have room for the store.
        make_snapshot(&control, "data/v@s").await;
        expect(&control, &[]).await;
        let request = ArrayFail { disk: disks[2].clone(), ..Default::default() };
        control.fail_members("data/v", request).await.expect("the other copy has all data");
        expect(&control, &[(ProblemKind::ArrayDegraded, "data/v")]).await;
        let reason = control.show_volume("data/v").await.expect("it is there").reason;
        let words = "members of the array of its snapshot store: 1 away";
        assert_eq!(reason.as_deref(), Some(words));
        let request = PhysicalVolumeScan { paths: disks[2..3].to_vec(), ..Default::default() };
        control.scan_disks(request).await.expect("it is sound");
        expect(&control, &[]).await;
    });
}
