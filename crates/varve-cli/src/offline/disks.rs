//! Disks opened for a look, and a shard to look from.

use crate::answer::print_aside;
use futures_util::future::{Either, select};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use varve_api::{Code, Failure};
use varve_block::{Access, Device};
use varve_os::{DiskFile, DiskOptions, OpenError, ShardContext, Shards, ShardsConfig};
use varve_vg::Disk;
use varve_vg::model::PvName;

/// The disks of a group, by their names.
pub(super) type Disks = BTreeMap<PvName, Device>;

/// How long a lock is waited for: the kernel takes the rings of a killed daemon apart a moment after that has ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// After how long users are warned that a disk does not answer.
const SILENCE: Duration = Duration::from_secs(10);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long between two attempts.
const STEP: Duration = Duration::from_millis(20);

/// The path, as a daemon remembers it.
pub(super) fn absolute(path: &str) -> String {
    crate::places::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Locks the disks at `paths`, and runs `look` with them on a shard of its own.
#[expect(clippy::disallowed_methods, reason = "no shard runs yet whose clock could be asked")]
pub(super) fn with_disks<T: Send + 'static>(
    paths: &[PathBuf],
    access: Access,
    look: impl AsyncFnOnce(ShardContext, Vec<Disk>) -> T + Send + 'static,
) -> Result<T, Failure> {
    let options = DiskOptions { read_only: access == Access::ReadOnly, ..DiskOptions::default() };
    let begun = Instant::now();
    let open = |path: &PathBuf| loop {
        match DiskFile::open(path, options) {
            Err(OpenError::InUse(_)) if begun.elapsed() < RELEASE_TIMEOUT => std::thread::sleep(STEP),
            opened => return opened.map(|file| (path.display().to_string(), file)),
        }
    };
    let files: Vec<(String, Arc<DiskFile>)> =
        paths.iter().map(open).collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    on_shard(async move |context: ShardContext| {
        let disk =
            |(path, file): &(String, Arc<DiskFile>)| Disk { path: path.clone(), device: context.disk(file) };
        let disks = files.iter().map(disk).collect();
        let (look, told) = (look(context.clone(), disks), tell_of_silence(&context, &files));
        match select(pin!(look), pin!(told)).await {
            Either::Left((found, _)) => found,
            Either::Right((never, _)) => match never {},
        }
    })
}

/// Warns users of disks that do not answer. Such a disk is waited for: a tool that took a late answer for none would count what
/// it cannot read as lost, and may write what is left. A disk that tries to read a bad sector again and again may hold the only
/// copy.
async fn tell_of_silence(context: &ShardContext, files: &[(String, Arc<DiskFile>)]) -> Infallible {
    let mut told = BTreeSet::new();
    loop {
        context.clock().sleep(LOOK).await;
        for (path, file) in files {
            let is_silent = file.silence() >= SILENCE;
            if is_silent && told.insert(path) {
                let seconds = SILENCE.as_secs();
                print_aside(&format!(
                    "{path} has not answered for {seconds} seconds; it is waited for: interrupt the command to end that"
                ));
            } else if !is_silent && told.remove(path) {
                print_aside(&format!("{path} answers again"));
            }
        }
    }
}

/// Memory for the requests of a tool, in bytes. The kernel clears it all when it is registered, which is most of the time
/// that a short command takes.
const ARENA_BYTES: usize = 8 << 20;

/// Runs `work` on a shard of its own.
pub(super) fn on_shard<T: Send + 'static>(
    work: impl AsyncFnOnce(ShardContext) -> T + Send + 'static,
) -> Result<T, Failure> {
    let shards = Shards::start(&ShardsConfig { arena_bytes: ARENA_BYTES, ..ShardsConfig::default() })
        .map_err(|error| Failure::new(Code::Failed, format!("the shard cannot start: {error}")))?;
    let done = shards.handle(0).run_and_wait(async move |context: ShardContext| work(context).await);
    shards.stop();
    done.map_err(|_| Failure::new(Code::Failed, "the look at the disks broke off"))
}

pub(super) fn unusable(error: &OpenError) -> Failure {
    let (code, help) = match error {
        OpenError::NotFound(_) => (Code::DiskNotFound, "check the path"),
        OpenError::InUse(_) => (Code::DiskInUse, "stop the daemon that holds it first"),
        OpenError::Permission(_) => (Code::DiskUnusable, "run the command as a user who may open it"),
        OpenError::ReadOnly(_) => (Code::DiskReadOnly, "make the disk writable"),
        OpenError::TooSmall { .. } => (Code::DiskTooSmall, "give a file or device that is whole"),
        OpenError::NotADisk(_) => (Code::DiskUnusable, "give a regular file or a block device"),
        OpenError::Exists(_) => (Code::DiskExists, "choose another name, or remove the file first"),
        OpenError::NoSpace(_) => (Code::DiskUnusable, "free some space there, or use another file system"),
        OpenError::System { .. } => (Code::DiskUnusable, "look at the kernel's log: dmesg"),
    };
    let text = error.to_string();
    // These errors name a remedy after a semicolon; here another one fits.
    let message = text.split_once("; ").map_or(text.as_str(), |(message, _)| message);
    Failure::new(code, message).help(help)
}
