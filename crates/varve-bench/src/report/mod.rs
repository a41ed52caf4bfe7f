//! Figures and what they say: medians, goals, tables and pictures.

pub(super) mod goal;
pub(super) mod plot;
pub(super) mod sheet;
pub(super) mod stats;
pub(super) mod svg;
pub(super) mod table;
pub(super) mod verdict;
