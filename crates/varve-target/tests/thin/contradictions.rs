//! Pools whose metadata contradicts itself under sound checksums: whatever is done to them ends, with an error or not, and
//! nothing breaks down.

use crate::common::{ID, open, volume, write};
use crate::fields::{Blocks, change_field};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Durability, Extent, KIB, MIB, ZeroOptions};
use varve_sim::{DiskImage, Random, SimDisk, World, run_seeds, test_name};
use varve_target::thin::{
    Backing, CheckPace, Discards, NewVolume, Origin, Pool, PoolError, PoolFormat, Uuid, check_pool,
    dump_pool, repair_pool,
};

const BLOCK: u64 = 4 * KIB;
const SIZE: u64 = 8 * MIB;
/// Whatever is done to a pool ends within so much time of its world.
const LIMIT: Duration = Duration::from_secs(3600);

struct OnDisk<'a>(&'a SimDisk);

impl Blocks for OnDisk<'_> {
    fn read(&self, block: u64) -> Vec<u8> {
        self.0.peek(Extent::new(block * BLOCK, BLOCK))
    }
    fn write(&mut self, block: u64, bytes: &[u8]) {
        self.0.poke(block * BLOCK, bytes);
    }
}

/// What the pools that are damaged were before.
#[derive(Clone, Copy, Debug)]
enum State {
    /// A checkpoint and nothing else.
    AtRest,
    /// With a log behind it.
    Logged,
    /// Small runs, many leaves, counts in several leaves.
    Ragged,
    /// Volumes are being removed, and the log speaks of it.
    Removing,
    /// No room is left for data.
    Full,
}

const STATES: [State; 5] = [State::AtRest, State::Logged, State::Ragged, State::Removing, State::Full];

thread_local! {
    static IMAGES: Vec<DiskImage> = STATES.iter().map(|state| made(*state)).collect();
}

fn made(state: State) -> DiskImage {
    let (world, disk) = (World::new(1), SimDisk::new(SIZE));
    world.run(fill(&world, disk.device(&world), state));
    disk.image()
}

async fn fill(world: &World, device: Device, state: State) {
    let arena = world.arena();
    let format = PoolFormat { block_size: 16 * KIB, log_bytes: Some(128 * KIB), ..PoolFormat::new(ID) };
    Pool::format(&device, &arena, format).await.expect("large enough");
    let pool = open(device, world).await.expect("a new pool");
    let (one, front) = volume(&pool, "one", 16 * MIB).await;
    let (two, _) = volume(&pool, "two", MIB).await;
    let origin = Origin {
        backing: Backing::Snapshot { store: Uuid::from_u128(9), number: 3, created: 5 },
        bytes: 64 * KIB,
    };
    let over = NewVolume { name: "over".into(), bytes: MIB, origin: Some(origin) };
    pool.create(&over).await.expect("space");
    let (count, step) = if matches!(state, State::Ragged) { (700, 1) } else { (40, 7) };
    for part in 0..count {
        let extent = Extent::new(part * 2 * step * BLOCK, step.min(3) * BLOCK);
        write(&front, &arena, extent, 1).await.expect("space");
    }
    let three = pool.snapshot(one, "three", false).await.expect("space");
    pool.snapshot(three, "four", true).await.expect("space");
    for part in 0..count / 3 {
        write(&front, &arena, Extent::new(part * 3 * BLOCK, BLOCK), 2).await.expect("space");
    }
    pool.checkpoint().await.expect("no faults");
    let third = pool.volume(three).expect("listed");
    write(&third, &arena, Extent::new(0, 40 * KIB), 3).await.expect("space");
    if matches!(state, State::AtRest | State::Full | State::Ragged) {
        pool.checkpoint().await.expect("no faults");
    }
    let mut at = 0;
    while matches!(state, State::Full) && write(&third, &arena, Extent::new(at, 16 * KIB), 4).await.is_ok() {
        at += 16 * KIB;
    }
    if matches!(state, State::Removing) {
        pool.remove(three).await.expect("listed");
        pool.remove_some(1).await.expect("no faults");
    }
    if matches!(state, State::Logged) {
        pool.roll_back(two, three).await.expect("space");
        pool.resize(three, 512 * KIB).await.expect("space");
        pool.rename(three, "other").await.expect("it is free");
    }
    front.discard(Extent::new(64 * KIB, 64 * KIB)).await.expect("no faults");
    front.flush().await.expect("no faults");
}

