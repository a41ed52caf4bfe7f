//! Automation: the rules of the house, fuzzing, licences, rendered documents.

mod asan;
mod docs;
mod fuzz;
mod licences;
mod mutants;
mod render;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                          checks the rules of the house on every source file
  licences                      checks licences and origins of all dependencies against deny.toml
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

/// The root of the tree, wherever the command was started.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the root of the tree").to_path_buf()
}

/// What `cargo metadata` says of the workspace, as JSON.
fn metadata(root: &Path, arguments: &[&str]) -> Result<serde_json::Value, String> {
    let output = std::process::Command::new("cargo")
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}
