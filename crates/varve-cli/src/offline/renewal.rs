//! What is asked for when a store or a pool's metadata is made anew, and what was done.

use super::damage::Loss;
use varve_api::{Code, Failure, Finding, Plan as ShownPlan};
use varve_block::IoError;
use varve_target::thin::Restored;
use varve_vg::model::{Group, LogicalVolume};
use varve_vg::open::CommitError;

/// What is to be done.
pub(super) struct Wish {
    /// The store: `VG/LV` or `VG/LV#N`.
    pub(super) store: String,
    /// The metadata to write; what the store itself says if not given.
    pub(super) text: Option<String>,
    /// Only tell.
    pub(super) dry_run: bool,
    /// The command, for the group's history.
    pub(super) command: String,
}

/// What was done, or would be.
pub(super) enum Renewed {
    /// Nothing was changed.
    Planned(ShownPlan),
    /// The old store is a volume now.
    Done(Box<Done>),
    /// A pool's metadata was written anew; the old one is in the volume of this name now, if it could be read.
    Pool {
        /// `VG/LV`.
        kept_as: Option<String>,
        /// What was written.
        restored: Restored,
        /// Whose bytes are lost.
        lost: Vec<Finding>,
    },
}

/// What was done.
pub(super) struct Done {
    /// `VG/LV` of the old store.
    pub(super) kept_as: String,
    /// `VG/LV` of the store's volume.
    pub(super) volume: String,
    /// Whose content could not be read, or found: these bytes are zeros in the copy.
    pub(super) losses: Vec<Loss>,
    /// Records of the log that could not be read.
    pub(super) lost_records: u64,
    /// The snapshots that may show newer content for that.
    pub(super) doubtful: Vec<String>,
}

/// A name for the old store that no volume has.
pub(super) fn kept_name(group: &Group, volume: &LogicalVolume) -> String {
    let name = |number: u32| format!("{}.store-{number}", volume.name);
    let free = (1..).find(|number| group.lv(&name(*number)).is_none());
    name(free.expect("a group has fewer volumes than there are numbers"))
}

pub(super) fn commit(error: &CommitError) -> Failure {
    let code = match error {
        CommitError::Plan(varve_vg::PlanError::NoSpace { .. }) => Code::NoSpaceInGroup,
        CommitError::Incomplete { .. } => Code::GroupIncomplete,
        _ => Code::Failed,
    };
    Failure::new(code, error.to_string()).help(error.help().replace('`', ""))
}

pub(super) fn io(store: &str, error: IoError) -> Failure {
    Failure::new(Code::MediumFailed, format!("{store}: {error}"))
}
