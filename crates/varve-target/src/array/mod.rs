//! Arrays: mirrors and ddraid, with a log of the regions on which members may differ.
//!
//! What an array is made of and why is in `docs/decisions/0092-arrays.md`.

mod geometry;

pub use geometry::ArrayLayout;
pub use varve_format::text::MEMBER_METADATA_SIZE_MIN as METADATA_SIZE_MIN;
