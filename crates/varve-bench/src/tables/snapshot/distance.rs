//! Reading a snapshot from near and from afar: by how many snapshots there are from it to the origin.
//!
//! All of what is read was overwritten after the newest snapshot, and nothing of it before: a walk along the chain
//! would have to ask every snapshot on the way. Between the snapshots other places were written.

use crate::first_touch::Load;
use crate::machine::file_system;
use crate::options::{Medium, Options};
use crate::programs::place::Place;
use crate::report::goal::Goal;
use crate::report::sheet::Sheet;
use crate::results::Part;
use crate::tables::snapshot::stage::{MARGIN, Plan, Stores, Surroundings, Volume, store_for};
use std::rc::Rc;
use varve_block::{Device, MIB};
use varve_os::{CacheMode, DiskFile, DiskOptions, Shards, ShardsConfig};
use varve_sim::{ModelDisk, World};
use varve_target::snapshot::StoreOptions;

/// From the snapshot that is read to the origin, the snapshot itself counted; the first is what the others are
/// compared with.
pub(crate) const DISTANCES: [u32; 4] = [1, 16, 256, 1024];
/// The loads, all of them reads.
pub(crate) const LOADS: [Load; 4] = [
    Load { name: "sequential 1 MiB", block: 1 << 20, depth: 1, random: false },
    Load { name: "random 64 KiB QD8", block: 64 << 10, depth: 8, random: true },
    Load { name: "random 4 KiB QD8", block: 4 << 10, depth: 8, random: true },
    Load { name: "random 4 KiB QD1", block: 4 << 10, depth: 1, random: true },
];
/// Overwrites everything.
const OVERWRITE: Load = Load { name: "overwrite", block: 1 << 20, depth: 8, random: false };

/// Throughput of reads of the oldest over that of the newest, at least.
const GOAL: Goal = Goal::AtLeast(0.95);
/// The column of the newest snapshot.
const NEWEST: &str = "the newest";

/// The column of a distance.
fn column(distance: u32) -> String {
    if distance == DISTANCES[0] { NEWEST.to_owned() } else { format!("{distance} away") }
}

/// Puts down one more round of all loads at `distance`.
fn record(part: &mut Part, distance: u32, speeds: &[f64]) {
    for (load, speed) in LOADS.iter().zip(speeds) {
        let record = part.at(load.name, &column(distance), "MiB/s");
        if distance == DISTANCES[DISTANCES.len() - 1] {
            record.over(NEWEST).goal(GOAL);
        }
        record.push(speed / MIB as f64);
    }
}

/// What is measured where.
#[derive(Clone, Copy)]
struct Case {
    region: u64,
    distances: &'static [u32],
    /// How often small reads go over the region, so that they take long enough to be timed.
    passes: usize,
}

impl Case {
    fn plan(&self) -> Plan {
        let snapshots = self.distances.iter().max().copied().unwrap_or(1);
        let origin = self.region + MARGIN;
        let (stores, options) = (Stores::Shared, StoreOptions::default());
        Plan { origin, store: store_for(origin), stores, snapshots, options }
    }

    async fn build(self, around: &Surroundings) -> Result<Volume, String> {
        let volume = self.plan().build(around).await?;
        let (arena, clock) = (&around.arena, &around.clock);
        let written = OVERWRITE.write(&volume.front, arena, clock, 0, self.region).await;
        written.map_err(|error| error.to_string())?;
        Ok(volume)
    }

    /// Bytes a second of each load at `distance`.
    async fn speeds(self, around: &Surroundings, view: &Device) -> Result<Vec<f64>, String> {
        let mut speeds = Vec::new();
        for load in LOADS {
            let passes = if load.block < 64 << 10 { self.passes } else { self.passes.div_ceil(4) };
            let speed = load.read(view, (&around.arena, &around.clock), 0, self.region, passes).await;
            speeds.push(speed.map_err(|error| format!("{}: {error}", load.name))?);
        }
        Ok(speeds)
    }
}

