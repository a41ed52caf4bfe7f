//! A page from invented figures: what holds is said to hold, what misses to miss, and nothing needs a measurement.

use super::*;
use crate::first_touch::{COUNTS, LOADS};
use crate::machine::Machine;
use crate::report::verdict::Goal;
use crate::results::{
    ArrayPart, ArrayRow, CachePart, CacheRow, CacheTimes, CacheTimesRow, Contender, CostPart, CostRow,
    FigurePart, Layer, LayerPart, NO_SNAPSHOT, NbdPart, NbdRow, NeighbourPart, NeighbourRow, OverlayPart,
    OverlayRow, ProcessorRow, Role, Sample, SnapshotPart, SnapshotPoint, SnapshotSeries, Taken, ThinPart,
    ThinRival, ThinRow, Touch,
};
use crate::tables::snapshot::{cache, cache_times, distance};
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
        independent: false,
        series: series(slope),
    };
    let layer = |name: &str, ns: f64| Layer {
        name: name.to_owned(),
        added_ns: vec![ns, ns + 1.0, ns + 2.0],
        goal_ns: Some(50.0),
    };
    Results {
        nbd: vec![nbd],
        snapshots: vec![
            world("memory", false, 9e4),
            world("model disk", true, 1.0),
            SnapshotPart { independent: true, ..world("slow disk", false, 9e4) },
        ],
        layers: Some(LayerPart {
            machine: Machine::default(),
            bare_ns: vec![40.0],
            layers: vec![layer("linear", 20.0), layer("slow", 80.0)],
        }),
        bonnie: Some(bonnie()),
        costs: Some(costs()),
        distances: vec![distances()],
        caches: Some(caches()),
        cache_times: vec![cache_times()],
        management: vec![management()],
        thin: vec![thin()],
        thin_scale: Vec::new(),
        neighbours: vec![neighbours()],
        overlays: vec![overlays()],
        arrays: Some(arrays()),
        array_work: Some(figures("a rebuild", Goal::AtLeast(0.95), 0.5)),
        images: Some(figures("a chain", Goal::AtMost(2.0), 1.5)),
    }
}

fn figures(name: &str, goal: Goal, value: f64) -> FigurePart {
    let mut part = FigurePart::default();
    part.record(name, "x", Some(goal), value);
    part
}

fn arrays() -> ArrayPart {
    let row = |load: &str, speed: f64, goal: Option<f64>| ArrayRow {
        array: "ddraid 2+1".to_owned(),
        load: load.to_owned(),
        goal,
        exact: (load == "both").then_some(1.96),
        array_speed: vec![speed; 3],
        raw_speed: vec![100.0 * 1024.0 * 1024.0; 3],
    };
    let rows = vec![
        row("long", 2e8, Some(1.9)),
        row("short", 1e8, Some(1.0)),
        row("cold", 1e8, None),
        row("both", 1e8, Some(1.95)),
    ];
    let processor = vec![ProcessorRow { name: "memcpy".to_owned(), seconds: vec![0.125; 3] }];
    ArrayPart { rows, processor, ..ArrayPart::default() }
}

#[test]
fn arrays_are_compared_with_one_raw_member() {
    let page = arrays::text(&invented());
    let row = |load: &str| page.lines().find(|line| line.contains(load)).expect("a row").to_owned();
    assert!(row("long").contains("1.91") && row("long").ends_with("holds |"), "{page}");
    assert!(row("short").contains("missed by") && row("cold").contains("| – |"), "{page}");
    assert!(row("memcpy").contains("0.125"), "{page}");
    let both = row("| both");
    assert!(both.contains("1.96") && both.contains("missed by"), "the speed is judged: {page}");
    assert!(row("a rebuild").contains("missed by"), "{page}");
    assert!(images::text(&invented()).contains("| a chain | 1.50 x | – | ≤ 2 x | holds |"));
}

fn neighbours() -> NeighbourPart {
    let row = |flood: &str, p50: f64, p99: f64| NeighbourRow {
        flood: flood.to_owned(),
        quiet: vec![(20.0, 50.0); 3],
        beside: vec![(p50, p99); 3],
        flood_per_second: vec![1234.0; 3],
    };
    NeighbourPart {
        world: "memory".to_owned(),
        description: "invented".to_owned(),
        machine: Machine::default(),
        rows: vec![row("writes", 40.0, 30_000.0), row("trims", 400.0, 2_000.0)],
    }
}

#[test]
fn reads_beside_a_flood_are_compared_with_quiet_ones() {
    let page = text(&invented());
    assert!(page.contains("a median of at most 10 times that in quiet | memory | 1 of 2 | trims: 20.000 |"));
    assert!(
        page.contains("a 99th percentile of at most 20 ms | memory | 1 of 2 | writes: 30.000 |"),
        "{page}"
    );
    assert!(
        page.contains(
            "| writes | 20.0 | 40.0 | 2.00 (2.00 to 2.00) | holds | 0.05 | 30.0 | **missed by 50.0 %** |"
        ),
        "{page}"
    );
}

