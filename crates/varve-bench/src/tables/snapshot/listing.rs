//! Writes to a thin volume while its snapshots are listed again and again: through the daemon, in memory.
//!
//! Each snapshot differs from the next, so that a list has a figure of its own to tell of each; and the writes go on, so
//! that figures grow old.

use crate::first_touch::Load;
use crate::prelude::*;
use crate::programs::client::Client;
use crate::programs::relay::{TURN, beside_relay};
use crate::programs::varve::Varve;
use crate::tables::snapshot::management::{ALONE, PERIOD, REGION};
use crate::tables::snapshot::management_daemon::{BLOCK, beside_nothing, beside_writes};

/// Snapshots of the volume.
const SNAPSHOTS: u64 = 1000;
/// The 99th percentile of writes beside the lists, over that without.
const GOAL: Goal = Goal::AtMost(1.2);
/// The pool and the volume in it.
const POOL: &str = "pool";
const VOLUME: &str = "listed";

/// Measures it; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
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
    let varve = Varve::on(options, Medium::Memory, size, &[])?;
    varve.create_pool(POOL, 12 * REGION)?;
    varve.create_thin(VOLUME, POOL, REGION)?;
    let mut client = Client::connect(&varve.export(VOLUME)?)?;
    client.write(&Load { name: "fill", block: 1 << 20, depth: 8, random: false }, 0, REGION)?;
    for number in 0..count {
        varve.create_snapshot(VOLUME, &format!("s{number}"))?;
        let places = (0..8).map(|part| (number * 61 + part * 1999) % (REGION / BLOCK as u64) * BLOCK as u64);
        client.write_places(places, BLOCK, 8)?;
    }
    for _ in 0..options.runs() {
        let alone = beside_nothing(&mut client)?;
        let (beside, lists) = beside_writes(&mut client, || lists(&varve, count))?;
        let (alone, beside) = (percentile(&alone, 0.99), percentile(&beside, 0.99));
        let name = format!("write p99 while {count} thin snapshots are listed again and again");
        part.record(format!("{name}, over that without"), "x", GOAL, beside / alone);
        let (busy, busy_beside) = on_a_busy_machine(&varve, &mut client, count)?;
        let load = format!("two threads compute {} ms in turn", TURN.as_secs_f64() * 1e3);
        part.note(format!("write p99 while {load}, over that without"), "x", busy / alone);
        part.note(format!("{name} and {load}, over that beside the threads alone"), "x", busy_beside / busy);
        part.note("write p99 without lists", "ms", alone / 1e3);
        part.note(format!("a list of {count} thin snapshots, median"), "ms", percentile(&lists, 0.5));
        sheet.keep(&part)?;
    }
    drop(client);
    varve.stop()
}

/// The 99th percentile of writes beside a load of one processor by others, and beside that load and the lists: what of the
/// latter is the daemon's, and not due to one processor less.
fn on_a_busy_machine(varve: &Varve, client: &mut Client, count: u64) -> Outcome<(f64, f64)> {
    let alone = beside_relay(|| beside_nothing(client))?;
    let (beside, _) = beside_relay(|| beside_writes(client, || lists(varve, count)))?;
    Ok((percentile(&alone, 0.99), percentile(&beside, 0.99)))
}

/// Lists the snapshots again and again for a while: milliseconds of each list.
fn lists(varve: &Varve, count: u64) -> Outcome<Vec<f64>> {
    let (whole, mut each) = (Watch::start(), Vec::new());
    while whole.elapsed() < ALONE {
        let watch = Watch::start();
        let listed = varve.list_snapshots(VOLUME)?;
        if listed as u64 != count {
            return Err(format!("{listed} snapshots are listed, not {count}").into());
        }
        each.push(watch.seconds() * 1e3);
    }
    Ok(each)
}
