//! What holds and what misses, before any table.

use crate::report::stats::median;
use crate::report::table::{Table, dash};
use crate::report::verdict::{
    CACHE_GOAL, DISTANCE_GOAL, Goal, METADATA_GOAL_BYTES, NEIGHBOUR_GOAL, NEIGHBOUR_P99_GOAL_MS,
    SNAPSHOT_GOALS, judge, snapshot_ratio,
};
use crate::results::{
    CacheTimes, FigurePart, FigureRow, NbdPart, NbdRow, NeighbourPart, OverlayPart, Results, SnapshotPart,
    ThinPart,
};

/// One goal in one place.
struct Line {
    goal: String,
    place: String,
    held: usize,
    missed: Vec<String>,
}

/// The section.
pub(super) fn text(results: &Results) -> String {
    let mut lines = Vec::new();
    results.nbd.iter().for_each(|part| lines.extend(nbd_lines(part)));
    lines.extend(results.neighbours.iter().flat_map(neighbour_lines));
    lines.extend(results.overlays.iter().map(overlay_line));
    lines.extend(results.snapshots.iter().filter(|part| !part.independent).flat_map(snapshot_lines));
    lines.extend(cost_line(results));
    lines.extend(results.distances.iter().map(distance_line));
    lines.extend(cache_lines(results));
    lines.extend(results.cache_times.iter().map(cache_times_line));
    let managed = "snapshots are created and removed in the time allowed";
    lines.extend(results.management.iter().map(|part| figure_line(managed, part, with_limit)));
    lines.extend(results.thin.iter().map(thin_line));
    let scale = "pools of 10 M mappings, 10,000 snapshots, 1000 generations: within what is allowed";
    lines.extend(results.thin_scale.iter().map(|part| figure_line(scale, part, with_limit)));
    lines.extend(array_line(results));
    let name = |row: &FigureRow| row.name.clone();
    let work = "arrays rebuild, move and convert, and clients notice little";
    lines.extend(results.array_work.iter().map(|part| figure_line(work, part, name)));
    let images = "qcow2 images beside QEMU, mapped volumes beside linear ones";
    lines.extend(results.images.iter().map(|part| figure_line(images, part, name)));
    lines.extend(layer_line(results));
    let mut table = Table::new(&["goal", "where", "holds", "misses"]);
    for line in lines.iter().filter(|line| line.held + line.missed.len() > 0) {
        let all = line.held + line.missed.len();
        let missed = if line.missed.is_empty() { dash() } else { line.missed.join("<br>") };
        table.row(&[line.goal.clone(), line.place.clone(), format!("{} of {all}", line.held), missed]);
    }
    format!("## What holds, what misses\n\n{}", table.finish())
}

fn nbd_lines(part: &NbdPart) -> Vec<Line> {
    let fast = |goal: &str, random: bool| {
        let rows = part.rows.iter().filter(|row| row.work.random == random);
        nbd_line(part, goal, rows, |row| {
            let verdict = judge(row);
            let told = verdict.peer.as_ref().map(|peer| format!("{:.2} of {}", peer.ratio.median, peer.name));
            Some((verdict.is_fast(row.work.goal())?, told?))
        })
    };
    let lean =
        nbd_line(part, "no more server CPU a GiB than the leanest like peer", part.rows.iter(), |row| {
            let verdict = judge(row);
            let told = verdict.cpu.as_ref().map(|cpu| format!("{:.2} of {}", cpu.ratio.median, cpu.name));
            Some((verdict.is_lean()?, told?))
        });
    vec![
        fast("NBD, 4 KiB random: at least 1.2 x the best like peer", true),
        fast("NBD, sequential: at least 1.0 x the best like peer", false),
        lean,
    ]
}

fn nbd_line<'a>(
    part: &NbdPart,
    goal: &str,
    rows: impl Iterator<Item = &'a NbdRow>,
    judge: impl Fn(&NbdRow) -> Option<(bool, String)>,
) -> Line {
    let mut line = Line { goal: goal.to_owned(), place: part.medium.clone(), held: 0, missed: Vec::new() };
    for row in rows {
        match judge(row) {
            Some((true, _)) => line.held += 1,
            Some((false, told)) => line.missed.push(format!("{}: {told}", row.work.name())),
            None => {}
        }
    }
    line
}

impl Line {
    fn new(goal: String, place: &str) -> Self {
        Self { goal, place: place.to_owned(), held: 0, missed: Vec::new() }
    }

    /// Counts one figure, called `what` where it misses.
    fn judge(&mut self, goal: Goal, value: f64, what: &str) {
        if goal.holds(value) {
            self.held += 1;
        } else {
            self.missed.push(format!("{what}: {value:.3}"));
        }
    }
}

fn neighbour_lines(part: &NeighbourPart) -> Vec<Line> {
    let line = |told: &str| Line::new(format!("reads beside a flood on another volume: {told}"), &part.world);
    let mut median = line("a median of at most 10 times that in quiet");
    let mut percentile = line("a 99th percentile of at most 20 ms");
    for row in &part.rows {
        median.judge(NEIGHBOUR_GOAL, super::neighbour::ratio(row), &row.flood);
        percentile.judge(NEIGHBOUR_P99_GOAL_MS, row.beside().1 / 1e3, &row.flood);
    }
    vec![median, percentile]
}

