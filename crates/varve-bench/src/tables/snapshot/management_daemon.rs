//! Creating and removing snapshots as a person meets it: asked of the daemon, while an NBD client writes.

use crate::first_touch::Load;
use crate::machine::file_system;
use crate::options::{Medium, Options};
use crate::programs::client::Client;
use crate::programs::place::Place;
use crate::programs::varve::Varve;
use crate::programs::watch::{Watch, pause};
use crate::report::sheet::Sheet;
use crate::report::stats::percentile;
use crate::results::Part;
use crate::tables::snapshot::daemon::Subject;
use crate::tables::snapshot::management::{
    ALONE, CREATE_GOAL_MS, Deletion, ENTRIES, PERIOD, REGION, REMOVE_GOAL_MS,
};
use crate::tables::snapshot::stage::MARGIN;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Numbers of snapshots beside which one is created and removed. The first snapshot of a volume makes its exception
/// store, and with the last one the store goes.
const COUNTS: [u32; 3] = [0, 1, 1024];
/// Snapshots created and removed in a round.
const CREATES: usize = 30;
/// Time between creating and removing, and the other way round.
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes of a write of the load.
pub(in crate::tables) const BLOCK: usize = 4 << 10;

/// What one round took: milliseconds, and microseconds of writes.
struct Round {
    created: Vec<f64>,
    removed: Vec<f64>,
    writes: Vec<f64>,
}

fn empty_part(options: &Options, medium: Medium) -> Part {
    Part::new(
        "management",
        format!("daemon, {}", medium.name()),
        format!(
            "the daemon on {}, asked over its socket, while each {} ms 4 KiB are written over NBD to a random place of \
             {} MiB, their latency counted from when they were due; {CREATES} snapshots a round, {} rounds",
            file_system(options.directory(medium)),
            PERIOD.as_millis(),
            REGION >> 20,
            options.runs()
        ),
    )
}

/// Measures creations and removals on one medium; each round is kept as soon as it is there.
pub(crate) fn creating(options: &Options, medium: Medium, sheet: &mut Sheet) -> Result<(), String> {
    let (part, parent) = (&mut empty_part(options, medium), options.directory(medium));
    let size = REGION + MARGIN;
    let disk = COUNTS.len() as u64 * (4 * size + (64 << 20));
    let place = Place::new(parent, disk)?;
    let file = place.file("disk", disk)?;
    let varve = Varve::start(&options.varve(), place.path(), &file, medium.cache())?;
    let mut subjects = Vec::new();
    for snapshots in COUNTS {
        subjects.push(Subject::make(&varve, size, snapshots)?);
    }
    for round in 0..options.runs() {
        for turn in 0..subjects.len() {
            let index = (turn + round) % subjects.len();
            let subject = &mut subjects[index];
            let count = subject.snapshots;
            let measured = measure_round(&varve, subject)?;
            let beside = match count {
                0 => "no snapshot (makes the store)".to_owned(),
                1 => "1 snapshot".to_owned(),
                _ => format!("{count} snapshots"),
            };
            record(part, &beside, &measured);
        }
        sheet.keep(part)?;
        eprintln!("management, {}: round {} of {}", part.world, round + 1, options.runs());
    }
    drop(subjects);
    varve.stop()
}

/// Changes of a snapshot from writable to read-only, or back, in a round.
const CHANGES: usize = 30;

/// How long it takes to make a snapshot writable, or read-only again, in memory and while an NBD client writes to its origin.
pub(crate) fn changing(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    let (part, medium) = (&mut empty_part(options, Medium::Memory), Medium::Memory);
    part.world.push_str(", access");
    part.description =
        part.description.replace(&format!("{CREATES} snapshots"), &format!("{CHANGES} changes"));
    let size = REGION + MARGIN;
    let place = Place::new(options.directory(medium), 5 * size)?;
    let file = place.file("disk", 5 * size)?;
    let varve = Varve::start(&options.varve(), place.path(), &file, medium.cache())?;
    let mut subject = Subject::make(&varve, size, 16)?;
    let snapshot = format!("bench/{}@s8", subject.name);
    for _ in 0..options.runs() {
        let (_, changes) = beside_writes(&mut subject.client, || {
            let change = |number: usize| {
                pause(PAUSE);
                let mode = if number.is_multiple_of(2) { "--read-write" } else { "--read-only" };
                let watch = Watch::start();
                varve.call(&["snap", "change", &snapshot, mode])?;
                Ok(watch.seconds() * 1e3)
            };
            (0..CHANGES).map(change).collect::<Result<Vec<f64>, String>>()
        })?;
        let name = "snap change --read-write or --read-only, of 16 snapshots";
        part.record(&format!("{name}, median"), "ms", None, percentile(&changes, 0.5));
        sheet.keep(part)?;
    }
    drop(subject);
    varve.stop()
}

