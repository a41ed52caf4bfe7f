//! Stores whose metadata contradicts itself under sound checksums: every answer is content or an error, never a panic, and
//! nothing takes for ever or more memory than it should.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_block::{Device, Durability, Extent, IoError, KIB, MIB, ZeroOptions};
use varve_format::Layout;
use varve_format::pdata::{node, space_page};
use varve_format::store::{
    BLOCK_LAYOUT, BYTES_LAYOUT, BlockKind, CREATE_LAYOUT, EntryBlock, FLAGS_LAYOUT, PIECE_LAYOUT,
    RENAME_LAYOUT, RESTORED_LAYOUT, ROLLBACK_LAYOUT, SLOT_ADDRESSES, SNAPSHOT_LAYOUT, SUPERBLOCK_LAYOUT,
    Superblock, data_checksum,
};
use varve_sim::{CrashKind, Random, SimDisk, World, run_seeds, test_name};
use varve_target::Linear;
use varve_target::snapshot::{
    FormatOptions, MetadataOrder, NewSnapshot, SnapshotStore, StoreOptions, Uuid, check_store, dump_store,
    restore_store, salvage_store,
};

const PART: u64 = 4 * KIB;
const BLOCK: usize = 4096;
const STORE: u64 = 3 * MIB / 2;
/// Bytes of the origin at first, and when it has grown.
const ORIGIN: [u64; 2] = [MIB, 2 * MIB];
/// More than the work of any case takes.
const POLLS_MAX: u64 = 2_000_000;
/// More than the requests of any case are long, all at once.
const BUFFERS_MAX: u64 = 64 * MIB;

fn named(name: &str) -> NewSnapshot {
    NewSnapshot { name: name.into(), read_only: false, held: false }
}

async fn write(device: &Device, world: &World, part: u64, count: u64, byte: u8) -> Result<(), IoError> {
    let parts = device.shape().size / PART;
    let (part, count) = (part % parts, count.min(parts - part % parts));
    let data = vec![byte; usize::try_from(count * PART).expect("small")];
    device.write(part * PART, world.arena().copy(&data), Durability::Volatile).await.map(drop)
}

/// The blocks of a store that something leads to, by what they are.
#[derive(Default)]
struct Found {
    superblocks: Vec<u64>,
    entries: Vec<u64>,
    nodes: Vec<u64>,
    pages: Vec<u64>,
}

fn block(disk: &SimDisk, number: u64) -> Vec<u8> {
    disk.peek(Extent::new(number * PART, PART))
}

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Found {
    fn of(disk: &SimDisk) -> Self {
        let slots = SLOT_ADDRESSES.map(|at| Superblock::decode(&block(disk, at / PART), at).ok());
        let newest = slots.into_iter().flatten().max_by_key(|one| one.generation).expect("a store");
        let mut found = Found {
            superblocks: newest.slots().map(|at| at / PART).to_vec(),
            pages: vec![2, 3],
            ..Found::default()
        };
        for number in 0..STORE / PART {
            let bytes = block(disk, number);
            let decoded = [BlockKind::Log, BlockKind::Table]
                .map(|kind| EntryBlock::decode(&bytes, kind, number * PART));
            let is_live = |one: &EntryBlock| one.generation == newest.generation;
            found.entries.extend(decoded.iter().flatten().any(is_live).then_some(number));
        }
        let mut stack: Vec<u64> = [newest.roots.preserved, newest.roots.written]
            .map(|root| root.block().number())
            .into_iter()
            .filter(|root| *root > 0)
            .collect();
        while let Some(at) = stack.pop() {
            found.nodes.push(at);
            let bytes = block(disk, at);
            let (level, count) = (number(&bytes, 32, 4), number(&bytes, 36, 4) as usize);
            let children = (0..count).map(|child| number(&bytes, 64 + child * 24 + 16, 5));
            stack.extend(children.filter(|_| level > 0));
        }
        found
    }
}