fn overlays() -> OverlayPart {
    let taken = |seconds| Taken { seconds, server_cpu_seconds: 0.05, requests: 4000 };
    let row = |disk: &str, goal: Option<f64>, seconds: f64| OverlayRow {
        disk: disk.to_owned(),
        raw: goal.map(|_| "linear volume".to_owned()),
        goal,
        rounds: vec![taken(seconds); 3],
        absent: None,
    };
    let absent = OverlayRow {
        rounds: Vec::new(),
        absent: Some("too new".to_owned()),
        ..row("other", Some(1.02), 0.0)
    };
    OverlayPart {
        work: "first boot".to_owned(),
        world: "memory".to_owned(),
        rows: vec![
            row("linear volume", None, 10.0),
            row("thin", Some(1.02), 10.1),
            row("slow", Some(1.02), 11.0),
            absent,
        ],
        ..OverlayPart::default()
    }
}

#[test]
fn overlays_are_compared_with_raw_volumes_and_those_that_are_absent_count_nowhere() {
    let page = text(&invented());
    let row = |disk: &str| page.lines().find(|line| line.starts_with(disk)).expect("a row").to_owned();
    assert!(page.contains("as a ratio to a raw volume | memory | 1 of 2 | slow: 1.100 |"), "{page}");
    assert!(row("| thin |").contains("| 10.1 | 1.010 (1.010 to 1.010) | ≤ 1.02 | holds | 50.0 |"), "{page}");
    assert!(row("| linear volume |").starts_with("| linear volume | 10.0 | – | – | – |"), "{page}");
    assert!(
        row("| other |").contains("| – | – | ≤ 1.02 | – |") && page.contains("*other* is absent: too new")
    );
}

fn thin() -> ThinPart {
    let row = |state: &str, goal, speed: f64| ThinRow {
        state: state.to_owned(),
        work: Work::random(true, 4, 32, 1),
        goal,
        thin: vec![speed; 3],
        thick: vec![1e8; 3],
        rivals: vec![
            ThinRival { name: "raw file".to_owned(), rounds: vec![2e8; 3], absent: None },
            ThinRival { name: "qcow2".to_owned(), rounds: vec![0.5e8; 3], absent: None },
            ThinRival {
                name: "reflinked file on XFS".to_owned(),
                rounds: Vec::new(),
                absent: Some("no loop devices".to_owned()),
            },
        ],
    };
    ThinPart {
        world: "memory".to_owned(),
        description: "invented".to_owned(),
        machine: Machine::default(),
        rows: vec![row("fresh space", 0.6, 0.7e8), row("written before", 0.95, 0.8e8)],
    }
}

#[test]
fn thin_volumes_are_compared_with_thick_ones() {
    let page = text(&invented());
    assert!(
        page.contains("| thin volumes: at least their goal, as a ratio to a thick one | memory | 1 of 2 |"),
        "{page}"
    );
    assert!(page.contains("random write 4 KiB QD32, written before: 0.800"), "{page}");
    assert!(page.contains("0.700 (0.700 to 0.700)"), "{page}");
    assert!(page.contains(" | 191 MiB/s | 47.7 MiB/s | 0.25 | – | – |"), "{page}");
    assert!(page.contains("- *memory*: no reflinked file on XFS: no loop devices"), "{page}");
}

fn bonnie() -> SnapshotPart {
    let point = |snapshots, speed: f64| SnapshotPoint { snapshots, bytes_per_second: vec![speed; 3] };
    let points = vec![point(0, f64::from(100 << 20)), point(8, f64::from(25 << 20))];
    let series = vec![SnapshotSeries { load: "write blocks".to_owned(), points }];
    let (world, description) = ("disk, direct".to_owned(), "invented".to_owned());
    SnapshotPart { world, description, series, ..SnapshotPart::default() }
}

#[test]
fn bonnie_is_told_as_a_ratio_to_no_snapshot_beside_2006() {
    let page = text(&invented());
    assert!(page.contains("| write blocks | 100 MiB/s | – | – | – | 0.25 (0.25 to 0.25) |"), "{page}");
    assert!(
        page.contains("| 2006, dm-snapshot, writes | 373 MB/s | 0.147 | 0.043 | 0.038 | 0.017 |"),
        "{page}"
    );
}

