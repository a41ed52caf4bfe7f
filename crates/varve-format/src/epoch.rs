//! Epochs: which of the hosts of a group may write, one after the other.

/// What the fields of an epoch mean.
pub(crate) const GENERATION_MEANING: &str =
    "of the cluster, of the epoch of the host that wrote it; 0 without a group of several hosts";
pub(crate) const REVISION_MEANING: &str = "of the epoch: the cluster's revision at which that host's key was created; 0 without a group of several hosts";

/// The term of a host. A later one is higher: a cluster that is made anew has a higher generation, and its revisions rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// Of the cluster.
    pub generation: u64,
    /// Of the cluster, at which the key of the host was created.
    pub revision: u64,
}
