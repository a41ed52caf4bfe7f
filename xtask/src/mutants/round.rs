//! A round: one build, the tests without a mutant, then the tests for each mutant until one of them fails.
#![expect(clippy::disallowed_methods, reason = "how long a test runs is measured")]

use super::options::Options;
use super::points::{Point, SourceText};
use super::reached::{GROUPS, Reached, passed};
use super::rewrite;
use super::sample::Drawn;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Packages whose tests see the mutants of a package, in the order in which they are run.
const SEEN_BY: [(&str, &[&str]); 5] = [
    ("varve-block", &["varve-block", "varve-os", "varve-export", "varve-target", "varve-vg"]),
    ("varve-os", &["varve-os", "varve-export", "varve-cli"]),
    ("varve-target", &["varve-target", "varve-vg", "varve-volume", "varve-control", "varve-cli"]),
    ("varve-vg", &["varve-vg", "varve-control", "varve-cli"]),
    ("varve-export", &["varve-export", "varve-control", "varve-cli"]),
];
/// Builds until all mutants that do not compile are found.
const BUILDS_MAX: usize = 12;
/// A program in which no test ends for longer than this beyond [`SLOWER_MAX`] times its usual pause hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const SLOWER_MAX: u32 = 3;
/// The longest pause between the ends of two tests without a mutant.
const UNMUTATED_PAUSE_MAX: Duration = Duration::from_secs(900);
/// Address space of a test, in KiB: a mutant may ask for all there is.
const MEMORY_KIB_MAX: u64 = 12 << 20;

/// What became of a mutant.
pub(super) struct Verdict {
    pub(super) number: u32,
    pub(super) mutant: Drawn,
    pub(super) caught: bool,
}

/// A program of tests.
struct Tests {
    package: String,
    name: String,
    program: PathBuf,
    folder: PathBuf,
    reached: Reached,
}

/// How a program of tests ended.
enum End {
    /// With how long each test took, if the program was asked to tell.
    Passed(BTreeMap<String, Duration>),
    /// The first line that names a failure.
    Failed(String),
    /// It was stopped.
    Endless,
}

/// Builds and runs a round; prints each mutant as it is judged.
pub(super) fn run(
    root: &Path,
    sources: &[SourceText],
    mut mutants: BTreeMap<u32, Drawn>,
    options: &Options,
) -> Result<Vec<Verdict>, String> {
    let place = root.join("target/mutants");
    let copy = place.join("tree");
    let packages = packages(&mutants, options.near);
    drop_uncompilable(root, &place, sources, &mut mutants, &packages)?;
    println!("building the tests of {} with {} mutants", packages.join(" "), mutants.len());
    let mut tests = build(&copy, &place.join("build"), &packages)?;
    for test in &mut tests {
        measure(test, &place)?;
        let (count, all) = (test.reached.tests.len(), test.seconds());
        println!("          {} of {}: {count} tests, {all} s", test.name, test.package);
    }
    tests.sort_by_key(Tests::seconds);
    let waiting = Mutex::new(mutants.into_iter());
    let verdicts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for job in 0..options.jobs {
            let (waiting, verdicts, tests) = (&waiting, &verdicts, &tests);
            let scratch = place.join(format!("scratch-{job}"));
            scope.spawn(move || {
                loop {
                    let Some((number, mutant)) = waiting.lock().expect("no job panics").next() else { break };
                    let caught = hunt(number, &mutant, tests, options.near, &scratch);
                    verdicts.lock().expect("no job panics").push(Verdict { number, mutant, caught });
                }
            });
        }
    });
    Ok(verdicts.into_inner().expect("no job panics"))
}

