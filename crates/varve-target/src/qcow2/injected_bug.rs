//! Bugs that simulations put into an image on purpose, to prove that their oracle would notice them.

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedBug {
    /// Entries are written before it is durable that what they lead to is in use, and holds its data (breaks QCOMMIT1).
    EntriesBeforeCounts,
    /// Entries are written while data may be in the disk's cache (breaks QCOMMIT1).
    EntriesBeforeData,
    /// What an entry led to is free before the change of the entry is durable (breaks QCOUNT1).
    FreeBeforeEntries,
    /// The header leads to a longer L1 table before that is durable (breaks QGROW1).
    SizeBeforeTable,
    /// The header says that nothing is below before what was copied is durable (breaks QFLAT2).
    ForgetBeforeData,
    /// What is copied from below is not looked at again once it is held (breaks QFLAT1).
    PullUnseen,
    /// Entries of what was given away are written before it is durable below (breaks QPUSH1).
    EntriesBeforeBelow,
    /// Clusters are not held while what they hold is given away (breaks QPUSH3).
    PushUnheld,
    /// An image is opened without a flush (breaks QOPEN1).
    OpenUnflushed,
    /// A read of one run does not keep its place from being used again (breaks QWRITE2).
    ReadUnguarded,
}
