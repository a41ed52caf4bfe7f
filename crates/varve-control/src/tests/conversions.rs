//! Tests of conversions that fail.

use super::*;
use varve_api::{Convert, JobState, Split};

#[test]
fn a_disk_of_the_new_layout_that_fails_ends_a_conversion_and_the_volume_is_as_it_was() {
    with_disks(3, "64M", async |control, disks| {
        make_linear(&control, "data/v", "16M").await;
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        let before = control.show_volume("data/v").await.expect("it is there").segments;
        let request = Convert {
            layout: Some(ShownLayout::Linear),
            on: vec![disks[2].clone()],
            rate: Some("2M".into()),
            ..Default::default()
        };
        let begun = control.convert_volume("data/v", request).await;
        let Ok(Changed::Done(job)) = begun else { panic!("{begun:?}") };
        set_refusing(&disks[2], true);
        while control.jobs.list.show(&job.id).expect("it is known").error.is_none() {
            control.context.clock().sleep(Duration::from_millis(20)).await;
        }
        write_block(&control, "data/v", 8 * MIB, 8).await.expect("it is served all the time");
        set_refusing(&disks[2], false);
        scan(&control).await;
        let _ = control.jobs.list.ended(&job.id).expect("it is known").await;
        let job = control.jobs.list.show(&job.id).expect("it is known");
        assert_eq!(job.state, JobState::Failed, "{job:?}");
        assert_eq!(control.show_volume("data/v").await.expect("it is there").segments, before);
        let found = content(&control, "data/v").await;
        assert_eq!((found[4096], found[8 << 20]), (7, 8));
        let group = control.find_group("data").expect("it is there");
        let owned = control.with_group(group, |known| known.group.owned_areas().count());
        assert_eq!(owned, Ok(before.len()), "nothing else is owned");
    });
}

#[test]
fn a_mirror_with_checksums_takes_requests_of_any_size_after_a_copy_was_split_off() {
    with_disks(2, "64M", async |control, _| {
        let request = VolumeCreate {
            name: "data/v".into(),
            size: "8M".into(),
            layout: Some(ShownLayout::Mirror),
            copies: Some(2),
            checksums: true,
            ..Default::default()
        };
        control.create_volume(request).await.expect("there is space");
        write_block(&control, "data/v", 100, 7).await.expect("it is served");
        let split = Split { to: "w".into(), ..Default::default() };
        control.split_volume("data/v", split).await.expect("both copies are equal");
        write_block(&control, "data/v", 10_001, 8).await.expect("TREES4");
        let found = content(&control, "data/v").await;
        assert_eq!((found[99], found[100], found[10_000], found[10_001]), (0, 7, 0, 8));
    });
}

#[test]
fn a_mirror_is_out_of_use_while_it_is_not_known_whether_a_copy_was_split_off() {
    with_disks(3, "64M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks[..2]).await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        set_slow(&disks[2], true);
        let clock = control.context.clock();
        let request = Split { to: "w".into(), ..Default::default() };
        let split = control.split_volume("data/v", request);
        let written = async {
            clock.sleep(Duration::from_secs(2)).await;
            write_block(&control, "data/v", 0, 8).await // It is held back until the commit has failed.
        };
        let (split, written) = join(split, written).await;
        assert!(split.is_err(), "the commit failed");
        assert_eq!(written, Err(IoError::Gone), "SPLIT1");
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Unusable, "SPLIT1");
        set_slow(&disks[2], false);
        clock.sleep(Duration::from_secs(40)).await;
        scan(&control).await;
        write_block(&control, "data/v", 0, 9).await.expect("the newer version counts");
        let first = [content(&control, "data/v").await[0], content(&control, "data/w").await[0]];
        assert_eq!(first, [9, 7], "SPLIT1");
    });
}
