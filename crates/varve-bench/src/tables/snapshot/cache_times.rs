//! The loads of ESnap's figures 5 to 9 under each setting of the metadata cache, in real time: all settings in turn,
//! round after round, beside a volume without snapshots.
//!
//! What the model disk shows exactly is what settings cost a disk; here it is what they cost everything else.

use crate::first_touch::{CHUNK, Load, read_places, write_places};
use crate::prelude::*;
use crate::tables::snapshot::cache::{
    FIVE_DEPENDENT, GOAL, ORIGIN_RANDOM, ORIGIN_SEQUENTIAL, SNAPSHOT_RANDOM, SNAPSHOT_SEQUENTIAL, Setting,
    Sizes, settings,
};
use crate::tables::snapshot::stage::{Plan, Stores, Volume, store_for};
use std::collections::BTreeSet;
use varve_target::snapshot::StoreOptions;

/// The setting without any snapshot.
const NO_SNAPSHOT: &str = "no snapshot";
/// The origin is read while it has a snapshot.
const ORIGIN_SEQUENTIAL_READ: &str = "origin, sequential read";
/// What was written at random is read at random.
const ORIGIN_RANDOM_READ: &str = "origin, random read";
/// The snapshot is read where the origin was written.
const SNAPSHOT_TOUCHED: &str = "snapshot, random read of what was written";
/// The loads for which a bounded cache has a goal.
const SEQUENTIAL: [&str; 4] =
    [ORIGIN_SEQUENTIAL, SNAPSHOT_SEQUENTIAL, ORIGIN_SEQUENTIAL_READ, FIVE_DEPENDENT];

/// Bytes of a random request, and how many are on their way.
const BLOCK: usize = 4096;
const DEPTH: usize = 8;
const IN_SEQUENCE: Load = Load { name: "sequential", block: 1 << 20, depth: 1, random: false };
/// How often what is short is read, so that it can be timed.
const PASSES: usize = 4;

/// A setting that is measured: what a volume has, and what it is compared with.
#[derive(Clone)]
struct Contender {
    name: String,
    base: Option<String>,
    options: Option<StoreOptions>,
}

fn contenders(sizes: Sizes) -> Vec<Contender> {
    let none = Contender { name: NO_SNAPSHOT.to_owned(), base: None, options: None };
    let others = settings(sizes).into_iter().map(|setting| {
        let Setting { name, unbounded, options } = setting;
        Contender { name, base: unbounded.or_else(|| Some(NO_SNAPSHOT.to_owned())), options: Some(options) }
    });
    [none].into_iter().chain(others).collect()
}

/// What is measured where.
#[derive(Clone)]
struct Case {
    sizes: Sizes,
    contenders: Vec<Contender>,
    written: Vec<u64>,
    others: Vec<u64>,
}

impl Case {
    fn new(sizes: Sizes) -> Self {
        let written = scattered(sizes, 20_060_810);
        let others = scattered(sizes, 7);
        Self { sizes, contenders: contenders(sizes), written, others }
    }

    fn plan(&self, contender: &Contender, snapshots: u32) -> Plan {
        let Sizes { origin, sequential_mib, random } = self.sizes;
        let store = store_for(2 * sequential_mib * MIB + 2 * CHUNK * random);
        let (stores, snapshots) = match contender.options {
            Some(_) => (Stores::Shared, snapshots),
            None => (Stores::None, 0),
        };
        Plan { origin, store, stores, snapshots, options: contender.options.unwrap_or_default() }
    }

    /// Bytes of the disk that every setting uses anew.
    fn disk(&self) -> u64 {
        let plan = |contender| self.plan(contender, 1).disk();
        self.contenders.iter().map(plan).max().expect("there are settings")
    }

    fn sequential(&self) -> u64 {
        self.sizes.sequential_mib * MIB
    }

    /// Bytes a second of every load.
    async fn speeds(
        &self,
        around: &Surroundings,
        contender: &Contender,
    ) -> Outcome<Vec<(&'static str, f64)>> {
        let (mut speeds, whole) = (Vec::new(), self.sequential());
        let volume = self.plan(contender, 1).build(around).await?;
        speeds.push((ORIGIN_SEQUENTIAL, IN_SEQUENCE.write(&volume.front, around, 0, whole).await?));
        let places = IN_SEQUENCE.places(0, whole).repeat(PASSES);
        for (load, device) in
            [(SNAPSHOT_SEQUENTIAL, view(&volume)?), (ORIGIN_SEQUENTIAL_READ, volume.front.clone())]
        {
            speeds.push((load, read_places(&device, around, &places, IN_SEQUENCE.block, 1).await?));
        }
        drop(volume);
        let volume = self.plan(contender, 1).build(around).await?;
        let speed = write_places(&volume.front, around, &self.written, BLOCK, DEPTH).await?;
        speeds.push((ORIGIN_RANDOM, speed));
        for (load, device, places) in [
            (SNAPSHOT_RANDOM, view(&volume)?, &self.others),
            (SNAPSHOT_TOUCHED, view(&volume)?, &self.written),
            (ORIGIN_RANDOM_READ, volume.front.clone(), &self.written),
        ] {
            speeds.push((load, read_places(&device, around, &places.repeat(PASSES), BLOCK, DEPTH).await?));
        }
        drop(volume);
        let volume = self.plan(contender, 5).build(around).await?;
        speeds.push((FIVE_DEPENDENT, IN_SEQUENCE.write(&volume.front, around, 0, whole / 2).await?));
        Ok(speeds)
    }

