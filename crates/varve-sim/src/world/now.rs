//! The time of a world, and the date that its clock says.

use std::cell::Cell;
use varve_block::{Moment, UnixTime};

/// The date at which every world begins: 2026-01-01 00:00 UTC.
const BEGINNING: UnixTime = UnixTime(1_767_225_600);

/// The time of a world: what has passed, and what its clock says the date is.
pub(super) struct Now {
    moment: Cell<Moment>,
    beginning: Cell<UnixTime>,
}

impl Default for Now {
    fn default() -> Self {
        Self { moment: Cell::default(), beginning: Cell::new(BEGINNING) }
    }
}

impl Now {
    pub(super) fn get(&self) -> Moment {
        self.moment.get()
    }

    pub(super) fn set(&self, moment: Moment) {
        self.moment.set(moment);
    }

    pub(super) fn date(&self) -> UnixTime {
        UnixTime(self.beginning.get().0 + self.get().0 / 1_000_000_000)
    }

    /// Somebody sets the date; what passes is not concerned.
    pub(super) fn set_date(&self, date: UnixTime) {
        let passed = self.get().0 / 1_000_000_000;
        self.beginning.set(UnixTime(date.0.saturating_sub(passed)));
    }
}
