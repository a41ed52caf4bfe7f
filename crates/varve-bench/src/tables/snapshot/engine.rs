//! First touches where no daemon can be: the engine itself on a disk made slow, and on the model disk of the
//! simulator, whose figures are exact; with one exception store for all snapshots, and with one for each.

use crate::first_touch::{COUNTS, LOADS, record};
use crate::prelude::*;
use crate::tables::snapshot::stage::{MARGIN, Plan, Stores, store_for};
use varve_block::Switch;
use varve_os::{ThrottleOptions, Throttled};
use varve_sim::{ModelDisk, World};
use varve_target::snapshot::StoreOptions;

/// Numbers of independent snapshots that are measured: the cost grows with each.
const INDEPENDENT_COUNTS: [u32; 6] = [0, 1, 4, 8, 16, 64];
/// On the slow disk, which takes real time, one fewer.
const INDEPENDENT_COUNTS_SLOW: [u32; 5] = [0, 1, 4, 8, 16];
/// The slow disk.
const SLOW: ThrottleOptions = ThrottleOptions {
    bandwidth: 40 * MIB,
    latency: Duration::from_millis(2),
    latency_flush: Duration::from_millis(4),
};

/// One kind of snapshots and how much each load writes.
#[derive(Clone, Copy)]
struct Case {
    stores: Stores,
    region: u64,
    counts: &'static [u32],
}

impl Case {
    fn dependent(region: u64) -> Self {
        Self { stores: Stores::Shared, region, counts: &COUNTS }
    }

    fn plan(&self, snapshots: u32) -> Plan {
        let origin = self.region * LOADS.len() as u64 + MARGIN;
        let stores = if snapshots == 0 { Stores::None } else { self.stores };
        Plan { origin, store: store_for(origin), stores, snapshots, options: StoreOptions::default() }
    }

    fn disk(&self) -> u64 {
        let most = self.counts.iter().max().copied().unwrap_or(0);
        self.plan(most).disk()
    }

    /// The table of its figures, and their world.
    fn names(&self, world: &str) -> (&'static str, String) {
        match self.stores {
            Stores::OneEach => ("independent first touches", format!("{world}, independent")),
            _ => ("first touches", world.to_owned()),
        }
    }

    /// Bytes a second of each load with that many snapshots. The volume is built on the fast disk; what `slow` makes
    /// of it is measured.
    async fn speeds(
        self,
        around: Surroundings,
        snapshots: u32,
        slow: impl FnOnce(Device) -> Device,
    ) -> Outcome<Vec<f64>> {
        let switch = Switch::new(around.disk.clone());
        let around = Surroundings { disk: switch.device(), ..around };
        let volume = self.plan(snapshots).build(&around).await?;
        switch.suspend().await.replace(slow(switch.current()));
        let mut speeds = Vec::new();
        for (index, load) in LOADS.iter().enumerate() {
            let start = index as u64 * self.region;
            speeds.push(load.write(&volume.front, &around, start, self.region).await?);
        }
        Ok(speeds)
    }
}

/// On the model disk, in virtual time.
pub(crate) fn measure_model(_: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    for case in [
        Case::dependent(16 * MIB),
        Case { stores: Stores::OneEach, region: 4 * MIB, counts: &INDEPENDENT_COUNTS },
    ] {
        sheet.keep(&model(case)?)?;
    }
    Ok(())
}

fn model(case: Case) -> Outcome<Part> {
    let description = format!(
        "exact, in virtual time: the engine in the simulator on a disk that serves one request at a time, 2 ms for each 64 KiB or part of \
         them, {} MiB a load",
        case.region / MIB
    );
    let (table, world) = case.names("model disk");
    let mut part = Part::exact(table, world, description);
    for count in case.counts {
        let world = World::steady(1);
        let around = Surroundings::simulated(&world, &ModelDisk::new(case.disk()));
        record(&mut part, *count, &world.run(case.speeds(around, *count, |disk| disk))?);
    }
    Ok(part)
}

/// On a throttled file in memory, in real time; each round is kept as soon as it is there.
pub(crate) fn measure_slow(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let region = |mib: u64| if options.is_quick() { MIB } else { mib * MIB };
    let few = region(2);
    for case in [
        Case::dependent(region(16)),
        Case { stores: Stores::OneEach, region: few, counts: &INDEPENDENT_COUNTS_SLOW },
    ] {
        slow(options, case, sheet)?;
    }
    Ok(())
}

fn slow(options: &Options, case: Case, sheet: &mut Sheet) -> Outcome<()> {
    let parent = options.directory(Medium::Memory);
    let description = format!(
        "the engine on {} behind a throttle: {} MiB/s, {} ms a request, {} ms a flush, {} MiB a load, {} rounds",
        file_system(parent),
        SLOW.bandwidth / MIB,
        SLOW.latency.as_millis(),
        SLOW.latency_flush.as_millis(),
        case.region / MIB,
        options.runs()
    );
    let (table, world) = case.names("slow disk");
    let mut part = Part::new(table, world, description);
    let place = Place::new(parent, case.disk())?;
    let path = place.file("disk", case.disk())?;
    let file = open(&path, Medium::Memory)?;
    let shard = Shard::start()?;
    for round in 0..options.runs() {
        for count in turns(case.counts, round) {
            let file = file.clone();
            let speeds = shard.run(move |context| async move {
                let around = Surroundings::of(&context, &file);
                let clock = around.clock.clone();
                case.speeds(around, count, |disk| Device::new(Throttled::new(disk, clock, SLOW))).await
            });
            record(&mut part, count, &speeds?);
        }
        sheet.keep(&part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(part: &Part, load: &str, snapshots: &str, base: &str) -> f64 {
        let record = part.find(load, snapshots).expect("it was measured");
        part.ratio(record, &[base]).expect("both were measured").1.median
    }

    /// The figures of the model disk are exact, so the promise can be asserted: what one snapshot costs, any number
    /// of dependent ones does.
    #[test]
    fn many_snapshots_cost_what_one_costs_on_the_model_disk() {
        let case = Case { counts: &[0, 1, 64], ..Case::dependent(4 * MIB) };
        let (part, again) = (model(case).expect("measured"), model(case).expect("measured"));
        assert_eq!(part.records, again.records, "exact figures repeat");
        for load in LOADS {
            let ratio = ratio(&part, load.name, "64", "1");
            assert!(ratio >= 0.98, "{}: {ratio}", load.name);
            let price = self::ratio(&part, load.name, "1", "0");
            assert!(price < 1.0, "{}: a copy is not free: {price}", load.name);
        }
    }

    #[test]
    fn independent_snapshots_cost_a_copy_each() {
        let case = Case { stores: Stores::OneEach, region: MIB, counts: &[1, 4] };
        let part = model(case).expect("measured");
        for load in LOADS {
            let ratio = ratio(&part, load.name, "4", "1");
            assert!(ratio < 0.6, "{}: {ratio}", load.name);
        }
    }
}