/// Bytes from one entry of the deleted snapshot to the next: neighbours would become one.
const PITCH: u64 = 8 << 10;

/// A snapshot after the other leaves its entries to the one before it, in memory and while an NBD client writes: on a
/// disk the room for a million copies would have to be written first.
pub(crate) fn deleting(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    let (part, medium) = (&mut empty_part(options, Medium::Memory), Medium::Memory);
    let entries = if options.is_quick() { ENTRIES >> 6 } else { ENTRIES };
    let size = REGION + entries * PITCH;
    let need = 2 * entries * BLOCK as u64 + 4 * REGION;
    let place = Place::new(options.directory(medium), need)?;
    let file = place.sparse("disk", size + need, &[])?;
    let varve = Varve::start(&options.varve(), place.path(), &file, medium.cache())?;
    varve.create_volume("origin", size)?;
    let mut client = Client::connect(&varve.export("origin")?)?;
    let fill = Load { name: "fill", block: 1 << 20, depth: 8, random: false };
    client.write(&fill, 0, REGION)?;
    for snapshot in 0..=options.runs() {
        varve.create_snapshot("origin", &format!("s{snapshot}"))?;
    }
    client.write(&fill, 0, REGION)?;
    client.write_places((0..entries).map(|entry| REGION + entry * PITCH), BLOCK, 64)?;
    for round in 0..options.runs() {
        let snapshot = format!("s{}", options.runs() - round);
        delete(&varve, &mut client, &snapshot)?.record(part, entries);
        sheet.keep(part)?;
        eprintln!("management, {}: deletion {} of {}", part.world, round + 1, options.runs());
    }
    drop(client);
    varve.stop()
}

fn delete(varve: &Varve, client: &mut Client, snapshot: &str) -> Result<Deletion, String> {
    let (alone, ()) = beside_writes(client, || {
        pause(ALONE);
        Ok(())
    })?;
    let (beside, (begun_ms, whole_ms)) = beside_writes(client, || {
        let watch = Watch::start();
        let job = varve.remove_snapshot("origin", snapshot)?;
        let begun_ms = watch.seconds() * 1e3;
        varve.wait_for_job(&job)?;
        Ok((begun_ms, watch.seconds() * 1e3))
    })?;
    Ok(Deletion { alone, beside, begun_ms, whole_ms })
}

/// Runs `work` while the client writes; returns how many microseconds each write took, and what came of the work.
pub(in crate::tables) fn beside_writes<T>(
    client: &mut Client,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<(Vec<f64>, T), String> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| client.write_until(BLOCK, PERIOD, REGION, &stop));
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        let writes = writer.join().map_err(|_| "the writer panicked".to_owned())??;
        Ok((writes, outcome?))
    })
}

fn record(part: &mut Part, beside: &str, round: &Round) {
    let name = |what: &str| format!("{what}, {beside}");
    let created = |share| percentile(&round.created, share);
    part.record(&name("snap create, median"), "ms", Some(CREATE_GOAL_MS), created(0.5));
    part.record(&name("snap create, slowest"), "ms", None, created(1.0));
    let removed = percentile(&round.removed, 1.0);
    part.record(&name("snap remove returns, slowest"), "ms", Some(REMOVE_GOAL_MS), removed);
    let writes = percentile(&round.writes, 0.99) / 1e3;
    part.record(&name("origin writes meanwhile, p99"), "ms", None, writes);
}

fn measure_round(varve: &Varve, subject: &mut Subject) -> Result<Round, String> {
    let Subject { name, client, .. } = subject;
    let (writes, (created, removed)) = beside_writes(client, || create_and_remove(varve, name))?;
    Ok(Round { created, removed, writes })
}

/// Milliseconds of each creation, and of each removal until it was answered.
fn create_and_remove(varve: &Varve, volume: &str) -> Result<(Vec<f64>, Vec<f64>), String> {
    let (mut created, mut removed) = (Vec::new(), Vec::new());
    for number in 0..CREATES {
        let snapshot = format!("one.more.{number}");
        pause(PAUSE);
        let watch = Watch::start();
        varve.create_snapshot(volume, &snapshot)?;
        created.push(watch.seconds() * 1e3);
        pause(PAUSE);
        let watch = Watch::start();
        let job = varve.remove_snapshot(volume, &snapshot)?;
        removed.push(watch.seconds() * 1e3);
        varve.wait_for_job(&job)?;
    }
    Ok((created, removed))
}
