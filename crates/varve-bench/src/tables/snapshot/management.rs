//! Creating and removing snapshots while the origin is written to, by the engine itself.

use crate::first_touch::{CHUNK, each};
use crate::nothing::nothing;
use crate::prelude::*;
use crate::tables::snapshot::stage::{MARGIN, Plan, Stores, Volume, create, store_for};
use futures_channel::oneshot;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::Cell;
use varve_block::{Moment, ZeroOptions};
use varve_target::Linear;
use varve_target::snapshot::{SnapshotStore, StoreOptions};

/// What creating may take, in ms.
const CREATE_GOAL_MS: Goal = Goal::AtMost(2.0);
/// What a removal may take until it returns, in ms.
const REMOVE_GOAL_MS: Goal = Goal::AtMost(10.0);
/// The 99th percentile of writes while a removal works, over that without one.
const DELETE_GOAL: Goal = Goal::AtMost(1.5);
/// Numbers of snapshots beside which one is created and removed.
const COUNTS: [u32; 2] = [0, 1024];
/// Snapshots created and removed in a round.
const CREATES: usize = 40;
/// Time between creating and removing, and the other way round.
const PAUSE: Duration = Duration::from_millis(10);
/// Time from one write of the load to the next.
pub(in crate::tables) const PERIOD: Duration = Duration::from_millis(1);
/// Writes that are in flight or wait until they are due.
const AHEAD: usize = 64;
/// Bytes of a write of the load.
const BLOCK: u64 = 4 * KIB;
/// Bytes that the load writes to.
pub(in crate::tables) const REGION: u64 = 64 * MIB;
/// Entries that the deleted snapshot has.
pub(in crate::tables) const ENTRIES: u64 = 1 << 20;
/// How long the load runs without a removal.
pub(in crate::tables) const ALONE: Duration = Duration::from_secs(3);
/// Entries of a batch.
const BATCH_ENTRIES: usize = 128;
/// The least rest after a batch.
const REST_MIN: Duration = Duration::from_micros(200);
/// A rest is so many times as long as the batch before it.
const REST_FACTOR: u32 = 9;

/// Measures one medium; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let parent = options.directory(medium);
    let mut part = Part::new(
        "management",
        format!("engine, {}", medium.name()),
        format!(
            "the engine on {}, while each {} ms 4 KiB are written to a random place of {} MiB, their latency counted \
             from when they were due; {CREATES} snapshots a round, {} rounds",
            file_system(parent),
            PERIOD.as_millis(),
            REGION / MIB,
            options.runs()
        ),
    );
    creating(options, medium, &mut part, sheet)?;
    deleting(options, medium, &mut part, sheet)
}

/// Writes to random places of the first [`REGION`] bytes of `device`, one each [`PERIOD`], until `stop` says so;
/// returns by how many microseconds each was done after it was due. Whatever keeps the shard busy delays the writes
/// that are due meanwhile, and is counted.
pub(in crate::tables) async fn write_until(
    device: &Device,
    around: &Surroundings,
    stop: &Cell<bool>,
) -> Outcome<Vec<f64>> {
    let mut noise = Noise(20_060_810);
    let mut data = around.arena.take(usize::try_from(BLOCK).expect("it is small"));
    noise.fill(&mut data);
    let data = data.freeze();
    let one = async |due: Moment, place: u64| {
        around.clock.sleep_until(due).await;
        if stop.get() {
            return Ok(None);
        }
        device.write(place, data.clone(), Durability::Volatile).await?;
        Ok::<_, Failed>(Some(around.clock.now().since(due).as_secs_f64() * 1e6))
    };
    let (mut flying, mut latencies) = (FuturesUnordered::new(), Vec::new());
    let mut due = around.clock.now();
    loop {
        while flying.len() < AHEAD && !stop.get() {
            due = due.after(PERIOD);
            flying.push(one(due, noise.next() % (REGION / BLOCK) * BLOCK));
        }
        match flying.next().await {
            Some(latency) => latencies.extend(latency?),
            None => return Ok(latencies),
        }
    }
}

/// What one round of creating and removing took: milliseconds, and microseconds of writes.
pub(in crate::tables) struct Round {
    pub(in crate::tables) created: Vec<f64>,
    pub(in crate::tables) removed: Vec<f64>,
    pub(in crate::tables) writes: Vec<f64>,
}

