//! What an array is, and how it is used.

use super::geometry::ArrayLayout;
use super::injected_bug::InjectedBug;
use std::time::Duration;
use varve_block::{Arena, Clock, Device};
use varve_format::array::{CHECKSUMS_OFFSET, RING_OFFSET, Uuid};
use varve_format::text::{ReadPolicy, checksum_room};

/// What an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Which one.
    pub id: Uuid,
    /// How it is on its members.
    pub layout: ArrayLayout,
    /// Bytes of the array; the data of a member has as many as [`ArrayLayout::on_members`] says.
    pub size: u64,
    /// Bytes in front of a member's data.
    pub metadata_size: u64,
    /// Whether what members return is checked: `metadata_size` then has room for a page for each MiB of the array.
    pub checksums: bool,
}

impl ArraySpec {
    /// Bytes of the ring of the log on a member.
    pub(super) fn ring_size(&self) -> u64 {
        let end = if self.checksums { CHECKSUMS_OFFSET } else { self.metadata_size };
        end - RING_OFFSET
    }

    /// Bytes of a log disk: as many as the superblocks and the ring of a member.
    pub fn log_size(&self) -> u64 {
        RING_OFFSET + self.ring_size()
    }

    /// The most bytes that an array can have with so many bytes in front of the data of its members.
    pub fn size_max(&self) -> u64 {
        match self.checksums {
            true => checksum_room(self.metadata_size),
            false => u64::MAX,
        }
    }
}

/// A member of an array, in the place that it has in the list of members.
#[derive(Clone)]
pub struct Member {
    /// Which one.
    pub id: Uuid,
    /// Its metadata and, behind it, its data; none if it is missing.
    pub device: Option<Device>,
}

/// How fast an array does what no request waits for, in bytes of the array a second, none of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// While clients are served, at least this, as far as the members can.
    pub floor: u64,
    /// Always at most this.
    pub ceiling: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Self { floor: 8 << 20, ceiling: u64::MAX }
    }
}

/// How an array is used.
#[derive(Clone)]
pub struct ArrayOptions {
    /// Memory for requests.
    pub arena: Arena,
    /// Time.
    pub clock: Clock,
    /// How long a region is idle before it is no longer dirty.
    pub release_delay: Duration,
    /// Which members a read uses when all are there.
    pub read_policy: ReadPolicy,
    /// How long a request on a member may take. A member that takes longer, a quarter more at most, is away if the others have
    /// all data.
    pub slow_after: Duration,
    /// How fast members are made equal and caught up.
    pub rates: Rates,
    /// Bytes of memory for checksums of what is not being written.
    pub checksum_cache: u64,
    /// Take a mirror into use although members are missing that may know better, and ddraid although its log and a data member are: what
    /// is unknown is refused then.
    pub accept_missing: bool,
    /// The disk that has the log, in as many bytes as [`ArraySpec::log_size`] says; none if it is with the members. One that is
    /// missing, or fails, is done without.
    pub log_disk: Option<Member>,
    /// A fault for tests.
    #[doc(hidden)]
    pub injected_bug: Option<InjectedBug>,
}

impl ArrayOptions {
    /// Usual options.
    pub fn new(arena: Arena, clock: Clock) -> Self {
        Self {
            arena,
            clock,
            release_delay: Duration::from_secs(1),
            read_policy: ReadPolicy::Verify,
            slow_after: Duration::from_secs(30),
            rates: Rates::default(),
            checksum_cache: 4 << 20,
            accept_missing: false,
            log_disk: None,
            injected_bug: None,
        }
    }
}