/// The fields of a block: where each begins, and how long it is.
fn fields(bytes: &[u8]) -> Vec<(usize, usize)> {
    let of = |layout: &Layout, at: usize, fields: std::ops::Range<usize>| -> Vec<(usize, usize)> {
        layout.fields[fields].iter().map(|field| (at + field.offset, field.size)).collect()
    };
    match &bytes[..8] {
        b"VARVE\xffSS" => {
            let count = SUPERBLOCK_LAYOUT.fields.len();
            let mut all = of(&SUPERBLOCK_LAYOUT, 0, 3..count - 2);
            all.push((SUPERBLOCK_LAYOUT.fields[count - 2].offset, 1));
            all
        }
        b"VARVE\xffSL" | b"VARVE\xffST" => {
            let mut all = of(&BLOCK_LAYOUT, 0, 2..8);
            let (mut at, end) = (64, 64 + number(bytes, 12, 4) as usize);
            while at < end {
                let layout = match number(bytes, at, 2) {
                    1 | 2 => &PIECE_LAYOUT,
                    3 => &CREATE_LAYOUT,
                    5 => &FLAGS_LAYOUT,
                    6 => &ROLLBACK_LAYOUT,
                    8 => &BYTES_LAYOUT,
                    9 | 10 => &RESTORED_LAYOUT,
                    11 => &RENAME_LAYOUT,
                    _ => &SNAPSHOT_LAYOUT,
                };
                all.extend(of(layout, at, 0..layout.fields.len()));
                at += number(bytes, at + 2, 2) as usize;
            }
            all
        }
        _ if &bytes[..4] == b"VNOD" => {
            let mut all = of(&node::LAYOUT, 0, 2..7);
            // Keys and values consist of smaller ones.
            let (length, parts) = match number(bytes, 32, 4) {
                0 => (32, &[(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4)][..]),
                _ => (24, &[(0, 4), (4, 4), (8, 8), (16, 8)][..]),
            };
            for entry in 0..number(bytes, 36, 4) as usize {
                all.extend(parts.iter().map(|(at, size)| (64 + entry * length + at, *size)));
            }
            all
        }
        _ => {
            let mut all = of(&space_page::LAYOUT, 0, 2..7);
            all.extend((0..STORE / PART / 8).map(|byte| (64 + byte as usize, 1)));
            all
        }
    }
}

