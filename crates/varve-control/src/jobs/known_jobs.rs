//! The jobs that the control knows.

use super::committing::Committing;
use super::job_list::Jobs;
use super::record_states::Records;
use super::targets::JobTargets;

/// Those that run or ended lately, and those that are recorded in the texts of groups.
#[derive(Default)]
pub(crate) struct KnownJobs {
    pub(crate) list: Jobs,
    pub(crate) records: Records,
    pub(crate) targets: JobTargets,
    /// Volumes whose images give what they hold to the images below them.
    pub(crate) committing: Committing,
}
