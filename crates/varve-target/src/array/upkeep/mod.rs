//! What an array does beside its requests: members made equal, caught up, scrubbed; lost regions verified.

pub(super) mod background;
pub(super) mod lost;
pub(super) mod lost_regions;
pub(super) mod mend;
pub(super) mod pace;
pub(super) mod region_work;
pub(super) mod resync;
pub(super) mod scrub;
