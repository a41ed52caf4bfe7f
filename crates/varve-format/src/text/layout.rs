//! What the bytes of a volume are for, and how its extents become them: two things.

use super::image::is_image_path;
use super::{Area, ImageFormat, Segment};
use crate::array::{BLOCK_SIZE, CHECKSUMS_OFFSET, SPAN_SIZE};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use uuid::Uuid;
use varve_block::{KIB, MIB};

/// What the bytes of a volume are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Role {
    /// Data of a client.
    #[default]
    Volume,
    /// A thin pool; volumes in it are the pool's own affair.
    Pool,
    /// An exception store that was replaced by a new copy.
    StoreBackup {
        /// The id of the store.
        of: Uuid,
    },
    /// The metadata that a pool had before it was written anew.
    PoolBackup {
        /// The id of the pool.
        of: Uuid,
    },
}

/// How many copies a mirror may have.
pub const MIRROR_COPIES: RangeInclusive<usize> = 2..=8;
/// The orders of ddraid: 2^order data members and one for parity.
pub const DDRAID_ORDERS: RangeInclusive<u32> = 1..=3;
/// The least and the most bytes of a block of ddraid, a power of two.
pub const DDRAID_BLOCK_SIZES: RangeInclusive<u64> = 4 * KIB..=64 * KIB;
/// The least metadata in front of the data of an array's member, in bytes; it is whole extents.
pub const MEMBER_METADATA_SIZE_MIN: u64 = MIB;

/// The `bytes` of a volume in an image are a multiple of this.
pub const IMAGE_SECTOR: u64 = 512;
/// Most bytes of the path of a Unix socket.
const SOCKET_LENGTH_MAX: usize = 107;
/// Most volumes that are devices of one mapper (TEXT23).
const GRANTED_MAX: usize = 64;
/// How long requests may be declared to wait for a mapper, in milliseconds.
const MAPPER_WAITS_MS: RangeInclusive<u64> = 1..=3_600_000;
/// How long requests wait for a mapper if nothing is declared, in milliseconds.
pub const MAPPER_WAIT_MS_DEFAULT: u64 = 30_000;

/// A member of an array. Its data is in the areas at its place in the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberEntry {
    /// What it is.
    pub id: Uuid,
    /// Where its superblocks and its part of the log lie.
    pub metadata: Area,
}

/// A disk that has the log of an array instead of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogEntry {
    /// What it is.
    pub id: Uuid,
    /// Where its superblocks and the log lie.
    pub area: Area,
}

/// From which members of an array its data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadPolicy {
    /// Those that hold the data; of a mirror the first.
    Data,
    /// All of them in turn.
    Rotate,
    /// All of them, and they are compared.
    Verify,
}

/// How the extents of a volume become its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Layout {
    /// One area after the other.
    #[default]
    Linear,
    /// Stripes in turn on each area of a segment.
    Striped {
        /// Bytes of a stripe.
        stripe_size: u64,
    },
    /// On no disk: it reads as zeros, and what is written is dropped.
    Zero,
    /// On no disk: every read and write fails.
    Error,
    /// In a disk image: a file or disk of the host that is none of the group's.
    Image {
        /// Where it is; absolute.
        path: String,
        /// How it is read and written.
        #[serde(default, skip_serializing_if = "ImageFormat::is_raw")]
        format: ImageFormat,
        /// Bytes of the disk that it holds.
        bytes: u64,
    },
    /// On no disk of the group: a program, the mapper, says where each byte is.
    Mapper {
        /// The path of the Unix socket at which it is asked.
        socket: String,
        /// How long a request waits for its answer, in milliseconds.
        wait_ms: u64,
        /// Volumes of the group that it may name: its devices 0, 1, ...
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        devices: Vec<Uuid>,
    },
    /// Every byte on each member.
    Mirror {
        /// From which members data is read; usually in turn.
        #[serde(default = "ReadPolicy::of_mirrors", skip_serializing_if = "ReadPolicy::is_of_mirrors")]
        read_policy: ReadPolicy,
        /// Whether what members return is checked by checksums, which lie in their metadata.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        checksums: bool,
        /// What has its log, if the members do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<LogEntry>,
        /// Its members, one for each copy.
        #[serde(rename = "member")]
        members: Vec<MemberEntry>,
    },
    /// Every block in equal fragments on all members but the last one, which holds the parity.
    Ddraid {
        /// 2^order members hold data.
        order: u32,
        /// Bytes of a block.
        block_size: u64,
        /// From which members data is read; usually from all, to compare them.
        #[serde(default = "ReadPolicy::of_ddraid", skip_serializing_if = "ReadPolicy::is_of_ddraid")]
        read_policy: ReadPolicy,
        /// Whether what members return is checked by checksums, which lie in their metadata.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        checksums: bool,
        /// What has its log, if the members do not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<LogEntry>,
        /// Its members, that of the parity last.
        #[serde(rename = "member")]
        members: Vec<MemberEntry>,
    },
}

