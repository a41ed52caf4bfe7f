//! What the kernel cuts short, here at the limit of a file's size, is not acknowledged as written.
#![allow(unsafe_code)]

use std::sync::Arc;
use varve_block::{Durability, IoError};
use varve_os::{CacheMode, DiskFile, DiskOptions, DiskState, IoChoice, Shards, ShardsConfig};

/// Largest size of a file in bytes. What the test says goes to a file too, perhaps, which is shorter.
const LIMIT: u64 = 1 << 30;

/// Forbids this process to write beyond the limit, without a signal.
fn limit_files() {
    // SAFETY: both calls change only what this process, a test of its own, may do.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

#[test]
fn a_write_that_the_kernel_cuts_short_is_not_acknowledged() {
    let executable = std::env::current_exe().expect("a running test has a file");
    let build = executable.parent().expect("a file lies in a directory");
    let memory = std::path::Path::new("/dev/shm");
    let places = [(build, CacheMode::Direct), (build, CacheMode::Buffered), (memory, CacheMode::Buffered)];
    let disks = places.map(|(place, cache)| {
        let directory = tempfile::tempdir_in(place).expect("a directory");
        let options = DiskOptions { cache, ..DiskOptions::create(LIMIT + (1 << 20)) };
        (DiskFile::open(directory.path().join("disk"), options).expect("a disk"), directory)
    });
    limit_files();
    for io in [IoChoice::Ring, IoChoice::Pool] {
        let config = ShardsConfig { io, arena_bytes: 4 << 20, ..ShardsConfig::default() };
        let shards = Shards::start(&config).expect("shards");
        for (disk, _) in &disks {
            let (volatile, durable) = (Durability::Volatile, Durability::Durable);
            for (durability, length) in [(volatile, 8192), (durable, 8192), (volatile, 256 << 10)] {
                let device = Arc::clone(disk);
                let error = shards.handle(0).run_and_wait(move |context| async move {
                    let data = context.arena().take_zeroed(length).freeze();
                    context.disk(&device).write(LIMIT - 4096, data, durability).await.err()
                });
                assert_eq!(error, Ok(Some(IoError::NoSpace)), "{io:?} {durability:?} {length}");
                assert_eq!(disk.state(), DiskState::InUse, "nothing that was acknowledged is lost");
            }
        }
        shards.stop();
    }
}
