//! What is done to convert a volume, and why it is not.

use super::super::asked::{DiskChoice, Layout};
use uuid::Uuid;

/// What is done to convert a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversionStep {
    /// Extents in the new layout are reserved.
    Begin {
        /// The number of its job.
        job: u64,
        /// What the conversion is: a new id.
        id: Uuid,
        /// The new layout.
        layout: Layout,
        /// On which disks it is.
        disks: DiskChoice,
        /// Bytes that are copied in a second at most.
        rate: Option<u64>,
    },
    /// The new layout counts.
    Switch,
    /// What does not count is freed: the new layout before the switch, the old one afterwards.
    End,
    /// The last copy of a mirror goes as a linear volume; this is no conversion that would have to end.
    Split {
        /// What the new volume is called.
        to: String,
        /// What it is: a new id.
        id: Uuid,
    },
}

/// Why a volume is not converted, or something else not done because one is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// It is being converted.
    #[error("{volume} is being converted to another layout")]
    Converting {
        /// `VG/LV`.
        volume: String,
    },
    /// It is not.
    #[error("{volume} is not being converted")]
    NotConverting {
        /// `VG/LV`, or its id.
        volume: String,
    },
    /// The new layout has rows that do not divide it.
    #[error("{volume} has {extents} extents; for {layout} they must be a multiple of {row}")]
    Rows {
        /// `VG/LV`.
        volume: String,
        /// Whether it is a pool.
        is_pool: bool,
        /// Its extents.
        extents: u64,
        /// The layout.
        layout: String,
        /// Extents of a row.
        row: u64,
        /// Bytes by which it had to be larger.
        more: u64,
    },
}

impl ConversionError {
    /// What to do about it.
    pub(in crate::plan) fn help(&self) -> String {
        match self {
            Self::Converting { .. } => {
                "wait for its job, or end it: `varve job list`, `varve job cancel ID`".into()
            }
            Self::NotConverting { .. } => "`varve job list` shows what is being converted".into(),
            Self::Rows { volume, is_pool, more, .. } => {
                let noun = if *is_pool { "pool" } else { "lv" };
                format!("make it larger first: `varve {noun} extend {volume} --size +{more}`")
            }
        }
    }
}
