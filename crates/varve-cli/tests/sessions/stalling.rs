//! A disk that stops to answer, and goes on: a file that another daemon serves, which is halted meanwhile.

use crate::harness::World;
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// The disk. To be dropped before the daemon that uses it is waited for.
pub(crate) struct StallingDisk {
    server: World,
}

impl StallingDisk {
    /// A disk of 200 MiB; `None` where no file can be served.
    pub(crate) fn new() -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            return None;
        }
        let server = World::with_group();
        server.ok("lv create data/disk --size 200M");
        server.ok("export create data/disk --fuse served");
        Some(Self { server })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.server.path("served")
    }

    /// Nothing is answered from now on.
    pub(crate) fn stall(&self) {
        self.server.signal(Signal::STOP);
    }

    /// What waits is answered.
    pub(crate) fn release(&self) {
        self.server.signal(Signal::CONT);
    }
}

impl Drop for StallingDisk {
    fn drop(&mut self) {
        self.release();
        self.server.stop(); // It takes its file away.
    }
}
