//! The second table, as it is used: the real daemon over NBD, origin writes that are the first to their chunk.
//!
//! For each number of snapshots a fresh volume is written in full, gets its snapshots with a little written between
//! them, and then each load runs once over a region of its own.

use crate::client::Client;
use crate::first_touch::{CHUNK, COUNTS, LOADS, Load};
use crate::machine::{Machine, file_system};
use crate::options::{Medium, Options};
use crate::place::Place;
use crate::results::{SnapshotPart, SnapshotPoint, SnapshotSeries};
use crate::varve::Varve;

/// Bytes after the regions, for what is written between snapshots.
const MARGIN: u64 = 4 << 20;
/// Writes a volume in full before its first snapshot.
const FILL: Load = Load { name: "fill", block: 1 << 20, depth: 8, random: false };

/// Measures one medium.
pub(crate) fn measure(options: &Options, medium: Medium) -> Result<SnapshotPart, String> {
    let parent = options.directory(medium);
    let region = options.region();
    let regions = region * LOADS.len() as u64;
    // The volume, as much again for what its snapshots keep, and room for both to be laid out.
    let disk = 3 * (regions + MARGIN) + (64 << 20);
    let place = Place::new(parent, disk)?;
    let file = place.file("disk", disk)?;
    let varve = Varve::start(&options.varve(), place.path())?;
    varve.create_group(&file, medium.cache())?;
    let mut series: Vec<SnapshotSeries> = LOADS.iter().map(empty_series).collect();
    for round in 0..options.runs() {
        for turn in 0..COUNTS.len() {
            let index = (turn + round) % COUNTS.len();
            let speeds = measure_one(&varve, region, COUNTS[index])?;
            for (series, speed) in series.iter_mut().zip(speeds) {
                series.points[index].bytes_per_second.push(speed);
            }
        }
        eprintln!("snapshots, {}: round {} of {}", medium.name(), round + 1, options.runs());
    }
    varve.stop()?;
    let description = format!(
        "the daemon over NBD on {}, {}, {} MiB a load, {} rounds",
        file_system(parent),
        if medium == Medium::DiskDirect { "direct I/O" } else { "buffered" },
        region >> 20,
        options.runs()
    );
    Ok(SnapshotPart {
        world: medium.name().to_owned(),
        description,
        exact: false,
        machine: Machine::look(),
        series,
    })
}

/// A series for `load` with a point for each number of snapshots and no figures yet.
pub(crate) fn empty_series(load: &Load) -> SnapshotSeries {
    let point = |snapshots: u32| SnapshotPoint { snapshots, bytes_per_second: Vec::new() };
    SnapshotSeries { load: load.name.to_owned(), points: COUNTS.map(point).to_vec() }
}

/// Bytes a second of each load with that many snapshots.
fn measure_one(varve: &Varve, region: u64, snapshots: u32) -> Result<Vec<f64>, String> {
    let size = region * LOADS.len() as u64 + MARGIN;
    varve.create_volume("origin", size)?;
    let socket = varve.export("origin")?;
    let mut client = Client::connect(&socket)?;
    client.write(&FILL, 0, size)?;
    for snapshot in 0..snapshots {
        varve.create_snapshot("origin", &format!("s{snapshot}"))?;
        client.write(&LOADS[1], size - MARGIN + u64::from(snapshot) * CHUNK, CHUNK)?;
    }
    let mut speeds = Vec::new();
    for (index, load) in LOADS.iter().enumerate() {
        speeds.push(client.write(load, index as u64 * region, region)?);
    }
    drop(client);
    varve.remove_export("origin")?;
    varve.remove_volume("origin", snapshots)?;
    Ok(speeds)
}
