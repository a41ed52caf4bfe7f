//! The log of an array on a disk of its own, which may return older than it left.

use super::rig;
use std::rc::Rc;
use varve_block::{Durability, Extent, MIB};
use varve_sim::{CrashKind, SimDisk, World};
use varve_target::array::{Array, ArrayError, ArrayLayout, ArrayOptions, METADATA_SIZE_MIN};

const SIZE: u64 = 4 * MIB;

#[test]
fn an_old_log_disk_is_not_believed_although_a_crash_had_left_it_the_next_superblock() {
    let world = World::new(1);
    let spec = rig::spec(ArrayLayout::Mirror { copies: 2 }, SIZE, METADATA_SIZE_MIN);
    let disks = [0, 1].map(|_| SimDisk::new(METADATA_SIZE_MIN + SIZE));
    let log = SimDisk::new(spec.log_size());
    let members = || rig::members(disks.iter().map(|disk| disk.device(&world)));
    let open = async || -> Rc<Array> {
        let log_disk = Some(rig::member(2, Some(log.device(&world))));
        let options = ArrayOptions { log_disk, ..ArrayOptions::new(world.arena(), world.clock()) };
        rig::open(&world, spec, members(), options).await.expect("all are there")
    };
    world.run(Array::create(&spec, &members(), &world.arena())).expect("made");
    let before = disks.each_ref().map(SimDisk::image);
    world.run(open());
    world.crash(CrashKind::Process);
    // As if the crash had come when the log disk had the superblock that gives it the log, and no member had.
    let old = log.image();
    for (disk, image) in disks.iter().zip(&before) {
        disk.restore(image);
    }
    world.run(async {
        let array = open().await;
        let data = world.arena().copy(&[1; 4096]);
        array.device().write(0, data, Durability::Volatile).await.expect("no faults");
        assert!(array.status().log_disk.is_some_and(|log| log.has_log));
    });
    world.crash(CrashKind::Process);
    log.restore(&old);
    let status = world.run(open()).status();
    assert_eq!(status.unsynced, status.regions, "LOGDISK6: which regions were being written is not known");
}

#[test]
fn another_disk_that_says_it_is_the_log_disk_is_refused_as_it_is() {
    let world = World::new(1);
    let spec = rig::spec(ArrayLayout::Mirror { copies: 2 }, SIZE, METADATA_SIZE_MIN);
    let disks = [0, 1].map(|_| SimDisk::new(METADATA_SIZE_MIN + SIZE));
    let (log, other) = (SimDisk::new(spec.log_size()), SimDisk::new(spec.log_size()));
    let members = || rig::members(disks.iter().map(|disk| disk.device(&world)));
    world.run(Array::create(&spec, &members(), &world.arena())).expect("made");
    let all = Extent::new(0, spec.log_size());
    other.poke(0, &vec![7; usize::try_from(all.length).expect("small")]);
    world.run(async {
        let log_disk = Some(rig::member(2, Some(log.device(&world))));
        let options = ArrayOptions { log_disk, ..ArrayOptions::new(world.arena(), world.clock()) };
        let array = rig::open(&world, spec, members(), options).await.expect("all are there");
        let refused = array.attach_log(rig::member(2, Some(other.device(&world)))).await;
        assert_eq!(refused, Err(ArrayError::LogDisk("it has the log already")));
        assert!(other.peek(all).iter().all(|byte| *byte == 7), "nothing was written");
        assert!(array.status().log_disk.is_some_and(|log| log.has_log));
    });
}
