//! What a pool is after a crash or on a damaged disk: a rollback that happened or did not, a log that ends or is broken.

use crate::common::{ID, fresh, newest_superblock, open, read, remove_all, sound, volume, write};
use std::cell::Cell;
use std::rc::Rc;
use varve_block::{Arena, Device, Extent, KIB, MIB};
use varve_format::pdata::{Block, BlockRun};
use varve_format::store::data_checksum;
use varve_format::thin::{PoolFormatError, Record, Superblock};
use varve_sim::{CrashKind, SimDisk, World, for_each_crash_point};
use varve_target::Linear;
use varve_target::thin::{Pool, PoolError, PoolFormat, VolumeFlags, dump_pool, restore_pool};

const BLOCK: u64 = 4 * KIB;
const PIECE: u64 = 64 * KIB;

/// The byte that all of `extent` is.
async fn byte_at(device: &Device, arena: &Arena, extent: Extent) -> u8 {
    let content = read(device, arena, extent).await;
    assert!(content.iter().all(|byte| *byte == content[0]), "{extent:?} is of one kind");
    content[0]
}

/// What the world outside of the pool knows of a rollback.
#[derive(Default)]
struct Rollback {
    mark: Cell<Option<u64>>,
    is_done: Cell<bool>,
}

/// A volume of 1s of 512 KiB with a snapshot gets `bytes` bytes and 2s at its start, and is rolled back in its own size.
async fn roll_back(device: Device, world: &World, bytes: u64, told: &Rollback) {
    let (pool, arena) = (fresh(device, world).await, world.arena());
    let (id, device) = volume(&pool, "v", 512 * KIB).await;
    write(&device, &arena, Extent::new(0, PIECE), 1).await.expect("space");
    write(&device, &arena, Extent::new(512 * KIB - PIECE, PIECE), 1).await.expect("space");
    let snapshot = pool.snapshot(id, "s", true).await.expect("space");
    pool.resize(id, bytes).await.expect("space");
    let device = pool.volume(id).expect("it is there");
    write(&device, &arena, Extent::new(0, PIECE), 2).await.expect("space");
    // Where the snapshot has nothing: it is lost.
    write(&device, &arena, Extent::new(bytes - PIECE, PIECE), 2).await.expect("space");
    device.flush().await.expect("no faults");
    told.mark.set(Some(pool.rollback_mark(id).expect("it is there")));
    pool.roll_back_in_size(id, snapshot, bytes).await.expect("space");
    told.is_done.set(true);
}

/// REVERT1 and REVERT2 of `rollback.rs`: it has happened or not, and the mark tells.
async fn verify(pool: &Rc<Pool>, world: &World, bytes: u64, told: &Rollback) -> bool {
    let info = pool.named("v").expect("it was created");
    assert_eq!(info.bytes, bytes, "REVERT1: it has its own size all the while");
    let (device, arena) = (pool.volume(info.id).expect("listed"), world.arena());
    let happened = byte_at(&device, &arena, Extent::new(0, PIECE)).await == 1;
    assert_eq!(
        pool.rollback_mark(info.id) != Ok(told.mark.get().expect("it was asked")),
        happened,
        "REVERT2"
    );
    assert!(happened || !told.is_done.get(), "what was acknowledged has happened");
    if happened {
        let pieces = if bytes < 512 * KIB { 1 } else { 2 };
        assert_eq!(info.mapped_bytes, pieces * PIECE, "nothing lies behind the end");
    }
    if happened && bytes > 512 * KIB {
        let behind = Extent::between(512 * KIB, bytes);
        assert_eq!(byte_at(&device, &arena, behind).await, 0, "what the snapshot has not is zeros");
    }
    remove_all(pool).await;
    let left = pool.list().iter().filter(|volume| volume.flags.has(VolumeFlags::REMOVING)).count();
    assert_eq!((left, pool.list().len()), (0, 2), "REVERT3: the volume and its snapshot");
    sound(pool).await;
    happened
}

