//! Runs that move between disks in the simulated world: under clients, with failing disks, a crash at any moment.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Arena, Device, Durability, Extent, IoError, KIB};
use varve_sim::{
    Client, CrashAt, CrashKind, DiskOptions, FaultBudget, FaultPlan, Mix, Oracle, Random, SharedOracle,
    SimDisk, World, caught_share, run_seeds, test_name,
};
use varve_target::Linear;
use varve_target::moving::{InjectedBug, MovableDisk, Move, MoveError};

const EXTENT: u64 = 16 * KIB;
const VOLUME: Extent = Extent::new(EXTENT, 6 * EXTENT);
const PIECE: u64 = 4 * KIB;

/// Three disks: where the volume lay first, where it goes, and a block that says how many of its extents count there.
struct Host {
    world: World,
    disks: [SimDisk; 2],
    record: SimDisk,
    oracle: SharedOracle,
    bug: Option<InjectedBug>,
}

/// How many extents count in the new place; `None` says that the move of the next one cannot go on.
type Moved = usize;

impl Host {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let world = World::new(seed);
        let mut random = world.random();
        let mut disk = |size| {
            let latency_max = Duration::from_micros(*random.pick(&[50, 400, 4000]));
            SimDisk::with(DiskOptions { latency_max, ..DiskOptions::sized(size) })
        };
        let disks = [disk(VOLUME.end() + EXTENT), disk(VOLUME.length)];
        let (record, oracle) = (disk(4096), Rc::new(RefCell::new(Oracle::new(1, VOLUME.length))));
        Self { world, disks, record, oracle, bug }
    }

    /// What is read may not be durable yet: a process that was killed may have written it.
    async fn moved(&self) -> Result<Moved, IoError> {
        self.record.device(&self.world).flush().await?;
        let block = self.record.device(&self.world).read(0, self.world.arena().take(512)).await?;
        Ok(usize::from(block[0]))
    }

    async fn record(&self, moved: Moved) -> Result<(), IoError> {
        let mut block = self.world.arena().take_zeroed(512);
        block[0] = u8::try_from(moved).expect("few extents");
        let device = self.record.device(&self.world);
        device.write(0, block.freeze(), Durability::Durable).await.map(drop)
    }

    /// The volume when so many of its extents have moved.
    fn volume(&self, moved: Moved) -> (Rc<MovableDisk>, Device) {
        let old = MovableDisk::new(self.disks[0].device(&self.world), []);
        let ahead = moved as u64 * EXTENT;
        let mut segments = vec![
            (ahead, self.disks[1].device(&self.world), 0),
            (VOLUME.length - ahead, Device::from_rc(old.clone()), VOLUME.offset + ahead),
        ];
        segments.retain(|(length, ..)| *length > 0);
        (old, Device::new(Linear::new(segments)))
    }

    /// Moves the extent `index`; whether it counts in its new place.
    async fn step(
        &self,
        old: &MovableDisk,
        new: &Device,
        index: usize,
        arena: &Arena,
    ) -> Result<bool, IoError> {
        let at = index as u64 * EXTENT;
        let extent = Extent::new(VOLUME.offset + at, EXTENT);
        let moved =
            Rc::new(Move::new(&self.disks[0].device(&self.world), extent, new, at).with_bug(self.bug));
        old.begin(&moved).await;
        let prepared: Result<(), MoveError> = async {
            while moved.left() > 0 {
                moved.copy(arena, PIECE).await?;
            }
            moved.prepare().await
        }
        .await;
        if prepared.is_ok() {
            self.record(index + 1).await?;
            moved.finish();
        }
        old.end(&moved, new).await;
        if prepared.is_ok() {
            // Freed space may belong to another owner: nothing of the volume reads it.
            let shape = self.disks[0].device(&self.world);
            let junk = vec![0xEE; usize::try_from(EXTENT).expect("small")];
            let _ = shape.write(extent.offset, arena.copy(&junk), Durability::Volatile).await;
        }
        Ok(prepared.is_ok())
    }

    /// Moves what is left while clients work, until the end or for some steps.
    async fn boot(&self, random: &mut Random) -> Result<(), IoError> {
        let moved = self.moved().await?;
        let (old, device) = self.volume(moved);
        let client = Client::new(device, self.world.arena(), Rc::clone(&self.oracle));
        client.verify().await?;
        let (mix, arena) = (Mix { overlaps: 50, depth: 8, ..Mix::default() }, self.world.arena());
        let (count, mut choices) = (random.between(20, 200), random.fork());
        let new = self.disks[1].device(&self.world);
        let moving = async {
            for index in moved..6 {
                if !self.step(&old, &new, index, &arena).await? {
                    break;
                }
            }
            if self.moved().await? == 6 {
                old.leave().await;
            }
            Ok(())
        };
        let (worked, moved) =
            futures_util::future::join(client.exercise_to_the_end(&mix, count, &mut choices), moving).await;
        worked.and(moved)?;
        client.verify().await
    }
}