/// Everything that a daemon does with a pool; errors are no end.
async fn use_it(world: &World, device: Device) -> Result<(), PoolError> {
    let (pool, arena) = (open(device, world).await?, world.arena());
    pool.set_discards(Discards::PassDown);
    for info in pool.list() {
        let Ok(front) = pool.volume(info.id) else { continue };
        let size = front.shape().size;
        let ends = [0, 64 * KIB, size.saturating_sub(256 * KIB)];
        for start in ends.into_iter().filter(|start| *start < size) {
            let extent = Extent::between(start, size.min(start + 256 * KIB));
            let length = usize::try_from(extent.length).expect("small");
            let _ = front.read(extent.offset, arena.take(length)).await;
            let _ = front.status(extent).await;
            let _ = write(&front, &arena, Extent::new(extent.offset, BLOCK), 7).await;
            let _ = write(&front, &arena, extent, 8).await;
        }
        let _ = front.discard(Extent::new(0, size.min(128 * KIB))).await;
        let zeros = ZeroOptions { durability: Durability::Volatile, ..ZeroOptions::default() };
        let _ = front.zero(Extent::new(0, BLOCK), zeros).await;
        let _ = front.flush().await;
        let _ = pool.volume_space(info.id).await;
        let _ = pool.snapshot(info.id, "new", false).await;
        let _ = pool.commit_if_due().await;
    }
    let _ = pool.checkpoint().await;
    let infos = pool.list();
    let pace: &CheckPace<'_> = &|_, _| Box::pin(std::future::ready(Ok(())));
    let _ = pool.check_last_commit(pace).await;
    if let [first, .., last] = &infos[..] {
        let _ = pool.diff(first.id, last.id).await;
        let _ = pool.roll_back_in_size(first.id, last.id, first.bytes).await;
        let _ = pool.resize(last.id, 64 * KIB).await;
        let _ = pool.empty(last.id).await;
        let _ = pool.remove(first.id).await;
    }
    for info in infos.iter().skip(2) {
        let _ = pool.remove(info.id).await;
    }
    for _ in 0..40 {
        match pool.remove_some(50).await {
            Ok(removal) if removal.volumes > 0 => {}
            _ => break,
        }
    }
    let new = NewVolume { name: "new".into(), bytes: MIB, origin: None };
    if let Ok(id) = pool.create(&new).await
        && let Ok(front) = pool.volume(id)
    {
        let _ = write(&front, &arena, Extent::new(0, MIB), 9).await;
    }
    pool.checkpoint().await?;
    pool.checkpoint().await
}

/// Inspects an offline pool and repairs it; then it opens.
async fn mend(world: &World, device: Device) {
    let (arena, clock) = (world.arena(), world.clock());
    let _ = check_pool(&device, &arena, &clock).await;
    let _ = dump_pool(&device, &arena, &clock).await;
    let tried = repair_pool(&device, &arena, &clock, true).await;
    let mended = repair_pool(&device, &arena, &clock, false).await;
    assert_eq!(tried.is_ok(), mended.is_ok(), "a dry run says what would be: {tried:?} {mended:?}");
    if mended.is_ok() {
        let report = check_pool(&device, &arena, &clock).await.expect("it was written anew");
        assert!(report.is_sound(), "{report:#?}");
        let pool = open(device, world).await.expect("what was repaired opens");
        pool.checkpoint().await.expect("it takes changes");
    }
}

async fn ends<T>(world: &World, what: impl Future<Output = T>) -> T {
    match select(pin!(what), pin!(world.clock().sleep(LIMIT))).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => panic!("it hangs"),
    }
}

/// Changes fields of a pool, then opens, uses, checks and repairs it: each of these ends, with or without an error.
fn damage_and_use(seed: u64) {
    let mut random = Random::new(seed);
    let world = World::new(seed);
    let (used, mended) = (SimDisk::new(SIZE), SimDisk::new(SIZE));
    let state = random.index(STATES.len());
    IMAGES.with(|images| used.restore(&images[state]));
    for _ in 0..1 + random.below(3) {
        // Of a pool whose superblocks are both refused by now nothing more is changed.
        let _what = change_field(&mut OnDisk(&used), &mut || random.bits());
    }
    mended.restore(&used.image());
    world.run(ends(&world, async {
        let _ = use_it(&world, used.device(&world)).await;
        // As after a crash: what was used is opened again, and what was not is mended.
        if let Ok(pool) = open(used.device(&world), &world).await {
            drop(Rc::clone(&pool));
            let _ = pool.checkpoint().await;
        }
        mend(&world, mended.device(&world)).await;
        mend(&world, used.device(&world)).await;
    }));
}

#[test]
fn whatever_a_field_says_everything_ends_and_nothing_breaks_down() {
    let name = test_name!("whatever_a_field_says_everything_ends_and_nothing_breaks_down");
    run_seeds(name, 800, damage_and_use);
    // Numbers in damaged blocks lead to no large allocation.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    assert!(peak.is_none_or(|kib| kib < 1024 * KIB), "{peak:?} KiB of memory at most");
}