fn overlay_line(part: &OverlayPart) -> Line {
    let goal =
        format!("{} on a copy-on-write image: at most its goal, as a ratio to a raw volume", part.work);
    let mut line = Line::new(goal, &part.world);
    for row in part.rows.iter().filter(|row| !row.rounds.is_empty()) {
        if let Some(goal) = row.goal {
            line.judge(Goal::AtMost(goal), super::overlay::time_ratio(part, row), &row.disk);
        }
    }
    line
}

fn array_line(results: &Results) -> Option<Line> {
    let part = results.arrays.as_ref()?;
    let mut line = Line::new("mirrors and ddraid beside one raw member".to_owned(), "throttled members");
    for row in &part.rows {
        if let Some(goal) = row.goal {
            let what = format!("{}: {}", row.array, row.load);
            line.judge(Goal::AtLeast(goal), super::arrays::median_ratio(row), &what);
        }
    }
    Some(line)
}

fn figure_line(goal: &str, part: &FigurePart, label: fn(&FigureRow) -> String) -> Line {
    let mut line = Line::new(goal.to_owned(), &part.world);
    for row in part.rows.iter().filter(|row| !row.rounds.is_empty()) {
        if let Some(goal) = row.goal {
            line.judge(goal, super::figures::median(row), &label(row));
        }
    }
    line
}

/// A figure with its limit, as one in a unit of its own is called where it misses.
fn with_limit(row: &FigureRow) -> String {
    let limit = row.goal.map_or(f64::NAN, |goal| goal.limit());
    format!("{} ({} {limit})", row.name, row.unit)
}

fn snapshot_lines(part: &SnapshotPart) -> Vec<Line> {
    let line = |(count, goal): (u32, f64)| {
        let told = format!("first-touch writes with {count} snapshots: at least {goal} of those with one");
        let mut line = Line::new(told, &part.world);
        for series in &part.series {
            if let Some(ratio) = snapshot_ratio(series, count, 1) {
                line.judge(Goal::AtLeast(goal), ratio.median, &series.load);
            }
        }
        line
    };
    SNAPSHOT_GOALS.map(line).into()
}

fn cost_line(results: &Results) -> Option<Line> {
    let part = results.costs.as_ref()?;
    let goal = "first touches and rewrites: at least their goal, as a ratio to no snapshot".to_owned();
    let mut line = Line::new(goal, "model disk");
    for row in &part.rows {
        if let Some(goal) = super::cost::goal(row) {
            line.judge(goal, row.ratio, &super::cost::name(row));
        }
    }
    Some(line)
}

fn distance_line(part: &SnapshotPart) -> Line {
    let goal = format!("reads 1024 snapshots away: at least {DISTANCE_GOAL} of those of the newest");
    let mut line = Line::new(goal, &part.world);
    for series in &part.series {
        if let Some(ratio) = super::distance::farthest(series) {
            line.judge(Goal::AtLeast(DISTANCE_GOAL), ratio.median, &series.load);
        }
    }
    line
}

fn cache_lines(results: &Results) -> Vec<Line> {
    let Some(part) = &results.caches else { return Vec::new() };
    let goal = format!("sequential work with little memory for metadata: at least {CACHE_GOAL}");
    let mut work = Line::new(goal, "model disk");
    let goal = format!("metadata of sequential change: at most {METADATA_GOAL_BYTES} bytes for each 64 KiB");
    let mut bytes = Line::new(goal, "model disk");
    for row in &part.rows {
        if let Some((load, ratio)) = super::cache::worst(part, row) {
            work.judge(Goal::AtLeast(CACHE_GOAL), ratio, &format!("{}, {load}", row.setting));
        }
        bytes.judge(Goal::AtMost(METADATA_GOAL_BYTES), row.lasting_bytes(), &row.setting);
    }
    vec![work, bytes]
}

fn cache_times_line(part: &CacheTimes) -> Line {
    let goal = format!("sequential work with little memory for metadata: at least {CACHE_GOAL}");
    let mut line = Line::new(goal, &part.world);
    for row in &part.rows {
        if let Some((load, ratio)) = super::cache_times::worst(part, row) {
            line.judge(Goal::AtLeast(CACHE_GOAL), ratio.median, &format!("{}, {load}", row.setting));
        }
    }
    line
}

fn thin_line(part: &ThinPart) -> Line {
    let mut line =
        Line::new("thin volumes: at least their goal, as a ratio to a thick one".to_owned(), &part.world);
    for row in &part.rows {
        if let Some(ratio) = super::thin::judged(row) {
            line.judge(Goal::AtLeast(row.goal), ratio.median, &super::thin::name(row));
        }
    }
    line
}

fn layer_line(results: &Results) -> Option<Line> {
    let part = results.layers.as_ref()?;
    let goal = "a layer adds no more than its goal".to_owned();
    let mut line = Line { goal, place: "one core".to_owned(), held: 0, missed: Vec::new() };
    for layer in &part.layers {
        match layer.goal_ns {
            Some(goal) if median(&layer.added_ns) <= goal => line.held += 1,
            Some(goal) => {
                line.missed.push(format!("{}: {:.0} ns of {goal:.0}", layer.name, median(&layer.added_ns)));
            }
            None => {}
        }
    }
    Some(line)
}
