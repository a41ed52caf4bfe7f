//! A pool that is not served, its metadata as text, and put aside.

pub(super) mod metadata_backup;
pub(super) mod offline;
pub(super) mod overlay;
pub(super) mod restore;
pub(super) mod text;
