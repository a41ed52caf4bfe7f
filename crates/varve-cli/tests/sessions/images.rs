//! Thin volumes over a disk image, or over a read-only volume: what they show, and what becomes of them when it is not
//! what it was.

use crate::client::Client;
use crate::harness::World;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const KIB: usize = 1024;
/// No whole sectors.
const LENGTH: usize = 1_000_001;
const ROUNDED: usize = LENGTH.next_multiple_of(4 * KIB);

fn content(seed: usize) -> Vec<u8> {
    (0..LENGTH).map(|at| (1 + (at / 512 * 7 + at * 13 + seed) % 250) as u8).collect()
}

/// A pool, and an image that was written long ago.
fn with_image() -> (World, PathBuf) {
    let world = World::with_group();
    world.ok("pool create data/p --size 100M --auto-extend off --when-full error");
    let image = world.path("gold");
    fs::write(&image, content(0)).expect("a writable folder");
    set_modified(&image, 1_000_000_000);
    (world, image)
}

fn set_modified(path: &PathBuf, seconds: u64) {
    let file = File::options().append(true).open(path).expect("a file");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("it can be set");
}

/// All of a volume or snapshot.
fn read(world: &World, name: &str) -> Vec<u8> {
    world.ok(&format!("export create {name} --nbd unix:read.sock --read-only"));
    let all = Client::new(&world.path("read.sock"), name).read_all();
    world.ok("export remove read.sock -y");
    all
}

/// Does something as a client of a volume.
fn with_client(world: &World, name: &str, work: impl FnOnce(&mut Client)) {
    world.ok(&format!("export create {name} --nbd unix:client.sock"));
    work(&mut Client::new(&world.path("client.sock"), name));
    world.ok("export remove client.sock -y");
}

/// The image and the zeros behind it.
fn shown(size: usize) -> Vec<u8> {
    let mut all = content(0);
    all.resize(size, 0);
    all
}

/// Whether the group's text tells of an image.
fn is_written_down(world: &World) -> bool {
    world.ok("vg backup data text");
    let text = fs::read_to_string(world.path("text")).expect("a backup");
    fs::remove_file(world.path("text")).expect("it is there");
    text.contains("[[image]]")
}

#[test]
fn volumes_share_an_image_that_stays_as_it_is_until_they_need_it_no_more() {
    let (mut world, image) = with_image();
    let planned = world.ok("lv create data/a --pool p --image gold -n");
    assert!(planned.contains("which must not change then"), "{planned}");
    world.ok("lv create data/a --pool p --image gold");
    world.ok("lv create data/b --pool p --image gold --size 4M");
    let listed = world.data("lv show data/a");
    assert_eq!(listed["thin"]["origin"], image.to_str().expect("UTF-8"), "{listed}");
    assert_eq!((listed["size"].as_u64(), listed["thin"]["mapped"].as_u64()), (Some(ROUNDED as u64), Some(0)));
    assert!(read(&world, "data/a") == shown(ROUNDED) && read(&world, "data/b") == shown(4 << 20));
    let busy = world.refused("pv create gold -y", 5, "V0104");
    assert!(busy.contains("in use"), "{busy}");

    let mut now = shown(ROUNDED);
    with_client(&world, "data/a", |client| {
        client.write(5 * 4096 + 512, &[251; 1024]).expect("there is space");
        client.discard(64 * 1024, 128 * KIB).expect("discarded");
        client.write(ROUNDED as u64 - 4096, &[252; 4096]).expect("over the ragged end");
    });
    now[5 * 4096 + 512..][..1024].fill(251);
    now[64 * KIB..][..128 * KIB].fill(0);
    now[ROUNDED - 4096..].fill(252);
    assert!(read(&world, "data/a") == now, "what is discarded reads as zeros, and not as the image");
    world.ok("snap create data/a@s");
    with_client(&world, "data/a", |client| client.fill(0, 512, 253).expect("there is space"));
    let before = std::mem::take(&mut now);
    now.clone_from(&before);
    now[..512].fill(253);

    assert_eq!(world.stop(), Some(0));
    world.start();
    assert!(read(&world, "data/a") == now && read(&world, "data/a@s") == before, "after a stop");
    world.kill();
    world.start();
    assert!(read(&world, "data/a") == now && read(&world, "data/a@s") == before, "after a kill");
    assert!(read(&world, "data/b") == shown(4 << 20), "a neighbour has its own");
    assert!(fs::read(&image).expect("a file") == content(0), "nobody writes an image");

    world.ok("lv flatten data/a --wait");
    world.ok("lv flatten data/a@s --wait");
    assert!(is_written_down(&world), "IMAGES1: a volume is still backed by it");
    world.ok("lv remove data/b -y");
    assert!(!is_written_down(&world));
    fs::remove_file(&image).expect("nobody needs it");
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert!(read(&world, "data/a") == now && read(&world, "data/a@s") == before, "without the image");
    assert_eq!(world.stop(), Some(0));
    assert!(world.ok("check d1 d2").contains("nothing is damaged"));
}