fn costs() -> CostPart {
    let row = |load: &str, touch, snapshots, ratio| CostRow {
        load: load.to_owned(),
        touch,
        snapshots,
        ratio,
        requests: 3.25,
        flushes: 0.125,
        bytes_read: 1.0,
        bytes_written: 2.0,
    };
    let rows = vec![
        row("sequential 1 MiB QD8", Touch::Dependent, 1, 0.327),
        row("sequential 1 MiB QD8", Touch::Dependent, 1024, 0.3),
        row("sequential 1 MiB QD8", Touch::Rewrite, 16, 0.995),
        row("sequential 1 MiB QD8", Touch::Independent, 16, 0.03),
    ];
    CostPart { description: "invented".to_owned(), rows }
}

fn distances() -> SnapshotPart {
    let point = |far: f64| {
        move |distance: u32| SnapshotPoint {
            snapshots: distance,
            bytes_per_second: vec![if distance == 1024 { far } else { 1e8 }; 3],
        }
    };
    let series = |load: &str, far: f64| SnapshotSeries {
        load: load.to_owned(),
        points: distance::DISTANCES.map(point(far)).to_vec(),
    };
    let series = vec![series("sequential 1 MiB", 0.97e8), series("random 4 KiB QD8", 0.76e8)];
    SnapshotPart {
        world: "memory".to_owned(),
        description: "invented".to_owned(),
        series,
        ..SnapshotPart::default()
    }
}

fn caches() -> CachePart {
    let row = |setting: &str, factor: f64, map_bytes: f64| CacheRow {
        setting: setting.to_owned(),
        unbounded: (factor < 1.0).then(|| "all in memory".to_owned()),
        loads: cache::LOADS.map(|load| (load.to_owned(), 1e7 * factor)).to_vec(),
        log_bytes: 512.0,
        map_bytes,
    };
    let rows =
        vec![row("all in memory", 1.0, 8.0), row("sieve, logged", 0.95, 9.0), row("fifo, logged", 0.6, 12.0)];
    CachePart { description: "invented".to_owned(), rows }
}

fn cache_times() -> CacheTimes {
    let row = |setting: &str, base: Option<&str>, speed: f64| CacheTimesRow {
        setting: setting.to_owned(),
        base: base.map(str::to_owned),
        loads: cache_times::LOADS.map(|load| (load.to_owned(), vec![speed; 3])).to_vec(),
    };
    let whole = "all in memory, logged";
    let rows = vec![
        row(NO_SNAPSHOT, None, f64::from(100 << 20)),
        row(whole, Some(NO_SNAPSHOT), f64::from(40 << 20)),
        row("lru, logged", Some(whole), f64::from(38 << 20)),
        row("fifo, logged", Some(whole), f64::from(20 << 20)),
    ];
    let description = "invented".to_owned();
    CacheTimes { world: "disk, direct".to_owned(), description, rows, ..CacheTimes::default() }
}

fn management() -> FigurePart {
    let mut part = FigurePart {
        world: "engine, memory".to_owned(),
        description: "invented".to_owned(),
        ..FigurePart::default()
    };
    for round in [1.0, 1.5, 9.0] {
        part.record("snap create, median", "ms", Some(Goal::AtMost(2.0)), round);
        part.record(
            "origin write p99 while 1 M entries are deleted",
            "x",
            Some(Goal::AtMost(1.5)),
            round * 2.0,
        );
        part.record("writes", "ms", None, round);
    }
    part
}

#[test]
fn the_summary_counts_what_holds_and_names_what_misses() {
    let text = text(&invented());
    let summary = text.split("## NBD").next().expect("a summary");
    assert!(summary.contains("| 3 of 6 | random write 4 KiB QD1: 1.10 of nbdkit<br>"), "{summary}");
    assert!(summary.contains("at least 1.0 x the best like peer | memory | 8 of 8 | – |"), "{summary}");
    assert!(summary.contains("leanest like peer | memory | 14 of 14 | – |"), "{summary}");
    assert!(summary.contains("at least 0.98 of those with one | memory | 3 of 3 | – |"), "{summary}");
    assert!(
        summary.contains("at least 0.95 of those with one | memory | 0 of 3 | sequential 1 MiB: 0.078<br>")
    );
    assert!(summary.contains("at least 0.95 of those with one | model disk | 3 of 3 | – |"), "{summary}");
    assert!(!summary.contains("of those with one | slow disk"), "independent ones have no goal: {summary}");
    assert!(summary.contains("| 2 of 3 | sequential 1 MiB QD8, 1024 snapshots: 0.300 |"), "{summary}");
    assert!(summary.contains("| memory | 1 of 2 | random 4 KiB QD8: 0.760 |"), "{summary}");
    assert!(summary.contains("| 1 of 2 | fifo, logged, 5: origin, sequential write: 0.600 |"), "{summary}");
    assert!(summary.contains("| 2 of 3 | fifo, logged: 12.000 |"), "{summary}");
    assert!(summary.contains("| disk, direct | 1 of 2 | fifo, logged, 5: origin, sequential write: 0.500 |"));
    assert!(summary.contains("deleted (x 1.5): 3.000 |"), "{summary}");
    assert!(summary.contains("slow: 81 ns of 50"), "{summary}");
}

