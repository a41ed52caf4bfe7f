//! Volumes that get another layout in the simulated world: under clients, with failing disks, a crash at any moment.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Durability, Extent, IoError, KIB, MIB, Switch, ZeroOptions};
use varve_sim::{
    Client, CrashAt, CrashKind, DiskOptions, FaultBudget, FaultPlan, Mix, Oracle, Random, SharedOracle,
    SimDisk, World, caught_share, run_seeds, test_name,
};
use varve_target::array::{Array, ArrayLayout, ArrayOptions, ArraySpec, Member, MemberState, Uuid};
use varve_target::moving::{InjectedBug, Move, MoveState};
use varve_target::{Linear, Striped};

const SIZE: u64 = 128 * KIB;
const PIECE: u64 = 16 * KIB;
const METADATA: u64 = MIB;
/// How often the volume changes its layout.
const CONVERSIONS: usize = 3;

/// Two sets of disks, one for each of two layouts, and a block that says how many conversions there were.
struct Host {
    world: World,
    sets: [Vec<SimDisk>; 2],
    /// The layout that the volume has after so many conversions.
    layouts: Vec<Layout>,
    record: SimDisk,
    oracle: SharedOracle,
    bug: Option<InjectedBug>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Linear,
    Striped,
    Array(ArrayLayout),
}

const LAYOUTS: [Layout; 5] = [
    Layout::Linear,
    Layout::Striped,
    Layout::Array(ArrayLayout::Mirror { copies: 2 }),
    Layout::Array(ArrayLayout::Mirror { copies: 3 }),
    Layout::Array(ArrayLayout::Ddraid { order: 1, block_size: 8192 }),
];

impl Host {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let world = World::new(seed);
        let mut random = world.random();
        let mut disk = |size| {
            let latency_max = Duration::from_micros(*random.pick(&[50, 400, 4000]));
            SimDisk::with(DiskOptions { latency_max, ..DiskOptions::sized(size) })
        };
        let sets = [0, 1].map(|_| (0..3).map(|_| disk(METADATA + SIZE)).collect());
        let (record, oracle) = (disk(4096), Rc::new(RefCell::new(Oracle::new(1, SIZE))));
        let mut layouts = vec![Layout::Linear];
        layouts.extend((0..CONVERSIONS).map(|_| *random.pick(&LAYOUTS)));
        Self { world, sets, layouts, record, oracle, bug }
    }

    /// What is read may not be durable yet: a process that was killed may have written it.
    async fn converted(&self) -> Result<usize, IoError> {
        self.record.device(&self.world).flush().await?;
        let block = self.record.device(&self.world).read(0, self.world.arena().take(512)).await?;
        Ok(usize::from(block[0]))
    }

    async fn record(&self, converted: usize) -> Result<(), IoError> {
        let mut block = self.world.arena().take_zeroed(512);
        block[0] = u8::try_from(converted).expect("few conversions");
        let device = self.record.device(&self.world);
        device.write(0, block.freeze(), Durability::Durable).await.map(drop)
    }

    /// The device of the volume after so many conversions, which is made first if it is new; and its array.
    async fn tree(&self, converted: usize, is_new: bool) -> Result<(Device, Option<Rc<Array>>), IoError> {
        let disks: Vec<Device> =
            self.sets[converted % 2].iter().map(|disk| disk.device(&self.world)).collect();
        let layout = match self.layouts[converted] {
            Layout::Linear => return Ok((Device::new(Linear::new(vec![(SIZE, disks[0].clone(), 0)])), None)),
            Layout::Striped => {
                let members = disks[..2].iter().map(|disk| (disk.clone(), 0)).collect();
                return Ok((Device::new(Striped::new(members, 4096, SIZE / 2)), None));
            }
            Layout::Array(layout) => layout,
        };
        // One id for all arrays of the volume; that of a member belongs to a conversion.
        let spec = ArraySpec {
            id: Uuid::from_u128(7),
            layout,
            size: SIZE,
            metadata_size: METADATA,
            checksums: false,
        };
        let id = |place: usize| Uuid::from_u128(100 * (1 + converted as u128) + place as u128);
        let members: Vec<Member> = (0..layout.members())
            .map(|place| Member { id: id(place), device: Some(disks[place].clone()) })
            .collect();
        let failed = |_| IoError::Medium;
        if is_new {
            for disk in &disks[..layout.members()] {
                disk.zero(Extent::new(0, METADATA), ZeroOptions::default()).await?;
            }
            Array::create(&spec, &members, &self.world.arena()).await.map_err(failed)?;
        }
        let options = ArrayOptions::new(self.world.arena(), self.world.clock());
        let array = Array::open(spec, members, options).await.map_err(failed)?;
        let worker = Rc::clone(&array);
        self.world.spawner().spawn(async move { worker.background().await });
        Ok((array.device(), Some(array)))
    }

    /// Converts the volume below `switch`, which is on the array `current` or on none, once more; whether it has its new layout.
    async fn convert(
        &self,
        switch: &Switch,
        current: &RefCell<Option<Rc<Array>>>,
        converted: usize,
    ) -> Result<bool, IoError> {
        let old = switch.current();
        let Ok((new, array)) = self.tree(converted + 1, true).await else { return Ok(false) };
        let new = varve_block::accept_unaligned(new, self.world.arena());
        let moved = Rc::new(Move::new(&old, old.shape().extent(), &new, 0).with_bug(self.bug));
        switch.suspend().await.replace(moved.device());
        let prepared = async {
            while moved.left() > 0 {
                moved.copy(&self.world.arena(), PIECE).await?;
            }
            moved.prepare().await
        };
        let prepared = prepared.await.is_ok();
        let is_whole = array.as_ref().is_none_or(|array| {
            array.status().members.iter().all(|member| member.state == MemberState::InSync)
        });
        if prepared && is_whole {
            self.record(converted + 1).await?;
            moved.finish();
        } else {
            moved.abandon();
        }
        let is_moved = moved.state() == MoveState::Moved;
        switch.suspend().await.replace(if is_moved { new } else { old });
        // An array that is used no more writes no more: its disks are those of the next conversion.
        let left = if is_moved { current.replace(array) } else { array };
        if let Some(left) = left {
            let _ = left.close().await;
        }
        Ok(is_moved)
    }

    async fn boot(&self, random: &mut Random) -> Result<(), IoError> {
        let mut converted = self.converted().await?;
        let (device, array) = self.tree(converted, false).await?;
        let array = RefCell::new(array);
        let switch = Switch::new(varve_block::accept_unaligned(device, self.world.arena()));
        let client = Client::new(switch.device(), self.world.arena(), Rc::clone(&self.oracle));
        client.verify().await?;
        let mix = Mix { overlaps: 50, depth: 8, ..Mix::default() };
        let (count, mut choices) = (random.between(20, 200), random.fork());
        let converting = async {
            while converted < CONVERSIONS && self.convert(&switch, &array, converted).await? {
                converted += 1;
            }
            Ok(())
        };
        let worked = client.exercise_to_the_end(&mix, count, &mut choices);
        let (worked, converted) = futures_util::future::join(worked, converting).await;
        worked.and(converted)?;
        client.verify().await
    }
}

