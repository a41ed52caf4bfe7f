//! How new a member is: stamps, which all members get before a mark or a clean takes effect, and before a superblock does.
//!
//! A member that is taken out, copied while it serves, and put back as the copy has sound superblocks, and lacks what was
//! written since. What it lacks is in regions that were marked or called clean after the copy was made, or that are dirty still. So each
//! record with a mark or a clean is a stamp, and has the next number: members with the log have it in their rings, all others get it without
//! its content at the same time, in a block of their own. A warm region costs nothing. What is decided by stamps is pure;
//! `tests/array/stamp_model.rs` goes through every order.
//!
//! ```text
//!   record ─┬─► ring of the holders          ─┐
//!           └─► stamp of all other members   ─┴─ all have it ─► marks and cleans count
//!   flush ∥ stamp, on all members ─► superblock, which names the stamp
//! ```
//!
//! Invariants:
//! - STAMP1. No mark or clean takes effect, and no superblock is written, before all members that are not away have its stamp, durably. A log disk
//!   has marks alone, and members a stamp before it has what is clean, so that no client waits for one.
//! - STAMP2. A stamp that not all members are known to have is followed by others only if these say so.
//! - STAMP3. A member that leaves is believed when it returns only if it has the last stamp that it acknowledged, and lacks what was
//!   marked, or called clean by a later one.
//! - STAMP4. A member in sync at an opening has the last stamp that all acknowledged, and that of the authoritative superblock; else it is
//!   away, and lacks everything.
//! - STAMP5. What was called clean by a stamp that not all acknowledged is dirty if a member in use lacks that one, in a crash or as a copy, or
//!   was behind at an earlier opening: it may have got a later stamp since. A member that lacks the newest one does not decide what dirty
//!   regions hold, also after the next crash. But where members were being made equal since an earlier crash, the one goes on to decide that was
//!   read, and what is called clean is so only if no member lacks the newest stamp.
//! - STAMP6. What all members show at an opening they acknowledge with its first stamp, when they have flushed it: if the opening is cut short,
//!   the next one finds as clean what this one did.

use super::super::members::Members;
use super::super::{InjectedBug, Uuid};
use super::log_copy::regions_of;
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use varve_block::{Arena, Device, Durability, IoError};
use varve_format::array::{BLOCK_SIZE, Change, Epoch, Record, Superblock};

/// The newest stamp that a member has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::array) struct Shown {
    pub(in crate::array) stamp: u64,
    /// The newest one that all members are known to have.
    pub(in crate::array) acknowledged: u64,
    /// Whether the member was behind when the array was opened (STAMP5).
    pub(in crate::array) is_behind: bool,
    /// The number of the first record that the log may lack.
    pub(in crate::array) sequence: u64,
    /// What is said of regions with it.
    pub(in crate::array) changes: Vec<Change>,
}

impl Shown {
    /// That of the superblock of a member: all members had it before.
    pub(in crate::array) fn of(own: &Superblock) -> Self {
        let entry = own.members.get(own.place as usize);
        Self {
            stamp: own.stamp,
            acknowledged: own.stamp,
            is_behind: entry.is_some_and(|entry| entry.is_behind),
            sequence: own.sequence,
            changes: Vec::new(),
        }
    }

    /// That of `record`, if it is newer.
    pub(in crate::array) fn or_newer(self, record: Record) -> Self {
        if record.stamp <= self.stamp {
            return self;
        }
        let Record { stamp, acknowledged, sequence, changes, .. } = record;
        let is_behind = self.is_behind || record.is_behind;
        Self { stamp, acknowledged, is_behind, sequence, changes }
    }
}

/// The stamps of an array in use.
pub(in crate::array) struct Stamps {
    newest: Cell<u64>,
    /// The newest one that all members have.
    acknowledged: Cell<u64>,
    /// Regions of which stamps say something that not all members are known to have.
    named: RefCell<BTreeSet<u64>>,
    bug: Option<InjectedBug>,
}

