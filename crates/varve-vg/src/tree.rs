//! A volume as a tree of what it is made of, as data: pure. Opening it needs nothing else of its group's text.
//!
//! Invariant TREE1: nothing of a tree is on a missing disk but members that an array can do without, or where another volume's
//! data has not been cleared yet.

use crate::StoreKind;
use crate::model::{Group, LogicalVolume, Role, Store};
use crate::table::{IncompleteVolume, Parts, Table, store_table, table};
use uuid::Uuid;

/// A volume or pool: its bytes, and the exception stores between them and its doors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeNode {
    /// Which one.
    pub id: Uuid,
    /// What its bytes are for.
    pub role: Role,
    /// Where they lie.
    pub table: Table,
    /// Its exception stores, that of the dependent snapshots first.
    pub stores: Vec<StoreNode>,
}

/// An exception store of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreNode {
    /// Which one.
    pub id: Uuid,
    /// Whose snapshots it serves.
    pub kind: StoreKind,
    /// Where its bytes lie.
    pub table: Table,
}

/// Why a volume has no tree now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Disks are missing.
    #[error(transparent)]
    Incomplete(#[from] IncompleteVolume),
    /// What others wrote to its extents has not been cleared at all yet.
    #[error("{volume}: what others wrote to its extents is being cleared")]
    Uncleared {
        /// `VG/LV`.
        volume: String,
    },
}

impl VolumeNode {
    /// The tree of `volume`, as far as its extents were cleared (TREE1).
    pub fn of(group: &Group, volume: &LogicalVolume) -> Result<Self, TreeError> {
        let mut node = Self::whole(group, volume)?;
        match group.uncleared(volume.id) {
            Some(0) => {
                let volume = format!("{}/{}", group.name(), volume.name);
                return Err(TreeError::Uncleared { volume });
            }
            Some(from) => node.table = node.table.up_to(group.bytes(from)),
            None => {}
        }
        Ok(node)
    }

    /// The tree of `volume`, of which nothing may be served yet: what is to be cleared is part of it.
    pub fn whole(group: &Group, volume: &LogicalVolume) -> Result<Self, IncompleteVolume> {
        let table = table(group, volume, Parts::All)?;
        let stores = volume.stores().map(|store| StoreNode::of(group, volume, store));
        let stores = stores.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { id: volume.id, role: volume.role, table, stores })
    }

    /// Whether it is a thin pool.
    pub fn is_pool(&self) -> bool {
        self.role == Role::Pool
    }

    /// The exception store with this id.
    pub fn store(&self, id: Uuid) -> Option<&StoreNode> {
        self.stores.iter().find(|store| store.id == id)
    }
}

impl StoreNode {
    /// The node of `store`, a store of `volume`.
    fn of(group: &Group, volume: &LogicalVolume, store: &Store) -> Result<Self, IncompleteVolume> {
        let shared = volume.store.as_ref().is_some_and(|shared| shared.id == store.id);
        let kind = if shared { StoreKind::Dependent } else { StoreKind::Independent };
        Ok(Self { id: store.id, kind, table: store_table(group, volume, store)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Description, Job, JobWork};
    use varve_block::UnixTime;

    const TEXT: &str = include_str!("../../varve-format/src/text/golden.toml");

    fn golden() -> Description {
        let mut description = Description::decode(TEXT).expect("the golden text");
        description.physical_volumes[1].missing = false;
        description
    }

    fn tree(description: Description, name: &str) -> Result<VolumeNode, TreeError> {
        let group = Group::new(description).expect("sound");
        VolumeNode::of(&group, group.lv(name).expect("in the golden text"))
    }

    #[test]
    fn a_tree_has_the_volume_and_its_stores() {
        let node = tree(golden(), "vm1").expect("complete");
        assert!(!node.is_pool() && node.table.lines.len() == 2);
        let store = golden().logical_volumes.iter().find_map(|volume| volume.store.clone()).expect("one");
        assert_eq!(node.store(store.id).map(|store| store.kind), Some(StoreKind::Dependent));
        assert_eq!(node.store(node.id), None);
    }

    #[test]
    fn what_is_missing_or_not_cleared_has_no_tree() {
        let mut missing = golden();
        missing.physical_volumes[1].missing = true;
        assert!(matches!(tree(missing, "vm1"), Err(TreeError::Incomplete(_))), "TREE1");
        let uncleared = |from| {
            let mut description = golden();
            let fast = description.logical_volumes.iter().find(|volume| volume.name == "fast");
            let work = JobWork::Clear { volume: fast.expect("golden").id, from };
            let (subject, started) = ("data/fast".to_owned(), UnixTime(5));
            description.jobs.push(Job { id: 1, subject, started, groups: Vec::new(), work });
            description.last_job = 1;
            tree(description, "fast")
        };
        assert_eq!(uncleared(0), Err(TreeError::Uncleared { volume: "data/fast".to_owned() }), "TREE1");
        let whole = tree(golden(), "fast").expect("complete");
        let part = uncleared(1).expect("part of it was cleared");
        assert!(whole.table.begins_with(&part.table, &[]) && part.table != whole.table, "TREE1");
    }
}
