//! What is not as it should be, and what happened: for status, events and metrics.

pub(super) mod events;
pub(super) mod figures;
pub(super) mod looks;
pub(super) mod problems;
pub(super) mod watch;
