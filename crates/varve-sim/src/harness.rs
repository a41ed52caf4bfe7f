//! Running a test under many seeds, or with a crash at every possible point, and saying how to repeat a failure.

use crate::chance::{Chooser, CrashTally, Path, take_tally_of_this_thread};
use crate::quiet::{Quiet, is_quiet};
use crate::world::{CrashAt, World};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a test stands, so that the command that repeats it can be printed; made by [`test_name!`](crate::test_name).
#[derive(Clone, Copy, Debug)]
pub struct TestName {
    /// The package.
    pub package: &'static str,
    /// The crate that is compiled: the package's own, or that of a file in its `tests` directory.
    pub target: &'static str,
    /// The test function.
    pub function: &'static str,
}

impl TestName {
    /// The command that runs the test with `seed` alone.
    pub fn command(&self, seed: u64) -> String {
        let TestName { package, target, function } = self;
        let place = if *target == package.replace('-', "_") {
            "--lib".to_owned()
        } else {
            format!("--test {target}")
        };
        format!("VARVE_SIM_SEED={seed} cargo test -p {package} {place} {function} -- --nocapture")
    }
}

/// The [`TestName`] of a test function in the calling crate.
#[macro_export]
macro_rules! test_name {
    ($function:literal) => {
        $crate::TestName {
            package: env!("CARGO_PKG_NAME"),
            target: env!("CARGO_CRATE_NAME"),
            function: $function,
        }
    };
}

/// Runs `test` with the seeds 1 to `count_default`, on all cores, and prints how many there were and how many crash
/// states they went through. The first panic ends the run and prints the command that repeats it.
///
/// `VARVE_SIM_SEEDS=5000` sets the number of seeds, `VARVE_SIM_SEEDS=x10` multiplies it, `VARVE_SIM_SEEDS=5001..9000` goes on
/// behind a seed that fails; `VARVE_SIM_SEED=7` runs that seed alone.
pub fn run_seeds(name: TestName, count_default: u64, test: impl Fn(u64) + Sync) {
    let (first, last) = match variable("VARVE_SIM_SEED") {
        Some(seed) => return run_alone(name, parse(&seed, "VARVE_SIM_SEED"), &test),
        None => seeds(count_default, variable("VARVE_SIM_SEEDS").as_deref()),
    };
    let run = SeedRun { next: AtomicU64::new(first), last, first_failure: Mutex::new(None) };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let tally = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(|| run.work(&test))).collect();
        let mut tally = CrashTally::default();
        for handle in handles {
            tally.merge(handle.join().expect("a worker catches the panics of its tests"));
        }
        tally
    });
    let failure = run.first_failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    match failure {
        None => report(name, (last + 1).saturating_sub(first), tally),
        Some((seed, payload)) => {
            say(&format!("{}: seed {seed} fails; repeat it with\n  {}", name.function, name.command(seed)));
            resume_unwind(payload);
        }
    }
}

/// For negative controls: with how many of the seeds 1 to `seeds` the test panics. What it would print is not.
pub fn caught(seeds: u64, test: impl Fn(u64)) -> u64 {
    caught_until(seeds, seeds, test).0
}

/// Runs `test` with the seeds 1 to `seeds`, until it has panicked with `enough` of them: with how many it has, and with how
/// many it was run.
fn caught_until(enough: u64, seeds: u64, test: impl Fn(u64)) -> (u64, u64) {
    let _quiet = Quiet::new();
    let (mut noticed, mut run) = (0, 0);
    while noticed < enough && run < seeds {
        run += 1;
        noticed += u64::from(catch_unwind(AssertUnwindSafe(|| test(run))).is_err());
    }
    (noticed, run)
}

/// For negative controls: fails if the test panics with fewer than `percent_min` percent of the seeds 1 to `seeds`, which is to
/// be well below what is usual: a control that bites rarely is a control of little. Prints with how many it does.
///
/// It ends as soon as enough have noticed, whatever the others would do; all are run if `VARVE_SIM_SEEDS` is set.
pub fn caught_share(name: &str, seeds: u64, percent_min: u64, test: impl Fn(u64)) {
    let needed = (seeds * percent_min).div_ceil(100);
    let enough = if variable("VARVE_SIM_SEEDS").is_some() { seeds } else { needed };
    let (noticed, run) = caught_until(enough, seeds, test);
    say(&format!("sim: {name}: noticed by {noticed} of {run} histories"));
    assert!(
        noticed >= needed,
        "{name}: noticed by {noticed} of {run} histories, fewer than {percent_min} % of {seeds}"
    );
}

type Payload = Box<dyn std::any::Any + Send>;

struct SeedRun {
    next: AtomicU64,
    last: u64,
    first_failure: Mutex<Option<(u64, Payload)>>,
}