#[test]
fn a_rollback_of_a_volume_of_another_size_happens_as_a_whole_or_not_at_all() {
    for (seed, bytes) in [(1, 512 * KIB), (2, 256 * KIB), (3, MIB)] {
        let (happened, not) = (Cell::new(0), Cell::new(0));
        for_each_crash_point(seed, |world| {
            let (disk, told) = (SimDisk::new(4 * MIB), Rollback::default());
            let _crashed = world.run_until_crash(roll_back(disk.device(world), world, bytes, &told));
            if told.mark.get().is_none() {
                return;
            }
            world.run(async {
                let pool = open(disk.device(world), world).await.expect("a pool can always be opened");
                let count = if verify(&pool, world, bytes, &told).await { &happened } else { &not };
                count.set(count.get() + 1);
            });
        });
        assert!(happened.get() > 0 && not.get() > 0, "{bytes}: {happened:?} {not:?}");
    }
}

/// The numbers of the records in the ring, and where each begins; and the number with which the log begins.
fn records(disk: &SimDisk) -> (Vec<(u64, Block)>, u64) {
    let newest = newest_superblock(disk);
    let ring = BlockRun::new(newest.ring(), newest.log_blocks);
    let claims = |block: Block| {
        let bytes = disk.peek(block.extent());
        Record::claims(&bytes, ID.as_u64_pair().0).map(|(number, _)| (number, block))
    };
    let mut found: Vec<(u64, Block)> = ring.blocks().filter_map(claims).collect();
    found.sort_unstable();
    (found, newest.sequence)
}

/// A pool whose process ended after `count` writes, each with a flush.
async fn with_writes(device: Device, world: &World, count: u64) {
    let format = PoolFormat { log_bytes: Some(32 * KIB), ..PoolFormat::new(ID) };
    Pool::format(&device, &world.arena(), format).await.expect("large enough");
    let pool = open(device, world).await.expect("a new pool");
    let (_, device) = volume(&pool, "v", 4 * MIB).await;
    for number in 0..count {
        let byte = u8::try_from(number + 1).expect("small");
        write(&device, &world.arena(), Extent::new(number * PIECE, PIECE), byte).await.expect("space");
        device.flush().await.expect("no faults");
    }
}

/// Flips a byte of `block` at `at`, opens the pool and turns the byte back.
fn open_damaged(disk: &SimDisk, world: &World, block: Block, at: u64) -> Result<u64, PoolError> {
    let before = disk.peek(block.extent());
    let mut damaged = before.clone();
    damaged[usize::try_from(at).expect("small")] ^= 0x10;
    disk.poke(block.offset(), &damaged);
    let outcome = world.run(async {
        let pool = open(disk.device(world), world).await?;
        sound(&pool).await;
        let device = pool.volume(pool.list()[0].id)?;
        let mut whole = 0;
        while whole < 64
            && byte_at(&device, &world.arena(), Extent::new(whole * PIECE, PIECE)).await
                == u8::try_from(whole + 1).expect("small")
        {
            whole += 1;
        }
        Ok(whole)
    });
    disk.poke(block.offset(), &before);
    outcome
}

#[test]
fn a_damaged_record_in_the_midst_of_the_log_is_damage_and_at_its_end_a_torn_one() {
    let (mut midst, mut ends, mut wrapped) = (0, 0, 0);
    for count in 1..24 {
        let (world, disk) = (World::new(count), SimDisk::new(4 * MIB));
        world.run(with_writes(disk.device(&world), &world, count));
        let (found, first) = records(&disk);
        let live: Vec<(u64, Block)> = found.into_iter().filter(|(number, _)| *number >= first).collect();
        let Some(((_, last), before)) = live.split_last() else { continue };
        wrapped += usize::from(before.iter().any(|(_, block)| block > last));
        for (_, block) in before {
            // Magic, checksum, number, length, an entry, the padding.
            for at in [0, 5, 8, 25, 70, 4000] {
                let opened = open_damaged(&disk, &world, *block, at);
                assert!(
                    matches!(opened, Err(PoolError::Corrupt(_))),
                    "REPLAY1: {count} {block} {at}: {opened:?}"
                );
                midst += 1;
            }
        }
        let opened = open_damaged(&disk, &world, *last, 70);
        assert_eq!(opened, Ok(count - 1), "a record that may be torn is not there");
        ends += 1;
    }
    assert!(midst > 50 && ends > 10 && wrapped > 0, "{midst} {ends} {wrapped}");
}

