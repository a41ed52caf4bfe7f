//! What a measurement stands on: processor, kernel, memory, file systems, versions of the programs compared.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

/// Facts that a reader needs to judge the figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Date of the run, seconds since 1970.
    pub(crate) unix_seconds: u64,
    /// Processor, as it names itself.
    pub(crate) processor: String,
    /// Number of cores.
    pub(crate) cores: usize,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Memory in GiB.
    pub(crate) memory_gib: u64,
    /// Whether the machine is a virtual one.
    pub(crate) is_virtual: bool,
    /// Load average when the measurement began; none of before it was noted.
    #[serde(default)]
    pub(crate) load: Option<f64>,
    /// Whether the programs under measurement were built for development.
    #[serde(default)]
    pub(crate) is_development: bool,
    /// Programs and their versions.
    pub(crate) programs: Vec<String>,
}

impl Machine {
    /// Of this machine.
    pub(crate) fn look() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let kib: u64 = field(&meminfo, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            unix_seconds: today(),
            processor: field(&cpuinfo, "model name").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_gib: kib.div_ceil(1 << 20),
            is_virtual: cpuinfo.contains(" hypervisor"),
            is_development: cfg!(debug_assertions),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            programs: ["fio", "nbdkit", "nbd-server", "qemu-nbd", "qemu-storage-daemon"]
                .iter()
                .filter_map(|program| version(program))
                .collect(),
        }
    }

    /// What figures stand on, in one line.
    pub(crate) fn line(&self) -> String {
        let kind = if self.is_virtual { "virtual machine" } else { "machine" };
        let load =
            self.load.map_or_else(String::new, |load| format!(", load average {load:.1} at the start"));
        let build = if self.is_development { ", a development build" } else { "" };
        let (date, cores, processor) = (self.date(), self.cores, &self.processor);
        let (memory, kernel) = (self.memory_gib, &self.kernel);
        format!("{date}, {cores} cores of a {kind} ({processor}), {memory} GiB, Linux {kernel}{load}{build}")
    }

    /// The day of the run, as year-month-day.
    pub(crate) fn date(&self) -> String {
        civil_date(self.unix_seconds / 86_400)
    }
}

/// Where files of a medium lie: `ext4 on /dev/vda`.
pub(crate) fn file_system(directory: &Path) -> String {
    let real = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mounts = read("/proc/self/mounts");
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (source, place, kind) = (words.next()?, words.next()?, words.next()?);
            real.starts_with(place).then(|| (place.len(), format!("{kind} on {source}")))
        })
        .max_by_key(|(length, _)| *length)
        .map_or_else(|| "unknown".to_owned(), |(_, text)| text)
}

/// MiB of memory of this process by the name that the kernel has for it: `VmRSS` is what it has, `VmHWM` the most that it had.
pub(crate) fn memory_mib(name: &str) -> f64 {
    let status = read("/proc/self/status");
    field(&status, name).trim_end_matches(" kB").parse().map_or(f64::NAN, |kib: f64| kib / 1024.0)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn field<'a>(text: &'a str, key: &str) -> &'a str {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.split_once(':'));
    value.map_or("", |(_, value)| value.trim())
}

/// `program`'s own words about its version, on one line; nothing if it is not installed.
fn version(program: &str) -> Option<String> {
    let flag = if program == "nbd-server" { "-V" } else { "--version" };
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text
        .split(|letter: char| letter.is_whitespace() || letter == '-' || letter == '(')
        .find(|word| word.starts_with(|letter: char| letter.is_ascii_digit()) && word.contains('.'))?;
    Some(format!("{program} {number}"))
}

#[expect(clippy::disallowed_methods, reason = "a report carries its date")]
fn today() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Days since 1970-01-01 as a date. After Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn civil_date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil_date(0), "1970-01-01");
        assert_eq!(civil_date(11_016), "2000-02-29");
        assert_eq!(civil_date(20_000), "2024-10-04");
    }

    #[test]
    fn fields_are_found_whatever_blanks_stand_before_the_colon() {
        assert_eq!(field("a\nmodel name\t: X 1\nb : 2", "model name"), "X 1");
        assert_eq!(field("MemTotal:  5 kB", "MemTotal"), "5 kB");
        assert_eq!(field("", "x"), "");
    }
}
