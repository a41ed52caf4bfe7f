//! What a pool reports of a volume.

use super::lifecycle::volume::Volume;
use varve_format::thin::{Origin, PART_SIZE, Trashed, VolumeFlags};

/// A volume as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its id, never given twice.
    pub id: u64,
    /// The volume that it is a snapshot of, if it is one.
    pub snapshot_of: Option<u64>,
    /// Its name; empty while it is being removed.
    pub name: String,
    /// Since when and until when it is in the trash, if it is.
    pub trashed: Option<Trashed>,
    /// Its size.
    pub bytes: u64,
    /// Bytes of it that have space in the pool, shared or not.
    pub mapped_bytes: u64,
    /// What it is.
    pub flags: VolumeFlags,
    /// The volume that it was cloned from; 0 for none. After a rollback a number that no other volume has.
    pub source: u64,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// What shows where it holds nothing.
    pub origin: Option<Origin>,
    /// Of one that is being removed: bytes of it that are reclaimed, from its start on, as of this boot.
    pub removed_bytes: u64,
}

pub(super) fn info(volume: &Volume) -> VolumeInfo {
    VolumeInfo {
        id: volume.id,
        snapshot_of: volume.snapshot_of,
        name: volume.known_name(),
        trashed: volume.trashed(),
        bytes: volume.bytes.get(),
        mapped_bytes: volume.mapped.get() * PART_SIZE,
        flags: volume.flags.get(),
        source: volume.source.get(),
        created: volume.created,
        removed_bytes: volume.removed_bytes(),
        origin: volume.over.get(),
    }
}
