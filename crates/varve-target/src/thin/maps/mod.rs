//! The maps of volumes: what their leaves say, what of it is believed, and where it leads.

pub(super) mod belief;
pub(super) mod bounds;
pub(super) mod diff;
pub(super) mod layout;
pub(super) mod mapping;
pub(super) mod places;
pub(super) mod read_view;
pub(super) mod ref_counts;
pub(super) mod runs;
