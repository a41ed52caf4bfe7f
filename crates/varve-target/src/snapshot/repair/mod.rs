//! A store that is walked, that contradicts itself, or is damaged; its metadata as text.

pub(super) mod check;
pub(super) mod contradiction;
pub(super) mod report;
pub(super) mod salvage;
pub(super) mod text;
