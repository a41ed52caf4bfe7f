//! What a group can be changed by.

use super::{ConversionStep, DiskChoice, JobStep, Layout, ScheduleRun, ScheduleStep, Sectors, TrashStep};
use crate::model::{
    ArrayPolicy, Description, Image, ImageFormat, Job, Metadata, PvName, Role, SnapshotSet, StorePolicy,
};
use crate::size::SizeArgument;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Whose exceptions a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Those of all dependent snapshots; a volume has one such store.
    Dependent,
    /// Those of one independent snapshot.
    Independent,
}

/// A disk that is to join a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDisk {
    /// What its label says.
    pub id: Uuid,
    /// Bytes that are managed.
    pub size: u64,
    /// First byte of its extents.
    pub data_offset: u64,
    /// Where it is.
    pub path: String,
}

/// What is to be changed. Volumes are named without their group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Make a volume.
    CreateVolume {
        /// What it is called.
        name: String,
        /// What it is: a new id.
        id: Uuid,
        /// Its size; rounded up to whole extents, or rows of them.
        size: SizeArgument,
        /// What it is for.
        role: Role,
        /// How it is laid out on its disks.
        layout: Layout,
        /// What is done about its exception stores when they fill.
        policy: StorePolicy,
        /// On which disks it is.
        disks: DiskChoice,
    },
    /// Make a volume larger: by a relative size, or to an absolute one.
    ExtendVolume {
        /// Which.
        name: String,
        /// How large.
        size: SizeArgument,
        /// On which disks is what it gains.
        disks: DiskChoice,
    },
    /// Make a volume smaller; its end is lost.
    ReduceVolume {
        /// Which.
        name: String,
        /// The size to have, rounded up to whole extents.
        size: u64,
    },
    /// Record how much of a volume is cleared.
    Cleared {
        /// What it is.
        volume: Uuid,
        /// No extent before this one is left to be cleared.
        until: u64,
    },
    /// Give a volume another name.
    RenameVolume {
        /// Which.
        from: String,
        /// The new name.
        to: String,
    },
    /// Give up a volume.
    RemoveVolume {
        /// Which.
        name: String,
    },
    /// Give the group another name.
    RenameGroup {
        /// The new name.
        to: String,
    },
    /// Take disks into the group.
    AddDisks {
        /// Which.
        disks: Vec<NewDisk>,
    },
    /// Remove a disk on which nothing is from the group.
    RemoveDisk {
        /// What its label says.
        id: Uuid,
    },
    /// Give up the missing disks.
    RemoveMissing {
        /// Whether the volumes that lie on them go too; else such a volume is an error.
        with_volumes: bool,
    },
    /// Keep a disk for members of arrays whose disks fail, or no more.
    SetSpare {
        /// What its label says.
        disk: Uuid,
        /// Whether it is kept.
        is_spare: bool,
    },
    /// Manage more or less of a disk.
    ResizeDisk {
        /// What its label says.
        id: Uuid,
        /// Bytes that are managed from now on; whole blocks of them are.
        size: u64,
    },
    /// Put members of arrays that lie on a disk on others. The new ones are empty, and other members than those that they replace.
    ReplaceMembers {
        /// What the label of that disk says; it may be missing.
        from: Uuid,
        /// Of which volume or pool, its stores included; of all if none is named.
        volume: Option<String>,
        /// A new id, from which those of the new members follow.
        id: Uuid,
        /// On which disks they lie.
        disks: DiskChoice,
    },
    /// Record which disks are missing and which are back. What activation does before it uses a group.
    MarkMissing {
        /// Disks that are absent now.
        missing: Vec<Uuid>,
        /// Disks that were marked missing and are back.
        returned: Vec<Uuid>,
    },
    /// Give a volume an exception store, which survives what the volume survives.
    CreateStore {
        /// Which volume.
        volume: String,
        /// What the store is: a new id.
        id: Uuid,
        /// Its size; rounded up to whole extents.
        size: u64,
        /// Bytes of a chunk.
        chunk_size: u64,
        /// Whose store it is.
        kind: StoreKind,
    },
    /// Make an exception store larger by `by` bytes, rounded up to whole extents.
    ExtendStore {
        /// Whose.
        volume: String,
        /// Which.
        store: Uuid,
        /// By how many bytes.
        by: u64,
    },
    /// Give up an exception store, which holds no snapshot any more.
    RemoveStore {
        /// Whose.
        volume: String,
        /// Which.
        store: Uuid,
    },
    /// Put a new exception store in the place of one, which is kept as a volume.
    ReplaceStore {
        /// Whose.
        volume: String,
        /// Which.
        store: Uuid,
        /// The new store's size; rounded up to whole extents.
        size: u64,
        /// What the old store is called as a volume.
        kept_as: String,
        /// What the old store is as a volume: a new id.
        kept_id: Uuid,
    },
    /// Declare what is done about a volume's exception stores when they fill.
    SetStorePolicy {
        /// Which volume.
        volume: String,
        /// What.
        policy: StorePolicy,
    },
    /// Declare what the arrays of a volume or pool, and of its stores, do about slow members, and how fast they are made equal.
    SetArrayPolicy {
        /// Which.
        volume: String,
        /// What.
        policy: ArrayPolicy,
    },
    /// Put the log of the array of a volume or pool on a disk, or back on its members.
    SetLog {
        /// Which volume or pool.
        volume: String,
        /// The disk, and a new id for it; none for the members.
        log: Option<(PvName, Uuid)>,
    },
    /// Write down why a volume or pool is not to be taken into use, or that it is.
    SetInactive {
        /// Which.
        volume: String,
        /// Why not, as TEXT15 of the text bounds it; none if it is to be used.
        reason: Option<String>,
    },
    /// Declare how the metadata of the group's stores and pools is kept.
    SetMetadata {
        /// How.
        metadata: Metadata,
    },
    /// Write down which snapshots are about to be made: until they are made they do not count.
    BeginSnapshots {
        /// Which; the set has a new id.
        set: SnapshotSet,
    },
    /// A set of snapshots was made, or none of it is left; the job for which it was made begins with that, and the run of the schedule
    /// that made it has ended.
    EndSnapshots {
        /// Which set.
        set: Uuid,
        /// That job, if there is one.
        job: Option<Job>,
        /// That run, if there is one.
        run: Option<ScheduleRun>,
    },
    /// Record a disk image, before a volume of a pool is backed by it.
    AddImage {
        /// Which; it has a new id.
        image: Image,
    },
    /// Forget a disk image by which nothing is backed any more.
    RemoveImage {
        /// Which.
        id: Uuid,
    },
    /// Switch a volume that is in an image to another image, which holds the same content.
    SetImage {
        /// Which volume.
        volume: String,
        /// Where the other image is.
        path: String,
        /// How that is read.
        format: ImageFormat,
    },
    /// Begin to empty a disk: nothing is allocated there any more.
    BeginMove {
        /// The number of its job.
        job: u64,
        /// Which.
        from: PvName,
        /// Where what is on it goes; to any other disk if none is named.
        disks: DiskChoice,
        /// Bytes that are copied in a second at most.
        rate: Option<u64>,
    },
    /// Choose what of a disk that is being emptied is moved next, and free what the step before it left; the move ends if nothing is
    /// left.
    MoveNext {
        /// The disk that is being emptied.
        from: PvName,
        /// The sectors of the group's disks.
        sectors: BTreeMap<PvName, Sectors>,
        /// Bytes that are moved at once, at most; at least one extent is.
        bytes_max: u64,
    },
    /// The new place of what is moved now counts.
    MoveSwitch {
        /// The disk that is being emptied.
        from: PvName,
    },
    /// Empty a disk no more: what has moved stays where it is.
    EndMove {
        /// The disk that is being emptied.
        from: PvName,
    },
    /// Convert a volume or pool to another layout.
    Convert {
        /// Which.
        volume: Uuid,
        /// What is done.
        step: ConversionStep,
    },
    /// Write down which jobs go on, but for moves, conversions and clearings.
    Jobs(JobStep),
    /// Write down when snapshots are made and removed.
    Schedule(ScheduleStep),
    /// Put volumes into the trash, bring them back, or give them up.
    Trash(TrashStep),
    /// Go back to a backup: its volumes, on the disks that the group has now.
    Restore {
        /// What the backup says.
        backup: Box<Description>,
    },
}
