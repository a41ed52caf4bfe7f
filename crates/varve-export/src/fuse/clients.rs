//! What has the file of a FUSE door open: counted as the kernel opens and releases it, named as far as the host tells.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The openings of a file.
#[derive(Default)]
pub(super) struct Openings {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: u64,
    /// The processes that opened it, by the handles that they got. Another process may have the handle by now, or the kernel.
    open: BTreeMap<u64, u32>,
}

impl Openings {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread `thread` opens the file; its handle.
    pub(super) fn open(&self, thread: u32) -> u64 {
        let process = process_of(thread);
        let mut inner = self.inner();
        inner.last += 1;
        let handle = inner.last;
        inner.open.insert(handle, process);
        handle
    }

    /// No process has the handle any more.
    pub(super) fn release(&self, handle: u64) {
        self.inner().open.remove(&handle);
    }

    /// What has the file at `path` open, in as many words as it has openings: loop devices first, whose opener has ended as a rule.
    pub(super) fn clients(&self, path: &Path) -> Vec<String> {
        let processes: Vec<u32> = self.inner().open.values().copied().collect();
        if processes.is_empty() {
            return Vec::new();
        }
        let mut clients = loop_devices(path);
        let living: BTreeSet<u32> = processes.iter().copied().filter(|process| lives(*process)).collect();
        clients.extend(living.iter().map(|process| format!("process {process}")));
        let unnamed = processes.len().saturating_sub(clients.len());
        clients.extend(std::iter::repeat_n("an open file".to_owned(), unnamed));
        clients.truncate(processes.len());
        clients
    }
}

/// The process of a thread, which may have ended before the file is closed.
fn process_of(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process.and_then(|process| process.trim().parse().ok()).unwrap_or(thread)
}

fn lives(process: u32) -> bool {
    process > 0 && Path::new("/proc").join(process.to_string()).exists()
}

/// The loop devices of this host on the file at `path`.
fn loop_devices(path: &Path) -> Vec<String> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let is_on = |device: &std::fs::DirEntry| {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == path)
    };
    let on = devices.filter_map(Result::ok).filter(is_on);
    let mut names: Vec<String> =
        on.map(|device| format!("/dev/{}", device.file_name().to_string_lossy())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opening_has_a_word_until_it_is_released() {
        let (openings, file) = (Openings::default(), Path::new("/no/such/file"));
        assert_eq!(openings.clients(file), Vec::<String>::new());
        let (first, second) = (openings.open(std::process::id()), openings.open(0));
        let own = format!("process {}", std::process::id());
        assert_eq!(openings.clients(file), [own, "an open file".to_owned()]);
        openings.release(first);
        assert_eq!(openings.clients(file), ["an open file"]);
        openings.release(second);
        assert_eq!(openings.clients(file), Vec::<String>::new());
    }
}
