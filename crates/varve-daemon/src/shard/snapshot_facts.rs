//! What is told of snapshots, and what names one for good.

use uuid::Uuid;
use varve_target::thin::Backing;
use varve_vg::StoreKind;

/// What a snapshot is like, as its store says.
pub(crate) struct SnapshotFacts {
    pub(crate) name: String,
    pub(crate) created: u64,
    pub(crate) size: u64,
    /// Bytes that it keeps; 0 if they were not counted.
    pub(crate) used: u64,
    pub(crate) read_only: bool,
    pub(crate) held: bool,
    /// Whether others lie over it.
    pub(crate) is_base: bool,
    /// Whether the volume is being rolled back to it.
    pub(crate) is_merging: bool,
    pub(crate) kind: StoreKind,
    /// Whether it is in a pool; then its kind means nothing.
    pub(crate) is_thin: bool,
    pub(crate) target: Target,
}

/// A snapshot, for good: no other one ever has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// The store that it is in.
    pub(crate) store: Uuid,
    /// Its number there.
    pub(crate) number: u64,
}

impl SnapshotFacts {
    /// The snapshot as something that volumes lie over.
    pub(crate) const fn backing(&self) -> Backing {
        let Target { store, number } = self.target;
        Backing::Snapshot { store, number, created: self.created }
    }
}

impl Target {
    /// The snapshot that is below a volume, if it is one.
    pub(crate) const fn of(backing: Backing) -> Option<Target> {
        match backing {
            Backing::Snapshot { store, number, .. } => Some(Target { store, number }),
            Backing::Volume { .. } | Backing::Image { .. } => None,
        }
    }
}

/// A rollback that may have to be taken up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RollbackPoint {
    /// The snapshot.
    pub(crate) target: Target,
    /// Its size.
    pub(crate) bytes: u64,
    /// What a thin volume had before; it has another one once it was rolled back.
    pub(crate) mark: Option<u64>,
}

/// A removed snapshot whose space has not all come back.
pub(crate) struct Leaving {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) target: Target,
}
