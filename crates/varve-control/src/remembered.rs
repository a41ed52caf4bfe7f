//! What the daemon remembers between two lives: paths of disks, exports. No volume depends on it.
//!
//! It is plain data with a text form; where the text lies, and how it is replaced, is the host's affair.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use uuid::Uuid;
use varve_api::{Cache, Door, Scrub};

const SCHEMA: &str = "varve.state.v1";

/// A disk that was once given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedDisk {
    pub(crate) path: PathBuf,
    pub(crate) cache: Cache,
    /// What its label said; by this it is known again at another path.
    #[serde(default)]
    pub(crate) id: Option<Uuid>,
}

/// An export that comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedExport {
    pub(crate) id: String,
    /// The volume's identity, which outlives its name.
    pub(crate) volume: Uuid,
    /// `VG/LV` or `VG/LV@SNAP`, as it was when last seen.
    pub(crate) name: String,
    pub(crate) door: Door,
    pub(crate) address: String,
    pub(crate) read_only: bool,
}

/// All that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    schema: String,
    #[serde(default)]
    pub(crate) disks: Vec<RememberedDisk>,
    #[serde(default)]
    pub(crate) exports: Vec<RememberedExport>,
    /// Disk images that may be opened: somebody at this host has named each for its group, or has agreed to it. A file from
    /// before there was such a list has none: what is served at its first start is agreed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) images: Option<BTreeSet<(Uuid, String)>>,
    /// Volumes and pools that failed, and why, as far as their groups do not say so themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) out_of_use: BTreeMap<Uuid, String>,
    /// When the images of volumes with snapshots were last written, in nanoseconds since 1970, as their volumes were let go of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) left_images: BTreeMap<Uuid, u64>,
    /// What the last scrub of a volume or pool has found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) scrubs: BTreeMap<Uuid, Scrub>,
    #[serde(default)]
    pub(crate) last_export: u64,
    #[serde(default)]
    pub(crate) last_job: u64,
}

impl Default for Remembered {
    fn default() -> Self {
        let schema = SCHEMA.to_owned();
        let (disks, exports, images) = (Vec::new(), Vec::new(), Some(BTreeSet::new()));
        let (out_of_use, left_images, scrubs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (last_export, last_job) = (0, 0);
        Self { schema, disks, exports, images, out_of_use, left_images, scrubs, last_export, last_job }
    }
}

impl Remembered {
    /// Adds a disk, or learns a new place or way to reach it; the places that it has left.
    pub(crate) fn add_disk(&mut self, path: &Path, cache: Cache, id: Option<Uuid>) -> Vec<PathBuf> {
        let same = |disk: &RememberedDisk| disk.path == path || (id.is_some() && disk.id == id);
        let left =
            self.disks.iter().filter(|disk| same(disk) && disk.path != path).map(|disk| disk.path.clone());
        let left = left.collect();
        self.disks.retain(|disk| !same(disk));
        self.disks.push(RememberedDisk { path: path.to_owned(), cache, id });
        left
    }

    /// What a text says; an error tells why it cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        match serde_json::from_str::<Self>(text) {
            Ok(remembered) if remembered.schema == SCHEMA => Ok(remembered),
            Ok(_) => Err("another schema".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Its text.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("what is remembered is plain data")
    }

    /// Forgets a disk.
    pub(crate) fn remove_disk(&mut self, path: &Path) {
        self.disks.retain(|disk| disk.path != path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_remembered_once_and_known_by_its_label() {
        let mut remembered = Remembered::default();
        let id = Some(Uuid::from_u128(7));
        remembered.add_disk(Path::new("/dev/vdb"), Cache::Direct, None);
        assert!(remembered.add_disk(Path::new("/dev/vdb"), Cache::Buffered, id).is_empty());
        let left = remembered.add_disk(Path::new("/dev/vdc"), Cache::Buffered, id);
        assert_eq!(left, [PathBuf::from("/dev/vdb")], "a disk that moved is known by its label");
        assert_eq!(remembered.disks.len(), 1, "a disk is remembered once");
        assert_eq!(Remembered::parse(&remembered.text()), Ok(remembered));
    }

    #[test]
    fn a_text_that_cannot_be_read_is_refused() {
        for text in ["{", r#"{"schema":"varve.state.v9"}"#] {
            assert!(Remembered::parse(text).is_err(), "nothing is invented: {text}");
        }
    }
}