fn history(seed: u64, faults: bool, bug: Option<InjectedBug>) {
    let host = Host::new(seed, bug);
    let mut random = host.world.random();
    for _ in 0..random.between(1, 4) {
        let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let spread = *random.pick(&[60, 300, 1200]);
        host.world.schedule(CrashAt::Event(random.between(1, spread)), kind);
        if faults {
            let plan = match random.below(3) {
                0 => (1, FaultPlan { write_error: 20_000, flush_error: 20_000, ..FaultPlan::default() }),
                1 => (0, FaultPlan { latent: 20_000, ..FaultPlan::default() }),
                _ => (1, FaultPlan { vanish: 2_000, ..FaultPlan::default() }),
            };
            host.disks[plan.0].set_faults(plan.1, FaultBudget::new(3, 1));
        }
        let mut choices = random.fork();
        let ran = host.world.run_until_crash(host.boot(&mut choices));
        host.world.disarm();
        if !ran.crashed() {
            host.world.crash(kind);
        }
        for disk in &host.disks {
            disk.enable_faults(false);
            disk.reappear();
            disk.repair();
        }
        match kind {
            CrashKind::Power => host.oracle.borrow_mut().crashed(),
            CrashKind::Process => host.oracle.borrow_mut().killed(),
        }
    }
    host.world.run(async { host.boot(&mut random).await.expect("nothing fails any more") });
    assert_eq!(host.world.run(host.moved()), Ok(6), "an interrupted move goes on");
}

#[test]
fn a_move_under_load_survives_every_crash() {
    run_seeds(test_name!("a_move_under_load_survives_every_crash"), 2000, |seed| history(seed, false, None));
}

#[test]
fn failing_disks_end_a_move_and_lose_nothing() {
    run_seeds(test_name!("failing_disks_end_a_move_and_lose_nothing"), 2000, |seed| {
        history(seed, true, None);
    });
}

fn noticed(bug: InjectedBug, percent_min: u64) {
    caught_share(&format!("{bug:?}"), 200, percent_min, |seed| history(seed, false, Some(bug)));
}

#[test]
fn a_change_of_the_old_place_only_is_noticed() {
    noticed(InjectedBug::ForgetNewPlace, 30);
}

/// Breaks MOVE3.
#[test]
fn a_copy_beside_its_writers_is_noticed() {
    noticed(InjectedBug::CopyBesideWriters, 3);
}

#[test]
fn a_switch_before_the_flush_is_noticed() {
    noticed(InjectedBug::SkipFlush, 5);
}

#[test]
fn a_switch_before_all_is_copied_is_noticed() {
    noticed(InjectedBug::SkipLastPiece, 50);
}

#[test]
fn nothing_goes_to_a_disk_that_was_left() {
    let (world, disk) = (World::new(1), SimDisk::new(64 * KIB));
    let movable = MovableDisk::new(disk.device(&world), []);
    let device = Device::from_rc(movable.clone());
    world.run(async {
        let read = async || device.read(0, world.arena().take(4096)).await.map(drop);
        assert_eq!(read().await, Ok(()));
        assert!(movable.is_plain(Extent::new(0, 4096)));
        let before = disk.counters();
        movable.leave().await;
        assert_eq!(read().await, Err(IoError::Gone));
        let _ = device.flush().await; // Whatever it says, it does not reach the disk.
        let after = disk.counters();
        assert_eq!((after.reads, after.flushes), (before.reads, before.flushes));
        assert!(!movable.is_plain(Extent::new(0, 4096)));
    });
}