/// MUTANT1: how long each test takes without a mutant, and which mutants it comes by. A busy machine is given a second
/// chance.
fn measure(test: &mut Tests, place: &Path) -> Result<(), String> {
    let reached = place.join("reached");
    let mut wrong = String::new();
    for _ in 0..2 {
        drop(fs::remove_file(&reached));
        let mut command = program(test, &place.join("scratch-0"))?;
        command.args(["-Z", "unstable-options", "--report-time"]);
        command.env("RUSTC_BOOTSTRAP", "1").env("VARVE_MUTANT_REACHED", &reached);
        wrong = match judge(command, UNMUTATED_PAUSE_MAX) {
            End::Passed(tests) => {
                test.reached = Reached::new(tests, &fs::read_to_string(&reached).unwrap_or_default());
                return Ok(());
            }
            End::Failed(line) => line,
            End::Endless => "no end".to_owned(),
        };
    }
    Err(format!("MUTANT1: without a mutant {} of {} fails: {wrong}", test.name, test.package))
}

/// Runs the tests that come by a mutant, the short ones of its own package first; whether one of them failed.
fn hunt(number: u32, mutant: &Drawn, tests: &[Tests], near: bool, scratch: &Path) -> bool {
    let point = &mutant.point;
    for (package, group) in
        seen_by(&point.path, near).iter().flat_map(|package| (0..GROUPS).map(move |group| (package, group)))
    {
        for test in tests.iter().filter(|test| test.package == *package) {
            let told = match test.try_on(number, group, scratch) {
                End::Passed(_) => continue,
                End::Failed(line) => line,
                End::Endless => "no end".to_owned(),
            };
            println!("caught    {number:4}  {point}  [{}: {told}]", test.name);
            return true;
        }
    }
    println!("SURVIVED  {number:4}  {point}");
    false
}

impl Tests {
    fn seconds(&self) -> u64 {
        self.reached.tests.values().sum::<Duration>().as_secs()
    }

    /// Runs the tests of a group that come by a mutant.
    fn try_on(&self, number: u32, group: usize, scratch: &Path) -> End {
        let names = self.reached.by(number, group);
        if names.is_empty() {
            return End::Passed(BTreeMap::new());
        }
        let usual = names.iter().map(|name| self.reached.tests[*name]).max().unwrap_or_default();
        match program(self, scratch) {
            Ok(mut command) => {
                command.arg("--exact").args(names).env("VARVE_MUTANT", number.to_string());
                judge(command, usual * SLOWER_MAX + PATIENCE)
            }
            Err(error) => End::Failed(error),
        }
    }
}

fn package_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

fn seen_by(path: &str, near: bool) -> &'static [&'static str] {
    let found = SEEN_BY.iter().find(|(package, _)| *package == package_of(path));
    found.map_or(&[], |(_, seen_by)| if near { &seen_by[..1] } else { seen_by })
}

/// All packages whose tests are needed.
fn packages(mutants: &BTreeMap<u32, Drawn>, near: bool) -> Vec<&'static str> {
    let mut packages: Vec<&str> =
        mutants.values().flat_map(|mutant| seen_by(&mutant.point.path, near)).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Writes the copy and checks it, until what is left compiles.
fn drop_uncompilable(
    root: &Path,
    place: &Path,
    sources: &[SourceText],
    mutants: &mut BTreeMap<u32, Drawn>,
    packages: &[&str],
) -> Result<(), String> {
    let copy = place.join("tree");
    for _ in 0..BUILDS_MAX {
        rewrite::write(root, &copy, sources, mutants)?;
        let mut check = cargo(&copy, &place.join("build"), packages);
        let messages = messages(check.args(["--keep-going"]), "check")?;
        let errors: Vec<(String, usize)> = messages.iter().filter_map(error_place).collect();
        if errors.is_empty() {
            return Ok(());
        }
        let before = mutants.len();
        mutants.retain(|_, Drawn { point, .. }| {
            let lines = point.line..=point.line + line_count(sources, point);
            !errors.iter().any(|(path, line)| *path == point.path && lines.contains(line))
        });
        println!("          {} mutants do not compile", before - mutants.len());
        if mutants.len() == before {
            return Err(format!("the tree does not compile: {errors:?}"));
        }
    }
    Err("mutants that do not compile were found in every build".to_owned())
}

/// Lines of a mutant after its first.
fn line_count(sources: &[SourceText], point: &Point) -> usize {
    let source = sources.iter().find(|source| source.path == point.path);
    source.map_or(0, |source| source.text[point.range.clone()].matches('\n').count())
}

