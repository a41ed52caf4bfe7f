//! Linear and striped devices in the simulated world: random layouts over several disks, a crash at any moment.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::{Device, IoError, KIB, Switch, accept_unaligned};
use varve_sim::{
    Client, CrashAt, CrashKind, DiskOptions, FaultBudget, FaultPlan, Mix, Oracle, Random, SharedOracle,
    SimDisk, World, caught_share, run_seeds, test_name,
};
use varve_target::{Linear, Striped};

const DISK_SIZE: u64 = 256 * KIB;

/// Where a volume is: made once, used again after each crash.
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
    fn random(random: &mut Random, disks: usize, block: u64) -> Layout {
        if random.chance(1, 2) {
            let stripe_size = block << random.below(4);
            let member_length = stripe_size * random.between(1, 1 + 128 * KIB / stripe_size);
            let offsets = (0..disks).map(|_| random.below(64 * KIB / block) * block).collect();
            return Layout::Striped { stripe_size, member_length, offsets };
        }
        // Each segment has a place of its own on its disk.
        let mut used = vec![0; disks];
        let mut segments = Vec::new();
        for _ in 0..random.between(1, 9) {
            let disk = random.index(disks);
            let offset = used[disk] + random.below(8) * block;
            let length = random.between(1, 1 + 30 * KIB / block) * block;
            used[disk] = offset + length;
            if used[disk] <= DISK_SIZE {
                segments.push((length, disk, offset));
            }
        }
        if segments.is_empty() {
            segments.push((block, 0, 0));
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

/// A disk with blocks of 512 bytes or of 4 KiB.
fn disk(random: &mut Random, block_size: u32) -> SimDisk {
    // Some disks hold back what was written for longer than others: each loses something else in a crash.
    let latency_max = Duration::from_micros(*random.pick(&[50, 400, 4000]));
    SimDisk::with(DiskOptions { block_size, latency_max, ..DiskOptions::sized(DISK_SIZE) })
}

fn set_faults(disks: &[SimDisk], plan: FaultPlan, budget: &FaultBudget) {
    for disk in disks {
        disk.repair();
        disk.reappear();
        disk.set_faults(plan, budget.clone());
    }
}

/// What goes wrong with one or two of the disks.
fn random_faults(random: &mut Random) -> (FaultPlan, FaultBudget) {
    let loud = FaultPlan { latent: 5000, write_error: 10_000, stall: 5000, ..FaultPlan::default() };
    let plan = match random.below(4) {
        0 => FaultPlan { flush_error: 20_000, ..loud },
        1 => FaultPlan { flush_loss: 40_000, ..loud },
        2 => FaultPlan { vanish: 5000, ..loud },
        _ => FaultPlan { no_space: 20_000, flush_error: 5000, flush_loss: 5000, vanish: 1000, ..loud },
    };
    (plan, FaultBudget::new(random.between(1, 12), random.index(2) + 1))
}

fn is_fault(error: IoError) -> bool {
    matches!(error, IoError::Medium | IoError::NoSpace | IoError::Gone)
}

/// Random requests, several at a time, until the end or the first fault of which more is not to be seen.
async fn exercise(client: &Client, mix: &Mix, faulty: bool, random: &mut Random) {
    let mut under_way = FuturesUnordered::new();
    for _ in 0..60 {
        let mut choices = random.fork();
        under_way.push(async move { client.step(mix, &mut choices).await });
        if under_way.len() == mix.depth {
            check_outcome(under_way.next().await, faulty);
        }
    }
    while let Some(outcome) = under_way.next().await {
        check_outcome(Some(outcome), faulty);
    }
}

fn check_outcome(outcome: Option<Result<(), IoError>>, faulty: bool) {
    if let Some(Err(error)) = outcome {
        assert!(faulty && is_fault(error), "no faults: {error}");
        FAILED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Histories on disks that fail, and requests that failed in them.
static HISTORIES: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

fn history(seed: u64, faulty: bool, lying: bool) {
    let world = World::new(seed);
    let mut random = world.random();
    let block_size = if random.chance(3, 4) { 4096 } else { 512 };
    let mut disks: Vec<SimDisk> = (0..random.between(1, 5)).map(|_| disk(&mut random, block_size)).collect();
    if lying {
        let liar = DiskOptions { lies_about_flush: true, ..disks[0].options() };
        disks[0] = SimDisk::with(liar);
    }
    let layout = Layout::random(&mut random, disks.len(), u64::from(block_size));
    let size = layout.build(&disks, &world).shape().size;
    let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, size)));
    let client = |world: &World| {
        let top = Switch::new(accept_unaligned(layout.build(&disks, world), world.arena()));
        Client::new(top.device(), world.arena(), Rc::clone(&oracle))
    };
    for _ in 0..random.between(1, 4) {
        let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        world.schedule(CrashAt::Event(random.between(1, 200)), kind);
        let mix = Mix {
            depth: random.index(6) + 1,
            length_max: *random.pick(&[2 * KIB, 16 * KIB, 128 * KIB]),
            ..Mix::default()
        };
        if faulty {
            let (plan, budget) = random_faults(&mut random);
            set_faults(&disks, plan, &budget);
        }
        let mut choices = random.fork();
        let ran =
            world.run_until_crash(async { exercise(&client(&world), &mix, faulty, &mut choices).await });
        let crashed = ran.crashed();
        if !crashed && faulty {
            // What a disk has lost it tells until it is opened again.
            world.crash(CrashKind::Process);
        }
        if disks.iter().filter(|disk| disk.take_lost_flush()).count() > 0 {
            oracle.borrow_mut().flush_failed();
        }
        match (crashed, kind) {
            (true, CrashKind::Power) => oracle.borrow_mut().crashed(),
            (true, CrashKind::Process) => oracle.borrow_mut().killed(),
            (false, _) if faulty => oracle.borrow_mut().killed(),
            (false, _) => {}
        }
        set_faults(&disks, FaultPlan::default(), &FaultBudget::unlimited());
        world.run(async { client(&world).verify().await }).expect("no faults");
    }
}

#[test]
fn linear_and_striped_devices_keep_their_word() {
    run_seeds(test_name!("linear_and_striped_devices_keep_their_word"), 1000, |seed| {
        history(seed, false, false);
    });
}

#[test]
fn disks_that_fail_under_linear_and_striped_devices_cost_requests_but_no_content() {
    let name = "disks_that_fail_under_linear_and_striped_devices_cost_requests_but_no_content";
    run_seeds(
        test_name!("disks_that_fail_under_linear_and_striped_devices_cost_requests_but_no_content"),
        1000,
        |seed| {
            HISTORIES.fetch_add(1, Ordering::Relaxed);
            history(seed, true, false);
        },
    );
    let failed = FAILED.load(Ordering::Relaxed);
    let _ = writeln!(std::io::stderr(), "sim: {name}: {failed} requests failed");
    assert!(HISTORIES.load(Ordering::Relaxed) < 500 || failed > 500, "disks fail");
}

#[test]
fn one_disk_of_several_that_lies_about_flushes_is_noticed() {
    caught_share("one disk of several lies about flushes", 200, 20, |seed| history(seed, false, true));
}
