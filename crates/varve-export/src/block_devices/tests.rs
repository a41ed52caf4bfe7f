//! Devices of a host whose files are made by hand.

use super::*;

struct Shown {
    folder: tempfile::TempDir,
    devices: BlockDevices,
}

impl Shown {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let devices = BlockDevices { sys: at("sys"), dev: "/dev".into(), proc: at("proc") };
        Self { folder, devices }
    }

    fn put(&self, file: &str, content: &str) {
        let path = self.folder.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
        fs::write(path, content).expect("a writable folder");
    }
}

#[test]
fn whoever_uses_a_device_or_a_partition_is_named() {
    let shown = Shown::new();
    shown.put("sys/nbd1/dev", "43:32\n");
    assert_eq!(shown.devices.users("nbd1"), Vec::<String>::new());
    shown.put("sys/nbd1/nbd1p2/partition", "2\n");
    shown.put("sys/nbd1/nbd1p2/dev", "43:34\n");
    shown.put("sys/nbd1/holders/dm-3/dev", "");
    shown.put(
        "proc/self/mountinfo",
        "30 1 43:32 / /mnt rw - ext4 /dev/nbd1 rw\n31 1 43:34 / /srv rw shared:1 - xfs /dev/x rw\n\
         32 1 0:50 / /data rw - btrfs /dev/nbd1p2 rw\n33 1 43:320 / /other rw - ext4 /dev/nbd10 rw\n",
    );
    shown.put(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/nbd1p3 partition 8 0 -2\n/dev/nbd12 partition 8 0 -2\n",
    );
    shown.put("proc/4711/comm", "dd\n");
    fs::create_dir_all(shown.folder.path().join("proc/4711/fd")).expect("a writable folder");
    let link = |name: &str, to: &str| {
        std::os::unix::fs::symlink(to, shown.folder.path().join("proc/4711/fd").join(name)).expect("a link");
    };
    link("0", "/dev/nbd10");
    assert_eq!(
        shown.devices.users("nbd1"),
        ["mounted on /mnt", "mounted on /srv", "mounted on /data", "swap space", "/dev/dm-3"]
    );
    link("3", "/dev/nbd1");
    assert_eq!(shown.devices.users("nbd1").last().map(String::as_str), Some("process 4711 (dd)"));
}

#[test]
fn a_link_is_exchanged_at_once_and_removed_only_where_it_is_ours() {
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("varve/data/v");
    lead(&link, Path::new("/dev/nbd1")).expect("a writable folder");
    lead(&link, Path::new("/dev/nbd2")).expect("a writable folder");
    assert_eq!(fs::read_link(&link).expect("a link"), Path::new("/dev/nbd2"));
    remove_link(&link, Path::new("/dev/nbd1"));
    assert!(link.symlink_metadata().is_ok(), "it leads to the device of another");
    remove_link(&link, Path::new("/dev/nbd2"));
    assert!(!folder.path().join("varve").exists());
}

#[test]
fn a_device_whose_writes_cannot_be_flushed_is_not_claimed() {
    let folder = tempfile::tempdir().expect("a folder");
    let devices = BlockDevices { sys: folder.path().into(), dev: "/dev".into(), proc: folder.path().into() };
    // It takes writes, and refuses to be flushed.
    let refused = devices.claim("full").map(drop).expect_err("what was written may be lost");
    assert!(matches!(&refused, AttachError::Lost(node, _) if node == Path::new("/dev/full")), "{refused}");
    assert!(refused.to_string().starts_with("writes through /dev/full failed"), "{refused}");
}
