//! Exports that say what was changed since an older snapshot, to the clients that incremental backups use.

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const KIB: u64 = 1 << 10;

/// The bytes of an extent in memory.
fn range((offset, length): (u64, u64)) -> Range<usize> {
    let index = |bytes: u64| usize::try_from(bytes).expect("it is small");
    index(offset)..index(offset + length)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The start and length of the runs of a map that are meant.
fn runs(map: &str, start: &str, is_meant: impl Fn(&Value) -> bool) -> Vec<(u64, u64)> {
    let number = |run: &Value, key: &str| run[key].as_u64().expect("a number");
    let map = json(map);
    let runs = map.as_array().expect("a list").iter().filter(|run| is_meant(run));
    runs.map(|run| (number(run, start), number(run, "length"))).collect()
}

/// Data/a with a snapshot `mon`, what was written after that, and a snapshot `tue`; what is in both.
fn world(made: &str) -> (World, [Vec<u8>; 2]) {
    let world = World::with_group();
    if !made.is_empty() {
        world.ok("pool create data/p --size 100M");
    }
    world.ok(&format!("lv create data/a --size 16M {made}"));
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    let mut content = vec![0; 16 << 20];
    let mut write = |offset: u64, length: u64, byte: u8| {
        content[range((offset, length))].fill(byte);
        client.write(offset, &content[range((offset, length))]).expect("it serves");
        content.clone()
    };
    write(0, 2048 * KIB, 1);
    let before = write(8192 * KIB, 64 * KIB, 2);
    world.ok("snap create data/a@mon --read-only");
    write(1024 * KIB, 64 * KIB, 3);
    let after = write(12288 * KIB, 192 * KIB, 4);
    world.ok("snap create data/a@tue --read-only");
    write(4096 * KIB, 64 * KIB, 5);
    (world, [before, after])
}

fn uri(world: &World) -> String {
    format!("nbd+unix:///data/a@tue?socket={}", world.path("since.sock").display())
}

fn output(program: &str, words: &[&str]) -> String {
    let ended = Command::new(program).args(words).output().expect("it is installed");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{program} {words:?}: {errors}");
    String::from_utf8(ended.stdout).expect("text")
}

/// The extents of a context that libnbd's client finds, of this type.
fn extents(uri: &str, context: &str, kind: u64) -> Vec<(u64, u64)> {
    let map = output("nbdinfo", &["--json", &format!("--map={context}"), uri]);
    runs(&map, "offset", |run| run["type"] == kind)
}

/// The extents that QEMU's client finds; what is dirty is no data to it.
fn dirty_to_qemu(socket: &Path) -> Vec<(u64, u64)> {
    let image = format!(
        "driver=nbd,server.type=unix,server.path={},export=data/a@tue,x-dirty-bitmap=qemu:dirty-bitmap:mon",
        socket.display()
    );
    let map = output("qemu-img", &["map", "--output=json", "--image-opts", &image]);
    runs(&map, "start", |run| run["data"] == false)
}

const CHANGED: [(u64, u64); 2] = [(1024 * KIB, 64 * KIB), (12288 * KIB, 192 * KIB)];

fn a_backup_of_what_was_changed_makes_the_newer_state_of_the_older(made: &str) {
    let (mut world, [before, after]) = world(made);
    world.ok("export create data/a@tue --nbd unix:since.sock --since mon");
    assert_eq!(world.data("export list")[1]["since"], "mon");
    let uri = uri(&world);
    assert_eq!(extents(&uri, "qemu:dirty-bitmap:mon", 1), CHANGED);
    assert_eq!(dirty_to_qemu(&world.path("since.sock")), CHANGED);
    let (copy, full) = (world.path("copy"), world.path("full"));
    std::fs::write(&copy, &before).expect("there is space");
    output("nbdcopy", &[&uri, &full.display().to_string()]);
    let newer = std::fs::read(&full).expect("it was copied");
    let file = std::fs::OpenOptions::new().write(true).open(&copy).expect("it is there");
    for changed in extents(&uri, "qemu:dirty-bitmap:mon", 1) {
        file.write_all_at(&newer[range(changed)], changed.0).expect("there is space");
    }
    let copy = std::fs::read(&copy).expect("it is there");
    assert!(newer == after && copy == after, "{made}: to the byte");
    let allocated = extents(&uri, "base:allocation", 0);
    assert!(allocated.iter().any(|(offset, length)| *offset == 0 && *length >= 2048 * KIB), "{allocated:?}");
    world.kill();
    world.start();
    assert_eq!(extents(&uri, "qemu:dirty-bitmap:mon", 1), CHANGED, "it comes back");
    let contexts = json(&output("nbdinfo", &["--list", "--json", &uri]));
    let named =
        contexts["exports"][0]["contexts"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let bitmaps: Vec<&str> = named.filter(|name| name.starts_with("qemu:dirty-bitmap:")).collect();
    assert_eq!(bitmaps, ["qemu:dirty-bitmap:mon"], "exactly one");
    let without = format!("nbd+unix:///data/a?socket={}", world.path("a.sock").display());
    let refused = Command::new("nbdinfo").args(["--map=qemu:dirty-bitmap:mon", &without]).output();
    let refused = refused.expect("it is installed");
    assert!(!refused.status.success(), "an export without it has none");
}

#[test]
fn an_incremental_backup_of_a_thick_volume_is_the_newer_state() {
    a_backup_of_what_was_changed_makes_the_newer_state_of_the_older("");
}

#[test]
fn an_incremental_backup_of_a_thin_volume_is_the_newer_state() {
    a_backup_of_what_was_changed_makes_the_newer_state_of_the_older("--pool data/p");
}

/// SINCE1, SINCE2.
#[test]
fn what_may_change_has_no_list_of_changes() {
    let (mut world, _) = world("");
    world.ok("snap create data/a@rw");
    let create = |words: &str| format!("export create {words} --nbd unix:x.sock");
    for (words, code) in [
        ("data/a --since mon", "V0002"),
        ("data/a@rw --since mon", "V0002"),
        ("data/a@tue --since rw", "V0002"),
        ("data/a@tue --since sun", "V0401"),
    ] {
        let exit = if code == "V0401" { 3 } else { 2 };
        world.refused(&create(words), exit, code);
        world.refused(&format!("{} -n", create(words)), exit, code);
    }
    world.refused("export create data/a@tue --fuse file --since mon", 2, "V0002");
    assert_eq!(world.data("export list").as_array().map(Vec::len), Some(1));
    world.ok("export create data/a@tue --nbd unix:since.sock --since mon");
    // Another snapshot of its name is not what it was compared with.
    world.ok("snap remove data/a@mon --yes");
    world.ok("snap create data/a@mon --read-only");
    world.kill();
    world.start();
    let shown = world.data("export list");
    assert_eq!(shown[1]["state"], "down", "{shown}");
    assert!(
        shown[1]["reason"].as_str().is_some_and(|reason| reason.contains("another snapshot than")),
        "SINCE2: {shown}"
    );
}