impl ReadPolicy {
    /// The usual policy of mirrors.
    pub fn of_mirrors() -> Self {
        Self::Rotate
    }

    /// The usual policy of ddraid.
    pub fn of_ddraid() -> Self {
        Self::Verify
    }

    fn is_of_mirrors(&self) -> bool {
        *self == Self::of_mirrors()
    }

    fn is_of_ddraid(&self) -> bool {
        *self == Self::of_ddraid()
    }
}

impl Layout {
    /// Whether its extents lie on disks.
    pub fn takes_space(&self) -> bool {
        !matches!(self, Layout::Zero | Layout::Error | Layout::Image { .. } | Layout::Mapper { .. })
    }

    /// The members of an array; none of anything else.
    pub fn members(&self) -> &[MemberEntry] {
        match self {
            Layout::Mirror { members, .. } | Layout::Ddraid { members, .. } => members,
            Layout::Linear
            | Layout::Striped { .. }
            | Layout::Zero
            | Layout::Error
            | Layout::Image { .. }
            | Layout::Mapper { .. } => &[],
        }
    }

    /// Its members, to be changed.
    pub fn members_mut(&mut self) -> &mut [MemberEntry] {
        match self {
            Layout::Mirror { members, .. } | Layout::Ddraid { members, .. } => members,
            Layout::Linear
            | Layout::Striped { .. }
            | Layout::Zero
            | Layout::Error
            | Layout::Image { .. }
            | Layout::Mapper { .. } => &mut [],
        }
    }

    /// What has the log of an array, if its members do not.
    pub fn log(&self) -> Option<&LogEntry> {
        match self {
            Layout::Mirror { log, .. } | Layout::Ddraid { log, .. } => log.as_ref(),
            _ => None,
        }
    }

    /// What has the log of an array, to be changed; none of anything else.
    pub fn log_mut(&mut self) -> Option<&mut Option<LogEntry>> {
        match self {
            Layout::Mirror { log, .. } | Layout::Ddraid { log, .. } => Some(log),
            _ => None,
        }
    }

    /// Bytes of a log disk of an array of which each member has so many bytes of metadata: as many as superblocks and log have there.
    pub fn log_size(&self, metadata_size: u64) -> u64 {
        if self.has_checksums() { CHECKSUMS_OFFSET } else { metadata_size }
    }

    /// How many members may be missing while all of it can be used.
    pub fn tolerates(&self) -> usize {
        match self {
            Layout::Mirror { members, .. } => members.len().saturating_sub(1),
            Layout::Ddraid { .. } => 1,
            Layout::Linear
            | Layout::Striped { .. }
            | Layout::Zero
            | Layout::Error
            | Layout::Image { .. }
            | Layout::Mapper { .. } => 0,
        }
    }

    /// Whether it is an array with checksums.
    pub fn has_checksums(&self) -> bool {
        matches!(self, Layout::Mirror { checksums: true, .. } | Layout::Ddraid { checksums: true, .. })
    }

    /// Bytes of a volume of `extents` extents in this layout: an image need not end where an extent does.
    pub fn size(&self, extents: u64, extent_size: u64) -> u64 {
        match self {
            Layout::Image { bytes, .. } => *bytes,
            _ => extents * extent_size,
        }
    }

