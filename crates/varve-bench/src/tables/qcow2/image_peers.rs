//! Varve's door in front of a qcow2 image beside QEMU's servers, each in front of its own copy.

use super::image_files::size;
use crate::prelude::*;
use crate::programs::answerer::Answerer;
use crate::programs::fio::{Endpoint, Job};
use crate::programs::mounted::run as run_program;
use crate::programs::peers::{Cache, Peer};
use crate::programs::server::Server;
use crate::programs::varve::uri;
use crate::work::Work;
use std::fs;

/// Ours over the better of QEMU's servers, at least.
const GOAL: Goal = Goal::AtLeast(1.2);
/// For so long tables are cold; and as long after that again until they are warm.
const COLD: Duration = Duration::from_millis(200);
/// Of each run with warm tables. fio takes half a second beside each run; with 48 runs a round longer ones would take minutes.
const WARM: Duration = Duration::from_millis(400);

/// Measures all loads, cold and warm, round by round.
pub(in crate::tables) fn measure(options: &Options, part: &mut Part) -> Outcome<()> {
    let place = Place::new(options.directory(Medium::Memory), 4 * size(options))?;
    let files = copies(options, &place)?;
    let (read, write) = (false, true);
    let mut loads = Vec::new();
    for depth in [1, 32] {
        loads.extend([Work::random(read, 4, depth, 1), Work::random(write, 4, depth, 1)]);
        loads.extend([Work::sequential(read, 64, depth, 1), Work::sequential(write, 64, depth, 1)]);
    }
    for round in 0..options.runs() {
        for work in &loads {
            let mut speeds = [[0.0; 2]; 3];
            for turn in 0..files.len() {
                let index = (turn + round) % files.len();
                let (name, file) = &files[index];
                speeds[index] = cold_and_warm(options, work, name, file, place.path())?;
            }
            for (temperature, tables) in ["cold", "warm"].into_iter().enumerate() {
                let [ours, nbd, daemon] = speeds.map(|of| of[temperature]);
                let name = format!("qcow2, {}, tables {tables}, over the better of QEMU's", work.name());
                part.record(&name, "x", GOAL, ours / nbd.max(daemon));
            }
        }
    }
    Ok(())
}

/// One image for each server.
fn copies(options: &Options, place: &Place) -> Outcome<[(&'static str, PathBuf); 3]> {
    let raw = place.file("raw", size(options))?;
    let files = ["varve", "qemu-nbd", "qemu-storage-daemon"]
        .map(|name| (name, place.path().join(format!("{name}.qcow2"))));
    for (_, file) in &files {
        let (from, to) = (raw.to_string_lossy(), file.to_string_lossy());
        run_program("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &from, &to])?;
    }
    fs::remove_file(&raw)?;
    Ok(files)
}

/// Requests a second of a server that was just started, and of the same one after that.
fn cold_and_warm(
    options: &Options,
    work: &Work,
    name: &str,
    file: &Path,
    directory: &Path,
) -> Outcome<[f64; 2]> {
    let (server, endpoint) = serve(name, file, directory)?;
    let size = size(options);
    let go = |duration| Job { endpoint: &endpoint, work, size, duration: Some(duration), flush: false }.run();
    let cold = go(COLD.min(options.duration()))?.iops;
    let warm = go(WARM.min(options.duration()))?.iops;
    server.stop()?;
    Ok([cold, warm])
}

fn serve(name: &str, file: &Path, directory: &Path) -> Outcome<(Server, Endpoint)> {
    let peer = match name {
        "qemu-nbd" => Peer::QemuNbd,
        "qemu-storage-daemon" => Peer::QemuStorageDaemon,
        _ => {
            let socket = directory.join("image.sock");
            let words = ["image", &file.to_string_lossy(), &socket.to_string_lossy()];
            let server = Answerer::start(&words, &socket)?;
            return Ok((server, Endpoint::Nbd { uri: uri(&socket) }));
        }
    };
    peer.start_in(Cache::Buffered, file, "qcow2", directory)
}
