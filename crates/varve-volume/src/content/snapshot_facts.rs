//! What is reported of snapshots, and what identifies one for good.

use uuid::Uuid;
use varve_target::thin::{Backing, Origin};
use varve_vg::StoreKind;

/// What a snapshot is like, as its store says.
pub struct SnapshotFacts {
    /// Its name.
    pub name: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Bytes that it shows.
    pub size: u64,
    /// Bytes that it keeps; 0 if they were not counted.
    pub used: u64,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Whether it is kept from removal.
    pub held: bool,
    /// Whether it is marked as an origin of others.
    pub is_base: bool,
    /// Whether the volume is being rolled back to it.
    pub is_merging: bool,
    /// The kind of the store that has it.
    pub kind: StoreKind,
    /// Whether it is in a pool; then its kind means nothing.
    pub is_thin: bool,
    /// What would show where it holds nothing, if that is not there: nothing of it can be read.
    pub missing_origin: Option<Origin>,
    /// The snapshot, for good.
    pub target: Target,
}

/// A snapshot, for good: no other one ever has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The store that it is in.
    pub store: Uuid,
    /// Its number there.
    pub number: u64,
}

impl SnapshotFacts {
    /// The snapshot as the backing of volumes.
    pub const fn backing(&self) -> Backing {
        let Target { store, number } = self.target;
        Backing::Snapshot { store, number, created: self.created }
    }
}

impl Target {
    /// The snapshot that is below a volume, if it is one.
    pub const fn of(backing: Backing) -> Option<Target> {
        match backing {
            Backing::Snapshot { store, number, .. } => Some(Target { store, number }),
            Backing::Volume { .. } | Backing::Image { .. } => None,
        }
    }
}

/// A rollback that may have to be taken up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackPoint {
    /// The snapshot.
    pub target: Target,
    /// Its size.
    pub bytes: u64,
    /// What a thin volume had before; it has another one once it was rolled back.
    pub mark: Option<u64>,
}

/// A removed snapshot whose space has not all come back.
pub struct Leaving {
    /// Its name.
    pub name: String,
    /// Bytes that it shows.
    pub size: u64,
    /// The snapshot, for good.
    pub target: Target,
}
