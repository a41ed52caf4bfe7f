//! Freed space is taken again before untouched space: what a pool and a store touch of a sparse disk.

use crate::common::{fresh, sound, volume};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_block::{BlockDevice, Bytes, Checked, Completion, Device, Durability, Io, KIB, MIB, Shape};
use varve_sim::{ModelDisk, Random, World};
use varve_target::snapshot::{FormatOptions, NewSnapshot, SnapshotStore, StoreOptions, Uuid};
use varve_target::thin::Pool;

const PART: u64 = 4 * KIB;
const SIZE: u64 = 512 * MIB;
const ROUNDS: u64 = 10;

/// A disk that notes which parts of 4 KiB were ever written: what a sparse file would hold.
struct Sparse {
    below: Device,
    touched: Rc<RefCell<BTreeSet<u64>>>,
}

impl BlockDevice for Sparse {
    fn shape(&self) -> Shape {
        self.below.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if let Io::Write { offset, data, .. } = &io {
            self.touched.borrow_mut().extend(offset / PART..(offset + data.len() as u64).div_ceil(PART));
        }
        self.below.submit(io)
    }
}

struct Bench {
    world: World,
    device: Device,
    touched: Rc<RefCell<BTreeSet<u64>>>,
    data: Bytes,
}

impl Bench {
    fn new() -> Bench {
        let world = World::steady(1);
        let touched = Rc::default();
        let below = ModelDisk::new(SIZE).device(&world);
        let device = Device::new(Sparse { below, touched: Rc::clone(&touched) });
        let data = world.arena().take_zeroed(MIB as usize).freeze();
        Bench { world, device, touched, data }
    }

    /// Writes so many bytes at each of these offsets.
    async fn write(&self, device: &Device, offsets: impl IntoIterator<Item = u64>, bytes: u64) {
        for offset in offsets {
            let data = self.data.slice(0, bytes as usize);
            device.write(offset, data, Durability::Volatile).await.expect("there is space");
        }
    }

    /// How much of the disk was ever written.
    fn touched_share(&self) -> f64 {
        (self.touched.borrow().len() as u64 * PART) as f64 / SIZE as f64
    }
}

/// As a daemon does: a commit comes when it is due.
async fn remove(pool: &Pool, id: u64) {
    pool.remove(id).await.expect("listed");
    while pool.remove_some(100).await.expect("no faults").volumes > 0 {
        pool.commit_if_due().await.expect("no faults");
    }
    pool.commit().await.expect("no faults");
}

#[test]
fn a_pool_that_is_filled_to_the_half_and_emptied_again_and_again_touches_little_more() {
    for bytes in [MIB, 64 * KIB] {
        let bench = Bench::new();
        bench.world.run(async {
            let pool = fresh(bench.device.clone(), &bench.world).await;
            let mut random = Random::new(7);
            for round in 0..ROUNDS {
                let (id, device) = volume(&pool, &format!("v{round}"), SIZE / 2).await;
                let mut offsets: Vec<u64> = (0..SIZE / 2).step_by(bytes as usize).collect();
                if bytes < MIB {
                    random.shuffle(&mut offsets);
                }
                bench.write(&device, offsets, bytes).await;
                if bytes == MIB {
                    let runs = pool.check().await.expect("no faults").runs;
                    assert!(runs < 100, "round {round}: what is written in sequence lies so: {runs} runs");
                }
                remove(&pool, id).await;
            }
            sound(&pool).await;
        });
        let share = bench.touched_share();
        assert!(share <= 0.6, "writes of {bytes} bytes: {share:.3} of the pool were touched");
    }
}

/// Blocks of the log, of nodes and of data that was replaced come back while others are in use.
#[test]
fn a_pool_whose_snapshots_come_and_go_touches_little_more_than_it_holds() {
    const VOLUME: u64 = SIZE / 4;
    const UNIT: u64 = 64 * KIB;
    let bench = Bench::new();
    bench.world.run(async {
        let pool = fresh(bench.device.clone(), &bench.world).await;
        let (id, device) = volume(&pool, "v", VOLUME).await;
        bench.write(&device, (0..VOLUME).step_by(MIB as usize), MIB).await;
        let mut random = Random::new(7);
        for round in 0..ROUNDS * 3 {
            let snapshot = pool.snapshot(id, &format!("s{round}"), true).await.expect("there is space");
            for _ in 0..4 {
                let offsets = (0..500).map(|_| random.below(VOLUME / UNIT) * UNIT);
                bench.write(&device, offsets.collect::<Vec<_>>(), UNIT).await;
                pool.commit().await.expect("no faults");
            }
            remove(&pool, snapshot).await;
        }
        sound(&pool).await;
    });
    let share = bench.touched_share();
    assert!(share <= 0.5, "{share:.3} of the pool were touched for a quarter and what snapshots kept of it");
}

#[test]
fn a_store_that_is_filled_to_the_half_and_emptied_again_and_again_touches_little_more() {
    for bytes in [MIB, 64 * KIB] {
        let bench = Bench::new();
        let (arena, clock) = (bench.world.arena(), bench.world.clock());
        bench.world.run(async {
            let format = FormatOptions { chunk_size: 64 * KIB, ..FormatOptions::new(Uuid::from_u128(1)) };
            SnapshotStore::format(&bench.device, &arena, format).await.expect("large enough");
            let origin = ModelDisk::new(SIZE / 2).device(&bench.world);
            let options = StoreOptions::default();
            let opened =
                SnapshotStore::open(origin, bench.device.clone(), arena.clone(), clock, options).await;
            let (store, mut random) = (opened.expect("just formatted"), Random::new(7));
            for round in 0..ROUNDS {
                let new = NewSnapshot { name: format!("s{round}"), read_only: true, held: false };
                let id = store.create(&new).await.expect("there is space");
                let mut offsets: Vec<u64> = (0..SIZE / 2).step_by(bytes as usize).collect();
                if bytes < MIB {
                    random.shuffle(&mut offsets);
                }
                bench.write(&store.origin(), offsets, bytes).await;
                store.remove(id).await.expect("listed");
            }
            store.verify().await.expect("no faults");
        });
        let share = bench.touched_share();
        assert!(share <= 0.6, "writes of {bytes} bytes: {share:.3} of the store were touched");
    }
}
