//! Which tests come by the place of a mutant, and in which order they are run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Tests that take longer are run after those of all programs that do not: most mutants are caught by a short test.
const SHORT_MAX: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// How many groups of tests [`SHORT_MAX`] makes.
pub(super) const GROUPS: usize = SHORT_MAX.len() + 1;

/// What is known of the tests of a program from its run without a mutant.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// How long each test takes.
    pub(super) tests: BTreeMap<String, Duration>,
    /// The threads that came by each mutant.
    threads: BTreeMap<u32, BTreeSet<String>>,
}

impl Reached {
    /// From the durations of the tests and the lines that the threads wrote (MUTANT4).
    pub(super) fn new(tests: BTreeMap<String, Duration>, written: &str) -> Self {
        let mut threads: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for line in written.lines() {
            let (number, thread) = line.split_once(' ').unwrap_or((line, ""));
            if let Ok(number) = number.parse() {
                threads.entry(number).or_default().insert(thread.to_owned());
            }
        }
        Self { tests, threads }
    }

    /// The tests that judge a mutant, those of group `group` only. All of them if it was reached by a thread that is no
    /// test's own.
    pub(super) fn by(&self, number: u32, group: usize) -> Vec<&str> {
        let Some(threads) = self.threads.get(&number) else { return Vec::new() };
        let is_known = threads.iter().all(|thread| self.tests.contains_key(thread));
        let tests = self.tests.iter().filter(|(name, _)| !is_known || threads.contains(*name));
        tests.filter(|(_, usual)| group_of(**usual) == group).map(|(name, _)| name.as_str()).collect()
    }
}

fn group_of(usual: Duration) -> usize {
    SHORT_MAX.iter().filter(|&&max| usual > max).count()
}

/// Name and duration of a test that passed, of a line as `test NAME ... ok <1.250s>`.
pub(super) fn passed(line: &str) -> Option<(&str, Duration)> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ok")?;
    let seconds = end.trim().trim_start_matches('<').trim_end_matches("s>").parse().unwrap_or_default();
    Some((name.trim_end_matches(" - should panic"), Duration::from_secs_f64(seconds)))
}
