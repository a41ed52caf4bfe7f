//! Seed 001's question: what a thin volume costs beside a thick one, through the real daemon over NBD.
//!
//! Each load goes once over a region, first on the linear volume, then on a thin one that is in the state meant, or the
//! other way round in every second round. For fresh space the thin volume is made anew each time; after a snapshot every
//! write is the first to what it covers.

use crate::prelude::*;
use crate::programs::fio::{Endpoint, Job};
use crate::programs::varve::{Varve, uri};
use crate::tables::pools::thin_rivals::{Rival, Rivals, State};
use crate::work::Work;

/// What a physical volume needs beside its volumes.
const GROUP_OVERHEAD: u64 = 16 << 20;
/// The pool.
const POOL: &str = "pool";
/// Turns in a round of what leaves the volume as it is.
const TURNS: usize = 3;
const MIB: f64 = (1 << 20) as f64;

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
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let name = format!("volumes: {}", medium.name());
    let wanted = |state: State, work: &Work| {
        options.wants(&name) || options.wants(&format!("{}, {}", work.name(), state.name()))
    };
    let rows: Vec<_> = rows().into_iter().filter(|(state, work, _)| wanted(*state, work)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let bench = Bench::new(options, medium)?;
    let mut part = bench.empty_part(options);
    for (state, work, goal) in rows {
        let row = format!("{}, {}", work.name(), state.name());
        for round in 0..=options.runs() {
            let pairs = bench.round(state, &work, round)?;
            for (thin, thick) in pairs.into_iter().filter(|_| round > 0) {
                part.at(&row, "thick", "MiB/s").push(thick / MIB);
                part.at(&row, "thin", "MiB/s").over("thick").goal(Goal::AtLeast(goal)).push(thin / MIB);
            }
        }
        for round in 0..options.runs() {
            for turn in 0..Rival::ALL.len() {
                let rival = Rival::ALL[(turn + round) % Rival::ALL.len()];
                let speed = bench.rival_round(rival, state, &work).map(|speed| speed / MIB);
                let record = part.at(&row, rival.name(), "MiB/s");
                if rival != Rival::Raw {
                    record.over(Rival::Raw.name());
                }
                record.outcome(speed);
            }
        }
        eprintln!("thin volumes, {}: {row}", medium.name());
        sheet.keep(&part)?;
    }
    bench.varve.stop()
}

/// Everything that is measured on one medium.
struct Bench {
    medium: Medium,
    region: u64,
    varve: Varve,
    thick: Endpoint,
    rivals: Rivals,
    // Removed last.
    place: Place,
}

impl Bench {
    fn new(options: &Options, medium: Medium) -> Outcome<Self> {
        let (parent, region) = (options.directory(medium), 4 * options.region());
        let disk = 6 * region + 4 * GROUP_OVERHEAD;
        let place = Place::new(parent, disk + Rivals::need(region))?;
        let file = place.file("disk", disk)?;
        let varve = Varve::start(&options.varve(), place.path(), &file, medium.cache())?;
        varve.create_volume("thick", region)?;
        varve.create_pool(POOL, 4 * region + GROUP_OVERHEAD)?;
        let thick = Endpoint::Nbd { uri: uri(&varve.export("thick")?) };
        Job::fill(&thick, region)?;
        let rivals = Rivals::new(&place, medium, region)?;
        Ok(Self { medium, region, varve, thick, rivals, place })
    }

    fn empty_part(&self, options: &Options) -> Part {
        let description = format!(
            "the daemon over NBD on {}, {}, {} MiB a run ({} of small requests one by one), {} rounds, of {TURNS} turns where the volume stays as it is",
            file_system(self.place.path()),
            if self.medium == Medium::DiskDirect { "direct I/O" } else { "buffered" },
            self.region >> 20,
            self.region >> 22,
            options.runs()
        );
        Part::new("thin", self.medium.name(), description)
    }

    /// Bytes a second at `endpoint`.
    fn run(&self, endpoint: &Endpoint, work: &Work) -> Outcome<f64> {
        // Small requests one by one take long: less of the region is enough.
        let is_slow = work.block_kib < 1024 && work.depth == 1;
        let size = if is_slow { self.region / 4 } else { self.region };
        Ok(Job { endpoint, work, size, duration: None, flush: false }.run()?.bytes_per_second)
    }

    /// Bytes a second on a thin volume and on the thick one, as often as the state of the thin one stays what it is.
    fn round(&self, state: State, work: &Work, round: usize) -> Outcome<Vec<(f64, f64)>> {
        let varve = &self.varve;
        varve.create_thin("thin", POOL, self.region)?;
        let thin = Endpoint::Nbd { uri: uri(&varve.export("thin")?) };
        if state != State::Fresh {
            Job::fill(&thin, self.region)?;
        }
        if state == State::Snapshot {
            varve.create_snapshot("thin", "before")?;
        }
        let mut sides = Vec::new();
        for turn in 0..if state == State::Written { TURNS } else { 1 } {
            sides.push(if (round + turn).is_multiple_of(2) {
                let first = self.run(&thin, work)?;
                (first, self.run(&self.thick, work)?)
            } else {
                let first = self.run(&self.thick, work)?;
                (self.run(&thin, work)?, first)
            });
        }
        if state == State::Snapshot {
            let job = varve.remove_snapshot("thin", "before")?;
            varve.wait_for_job(&job)?;
        }
        varve.remove_thin("thin", POOL)?;
        Ok(sides)
    }

    /// Bytes a second of a rival.
    fn rival_round(&self, rival: Rival, state: State, work: &Work) -> Outcome<f64> {
        let (server, endpoint) =
            self.rivals.start(rival, state, |endpoint| Job::fill(endpoint, self.region))?;
        let speed = self.run(&endpoint, work)?;
        server.stop()?;
        Ok(speed)
    }
}
