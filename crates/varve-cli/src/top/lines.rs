//! What was done, as lines.

use super::activity::{Activity, ExportActivity, Rates, VolumeActivity};
use crate::progress;
use crate::table::Table;
use crate::units::size;
use crate::verbs::problem_text;
use varve_api::{Job, PhysicalVolume, Pool};

/// A sample for a terminal that scrolls, or a file: what is idle is left out.
pub(super) fn text(activity: &Activity) -> String {
    let mut text = format!("{}\n", head(activity));
    text.extend(activity.attention.iter().map(problem_text));
    let busy = activity.volumes.iter().filter(|volume| !volume.per_second.is_idle());
    text.push_str(&volumes(busy).render(""));
    text.push_str(&jobs(&activity.jobs).render(""));
    text
}

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

/// What goes through volumes.
pub(super) fn volumes<'a>(volumes: impl IntoIterator<Item = &'a VolumeActivity>) -> Table {
    let mut table = Table::new(&TRAFFIC);
    for volume in volumes {
        table.row(traffic(&volume.name, &volume.per_second, volume.connections));
    }
    table
}

/// What goes through exports.
pub(super) fn exports(exports: &[ExportActivity]) -> Table {
    let mut table = Table::new(&[&["EXPORT", "DOOR"][..], &TRAFFIC].concat());
    for export in exports {
        let own = vec![export.id.clone(), export.door.to_string()];
        table.row([own, traffic(&export.volume, &export.per_second, export.connections)].concat());
    }
    table
}

/// Disks, and how they do.
pub(super) fn disks(disks: &[PhysicalVolume]) -> Table {
    let mut table = Table::new(&["DISK", "GROUP", "STATE", "SIZE>", "FREE>", "ERRORS>", "SLOW>"]);
    for disk in disks {
        table.row(vec![
            disk.path.clone().unwrap_or_else(|| disk.id.clone()),
            disk.group.clone().unwrap_or_else(|| "-".to_owned()),
            disk.state.to_string(),
            size(disk.size),
            size(disk.free),
            disk.errors.to_string(),
            disk.slow.to_string(),
        ]);
    }
    table
}

/// Pools, and how full they are.
pub(super) fn pools(pools: &[Pool]) -> Table {
    let mut table = Table::new(&["POOL", "STATE", "SIZE>", "TAKEN>", "%>", "PROMISED>", "VOLUMES>"]);
    for pool in pools {
        table.row(vec![
            pool.name.clone(),
            pool.state.to_string(),
            size(pool.size),
            size(pool.allocated),
            pool.percent.to_string(),
            size(pool.virtual_size),
            pool.volumes.to_string(),
        ]);
    }
    table
}

/// Jobs, and how far they are.
pub(super) fn jobs(jobs: &[Job]) -> Table {
    let mut table = Table::new(&["JOB", "WHAT", "ON", "DONE>", "RATE>"]);
    for job in jobs {
        let percent = job.done.saturating_mul(100).checked_div(job.total);
        let rate = job.rate.map(|rate| if job.unit == "bytes" { size(rate) } else { rate.to_string() });
        table.row(vec![
            job.id.clone(),
            job.kind.clone(),
            progress::subject(job),
            percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %")),
            rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate}/s")),
        ]);
    }
    table
}

const TRAFFIC: [&str; 9] = [
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

/// What goes through a volume or an export of it, in the order of [`TRAFFIC`].
fn traffic(volume: &str, rates: &Rates, connections: u64) -> Vec<String> {
    let bytes = |bytes: f64| if bytes == 0.0 { "-".to_owned() } else { format!("{}/s", size(bytes as u64)) };
    let requests = [rates.reads, rates.writes, rates.flushes, rates.discards, rates.errors].map(count);
    let mut cells = vec![volume.to_owned(), bytes(rates.read_bytes), bytes(rates.write_bytes)];
    cells.extend(requests);
    cells.push(connections.to_string());
    cells
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
    use super::super::activity::tests::{sample, traffic};
    use super::*;
    use tokio::time::Instant;

    #[test]
    fn lines_have_what_is_busy_and_leave_out_what_is_idle() {
        let begun = Instant::now();
        let before = sample(begun, 0, 5, &[("a", traffic(0, 0, 0)), ("idle", traffic(5, 0, 0))]);
        let now = sample(begun, 2, 5, &[("a", traffic(2560, 5, 0)), ("idle", traffic(5, 0, 0))]);
        let wanted = "\
health: ok  read 5.0 MiB/s (1280/s)  write 10.0 KiB/s (2/s)  in 2.0 s
VOLUME       READ       WRITE  READS/s  WRITES/s  FLUSHES/s  DISCARDS/s  ERRORS/s  CLIENTS
data/a  5.0 MiB/s  10.0 KiB/s     1280       2.5          -           -         -        3
";
        assert_eq!(text(&Activity::between(&before, &now)), wanted);
    }
}
