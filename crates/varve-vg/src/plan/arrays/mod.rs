//! Plans that concern arrays and the layouts of volumes: members, logs, checksums, conversions, splits.

pub(super) mod array_policy;
pub(super) mod conversion;
pub(super) mod conversions;
pub(super) mod log;
pub(super) mod replace;
pub(super) mod split;
