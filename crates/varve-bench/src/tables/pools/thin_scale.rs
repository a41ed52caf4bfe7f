//! Pools at the size at which things go wrong: ten million mappings, ten thousand snapshots, a thousand generations. By
//! the engine itself, on a real file.
//!
//! The ten million are made by writes of 4 KiB to every other part of a volume, so that no two of them are one run. What
//! they write does not count and is left out below the pool: the metadata is what is measured, and is all there.

use crate::first_touch::{read_places, write_all};
use crate::machine::memory_mib;
use crate::prelude::*;
use crate::tables::snapshot::management::{REGION, in_background, write_until};
use std::cell::Cell;
use varve_sim::LeaveOutZeros;
use varve_target::thin::{NewVolume, Pool, PoolFormat, PoolOptions, Uuid};

/// Mappings of the large pool.
const MAPPINGS: u64 = 10_000_000;
/// Mappings of a volume that was cloned once: each is asked about when it is removed.
const MAPPINGS_CLONED: u64 = 2_000_000;
/// Mappings that only the log tells of when the pool is opened after a crash.
const MAPPINGS_LOGGED: u64 = 100_000;
/// Snapshots beside which one more is created.
const SNAPSHOTS: usize = 10_000;
/// Creations of which a median is taken.
const SAMPLE: usize = 500;
/// Time between two creations.
const PAUSE: Duration = Duration::from_micros(200);
/// Passes over a volume of which the time is taken.
const PASSES: usize = 4;
/// Memory of a process that has handled such a pool: a cache of 64 MiB, an arena of 64 MiB, and as much again.
const PEAK_GOAL_MIB: Goal = Goal::AtMost(256.0);
/// Generations of snapshots of snapshots.
const DEPTHS: [u64; 4] = [1, 8, 32, 1000];
/// What activating the large pool may take, in ms.
const ACTIVATE_GOAL_MS: Goal = Goal::AtMost(2000.0);
/// What removing a million mappings may take, in ms.
const REMOVE_GOAL_MS: Goal = Goal::AtMost(1000.0);
/// What creating a snapshot may take, in ms.
const CREATE_GOAL_MS: Goal = Goal::AtMost(1.0);
/// What work at depth may take, as a ratio to what it takes at depth 1.
const DEPTH_GOAL: Goal = Goal::AtMost(1.03);
/// Bytes of a part.
const PART: u64 = 4 * KIB;
/// Requests in flight.
const DEPTH: usize = 8;

/// How a part is measured.
type Run = fn(&mut Measurement<'_>) -> Outcome<()>;

/// One part of the measurement on one medium.
struct Measurement<'a> {
    options: &'a Options,
    medium: Medium,
    figures: Part,
}

/// Measures what is wanted on one medium; each part is kept as soon as it is there.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let parts: [(&str, Run); 3] = [("mappings", mappings), ("snapshots", snapshots), ("depth", depth)];
    for (what, run) in parts {
        let name = format!("scale: {what}, {}", medium.name());
        // The ten million are handled in memory alone: what is measured is the work, and it takes a while.
        if !options.wants(&name) || (what == "mappings" && medium != Medium::Memory) {
            continue;
        }
        let figures = empty_part(options, medium);
        let mut part = Measurement { options, medium, figures };
        let watch = Watch::start();
        run(&mut part)?;
        eprintln!("{name}: {:.0} s", watch.seconds());
        sheet.keep(&part.figures)?;
    }
    Ok(())
}

fn empty_part(options: &Options, medium: Medium) -> Part {
    Part::new(
        "pools",
        format!("engine, {}", medium.name()),
        format!(
            "the engine on {}; snapshots are created while each ms 4 KiB are written",
            file_system(options.directory(medium))
        ),
    )
}

async fn fresh_pool(around: &Surroundings) -> Outcome<Rc<Pool>> {
    let format = PoolFormat::new(Uuid::from_u128(20_060_810 << 64));
    Pool::format(&around.disk, &around.arena, format).await?;
    open_pool(around).await
}

async fn open_pool(around: &Surroundings) -> Outcome<Rc<Pool>> {
    let (arena, clock) = (around.arena.clone(), around.clock.clone());
    Ok(Pool::open(around.disk.clone(), arena, clock, PoolOptions::default()).await?)
}

async fn volume(pool: &Rc<Pool>, name: &str, bytes: u64) -> Outcome<(u64, Device)> {
    let id = pool.create(&NewVolume { name: name.to_owned(), bytes, origin: None }).await?;
    Ok((id, pool.volume(id)?))
}

/// Writes 4 KiB of zeros, which are data here, to each of `places`.
async fn write_places(
    device: &Device,
    around: &Surroundings,
    places: impl Iterator<Item = u64>,
) -> Outcome<f64> {
    let data = around.arena.take_zeroed(PART as usize).freeze();
    let began = around.clock.now();
    write_all(device, &data, places, DEPTH).await?;
    Ok(around.clock.now().since(began).as_secs_f64())
}

/// Every other part, `count` of them from number `first` on.
fn scattered(first: u64, count: u64) -> impl Iterator<Item = u64> {
    (first..first + count).map(|number| number * 2 * PART)
}

