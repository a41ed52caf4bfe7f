//! Block devices of this host, as its files show them: their sizes, what uses them, and the links that lead to them.

use crate::attach::AttachError;
use crate::bell::{Bell, pause};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Looks at the host's files, a moment apart.
const LOOKS_MAX: usize = 100;
/// Bytes that are read of a device to see that it answers.
const FIRST_BYTES: u64 = 4096;

/// Where the host shows its devices.
#[derive(Clone, Debug)]
pub(crate) struct BlockDevices {
    pub(crate) sys: PathBuf,
    pub(crate) dev: PathBuf,
    pub(crate) proc: PathBuf,
}

impl BlockDevices {
    /// Those of this host.
    pub(crate) fn of_host() -> Self {
        Self { sys: "/sys/block".into(), dev: "/dev".into(), proc: "/proc".into() }
    }

    /// The device file of a device.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.dev.join(name)
    }

    /// Where its properties are.
    pub(crate) fn about(&self, name: &str) -> PathBuf {
        self.sys.join(name)
    }

    /// One of its properties.
    pub(crate) fn text(&self, name: &str, file: &str) -> Option<String> {
        Some(fs::read_to_string(self.about(name).join(file)).ok()?.trim().to_owned())
    }

    /// Bytes of a device; zero if it has no server.
    pub(crate) fn size(&self, name: &str) -> u64 {
        self.text(name, "size").and_then(|sectors| sectors.parse().ok()).unwrap_or(0_u64).saturating_mul(512)
    }

    /// Reads the beginning of a device of `size` bytes, which may wait for as long as the device does.
    pub(crate) fn read_first(&self, name: &str, size: u64) -> Result<(), AttachError> {
        let node = self.node(name);
        let mut first = vec![0; usize::try_from(size.min(FIRST_BYTES)).expect("a page has a small size")];
        let read = File::open(&node).and_then(|mut device| device.read_exact(&mut first));
        read.map_err(AttachError::failed("read", node))
    }

    /// The device for this process alone, with all that was written through it flushed.
    pub(crate) fn claim(&self, name: &str) -> Result<File, AttachError> {
        let (node, users) = (self.node(name), self.users(name));
        if !users.is_empty() {
            return Err(AttachError::Busy(node, users));
        }
        let claimed = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&node);
        let claim = claimed.map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => {
                AttachError::Busy(node.clone(), vec!["the kernel, or another mount namespace".to_owned()])
            }
            _ => AttachError::Failed { doing: "claim", path: node.clone(), source },
        })?;
        claim.sync_all().map_err(|error| AttachError::Lost(node, error))?;
        Ok(claim)
    }

    /// What uses a device, for people.
    pub(crate) fn users(&self, name: &str) -> Vec<String> {
        let mut users = self.mounts(name);
        users.extend(self.swaps(name));
        users.extend(self.holders(name));
        users.extend(self.openings(name));
        users
    }

    /// Whether `path` is the device or one of its partitions.
    fn is_of(&self, name: &str, path: &Path) -> bool {
        let Some(rest) = path.to_str().and_then(|path| path.strip_prefix(self.node(name).to_str()?)) else {
            return false;
        };
        let partition = rest.strip_prefix('p').unwrap_or_default();
        rest.is_empty() || !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// The numbers of a device and its partitions, as `mountinfo` writes them.
    fn numbers(&self, name: &str) -> Vec<String> {
        let own = self.text(name, "dev");
        let parts = self.partitions(name);
        let parts = parts.iter().filter_map(|part| fs::read_to_string(part.join("dev")).ok());
        own.into_iter().chain(parts.map(|number| number.trim().to_owned())).collect()
    }

    fn partitions(&self, name: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.about(name)) else { return Vec::new() };
        entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.join("partition").exists())
            .collect()
    }

    fn mounts(&self, name: &str) -> Vec<String> {
        let mounts = fs::read_to_string(self.proc.join("self/mountinfo")).unwrap_or_default();
        let numbers = self.numbers(name);
        let at = |line: &str| {
            let (mount, medium) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(2);
            let number = fields.next()?;
            let place = fields.nth(1)?;
            let source = medium.split(' ').nth(1)?;
            let is_on = numbers.iter().any(|own| own == number) || self.is_of(name, Path::new(source));
            is_on.then(|| format!("mounted on {place}"))
        };
        mounts.lines().filter_map(at).collect()
    }

    fn swaps(&self, name: &str) -> Vec<String> {
        let swaps = fs::read_to_string(self.proc.join("swaps")).unwrap_or_default();
        let on = |line: &&str| {
            line.split_whitespace().next().is_some_and(|path| self.is_of(name, Path::new(path)))
        };
        swaps.lines().filter(on).map(|_| "swap space".to_owned()).collect()
    }

    /// Devices upon a device or its partitions.
    pub(crate) fn holders(&self, name: &str) -> Vec<String> {
        let places = self.partitions(name).into_iter().chain([self.about(name)]);
        let holders = places.filter_map(|place| fs::read_dir(place.join("holders")).ok()).flatten();
        let mut names: Vec<String> = holders
            .filter_map(Result::ok)
            .map(|holder| format!("/dev/{}", holder.file_name().to_string_lossy()))
            .collect();
        names.sort();
        names
    }

    /// Processes that have it open, but for this one.
    fn openings(&self, name: &str) -> Vec<String> {
        let Ok(processes) = fs::read_dir(&self.proc) else { return Vec::new() };
        let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut open: Vec<u32> =
            ids.filter(|id| *id != std::process::id() && self.has_open(*id, name)).collect();
        open.sort_unstable();
        open.into_iter().map(|id| format!("process {id}{}", self.command(id))).collect()
    }

    fn has_open(&self, process: u32, name: &str) -> bool {
        let files = fs::read_dir(self.proc.join(process.to_string()).join("fd"));
        let links = files.into_iter().flatten().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        links.into_iter().any(|path| self.is_of(name, &path))
    }

    fn command(&self, process: u32) -> String {
        let name = fs::read_to_string(self.proc.join(process.to_string()).join("comm")).unwrap_or_default();
        let is_plain = |letter: &char| letter.is_ascii_graphic();
        let name: String = name.chars().filter(is_plain).collect();
        if name.is_empty() { name } else { format!(" ({name})") }
    }
}

/// Looks at the host's files, a moment apart, until they show what is asked for, for a bounded time; whether they do.
pub(crate) fn look_until(mut is_so: impl FnMut() -> bool) -> bool {
    let Ok(silence) = Bell::new() else { return is_so() };
    (0..LOOKS_MAX).any(|_| {
        let found = is_so();
        if !found {
            pause(&silence);
        }
        found
    })
}

/// Makes `link` lead to `node`, with the folder that it is in, in the place of a link that was there before.
pub(crate) fn lead(link: &Path, node: &Path) -> io::Result<()> {
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
pub(crate) fn remove_link(link: &Path, node: &Path) {
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
