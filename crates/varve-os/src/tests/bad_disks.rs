//! File systems that have run full below their disk, or do not answer: real ones, on loop devices. Needs root.

use super::block_device::Loop;
use super::{build_directory, new_disk, open_again, pattern, with_shards};
use crate::{CacheMode, DiskOptions, DiskState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;
use varve_block::{Durability, IoError, MIB};

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// A mounted file system; unmounted on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Busy as long as the kernel writes behind.
        let unmounted = (0..100).any(|_| {
            let done = run("umount", &[text(&self.0)]);
            if !done {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            done
        });
        assert!(unmounted, "{} stays mounted", self.0.display());
    }
}

/// An ext4 file system on a loop device on a small tmpfs. Dropped from the top to the bottom.
struct Tower {
    top: Mounted,
    _device: Loop,
    below: Mounted,
    _directory: TempDir,
}

impl Tower {
    /// `None` where that is not allowed, or tools are missing.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let [below, top] = ["below", "top"].map(|name| directory.path().join(name));
        std::fs::create_dir(&below).and_then(|()| std::fs::create_dir(&top)).expect("folders");
        if !run("mount", &["-t", "tmpfs", "-o", "size=24M", "tmpfs", text(&below)]) {
            return skipped();
        }
        let below = Mounted(below);
        let backing = below.0.join("backing");
        std::fs::File::create(&backing).and_then(|file| file.set_len(128 << 20)).expect("a backing file");
        if !run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1", text(&backing)])
        {
            return skipped();
        }
        let Some(device) = Loop::new(&backing, false) else { return skipped() };
        if !run("mount", &["-t", "ext4", text(&device.0), text(&top)]) {
            return skipped();
        }
        Some(Self { top: Mounted(top), _device: device, below, _directory: directory })
    }

    /// A disk of which every block has its place in the file system.
    fn disk(&self) -> PathBuf {
        let path = self.top.0.join("disk");
        let file = std::fs::File::create(&path).expect("a file");
        let mode = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, mode, 0, 64 * MIB).expect("there is space");
        file.sync_all().expect("synced");
        path
    }

    /// Takes all that is left of the space below.
    fn fill(&self) {
        let mut filler = std::fs::File::create(self.below.0.join("filler")).expect("a file");
        while std::io::Write::write_all(&mut filler, &[1; 65536]).is_ok() {}
        while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    }

    /// Gives it back.
    fn free(&self) {
        std::fs::remove_file(self.below.0.join("filler")).expect("it is there");
    }
}

fn skipped<T>() -> Option<T> {
    eprintln!("SKIPPED: no loop device, tmpfs and ext4 to be had here (needs root)");
    None
}

fn buffered() -> DiskOptions {
    DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() }
}

#[test]
fn a_durable_write_that_is_told_of_pages_lost_elsewhere_takes_the_disk_out_of_use() {
    with_shards(1, |shards| {
        let Some(tower) = Tower::new() else { return };
        let path = tower.disk();
        let disk = open_again(&path, buffered());
        let kept = Arc::clone(&disk);
        let first = Arc::clone(&disk);
        let ready = shards.handle(0).run_and_wait(move |context| async move {
            let data = pattern(&context.arena(), 4096, 1).freeze();
            context.disk(&first).write(0, data, Durability::Durable).await.map(drop)
        });
        assert_eq!(ready, Ok(Ok(())), "there is space yet");
        tower.fill();
        let outcome = shards.handle(0).run_and_wait(move |context| async move {
            let (device, arena) = (context.disk(&disk), context.arena());
            for at in 8..40 {
                let data = pattern(&arena, 1 << 20, 2).freeze();
                device.write(at * MIB, data, Durability::Volatile).await.expect("the cache has room");
            }
            // The kernel writes them back by itself after some seconds.
            let written = context.blocking(move || run("sync", &[text(&path)])).await;
            assert_eq!(written, Ok(false), "the space below is used up");
            let data = pattern(&arena, 4096, 3).freeze();
            let durable = device.write(0, data, Durability::Durable).await.err();
            (durable, device.flush().await.err())
        });
        let (durable, flushed) = outcome.expect("the shard lives");
        assert!(durable.is_some(), "the kernel reports lost pages to whoever asks first");
        assert_eq!(flushed, Some(IoError::Medium), "DISKFILE2");
        assert_eq!(kept.state(), DiskState::WritesLost);
        tower.free();
    });
}

