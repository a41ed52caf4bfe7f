//! Figures with goals of both directions, raw: the record of whatever is measured once a round and has a name and a unit.

use crate::machine::Machine;
use crate::report::goal::Goal;
use serde::{Deserialize, Serialize};

/// Figures that were measured together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FigurePart {
    /// `memory`, `virtual time`, `engine, memory`.
    pub(crate) world: String,
    /// What they were measured on, in a sentence.
    pub(crate) description: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// The figures.
    pub(crate) rows: Vec<FigureRow>,
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FigureRow {
    /// What it is.
    pub(crate) name: String,
    /// `ms`, `MiB/s`, or `x` for a ratio.
    pub(crate) unit: String,
    /// What it has to keep; nothing if it only tells.
    pub(crate) goal: Option<Goal>,
    /// One a round.
    pub(crate) rounds: Vec<f64>,
}

impl FigurePart {
    /// A part without figures, to be measured on this machine.
    pub(crate) fn empty(world: impl Into<String>, description: impl Into<String>) -> Self {
        let (world, description) = (world.into(), description.into());
        Self { world, description, machine: Machine::look(), rows: Vec::new() }
    }

    /// One more round of the figure `name`.
    pub(crate) fn record(&mut self, name: &str, unit: &str, goal: Option<Goal>, value: f64) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.rounds.push(value),
            None => {
                let (name, unit) = (name.to_owned(), unit.to_owned());
                self.rows.push(FigureRow { name, unit, goal, rounds: vec![value] });
            }
        }
    }

    /// Puts in the rows of `old` that were not measured anew.
    pub(crate) fn keep_rows_of(&mut self, old: Option<&FigurePart>) {
        for row in old.into_iter().flat_map(|old| &old.rows) {
            if self.rows.iter().all(|new| new.name != row.name) {
                self.rows.push(row.clone());
            }
        }
    }
}

/// Puts `part` where an older one of the same world was, or at the end; figures that were not measured anew stay.
pub(crate) fn put_figures(parts: &mut Vec<FigurePart>, mut part: FigurePart) {
    let old = parts.iter_mut().find(|old| old.world == part.world);
    part.keep_rows_of(old.as_deref());
    match old {
        Some(old) => *old = part,
        None => parts.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_gathers_rounds_and_stays_until_it_is_measured_anew() {
        let (mut old, mut new) = (FigurePart::default(), FigurePart::default());
        old.record("a", "x", None, 1.0);
        old.record("b", "x", Some(Goal::AtLeast(0.5)), 2.0);
        new.record("a", "x", None, 3.0);
        new.record("a", "x", None, 4.0);
        let mut parts = vec![old, FigurePart { world: "another".to_owned(), ..FigurePart::default() }];
        put_figures(&mut parts, new);
        assert_eq!(parts.len(), 2);
        let rows: Vec<_> = parts[0].rows.iter().map(|row| (row.name.as_str(), row.rounds.clone())).collect();
        assert_eq!(rows, [("a", vec![3.0, 4.0]), ("b", vec![2.0])]);
    }
}