impl Round {
    /// Puts it down, as one of a volume with so many snapshots `beside`.
    pub(in crate::tables) fn record(&self, part: &mut Part, beside: &str) {
        let (created, name) = (|share| percentile(&self.created, share), |what| format!("{what}, {beside}"));
        part.record(name("snap create, median"), "ms", CREATE_GOAL_MS, created(0.5));
        part.note(name("snap create, slowest"), "ms", created(1.0));
        let row = name("snap remove returns, slowest");
        part.record(row, "ms", REMOVE_GOAL_MS, percentile(&self.removed, 1.0));
        part.note(name("origin writes meanwhile, p99"), "ms", percentile(&self.writes, 0.99) / 1e3);
    }
}

fn creating(options: &Options, medium: Medium, part: &mut Part, sheet: &mut Sheet) -> Outcome<()> {
    let plan = |snapshots| {
        let origin = REGION + MARGIN;
        let (stores, options) = (Stores::Shared, StoreOptions::default());
        Plan { origin, store: store_for(4 * origin), stores, snapshots, options }
    };
    let place = Place::new(options.directory(medium), plan(0).disk())?;
    let file = open(&place.file("disk", plan(0).disk())?, medium)?;
    let shard = Shard::start()?;
    for round in 0..options.runs() {
        for count in turns(&COUNTS, round) {
            let file = Arc::clone(&file);
            let round = shard.run(move |context| async move {
                let around = Surroundings::of(&context, &file);
                let volume = plan(count).build(&around).await?;
                create_and_remove(&context, &around, &volume).await
            });
            let beside = if count == 0 { "no snapshot".to_owned() } else { format!("{count} snapshots") };
            round?.record(part, &beside);
        }
        sheet.keep(part)?;
    }
    Ok(())
}

async fn create_and_remove(context: &ShardContext, around: &Surroundings, volume: &Volume) -> Outcome<Round> {
    let stop = Rc::new(Cell::new(false));
    let store = Rc::clone(&volume.stores[0]);
    let work = in_background(context, Rc::clone(&stop), around.clone(), async move |around| {
        let ms = |since| around.clock.now().since(since).as_secs_f64() * 1e3;
        let (mut created, mut removed) = (Vec::new(), Vec::new());
        for number in 0..CREATES {
            around.clock.sleep(PAUSE).await;
            let began = around.clock.now();
            let id = create(&store, &format!("one.more.{number}")).await?;
            created.push(ms(began));
            around.clock.sleep(PAUSE).await;
            let began = around.clock.now();
            store.begin_removal(id).await?;
            removed.push(ms(began));
            reclaim(&store, &around).await?;
        }
        Ok::<_, Failed>((created, removed))
    });
    let writes = write_until(&volume.front, around, &stop).await?;
    let (created, removed) = work.await.map_err(|_| "the work was dropped")??;
    Ok(Round { created, removed, writes })
}

/// Starts `work` as a task of its own; when it ends, `stop` is set.
pub(in crate::tables) fn in_background<T: 'static>(
    context: &ShardContext,
    stop: Rc<Cell<bool>>,
    around: Surroundings,
    work: impl AsyncFnOnce(Surroundings) -> T + 'static,
) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    context.spawner().spawn(async move {
        let outcome = work(around).await;
        stop.set(true);
        // The waiting task may have failed.
        let _ = sender.send(outcome);
    });
    receiver
}

/// The chain for the deletions: each hands its entries to the one before it, so that each has a million to walk.
fn deletion_plan(options: &Options) -> (Plan, u64) {
    let entries = if options.is_quick() { ENTRIES >> 6 } else { ENTRIES };
    let origin = REGION + MARGIN + entries * CHUNK;
    let snapshots = u32::try_from(options.runs()).expect("few rounds") + 1;
    let store = store_for(entries * BLOCK + 2 * REGION + GIB / 4);
    (Plan { origin, store, stores: Stores::Shared, snapshots, options: StoreOptions::default() }, entries)
}

