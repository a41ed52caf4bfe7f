//! What the volumes and snapshots of a pool are called: one is found without a look at all others, as are those of one volume.
//!
//! Invariant N1: every volume that is not being removed stands here with its name, and nothing else does.

use super::volume::Volume;
use super::{Pool, VolumeInfo};
use std::rc::Rc;

impl Pool {
    /// Takes in a volume that was not there (N1).
    pub(super) fn take_in(&self, volume: Volume) -> Rc<Volume> {
        let volume = Rc::new(volume);
        if !volume.name.borrow().is_empty() {
            self.names.borrow_mut().entries.insert(entry(&volume));
        }
        let before = self.volumes.borrow_mut().insert(volume.id, Rc::clone(&volume));
        assert!(before.is_none(), "an id is never given twice");
        volume
    }

    /// The volume is called `name` from now on; if that is empty it has no name any more (N1).
    pub(super) fn set_name(&self, volume: &Volume, name: &str) {
        let entries = &mut self.names.borrow_mut().entries;
        let was_there = entries.remove(&entry(volume));
        let before = volume.name.replace(name.to_owned());
        assert!(was_there || before.is_empty(), "N1: {before}");
        if !name.is_empty() {
            entries.insert(entry(volume));
        }
    }

    /// Whether a volume, or a snapshot of volume `of`, is called `name`.
    pub(super) fn is_taken(&self, of: Option<u64>, name: &str) -> bool {
        self.names.borrow().find(of, name).is_some()
    }

    /// The volume called `name` that is no snapshot.
    pub fn named(&self, name: &str) -> Option<VolumeInfo> {
        self.info_of(None, name)
    }

    /// The snapshot of volume `of` called `name`.
    pub fn snapshot_named(&self, of: u64, name: &str) -> Option<VolumeInfo> {
        self.info_of(Some(of), name)
    }

    fn info_of(&self, of: Option<u64>, name: &str) -> Option<VolumeInfo> {
        let number = self.names.borrow().find(of, name)?;
        self.info(number)
    }

    /// The snapshots of volume `of`, in the order of their creation.
    pub fn snapshots_of(&self, of: u64) -> Vec<VolumeInfo> {
        self.snapshot_numbers(of).into_iter().filter_map(|number| self.info(number)).collect()
    }

    /// As [`Pool::snapshots_of`], their numbers alone: little for each, where there are many.
    pub fn snapshot_numbers(&self, of: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.names.borrow().snapshots_of(of).collect();
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|one, two| one < two), "N1: each stands here once");
        numbers
    }

    /// Number of snapshots of volume `of`.
    pub fn count_snapshots(&self, of: u64) -> usize {
        self.names.borrow().snapshots_of(of).count()
    }

    /// A volume for people: its name, behind that of its volume if it is a snapshot.
    pub(super) fn full_name(&self, volume: &Volume) -> String {
        let named =
            |id: u64, name: &str| if name.is_empty() { format!("volume {id}") } else { name.to_owned() };
        let own = named(volume.id, &volume.name.borrow());
        let Some(of) = volume.snapshot_of else { return own };
        let known = self.volumes.borrow();
        let of = known.get(&of).map_or_else(|| named(of, ""), |known| named(of, &known.name.borrow()));
        format!("{of}@{own}")
    }

    /// N1.
    pub(super) fn check_names(&self) {
        let (names, volumes) = (self.names.borrow(), self.volumes.borrow());
        let named = |volume: &&Rc<Volume>| !volume.name.borrow().is_empty();
        let all = volumes.values().filter(named).map(|volume| entry(volume));
        assert_eq!(names.entries, all.collect(), "N1");
    }
}

/// What stands in the index for a volume.
fn entry(volume: &Volume) -> (Option<u64>, String, u64) {
    (volume.snapshot_of, volume.name.borrow().clone(), volume.id)
}
