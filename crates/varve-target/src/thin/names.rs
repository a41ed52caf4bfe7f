//! What the volumes of a pool are called: one is found without a look at all others, as are the snapshots of one volume.
//!
//! Invariant N1: every volume that is not being removed stands here with its name, and nothing else does.

use super::info::info;
use super::volume::Volume;
use super::{Pool, VolumeInfo};
use std::collections::BTreeSet;
use std::rc::Rc;

impl Pool {
    /// Takes in a volume that was not there (N1).
    pub(super) fn take_in(&self, volume: Volume) -> Rc<Volume> {
        let volume = Rc::new(volume);
        if !volume.name.borrow().is_empty() {
            let entry = (volume.name.borrow().clone(), volume.id);
            self.names.borrow_mut().entries.insert(entry);
        }
        let before = self.volumes.borrow_mut().insert(volume.id, Rc::clone(&volume));
        assert!(before.is_none(), "an id is never given twice");
        volume
    }

    /// The volume is called `name` from now on; if that is empty it has no name any more (N1).
    pub(super) fn set_name(&self, volume: &Volume, name: &str) {
        let entries = &mut self.names.borrow_mut().entries;
        let before = volume.name.replace(name.to_owned());
        let was_there = entries.remove(&(before.clone(), volume.id));
        assert!(was_there || before.is_empty(), "N1: {before}");
        if !name.is_empty() {
            entries.insert((name.to_owned(), volume.id));
        }
    }

    /// Whether a volume is called `name`.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        self.names.borrow().find(name).is_some()
    }

    /// The volume called `name`.
    pub fn named(&self, name: &str) -> Option<VolumeInfo> {
        let number = self.names.borrow().find(name)?;
        self.volumes.borrow().get(&number).map(|volume| info(volume))
    }

    /// The volumes whose names begin with `start`, in the order of their creation.
    pub fn named_like(&self, start: &str) -> Vec<VolumeInfo> {
        self.numbers_like(start).into_iter().filter_map(|number| self.info(number)).collect()
    }

    /// As [`Pool::named_like`], their numbers alone: little for each, where there are many.
    pub fn numbers_like(&self, start: &str) -> Vec<u64> {
        let names = self.names.borrow();
        let alike = names.starting_at(start).take_while(|(name, _)| name.starts_with(start));
        let mut numbers: Vec<u64> = alike.map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Number of volumes whose names begin with `start`.
    pub fn count_named(&self, start: &str) -> usize {
        self.names.borrow().starting_at(start).take_while(|(name, _)| name.starts_with(start)).count()
    }

    /// N1.
    pub(super) fn check_names(&self) {
        let (names, volumes) = (self.names.borrow(), self.volumes.borrow());
        let named = |volume: &&Rc<Volume>| !volume.name.borrow().is_empty();
        let all = volumes.values().filter(named).map(|volume| (volume.name.borrow().clone(), volume.id));
        assert_eq!(names.entries, all.collect::<BTreeSet<(String, u64)>>(), "N1");
    }
}
