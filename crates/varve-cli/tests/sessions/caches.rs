//! Memory for metadata, group by group: declared, divided, changed while in use, bounded, and still declared afterwards.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::{World, http};
use serde_json::Value;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn metadata(world: &World) -> Value {
    world.data("vg show data")["metadata"].clone()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn memory(world: &World, name: &str) -> u64 {
    number(&metadata(world)["memory"], name)
}

/// Asks until it is so; a pool frees metadata that is not written yet with its next commit.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it never came that {what}");
}

fn with_users() -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 256M");
    world.ok("lv create data/b --size 64M");
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/thin --pool p --size 64M");
    world.ok("snap create data/a@one data/b@one data/thin@one");
    world
}

#[test]
fn what_is_declared_is_shown_divided_and_kept() {
    let mut world = with_users();
    let usual = metadata(&world);
    assert_eq!((number(&usual, "cache_bytes"), &usual["per_gib"]), (64 * MIB, &false.into()), "{usual}");
    assert_eq!((&usual["cache_policy"], &usual["order"]), (&"sieve".into(), &"logged".into()));
    assert_eq!((number(&usual, "users"), number(&usual, "unusable")), (3, 0));
    let budget = number(&usual, "budget");
    assert!(budget <= 64 * MIB && budget > 63 * MIB, "all of it is divided: {budget}");
    let text = world.ok("vg change data --cache 2M --cache-policy lru --metadata write-through");
    assert!(
        text.starts_with("data: up to 2.0 MiB of metadata in memory by lru, written with each batch; "),
        "{text}"
    );
    assert!(text.contains(" in use by 3 stores and pools"), "{text}");
    let text = world.ok("vg show data");
    assert!(text.contains("metadata:    up to 2.0 MiB") && text.contains("evicted"), "{text}");
    world.ok("vg change data --cache 64K-per-GiB");
    let changed = metadata(&world);
    assert_eq!((&changed["per_gib"], number(&changed, "cache_bytes")), (&true.into(), 64 * KIB));
    assert_eq!(number(&changed, "budget"), 3 * 64 * KIB, "each has the least");
    assert_eq!((&changed["cache_policy"], &changed["order"]), (&"lru".into(), &"write-through".into()));
    // One less, one more.
    world.ok("vg change data --cache 3M");
    world.ok("snap remove data/b@one -y --wait");
    soon("a store is gone", || number(&metadata(&world), "users") == 2);
    world.ok("snap create data/b@two data/a@two");
    assert_eq!(number(&metadata(&world), "users"), 3);
    let backup = world.ok("vg backup data backup");
    assert!(backup.contains("wrote change"), "{backup}");
    let declared = |world: &World| {
        let now = metadata(world);
        ["cache_bytes", "per_gib", "cache_policy", "order", "budget", "users"].map(|name| now[name].clone())
    };
    let before = declared(&world);
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(declared(&world), before);
    world.kill();
    world.start();
    assert_eq!(declared(&world), before);
    world.ok("vg change data --cache 64M --cache-policy sieve --metadata logged");
    assert!(!world.ok("vg backup data usual").is_empty());
    let text = std::fs::read_to_string(world.path("usual")).expect("a backup");
    assert!(!text.contains("[group.metadata]"), "what is usual is not written down: {text}");
    world.ok("vg restore data backup -y");
    assert_eq!(declared(&world), before, "a backup holds it too");
    world.ok("pv create d3 --size 100M --cache buffered");
    let words =
        "vg create other d3 --cache 1M --cache-policy fifo --metadata write-through --disk-cache direct";
    let text = world.ok(&format!("{words} -n"));
    let promised =
        "would let it keep up to 1.0 MiB of metadata in memory by fifo and write it with each batch";
    assert!(text.contains(promised), "{text}");
    world.ok(words);
    assert_eq!(world.data("vg show other")["metadata"]["cache_bytes"].as_u64(), Some(MIB));
}

#[test]
fn memory_is_bounded_while_volumes_and_pools_are_used() {
    let world = with_users();
    world.ok("vg change data --cache 64K");
    world.ok("export create data/a --nbd unix:a.sock");
    world.ok("export create data/thin --nbd unix:thin.sock");
    let mut a = Client::new(&world.path("a.sock"), "data/a");
    let mut thin = Client::new(&world.path("thin.sock"), "data/thin");
    // Each of these is an entry of its own.
    for at in 0..4000_u64 {
        let place = at * 1499 % 4000;
        a.write(place * 64 * KIB, &[1; 4096]).expect("there is space");
        thin.write(place * 16 * KIB, &[2; 4096]).expect("there is space");
    }
    let (budget, slack) = (number(&metadata(&world), "budget"), 3 * 64 * KIB);
    assert_eq!(budget, 3 * 64 * KIB);
    soon("metadata is within its budget", || memory(&world, "in_use") <= budget + slack);
    assert!(memory(&world, "evictions") > 0, "{}", metadata(&world));
    // More of it may stay, and then less again, while writes go on.
    world.ok("vg change data --cache 16M --cache-policy fifo");
    for at in 0..4000_u64 {
        a.write(at * 64 * KIB, &[3; 4096]).expect("there is space");
        thin.write(at * 16 * KIB, &[4; 4096]).expect("there is space");
    }
    let more = memory(&world, "in_use");
    assert!(more > budget, "{more} bytes");
    world.ok("vg change data --cache 64K --cache-policy round-robin");
    soon("what is too much has gone", || memory(&world, "in_use") <= budget + slack);
    let metrics = http(&world.path("varve.sock"), "/metrics");
    let sample = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name}{{group=\"data\"}} ")));
        line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse::<u64>().expect("a number")
    };
    assert_eq!(sample("varve_metadata_cache_budget_bytes"), budget);
    assert!(sample("varve_metadata_cache_bytes") <= budget + slack);
    for name in ["hits", "misses", "evictions"] {
        assert!(sample(&format!("varve_metadata_cache_{name}_total")) > 0, "{name}");
    }
    drop((a, thin));
    let mut now = Client::new(&world.path("a.sock"), "data/a");
    assert!(
        now.read_all().chunks(64 << 10).take(4000).all(|chunk| chunk[..4096].iter().all(|byte| *byte == 3))
    );
    world.ok("export create data/a@one --nbd unix:one.sock --read-only");
    let mut one = Client::new(&world.path("one.sock"), "data/a@one");
    assert!(one.read_all().iter().all(|byte| *byte == 0), "the snapshot is what it was");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_remedy() {
    let world = World::with_group();
    for (words, exit, code) in [
        ("vg create other d9 --cache 1K", 2, "V0212"),
        ("vg create other d9 --cache direct", 2, "V0212"),
        ("vg change data", 2, "V0002"),
        ("vg change data --cache 1K", 2, "V0212"),
        ("vg change data --cache 50%FREE", 2, "V0212"),
        ("vg change data --cache 8K-per-TiB", 2, "V0212"),
        ("vg change data --cache-policy arc", 2, "V0002"),
        ("vg change data --metadata sometimes", 2, "V0002"),
        ("vg change nothing --cache 1M", 3, "V0201"),
    ] {
        world.refused(words, exit, code);
    }
    assert!(world.refused("vg change data --cache 1K", 2, "V0212").contains("help: --cache 64M"));
}
