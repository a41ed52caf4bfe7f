//! What a change asks for: a layout, and disks.

use crate::model::{self, ImageFormat, PvName, ReadPolicy};
use std::collections::BTreeMap;
use uuid::Uuid;

/// How a new volume is laid out on its disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One run after the other.
    Linear,
    /// Stripes of `stripe_size` bytes on `stripes` disks in turn.
    Striped {
        /// Number of disks.
        stripes: usize,
        /// Bytes of a stripe.
        stripe_size: u64,
    },
    /// On no disk: zeros.
    Zero,
    /// On no disk: errors.
    Error,
    /// In a disk image, which stays as it is.
    Image {
        /// Where it is; absolute.
        path: String,
        /// How it is read and written.
        format: ImageFormat,
    },
    /// On no disk: where a program says.
    Mapper {
        /// The path of the Unix socket at which it is asked.
        socket: String,
        /// How long a request waits for its answer, in milliseconds.
        wait_ms: u64,
        /// Volumes of the group that it may name.
        devices: Vec<Uuid>,
    },
    /// A copy on each of `copies` members.
    Mirror {
        /// Number of members.
        copies: usize,
        /// From which of them data is read, if not as usual.
        read_policy: Option<ReadPolicy>,
        /// Whether what members return is checked by checksums.
        checksums: bool,
    },
    /// Blocks divided over 2^`order` members, and their parity on one more.
    Ddraid {
        /// 2^order members hold data.
        order: u32,
        /// Bytes of a block; if none are given, as many as fit the physical sectors of its disks.
        block_size: Option<u64>,
        /// From which members data is read, if not as usual.
        read_policy: Option<ReadPolicy>,
        /// Whether what members return is checked by checksums.
        checksums: bool,
    },
}

/// On which disks space is taken, and what is known of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskChoice {
    /// These only; all if none is named.
    pub on: Vec<PvName>,
    /// The sectors of the group's disks.
    pub sectors: BTreeMap<PvName, Sectors>,
    /// The disk that has the log of an array instead of its members.
    pub log: Option<PvName>,
}

/// The sectors of a disk, in bytes; powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sectors {
    /// The least that can be written.
    pub logical: u64,
    /// The least that can be written without reading first.
    pub physical: u64,
}

impl Layout {
    /// The layout of what is kept for a volume of `layout`: its exception stores, and its metadata when it is set aside. It
    /// survives what the volume survives. That of a ddraid volume is a mirror: it is written in pieces smaller than a block. It
    /// has three copies: of two the one that is left when a disk is missing at the start could be the stale one.
    pub fn of_store(layout: &model::Layout) -> Self {
        match layout {
            model::Layout::Mirror { members, checksums, .. } => {
                Self::Mirror { copies: members.len(), read_policy: None, checksums: *checksums }
            }
            model::Layout::Ddraid { checksums, .. } => {
                Self::Mirror { copies: 3, read_policy: None, checksums: *checksums }
            }
            _ => Self::Linear,
        }
    }
}
