//! Everything that was measured, raw, as it is kept in a file: rendering needs no new measurement.

mod arrays;
mod cache_times;
mod cost;
mod figures;
mod neighbour;
mod overlay;

pub(crate) use arrays::{ArrayPart, ArrayRow, ProcessorRow};
pub(crate) use cache_times::{CacheTimes, CacheTimesRow, NO_SNAPSHOT};
pub(crate) use cost::{CostPart, CostRow, Touch};
pub(crate) use figures::{FigurePart, FigureRow, put_figures};
pub(crate) use neighbour::{NeighbourPart, NeighbourRow, put_neighbour};
pub(crate) use overlay::{OverlayPart, OverlayRow, Taken, put_overlay};

use crate::machine::Machine;
use crate::work::Work;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The whole file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// NBD servers, one part a medium.
    pub(crate) nbd: Vec<NbdPart>,
    /// First-touch writes under snapshots, one part a world.
    pub(crate) snapshots: Vec<SnapshotPart>,
    /// The loads of bonnie on a filesystem under snapshots.
    #[serde(default)]
    pub(crate) bonnie: Option<SnapshotPart>,
    /// What layers cost.
    pub(crate) layers: Option<LayerPart>,
    /// What first touches cost a disk.
    #[serde(default)]
    pub(crate) costs: Option<CostPart>,
    /// Reads of snapshots, by how many lie between them and the origin; one part a world.
    #[serde(default)]
    pub(crate) distances: Vec<SnapshotPart>,
    /// The loads of ESnap's figures under each setting of the metadata cache.
    #[serde(default)]
    pub(crate) caches: Option<CachePart>,
    /// The same loads in real time, one part a medium.
    #[serde(default)]
    pub(crate) cache_times: Vec<CacheTimes>,
    /// Creating and removing, one part a world.
    #[serde(default)]
    pub(crate) management: Vec<FigurePart>,
    /// Thin volumes beside thick ones, one part a medium.
    #[serde(default)]
    pub(crate) thin: Vec<ThinPart>,
    /// Pools of many mappings, snapshots and generations, one part a world.
    #[serde(default)]
    pub(crate) thin_scale: Vec<FigurePart>,
    /// Latency of a volume beside floods on another one, one part a medium.
    #[serde(default)]
    pub(crate) neighbours: Vec<NeighbourPart>,
    /// Boots and copies on copy-on-write images, one part a piece of work and medium.
    #[serde(default)]
    pub(crate) overlays: Vec<OverlayPart>,
    /// Arrays beside one raw member.
    #[serde(default)]
    pub(crate) arrays: Option<ArrayPart>,
    /// What arrays do beside requests.
    #[serde(default)]
    pub(crate) array_work: Option<FigurePart>,
    /// Images and mappers.
    #[serde(default)]
    pub(crate) images: Option<FigurePart>,
}

/// Thin volumes beside thick ones on one medium.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ThinPart {
    /// `memory`, `disk, direct`.
    pub(crate) world: String,
    /// What that is, in a sentence.
    pub(crate) description: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// The loads.
    pub(crate) rows: Vec<ThinRow>,
}

/// One load in one state of the thin volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThinRow {
    /// The state of the thin volume: `fresh`, `written`, `after a snapshot`.
    pub(crate) state: String,
    /// The load.
    pub(crate) work: Work,
    /// The ratio that is wanted, at least.
    pub(crate) goal: f64,
    /// Bytes a second on the thin volume, one a round.
    pub(crate) thin: Vec<f64>,
    /// Bytes a second on the thick volume, written in full and without a snapshot, one a round.
    pub(crate) thick: Vec<f64>,
    /// What else gives out space as it is written, behind qemu-nbd.
    #[serde(default)]
    pub(crate) rivals: Vec<ThinRival>,
}

/// A rival under the same load, in the same state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThinRival {
    /// Its name.
    pub(crate) name: String,
    /// Bytes a second, one a round.
    pub(crate) rounds: Vec<f64>,
    /// Why there are none.
    pub(crate) absent: Option<String>,
}

