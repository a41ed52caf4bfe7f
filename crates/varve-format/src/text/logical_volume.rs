//! A logical volume or thin pool in the text of its group, with its exception stores and what it declares of them.

use super::date_text;
use super::{ArrayPolicyEntry, Layout, Role, Segment, Space};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use varve_block::UnixTime;

/// A logical volume, or a thin pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogicalVolumeEntry {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub id: Uuid,
    /// What its bytes are for.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub role: Role,
    /// How its extents become bytes.
    pub layout: Layout,
    /// Whether it may not be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Why it is not taken into use until a person says so; it is used as usual if nothing is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// When it was made.
    #[serde(with = "date_text")]
    pub created: UnixTime,
    /// Its size.
    pub extents: u64,
    /// Where its extents lie, in order; nowhere if its layout takes no space.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// What is done about exception stores, or a pool, that fill; the program's defaults if nothing was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_policy: Option<StorePolicyEntry>,
    /// What its arrays, and those of its stores, declare; the program's defaults if nothing was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_policy: Option<ArrayPolicyEntry>,
    /// Where its dependent snapshots keep what it held before, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreEntry>,
    /// The stores of its independent snapshots, one each.
    #[serde(default, rename = "independent_store", skip_serializing_if = "Vec::is_empty")]
    pub independent_stores: Vec<StoreEntry>,
}

impl LogicalVolumeEntry {
    /// Whether it is a thin pool.
    pub fn is_pool(&self) -> bool {
        self.role == Role::Pool
    }

    /// Where its own bytes lie, without those of its stores.
    pub fn space(&self) -> Space<'_> {
        Space { layout: &self.layout, segments: &self.segments }
    }

    /// Its bytes, in a group with extents of `extent_size` bytes.
    pub fn size(&self, extent_size: u64) -> u64 {
        self.layout.size(self.extents, extent_size)
    }

    /// All exception stores of the volume.
    pub fn stores(&self) -> impl Iterator<Item = &StoreEntry> {
        self.store.iter().chain(&self.independent_stores)
    }

    /// The exception store with this id, to be changed.
    pub fn store_mut(&mut self, id: Uuid) -> Option<&mut StoreEntry> {
        self.store.iter_mut().chain(&mut self.independent_stores).find(|store| store.id == id)
    }
}

/// What becomes of a write that needs a copy for which there is no room, and no room to be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// It waits, for a while.
    #[default]
    Pause,
    /// The oldest snapshots that are not held go.
    DropOldest,
    /// It fails.
    Error,
}

/// What becomes of what clients discard in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discards {
    /// Nothing.
    Ignore,
    /// It is free in the pool.
    #[default]
    Keep,
    /// And the disks receive discards for blocks that are not needed any more.
    PassDown,
}

/// Whether a pool may promise its volumes more than it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverCommit {
    /// It may.
    #[default]
    Allow,
    /// No volume or snapshot is made or grows beyond that.
    Forbid,
}

/// What is done about a volume's exception stores, or a pool, that fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorePolicyEntry {
    /// What becomes of writes that find no room.
    pub when_full: WhenFull,
    /// How long such a write waits at most, in milliseconds.
    pub pause_timeout_ms: u64,
    /// A store grows when so much of it is taken, in percent; never if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extend_at_percent: Option<u64>,
    /// It grows by so much of its size, in percent.
    pub extend_by_percent: u64,
    /// What becomes of discards, in a pool.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub discards: Discards,
    /// Whether a pool may promise more than it has.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub over_commit: OverCommit,
}

impl Default for StorePolicyEntry {
    fn default() -> Self {
        Self {
            when_full: WhenFull::Pause,
            pause_timeout_ms: 60_000,
            extend_at_percent: Some(80),
            extend_by_percent: 20,
            discards: Discards::Keep,
            over_commit: OverCommit::Allow,
        }
    }
}

/// What is usual is not written.
pub(super) fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An exception store of a volume: one for all its dependent snapshots or for one independent one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreEntry {
    /// What it is.
    pub id: Uuid,
    /// Bytes of a chunk.
    pub chunk_size: u64,
    /// How its extents become bytes.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub layout: Layout,
    /// Its size.
    pub extents: u64,
    /// Where its extents lie, in order.
    pub segments: Vec<Segment>,
}

impl StoreEntry {
    /// Where its bytes lie.
    pub fn space(&self) -> Space<'_> {
        Space { layout: &self.layout, segments: &self.segments }
    }
}