#[test]
fn a_volume_is_not_served_while_its_image_is_not_what_it_was() {
    let (mut world, image) = with_image();
    world.ok("lv create data/a --pool p --image gold");
    world.ok("lv create data/other --pool p --size 4M");
    let broken = |world: &mut World, says: &[&str]| {
        world.start();
        let text = world.refused("export create data/a --nbd unix:a.sock", 7, "V0307");
        assert!(says.iter().all(|word| text.contains(word)), "{text}");
        let shown = world.data("lv show data/a");
        assert!(shown["reason"].as_str().is_some_and(|reason| reason.contains("gold")), "{shown}");
        let of_others = world.data("lv show data/other");
        assert_eq!(of_others["state"], "active");
    };
    let mended = |world: &mut World| {
        world.ok("pv scan");
        assert!(read(world, "data/a") == shown(ROUNDED));
        assert_eq!(world.stop(), Some(0));
    };
    assert_eq!(world.stop(), Some(0));

    let file = File::options().append(true).open(&image).expect("a file");
    file.set_len(LENGTH as u64 - 1).expect("cut short");
    broken(&mut world, &["1000000 bytes", "had 1000001", "varve pv scan"]);
    fs::write(&image, content(0)).expect("a writable folder");
    set_modified(&image, 1_000_000_000);
    mended(&mut world);

    fs::write(&image, content(1)).expect("a writable folder");
    broken(&mut world, &["was written at", "touch -d 2001-09-09T01:46:40.000000000Z"]);
    fs::write(&image, content(0)).expect("a writable folder");
    set_modified(&image, 1_000_000_000);
    mended(&mut world);

    fs::rename(&image, world.path("away")).expect("renamed");
    broken(&mut world, &["there is no such file"]);
    fs::rename(world.path("away"), &image).expect("renamed");
    mended(&mut world);

    fs::remove_file(&image).expect("it is there");
    broken(&mut world, &["there is no such file"]);
    world.ok("lv remove data/a -y");
    assert!(!is_written_down(&world), "nobody needs what is not there");
}

#[test]
fn an_image_that_moved_is_found_where_the_mended_text_says() {
    let (mut world, image) = with_image();
    world.ok("lv create data/a --pool p --image gold");
    assert_eq!(world.stop(), Some(0));
    fs::rename(&image, world.path("moved")).expect("renamed");
    world.start();
    world.ok("vg backup data text");
    let text = fs::read_to_string(world.path("text")).expect("a backup");
    let path = image.to_str().expect("UTF-8");
    let mended = text.replace(path, world.path("moved").to_str().expect("UTF-8"));
    fs::write(world.path("text"), mended).expect("a writable folder");
    world.ok("vg restore data text -y");
    world.refused("export create data/a --nbd unix:a.sock", 7, "V0318");
    world.ok("pv scan --trust-images"); // The text came from elsewhere.
    assert!(read(&world, "data/a") == shown(ROUNDED));
}

#[test]
fn only_a_raw_image_that_is_there_and_as_it_was_is_an_origin() {
    let (world, image) = with_image();
    let make = |options: &str| format!("lv create data/a --pool p {options}");
    world.refused("lv create data/a --image gold --size 1M", 2, "V0002");
    world.refused(&make("--image nowhere"), 3, "V0114");
    world.refused(&make("--image ."), 1, "V0109");
    world.refused(&make("--image gold --format qcow2"), 2, "V0316");
    fs::write(world.path("q"), [b"QFI\xfb".as_slice(), &[0; 8000]].concat()).expect("a writable folder");
    let refused = world.refused(&make("--image q"), 2, "V0316");
    assert!(refused.contains("qcow2") && refused.contains("qemu-img convert -O raw"), "{refused}");
    assert!(!is_written_down(&world), "what is refused leaves nothing behind");
    world.ok("lv create data/q --pool p --image q --format raw");
    assert_eq!(&read(&world, "data/q")[..4], b"QFI\xfb");

    world.ok("lv create data/a --pool p --image gold");
    set_modified(&image, 1_000_000_001);
    let refused = world.refused("lv create data/b --pool p --image gold", 2, "V0316");
    assert!(refused.contains("was written at"), "ORIGINS1: {refused}");
    world.ok("lv remove data/a -y");
    world.ok("lv create data/b --pool p --image gold"); // What it was before is not needed.
}

#[test]
fn a_read_only_volume_is_an_origin_and_stays_as_long_as_it_is_one() {
    let (mut world, _) = with_image();
    world.ok("lv create data/base --size 8M");
    with_client(&world, "data/base", |client| client.fill(0, 8 << 20, 7).expect("written"));
    let refused = world.refused("lv create data/t --pool p --origin data/base", 2, "V0316");
    assert!(refused.contains("varve snap create data/base@base --read-only"), "{refused}");
    world.ok("vg backup data text");
    let text = fs::read_to_string(world.path("text")).expect("a backup");
    let name = "name = \"base\"\n";
    assert_eq!(text.matches(name).count(), 1, "{text}");
    fs::write(world.path("text"), text.replace(name, &format!("{name}read_only = true\n"))).expect("written");
    world.ok("vg restore data text -y");

    world.ok("lv create data/t --pool p --origin data/base");
    assert_eq!(world.data("lv show data/t")["thin"]["origin"], "data/base");
    with_client(&world, "data/t", |client| client.fill(4096, 4096, 8).expect("written"));
    assert_eq!(world.stop(), Some(0));
    world.start();
    let mut now = vec![7; 8 << 20];
    now[4096..8192].fill(8);
    assert!(read(&world, "data/t") == now);
    for words in ["lv remove data/base -y", "lv reduce data/base --size 4M -y"] {
        let refused = world.refused(words, 5, "V0416");
        assert!(refused.contains("varve lv flatten data/t"), "{refused}");
    }
    world.ok("lv flatten data/t --wait");
    world.ok("lv remove data/base -y");
    assert!(read(&world, "data/t") == now);
}