impl ThinRow {
    /// One round of `name`.
    pub(crate) fn record_rival(&mut self, name: &str, outcome: Result<f64, String>) {
        let index = self.rivals.iter().position(|rival| rival.name == name).unwrap_or_else(|| {
            self.rivals.push(ThinRival { name: name.to_owned(), rounds: Vec::new(), absent: None });
            self.rivals.len() - 1
        });
        let rival = &mut self.rivals[index];
        match outcome {
            Ok(speed) => rival.rounds.push(speed),
            Err(reason) => rival.absent = Some(reason),
        }
    }

    /// The rounds of `name`.
    pub(crate) fn rival(&self, name: &str) -> &[f64] {
        self.rivals.iter().find(|rival| rival.name == name).map_or(&[], |rival| &rival.rounds)
    }
}

/// NBD servers on one medium.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NbdPart {
    /// `memory`, `disk, direct`, `disk, buffered`.
    pub(crate) medium: String,
    /// Its file system.
    pub(crate) file_system: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// Bytes of each file.
    pub(crate) size: u64,
    /// Seconds of each run.
    pub(crate) seconds: f64,
    /// The loads.
    pub(crate) rows: Vec<NbdRow>,
}

/// One load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NbdRow {
    /// The load.
    pub(crate) work: Work,
    /// The figures of all contenders.
    pub(crate) contenders: Vec<Contender>,
}

/// What a contender is to the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Varve itself.
    Varve,
    /// Another server, in the like mode.
    Peer,
    /// The file without a server: the limit.
    Limit,
}

/// One contender's figures under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Contender {
    /// Its name.
    pub(crate) name: String,
    /// What it is to the comparison.
    pub(crate) role: Role,
    /// One a round, in the order of the rounds.
    pub(crate) samples: Vec<Sample>,
    /// Why there are none.
    pub(crate) absent: Option<String>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Requests a second.
    pub(crate) iops: f64,
    /// Bytes a second.
    pub(crate) bytes_per_second: f64,
    /// CPU seconds of the server for each GiB; zero for a limit.
    pub(crate) server_cpu_per_gib: f64,
    /// CPU seconds of fio for each GiB.
    pub(crate) client_cpu_per_gib: f64,
    /// 99th percentile of the latency in microseconds.
    pub(crate) latency_us_p99: f64,
}

impl Contender {
    /// Bytes a second, round by round.
    pub(crate) fn throughput(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.bytes_per_second).collect()
    }

    /// CPU seconds of the server for each GiB, round by round.
    pub(crate) fn server_cpu(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.server_cpu_per_gib).collect()
    }
}

/// First-touch writes in one world.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SnapshotPart {
    /// `memory`, `disk`, `slow disk`, `model disk`.
    pub(crate) world: String,
    /// What that is, in a sentence.
    pub(crate) description: String,
    /// Whether the figures are exact (virtual time).
    pub(crate) exact: bool,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// Whether each snapshot has an exception store of its own.
    #[serde(default)]
    pub(crate) independent: bool,
    /// One a load.
    pub(crate) series: Vec<SnapshotSeries>,
}

/// One load of first-touch writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotSeries {
    /// `sequential 1 MiB`.
    pub(crate) load: String,
    /// One a number of snapshots.
    pub(crate) points: Vec<SnapshotPoint>,
}

/// One number of snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotPoint {
    /// How many snapshots the origin has, or how many there are from the one that is read to the origin.
    pub(crate) snapshots: u32,
    /// Bytes a second that the client wrote or read, one a round.
    pub(crate) bytes_per_second: Vec<f64>,
}

impl SnapshotPart {
    /// One more round with `snapshots` snapshots: bytes a second of each load.
    pub(crate) fn record(&mut self, snapshots: u32, speeds: &[f64]) {
        assert_eq!(self.series.len(), speeds.len(), "a speed for each load");
        for (series, speed) in self.series.iter_mut().zip(speeds) {
            series.record(snapshots, *speed);
        }
    }
}

impl SnapshotSeries {
    fn record(&mut self, snapshots: u32, speed: f64) {
        match self.points.iter_mut().find(|point| point.snapshots == snapshots) {
            Some(point) => point.bytes_per_second.push(speed),
            None => self.points.push(SnapshotPoint { snapshots, bytes_per_second: vec![speed] }),
        }
    }

