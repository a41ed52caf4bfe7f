//! The two kinds of pictures: bars of ratios with what they are measured against, and lines over a number of snapshots.

use crate::report::stats::Summary;
use crate::report::svg::{Anchor, Svg, step};

const INK: &str = "#1f2933";
const FAINT: &str = "#d9dee4";
const QUIET: &str = "#64707d";
const HOLDS: &str = "#5fa88d";
const MISSES: &str = "#e08a5c";
const PLAIN: &str = "#8fa6bf";

/// One bar: a ratio, the goal set for it, and where others stand.
pub(crate) struct Bar {
    /// What was measured.
    pub(crate) label: String,
    /// The ratio.
    pub(crate) ratio: Summary,
    /// The goal, and whether it is kept; a bar may have none.
    pub(crate) goal: Option<(f64, bool)>,
    /// The ratios of the others.
    pub(crate) others: Vec<f64>,
}

/// Bars from left to right, one below the other. `note` says what the ratio is to, `others` what the others are.
pub(crate) fn bars(title: &str, note: &str, others: Option<&str>, rows: &[Bar]) -> String {
    let longest = rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
    let (left, right, top, pitch) = ((longest as f64 * 7.0).max(265.0), 40.0, 66.0, 26.0);
    let width = left + 595.0;
    let bottom = top + pitch * rows.len() as f64;
    let highest = rows.iter().map(|row| row.highest()).fold(1.0, f64::max) * 1.05;
    let scale = |value: f64| left + (width - left - right) * value / highest;
    let mut svg = Svg::new(width, bottom + 64.0);
    svg.text((16.0, 26.0), 16.0, Anchor::Start, INK, title);
    svg.text((16.0, 46.0), 12.0, Anchor::Start, QUIET, note);
    let step = step(highest, 8);
    let mut value = 0.0;
    while value <= highest {
        svg.line((scale(value), top), (scale(value), bottom), FAINT, 1.0);
        let label = format!("{value:.1}");
        svg.text((scale(value), bottom + 16.0), 11.0, Anchor::Middle, QUIET, &label);
        value += step;
    }
    for (index, row) in rows.iter().enumerate() {
        let y = top + pitch * index as f64;
        let colour = match row.goal {
            Some((_, true)) => HOLDS,
            Some((_, false)) => MISSES,
            None => PLAIN,
        };
        svg.text((left - 10.0, y + 17.0), 12.0, Anchor::End, INK, &row.label);
        svg.rectangle((left, y + 5.0), (scale(row.ratio.median) - left, 16.0), colour);
        for other in &row.others {
            svg.circle((scale(*other), y + 13.0), 4.0, "#ffffff", INK);
        }
        if let Some((goal, _)) = row.goal {
            svg.line((scale(goal), y + 2.0), (scale(goal), y + 24.0), INK, 2.5);
        }
        svg.line((scale(row.ratio.lowest), y + 13.0), (scale(row.ratio.highest), y + 13.0), INK, 1.0);
        let label = format!("{:.2}", row.ratio.median);
        svg.text((scale(row.highest()) + 9.0, y + 17.0), 11.0, Anchor::Start, INK, &label);
    }
    let plain = rows.iter().any(|row| row.goal.is_none());
    bar_legend(&mut svg, (left, bottom + 44.0), plain, others);
    svg.finish()
}

impl Bar {
    /// The farthest that is drawn of it: its spread, its goal, the others.
    fn highest(&self) -> f64 {
        let goal = self.goal.map_or(0.0, |(goal, _)| goal);
        self.others.iter().copied().fold(self.ratio.highest.max(goal).max(self.ratio.median), f64::max)
    }
}

fn bar_legend(svg: &mut Svg, (mut x, y): (f64, f64), plain: bool, others: Option<&str>) {
    let mut colour = |fill, width, text| {
        svg.rectangle((x, y - 9.0), (22.0, 11.0), fill);
        svg.text((x + 28.0, y), 12.0, Anchor::Start, INK, text);
        x += width;
    };
    colour(HOLDS, 150.0, "Varve, goal held");
    colour(MISSES, 130.0, "goal missed");
    if plain {
        colour(PLAIN, 100.0, "no goal");
    }
    svg.line((x, y - 11.0), (x, y + 4.0), INK, 2.5);
    svg.text((x + 8.0, y), 12.0, Anchor::Start, INK, "goal");
    svg.line((x + 56.0, y - 4.0), (x + 80.0, y - 4.0), INK, 1.0);
    svg.text((x + 86.0, y), 12.0, Anchor::Start, INK, "spread");
    if let Some(others) = others {
        svg.circle((x + 146.0, y - 4.0), 4.0, "#ffffff", INK);
        svg.text((x + 156.0, y), 12.0, Anchor::Start, INK, others);
    }
}

