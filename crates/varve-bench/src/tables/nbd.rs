//! The first table: NBD over a Unix socket on a linear volume, beside other servers on a file of the same file system.
//!
//! All servers run from the beginning to the end, each in front of its own fully written file. For each load
//! all of them are warmed up, then all are measured in turn, round after round, beginning with another one each time.

use crate::prelude::*;
use crate::programs::cpu;
use crate::programs::fio::{Endpoint, Job};
use crate::programs::peers::{Cache, Peer};
use crate::programs::server::Server;
use crate::programs::varve::{Varve, uri};
use crate::work::Work;
use std::fs::File;

/// What a physical volume needs beside its volumes: the label, the metadata and a part of an extent.
const GROUP_OVERHEAD: u64 = 16 << 20;
/// How long each contender is warmed up for each load.
const WARM_UP: Duration = Duration::from_millis(700);
/// How long a server may take to wait for the child that served a connection.
const SETTLE: Duration = Duration::from_millis(50);

/// CPU of the server a GiB over that of the leanest like peer, at most.
const CPU_GOAL: Goal = Goal::AtMost(1.0);
/// Our own name in the tables.
const VARVE: &str = "varve";

/// A contender that is measured, and why it is not any more.
struct Runner {
    name: &'static str,
    state: Outcome<Ready>,
}

/// A contender that can be measured.
struct Ready {
    endpoint: Endpoint,
    backing: PathBuf,
    pid: Option<u32>,
    /// Kept alive as long as the runner.
    _server: Option<Server>,
    varve: Option<Varve>,
}

/// Measures one medium; each row is kept as soon as it is there.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let (_place, runners) = start(options, medium)?;
    let mut speeds = Part::new("nbd", medium.name(), "");
    speeds.description = format!(
        "{}; files of {} MiB, {} rounds of {} s. {}{}",
        file_system(options.directory(medium)),
        options.size(medium) >> 20,
        options.runs(),
        options.duration().as_secs_f64(),
        speeds.machine.iter().flat_map(|machine| &machine.programs).cloned().collect::<Vec<_>>().join(", "),
        if options.is_quick() { ". **A quick run: these figures mean nothing**" } else { "" }
    );
    let mut cpu = Part { table: "nbd CPU".to_owned(), ..speeds.clone() };
    for work in Work::all().into_iter().filter(|work| options.wants(&work.name())) {
        measure_row(options, medium, work, &runners, [&mut speeds, &mut cpu]);
        sheet.keep(&speeds)?;
        sheet.keep(&cpu)?;
    }
    for runner in runners {
        if let Ok(Ready { varve: Some(varve), .. }) = runner.state {
            varve.stop()?;
        }
    }
    Ok(())
}

/// Starts all contenders in front of files that were filled in turns, in a place that lasts as long as they do.
fn start(options: &Options, medium: Medium) -> Outcome<(Place, Vec<Runner>)> {
    let (parent, size) = (options.directory(medium), options.size(medium));
    let cache = medium.cache();
    let peers = Peer::like(cache);
    let mut wanted = vec![("disk".to_owned(), size + GROUP_OVERHEAD), ("file".to_owned(), size)];
    wanted.extend(peers.iter().map(|peer| (format!("{}.disk", peer.program()), size)));
    let place = Place::new(parent, wanted.iter().map(|(_, size)| size).sum())?;
    let files = place.files(&wanted)?;
    let mut runners = vec![Runner { name: VARVE, state: varve(options, cache, &place, &files[0], size) }];
    for (peer, file) in peers.iter().zip(&files[2..]) {
        runners.push(Runner { name: peer.program(), state: start_peer(*peer, cache, &place, file, size) });
    }
    for (engine, name) in [("psync", "file, psync"), ("io_uring", "file, io_uring")] {
        let endpoint = Endpoint::File { path: files[1].clone(), engine, direct: cache == Cache::Direct };
        let ready = Ready { endpoint, backing: files[1].clone(), pid: None, _server: None, varve: None };
        runners.push(Runner { name, state: Ok(ready) });
    }
    for runner in &runners {
        if let Err(Failed(reason)) = &runner.state {
            eprintln!("{}: {}: {reason}", medium.name(), runner.name);
        }
    }
    Ok((place, runners))
}

