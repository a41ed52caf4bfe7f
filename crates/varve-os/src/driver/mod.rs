//! What moves requests between a shard and the kernel: a ring, or threads.

pub(super) mod flight;
pub(super) mod helpers;
pub(super) mod pool;
pub(super) mod reactor;
pub(super) mod ring;
