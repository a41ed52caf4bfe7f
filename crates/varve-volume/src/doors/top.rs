//! Where the doors of a volume lead, and what they are to hear of.

use super::views::Views;
use crate::lifecycle::losses::Losses;
use varve_block::{Device, Switch};

/// Where the doors of a volume lead.
#[derive(Clone)]
pub struct Top {
    /// To whatever serves it.
    pub(crate) switch: Switch,
    /// What they are to hear of.
    pub(crate) losses: Losses,
    /// Where doors of its snapshots lead.
    pub(crate) views: Views,
}

impl Top {
    /// Doors lead to `base`.
    pub(crate) fn new(base: &Device) -> Self {
        Self { switch: Switch::new(base.clone()), losses: Losses::default(), views: Views::default() }
    }
}