/// One line of a plot.
pub(crate) struct Curve {
    /// Its name in the legend.
    pub(crate) label: String,
    /// Its colour.
    pub(crate) colour: &'static str,
    /// Whether it is dashed: figures of others.
    pub(crate) dashed: bool,
    /// Number of snapshots, ratio.
    pub(crate) points: Vec<(u32, f64)>,
}

/// Ratios over a number of snapshots, which stand side by side as `places`.
pub(crate) fn curves(title: &str, note: &str, places: &[u32], curves: &[Curve]) -> String {
    let (left, top, width, height, legend) = (64.0, 66.0, 470.0, 300.0, 310.0);
    let bottom = top + height;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let highest = points().map(|(_, ratio)| *ratio).fold(1.0, f64::max) * 1.05;
    let y = |ratio: f64| bottom - height * ratio / highest;
    let x = |snapshots: u32| {
        let index = places.iter().position(|place| *place == snapshots).unwrap_or(0);
        left + width * (index as f64 + 0.5) / places.len() as f64
    };
    let mut svg = Svg::new(left + width + legend, bottom + 56.0);
    svg.text((16.0, 26.0), 16.0, Anchor::Start, INK, title);
    svg.text((16.0, 46.0), 12.0, Anchor::Start, QUIET, note);
    let step = step(highest, 6);
    let mut value = 0.0;
    while value <= highest {
        svg.line((left, y(value)), (left + width, y(value)), FAINT, 1.0);
        svg.text((left - 8.0, y(value) + 4.0), 11.0, Anchor::End, QUIET, &format!("{value:.1}"));
        value += step;
    }
    for place in places {
        svg.text((x(*place), bottom + 18.0), 12.0, Anchor::Middle, INK, &place.to_string());
    }
    svg.text((left + width / 2.0, bottom + 40.0), 12.0, Anchor::Middle, QUIET, "snapshots of the origin");
    for (index, curve) in curves.iter().enumerate() {
        let dashes = if curve.dashed { "6 4" } else { "" };
        let points: Vec<_> =
            curve.points.iter().map(|(snapshots, ratio)| (x(*snapshots), y(*ratio))).collect();
        svg.path(&points, curve.colour, dashes);
        points.iter().for_each(|at| svg.circle(*at, 3.5, "#ffffff", curve.colour));
        let (key, row) = (left + width + 16.0, top + 10.0 + 24.0 * index as f64);
        svg.path(&[(key, row), (key + 30.0, row)], curve.colour, dashes);
        svg.text((key + 38.0, row + 4.0), 12.0, Anchor::Start, INK, &curve.label);
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_coloured_by_its_goal() {
        let bar = |median: f64, goal| Bar {
            label: "random read".to_owned(),
            ratio: Summary { median, lowest: median, highest: median },
            goal,
            others: vec![1.0, 0.4],
        };
        let held = bars("t", "n", Some("others"), &[bar(1.3, Some((1.2, true)))]);
        let missed = bars("t", "n", Some("others"), &[bar(1.1, Some((1.2, false)))]);
        let plain = bars("t", "n", None, &[bar(1.1, None)]);
        assert_eq!((held.matches(HOLDS).count(), held.matches(MISSES).count()), (2, 1));
        assert_eq!((missed.matches(HOLDS).count(), missed.matches(MISSES).count()), (1, 2));
        assert_eq!((held.matches("<circle").count(), plain.matches("<circle").count()), (3, 2));
        assert_eq!((plain.matches(PLAIN).count(), plain.matches(HOLDS).count()), (2, 1));
    }

    #[test]
    fn every_point_of_a_curve_is_drawn() {
        let curve = |ratio: f64, dashed| Curve {
            label: "line".to_owned(),
            colour: "#123456",
            dashed,
            points: vec![(1, 1.0), (4, ratio), (16, ratio)],
        };
        let text = curves("t", "n", &[1, 4, 8, 16], &[curve(0.9, false), curve(0.3, true)]);
        assert_eq!(text.matches("<circle").count(), 6);
        assert_eq!(text.matches("stroke-dasharray=\"6 4\"").count(), 2);
    }
}
