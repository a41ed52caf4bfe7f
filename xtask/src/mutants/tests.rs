//! What is put into a file compiles, changes nothing until it is switched on, and then changes what it says.

use super::options::Options;
use super::points::{Kind, Point, SourceText, find};
use super::reached::{Reached, passed};
use super::rewrite::mutate;
use super::sample::{Drawn, draw};
use std::collections::BTreeMap;
use std::time::Duration;

const PLAIN: &str = r#"//! A file.

const LIMIT: u64 = 4;

/// Doubles.
const fn doubled(value: u64) -> u64 { value + value }

async fn change(device: &Device, extent: Extent) -> Result<(), IoError> {
    if extent.length < LIMIT && !device.is_gone() {
        device
            .flush()
            .await?;
    }
    if let Some(first) = extent.parts().first() && first.length == 0 {
        return Ok(());
    }
    let end = extent.offset + extent.length.min([0; 4].len() as u64);
    device.write(end, Durability::Durable).await
}

fn is_small(length: u64) -> bool { matches!(length, 0..=3) }

#[cfg(test)]
mod tests {
    fn never_mutated() { assert!(1 < 2); }
}
"#;

fn plain() -> SourceText {
    SourceText { path: "crates/varve-vg/src/plain.rs".to_owned(), text: PLAIN.to_owned() }
}

fn told(points: &[Point]) -> Vec<&str> {
    points.iter().map(|point| point.what.as_str()).collect()
}

#[test]
fn every_kind_of_fault_finds_its_places() {
    let points = find(&plain());
    let told = told(&points);
    for wanted in [
        "extent.length < LIMIT -> (extent.length) <= (LIMIT)",
        "negated: extent.length < LIMIT && !device.is_gone()",
        "left out: device .flush() .await?;",
        "fn change returns Ok(()) at once",
        "fn is_small returns false at once",
        "Durability::Durable -> Durability::Volatile",
        "first.length == 0 -> (first.length) != (0)",
    ] {
        assert!(told.contains(&wanted), "{wanted} is not in {told:#?}");
    }
    assert!(
        told.iter().any(|what| what.contains(".max(") && what.starts_with("extent.length.min(")),
        "{told:#?}"
    );
    assert!(points.iter().any(|point| point.kind == Kind::Arithmetic));
}

#[test]
fn what_the_compiler_must_know_and_tests_are_left_alone() {
    let points = find(&plain());
    let lines: Vec<usize> = points.iter().map(|point| point.line).collect();
    assert!(!lines.contains(&3) && !lines.contains(&6), "{lines:?}");
    assert!(lines.iter().all(|line| *line < 23), "{lines:?}");
    assert!(!told(&points).contains(&"4 -> 4 + 1"), "the length of an array");
    assert!(!told(&points).iter().any(|what| what.contains("let Some")), "a condition that binds names");
}

#[test]
fn each_mutant_alone_is_rust_and_adds_no_line() {
    let source = plain();
    for point in find(&source) {
        let text = mutate(&source, &BTreeMap::from([(7, Drawn { seed: 1, point: point.clone() })]));
        assert!(syn::parse_file(&text).is_ok(), "{point}:\n{text}");
        assert!(text.contains("varve_block::mutant(7)"), "{point}");
        assert_eq!(text.lines().count(), PLAIN.lines().count(), "MUTANT2: {point}");
    }
}

#[test]
fn mutants_of_a_round_do_not_overlap_and_follow_from_the_seed() {
    let source = plain();
    let points = find(&source);
    let round = draw(&points, 3, &[3, 4]);
    assert_eq!(round, draw(&points, 3, &[3, 4]), "MUTANT3");
    assert_ne!(draw(&points, 5, &[3]), draw(&points, 5, &[4]), "MUTANT3");
    assert!(round.values().map(|mutant| mutant.seed).eq([3; 3].into_iter().chain([4; 3])), "{round:?}");
    let mut ranges: Vec<_> = round.values().map(|mutant| mutant.point.range.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "MUTANT2: {ranges:?}");
    let text = mutate(&source, &round);
    assert!(syn::parse_file(&text).is_ok(), "{text}");
    assert_eq!(text.matches("varve_block::mutant(").count(), round.len());
}

#[test]
fn the_crate_with_the_question_asks_itself() {
    let source = SourceText { path: "crates/varve-block/src/plain.rs".to_owned(), text: PLAIN.to_owned() };
    let text = mutate(&source, &draw(&find(&source), 1, &[1]));
    assert!(text.contains("crate::mutant(1)"), "{text}");
}

#[test]
fn options_are_understood() {
    let options =
        Options::parse(&["--sample", "5", "--seed", "9", "--seed", "2", "crates/varve-vg/"]).expect("fine");
    assert_eq!(
        (options.sample, options.seeds.as_slice(), options.files.as_slice()),
        (5, &[9, 2][..], &["crates/varve-vg".to_owned()][..])
    );
    assert_eq!(Options::parse(&[]).expect("fine").files.len(), 7);
    assert!(Options::parse(&["--sample"]).is_err() && Options::parse(&["--fast"]).is_err());
}

#[test]
fn a_mutant_is_judged_by_the_tests_that_come_by_it() {
    let said = [
        "test a::short ... ok <0.250s>",
        "test a::long - should panic ... ok <9.000s>",
        "test b ... ok <0.1s>",
    ];
    let tests =
        said.iter().filter_map(|line| passed(line)).map(|(name, time)| (name.to_owned(), time)).collect();
    let reached = Reached::new(tests, "1 a::short\n1 a::long\n2 a::short\n2 shard 0\n");
    assert_eq!(reached.tests["a::long"], Duration::from_secs(9));
    assert_eq!((reached.by(1, 0), reached.by(1, 2)), (vec!["a::short"], vec!["a::long"]), "MUTANT4");
    assert_eq!(reached.by(2, 0), ["a::short", "b"], "a thread that is no test's may be anyone's");
    assert!(reached.by(3, 0).is_empty() && passed("test c ... FAILED <0.1s>").is_none());
}
