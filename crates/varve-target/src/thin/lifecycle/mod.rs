//! Volumes and snapshots: made, named, rolled back, detached from their origins, removed.

pub(super) mod flatten;
pub(super) mod manage;
pub(super) mod name_index;
pub(super) mod origin;
pub(super) mod removal;
pub(super) mod rollback;
pub(super) mod trash;
pub(super) mod volume;
pub(super) mod volumes;
