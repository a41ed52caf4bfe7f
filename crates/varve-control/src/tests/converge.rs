//! Tests of what follows a change.

use super::*;
use varve_api::{Activate, Deactivate};
use varve_block::UnixTime;
use varve_vg::Change;
use varve_vg::model::{Job, JobWork, RemovedSnapshots};
use varve_vg::plan::JobStep;

#[test]
fn a_group_that_has_converged_stays_as_it_is() {
    with_disks(2, "600M", async |control, _| {
        make_volume(&control, "data/v", None, None).await;
        make_snapshot(&control, "data/v@a").await;
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/t", Some("data/p"), Some("data/v@a")).await;
        control.deactivate_pool("data/p", Deactivate::default()).await.expect("no client has it");
        let group = control.find_group("data").expect("it is there");
        let seen = async || {
            let sequence = control.with_group(group, |known| known.group.entry().sequence);
            (sequence, control.jobs.list.all().len(), control.list_volumes(None).await)
        };
        converge(&control, "data").await;
        let before = seen().await;
        converge(&control, "data").await;
        assert_eq!(seen().await, before, "CONVERGE1");
    });
}

/// A volume with a snapshot whose removal has begun and stands in no text; its identity.
async fn begin_unrecorded_removal(control: &Control) -> Uuid {
    make_volume(control, "data/v", None, None).await;
    make_snapshot(control, "data/v@a").await;
    converge(control, "data").await;
    let located = control.find_volume(&name("data/v")).expect("it is there");
    let target = control.facts(&located).await[0].target;
    let removed = located.home.volume(located.volume.id).remove_snapshot(target).await;
    assert_eq!(removed.map(|removed| removed.map(|removed| removed.is_ok())), Ok(Some(true)));
    located.volume.id
}

/// How many stores a volume has after a while.
async fn stores_later(control: &Control, volume: Uuid) -> usize {
    control.context.clock().sleep(Duration::from_secs(1)).await;
    control.entry_of(volume).expect("it is there").1.stores().count()
}

#[test]
fn a_removal_that_no_text_has_goes_on_when_its_volume_is_activated() {
    with_control(async |control| {
        let volume = begin_unrecorded_removal(&control).await;
        control.deactivate_volume("data/v", Deactivate::default()).await.expect("no client has it");
        control.activate_volume("data/v", Activate::default()).await.expect("its disk is here");
        assert_eq!(stores_later(&control, volume).await, 0, "CONVERGE3: its store is given back");
    });
}

#[test]
fn what_goes_on_in_a_volume_is_asked_again_when_a_job_on_it_has_failed() {
    with_control(async |control| {
        let volume = begin_unrecorded_removal(&control).await;
        converge(&control, "data").await;
        assert_eq!(stores_later(&control, volume).await, 1, "it was asked when it was taken into use");
        let (id, now) = (control.next_job(), control.now());
        let job = control.register_job(id, "rollback", "data/v@a", "bytes", Some(volume), now);
        control.finish_job(job.id, Err(Failure::new(Code::MediumFailed, "a test"))).await;
        converge(&control, "data").await;
        assert_eq!(stores_later(&control, volume).await, 0, "CONVERGE3");
    });
}

#[test]
fn a_job_of_two_groups_is_resumed_when_both_are_served() {
    with_control(async |control| {
        make_group(&control, "other", &["/other".to_owned()], "600M").await;
        let groups = ["data", "other"].map(|group| control.find_group(group).expect("it is there")).to_vec();
        let id = control.next_job_of(&groups);
        for (group, volume) in groups.iter().zip(["data/v", "other/v"]) {
            make_volume(&control, volume, None, None).await;
            make_snapshot(&control, &format!("{volume}@a")).await;
            let located = control.find_volume(&name(volume)).expect("it is there");
            let target = control.facts(&located).await[0].target;
            let (volume, store, numbers) = (located.volume.id, target.store, vec![target.number]);
            let part = RemovedSnapshots { volume, store, numbers, bytes: 4 * MIB };
            let work = JobWork::RemoveSnapshots { snapshots: vec![part] };
            let (subject, started) = ("data/v@a other/v@a".into(), UnixTime(0));
            let step = JobStep::Begin(Job { id, subject, started, groups: groups.clone(), work });
            control.commits(*group).await.make(*group, Change::Jobs(step), "a test").await.expect("it fits");
        }
        control.groups.unserved.borrow_mut().insert(groups[1]);
        converge(&control, "data").await;
        assert!(control.jobs.list.show(&id.to_string()).is_err(), "CONVERGE4");
        converge(&control, "other").await;
        control.converge_coordinators(&groups).await;
        control.context.clock().sleep(Duration::from_secs(1)).await;
        let job = control.jobs.list.show(&id.to_string()).expect("it keeps its number: CONVERGE4");
        assert_eq!(job.state, varve_api::JobState::Done);
        assert_eq!(control.list_snapshots(None).await, Ok(vec![]));
    });
}

#[test]
fn a_pool_that_grows_while_its_group_converges_stays_in_use() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        for step in 0..60_u64 {
            let beside = async {
                control.context.clock().sleep(Duration::from_micros(20 * step)).await;
                converge(&control, "data").await;
            };
            let request = Resize { size: "+4M".into(), ..Default::default() };
            let (extended, ()) = join(control.extend_pool("data/p", request), beside).await;
            extended.expect("RECONCILE3: there is space");
        }
        let events = control.events.list();
        let out = events.iter().find(|event| event.message.contains("taken out of use"));
        assert_eq!(out, None, "RECONCILE3");
    });
}

#[test]
fn a_volume_that_cannot_be_an_origin_leaves_pools_in_use_when_it_is_closed() {
    with_disks(1, "600M", async |control, _| {
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/v", None, None).await;
        make_volume(&control, "data/w", None, None).await;
        make_snapshot(&control, "data/w@a").await;
        let group = control.find_group("data").expect("it is there");
        let holds = || control.with_group(group, |known| known.may_hold_closed_origins());
        let close = |text: &str| {
            let volume = control.find_volume(&name(text)).expect("it is there").volume.id;
            control.take_out_of_use(group, volume, Failure::new(Code::VolumeUnusable, "it moved"));
        };
        close("data/v");
        assert_eq!(holds(), Ok(false), "it has no snapshot that could be an origin");
        close("data/w");
        assert_eq!(holds(), Ok(true), "REOPEN3");
    });
}
