//! What the daemon remembers between two lives: paths of disks, exports, jobs. No volume depends on it.
//!
//! Invariant R1: the file is replaced as a whole (written beside, made durable, renamed, the directory made durable),
//! so a crash leaves the old or the new one.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use uuid::Uuid;
use varve_api::{Cache, Code, Door, Failure, Scrub};

const SCHEMA: &str = "varve.state.v1";
const FILE: &str = "state.json";

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

/// A job that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedJob {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) subject: String,
    pub(crate) started: u64,
    /// The snapshots that a removal concerns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) targets: Vec<RememberedTarget>,
    /// What a rollback is to do, and whether it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rollback: Option<RememberedRollback>,
    /// The image that a job works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
}

/// A rollback, so that it can be told after a crash whether it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedRollback {
    /// The snapshot.
    pub(crate) target: RememberedTarget,
    /// Of a thin volume: what it had before. It has another one once it was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<u64>,
    /// Whether it is known to have begun. As long as it is not, a store does not end it.
    pub(crate) begun: bool,
}

/// A snapshot, for good: no other one ever has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RememberedTarget {
    /// The volume's identity.
    pub(crate) volume: Uuid,
    /// The store's identity.
    pub(crate) store: Uuid,
    /// The snapshot's number in it.
    pub(crate) number: u64,
    /// Bytes that it showed.
    pub(crate) size: u64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    schema: String,
    #[serde(default)]
    pub(crate) disks: Vec<RememberedDisk>,
    #[serde(default)]
    pub(crate) exports: Vec<RememberedExport>,
    #[serde(default)]
    pub(crate) jobs: Vec<RememberedJob>,
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
        let (disks, exports, jobs, images) = (Vec::new(), Vec::new(), Vec::new(), Some(BTreeSet::new()));
        let (out_of_use, left_images, scrubs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (last_export, last_job) = (0, 0);
        Self { schema, disks, exports, jobs, images, out_of_use, left_images, scrubs, last_export, last_job }
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

    /// Forgets a disk.
    pub(crate) fn remove_disk(&mut self, path: &Path) {
        self.disks.retain(|disk| disk.path != path);
    }
}

/// Reads what is remembered in `directory`. A damaged file is set aside, because volumes do not need it.
pub(crate) fn load(directory: &Path) -> Result<Remembered, Failure> {
    let path = directory.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Remembered::default()),
        Err(error) => return Err(unusable(&path, &error)),
    };
    match serde_json::from_str::<Remembered>(&text) {
        Ok(remembered) if remembered.schema == SCHEMA => Ok(remembered),
        result => {
            let reason = result.map_or_else(|error| error.to_string(), |_| "another schema".to_owned());
            let aside = directory.join("state.json.damaged");
            std::fs::rename(&path, &aside).map_err(|error| unusable(&path, &error))?;
            tracing::warn!(path = %path.display(), reason, aside = %aside.display(),
                "what was remembered cannot be read and was set aside; find the disks again with varve pv scan PATH…");
            Ok(Remembered::default())
        }
    }
}

/// Replaces what is remembered in `directory`.
pub(crate) fn save(directory: &Path, remembered: &Remembered) -> Result<(), Failure> {
    let path = directory.join(FILE);
    let text = serde_json::to_string_pretty(remembered).expect("what is remembered is plain data");
    let replaced = || {
        // R1
        let beside = directory.join("state.json.new");
        // Never what a link leads to.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::create_new(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)?;
        File::open(directory)?.sync_all()
    };
    replaced().map_err(|error: std::io::Error| unusable(&path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    let code = if error.kind() == ErrorKind::StorageFull { Code::NoSpaceOnHost } else { Code::StateUnusable };
    Failure::new(code, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded_and_a_lost_directory_is_no_error() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(load(folder.path()), Ok(Remembered::default()));
        let mut remembered = Remembered::default();
        let id = Some(Uuid::from_u128(7));
        remembered.add_disk(Path::new("/dev/vdb"), Cache::Direct, None);
        assert!(remembered.add_disk(Path::new("/dev/vdb"), Cache::Buffered, id).is_empty());
        let left = remembered.add_disk(Path::new("/dev/vdc"), Cache::Buffered, id);
        assert_eq!(left, [PathBuf::from("/dev/vdb")], "a disk that moved is known by its label");
        assert_eq!(remembered.disks.len(), 1, "a disk is remembered once");
        save(folder.path(), &remembered).expect("a writable folder");
        assert_eq!(load(folder.path()), Ok(remembered));
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_nothing_is_invented() {
        let folder = tempfile::tempdir().expect("a folder");
        for text in ["{", r#"{"schema":"varve.state.v9"}"#] {
            std::fs::write(folder.path().join(FILE), text).expect("a writable folder");
            assert_eq!(load(folder.path()), Ok(Remembered::default()));
            let aside = std::fs::read_to_string(folder.path().join("state.json.damaged"));
            assert_eq!(aside.expect("set aside"), text);
        }
    }
}
