//! A volume with its snapshots on one disk, in whichever world that disk is: what the engine's tables are measured on.
//!
//! Origin and exception stores share the disk, as they do in a volume group of one disk.

use crate::first_touch::CHUNK;
use crate::prelude::*;
use varve_sim::{Load, Measured, ModelDisk, Random, World, measure};
use varve_target::Linear;
use varve_target::snapshot::{FormatOptions, NewSnapshot, SnapshotStore, StoreOptions, Uuid, side_by_side};

/// Bytes at the end of an origin, for what is written between snapshots.
pub(crate) const MARGIN: u64 = 4 * MIB;
/// Bytes that are written between two snapshots.
const TOUCH: u64 = 4 * KIB;

/// Where snapshots keep what they preserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stores {
    /// Nowhere; there are none.
    None,
    /// In one store: they are dependent.
    Shared,
    /// Each in its own: they are independent.
    OneEach,
}

/// A volume to build.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Bytes of the origin.
    pub(crate) origin: u64,
    /// Bytes of each store.
    pub(crate) store: u64,
    /// Where its snapshots keep what they preserve.
    pub(crate) stores: Stores,
    /// How many there are.
    pub(crate) snapshots: u32,
    /// How the stores work.
    pub(crate) options: StoreOptions,
}

/// A volume that was built.
pub(crate) struct Volume {
    /// The origin, for any use.
    pub(crate) front: Device,
    /// The stores; one, one for each snapshot, or none.
    pub(crate) stores: Vec<Rc<SnapshotStore>>,
    /// The snapshots, the oldest first, as far as they share one store.
    pub(crate) ids: Vec<u64>,
}

impl Volume {
    /// Snapshot `number`, counted from the oldest.
    pub(crate) fn snapshot(&self, number: usize) -> Outcome<Device> {
        Ok(Rc::clone(&self.stores[0]).snapshot(self.ids[number])?)
    }
}

/// A volume on a model disk.
pub(crate) struct ModelBench {
    pub(crate) world: World,
    pub(crate) disk: ModelDisk,
    pub(crate) volume: Volume,
}

impl ModelBench {
    /// Builds it.
    pub(crate) fn new(plan: &Plan) -> Outcome<Self> {
        let (world, disk) = (World::steady(1), ModelDisk::new(plan.disk()));
        let volume = world.run(plan.build(&Surroundings::simulated(&world, &disk)))?;
        Ok(Self { world, disk, volume })
    }

    /// What `load` measures on `device`, and the time until it is flushed.
    pub(crate) fn run(&self, device: &Device, load: &Load, seed: u64) -> Outcome<(Measured, Duration)> {
        let (clock, arena, mut random) = (self.world.clock(), self.world.arena(), Random::new(seed));
        self.world.run(async {
            let began = clock.now();
            let measured = measure(device, &clock, &arena, load, &mut random).await?;
            device.flush().await?;
            Ok((measured, clock.now().since(began)))
        })
    }
}

impl Plan {
    /// Bytes of the disk.
    pub(crate) fn disk(&self) -> u64 {
        self.origin + self.store * self.store_count()
    }

    fn store_count(&self) -> u64 {
        match self.stores {
            Stores::None => 0,
            Stores::Shared => 1,
            Stores::OneEach => u64::from(self.snapshots),
        }
    }

    fn part(around: &Surroundings, start: u64, length: u64) -> Device {
        Device::new(Linear::new(vec![(length, around.disk.clone(), start)]))
    }

    /// Opens store `number` as the disk has it.
    pub(crate) async fn open(&self, around: &Surroundings, number: u64) -> Outcome<Rc<SnapshotStore>> {
        let (arena, clock) = (around.arena.clone(), around.clock.clone());
        let origin = Self::part(around, 0, self.origin);
        let device = Self::part(around, self.origin + number * self.store, self.store);
        let opened = SnapshotStore::open(origin, device, arena, clock, self.options).await;
        opened.map_err(Failed::from)
    }

    async fn fresh(&self, around: &Surroundings, number: u64) -> Outcome<Rc<SnapshotStore>> {
        let device = Self::part(around, self.origin + number * self.store, self.store);
        let format = FormatOptions::new(Uuid::from_u128(20_060_810 + u128::from(number)));
        SnapshotStore::format(&device, &around.arena, format).await?;
        self.open(around, number).await
    }

    /// Builds the volume; something is written between its snapshots.
    pub(crate) async fn build(&self, around: &Surroundings) -> Outcome<Volume> {
        let mut volume =
            Volume { front: Self::part(around, 0, self.origin), stores: Vec::new(), ids: Vec::new() };
        match self.stores {
            Stores::None => {}
            Stores::Shared => {
                let store = self.fresh(around, 0).await?;
                volume.front = store.origin();
                for number in 0..self.snapshots {
                    volume.ids.push(create(&store, &format!("s{number}")).await?);
                    self.touch(&volume.front, around, number).await?;
                }
                volume.stores.push(store);
            }
            Stores::OneEach => {
                for number in 0..self.snapshots {
                    let store = self.fresh(around, u64::from(number)).await?;
                    create(&store, "one").await?;
                    volume.stores.push(store);
                    volume.front = side_by_side(&volume.stores)?;
                    self.touch(&volume.front, around, number).await?;
                }
            }
        }
        volume.front.flush().await?;
        Ok(volume)
    }

    /// Lets the origin differ a little from the last snapshot.
    async fn touch(&self, front: &Device, around: &Surroundings, number: u32) -> Outcome<()> {
        let place = self.origin - MARGIN + u64::from(number) * TOUCH % MARGIN;
        let data = around.arena.take_zeroed(usize::try_from(TOUCH).expect("it is small")).freeze();
        let outcome = front.write(place, data, Durability::Volatile).await;
        outcome.map(drop).map_err(Failed::from)
    }
}

/// Takes a snapshot and returns its id.
pub(crate) async fn create(store: &Rc<SnapshotStore>, name: &str) -> Outcome<u64> {
    let new = NewSnapshot { name: name.to_owned(), read_only: true, held: false };
    store.create(&new).await.map_err(Failed::from)
}

/// Bytes of a store that is to keep `bytes` bytes of chunks, with room for the log and checkpoints.
pub(crate) fn store_for(bytes: u64) -> u64 {
    (bytes + 32 * MIB).next_multiple_of(CHUNK)
}
