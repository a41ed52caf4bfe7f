//! Where things lie in a pool.

/// Where things lie in a pool; constant for its life.
#[derive(Clone, Copy, Debug)]
pub(in crate::thin) struct Layout {
    pub(in crate::thin) block_size: u64,
    pub(in crate::thin) slot_blocks: u64,
    pub(in crate::thin) log_blocks: u64,
}

/// The length of something in memory.
pub(in crate::thin) fn index(length: u64) -> usize {
    usize::try_from(length).expect("what is in memory is shorter than the address space")
}
