//! What histories have really gone through, counted: records of the log of several blocks, wraps of its ring, and more.

use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, MapAnswer, MapFuture, MapIntent, Shape,
};

/// Over all histories of this process.
pub(crate) struct Counts {
    /// Records of the log, those of several blocks, and the times that the ring began anew.
    records: AtomicU64,
    records_long: AtomicU64,
    wraps: AtomicU64,
    /// Boots that found a volume with more mapped than the entries of a leaf can say.
    pub(crate) leaves: AtomicU64,
    /// Boots that ended because the disk failed meanwhile.
    pub(crate) boots_failed: AtomicU64,
    /// Volumes that were shrunk, grown, rolled back and emptied while clients used them.
    pub(crate) shrunk: AtomicU64,
    pub(crate) grown: AtomicU64,
    pub(crate) rolled_back: AtomicU64,
    pub(crate) emptied: AtomicU64,
    /// Volumes that went to the trash or came back, and volumes that were given up.
    pub(crate) trashed: AtomicU64,
    pub(crate) given_up: AtomicU64,
    /// Reads that hung in the disk.
    pub(crate) hung: AtomicU64,
    /// Reads that met a node that was not written.
    pub(crate) refused: AtomicU64,
    /// Boots in which a request failed for lack of space.
    pub(crate) full: AtomicU64,
}

pub(crate) fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn count_if(happened: bool, number: &AtomicU64) {
    number.fetch_add(u64::from(happened), Ordering::Relaxed);
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self {
            records: AtomicU64::new(0),
            records_long: AtomicU64::new(0),
            wraps: AtomicU64::new(0),
            leaves: AtomicU64::new(0),
            boots_failed: AtomicU64::new(0),
            shrunk: AtomicU64::new(0),
            grown: AtomicU64::new(0),
            rolled_back: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
            trashed: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            hung: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }
    }

    /// Prints all of them, past the capture of test output.
    pub(crate) fn say(&self, test: &str) {
        let now = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let line = format!(
            "sim: {test}: {} records, {} of several blocks, {} wraps of the ring; {} maps of several leaves; {} boots \
             failed; in use {} shrunk, {} grown, {} rolled back, {} emptied; {} in and out of \
             the trash, {} given up; {} reads hung; {} boots without space; {} \
             reads refused",
            now(&self.records),
            now(&self.records_long),
            now(&self.wraps),
            now(&self.leaves),
            now(&self.boots_failed),
            now(&self.shrunk),
            now(&self.grown),
            now(&self.rolled_back),
            now(&self.emptied),
            now(&self.trashed),
            now(&self.given_up),
            now(&self.hung),
            now(&self.full),
            now(&self.refused),
        );
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    /// How often volumes went to the trash or came back, and how many were given up.
    pub(crate) fn trash(&self) -> [u64; 2] {
        [&self.trashed, &self.given_up].map(|number| number.load(Ordering::Relaxed))
    }

    /// How often records of several blocks were written, the ring began anew, and a map had several leaves.
    pub(crate) fn large(&self) -> [u64; 3] {
        [&self.records_long, &self.wraps, &self.leaves].map(|number| number.load(Ordering::Relaxed))
    }
}

/// A device in front of which records of the log are counted.
pub(crate) struct Watched {
    pub(crate) device: Device,
    pub(crate) counts: &'static Counts,
    /// Where the last record was written.
    pub(crate) last: Cell<u64>,
}

impl BlockDevice for Watched {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if let Io::Write { offset, data, .. } = io.io()
            && data.starts_with(b"VREC")
        {
            count(&self.counts.records);
            count_if(data.len() > 4096, &self.counts.records_long);
            count_if(*offset < self.last.replace(*offset), &self.counts.wraps);
        }
        self.device.submit(io.into_io())
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}