fn view(volume: &Volume, distance: u32) -> Result<Device, String> {
    let index = volume.ids.len() - usize::try_from(distance).expect("it is small");
    let store = Rc::clone(&volume.stores[0]);
    store.snapshot(volume.ids[index]).map_err(|error| error.to_string())
}

/// On the model disk, in virtual time.
pub(crate) fn measure_model(sheet: &mut Sheet) -> Result<(), String> {
    let part = model(Case { region: 32 * MIB, distances: &DISTANCES, passes: 1 })?;
    sheet.keep(&part)
}

fn model(case: Case) -> Result<Part, String> {
    let description =
        format!("the engine in the simulator on the model disk, {} MiB a load", case.region / MIB);
    let mut part = Part::exact("distance", "model disk", description);
    let world = World::steady(1);
    let disk = ModelDisk::new(case.plan().disk()).device(&world);
    let around = Surroundings { disk, arena: world.arena(), clock: world.clock() };
    world.run(async {
        let volume = case.build(&around).await?;
        for distance in case.distances {
            record(&mut part, *distance, &case.speeds(&around, &view(&volume, *distance)?).await?);
        }
        Ok::<(), String>(())
    })?;
    Ok(part)
}

/// On a file in memory, where looking up is most of the cost.
pub(crate) fn measure_memory(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    let (region, passes) = if options.is_quick() { (8 * MIB, 1) } else { (64 * MIB, 128) };
    let case = Case { region, distances: &DISTANCES, passes };
    let parent = options.directory(Medium::Memory);
    let description = format!(
        "the engine on {}, {} MiB read over and over, {} rounds",
        file_system(parent),
        region / MIB,
        options.runs()
    );
    let empty = Part::new("distance", "memory", description);
    let place = Place::new(parent, case.plan().disk())?;
    let path = place.file("disk", case.plan().disk())?;
    let disk_options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
    let file = DiskFile::open(&path, disk_options).map_err(|error| error.to_string())?;
    let shards = Shards::start(&ShardsConfig::default()).map_err(|error| error.to_string())?;
    let rounds = options.runs();
    let outcome = shards.handle(0).run_and_wait(move |context| async move {
        let (disk, arena, clock) = (context.disk(&file), context.arena(), context.clock());
        all_rounds(case, Surroundings { disk, arena, clock }, rounds, empty).await
    });
    shards.stop();
    let part = outcome.map_err(|error| error.to_string())??;
    sheet.keep(&part)
}

/// Round 0 warms up and does not count.
async fn all_rounds(case: Case, around: Surroundings, rounds: usize, mut part: Part) -> Result<Part, String> {
    let volume = case.build(&around).await?;
    for round in 0..=rounds {
        for turn in 0..case.distances.len() {
            let distance = case.distances[(turn + round) % case.distances.len()];
            let speeds = case.speeds(&around, &view(&volume, distance)?).await?;
            if round > 0 {
                record(&mut part, distance, &speeds);
            }
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_costs_nothing_on_the_model_disk() {
        let part = model(Case { region: 2 * MIB, distances: &[1, 64], passes: 1 }).expect("measured");
        for load in LOADS {
            let far = part.find(load.name, &column(64)).expect("it was measured");
            let ratio = part.ratio(far, &[NEWEST]).expect("both were measured").1.median;
            assert!((ratio - 1.0).abs() < 0.01, "{}: {ratio}", load.name);
        }
    }

    #[test]
    fn what_is_read_afar_is_what_was_there_before_the_overwrite() {
        let case = Case { region: MIB, distances: &[1, 8], passes: 1 };
        let world = World::steady(1);
        let disk = ModelDisk::new(case.plan().disk()).device(&world);
        let around = Surroundings { disk, arena: world.arena(), clock: world.clock() };
        world.run(async {
            let volume = case.build(&around).await.expect("built");
            for distance in [1, 8] {
                let read = view(&volume, distance).expect("there").read(4096, around.arena.take(4096)).await;
                assert!(read.expect("read").iter().all(|byte| *byte == 0), "{distance}");
            }
            let now = volume.front.read(4096, around.arena.take(4096)).await.expect("read");
            assert!(now.iter().any(|byte| *byte != 0), "the origin was overwritten");
        });
    }
}
