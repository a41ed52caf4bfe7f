//! Where something that is served is, compared with where its group says that it is.

use crate::opened::arrays::Arrays;
use crate::spec::Disks;
use crate::world::{DiskRef, is_same_disk};
use std::sync::Arc;
use varve_vg::table::{ArrayTarget, Table};

/// Where something that is served is.
#[derive(Clone)]
pub(crate) struct Placement {
    table: Table,
    /// The disks of the table.
    disks: Disks,
    /// Where it is as well, while a run of it moves and either place may count.
    moved: Option<Box<Placement>>,
}

impl Placement {
    /// In the places of `table`, on those of `disks` that it names.
    pub(crate) fn at(table: &Table, disks: &Disks) -> Self {
        let own = table.disks();
        let disks = disks.iter().filter(|(name, _)| own.contains(name));
        let disks = disks.map(|(name, file)| (*name, Arc::clone(file))).collect();
        Self { table: table.clone(), disks, moved: None }
    }

    /// Its bytes lie where `table`, which may have grown since, has them, too.
    pub(crate) fn prepare(&mut self, table: &Table, disks: &Disks) {
        let moved = Self::at(&table.clone().up_to(self.table.size()), disks);
        self.moved = Some(Box::new(moved));
    }

    /// Its bytes lie where they were moved, or where they were.
    pub(crate) fn finish(&mut self, is_switched: bool) {
        if let Some(moved) = self.moved.take().filter(|_| is_switched) {
            *self = *moved;
        }
    }

    /// Its array, if it is on one.
    pub(crate) fn array(&self) -> Option<&ArrayTarget> {
        self.table.array()
    }

    /// How `table`, on `disks`, differs from it, as far as `arrays` use it: a member that is away may be another one.
    pub(crate) fn compared(&self, table: &Table, disks: &Disks, arrays: &Arrays) -> PlacementState {
        let moved = self.moved.as_ref().map(|moved| moved.compared_alone(table, disks, arrays));
        moved.into_iter().fold(self.compared_alone(table, disks, arrays), PlacementState::min)
    }

    fn compared_alone(&self, table: &Table, disks: &Disks, arrays: &Arrays) -> PlacementState {
        let now = Self::at(table, disks);
        let is_same = |(name, file)| now.disks.get(name).is_some_and(|now: &DiskRef| is_same_disk(now, file));
        let has_same_disks = self.disks.iter().all(is_same);
        // An array goes on without a disk, and takes it back.
        if !table.begins_with(&self.table, &arrays.away(&self.table))
            || !(has_same_disks || table.array().is_some())
        {
            return PlacementState::Fenced;
        }
        let is_as_before = *table == self.table && has_same_disks && now.disks.len() == self.disks.len();
        if is_as_before { PlacementState::Same } else { PlacementState::Changed }
    }
}

/// How what is served of a volume stands to what its group says; the worse is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementState {
    /// It is what its group says; or nothing is served of it.
    Same,
    /// Its group gives it more than is served, or other disks to the members of its array.
    Changed,
    /// It is something else, and out of use.
    Fenced,
}
