//! NBD devices of this host, as its files show them: which are free, which one is ours, and what uses it.
//!
//! Invariant NBDDEV1: no device is taken that something uses or is about to leave: it has no size, no server, no holder, and nothing in
//! flight.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Devices that are looked through for a free one.
const INDEX_MAX: u32 = 1 << 12;

/// Where the host shows its devices.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    pub(super) sys: PathBuf,
    pub(super) dev: PathBuf,
    pub(super) proc: PathBuf,
}

impl Devices {
    /// Those of this host.
    pub(super) fn of_host() -> Self {
        Self { sys: "/sys/block".into(), dev: "/dev".into(), proc: "/proc".into() }
    }

    /// The device file of `index`.
    pub(super) fn node(&self, index: u32) -> PathBuf {
        self.dev.join(format!("nbd{index}"))
    }

    fn about(&self, index: u32) -> PathBuf {
        self.sys.join(format!("nbd{index}"))
    }

    fn text(&self, index: u32, file: &str) -> Option<String> {
        Some(fs::read_to_string(self.about(index).join(file)).ok()?.trim().to_owned())
    }

    /// Bytes of a device; zero if it has no server.
    pub(super) fn size(&self, index: u32) -> u64 {
        self.text(index, "size").and_then(|sectors| sectors.parse().ok()).unwrap_or(0_u64).saturating_mul(512)
    }

    /// Whose it is.
    pub(super) fn identity(&self, index: u32) -> Option<String> {
        self.text(index, "backend")
    }

    /// Whether it has a server, or had one that may come back.
    pub(super) fn is_connected(&self, index: u32) -> bool {
        self.about(index).join("pid").exists()
    }

    /// The device of `identity`.
    pub(super) fn find(&self, identity: &str) -> Option<u32> {
        let names = fs::read_dir(&self.sys).ok()?.filter_map(Result::ok).map(|entry| entry.file_name());
        let indexes = names.filter_map(|name| name.to_str()?.strip_prefix("nbd")?.parse().ok());
        let mut own = indexes
            .filter(|index| self.is_connected(*index) && self.identity(*index).as_deref() == Some(identity));
        own.next()
    }

    /// Whether nothing has it (NBDDEV1).
    pub(super) fn is_free(&self, index: u32) -> bool {
        let in_flight = self.text(index, "inflight").unwrap_or_default();
        self.size(index) == 0
            && !self.is_connected(index)
            && self.holders(index).is_empty()
            && in_flight.split_whitespace().all(|number| number == "0")
    }

    /// Devices that nothing has, or that do not exist yet, from `after` on.
    pub(super) fn free(&self, after: u32) -> Option<u32> {
        (after..INDEX_MAX).find(|index| !self.about(*index).exists() || self.is_free(*index))
    }

    /// Bounds the work of one trim: a device takes as long for one request as its client gives up after. Where the kernel does
    /// not let it be bounded, trims are as long as it likes.
    pub(super) fn bound_trims(&self, index: u32, bytes: u64) {
        let _ = fs::write(self.about(index).join("queue/discard_max_bytes"), bytes.to_string());
    }

    /// What uses a device, for people.
    pub(super) fn users(&self, index: u32) -> Vec<String> {
        let mut users = self.mounts(index);
        users.extend(self.swaps(index));
        users.extend(self.holders(index));
        users.extend(self.openings(index));
        users
    }

    /// Whether `path` is the device or one of its partitions.
    fn is_of(&self, index: u32, path: &Path) -> bool {
        let Some(rest) = path.to_str().and_then(|path| path.strip_prefix(self.node(index).to_str()?)) else {
            return false;
        };
        let partition = rest.strip_prefix('p').unwrap_or_default();
        rest.is_empty() || !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// The numbers of a device and its partitions, as `mountinfo` writes them.
    fn numbers(&self, index: u32) -> Vec<String> {
        let own = self.text(index, "dev");
        let parts = self.partitions(index);
        let parts = parts.iter().filter_map(|part| fs::read_to_string(part.join("dev")).ok());
        own.into_iter().chain(parts.map(|number| number.trim().to_owned())).collect()
    }

    fn partitions(&self, index: u32) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.about(index)) else { return Vec::new() };
        entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.join("partition").exists())
            .collect()
    }

    fn mounts(&self, index: u32) -> Vec<String> {
        let mounts = fs::read_to_string(self.proc.join("self/mountinfo")).unwrap_or_default();
        let numbers = self.numbers(index);
        let at = |line: &str| {
            let (mount, medium) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(2);
            let number = fields.next()?;
            let place = fields.nth(1)?;
            let source = medium.split(' ').nth(1)?;
            let is_on = numbers.iter().any(|own| own == number) || self.is_of(index, Path::new(source));
            is_on.then(|| format!("mounted on {place}"))
        };
        mounts.lines().filter_map(at).collect()
    }

    fn swaps(&self, index: u32) -> Vec<String> {
        let swaps = fs::read_to_string(self.proc.join("swaps")).unwrap_or_default();
        let on = |line: &&str| {
            line.split_whitespace().next().is_some_and(|path| self.is_of(index, Path::new(path)))
        };
        swaps.lines().filter(on).map(|_| "swap space".to_owned()).collect()
    }

    fn holders(&self, index: u32) -> Vec<String> {
        let places = self.partitions(index).into_iter().chain([self.about(index)]);
        let holders = places.filter_map(|place| fs::read_dir(place.join("holders")).ok()).flatten();
        let mut names: Vec<String> = holders
            .filter_map(Result::ok)
            .map(|holder| format!("/dev/{}", holder.file_name().to_string_lossy()))
            .collect();
        names.sort();
        names
    }

    /// Processes that have it open, but for this one.
    fn openings(&self, index: u32) -> Vec<String> {
        let Ok(processes) = fs::read_dir(&self.proc) else { return Vec::new() };
        let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut open: Vec<u32> =
            ids.filter(|id| *id != std::process::id() && self.has_open(*id, index)).collect();
        open.sort_unstable();
        open.into_iter().map(|id| format!("process {id}{}", self.command(id))).collect()
    }

    fn has_open(&self, process: u32, index: u32) -> bool {
        let files = fs::read_dir(self.proc.join(process.to_string()).join("fd"));
        let links = files.into_iter().flatten().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        links.into_iter().any(|path| self.is_of(index, &path))
    }

    fn command(&self, process: u32) -> String {
        let name = fs::read_to_string(self.proc.join(process.to_string()).join("comm")).unwrap_or_default();
        let is_plain = |letter: &char| letter.is_ascii_graphic();
        let name: String = name.chars().filter(is_plain).collect();
        if name.is_empty() { name } else { format!(" ({name})") }
    }
}

/// Makes `link` lead to `node`, with the folder that it is in, in the place of a link that was there before.
pub(super) fn lead(link: &Path, node: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|before| before == node) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut new = link.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(node, &new)?;
    fs::rename(&new, link)
}

/// Removes `link` if it leads to `node`, and folders that are empty without it.
pub(super) fn remove_link(link: &Path, node: &Path) {
    if fs::read_link(link).is_ok_and(|before| before == node) && fs::remove_file(link).is_ok() {
        for folder in link.ancestors().skip(1).take(2) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
