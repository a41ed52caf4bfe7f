//! Rules that hold for many verbs: dry runs change nothing, destroyers ask, errors have their codes.

use crate::harness::World;

const DISKS: &[&str] = &["d1", "d2"];

#[test]
fn a_dry_run_says_would_and_changes_nothing() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("lv create data/b --size 64M");
    world.ok("lv create data/d --size 64M");
    world.ok("snap create data/a@one data/a@two");
    world.ok("export create data/b --nbd unix:b.sock");
    let before = world.everything(DISKS);
    for words in [
        "pv create d9 --size 1G",
        "vg rename data other",
        "vg change data --cache 8K-per-GiB --cache-policy lru --metadata write-through",
        "lv create data/c --size 64M",
        "lv create data/c --size 64M --type striped --stripes 2",
        "lv extend data/a --size +64M",
        "lv rename data/a c",
        "lv reduce data/d --size 32M",
        "lv remove data/d",
        "snap create data/a@three data/b@three",
        "snap remove data/a@one..@two",
        "snap rollback data/a@one",
        "snap create data/a@four --mode independent",
        "lv change data/a --when-full drop-oldest",
        "lv extend data/a@one --size +64M",
        "snap change data/a@one --read-only",
        "snap hold data/a@one",
        "snap release data/a@one",
        "export create data/a --nbd unix:a.sock",
        "export create data/a@one --nbd tcp:10999",
        "export remove data/b",
        "vg backup data backup",
    ] {
        let text = world.ok(&format!("{words} -n"));
        assert!(
            text.starts_with("would ") && text.ends_with("nothing was changed\n"),
            "varve {words} -n: {text}"
        );
        let plan = world.data(&format!("{words} --dry-run"));
        assert_eq!(plan["dry_run"], true, "varve {words}");
        assert!(plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "varve {words}");
        assert!(plan["bytes_taken"].is_u64() && plan["bytes_freed"].is_u64(), "varve {words}");
        assert!(world.everything(DISKS) == before, "varve {words} -n changed something");
    }
    for made in ["d9", "a.sock", "backup"] {
        assert!(!world.path(made).exists(), "{made} was made");
    }
    let plan = world.data("lv create data/c --size 64M -n");
    assert_eq!(plan["bytes_taken"].as_u64(), Some(64 << 20));
}

#[test]
fn what_destroys_asks_and_is_declined_where_nobody_answers() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("snap create data/a@one");
    world.ok("lv create data/b --size 64M");
    world.ok("pv create d3 d4 --size 100M");
    world.ok("vg create empty d4");
    let before = world.everything(DISKS);
    for words in [
        "lv remove data/b",
        "lv reduce data/b --size 4M",
        "snap remove data/a@one",
        "snap rollback data/a@one",
        "pv remove d3",
        "vg remove empty",
    ] {
        let text = world.refused(words, 8, "V0004");
        assert!(text.contains("--yes"), "{text}");
    }
    assert!(world.everything(DISKS) == before);
}

