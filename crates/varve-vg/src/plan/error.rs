//! Why a change is not possible: typed, with the sentence for users and the command that helps.

use super::{ConversionError, ScheduleError, TrashError};
use crate::model::{Area, PvName, TextError};
use crate::size::format_size;
use varve_format::NameError;
use varve_format::text::{JOBS_MAX, REMOVED_MAX};

/// What kind of error it is; each has an exit code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked makes no sense.
    Usage,
    /// What was named does not exist.
    NotFound,
    /// What should be made exists.
    Exists,
    /// In use, or something depends on it.
    Busy,
    /// There is not enough space.
    NoSpace,
    /// Something is missing or damaged.
    Failed,
}

/// Why a change is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A name that none may have.
    #[error("{name:?} cannot be a name: {error}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// No such volume.
    #[error("there is no volume {group}/{volume}")]
    VolumeNotFound {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
    },
    /// A volume of that name exists.
    #[error("there is a volume {group}/{volume} already")]
    VolumeExists {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
        /// Whether it is a pool.
        is_pool: bool,
    },
    /// The volume has an exception store, so it may have snapshots.
    #[error("{group}/{volume} has snapshots, or space reserved for them")]
    VolumeHasStore {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
    },
    /// The volume is not made of whole blocks, so it has, or would have, no snapshots.
    #[error(
        "{group}/{volume} with {bytes} bytes has no snapshots: they are made of whole blocks of 4096 bytes"
    )]
    SnapshotBlocks {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
        /// Its bytes, or those that were asked for.
        bytes: u64,
    },
    /// The volume has no exception store.
    #[error("{group}/{volume} has no exception store")]
    StoreNotFound {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
    },
    /// A size of nothing, or of more than can be addressed.
    #[error("{bytes} bytes is no size for a volume")]
    Size {
        /// What was asked, in bytes.
        bytes: u64,
    },
    /// More than the checksums of an array have room for.
    #[error("its checksums have room for {}", format_size(*most))]
    ChecksumRoom {
        /// The most bytes that it can have.
        most: u64,
    },
    /// A share of the free space that is less than one extent.
    #[error("the share of the free space is less than one extent of {}", format_size(*extent_size))]
    ShareTooSmall {
        /// Bytes of an extent.
        extent_size: u64,
    },
    /// An extension to less, or a reduction to more, than there is.
    #[error("{group}/{volume} has {} now: {} is not {direction}", format_size(*now), format_size(*asked))]
    Direction {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
        /// Its size in bytes.
        now: u64,
        /// What was asked, in bytes.
        asked: u64,
        /// "larger" or "smaller".
        direction: &'static str,
        /// Whether it is a pool.
        is_pool: bool,
    },
    /// Not enough free extents.
    #[error("{group} has {} free{}, {} are needed", format_size(*free), on_text(on), format_size(*needed))]
    NoSpace {
        /// The group.
        group: String,
        /// The disks that were named.
        on: Vec<PvName>,
        /// Free bytes.
        free: u64,
        /// Bytes that the change takes.
        needed: u64,
    },
    /// Enough free extents, but not on enough different disks.
    #[error("{what} need {} free on each of {width} disks; {disks} disks of {group}{} have free extents",
        format_size(*each), on_text(on))]
    TooFewDisks {
        /// The group.
        group: String,
        /// The disks that were named.
        on: Vec<PvName>,
        /// What was asked for: `3 stripes`.
        what: String,
        /// Different disks that it needs.
        width: usize,
        /// Bytes needed on each disk.
        each: u64,
        /// Disks with free extents.
        disks: u64,
    },
    /// Not enough disks with room for a member of an array.
    #[error("{what} needs {} free on each of {width} disks; {disks} disks of {group}{} have as much",
        format_size(*each), on_text(on))]
    TooFewMembers {
        /// The group.
        group: String,
        /// The disks that were named.
        on: Vec<PvName>,
        /// What was asked for: `a mirror of 3 copies`.
        what: String,
        /// Different disks that it needs.
        width: usize,
        /// Bytes needed on each disk, for data and metadata.
        each: u64,
        /// Disks that have as much.
        disks: u64,
    },
    /// The fragments of a block of ddraid are shorter than a sector.
    #[error("a fragment of a block has {fragment} bytes, and {disk} is written in sectors of {sector} bytes")]
    Fragment {
        /// Bytes of a fragment.
        fragment: u64,
        /// The disk.
        disk: String,
        /// Bytes of its sectors.
        sector: u64,
        /// A block that would fit, if one may be so large.
        fits: Option<u64>,
    },
    /// There is room on a disk whose sectors are larger than what is there may have.
    #[error(
        "{volume} takes disks with sectors of at most {sector_max} bytes, and {disk} is written in sectors of {sector} bytes"
    )]
    Sectors {
        /// The volume or pool, or that of the store, with its group.
        volume: String,
        /// Whether it is a pool.
        is_pool: bool,
        /// The disk.
        disk: String,
        /// Bytes of its sectors.
        sector: u64,
        /// Bytes that they may have.
        sector_max: u64,
        /// Order and block of ddraid that such sectors fit, if it is ddraid and may have such a block.
        fits: Option<(u32, u64)>,
    },
    /// A layout that cannot be.
    #[error("{0}")]
    Layout(&'static str),
    /// The disk is not in the group.
    #[error("the disk {disk} does not belong to {group}")]
    DiskNotFound {
        /// The group.
        group: String,
        /// The disk, as it was named.
        disk: String,
    },
    /// The disk is in the group already.
    #[error("{path} belongs to {group} already")]
    DiskExists {
        /// The group.
        group: String,
        /// The disk.
        path: String,
    },
    /// The disk has no room for an extent.
    #[error("{path} is too small: {} hold no extent of {}", format_size(*size), format_size(*extent_size))]
    DiskTooSmall {
        /// The disk.
        path: String,
        /// Its bytes.
        size: u64,
        /// Bytes of an extent.
        extent_size: u64,
    },
    /// Volumes lie at the end of the disk.
    #[error("{path} cannot be reduced to {}: {} lie behind that", format_size(*size), volumes.join(", "))]
    DiskEndInUse {
        /// The disk.
        path: String,
        /// Bytes that would be managed.
        size: u64,
        /// The fewest that can be.
        least: u64,
        /// `VG/LV` of the volumes.
        volumes: Vec<String>,
    },
    /// Volumes lie on the disk.
    #[error("{path} holds extents of {}", volumes.join(", "))]
    DiskBusy {
        /// The group.
        group: String,
        /// The disk.
        path: String,
        /// The volumes.
        volumes: Vec<String>,
    },
    /// A group needs a disk.
    #[error("{path} is the last disk of {group}")]
    LastDisk {
        /// The group.
        group: String,
        /// The disk.
        path: String,
    },
    /// No disk is missing.
    #[error("no disk of {group} is missing")]
    NothingMissing {
        /// The group.
        group: String,
    },
    /// Disks of the group are missing, so no backup is written back to it.
    #[error("no backup is written back to {group} while disks are missing: {}", disks.join(", "))]
    GroupIncomplete {
        /// The group.
        group: String,
        /// Where the missing disks were last seen.
        disks: Vec<String>,
    },
    /// A disk that is needed is missing.
    #[error("{group}/{volume} lies on {}, which is missing", disks.join(", "))]
    VolumeIncomplete {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
        /// The missing disks.
        disks: Vec<String>,
    },
    /// A volume does without a disk, which therefore stays in its group.
    #[error("{group}/{volume} is used without {}, and has {what} there", disks.join(", "))]
    VolumeDegraded {
        /// The group.
        group: String,
        /// The volume or pool.
        volume: String,
        /// Whether it is a pool.
        is_pool: bool,
        /// What of it is there: `members`, or `its log`.
        what: &'static str,
        /// The missing disks.
        disks: Vec<String>,
        /// Where the first of them was last seen.
        path: String,
    },
    /// The log of an array and a member of it on one disk.
    #[error("the log of an array lies on a disk that holds no member of it, and {path} holds one, or is to")]
    LogOnMember {
        /// The disk.
        path: String,
    },
    /// A disk has no room for the log of an array.
    #[error("the log of an array needs {} in one run on {path}, and there are not as many free", format_size(*needed))]
    NoLogSpace {
        /// The disk.
        path: String,
        /// Bytes.
        needed: u64,
    },
    /// The disk is kept for members of arrays whose disks fail.
    #[error("{0} is a spare")]
    Spare(String),
    /// A disk that was named is missing.
    #[error("{disk} ({path}) is missing")]
    DiskMissing {
        /// The group.
        group: String,
        /// The disk.
        disk: PvName,
        /// Where it was last seen.
        path: String,
    },
    /// No member of an array is on the disk.
    #[error("no array{} has a member on {path}", volume.as_ref().map(|name| format!(" of {name}")).unwrap_or_default())]
    NoMember {
        /// The group.
        group: String,
        /// The disk.
        path: String,
        /// The volume that was named.
        volume: Option<String>,
    },
    /// What is on a disk has no copy elsewhere.
    #[error("{} on {path}, and nothing can make up for it: {}", if volumes.len() == 1 { "a volume lies" } else { "volumes lie" }, volumes.join(", "))]
    NotArray {
        /// The group.
        group: String,
        /// The disk.
        path: String,
        /// Whether it is missing.
        is_missing: bool,
        /// The volumes, exception stores included.
        volumes: Vec<String>,
        /// Whether the first of them is a pool.
        is_pool: bool,
    },
    /// No disk has room for a new member of an array.
    #[error("a new member of {group}/{volume} needs {} free on disks{} that hold no other member of it; they have {}",
        format_size(*needed), on_text(on), format_size(*free))]
    NoReplacement {
        /// The group.
        group: String,
        /// The volume or pool.
        volume: String,
        /// The disks that were named.
        on: Vec<PvName>,
        /// Bytes that the member needs.
        needed: u64,
        /// Free bytes of the disks that may be used.
        free: u64,
    },
    /// The volume is a device of a mapper.
    #[error("{group}/{volume} belongs to {group}/{to}, whose mapper says what lies where on it")]
    Granted {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
        /// The volume that is mapped.
        to: String,
    },
    /// The disk is being emptied, or what is emptied goes there.
    #[error("a move from {from} of {group} concerns {what}")]
    Moving {
        /// The group.
        group: String,
        /// The disk that is being emptied.
        from: PvName,
        /// A disk, volume or store.
        what: String,
    },
    /// Nothing is moved from a disk.
    #[error("nothing is being moved from {from} of {group}")]
    NotMoving {
        /// The group.
        group: String,
        /// The disk.
        from: PvName,
    },
    /// Nothing is on a disk that is to be emptied.
    #[error("nothing lies on {path}")]
    NothingToMove {
        /// The group.
        group: String,
        /// The disk.
        path: String,
    },
    /// What is on a disk has no place elsewhere.
    #[error("{group} has no place for {} of {volume} ({old}) on another disk{}", format_size(*needed), on_text(on))]
    NoPlace {
        /// The group.
        group: String,
        /// The disks that were named.
        on: Vec<PvName>,
        /// The volume, or the volume of the store.
        volume: String,
        /// Where it is.
        old: Area,
        /// Bytes.
        needed: u64,
    },
    /// Something about the conversion of a volume.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// No job of that number.
    #[error("{group} has no job {id}")]
    JobNotFound {
        /// The group.
        group: String,
        /// The number.
        id: u64,
    },
    /// As many jobs as the description may name.
    #[error(
        "as many jobs of {group} go on as it can have: {JOBS_MAX}, which remove {REMOVED_MAX} snapshots at most"
    )]
    JobsFull {
        /// The group.
        group: String,
    },
    /// What is asked of a schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// What is asked of the trash.
    #[error(transparent)]
    Trash(#[from] TrashError),
    /// The backup is of another group, or of other disks.
    #[error("the backup does not fit {group}: {problem}")]
    Backup {
        /// The group.
        group: String,
        /// What does not fit.
        problem: String,
    },
    /// The result would break a rule of the description.
    #[error(transparent)]
    Invalid(TextError),
}

