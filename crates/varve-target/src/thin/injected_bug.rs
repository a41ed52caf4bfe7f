//! Bugs that simulations put into a pool on purpose, to prove that their oracle would notice them.

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Records are written without a flush of the data before (breaks T1).
    MetadataBeforeData,
    /// Durable writes end before the commit (breaks T2).
    DurableBeforeCommit,
    /// Blocks are taken again in the transaction that freed them (breaks T5).
    ReuseAtOnce,
    /// Blocks are taken again or overwritten while requests may still read them (breaks T4 and T5).
    ForgetReaders,
    /// Shared blocks are overwritten in place (breaks T4).
    OverwriteShared,
    /// Blocks are overwritten in place that were shared at the last commit (breaks T4).
    OverwriteSharedLately,
    /// Blocks are taken again before the disks have answered to what they were told of them (breaks D1 of `discards.rs`).
    PassDownLate,
    /// What is zeroed over an origin shows that origin again (breaks T6).
    UnmapOverOrigin,
    /// Nodes of any transaction are believed (breaks D3 of `pdata`).
    TrustGenerations,
}
