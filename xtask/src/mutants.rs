//! Mutants: small faults put into the core, one at a time, to see whether a test notices.
//!
//! All mutants of a round are compiled into one build of a copy of the tree; the environment switches one of them on
//! (`VARVE_MUTANT=7`), so that a round costs one build and the time of the tests.
//!
//! Invariants:
//! - MUTANT1. With no mutant switched on the copy behaves as the tree does; a round begins with the tests passing there.
//! - MUTANT2. No two mutants of a round overlap, and a mutant adds no line: line numbers are those of the tree.
//! - MUTANT3. The mutants of a round follow from the tree, the files named, the size of the sample and the seeds.
//! - MUTANT4. A mutant is judged by the tests that come by its place without a mutant; until a test comes by it, it runs as
//!   it does without.

mod options;
mod points;
mod reached;
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
    let points: Vec<_> = sources.iter().flat_map(points::find).collect();
    let mut chosen = sample::draw(&points, options.sample, &options.seeds);
    chosen.retain(|number, _| options.only.is_empty() || options.only.contains(number));
    if options.list {
        for (number, drawn) in &chosen {
            println!("{number:4}  {}", drawn.point);
        }
        return Ok(());
    }
    let verdicts = round::run(root, &sources, chosen, &options)?;
    for verdict in verdicts.iter().filter(|verdict| !verdict.caught) {
        println!("survived  {:4}  {}", verdict.number, verdict.mutant.point);
    }
    let mut is_enough = true;
    for seed in options.seeds {
        let of_seed: Vec<_> = verdicts.iter().filter(|verdict| verdict.mutant.seed == seed).collect();
        let caught = of_seed.iter().filter(|verdict| verdict.caught).count();
        let share = caught * 100 / of_seed.len().max(1);
        println!("mutants: {caught} of {} caught ({share} %), seed {seed}", of_seed.len());
        is_enough &= share >= CAUGHT_PERCENT_MIN;
    }
    if is_enough { Ok(()) } else { Err(format!("mutants: at least {CAUGHT_PERCENT_MIN} % must be caught")) }
}
