//! Which bytes of which medium a path leads to: those of a loop device are its file's, those of a partition its disk's.
//!
//! A device that maps others (LVM, MD) is a medium of its own: the kernel refuses all other writers of what it has below.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use varve_block::host::{FileIdentity, Medium, MediumExtent};

/// Devices upon devices that are looked through.
const DEPTH_MAX: usize = 8;
/// Bytes of a sector, as the kernel counts partitions.
const SECTOR: u64 = 512;

/// The bytes to which `path` leads. May wait for a file system.
pub fn medium_at(path: &Path) -> io::Result<MediumExtent> {
    fs::metadata(path).map(|found| medium_of(&found))
}

/// The bytes of an open file or block device.
pub(crate) fn medium_of(found: &Metadata) -> MediumExtent {
    extent_of(found, DEPTH_MAX)
}

fn extent_of(found: &Metadata, depth: usize) -> MediumExtent {
    match found.file_type().is_block_device() {
        true => device_extent(found.rdev(), depth),
        false => MediumExtent::whole(Medium::File(FileIdentity { device: found.dev(), inode: found.ino() })),
    }
}

fn device_extent(device: u64, depth: usize) -> MediumExtent {
    let below = depth.checked_sub(1).and_then(|depth| extent_below(device, depth));
    below.unwrap_or(MediumExtent::whole(Medium::Device(device)))
}

/// What a loop device or a partition consists of.
fn extent_below(device: u64, depth: usize) -> Option<MediumExtent> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let about = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let read = |name: &str| fs::read_to_string(about.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    if let Some(file) = read("loop/backing_file") {
        let found = fs::metadata(file.trim_end_matches('\n')).ok()?;
        let length = number("loop/sizelimit").filter(|limit| *limit > 0);
        return Some(extent_of(&found, depth).part(number("loop/offset")?, length));
    }
    if read("partition").is_some() {
        let disk = fs::read_to_string(about.parent()?.join("dev")).ok()?;
        let (major, minor) = disk.trim().split_once(':')?;
        let disk = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let (start, sectors) = (number("start")?, number("size")?);
        return Some(device_extent(disk, depth).part(start * SECTOR, Some(sectors * SECTOR)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_file_lead_to_one_medium_and_those_of_its_copy_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("disk"), [7; 512]).expect("a writable folder");
        fs::copy(at("disk"), at("clone")).expect("a writable folder");
        std::os::unix::fs::symlink(at("disk"), at("link")).expect("a writable folder");
        fs::hard_link(at("disk"), at("second")).expect("a writable folder");
        let is_same = |path: &Path| {
            let (one, other) = (medium_at(&at("disk")).expect("there"), medium_at(path).expect("there"));
            one.overlaps(&other)
        };
        for name in ["disk", "link", "second", "../disk"] {
            let path = if name == "../disk" { folder.path().join(".").join("disk") } else { at(name) };
            assert!(is_same(&path), "{name}");
        }
        assert!(!is_same(&at("clone")));
        assert!(medium_at(&at("nothing")).is_err());
    }

    #[test]
    fn partitions_overlap_their_disk_and_not_each_other() {
        let disk = MediumExtent::whole(Medium::Device(8));
        let (one, two) = (disk.part(512, Some(1024)), disk.part(1536, Some(512)));
        assert!(disk.overlaps(&one) && one.overlaps(&disk) && disk.overlaps(&two));
        assert!(!one.overlaps(&two) && !two.overlaps(&one));
        assert!(one.overlaps(&disk.part(1535, None)), "one byte is in both");
        let inner = one.part(512, None);
        assert!(inner.overlaps(&one) && !inner.overlaps(&two), "a part ends with what it is a part of");
        let other = MediumExtent::whole(Medium::Device(9));
        assert!(!other.overlaps(&disk), "another device");
    }
}