    /// The most bytes that its members' metadata, of so many bytes each, has room for.
    pub fn size_max(&self, metadata_size: u64) -> u64 {
        match self.has_checksums() {
            true => checksum_room(metadata_size),
            false => u64::MAX,
        }
    }

    /// How many extents of the volume a row is: one extent of each of `areas` areas.
    pub fn row(&self, areas: usize) -> u64 {
        match self {
            Layout::Striped { .. } => areas as u64,
            Layout::Ddraid { order, .. } => 1_u64.checked_shl(*order).unwrap_or(0),
            Layout::Linear
            | Layout::Mirror { .. }
            | Layout::Zero
            | Layout::Error
            | Layout::Image { .. }
            | Layout::Mapper { .. } => 1,
        }
    }

    /// How many extents of the volume `segment` holds.
    pub fn extents_of(&self, segment: &Segment) -> u64 {
        let rows = segment.areas.first().map_or(0, |area| area.count);
        rows.saturating_mul(self.row(segment.areas.len()))
    }

    /// TEXT6, TEXT7, TEXT16: what is wrong with `segments` of `extents` extents in this layout.
    pub(super) fn problem(
        &self,
        extents: u64,
        segments: &[Segment],
        extent_size: u64,
    ) -> Option<&'static str> {
        let shape =
            self.problem_of_shape(segments, extent_size).or(self.problem_of_image(extents, extent_size));
        let sum = segments.iter().try_fold(0_u64, |sum, segment| sum.checked_add(self.extents_of(segment)));
        let expected = if self.takes_space() { extents } else { 0 };
        let sum =
            (extents == 0 || sum != Some(expected)).then_some("`extents` is not the sum of its segments");
        let metadata = self.members().first().map_or(0, |member| member.metadata.count);
        let size_max = self.size_max(metadata.saturating_mul(extent_size));
        let room = (extents.saturating_mul(extent_size) > size_max)
            .then_some("the metadata areas of its members have no room for its checksums");
        shape.or(sum).or(room)
    }

    /// Volumes of the group that its mapper may name.
    pub fn granted(&self) -> &[Uuid] {
        match self {
            Layout::Mapper { devices, .. } => devices,
            _ => &[],
        }
    }

    /// What is wrong with the image that a volume is in (TEXT21).
    fn problem_of_image(&self, extents: u64, extent_size: u64) -> Option<&'static str> {
        let Layout::Image { path, bytes, .. } = self else { return None };
        if !is_image_path(path) {
            return Some("the `path` of an image is absolute, on one line");
        }
        if *bytes == 0 || !bytes.is_multiple_of(IMAGE_SECTOR) {
            return Some("the `bytes` of an image are whole sectors of 512 bytes");
        }
        (bytes.div_ceil(extent_size) != extents).then_some("`extents` are those that hold the image")
    }

    /// What is wrong with the log disk of an array (TEXT24).
    fn problem_of_log(&self, segments: &[Segment], extent_size: u64) -> Option<&'static str> {
        let (log, members) = (self.log()?, self.members());
        let metadata = members.first().map_or(0, |member| member.metadata.count);
        if log.area.count.saturating_mul(extent_size) < self.log_size(metadata.saturating_mul(extent_size)) {
            return Some("the log of an array has as much room as the log of a member");
        }
        let data = segments.iter().flat_map(|segment| &segment.areas);
        let mut areas = data.chain(members.iter().map(|member| &member.metadata));
        areas
            .any(|area| area.pv == log.area.pv)
            .then_some("the log of an array lies on no disk of its members")
    }

    /// What is wrong with the segments of a volume, by its layout (TEXT6, TEXT16, TEXT22).
    fn problem_of_shape(&self, segments: &[Segment], extent_size: u64) -> Option<&'static str> {
        match self {
            Layout::Linear => (!segments.iter().all(|segment| segment.areas.len() == 1))
                .then_some("a linear volume has segments of one area"),
            Layout::Striped { stripe_size }
                if !stripe_size.is_power_of_two() || !(4 * KIB..=extent_size).contains(stripe_size) =>
            {
                Some("stripe_size must be a power of two from 4 KiB to the extent size")
            }
            Layout::Striped { .. } if !segments.iter().all(is_striped) => {
                Some("a striped segment has two or more areas of equal length on different disks")
            }
            Layout::Striped { .. } => (!have_equal_width(segments))
                .then_some("all segments of a striped volume have the same number of areas"),
            Layout::Zero | Layout::Error | Layout::Image { .. } => None,
            Layout::Mapper { devices, .. } if devices.len() > GRANTED_MAX => {
                Some("a mapper has at most 64 volumes as devices")
            }
            Layout::Mapper { socket, wait_ms, .. } => problem_of_mapper(socket, *wait_ms),
            Layout::Mirror { members, .. } if !MIRROR_COPIES.contains(&members.len()) => {
                Some("a mirror has 2 to 8 members")
            }
            Layout::Ddraid { order, members, .. }
                if !DDRAID_ORDERS.contains(order) || members.len() != (1 << order) + 1 =>
            {
                Some("a ddraid array of order 1, 2 or 3 has 2^order + 1 members")
            }
            Layout::Ddraid { block_size, .. }
                if !block_size.is_power_of_two() || !DDRAID_BLOCK_SIZES.contains(block_size) =>
            {
                Some("block_size must be a power of two from 4 KiB to 64 KiB")
            }
            Layout::Mirror { members, .. } | Layout::Ddraid { members, .. } => {
                problem_of_members(members, segments, extent_size)
                    .or_else(|| self.problem_of_log(segments, extent_size))
            }
        }
    }
}

