//! Tests of the whole crate; each runs on a ring and on a pool.

use crate::*;
use futures_util::future::join_all;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use varve_block::host::DiskMark;
use varve_block::{
    Access, Allocation, Device, Durability, Extent, IoError, StatusRun, ZeroOptions, timeout, yield_now,
};

mod bad_disks;
mod block_device;
mod faults;
mod model;
mod shrunk;
mod sockets;

/// Runs `test` with shards of each kind.
pub(crate) fn with_shards(count: usize, test: impl Fn(&Shards)) {
    for io in [IoChoice::Ring, IoChoice::Pool] {
        let config = ShardsConfig { count, io, arena_bytes: 16 << 20, ..ShardsConfig::default() };
        let shards = Shards::start(&config).expect("shards start");
        assert_eq!(shards.is_ring(), io == IoChoice::Ring);
        test(&shards);
        let arena = shards.arena();
        shards.stop();
        assert_eq!(arena.usage().in_use, 0, "URING2: all memory has come home");
        assert_eq!(arena.usage().overflow, 0, "URING2: all memory has come home");
    }
}

/// Where a disk is put, and how it is used.
type Place = (PathBuf, CacheMode);

/// The file system of the build, which mostly knows direct I/O.
pub(crate) fn build_directory() -> PathBuf {
    let executable = std::env::current_exe().expect("a running test has a file");
    executable.parent().expect("a file lies in a directory").to_owned()
}

/// Direct, buffered, in memory.
fn places() -> [Place; 3] {
    [
        (build_directory(), CacheMode::Direct),
        (build_directory(), CacheMode::Buffered),
        (PathBuf::from("/dev/shm"), CacheMode::Buffered),
    ]
}

/// Opens a disk that was closed a moment ago: the kernel releases it when its last request is freed, and processes that
/// other tests start hold it until they run their program.
pub(crate) fn open_again(path: &Path, options: DiskOptions) -> Arc<DiskFile> {
    for _ in 0..1000 {
        match DiskFile::open(path, options) {
            Err(OpenError::InUse(_)) => std::thread::park_timeout(Duration::from_millis(10)),
            opened => return opened.expect("a disk"),
        }
    }
    panic!("{} stays in use", path.display());
}

/// A new sparse disk; the directory goes with it.
pub(crate) fn new_disk(place: &Place, size: u64) -> (TempDir, Arc<DiskFile>) {
    let directory = tempfile::tempdir_in(&place.0).expect("a directory");
    let options = DiskOptions { cache: place.1, ..DiskOptions::create(size) };
    let disk = DiskFile::open(directory.path().join("disk"), options).expect("a disk");
    (directory, disk)
}

/// Runs `test` on a shard of each kind with a disk of each kind.
fn with_disks<F: Future<Output = ()> + 'static>(
    size: u64,
    test: impl Fn(ShardContext, Device) -> F + Send + Copy + 'static,
) {
    with_shards(1, |shards| {
        for place in &places() {
            let (_directory, file) = new_disk(place, size);
            let done = shards.handle(0).run_and_wait(move |context| {
                let device = context.disk(&file);
                test(context, device)
            });
            assert_eq!(done, Ok(()), "{place:?}");
        }
    });
}

fn pattern(arena: &varve_block::Arena, length: usize, seed: u8) -> varve_block::Buffer {
    let mut buffer = arena.take(length);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index / 7) as u8 ^ seed;
    }
    buffer
}

#[test]
fn what_is_written_is_read_back_and_survives_a_flush() {
    with_disks(8 << 20, |context, device| async move {
        let arena = context.arena();
        for (offset, length) in [(0, 4096), (8192, 65536), (1 << 20, 3 << 20)] {
            for durability in [Durability::Volatile, Durability::Durable] {
                let data = pattern(&arena, length, durability as u8);
                device.write(offset, data.freeze(), durability).await.expect("written");
                let read = device.read(offset, arena.take(length)).await.expect("read");
                assert!(*read == *pattern(&arena, length, durability as u8));
            }
        }
        assert!(device.flush().await.expect("flushed").is_empty());
        let hole = device.read(6 << 20, pattern(&arena, 4096, 9)).await.expect("read");
        assert!(hole.iter().all(|byte| *byte == 0));
    });
}

