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
        let devices = Devices(BlockDevices { sys: at("sys"), dev: "/dev".into(), proc: at("proc") });
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
