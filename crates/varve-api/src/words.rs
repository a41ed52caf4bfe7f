//! The words of the control plane: kinds and states, each with one spelling in JSON, in tables and on the command line.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
            #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
            pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)* }

            impl $name {
                /// All of them.
                pub const ALL: &[Self] = &[$($name::$variant),*];

                /// The word that stands for it in JSON and in tables.
                pub const fn word(self) -> &'static str {
                    match self { $($name::$variant => $word,)* }
                }
            }

            impl std::fmt::Display for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.pad(self.word())
                }
            }

            impl std::str::FromStr for $name {
                type Err = String;
                fn from_str(text: &str) -> Result<Self, String> {
                    match text {
                        $($word => Ok($name::$variant),)*
                        _ => Err(format!("{text:?} is none of: {}", [$($word),*].join(", "))),
                    }
                }
            }
        )*
    };
}

words! {
    /// How a disk is reached.
    Cache {
        /// Past the operating system's cache.
        Direct = "direct",
        /// Through it.
        Buffered = "buffered",
    }

    /// What there is to say of where a run of bytes is.
    MapKind {
        /// On one disk, as it is.
        Disk = "disk",
        /// Nowhere: it reads as zeros.
        Zeros = "zeros",
        /// Not in one place as it is: an array, an image or a program puts it somewhere.
        Layout = "layout",
    }

    /// What goes first when metadata finds no room in memory.
    CachePolicy {
        /// One after the other, whatever they are.
        RoundRobin = "round-robin",
        /// The one that came first.
        Fifo = "fifo",
        /// The one that was not used for longest.
        Lru = "lru",
        /// Old ones, unless they were used since they were last looked at.
        Sieve = "sieve",
    }

    /// When metadata is written.
    MetadataOrder {
        /// Later; a log comes before it.
        Logged = "logged",
        /// With each batch of changes.
        WriteThrough = "write-through",
    }

    /// What the daemon makes of a disk.
    PhysicalVolumeState {
        /// In a group and up to date.
        Ok = "ok",
        /// A write or flush failed, and it is unknown what of it is on the disk: it takes no writes until it is opened anew.
        Failed = "failed",
        /// Requests on it have been under way for some seconds, and none is answered.
        Stalled = "stalled",
        /// In use, but its file was deleted, or its path leads elsewhere: the next start does not find it.
        Unlinked = "unlinked",
        /// Labelled, but in no group.
        Unused = "unused",
        /// Named by a group, but not found.
        Missing = "missing",
        /// Its description of the group is older than that of others.
        Stale = "stale",
        /// Its label cannot be believed.
        Damaged = "damaged",
        /// Another disk carries the same label.
        Duplicate = "duplicate",
    }

    /// What the daemon makes of a group.
    GroupState {
        /// All disks are there.
        Ok = "ok",
        /// Disks are missing or stale; the group is not changed.
        Incomplete = "incomplete",
        /// A change reached only some of its disks; a scan finds out whether it is valid.
        Undecided = "undecided",
        /// Its description cannot be believed.
        Damaged = "damaged",
    }

    /// Whether anything needs a person.
    Health {
        /// Nothing does.
        Ok = "ok",
        /// Something does; `varve status` says what.
        Attention = "attention",
    }

    /// How much it matters that something is not as it should be.
    Severity {
        /// Volumes serve, and lose nothing: it becomes worse if it stays.
        Warning = "warning",
        /// Requests wait or fail, or content is lost or will be when the daemon ends.
        Critical = "critical",
    }

    /// What is not as it should be; `docs/status.md` says when each begins and ends.
    ProblemKind {
        /// A write or flush of a disk failed, or it became shorter: it is out of use.
        DiskFailed = "disk-failed",
        /// Requests of a disk wait, and none is answered.
        DiskStalled = "disk-stalled",
        /// A disk of a group is not there.
        DiskMissing = "disk-missing",
        /// A disk has an old description of its group.
        DiskStale = "disk-stale",
        /// The label of a disk is not valid.
        DiskDamaged = "disk-damaged",
        /// Another disk carries the same label.
        DiskDuplicate = "disk-duplicate",
        /// Requests of a disk failed since it was scanned last.
        DiskErrors = "disk-errors",
        /// The file of a disk was deleted, or its path leads elsewhere: the next start does not find it.
        DiskUnlinked = "disk-unlinked",
        /// No spare takes the place of a disk.
        DiskNotReplaced = "disk-not-replaced",
        /// The file system below a disk or image has no room.
        HostFull = "host-full",
        /// Disks of a group are missing or stale.
        GroupIncomplete = "group-incomplete",
        /// A change reached only some disks of a group.
        GroupUndecided = "group-undecided",
        /// A group cannot be used.
        GroupDamaged = "group-damaged",
        /// Members of an array are not in sync.
        ArrayDegraded = "array-degraded",
        /// Members of an array differ.
        ArrayMismatch = "array-mismatch",
        /// A volume or pool takes no changes since one failed.
        VolumeFailing = "volume-failing",
        /// Something in a volume or pool panicked.
        VolumeFailed = "volume-failed",
        /// A volume or pool cannot be used.
        VolumeUnusable = "volume-unusable",
        /// The mapper of a volume is away.
        MapperAway = "mapper-away",
        /// The mapper of a volume is connected and does not answer.
        MapperSilent = "mapper-silent",
        /// Writes wait for space.
        SpaceWaited = "space-waited-for",
        /// Writes failed for want of space, and none has come since.
        SpaceRefused = "space-refused",
        /// A pool that is over-committed is nearly full and cannot grow.
        PoolFull = "pool-full",
        /// A snapshot was dropped to make room.
        SnapshotDropped = "snapshot-dropped",
        /// A schedule of snapshots could not run.
        ScheduleFailed = "schedule-failed",
        /// The file of an image, or of one below it, was cut short while it was in use.
        ImageCutOff = "image-cut-off",
        /// The file of an image was deleted, and is kept only because it is open.
        ImageDeleted = "image-deleted",
        /// The path of an image leads to its file no more: the next start does not find it.
        ImageMoved = "image-moved",
        /// An export is not served.
        ExportDown = "export-down",
        /// The TLS credentials of an export expire soon, or cannot be read.
        ExportCredentials = "export-credentials",
        /// What is remembered cannot be written.
        StateUnwritable = "state-unwritable",
    }

    /// How a volume's bytes are laid on disks.
    Layout {
        /// One after the other.
        Linear = "linear",
        /// Round robin over several disks.
        Striped = "striped",
        /// In a pool, block by block as it is written.
        Thin = "thin",
        /// On no disk: it reads as zeros, and what is written is dropped.
        Zero = "zero",
        /// On no disk: every read and write fails.
        Error = "error",
        /// In a disk image: a file or disk of the host that is none of the group's.
        Image = "image",
        /// Several copies.
        Mirror = "mirror",
        /// Divided over a power of two of disks, with parity.
        Ddraid = "ddraid",
        /// Where a program of the user's says.
        Mapper = "mapper",
    }

    /// From which members of an array its data is read.
    ReadPolicy {
        /// Those that hold the data; of a mirror the first.
        Data = "data",
        /// All of them in turn.
        Rotate = "rotate",
        /// All of them, and they are compared.
        Verify = "verify",
    }

    /// What the content of an array's member is worth.
    MemberState {
        /// It is read and written.
        InSync = "in-sync",
        /// It is not believed, and not written.
        Away = "away",
        /// It is written, and not read: what it missed is being written to it.
        CatchingUp = "catching-up",
        /// The array is not in use: it is unknown.
        Unknown = "unknown",
    }

    /// Whether a volume or snapshot can be used.
    VolumeState {
        /// It can.
        Active = "active",
        /// It can, but members of its array are not in sync: while they are not, another disk that fails may lose data. Its
        /// `reason` says which.
        Degraded = "degraded",
        /// It can be read, but takes no changes any more since one failed; its `reason` says how it is opened anew.
        Failing = "failing",
        /// Something in it panicked; it is out of use until it is activated.
        Failed = "failed",
        /// It was deactivated.
        Inactive = "inactive",
        /// Not yet: what others wrote to its extents is being cleared.
        Clearing = "clearing",
        /// The program that maps it is away: what it said is known, other requests wait for it.
        Waiting = "waiting",
        /// It cannot; its `reason` says why.
        Unusable = "unusable",
    }

    /// Whether a schedule of snapshots runs.
    ScheduleState {
        /// It does.
        Active = "active",
        /// It could not, and tries again.
        Failing = "failing",
        /// A volume of it was deactivated, or its group is not in use: it runs when that is in use again.
        Paused = "paused",
    }

    /// Whether a snapshot can be used.
    SnapshotState {
        /// It can.
        Active = "active",
        /// It can, but members of its array are not in sync: while they are not, another disk that fails may lose data. Its
        /// `reason` says which.
        Degraded = "degraded",
        /// It is being removed.
        Removing = "removing",
        /// Its origin is being rolled back to it.
        Merging = "merging",
        /// Its content was lost because the store was full, or is damaged.
        Unusable = "unusable",
    }

    /// How a snapshot keeps old content.
    SnapshotMode {
        /// Each old chunk is kept once, by the newest snapshot that needs it.
        Dependent = "dependent",
        /// Every snapshot keeps all of its own.
        Independent = "independent",
        /// A snapshot of a thin volume: it shares blocks with it, and is like it in everything.
        Thin = "thin",
    }

    /// What becomes of a write that needs a copy for which there is no room.
    WhenFull {
        /// It waits, for a while.
        Pause = "pause",
        /// The oldest snapshots that are not held go.
        DropOldest = "drop-oldest",
        /// It fails.
        Error = "error",
    }

    /// What becomes of what clients discard in a pool.
    Discards {
        /// Nothing.
        Ignore = "ignore",
        /// It is free in the pool.
        Keep = "keep",
        /// And blocks that are no longer needed are discarded on the disks.
        PassDown = "pass-down",
    }

    /// Whether a pool may promise its volumes more than it has.
    OverCommit {
        /// It may.
        Allow = "allow",
        /// No volume or snapshot is made or grows beyond that.
        Forbid = "forbid",
    }

    /// A protocol by which a volume can be reached.
    Door {
        /// Network block device.
        Nbd = "nbd",
        /// A file through FUSE.
        Fuse = "fuse",
        /// A user-space block device of the kernel.
        Ublk = "ublk",
        /// A virtio disk of a virtual machine.
        VhostUser = "vhost-user",
        /// A block device of this kernel, by its NBD client.
        KernelNbd = "kernel-nbd",
    }

    /// Whether an export serves.
    ExportState {
        /// It does.
        Serving = "serving",
        /// It does not; its `reason` says why.
        Down = "down",
    }

    /// How a job stands.
    JobState {
        /// At work.
        Running = "running",
        /// Ended, and did it.
        Done = "done",
        /// Ended with an error.
        Failed = "failed",
        /// Ended by a person.
        Cancelled = "cancelled",
    }
}
