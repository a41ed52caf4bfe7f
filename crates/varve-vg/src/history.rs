//! The versions of a group's description that its disks still hold.

use crate::disks::disk;
use crate::model::Group;
use crate::open::OpenGroup;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_block::UnixTime;

/// One version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub sequence: u64,
    /// What identifies it.
    pub id: Uuid,
    /// When it was made.
    pub date: UnixTime,
    /// What made it, as shown to users.
    pub change: String,
    /// All that it says: what `vg backup` saves and `vg restore` takes.
    pub text: String,
}

impl OpenGroup {
    /// The versions in the rings of the disks that are here, oldest first. Versions that this program cannot read are
    /// left out; a disk that cannot be read adds nothing.
    pub async fn history(&self) -> Vec<Version> {
        let mut versions = BTreeMap::new();
        for disk in self.disks() {
            let Ok(reading) = disk::read(disk, self.arena()).await else { continue };
            for placed in reading.find(self.group().id()).slots {
                let Ok(group) = Group::from_text(&placed.slot.text) else { continue };
                let entry = group.entry();
                let version = Version {
                    sequence: entry.sequence,
                    id: placed.version,
                    date: entry.changed,
                    change: entry.change.clone(),
                    text: placed.slot.text,
                };
                versions.insert((version.sequence, version.id), version);
            }
        }
        versions.into_values().collect()
    }
}
