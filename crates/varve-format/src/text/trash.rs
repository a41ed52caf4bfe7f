//! The trash: volumes and pools that were removed, as they were, until it is emptied.

use super::logical_volume::LogicalVolumeEntry;
use serde::{Deserialize, Serialize};
use varve_block::UnixTime;

/// Most volumes and pools in the trash of a group.
pub const TRASH_MAX: usize = 256;
/// Seconds for which they stay there if the group declares nothing: a day.
pub const TRASH_KEEP_S_DEFAULT: u64 = 86_400;
/// Most seconds for which they stay there: 366 days.
pub const TRASH_KEEP_S_MAX: u64 = 366 * 86_400;

/// A volume or pool that was removed and can be brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashEntry {
    /// When it was removed.
    #[serde(with = "super::date_text")]
    pub removed: UnixTime,
    /// When it is given up.
    #[serde(with = "super::date_text")]
    pub until: UnixTime,
    /// What it was, with its exception stores.
    pub volume: LogicalVolumeEntry,
}
