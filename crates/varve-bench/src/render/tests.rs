//! A page from invented figures: what holds is said to hold, what misses to miss, and nothing needs a measurement.

use super::*;
use crate::first_touch::{COUNTS, LOADS};
use crate::results::{
    Contender, Layer, LayerPart, NbdPart, NbdRow, Role, Sample, SnapshotPart, SnapshotPoint, SnapshotSeries,
};
use crate::work::Work;

fn contender(name: &str, role: Role, speed: f64, cpu: f64) -> Contender {
    let sample = |factor: f64| Sample {
        iops: speed * factor / 4096.0,
        bytes_per_second: speed * factor,
        server_cpu_per_gib: cpu,
        client_cpu_per_gib: 1.0,
        latency_us_p99: 10.0,
    };
    let samples = if speed > 0.0 { [0.9, 1.0, 1.1].map(sample).to_vec() } else { Vec::new() };
    let absent = samples.is_empty().then(|| "not installed".to_owned());
    Contender { name: name.to_owned(), role, samples, absent }
}

fn invented() -> Results {
    let rows = Work::all().into_iter().map(|work| NbdRow {
        work,
        contenders: vec![
            contender("varve", Role::Varve, if work.write { 1.1e9 } else { 2e9 }, 2.0),
            contender("nbdkit", Role::Peer, 1e9, 3.0),
            contender("nbd-server", Role::Peer, 0.5e9, 4.0),
            contender("qemu-nbd", Role::Peer, 0.0, 0.0),
            contender("file, psync", Role::Limit, 8e9, 0.0),
        ],
    });
    let nbd = NbdPart {
        medium: "memory".to_owned(),
        file_system: "tmpfs on tmpfs".to_owned(),
        machine: Machine::default(),
        size: 1 << 30,
        seconds: 3.0,
        rows: rows.collect(),
    };
    let series = |slope: f64| {
        let point = move |count: u32| SnapshotPoint {
            snapshots: count,
            bytes_per_second: vec![1e8 - slope * f64::from(count); 3],
        };
        LOADS
            .map(|load| SnapshotSeries { load: load.name.to_owned(), points: COUNTS.map(point).to_vec() })
            .to_vec()
    };
    let world = |world: &str, exact: bool, slope: f64| SnapshotPart {
        world: world.to_owned(),
        description: "invented".to_owned(),
        exact,
        machine: Machine::default(),
        series: series(slope),
    };
    let layer = |name: &str, ns: f64| Layer {
        name: name.to_owned(),
        added_ns: vec![ns, ns + 1.0, ns + 2.0],
        goal_ns: Some(50.0),
    };
    Results {
        nbd: vec![nbd],
        snapshots: vec![world("memory", false, 1e6), world("model disk", true, 1e3)],
        layers: Some(LayerPart {
            machine: Machine::default(),
            bare_ns: vec![40.0],
            layers: vec![layer("linear", 20.0), layer("slow", 80.0)],
        }),
    }
}

#[test]
fn the_summary_counts_what_holds_and_names_what_misses() {
    let text = text(&invented());
    let summary = text.split("## NBD").next().expect("a summary");
    assert!(summary.contains("| 3 of 6 | random write 4 KiB QD1: 1.10 of nbdkit<br>"), "{summary}");
    assert!(summary.contains("at least 1.0 x the best like peer | memory | 8 of 8 | – |"), "{summary}");
    assert!(summary.contains("leanest like peer | memory | 14 of 14 | – |"), "{summary}");
    assert!(summary.contains("| memory | 0 of 3 | sequential 1 MiB: 0.848<br>"), "{summary}");
    assert!(summary.contains("| model disk | 3 of 3 | – |"), "{summary}");
    assert!(summary.contains("slow: 81 ns of 50"), "{summary}");
}

#[test]
fn tables_show_spread_absence_and_the_figures_of_others() {
    let text = text(&invented());
    assert!(text.contains("| random read 4 KiB QD1 | 488 k/s | 2.00 (2.00 to 2.00) | 1.2 | holds | 2.00 |"));
    assert!(text.contains("1.00 / 3.00 | 0.50 / 4.00 | – | 8.00 |"), "{text}");
    assert!(text.contains("Not measured: qemu-nbd: not installed."));
    assert!(text.contains("| 2006, separate snapshots | 950 KB/s | 0.758 | 0.495 | 0.271 |"));
    assert!(text.contains("| model disk, sequential 1 MiB | 95.4 MiB/s | 1.000 | 1.000 | 1.000 |"));
}

#[test]
fn a_page_and_its_pictures_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let (page, plots) = (directory.path().join("benchmarks.md"), directory.path().join("plots"));
    render(&invented(), &page, &plots).expect("a page");
    let text = fs::read_to_string(&page).expect("a page");
    for name in ["nbd-memory.svg", "snapshots.svg"] {
        assert!(text.contains(&format!("(plots/{name})")));
        assert!(fs::read_to_string(plots.join(name)).expect("a picture").ends_with("</svg>\n"));
    }
    render(&Results::default(), &page, &plots).expect("an empty page");
}