impl PlanError {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. } | Self::Size { .. } | Self::Direction { .. } => ErrorKind::Usage,
            Self::SnapshotBlocks { .. } => ErrorKind::Usage,
            Self::Layout(_) | Self::Fragment { .. } | Self::Sectors { .. } => ErrorKind::Usage,
            Self::LogOnMember { .. } => ErrorKind::Usage,
            Self::Backup { .. } | Self::Invalid(_) => ErrorKind::Usage,
            Self::VolumeNotFound { .. } | Self::StoreNotFound { .. } | Self::DiskNotFound { .. } => {
                ErrorKind::NotFound
            }
            Self::NothingMissing { .. } | Self::NoMember { .. } => ErrorKind::NotFound,
            Self::VolumeExists { .. } | Self::DiskExists { .. } => ErrorKind::Exists,
            Self::VolumeHasStore { .. } | Self::DiskBusy { .. } | Self::LastDisk { .. } => ErrorKind::Busy,
            Self::VolumeDegraded { .. } | Self::NotArray { .. } | Self::Moving { .. } => ErrorKind::Busy,
            Self::Spare(_) | Self::Granted { .. } | Self::DiskEndInUse { .. } => ErrorKind::Busy,
            Self::NotMoving { .. } | Self::NothingToMove { .. } | Self::JobNotFound { .. } => {
                ErrorKind::NotFound
            }
            Self::JobsFull { .. } => ErrorKind::Busy,
            Self::Schedule(ScheduleError::Exists { .. }) => ErrorKind::Exists,
            Self::Schedule(ScheduleError::NotFound { .. }) => ErrorKind::NotFound,
            Self::Schedule(ScheduleError::Full { .. }) => ErrorKind::NoSpace,
            Self::Trash(TrashError::NotFound { .. }) => ErrorKind::NotFound,
            Self::Trash(TrashError::Uncleared { .. }) => ErrorKind::Busy,
            Self::Trash(_) => ErrorKind::Usage,
            Self::NoPlace { .. } | Self::NoLogSpace { .. } => ErrorKind::NoSpace,
            Self::Conversion(ConversionError::Converting { .. }) => ErrorKind::Busy,
            Self::Conversion(ConversionError::NotConverting { .. }) => ErrorKind::NotFound,
            Self::Conversion(ConversionError::Rows { .. }) => ErrorKind::Usage,
            Self::NoSpace { .. } | Self::TooFewDisks { .. } | Self::TooFewMembers { .. } => {
                ErrorKind::NoSpace
            }
            Self::ShareTooSmall { .. } | Self::NoReplacement { .. } | Self::ChecksumRoom { .. } => {
                ErrorKind::NoSpace
            }
            Self::DiskTooSmall { .. } | Self::VolumeIncomplete { .. } => ErrorKind::Failed,
            Self::GroupIncomplete { .. } | Self::DiskMissing { .. } => ErrorKind::Failed,
        }
    }
}

/// ` on pv0, pv1`, if disks were named.
fn on_text(on: &[PvName]) -> String {
    let names: Vec<String> = on.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(" on {}", names.join(", ")) }
}
