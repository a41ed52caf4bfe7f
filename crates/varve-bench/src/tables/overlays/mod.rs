//! Disks that begin as copies of one image: booted, and copied to.

pub(crate) mod overlay;
pub(crate) mod overlay_boot;
pub(crate) mod overlay_copy;
