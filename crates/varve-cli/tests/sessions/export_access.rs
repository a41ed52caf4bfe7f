//! Who may use the sockets and files of exports: given, changed in use, kept over restarts and where a file is made anew.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use serde_json::json;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

/// Whether files can be given to other groups here: to `daemon`, 1, and `bin`, 2, which each Debian system has.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: only root may give files to other groups");
    }
    is_root
}

fn world() -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world
}

/// Mode and group of a file.
fn access(world: &World, file: &str) -> (u32, u32) {
    let metadata = std::fs::symlink_metadata(world.path(file)).expect("it is there");
    (metadata.mode() & 0o7777, metadata.gid())
}

/// Whether a user with no other group than this one gets the size of the export at `a.sock`.
fn is_let_in(world: &World, group: u32) -> bool {
    std::fs::set_permissions(world.path("."), Permissions::from_mode(0o755)).expect("it is ours");
    let uri = format!("nbd+unix:///?socket={}", world.path("a.sock").display());
    let group = group.to_string();
    let words = ["--reuid", "65534", "--regid", &group, "--clear-groups", "nbdinfo", "--size", &uri];
    let ended = Command::new("setpriv").args(words).output().expect("setpriv is there");
    let answer = String::from_utf8_lossy(&ended.stdout).into_owned();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(answer == "67108864\n" || error.contains("Permission denied"), "{answer}{error}");
    ended.status.success()
}

#[test]
fn a_group_is_let_in_and_another_in_its_place_while_a_client_stays() {
    if !is_root() {
        return;
    }
    let mut world = world();
    world.ok("export create data/a --nbd unix:a.sock --mode 0660 --group daemon");
    assert_eq!(access(&world, "a.sock"), (0o660, 1));
    assert_eq!([is_let_in(&world, 1), is_let_in(&world, 2)], [true, false]);
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.write(0, &[7; 4096]).expect("it serves");
    let planned = world.ok("export change e1 --group bin -n");
    assert!(planned.contains("would give export e1 of data/a mode 0660 and group bin"), "{planned}");
    assert_eq!(access(&world, "a.sock"), (0o660, 1));
    assert_eq!(world.ok("export change e1 --group bin"), "e1 of data/a: read-write, mode 0660, group bin\n");
    assert_eq!(access(&world, "a.sock"), (0o660, 2));
    assert_eq!([is_let_in(&world, 1), is_let_in(&world, 2)], [false, true]);
    world.ok("export change a.sock --mode 600 --iops 5000");
    assert_eq!(access(&world, "a.sock"), (0o600, 2));
    assert_eq!([is_let_in(&world, 1), is_let_in(&world, 2)], [false, false]);
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]), "the client of before stays");
    assert_eq!(world.data("export list")[0]["connections"], 1);
    assert_eq!(world.data("export list")[0]["access"], json!({ "mode": "0600", "group": "bin" }));
    world.ok("export change data/a --mode 0666");
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(access(&world, "a.sock"), (0o666, 2), "kept over a restart");
    assert!(is_let_in(&world, 1));
    assert!(world.ok("export list").contains("read-write, 5000 IOPS, mode 0666, group bin"));
}

#[test]
fn a_socket_that_is_made_anew_lets_in_the_same() {
    let world = world();
    world.ok("export create data/a --nbd unix:a.sock --mode 0660");
    world.ok("export create data/a --vhost-user b.sock --mode 0640");
    world.ok("export change b.sock --mode 0666");
    for (file, mode) in [("a.sock", 0o660), ("b.sock", 0o666)] {
        assert_eq!(access(&world, file).0, mode, "{file}");
        std::fs::remove_file(world.path(file)).expect("it is there");
        let begun = Instant::now();
        while !world.path(file).exists() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{}", world.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let begun = Instant::now();
        while access(&world, file).0 != mode {
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", access(&world, file));
        }
    }
}

