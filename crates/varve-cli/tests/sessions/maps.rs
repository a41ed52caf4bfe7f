//! Where the bytes of volumes lie, as the command says, compared with what is in the files of the disks there.

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;

/// A row: the first byte, the length, the disk and the place there, and whether it is shared.
type Row = (u64, u64, Option<(String, u64)>, Option<bool>);

fn rows(map: &Value) -> Vec<Row> {
    let row = |extent: &Value| {
        let number = |name: &str| extent[name].as_u64();
        let disk = extent["disk"].as_str().map(str::to_owned);
        let place = disk.map(|disk| (disk, number("disk_offset").expect("a place on the disk")));
        let (offset, length) = (number("offset").expect("a number"), number("length").expect("a number"));
        (offset, length, place, extent["shared"].as_bool())
    };
    map["extents"].as_array().expect("a list").iter().map(row).collect()
}

/// Reads where the map says, and compares with what the volume shows.
fn lies_there(map: &Value, shown: &[u8]) {
    let mut at = 0;
    for (offset, length, place, _) in rows(map) {
        assert_eq!(offset, at, "no gap");
        at += length;
        let range = usize::try_from(offset).expect("small")..usize::try_from(at).expect("small");
        let mut found = vec![0; range.len()];
        if let Some((disk, place)) = place {
            File::open(disk).expect("it is there").read_exact_at(&mut found, place).expect("inside");
        }
        assert!(found == shown[range], "{length} bytes from {offset} on lie where the map says");
    }
    assert_eq!(at, shown.len() as u64, "all of the volume");
}

fn connected(world: &World, name: &str) -> Client {
    let socket = format!("{}.sock", name.replace(['/', '@'], "-"));
    world.ok(&format!("export create {name} --nbd unix:{socket}"));
    Client::new(&world.path(&socket), name)
}

/// Bytes of rows that are shared, that are not, and that are zeros.
fn sums(map: &Value) -> [u64; 3] {
    let sum = |wanted: fn(&Row) -> bool| rows(map).iter().filter(|row| wanted(row)).map(|row| row.1).sum();
    [
        sum(|row| row.2.is_some() && row.3 == Some(true)),
        sum(|row| row.2.is_some() && row.3 == Some(false)),
        sum(|row| row.2.is_none()),
    ]
}

#[test]
fn a_volume_and_its_snapshots_lie_where_the_map_says() {
    let world = World::started();
    world.ok("pv create d1 --size 300M");
    world.ok("vg create data d1 --extent-size 1M");
    world.ok("lv create data/a --size 16M");
    let mut client = connected(&world, "data/a");
    client.fill(0, 16 * MIB, 1).expect("space");
    client.flush();
    let map = world.data("lv map data/a");
    assert_eq!(sums(&map), [0, 16 * MIB, 0]);
    lies_there(&map, &client.read_all());
    world.ok("snap create data/a@one");
    assert_eq!(sums(&world.data("lv map data/a")), [16 * MIB, 0, 0], "the snapshot needs all of it");
    client.fill(3 * MIB, MIB, 2).expect("space");
    client.flush();
    let map = world.data("lv map data/a");
    assert_eq!(sums(&map), [15 * MIB, MIB, 0], "what was copied is the volume's alone");
    lies_there(&map, &client.read_all());
    let old = connected(&world, "data/a@one").read_all();
    lies_there(&world.data("lv map data/a@one"), &old);
    let text = world.ok("lv map data/a --offset 2M --length 2M");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words[..6], ["OFFSET", "LENGTH", "LIES", "ON", "AT", "SHARED"], "{text}");
    assert_eq!((words[6], words[7], words[10]), ("0x200000", "0x100000", "shared"), "{text}");
    assert_eq!((words[11], words[12], words[15]), ("0x300000", "0x100000", "-"), "{text}");
    world.refused("lv map data/x", 3, "V0301");
}

#[test]
fn a_thin_volume_lies_where_it_was_written_and_nowhere_else() {
    let world = World::with_group();
    world.ok("pool create data/p --size 64M --auto-extend off");
    world.ok("lv create data/t --pool p --size 32M");
    assert_eq!(sums(&world.data("lv map data/t")), [0, 0, 32 * MIB]);
    let mut client = connected(&world, "data/t");
    client.fill(4 * MIB, 2 * MIB, 7).expect("space");
    client.flush();
    let map = world.data("lv map data/t");
    assert_eq!(sums(&map), [0, 2 * MIB, 30 * MIB]);
    lies_there(&map, &client.read_all());
    world.ok("snap create data/t@one");
    client.fill(5 * MIB, 64 << 10, 8).expect("space");
    client.flush();
    let map = world.data("lv map data/t");
    assert_eq!(sums(&map), [2 * MIB - (64 << 10), 64 << 10, 30 * MIB]);
    lies_there(&map, &client.read_all());
    lies_there(&world.data("lv map data/t@one"), &connected(&world, "data/t@one").read_all());
}

#[test]
fn stripes_lie_in_turn_and_an_array_puts_its_bytes_somewhere() {
    let world = World::with_group();
    world.ok("lv create data/s --size 8M --type striped --stripes 2 --stripe-size 64K");
    let mut client = connected(&world, "data/s");
    client.fill(0, 8 * MIB, 3).expect("space");
    client.flush();
    let map = world.data("lv map data/s");
    assert_eq!(rows(&map).len(), 128, "each stripe is a row");
    lies_there(&map, &client.read_all());
    world.ok("lv create data/m --size 8M --type mirror --copies 2");
    let map = world.data("lv map data/m");
    assert_eq!(map["extents"][0]["kind"], Value::from("layout"));
    assert_eq!(sums(&map), [0, 0, 8 * MIB]);
}
