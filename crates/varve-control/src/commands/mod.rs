//! What users ask for: groups, volumes, pools, snapshots and arrays, made, shown, changed and removed.

pub(super) mod array_log;
pub(super) mod array_policy;
pub(super) mod arrays;
pub(super) mod diff;
pub(super) mod groups;
pub(super) mod instant;
pub(super) mod known_array;
pub(super) mod layout;
pub(super) mod options;
pub(super) mod policy;
pub(super) mod pools;
pub(super) mod rebuild;
pub(super) mod restore;
pub(super) mod shown_volume;
pub(super) mod snapshots;
pub(super) mod split;
pub(super) mod thin;
pub(super) mod volume_map;
pub(super) mod volumes;
