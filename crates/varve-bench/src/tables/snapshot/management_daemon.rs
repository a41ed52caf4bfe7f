//! Creating and removing snapshots as a person meets it: asked of the daemon, while an NBD client writes.

use crate::first_touch::Load;
use crate::prelude::*;
use crate::programs::client::Client;
use crate::programs::varve::Varve;
use crate::tables::snapshot::daemon::Subject;
use crate::tables::snapshot::management::{ALONE, Deletion, ENTRIES, PERIOD, REGION, Round};
use crate::tables::snapshot::stage::MARGIN;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers of snapshots beside which one is created and removed. The first snapshot of a volume makes its exception
/// store, and with the last one the store goes.
const COUNTS: [u32; 3] = [0, 1, 1024];
/// Snapshots created and removed in a round.
const CREATES: usize = 30;
/// Time between creating and removing, and the other way round.
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes of a write of the load.
pub(in crate::tables) const BLOCK: usize = 4 << 10;

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
pub(crate) fn creating(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let part = &mut empty_part(options, medium);
    let size = REGION + MARGIN;
    let disk = COUNTS.len() as u64 * (4 * size + (64 << 20));
    let varve = Varve::on(options, medium, disk, &[])?;
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
            measured.record(part, &beside);
        }
        sheet.keep(part)?;
    }
    drop(subjects);
    varve.stop()
}

/// Changes of a snapshot from writable to read-only, or back, in a round.
const CHANGES: usize = 30;

/// How long it takes to make a snapshot writable, or read-only again, in memory and while an NBD client writes to its origin.
pub(crate) fn changing(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let part = &mut empty_part(options, medium);
    part.world.push_str(", access");
    part.description =
        part.description.replace(&format!("{CREATES} snapshots"), &format!("{CHANGES} changes"));
    let size = REGION + MARGIN;
    let varve = Varve::on(options, medium, 5 * size, &[])?;
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
            (0..CHANGES).map(change).collect::<Outcome<Vec<f64>>>()
        })?;
        let name = "snap change --read-write or --read-only, of 16 snapshots";
        part.note(format!("{name}, median"), "ms", percentile(&changes, 0.5));
        sheet.keep(part)?;
    }
    drop(subject);
    varve.stop()
}

/// Bytes from one entry of the deleted snapshot to the next: neighbours would become one.
const PITCH: u64 = 8 << 10;

/// A snapshot after the other leaves its entries to the one before it, in memory and while an NBD client writes: on a
/// disk the room for a million copies would have to be written first.
pub(crate) fn deleting(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let part = &mut empty_part(options, medium);
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
    }
    drop(client);
    varve.stop()
}

fn delete(varve: &Varve, client: &mut Client, snapshot: &str) -> Outcome<Deletion> {
    let alone = beside_nothing(client)?;
    let (beside, (begun_ms, whole_ms)) = beside_writes(client, || {
        let watch = Watch::start();
        let job = varve.remove_snapshot("origin", snapshot)?;
        let begun_ms = watch.seconds() * 1e3;
        varve.wait_for_job(&job)?;
        Ok((begun_ms, watch.seconds() * 1e3))
    })?;
    Ok(Deletion { alone, beside, begun_ms, whole_ms })
}

/// How many microseconds each write took while nothing else was done.
pub(in crate::tables) fn beside_nothing(client: &mut Client) -> Outcome<Vec<f64>> {
    let idle = || {
        pause(ALONE);
        Ok(())
    };
    Ok(beside_writes(client, idle)?.0)
}

/// Runs `work` while the client writes; returns how many microseconds each write took, and what came of the work.
pub(in crate::tables) fn beside_writes<T>(
    client: &mut Client,
    work: impl FnOnce() -> Outcome<T>,
) -> Outcome<(Vec<f64>, T)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| client.write_until(BLOCK, PERIOD, REGION, &stop));
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        let writes = writer.join().map_err(|_| "the writer panicked".to_owned())??;
        Ok((writes, outcome?))
    })
}

fn measure_round(varve: &Varve, subject: &mut Subject) -> Outcome<Round> {
    let Subject { name, client, .. } = subject;
    let (writes, (created, removed)) = beside_writes(client, || create_and_remove(varve, name))?;
    Ok(Round { created, removed, writes })
}

/// Milliseconds of each creation, and of each removal until it was answered.
fn create_and_remove(varve: &Varve, volume: &str) -> Outcome<(Vec<f64>, Vec<f64>)> {
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
