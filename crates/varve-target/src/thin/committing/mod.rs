//! What becomes durable together, and when what was freed may be used again.

pub(super) mod checkpoint;
pub(super) mod commit;
pub(super) mod commits;
pub(super) mod discard_state;
pub(super) mod discards;
pub(super) mod keeping;
