//! The disk that has the log of an array instead of its members.
//!
//! It has superblocks and a ring as a member has them, and no data. The authoritative superblock says where the valid records
//! are: on the log disk or on members; no other ring is read. When the log disk fails the log goes on with members, and what is
//! on the disk is believed no more. An array that is closed has its log with its members.
//!
//! Invariants:
//! - LOGDISK1. The log disk has the log only if a superblock that says so is durable on all members that are not away, and on it.
//! - LOGDISK2. A ring that gets the log has no record of the number that comes next, or of a higher one: numbers rise where the log
//!   goes from one ring to another, by more than a ring holds if records are unknown; a disk that was never this log disk is zeroed.
//! - LOGDISK3. If the records are unknown because the log disk is not here, any region may have been written.
//! - LOGDISK4. A superblock that gives the log to the log disk is durable there before any member gets it. So the disk has the superblock
//!   that is authoritative, or the one that was to follow it and has no records; a disk that has neither has lost the log. It gets the log
//!   again only when members have a superblock that says so.
//! - LOGDISK5. A superblock that a member in sync does not have was cut short, and no record follows it, whatever the log disk has.
//! - LOGDISK6. A superblock that the log disk alone has is not written a second time, to all: an old state of that disk, without the
//!   records that follow, would be the one that is authoritative. So the log of the next superblock begins with a higher number.
//! - LOGDISK7. A log disk that lacks records which members know of is an old state of it, and is not read. One that lacks marks alone, since
//!   the last that became clean, cannot be distinguished from one that has them.

use super::super::members::Members;
use super::super::slow::Requests;
use super::super::{ArraySpec, Member, Uuid};
use std::cell::RefCell;
use std::rc::Rc;
use varve_block::{Access, Device, Extent, IoError, ZeroOptions};
use varve_format::array::{BLOCK_SIZE, Superblock};

/// The log disk, if the array has one.
pub(in crate::array) struct LogDisk(RefCell<Option<Slot>>);

struct Slot {
    id: Uuid,
    /// None while it is away.
    device: Option<Device>,
    requests: Rc<Requests>,
    /// It has failed, and is away as soon as that is durable.
    is_leaving: bool,
    is_slow: bool,
    errors: u64,
}

/// How the log disk of an array does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDiskStatus {
    /// Which one.
    pub id: Uuid,
    /// Whether the log is there; else it is on members.
    pub has_log: bool,
    /// Whether it is away because a request on it took too long.
    pub is_slow: bool,
    /// How often it has failed since the array was opened.
    pub errors: u64,
}

impl LogDisk {
    /// The log disk that was found when the array was opened; one without a device is away.
    pub(in crate::array) fn new(log: Option<Member>, requests: &Rc<Requests>, members: &Members) -> Self {
        let is_here = log.as_ref().is_some_and(|log| log.device.is_some());
        assert!(!is_here || !requests.is_abandoned(), "LOGDISK1: one that does not answer has no device");
        let slot = log.map(|log| {
            let is_slow = requests.is_abandoned();
            if is_slow {
                members.see_off(log.id, requests);
            }
            let device = log.device.map(|device| requests.on(device));
            let requests = Rc::clone(requests);
            Slot { id: log.id, device, requests, is_leaving: false, is_slow, errors: 0 }
        });
        Self(RefCell::new(slot))
    }

    /// It, if it can have the log.
    pub(in crate::array) fn usable(&self) -> Option<(Uuid, Device)> {
        let slot = self.0.borrow();
        let slot = slot.as_ref().filter(|slot| !slot.is_leaving)?;
        Some((slot.id, slot.device.clone()?))
    }

    /// It has failed.
    pub(in crate::array) fn leave(&self) {
        if let Some(slot) = self.0.borrow_mut().as_mut().filter(|slot| slot.device.is_some()) {
            slot.errors += 1;
            slot.is_leaving = true;
        }
    }

