//! The texts of groups that are kept on the host.

use super::*;
use varve_vg::Group;
use varve_volume::world::ArchiveEntry;

/// The numbers of what was archived of a group; zero where it was removed.
fn numbers(group: Uuid) -> Vec<u64> {
    let archived = host().files.archived(group);
    archived.iter().map(|entry| entry.text.as_ref().map_or(0, |text| text.sequence)).collect()
}

async fn rest(control: &Control) {
    control.context.clock().sleep(Duration::from_secs(5)).await;
}

async fn rename(control: &Control, to: &str) {
    let from = control.list_groups()[0].name.clone();
    let request = varve_api::Rename { to: to.to_owned(), ..Default::default() };
    control.rename_group(&from, request).await.expect("no command waits for the archive, or fails by it");
}

#[test]
fn each_text_is_archived_once_and_a_full_file_system_delays_that() {
    with_control(async |control| {
        let group = control.find_group("data").expect("a group");
        rename(&control, "one").await;
        rest(&control).await;
        assert_eq!(numbers(group), [1, 2], "ARCHIVE1");
        host().files.set_archive_full(true);
        rename(&control, "two").await;
        rename(&control, "three").await;
        rest(&control).await;
        assert_eq!(numbers(group), [1, 2]);
        let problems = control.status_with_problems().await.expect("a status").problems;
        assert!(problems.len() == 1 && problems[0].starts_with("daemon / cannot be written"), "{problems:?}");
        host().files.set_archive_full(false);
        rest(&control).await;
        assert_eq!(numbers(group), [1, 2, 3, 4], "ARCHIVE1, ARCHIVE2");
        let sound = control.status_with_problems().await.expect("a status").problems;
        assert_eq!(sound, Vec::<String>::new());
        control.group_history("three").await.expect("a history");
        rest(&control).await;
        let archived = host().files.archived(group);
        let Some(ArchiveEntry { text: Some(last), .. }) = archived.last() else { panic!("ARCHIVE1") };
        let backup = control.backup_group("three").expect("a backup");
        assert_eq!((last.name.as_str(), &last.text), ("three", &backup.text), "ARCHIVE1");
        assert_eq!(Group::from_text(&last.text).expect("a group").entry().sequence, 4);
        control.remove_group("three", Remove::default()).await.expect("it is empty");
        rest(&control).await;
        assert_eq!(numbers(group), [1, 2, 3, 4, 0]);
    });
}