#[test]
fn errors_have_their_codes_and_remedies() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    for (words, exit, code) in [
        ("pv create d1", 5, "V0107"),
        ("pv create nowhere", 3, "V0114"),
        ("pv create tiny --size 512K", 1, "V0103"),
        ("pv create d1 --size 1G", 4, "V0112"),
        ("pv scan log", 3, "V0101"),
        ("pv remove d1 -y", 5, "V0107"),
        ("pv remove nowhere -y", 3, "V0106"),
        ("vg create data d1", 4, "V0202"),
        ("vg create other d1", 5, "V0107"),
        ("vg create a/b d1", 2, "V0008"),
        ("vg create other d9 --extent-size 3M", 2, "V0207"),
        ("vg show nothing", 3, "V0201"),
        ("vg remove data -y", 5, "V0204"),
        ("vg reduce data d1", 5, "V0210"),
        ("vg reduce data d9", 3, "V0211"),
        ("vg restore data log -y", 2, "V0208"),
        ("vg restore data nowhere -y", 1, "V0902"),
        ("lv create data/a --size 1M", 4, "V0302"),
        ("lv create data/x --size 8E", 6, "V0601"),
        ("lv create data/x --size 0", 2, "V0306"),
        ("lv create data/x --size lots", 2, "V0009"),
        ("lv create data/x --size -5", 2, "V0009"),
        ("lv extend data/a --size -1M", 2, "V0009"),
        ("lv create data/x --size 1M --type striped --stripes 200", 2, "V0305"),
        ("lv create data/x --size 1M --type striped --stripes 3", 6, "V0601"),
        ("lv create data/.. --size 1M", 2, "V0008"),
        ("lv create none/x --size 1M", 3, "V0201"),
        ("lv extend data/a --size 1M", 2, "V0306"),
        ("lv reduce data/a --size 1G -y", 2, "V0306"),
        ("lv show data/x", 3, "V0301"),
        ("snap create data/a", 2, "V0008"),
        ("snap create data/a@x --chunk-size 3K", 2, "V0409"),
        ("snap create data/a@x --mode sideways", 2, "V0002"),
        ("snap diff data/a@x", 3, "V0401"),
        ("snap diff data/a", 2, "V0008"),
        ("lv change data/a", 2, "V0002"),
        ("lv change data/a --auto-extend 80%", 2, "V0002"),
        ("lv change data/x --when-full error", 3, "V0301"),
        ("lv extend data/a@x --size +1G", 3, "V0401"),
        ("snap create data/x@x", 3, "V0301"),
        ("snap remove data/a@x -y", 3, "V0401"),
        ("snap rollback data/a@x -y", 3, "V0401"),
        ("job show 7", 3, "V0701"),
    ] {
        world.refused(words, exit, code);
    }
    world.ok("snap create data/a@one data/a@two");
    world.refused("snap create data/a@one", 4, "V0402");
    world.refused("snap create data/a@x data/a@x", 2, "V0002");
    world.refused("snap create data/a@x --chunk-size 4K", 2, "V0409");
    world.ok("lv create data/b --size 64M");
    world.ok("snap create data/b@one");
    world.refused("snap diff data/a@one data/b@one", 2, "V0002");
    world.ok("snap remove data/b@one -y --wait");
    world.refused("snap remove data/a@two..@one -y", 2, "V0405");
    let text = world.refused("lv remove data/a --now -y", 5, "V0304");
    assert!(text.contains("varve snap remove data/a@one..@two"), "{text}");
    world.refused("lv reduce data/a --size 4M -y", 5, "V0308");
    assert_eq!(world.data("snap list").as_array().map(Vec::len), Some(2), "a refused set leaves nothing");
}

#[test]
fn a_disk_with_something_else_on_it_is_left_alone_until_told() {
    let world = World::started();
    let mut disk = vec![0_u8; 64 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(world.path("foreign"), &disk).expect("a disk");
    for words in ["pv create foreign", "vg create data foreign", "pv create foreign -n"] {
        let text = world.refused(words, 8, "V0102");
        assert!(text.contains("boot sector") && text.contains("--yes"), "{text}");
    }
    assert!(std::fs::read(world.path("foreign")).expect("a disk") == disk, "DISKS1");
    world.ok("pv create foreign --yes");
    assert_eq!(world.data("pv list")[0]["state"], "unused");
}

#[test]
fn names_of_128_bytes_are_used_and_longer_ones_refused() {
    let mut world = World::started();
    let [group, volume, snapshot] = ["g", "v", "s"].map(|letter| letter.repeat(128));
    world.ok("pv create d1 --size 300M");
    world.ok(&format!("vg create {group} d1"));
    world.ok(&format!("lv create {group}/{volume} --size 4M"));
    world.ok(&format!("snap create {group}/{volume}@{snapshot}"));
    world.ok(&format!("pool create {group}/p --size 64M"));
    world.ok(&format!("lv create {group}/t{} --pool p --size 4M", &volume[1..]));
    world.ok(&format!("export create {group}/{volume}@{snapshot} --nbd unix:s.sock"));
    assert_eq!(world.stop(), Some(0));
    world.start();
    let full = format!("{group}/{volume}@{snapshot}");
    assert_eq!(world.data("snap list")[0]["name"], full.as_str());
    assert_eq!(world.data("lv list").as_array().map(Vec::len), Some(2));
    assert_eq!(crate::client::Client::new(&world.path("s.sock"), &full).read_all(), vec![0; 4 << 20]);
    world.refused(&format!("lv create {group}/{volume}v --size 4M"), 2, "V0008");
    world.refused(&format!("snap create {full}s"), 2, "V0008");
}
