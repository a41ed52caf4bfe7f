//! Mutants: small faults put into the core, one at a time, to see whether a test notices.
//!
//! All mutants of a round are compiled into one build of a copy of the tree; the environment switches one of them on
//! (`VARVE_MUTANT=7`), so that a round costs one build and the time of the tests.
//!
//! Invariants:
//! - MUTANT1. With no mutant switched on the copy behaves as the tree does; a round begins with the tests passing there.
//! - MUTANT2. No two mutants of a round overlap, and a mutant adds no line: line numbers are those of the tree.
//! - MUTANT3. The mutants of a round follow from the tree, the files named, the size of the sample and the seed.

mod options;
mod points;
mod rewrite;
mod round;
mod sample;
#[cfg(test)]
mod tests;

use options::Options;
use std::path::Path;

/// Hundredths of the mutants that the tests must catch.
const CAUGHT_PERCENT_MIN: usize = 90;

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
