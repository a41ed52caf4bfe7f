//! A page from invented figures: what holds is said to hold, what misses to miss, and nothing needs a measurement.

use super::*;
use crate::report::goal::Goal;
use std::collections::BTreeSet;

const MISSED: Goal = Goal::AtLeast(0.95);

fn part(table: &str, world: &str, fill: impl FnOnce(&mut Part)) -> Part {
    let mut part = Part { machine: Some(Machine::default()), ..Part::exact(table, world, "invented") };
    fill(&mut part);
    part
}

/// Three rounds of a record, each a little more than the last.
fn rounds(record: &mut crate::results::Record, value: f64) {
    [0.9, 1.0, 1.1].iter().for_each(|factor| record.push(value * factor));
}

fn invented() -> Results {
    let parts = vec![
        part("nbd", "disk, direct", |part| {
            for (load, varve) in [
                ("random read 4 KiB QD1", 1.5),
                ("random write 4 KiB QD1", 1.199),
                ("sequential read 1 MiB", 0.9),
            ] {
                let ours = part.at(load, "varve", "k/s").over("nbdkit").over("nbd-server").over("qemu-nbd");
                rounds(
                    ours.goal(Goal::AtLeast(if load.starts_with("random") { 1.2 } else { 1.0 })),
                    varve * 100.0,
                );
                rounds(part.at(load, "nbdkit", "k/s"), 100.0);
                rounds(part.at(load, "nbd-server", "k/s"), 50.0);
                part.at(load, "qemu-nbd", "k/s").absent = Some("not installed".to_owned());
                rounds(part.at(load, "file, psync", "k/s"), 800.0);
            }
        }),
        part("first touches", "memory", |part| {
            for (count, speed) in [("0", 300.0), ("1", 100.0), ("16", 99.0), ("1024", 7.8)] {
                rounds(part.at("sequential 1 MiB", count, "MiB/s"), speed);
            }
            part.at("sequential 1 MiB", "16", "").over("1").goal(Goal::AtLeast(0.98));
            part.at("sequential 1 MiB", "1024", "").over("1").goal(MISSED);
        }),
        part("cost", "model disk", |part| {
            part.at("random 4 KiB QD8, 1 snapshot", "of no snapshot", "")
                .goal(Goal::AtLeast(0.42))
                .push(0.327);
            part.at("random 4 KiB QD8, 1 snapshot", "flushes a request", "").push(0.125);
        }),
        part("cache", "model disk", |part| {
            part.at("all in memory, logged", "5: origin, sequential write", "MiB/s").push(10.0);
            for (load, speed) in [("5: origin, sequential write", 9.5), ("6: snapshot, sequential read", 5.0)]
            {
                part.at("all in memory, logged", load, "MiB/s").rounds = vec![10.0];
                part.at("fifo, logged", load, "MiB/s").over("all in memory, logged").goal(MISSED).push(speed);
            }
        }),
        part("overlays", "First boot: memory", |part| {
            rounds(part.at("linear volume", "time", "s"), 10.0);
            rounds(part.at("thin", "time", "s").over("linear volume").goal(Goal::AtMost(1.02)), 10.1);
            part.at("other", "time", "s").over("linear volume").absent = Some("too new".to_owned());
        }),
        part("management", "engine, memory", |part| {
            for round in [1.0, 1.5, 9.0] {
                part.record("snap create, median", "ms", Some(Goal::AtMost(2.0)), round);
                part.record("write p99, over that without", "x", Some(Goal::AtMost(1.5)), round * 2.0);
                part.record("writes", "ms", None, round);
            }
        }),
        part("management", "daemon, memory", |part| part.record("writes", "ms", None, 1.0)),
    ];
    Results { parts }
}

fn page_of(results: &Results) -> String {
    page(&with_published(results))
}

#[track_caller]
fn assert_row(page: &str, row: &str) {
    assert!(page.lines().any(|line| line == row), "no `{row}` in {page}");
}

#[test]
fn a_row_has_its_record_beside_the_best_of_the_others_and_what_is_judged_is_what_is_printed() {
    let page = page_of(&invented());
    assert_row(
        &page,
        "| load | Varve | x best like peer | goal | verdict | x file | nbdkit | nbd-server | qemu-nbd | file, psync |",
    );
    let row = |start: &str| page.lines().find(|line| line.starts_with(start)).expect("a row").to_owned();
    assert_eq!(
        row("| random read 4 KiB QD1 "),
        "| random read 4 KiB QD1 | 150 k/s | 1.50 (1.50 to 1.50) | ≥ 1.2 | holds | 0.19 (0.19 to 0.19) | 100 k/s \
         | 50.0 k/s | – | 800 k/s |"
    );
    assert!(row("| random write 4 KiB QD1").contains("| 1.20 (1.20 to 1.20) | ≥ 1.2 | holds |"));
    assert_row(&page, "- *qemu-nbd* is absent: not installed");
    assert!(page.contains("### NBD servers: disk, direct\n\n"), "{page}");
    assert!(page.contains("throughput over the best like peer](plots/nbd-disk-direct.svg)"), "{page}");
}

