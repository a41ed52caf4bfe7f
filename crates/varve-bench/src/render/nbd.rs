//! The first table: verdicts, the figures of all contenders, and a picture for each medium.

use crate::report::plot::{Bar, bars};
use crate::report::stats::{median, ratio};
use crate::report::table::{Table, dash, held, short, spread};
use crate::report::verdict::{judge, varve};
use crate::results::{Contender, NbdPart, NbdRow, Results, Role};

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.nbd.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## NBD servers over a Unix socket\n\nOne linear volume, or one file, on the same file system; fio's nbd engine \
         is the client. QD is the number of requests in flight on each connection, `x 4` means four connections. \
         *Best like peer* is the server of the same cache mode against which Varve's ratio is smallest; *file* is fio \
         on the file itself, without a server, by psync or io_uring, whichever is faster. CPU is that of the server, \
         user and system.\n\n",
    );
    for part in &results.nbd {
        text.push_str(&part_text(part));
    }
    text
}

fn part_text(part: &NbdPart) -> String {
    let mut text = format!(
        "### {}\n\n{}; {}; files of {} MiB, {} rounds of {} s. {}.\n\n",
        heading(part),
        part.machine.line(),
        part.file_system,
        part.size >> 20,
        rounds(part),
        part.seconds,
        part.machine.programs.join(", ")
    );
    if part.seconds < 1.0 {
        text.push_str("**A quick run: these figures mean nothing.**\n\n");
    }
    text.push_str(&format!("![Varve over the best like peer]({})\n\n", plot_path(part)));
    let mut table = Table::new(&[
        "load",
        "Varve",
        "x best like peer",
        "goal",
        "",
        "CPU s a GiB",
        "x leanest like peer",
        "",
        "x file",
    ]);
    part.rows.iter().for_each(|row| table.row(&verdict_row(row)));
    text.push_str(&table.finish());
    text.push_str(
        "Everybody: throughput as a ratio to the fastest other server / server CPU seconds a GiB.\n\n",
    );
    text.push_str(&everybody(part));
    text.push_str(&absences(part));
    text
}

fn rounds(part: &NbdPart) -> usize {
    part.rows
        .iter()
        .flat_map(|row| &row.contenders)
        .map(|contender| contender.samples.len())
        .max()
        .unwrap_or(0)
}

fn heading(part: &NbdPart) -> String {
    let mut letters = part.medium.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn verdict_row(row: &NbdRow) -> Vec<String> {
    let verdict = judge(row);
    let goal = row.work.goal();
    let ours = varve(row);
    let limit = verdict.limit.as_ref().map(|limit| limit.ratio.median);
    vec![
        row.work.name(),
        ours.map_or_else(dash, |ours| speed(row, ours)),
        spread(verdict.peer.as_ref().map(|peer| peer.ratio)),
        format!("{goal:.1}"),
        held(verdict.is_fast(goal)),
        ours.map_or_else(dash, |ours| short(median(&ours.server_cpu()))),
        spread(verdict.cpu.as_ref().map(|cpu| cpu.ratio)),
        held(verdict.is_lean()),
        limit.map_or_else(dash, short),
    ]
}

/// Thousands of requests a second, or MiB a second.
fn speed(row: &NbdRow, contender: &Contender) -> String {
    if row.work.random {
        let iops: Vec<f64> = contender.samples.iter().map(|sample| sample.iops / 1e3).collect();
        format!("{} k/s", short(median(&iops)))
    } else {
        format!("{} MiB/s", short(median(&contender.throughput()) / (1u64 << 20) as f64))
    }
}

/// The like peer with the highest median.
fn fastest_peer(row: &NbdRow) -> Option<&Contender> {
    let measured = |contender: &&Contender| contender.role == Role::Peer && !contender.samples.is_empty();
    row.contenders
        .iter()
        .filter(measured)
        .max_by(|left, right| median(&left.throughput()).total_cmp(&median(&right.throughput())))
}

fn everybody(part: &NbdPart) -> String {
    let Some(first) = part.rows.first() else { return String::new() };
    let names: Vec<&str> = first.contenders.iter().map(|contender| contender.name.as_str()).collect();
    let mut table = Table::new(&[&["load"][..], &names].concat());
    for row in &part.rows {
        let mut cells = vec![row.work.name()];
        for name in &names {
            let contender = row.contenders.iter().find(|contender| contender.name == *name);
            cells.push(contender.map_or_else(dash, |contender| standing(row, contender)));
        }
        table.row(&cells);
    }
    table.finish()
}

fn standing(row: &NbdRow, contender: &Contender) -> String {
    let Some(peer) = fastest_peer(row) else { return dash() };
    let Some(ratio) = ratio(&contender.throughput(), &peer.throughput()) else { return dash() };
    let cpu = median(&contender.server_cpu());
    if contender.role == Role::Limit {
        short(ratio.median)
    } else {
        format!("{} / {}", short(ratio.median), short(cpu))
    }
}

/// Which contenders could not be measured, and why.
fn absences(part: &NbdPart) -> String {
    let mut reasons: Vec<String> = part
        .rows
        .iter()
        .flat_map(|row| &row.contenders)
        .filter_map(|contender| Some(format!("{}: {}", contender.name, contender.absent.as_ref()?)))
        .collect();
    reasons.dedup();
    reasons.sort();
    reasons.dedup();
    if reasons.is_empty() { String::new() } else { format!("Not measured: {}.\n\n", reasons.join("; ")) }
}

fn plot_name(part: &NbdPart) -> String {
    let words: Vec<&str> = part.medium.split([',', ' ']).filter(|word| !word.is_empty()).collect();
    format!("nbd-{}.svg", words.join("-"))
}

fn plot_path(part: &NbdPart) -> String {
    format!("plots/{}", plot_name(part))
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    results.nbd.iter().map(|part| (plot_name(part), picture(part))).collect()
}

fn picture(part: &NbdPart) -> String {
    let rows: Vec<Bar> = part.rows.iter().filter_map(bar).collect();
    let title = format!("NBD over a Unix socket, {}: throughput over the best like peer", part.medium);
    let note = "median of the ratios of the rounds; each other server stands at its own ratio to the fastest of them";
    bars(&title, note, Some("other servers"), &rows)
}

fn bar(row: &NbdRow) -> Option<Bar> {
    let peer = fastest_peer(row)?;
    let others = row
        .contenders
        .iter()
        .filter(|contender| contender.role == Role::Peer)
        .filter_map(|contender| Some(ratio(&contender.throughput(), &peer.throughput())?.median))
        .collect();
    let (verdict, goal) = (judge(row), row.work.goal());
    let held = verdict.is_fast(goal)?;
    Some(Bar { label: row.work.name(), ratio: verdict.peer?.ratio, goal: Some((goal, held)), others })
}
