//! What a flood of one client does to a neighbour: small reads of a volume, alone and while another volume of the same
//! group, disk and shard is flooded.
//!
//! In each round every flood has its turn: the neighbour reads for a while in quiet, then as long beside the flood, so that
//! both halves of a ratio are measured next to each other.

use crate::prelude::*;
use crate::programs::client::Client;
use crate::programs::varve::Varve;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_nbd::Command;

/// What a physical volume needs beside its volumes.
const GROUP_OVERHEAD: u64 = 32 << 20;
/// Bytes of the neighbour's volume.
const NEIGHBOUR_BYTES: u64 = 64 << 20;
/// Bytes of one of the neighbour's reads.
const READ_BYTES: usize = 4096;
/// For how long a flood runs before the neighbour is measured beside it.
const RISE: Duration = Duration::from_millis(200);
const MIB: usize = 1 << 20;
/// What the median of the reads may be beside a flood, over that in quiet.
const P50_GOAL: Goal = Goal::AtMost(10.0);
/// What their 99th percentile may be.
const P99_GOAL_MS: Goal = Goal::AtMost(20.0);

/// What the other client does.
#[derive(Clone, Copy, Debug)]
struct Flood {
    name: &'static str,
    command: Command,
    /// Bytes of a request; none: the whole volume.
    length: Option<usize>,
    depth: usize,
}

const FLOODS: [Flood; 9] = [
    Flood { name: "32 MiB reads QD8", command: Command::Read, length: Some(32 * MIB), depth: 8 },
    Flood { name: "32 MiB writes QD8", command: Command::Write, length: Some(32 * MIB), depth: 8 },
    Flood { name: "1 MiB reads QD128", command: Command::Read, length: Some(MIB), depth: 128 },
    Flood { name: "4 KiB reads QD128", command: Command::Read, length: Some(4096), depth: 128 },
    Flood { name: "4 KiB writes QD128", command: Command::Write, length: Some(4096), depth: 128 },
    Flood { name: "trims of the whole volume QD32", command: Command::Trim, length: None, depth: 32 },
    Flood { name: "zeroes, 32 MiB QD32", command: Command::WriteZeroes, length: Some(32 * MIB), depth: 32 },
    Flood { name: "zeroes of the whole volume QD32", command: Command::WriteZeroes, length: None, depth: 32 },
    Flood { name: "flushes QD128", command: Command::Flush, length: Some(0), depth: 128 },
];

/// Measures one medium; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    Bench::start(options, medium)?.measure(options, medium, sheet)
}

struct Bench {
    flooded: PathBuf,
    quiet: PathBuf,
    size: u64,
    varve: Varve,
}

impl Bench {
    /// One shard, so that both volumes are on it.
    fn start(options: &Options, medium: Medium) -> Outcome<Self> {
        let size = options.size(medium).min(1 << 30);
        let all = size + NEIGHBOUR_BYTES + GROUP_OVERHEAD;
        let varve = Varve::on(options, medium, all, &["--shards", "1"])?;
        varve.create_volume("flooded", size)?;
        varve.create_volume("quiet", NEIGHBOUR_BYTES)?;
        let (flooded, quiet) = (varve.export("flooded")?, varve.export("quiet")?);
        Client::connect(&quiet)?.write_places((0..NEIGHBOUR_BYTES).step_by(MIB), MIB, 4)?;
        Ok(Self { flooded, quiet, size, varve })
    }

    /// Writes the volume that is to be flooded in full, so that there is something to read and to trim.
    fn fill(&self) -> Outcome<()> {
        let mut client = Client::connect(&self.flooded)?;
        client.write_places((0..self.size).step_by(MIB), MIB, 4)?;
        client.flush()
    }

    fn measure(self, options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
        let floods: Vec<_> = FLOODS.iter().filter(|flood| options.wants(flood.name)).collect();
        let directory = file_system(options.directory(medium));
        let description = format!("{directory}, a volume of {} MiB is flooded", self.size >> 20);
        let mut part = Part::new("neighbour", medium.name(), description);
        for _ in 0..options.runs() {
            for flood in &floods {
                self.fill()?;
                let quiet = read(&self.quiet, options.duration())?;
                let (beside, rate) = self.beside(flood, options.duration())?;
                part.at(flood.name, "quiet p50", "us").push(quiet.0);
                part.at(flood.name, "p50", "us").over("quiet p50").goal(P50_GOAL).push(beside.0);
                part.at(flood.name, "quiet p99", "ms").push(quiet.1 / 1e3);
                part.at(flood.name, "p99", "ms").goal(P99_GOAL_MS).push(beside.1 / 1e3);
                part.at(flood.name, "flood", "/s").push(rate);
            }
            sheet.keep(&part)?;
        }
        self.varve.stop()
    }

    /// Median and 99th percentile of the neighbour's reads beside `flood`, and how many of its requests were answered a
    /// second.
    fn beside(&self, flood: &Flood, duration: Duration) -> Outcome<((f64, f64), f64)> {
        let length = flood.length.unwrap_or(usize::try_from(self.size).expect("a volume of this test"));
        let slots = (self.size / length.max(4096) as u64).max(1);
        let mut noise = Noise(20_060_810);
        let step = if length == 0 { 0 } else { length as u64 };
        let places = std::iter::repeat_with(move || noise.next() % slots * step);
        let mut client = Client::connect(&self.flooded)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flooding = scope.spawn(|| {
                let watch = Watch::start();
                let done = client.flood((flood.command, length, flood.depth), places, &stop);
                done.map(|done| done as f64 / watch.seconds())
            });
            pause(RISE);
            let beside = read(&self.quiet, duration);
            stop.store(true, Ordering::Relaxed);
            let rate = flooding.join().map_err(|_| "the flood panicked")?;
            Ok((beside?, rate.of(flood.name)?))
        })
    }
}

/// Median and 99th percentile, in microseconds, of small reads for `duration`, one after the other.
fn read(socket: &Path, duration: Duration) -> Outcome<(f64, f64)> {
    let mut noise = Noise(7);
    let places = std::iter::repeat_with(move || {
        noise.next() % (NEIGHBOUR_BYTES / READ_BYTES as u64) * READ_BYTES as u64
    });
    let latencies = Client::connect(socket)?.read_alone(places, READ_BYTES, duration)?;
    Ok((percentile(&latencies, 0.5), percentile(&latencies, 0.99)))
}