fn varve(options: &Options, cache: Cache, place: &Place, file: &Path, size: u64) -> Outcome<Ready> {
    let varve = Varve::start(&options.varve(), place.path(), file, cache)?;
    varve.create_volume("volume", size)?;
    let endpoint = Endpoint::Nbd { uri: uri(&varve.export("volume")?) };
    Job::fill(&endpoint, size)?;
    let backing = file.to_owned();
    Ok(Ready { endpoint, backing, pid: Some(varve.pid()), _server: None, varve: Some(varve) })
}

fn start_peer(peer: Peer, cache: Cache, place: &Place, file: &Path, size: u64) -> Outcome<Ready> {
    let (server, endpoint) = peer.start(cache, file, place.path())?;
    Job::fill(&endpoint, size)?;
    let pid = Some(server.pid());
    Ok(Ready { endpoint, backing: file.to_owned(), pid, _server: Some(server), varve: None })
}

/// Measures one load, round after round, and puts it down: throughput, and CPU of the servers.
fn measure_row(options: &Options, medium: Medium, work: Work, runners: &[Runner], parts: [&mut Part; 2]) {
    let (row, size, [speeds, cpu]) = (work.name(), options.size(medium), parts);
    let unit = if work.random { "k/s" } else { "MiB/s" };
    for runner in runners {
        speeds.at(&row, runner.name, unit).absent =
            runner.state.as_ref().err().map(|failed| failed.0.clone());
    }
    let warm_up = WARM_UP.min(options.duration());
    for round in 0..=options.runs() {
        for turn in 0..runners.len() {
            let Runner { name, state } = &runners[(turn + round) % runners.len()];
            let (Ok(ready), speed) = (state, speeds.at(&row, name, unit)) else { continue };
            let duration = if round == 0 { warm_up } else { options.duration() };
            match sample(ready, &work, size, duration) {
                _ if speed.absent.is_some() => {}
                Ok((throughput, seconds)) if round > 0 => {
                    speed.push(throughput);
                    if ready.pid.is_some() {
                        cpu.at(&row, name, "s").push(seconds);
                    }
                }
                Ok(_) => {}
                Err(Failed(reason)) => {
                    eprintln!("{}: {name}: {reason}", medium.name());
                    speed.rounds.clear();
                    speed.absent = Some(reason);
                }
            }
        }
    }
    for peer in Peer::like(medium.cache()) {
        speeds.at(&row, VARVE, unit).goal(Goal::AtLeast(work.goal())).over(peer.program());
        cpu.at(&row, VARVE, "s").goal(CPU_GOAL).over(peer.program());
    }
    let ours = speeds.at(&row, VARVE, unit).clone();
    let peer = speeds.ratio(&ours, &ours.over);
    let told = peer.map_or("no comparison".to_owned(), |(name, it)| format!("{:.2} of {name}", it.median));
    eprintln!("{}: {row}: {told}", medium.name());
}

/// Thousands of requests, or MiB, a second; and CPU seconds of the server for each GiB.
fn sample(ready: &Ready, work: &Work, size: u64, duration: Duration) -> Outcome<(f64, f64)> {
    settle(&ready.backing)?;
    let used = || ready.pid.map_or(0.0, cpu::seconds);
    let before = used();
    let job = Job { endpoint: &ready.endpoint, work, size, duration: Some(duration), flush: false };
    let measured = job.run()?;
    if ready.pid.is_some() {
        pause(SETTLE);
    }
    let gib = measured.bytes as f64 / (1u64 << 30) as f64;
    let speed =
        if work.random { measured.iops / 1e3 } else { measured.bytes_per_second / f64::from(1 << 20) };
    Ok((speed, (used() - before) / gib))
}

/// Lets what an earlier run left in the page cache reach the medium, so that it does not burden the next one.
fn settle(backing: &Path) -> Outcome<()> {
    File::open(backing).and_then(|file| file.sync_all()).of(backing.display())
}
