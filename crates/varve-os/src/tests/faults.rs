//! What goes to the kernel for each request, and what becomes of answers that are rare: errors at any call, interrupted
//! calls, short reads and writes; past the page cache and through it, on a ring and on a pool.

use super::{new_disk, pattern, places, with_shards};
use crate::disks::tap::Call;
use crate::{CacheMode, DiskFile, DiskKind, DiskState, ShardContext};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use varve_block::{Durability, Extent, IoError, ZeroOptions};

const SIZE: u64 = 4 << 20;

/// Runs `test` with disks that have to be flushed, on a shard of each kind.
fn with_files<F: Future<Output = ()> + 'static>(
    test: impl Fn(ShardContext, Arc<DiskFile>) -> F + Send + Copy + 'static,
) {
    with_shards(1, |shards| {
        for place in &places()[..2] {
            let (_directory, file) = new_disk(place, SIZE);
            let done = shards.handle(0).run_and_wait(move |context| {
                file.tap.take();
                test(context, file)
            });
            assert_eq!(done, Ok(()), "{place:?}");
        }
    });
}

fn is_read(call: &Call) -> bool {
    matches!(call, Call::Read { .. })
}

fn is_write(call: &Call) -> bool {
    matches!(call, Call::Write { .. })
}

fn is_durable(call: &Call) -> bool {
    matches!(call, Call::Write { durable: true, .. })
}

fn is_allocate(call: &Call) -> bool {
    matches!(call, Call::Allocate { .. })
}

fn is_flush(call: &Call) -> bool {
    *call == Call::Flush
}

fn is_discard(call: &Call) -> bool {
    matches!(call, Call::Discard { .. })
}

#[test]
fn a_durable_write_is_durable_in_the_kernel_and_a_flush_is_a_flush() {
    with_files(|context, file| async move {
        let (device, arena) = (context.disk(&file), context.arena());
        for length in [4096, 65536, 1 << 20] {
            let data = pattern(&arena, length, 1).freeze();
            device.write(65536, data.clone(), Durability::Durable).await.expect("written");
            let calls = file.tap.take();
            assert_eq!(calls.last(), Some(&Call::Write { offset: 65536, length, durable: true }));
            let staged = calls.iter().filter(|call| !is_durable(call)).count();
            assert_eq!(staged > 0, file.cache_mode() == CacheMode::Buffered, "DISK4: {calls:?}");
            device.write(65536, data, Durability::Volatile).await.expect("written");
            let calls = file.tap.take();
            assert!(calls.iter().all(|call| is_write(call) && !is_durable(call)), "{calls:?}");
        }
        let mut whole = pattern(&arena, 8192 + 28, 5);
        let unaligned = whole.split_off(28).freeze();
        device.write(0, unaligned, Durability::Durable).await.expect("written");
        let last = file.tap.take().pop();
        assert_eq!(last, Some(Call::Write { offset: 0, length: 8192, durable: true }), "DISK2");
        device.flush().await.expect("flushed");
        assert_eq!(file.tap.take(), [Call::Flush]);
    });
}

#[test]
fn a_durable_zero_ends_with_a_flush_however_it_is_done() {
    with_files(|context, file| async move {
        let device = context.disk(&file);
        let extent = Extent::new(65536, 2 << 20);
        let refused = [Errno::OPNOTSUPP, Errno::PERM]; // A sandbox answers the second.
        for (unmap, errno) in [true, false].into_iter().flat_map(|unmap| refused.map(|errno| (unmap, errno)))
        {
            // The kernel refuses nothing, or one way, or both.
            for refusals in 0..=2 {
                (0..refusals).take(1 + usize::from(unmap)).for_each(|_| file.tap.fail(is_allocate, errno));
                file.zero_range.store(true, std::sync::atomic::Ordering::Relaxed);
                let durable = ZeroOptions { durability: Durability::Durable, unmap, fast: false };
                device.zero(extent, durable).await.expect("zeroed");
                let calls = file.tap.take();
                assert_eq!(calls.last(), Some(&Call::Flush), "{calls:?}");
                assert_eq!(calls.iter().filter(|call| is_flush(call)).count(), 1, "{calls:?}");
                assert!(!calls.iter().any(is_durable), "one flush covers all that was written: {calls:?}");
                let keeps = |call: &Call| match call {
                    Call::Allocate { mode, .. } => mode & FallocateFlags::KEEP_SIZE.bits() != 0,
                    _ => true,
                };
                assert!(calls.iter().all(keeps), "the file keeps its size: {calls:?}");
            }
            let volatile = ZeroOptions { unmap, ..ZeroOptions::default() };
            device.zero(extent, volatile).await.expect("zeroed");
            let calls = file.tap.take();
            assert!(!calls.iter().any(|call| is_flush(call) || is_durable(call)), "{calls:?}");
        }
    });
}

