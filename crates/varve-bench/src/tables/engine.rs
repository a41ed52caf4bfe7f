//! The second table, where no daemon can be: the engine itself on a disk made slow, and on the model disk of the
//! simulator, whose figures are exact.
//!
//! Origin and exception store share the one disk, as they do in a volume group of one disk.

use crate::first_touch::{CHUNK, COUNTS, LOADS};
use crate::machine::{Machine, file_system};
use crate::options::{Medium, Options};
use crate::place::Place;
use crate::results::SnapshotPart;
use crate::tables::snapshots::empty_series;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Arena, Clock, Device, Durability, MIB};
use varve_os::{CacheMode, DiskFile, DiskOptions, Shards, ShardsConfig, ThrottleOptions, Throttled};
use varve_sim::{ModelDisk, World};
use varve_target::Linear;
use varve_target::snapshot::{FormatOptions, NewSnapshot, SnapshotStore, StoreOptions, Uuid};

/// Bytes after the regions, for what is written between snapshots.
const MARGIN: u64 = 4 * MIB;
/// Bytes of the exception store beside one byte for each byte of the origin.
const STORE_SPARE: u64 = 32 * MIB;
/// The slow disk.
const SLOW: ThrottleOptions = ThrottleOptions {
    bandwidth: 40 * MIB,
    latency: Duration::from_millis(2),
    latency_flush: Duration::from_millis(4),
};

/// What a run needs of the world that it runs in.
#[derive(Clone)]
struct Surroundings {
    disk: Device,
    arena: Arena,
    clock: Clock,
    /// Bytes that each load writes to.
    region: u64,
}

fn origin_size(region: u64) -> u64 {
    region * LOADS.len() as u64 + MARGIN
}

fn disk_size(region: u64) -> u64 {
    2 * origin_size(region) + STORE_SPARE
}

/// The origin of a fresh volume on the disk with so many snapshots, something written between them.
async fn origin(around: &Surroundings, snapshots: u32) -> Result<Device, String> {
    let size = origin_size(around.region);
    let part = |start: u64, length: u64| Device::new(Linear::new(vec![(length, around.disk.clone(), start)]));
    let bare = part(0, size);
    if snapshots == 0 {
        return Ok(bare);
    }
    let device = part(size, disk_size(around.region) - size);
    let id = FormatOptions::new(Uuid::from_u128(20_060_810));
    SnapshotStore::format(&device, &around.arena, id).await.map_err(|error| error.to_string())?;
    let (arena, clock) = (around.arena.clone(), around.clock.clone());
    let store = SnapshotStore::open(bare, device, arena, clock, StoreOptions::default())
        .await
        .map_err(|error| error.to_string())?;
    for snapshot in 0..snapshots {
        touch(&store, around, snapshot).await?;
    }
    Ok(store.origin())
}

/// Takes one more snapshot and lets the origin differ from it a little.
async fn touch(store: &Rc<SnapshotStore>, around: &Surroundings, number: u32) -> Result<(), String> {
    let new = NewSnapshot { name: format!("s{number}"), read_only: true, held: false };
    store.create(&new).await.map_err(|error| error.to_string())?;
    let place = origin_size(around.region) - MARGIN + u64::from(number) * CHUNK;
    let data = around.arena.take_zeroed(usize::try_from(CHUNK).expect("a chunk fits in memory")).freeze();
    let outcome = store.origin().write(place, data, Durability::Volatile).await;
    outcome.map(drop).map_err(|error| error.to_string())
}

/// Bytes a second of each load with that many snapshots.
async fn speeds(around: Surroundings, snapshots: u32) -> Result<Vec<f64>, String> {
    let origin = origin(&around, snapshots).await?;
    origin.flush().await.map_err(|error| error.to_string())?;
    let mut speeds = Vec::new();
    for (index, load) in LOADS.iter().enumerate() {
        let start = index as u64 * around.region;
        let speed = load.write(&origin, &around.arena, &around.clock, start, around.region).await;
        speeds.push(speed.map_err(|error| format!("{}: {error}", load.name))?);
    }
    Ok(speeds)
}

