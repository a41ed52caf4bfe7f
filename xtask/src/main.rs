//! Automation: the rules of the house, fuzzing, licences, rendered documents.

mod asan;
mod cargo;
mod docs;
mod fuzz;
mod licences;
mod lines;
mod mutants;
mod render;
mod tidy;

use cargo::root;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                          checks the rules of the house on every source file
  licences                      checks licences and origins of all dependencies against deny.toml
  lines                         counts lines with code, crate by crate
  fuzz [--seconds N] [--jobs N] [TARGET…]
                                builds the fuzz targets and runs each for N seconds (30), several at once
  asan [WORD…]                  runs the tests of the crates with unsafe code under the address sanitizer
  docs [--write] [PAGE…]        runs the commands in docs/ and compares what they print, or writes it
  mutants [--sample N] [--seed N] [--jobs N] [--near] [--list] [--only N]… [FILE…]
                                puts small faults into the core, one at a time, and says which no test notices
  render                        writes the documents that are rendered from code (docs/format.md)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy::run(&root()),
        ["licences"] => licences::run(&root()),
        ["lines"] => lines::run(&root()),
        ["asan", rest @ ..] => asan::run(&root(), rest),
        ["docs", rest @ ..] => docs::run(&root(), rest),
        ["fuzz", rest @ ..] => fuzz::run(&root(), rest),
        ["mutants", rest @ ..] => mutants::run(&root(), rest),
        ["render"] => render::run(&root()),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
