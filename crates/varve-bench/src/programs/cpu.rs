//! How many CPU seconds a server has used: all of its threads and children, the ended ones too.

use std::collections::HashMap;
use std::fs;

/// Ticks a second in `/proc/PID/stat`; 100 on every architecture that Linux still builds for but Alpha.
const TICKS_PER_SECOND: f64 = 100.0;

/// By how many seconds ticks may be more than threads have used, if none of them has ended: four figures are rounded.
const TICKS_ERROR: f64 = 0.05;

/// One line of `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    pid: u32,
    parent: u32,
    /// Own time and that of children that were waited for, user and system.
    ticks: u64,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        let (pid, rest) = line.split_once(" (")?;
        // The name may hold blanks and brackets; it ends at the last bracket.
        let (_, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let ticks = (11..15).map(number).sum::<Option<u64>>()?;
        Some(Self { pid: pid.trim().parse().ok()?, parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

/// CPU seconds that `root` and everything it started have used so far.
pub(crate) fn seconds(root: u32) -> f64 {
    ticks_of_tree(root, &snapshot()) as f64 / TICKS_PER_SECOND
}

/// CPU seconds that the calling thread has used so far.
pub(crate) fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time that one server uses, finer than [`seconds`] tells: what threads use that end meanwhile is known in ticks only.
pub(crate) struct Meter {
    pid: u32,
    ticks: f64,
    threads: f64,
}

impl Meter {
    /// Begins to count.
    pub(crate) fn start(pid: u32) -> Self {
        Self { pid, ticks: seconds(pid), threads: of_threads(pid) }
    }

    /// CPU seconds since then.
    pub(crate) fn seconds(&self) -> f64 {
        let (threads, ticks) = (of_threads(self.pid) - self.threads, seconds(self.pid) - self.ticks);
        if ticks > threads + TICKS_ERROR { ticks } else { threads }
    }
}

/// CPU seconds of the threads that `pid` has now, to the nanosecond.
fn of_threads(pid: u32) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let nanoseconds = |text: String| text.split(' ').next()?.parse::<u64>().ok();
    let times = threads
        .flatten()
        .filter_map(|thread| nanoseconds(fs::read_to_string(thread.path().join("schedstat")).ok()?));
    times.sum::<u64>() as f64 / 1e9
}

fn snapshot() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| Stat::parse(&fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect()
}

fn ticks_of_tree(root: u32, all: &[Stat]) -> u64 {
    let mut children = HashMap::<u32, Vec<u32>>::new();
    let mut ticks = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat.pid);
        ticks.insert(stat.pid, stat.ticks);
    }
    let (mut total, mut open) = (0, vec![root]);
    while let Some(pid) = open.pop() {
        total += ticks.get(&pid).copied().unwrap_or(0);
        open.extend(children.get(&pid).into_iter().flatten());
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_is_skipped() {
        let line = "42 (a b) c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 1 0 5 6 7";
        assert_eq!(Stat::parse(line), Some(Stat { pid: 42, parent: 7, ticks: 124 }));
        assert_eq!(Stat::parse("42 (x) S 7"), None);
    }

    #[test]
    fn a_tree_counts_descendants_and_nobody_else() {
        let stat = |pid, parent, ticks| Stat { pid, parent, ticks };
        let all = [stat(1, 0, 1000), stat(5, 1, 1), stat(6, 5, 10), stat(7, 6, 100), stat(8, 1, 500)];
        assert_eq!(ticks_of_tree(5, &all), 111);
        assert_eq!(ticks_of_tree(99, &all), 0);
    }

    #[test]
    fn a_busy_process_is_seen_and_for_a_short_time_too() {
        let before = seconds(std::process::id());
        let meter = Meter::start(std::process::id());
        let begun = crate::programs::watch::Watch::start();
        while meter.seconds() == 0.0 {
            assert!(begun.seconds() < 5.0, "less than a tick is counted");
        }
        let watch = crate::programs::watch::Watch::start();
        let mut sum = 0u64;
        while watch.seconds() < 0.1 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(seconds(std::process::id()) > before);
    }
}