/// What is wrong with where a mapper listens, and how long it is waited for (TEXT22).
fn problem_of_mapper(socket: &str, wait_ms: u64) -> Option<&'static str> {
    if !socket.starts_with('/') || socket.len() > SOCKET_LENGTH_MAX || socket.chars().any(char::is_control) {
        return Some("the socket of a mapper is an absolute path of at most 107 bytes");
    }
    (!MAPPER_WAITS_MS.contains(&wait_ms)).then_some("a request waits 1 millisecond to 1 hour for a mapper")
}

/// Bytes of an array whose checksums fit into `metadata_size` bytes of each member, behind superblocks and log.
pub fn checksum_room(metadata_size: u64) -> u64 {
    let table = metadata_size.saturating_sub(CHECKSUMS_OFFSET);
    (table / BLOCK_SIZE).saturating_mul(SPAN_SIZE)
}

/// What is wrong with the members of an array (TEXT16).
fn problem_of_members(
    members: &[MemberEntry],
    segments: &[Segment],
    extent_size: u64,
) -> Option<&'static str> {
    if !segments.iter().all(|segment| segment.areas.len() == members.len() && has_equal_areas(segment)) {
        return Some("a segment of an array has an area for each member, equally long");
    }
    let size = members[0].metadata.count;
    let is_long = size.saturating_mul(extent_size) >= MEMBER_METADATA_SIZE_MIN;
    if !is_long || members.iter().any(|member| member.metadata.count != size) {
        return Some("the metadata areas of an array's members are equally long, at least 1 MiB");
    }
    let mut member_of = HashMap::new();
    let data = segments.iter().flat_map(|segment| segment.areas.iter().enumerate());
    let metadata = members.iter().map(|member| &member.metadata).enumerate();
    let is_shared = |(index, area): (usize, &Area)| *member_of.entry(area.pv).or_insert(index) != index;
    data.chain(metadata).any(is_shared).then_some("a disk serves one member of an array only")
}

fn is_striped(segment: &Segment) -> bool {
    let mut disks = HashSet::new();
    let different = segment.areas.iter().all(|area| disks.insert(area.pv));
    different && has_equal_areas(segment) && segment.areas.len() >= 2
}

fn has_equal_areas(segment: &Segment) -> bool {
    segment.areas.windows(2).all(|pair| pair[0].count == pair[1].count)
}

fn have_equal_width(segments: &[Segment]) -> bool {
    segments.windows(2).all(|pair| pair[0].areas.len() == pair[1].areas.len())
}
