//! What the daemon remembers between two lives: paths of disks, exports. No volume depends on it.
//!
//! It is plain data with a text form; where the text is, and how it is replaced, is the host's affair.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use uuid::Uuid;
use varve_api::{Cache, Door, ExportAccess, ExportLimits, Scrub};

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
    /// Whether a user agreed that other hosts reach it in the clear.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) insecure: bool,
    /// Names that it had; clients find it by them, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aliases: Vec<String>,
    #[serde(default, skip_serializing_if = "ExportLimits::is_none")]
    pub(crate) limits: ExportLimits,
    #[serde(default, skip_serializing_if = "ExportAccess::is_default")]
    pub(crate) access: ExportAccess,
    /// The folder of its TLS credentials, if clients have to begin TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<PathBuf>,
    /// The snapshot since which its clients may ask what was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Since>,
}

/// A snapshot of before that an export is compared with (SINCE2 of `since.rs`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Since {
    /// Its name without that of its volume: what clients ask for.
    pub(crate) name: String,
    pub(crate) store: Uuid,
    pub(crate) number: u64,
}

impl RememberedExport {
    /// The export `id` at `address` is called `name` from now on, and no other one there is found by that.
    pub(crate) fn note_name(&mut self, id: &str, address: &str, name: &str) {
        if self.id == id && self.name != name {
            self.aliases.push(std::mem::replace(&mut self.name, name.to_owned()));
        }
        if self.address == address {
            self.aliases.retain(|alias| alias != name);
        }
    }
}

/// All that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    schema: String,
    #[serde(default)]
    pub(crate) disks: Vec<RememberedDisk>,
    #[serde(default)]
    pub(crate) exports: Vec<RememberedExport>,
    /// Disk images that may be opened: a user at this host has named each for its group, or has agreed to it. A file from
    /// before there was such a list has none: what is served at its first start is agreed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) images: Option<BTreeSet<(Uuid, String)>>,
    /// Volumes and pools that failed, and why, as far as their groups do not say so themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) out_of_use: BTreeMap<Uuid, String>,
    /// When the images of volumes were last written, in nanoseconds since 1970, as their volumes were released.
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
    /// Adds a disk, or learns a new place or way to reach it; the places that it has left. Where another disk `is_used` now it was
    /// before they changed places: that one stays.
    pub(crate) fn add_disk(
        &mut self,
        path: &Path,
        (cache, id): (Cache, Option<Uuid>),
        is_used: impl Fn(&Path) -> bool,
    ) -> Vec<PathBuf> {
        let was_here = |disk: &RememberedDisk| id.is_some() && disk.id == id && disk.path != path;
        for disk in self.disks.iter_mut().filter(|disk| was_here(disk) && is_used(&disk.path)) {
            disk.id = None; // That of the disk that is there is not known here.
        }
        let same = |disk: &RememberedDisk| disk.path == path || was_here(disk);
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

    /// What the label of the disk at `path` said.
    pub(crate) fn id_of(&self, path: &Path) -> Option<Uuid> {
        self.disks.iter().find(|disk| disk.path == path)?.id
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
        let nowhere = |_: &Path| false;
        remembered.add_disk(Path::new("/dev/vdb"), (Cache::Direct, None), nowhere);
        assert!(remembered.add_disk(Path::new("/dev/vdb"), (Cache::Buffered, id), nowhere).is_empty());
        let left = remembered.add_disk(Path::new("/dev/vdc"), (Cache::Buffered, id), nowhere);
        assert_eq!(left, [PathBuf::from("/dev/vdb")], "a disk that moved is known by its label");
        assert_eq!(remembered.disks.len(), 1, "a disk is remembered once");
        assert_eq!(Remembered::parse(&remembered.text()), Ok(remembered));
    }

    #[test]
    fn disks_that_changed_places_are_both_remembered() {
        let mut remembered = Remembered::default();
        let (one, other) = (Some(Uuid::from_u128(7)), Some(Uuid::from_u128(8)));
        remembered.add_disk(Path::new("/dev/vdb"), (Cache::Direct, one), |_| false);
        remembered.add_disk(Path::new("/dev/vdc"), (Cache::Direct, other), |_| false);
        let is_used = |path: &Path| path == Path::new("/dev/vdb");
        let left = remembered.add_disk(Path::new("/dev/vdc"), (Cache::Direct, one), is_used);
        assert!(left.is_empty(), "another disk is there now");
        let paths: Vec<PathBuf> = remembered.disks.iter().map(|disk| disk.path.clone()).collect();
        assert_eq!(paths, [PathBuf::from("/dev/vdb"), PathBuf::from("/dev/vdc")]);
        let left = remembered.add_disk(Path::new("/dev/vdb"), (Cache::Direct, other), |_| false);
        assert!(left.is_empty(), "nor has the other one left a place");
    }

    #[test]
    fn a_text_that_cannot_be_read_is_refused() {
        for text in ["{", r#"{"schema":"varve.state.v9"}"#] {
            assert!(Remembered::parse(text).is_err(), "nothing is invented: {text}");
        }
    }
}
