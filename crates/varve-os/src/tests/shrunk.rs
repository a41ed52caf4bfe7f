//! Disks that are cut short behind the program's back.

use super::{new_disk, open_again, pattern, places, with_shards};
use crate::{CacheMode, DiskOptions, DiskState, OpenError};
use std::path::Path;
use std::sync::Arc;
use varve_block::{Clock, Device, Durability, Extent, IoError, ZeroOptions};

const SIZE: u64 = 1 << 20;
const CUT: u64 = 64 << 10;

fn cut(path: &Path, length: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("a file");
    file.set_len(length).expect("cut");
}

/// Longer than a tick of the coarse clock.
async fn let_a_tick_pass(clock: &Clock) {
    clock.sleep(std::time::Duration::from_millis(30)).await;
}

/// The kinds of change, each where the disk still is.
async fn change(device: &Device, data: varve_block::Bytes, kind: usize) -> Option<IoError> {
    let extent = Extent::new(0, 4096);
    match kind {
        0 => device.write(0, data, Durability::Volatile).await.err(),
        1 => device.write(0, data, Durability::Durable).await.err(),
        2 => device.zero(extent, ZeroOptions::default()).await.err(),
        3 => device.discard(extent).await.err(),
        // The one that would give the file its length back.
        4 => device.write(SIZE - 4096, data, Durability::Volatile).await.err(),
        _ => device.flush().await.err(),
    }
}

#[test]
fn a_file_that_became_shorter_is_out_of_use_and_never_made_longer() {
    with_shards(1, |shards| {
        for place in &places() {
            for kind in 0..6 {
                let (directory, file) = new_disk(place, SIZE);
                let path = directory.path().join("disk");
                let kept = Arc::clone(&file);
                let (at, cut_file) = (path.clone(), path.clone());
                let done = shards.handle(0).run_and_wait(move |context| async move {
                    let (device, arena) = (context.disk(&file), context.arena());
                    let data = pattern(&arena, 4096, 1).freeze();
                    device.write(SIZE / 2, data.clone(), Durability::Volatile).await.expect("written");
                    cut(&cut_file, CUT);
                    if kind < 4 {
                        let_a_tick_pass(&context.clock()).await;
                    }
                    assert_eq!(change(&device, data.clone(), kind).await, Some(IoError::Gone), "HEALTH2");
                    for kind in 0..6 {
                        assert_eq!(change(&device, data.clone(), kind).await, Some(IoError::Gone), "HEALTH1");
                    }
                    let read = device.read(SIZE / 2, arena.take(4096)).await.err();
                    assert_eq!(read, Some(IoError::Gone));
                    let left = device.read(0, arena.take(4096)).await.err();
                    assert_eq!(left, Some(IoError::Gone), "DISK3: nor is what is left read");
                    assert_eq!(
                        std::fs::metadata(&at).expect("there").len(),
                        CUT,
                        "HEALTH2: it is no longer than it is"
                    );
                });
                assert_eq!(done, Ok(()), "{place:?}, change {kind}");
                assert_eq!(kept.state(), DiskState::Shrunk { expected: SIZE, found: CUT });
                assert!(kept.state().to_string().contains("1048576"));
                assert!(matches!(kept.grow(2 * SIZE), Err(OpenError::TooSmall { size: CUT, .. })), "HEALTH2");
                drop(kept);
                cut(&path, SIZE);
                let again = open_again(&path, DiskOptions { cache: place.1, ..DiskOptions::default() });
                assert_eq!(again.state(), DiskState::InUse, "HEALTH1: opening it is the way back");
            }
        }
    });
}

#[test]
fn a_read_across_a_new_end_takes_the_disk_out_of_use() {
    with_shards(1, |shards| {
        for place in &places() {
            let (directory, file) = new_disk(place, SIZE);
            let path = directory.path().join("disk");
            let done = shards.handle(0).run_and_wait(move |context| async move {
                let (device, arena) = (context.disk(&file), context.arena());
                cut(&path, CUT);
                let read = device.read(CUT - 4096, arena.take(8192)).await.err();
                assert_eq!(read, Some(IoError::Gone));
                assert_eq!(file.state(), DiskState::Shrunk { expected: SIZE, found: CUT });
                let data = pattern(&arena, 4096, 1).freeze();
                assert_eq!(
                    device.write(0, data, Durability::Volatile).await.err(),
                    Some(IoError::Gone),
                    "HEALTH1"
                );
            });
            assert_eq!(done, Ok(()), "{place:?}");
        }
    });
}