#[test]
fn what_a_disk_is_known_to_hold_is_what_it_holds_also_when_it_has_grown() {
    with_shards(1, |shards| {
        for place in &places() {
            let (_directory, file) = new_disk(place, 1 << 20);
            let done = shards.handle(0).run_and_wait(async move |context: ShardContext| {
                let (device, arena) = (context.disk(&file), context.arena());
                let write = async |seed| {
                    let data = pattern(&arena, 4096, seed).freeze();
                    device.write(512 << 10, data.clone(), Durability::Volatile).await.expect("written");
                    DiskMark::of(512 << 10, &data[..file.sector_logical().max(512) as usize])
                };
                let mark = write(1).await;
                assert_eq!(file.marks(), [], "MARKS1: it is not flushed");
                device.flush().await.expect("flushed");
                assert_eq!(file.marks(), [mark]);
                file.grow(16 << 20).expect("grown");
                let mark = write(2).await;
                assert_eq!(file.marks(), [], "MARKS1: it was changed");
                device.flush().await.expect("flushed");
                assert_eq!(file.marks(), [mark]);
            });
            assert_eq!(done, Ok(()), "{place:?}");
        }
    });
}

#[test]
fn a_request_that_nobody_awaits_any_more_counts_until_it_has_ended() {
    with_shards(1, |shards| {
        let (_directory, file) = new_disk(&places()[0], 8 << 20);
        let done = shards.handle(0).run_and_wait(async move |context: ShardContext| {
            let (device, arena) = (context.disk(&file), context.arena());
            let data = pattern(&arena, 1 << 20, 3).freeze();
            device.write(0, data.clone(), Durability::Durable).await.expect("written");
            assert!(!file.has_abandoned(), "one that was awaited does not count");
            drop(device.write(4 << 20, data.clone(), Durability::Durable));
            assert!(file.has_abandoned(), "LANE3 of `lane.rs`");
            while file.has_abandoned() {
                context.clock().sleep(Duration::from_millis(1)).await;
            }
            let read = device.read(4 << 20, arena.take(1 << 20)).await.expect("read");
            assert!(*read == *data, "it has run to its end (DISK1)");
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn memory_that_is_not_aligned_is_served_too() {
    with_disks(1 << 20, |context, device| async move {
        let arena = context.arena();
        let mut whole = pattern(&arena, 8192 + 28, 5);
        let data = whole.split_off(28).freeze();
        device.write(4096, data.clone(), Durability::Durable).await.expect("written");
        let mut space = arena.take(8192 + 100);
        let space = space.split_off(100);
        let read = device.read(4096, space).await.expect("read");
        assert!(*read == *data, "DISK2");
    });
}

#[test]
fn zero_discard_and_status_tell_the_same_story() {
    with_disks(16 << 20, |context, device| async move {
        let arena = context.arena();
        let written = Extent::new(1 << 20, 4 << 20);
        device
            .write(written.offset, pattern(&arena, 4 << 20, 1).freeze(), Durability::Volatile)
            .await
            .expect("w");
        for (at, unmap) in [(1 << 20, true), (2 << 20, false)] {
            let options = ZeroOptions { unmap, ..ZeroOptions::default() };
            device.zero(Extent::new(at, 1 << 20), options).await.expect("zeroed");
        }
        let durable = ZeroOptions { durability: Durability::Durable, unmap: true, fast: true };
        device.zero(Extent::new(3 << 20, 65536), durable).await.expect("zeroed fast");
        device.discard(Extent::new(4 << 20, 65536)).await.expect("discarded");
        for at in [1 << 20, 2 << 20, (3 << 20) - 65536, 3 << 20, 4 << 20] {
            let read = device.read(at, pattern(&arena, 65536, 3)).await.expect("read");
            assert!(read.iter().all(|byte| *byte == 0), "at {at:#x}");
        }
        let kept = device.read((3 << 20) + 65536, arena.take(65536)).await.expect("read");
        assert!(*kept == pattern(&arena, 4 << 20, 1)[(2 << 20) + 65536..][..65536]);
        let runs = device.status(Extent::new(0, 16 << 20)).await.expect("status");
        assert_eq!(runs.iter().map(|run| run.length).sum::<u64>(), 16 << 20);
        let hole = StatusRun { length: 2 << 20, allocation: Allocation::Hole };
        assert!(runs[0].allocation == Allocation::Hole && runs[0].length >= hole.length, "{runs:?}");
        assert_eq!(runs.last().map(|run| run.allocation), Some(Allocation::Hole), "{runs:?}");
        assert!(runs.iter().any(|run| run.allocation == Allocation::Data), "{runs:?}");
    });
}

#[test]
fn a_read_only_disk_refuses_changes() {
    with_shards(1, |shards| {
        let (directory, disk) = new_disk(&places()[0], 1 << 20);
        drop(disk);
        let file = DiskFile::open(directory.path().join("disk"), DiskOptions::probe()).expect("opened");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let device = context.disk(&file);
            assert_eq!(device.shape().access, Access::ReadOnly);
            let data = context.arena().take_zeroed(4096).freeze();
            assert_eq!(device.write(0, data, Durability::Volatile).await.err(), Some(IoError::ReadOnly));
            assert!(device.read(0, context.arena().take(4096)).await.is_ok());
            assert!(device.flush().await.is_ok());
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn after_a_failed_flush_a_disk_is_never_written_again() {
    with_shards(1, |shards| {
        // A device that takes every write and fails every flush.
        let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").expect("opened");
        let file = DiskFile::pretend(file, 1 << 20, DiskKind::BlockDevice);
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let device = context.disk(&file);
            let data = context.arena().take_zeroed(4096).freeze();
            device.write(0, data.clone(), Durability::Volatile).await.expect("taken");
            let (one, two) = futures_util::join!(device.flush(), device.flush());
            assert_eq!((one.err(), two.err()), (Some(IoError::Medium), Some(IoError::Medium)), "DISK3");
            assert!(file.is_poisoned());
            assert_eq!(
                device.write(0, data, Durability::Volatile).await.err(),
                Some(IoError::Medium),
                "DISK3"
            );
            assert_eq!(device.flush().await.err(), Some(IoError::Medium), "DISK3");
            assert_eq!(
                device.discard(Extent::new(0, 4096)).await.err(),
                None,
                "not offered, so nothing to refuse"
            );
            let zeroed = device.zero(Extent::new(0, 4096), ZeroOptions::default()).await;
            assert_eq!(zeroed.err(), Some(IoError::Medium), "DISK3");
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn a_disk_that_becomes_shorter_is_gone_not_garbage() {
    with_shards(1, |shards| {
        for place in &places() {
            let (directory, file) = new_disk(place, 1 << 20);
            let path = directory.path().join("disk");
            let done = shards.handle(0).run_and_wait(move |context| async move {
                let device = context.disk(&file);
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(path)
                    .expect("opened")
                    .set_len(65536)
                    .expect("cut");
                let read = device.read(512 << 10, context.arena().take(4096)).await;
                assert_eq!(read.err(), Some(IoError::Gone));
            });
            assert_eq!(done, Ok(()), "{place:?}");
        }
    });
}

#[test]
fn futures_dropped_in_flight_leave_the_memory_to_the_kernel_and_requests_run_to_their_end() {
    with_disks(4 << 20, |context, device| async move {
        let arena = context.arena();
        for round in 0..8_u8 {
            for at in 0..32 {
                drop(device.write(at * 65536, pattern(&arena, 65536, round).freeze(), Durability::Volatile));
                drop(device.read(at * 65536, arena.take(65536)));
            }
            // Polled once, then dropped.
            let mut reads: Vec<_> = (0..32).map(|at| device.read(at * 65536, arena.take(65536))).collect();
            for read in &mut reads {
                let _ = futures_util::poll!(read);
            }
        }
        drop(device.zero(Extent::new(3 << 20, 65536), ZeroOptions::default()));
        context.clock().sleep(Duration::from_millis(50)).await;
        device.flush().await.expect("flushed");
    });
}

#[test]
fn sleepers_wake_in_order_and_not_early() {
    with_shards(1, |shards| {
        let done = shards.handle(0).run_and_wait(|context| async move {
            let clock = context.clock();
            let start = clock.now();
            let order = Rc::new(Cell::new(0));
            // Far enough from each other that a busy machine gets all three under way before the first is over.
            let sleeps = [1500_u64, 500, 1000].map(|millis| {
                let (clock, order) = (clock.clone(), Rc::clone(&order));
                async move {
                    clock.sleep_until(start.after(Duration::from_millis(millis))).await;
                    assert!(clock.now().since(start) >= Duration::from_millis(millis));
                    order.set(order.get() + 1);
                    order.get()
                }
            });
            assert_eq!(join_all(sleeps).await, [3, 1, 2]);
            let never = timeout(&clock, Duration::from_millis(5), std::future::pending::<()>()).await;
            assert_eq!(never, None);
            assert!(clock.date().0 > 1_700_000_000);
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn devices_of_another_shard_are_reached_through_a_portal() {
    with_shards(2, |shards| {
        let (_directory, file) = new_disk(&places()[2], 4 << 20);
        let home = shards.handle(0);
        let portal = home.run_and_wait(move |context| async move { context.portal(&context.disk(&file)) });
        let portal = portal.expect("a portal");
        let done = shards.handle(1).run_and_wait(move |context| async move {
            let device = context.import(&portal);
            drop(portal);
            let arena = context.arena();
            let writes = (0..64_u8).map(|at| {
                let data = pattern(&arena, 65536, at).freeze();
                device.write(u64::from(at) * 65536, data, Durability::Volatile)
            });
            assert!(join_all(writes).await.iter().all(Result::is_ok));
            for at in (0..64_u8).rev() {
                let read = device.read(u64::from(at) * 65536, arena.take(65536)).await.expect("read");
                assert!(*read == *pattern(&arena, 65536, at));
            }
            device.flush().await.expect("flushed");
            let runs = device.status(Extent::new(0, 4 << 20)).await.expect("status");
            assert_eq!(runs, [StatusRun { length: 4 << 20, allocation: Allocation::Data }]);
        });
        assert_eq!(done, Ok(()));
    });
}

/// Most requests of `sent` that are answered between two turns of another task of their shard.
async fn most_in_a_turn(context: &ShardContext, portal: &varve_block::Portal, sent: usize) -> usize {
    let answered = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for _ in 0..sent {
        let (answered, buffer) = (Arc::clone(&answered), context.arena().take(512));
        portal.submit(varve_block::Io::Read { offset: 0, buffer }, move |outcome| {
            assert!(outcome.is_ok());
            answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
    }
    let (mut before, mut most) = (0, 0);
    while before < sent {
        yield_now().await;
        let now = answered.load(std::sync::atomic::Ordering::Relaxed);
        most = most.max(now - before);
        before = now;
    }
    most
}

#[test]
fn a_flood_from_another_thread_leaves_other_tasks_their_turns() {
    with_shards(1, |shards| {
        let (_directory, file) = new_disk(&places()[2], 1 << 20);
        let most = shards.handle(0).run_and_wait(move |context| async move {
            let portal = context.portal(&context.disk(&file));
            most_in_a_turn(&context, &portal, 1000).await
        });
        let most = most.expect("an answer");
        assert!((1..=32).contains(&most), "DOORWAY1: {most}");
    });
}

#[test]
fn a_portal_to_a_dead_shard_answers_gone() {
    with_shards(2, |shards| {
        let (_directory, file) = new_disk(&places()[2], 1 << 20);
        let home = shards.handle(0);
        let portal = home.run_and_wait(move |context| async move { context.portal(&context.disk(&file)) });
        let portal = portal.expect("a portal");
        // A contract is broken: the shard ends, in order.
        let died = home.run_and_wait(|_| async { panic!("on purpose") });
        assert_eq!(died, Err(ShardGone));
        let read = shards.handle(1).run_and_wait(move |context| async move {
            context.import(&portal).read(0, context.arena().take(4096)).await.err()
        });
        assert_eq!(read, Ok(Some(IoError::Gone)));
        assert_eq!(home.run_and_wait(|_| async {}), Err(ShardGone));
    });
}

#[test]
fn stopping_finishes_what_is_in_flight_and_drops_what_waits() {
    for io in [IoChoice::Ring, IoChoice::Pool] {
        let shards = Shards::start(&ShardsConfig { io, ..ShardsConfig::default() }).expect("start");
        let (directory, file) = new_disk(&places()[0], 64 << 20);
        let started = shards.handle(0).run_and_wait(move |context| async move {
            let device = context.disk(&file);
            let spawner = context.spawner();
            for at in 0..64_u64 {
                let (device, arena) = (device.clone(), context.arena());
                spawner.spawn(async move {
                    let data = pattern(&arena, 1 << 20, at as u8).freeze();
                    device.write(at << 20, data, Durability::Durable).await.expect("written");
                });
            }
            spawner.spawn(std::future::pending());
            let clock = context.clock();
            spawner.spawn(async move { clock.sleep(Duration::from_secs(3600)).await });
        });
        assert_eq!(started, Ok(()));
        let arena = shards.arena();
        shards.stop();
        assert_eq!(arena.usage().in_use + arena.usage().overflow, 0, "URING4");
        let content = std::fs::read(directory.path().join("disk")).expect("read");
        for at in 0..64_usize {
            assert!(content[at << 20..(at + 1) << 20] == *pattern(&arena, 1 << 20, at as u8), "piece {at}");
        }
    }
}

/// Notes the thread on which it is polled and dropped.
struct Witness(Arc<std::sync::Mutex<Vec<std::thread::ThreadId>>>);

impl Witness {
    fn note(&self) {
        self.0.lock().expect("not poisoned").push(std::thread::current().id());
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.note();
    }
}

#[test]
fn a_task_that_another_thread_wakes_is_polled_and_dropped_on_its_own() {
    for io in [IoChoice::Ring, IoChoice::Pool] {
        let shards = Shards::start(&ShardsConfig { io, ..ShardsConfig::default() }).expect("start");
        let (sender, receiver) = futures_channel::oneshot::channel::<()>();
        let seen = Arc::default();
        let (woken, left) = (Witness(Arc::clone(&seen)), Witness(Arc::clone(&seen)));
        let home = shards.handle(0).run_and_wait(move |context| async move {
            context.spawner().spawn(async move {
                let _ = receiver.await;
                woken.note();
            });
            context.spawner().spawn(async move {
                std::future::pending::<()>().await;
                drop(left);
            });
            std::thread::current().id()
        });
        drop(sender);
        shards.stop();
        let home = home.expect("the shard lives");
        // The one that is woken is polled and dropped, unless the shard ends before; the other is dropped with its shard.
        let seen = seen.lock().expect("not poisoned");
        assert!(
            (2..=3).contains(&seen.len()) && seen.iter().all(|thread| *thread == home),
            "TASK1: {seen:?}"
        );
    }
}

#[test]
fn a_throttled_disk_is_as_slow_as_told() {
    with_shards(1, |shards| {
        let (_directory, file) = new_disk(&places()[2], 1 << 20);
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let options = ThrottleOptions {
                bandwidth: 10 << 20,
                latency: Duration::from_millis(5),
                latency_flush: Duration::from_millis(20),
            };
            let (clock, arena) = (context.clock(), context.arena());
            let device = Device::new(Throttled::new(context.disk(&file), clock.clone(), options));
            let start = clock.now();
            let reads = (0..8).map(|at| device.read(at * 65536, arena.take(65536)));
            assert!(join_all(reads).await.iter().all(Result::is_ok));
            // 512 KiB at 10 MiB a second, and the latency once. How much longer it takes is the machine's affair.
            let taken = clock.now().since(start);
            assert!(taken >= Duration::from_millis(55), "{taken:?}");
            device.flush().await.expect("flushed");
            assert!(clock.now().since(start) >= Duration::from_millis(75));
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn auto_takes_the_ring_where_there_is_one() {
    let shards = Shards::start(&ShardsConfig::default()).expect("shards start");
    assert!(shards.is_ring());
    let index = shards.handle(0).run_and_wait(|context| async move { (context.index(), context.is_ring()) });
    assert_eq!(index, Ok((0, true)));
}