#[test]
fn tables_show_spread_absence_and_the_figures_of_others() {
    let text = text(&invented());
    assert!(text.contains("| random read 4 KiB QD1 | 488 k/s | 2.00 (2.00 to 2.00) | 1.2 | holds | 2.00 |"));
    assert!(text.contains("1.00 / 3.00 | 0.50 / 4.00 | – | 8.00 |"), "{text}");
    assert!(text.contains("Not measured: qemu-nbd: not installed."));
    assert!(text.contains("| 2006, separate snapshots | 950 KB/s | 0.758 | 0.495 | 0.271 | – | – | – |"));
    assert!(text.contains("| model disk, sequential 1 MiB | 95.4 MiB/s | 1.000 | 1.000 | 1.000 |"));
    assert!(text.contains("(0.078 to 0.078) | 16: holds, 1024: **missed by 91.7 %** |"), "{text}");
}

#[test]
fn the_parts_of_snapshots_have_their_verdicts() {
    let text = text(&invented());
    assert!(text.contains(
        "| sequential 1 MiB QD8, 1 snapshot | 0.327 | ≥ 0.32 | holds | 0.314 | 3.250 | 0.125 | 1.000 | 2.000 |"
    ));
    assert!(text.contains("1024 snapshots | 0.300 | ≥ 0.32 | **missed by 6.25 %** | – |"), "{text}");
    assert!(text.contains("QD8 again, 16 snapshots | 0.995 | ≥ 0.99 | holds | – |"), "{text}");
    assert!(text.contains("QD8, 16 independent | 0.030 | – | – | 0.029 |"), "{text}");
    assert!(text.contains("0.760 (0.760 to 0.760) | ≥ 0.95 | **missed by 20.0 %** |"), "{text}");
    assert!(text.contains("| fifo, logged | 5.72 (0.600) |") && text.contains("| **missed by 33.3 %** |"));
    assert!(text.contains("| sieve, logged | 9.00 | ≤ 10 | holds | 512 |"), "{text}");
    assert!(text.contains("| no snapshot | 100 | 100 |"), "{text}");
    assert!(text.contains("| all in memory, logged | 0.400 (0.400 to 0.400) |"), "{text}");
    assert!(text.contains("| fifo, logged | 0.500 (0.500 to 0.500) |"), "{text}");
    assert!(
        text.contains("| engine, memory: snap create, median | 1.50 ms | 1.00 to 9.00 | ≤ 2 ms | holds |")
    );
    assert!(text.contains("| 3.00 x | 2.00 to 18.0 | ≤ 1.5 x | **missed by 100 %** |"), "{text}");
    assert!(text.contains("| engine, memory: writes | 1.50 ms | 1.00 to 9.00 | – |  |"), "{text}");
}

#[test]
fn a_page_and_its_pictures_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let (page, plots) = (directory.path().join("benchmarks.md"), directory.path().join("plots"));
    render(&invented(), &page, &plots).expect("a page");
    let text = fs::read_to_string(&page).expect("a page");
    for name in [
        "nbd-memory.svg",
        "snapshots.svg",
        "cost.svg",
        "distance.svg",
        "cache.svg",
        "cache-disk-direct.svg",
        "management.svg",
    ] {
        assert!(text.contains(&format!("(plots/{name})")));
        assert!(fs::read_to_string(plots.join(name)).expect("a picture").ends_with("</svg>\n"));
    }
    render(&Results::default(), &page, &plots).expect("an empty page");
}

#[test]
fn the_page_and_its_pictures_are_those_of_the_checked_in_figures() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let results = Results::load(&docs.join("plots/results.json")).expect("the figures");
    let directory = tempfile::tempdir().expect("a directory");
    let (page, plots) = (directory.path().join("benchmarks.md"), directory.path().join("plots"));
    render(&results, &page, &plots).expect("a page");
    let is_like = |rendered: &Path, kept: &Path| {
        let [rendered, kept] = [rendered, kept].map(|path| fs::read_to_string(path).expect("a text"));
        let lines = rendered.lines().zip(kept.lines()).find(|(new, old)| new != old);
        assert!(rendered == kept, "`varve-bench render` changes this page: {lines:#?}");
    };
    is_like(&page, &docs.join("benchmarks.md"));
    let names = |plots: &Path| -> std::collections::BTreeSet<_> {
        let entries = fs::read_dir(plots).expect("a directory").map(|entry| entry.expect("an entry").path());
        let pictures = entries.filter(|path| path.extension().is_some_and(|kind| kind == "svg"));
        pictures.map(|path| path.file_name().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&plots), names(&docs.join("plots")));
    names(&plots).iter().for_each(|name| is_like(&plots.join(name), &docs.join("plots").join(name)));
}