/// Changes one field of a block, and makes the checksum sound again.
fn mutate(bytes: &mut [u8], random: &mut Random) {
    let all = fields(bytes);
    let (at, size) = *random.pick(&all);
    let size = size.min(8);
    let old = number(bytes, at, size);
    let (other, shift) = (*random.pick(&all), random.between(24, 63));
    let max = u64::MAX >> (64 - 8 * size);
    let new = match random.below(9) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => 0,
        3 => max,
        4 => number(bytes, other.0, other.1.min(8)),
        5 => old ^ 1 << random.below(8 * size as u64),
        6 => old.wrapping_add(PART),
        7 => old.wrapping_sub(PART),
        _ => random.bits() >> shift,
    };
    bytes[at..at + size].copy_from_slice(&(new & max).to_le_bytes()[..size]);
    if bytes.starts_with(b"VSPC") && random.chance(3, 4) {
        let used: u32 = bytes[64..].iter().map(|byte| byte.count_ones()).sum();
        bytes[40..44].copy_from_slice(&used.to_le_bytes());
    }
    if bytes.starts_with(b"VARVE") {
        let checksum = data_checksum(&bytes[..BLOCK - 4]);
        bytes[BLOCK - 4..].copy_from_slice(&checksum.to_le_bytes());
    } else {
        bytes[4..8].fill(0);
        let checksum = data_checksum(bytes);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// A store with snapshots of an origin that grew between them, some written, one being deleted, and maybe a rollback.
async fn fill(world: &World, origin: &SimDisk, disk: &SimDisk, options: StoreOptions, random: &mut Random) {
    let sized = |size| Device::new(Linear::new(vec![(size, origin.device(world), 0)]));
    let store =
        SnapshotStore::open(sized(ORIGIN[0]), disk.device(world), world.arena(), world.clock(), options);
    let store = store.await.expect("just formatted");
    let mut ids = Vec::new();
    for step in 0..random.between(20, 120) {
        if step == 15 {
            store.origin_resized(sized(ORIGIN[1])).expect("larger");
        }
        match random.below(14) {
            0 | 1 if ids.len() < 6 => ids.extend(store.create(&named(&format!("s{step}"))).await.ok()),
            2 | 3 if !ids.is_empty() => {
                let view = store.snapshot(*random.pick(&ids)).expect("there");
                let _ = write(&view, world, random.below(512), random.between(1, 4), 3).await;
            }
            4 if ids.len() > 2 => {
                let id = ids.remove(random.below(ids.len() as u64) as usize);
                let _ =
                    if random.chance(1, 2) { store.begin_removal(id).await } else { store.remove(id).await };
            }
            _ => drop(write(&store.origin(), world, random.below(512), random.between(1, 40), 7).await),
        }
    }
    if let Some(id) = ids.first().filter(|_| random.chance(1, 3)) {
        let _ = store.begin_rollback(*id).await;
        let _ = store.continue_rollback(20 * PART).await;
    }
    if let Some(id) = ids.last() {
        let _ = store.snapshot(*id).expect("there").flush().await;
    }
    store.origin().flush().await.expect("no faults");
}

/// Does with a store whatever can be done.
async fn use_all(
    world: &World,
    origin: &SimDisk,
    disk: &SimDisk,
    options: StoreOptions,
    random: &mut Random,
) -> bool {
    let (device, arena) = (disk.device(world), world.arena());
    let sound = check_store(&device, &arena).await.is_ok();
    if let Ok(text) = dump_store(&device, &arena).await {
        let copy = SimDisk::new(STORE);
        let _ = restore_store(&copy.device(world), &arena, &text).await;
    }
    if let Ok(saved) = salvage_store(&device, &arena).await {
        let copy = SimDisk::new(STORE);
        let _ = restore_store(&copy.device(world), &arena, &saved.text).await;
    }
    let opened =
        SnapshotStore::open(origin.device(world), device, arena.clone(), world.clock(), options).await;
    let Ok(store) = opened else { return sound };
    let ids: Vec<u64> = store.list().iter().map(|one| one.id).collect();
    read_all(world, &store, &ids, random).await;
    change_all(world, &store, &ids, random).await;
    let ids: Vec<u64> = store.list().iter().map(|one| one.id).collect();
    read_all(world, &store, &ids, random).await;
    sound
}

async fn read_all(world: &World, store: &Rc<SnapshotStore>, ids: &[u64], random: &mut Random) {
    for id in ids {
        let Ok(view) = store.snapshot(*id) else { continue };
        let size = view.shape().size;
        if size > 0 && size <= ORIGIN[1] {
            let _ = view.read(0, world.arena().take(usize::try_from(size).expect("small"))).await;
            let _ = view.status(Extent::new(0, size)).await;
        }
        let _ = store.diff(*id, None).await;
        let _ = store.diff(*id, ids.last().copied()).await;
        let _ = store.removals_free(&[*id]).await;
    }
    let front = store.origin();
    let _ = front.read(random.below(400) * PART, world.arena().take(256 << 10)).await;
    let _ = front.status(front.shape().extent()).await;
    let (_, _, _) = (store.usage().percent(), store.snapshot_bytes(), store.removals());
}

async fn change_all(world: &World, store: &Rc<SnapshotStore>, ids: &[u64], random: &mut Random) {
    let front = store.origin();
    for step in 0..40 {
        let (part, count) = (random.below(500), random.between(1, 12));
        let _ = match random.below(8) {
            0 => front.discard(Extent::new(part * PART, count * PART)).await.map(drop),
            1 => front.zero(Extent::new(part * PART, count * PART), ZeroOptions::default()).await.map(drop),
            2 => front.flush().await.map(drop),
            _ => write(&front, world, part, count, step).await,
        };
    }
    for id in ids {
        let Ok(view) = store.snapshot(*id) else { continue };
        if view.shape().size < 16 * PART || view.shape().access == varve_block::Access::ReadOnly {
            continue;
        }
        let _ = write(&view, world, random.below(500), 5, 9).await;
        let _ = view.zero(Extent::new(PART, 8 * PART), ZeroOptions::default()).await;
        let _ = view.discard(Extent::new(3 * PART, 8 * PART)).await;
        let _ = view.flush().await;
    }
    let _ = store.create(&named("new")).await;
    for number in 0..10 {
        let _ = write(&front, world, random.below(500), 3, number).await;
    }
    if let Some(id) = ids.first().filter(|_| random.chance(2, 3)) {
        let _ = store.begin_rollback(*id).await;
    }
    for _ in 0..30 {
        if !matches!(store.continue_rollback(MIB).await, Ok(true)) {
            break;
        }
    }
    for id in ids.iter().rev() {
        let _ = store.set_flags(*id, false, false).await;
        let _ = store.begin_removal(*id).await;
        for _ in 0..50 {
            if !matches!(store.reclaim(64).await, Ok(true)) {
                break;
            }
        }
    }
    let _ = store.create(&named("last")).await;
    let _ = write(&front, world, random.below(500), 30, 5).await;
    let _ = front.flush().await;
}

/// One case; whether a check found nothing to say.
fn case(seed: u64) -> bool {
    let world = World::new(seed);
    let mut random = world.random();
    let (origin, disk) = (SimDisk::new(ORIGIN[1]), SimDisk::new(STORE));
    let (log_records, cache_bytes) = (*random.pick(&[6, 1000]), *random.pick(&[64 * KIB, 64 * MIB]));
    let metadata = if random.chance(1, 5) { MetadataOrder::WriteThrough } else { MetadataOrder::Logged };
    let options = StoreOptions { log_records, cache_bytes, metadata, ..StoreOptions::default() };
    world.run(async {
        let format = FormatOptions {
            id: Uuid::from_u128(seed.into()),
            chunk_size: *random.pick(&[PART, 16 * KIB, 64 * KIB]),
        };
        SnapshotStore::format(&disk.device(&world), &world.arena(), format).await.expect("large enough");
        fill(&world, &origin, &disk, options, &mut random).await;
    });
    world.crash(CrashKind::Process);
    for _ in 0..random.between(1, 2) {
        let found = Found::of(&disk);
        let kinds =
            [&found.superblocks, &found.entries, &found.entries, &found.nodes, &found.nodes, &found.pages];
        let blocks = *random.pick(&kinds);
        if blocks.is_empty() {
            continue;
        }
        let chosen = *random.pick(blocks);
        let mut bytes = block(&disk, chosen);
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        mutate(&mut bytes, &mut random);
        disk.poke(chosen * PART, &bytes);
        if Superblock::decode(&block(&disk, found.superblocks[0]), found.superblocks[0] * PART).is_err() {
            break;
        }
    }
    let polls = Cell::new(0);
    let bounded = async |random: &mut Random| {
        let mut work = pin!(use_all(&world, &origin, &disk, options, random));
        poll_fn(|context| {
            polls.set(polls.get() + 1);
            assert!(polls.get() < POLLS_MAX, "it ends");
            let held = world.arena().usage();
            assert!(held.in_use + held.overflow < BUFFERS_MAX, "memory is bounded: {held:?}");
            work.as_mut().poll(context)
        })
        .await
    };
    let sound = world.run(bounded(&mut random));
    world.crash(CrashKind::Process);
    world.run(bounded(&mut random));
    sound
}

#[test]
fn metadata_that_contradicts_itself_is_an_error_and_never_a_panic() {
    static COUNTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static FAILED: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    run_seeds(test_name!("metadata_that_contradicts_itself_is_an_error_and_never_a_panic"), 800, |seed| {
        COUNTS[0].fetch_add(1, Ordering::Relaxed);
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(sound) => drop(COUNTS[1].fetch_add(u64::from(!sound), Ordering::Relaxed)),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                FAILED.lock().expect("no panic here").push((seed, text.unwrap_or_default()));
            }
        }
    });
    let failed = FAILED.lock().expect("no panic here");
    assert!(failed.is_empty(), "{} cases panic: {failed:#?}", failed.len());
    let [cases, noticed] = [0, 1].map(|count: usize| COUNTS[count].load(Ordering::Relaxed));
    assert!(
        cases < 800 || noticed > cases / 2,
        "most contradictions are noticed by a check: {noticed} of {cases}"
    );
}
