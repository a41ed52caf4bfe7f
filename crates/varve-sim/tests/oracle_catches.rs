//! Negative controls: devices that break their word, each in one way, and the oracle that notices all of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Durability, Extent, Io, KIB, Outcome, Shape, ZeroOptions,
};
use varve_sim::{
    Client, CrashAt, CrashKind, DiskOptions, FaultBudget, FaultPlan, Mix, Oracle, Random, SharedOracle,
    SimDisk, World, caught,
};

const SIZE: u64 = 32 * KIB;
const SEEDS: u64 = 200;

/// How a device breaks its word.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Sin {
    None,
    FlushForgotten,
    DurableTakenForVolatile,
    FlushAnsweredBeforeItIsDone,
    WriteAnsweredBeforeItIsDone,
    WriteDropped,
    WriteShortened,
    WriteElsewhere,
    ReadFromElsewhere,
    ReadOfThePast,
    ZeroIgnored,
    ZeroTooLong,
    DiscardWritesRubbish,
}

const SINS: [Sin; 12] = [
    Sin::FlushForgotten,
    Sin::DurableTakenForVolatile,
    Sin::FlushAnsweredBeforeItIsDone,
    Sin::WriteAnsweredBeforeItIsDone,
    Sin::WriteDropped,
    Sin::WriteShortened,
    Sin::WriteElsewhere,
    Sin::ReadFromElsewhere,
    Sin::ReadOfThePast,
    Sin::ZeroIgnored,
    Sin::ZeroTooLong,
    Sin::DiscardWritesRubbish,
];

/// Passes requests on, but sins in one request of eight of the kind concerned.
struct Sinner {
    sin: Sin,
    device: Device,
    disk: SimDisk,
    random: RefCell<Random>,
    past: RefCell<Vec<u8>>,
    requests: Cell<u64>,
}

impl Sinner {
    fn sins(&self, sin: Sin) -> bool {
        self.sin == sin && self.random.borrow_mut().chance(1, 8)
    }

    /// Goes on with `io` after the answer.
    fn later(&self, io: Io) -> Completion<'_> {
        drop(self.device.submit(io));
        Completion::done()
    }

    fn write(&self, offset: u64, data: varve_block::Bytes, durability: Durability) -> Completion<'_> {
        let length = data.len() as u64;
        if self.sins(Sin::WriteDropped) {
            return Completion::done();
        }
        if self.sins(Sin::WriteShortened) && data.len() > 512 {
            return self.device.write(offset, data.slice(0, data.len() - 512), durability);
        }
        if self.sins(Sin::WriteElsewhere) && offset + length + 512 <= SIZE {
            return self.device.write(offset + 512, data, durability);
        }
        if self.sins(Sin::WriteAnsweredBeforeItIsDone) {
            return self.later(Io::Write { offset, data, durability });
        }
        let volatile = self.sin == Sin::DurableTakenForVolatile;
        self.device.write(offset, data, if volatile { Durability::Volatile } else { durability })
    }

    async fn read_the_past(&self, offset: u64, buffer: varve_block::Buffer) -> Outcome {
        let mut buffer = self.device.read(offset, buffer).await?;
        let start = usize::try_from(offset).expect("small");
        let length = buffer.len();
        buffer.copy_from_slice(&self.past.borrow()[start..start + length]);
        Ok(buffer)
    }
}

impl BlockDevice for Sinner {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.requests.set(self.requests.get() + 1);
        if self.requests.get() == 30 {
            self.past.replace(self.disk.peek(Extent::new(0, SIZE)));
        }
        match io.into_io() {
            Io::Write { offset, data, durability } => self.write(offset, data, durability),
            Io::Read { offset, buffer } if self.sins(Sin::ReadFromElsewhere) => {
                let end = offset + buffer.len() as u64;
                self.device.read(if end + 512 <= SIZE { offset + 512 } else { 0 }, buffer)
            }
            Io::Read { offset, buffer } if self.requests.get() > 60 && self.sins(Sin::ReadOfThePast) => {
                Completion::pending(self.read_the_past(offset, buffer))
            }
            Io::Zero { .. } if self.sins(Sin::ZeroIgnored) => Completion::done(),
            Io::Zero { extent, options } if self.sins(Sin::ZeroTooLong) && extent.end() < SIZE => {
                self.device.zero(Extent::new(extent.offset, extent.length + 512), options)
            }
            Io::Discard { extent } if self.sins(Sin::DiscardWritesRubbish) => {
                let rubbish = varve_block::Arena::heap(4096).copy(&vec![0xaa; extent.length as usize]);
                self.device.write(extent.offset, rubbish, Durability::Volatile)
            }
            Io::Flush if self.sin == Sin::FlushForgotten => Completion::done(),
            Io::Flush if self.sin == Sin::FlushAnsweredBeforeItIsDone => self.later(Io::Flush),
            io => self.device.submit(io),
        }
    }
}

/// One history on a sinner, with a crash; panics if the oracle notices.
fn history(seed: u64, sin: Sin) {
    let world = World::new(seed);
    let disk = SimDisk::new(SIZE);
    let mut random = world.random();
    let device = Device::new(Sinner {
        sin,
        device: disk.device(&world),
        disk: disk.clone(),
        random: RefCell::new(random.fork()),
        past: RefCell::new(vec![0; SIZE as usize]),
        requests: Cell::new(0),
    });
    let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, SIZE)));
    let client = Client::new(device, world.arena(), Rc::clone(&oracle));
    world.schedule_crash(CrashAt::Event(random.between(100, 300)));
    let mix = Mix { zeros: 3, discards: 3, durable_writes: 4, length_max: 4096, ..Mix::default() };
    let ran = world.run_until_crash(client.exercise(&mix, 300, &mut random));
    if !ran.crashed() {
        world.crash(CrashKind::Power);
    }
    oracle.borrow_mut().crashed();
    let client = Client::new(disk.device(&world), world.arena(), oracle);
    world.run(client.verify()).expect("no faults");
}

