//! qcow2 images: beside QEMU's servers on the same image, in chains, and opened when they are large.

use crate::answerer::Answerer;
use crate::fio::{Endpoint, Job};
use crate::machine::{Machine, file_system};
use crate::mounted::run as run_program;
use crate::options::{Medium, Options};
use crate::peers::{Cache, Peer};
use crate::place::{Noise, Place};
use crate::results::FigurePart;
use crate::server::Server;
use crate::sheet::Sheet;
use crate::varve::uri;
use crate::verdict::Goal;
use crate::watch::Watch;
use crate::work::Work;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use varve_block::{Access, Device, Durability, KIB, MIB};
use varve_os::{CacheMode, DiskFile, DiskOptions, ShardContext, Shards, ShardsConfig};
use varve_sim::{Direction, Load, Order, Random, measure as run};
use varve_target::qcow2::{
    Image, ImageDevice, Layer, NewImage, Options as ImageOptions, chain as chain_of, create,
};

/// Ours over the better of QEMU's servers, at least.
const PEER_GOAL: Goal = Goal::AtLeast(1.2);
/// Bytes of a second's part in which tables are still cold.
const COLD: Duration = Duration::from_millis(200);
/// Bytes of the disk of a chain.
const CHAIN_SIZE: u64 = 64 * MIB;
/// Random reads of a long chain over those of one image, at least.
const CHAIN_GOAL: Goal = Goal::AtLeast(0.9);
/// Bytes of a cluster.
const CLUSTER: u64 = 64 * KIB;

/// One part of the measurement.
type Step = fn(&Options, &mut FigurePart) -> Result<(), String>;

/// Measures all of it; each part is kept as soon as it is there.
pub(crate) fn measure(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    let parent = options.directory(Medium::Memory);
    let description = format!(
        "files on {}, buffered; images of {} MiB with clusters of 64 KiB, written in full; {} rounds",
        file_system(parent),
        size(options) >> 20,
        options.runs()
    );
    let steps: [(&str, Step); 4] =
        [("mappers", super::mappers::measure), ("chains", chains), ("opening", opening), ("peers", peers)];
    for (name, step) in steps.into_iter().filter(|(name, _)| options.wants(name)) {
        let mut part =
            FigurePart { description: description.clone(), machine: Machine::look(), rows: Vec::new() };
        step(options, &mut part).map_err(|error| format!("{name}: {error}"))?;
        part.keep_rows_of(sheet.results().images.clone());
        sheet.keep(|results| results.images = Some(part))?;
        eprintln!("images: {name}");
    }
    Ok(())
}

fn size(options: &Options) -> u64 {
    if options.is_quick() { 64 << 20 } else { 1 << 30 }
}

fn shards() -> Result<Shards, String> {
    Shards::start(&ShardsConfig { count: 1, ..ShardsConfig::default() }).map_err(|error| error.to_string())
}

/// A file of `size` bytes that holds nothing, open.
fn sparse(path: &Path, size: u64) -> Result<Arc<DiskFile>, String> {
    let complain = |error: String| format!("{}: {error}", path.display());
    let file = fs::File::create(path).and_then(|file| file.set_len(size));
    file.map_err(|error| complain(error.to_string()))?;
    let options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
    DiskFile::open(path, options).map_err(|error| complain(error.to_string()))
}

