//! What a copy-on-write overlay costs whole pieces of work, such as the boot of a machine, raw.

use crate::machine::Machine;
use crate::report::stats::{Summary, ratio};
use serde::{Deserialize, Serialize};

/// One piece of work on one medium.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OverlayPart {
    /// `first boot`, `copy, cold`.
    pub(crate) work: String,
    /// `memory`, `disk, direct`.
    pub(crate) world: String,
    /// What that is, in a sentence.
    pub(crate) description: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// On what it was done.
    pub(crate) rows: Vec<OverlayRow>,
}

/// The work on one kind of disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OverlayRow {
    /// `thin volume over a raw image`.
    pub(crate) disk: String,
    /// The row that it is compared with; none: it is a raw disk itself.
    pub(crate) raw: Option<String>,
    /// How many times the seconds of that row it may take.
    pub(crate) goal: Option<f64>,
    /// What it took, one a round.
    pub(crate) rounds: Vec<Taken>,
    /// Why there are none.
    pub(crate) absent: Option<String>,
}

/// What one run took.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// From the beginning to the end.
    pub(crate) seconds: f64,
    /// For which the server's threads ran.
    pub(crate) server_cpu_seconds: f64,
    /// Reads, writes and flushes that reached the server, or left the guest.
    pub(crate) requests: u64,
}

/// What of a run is compared.
pub(crate) type Figure = fn(&Taken) -> f64;

impl OverlayRow {
    /// One round. None follows one that failed, so that rounds of all rows have the same numbers.
    pub(crate) fn record(&mut self, outcome: Result<Taken, String>) {
        match outcome {
            _ if self.absent.is_some() => {}
            Ok(taken) => self.rounds.push(taken),
            Err(reason) => self.absent = Some(reason),
        }
    }

    fn figures(&self, figure: Figure) -> Vec<f64> {
        self.rounds.iter().map(figure).collect()
    }

    /// The median and the spread of one figure.
    pub(crate) fn summary(&self, figure: Figure) -> Option<Summary> {
        Summary::of(&self.figures(figure))
    }
}

impl OverlayPart {
    /// One figure of `row` over that of its raw disk, round by round.
    pub(crate) fn ratio(&self, row: &OverlayRow, figure: Figure) -> Option<Summary> {
        let raw = self.rows.iter().find(|other| Some(&other.disk) == row.raw.as_ref())?;
        ratio(&row.figures(figure), &raw.figures(figure))
    }
}

/// Puts `part` where an older one of the same work and world was, or at the end.
pub(crate) fn put_overlay(parts: &mut Vec<OverlayPart>, part: OverlayPart) {
    match parts.iter_mut().find(|old| (&old.work, &old.world) == (&part.work, &part.world)) {
        Some(old) => *old = part,
        None => parts.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(disk: &str, raw: Option<&str>, seconds: &[f64]) -> OverlayRow {
        let taken = |seconds: &f64| Taken { seconds: *seconds, ..Taken::default() };
        OverlayRow {
            disk: disk.to_owned(),
            raw: raw.map(str::to_owned),
            rounds: seconds.iter().map(taken).collect(),
            ..OverlayRow::default()
        }
    }

    #[test]
    fn an_overlay_is_compared_with_its_own_raw_disk() {
        let rows = vec![
            row("linear", None, &[10.0, 20.0, 10.0]),
            row("raw file", None, &[1.0, 1.0, 1.0]),
            row("thin", Some("linear"), &[11.0, 22.0, 12.0]),
            row("alone", Some("nothing"), &[1.0]),
        ];
        let part = OverlayPart { rows, ..OverlayPart::default() };
        let of = |index: usize| part.ratio(&part.rows[index], |taken| taken.seconds);
        assert_eq!(of(2).map(|it| (it.lowest, it.median, it.highest)), Some((1.1, 1.1, 1.2)));
        assert_eq!((of(0), of(3)), (None, None));
    }

    #[test]
    fn nothing_is_recorded_behind_a_round_that_failed() {
        let mut row = row("thin", None, &[1.0]);
        row.record(Err("no".to_owned()));
        row.record(Ok(Taken::default()));
        assert_eq!((row.rounds.len(), row.absent.as_deref()), (1, Some("no")));
    }

    #[test]
    fn a_part_takes_the_place_of_its_like() {
        let part = |work: &str, seconds: f64| OverlayPart {
            work: work.to_owned(),
            rows: vec![row("linear", None, &[seconds])],
            ..OverlayPart::default()
        };
        let mut parts = Vec::new();
        for (work, seconds) in [("boot", 1.0), ("copy", 2.0), ("boot", 3.0)] {
            put_overlay(&mut parts, part(work, seconds));
        }
        let seconds: Vec<f64> = parts.iter().map(|part| part.rows[0].rounds[0].seconds).collect();
        assert_eq!(seconds, [3.0, 2.0]);
    }
}
