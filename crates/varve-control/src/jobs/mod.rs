//! Jobs: written down, run, shown, taken up again; and the work of each kind.

pub(super) mod clearing;
pub(super) mod committing;
pub(super) mod conversions;
pub(super) mod flatten;
pub(super) mod image_commit;
pub(super) mod image_jobs;
pub(super) mod job_list;
pub(super) mod known_jobs;
pub(super) mod moves;
pub(super) mod pool_check;
pub(super) mod rebuilds;
pub(super) mod record_states;
pub(super) mod records;
pub(super) mod registry;
pub(super) mod removal;
pub(super) mod rollback;
pub(super) mod runner;
pub(super) mod scrub;
pub(super) mod targets;