#[test]
fn what_is_kept_for_metadata_grows_with_the_pool() {
    let (world, disk) = (World::new(4), SimDisk::new(64 * MIB));
    world.run(async {
        let small = Device::new(Linear::new(vec![(2 * MIB, disk.device(&world), 0)]));
        let pool = fresh(small, &world).await;
        pool.grown(disk.device(&world)).expect("it grows");
        pool.checkpoint().await.expect("no faults");
        let grown = pool.usage();
        drop(pool);
        let flushes = disk.counters().flushes;
        let opened = open(disk.device(&world), &world).await.expect("a pool can always be opened").usage();
        assert_eq!(disk.counters().flushes, flushes + 1, "POOLOPEN2");
        assert_eq!(grown, opened, "THIN8: it is the same whether it was opened before or after it grew");
        assert!(opened.reserve > MIB);
    });
}

#[test]
fn nothing_behind_the_two_superblocks_is_taken_for_one() {
    let (world, disk) = (World::new(5), SimDisk::new(4 * MIB));
    world.run(with_writes(disk.device(&world), &world, 3));
    for _ in 0..2 {
        let newest = newest_superblock(&disk);
        // As a client may write it to where its data is.
        for slot_blocks in [16, 32, 64] {
            let forged = Superblock { slot_blocks, number: newest.number + 100, ..newest.clone() };
            let place = Extent::new(slot_blocks * BLOCK, slot_blocks * BLOCK);
            let (before, mut bytes) = (disk.peek(place), disk.peek(place));
            forged.encode(&mut bytes, Block::new(slot_blocks));
            disk.poke(place.offset, &bytes);
            let found = world.run(open(disk.device(&world), &world)).map(|pool| pool.usage().fixed);
            assert_eq!(found, Ok((newest.base_block() + 2).offset()), "what lies at {slot_blocks} is data");
            disk.poke(place.offset, &before);
        }
        world.run(async { open(disk.device(&world), &world).await?.checkpoint().await }).expect("no faults");
    }
}

#[test]
fn a_superblock_that_rots_takes_nothing_with_it() {
    let (world, disk) = (World::new(7), SimDisk::new(4 * MIB));
    world.run(with_writes(disk.device(&world), &world, 3));
    world.run(async { open(disk.device(&world), &world).await?.checkpoint().await }).expect("no faults");
    let dump = || world.run(dump_pool(&disk.device(&world), &world.arena(), &world.clock()));
    let text = dump().expect("sound");
    let slots = || [0, 1].map(Block::new).map(|at| Superblock::decode(&disk.peek(at.extent()), at));
    let newest = slots()[0].clone().expect("there is one");
    for slot in [0, 1] {
        disk.poke(slot * BLOCK, &[0x55; 4096]);
        assert_eq!(dump().as_ref(), Ok(&text), "PAIR4: slot {slot}");
        world.run(open(disk.device(&world), &world)).expect("one superblock is enough");
        world.crash(CrashKind::Power);
        assert_eq!(slots(), [Ok(newest.clone()), Ok(newest.clone())], "PAIR4: it is written again");
    }
}

/// Makes a superblock of 4 KiB, with a sound checksum, that of another version.
fn make_older(disk: &SimDisk, slot: u64) {
    let mut bytes = disk.peek(Extent::new(slot * BLOCK, BLOCK));
    bytes[8..16].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]);
    let checksum = data_checksum(&bytes);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    disk.poke(slot * BLOCK, &bytes);
}

#[test]
fn a_pool_with_a_superblock_of_another_version_is_refused_until_it_is_made_anew_from_its_text() {
    let (world, disk) = (World::new(6), SimDisk::new(4 * MIB));
    world.run(with_writes(disk.device(&world), &world, 3));
    world.run(async { open(disk.device(&world), &world).await?.checkpoint().await }).expect("no faults");
    let (device, arena, clock) = (disk.device(&world), world.arena(), world.clock());
    let text = world.run(dump_pool(&device, &arena, &clock)).expect("sound");
    for slot in [0, 1] {
        make_older(&disk, slot);
        let opened = world.run(open(disk.device(&world), &world)).map(drop);
        assert_eq!(opened, Err(PoolError::Format(PoolFormatError::Newer(2))), "PAIR3: slot {slot}");
    }
    world.run(restore_pool(&device, &arena, &clock, &text, false)).expect("it fits");
    assert_eq!(world.run(dump_pool(&device, &arena, &clock)), Ok(text), "PAIR3");
}