/// Full of a pattern that has no zeros, and flushed.
async fn fill(device: &Device, arena: &varve_block::Arena) {
    for at in (0..SIZE).step_by(64 << 10) {
        let mut data = arena.take(64 << 10);
        data.iter_mut().for_each(|byte| *byte = 7);
        device.write(at, data.freeze(), Durability::Volatile).await.expect("written");
    }
    device.flush().await.expect("flushed");
}

#[test]
fn what_was_cut_off_is_never_read_as_zeros_however_soon_something_is_written_behind_it() {
    with_shards(1, |shards| {
        for place in &places() {
            for kind in 0..4 {
                let (directory, file) = new_disk(place, SIZE);
                let (path, kept) = (directory.path().join("disk"), Arc::clone(&file));
                let done = shards.handle(0).run_and_wait(move |context| async move {
                    let (device, arena) = (context.disk(&file), context.arena());
                    fill(&device, &arena).await;
                    device.read(0, arena.take(4096)).await.expect("it is in use");
                    // As a write does that was under way.
                    cut(&path, CUT);
                    cut(&path, SIZE - 4096);
                    let outcome = match kind {
                        0 => device.read(SIZE / 2, arena.take(4096)).await.err(),
                        1 => device.read(SIZE / 2, arena.take(256 << 10)).await.err(),
                        2 => device.read(CUT - 4096, arena.take(8192)).await.err(),
                        _ => device.status(Extent::new(SIZE / 2, 4096)).await.err(),
                    };
                    assert_eq!(outcome, Some(IoError::Gone), "HEALTH3");
                    assert_eq!(device.read(0, arena.take(4096)).await.err(), Some(IoError::Gone), "DISK3");
                });
                assert_eq!(done, Ok(()), "{place:?}, read {kind}");
                assert_eq!(kept.state(), DiskState::Shrunk { expected: SIZE, found: SIZE - 4096 });
            }
        }
    });
}

#[test]
fn a_file_that_is_cut_short_and_made_as_long_as_before_is_found_out_where_space_is_counted() {
    with_shards(1, |shards| {
        for place in [("/dev/shm".into(), CacheMode::Buffered), (std::env::temp_dir(), CacheMode::Direct)] {
            let (directory, file) = new_disk(&place, SIZE);
            if !file.counts_exactly() {
                eprintln!("SKIPPED: the file system of {} counts space in its own way", place.0.display());
                continue;
            }
            let (path, kept) = (directory.path().join("disk"), Arc::clone(&file));
            let done = shards.handle(0).run_and_wait(move |context| async move {
                let (device, arena) = (context.disk(&file), context.arena());
                fill(&device, &arena).await;
                device.discard(Extent::new(0, 256 << 10)).await.expect("it gives space back");
                device.flush().await.expect("flushed");
                let holes = device.read(0, arena.take(4096)).await.expect("read");
                assert!(holes.iter().all(|byte| *byte == 0), "BLOCKS1: it gave that back itself");
                cut(&path, SIZE / 2);
                cut(&path, SIZE);
                let read = device.read(SIZE - 4096, arena.take(4096)).await.err();
                assert_eq!(read, Some(IoError::Gone), "HEALTH3, BLOCKS1");
            });
            assert_eq!(done, Ok(()), "{place:?}");
            assert!(
                matches!(kept.state(), DiskState::CutOff { lost } if lost >= SIZE / 2),
                "{}",
                kept.state()
            );
            assert!(kept.grow(2 * SIZE).is_err(), "HEALTH2");
        }
    });
}

#[test]
fn a_disk_that_fails_all_the_time_is_told_of_once_in_a_while() {
    let counter = Counter::default();
    let (_directory, file) = new_disk(&(super::build_directory(), CacheMode::Buffered), SIZE);
    tracing::subscriber::with_default(counter.clone(), || {
        tracing::callsite::rebuild_interest_cache();
        for _ in 0..10_000 {
            file.report("read", 0, 4096, rustix::io::Errno::IO);
        }
        assert_eq!(file.counters().errors, 10_000);
        let told = counter.0.load(std::sync::atomic::Ordering::Relaxed);
        assert!((1..100).contains(&told), "{told} events");
        drop(file);
        let at_end = counter.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(at_end, told + 1, "EVENT1: the rest is counted when the disk is closed");
    });
}

/// Counts events.
#[derive(Clone, Default)]
struct Counter(Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Counter {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
