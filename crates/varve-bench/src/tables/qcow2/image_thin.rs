//! A thin volume over a chain of qcow2 images beside one over the same bytes as a raw image, through the daemon.

use super::image_chains::fill;
use super::image_files::files_of;
use crate::prelude::*;
use crate::programs::fio::{Endpoint, Job};
use crate::programs::varve::{Varve, uri};
use crate::work::Work;

/// Reads over the chain over those over the raw image, at least.
const GOAL: Goal = Goal::AtLeast(0.95);
/// Images of the chain.
const LAYERS: usize = 30;
/// Bytes of the disk.
const SIZE: u64 = 256 * MIB;
/// Bytes of the pool, to which nothing is written but metadata, and what else the group needs.
const POOL_BYTES: u64 = 64 * MIB;
const GROUP_OVERHEAD: u64 = 64 * MIB;
const POOL: &str = "pool";
/// Of each run of fio, which takes half a second beside it.
const DURATION: Duration = Duration::from_millis(700);

/// Measures both, one right after the other, in turn the one and the other first.
pub(in crate::tables) fn measure(options: &Options, part: &mut Part) -> Outcome<()> {
    let group = POOL_BYTES + GROUP_OVERHEAD;
    let place = Place::new(options.directory(Medium::Memory), 3 * SIZE + group)?;
    let raw = place.file("raw", SIZE)?;
    let files = files_of(place.path(), "layer", LAYERS, SIZE)?;
    let top = files.last().ok_or("a chain has an image")?.0.clone();
    let shard = Shard::start()?;
    let filled = shard.run(async move |context: ShardContext| fill(&context, &files, SIZE).await);
    filled?;
    let disk = place.file("disk", group)?;
    let cache = Medium::Memory.cache();
    let folder = place.path().to_string_lossy();
    let alike = ["--cache", "buffered", "--image-dir", &folder];
    let varve = Varve::start_with(&alike, &options.varve(), place.path(), &disk, cache)?;
    varve.create_pool(POOL, POOL_BYTES)?;
    let mut endpoints = Vec::new();
    for (name, image, format) in [("over-chain", &top, "qcow2"), ("over-raw", &raw, "raw")] {
        let (volume, image) = (format!("bench/{name}"), image.to_string_lossy());
        varve.call(&["lv", "create", &volume, "--pool", POOL, "--image", &image, "--format", format])?;
        endpoints.push(Endpoint::Nbd { uri: uri(&varve.export(name)?) });
    }
    let works =
        [Work::random(false, 4, 1, 1), Work::random(false, 4, 32, 1), Work::sequential(false, 64, 8, 1)];
    let go = |endpoint, work, duration: Duration| {
        let duration = Some(duration.min(options.duration()));
        Job { endpoint, work, size: SIZE, duration, flush: false }.run().map(|measured| measured.iops)
    };
    // In the first run tables are read.
    for endpoint in &endpoints {
        go(endpoint, &works[2], DURATION)?;
    }
    for round in 0..options.runs() {
        for work in &works {
            let mut speeds = [0.0; 2];
            for turn in 0..2 {
                let index = (turn + round) % 2;
                speeds[index] = go(&endpoints[index], work, DURATION)?;
            }
            let name = format!(
                "thin volume over a chain of {LAYERS} qcow2 images, {}, over that of one over a raw image",
                work.name()
            );
            part.record(&name, "x", GOAL, speeds[0] / speeds[1]);
        }
    }
    varve.stop()
}
