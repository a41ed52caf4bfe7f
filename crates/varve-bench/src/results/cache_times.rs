//! What bounded memory for metadata costs in real time: settings beside each other, round after round.

use crate::machine::Machine;
use crate::report::stats::{Summary, ratio};
use serde::{Deserialize, Serialize};

/// The setting without any snapshot.
pub(crate) const NO_SNAPSHOT: &str = "no snapshot";

/// All settings on one medium.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CacheTimes {
    /// `memory`, `disk, direct`.
    pub(crate) world: String,
    /// What that is, in a sentence.
    pub(crate) description: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// The settings; what they are compared with comes before them.
    pub(crate) rows: Vec<CacheTimesRow>,
}

/// One setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CacheTimesRow {
    /// The setting: `sieve, logged`.
    pub(crate) setting: String,
    /// The setting that it is compared with; none for the first.
    pub(crate) base: Option<String>,
    /// Bytes a second under each load, by the load's name, one a round.
    pub(crate) loads: Vec<(String, Vec<f64>)>,
}

impl CacheTimes {
    /// Adds what a round showed of a setting.
    pub(crate) fn record(&mut self, setting: &str, speeds: &[(&str, f64)]) {
        let row = self.rows.iter_mut().find(|row| row.setting == setting);
        let row = row.expect("every setting has a row");
        for (load, speed) in speeds {
            match row.loads.iter_mut().find(|(name, _)| name == load) {
                Some((_, rounds)) => rounds.push(*speed),
                None => row.loads.push(((*load).to_owned(), vec![*speed])),
            }
        }
    }

    /// What `row` leaves of the speed of the setting that it is compared with, round by round.
    pub(crate) fn ratio(&self, row: &CacheTimesRow, load: &str) -> Option<Summary> {
        let base = self.rows.iter().find(|other| Some(&other.setting) == row.base.as_ref())?;
        ratio(row.rounds(load)?, base.rounds(load)?)
    }
}

impl CacheTimesRow {
    /// A setting of which nothing is known yet.
    pub(crate) fn empty(setting: &str, base: Option<&str>) -> Self {
        Self { setting: setting.to_owned(), base: base.map(str::to_owned), loads: Vec::new() }
    }

    /// Bytes a second under the load of this name, one a round.
    pub(crate) fn rounds(&self, load: &str) -> Option<&[f64]> {
        self.loads.iter().find(|(name, _)| name == load).map(|(_, rounds)| rounds.as_slice())
    }

    /// Whether its memory is bounded, so that it has a goal.
    pub(crate) fn is_bounded(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base != NO_SNAPSHOT)
    }
}