#[test]
fn what_a_disk_shows_when_it_is_opened_again_is_what_it_holds() {
    with_shards(1, |shards| {
        let Some(tower) = Tower::new() else { return };
        let path = tower.disk();
        tower.fill();
        let disk = open_again(&path, buffered());
        let first = Arc::clone(&disk);
        let flushed = shards.handle(0).run_and_wait(move |context| async move {
            let (device, arena) = (context.disk(&first), context.arena());
            for at in 0..32 {
                let mut data = arena.take(1 << 20);
                data.fill(0x77);
                device
                    .write(at * MIB, data.freeze(), Durability::Volatile)
                    .await
                    .expect("the cache has room");
            }
            device.flush().await.err()
        });
        assert_eq!(flushed, Ok(Some(IoError::Medium)), "the space below is used up");
        assert_eq!(disk.state(), DiskState::WritesLost);
        drop(disk);
        let look = |options: DiskOptions| {
            let disk = open_again(&path, options);
            assert_eq!(disk.cache_mode(), options.cache);
            let seen = shards.handle(0).run_and_wait(move |context| async move {
                let (device, arena) = (context.disk(&disk), context.arena());
                let mut seen = Vec::new();
                for at in 0..32 {
                    seen.push(device.read(at * MIB, arena.take(4096)).await.map(|block| block[0]));
                }
                seen
            });
            seen.expect("the shard lives")
        };
        // HEALTH1: opening it again is the way back.
        let shown = look(buffered());
        let held = look(DiskOptions::probe());
        assert_eq!(shown, held, "CACHE1");
        assert!(held.contains(&Ok(0)), "some of it is lost");
        tower.free();
    });
}

#[test]
fn a_file_system_that_does_not_answer_keeps_no_other_disk_waiting() {
    with_shards(1, |shards| {
        let Some(tower) = Tower::new() else { return };
        let path = tower.disk();
        for cache in [CacheMode::Direct, CacheMode::Buffered] {
            let stalled = open_again(&path, DiskOptions { cache, ..DiskOptions::default() });
            let (_directory, good) = new_disk(&(build_directory(), CacheMode::Direct), 4 << 20);
            assert!(run("fsfreeze", &["--freeze", text(&tower.top.0)]), "ext4 can be frozen");
            let (sender, receiver) = channel();
            let other = Arc::clone(&stalled);
            drop(shards.handle(0).run(move |context| async move {
                let (device, arena, spawner) = (context.disk(&other), context.arena(), context.spawner());
                // More than there are helper threads, and workers of the kernel. Through the page cache none is short enough
                // to be tried on this thread.
                let (count, length) = match cache {
                    CacheMode::Direct => (u64::from(crate::disks::lane::WORKERS_MAX) + 100, 4096),
                    CacheMode::Buffered => (48, crate::disks::attempt::INLINE_MAX + 4096),
                };
                for at in 0..count {
                    let (device, data) = (device.clone(), pattern(&arena, length, 1).freeze());
                    spawner.spawn(async move {
                        let written = device.write(at % 48 * MIB, data, Durability::Durable).await;
                        written.expect("it is thawed");
                    });
                }
                context.clock().sleep(Duration::from_millis(200)).await;
                let (device, data) = (context.disk(&good), pattern(&arena, 65536, 2).freeze());
                let written = device.write(0, data, Durability::Durable).await.map(drop);
                let flushed = device.flush().await.map(drop);
                let _ = sender.send((written, flushed));
            }));
            let answer = receiver.recv_timeout(Duration::from_secs(60));
            assert!(run("fsfreeze", &["--unfreeze", text(&tower.top.0)]), "it is frozen");
            assert_eq!(answer, Ok((Ok(()), Ok(()))), "{cache:?}");
            // Whatever waited has been done, before the next one is opened.
            let device = Arc::clone(&stalled);
            let flushed = shards.handle(0).run_and_wait(move |context| async move {
                while Arc::strong_count(&device) > 2 {
                    context.clock().sleep(Duration::from_millis(10)).await;
                }
                context.disk(&device).flush().await.map(drop)
            });
            assert_eq!(flushed, Ok(Ok(())), "{cache:?}");
        }
    });
}
