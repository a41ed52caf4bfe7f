//! Crash runs of random requests on a bare disk: the disk keeps its word, and the oracle knows it.

use std::cell::RefCell;
use std::rc::Rc;
use varve_block::{Durability, Extent, KIB};
use varve_sim::{
    Client, CrashAt, CrashKind, Mix, Oracle, SharedOracle, SimDisk, World, for_each_crash_point,
    for_each_crash_state, run_seeds, test_name,
};

const SIZE: u64 = 64 * KIB;

fn client(world: &World, disk: &SimDisk, oracle: &SharedOracle) -> Client {
    Client::new(disk.device(world), world.arena(), Rc::clone(oracle))
}

#[test]
fn random_requests_survive_crashes_as_they_should() {
    run_seeds(test_name!("random_requests_survive_crashes_as_they_should"), 10_000, |seed| {
        let world = World::new(seed);
        let disk = SimDisk::new(SIZE);
        let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, SIZE)));
        let mut random = world.random();
        for _ in 0..3 {
            let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
            world.schedule(CrashAt::Event(random.between(1, 120)), kind);
            let client = client(&world, &disk, &oracle);
            let ran = world.run_until_crash(client.exercise(&Mix::default(), 60, &mut random));
            match (ran.crashed(), kind) {
                (false, _) => {}
                (true, CrashKind::Power) => oracle.borrow_mut().crashed(),
                (true, CrashKind::Process) => oracle.borrow_mut().killed(),
            }
        }
        let client = client(&world, &disk, &oracle);
        world.run(client.verify()).expect("no faults");
        world.run(client.verify()).expect("what was read once stays");
    });
}

/// Two writes that overlap, a flush, a durable write; then everything is read back.
fn small_scenario(world: &World) {
    let disk = SimDisk::new(SIZE);
    let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, SIZE)));
    let first = client(world, &disk, &oracle);
    let ran = world.run_until_crash(async {
        first.write(Extent::new(0, 1024), Durability::Volatile).await?;
        first.write(Extent::new(512, 1024), Durability::Volatile).await?;
        first.flush().await?;
        first.write(Extent::new(0, 512), Durability::Volatile).await?;
        first.write(Extent::new(512, 512), Durability::Durable).await
    });
    if ran.crashed() {
        oracle.borrow_mut().crashed();
    }
    let second = client(world, &disk, &oracle);
    world.run(second.verify()).expect("no faults");
}

#[test]
fn every_crash_point_of_a_small_scenario() {
    for seed in 1..50 {
        assert_eq!(for_each_crash_point(seed, small_scenario), 10, "five requests, submitted and completed");
    }
}

#[test]
fn every_crash_state_of_a_small_scenario() {
    let states = for_each_crash_state(1, 1000, small_scenario);
    // By hand: versions of sectors 0, 1, 2 since the last flush, plus one each, multiplied, after each event:
    // the first write 4, 4; the second 2 * 3 * 2 = 12, 12; the flush 12, then 1; the third 2, 2; the last 4, then 2.
    let expected = 4 + 4 + 12 + 12 + 12 + 1 + 2 + 2 + 4 + 2;
    assert_eq!((states.points, states.states, states.points_cut_short), (10, expected, 0));
}