    /// The rounds with `snapshots` snapshots.
    pub(crate) fn rounds(&self, snapshots: u32) -> &[f64] {
        let point = self.points.iter().find(|point| point.snapshots == snapshots);
        point.map_or(&[], |point| &point.bytes_per_second)
    }
}

/// The loads of ESnap's figures under settings of the metadata cache, exact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CachePart {
    /// What was run, in a sentence.
    pub(crate) description: String,
    /// The settings.
    pub(crate) rows: Vec<CacheRow>,
}

/// One setting of the metadata cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CacheRow {
    /// The setting: `all in memory, logged`.
    pub(crate) setting: String,
    /// The setting with all metadata in memory that it is judged by, if its own memory is bounded.
    pub(crate) unbounded: Option<String>,
    /// Bytes a second under each load, by the load's name.
    pub(crate) loads: Vec<(String, f64)>,
    /// Bytes of metadata written for each 64 KiB of sequential change: in the log, or in place.
    pub(crate) log_bytes: f64,
    /// And those of the map when it was written back.
    pub(crate) map_bytes: f64,
}

impl CachePart {
    /// The setting that `row` is compared with: the unbounded one that it is judged by, else the first; nothing for
    /// the first.
    pub(crate) fn base(&self, row: &CacheRow) -> Option<&CacheRow> {
        let first = self.rows.first().filter(|first| first.setting != row.setting);
        match &row.unbounded {
            Some(name) => self.rows.iter().find(|other| other.setting == *name),
            None => first,
        }
    }
}

impl CacheRow {
    /// The metadata that is judged: the map as it is written back, or if it was written with each change, all that was
    /// written meanwhile.
    pub(crate) fn lasting_bytes(&self) -> f64 {
        if self.map_bytes > 0.0 { self.map_bytes } else { self.log_bytes }
    }

    /// Bytes a second under the load of this name.
    pub(crate) fn speed(&self, load: &str) -> Option<f64> {
        self.loads.iter().find(|(name, _)| name == load).map(|(_, speed)| *speed)
    }
}

/// What layers cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LayerPart {
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// Nanoseconds of a request to the no-op device itself.
    pub(crate) bare_ns: Vec<f64>,
    /// The layers.
    pub(crate) layers: Vec<Layer>,
}

/// One layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Layer {
    /// Its name.
    pub(crate) name: String,
    /// Nanoseconds more than without it, one a round.
    pub(crate) added_ns: Vec<f64>,
    /// What it may cost.
    pub(crate) goal_ns: Option<f64>,
}

impl Results {
    /// From a file; empty if there is none.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{} is no result file: {error}", path.display()))
    }

    /// Into a file.
    pub(crate) fn store(&self, path: &Path) -> Result<(), String> {
        let mut text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        text.push('\n');
        // Beside it first: a process that is killed while writing has lost nothing.
        let beside = path.with_extension("new");
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&beside, text))
            .and_then(|()| fs::rename(&beside, path))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Puts `part` where an older one of the same medium was, or at the end; loads that were not measured anew stay.
    pub(crate) fn put_thin(&mut self, mut part: ThinPart, order: &[(String, Work)]) {
        let old = self.thin.iter().find(|old| old.world == part.world);
        for row in old.into_iter().flat_map(|old| &old.rows) {
            if part.rows.iter().all(|new| (&new.state, new.work) != (&row.state, row.work)) {
                part.rows.push(row.clone());
            }
        }
        let place =
            |row: &ThinRow| order.iter().position(|(state, work)| (state, work) == (&row.state, &row.work));
        part.rows.sort_by_key(|row| place(row).unwrap_or(usize::MAX));
        put(&mut self.thin, |old| old.world == part.world, part.clone());
    }

    /// Puts `part` where an older one of the same medium was, or at the end; loads that were not measured anew stay.
    pub(crate) fn put_nbd(&mut self, mut part: NbdPart) {
        let Some(old) = self.nbd.iter_mut().find(|old| old.medium == part.medium) else {
            self.nbd.push(part);
            return;
        };
        for row in old.rows.drain(..) {
            if part.rows.iter().all(|new| new.work != row.work) {
                part.rows.push(row);
            }
        }
        let order = Work::all();
        part.rows.sort_by_key(|row| order.iter().position(|work| *work == row.work));
        *old = part;
    }

    /// Puts `part` where an older one of the same world and kind was, or at the end.
    pub(crate) fn put_snapshots(&mut self, part: &SnapshotPart) {
        let is_like = |old: &SnapshotPart| (&old.world, old.independent) == (&part.world, part.independent);
        put(&mut self.snapshots, is_like, part.clone());
    }

    /// As [`Results::put_snapshots`], for reads.
    pub(crate) fn put_distance(&mut self, part: &SnapshotPart) {
        put(&mut self.distances, |old| old.world == part.world, part.clone());
    }

    /// Puts the settings of the metadata cache on one medium in the place of older ones.
    pub(crate) fn put_cache_times(&mut self, part: &CacheTimes) {
        put(&mut self.cache_times, |old| old.world == part.world, part.clone());
    }
}

