//! Reading a snapshot from near and from afar: by how many snapshots there are from it to the origin.
//!
//! All of what is read was overwritten after the newest snapshot, and nothing of it before: a walk along the chain
//! would have to ask every snapshot on the way. Between the snapshots other places were written.

use crate::first_touch::{Load, read_places};
use crate::prelude::*;
use crate::tables::snapshot::stage::{MARGIN, Plan, Stores, Volume, store_for};
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

    async fn build(self, around: &Surroundings) -> Outcome<Volume> {
        let volume = self.plan().build(around).await?;
        OVERWRITE.write(&volume.front, around, 0, self.region).await?;
        Ok(volume)
    }

    /// Bytes a second of each load at `distance`.
    async fn speeds(self, around: &Surroundings, view: &Device) -> Outcome<Vec<f64>> {
        let mut speeds = Vec::new();
        for load in LOADS {
            let passes = if load.block < 64 << 10 { self.passes } else { self.passes.div_ceil(4) };
            let places = load.places(0, self.region).repeat(passes);
            speeds.push(read_places(view, around, &places, load.block, load.depth).await.of(load.name)?);
        }
        Ok(speeds)
    }
}

fn view(volume: &Volume, distance: u32) -> Outcome<Device> {
    volume.snapshot(volume.ids.len() - distance as usize)
}

/// On the model disk, in virtual time.
pub(crate) fn measure_model(_: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let part = model(Case { region: 32 * MIB, distances: &DISTANCES, passes: 1 })?;
    sheet.keep(&part)
}

fn model(case: Case) -> Outcome<Part> {
    let description =
        format!("the engine in the simulator on the model disk, {} MiB a load", case.region / MIB);
    let mut part = Part::exact("distance", "model disk", description);
    let world = World::steady(1);
    let around = Surroundings::simulated(&world, &ModelDisk::new(case.plan().disk()));
    world.run(async {
        let volume = case.build(&around).await?;
        for distance in case.distances {
            record(&mut part, *distance, &case.speeds(&around, &view(&volume, *distance)?).await?);
        }
        Ok::<(), Failed>(())
    })?;
    Ok(part)
}

/// On a file in memory, where looking up is most of the cost.
pub(crate) fn measure_memory(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
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
    let file = open(&path, Medium::Memory)?;
    let rounds = options.runs();
    let part = Shard::start()?.run(move |context| async move {
        all_rounds(case, Surroundings::of(&context, &file), rounds, empty).await
    });
    sheet.keep(&part?)
}

/// Round 0 warms up and does not count.
async fn all_rounds(case: Case, around: Surroundings, rounds: usize, mut part: Part) -> Outcome<Part> {
    let volume = case.build(&around).await?;
    for round in 0..=rounds {
        for distance in turns(case.distances, round) {
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
        let around = Surroundings::simulated(&world, &ModelDisk::new(case.plan().disk()));
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
