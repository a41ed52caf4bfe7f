//! The kernel of this host: its control device, and the character devices of its queues.

use super::ring::{self, QueueRing};
use super::uapi::{Command, DEPTH, DESCRIPTOR, Data, Kernel, Queue, data_at};
use crate::bell::Bell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes, FileOffset, VolatileMemory};

/// The kernel.
pub(super) struct HostKernel {
    control: File,
}

/// A queue.
struct HostQueue {
    // Dropped before what it asks about.
    ring: QueueRing,
    descriptors: MmapRegion,
    file: Arc<File>,
}

struct HostData(Arc<File>);

impl HostKernel {
    /// Fails with `NotFound` where the kernel has no ublk.
    pub(super) fn find() -> io::Result<Self> {
        Ok(Self { control: open("/dev/ublk-control".into())? })
    }
}

fn open(path: PathBuf) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

impl Kernel for HostKernel {
    fn carry_out(&self, command: Command) -> io::Result<Vec<u8>> {
        ring::carry_out(&self.control, command)
    }

    fn open(&self, device: u32, bell: &Arc<Bell>) -> io::Result<Box<dyn Queue>> {
        let file = Arc::new(open(format!("/dev/ublkc{device}").into())?);
        let length = (usize::from(DEPTH) * DESCRIPTOR).next_multiple_of(rustix::param::page_size());
        let at = FileOffset::from_arc(Arc::clone(&file), 0);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let descriptors =
            MmapRegion::build(Some(at), length, libc::PROT_READ, flags).map_err(io::Error::other)?;
        let ring = QueueRing::new(Arc::clone(&file), Arc::clone(bell))?;
        Ok(Box::new(HostQueue { ring, descriptors, file }))
    }
}

impl Queue for HostQueue {
    fn data(&self) -> Arc<dyn Data> {
        Arc::new(HostData(Arc::clone(&self.file)))
    }

    fn descriptor(&self, tag: u16) -> io::Result<[u8; DESCRIPTOR]> {
        let mut descriptor = [0; DESCRIPTOR];
        let at = usize::from(tag) * DESCRIPTOR;
        let slice = self.descriptors.get_slice(at, DESCRIPTOR).map_err(io::Error::other)?;
        slice.read_slice(&mut descriptor, 0).map_err(io::Error::other)?;
        Ok(descriptor)
    }

    fn fetch(&mut self, tag: u16) -> io::Result<()> {
        self.ring.fetch(tag)
    }

    fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.ring.commit(tag, result)
    }

    fn turn(&mut self, waits: bool) -> io::Result<Vec<(u16, i32)>> {
        self.ring.turn(waits)
    }
}

impl Data for HostData {
    fn take(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(data, data_at(tag))
    }

    fn give(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, data_at(tag))
    }
}
