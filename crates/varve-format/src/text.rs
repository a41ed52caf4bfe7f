//! The description of a volume group: the one structure on disk that is text (TOML), so that a person can read and
//! mend it.
//!
//! [`Description::encode`] writes it with an explanation on top; [`Description::decode`] refuses whatever it does not
//! know, because a program that dropped it would lose it with the next change.
//!
//! Invariants, all checked by [`Description::check`]:
//! - TEXT1. Ids are not nil; no two things have one id, no two volumes and no two disks one name. Names are valid.
//! - TEXT2. The extent size is a power of two from 64 KiB to 1 GiB.
//! - TEXT3. The extents of a physical volume lie between its data offset and its size; it has at least one.
//! - TEXT4. Every area names a physical volume of the group and is inside its extents.
//! - TEXT5. No extent is owned twice.
//! - TEXT6. A linear volume's segments have one area each, a striped one's at least two of equal length on different
//!   physical volumes, equally many in every segment; a stripe is a power of two from 4 KiB to the extent size.
//! - TEXT7. A volume has as many extents as its segments, at least one; so has an exception store. A volume that is on no
//!   disk has extents and no segments.
//! - TEXT8. A chunk size is a power of two from 4 KiB to 1 MiB.
//! - TEXT9. Sequence numbers begin at 1. Dates are dates.
//! - TEXT10. An exception store is extended when it is 1 to 99 % full, by 1 to 1000 %; a pause ends within a year.
//! - TEXT11. A set of snapshots has members, and each member at least one name. Volumes and stores that they name may be gone.
//! - TEXT12. A thin pool is on disks, is writable, has no exception store and drops no snapshots. What is in
//!   it, the pool itself knows. Only a pool declares what becomes of discards, and whether it may promise too much.
//! - TEXT13. A budget for metadata in memory is 64 KiB to 1 TiB, or for each GiB 512 bytes to 1 GiB.
//! - TEXT14. A disk image has an absolute path and at least one byte. A snapshot in it has a name on one line, of at most 1024
//!   bytes; only a qcow2 image has one.
//! - TEXT15. The reason why a volume is not active is 1 to 500 characters on one line.
//! - TEXT16. A mirror has 2 to 8 members; a ddraid array of order 1 to 3 has 2^order + 1, and blocks of a power of two from 4 to
//!   64 KiB. Each segment of an array has an area for each member, equally long. The metadata areas of its members are equally
//!   long, at least 1 MiB. A disk serves one member of an array only.
//! - TEXT17. A disk is emptied by one job at most, to other disks of the group. A step of it has two places, equally long, one on
//!   that disk and one elsewhere; of these a volume or store owns one, and the job the other.
//! - TEXT18. Nothing is on a spare.
//! - TEXT19. An array waits 1 second to 1 hour for a member. The least rate at which it is made equal is no more than the most.
//! - TEXT20. A volume is converted by one job at most. Each part of it is of the volume or of one of its stores, with as many
//!   extents, which keep the rules of its layout; the job owns them.
//! - TEXT21. The image in which a volume is has an absolute path, and holds whole sectors of 512 bytes, which the volume's extents
//!   hold. Nothing else of the group is in that image or over it.
//! - TEXT22. The socket of a mapper is an absolute path of at most 107 bytes; a request waits 1 millisecond to 1 hour for it.
//! - TEXT23. The devices of a mapper are volumes of the group with a role of their own, without snapshots, not mapped themselves; each is a
//!   device of one mapper, once; a mapper has at most 64.
//! - TEXT24. The log disk of an array is one area of a disk on which none of its members is, with as much room as the log and the
//!   superblocks of a member take.
//! - TEXT25. A job has a number that no other one of the group has, and none is higher than `last_job`. There are at most 64 jobs beside moves,
//!   conversions and clearings, and those that remove snapshots name at most 8192 in all, each once. Volumes and stores that jobs name may be gone, but
//!   for these three, which are of one group.
//! - TEXT26. A volume is cleared by one job at most, from one of its extents on, which are on disks.
//! - TEXT27. A schedule has a name that no other one of the group has, runs every second at most and every 366 days at least, and is of 1 to
//!   64 volumes, each once. Volumes and stores that it names may be gone. A snapshot is made by one schedule.
//! - TEXT28. A volume or pool in the trash is laid out by the rules of the others, and is on disks; no other thing has its id, and nothing else owns
//!   its extents. Others may have its name. At most 256 are there. A group keeps what is removed for 366 days at most.

mod areas;
mod array_policy;
mod check;
mod conversions;
mod converting;
mod date_text;
mod error;
mod image;
mod job_rules;
mod jobs;
mod layout;
mod logical_volume;
mod moves;
mod moving;
mod schedule_rules;
mod schedules;
mod space;
#[cfg(test)]
mod tests;
mod trash;

