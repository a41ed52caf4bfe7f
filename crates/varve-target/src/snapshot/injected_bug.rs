//! Bugs that simulations put into a store on purpose, to prove that their oracle would notice them.

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedBug {
    /// Records are not durable when the origin is changed (breaks SNAPSHOT1 and SNAPSHOT3).
    SkipFlush,
    /// The origin is changed before the record is written (breaks SNAPSHOT1).
    EntryAfterWrite,
    /// At a removal the older snapshot does not get what it needs.
    SkipMerge,
    /// What was written to a newer snapshot is taken for preserved content.
    WrittenAsPreserved,
    /// Freed space is used again at once (breaks SNAPSHOT5).
    ReuseAtOnce,
    /// What was written to snapshots is forgotten when they are compared.
    DiffWithoutWritten,
    /// The log does not say what a rollback has restored, or changes have replaced (breaks ROLLBACK3).
    SkipRestoredMark,
    /// The log says so before it is true (breaks ROLLBACK3).
    MarkBeforeReplacing,
    /// A rollback preserves nothing for newer snapshots (breaks ROLLBACK4).
    RestoreUnpreserved,
    /// A rollback drops all that was preserved of what it has restored (breaks ROLLBACK8).
    DropNeeded,
    /// A table names snapshots of which the log does not say yet that they exist (breaks CONTENTS3).
    NameAnnounced,
    /// Freed space is used again although a read of it may be under way (breaks the second half of SNAPSHOT5).
    ReuseWhileRead,
    /// Records lead to what a growth has brought before a superblock describes it (breaks SNAPSHOT10).
    GrowthUndescribed,
    /// A new name is only in memory, and in the next table.
    RenameUnlogged,
    /// Nodes of any transaction are believed (breaks DESCENT3 of `pdata`).
    TrustGenerations,
}
