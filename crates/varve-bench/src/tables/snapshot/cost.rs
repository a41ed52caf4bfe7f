//! What a first touch costs the model disk, counted in requests, flushes and bytes: exact.

use crate::first_touch::COUNTS;
use crate::prelude::*;
use crate::tables::snapshot::stage::{ModelBench, Plan, Stores, store_for};
use varve_sim::{Amplification, CostMeter, Load, Measured, Random, measure as measure_load};
use varve_target::snapshot::StoreOptions;

/// Bytes of the origin.
const ORIGIN: u64 = 160 * MIB;
/// Bytes of a chunk.
const CHUNK: u64 = 64 * KIB;
/// Numbers of independent snapshots that are counted.
const INDEPENDENT_COUNTS: [u32; 4] = [1, 4, 8, 16];
/// How many snapshots there are when chunks are written again.
const REWRITE_SNAPSHOTS: u32 = 16;
/// How many there are when one of them is written itself.
const WRITTEN_SNAPSHOTS: u32 = 16;

/// Throughput of writes to preserved chunks over that without snapshots, at least.
const REWRITE_GOAL: Goal = Goal::AtLeast(0.99);

/// The loads, eight requests at a time, by name; and the throughput of first touches over that without snapshots, at least. The
/// limit with copying is 1/3, and less than a chunk is copied for a small write.
fn loads() -> [(&'static str, Load, Goal); 3] {
    [
        ("sequential 1 MiB QD8", Load { depth: 8, ..Load::sequential_1m(128) }, Goal::AtLeast(0.32)),
        ("random 64 KiB QD8", Load::random_64k(CHUNK, 2048), Goal::AtLeast(0.30)),
        ("random 4 KiB QD8", Load::random_4k(CHUNK, 2048), Goal::AtLeast(0.42)),
    ]
}

fn bench(stores: Stores, snapshots: u32) -> Outcome<ModelBench> {
    let options = StoreOptions::default();
    ModelBench::new(&Plan { origin: ORIGIN, store: store_for(2 * ORIGIN), stores, snapshots, options })
}

/// What `load` measures and costs on `device`, or on the volume itself.
fn run(bench: &ModelBench, device: Option<&Device>, load: &Load) -> Outcome<(Measured, Amplification)> {
    let meter = CostMeter::start(&bench.disk);
    let (clock, arena) = (bench.world.clock(), bench.world.arena());
    let device = device.unwrap_or(&bench.volume.front);
    let measured = bench.world.run(measure_load(device, &clock, &arena, load, &mut Random::new(7)))?;
    Ok((measured, meter.cost(&bench.disk, &measured)))
}

/// Counts all of it.
pub(crate) fn measure(_: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let part = count(&loads(), &COUNTS[1..], &INDEPENDENT_COUNTS)?;
    sheet.keep(&part)
}

fn count(loads: &[(&str, Load, Goal)], dependent: &[u32], independent: &[u32]) -> Outcome<Part> {
    let description = format!(
        "the engine in the simulator on the model disk, origin and exception stores on the one disk, chunks of 64 KiB, \
         {} MiB in sequence or {} chunks at random",
        loads[0].1.count,
        loads[loads.len() - 1].1.count
    );
    let mut part = Part::exact("cost", "model disk", description);
    for (name, load, goal) in loads {
        let (none, _) = run(&bench(Stores::None, 0)?, None, load)?;
        let mut push = |what: &str, goal: Option<Goal>, (measured, cost): (Measured, Amplification)| {
            let row = format!("{name}{what}");
            part.at(&row, "of no snapshot", "").goal(goal).push(measured.ratio_to(&none));
            for (column, value) in [
                ("requests a request", cost.requests),
                ("flushes a request", cost.flushes),
                ("bytes read a byte", cost.bytes_read),
                ("bytes written a byte", cost.bytes_written),
            ] {
                part.at(&row, column, "").push(value);
            }
        };
        for count in dependent {
            let plural = if *count == 1 { "" } else { "s" };
            let measured = run(&bench(Stores::Shared, *count)?, None, load)?;
            push(&format!(", {count} snapshot{plural}"), Some(*goal), measured);
        }
        let twice = bench(Stores::Shared, REWRITE_SNAPSHOTS)?;
        run(&twice, None, load)?;
        push(&format!(" again, {REWRITE_SNAPSHOTS} snapshots"), Some(REWRITE_GOAL), run(&twice, None, load)?);
        for which in ["newest", "oldest"] {
            let bench = bench(Stores::Shared, WRITTEN_SNAPSHOTS)?;
            let number = if which == "newest" { bench.volume.ids.len() - 1 } else { 0 };
            bench.world.run(bench.volume.stores[0].set_flags(bench.volume.ids[number], false, false))?;
            let snapshot = bench.volume.snapshot(number)?;
            let name = format!(" to the {which} of {WRITTEN_SNAPSHOTS}");
            push(&name, None, run(&bench, Some(&snapshot), load)?);
            if which == "newest" {
                push(&format!("{name} again"), None, run(&bench, Some(&snapshot), load)?);
            }
        }
        for count in independent {
            push(&format!(", {count} independent"), None, run(&bench(Stores::OneEach, *count)?, None, load)?);
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two bytes are written and one is read for each byte of a sequential first touch, whatever the number of
    /// dependent snapshots; a rewrite costs one; independent ones read and write a copy each.
    #[test]
    fn amplification_is_what_the_design_promises() {
        let [(name, sequential, goal), ..] = loads();
        let load = Load { count: 16, ..sequential };
        let part = count(&[(name, load, goal)], &[1, 16], &[4]).expect("counted");
        for (row, read, written) in [
            (", 1 snapshot", 1.0, 2.0),
            (", 16 snapshots", 1.0, 2.0),
            (" again, 16 snapshots", 0.0, 1.0),
            (" to the newest of 16", 0.0, 1.0),
            (" to the newest of 16 again", 0.0, 1.0),
            (" to the oldest of 16", 0.0, 1.0),
            (", 4 independent", 4.0, 5.0),
        ] {
            let figure = |column| part.find(&format!("{name}{row}"), column).expect("counted").rounds[0];
            let bytes = [figure("bytes read a byte"), figure("bytes written a byte")];
            assert!((bytes[0] - read).abs() < 0.05 && (bytes[1] - written).abs() < 0.05, "{row}: {bytes:?}");
        }
        assert_eq!(part.records.len(), 7 * 5, "no other rows");
    }
}