#[test]
fn columns_are_ratios_to_the_first_and_those_of_2006_stand_beside() {
    let page = page_of(&invented());
    assert_row(
        &page,
        "| memory: sequential 1 MiB | 100 MiB/s | – | – | 0.990 (0.990 to 0.990) | 0.078 (0.078 to 0.078) | \
         1024: **missed by 91.8 %** |",
    );
    assert_row(
        &page,
        "| 2006, chained prototype: sequential writes | 933 KB/s | 0.999 | 0.994 | 0.970 | – |  |",
    );
    assert_row(
        &page,
        "| dm-snapshot, model disk: sequential 1 MiB | 1.000 | 0.314 | 0.105 | 0.056 | 0.029 | – |",
    );
    assert_row(&page, "| writes | 373 MB/s | 0.147 | 0.043 | 0.038 | 0.017 |");
    assert_row(
        &page,
        "| random 4 KiB QD8, 1 snapshot | 0.327 | ≥ 0.42 | **missed by 22.1 %** | 0.296 | 0.125 |",
    );
}

#[test]
fn rows_are_compared_with_rows_and_those_that_are_absent_count_nowhere() {
    let page = page_of(&invented());
    assert_row(&page, "| linear volume | 10.0 s | – | – |  | – | – | – | – |");
    assert_row(&page, "| thin | 10.1 s | 1.010 (1.010 to 1.010) | ≤ 1.02 | holds | – | – | – | – |");
    assert!(!page.contains("| other | – | –"), "a row without figures is left out: {page}");
    assert_row(&page, "- *time* is absent: too new");
    assert_row(
        &page,
        "| fifo, logged | 0.950 | 0.500 | 6: snapshot, sequential read: **missed by 47.4 %** |",
    );
}

#[test]
fn single_figures_have_a_spread_a_goal_and_a_verdict() {
    let page = page_of(&invented());
    assert_row(&page, "| engine, memory: snap create, median | 1.50 ms | 1.00 to 9.00 | ≤ 2 ms | holds |");
    assert_row(
        &page,
        "| engine, memory: write p99, over that without | 3.00 x | 2.00 to 18.0 | ≤ 1.5 x | **missed by 100 %** |",
    );
    assert_row(&page, "| engine, memory: writes | 1.50 ms | 1.00 to 9.00 | – |  |");
    assert_row(&page, "| daemon, memory: writes | 1.00 ms | – | – |  |");
    assert!(page.contains("- *daemon, memory*: invented; 1970-01-01, 0 cores"), "{page}");
    assert!(
        page.contains("## Layers") && page.contains("\nNot measured.\n"),
        "what is not there is said: {page}"
    );
}

#[test]
fn the_summary_counts_what_holds_and_names_what_misses() {
    let page = page_of(&invented());
    for row in [
        "| NBD, 4 KiB random: at least 1.2 x the best like peer | disk, direct | 2 of 2 | – |",
        "| NBD, sequential: at least 1.0 x the best like peer | disk, direct | 0 of 1 | sequential read 1 MiB: 0.90 of nbdkit |",
        "| first-touch writes with 16 snapshots: at least 0.98 of those with one | memory | 1 of 1 | – |",
        "| first-touch writes with 1024 snapshots: at least 0.95 of those with one | memory | 0 of 1 | sequential 1 MiB: 0.078 |",
        "| work on a copy-on-write image: at most its goal, as a ratio to a raw volume | First boot: memory | 1 of 1 | – |",
        "| sequential work with little memory for metadata: at least 0.9 | model disk | 1 of 2 | fifo, logged, 6: snapshot, sequential read: 0.500 |",
        "| snapshots are created and removed in the time allowed | engine, memory | 1 of 2 | write p99, over that without: 3.000 |",
    ] {
        assert_row(&page, row);
    }
    assert!(!page.contains("in the time allowed | daemon, memory"), "nothing is judged there: {page}");
}

#[test]
fn a_page_and_its_pictures_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let (page, plots) = (directory.path().join("benchmarks.md"), directory.path().join("plots"));
    render(&invented(), &page, &plots).expect("a page");
    let picture = |name: &str| fs::read_to_string(plots.join(name)).expect("a picture");
    for (name, labels) in [
        ("nbd-disk-direct.svg", &[">random read 4 KiB QD1<"][..]),
        ("snapshots.svg", &[">memory<", ">2006, chained prototype<"]),
        ("cost.svg", &[">random 4 KiB QD8, 1 snapshot<", ">dm-snapshot<"]),
        ("cache.svg", &[">5: origin, sequential write: fifo, logged<"]),
        ("management.svg", &[">engine, memory: snap create, median<"]),
    ] {
        assert!(labels.iter().all(|label| picture(name).contains(label)), "{name}: {}", picture(name));
    }
    // The bar, the two peers that were measured, and the legend.
    assert_eq!(picture("nbd-disk-direct.svg").matches("<circle").count(), 3 * 2 + 1);
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
    let names = |plots: &Path| -> BTreeSet<_> {
        let entries = fs::read_dir(plots).expect("a directory").map(|entry| entry.expect("an entry").path());
        let pictures = entries.filter(|path| path.extension().is_some_and(|kind| kind == "svg"));
        pictures.map(|path| path.file_name().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&plots), names(&docs.join("plots")));
    names(&plots).iter().for_each(|name| is_like(&plots.join(name), &docs.join("plots").join(name)));
}

#[test]
fn every_record_is_in_a_table() {
    let page = Table::page();
    assert_eq!(page.iter().filter(|(_, table)| table.is_some()).count(), 23);
    assert!(page.iter().all(|(text, _)| !text.contains("```table")), "each description has its end");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let all = with_published(&Results::load(&docs.join("plots/results.json")).expect("the figures"));
    for part in &all {
        let has = |table: &Table| table.parts(&all).iter().any(|it| std::ptr::eq(*it, part));
        assert!(page.iter().any(|(_, table)| table.as_ref().is_some_and(has)), "{}", part.table);
    }
}