impl Stamps {
    /// Those of an array that is opened, whose newest stamp is `shown`, of which `named` are said to be marked or clean.
    pub(in crate::array) fn new(
        shown: &Shown,
        named: impl IntoIterator<Item = u64>,
        bug: Option<InjectedBug>,
    ) -> Self {
        assert!(shown.acknowledged <= shown.stamp, "STAMP2: {shown:?}");
        let named = RefCell::new(named.into_iter().collect());
        Self { newest: Cell::new(shown.stamp), acknowledged: Cell::new(shown.acknowledged), named, bug }
    }

    pub(in crate::array) fn newest(&self) -> u64 {
        self.newest.get()
    }

    pub(in crate::array) fn acknowledged(&self) -> u64 {
        self.acknowledged.get()
    }

    /// What a member lacks that leaves now, beside what is marked (STAMP3).
    pub(in crate::array) fn named(&self) -> Vec<u64> {
        self.named.borrow().iter().copied().collect()
    }

    /// A stamp begins that says `changes` of regions of `region_size` bytes; none if it is of a superblock.
    pub(in crate::array) fn begin(&self, changes: &[Change], region_size: u64) {
        self.named.borrow_mut().extend(changes.iter().flat_map(|change| regions_of(change, region_size)));
        let is_clean = |change: &Change| matches!(change, Change::Clean(..));
        let is_forgotten = match self.bug {
            Some(InjectedBug::StampMarksAlone) => !changes.is_empty() && changes.iter().all(is_clean),
            Some(InjectedBug::StampCleansAlone) => !changes.is_empty() && !changes.iter().any(is_clean),
            _ => false,
        };
        if !is_forgotten {
            self.newest.set(self.newest.get() + 1);
        }
        assert!(self.newest.get() >= self.acknowledged.get(), "STAMP2: numbers rise");
    }

    /// All members that are not away have the newest stamp.
    pub(in crate::array) fn end(&self) {
        self.acknowledged.set(self.newest.get());
        self.named.borrow_mut().clear();
    }

    /// All members have `stamp`, durably: they were found with it (STAMP6).
    pub(in crate::array) fn acknowledge(&self, stamp: u64) {
        assert!(stamp <= self.newest.get(), "STAMP2: {stamp} was not written");
        self.acknowledged.set(stamp.max(self.acknowledged.get()));
    }

    /// Writes `record`, without content, to the members at `places`, as their newest stamp. Returns those that failed.
    pub(in crate::array) async fn put(
        &self,
        record: &Record,
        members: &Members,
        arena: &Arena,
        places: impl IntoIterator<Item = usize>,
    ) -> Vec<usize> {
        let writes = places.into_iter().map(|place| {
            let own = Record { is_behind: members.is_behind(place), ..record.clone() };
            let device = members.device(place);
            async move { (place, put_stamp(&device, &own, arena).await.is_ok()) }
        });
        join_all(writes).await.into_iter().filter(|(_, written)| !written).map(|(place, _)| place).collect()
    }
}

async fn put_stamp(device: &Device, record: &Record, arena: &Arena) -> Result<(), IoError> {
    assert_eq!(record.blocks(), 1, "ARRAYLOG2: a stamp is a block");
    let mut bytes = arena.take(BLOCK_SIZE as usize);
    record.encode(&mut bytes);
    device.write(Record::stamp_offset(record.stamp), bytes.freeze(), Durability::Durable).await.map(drop)
}

/// The newer of the stamps in the blocks of a member with superblock `own`. One that cannot be read is none.
pub(in crate::array) async fn read_stamps(
    device: &Device,
    array: Uuid,
    own: &Superblock,
    arena: &Arena,
) -> Shown {
    let mut shown = Shown::of(own);
    for stamp in [0, 1] {
        let buffer = arena.take(BLOCK_SIZE as usize);
        let Ok(block) = device.read(Record::stamp_offset(stamp), buffer).await else { continue };
        let record = Record::decode(&block).ok().filter(|record| is_of(record, array, own.epoch));
        if let Some(record) = record {
            shown = shown.or_newer(record);
        }
    }
    shown
}

/// Whether a stamp is of `array`, in `epoch` or, if a superblock with it was cut short, in a later one.
fn is_of(record: &Record, array: Uuid, epoch: Epoch) -> bool {
    record.array == array.as_u64_pair().0 && record.epoch >= epoch
}
