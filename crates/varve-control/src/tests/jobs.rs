//! Tests of the numbers of jobs.

use super::*;
use varve_api::PhysicalVolumeMove;
use varve_block::UnixTime;
use varve_vg::Change;
use varve_vg::model::{Job, JobWork};
use varve_vg::plan::JobStep;

#[test]
fn a_group_that_has_used_up_its_numbers_of_jobs_takes_those_of_no_other_group() {
    with_disks(2, "64M", async |control, disks| {
        let paths = vec!["/other0".to_owned(), "/other1".to_owned()];
        let label =
            PhysicalVolumeCreate { paths: paths.clone(), size: Some("64M".into()), ..Default::default() };
        control.create_disks(label).await.expect("disks");
        let request = GroupCreate { name: "other".into(), paths: paths.clone(), ..Default::default() };
        control.create_group(request).await.expect("a group");
        for (name, disk) in [("data/v", &disks[0]), ("other/v", &paths[0])] {
            let on = vec![disk.clone()];
            let request = VolumeCreate { name: name.into(), size: "4M".into(), on, ..Default::default() };
            control.create_volume(request).await.expect("there is space");
        }
        let group = control.find_group("data").expect("it is there");
        let id = i64::MAX.unsigned_abs();
        let work = JobWork::FlattenImage { volume: Uuid::nil(), image: "/image".into() };
        let last = Job { id, subject: "data/v".into(), started: UnixTime(0), groups: Vec::new(), work };
        for step in [JobStep::Begin(last), JobStep::End { ids: vec![id] }] {
            control
                .commits(group)
                .await
                .make(group, Change::Jobs(step), "a test")
                .await
                .expect("it is allowed");
        }
        let empty = async |from: &String| {
            let request = PhysicalVolumeMove { from: from.clone(), ..Default::default() };
            control.move_disk(request).await
        };
        let refused = empty(&disks[0]).await.map(drop);
        assert!(refused.is_err(), "it has no number left");
        let moved = empty(&paths[0]).await;
        let Ok(Changed::Done(job)) = &moved else { panic!("{moved:?}") };
        assert!(job.id.parse::<u64>().expect("a number") < 100, "{}", job.id);
        ended(&control, moved).await;
    });
}
