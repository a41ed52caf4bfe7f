//! Epochs: which of the hosts of a group may write, one after the other.

use crate::layout::Field;

/// The term of a host. A later one is higher: a cluster that is made anew has a higher generation, and its revisions rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// Of the cluster.
    pub generation: u64,
    /// Of the cluster, at which the key of the host was created.
    pub revision: u64,
}

/// Where the fields of an epoch lie in a structure.
#[derive(Clone, Copy)]
pub(crate) struct EpochFields {
    pub(crate) generation: Field,
    pub(crate) revision: Field,
}

impl EpochFields {
    /// Of a structure that has an epoch of its own, from byte `offset` on.
    pub(crate) const fn own(offset: usize) -> Self {
        let generation =
            "of the cluster, of the epoch of the host that wrote it; 0 without a group of several hosts";
        let revision = "of the epoch: the cluster's revision at which that host's key was created; 0 without a group of several hosts";
        Self::new(offset, generation, revision)
    }

    /// Of a structure that follows a superblock.
    pub(crate) const fn followed(offset: usize) -> Self {
        let meaning = "of the epoch of the superblock that it follows";
        Self::new(offset, meaning, meaning)
    }

    const fn new(offset: usize, generation: &'static str, revision: &'static str) -> Self {
        Self {
            generation: Field::new(offset, 8, "epoch_generation", generation),
            revision: Field::new(offset + 8, 8, "epoch_revision", revision),
        }
    }

    pub(crate) fn get(&self, bytes: &[u8]) -> Epoch {
        Epoch { generation: self.generation.u64(bytes), revision: self.revision.u64(bytes) }
    }

    pub(crate) fn put(&self, bytes: &mut [u8], epoch: Epoch) {
        self.generation.put_u64(bytes, epoch.generation);
        self.revision.put_u64(bytes, epoch.revision);
    }
}
