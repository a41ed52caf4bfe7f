//! Devices over another device: exchanged, read-only, unaligned, on another thread, or with changes that stay in memory.

pub(super) mod overlay;
pub(super) mod portal;
pub(super) mod read_only;
pub(super) mod switch;
pub(super) mod unaligned;
