//! Bugs that simulations put into an array on purpose, to prove that their oracle would notice them.

/// Faults that can be built in on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedBug {
    /// Regions are written before their mark is durable (breaks ARRAYIO1).
    WriteBeforeMark,
    /// A mark is cleared before the members have flushed (breaks ARRAYIO2).
    ClearBeforeFlush,
    /// A region is made equal, or a member caught up, while it is written (breaks ARRAYIO4).
    ResyncBesideWriters,
    /// A dirty region is reconstructed after a crash with a data member missing (breaks ARRAYIO5).
    ReconstructDirty,
    /// That the loss of a region was accepted is not recorded: a member that returns is believed there (breaks ACCEPT1).
    AcceptUnrecorded,
    /// A member that others call away is believed (breaks ELECTION2).
    BelieveStale,
    /// Writes are acknowledged before it is durable that a member missed them (breaks ARRAYIO3).
    AcknowledgeBeforeEjection,
    /// A write to an array of ddraid with a missing data member is not logged first (breaks ARRAYIO6).
    SkipContent,
    /// A region becomes clean before its pages of checksums are written (breaks PAGES1).
    ClearBeforePages,
    /// Pages of checksums are not flushed before their region becomes clean (breaks PAGES1).
    ClearBeforePagesFlushed,
    /// Members are made equal and their checksums stay what they were (breaks PAGES2).
    ResyncWithoutChecksums,
    /// A flush ends before the pages of checksums are written (breaks PAGES3).
    FlushBeforePages,
    /// What was read while a member was missing is not kept when it returns (breaks ARRAYLOST3).
    ForgetReadBlocks,
    /// What was written to lost regions is not in the superblock (breaks ARRAYLOST4).
    ForgetKnown,
    /// A scrub compares members, and writes what is authoritative, while clients write (breaks ARRAYIO4).
    ScrubBesideWriters,
    /// What is on a log disk is believed although the log has gone on elsewhere (breaks LOGDISK1).
    BelieveStaleLog,
    /// A log whose disk is missing is taken as empty (breaks LOGDISK3).
    ForgetLostLog,
    /// A member is as new as its superblock's number says (breaks STAMP3 and STAMP4).
    NumbersAlone,
    /// What is clean is no stamp (breaks STAMP1).
    StampMarksAlone,
    /// What is marked is no stamp (breaks STAMP1).
    StampCleansAlone,
    /// A member that lacks the newest stamp decides what dirty regions hold (breaks STAMP5).
    ResyncFromBehind,
    /// A member that was too slow is taken back while requests are under way on it (breaks SLOW1).
    BelieveSlow,
}

impl InjectedBug {
    /// Whether an array must have a log disk to have it.
    pub fn is_of_log_disks(self) -> bool {
        matches!(self, Self::BelieveStaleLog | Self::ForgetLostLog)
    }

    /// Whether an array must have checksums to have it.
    pub fn is_of_checksums(self) -> bool {
        matches!(
            self,
            Self::ClearBeforePages
                | Self::ClearBeforePagesFlushed
                | Self::ResyncWithoutChecksums
                | Self::FlushBeforePages
                | Self::ForgetReadBlocks
        )
    }
}