#[test]
fn exports_at_one_socket_have_one_mode() {
    let mut world = world();
    world.ok("lv create data/b --size 64M");
    world.ok("export create data/a --nbd unix:a.sock --mode 0660");
    let refused = world.refused("export create data/b --nbd unix:a.sock --mode 0600", 2, "V0002");
    assert!(refused.contains("export e1 has the same socket, with mode 0660"), "{refused}");
    assert!(refused.contains("varve export change e1"), "{refused}");
    world.ok("export create data/b --nbd unix:a.sock");
    world.ok("export change e2 --mode 0606");
    assert_eq!(access(&world, "a.sock").0, 0o606);
    world.ok("export remove e2");
    assert_eq!(world.data("export list")[0]["access"], json!({ "mode": "0606" }));
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(access(&world, "a.sock").0, 0o606);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_changes() {
    let world = world();
    world.ok("export create data/a --nbd unix:a.sock");
    let before = (access(&world, "a.sock"), world.data("export list"));
    for dry in ["", " -n"] {
        for wrong in
            ["--mode 0060", "--mode 0400", "--mode 1660", "--mode rw", "--mode 99999", "--group nosuch"]
        {
            let refused = world.refused(&format!("export change e1 {wrong}{dry}"), 2, "V0002");
            assert!(
                refused.contains("help: --mode 0660") || refused.contains("help: getent group"),
                "{refused}"
            );
            world.refused(&format!("export create data/a --nbd unix:b.sock {wrong}{dry}"), 2, "V0002");
        }
        let tcp = format!("export create data/a --nbd tcp:10809 --mode 0660{dry}");
        assert!(world.refused(&tcp, 2, "V0002").contains("tcp:127.0.0.1:10809 is neither"));
    }
    assert!(!world.path("b.sock").exists());
    assert_eq!((access(&world, "a.sock"), world.data("export list")), before);
}

#[test]
fn a_daemon_that_may_not_give_files_away_says_so_before_anything_changes() {
    if !is_root() {
        return;
    }
    let mut world = World::new();
    world.start_below("exec setpriv --bounding-set -chown \"$0\" \"$@\"");
    world.ok("pv create d1 --size 600M");
    world.ok("vg create data d1");
    world.ok("lv create data/a --size 64M");
    world.ok("export create data/a --nbd unix:a.sock");
    let before = access(&world, "a.sock");
    for words in ["export change e1 --mode 0660", "export create data/a --nbd unix:b.sock"] {
        for dry in ["", " -n"] {
            let words = format!("{words} --group daemon{dry}");
            let refused = world.refused(&words, 1, "V0505");
            assert!(refused.contains("the daemon may not give files to group daemon"), "{refused}");
            assert!(refused.contains("CAP_CHOWN"), "{refused}");
        }
    }
    assert_eq!(access(&world, "a.sock"), before);
    assert!(!world.path("b.sock").exists());
    assert_eq!(world.data("export list").as_array().map(Vec::len), Some(1));
}

#[test]
fn a_file_lets_a_group_in_when_it_was_made_for_others_and_says_so_if_not() {
    if !std::path::Path::new("/dev/fuse").exists() || !is_root() {
        println!("SKIPPED: no /dev/fuse here, or not root");
        return;
    }
    let mut world = world();
    world.ok("export create data/a --fuse file --mode 0660 --group daemon");
    assert_eq!(access(&world, "file"), (0o660, 1));
    world.ok("export change file --mode 0640 --group bin");
    assert_eq!(access(&world, "file"), (0o640, 2));
    std::fs::set_permissions(world.path("."), Permissions::from_mode(0o755)).expect("it is ours");
    let reads = |group: &str| {
        let words = ["--reuid", "65534", "--regid", group, "--clear-groups", "head", "-c", "1"];
        let ended = Command::new("setpriv").args(words).arg(world.path("file")).output();
        ended.expect("setpriv is there").status.success()
    };
    assert_eq!([reads("1"), reads("2")], [false, true]);
    world.ok("export create data/a --fuse own");
    let refused = world.refused("export change own --mode 0660", 1, "V0505");
    assert!(refused.contains("was opened for the daemon's user alone"), "{refused}");
    world.ok("export change own --group bin");
    assert_eq!(access(&world, "own"), (0o600, 2));
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!([access(&world, "file"), access(&world, "own")], [(0o640, 2), (0o600, 2)]);
}
