//! Disks that this daemon would serve to itself: files and block devices of its own exports, and what is on them.
//!
//! No order of closing works for such a disk: its last writes would need the export that was closed before, and a
//! request to it may need the very thread that waits for it.
//!
//! What is found here is refused by `identity.rs` of the control (IDENTITY1).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Devices upon devices that are looked through.
const DEPTH_MAX: usize = 8;

/// A file system that is mounted: its device, and where.
struct Mount {
    device: u64,
    place: PathBuf,
}

/// The export among `own` on which `path` is, if it is on one.
pub(super) fn find_own(path: &Path, own: &[PathBuf]) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let whole = |place: &PathBuf| Some(fs::canonicalize(place.parent()?).ok()?.join(place.file_name()?));
    let places: Vec<PathBuf> = own.iter().filter_map(whole).chain(own.iter().cloned()).collect();
    let mut mounts: Vec<Mount> = mounts.lines().filter_map(mount).collect();
    mounts.retain(|mount| places.contains(&mount.place));
    mounts.extend(own.iter().filter_map(|place| block_device(place)));
    lies_on(path, &mounts, DEPTH_MAX)
}

/// A block device that is exported: what is on it has its number, as what is on a mount has that of the mount.
fn block_device(place: &Path) -> Option<Mount> {
    let found = fs::metadata(place).ok()?;
    found.file_type().is_block_device().then(|| Mount { device: found.rdev(), place: place.to_owned() })
}

/// A line of `mountinfo`.
fn mount(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let device = number(fields.nth(2)?)?;
    let place = fields.nth(1)?;
    let mut bytes = Vec::with_capacity(place.len());
    let mut rest = place.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, octal.and_then(|digits| u8::from_str_radix(digits, 8).ok())) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    let place = std::ffi::OsString::from(String::from_utf8(bytes).ok()?);
    Some(Mount { device, place: place.into() })
}

/// The device of `MAJOR:MINOR`, as `stat` tells it.
fn number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    Some((major & 0xfff) << 8 | (major & !0xfff) << 32 | (minor & 0xff) | (minor & !0xff) << 12)
}

fn name(device: u64) -> String {
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    format!("{major}:{minor}")
}

fn lies_on(path: &Path, mounts: &[Mount], depth: usize) -> Option<PathBuf> {
    let found = fs::metadata(path).ok()?;
    let is_device = found.file_type().is_block_device();
    let device = if is_device { found.rdev() } else { found.dev() };
    let own = mounts.iter().find(|mount| mount.device == device).map(|mount| mount.place.clone());
    own.or_else(|| device_lies_on(device, mounts, depth.checked_sub(1)?))
}

/// A loop device is on its file, a partition on its disk, a mapped device on others.
fn device_lies_on(device: u64, mounts: &[Mount], depth: usize) -> Option<PathBuf> {
    let about = fs::canonicalize(format!("/sys/dev/block/{}", name(device))).ok()?;
    if let Ok(file) = fs::read_to_string(about.join("loop/backing_file")) {
        return lies_on(Path::new(file.trim_end_matches('\n')), mounts, depth);
    }
    let below = |about: &Path| {
        let device = number(&fs::read_to_string(about.join("dev")).ok()?)?;
        device_lies_on(device, mounts, depth.checked_sub(1)?)
    };
    if about.join("partition").exists() {
        return below(about.parent()?);
    }
    let slaves = fs::read_dir(about.join("slaves")).ok()?;
    slaves.filter_map(Result::ok).find_map(|slave| below(&slave.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_devices_of_mounts_are_read() {
        let line = "36 35 0:61 / /tmp/a\\040b\\134c rw,nosuid - fuse varve rw";
        let found = mount(line).expect("a mount");
        assert_eq!((found.device, found.place), (61, PathBuf::from("/tmp/a b\\c")));
        for text in ["0:61", "8:17", "259:300", "4095:1048575"] {
            assert_eq!(number(text).map(name).as_deref(), Some(text));
        }
        assert!(mount("36 35 x / /tmp").is_none() && mount("").is_none());
    }

    #[test]
    fn a_file_lies_on_what_is_mounted_where_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("disk");
        fs::write(&file, [0; 512]).expect("a writable folder");
        let device = fs::metadata(&file).expect("it is there").dev();
        let mount = |device| vec![Mount { device, place: PathBuf::from("/own") }];
        assert_eq!(lies_on(&file, &mount(device), 8), Some(PathBuf::from("/own")));
        assert_eq!(lies_on(&file, &mount(u64::MAX), 8), None);
    }
}