pub use areas::{Area, PvName, Segment};
pub use array_policy::ArrayPolicyEntry;
pub use conversions::{ConversionEntry, ConvertedPart};
pub use error::TextError;
pub use image::{ImageEntry, ImageFormat};
pub use jobs::{JOBS_MAX, JobEntry, JobWork, REMOVED_MAX, RemovedSnapshots, SUBJECT_MAX, ScrubPosition};
pub use layout::{
    DDRAID_BLOCK_SIZES, DDRAID_ORDERS, IMAGE_SECTOR, Layout, LogEntry, MAPPER_WAIT_MS_DEFAULT,
    MEMBER_METADATA_SIZE_MIN, MIRROR_COPIES, MemberEntry, ReadPolicy, Role, checksum_room,
};
pub use logical_volume::{Discards, LogicalVolumeEntry, OverCommit, StoreEntry, StorePolicyEntry, WhenFull};
pub use moves::{MoveEntry, MoveStep};
pub use schedules::{
    EVERY_S_MAX, Keep, KeepError, MADE_MAX, MadeSnapshots, SCHEDULED_MAX, SCHEDULES_MAX, ScheduleEntry,
    ScheduledVolume,
};
pub use space::Space;
pub use trash::{TRASH_KEEP_S_DEFAULT, TRASH_KEEP_S_MAX, TRASH_MAX, TrashEntry};

use logical_volume::is_usual;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use varve_block::{GIB, KIB, MIB, UnixTime};

/// The version of the text that this program writes.
pub const TEXT_VERSION: i64 = 5;
/// The oldest version that it reads, unless moves, conversions or clearings go on in it: these stood beside the jobs before version 5.
pub const TEXT_VERSION_MIN: i64 = 3;
/// The smallest extent, in bytes.
pub const EXTENT_SIZE_MIN: u64 = 64 * KIB;
/// The largest extent, in bytes.
pub const EXTENT_SIZE_MAX: u64 = GIB;
/// The extent size of a group for which none is asked, in bytes.
pub const EXTENT_SIZE_DEFAULT: u64 = 4096 * KIB;

/// All that a volume group is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    version: Version,
    /// The highest number that a job of the group has had.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub last_job: u64,
    /// The group itself.
    pub group: GroupEntry,
    /// Its physical volumes.
    #[serde(default, rename = "physical_volume", skip_serializing_if = "Vec::is_empty")]
    pub physical_volumes: Vec<PhysicalVolumeEntry>,
    /// Its logical volumes.
    #[serde(default, rename = "logical_volume", skip_serializing_if = "Vec::is_empty")]
    pub logical_volumes: Vec<LogicalVolumeEntry>,
    /// Snapshots that are being made together, and do not count before their set is gone from here.
    #[serde(default, rename = "snapshot_set", skip_serializing_if = "Vec::is_empty")]
    pub snapshot_sets: Vec<SnapshotSetEntry>,
    /// Disk images that back volumes of its pools.
    #[serde(default, rename = "image", skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageEntry>,
    /// Work on its volumes and disks that goes on.
    #[serde(default, rename = "job", skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobEntry>,
    /// When snapshots of its volumes are made and removed.
    #[serde(default, rename = "schedule", skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScheduleEntry>,
    /// Volumes and pools that were removed and can be brought back, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trash: Vec<TrashEntry>,
}

/// The group itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub id: Uuid,
    /// The number of this version of the description.
    pub sequence: u64,
    /// Bytes of an extent.
    pub extent_size: u64,
    /// When the group was made.
    #[serde(with = "date_text")]
    pub created: UnixTime,
    /// When this version was made.
    #[serde(with = "date_text")]
    pub changed: UnixTime,
    /// What made this version, as shown to users.
    pub change: String,
    /// How the metadata of its exception stores and pools is kept; the program's defaults if nothing was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataEntry>,
    /// Seconds for which volumes and pools that are removed stay in the trash; 0 if there is none, a day if nothing was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trash_keep_s: Option<u64>,
}

/// How the metadata of a group's exception stores and pools is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataEntry {
    /// Bytes of it in memory, of all stores and pools together.
    pub cache_bytes: u64,
    /// Whether that is for each GiB of the volumes that have stores, and of the pools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_gib: bool,
    /// What goes first when that is too little.
    pub cache_policy: CachePolicy,
    /// When it is written.
    pub order: MetadataOrder,
}

impl Default for MetadataEntry {
    fn default() -> Self {
        let (cache_policy, order) = (CachePolicy::default(), MetadataOrder::default());
        Self { cache_bytes: 64 * MIB, per_gib: false, cache_policy, order }
    }
}