/// Somebody who serves an image.
type Servers = Vec<(&'static str, PathBuf)>;

/// Varve's door in front of an image beside QEMU's servers, each in front of its own copy.
fn peers(options: &Options, part: &mut FigurePart) -> Result<(), String> {
    let bytes = size(options);
    let place = Place::new(options.directory(Medium::Memory), 4 * bytes)?;
    let raw = place.file("raw", bytes)?;
    let mut files: Servers = Vec::new();
    for name in ["varve", "qemu-nbd", "qemu-storage-daemon"] {
        let file = place.path().join(format!("{name}.qcow2"));
        let (from, to) = (raw.to_string_lossy(), file.to_string_lossy());
        run_program("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &from, &to])?;
        files.push((name, file));
    }
    fs::remove_file(&raw).map_err(|error| error.to_string())?;
    let (read, write) = (false, true);
    let mut loads = Vec::new();
    for depth in [1, 32] {
        loads.extend([Work::random(read, 4, depth, 1), Work::random(write, 4, depth, 1)]);
        loads.extend([Work::sequential(read, 64, depth, 1), Work::sequential(write, 64, depth, 1)]);
    }
    for round in 0..options.runs() {
        for work in &loads {
            for is_cold in [true, false] {
                let mut speeds = [0.0; 3];
                for turn in 0..files.len() {
                    let index = (turn + round) % files.len();
                    let (name, file) = &files[index];
                    let (server, endpoint) = serve(name, file, place.path())?;
                    let go = |duration| {
                        Job { endpoint: &endpoint, work, size: bytes, duration: Some(duration), flush: false }
                            .run()
                    };
                    speeds[index] = if is_cold {
                        go(COLD.min(options.duration()))?.iops
                    } else {
                        go(COLD)?;
                        go(options.duration().min(Duration::from_secs(1)))?.iops
                    };
                    server.stop()?;
                }
                let tables = if is_cold { "cold" } else { "warm" };
                let name = format!("qcow2, {}, tables {tables}, over the better of QEMU's", work.name());
                part.record(&name, "x", Some(PEER_GOAL), speeds[0] / speeds[1].max(speeds[2]));
            }
        }
        eprintln!("images, peers: round {} of {}", round + 1, options.runs());
    }
    Ok(())
}

fn serve(name: &str, file: &Path, directory: &Path) -> Result<(Server, Endpoint), String> {
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

/// Random reads of chains of overlays, of which each has its share of the clusters.
fn chains(options: &Options, part: &mut FigurePart) -> Result<(), String> {
    let place = Place::new(options.directory(Medium::Memory), 4 * CHAIN_SIZE)?;
    let depths: &[usize] = if options.is_quick() { &[1, 30] } else { &[1, 30, 300] };
    let shards = shards()?;
    let mut speeds: Vec<Vec<f64>> = vec![Vec::new(); depths.len()];
    for (depth, speeds) in depths.iter().zip(&mut speeds) {
        let new = NewImage::new(CHAIN_SIZE);
        let room = new.room().map_err(|error| error.to_string())?;
        let file = |layer| sparse(&place.path().join(format!("chain{depth}.{layer}")), room);
        let files = (0..*depth).map(file).collect::<Result<Vec<_>, _>>()?;
        let rounds = options.runs();
        let measured = shards
            .handle(0)
            .run_and_wait(async move |context: ShardContext| chain(&context, &files, rounds).await);
        *speeds = measured.map_err(|error| error.to_string())??;
    }
    for (depth, deep) in depths.iter().zip(&speeds) {
        for (deep, one) in deep.iter().zip(&speeds[0]) {
            let name = format!("random reads of 4 KiB QD8 of a chain of {depth}");
            part.record(&name, "MiB/s", None, deep / MIB as f64);
            if *depth > 1 {
                part.record(&format!("{name}, over those of one image"), "x", Some(CHAIN_GOAL), deep / one);
            }
        }
    }
    shards.stop();
    Ok(())
}

/// Bytes a second of random reads of a chain of images in `files`, one a round, once the tables are in memory.
async fn chain(context: &ShardContext, files: &[Arc<DiskFile>], rounds: usize) -> Result<Vec<f64>, String> {
    let (clock, arena) = (context.clock(), context.arena());
    let mut clusters: Vec<u64> = (0..CHAIN_SIZE / CLUSTER).collect();
    Noise(1).shuffle(&mut clusters);
    let data = arena.take_zeroed(CLUSTER as usize).freeze();
    let share = clusters.len().div_ceil(files.len());
    let (mut below, mut top) = (Vec::new(), None);
    for (layer, file) in files.iter().enumerate() {
        let disk = context.disk(file);
        let mut new = NewImage::new(CHAIN_SIZE);
        if layer > 0 {
            let (name, format) = (format!("layer{}", layer - 1), Some("qcow2".to_owned()));
            new.backing = Some(varve_format::qcow2::Backing { name, format });
        }
        create(disk.clone(), arena.clone(), &new).await.map_err(|error| error.to_string())?;
        let options = ImageOptions { access: Access::ReadWrite, ..ImageOptions::default() };
        let image =
            Image::open(disk.clone(), arena.clone(), options).await.map_err(|error| error.to_string())?;
        let image = Rc::new(image);
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        // Whole clusters are written: what lies below is not read.
        for cluster in clusters.iter().skip(layer * share).take(share) {
            let written = device.write(cluster * CLUSTER, data.clone(), Durability::Volatile).await;
            written.map_err(|error| error.to_string())?;
        }
        image.close().await.map_err(|error| error.to_string())?;
        below.splice(0..0, top.replace(image).map(Layer::Image));
    }
    // The uppermost image is opened again, over the others.
    let disk = context.disk(files.last().ok_or("a chain has an image")?);
    let options = ImageOptions { backing: chain_of(below, &arena), ..ImageOptions::default() };
    let image = Image::open(disk, arena.clone(), options).await.map_err(|error| error.to_string())?;
    let device = Device::new(ImageDevice::new(Rc::new(image)));
    let (direction, order) = (Direction::Read, Order::Random { unit: 4 * KIB });
    let load = Load { direction, order, request_bytes: 4 * KIB, depth: 8, count: CHAIN_SIZE / (4 * KIB) };
    let mut speeds = Vec::new();
    for round in 0..=rounds {
        let measured = run(&device, &clock, &arena, &load, &mut Random::new(7)).await;
        let speed = measured.map_err(|error| error.to_string())?.bytes_per_second();
        if round > 0 {
            speeds.push(speed);
        }
    }
    Ok(speeds)
}

/// An image of 1 TiB with 10 GiB of clusters at random places, of which each has a block of data.
fn opening(options: &Options, part: &mut FigurePart) -> Result<(), String> {
    let virtual_size: u64 = 1 << 40;
    let clusters: u64 = if options.is_quick() { 1000 } else { (10 << 30) / CLUSTER };
    let place = Place::new(options.directory(Medium::Memory), 2 << 30)?;
    let room = NewImage::new(virtual_size).room().map_err(|error| error.to_string())?;
    let file = sparse(&place.path().join("large"), room)?;
    let shards = shards()?;
    let made = Arc::clone(&file);
    let outcome = shards.handle(0).run_and_wait(async move |context: ShardContext| {
        let (disk, arena) = (context.disk(&made), context.arena());
        let failed = |error: varve_target::qcow2::OpenError| error.to_string();
        create(disk.clone(), arena.clone(), &NewImage::new(virtual_size)).await.map_err(failed)?;
        let options =
            ImageOptions { access: Access::ReadWrite, clean_from: Some(0), ..ImageOptions::default() };
        let image = Rc::new(Image::open(disk, arena.clone(), options).await.map_err(failed)?);
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let data = arena.take_zeroed(4096).freeze();
        let mut noise = Noise(3);
        for _ in 0..clusters {
            let at = noise.next() % (virtual_size / CLUSTER) * CLUSTER;
            let written = device.write(at, data.clone(), Durability::Volatile).await;
            written.map_err(|error| error.to_string())?;
        }
        image.close().await.map_err(|error| error.to_string())
    });
    outcome.map_err(|error| error.to_string())??;
    for _ in 0..options.runs() {
        let file = Arc::clone(&file);
        let opened = shards.handle(0).run_and_wait(async move |context: ShardContext| {
            let (disk, before) = (context.disk(&file), resident());
            let watch = Watch::start();
            let options = ImageOptions { access: Access::ReadWrite, ..ImageOptions::default() };
            let image = Image::open(disk, context.arena(), options).await;
            let (ms, after) = (watch.seconds() * 1e3, resident());
            image.map(|_| (ms, (after - before).max(0.0))).map_err(|error| error.to_string())
        });
        let (ms, mib) = opened.map_err(|error| error.to_string())??;
        let what = "an image of 1 TiB with 10 GiB at random places";
        part.record(&format!("opening {what} to write"), "ms", Some(Goal::AtMost(50.0)), ms);
        part.record(&format!("memory that {what} takes when opened"), "MiB", Some(Goal::AtMost(32.0)), mib);
    }
    shards.stop();
    Ok(())
}

/// MiB of this process in memory.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}
