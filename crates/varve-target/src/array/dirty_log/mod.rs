//! The log of an array: which regions are dirty, where its copies are, and how new they are.

pub(super) mod log;
pub(super) mod log_change;
pub(super) mod log_copy;
pub(super) mod log_disk;
pub(super) mod replay;
pub(super) mod stamps;
