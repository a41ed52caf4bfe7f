//! Rollbacks across crashes: what the target shows, how far it reaches, and who came before and after.

use std::rc::Rc;
use varve_block::{Device, Durability, Extent, IoError, KIB, MIB};
use varve_sim::{CrashKind, SimDisk, World, for_each_crash_point};
use varve_target::snapshot::{FormatOptions, NewSnapshot, SnapshotStore, StoreError, StoreOptions, Uuid, check_store};
use varve_target::{Linear, Segment};

const PART: u64 = 4 * KIB;

fn named(name: &str) -> NewSnapshot {
    NewSnapshot { name: name.into(), read_only: false, held: false }
}

async fn make(world: &World, origin: Device, store: Device) -> Rc<SnapshotStore> {
    let options = FormatOptions::new(Uuid::from_u128(1));
    SnapshotStore::format(&store, &world.arena(), options).await.expect("large enough");
    open(world, origin, store).await.expect("just formatted")
}

async fn open(world: &World, origin: Device, store: Device) -> Result<Rc<SnapshotStore>, StoreError> {
    SnapshotStore::open(origin, store, world.arena(), world.clock(), StoreOptions::default()).await
}

/// Writes parts of 4 KiB.
async fn write(device: &Device, world: &World, part: u64, count: u64, byte: u8) -> Result<(), IoError> {
    let data = vec![byte; usize::try_from(count * PART).expect("small")];
    device.write(part * PART, world.arena().copy(&data), Durability::Volatile).await.map(drop)
}

/// The first byte of each part.
async fn bytes(device: &Device, world: &World) -> Vec<u8> {
    let length = usize::try_from(device.shape().size).expect("small");
    let content = device.read(0, world.arena().take(length)).await.expect("readable");
    content.chunks(4096).map(|part| part[0]).collect()
}