#[test]
fn a_durable_write_that_fails_takes_the_disk_out_of_use() {
    for errno in [Errno::IO, Errno::NOSPC, Errno::NODEV] {
        with_shards(1, |shards| {
            for place in &places()[..2] {
                let (_directory, file) = new_disk(place, SIZE);
                let kept = Arc::clone(&file);
                let done = shards.handle(0).run_and_wait(move |context| async move {
                    let (device, arena) = (context.disk(&file), context.arena());
                    let data = pattern(&arena, 8192, 1).freeze();
                    file.tap.fail(is_durable, errno);
                    let written = device.write(0, data.clone(), Durability::Durable).await.err();
                    let flushed = device.flush().await.err();
                    let again = device.write(0, data, Durability::Volatile).await.err();
                    let read = device.read(0, arena.take(4096)).await.err();
                    (written, flushed, again, read)
                });
                let (written, flushed, again, read) = done.expect("the shard lives");
                assert_eq!(written, Some(crate::disks::attempt::error_of(errno)));
                assert_eq!(read, None, "what is there can be read");
                // Past the cache a lack of space is known before anything is begun.
                if errno == Errno::NOSPC && kept.cache_mode() == CacheMode::Direct {
                    assert_eq!((flushed, again, kept.state()), (None, None, DiskState::InUse), "{errno:?}");
                } else {
                    let medium = Some(IoError::Medium);
                    assert_eq!((flushed, again), (medium, medium), "DISK3: {place:?} {errno:?}");
                    assert_eq!(kept.state(), DiskState::WritesLost, "DISKFILE2: {place:?} {errno:?}");
                }
            }
        });
    }
}

#[test]
fn a_volatile_write_that_fails_leaves_the_disk_in_use() {
    with_files(|context, file| async move {
        let (device, arena) = (context.disk(&file), context.arena());
        let data = pattern(&arena, 8192, 1).freeze();
        for (errno, error) in [(Errno::IO, IoError::Medium), (Errno::NOSPC, IoError::NoSpace)] {
            for durability in [Durability::Volatile, Durability::Durable] {
                // Of a durable write through the cache the first step is volatile (DISK4).
                if durability == Durability::Durable && file.cache_mode() == CacheMode::Direct {
                    continue;
                }
                file.tap.fail(is_write, errno);
                assert_eq!(device.write(0, data.clone(), durability).await.err(), Some(error));
            }
        }
        device.flush().await.expect("it is in use");
        assert_eq!(file.state(), DiskState::InUse);
        file.tap.take();
    });
}

#[test]
fn interrupted_calls_are_made_again() {
    with_files(|context, file| async move {
        let (device, arena) = (context.disk(&file), context.arena());
        let data = pattern(&arena, 65536, 3).freeze();
        for errno in [Errno::INTR, Errno::AGAIN] {
            for durability in [Durability::Volatile, Durability::Durable] {
                file.tap.fail(is_write, errno);
                device.write(65536, data.clone(), durability).await.expect("written");
            }
            file.tap.fail(is_durable, errno);
            device.write(65536, data.clone(), Durability::Durable).await.expect("written");
            file.tap.fail(is_read, errno);
            let read = device.read(65536, arena.take(65536)).await.expect("read");
            assert!(*read == *data);
            if errno == Errno::INTR || context.is_ring() {
                file.tap.fail(is_flush, errno);
                device.flush().await.expect("flushed");
                file.tap.fail(is_allocate, errno);
                device.zero(Extent::new(0, 65536), ZeroOptions::default()).await.expect("zeroed");
            }
            file.tap.take();
        }
        assert_eq!((file.state(), file.counters().errors), (DiskState::InUse, 0));
    });
}