#[test]
fn an_honest_device_is_never_accused() {
    assert_eq!(caught(SEEDS, |seed| history(seed, Sin::None)), 0);
}

#[test]
fn every_sin_is_caught() {
    for sin in SINS {
        let count = caught(SEEDS, |seed| history(seed, sin));
        println!("{sin:?}: caught with {count} of {SEEDS} seeds");
        assert!(count * 10 >= SEEDS, "{sin:?} is caught with only {count} of {SEEDS} seeds");
    }
}

/// One history on a disk that is faulty itself.
fn on_faulty_disk(seed: u64, options: DiskOptions, plan: FaultPlan) {
    let world = World::new(seed);
    let disk = SimDisk::with(options);
    disk.set_faults(plan, FaultBudget::new(3, 1));
    let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, options.size)));
    let mut random = world.random();
    let client = Client::new(disk.device(&world), world.arena(), Rc::clone(&oracle));
    world.run(client.exercise(&Mix::default(), 100, &mut random)).expect("these faults are silent");
    world.crash(CrashKind::Power);
    oracle.borrow_mut().crashed();
    let client = Client::new(disk.device(&world), world.arena(), oracle);
    world.run(client.verify()).expect("these faults are silent");
}

#[test]
fn silent_faults_of_the_disk_itself_are_caught() {
    let sized = DiskOptions::sized(SIZE);
    let lying = DiskOptions { lies_about_flush: true, ..sized };
    let none = FaultPlan::default();
    let cases = [
        ("lies about flush", lying, none),
        ("bit rot", sized, FaultPlan { rot: 100_000, ..none }),
        ("misdirected writes", sized, FaultPlan { misdirected: 100_000, ..none }),
        ("lost writes", sized, FaultPlan { lost: 100_000, ..none }),
    ];
    for (name, options, plan) in cases {
        let count = caught(SEEDS, |seed| on_faulty_disk(seed, options, plan));
        assert!(count * 2 >= SEEDS, "{name}: caught with only {count} of {SEEDS} seeds");
    }
    assert_eq!(caught(SEEDS, |seed| on_faulty_disk(seed, sized, none)), 0);
}

/// Writes and flushes that fail leave what they touched uncertain, and nothing else.
#[test]
fn failing_requests_are_no_excuse_and_no_accusation() {
    for seed in 0..SEEDS {
        let world = World::new(seed);
        let disk = SimDisk::new(SIZE);
        let plan = FaultPlan {
            write_error: 100_000,
            flush_error: 100_000,
            no_space: 50_000,
            ..FaultPlan::default()
        };
        disk.set_faults(plan, FaultBudget::unlimited());
        let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, SIZE)));
        let mut random = world.random();
        let client = Client::new(disk.device(&world), world.arena(), Rc::clone(&oracle));
        let mut failed = 0;
        world.run(async {
            for _ in 0..100 {
                failed += u32::from(client.step(&Mix::default(), &mut random).await.is_err());
            }
            client.verify().await.expect("reads do not fail");
        });
        assert!(failed > 0);
        world.crash(CrashKind::Power);
        oracle.borrow_mut().crashed();
        let client = Client::new(disk.device(&world), world.arena(), oracle);
        world.run(client.verify()).expect("reads do not fail");
    }
}

#[test]
fn a_snapshot_holds_still_while_its_origin_moves_and_a_rollback_brings_it_back() {
    let world = World::new(1);
    let (origin_disk, copy_disk) = (SimDisk::new(SIZE), SimDisk::new(SIZE));
    let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, SIZE)));
    let origin = Client::new(origin_disk.device(&world), world.arena(), Rc::clone(&oracle));
    let all = Extent::new(0, 4096);
    world.run(async { origin.write(all, Durability::Durable).await }).expect("no faults");
    // The snapshot is a copy of the disk, the model a copy of the model.
    copy_disk.restore(&origin_disk.image());
    let model: SharedOracle = Rc::new(RefCell::new(oracle.borrow().snapshot(2)));
    let snapshot = Client::new(copy_disk.device(&world), world.arena(), Rc::clone(&model));
    world
        .run(async {
            origin.write(all, Durability::Volatile).await?;
            snapshot.zero(Extent::new(512, 512), ZeroOptions::default()).await?;
            snapshot.write(Extent::new(1024, 512), Durability::Volatile).await?;
            snapshot.verify().await?;
            origin.verify().await
        })
        .expect("no faults");
    let stamps: Vec<u64> = (0..4).map(|sector| model.borrow().allowed(sector * 512)[0].volume()).collect();
    assert_eq!(stamps, [1, 0, 2, 1], "the origin's, zeros, its own, the origin's");
    oracle.borrow_mut().restore(&model.borrow());
    let wrong = caught(1, |_| world.run(origin.read(all)).expect("no faults"));
    assert_eq!(wrong, 1, "the origin was not rolled back");
    let second = World::new(2);
    origin_disk.restore(&copy_disk.image());
    let origin = Client::new(origin_disk.device(&second), second.arena(), oracle);
    second.run(origin.verify()).expect("no faults");
}
