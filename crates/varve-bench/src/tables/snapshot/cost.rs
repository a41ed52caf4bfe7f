//! What a first touch costs the model disk, counted in requests, flushes and bytes: exact.

use crate::first_touch::COUNTS;
use crate::report::sheet::Sheet;
use crate::results::{CostPart, CostRow, Touch};
use crate::tables::snapshot::stage::{Plan, Stores, Surroundings, Volume, store_for};
use std::rc::Rc;
use varve_block::{Device, KIB, MIB};
use varve_sim::{Amplification, CostMeter, Load, Measured, ModelDisk, Random, World, measure};
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

/// The loads, eight requests at a time, by name.
fn loads() -> [(&'static str, Load); 3] {
    [
        ("sequential 1 MiB QD8", Load { depth: 8, ..Load::sequential_1m(128) }),
        ("random 64 KiB QD8", Load::random_64k(CHUNK, 2048)),
        ("random 4 KiB QD8", Load::random_4k(CHUNK, 2048)),
    ]
}

/// A volume on a model disk.
struct Bench {
    world: World,
    disk: ModelDisk,
    volume: Volume,
}

impl Bench {
    fn new(stores: Stores, snapshots: u32) -> Result<Self, String> {
        let options = StoreOptions::default();
        let plan = Plan { origin: ORIGIN, store: store_for(2 * ORIGIN), stores, snapshots, options };
        let (world, disk) = (World::steady(1), ModelDisk::new(plan.disk()));
        let around = Surroundings { disk: disk.device(&world), arena: world.arena(), clock: world.clock() };
        let volume = world.run(plan.build(&around))?;
        Ok(Self { world, disk, volume })
    }

    fn run(&self, load: &Load) -> Result<(Measured, Amplification), String> {
        self.run_on(&self.volume.front, load)
    }

    /// A snapshot, made writable.
    fn snapshot(&self, id: u64) -> Result<Device, String> {
        let store = &self.volume.stores[0];
        let writable = self.world.run(store.set_flags(id, false, false));
        writable.and_then(|()| Rc::clone(store).snapshot(id)).map_err(|error| error.to_string())
    }

    fn run_on(&self, device: &Device, load: &Load) -> Result<(Measured, Amplification), String> {
        let mut random = Random::new(7);
        let meter = CostMeter::start(&self.disk);
        let (clock, arena) = (self.world.clock(), self.world.arena());
        let measured = self.world.run(measure(device, &clock, &arena, load, &mut random));
        let measured = measured.map_err(|error| error.to_string())?;
        Ok((measured, meter.cost(&self.disk, &measured)))
    }
}

/// Counts all of it.
pub(crate) fn measure_model(sheet: &mut Sheet) -> Result<(), String> {
    let part = count(&loads(), &COUNTS[1..], &INDEPENDENT_COUNTS)?;
    sheet.keep(|results| results.costs = Some(part))
}

fn count(loads: &[(&str, Load)], dependent: &[u32], independent: &[u32]) -> Result<CostPart, String> {
    let mut rows = Vec::new();
    for (name, load) in loads {
        let (none, _) = Bench::new(Stores::None, 0)?.run(load)?;
        let mut push = |touch, snapshots, (measured, cost): (Measured, Amplification)| {
            rows.push(CostRow {
                load: (*name).to_owned(),
                touch,
                snapshots,
                ratio: measured.ratio_to(&none),
                requests: cost.requests,
                flushes: cost.flushes,
                bytes_read: cost.bytes_read,
                bytes_written: cost.bytes_written,
            });
        };
        for snapshots in dependent {
            push(Touch::Dependent, *snapshots, Bench::new(Stores::Shared, *snapshots)?.run(load)?);
        }
        let bench = Bench::new(Stores::Shared, REWRITE_SNAPSHOTS)?;
        bench.run(load)?;
        push(Touch::Rewrite, REWRITE_SNAPSHOTS, bench.run(load)?);
        for (touch, newest) in [(Touch::Newest, true), (Touch::Oldest, false)] {
            let bench = Bench::new(Stores::Shared, WRITTEN_SNAPSHOTS)?;
            let ids = &bench.volume.ids;
            let snapshot = bench.snapshot(if newest { ids[ids.len() - 1] } else { ids[0] })?;
            push(touch, WRITTEN_SNAPSHOTS, bench.run_on(&snapshot, load)?);
            if newest {
                push(Touch::SnapshotRewrite, WRITTEN_SNAPSHOTS, bench.run_on(&snapshot, load)?);
            }
        }
        for snapshots in independent {
            push(Touch::Independent, *snapshots, Bench::new(Stores::OneEach, *snapshots)?.run(load)?);
        }
    }
    let description = format!(
        "the engine in the simulator on the model disk, origin and exception stores on the one disk, chunks of 64 KiB, \
         {} MiB in sequence or {} chunks at random",
        loads[0].1.count,
        loads[loads.len() - 1].1.count
    );
    Ok(CostPart { description, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two bytes are written and one is read for each byte of a sequential first touch, whatever the number of
    /// dependent snapshots; a rewrite costs one; independent ones read and write a copy each.
    #[test]
    fn amplification_is_what_the_design_promises() {
        let [(name, sequential), ..] = loads();
        let load = Load { count: 16, ..sequential };
        let part = count(&[(name, load)], &[1, 16], &[4]).expect("counted");
        let near = |value: f64, whole: f64| (value - whole).abs() < 0.05;
        let [one, many, again, newest, newest_again, oldest, apart] = &part.rows[..] else {
            panic!("seven rows")
        };
        assert!(near(one.bytes_read, 1.0) && near(one.bytes_written, 2.0), "{one:?}");
        assert!(near(many.bytes_read, 1.0) && near(many.bytes_written, 2.0), "{many:?}");
        assert!(near(again.bytes_read, 0.0) && near(again.bytes_written, 1.0), "{again:?}");
        assert!(near(apart.bytes_read, 4.0) && near(apart.bytes_written, 5.0), "{apart:?}");
        assert_eq!(again.touch, Touch::Rewrite);
        for row in [newest, newest_again, oldest] {
            assert!(near(row.bytes_read, 0.0) && near(row.bytes_written, 1.0), "nothing is copied: {row:?}");
        }
    }
}
