//! Builds the fuzz targets with the compiler's own coverage instrumentation and runs them; needs no other tool.
//!
//! The flags are those of `cargo fuzz` that a stable compiler takes, so everything but the address sanitizer, which
//! would find nothing here: the parsers have no unsafe code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0";
const INPUT_SECONDS_MAX: u32 = 10;
const MEMORY_MIB_MAX: u32 = 1024;

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    seconds: u32,
    /// Targets at once; as many as the machine has processors if it is not said.
    jobs: Option<usize>,
    /// One input to run instead of searching.
    input: Option<PathBuf>,
    /// All if empty.
    targets: Vec<String>,
}

/// Builds and runs what `words` ask for.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let folder = root.join("fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).map_err(|error| error.to_string())?;
    let known = targets(&manifest)?;
    if let Some(stranger) = options.targets.iter().find(|name| !known.contains(name)) {
        return Err(format!("there is no fuzz target {stranger}; there are: {}", known.join(" ")));
    }
    let chosen = if options.targets.is_empty() { known } else { options.targets.clone() };
    let programs = build(&folder)?;
    if let Some(input) = &options.input {
        return replay(&programs.join(&chosen[0]), input);
    }
    let failed = run_all(&folder, &programs, &chosen, &options)?;
    if failed == 0 { Ok(()) } else { Err(format!("fuzz: {failed} of {} targets failed", chosen.len())) }
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { seconds: 30, jobs: None, input: None, targets: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seconds" => {
                    let value = words.next().and_then(|value| value.parse().ok());
                    options.seconds =
                        value.filter(|seconds| *seconds > 0).ok_or("--seconds needs a number")?;
                }
                "--jobs" => {
                    let value = words.next().and_then(|value| value.parse().ok());
                    options.jobs = Some(value.filter(|jobs| *jobs > 0).ok_or("--jobs needs a number")?);
                }
                "--input" => options.input = Some(words.next().ok_or("--input needs a file")?.into()),
                option if option.starts_with('-') => return Err(format!("there is no option {option}")),
                target => options.targets.push(target.to_owned()),
            }
        }
        if options.input.is_some() && options.targets.len() != 1 {
            return Err("--input needs one target".to_owned());
        }
        Ok(options)
    }
}

/// The names of the fuzz targets that a manifest declares.
fn targets(manifest: &str) -> Result<Vec<String>, String> {
    let table: toml::Table = manifest.parse().map_err(|error| format!("fuzz/Cargo.toml: {error}"))?;
    let programs =
        table.get("bin").and_then(toml::Value::as_array).ok_or("fuzz/Cargo.toml has no targets")?;
    let names = programs.iter().filter_map(|program| program.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Where the built programs lie.
fn build(folder: &Path) -> Result<PathBuf, String> {
    let host = host()?;
    let built = folder.join("target");
    // With a target named, the flags go to the parsers and not to build scripts and macros.
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--bins", "--target", &host])
        .current_dir(folder)
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &built)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(
            "the fuzz targets do not build (libFuzzer needs a C++ compiler: apt-get install g++)".to_owned()
        );
    }
    Ok(built.join(host).join("release"))
}

fn host() -> Result<String, String> {
    let output =
        Command::new("rustc").arg("-vV").output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not tell its host".to_owned())
}

fn replay(program: &Path, input: &Path) -> Result<(), String> {
    let status = Command::new(program).arg(input).status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{} still fails", input.display())) }
}

/// Several targets at once; the number of those that failed.
fn run_all(folder: &Path, programs: &Path, chosen: &[String], options: &Options) -> Result<usize, String> {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = options.jobs.unwrap_or_else(processors).min(chosen.len());
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(target) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match run_one(folder, programs, target, options.seconds) {
                        Ok(line) => println!("ok    {target}: {line}"),
                        Err(line) => {
                            println!("FAIL  {target}: {line}");
                            failures.lock().expect("no worker panics").push(target);
                        }
                    }
                }
            });
        }
    });
    Ok(failures.into_inner().expect("no worker panics").len())
}

fn run_one(folder: &Path, programs: &Path, target: &str, seconds: u32) -> Result<String, String> {
    // What is found goes to the first folder, which is not checked in; the seeds are only read.
    let found = folder.join("target/corpus").join(target);
    let seeds = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts").join(target);
    for made in [&found, &artifacts] {
        fs::create_dir_all(made).map_err(|error| format!("{}: {error}", made.display()))?;
    }
    if !seeds.is_dir() {
        return Err(format!("there are no seeds in {}", seeds.display()));
    }
    let output = Command::new(programs.join(target))
        .args([&found, &seeds])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-use_value_profile=1"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(failure(target, &said));
    }
    summary(&said)
}

/// What went wrong, and how to see it again.
fn failure(target: &str, said: &str) -> String {
    let artifact =
        said.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path);
    let reason = said.lines().find(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
    let panicked = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1).unwrap_or_default();
    let again = artifact.map_or_else(String::new, |path| {
        format!("\n      reproduce: cargo xtask fuzz {target} --input {path}")
    });
    format!("{} {panicked}{again}", reason.unwrap_or("stopped without a reason"))
}

/// A line from what libFuzzer said: runs, and how far coverage grew. No coverage means that the build is wrong.
fn summary(said: &str) -> Result<String, String> {
    let covered: Vec<u32> = said.lines().filter_map(coverage).collect();
    let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    match (covered.first(), covered.last(), runs) {
        (Some(first), Some(last), Some(runs)) if *last > 0 => {
            Ok(format!("{} runs, coverage {first} -> {last}", runs.trim()))
        }
        _ => Err("no coverage was measured: the instrumentation is missing".to_owned()),
    }
}

/// The number after `cov:` in a line of libFuzzer's.
fn coverage(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once(" cov: ")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood() {
        let options = Options::parse(&["--seconds", "5", "--jobs", "1", "label", "slot"]).expect("fine");
        assert_eq!((options.seconds, options.jobs, options.targets.len()), (5, Some(1), 2));
        assert_eq!(Options::parse(&[]).expect("fine").seconds, 30);
        for wrong in [
            &["--seconds"][..],
            &["--seconds", "0"],
            &["--fast"],
            &["--jobs"],
            &["--input", "x"],
            &["--input"],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_target_has_seeds_and_every_seed_a_target() {
        let folder = crate::cargo::root().join("fuzz");
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest is there");
        let mut targets = targets(&manifest).expect("it is understood");
        let mut seeded: Vec<String> = fs::read_dir(folder.join("corpus"))
            .expect("the seeds are there")
            .map(|entry| entry.expect("it can be read").file_name().into_string().expect("a plain name"))
            .collect();
        targets.sort();
        seeded.sort();
        assert_eq!(targets, seeded);
    }

    #[test]
    fn what_libfuzzer_says_is_understood() {
        let said = "#2\tINITED cov: 45 ft: 46 corp: 1/3b\n#9\tNEW    cov: 97 ft: 99\nstat::number_of_executed_units: 1234\n";
        assert_eq!(summary(said), Ok("1234 runs, coverage 45 -> 97".to_owned()));
        assert!(summary("#2\tINITED cov: 0 ft: 0\nstat::number_of_executed_units: 9\n").is_err());
        assert!(summary("").is_err());
        let crash = "thread panicked at src/x.rs:1:2:\nB2: an id\nTest unit written to /x/crash-1\n";
        let told = failure("label", crash);
        assert!(
            told.contains("B2: an id") && told.contains("cargo xtask fuzz label --input /x/crash-1"),
            "{told}"
        );
    }
}
