//! A group's description, written back from a backup or as it was before its last changes.

use crate::requests::{DryRun, requests};
use serde::{Deserialize, Serialize};

requests! {
    /// Writes a backup of a group's description back.
    struct GroupRestore {
        /// The text of the backup.
        text: String,
        /// `VG/LV` each: volumes and pools that may lose what the backup does not give them.
        drop: Vec<String>,
    }

    /// Takes back the last changes of a group's description.
    struct GroupUndo {
        /// The number of the change that is to be the last one; the one before the last if none is given.
        to: Option<u64>,
        /// `VG/LV` each: volumes and pools that may lose what the description did not give them then.
        drop: Vec<String>,
    }
}