    /// Whether it has failed and is not away yet.
    pub(in crate::array) fn is_leaving(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|slot| slot.is_leaving)
    }

    /// It is away if it has failed. Returns whether it has.
    pub(in crate::array) fn send_away(&self, members: &Members) -> bool {
        let mut slot = self.0.borrow_mut();
        let Some(slot) = slot.as_mut().filter(|slot| slot.is_leaving) else { return false };
        assert!(slot.device.is_some(), "LOGDISK1: one that leaves was here");
        (slot.is_leaving, slot.device) = (false, None);
        slot.end_requests(members);
        true
    }

    /// Another disk, or the same again, takes its place; or none.
    pub(in crate::array) fn replace(&self, log: Option<(Uuid, Device)>, members: &Members) {
        let mut slot = self.0.borrow_mut();
        let errors = match (&*slot, &log) {
            (Some(slot), Some((id, _))) if slot.id == *id => slot.errors,
            _ => 0,
        };
        if let Some(slot) = slot.take() {
            slot.end_requests(members);
        }
        *slot = log.map(|(id, device)| {
            let requests = Requests::new(members.watch());
            let device = Some(requests.on(device));
            Slot { id, device, requests, is_leaving: false, is_slow: false, errors }
        });
    }

    /// It fails if a request on it takes too long. Returns whether that is new.
    pub(in crate::array) fn abandon_if_slow(&self, members: &Members) -> bool {
        let mut slot = self.0.borrow_mut();
        let is_slow = |slot: &&mut Slot| slot.device.is_some() && slot.requests.is_slow();
        let Some(slot) = slot.as_mut().filter(is_slow) else { return false };
        if !std::mem::replace(&mut slot.is_leaving, true) {
            slot.errors += 1;
        }
        slot.end_requests(members); // One that leaves already may be waited for, too.
        !std::mem::replace(&mut slot.is_slow, true)
    }

    /// Whether a caller waits for it.
    pub(in crate::array) fn is_waited_for(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|slot| slot.requests.is_waited_for())
    }

    /// How it does; `has_log` is what the caller knows.
    pub(in crate::array) fn status(&self, has_log: bool) -> Option<LogDiskStatus> {
        let slot = self.0.borrow();
        let of = |slot: &Slot| LogDiskStatus {
            id: slot.id,
            has_log,
            is_slow: slot.device.is_none() && slot.is_slow,
            errors: slot.errors,
        };
        slot.as_ref().map(of)
    }
}

impl Slot {
    /// No caller waits any more for what is under way.
    fn end_requests(&self, members: &Members) {
        if !self.requests.is_abandoned() {
            members.see_off(self.id, &self.requests);
        }
    }
}

/// Whether the log disk with `own` superblock has the records of `superblock`, which is authoritative (LOGDISK4). Where members count although
/// others may know better, records can have followed the one that none of the former has, in the place of those that count.
pub(in crate::array) fn is_current(own: &Superblock, superblock: &Superblock, accepts_missing: bool) -> bool {
    assert_eq!(own.log_disk, superblock.log_disk, "LOGDISK4: a superblock of the disk that has the log");
    let is_it = own.number == superblock.number && own.identity() == superblock.identity();
    let is_next = own.number == superblock.number + 1 && own.previous == superblock.identity();
    is_it || (is_next && !accepts_missing)
}

/// Whether `own` was written by the array `spec` to its log disk `id`.
pub(in crate::array) fn is_of(spec: &ArraySpec, id: Uuid, own: &Superblock) -> bool {
    own.array == spec.id && own.log_disk == id && own.place as usize == own.members.len()
}

/// Why `device` cannot have the log of the array `spec`.
pub(in crate::array) fn unfit(spec: &ArraySpec, device: &Device) -> Option<&'static str> {
    let shape = device.shape();
    if shape.size < spec.log_size() {
        Some("it is too small for the log")
    } else if shape.access == Access::ReadOnly {
        Some("it is read-only")
    } else if u64::from(shape.block_size) > BLOCK_SIZE {
        Some("its sectors are larger than 4 KiB")
    } else {
        None
    }
}

/// A log disk that cannot be one is missing from now on.
pub(in crate::array) fn leave_out_unfit(spec: &ArraySpec, log: &mut Option<Member>) {
    for log in log.iter_mut() {
        if let Some(problem) = log.device.as_ref().and_then(|device| unfit(spec, device)) {
            tracing::warn!(array = %spec.id, log = %log.id, problem, "the log disk is left out");
            log.device = None;
        }
    }
}

/// Nothing that is on `device` is authoritative (LOGDISK2).
pub(in crate::array) async fn clear(spec: &ArraySpec, device: &Device) -> Result<(), IoError> {
    let all = Extent::new(0, spec.log_size());
    assert!(all.end() <= device.shape().size, "LOGDISK2: the ring lies on the disk");
    device.zero(all, ZeroOptions::default()).await?;
    device.flush().await.map(drop)
}