#[test]
fn what_is_read_or_written_in_part_is_gone_on_with() {
    with_files(|context, file| async move {
        let (device, arena) = (context.disk(&file), context.arena());
        // The first write finds out whether there are any that do not wait.
        let first = pattern(&arena, 65536, 6).freeze();
        device.write(65536, first, Durability::Volatile).await.expect("written");
        for (seed, durability) in [(7, Durability::Volatile), (8, Durability::Durable)] {
            let data = pattern(&arena, 65536, seed).freeze();
            file.tap.cut(is_write, 4096);
            file.tap.cut(|call| matches!(call, Call::Write { offset: 69632, .. }), 8192);
            device.write(65536, data.clone(), durability).await.expect("written");
            let calls = file.tap.take();
            if durability == Durability::Durable {
                let last = calls.iter().rev().find(|call| is_durable(call));
                let Some(Call::Write { offset, length, .. }) = last else { panic!("{calls:?}") };
                assert_eq!(offset + *length as u64, 131_072, "all of it is durable: {calls:?}");
            }
            file.tap.cut(is_read, 4096);
            file.tap.cut(|call| matches!(call, Call::Read { offset: 69632, .. }), 12288);
            let read = device.read(65536, arena.take(65536)).await.expect("read");
            assert!(*read == *data, "{durability:?}");
        }
        // Past the cache in two parts that are durable both.
        file.tap.cut(is_durable, 4096);
        let data = pattern(&arena, 65536, 9).freeze();
        device.write(0, data, Durability::Durable).await.expect("written");
        let durable: Vec<Call> = file.tap.take().into_iter().filter(is_durable).collect();
        let rest = Call::Write { offset: 4096, length: 61440, durable: true };
        assert_eq!(durable, [Call::Write { offset: 0, length: 65536, durable: true }, rest]);
    });
}

#[test]
fn calls_that_move_nothing_are_errors() {
    with_files(|context, file| async move {
        let (device, arena) = (context.disk(&file), context.arena());
        // The first call of those that may be made without waiting, and the one after it.
        for _ in 0..1 + usize::from(file.cache_mode() == CacheMode::Buffered) {
            file.tap.cut(is_read, 0);
        }
        assert_eq!(device.read(0, arena.take(8192)).await.err(), Some(IoError::Gone));
        let data = pattern(&arena, 256 << 10, 1).freeze();
        file.tap.cut(is_write, 0);
        let written = device.write(0, data, Durability::Volatile).await.err();
        assert_eq!(written, Some(IoError::NoSpace));
        assert_eq!(file.counters().errors, 2);
        file.tap.take();
    });
}

#[test]
fn all_that_is_under_way_beside_a_failed_flush_fails_with_it() {
    with_files(|context, file| async move {
        let (device, arena) = (context.disk(&file), context.arena());
        let data = pattern(&arena, 1 << 20, 1).freeze();
        file.tap.fail(is_flush, Errno::IO);
        let (one, two, three, written) = futures_util::join!(
            device.flush(),
            device.flush(),
            device.flush(),
            device.write(0, data, Durability::Durable)
        );
        let medium = Some(IoError::Medium);
        assert_eq!((one.err(), two.err(), three.err()), (medium, medium, medium), "DISK3");
        assert!(file.counters().errors > 0, "flushes that fail are counted");
        if file.cache_mode() == CacheMode::Buffered {
            assert_eq!(written.err(), medium, "SYNC1: the flush may have been told of its pages");
        }
        file.tap.take();
    });
}

