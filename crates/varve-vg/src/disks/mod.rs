//! One disk of a group: its label, its metadata, their second copy, and what tells it from others.

pub mod create;
pub(super) mod disk;
pub(super) mod free_disk;
pub mod held;
pub mod identity;
pub mod relabel;
pub(super) mod tail;