fn mappings(part: &mut Measurement<'_>) -> Outcome<()> {
    let share = if part.options.is_quick() { 200 } else { 1 };
    let (rounds, mut figures) = (part.options.runs(), std::mem::take(&mut part.figures));
    let size = 4 * PART * MAPPINGS / share + GIB;
    let place = Place::new(part.options.directory(part.medium), 2 * GIB / share)?;
    let file = open(&place.sparse("disk", size, &[])?, part.medium)?;
    part.figures = Shard::start()?.run(move |context| async move {
        let mut around = Surroundings::of(&context, &file);
        around.disk = Device::new(LeaveOutZeros(around.disk));
        large(&around, share, rounds, &mut figures).await?;
        Ok(figures)
    })?;
    Ok(())
}

/// Puts down what is seen of the large pool.
async fn large(around: &Surroundings, share: u64, rounds: usize, figures: &mut Part) -> Outcome<()> {
    let told = |count: u64| match count / share {
        count if count >= 1_000_000 => format!("{} M", count / 1_000_000),
        count => format!("{} k", count / 1000),
    };
    let (all, count, logged) = (told(MAPPINGS), MAPPINGS / share, MAPPINGS_LOGGED / share);
    let ms = |since| around.clock.now().since(since).as_secs_f64() * 1e3;
    let pool = fresh_pool(around).await?;
    let (id, device) = volume(&pool, "large", 2 * PART * (count + logged)).await?;
    let made_us = write_places(&device, around, scattered(0, count)).await? * 1e6 / count as f64;
    pool.checkpoint().await?;
    drop((device, pool));
    for _ in 0..rounds {
        let began = around.clock.now();
        let pool = open_pool(around).await?;
        read_one(&pool, id, around).await?;
        figures.record(format!("activate, {all} mappings"), "ms", ACTIVATE_GOAL_MS, ms(began));
    }
    let pool = open_pool(around).await?;
    let device = pool.volume(id)?;
    write_places(&device, around, scattered(count, logged)).await?;
    pool.commit().await?;
    drop((device, pool)); // no checkpoint: as if the process had been killed
    let began = around.clock.now();
    let pool = open_pool(around).await?;
    read_one(&pool, id, around).await?;
    let name = format!("activate, {all} mappings, {} of them only in the log", told(MAPPINGS_LOGGED));
    figures.record(name, "ms", ACTIVATE_GOAL_MS, ms(began));
    pool.checkpoint().await?;
    let device = pool.volume(id)?;
    let mut noise = Noise(7);
    let places: Vec<u64> = (0..count / 100).map(|_| noise.next() % count * 2 * PART).collect();
    read_places(&device, around, &places, PART as usize, DEPTH).await?;
    let budget = PoolOptions::default().cache_bytes / PART;
    let cached = pool.cache_use().nodes as f64 / budget as f64;
    let name = format!("nodes in memory over the cache's budget, {all} mappings read at random");
    figures.record(name, "x", Goal::AtMost(1.0), cached);
    drop(device);
    let removed = remove(&pool, id, around).await? / ((count + logged) as f64 / 1e6);
    figures.record(format!("remove a million of {all} mappings"), "ms", REMOVE_GOAL_MS, removed);
    let count = MAPPINGS_CLONED / share;
    let (id, device) = volume(&pool, "cloned", 2 * PART * count).await?;
    write_places(&device, around, scattered(0, count)).await?;
    let clone = pool.snapshot(id, "clone", true).await?;
    remove(&pool, clone, around).await?;
    drop(device);
    let removed = remove(&pool, id, around).await? / (count as f64 / 1e6);
    let name = format!("remove a million of {} mappings, cloned once", told(MAPPINGS_CLONED));
    figures.record(name, "ms", REMOVE_GOAL_MS, removed);
    let peak = "resident memory of the whole process at its peak, buffers and cache included";
    figures.record(peak, "MiB", PEAK_GOAL_MIB, memory_mib("VmHWM"));
    figures.note("a write of 4 KiB that makes a mapping", "us", made_us);
    Ok(())
}

async fn read_one(pool: &Rc<Pool>, id: u64, around: &Surroundings) -> Outcome<()> {
    let device = pool.volume(id)?;
    let buffer = around.arena.take(PART as usize);
    device.read(0, buffer).await.map(drop).map_err(Failed::from)
}

/// Removes a volume until its space is free; milliseconds.
async fn remove(pool: &Rc<Pool>, id: u64, around: &Surroundings) -> Outcome<f64> {
    let began = around.clock.now();
    pool.remove(id).await?;
    while pool.remove_some(64).await?.volumes > 0 {}
    pool.checkpoint().await?;
    Ok(around.clock.now().since(began).as_secs_f64() * 1e3)
}

