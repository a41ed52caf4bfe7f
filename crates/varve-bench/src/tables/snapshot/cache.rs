//! The loads of ESnap's figures 5 to 9 under each setting of the metadata cache, on the model disk: exact.
//!
//! Source: Xie, Fu, Li, Wang, Liu, Liu: "ESnap - A Cached Dependent Snapshot System". As there the origin has 24 GiB,
//! chunks have 64 KiB and the budget is 8 KiB for each GiB of the origin.

use crate::first_touch::{CHUNK, read_places};
use crate::prelude::*;
use crate::tables::snapshot::stage::{ModelBench, Plan, Stores, store_for};
use varve_sim::Load;
use varve_target::pdata::CachePolicy;
use varve_target::snapshot::{MetadataOrder, StoreOptions};

/// Figure 5.
pub(crate) const ORIGIN_SEQUENTIAL: &str = "5: origin, sequential write";
/// Figure 6.
pub(crate) const SNAPSHOT_SEQUENTIAL: &str = "6: snapshot, sequential read";
/// Figure 7.
pub(crate) const ORIGIN_RANDOM: &str = "7: origin, random write";
/// Figure 8.
pub(crate) const SNAPSHOT_RANDOM: &str = "8: snapshot, random read";
/// Not in the paper: where policies can differ.
pub(crate) const SNAPSHOT_SKEWED: &str = "snapshot, 9 of 10 reads to a tenth";
/// Figure 9, the first bar.
pub(crate) const FIVE_INDEPENDENT: &str = "9: sequential write, 5 independent";
/// Figure 9, the second bar.
pub(crate) const FIVE_DEPENDENT: &str = "9: sequential write, 5 dependent";
/// Figure 9, the third bar.
pub(crate) const ONE: &str = "9: sequential write, 1";
/// The loads for which a bounded cache has a goal.
const SEQUENTIAL: [&str; 4] = [ORIGIN_SEQUENTIAL, SNAPSHOT_SEQUENTIAL, FIVE_INDEPENDENT, FIVE_DEPENDENT];
/// Throughput of sequential work with a bounded metadata cache over that with all in memory, at least.
pub(in crate::tables) const GOAL: Goal = Goal::AtLeast(0.90);
/// Bytes of metadata for each 64 KiB of sequential change, at most.
const METADATA_GOAL: Goal = Goal::AtMost(10.0);

/// Bytes of metadata in memory for each GiB of the origin, as in the paper.
const BUDGET_A_GIB: u64 = 8 * KIB;

/// How much is read and written.
#[derive(Clone, Copy)]
pub(in crate::tables) struct Sizes {
    /// Bytes of the origin.
    pub(in crate::tables) origin: u64,
    /// MiB of each sequential load.
    pub(in crate::tables) sequential_mib: u64,
    /// Requests of each random load.
    pub(in crate::tables) random: u64,
}

/// A setting of the metadata cache.
pub(in crate::tables) struct Setting {
    /// Its name in the tables.
    pub(in crate::tables) name: String,
    /// The name of the one with all metadata in memory that it is judged by, if its own memory is bounded.
    pub(in crate::tables) unbounded: Option<String>,
    /// How stores work.
    pub(in crate::tables) options: StoreOptions,
}

/// The settings; those that are compared with come before those that are compared.
pub(in crate::tables) fn settings(sizes: Sizes) -> Vec<Setting> {
    let mut all = Vec::new();
    for (metadata, order) in
        [(MetadataOrder::Logged, "logged"), (MetadataOrder::WriteThrough, "write-through")]
    {
        let options = StoreOptions { metadata, ..StoreOptions::default() };
        let whole = format!("all in memory, {order}");
        all.push(Setting { name: whole.clone(), unbounded: None, options });
        for policy in CachePolicy::ALL {
            let cache_bytes = sizes.origin / GIB * BUDGET_A_GIB;
            let (name, unbounded) = (format!("{}, {order}", policy.word()), Some(whole.clone()));
            all.push(Setting { name, unbounded, options: StoreOptions { cache_bytes, policy, ..options } });
        }
    }
    all
}

