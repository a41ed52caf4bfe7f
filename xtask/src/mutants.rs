//! Mutants: small faults put into the core, one at a time, to see whether a test notices.
//!
//! All mutants of a round are compiled into one build of a copy of the tree; the environment switches one of them on
//! (`VARVE_MUTANT=7`), so that a round costs one build and the time of the tests.
//!
//! Invariants:
//! - MUTANT1. With no mutant switched on the copy behaves as the tree does; a round begins with the tests passing there.
//! - MUTANT2. No two mutants of a round overlap, and a mutant adds no line: line numbers are those of the tree.
//! - MUTANT3. The mutants of a round follow from the tree, the files named, the size of the sample and the seed.

mod points;
mod rewrite;
mod round;
mod sample;
#[cfg(test)]
mod tests;

use std::path::Path;

/// What is mutated if no file is named.
const ROOMS: [&str; 7] = [
    "crates/varve-target/src/snapshot",
    "crates/varve-target/src/thin",
    "crates/varve-target/src/pdata",
    "crates/varve-vg/src",
    "crates/varve-block/src",
    "crates/varve-os/src",
    "crates/varve-export/src/nbd",
];
/// Hundredths of the mutants that the tests must catch.
const CAUGHT_PERCENT_MIN: usize = 90;

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    sample: usize,
    seed: u64,
    jobs: usize,
    /// Only run the tests of the package that a mutant lies in.
    near: bool,
    /// Only say which mutants there would be.
    list: bool,
    /// Only these mutants of the sample; all if empty.
    only: Vec<u32>,
    /// Files or folders, from the root of the tree.
    files: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            sample: 120,
            seed: 1,
            jobs: 1,
            near: false,
            list: false,
            only: Vec::new(),
            files: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64, String> {
                let value = words.next().and_then(|value| value.parse().ok());
                value.ok_or_else(|| format!("{word} needs a number"))
            };
            match *word {
                "--sample" => options.sample = number()? as usize,
                "--seed" => options.seed = number()?,
                "--only" => options.only.push(u32::try_from(number()?).map_err(|error| error.to_string())?),
                "--jobs" => options.jobs = (number()? as usize).max(1),
                "--near" => options.near = true,
                "--list" => options.list = true,
                option if option.starts_with('-') => return Err(format!("there is no option {option}")),
                file => options.files.push(file.trim_end_matches('/').to_owned()),
            }
        }
        if options.files.is_empty() {
            options.files = ROOMS.map(str::to_owned).to_vec();
        }
        Ok(options)
    }
}

/// Builds and runs a round as `words` ask.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let sources = rewrite::read(root, &options.files)?;
    let points = sources.iter().flat_map(points::find).collect();
    let mut chosen = sample::draw(points, options.sample, options.seed);
    chosen.retain(|number, _| options.only.is_empty() || options.only.contains(number));
    if options.list {
        for (number, mutant) in &chosen {
            println!("{number:4}  {mutant}");
        }
        return Ok(());
    }
    let verdicts = round::run(root, &sources, chosen, &options)?;
    let caught = verdicts.iter().filter(|verdict| verdict.caught).count();
    for verdict in verdicts.iter().filter(|verdict| !verdict.caught) {
        println!("survived  {:4}  {}", verdict.number, verdict.mutant);
    }
    let share = caught * 100 / verdicts.len().max(1);
    println!("mutants: {caught} of {} caught ({share} %), seed {}", verdicts.len(), options.seed);
    if share < CAUGHT_PERCENT_MIN {
        return Err(format!("mutants: at least {CAUGHT_PERCENT_MIN} % must be caught"));
    }
    Ok(())
}