/// On the model disk, in virtual time.
pub(crate) fn measure_model() -> Result<SnapshotPart, String> {
    let region = 16 * MIB;
    let description = format!(
        "the engine in the simulator on a disk that serves one request at a time, 2 ms for each 64 KiB or part of \
         them, {} MiB a load",
        region / MIB
    );
    let mut part = empty_part("model disk", description, true);
    for (index, count) in COUNTS.iter().enumerate() {
        let world = World::steady(1);
        let around = Surroundings {
            disk: ModelDisk::new(disk_size(region)).device(&world),
            arena: world.arena(),
            clock: world.clock(),
            region,
        };
        record(&mut part, index, world.run(speeds(around, *count))?);
    }
    Ok(part)
}

/// On a throttled file in memory, in real time.
pub(crate) fn measure_slow(options: &Options) -> Result<SnapshotPart, String> {
    let region = if options.is_quick() { 4 * MIB } else { 32 * MIB };
    let parent = options.directory(Medium::Memory);
    let description = format!(
        "the engine on {} behind a throttle: {} MiB/s, {} ms a request, {} ms a flush, {} MiB a load, {} rounds",
        file_system(parent),
        SLOW.bandwidth / MIB,
        SLOW.latency.as_millis(),
        SLOW.latency_flush.as_millis(),
        region / MIB,
        options.runs()
    );
    let mut part = empty_part("slow disk", description, false);
    let place = Place::new(parent, disk_size(region))?;
    let path = place.file("disk", disk_size(region))?;
    let disk_options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
    let file = DiskFile::open(&path, disk_options).map_err(|error| error.to_string())?;
    let shards = Shards::start(&ShardsConfig::default()).map_err(|error| error.to_string())?;
    for round in 0..options.runs() {
        for turn in 0..COUNTS.len() {
            let index = (turn + round) % COUNTS.len();
            let file = file.clone();
            let outcome = shards.handle(0).run_and_wait(move |context| async move {
                let clock = context.clock();
                let disk = Device::new(Throttled::new(context.disk(&file), clock.clone(), SLOW));
                speeds(Surroundings { disk, arena: context.arena(), clock, region }, COUNTS[index]).await
            });
            record(&mut part, index, outcome.map_err(|error| error.to_string())??);
        }
        eprintln!("snapshots, slow disk: round {} of {}", round + 1, options.runs());
    }
    shards.stop();
    Ok(part)
}

fn empty_part(world: &str, description: String, exact: bool) -> SnapshotPart {
    let series = LOADS.iter().map(empty_series).collect();
    SnapshotPart { world: world.to_owned(), description, exact, machine: Machine::look(), series }
}

fn record(part: &mut SnapshotPart, index: usize, speeds: Vec<f64>) {
    for (series, speed) in part.series.iter_mut().zip(speeds) {
        series.points[index].bytes_per_second.push(speed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::snapshot_ratio;

    /// The figures of the model disk are exact, so the promise can be asserted: what one snapshot costs, sixteen do.
    #[test]
    fn sixteen_snapshots_cost_what_one_costs_on_the_model_disk() {
        let part = measure_model().expect("measured");
        let again = measure_model().expect("measured");
        for (series, same) in part.series.iter().zip(&again.series) {
            assert_eq!(series.rounds(16), same.rounds(16), "{}: exact figures repeat", series.load);
            let ratio = snapshot_ratio(series, 16, 1).expect("both were measured").median;
            assert!(ratio >= crate::verdict::SNAPSHOT_GOAL, "{}: {ratio}", series.load);
            let price = snapshot_ratio(series, 1, 0).expect("both were measured").median;
            assert!(price < 1.0, "{}: a copy is not free: {price}", series.load);
        }
    }
}
