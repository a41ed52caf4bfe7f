//! Where the doors of a volume lead, and what they are to hear of.

use super::losses::Losses;
use super::views::Views;
use varve_block::{Device, Switch};

/// Where the doors of a volume lead.
#[derive(Clone)]
pub struct Top {
    /// To whatever serves it.
    pub(super) switch: Switch,
    /// What they are to hear of.
    pub(super) losses: Losses,
    /// Where doors of its snapshots lead.
    pub(super) views: Views,
}

impl Top {
    /// Doors lead to `base`.
    pub(super) fn new(base: &Device) -> Self {
        Self { switch: Switch::new(base.clone()), losses: Losses::default(), views: Views::default() }
    }
}
