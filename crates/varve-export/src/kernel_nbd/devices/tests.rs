//! Devices of a host whose files are made by hand.

use super::*;

struct Shown {
    folder: tempfile::TempDir,
    devices: Devices,
}

impl Shown {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let devices = Devices { sys: at("sys"), dev: "/dev".into(), proc: at("proc") };
        Self { folder, devices }
    }

    fn put(&self, file: &str, content: &str) {
        let path = self.folder.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
        fs::write(path, content).expect("a writable folder");
    }

    /// A device without a server.
    fn idle(&self, index: u32) {
        self.put(&format!("sys/nbd{index}/size"), "0\n");
        self.put(&format!("sys/nbd{index}/inflight"), "       0        0\n");
        self.put(&format!("sys/nbd{index}/dev"), &format!("43:{}\n", index * 32));
    }
}

#[test]
fn only_a_device_that_is_left_by_all_is_free() {
    let shown = Shown::new();
    for index in 0..4 {
        shown.idle(index);
    }
    let free = || shown.devices.free(0);
    assert_eq!(free(), Some(0));
    shown.put("sys/nbd0/size", "8\n");
    assert_eq!(free(), Some(1), "NBDDEV1: a size");
    shown.put("sys/nbd1/pid", "77\n");
    assert_eq!(free(), Some(2), "NBDDEV1: a server");
    shown.put("sys/nbd2/inflight", "       0        1\n");
    assert_eq!(free(), Some(3), "NBDDEV1: a request");
    shown.put("sys/nbd3/nbd3p1/partition", "1\n");
    shown.put("sys/nbd3/nbd3p1/holders/dm-0/dev", "");
    assert_eq!(free(), Some(4), "NBDDEV1: a holder; the kernel makes another device");
    assert_eq!(shown.devices.free(INDEX_MAX), None);
}

#[test]
fn a_device_is_known_by_its_identity_while_it_has_a_server() {
    let shown = Shown::new();
    shown.idle(3);
    shown.put("sys/nbd3/backend", "varve:a\n");
    assert_eq!(shown.devices.find("varve:a"), None, "nobody serves it");
    shown.put("sys/nbd3/pid", "77\n");
    shown.put("sys/nbd3/size", "2048\n");
    assert_eq!(shown.devices.find("varve:a"), Some(3));
    assert_eq!(shown.devices.find("varve:b"), None);
    assert_eq!(shown.devices.size(3), 1 << 20);
    assert_eq!(shown.devices.size(9), 0);
}

#[test]
fn whoever_uses_a_device_or_a_partition_is_named() {
    let shown = Shown::new();
    shown.idle(1);
    assert_eq!(shown.devices.users(1), Vec::<String>::new());
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
        shown.devices.users(1),
        ["mounted on /mnt", "mounted on /srv", "mounted on /data", "swap space", "/dev/dm-3"]
    );
    link("3", "/dev/nbd1");
    assert_eq!(shown.devices.users(1).last().map(String::as_str), Some("process 4711 (dd)"));
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
