//! Arrays: mirrors and ddraid, with a log of the regions on which members may differ.
//!
//! What an array is made of and why is in `docs/decisions/0092-arrays.md`.
//!
//! ```text
//!   write ─► range lock ─► mark the regions (log) ─► fragments ─► all members ─► acknowledged
//!                                 │                                  │ one failed
//!                                 ▼                                  ▼
//!            ring on two members or a log disk, one          superblock on the others: it is away;
//!            record for all that ask at the same time        then acknowledged
//! ```
//!
//! Invariants, cited by number where they are kept:
//! - ARRAYIO1. A member is written only where the log says, durably, that the region is dirty.
//! - ARRAYIO2. A region is clean again only when all members have flushed what was written there.
//! - ARRAYIO3. What a member missed is acknowledged only when it is durable on the others that it is away.
//! - ARRAYIO4. Members are made equal, or caught up, where no write is under way meanwhile: under the range lock.
//! - ARRAYIO5. A region in which members may differ is never reconstructed. Where a data member of ddraid is missing it is not read,
//!   but for blocks that were written since (ARRAYLOST4), or of which checksums say what was flushed there last (ARRAYLOST2).
//! - ARRAYIO6. While a data member of ddraid is missing, what is written is in the log first.
//! - ARRAYIO7. A read writes no record.

mod change;
mod checksum_pages;
mod checksums;
mod combine;
mod counters;
mod device;
mod dirty_log;
mod error;
mod geometry;
mod injected_bug;
mod members;
mod opening;
mod options;
mod publish;
mod read;
mod region_set;
mod regions;
mod resize;
mod slow;
mod sound;
mod status;
mod upkeep;

pub use dirty_log::log_disk::LogDiskStatus;
pub use error::ArrayError;
pub use geometry::ArrayLayout;
pub use injected_bug::InjectedBug;
pub use opening::as_it_lies::as_it_lies;
pub use options::{ArrayOptions, ArraySpec, Member, Rates};
pub use status::{ArrayStatus, MemberStatus};
pub use upkeep::scrub::{ScrubError, ScrubOptions, ScrubReport};
pub use varve_format::array::{MemberState, Uuid};
pub use varve_format::text::MEMBER_METADATA_SIZE_MIN as METADATA_SIZE_MIN;
pub use varve_format::text::ReadPolicy;

use crate::journal::Latch;
use checksums::Checksums;
use dirty_log::log::Log;
use dirty_log::log_disk::LogDisk;
use members::Members;
use regions::Regions;
use std::cell::Cell;
use std::time::Duration;
use upkeep::lost_regions::Lost;
use varve_block::{Gate, IoError, LockMode, Notify, RangeGuard, RangeLock, Shape};

/// An array, open.
pub struct Array {
    spec: ArraySpec,
    options: ArrayOptions,
    /// What its device is like; its size is that of the array.
    shape: Cell<Shape>,
    members: Members,
    regions: Regions,
    log: Log,
    /// The disk that has the log, if it is not with the members.
    log_disk: LogDisk,
    /// What members are expected to hold, if the array has checksums.
    checksums: Option<Checksums>,
    /// What is known of regions that were dirty when a data member was lost with the power.
    lost: Lost,
    /// Held to write pages of checksums, for the bytes of the array that these are of.
    paging: RangeLock,
    /// Held by changes, by reads that combine members, and to make members equal (ARRAYIO4).
    range: RangeLock,
    /// Changes are inside; a superblock is written while none is.
    gate: Gate,
    /// Held to write superblocks.
    publishing: RangeLock,
    /// Held to take a member in, and to change the log disk; taken before `publishing`.
    attaching: RangeLock,
    /// Number of the last superblock.
    number: Cell<u64>,
    /// [`Superblock::identity`](varve_format::array::Superblock::identity) of it.
    identity: Cell<u32>,
    /// Shut when too many members have failed.
    latch: Latch,
    wants_superblock: Cell<bool>,
    /// As [`ArrayOptions::slow_after`].
    slow_after: Cell<Duration>,
    /// As [`ArrayOptions::release_delay`].
    release_delay: Cell<Duration>,
    /// Of the work that makes members equal.
    pace: upkeep::pace::Pace,
    is_closed: Cell<bool>,
    /// Something has changed that the background work or an observer waits for, and how often.
    changed: Notify,
    changes: Cell<u64>,
    counters: counters::Counters,
}

impl Array {
    /// What the array is.
    pub fn spec(&self) -> ArraySpec {
        ArraySpec { size: self.size(), ..self.spec }
    }

    /// From now on a request on a member may take so long, and members are made equal and caught up so fast.
    pub fn set_policy(&self, slow_after: Duration, rates: Rates) {
        if self.slow_after.replace(slow_after) != slow_after {
            self.members.watch().retime();
        }
        self.pace.set_rates(rates);
    }

    /// From now on a region is clean again when it was idle for so long.
    pub fn set_release_delay(&self, delay: Duration) {
        if self.release_delay.replace(delay) != delay {
            self.tell();
        }
    }

    /// Members, regions and the size of the array fit each other.
    fn assert_consistent(&self) {
        self.members.assert_consistent();
        self.regions.assert_consistent();
        let is_known = self.lost.is_nothing_known() || self.lacks_data_member();
        assert!(is_known, "ARRAYLOST1: all data members are in sync");
        assert_eq!(self.members.count(), self.spec.layout.members(), "ARRAY3: each member has a place");
        let differ = !self.regions.unsynced().is_empty();
        assert!(!differ || self.may_differ(), "RESYNC1: members differ of which one has all that counts");
        let end = self.size().div_ceil(self.regions.size());
        assert_eq!(self.regions.count(), end, "ARRAY4: regions reach to the end of the array");
    }

    /// Bytes of the array.
    fn size(&self) -> u64 {
        self.shape.get().size
    }

    fn is_mirror(&self) -> bool {
        matches!(self.spec.layout, ArrayLayout::Mirror { .. })
    }

    fn has_bug(&self, bug: InjectedBug) -> bool {
        self.options.injected_bug == Some(bug)
    }

    /// Wakes the tasks that wait for a change of the array.
    fn tell(&self) {
        self.changes.set(self.changes.get() + 1);
        self.changed.notify_all();
    }

    /// Whether a data member of a ddraid array is not in sync: what it has of dirty blocks cannot be computed.
    fn lacks_data_member(&self) -> bool {
        let ArrayLayout::Ddraid { .. } = self.spec.layout else { return false };
        let data_members = self.spec.layout.members() - 1;
        !(0..data_members).all(|place| self.members.is_in_sync(place))
    }

    /// Whether members in sync can differ: several copies, or the parity and what it is computed from.
    fn may_differ(&self) -> bool {
        match self.spec.layout {
            ArrayLayout::Mirror { .. } => self.members.in_state(MemberState::InSync).len() > 1,
            ArrayLayout::Ddraid { .. } => self.members.is_in_sync(self.spec.layout.members() - 1),
        }
    }

    /// Holds all of `extent` alone, but for a fault for tests (ARRAYIO4).
    async fn lock_alone(&self, extent: varve_block::Extent) -> Option<RangeGuard> {
        match self.has_bug(InjectedBug::ResyncBesideWriters) {
            true => None,
            false => Some(self.range.lock(extent, LockMode::Exclusive).await),
        }
    }
}

/// The error that requests receive when the members cannot serve them.
fn lost() -> IoError {
    IoError::Corrupt
}