impl MetadataEntry {
    /// What is wrong with it, if it breaks TEXT13.
    pub fn problem(&self) -> Option<&'static str> {
        let (sound, problem) = if self.per_gib {
            (512..=GIB, "a budget for metadata in memory is 512 bytes to 1 GiB for each GiB")
        } else {
            (64 * KIB..=1024 * GIB, "a budget for metadata in memory is 64 KiB to 1 TiB")
        };
        (!sound.contains(&self.cache_bytes)).then_some(problem)
    }
}

/// Which nodes of a map go first when memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachePolicy {
    /// One after the other, whatever they are.
    RoundRobin,
    /// The one that came first.
    Fifo,
    /// The one that was not used for longest.
    Lru,
    /// Old ones, unless they were used since they were last looked at.
    #[default]
    Sieve,
}

/// When the nodes of a map are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataOrder {
    /// Later; a log comes before them.
    #[default]
    Logged,
    /// With each batch of changes.
    WriteThrough,
}

/// A physical volume of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhysicalVolumeEntry {
    /// What areas call it.
    pub name: PvName,
    /// What its label says.
    pub id: Uuid,
    /// Bytes of the disk that are managed.
    pub size: u64,
    /// First byte of extent 0.
    pub data_offset: u64,
    /// Number of extents.
    pub extents: u64,
    /// Where it was last seen; a hint for users.
    pub path: String,
    /// Whether the group was changed while it was absent. What such a disk says of the group is not believed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// Whether it is kept for members of arrays whose disks fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spare: bool,
}

/// Snapshots of one instant that are being made: all of them, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSetEntry {
    /// What it is.
    pub id: Uuid,
    /// The groups that have snapshots of it, if there are several. The first one decides: a set that does not stand in
    /// its description any more counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Uuid>,
    /// The snapshots in this group.
    pub members: Vec<SetMemberEntry>,
}

/// The snapshots of a set that lie in one exception store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMemberEntry {
    /// The volume.
    pub volume: Uuid,
    /// The store.
    pub store: Uuid,
    /// The number of the store's newest snapshot of before; those of the set have higher ones.
    pub after: u64,
    /// What the snapshots are called.
    pub names: Vec<String>,
}

/// The text's version: always [`TEXT_VERSION`] here: others are refused before, or become that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Version(i64);

impl Description {
    /// A description of nothing but `group`.
    pub fn new(group: GroupEntry) -> Self {
        Self {
            version: Version(TEXT_VERSION),
            last_job: 0,
            group,
            physical_volumes: Vec::new(),
            logical_volumes: Vec::new(),
            snapshot_sets: Vec::new(),
            images: Vec::new(),
            jobs: Vec::new(),
            schedules: Vec::new(),
            trash: Vec::new(),
        }
    }

    /// Its volumes and pools, and those in the trash.
    fn all_volumes(&self) -> impl Iterator<Item = &LogicalVolumeEntry> {
        self.logical_volumes.iter().chain(self.trash.iter().map(|entry| &entry.volume))
    }

    /// The volume or pool with this id.
    fn volume(&self, id: Uuid) -> Option<&LogicalVolumeEntry> {
        self.logical_volumes.iter().find(|lv| lv.id == id)
    }

    /// The text. Panics if [`Description::check`] fails: what is wrong is not written.
    pub fn encode(&self) -> String {
        let checked = self.check();
        assert!(checked.is_ok(), "TEXT1 to TEXT28: {checked:?}");
        let body = toml::to_string(self).expect("every description has a form in TOML");
        format!("{EXPLANATION}{body}")
    }

    /// The description in `text`, checked.
    pub fn decode(text: &str) -> Result<Description, TextError> {
        let syntax = |error: &toml::de::Error| TextError::Syntax(error.to_string());
        let table: toml::Table = text.parse().map_err(|error| syntax(&error))?;
        match table.get("version").and_then(toml::Value::as_integer) {
            None => return Err(TextError::NoVersion),
            Some(version @ TEXT_VERSION_MIN..TEXT_VERSION) if jobs::is_work_beside(&table) => {
                return Err(TextError::WorkOfOlder(version));
            }
            Some(TEXT_VERSION_MIN..=TEXT_VERSION) => {}
            Some(version) if version < TEXT_VERSION_MIN => return Err(TextError::Older(version)),
            Some(version) => return Err(TextError::Newer(version)),
        }
        let mut description: Description = toml::from_str(text).map_err(|error| syntax(&error))?;
        description.version = Version(TEXT_VERSION);
        description.check()?;
        Ok(description)
    }
}

const EXPLANATION: &str = "\
# A Varve volume group. Every physical volume holds this text; `varve vg backup` saves it, `varve vg restore`
# writes it back after you have mended it. Sizes are bytes. Areas are PV:FIRST+COUNT in extents; the areas of a
# striped segment, or of an array's members, stand in one string.
";
