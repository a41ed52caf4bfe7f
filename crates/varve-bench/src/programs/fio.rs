//! Runs fio and reads what it measured.

use crate::prelude::*;
use crate::work::Work;
use serde::Deserialize;
use std::process::{Command, Stdio};

/// What fio is pointed at.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    /// An NBD server.
    Nbd {
        /// Where it listens, in the notation of libnbd.
        uri: String,
    },
    /// A file itself: the limit of what a server in front of it can reach.
    File {
        /// The file.
        path: PathBuf,
        /// fio's name of the way to reach it.
        engine: &'static str,
        /// Whether the page cache is passed by.
        direct: bool,
    },
}

/// One run of fio.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    /// What it is pointed at.
    pub(crate) endpoint: &'a Endpoint,
    /// What it does.
    pub(crate) work: &'a Work,
    /// Bytes of the file or export that it touches.
    pub(crate) size: u64,
    /// How long; nothing: once over the whole size.
    pub(crate) duration: Option<Duration>,
    /// Whether it flushes when it has ended.
    pub(crate) flush: bool,
}

/// What a run showed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Measured {
    /// Requests a second, of all connections.
    pub(crate) iops: f64,
    /// Bytes a second, of all connections.
    pub(crate) bytes_per_second: f64,
    /// Bytes moved.
    pub(crate) bytes: u64,
}

impl Job<'_> {
    fn arguments(&self) -> Vec<String> {
        let work = self.work;
        let share = if work.random { self.size } else { self.size / u64::from(work.connections) };
        let mut arguments = vec![
            "--output-format=json".to_owned(),
            "--name=bench".to_owned(),
            format!("--rw={}{}", if work.random { "rand" } else { "" }, work.verb()),
            format!("--bs={}k", work.block_kib),
            format!("--iodepth={}", work.depth),
            format!("--numjobs={}", work.connections),
            format!("--size={share}"),
            "--randrepeat=1".to_owned(),
            "--randseed=20060810".to_owned(),
            "--allow_file_create=0".to_owned(),
        ];
        if !work.random && work.connections > 1 {
            arguments.push(format!("--offset_increment={share}"));
        }
        if self.flush {
            arguments.push("--end_fsync=1".to_owned());
        }
        if let Some(duration) = self.duration {
            arguments.extend(["--norandommap=1".to_owned()]);
            arguments.extend(["--time_based=1".to_owned(), format!("--runtime={}ms", duration.as_millis())]);
        }
        match self.endpoint {
            Endpoint::Nbd { uri } => arguments.extend(["--ioengine=nbd".to_owned(), format!("--uri={uri}")]),
            Endpoint::File { path, engine, direct } => arguments.extend([
                format!("--ioengine={engine}"),
                format!("--filename={}", path.display()),
                format!("--direct={}", u8::from(*direct)),
                "--invalidate=0".to_owned(),
            ]),
        }
        arguments
    }

    /// Writes all of an endpoint once and flushes, so that nothing is measured on holes.
    pub(crate) fn fill(endpoint: &Endpoint, size: u64) -> Outcome<()> {
        let work = Work::sequential(true, 1024, 8, 1);
        Job { endpoint, work: &work, size, duration: None, flush: true }.run().map(drop)
    }

    /// Runs fio to its end.
    pub(crate) fn run(&self) -> Outcome<Measured> {
        let output = Command::new("fio").args(self.arguments()).stdin(Stdio::null()).output().of("fio")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said = text.split('{').next().unwrap_or("");
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!("fio failed: {} {}", complaint.trim(), said.trim()).into());
        }
        parse(&text, self.work.write)
    }
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<JobReport>,
}

#[derive(Deserialize)]
struct JobReport {
    error: i64,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    bw_bytes: f64,
    iops: f64,
}

/// Reads fio's report; anything it says before the report is skipped.
fn parse(text: &str, write: bool) -> Outcome<Measured> {
    let start = text.find("{\n").ok_or_else(|| format!("fio reported nothing: {text}"))?;
    let report: Report = serde_json::from_str(&text[start..]).of("fio's report")?;
    let mut sum = Measured { iops: 0.0, bytes_per_second: 0.0, bytes: 0 };
    for job in &report.jobs {
        if job.error != 0 {
            return Err(format!("fio reports error {}", job.error).into());
        }
        let direction = if write { &job.write } else { &job.read };
        sum.iops += direction.iops;
        sum.bytes_per_second += direction.bw_bytes;
        sum.bytes += direction.io_bytes;
    }
    if sum.bytes == 0 { Err("fio moved no data".into()) } else { Ok(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"fio: connected to NBD server
{
 "fio version": "fio-3.33",
 "jobs": [
  {"jobname": "bench", "error": 0, "job_runtime": 2000, "usr_cpu": 10.0, "sys_cpu": 15.0,
   "read": {"io_bytes": 4096, "bw_bytes": 100, "iops": 7.5, "clat_ns": {"min": 0,
            "percentile": {"50.000000": 10, "99.000000": 4000}}},
   "write": {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "clat_ns": {"min": 0}}},
  {"jobname": "bench", "error": 0, "job_runtime": 1000, "usr_cpu": 50.0, "sys_cpu": 0.0,
   "read": {"io_bytes": 8192, "bw_bytes": 200, "iops": 2.5, "clat_ns": {"min": 0,
            "percentile": {"99.000000": 3000}}},
   "write": {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "clat_ns": {"min": 0}}}
 ]
}"#;

    #[test]
    fn connections_are_added_up() {
        let measured = parse(REPORT, false).expect("a report");
        assert_eq!((measured.iops, measured.bytes_per_second, measured.bytes), (10.0, 300.0, 12288));
    }

    #[test]
    fn no_data_an_error_and_no_report_are_failures() {
        assert!(parse(REPORT, true).expect_err("nothing written").0.contains("no data"));
        let failed = REPORT.replacen("\"error\": 0", "\"error\": 5", 1);
        assert!(parse(&failed, false).expect_err("failed").0.contains("error 5"));
        assert!(parse("fio: no such engine", false).is_err());
    }

    #[test]
    fn connections_share_a_sequential_job_and_all_roam_in_a_random_one() {
        let endpoint = Endpoint::Nbd { uri: "nbd+unix:///?socket=/s".to_owned() };
        let arguments = |work: &Work| {
            let duration = Some(Duration::from_secs(3));
            Job { endpoint: &endpoint, work, size: 4096 << 10, duration, flush: false }.arguments().join(" ")
        };
        let sequential = arguments(&Work::sequential(true, 64, 8, 4));
        assert!(sequential.contains("--rw=write --bs=64k --iodepth=8 --numjobs=4 --size=1048576 "));
        assert!(sequential.contains("--offset_increment=1048576"));
        let random = arguments(&Work::random(false, 4, 32, 4));
        assert!(random.contains("--rw=randread") && random.contains("--size=4194304"));
        assert!(!random.contains("offset_increment"));
    }
}
