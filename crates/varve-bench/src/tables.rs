//! The measurements themselves, one module a table.

pub(crate) mod layers;
pub(crate) mod mirrors;
pub(crate) mod nbd;
pub(crate) mod neighbour;
pub(crate) mod overlays;
pub(crate) mod pools;
pub(crate) mod qcow2;
pub(crate) mod snapshot;