#[test]
fn a_flush_beside_a_durable_write_that_fails_fails_too() {
    with_files(|context, file| async move {
        if file.cache_mode() == CacheMode::Direct {
            return;
        }
        let (device, arena) = (context.disk(&file), context.arena());
        let data = pattern(&arena, 4096, 1).freeze();
        file.tap.fail(is_durable, Errno::NOSPC);
        let (written, flushed) =
            futures_util::join!(device.write(0, data, Durability::Durable), device.flush());
        assert_eq!((written.err(), flushed.err()), (Some(IoError::NoSpace), Some(IoError::Medium)), "SYNC1");
    });
}

#[test]
fn who_asks_the_kernel_first_and_is_told_last_is_waited_for() {
    /// Longer than a flush of next to nothing takes.
    const LATE: Duration = Duration::from_millis(500);
    with_files(|context, file| async move {
        // On a pool each call has a thread of its own, and can be late by itself.
        if context.is_ring() || file.cache_mode() == CacheMode::Direct {
            return;
        }
        let (device, arena) = (context.disk(&file), context.arena());
        let [one, two] = [1, 2].map(|seed| pattern(&arena, 4096, seed).freeze());
        file.tap.fail_late(is_durable, Errno::NOSPC, LATE);
        let (lost, flushed) = futures_util::join!(device.write(0, one, Durability::Durable), device.flush());
        assert_eq!((lost.err(), flushed.err()), (Some(IoError::NoSpace), Some(IoError::Medium)), "SYNC1");
        assert_eq!(
            device.write(8192, two, Durability::Durable).await.err(),
            Some(IoError::Medium),
            "DISKFILE2"
        );
    });
    with_files(|context, file| async move {
        if context.is_ring() || file.cache_mode() == CacheMode::Direct {
            return;
        }
        let (device, arena) = (context.disk(&file), context.arena());
        let data = pattern(&arena, 4096, 1).freeze();
        file.tap.fail_late(is_flush, Errno::IO, LATE);
        let (flushed, written) =
            futures_util::join!(device.flush(), device.write(0, data, Durability::Durable));
        assert_eq!((flushed.err(), written.err()), (Some(IoError::Medium), Some(IoError::Medium)), "SYNC1");
    });
}

#[test]
fn requests_that_nobody_waits_for_take_the_disk_out_of_use_all_the_same() {
    with_files(|context, file| async move {
        let device = context.disk(&file);
        file.tap.fail(is_flush, Errno::IO);
        drop(device.flush());
        while file.state() == DiskState::InUse {
            context.clock().sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(device.flush().await.err(), Some(IoError::Medium), "DISKFILE2");
    });
}

#[test]
fn a_discard_of_a_buffered_block_device_gives_up_whole_sectors_only() {
    with_shards(1, |shards| {
        let directory = tempfile::tempdir_in(super::build_directory()).expect("a directory");
        let path = directory.path().join("disk");
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(path);
        let file = file.expect("a file");
        file.set_len(SIZE).expect("a size");
        let file = DiskFile::pretend(file, SIZE, DiskKind::BlockDevice);
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let (device, sector) = (context.disk(&file), u64::from(file.sector_logical()));
            assert!(device.shape().discard && device.shape().block_size == 1 && sector >= 512);
            for (extent, expected) in [
                (Extent::new(1, 3 * sector), Extent::new(sector, 2 * sector)),
                (Extent::new(sector, sector + 1), Extent::new(sector, sector)),
                (Extent::new(sector - 1, sector + 1), Extent::new(sector, sector)),
            ] {
                file.tap.fail(is_discard, Errno::OPNOTSUPP);
                device.discard(extent).await.expect("a hint");
                assert_eq!(file.tap.take(), [Call::Discard { extent: expected }]);
            }
            for extent in [Extent::new(1, sector - 1), Extent::new(1, 2 * sector - 2)] {
                device.discard(extent).await.expect("a hint");
                assert_eq!(file.tap.take(), [], "{extent:?} holds no whole sector");
            }
        });
        assert_eq!(done, Ok(()));
    });
}
