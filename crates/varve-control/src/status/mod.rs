//! What is as it should not be, and what happened: for status, events and metrics.

pub(super) mod events;
pub(super) mod figures;
pub(super) mod looks;
pub(super) mod problems;
pub(super) mod watch;