fn cargo(copy: &Path, build: &Path, packages: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(copy).env("CARGO_TARGET_DIR", build).env("CARGO_INCREMENTAL", "0");
    command.env("RUSTFLAGS", "--cap-lints warn").args(["--offline", "--quiet"]);
    command.arg("VERB").args(packages.iter().flat_map(|package| ["--package", package]));
    command
}

/// Runs cargo and gives what it said, line by line.
fn messages(template: &Command, verb: &str) -> Result<Vec<Value>, String> {
    let mut command = Command::new("cargo");
    command.args(template.get_args().map(|word| if word == "VERB" { verb.as_ref() } else { word }));
    command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = template.get_current_dir() {
        command.current_dir(folder);
    }
    command.arg("--message-format=json").stderr(Stdio::null()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    Ok(told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// File and line of an error of the compiler.
fn error_place(message: &Value) -> Option<(String, usize)> {
    let message = message.get("message").filter(|message| message["level"] == "error")?;
    let span = message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    Some((span["file_name"].as_str()?.to_owned(), span["line_start"].as_u64()? as usize))
}

/// The programs of the tests.
fn build(copy: &Path, build: &Path, packages: &[&str]) -> Result<Vec<Tests>, String> {
    let mut test = cargo(copy, build, packages);
    let messages = messages(test.args(["--lib", "--bins", "--tests", "--no-run"]), "test")?;
    if let Some(error) = messages.iter().find(|message| message["message"]["level"] == "error") {
        return Err(format!("the tests do not build: {}", error["message"]["rendered"]));
    }
    let tests = messages.iter().filter(|message| message["profile"]["test"] == true).filter_map(|message| {
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let folder = manifest.parent()?.to_path_buf();
        Some(Tests {
            package: folder.file_name()?.to_str()?.to_owned(),
            name: message["target"]["name"].as_str()?.to_owned(),
            program: message["executable"].as_str()?.into(),
            folder,
            reached: Reached::default(),
        })
    });
    let tests: Vec<Tests> = tests.collect();
    if tests.is_empty() { Err("no tests were built".to_owned()) } else { Ok(tests) }
}

/// A program of tests, ready to be started with an empty folder for what it keeps.
fn program(test: &Tests, scratch: &Path) -> Result<Command, String> {
    drop(fs::remove_dir_all(scratch));
    fs::create_dir_all(scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {MEMORY_KIB_MAX}; exec \"$0\" \"$@\" 2>&1")).arg(&test.program);
    command.current_dir(&test.folder).env("TMPDIR", scratch).env_remove("VARVE_MUTANT");
    Ok(command)
}

/// Runs a program of tests until it ends, a test fails, or none ends for `pause_max`.
fn judge(mut command: Command, pause_max: Duration) -> End {
    // In a group of its own, with all that it starts.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return End::Failed(error.to_string()),
    };
    let end = watch(&mut child, pause_max);
    stop_group(&mut child);
    end
}

fn watch(child: &mut Child, pause_max: Duration) -> End {
    let Some(said) = child.stdout.take() else { return End::Endless };
    let (lines, heard) = channel();
    let (mut last, mut tests) = (Instant::now(), BTreeMap::new());
    // It ends when the last process that was started has closed its output.
    std::thread::spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        match heard.recv_timeout(pause_max.saturating_sub(last.elapsed())) {
            Ok(line) if line.starts_with("test ") && line.contains("... FAILED") => return End::Failed(line),
            Ok(line) => {
                if let Some((name, duration)) = passed(&line) {
                    tests.insert(name.to_owned(), duration);
                    last = Instant::now();
                }
            }
            Err(RecvTimeoutError::Timeout) => return End::Endless,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    match child.wait() {
        Ok(status) if status.success() => End::Passed(tests),
        Ok(status) => End::Failed(status.to_string()),
        Err(error) => End::Failed(error.to_string()),
    }
}

/// Ends what a program of tests left running, daemons too.
fn stop_group(child: &mut Child) {
    let group = format!("-{}", child.id());
    drop(Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status());
    drop(child.wait());
}
