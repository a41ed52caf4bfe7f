//! The exports that the control knows, and what their doors share.

use super::known_export::KnownExport;
use std::cell::RefCell;
use std::collections::BTreeMap;
use varve_volume::doors::nbd::DoorResources;

/// By their ids.
pub(crate) struct Exports {
    pub(crate) known: RefCell<BTreeMap<String, KnownExport>>,
    pub(crate) doors: DoorResources,
}