    /// Puts down a round of a setting.
    fn record(&self, part: &mut Part, contender: &Contender, speeds: &[(&str, f64)]) {
        let base = contender.base.as_deref();
        for (load, speed) in speeds {
            let is_judged = base.is_some_and(|base| base != NO_SNAPSHOT) && SEQUENTIAL.contains(load);
            let record = part.at(&contender.name, load, "MiB/s").goal(is_judged.then_some(GOAL));
            record.over = base.map(str::to_owned).into_iter().collect();
            record.push(speed / MIB as f64);
        }
    }

    /// All settings in turn, round after round. Round 0 warms up and does not count.
    async fn all_rounds(self, around: Surroundings, rounds: usize, mut part: Part) -> Outcome<Part> {
        for round in 0..=rounds {
            for contender in turns(&self.contenders.iter().collect::<Vec<_>>(), round) {
                let speeds = self.speeds(&around, contender).await.of(&contender.name)?;
                if round > 0 {
                    self.record(&mut part, contender, &speeds);
                }
            }
        }
        Ok(part)
    }
}

/// The snapshot, or the volume itself if it has none.
fn view(volume: &Volume) -> Outcome<Device> {
    if volume.ids.is_empty() { Ok(volume.front.clone()) } else { volume.snapshot(0) }
}

/// So many places, each in a chunk of its own, all over the origin.
fn scattered(sizes: Sizes, seed: u64) -> Vec<u64> {
    let (mut noise, mut taken, mut places) = (Noise(seed), BTreeSet::new(), Vec::new());
    // Not where the plan itself writes.
    let chunks = sizes.origin / CHUNK - crate::tables::snapshot::stage::MARGIN / CHUNK;
    while (places.len() as u64) < sizes.random {
        let chunk = noise.next() % chunks;
        if taken.insert(chunk) {
            places.push(chunk * CHUNK + noise.next() % 16 * 4 * KIB);
        }
    }
    places
}

/// Measures one medium.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let sizes = match (options.is_quick(), medium) {
        (true, _) => Sizes { origin: 24 * GIB, sequential_mib: 8, random: 256 },
        (false, Medium::Memory) => Sizes { origin: 24 * GIB, sequential_mib: 128, random: 4096 },
        (false, _) => Sizes { origin: 24 * GIB, sequential_mib: 32, random: 256 },
    };
    let (case, parent) = (Case::new(sizes), options.directory(medium));
    let description = format!(
        "the engine on {}, an origin of {} GiB in chunks of 64 KiB, 8 KiB of metadata in memory for each of them; {} MiB \
         in sequence, 1 MiB a request; {} requests of 4 KiB at random, {DEPTH} at a time; {} rounds",
        file_system(parent),
        sizes.origin / GIB,
        sizes.sequential_mib,
        sizes.random,
        options.runs()
    );
    let part = Part::new("cache in real time", medium.name(), description);
    let used = 4 * case.sequential() + 4 * sizes.random * CHUNK;
    let place = Place::new(parent, used)?;
    let path = place.sparse("disk", case.disk(), std::slice::from_ref(&(0..case.sequential())))?;
    let file = open(&path, medium)?;
    let rounds = options.runs();
    let part = Shard::start()?.run(move |context| async move {
        case.all_rounds(Surroundings::of(&context, &file), rounds, part).await
    });
    sheet.keep(&part?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_sim::{ModelDisk, World};

    const SMALL: Sizes = Sizes { origin: GIB, sequential_mib: 2, random: 32 };

    #[test]
    fn every_setting_has_every_load_and_something_to_be_compared_with() {
        let case = Case { contenders: contenders(SMALL).into_iter().take(3).collect(), ..Case::new(SMALL) };
        let world = World::steady(1);
        let around = Surroundings::simulated(&world, &ModelDisk::new(case.disk()));
        let contenders = case.contenders.clone();
        let part = world.run(case.all_rounds(around, 2, Part::default())).expect("measured");
        assert_eq!(part.records.len(), 3 * 8);
        for record in &part.records {
            let base = contenders.iter().find(|one| one.name == record.row).and_then(|one| one.base.clone());
            assert_eq!((record.rounds.len(), &record.over), (2, &Vec::from_iter(base)), "{record:?}");
            assert!(part.judged(record).is_some(), "{record:?}");
            let is_judged = record.row == contenders[2].name && SEQUENTIAL.contains(&record.column.as_str());
            assert_eq!(record.goal.is_some(), is_judged, "{record:?}");
        }
        let ratio = |load| {
            let record = part.find(&contenders[1].name, load).expect("measured");
            part.judged(record).expect("compared").median
        };
        let first_touches = ratio(ORIGIN_SEQUENTIAL);
        assert!((0.2..0.5).contains(&first_touches), "a snapshot costs copies: {first_touches}");
        assert!(ratio(ORIGIN_RANDOM_READ) > 0.99, "and the origin's reads nothing");
    }

    #[test]
    fn places_are_all_over_the_origin_and_never_twice() {
        let places = scattered(SMALL, 1);
        let chunks: BTreeSet<u64> = places.iter().map(|place| place / CHUNK).collect();
        assert_eq!((places.len(), chunks.len()), (32, 32));
        assert!(places.iter().any(|place| *place > GIB / 2) && places.iter().all(|place| *place < GIB));
    }
}
