//! Disk images and mappers: beside QEMU, in chains, and below thin volumes.

pub(super) mod image_chains;
pub(super) mod image_files;
pub(super) mod image_peers;
pub(super) mod image_thin;
pub(crate) mod images;
pub(super) mod mappers;
