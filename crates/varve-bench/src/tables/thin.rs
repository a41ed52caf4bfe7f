//! Seed 001's question: what a thin volume costs beside a thick one, through the real daemon over NBD.
//!
//! Each load goes once over a region, first on the linear volume, then on a thin one that is in the state meant, or the
//! other way round in every second round. For fresh space the thin volume is made anew each time; after a snapshot every
//! write is the first to what it covers.

use crate::fio::{Endpoint, Job};
use crate::machine::{Machine, file_system};
use crate::options::{Medium, Options};
use crate::place::Place;
use crate::results::{ThinPart, ThinRow};
use crate::sheet::Sheet;
use crate::varve::{Varve, uri};
use crate::work::Work;

/// What a physical volume needs beside its volumes.
const GROUP_OVERHEAD: u64 = 16 << 20;
/// The pool.
const POOL: &str = "pool";

/// In which state the thin volume is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Written,
    Snapshot,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Fresh => "fresh space",
            State::Written => "written before",
            State::Snapshot => "after a snapshot",
        }
    }
}

/// All rows: state, load and the ratio that is wanted.
fn rows() -> Vec<(State, Work, f64)> {
    let mut rows = Vec::new();
    for depth in [1, 32] {
        rows.extend([
            (State::Fresh, Work::sequential(true, 1024, depth, 1), 0.90),
            (State::Written, Work::sequential(true, 1024, depth, 1), 0.98),
            (State::Written, Work::sequential(false, 1024, depth, 1), 0.98),
            (State::Fresh, Work::random(true, 4, depth, 1), 0.60),
            (State::Written, Work::random(true, 4, depth, 1), 0.95),
            (State::Written, Work::random(false, 4, depth, 1), 0.95),
            (State::Snapshot, Work::random(true, 4, depth, 1), 0.70),
            (State::Snapshot, Work::random(true, 64, depth, 1), 0.90),
        ]);
    }
    rows
}

/// Measures one medium; each row is kept as soon as it is there.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Result<(), String> {
    let (parent, region) = (options.directory(medium), 4 * options.region());
    let disk = 6 * region + 4 * GROUP_OVERHEAD;
    let place = Place::new(parent, disk)?;
    let file = place.file("disk", disk)?;
    let varve = Varve::start(&options.varve(), place.path(), &file, medium.cache())?;
    varve.create_volume("thick", region)?;
    varve.create_pool(POOL, 4 * region + GROUP_OVERHEAD)?;
    let thick = Endpoint::Nbd { uri: uri(&varve.export("thick")?) };
    fill(&thick, region)?;
    let mut part = ThinPart {
        world: medium.name().to_owned(),
        description: format!(
            "the daemon over NBD on {}, {}, {} MiB a run ({} of small requests), {} rounds",
            file_system(parent),
            if medium == Medium::DiskDirect { "direct I/O" } else { "buffered" },
            region >> 20,
            region >> 22,
            options.runs()
        ),
        machine: Machine::look(),
        rows: Vec::new(),
    };
    let wanted = |work: &Work| options.wants("thin") || options.wants(&work.name());
    for (state, work, goal) in rows().into_iter().filter(|(_, work, _)| wanted(work)) {
        let state_name = state.name().to_owned();
        let mut row = ThinRow { state: state_name, work, goal, thin: Vec::new(), thick: Vec::new() };
        for round in 0..=options.runs() {
            let sides = measure_round(&varve, &thick, state, &work, region, round)?;
            if round > 0 {
                row.thin.push(sides.0);
                row.thick.push(sides.1);
            }
        }
        eprintln!("thin volumes, {}: {}, {}", medium.name(), row.state, work.name());
        part.rows.push(row);
        sheet.keep(|results| results.put_thin(&part))?;
    }
    varve.stop()
}

/// Bytes a second on a thin volume and on the thick one.
fn measure_round(
    varve: &Varve,
    thick: &Endpoint,
    state: State,
    work: &Work,
    region: u64,
    round: usize,
) -> Result<(f64, f64), String> {
    varve.create_thin("thin", POOL, region)?;
    let thin = Endpoint::Nbd { uri: uri(&varve.export("thin")?) };
    if state != State::Fresh {
        fill(&thin, region)?;
    }
    if state == State::Snapshot {
        varve.create_snapshot("thin", "before")?;
    }
    // Small requests take long: less of the region is enough.
    let size = if work.block_kib < 1024 { region / 4 } else { region };
    let run = |endpoint: &Endpoint| -> Result<f64, String> {
        Ok(Job { endpoint, work, size, duration: None }.run()?.bytes_per_second)
    };
    let (one, other) = if round.is_multiple_of(2) {
        let first = run(&thin)?;
        (first, run(thick)?)
    } else {
        let first = run(thick)?;
        (run(&thin)?, first)
    };
    if state == State::Snapshot {
        let job = varve.remove_snapshot("thin", "before")?;
        varve.wait_for_job(&job)?;
    }
    varve.remove_thin("thin", POOL)?;
    Ok((one, other))
}

fn fill(endpoint: &Endpoint, size: u64) -> Result<(), String> {
    let work = Work::sequential(true, 1024, 8, 1);
    Job { endpoint, work: &work, size, duration: None }.run().map(drop)
}
