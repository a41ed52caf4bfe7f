//! The trash: volumes and pools that were removed, as they were, until it is emptied.

use super::check::check_lv;
use super::{Description, LogicalVolumeEntry, TextError};
use crate::name::check_name;
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

impl Description {
    /// Checks what is in the trash (TEXT28), but for ids and areas.
    pub(super) fn check_trash(&self) -> Result<(), TextError> {
        let problem = |problem| Err(TextError::Shape { place: "the group".to_owned(), problem });
        if self.trash.len() > TRASH_MAX {
            return problem("at most 256 volumes and pools are in its trash");
        }
        if self.group.trash_keep_s > Some(TRASH_KEEP_S_MAX) {
            return problem("`trash_keep_s` is at most 366 days");
        }
        self.trash.iter().try_for_each(|entry| {
            let lv = &entry.volume;
            let place = || format!("the volume {:?} in the trash", lv.name);
            check_name(&lv.name).map_err(|error| TextError::Name { place: place(), error })?;
            if !lv.layout.takes_space() {
                return Err(TextError::Shape { place: place(), problem: "what is in the trash is on disks" });
            }
            check_lv(lv, self.group.extent_size)
        })
    }
}
