//! The groups that the control knows, and what it knows of their arrays.

use super::known_group::KnownGroup;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_vg::RefusedGroup;
use varve_volume::spec::Accepts;

/// By their ids.
#[derive(Default)]
pub(crate) struct Groups {
    /// Groups in use, as they were last committed (CONTROL2).
    pub(crate) known: RefCell<BTreeMap<Uuid, KnownGroup>>,
    /// Groups that were found and cannot be used.
    pub(crate) refused: RefCell<Vec<RefusedGroup>>,
    /// Groups that are looked at anew until it is known which version of them is valid (RESCAN2).
    pub(crate) undecided: RefCell<BTreeSet<Uuid>>,
    /// Groups that were found and are not served yet (CONVERGE4 of `controller`).
    pub(crate) unserved: RefCell<BTreeSet<Uuid>>,
}

/// What no text says of arrays.
#[derive(Default)]
pub(crate) struct Arrays {
    /// What a person has accepted of the arrays of volumes, while they are taken into use.
    pub(crate) accepted: RefCell<BTreeMap<Uuid, Accepts>>,
    /// How often arrays have gone on without what they have on a disk, by what its label says.
    pub(crate) ejections: RefCell<BTreeMap<Uuid, u64>>,
    /// Mismatches of the arrays of volumes and pools that a scrub has repaired since the daemon started.
    pub(crate) made_good: RefCell<BTreeMap<Uuid, u64>>,
}
