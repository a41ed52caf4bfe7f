//! What a check has found, and the volumes and bytes that it concerns.

use std::collections::BTreeMap;
use varve_block::Extent;

/// So many errors are reported; of the rest, only that there are more.
const ERRORS_MAX: usize = 200;
/// Bytes of a volume that are lost or in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDamage {
    /// The volume's id.
    pub volume: u64,
    /// The volume that it is a snapshot of, if it is one.
    pub snapshot_of: Option<u64>,
    /// Its name.
    pub name: String,
    /// Which bytes, in order.
    pub extents: Vec<Extent>,
    /// What became of them.
    pub why: &'static str,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolReport {
    /// Volumes, those included that are being removed.
    pub volumes: u64,
    /// Nodes of all maps.
    pub nodes: u64,
    /// Runs of mapped parts in leaves, each counted once however many volumes hold its leaf.
    pub runs: u64,
    /// Blocks of data that something leads to.
    pub data_blocks: u64,
    /// Records of the log since the last checkpoint, if they were looked at.
    pub records: u64,
    /// What the volumes are called, by their ids.
    pub names: BTreeMap<u64, String>,
    /// What is wrong; none if the pool is sound.
    pub errors: Vec<String>,
    /// The volumes that it concerns, and which of their bytes.
    pub damage: Vec<PoolDamage>,
}

impl PoolReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.errors.is_empty() && self.damage.is_empty()
    }

    pub(in super::super) fn error(&mut self, error: String) {
        match self.errors.len() {
            ERRORS_MAX => self.errors.push("and more".to_owned()),
            length if length > ERRORS_MAX => {}
            _ => self.errors.push(error),
        }
    }
}