fn deleting(options: &Options, medium: Medium, part: &mut Part, sheet: &mut Sheet) -> Outcome<()> {
    let (plan, entries) = deletion_plan(options);
    let place = Place::new(options.directory(medium), plan.store + REGION)?;
    let path = place.file("disk", plan.store + REGION)?;
    let file = open(&path, medium)?;
    let rounds = options.runs();
    let outcome = Shard::start()?.run(move |context| async move {
        let mut around = Surroundings::of(&context, &file);
        // Of the origin only what the load writes to is on the disk.
        let (disk, rest) = (around.disk.clone(), plan.origin - REGION);
        let segments =
            vec![(REGION, disk.clone(), 0), (rest, nothing(rest, 512), 0), (plan.store, disk, REGION)];
        around.disk = Device::new(Linear::new(segments));
        let volume = plan.build(&around).await?;
        preserve(&volume.front, &around, entries).await?;
        let mut deletions = Vec::new();
        for id in volume.ids.iter().rev().take(rounds) {
            deletions.push(delete(&context, &around, &volume, *id).await?);
        }
        Ok::<_, Failed>(deletions)
    });
    for deletion in outcome? {
        deletion.record(part, entries);
    }
    sheet.keep(part)
}

/// Makes an entry of each of `entries` chunks behind the region of the load, and preserves that region.
async fn preserve(front: &Device, around: &Surroundings, entries: u64) -> Outcome<()> {
    let mut data = around.arena.take(64 << 10);
    Noise(1).fill(&mut data);
    let data = data.freeze();
    for at in (0..REGION).step_by(64 << 10) {
        front.write(at, data.clone(), Durability::Volatile).await?;
    }
    let zero = |entry| front.zero(Extent::new(REGION + entry * CHUNK, BLOCK), ZeroOptions::default());
    each((0..entries).map(zero), 64).await
}

/// What one deletion took, and the writes (microseconds) before it and meanwhile.
pub(in crate::tables) struct Deletion {
    pub(in crate::tables) alone: Vec<f64>,
    pub(in crate::tables) beside: Vec<f64>,
    pub(in crate::tables) begun_ms: f64,
    pub(in crate::tables) whole_ms: f64,
}

impl Deletion {
    /// Puts it down as one more round, of a snapshot with `entries` entries.
    pub(in crate::tables) fn record(&self, part: &mut Part, entries: u64) {
        let told =
            if entries >= 1 << 20 { format!("{} M", entries >> 20) } else { format!("{} k", entries >> 10) };
        let (alone, beside) = (percentile(&self.alone, 0.99), percentile(&self.beside, 0.99));
        let name = format!("origin write p99 while {told} entries are deleted, over that without");
        part.record(&name, "x", DELETE_GOAL, beside / alone);
        part.note("origin write p99 without a deletion", "ms", alone / 1e3);
        part.note("origin write, slowest meanwhile", "ms", percentile(&self.beside, 1.0) / 1e3);
        part.record(format!("deleting {told} entries returns"), "ms", REMOVE_GOAL_MS, self.begun_ms);
        part.note(format!("deleting {told} entries, in all"), "ms", self.whole_ms);
    }
}

async fn delete(
    context: &ShardContext,
    around: &Surroundings,
    volume: &Volume,
    id: u64,
) -> Outcome<Deletion> {
    let write = async |stop: &Cell<bool>| write_until(&volume.front, around, stop).await;
    let stop = Rc::new(Cell::new(false));
    let rest = in_background(context, Rc::clone(&stop), around.clone(), async |around: Surroundings| {
        around.clock.sleep(ALONE).await;
    });
    let alone = write(&stop).await?;
    rest.await.map_err(|_| "the work was dropped")?;

    let stop = Rc::new(Cell::new(false));
    let store = Rc::clone(&volume.stores[0]);
    let work = in_background(context, Rc::clone(&stop), around.clone(), async move |around| {
        let began = around.clock.now();
        let ms = || around.clock.now().since(began).as_secs_f64() * 1e3;
        store.begin_removal(id).await?;
        let begun_ms = ms();
        reclaim(&store, &around).await?;
        Ok::<_, Failed>((begun_ms, ms()))
    });
    let beside = write(&stop).await?;
    let (begun_ms, whole_ms) = work.await.map_err(|_| "the work was dropped")??;
    Ok(Deletion { alone, beside, begun_ms, whole_ms })
}

/// Gives back in batches what removed snapshots alone had, with rests between them, as the daemon does while requests keep
/// arriving; its rests are shorter.
async fn reclaim(store: &Rc<SnapshotStore>, around: &Surroundings) -> Outcome<()> {
    loop {
        let began = around.clock.now();
        if !store.reclaim(BATCH_ENTRIES).await? {
            return Ok(());
        }
        let spent = around.clock.now().since(began);
        around.clock.sleep((spent * REST_FACTOR).max(REST_MIN)).await;
    }
}
