//! Where things lie in a pool.

/// Where things lie in a pool; constant for its life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) block_size: u64,
    pub(super) slot_blocks: u64,
    pub(super) log_blocks: u64,
}

/// The length of something in memory.
pub(super) fn index(length: u64) -> usize {
    usize::try_from(length).expect("what is in memory is shorter than the address space")
}