fn snapshots(part: &mut Measurement<'_>) -> Outcome<()> {
    let size = 8 * REGION + GIB;
    let count = if part.options.is_quick() { 2 * SAMPLE } else { SNAPSHOTS };
    let place = Place::new(part.options.directory(part.medium), size)?;
    let file = open(&place.file("disk", size)?, part.medium)?;
    let outcome = Shard::start()?.run(move |context| async move {
        let around = Surroundings::of(&context, &file);
        create_many(&context, &around, count).await
    });
    let (created, writes) = outcome?;
    let figures = &mut part.figures;
    let (first, last) = (&created[..SAMPLE], &created[count - SAMPLE..]);
    let name = |what: &str| format!("snap create, median, {what}");
    figures.record(name("few others"), "ms", CREATE_GOAL_MS, percentile(first, 0.5));
    figures.record(name(&format!("{count} others")), "ms", CREATE_GOAL_MS, percentile(last, 0.5));
    figures.note("snap create, slowest", "ms", percentile(&created, 1.0));
    figures.note("writes meanwhile, p99", "ms", percentile(&writes, 0.99) / 1e3);
    Ok(())
}

/// Milliseconds of each creation, and microseconds of the writes meanwhile.
async fn create_many(
    context: &ShardContext,
    around: &Surroundings,
    count: usize,
) -> Outcome<(Vec<f64>, Vec<f64>)> {
    let pool = fresh_pool(around).await?;
    let (id, device) = volume(&pool, "written", REGION).await?;
    write_places(&device, around, (0..REGION / PART).map(|part| part * PART)).await?;
    let stop = Rc::new(Cell::new(false));
    let work = in_background(context, Rc::clone(&stop), around.clone(), async move |around| {
        let mut created = Vec::with_capacity(count);
        for number in 0..count {
            around.clock.sleep(PAUSE).await;
            let began = around.clock.now();
            pool.snapshot(id, &format!("s{number}"), true).await?;
            created.push(around.clock.now().since(began).as_secs_f64() * 1e3);
        }
        Ok::<_, Failed>(created)
    });
    let writes = write_until(&device, around, &stop).await?;
    let created = work.await.map_err(|_| "the work was dropped")??;
    Ok((created, writes))
}

fn depth(part: &mut Measurement<'_>) -> Outcome<()> {
    let deepest = if part.options.is_quick() { 32 } else { DEPTHS[3] };
    let rounds = part.options.runs();
    let size = 8 * REGION + GIB / 4;
    let place = Place::new(part.options.directory(part.medium), size)?;
    let file = open(&place.file("disk", size)?, part.medium)?;
    let outcome = Shard::start()?.run(move |context| async move {
        let around = Surroundings::of(&context, &file);
        nest(&around, deepest, rounds).await
    });
    let seen = outcome?;
    for (depth, rounds) in DEPTHS.into_iter().zip(seen).skip(1) {
        for (read, write) in rounds {
            let name = |what: &str| format!("{what} {depth} snapshots deep, over 1 deep");
            part.figures.record(name("random reads of 4 KiB"), "x", DEPTH_GOAL, read);
            part.figures.record(name("random overwrites of 4 KiB"), "x", DEPTH_GOAL, write);
        }
    }
    Ok(())
}

/// A snapshot of a snapshot and so on. For each depth and round: time of reads and of overwrites over that at depth 1.
async fn nest(around: &Surroundings, deepest: u64, rounds: usize) -> Outcome<Vec<Vec<(f64, f64)>>> {
    let pool = fresh_pool(around).await?;
    let (mut id, device) = volume(&pool, "origin", REGION).await?;
    let mut order: Vec<u64> = (0..REGION / PART).map(|part| part * PART).collect();
    write_places(&device, around, order.iter().copied()).await?;
    Noise(11).shuffle(&mut order);
    let passes = order.repeat(PASSES);
    let mut fronts = Vec::new();
    for number in 1..=deepest {
        id = pool.snapshot(id, &format!("n{number}"), false).await?;
        let front = pool.volume(id)?;
        write_places(&front, around, [number * 61 % 1024 * 16 * PART].into_iter()).await?;
        if DEPTHS.contains(&number) {
            fronts.push(front);
        }
    }
    for front in &fronts {
        // Steady: what a snapshot shares is the volume's own afterwards.
        write_places(front, around, order.iter().copied()).await?;
    }
    pool.checkpoint().await?;
    let mut seen = vec![Vec::new(); fronts.len()];
    for round in 0..=rounds {
        let mut times = vec![(0.0, 0.0); fronts.len()];
        for turn in 0..fronts.len() {
            let index = (turn + round) % fronts.len();
            times[index] = work_on(&fronts[index], around, &passes).await?;
        }
        // The first round warms up.
        for (seen, time) in seen.iter_mut().zip(&times).filter(|_| round > 0) {
            seen.push((time.0 / times[0].0, time.1 / times[0].1));
        }
    }
    Ok(seen)
}

/// Seconds that reads and overwrites of everything, in random order, take.
async fn work_on(front: &Device, around: &Surroundings, order: &[u64]) -> Outcome<(f64, f64)> {
    let part = PART as usize;
    let speed = read_places(front, around, order, part, DEPTH).await;
    let read = (order.len() as u64 * PART) as f64 / speed?;
    Ok((read, write_places(front, around, order.iter().copied()).await?))
}
