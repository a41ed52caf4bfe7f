//! The byte tables of the entries of an exception store.

use crate::layout::{Field, Layout};

pub(super) const KIND: Field = Field::new(0, 2, "kind", "what happened");
pub(super) const LENGTH: Field = Field::new(2, 2, "length", "bytes of this entry");
pub(super) const CHECKSUM: Field =
    Field::new(4, 4, "checksum", "CRC32C of the preserved data; zero if written");
pub(super) const SNAPSHOT: Field = Field::new(8, 8, "snapshot", "its id");
pub(super) const OFFSET: Field = Field::new(16, 8, "offset", "first byte in the origin or the snapshot");
pub(super) const BYTES: Field = Field::new(24, 8, "bytes", "how many bytes");
pub(super) const PLACE: Field =
    Field::new(32, 8, "place", "first byte of the data in the store; 0 for zeros");
pub(super) const PIECE_SIZE: usize = 40;

pub(super) const RESERVED: Field = Field::new(4, 4, "reserved", "zero");
pub(super) const DATE: Field = Field::new(16, 8, "created", "seconds since 1970-01-01 00:00 UTC");
pub(super) const ORIGIN_SIZE: Field = Field::new(24, 8, "size", "bytes of the origin at that moment");
pub(super) const CREATE_FLAGS: Field =
    Field::new(32, 4, "flags", "1: read-only; 2: held; 4: others are backed by it; all others zero");
pub(super) const NAME_LENGTH: Field =
    Field::new(36, 4, "name_length", "bytes of the name, which follows, padded with zeros");
pub(super) const CREATE_HEAD: usize = 40;

pub(super) const FLAGS_VALUE: Field =
    Field::new(16, 4, "flags", "1: read-only; 2: held; 4: others are backed by it; all others zero");
pub(super) const FLAGS_RESERVED: Field = Field::new(20, 4, "reserved_2", "zero");
pub(super) const FLAGS_SIZE: usize = 24;
pub(super) const SNAPSHOT_SIZE: usize = 16;

pub(super) const NEW_NAME_LENGTH: Field =
    Field::new(16, 4, "name_length", "bytes of the new name, which follows, padded with zeros");
pub(super) const RENAME_HEAD: usize = 24;

pub(super) const BYTES_PRESERVED: Field = Field::new(16, 8, "preserved", "bytes that are preserved for it");
pub(super) const BYTES_WRITTEN: Field = Field::new(24, 8, "written", "bytes that were written to it");
pub(super) const BYTES_SIZE: usize = 32;

pub(super) const BOUNDARY: Field = Field::new(
    16,
    8,
    "boundary",
    "snapshots with this id or a higher one were taken after the rollback began",
);
pub(super) const ROLLBACK_SIZE: usize = 24;
pub(super) const RESTORED_SIZE: usize = 32;

/// The byte table of a mapping.
pub const PIECE_LAYOUT: Layout = Layout::new(
    "Exception store: entry, preserved (1) or written (2)",
    "Content of the origin was preserved for a snapshot, or a snapshot was written. In an entry block.",
    PIECE_SIZE,
    &[KIND, LENGTH, CHECKSUM, SNAPSHOT, OFFSET, BYTES, PLACE],
);
/// The byte table of a snapshot's description.
pub const CREATE_LAYOUT: Layout = Layout::new(
    "Exception store: entry, created (3)",
    "A snapshot was created. In an entry block.",
    CREATE_HEAD,
    &[KIND, LENGTH, RESERVED, SNAPSHOT, DATE, ORIGIN_SIZE, CREATE_FLAGS, NAME_LENGTH],
);
/// The byte table of a change of flags.
pub const FLAGS_LAYOUT: Layout = Layout::new(
    "Exception store: entry, flags (5)",
    "A snapshot's flags were changed. In an entry block.",
    FLAGS_SIZE,
    &[KIND, LENGTH, RESERVED, SNAPSHOT, FLAGS_VALUE, FLAGS_RESERVED],
);
/// The byte table of another name.
pub const RENAME_LAYOUT: Layout = Layout::new(
    "Exception store: entry, renamed (11)",
    "A snapshot has another name. In an entry block of the log only.",
    RENAME_HEAD,
    &[KIND, LENGTH, RESERVED, SNAPSHOT, NEW_NAME_LENGTH, FLAGS_RESERVED],
);
/// The byte table of the beginning of a rollback.
pub const ROLLBACK_LAYOUT: Layout = Layout::new(
    "Exception store: entry, rollback begun (6)",
    "From now on the origin shows what a snapshot shows, but where it is restored. In an entry block.",
    ROLLBACK_SIZE,
    &[KIND, LENGTH, RESERVED, SNAPSHOT, BOUNDARY],
);
/// The byte table of what a rollback has restored.
pub const RESTORED_LAYOUT: Layout = Layout::new(
    "Exception store: entry, restored (9)",
    "During a rollback to a snapshot: what the origin shows here is on its own device. In an entry block.",
    RESTORED_SIZE,
    &[KIND, LENGTH, RESERVED, SNAPSHOT, OFFSET, BYTES],
);
/// The byte table of what was preserved and is dropped.
pub const DROPPED_LAYOUT: Layout = Layout::new(
    "Exception store: entry, dropped (10)",
    "What was preserved for a snapshot and newer ones is freed: they find the origin's device again. In an entry block.",
    RESTORED_SIZE,
    &[KIND, LENGTH, RESERVED, SNAPSHOT, OFFSET, BYTES],
);
/// The byte table of an entry that only names a snapshot.
pub const SNAPSHOT_LAYOUT: Layout = Layout::new(
    "Exception store: entry, removed (4) or rollback ended (7)",
    "A snapshot was removed; all of the rollback to it is done. In an entry block.",
    SNAPSHOT_SIZE,
    &[KIND, LENGTH, RESERVED, SNAPSHOT],
);
/// The byte table of a snapshot's share of the store.
pub const BYTES_LAYOUT: Layout = Layout::new(
    "Exception store: entry, bytes (8)",
    "How much of the store belongs to a snapshot. In an entry block of the table only.",
    BYTES_SIZE,
    &[KIND, LENGTH, RESERVED, SNAPSHOT, BYTES_PRESERVED, BYTES_WRITTEN],
);
/// Bytes of an entry that says what is restored.
pub const RESTORED_LENGTH: usize = RESTORED_SIZE;
const _: () = assert!(PIECE_SIZE.is_multiple_of(8) && CREATE_HEAD.is_multiple_of(8));
const _: () =
    assert!(FLAGS_SIZE.is_multiple_of(8) && SNAPSHOT_SIZE.is_multiple_of(8) && RENAME_HEAD.is_multiple_of(8));
const _: () = assert!(ROLLBACK_SIZE.is_multiple_of(8) && RESTORED_SIZE.is_multiple_of(8));
