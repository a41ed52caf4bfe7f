//! The measurements, one file a table.

pub(crate) mod engine;
pub(crate) mod layers;
pub(crate) mod nbd;
pub(crate) mod snapshots;