/// Measures all settings; each row is kept as soon as it is there.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let sizes = if options.is_quick() {
        Sizes { origin: 24 * GIB, sequential_mib: 32, random: 1024 }
    } else {
        Sizes { origin: 24 * GIB, sequential_mib: 1024, random: 16_384 }
    };
    let description = format!(
        "the engine in the simulator on the model disk, an origin of {} GiB in chunks of 64 KiB; {} MiB in sequence, \
         1 MiB a request; {} requests of 4 KiB at random, 8 at a time",
        sizes.origin / GIB,
        sizes.sequential_mib,
        sizes.random
    );
    let mut speeds = Part::exact("cache", "model disk", description.as_str());
    let mut metadata = Part::exact("metadata", "model disk", description);
    let settings = settings(sizes);
    for setting in &settings {
        record(setting, &settings[0].name, sizes, &mut speeds, &mut metadata)?;
        eprintln!("metadata cache: {}", setting.name);
        sheet.keep(&speeds)?;
        sheet.keep(&metadata)?;
    }
    Ok(())
}

/// A volume in one world.
fn bench(options: StoreOptions, sizes: Sizes, stores: Stores, snapshots: u32) -> Outcome<(ModelBench, Plan)> {
    let store = store_for(2 * sizes.sequential_mib * MIB + 2 * CHUNK * sizes.random);
    let plan = Plan { origin: sizes.origin, store, stores, snapshots, options };
    Ok((ModelBench::new(&plan)?, plan))
}

/// Bytes a second of `load` on `device`, flushed.
fn speed(bench: &ModelBench, device: &Device, load: &Load, seed: u64) -> Outcome<f64> {
    let (measured, time) = bench.run(device, load, seed)?;
    Ok(measured.bytes as f64 / time.as_secs_f64())
}

/// Puts down a setting. One whose memory is bounded is compared with that which it is judged by, and another with the `first`.
fn record(
    setting: &Setting,
    first: &str,
    sizes: Sizes,
    speeds: &mut Part,
    metadata: &mut Part,
) -> Outcome<()> {
    let (name, options) = (&setting.name, setting.options);
    let base = setting.unbounded.as_deref().or(Some(first)).filter(|base| base != name);
    let goal =
        |load: &'static str| setting.unbounded.as_ref().filter(|_| SEQUENTIAL.contains(&load)).map(|_| GOAL);
    let sequential = Load::sequential_1m(sizes.sequential_mib);
    let random = Load::random_4k(CHUNK, sizes.random);
    let mut push = |load: &'static str, speed: f64| {
        let record = speeds.at(name, load, "MiB/s").goal(goal(load));
        record.over = base.map(str::to_owned).into_iter().collect();
        record.push(speed / MIB as f64);
    };

    let (shared, plan) = bench(options, sizes, Stores::Shared, 1)?;
    let written = || shared.disk.counters().bytes_written;
    let before = written();
    push(ORIGIN_SEQUENTIAL, speed(&shared, &shared.volume.front, &sequential, 7)?);
    let chunks = (sizes.sequential_mib * MIB / CHUNK) as f64;
    // What was changed was written twice: into the store and into the origin.
    let log_bytes = (written() - before - 2 * sizes.sequential_mib * MIB) as f64 / chunks;
    push(SNAPSHOT_SEQUENTIAL, speed(&shared, &shared.volume.snapshot(0)?, &sequential.reading(), 7)?);
    let map_bytes = write_back(shared, &plan)? as f64 / chunks;

    let (random_touches, _) = bench(options, sizes, Stores::Shared, 1)?;
    let ModelBench { world, disk, volume } = &random_touches;
    push(ORIGIN_RANDOM, speed(&random_touches, &volume.front, &random, 7)?);
    let view = volume.snapshot(0)?;
    push(SNAPSHOT_RANDOM, speed(&random_touches, &view, &random.reading(), 11)?);
    let (places, around) = (skewed(sizes), Surroundings::simulated(world, disk));
    push(SNAPSHOT_SKEWED, world.run(read_places(&view, &around, &places, 4 << 10, 8))?);
    drop((view, random_touches));

    for (name, stores, snapshots) in [
        (FIVE_INDEPENDENT, Stores::OneEach, 5),
        (FIVE_DEPENDENT, Stores::Shared, 5),
        (ONE, Stores::Shared, 1),
    ] {
        let (many, _) = bench(options, sizes, stores, snapshots)?;
        let load = Load { count: sizes.sequential_mib / 4, ..sequential };
        push(name, speed(&many, &many.volume.front, &load, 7)?);
    }
    // What stays is judged: the map as it is written back, or all that was written meanwhile if it was written with each change.
    let is_logged = map_bytes > 0.0;
    if is_logged {
        metadata.at(name, "the map, written back", "bytes").goal(METADATA_GOAL).push(map_bytes);
    }
    let log = metadata.at(name, "the log, or the map with each change", "bytes");
    log.goal((!is_logged).then_some(METADATA_GOAL)).push(log_bytes);
    let both = (map_bytes + log_bytes) * (GIB / CHUNK / KIB) as f64;
    metadata.at(name, "both, for each GiB changed", "KiB").push(both);
    Ok(())
}

