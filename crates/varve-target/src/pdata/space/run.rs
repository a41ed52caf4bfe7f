//! What a run of blocks is.

/// A run of blocks: first and number.
pub(in super::super) type Run = (u64, u64);
