//! Bugs that simulations put into a pool on purpose, to prove that their oracle would notice them.

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedBug {
    /// Records are written without a flush of the data before (breaks THIN1).
    MetadataBeforeData,
    /// Durable writes end before the commit (breaks THIN2).
    DurableBeforeCommit,
    /// Blocks are taken again in the transaction that freed them (breaks THIN5).
    ReuseAtOnce,
    /// Blocks are taken again or overwritten while requests may still read them (breaks THIN4 and THIN5).
    ForgetReaders,
    /// Shared blocks are overwritten in place (breaks THIN4).
    OverwriteShared,
    /// Blocks are overwritten in place that were shared at the last commit (breaks THIN4).
    OverwriteSharedLately,
    /// Blocks are taken again before the disks have answered to their discards (breaks DISCARD1 of `discards.rs`).
    PassDownLate,
    /// What is zeroed over an origin shows that origin again (breaks THIN6).
    UnmapOverOrigin,
    /// Records lead to what a growth has brought before a superblock describes it (breaks THIN10).
    GrowthUndescribed,
    /// A volume is in the trash before its commit (breaks POOLTRASH1 of `trash.rs`).
    TrashUncommitted,
    /// Nodes of any transaction are believed (breaks DESCENT3 of `pdata`).
    TrustGenerations,
}
