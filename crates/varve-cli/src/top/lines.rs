//! What was done, as lines.

use super::activity::{Activity, Rates};
use crate::progress;
use crate::table::Table;
use crate::units::size;
use crate::verbs::told;
use varve_api::{Job, PhysicalVolume, Pool};

/// A look for a terminal that scrolls, or a file: what is idle is left out.
pub(super) fn text(activity: &Activity) -> String {
    let mut text = format!("{}\n", head(activity));
    for problem in &activity.attention {
        text.push_str(&told(problem));
    }
    let busy: Vec<_> = activity.volumes.iter().filter(|volume| !volume.per_second.is_idle()).collect();
    if !busy.is_empty() {
        let mut table = Table::new(&VOLUMES);
        busy.iter().for_each(|volume| table.row(flow(&volume.name, &volume.per_second, volume.connections)));
        text.push_str(&table.render(""));
    }
    if !activity.jobs.is_empty() {
        let mut table = Table::new(&JOBS);
        activity.jobs.iter().for_each(|job| table.row(job_row(job)));
        text.push_str(&table.render(""));
    }
    text
}

/// Headings of volumes.
pub(super) const VOLUMES: [&str; 9] = [
    "VOLUME",
    "READ>",
    "WRITE>",
    "READS/s>",
    "WRITES/s>",
    "FLUSHES/s>",
    "DISCARDS/s>",
    "ERRORS/s>",
    "CLIENTS>",
];
/// Headings of exports: those of volumes with other words before them.
pub(super) const EXPORTS: [&str; 11] = [
    "EXPORT",
    "DOOR",
    "VOLUME",
    "READ>",
    "WRITE>",
    "READS/s>",
    "WRITES/s>",
    "FLUSHES/s>",
    "DISCARDS/s>",
    "ERRORS/s>",
    "CLIENTS>",
];
/// Headings of disks.
pub(super) const DISKS: [&str; 7] = ["DISK", "GROUP", "STATE", "SIZE>", "FREE>", "ERRORS>", "SLOW>"];
/// Headings of pools.
pub(super) const POOLS: [&str; 7] = ["POOL", "STATE", "SIZE>", "TAKEN>", "%>", "PROMISED>", "VOLUMES>"];
/// Headings of jobs.
pub(super) const JOBS: [&str; 5] = ["JOB", "WHAT", "ON", "DONE>", "RATE>"];

/// The first line: health, and what goes through all volumes.
pub(super) fn head(activity: &Activity) -> String {
    let total = &activity.total;
    format!(
        "health: {}  read {}/s ({:.0}/s)  write {}/s ({:.0}/s)  in {:.1} s",
        activity.health,
        size(total.read_bytes as u64),
        total.reads,
        size(total.write_bytes as u64),
        total.writes,
        activity.seconds
    )
}

/// What goes through a volume or an export, in the order of [`VOLUMES`].
pub(super) fn flow(name: &str, rates: &Rates, connections: u64) -> Vec<String> {
    let bytes = |bytes: f64| if bytes == 0.0 { "-".to_owned() } else { format!("{}/s", size(bytes as u64)) };
    let requests = [rates.reads, rates.writes, rates.flushes, rates.discards, rates.errors].map(count);
    let mut cells = vec![name.to_owned(), bytes(rates.read_bytes), bytes(rates.write_bytes)];
    cells.extend(requests);
    cells.push(connections.to_string());
    cells
}

/// A disk, in the order of [`DISKS`].
pub(super) fn disk_row(disk: &PhysicalVolume) -> Vec<String> {
    vec![
        disk.path.clone().unwrap_or_else(|| disk.id.clone()),
        disk.group.clone().unwrap_or_else(|| "-".to_owned()),
        disk.state.to_string(),
        size(disk.size),
        size(disk.free),
        disk.errors.to_string(),
        disk.slow.to_string(),
    ]
}

/// A pool, in the order of [`POOLS`].
pub(super) fn pool_row(pool: &Pool) -> Vec<String> {
    vec![
        pool.name.clone(),
        pool.state.to_string(),
        size(pool.size),
        size(pool.allocated),
        pool.percent.to_string(),
        size(pool.virtual_size),
        pool.volumes.to_string(),
    ]
}

/// A job, in the order of [`JOBS`].
pub(super) fn job_row(job: &Job) -> Vec<String> {
    let percent = job.done.saturating_mul(100).checked_div(job.total);
    let rate = job.rate.map(|rate| if job.unit == "bytes" { size(rate) } else { rate.to_string() });
    vec![
        job.id.clone(),
        job.kind.clone(),
        progress::subject(job),
        percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %")),
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate}/s")),
    ]
}

/// Requests in a second: a few with a decimal, none as a dash.
fn count(rate: f64) -> String {
    match rate {
        0.0 => "-".to_owned(),
        0.0..10.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::activity::tests::{look, traffic};
    use super::*;
    use tokio::time::Instant;

    #[test]
    fn lines_have_what_is_busy_and_leave_out_what_is_idle() {
        let begun = Instant::now();
        let before = look(begun, 0, 5, &[("a", traffic(0, 0, 0)), ("idle", traffic(5, 0, 0))]);
        let now = look(begun, 2, 5, &[("a", traffic(2560, 5, 0)), ("idle", traffic(5, 0, 0))]);
        let wanted = "\
health: ok  read 5.0 MiB/s (1280/s)  write 10.0 KiB/s (2/s)  in 2.0 s
VOLUME       READ       WRITE  READS/s  WRITES/s  FLUSHES/s  DISCARDS/s  ERRORS/s  CLIENTS
data/a  5.0 MiB/s  10.0 KiB/s     1280       2.5          -           -         -        3
";
        assert_eq!(text(&Activity::between(&before, &now)), wanted);
    }
}