fn history(seed: u64, faults: bool, bug: Option<InjectedBug>) {
    let host = Host::new(seed, bug);
    let mut random = host.world.random();
    for _ in 0..random.between(1, 5) {
        let kind = if random.chance(1, 4) { CrashKind::Process } else { CrashKind::Power };
        let spread = *random.pick(&[60, 300, 1200, 4000]);
        host.world.schedule(CrashAt::Event(random.between(1, spread)), kind);
        if faults {
            let plan = match random.below(3) {
                0 => FaultPlan { write_error: 20_000, flush_error: 20_000, ..FaultPlan::default() },
                1 => FaultPlan { latent: 20_000, ..FaultPlan::default() },
                _ => FaultPlan { vanish: 2_000, ..FaultPlan::default() },
            };
            let set = &host.sets[random.index(2)];
            set[random.index(3)].set_faults(plan, FaultBudget::new(3, 1));
        }
        let mut choices = random.fork();
        let ran = host.world.run_until_crash(host.boot(&mut choices));
        host.world.disarm();
        if !ran.crashed() {
            host.world.crash(kind);
        }
        for disk in host.sets.iter().flatten() {
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
    assert_eq!(host.world.run(host.converted()), Ok(CONVERSIONS), "an interrupted conversion goes on");
}

#[test]
fn a_conversion_under_load_survives_every_crash() {
    run_seeds(test_name!("a_conversion_under_load_survives_every_crash"), 1500, |seed| {
        history(seed, false, None);
    });
}

#[test]
fn failing_disks_end_a_conversion_and_lose_nothing() {
    run_seeds(test_name!("failing_disks_end_a_conversion_and_lose_nothing"), 1500, |seed| {
        history(seed, true, None);
    });
}

fn noticed(bug: InjectedBug, percent_min: u64) {
    caught_share(&format!("{bug:?}"), 200, percent_min, |seed| history(seed, false, Some(bug)));
}

#[test]
fn a_switch_before_the_last_piece_is_copied_is_noticed() {
    noticed(InjectedBug::SkipLastPiece, 50);
}

#[test]
fn a_switch_before_the_flush_is_noticed() {
    noticed(InjectedBug::SkipFlush, 5);
}

#[test]
fn a_change_of_the_old_layout_only_is_noticed() {
    noticed(InjectedBug::ForgetNewPlace, 30);
}
