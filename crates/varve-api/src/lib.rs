//! The control plane's nouns and calls, serializable and versioned, and nothing else.
//!
//! Every answer is an [`Envelope`]: `{"schema":"varve.v1","data":…}` or `{"schema":"varve.v1","error":…}`. Sizes are
//! exact integers in bytes; dates are seconds since 1970. What a command prints with `--json` is the very body that
//! the daemon's HTTP interface answers.

mod array;
pub mod calls;
mod catalogue;
mod check;
mod code;
mod envelope;
mod export;
mod job;
mod metadata;
mod nouns;
mod queries;
mod requests;
mod restore;
mod schedule;
mod status;
mod traffic;
mod trash;
mod volume_map;
mod words;

pub use array::{Array, ArrayLog, ArrayMember, RegionRun, Scrub, VolumeArray};
pub use check::{Check, CheckedDisk, Finding};
pub use code::{Code, Exit, Explanation};
pub use envelope::{Changed, Empty, Envelope, Failure, SCHEMA};
pub use export::{Export, ExportAccess, ExportLimits, ExportTls, FileMode};
pub use job::Job;
pub use metadata::{GroupMetadata, MetadataMemory, MetadataWords};
pub use nouns::{
    AutoExtend, Backup, ByteExtent, Group, History, HistoryEntry, LogicalVolume, Mapper, PhysicalVolume,
    Plan, Pool, Restored, Schedule, ScheduleRan, Segment, Snapshot, SnapshotDiff, SnapshotPolicy,
    SnapshotStore, ThinUse, VolumeImage,
};
pub use queries::{Between, ByteRange, InGroup, OfVolume, Timeout};
pub use requests::{
    Activate, ArrayChange, ArrayFail, ArrayPolicyWords, ArrayRebuild, ArrayReplace, ArrayScrub, Commit,
    Convert, Deactivate, DryRun, ExportChange, ExportCreate, ExportRemove, Flatten, GroupChange, GroupCreate,
    GroupExtend, GroupReduce, JobCancel, PhysicalVolumeChange, PhysicalVolumeCreate, PhysicalVolumeMove,
    PhysicalVolumeRemove, PhysicalVolumeReplace, PhysicalVolumeResize, PhysicalVolumeScan, PolicyWords,
    PoolChange, PoolCreate, Remove, Rename, Resize, SnapshotChange, SnapshotCreate, SnapshotHold,
    SnapshotRemove, SnapshotRename, SnapshotRollback, Split, VolumeChange, VolumeCreate,
};
pub use restore::{GroupRestore, GroupUndo};
pub use schedule::{ScheduleChange, ScheduleCreate, ScheduleRun};
pub use status::{DaemonStatus, Event, Problem};
pub use traffic::{RequestLatencies, RequestLatency, Traffic};
pub use trash::{GroupTrash, Removed, TrashEmpty, TrashItem, TrashRestore, TrashRestored, VolumeRemove};
pub use volume_map::{MapExtent, VolumeMap};
pub use words::{
    Cache, CachePolicy, Discards, Door, ExportState, GroupState, Health, JobState, Layout, MapKind,
    MemberState, MetadataOrder, OverCommit, PhysicalVolumeState, ProblemKind, ReadPolicy, ScheduleState,
    Severity, SnapshotMode, SnapshotState, VolumeState, WhenFull,
};
