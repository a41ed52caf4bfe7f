//! Arrays: mirrors and ddraid, with a log of the regions on which members may differ.
//!
//! What an array is made of and why is in `docs/decisions/0092-arrays.md`.

mod geometry;

pub use geometry::ArrayLayout;

use varve_block::MIB;

/// The least metadata in front of a member's data, in bytes; it is a whole number of extents of the group.
pub const METADATA_SIZE_MIN: u64 = MIB;
