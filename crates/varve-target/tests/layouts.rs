//! Linear and striped devices in the simulated world: random layouts over several disks, a crash at any moment.

use std::cell::RefCell;
use std::rc::Rc;
use varve_block::{Device, KIB};
use varve_sim::{
    Client, CrashAt, CrashKind, Mix, Oracle, Random, SharedOracle, SimDisk, World, run_seeds, test_name,
};
use varve_target::{Linear, Striped};

const DISK_SIZE: u64 = 256 * KIB;

/// Where a volume lies: made once, used again after each crash.
enum Layout {
    /// Length, disk, offset of each segment.
    Linear(Vec<(u64, usize, u64)>),
    Striped {
        stripe_size: u64,
        member_length: u64,
        offsets: Vec<u64>,
    },
}

impl Layout {
    fn random(random: &mut Random, disks: usize) -> Layout {
        if random.chance(1, 2) {
            let stripe_size = 512 << random.below(6);
            let member_length = stripe_size * random.between(1, 1 + 128 * KIB / stripe_size);
            let offsets = (0..disks).map(|_| random.below(128) * 512).collect();
            return Layout::Striped { stripe_size, member_length, offsets };
        }
        // Each segment has a place of its own on its disk.
        let mut used = vec![0; disks];
        let mut segments = Vec::new();
        for _ in 0..random.between(1, 9) {
            let disk = random.index(disks);
            let offset = used[disk] + random.below(8) * 512;
            let length = random.between(1, 60) * 512;
            used[disk] = offset + length;
            if used[disk] <= DISK_SIZE {
                segments.push((length, disk, offset));
            }
        }
        Layout::Linear(segments)
    }

    fn build(&self, disks: &[SimDisk], world: &World) -> Device {
        let devices: Vec<Device> = disks.iter().map(|disk| disk.device(world)).collect();
        match self {
            Layout::Linear(segments) => {
                let segment =
                    |(length, disk, offset): &(u64, usize, u64)| (*length, devices[*disk].clone(), *offset);
                Device::new(Linear::new(segments.iter().map(segment).collect()))
            }
            Layout::Striped { stripe_size, member_length, offsets } => {
                let members = devices.into_iter().zip(offsets.iter().copied()).collect();
                Device::new(Striped::new(members, *stripe_size, *member_length))
            }
        }
    }
}

fn history(seed: u64) {
    let world = World::new(seed);
    let mut random = world.random();
    let disks: Vec<SimDisk> = (0..random.between(1, 5)).map(|_| SimDisk::new(DISK_SIZE)).collect();
    let layout = Layout::random(&mut random, disks.len());
    let size = layout.build(&disks, &world).shape().size;
    let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, size)));
    for _ in 0..random.between(1, 4) {
        let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        world.schedule(CrashAt::Event(random.between(1, 200)), kind);
        let mix = Mix {
            depth: random.index(6) + 1,
            length_max: *random.pick(&[2 * KIB, 16 * KIB, 128 * KIB]),
            ..Mix::default()
        };
        let client = Client::new(layout.build(&disks, &world), world.arena(), Rc::clone(&oracle));
        let mut choices = random.fork();
        let ran = world.run_until_crash(async { client.exercise(&mix, 60, &mut choices).await });
        match (ran.crashed(), kind) {
            (true, CrashKind::Power) => oracle.borrow_mut().crashed(),
            (true, CrashKind::Process) => oracle.borrow_mut().killed(),
            (false, _) => {}
        }
        let client = Client::new(layout.build(&disks, &world), world.arena(), Rc::clone(&oracle));
        world.run(async { client.verify().await }).expect("no faults");
    }
}

#[test]
fn linear_and_striped_devices_keep_their_word() {
    run_seeds(test_name!("linear_and_striped_devices_keep_their_word"), 1000, history);
}
