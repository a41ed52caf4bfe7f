//! Writes to a thin volume while its snapshots are listed again and again: through the daemon, in memory.
//!
//! Each snapshot differs from the next, so that a list has a figure of its own to tell of each; and the writes go on, so
//! that figures grow old.

use crate::first_touch::Load;
use crate::machine::file_system;
use crate::options::{Medium, Options};
use crate::programs::client::Client;
use crate::programs::place::Place;
use crate::programs::relay::{TURN, beside_relay};
use crate::programs::varve::Varve;
use crate::programs::watch::{Watch, pause};
use crate::report::goal::Goal;
use crate::report::sheet::Sheet;
use crate::report::stats::percentile;
use crate::results::Part;
use crate::tables::snapshot::management::{ALONE, PERIOD, REGION};
use crate::tables::snapshot::management_daemon::{BLOCK, beside_writes};

/// Snapshots of the volume.
const SNAPSHOTS: u64 = 1000;
/// The 99th percentile of writes beside the lists, over that without.
const GOAL: Goal = Goal::AtMost(1.2);
/// The pool and the volume in it.
const POOL: &str = "pool";
const VOLUME: &str = "listed";

/// Measures it; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    let count = if options.is_quick() { SNAPSHOTS / 20 } else { SNAPSHOTS };
    let (parent, size) = (options.directory(Medium::Memory), 16 * REGION);
    let mut part = Part::new(
        "pools",
        "daemon, memory",
        format!(
            "the daemon on {}, while each {} ms 4 KiB are written over NBD to a random place of {} MiB, their latency \
             counted from when they were due, for {} s without lists and as long with",
            file_system(parent),
            PERIOD.as_millis(),
            REGION >> 20,
            ALONE.as_secs()
        ),
    );
    let place = Place::new(parent, size)?;
    let file = place.file("disk", size)?;
    let varve = Varve::start(&options.varve(), place.path(), &file, Medium::Memory.cache())?;
    varve.create_pool(POOL, 12 * REGION)?;
    varve.create_thin(VOLUME, POOL, REGION)?;
    let mut client = Client::connect(&varve.export(VOLUME)?)?;
    client.write(&Load { name: "fill", block: 1 << 20, depth: 8, random: false }, 0, REGION)?;
    for number in 0..count {
        varve.create_snapshot(VOLUME, &format!("s{number}"))?;
        let places = (0..8).map(|part| (number * 61 + part * 1999) % (REGION / BLOCK as u64) * BLOCK as u64);
        client.write_places(places, BLOCK, 8)?;
    }
    for round in 0..options.runs() {
        let (alone, ()) = beside_writes(&mut client, || {
            pause(ALONE);
            Ok(())
        })?;
        let (beside, lists) = beside_writes(&mut client, || lists(&varve, count))?;
        let (alone, beside) = (percentile(&alone, 0.99), percentile(&beside, 0.99));
        let name = format!("write p99 while {count} thin snapshots are listed again and again");
        part.record(&format!("{name}, over that without"), "x", Some(GOAL), beside / alone);
        let (busy, busy_beside) = on_a_busy_machine(&varve, &mut client, count)?;
        let load = format!("two threads compute {} ms in turn", TURN.as_secs_f64() * 1e3);
        part.record(&format!("write p99 while {load}, over that without"), "x", None, busy / alone);
        part.record(
            &format!("{name} and {load}, over that beside the threads alone"),
            "x",
            None,
            busy_beside / busy,
        );
        part.record("write p99 without lists", "ms", None, alone / 1e3);
        part.record(
            &format!("a list of {count} thin snapshots, median"),
            "ms",
            None,
            percentile(&lists, 0.5),
        );
        sheet.keep(&part)?;
        eprintln!("lists, memory: round {} of {}", round + 1, options.runs());
    }
    drop(client);
    varve.stop()
}

/// The 99th percentile of writes beside a load of one processor by others, and beside that load and the lists: what of the
/// latter is the daemon's, and not due to one processor less.
fn on_a_busy_machine(varve: &Varve, client: &mut Client, count: u64) -> Result<(f64, f64), String> {
    let (alone, ()) = beside_relay(|| {
        beside_writes(client, || {
            pause(ALONE);
            Ok(())
        })
    })?;
    let (beside, _) = beside_relay(|| beside_writes(client, || lists(varve, count)))?;
    Ok((percentile(&alone, 0.99), percentile(&beside, 0.99)))
}

/// Lists the snapshots again and again for a while: milliseconds of each list.
fn lists(varve: &Varve, count: u64) -> Result<Vec<f64>, String> {
    let (whole, mut each) = (Watch::start(), Vec::new());
    while whole.elapsed() < ALONE {
        let watch = Watch::start();
        let listed = varve.list_snapshots(VOLUME)?;
        if listed as u64 != count {
            return Err(format!("{listed} snapshots are listed, not {count}"));
        }
        each.push(watch.seconds() * 1e3);
    }
    Ok(each)
}
