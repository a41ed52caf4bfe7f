//! What the bytes of a volume are for, and how its extents become them: two things.

use super::Segment;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use uuid::Uuid;
use varve_block::KIB;

/// What the bytes of a volume are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Role {
    /// Data of a client.
    #[default]
    Volume,
    /// A thin pool; volumes in it are the pool's own affair.
    Pool,
    /// An exception store that was replaced by a new copy.
    StoreBackup {
        /// The id of the store.
        of: Uuid,
    },
    /// The metadata that a pool had before it was written anew.
    PoolBackup {
        /// The id of the pool.
        of: Uuid,
    },
}

/// How the extents of a volume become its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Layout {
    /// One area after the other.
    #[default]
    Linear,
    /// Stripes in turn on each area of a segment.
    Striped {
        /// Bytes of a stripe.
        stripe_size: u64,
    },
    /// On no disk: it reads as zeros, and what is written is dropped.
    Zero,
    /// On no disk: every read and write fails.
    Error,
}

impl Layout {
    /// Whether its extents lie on disks.
    pub fn takes_space(self) -> bool {
        match self {
            Layout::Linear | Layout::Striped { .. } => true,
            Layout::Zero | Layout::Error => false,
        }
    }

    /// TEXT6, TEXT7: what is wrong with `segments` of `extents` extents in this layout.
    pub(super) fn problem(
        self,
        extents: u64,
        segments: &[Segment],
        extent_size: u64,
    ) -> Option<&'static str> {
        let sum = segments.iter().try_fold(0_u64, |sum, segment| sum.checked_add(segment.extents()));
        let expected = if self.takes_space() { extents } else { 0 };
        if extents == 0 || sum != Some(expected) {
            return Some("`extents` is not the sum of its segments");
        }
        match self {
            Layout::Linear if !segments.iter().all(is_linear) => {
                Some("a linear volume has segments of one area")
            }
            Layout::Striped { stripe_size }
                if !stripe_size.is_power_of_two() || !(4 * KIB..=extent_size).contains(&stripe_size) =>
            {
                Some("stripe_size must be a power of two from 4 KiB to the extent size")
            }
            Layout::Striped { .. } if !segments.iter().all(is_striped) => {
                Some("a striped segment has two or more areas of equal length on different disks")
            }
            Layout::Striped { .. } if !have_equal_width(segments) => {
                Some("all segments of a striped volume have the same number of areas")
            }
            _ => None,
        }
    }
}

fn is_linear(segment: &Segment) -> bool {
    segment.areas.len() == 1
}

fn is_striped(segment: &Segment) -> bool {
    let mut disks = HashSet::new();
    let different = segment.areas.iter().all(|area| disks.insert(area.pv));
    let equal = segment.areas.windows(2).all(|pair| pair[0].count == pair[1].count);
    different && equal && segment.areas.len() >= 2
}

fn have_equal_width(segments: &[Segment]) -> bool {
    segments.windows(2).all(|pair| pair[0].areas.len() == pair[1].areas.len())
}
