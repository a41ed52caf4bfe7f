//! The latency of small reads of a volume while another one of its shard is flooded, raw.

use crate::machine::Machine;
use crate::report::stats::{Summary, median, ratio};
use serde::{Deserialize, Serialize};

/// Floods on one medium.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NeighbourPart {
    /// `memory`, `disk, direct`.
    pub(crate) world: String,
    /// What that is, in a sentence.
    pub(crate) description: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// The floods.
    pub(crate) rows: Vec<NeighbourRow>,
}

/// One flood.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NeighbourRow {
    /// `32 MiB reads QD8`.
    pub(crate) flood: String,
    /// Median and 99th percentile of the reads in microseconds right before the flood, one a round.
    pub(crate) quiet: Vec<(f64, f64)>,
    /// As `quiet`, during the flood.
    pub(crate) beside: Vec<(f64, f64)>,
    /// Requests of the flood that were answered a second, one a round.
    pub(crate) flood_per_second: Vec<f64>,
}

impl NeighbourRow {
    /// Medians of the quiet reads over the rounds: of the median and of the 99th percentile.
    pub(crate) fn quiet(&self) -> (f64, f64) {
        medians(&self.quiet)
    }

    /// As [`NeighbourRow::quiet`], during the flood.
    pub(crate) fn beside(&self) -> (f64, f64) {
        medians(&self.beside)
    }

    /// Median over the rounds of how many requests of the flood were answered a second.
    pub(crate) fn flood_per_second(&self) -> f64 {
        median(&self.flood_per_second)
    }

    /// Median during the flood over the quiet one, round by round.
    pub(crate) fn ratio(&self) -> Option<Summary> {
        ratio(&firsts(&self.beside), &firsts(&self.quiet))
    }
}

fn firsts(rounds: &[(f64, f64)]) -> Vec<f64> {
    rounds.iter().map(|(first, _)| *first).collect()
}

fn medians(rounds: &[(f64, f64)]) -> (f64, f64) {
    let seconds: Vec<_> = rounds.iter().map(|(_, second)| *second).collect();
    (median(&firsts(rounds)), median(&seconds))
}

/// Puts `part` where an older one of the same world was, or at the end; floods that were not measured anew stay.
pub(crate) fn put_neighbour(parts: &mut Vec<NeighbourPart>, mut part: NeighbourPart) {
    let Some(old) = parts.iter_mut().find(|old| old.world == part.world) else { return parts.push(part) };
    let mut rows = std::mem::take(&mut old.rows);
    for new in part.rows.drain(..) {
        match rows.iter_mut().find(|row| row.flood == new.flood) {
            Some(row) => *row = new,
            None => rows.push(new),
        }
    }
    *old = NeighbourPart { rows, ..part };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(flood: &str, beside: f64) -> NeighbourPart {
        let row = NeighbourRow {
            flood: flood.to_owned(),
            quiet: vec![(10.0, 20.0), (20.0, 20.0), (10.0, 40.0)],
            beside: vec![(beside, 100.0), (2.0 * beside, 300.0), (beside, 200.0)],
            flood_per_second: vec![1.0; 3],
        };
        NeighbourPart { world: "memory".to_owned(), rows: vec![row], ..NeighbourPart::default() }
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_new_floods_replace_their_like() {
        let mut parts = Vec::new();
        put_neighbour(&mut parts, part("reads", 50.0));
        put_neighbour(&mut parts, part("writes", 50.0));
        put_neighbour(&mut parts, part("reads", 30.0));
        let rows = &parts[0].rows;
        assert_eq!((parts.len(), rows.len()), (1, 2));
        assert_eq!((rows[0].quiet(), rows[0].beside()), ((10.0, 20.0), (30.0, 200.0)));
        assert_eq!(rows[0].ratio().map(|it| (it.lowest, it.median, it.highest)), Some((3.0, 3.0, 3.0)));
    }
}
