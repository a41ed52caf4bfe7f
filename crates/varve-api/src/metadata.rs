//! How a group keeps the metadata of its snapshot stores and thin pools: what can be asked for and what is shown.

use crate::words::{CachePolicy, MetadataOrder};
use serde::{Deserialize, Serialize};

/// What a command says of how a group keeps the metadata of its snapshot stores and pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetadataWords {
    /// How much of it is kept in memory: `64M` in all, which is usual, or `8K-per-GiB`.
    pub cache: Option<String>,
    /// What goes first when that is too little; usually `sieve`.
    pub cache_policy: Option<CachePolicy>,
    /// When it is written; usually `logged`.
    pub order: Option<MetadataOrder>,
}

/// How a group keeps the metadata of its snapshot stores and thin pools: what is declared, and how it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupMetadata {
    /// Bytes kept in memory; with `per_gib` for each GiB of the volumes that have stores and of the pools.
    pub cache_bytes: u64,
    /// Whether they are counted for each GiB.
    pub per_gib: bool,
    /// What goes first when that is too little.
    pub cache_policy: CachePolicy,
    /// When metadata is written.
    pub order: MetadataOrder,
    /// Bytes that all stores and pools in use may keep in memory together.
    pub budget: u64,
    /// Stores and pools in use.
    pub users: u32,
    /// Stores and pools that cannot be used now; what is declared is for them too, when they can.
    pub unusable: u32,
    /// How it goes now; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MetadataMemory>,
}

/// What the metadata of snapshot stores and pools takes in memory, and how well that serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetadataMemory {
    /// Bytes kept in memory now.
    pub in_use: u64,
    /// How often something was wanted and was in memory, since these stores and pools were opened.
    pub hits: u64,
    /// How often it had to be read.
    pub misses: u64,
    /// How often a node or page was evicted to make room.
    pub evictions: u64,
}
