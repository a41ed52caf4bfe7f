//! What histories have really gone through, counted; and a device that knows which regions of a member are not durable.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_block::{
    BlockDevice, Checked, Completion, Device, Durability, Extent, Io, IoError, KIB, MapAnswer, MapFuture,
    MapIntent, Shape, ZeroOptions, align_up,
};
use varve_sim::SimDisk;

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Opened,
    Degraded,
    Unsynced,
    Failed,
    Vanished,
    Returned,
    Stale,
    Copied,
    Replaced,
    Exchanged,
    MaybeStale,
    Refused,
    ZeroRefused,
    Accepted,
    AcceptedInPart,
    Checked,
    Scrubbed,
    Rotten,
    Hung,
    Slow,
    Grown,
    LogHidden,
    LogStale,
    LogUnknown,
    LogFailed,
    LogLeft,
    LogReturned,
}

const NAMES: [&str; 27] = [
    "boots",
    "with a member away",
    "with regions to make equal",
    "members failed",
    "vanished",
    "returned",
    "came back older than they left",
    "came back as copies",
    "replaced",
    "exchanges refused",
    "not opened without those who may know better",
    "requests refused",
    "fast zeros refused",
    "losses accepted",
    "of them in part",
    "clean blocks compared",
    "scrubs",
    "blocks rotten",
    "times that a member did not answer",
    "members too slow",
    "times grown",
    "boots without the log disk",
    "log disks came back older than they left",
    "not opened without the log",
    "log disks failed",
    "looks at a log disk that had left",
    "log disks returned",
];

/// Over all histories of this process.
pub(crate) struct Counts([AtomicU64; NAMES.len()]);

impl Counts {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; NAMES.len()])
    }

    pub(crate) fn add(&self, event: Event, count: u64) {
        self.0[event as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, event: Event) -> u64 {
        self.0[event as usize].load(Ordering::Relaxed)
    }

    /// Prints all of them, past the capture of test output.
    pub(crate) fn say(&self, test: &str) {
        let counted = self.0.iter().zip(NAMES);
        let counted: Vec<String> =
            counted.map(|(count, name)| format!("{} {name}", count.load(Ordering::Relaxed))).collect();
        let _ = writeln!(std::io::stderr(), "sim: {test}: {}", counted.join(", "));
    }
}

/// The regions of a member in which a change is under way or not yet durable.
#[derive(Default)]
pub(crate) struct Exposed {
    /// Of each change the regions, and whether it was acknowledged.
    changes: RefCell<BTreeMap<u64, (Range<u64>, bool)>>,
    next: Cell<u64>,
}

impl Exposed {
    pub(crate) fn regions(&self) -> BTreeSet<u64> {
        self.changes.borrow().values().flat_map(|(regions, _)| regions.clone()).collect()
    }
}

/// The disk of a member, watched in one boot.
pub(crate) struct Watched {
    pub(crate) disk: SimDisk,
    pub(crate) device: Device,
    pub(crate) exposed: Rc<Exposed>,
    /// Bytes in front of the data, and bytes of the data that belong to a region.
    pub(crate) metadata_size: u64,
    pub(crate) region_share: u64,
    /// Whether it refuses zeros that must be fast, although it says that it can: when it has half of them.
    pub(crate) refuses: bool,
}

impl Watched {
    /// The regions in which `io` changes data.
    fn changed(&self, io: &Io) -> Option<Range<u64>> {
        let extent = io.extent();
        if extent.offset < self.metadata_size {
            return None;
        }
        let is_changed = match io {
            Io::Read { .. } | Io::Flush => false,
            // A sector that could not be read is written as it was.
            Io::Write { data, .. } => self.disk.peek(extent)[..] != data[..],
            Io::Zero { .. } => self.disk.peek(extent).iter().any(|byte| *byte != 0),
            Io::Discard { .. } => true,
        };
        if !is_changed {
            return None;
        }
        let first = (extent.offset - self.metadata_size) / self.region_share;
        Some(first..(extent.end() - self.metadata_size).div_ceil(self.region_share))
    }
}

impl BlockDevice for Watched {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Zero { extent, options } if options.fast && self.refuses => {
                let half =
                    Extent::between(extent.offset, align_up(extent.offset + extent.length / 2, 4 * KIB));
                let half = half.intersect(extent).expect("it has blocks");
                let part = Io::Zero { extent: half, options: ZeroOptions { fast: false, ..options } };
                Completion::pending(async move {
                    self.send(part).await?;
                    Err(IoError::Unsupported)
                })
            }
            io => self.send(io),
        }
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}

impl Watched {
    fn send(&self, io: Io) -> Completion<'_> {
        let exposed = &self.exposed;
        if matches!(io, Io::Flush) {
            let changes = exposed.changes.borrow();
            let covered = changes.iter().filter(|(_, (_, is_done))| *is_done);
            let covered: Vec<u64> = covered.map(|(number, _)| *number).collect();
            let flush = self.device.submit(io);
            return Completion::pending(async move {
                let outcome = flush.await;
                if outcome.is_ok() {
                    exposed.changes.borrow_mut().retain(|number, _| !covered.contains(number));
                }
                outcome
            });
        }
        let Some(regions) = self.changed(&io) else { return self.device.submit(io) };
        let is_durable = match &io {
            Io::Write { durability, .. } => *durability == Durability::Durable,
            Io::Zero { options, .. } => options.durability == Durability::Durable,
            _ => false,
        };
        let number = exposed.next.replace(exposed.next.get() + 1);
        exposed.changes.borrow_mut().insert(number, (regions, false));
        let change = self.device.submit(io);
        Completion::pending(async move {
            let outcome = change.await;
            let mut changes = exposed.changes.borrow_mut();
            if outcome.is_ok() && is_durable {
                changes.remove(&number);
            } else if let Some((_, is_done)) = changes.get_mut(&number) {
                *is_done = outcome.is_ok();
            }
            outcome
        })
    }
}
