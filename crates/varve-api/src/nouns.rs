//! What there is: disks, groups, volumes, snapshots, exports, jobs, plans, as they are shown.

use crate::array::Array;
use crate::metadata::GroupMetadata;
use crate::traffic::Traffic;
use crate::trash::GroupTrash;
use crate::words::{
    Cache, Discards, GroupState, Health, Layout, OverCommit, PhysicalVolumeState, ScheduleState,
    SnapshotMode, SnapshotState, VolumeState, WhenFull,
};
use serde::{Deserialize, Serialize};

macro_rules! nouns {
    ($($(#[$meta:meta])* $kind:ident $name:ident $body:tt)*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
            pub $kind $name $body
        )*
    };
}

nouns! {
    /// A disk, partition or file that carries Varve's label.
    struct PhysicalVolume {
        /// Where it is; none if it is missing and never was seen by this daemon.
        pub path: Option<String>,
        /// Its identity, which it keeps wherever it moves.
        pub id: String,
        /// The group it belongs to.
        pub group: Option<String>,
        /// What its group calls it, as in plans and histories.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// The least bytes that can be written to it, if it is here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sector_logical: Option<u32>,
        /// The least bytes that it writes without reading first, if it is here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sector_physical: Option<u32>,
        /// Whether it is kept for members of arrays whose disks fail.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub spare: bool,
        /// What the daemon makes of it.
        pub state: PhysicalVolumeState,
        /// Why, if the state is not a good one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Bytes for extents (of an unused disk: all bytes).
        pub size: u64,
        /// Bytes in free extents.
        pub free: u64,
        /// Bytes of the file or device, if it has become larger than its label says: what is behind that is not used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub grown_to: Option<u64>,
        /// How it is reached.
        pub cache: Cache,
        /// Requests that failed since the daemon opened it.
        pub errors: u64,
        /// Requests that took a second or longer since then.
        pub slow: u64,
        /// How often arrays have gone on without what they have on it since the daemon began.
        pub ejections: u64,
    }

    /// A volume group.
    struct Group {
        /// Its name.
        pub name: String,
        /// Its identity, which it keeps when it is renamed.
        pub id: String,
        /// What the daemon makes of it.
        pub state: GroupState,
        /// Why, if the state is not a good one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Whether anything about it, its disks, volumes or pools needs a person; in lists.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub health: Option<Health>,
        /// Bytes in an extent.
        pub extent_size: u64,
        /// Bytes in all extents of the disks.
        pub size: u64,
        /// Bytes in free extents.
        pub free: u64,
        /// Number of the last committed change.
        pub sequence: u64,
        /// Its disks.
        pub physical_volumes: Vec<PhysicalVolume>,
        /// Names of its volumes.
        pub volumes: Vec<String>,
        /// How the metadata of its snapshot stores and pools is kept, if that can be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub metadata: Option<GroupMetadata>,
        /// What its trash holds, if that can be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub trash: Option<GroupTrash>,
    }

    /// A run of a volume on one or more disks.
    struct Segment {
        /// First byte in the volume.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
        /// The disks, and the first byte on each, in the order of the stripes, or of an array's members: `PATH:OFFSET`.
        pub areas: Vec<String>,
    }

    /// Where a volume keeps what its snapshots need.
    struct SnapshotStore {
        /// Bytes taken from the group.
        pub size: u64,
        /// Bytes in use.
        pub used: u64,
        /// Bytes in a chunk.
        pub chunk_size: u64,
        /// Whether writes that need a copy wait for space.
        #[serde(default)]
        pub paused: bool,
        /// Whether writes failed for want of space, and none has come since.
        #[serde(default)]
        pub refusing: bool,
        /// Whether it is extended when it is nearly full, as far as is known.
        #[serde(default)]
        pub can_grow: bool,
        /// Snapshots that were dropped for want of space since the daemon started.
        #[serde(default)]
        pub dropped: u64,
        /// Writes that waited for space in vain since the daemon started.
        #[serde(default)]
        pub timed_out: u64,
    }

    /// When a snapshot store is extended by itself, and by how much.
    #[derive(Copy, Eq)]
    struct AutoExtend {
        /// When so much of it is taken, in percent.
        pub at_percent: u64,
        /// By so much of its size, in percent.
        pub by_percent: u64,
    }

    /// What a volume declares for its snapshot stores.
    #[derive(Copy, Eq)]
    struct SnapshotPolicy {
        /// What becomes of a write that needs a copy for which there is no room, and none to be had.
        pub when_full: WhenFull,
        /// How long such a write waits at most, in milliseconds.
        pub pause_timeout_ms: u64,
        /// When a store grows by itself; never if null.
        pub auto_extend: Option<AutoExtend>,
    }

    /// The disk image in which a volume is.
    #[derive(Eq)]
    struct VolumeImage {
        /// Its path.
        pub path: String,
        /// `raw` or `qcow2`.
        pub format: String,
        /// Bytes of the disk in it, if it has become larger than the volume: `lv extend` takes them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub grown_to: Option<u64>,
    }

    /// What a thin volume holds in its pool.
    #[derive(Eq)]
    struct ThinUse {
        /// `VG/POOL`.
        pub pool: String,
        /// Bytes that have space in the pool.
        pub mapped: u64,
        /// Bytes of them that no other volume holds: what comes back if the volume alone is removed.
        pub exclusive: u64,
        /// Bytes of them that others hold too.
        pub shared: u64,
        /// `VG/LV@SNAP`, or a read-only `VG/LV`, or the path of a disk image, which shows where nothing is mapped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub origin: Option<String>,
    }

    /// A thin pool.
    struct Pool {
        /// `VG/POOL`.
        pub name: String,
        /// Its identity.
        pub id: String,
        /// The group.
        pub group: String,
        /// Bytes taken from the group.
        pub size: u64,
        /// Bytes in a block.
        pub block_size: u64,
        /// Bytes that volumes and their maps take.
        pub allocated: u64,
        /// Bytes that volumes may still take; the rest is kept for maps.
        pub free: u64,
        /// How much of what volumes may take is taken, in percent.
        pub percent: u64,
        /// Sum of the sizes of all volumes and snapshots.
        pub virtual_size: u64,
        /// How often the pool's size is promised.
        pub ratio: f64,
        /// Whether it can be used.
        pub state: VolumeState,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Seconds since 1970 when it was made.
        pub created: u64,
        /// The thread that serves it.
        pub shard: u32,
        /// Number of volumes.
        pub volumes: u32,
        /// Number of volumes in the trash, which go before a write fails for want of space.
        #[serde(default)]
        pub trashed: u32,
        /// Number of snapshots.
        pub snapshots: u32,
        /// Removed volumes and snapshots whose space has not all come back.
        pub removing: u32,
        /// Whether writes wait for space.
        pub paused: bool,
        /// Whether writes failed for want of space, and none has come since.
        #[serde(default)]
        pub refusing: bool,
        /// Whether it is extended when it is nearly full, as far as is known.
        #[serde(default)]
        pub can_grow: bool,
        /// Writes that waited for space in vain since the daemon started.
        pub timed_out: u64,
        /// What is done when it fills.
        pub policy: SnapshotPolicy,
        /// What becomes of discards.
        pub discards: Discards,
        /// Whether it may promise its volumes more than it has.
        pub over_commit: OverCommit,
        /// The most that it can promise and keep, in bytes.
        pub promise_max: u64,
        /// Its members, if it is an array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub array: Option<Array>,
        /// Where it is.
        pub segments: Vec<Segment>,
    }

    /// A program that says where the bytes of a volume lie.
    #[derive(Eq)]
    struct Mapper {
        /// Where it is asked: `unix:PATH`.
        pub address: String,
        /// How long a request waits for its answer, in milliseconds.
        pub wait_ms: u64,
        /// The volumes that it may name, `VG/LV`: its devices 0, 1, ...
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub devices: Vec<String>,
        /// Whether there is a connection to it.
        pub connected: bool,
        /// Ranges of which the answers are kept.
        pub answers: u64,
        /// Those of them that it has not made durable.
        pub unflushed: u64,
        /// Questions that it was asked since the volume is in use.
        pub questions: u64,
        /// Answers that were refused since then: they named what they must not.
        pub refused: u64,
        /// Requests that failed since then because no answer came in time.
        pub timeouts: u64,
    }

    /// A logical volume.
    struct LogicalVolume {
        /// `VG/LV`.
        pub name: String,
        /// Its identity.
        pub id: String,
        /// The group.
        pub group: String,
        /// How it is laid out.
        pub layout: Layout,
        /// Disks side by side; 1 if it is not striped.
        pub stripes: u32,
        /// Bytes on one disk before the next one's turn; 0 if it is not striped.
        pub stripe_size: u64,
        /// Bytes.
        pub size: u64,
        /// Whether it can be used.
        pub state: VolumeState,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Seconds since 1970 when it was made.
        pub created: u64,
        /// The thread that serves it.
        pub shard: u32,
        /// Number of snapshots.
        pub snapshots: u32,
        /// Where its snapshots keep old content, once there was one.
        pub snapshot_store: Option<SnapshotStore>,
        /// The stores of its independent snapshots, one each.
        #[serde(default)]
        pub independent_stores: Vec<SnapshotStore>,
        /// What is done when a store fills.
        pub snapshot_policy: SnapshotPolicy,
        /// What it holds in its pool, if it is thin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub thin: Option<ThinUse>,
        /// Identifiers of its exports.
        pub exports: Vec<String>,
        /// The disk image in which it is, if it is in one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub image: Option<VolumeImage>,
        /// Its members, if it is an array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub array: Option<Array>,
        /// The program that maps it, if one does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mapper: Option<Mapper>,
        /// The volume of whose mapper it is a device, `VG/LV`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub granted_to: Option<String>,
        /// Where it is; of a thin volume the pool knows.
        pub segments: Vec<Segment>,
        /// What went through it.
        pub traffic: Traffic,
    }

    /// A state of a volume that is kept.
    struct Snapshot {
        /// `VG/LV@SNAP`.
        pub name: String,
        /// `VG/LV`.
        pub volume: String,
        /// Bytes that it shows.
        pub size: u64,
        /// Bytes of chunks that the snapshot itself keeps; older ones may read them too. In a pool, what no other volume holds.
        pub used: u64,
        /// Seconds since 1970 when it was made.
        pub created: u64,
        /// How it keeps old content.
        pub mode: SnapshotMode,
        /// Whether it may not be written.
        pub read_only: bool,
        /// Whether it is protected against removal.
        pub held: bool,
        /// Whether volumes are backed by it, and protect it as long as they are.
        #[serde(default)]
        pub base: bool,
        /// Whether it can be used.
        pub state: SnapshotState,
        /// Identifiers of its exports.
        pub exports: Vec<String>,
    }

    /// When snapshots of volumes are made, and how many of them stay.
    struct Schedule {
        /// `VG/NAME`.
        pub name: String,
        /// Its identity, which it keeps whatever it is called.
        pub id: String,
        /// The group that it belongs to.
        pub group: String,
        /// The volumes of which it makes snapshots, all at one instant: `VG/LV`.
        pub volumes: Vec<String>,
        /// Seconds between two runs, which are due at multiples of that since 1970 in UTC.
        pub every: u64,
        /// How many of its snapshots stay, as in `24h,7d,4w,12m`.
        pub keep: String,
        /// Seconds since 1970 when it was made.
        pub created: u64,
        /// Seconds since 1970 when it ran last, if it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub last_run: Option<u64>,
        /// Seconds since 1970 when it is to run next; in the past if it is late.
        pub next_run: u64,
        /// How many snapshots that it made were there when it ran last.
        pub kept: u64,
        /// Whether it runs.
        pub state: ScheduleState,
        /// Why, if the state is not a good one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The snapshots that it made and that are there, the oldest first; only where it is shown alone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub snapshots: Vec<String>,
    }

    /// What a run of a schedule has done.
    struct ScheduleRan {
        /// The snapshots that it made.
        pub made: Vec<String>,
        /// Those that it removes: their space comes back in a job.
        pub removed: Vec<String>,
        /// That job, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub job: Option<String>,
    }

    /// A run of bytes.
    struct ByteExtent {
        /// The first byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
    }

    /// Where two states of a volume differ.
    struct SnapshotDiff {
        /// One state: `VG/LV@SNAP`.
        pub from: String,
        /// The other: `VG/LV@SNAP`, or `VG/LV` for the volume as it was at that moment.
        pub to: String,
        /// Whether an extent is listed only if something in it was written. Between two independent snapshots, whose
        /// stores know nothing of each other, what was changed after both is listed too.
        pub exact: bool,
        /// Bytes of all extents.
        pub bytes: u64,
        /// In order, apart from each other, as long as they can be.
        pub extents: Vec<ByteExtent>,
    }

    /// What a change would do.
    struct Plan {
        /// Always true: nothing was changed.
        pub dry_run: bool,
        /// Sentences that begin with "would".
        pub steps: Vec<String>,
        /// Bytes that the change takes from the group.
        pub bytes_taken: u64,
        /// Bytes that it gives back.
        pub bytes_freed: u64,
    }

    /// A group whose description was written back.
    struct Restored {
        /// The group as it is now.
        #[serde(flatten)]
        pub group: Group,
        /// Volumes and pools that it has no more.
        pub dropped: Vec<String>,
        /// Volumes and pools that it has again.
        pub added: Vec<String>,
    }

    /// A group's description as text.
    struct Backup {
        /// The group.
        pub group: String,
        /// Number of the change that it describes.
        pub sequence: u64,
        /// The text, to be given to `restore` as it is.
        pub text: String,
    }

    /// A change that a group has seen.
    struct HistoryEntry {
        /// Its number.
        pub sequence: u64,
        /// Seconds since 1970.
        pub time: u64,
        /// What was done.
        pub change: String,
    }

    /// The changes that the disks still remember.
    struct History {
        /// The group.
        pub group: String,
        /// The newest first.
        pub entries: Vec<HistoryEntry>,
    }
}

impl Plan {
    /// A plan that takes and frees nothing.
    pub fn of_steps(steps: Vec<String>) -> Self {
        Self { dry_run: true, steps, bytes_taken: 0, bytes_freed: 0 }
    }

    /// This plan, and then another one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.steps.extend(other.steps);
        self.bytes_taken += other.bytes_taken;
        self.bytes_freed += other.bytes_freed;
        self
    }
}
