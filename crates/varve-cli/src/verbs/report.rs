//! `varve report`, carried out: one file with what somebody who is asked for help asks for first.

use crate::answer::Answer;
use crate::session::Session;
use crate::units::{date, size};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use varve_api::calls::{self, Call};
use varve_api::{Code, Failure, InGroup, OfVolume};

/// What the kernel says of the host, as files of text.
const HOST: [&str; 7] = [
    "/etc/os-release",
    "/proc/version",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/mounts",
    "/proc/partitions",
    "/proc/sys/kernel/io_uring_disabled",
];
/// The same of the daemon's process.
const PROCESS: [&str; 4] = ["cmdline", "limits", "status", "cgroup"];

/// Writes the report into `file`, which must not be there. What cannot be found out says why.
pub(crate) async fn report(session: &Session, file: &Path) -> Result<Answer, Failure> {
    let unusable = |error: std::io::Error| {
        let (code, help) = match error.kind() {
            std::io::ErrorKind::AlreadyExists => (Code::DiskExists, "name a file that is not there yet"),
            _ => (Code::FileUnusable, "name a file in a folder that you may write"),
        };
        Failure::new(code, format!("{}: {error}", file.display())).help(help)
    };
    // Before anything is asked: a file that cannot be written is refused at once.
    let mut out = File::options().write(true).create_new(true).mode(0o600).open(file).map_err(unusable)?;
    let text = serde_json::to_string_pretty(&gathered(session).await).expect("it is plain data");
    let written = out.write_all(text.as_bytes()).and_then(|()| out.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(file);
        return Err(unusable(error));
    }
    let bytes = text.len() as u64;
    let answer = json!({ "file": file, "bytes": bytes });
    let what = "it has names of disks, volumes and clients, and nothing of what volumes hold";
    Ok(Answer::new(&answer, format!("wrote {} ({}): {what}", file.display(), size(bytes))))
}

async fn gathered(session: &Session) -> Value {
    let mut all = Map::new();
    let now = clock_gettime(ClockId::Realtime).tv_sec.unsigned_abs();
    all.insert("made".into(), date(now).into());
    all.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    all.insert("host".into(), HOST.iter().map(|path| (String::from(*path), text_of(path))).collect());
    let status = answered(session, &calls::DaemonStatus()).await;
    if let Some(pid) = status["pid"].as_u64() {
        let file = |name: &&str| (String::from(*name), text_of(&format!("/proc/{pid}/{name}")));
        all.insert("process".into(), PROCESS.iter().map(file).collect());
    }
    all.insert("status".into(), status);
    let groups = answered(session, &calls::ListGroups()).await;
    let names = groups.as_array().into_iter().flatten().filter_map(|group| group["name"].as_str());
    let mut histories = Map::new();
    for name in names {
        histories.insert(name.into(), answered(session, &calls::GroupHistory(name.to_owned())).await);
    }
    all.insert("histories".into(), histories.into());
    all.insert("groups".into(), groups);
    all.insert("disks".into(), answered(session, &calls::ListDisks()).await);
    all.insert("volumes".into(), answered(session, &calls::ListVolumes(InGroup::default())).await);
    all.insert("pools".into(), answered(session, &calls::ListPools(InGroup::default())).await);
    all.insert("snapshots".into(), answered(session, &calls::ListSnapshots(OfVolume::default())).await);
    all.insert("schedules".into(), answered(session, &calls::ListSchedules(InGroup::default())).await);
    all.insert("trash".into(), answered(session, &calls::ListTrash(InGroup::default())).await);
    all.insert("exports".into(), answered(session, &calls::ListExports()).await);
    all.insert("jobs".into(), answered(session, &calls::ListJobs()).await);
    let metrics = session.text("/metrics").await;
    all.insert("metrics".into(), metrics.map_or_else(|failure| json!({ "error": failure }), Value::from));
    all.into()
}

async fn answered<C: Call>(session: &Session, call: &C) -> Value {
    match session.ask(call).await {
        Ok(data) => serde_json::to_value(data).expect("the nouns are plain data"),
        Err(failure) => json!({ "error": failure }),
    }
}

fn text_of(path: &str) -> Value {
    match fs::read(path) {
        // Words of a command line end with NUL.
        Ok(bytes) => String::from_utf8_lossy(&bytes).replace('\0', " ").into(),
        Err(error) => json!({ "error": error.to_string() }),
    }
}
