//! Figures and what they say: medians, goals and pictures.

pub(super) mod goal;
pub(super) mod plot;
pub(super) mod sheet;
pub(super) mod stats;
pub(super) mod svg;