/// Closes the store and opens it again, which writes the map back; returns the bytes that were written.
fn write_back(ModelBench { world, disk, volume }: ModelBench, plan: &Plan) -> Outcome<u64> {
    let before = disk.counters().bytes_written;
    drop(volume);
    let around = Surroundings::simulated(&world, &disk);
    world.run(plan.open(&around, 0)).map(drop)?;
    Ok(disk.counters().bytes_written - before)
}

/// Places of 4 KiB, nine of ten in the first tenth of the origin.
fn skewed(sizes: Sizes) -> Vec<u64> {
    let mut noise = Noise(20_060_810);
    let place = |_| {
        let whole = if noise.next() % 10 < 9 { sizes.origin / 10 } else { sizes.origin };
        noise.next() % (whole / (4 * KIB)) * 4 * KIB
    };
    (0..sizes.random).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Sizes = Sizes { origin: GIB, sequential_mib: 8, random: 64 };

    fn recorded(setting: &Setting) -> (Part, Part) {
        let (mut speeds, mut metadata) = (Part::default(), Part::default());
        record(setting, "all in memory, logged", SMALL, &mut speeds, &mut metadata).expect("measured");
        (speeds, metadata)
    }

    #[test]
    fn every_setting_has_every_load_and_repeats() {
        for setting in settings(SMALL) {
            let ((one, metadata), (two, _)) = (recorded(&setting), recorded(&setting));
            assert_eq!(
                (one.records.len(), &one.records),
                (8, &two.records),
                "exact figures repeat: {}",
                setting.name
            );
            let log = metadata.find(&setting.name, "the log, or the map with each change").expect("measured");
            assert!(log.rounds[0] > 0.0 && log.rounds[0] < 4096.0, "{log:?}");
        }
    }

    #[test]
    fn five_dependent_snapshots_are_better_than_five_independent_ones() {
        let (speeds, _) = recorded(&settings(SMALL)[0]);
        let speed = |load| speeds.find("all in memory, logged", load).expect("measured").rounds[0];
        assert!(speed(FIVE_DEPENDENT) > 2.0 * speed(FIVE_INDEPENDENT));
        assert!(speed(FIVE_DEPENDENT) > 0.95 * speed(ONE));
    }

    #[test]
    fn whoever_is_judged_comes_after_the_one_it_is_judged_by() {
        let names: Vec<String> = settings(SMALL).into_iter().map(|setting| setting.name).collect();
        for (index, setting) in settings(SMALL).iter().enumerate() {
            assert!(setting.unbounded.as_ref().is_none_or(|name| names[..index].contains(name)));
        }
    }

    #[test]
    fn nine_of_ten_places_are_in_the_first_tenth() {
        let near =
            skewed(Sizes { random: 10_000, ..SMALL }).iter().filter(|place| **place < GIB / 10).count();
        assert!((8_900..9_300).contains(&near), "{near}");
    }
}