fn put<T>(parts: &mut Vec<T>, is_like: impl Fn(&T) -> bool, part: T) {
    match parts.iter_mut().find(|old| is_like(old)) {
        Some(old) => *old = part,
        None => parts.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(medium: &str, size: u64) -> NbdPart {
        let (file_system, machine) = ("ext4".to_owned(), Machine::default());
        NbdPart { medium: medium.to_owned(), file_system, machine, size, seconds: 1.0, rows: Vec::new() }
    }

    #[test]
    fn a_new_measurement_replaces_the_old_one_and_nothing_else() {
        let mut results = Results::default();
        for (medium, size) in [("memory", 1), ("disk, direct", 2), ("memory", 3)] {
            results.put_nbd(part(medium, size));
        }
        let sizes: Vec<_> = results.nbd.iter().map(|part| part.size).collect();
        assert_eq!(sizes, [3, 2]);
    }

    #[test]
    fn loads_that_were_not_measured_anew_stay_and_the_order_is_kept() {
        let with = |works: &[Work], size| {
            let rows = works.iter().map(|work| NbdRow { work: *work, contenders: Vec::new() }).collect();
            NbdPart { rows, ..part("memory", size) }
        };
        let all = Work::all();
        let mut results = Results::default();
        results.put_nbd(with(&all[..3], 1));
        results.put_nbd(with(&all[1..2], 2));
        let works: Vec<_> = results.nbd[0].rows.iter().map(|row| row.work).collect();
        assert_eq!((works.as_slice(), results.nbd[0].size), (&all[..3], 2));
    }

    #[test]
    fn thin_loads_that_were_not_measured_anew_stay_in_the_order_of_the_table() {
        let order: Vec<_> = [1, 32].map(|depth| ("fresh".to_owned(), Work::random(true, 4, depth, 1))).into();
        let row = |index: usize, speed: f64| {
            let (state, work) = order[index].clone();
            let (thin, thick, rivals) = (vec![speed], vec![1.0], Vec::new());
            let mut row = ThinRow { state, work, goal: 0.6, thin, thick, rivals };
            row.record_rival("raw file", Ok(speed));
            row.record_rival("raw file", Ok(speed));
            row
        };
        let part = |rows| ThinPart { world: "memory".to_owned(), rows, ..ThinPart::default() };
        let mut results = Results::default();
        results.put_thin(part(vec![row(0, 1.0), row(1, 2.0)]), &order);
        results.put_thin(part(vec![row(0, 3.0)]), &order);
        let speeds: Vec<_> = results.thin[0].rows.iter().map(|row| row.thin[0]).collect();
        assert_eq!((speeds, results.thin.len()), (vec![3.0, 2.0], 1));
        assert_eq!(results.thin[0].rows[1].rival("raw file"), [2.0, 2.0]);
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("results.json");
        assert!(Results::load(&path).expect("no file, no results").nbd.is_empty());
        let mut results = Results::default();
        results.put_nbd(part("memory", 7));
        results.store(&path).expect("a file");
        assert_eq!(Results::load(&path).expect("the file").nbd[0].size, 7);
        fs::write(&path, "{").expect("a file");
        assert!(Results::load(&path).is_err());
    }
}
