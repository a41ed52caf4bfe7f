//! Tests of backups that are written back.

use super::*;
use varve_api::GroupRestore;
use varve_block::UnixTime;
use varve_vg::model::{Area, Description, DiskMove, Job, JobWork, MoveStep, PvName};

/// The backup, as if the volume in it was being moved to the second disk and cleared when it was taken.
fn busy(text: &str) -> String {
    let mut description = Description::decode(text).expect("our own text");
    let volume = description.logical_volumes.iter().find(|volume| volume.name == "v").expect("it is there");
    let old = volume.segments[0].areas[0];
    let new = Area { pv: PvName(1), ..old };
    let step = Some(MoveStep { of: volume.id, old, new });
    let moved = JobWork::Move(DiskMove { from: old.pv, to: Vec::new(), rate: None, step });
    let works = [moved, JobWork::Clear { volume: volume.id, from: 0 }];
    let (subject, started) = ("data".to_owned(), UnixTime(5));
    let job = |(id, work)| Job { id, subject: subject.clone(), started, groups: Vec::new(), work };
    description.jobs = (1..).zip(works).map(job).collect();
    description.last_job = 2;
    description.encode()
}

#[test]
fn what_was_under_way_in_a_backup_does_not_go_on_after_a_restore() {
    with_disks(2, "200M", async |control, _| {
        make_linear(&control, "data/v", "8M").await;
        let text = busy(&control.backup_group("data").expect("it is there").text);
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        control.remove_volume("data/v", VolumeRemove::at_once()).await.expect("nobody uses it");
        let request = GroupRestore { text, ..Default::default() };
        let dry_run = GroupRestore { dry_run: true, ..request.clone() };
        let Ok(Changed::Planned(plan)) = control.restore_group("data", dry_run).await else {
            panic!("it is possible, and is only shown")
        };
        for words in ["warning: the move from pv0 was under way", "warning: data/v was being cleared"] {
            assert!(plan.steps.iter().any(|step| step.starts_with(words)), "{:?}", plan.steps);
        }
        control.restore_group("data", request).await.expect("nothing is lost");
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Active);
        control.context.clock().sleep(Duration::from_secs(60)).await;
        assert_eq!(content(&control, "data/v").await[4096], 7, "UNDERWAY1: nothing was written over");
        let id = control.find_group("data").expect("it is there");
        let is_idle = control.with_group(id, |known| known.group.jobs().is_empty()).expect("it is known");
        assert!(is_idle, "UNDERWAY1");
    });
}