impl SeedRun {
    /// Takes seeds until there are no more, or one has failed.
    fn work(&self, test: &(impl Fn(u64) + Sync)) -> CrashTally {
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed > self.last {
                return take_tally_of_this_thread();
            }
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
                self.next.store(self.last + 1, Ordering::Relaxed);
                let mut first = self.first_failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if first.as_ref().is_none_or(|(other, _)| seed < *other) {
                    *first = Some((seed, payload));
                }
            }
        }
    }
}

fn run_alone(name: TestName, seed: u64, test: &impl Fn(u64)) {
    take_tally_of_this_thread();
    test(seed);
    report(name, 1, take_tally_of_this_thread());
}

fn report(name: TestName, seeds: u64, tally: CrashTally) {
    say(&format!(
        "sim: {}: {seeds} seeds, {} crash states ({} of them lost something: {} sectors; {} requests torn), {} requests overlapped others",
        name.function,
        tally.states,
        tally.states_lossy,
        tally.sectors_lost,
        tally.requests_torn,
        tally.overlaps
    ));
}

/// Prints past the capture of test output: these counts are meant to be seen.
fn say(line: &str) {
    if is_quiet() {
        return;
    }
    // A closed standard error is no reason for a test to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[expect(clippy::disallowed_methods, reason = "the harness is told from outside which seeds to run")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn parse(value: &str, name: &str) -> u64 {
    match value.parse() {
        Ok(number) => number,
        Err(error) => panic!("{name}={value}: {error}"),
    }
}

/// The first seed and the last one.
fn seeds(count_default: u64, variable: Option<&str>) -> (u64, u64) {
    let number = |text: &str| parse(text, "VARVE_SIM_SEEDS");
    match variable {
        None => (1, count_default),
        Some(value) => match (value.strip_prefix('x'), value.split_once("..")) {
            (Some(factor), _) => (1, count_default.saturating_mul(number(factor))),
            (None, Some((first, last))) => (number(first), number(last)),
            (None, None) => (1, number(value)),
        },
    }
}

/// Runs `scenario` again and again in worlds made from `seed`, with a power failure after the first disk event, the
/// second, and so on, until none comes any more. The scenario makes its disks, calls
/// [`World::run_until_crash`] once, then checks what is left. Returns the number of crashes.
pub fn for_each_crash_point(seed: u64, mut scenario: impl FnMut(&World)) -> u64 {
    let mut crashes = 0;
    loop {
        let world = World::new(seed);
        world.schedule_crash(CrashAt::Event(crashes + 1));
        scenario(&world);
        match world.tally().states {
            0 => return crashes,
            _ => crashes += 1,
        }
    }
}

/// Like [`for_each_crash_point`], but visits at each point every state that the disks may be left in, one after the
/// other, up to `states_max` a point. For scenarios of a few requests.
pub fn for_each_crash_state(seed: u64, states_max: u64, mut scenario: impl FnMut(&World)) -> CrashStates {
    let mut visited = CrashStates::default();
    loop {
        let mut path = Path::default();
        for number in 1.. {
            let world = World::new(seed);
            world.set_chooser(Chooser::Explore(path));
            world.schedule_crash(CrashAt::Event(visited.points + 1));
            scenario(&world);
            if world.tally().states == 0 {
                return visited;
            }
            visited.states += 1;
            path = match world.take_chooser() {
                Chooser::Explore(path) => path,
                Chooser::Random { .. } => unreachable!("the chooser stays what it was set to"),
            };
            if !path.turn() {
                break;
            }
            if number == states_max {
                visited.points_cut_short += 1;
                break;
            }
        }
        visited.points += 1;
    }
}

/// What [`for_each_crash_state`] has visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CrashStates {
    /// Moments at which the power failed.
    pub points: u64,
    /// States in which the disks were left.
    pub states: u64,
    /// Points that had more states than were visited.
    pub points_cut_short: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_place() {
        let name = TestName { package: "varve-vg", target: "crash", function: "commits_survive" };
        assert_eq!(
            name.command(7),
            "VARVE_SIM_SEED=7 cargo test -p varve-vg --test crash commits_survive -- --nocapture"
        );
        let name = TestName { package: "varve-vg", target: "varve_vg", function: "x" };
        assert!(name.command(1).contains("-p varve-vg --lib x"));
        assert_eq!(crate::test_name!("y").package, "varve-sim");
    }

    #[test]
    fn the_number_of_seeds_can_be_set_and_multiplied() {
        assert_eq!(seeds(10, None), (1, 10));
        assert_eq!(seeds(10, Some("33")), (1, 33));
        assert_eq!(seeds(10, Some("x3")), (1, 30));
        assert_eq!(seeds(10, Some("34..50")), (34, 50));
    }

    #[test]
    fn a_failing_seed_fails_the_run() {
        let name = crate::test_name!("a_failing_seed_fails_the_run");
        // Whichever seeds the environment asks for.
        let runs_failed =
            caught(1, |_| run_seeds(name, 5, |seed| assert!(seed % 4 != 3, "seed {seed} is bad")));
        assert_eq!(runs_failed, 1);
        assert_eq!(caught(1, |_| run_seeds(name, 5, |seed| assert!(seed > 0))), 0);
    }
}
