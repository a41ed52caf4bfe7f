//! A real block device: a loop device, where the tests may make one.

use super::{open_again, pattern, with_shards};
use crate::{CacheMode, DiskFile, DiskKind, DiskOptions, OpenError};
use std::path::{Path, PathBuf};
use std::process::Command;
use varve_block::{Access, Durability, Extent, ZeroOptions};

/// A loop device; detached on drop.
pub(super) struct Loop(pub(super) PathBuf);

impl Loop {
    /// `None` where loop devices are not to be had, for want of rights or of the kernel's module.
    pub(super) fn new(backing: &Path, read_only: bool) -> Option<Self> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(read_only.then_some("--read-only")).arg(backing);
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(Self(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays attached", self.0.display());
    }
}

fn with_loop(read_only: bool, test: impl Fn(&Path)) {
    let directory = tempfile::tempdir().expect("a directory");
    let backing = directory.path().join("backing");
    std::fs::File::create(&backing).and_then(|file| file.set_len(16 << 20)).expect("a backing file");
    match Loop::new(&backing, read_only) {
        Some(device) => test(&device.0),
        None => eprintln!("SKIPPED: no loop device to be had here"),
    }
}

#[test]
fn a_block_device_is_used_once_and_knows_its_size_and_sectors() {
    with_loop(false, |path| {
        let disk = open_again(path, DiskOptions::default());
        assert_eq!((disk.kind(), disk.cache_mode()), (DiskKind::BlockDevice, CacheMode::Direct));
        assert_eq!(disk.size(), 16 << 20);
        assert!(disk.sector_logical() >= 512 && disk.sector_physical() >= disk.sector_logical());
        assert!(
            matches!(DiskFile::open(path, DiskOptions::default()), Err(OpenError::InUse(_))),
            "DISKFILE1"
        );
        DiskFile::open(path, DiskOptions::probe()).expect("looking takes no lock");
        assert_eq!(disk.grow(16 << 20).expect("as large already"), 16 << 20);
        assert!(matches!(disk.grow(32 << 20), Err(OpenError::TooSmall { .. })));
    });
    with_loop(true, |path| {
        let refused = DiskFile::open(path, DiskOptions::default()).expect_err("read-only");
        assert!(matches!(refused, OpenError::ReadOnly(_) | OpenError::Permission(_)), "{refused}");
        let reader = DiskOptions { read_only: true, ..DiskOptions::default() };
        assert_eq!(DiskFile::open(path, reader).expect("opened").shape().access, Access::ReadOnly);
    });
}

#[test]
fn a_block_device_reads_writes_zeroes_and_discards() {
    with_loop(false, |path| {
        with_shards(1, |shards| {
            for cache in [CacheMode::Direct, CacheMode::Buffered] {
                let options = DiskOptions { cache, ..DiskOptions::default() };
                let file = open_again(path, options);
                let done = shards.handle(0).run_and_wait(move |context| async move {
                    let (device, arena) = (context.disk(&file), context.arena());
                    let data = pattern(&arena, 4 << 20, 11).freeze();
                    device.write(1 << 20, data.clone(), Durability::Durable).await.expect("written");
                    for (at, unmap) in [(1 << 20, true), (2 << 20, false)] {
                        let options = ZeroOptions { unmap, ..ZeroOptions::default() };
                        device.zero(Extent::new(at, 512 << 10), options).await.expect("zeroed");
                        let read = device.read(at, arena.take(512 << 10)).await.expect("read");
                        assert!(read.iter().all(|byte| *byte == 0));
                    }
                    if device.shape().block_size == 1 {
                        device
                            .zero(Extent::new(4_000_001, 1001), ZeroOptions::default())
                            .await
                            .expect("zeroed");
                        let read = device.read(4_000_000, arena.take(1003)).await.expect("read");
                        assert!(read[1..1002].iter().all(|byte| *byte == 0));
                        let kept = 4_000_000 - (1 << 20);
                        assert_eq!((read[0], read[1002]), (data[kept], data[kept + 1002]));
                    }
                    device.discard(Extent::new(3 << 20, 64 << 10)).await.expect("discarded");
                    device.flush().await.expect("flushed");
                    let runs = device.status(Extent::new(0, 16 << 20)).await.expect("status");
                    assert_eq!(runs.iter().map(|run| run.length).sum::<u64>(), 16 << 20);
                });
                assert_eq!(done, Ok(()), "{cache:?}");
            }
        });
    });
}
