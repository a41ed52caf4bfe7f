//! Volumes that lie in disk images, raw and qcow2, alone and over others: what clients write is what QEMU's programs read, through
//! stops and kills; and what becomes of them when the image is not what it was.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const KIB: usize = 1024;
const SIZE: usize = 4 << 20;

pub(crate) fn qemu(world: &World, words: &str) -> String {
    // A tilde stands for a space in a word.
    let words: Vec<String> = words.split(' ').map(|word| word.replace('~', " ")).collect();
    let program = words[0].as_str();
    let output = Command::new(program).args(&words[1..]).current_dir(world.path("")).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install qemu-utils"));
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
    said
}

/// Some other content for each seed.
pub(crate) fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (1 + (at / 512 * 7 + at * 13 + seed) % 250) as u8).collect()
}

/// What a volume holds, as a client of its own export sees it.
pub(crate) fn read(world: &World, name: &str) -> Vec<u8> {
    world.ok(&format!("export create {name} --nbd unix:read.sock --read-only"));
    let all = Client::new(&world.path("read.sock"), name).read_all();
    world.ok("export remove read.sock -y");
    all
}

/// Writes and discards some of a volume, and the same of its model.
fn scribble(world: &World, name: &str, model: &mut [u8], seed: usize) {
    let mut client = write(world, name, model, seed);
    let at = (2 << 20) + seed * 64 * KIB;
    client.discard(at as u64, 128 * KIB).expect("discarded");
    model[at..at + 128 * KIB].fill(0);
    disconnect(world, client);
}

pub(crate) fn disconnect(world: &World, mut client: Client) {
    client.flush();
    drop(client);
    world.ok("export remove write.sock -y");
}

/// Writes some of a volume, and the same of its model.
pub(crate) fn write(world: &World, name: &str, model: &mut [u8], seed: usize) -> Client {
    world.ok(&format!("export create {name} --nbd unix:write.sock"));
    let mut client = Client::new(&world.path("write.sock"), name);
    for (part, at) in [0, 100 * KIB + 512, 1 << 20, model.len() - 8 * KIB].into_iter().enumerate() {
        let at = (at + seed * 4 * KIB).min(model.len() - 4 * KIB);
        let data = content(seed + part, (40 * KIB).min(model.len() - at));
        client.write(at as u64, &data).expect("it is written");
        model[at..at + data.len()].copy_from_slice(&data);
    }
    client
}

/// QEMU finds no fault in an image, which holds what the model does.
pub(crate) fn compare(world: &World, image: &str, format: &str, model: &[u8]) {
    if format == "qcow2" {
        qemu(world, &format!("qemu-img check -q -f qcow2 {image}"));
    }
    qemu(world, &format!("qemu-img convert -f {format} -O raw {image} flat"));
    assert!(fs::read(world.path("flat")).expect("read") == model, "{image}");
}

#[test]
fn what_clients_write_to_a_volume_in_an_image_is_what_qemu_reads() {
    let mut world = World::with_group();
    for (image, format) in [("vm.raw", "raw"), ("vm.qcow2", "qcow2")] {
        // No whole extents: the volume is as large as the image.
        let size = SIZE + 4 * KIB;
        qemu(&world, &format!("qemu-img create -q -f {format} {image} {size}"));
        let mut model = vec![0; size];
        let made = world.ok(&format!("lv create data/{format} --image {image} --format {format}"));
        assert!(made.contains("made data/"), "{made}");
        let shown = world.data(&format!("lv show data/{format}"));
        assert_eq!((shown["layout"].as_str(), shown["size"].as_u64()), (Some("image"), Some(size as u64)));
        assert_eq!(shown["image"]["format"], format);
        scribble(&world, &format!("data/{format}"), &mut model, 1);
        let busy = refused_by_qemu(&world, &["-f", format, "-c", "write 0 512", image]);
        assert!(busy.contains("lock"), "QEMU is kept out: {busy}");
        world.kill();
        world.start();
        assert!(read(&world, &format!("data/{format}")) == model, "{format} after a kill");
        scribble(&world, &format!("data/{format}"), &mut model, 2);
        assert_eq!(world.stop(), Some(0));
        compare(&world, image, format, &model);
        let length = fs::metadata(world.path(image)).expect("there").len();
        assert!(length <= (SIZE + (1 << 20)) as u64, "IMAGE2: the file ends where the image does: {length}");
        // And back: what QEMU writes is what the volume shows.
        qemu(&world, &format!("qemu-io -f {format} -c write~-q~-P~9~64k~64k {image}"));
        model[64 * KIB..128 * KIB].fill(9);
        world.start();
        assert!(read(&world, &format!("data/{format}")) == model, "{format} after QEMU wrote it");
    }
    let removed = world.ok("lv remove data/qcow2 -n");
    assert!(removed.contains("stays as it is"), "{removed}");
    world.ok("lv remove data/qcow2 -y");
    world.ok("lv rename data/raw disk");
    assert!(world.path("vm.qcow2").exists());
    qemu(&world, "qemu-img check -q -f qcow2 vm.qcow2");
    assert_eq!(world.stop(), Some(0));
    assert!(world.ok("check d1 d2").contains("nothing is damaged"));
}

fn refused_by_qemu(world: &World, words: &[&str]) -> String {
    let output = Command::new("qemu-io").args(words).current_dir(world.path("")).output();
    let output = output.expect("qemu-io is installed");
    assert!(!output.status.success(), "it is refused");
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn a_volume_in_an_image_grows_with_its_image_while_it_is_in_use() {
    let mut world = World::with_group();
    // Clusters so small that the tables have to move.
    qemu(&world, "qemu-img create -q -f qcow2 -o cluster_size=512 vm.qcow2 1M");
    fs::write(world.path("vm.raw"), vec![0; 1 << 20]).expect("written");
    for format in ["qcow2", "raw"] {
        let (name, image) = (format!("data/{format}"), format!("vm.{format}"));
        world.ok(&format!("lv create {name} --image {image} --format {format}"));
        let mut model = content(3, 1 << 20);
        world.ok(&format!("export create {name} --nbd unix:client.sock"));
        let mut client = Client::new(&world.path("client.sock"), &name);
        client.write(0, &model).expect("written");
        let planned = world.ok(&format!("lv extend {name} --size +3M -n"));
        assert!(planned.contains("from 1.0 MiB to 4.0 MiB"), "{planned}");
        world.ok(&format!("lv extend {name} --size +3M"));
        client.write(0, &model[..4096]).expect("the connection goes on");
        drop(client);
        model.resize(SIZE, 0);
        assert!(Client::new(&world.path("client.sock"), &name).read_all() == model, "{format}");
        world.ok("export remove client.sock -y");
        scribble(&world, &name, &mut model, 4);
        world.refused(&format!("lv reduce {name} --size 1M -y"), 2, "V0305");
        world.refused(&format!("lv extend {name} --size 10%FREE"), 2, "V0305");
        assert_eq!(world.stop(), Some(0));
        compare(&world, &image, format, &model);
        // Others make it larger, too.
        qemu(&world, &format!("qemu-img resize -q -f {format} {image} 6M"));
        world.start();
        let refused = world.refused(&format!("export create {name} --nbd unix:a.sock"), 7, "V0307");
        assert!(refused.contains("--size 6291456B"), "{refused}");
        world.ok(&format!("lv extend {name} --size 6291456B"));
        model.resize(6 << 20, 0);
        assert!(read(&world, &name) == model, "{format}");
    }
}

#[test]
fn an_interrupted_extension_is_made_again() {
    let mut world = World::with_group();
    qemu(&world, "qemu-img create -q -f qcow2 vm 1M");
    world.ok("lv create data/v --image vm --format qcow2");
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault("image-grown");
    assert_ne!(world.run("lv extend data/v --size 3M").exit, 0);
    world.wait_for_death();
    world.start();
    // IMAGEVOL1
    world.refused("export create data/v --nbd unix:a.sock", 7, "V0307");
    world.ok("lv extend data/v --size 3M");
    assert_eq!(read(&world, "data/v").len(), 3 << 20);
}

#[test]
fn a_volume_is_not_used_while_its_image_is_not_there_or_is_used_by_others() {
    let mut world = World::with_group();
    qemu(&world, "qemu-img create -q -f qcow2 vm 1M");
    world.ok("lv create data/v --image vm --format qcow2");
    world.ok("lv create data/other --size 4M");
    // IMAGEVOL2
    let in_use = world.refused("lv create data/w --image vm --format qcow2", 5, "V0104");
    assert!(in_use.contains("in use"), "{in_use}");
    world.ok("pool create data/p --size 40M");
    world.refused("lv create data/t --pool p --image vm --format qcow2", 5, "V0104");
    world.refused("pv create vm -y", 5, "V0104");
    let unusable = |world: &mut World, says: &str| {
        let refused = world.refused("export create data/v --nbd unix:a.sock", 7, "V0307");
        assert!(refused.contains(says) && refused.contains("varve pv scan"), "{refused}");
        assert!(world.ok("status").contains("lv data/v is unusable"), "{}", world.ok("status"));
        assert_eq!(world.data("lv show data/other")["state"], "active");
    };
    assert_eq!(world.stop(), Some(0));

    fs::rename(world.path("vm"), world.path("away")).expect("renamed");
    world.start();
    unusable(&mut world, "there is no such file");
    fs::rename(world.path("away"), world.path("vm")).expect("renamed");
    world.ok("pv scan");
    read(&world, "data/v");
    assert_eq!(world.stop(), Some(0));

    // A virtual machine has it.
    let mut other = Command::new("qemu-nbd");
    let socket = world.path("qemu.sock");
    other.args(["-t", "-f", "qcow2", "-k"]).arg(&socket).arg(world.path("vm"));
    let mut other = other.spawn().expect("qemu-nbd is installed");
    wait_for(&socket);
    world.start();
    unusable(&mut world, "in use");
    other.kill().and_then(|()| other.wait()).expect("it ends");
    world.ok("pv scan");
    read(&world, "data/v");
    assert_eq!(world.stop(), Some(0));

    qemu(&world, "qemu-img resize -q --shrink -f qcow2 vm 512k");
    world.start();
    // IMAGEVOL1
    unusable(&mut world, "holds a disk of 512.0 KiB");
    world.ok("lv remove data/v -y");
    world.ok("lv create data/v --image vm --format qcow2");
    assert_eq!(read(&world, "data/v").len(), 512 * KIB);
}

#[test]
fn snapshots_show_what_a_volume_in_an_image_was() {
    let mut world = World::with_group();
    for format in ["raw", "qcow2"] {
        let (name, image) = (format!("data/{format}"), format!("vm.{format}"));
        qemu(&world, &format!("qemu-img create -q -f {format} {image} {}", SIZE + 4 * KIB));
        world.ok(&format!("lv create {name} --image {image} --format {format}"));
        let mut model = vec![0; SIZE + 4 * KIB];
        scribble(&world, &name, &mut model, 1);
        world.ok(&format!("snap create {name}@one --read-only"));
        let one = model.clone();
        scribble(&world, &name, &mut model, 2);
        world.ok(&format!("snap create {name}@two"));
        let mut two = model.clone();
        scribble(&world, &format!("{name}@two"), &mut two, 3);
        world.ok(&format!("lv extend {name} --size +1M"));
        model.resize(model.len() + (1 << 20), 0);
        scribble(&world, &name, &mut model, 4);
        world.kill();
        world.start();
        let shown = |world: &World, snapshot: &str| read(world, &format!("{name}@{snapshot}"));
        assert!(read(&world, &name) == model && shown(&world, "one") == one, "{format} after a kill");
        assert!(shown(&world, "two") == two, "{format}");
        assert_eq!(world.stop(), Some(0));
        compare(&world, &image, format, &model);
        world.start();
        assert!(read(&world, &name) == model && shown(&world, "one") == one, "{format} after a stop");
        world.ok(&format!("snap rollback {name}@two -y"));
        model[..two.len()].copy_from_slice(&two);
        model[two.len()..].fill(0);
        assert!(read(&world, &name) == model && shown(&world, "one") == one, "{format} rolled back");
        assert_eq!(world.stop(), Some(0));
        compare(&world, &image, format, &model);
        world.start();
    }
    assert_eq!(world.stop(), Some(0));
    assert!(world.ok("check d1 d2").contains("nothing is damaged"));
}

#[test]
fn an_image_that_was_written_past_the_snapshots_of_its_volume_is_not_used() {
    let mut world = World::with_group();
    qemu(&world, "qemu-img create -q -f qcow2 vm 4M");
    world.ok("lv create data/v --image vm --format qcow2");
    world.ok("snap create data/v@s");
    let write = "qemu-io -f qcow2 -c write~-q~-P~9~0~4k vm";
    let refused = |world: &World, command: &str| {
        let said = world.refused(command, 7, "V0307");
        assert!(said.contains("past the snapshots") && said.contains("touch -d "), "{said}");
        let touch = said.split("touch -d ").nth(1).and_then(|rest| rest.split(',').next());
        format!("touch~-d~{}", touch.expect("a command").replace(' ', "~"))
    };
    // Stopped, written by others, and begun again.
    assert_eq!(world.stop(), Some(0));
    qemu(&world, write);
    world.start();
    // LEFT1
    let touch = refused(&world, "export create data/v --nbd unix:a.sock");
    qemu(&world, &touch.replace('~', " "));
    world.ok("pv scan");
    assert_eq!(read(&world, "data/v")[0], 9, "it is as others left it");
    // Taken out of use for a virtual machine.
    world.ok("lv deactivate data/v");
    qemu(&world, write);
    refused(&world, "lv activate data/v");
    assert_eq!(world.stop(), Some(0));
    world.start();
    refused(&world, "export create data/v --nbd unix:a.sock");
    qemu(&world, &refused(&world, "lv activate data/v").replace('~', " "));
    world.ok("pv scan");
    world.ok("snap remove data/v@s -y");
    world.ok("lv remove data/v -y");
    // LEFT2: the daemon's own writes are no others', also after a kill.
    world.ok("lv create data/v --image vm --format qcow2");
    world.ok("snap create data/v@s");
    assert_eq!(world.stop(), Some(0));
    world.start();
    scribble(&world, "data/v", &mut vec![0; SIZE], 1);
    world.kill();
    world.start();
    read(&world, "data/v");
}

fn wait_for(path: &Path) {
    while !path.exists() {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_no_image_is_no_volume() {
    let world = World::with_group();
    let make = |words: &str| format!("lv create data/v --image {words}");
    world.refused(&make("absent"), 3, "V0114");
    fs::write(world.path("odd"), vec![0; 5000]).expect("written");
    let odd = world.refused(&make("odd"), 2, "V0316");
    assert!(odd.contains("truncate -s %4096"), "{odd}");
    qemu(&world, "qemu-img create -q -f qcow2 q 1M");
    // IMAGES3
    let unsaid = world.refused(&make("q"), 2, "V0316");
    assert!(unsaid.contains("--format qcow2 if it is one"), "{unsaid}");
    world.refused(&make("odd --format qcow2"), 2, "V0316");
    world.refused(&make("q --format qcow2 --size 1M"), 2, "V0002");
    world.refused(&make("q --format qcow2 --type striped --stripes 2"), 2, "V0002");
    world.refused(&make("d1 --format raw"), 5, "V0104");
    qemu(&world, "truncate -s %4096 q");
    world.ok(&make("q --format raw"));
    assert_eq!(&read(&world, "data/v")[..4], b"QFI\xfb");
    assert!(!world.ok("vg backup data text").is_empty());
}

/// A chain of `depth` images over a raw base, each with something of its own, and what the last one shows.
pub(crate) fn chain(world: &World, depth: usize) -> (String, Vec<u8>) {
    let mut model = content(5, SIZE - 100 * KIB);
    fs::create_dir_all(world.path("images")).expect("a folder");
    fs::write(world.path("images/0"), &model).expect("written");
    model.resize(SIZE, 0);
    for layer in 1..=depth {
        let (below, format) = (layer - 1, if layer == 1 { "raw" } else { "qcow2" });
        qemu(world, &format!("qemu-img create -q -f qcow2 -u -b {below} -F {format} images/{layer} 4M"));
        if layer % 3 != depth % 3 {
            continue;
        }
        let (at, value) = (layer * 112 % 3900, layer % 250);
        qemu(world, &format!("qemu-io -f qcow2 -c write~-q~-P~{value}~{at}k~4k images/{layer}"));
        model[at * KIB..(at + 4) * KIB].fill(u8::try_from(value).expect("a byte"));
    }
    (format!("images/{depth}"), model)
}

#[test]
fn backing_files_are_opened_in_folders_that_the_daemon_was_told_of() {
    let mut world = World::with_group();
    let (top, mut model) = chain(&world, 3);
    let make = format!("lv create data/v --image {top} --format qcow2");
    let refused = world.refused(&make, 7, "V0318");
    assert!(refused.contains("varve daemon --image-dir"), "LAYERS1: {refused}");
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok(&make);
    assert!(read(&world, "data/v") == model);
    scribble(&world, "data/v", &mut model, 6);
    // The images below are read by other volumes, too, and written by none.
    world.ok("pool create data/p --size 100M");
    world.ok("lv create data/t --pool p --image images/2 --format qcow2");
    assert_eq!(read(&world, "data/t").len(), SIZE);
    world.refused("lv create data/w --image images/1 --format qcow2", 5, "V0104");
    let events = world.ok("status");
    assert!(events.contains("opened as the backing file of"), "{events}");
    assert_eq!(world.stop(), Some(0));
    compare(&world, &top, "qcow2", &model);
    world.start();
    let unusable = world.refused("export create data/v --nbd unix:a.sock", 7, "V0318");
    assert!(unusable.contains("no folder that the daemon may open"), "{unusable}");
    assert_eq!(world.stop(), Some(0));
    // A link leads out of the folder.
    fs::rename(world.path("images/1"), world.path("outside")).expect("renamed");
    std::os::unix::fs::symlink(world.path("outside"), world.path("images/1")).expect("linked");
    world.start_with("--image-dir images");
    world.refused("export create data/v --nbd unix:a.sock", 7, "V0318");
    assert_eq!(world.stop(), Some(0));
    fs::remove_file(world.path("images/1")).expect("it is there");
    fs::rename(world.path("outside"), world.path("images/1")).expect("renamed");
    // A chain without an end.
    qemu(&world, "qemu-img rebase -q -u -f qcow2 -F qcow2 -b 3 images/1");
    world.start_with("--image-dir images");
    let endless = world.refused("export create data/v --nbd unix:a.sock", 7, "V0307");
    assert!(endless.contains("no end"), "LAYERS2: {endless}");
}

#[test]
fn a_long_chain_and_a_thin_volume_over_it_show_what_qemu_does() {
    let mut world = World::new();
    let (top, mut model) = chain(&world, 30);
    world.start_with("--image-dir images");
    world.ok("pv create d1 --size 200M");
    world.ok("vg create data d1");
    world.ok("pool create data/p --size 100M");
    world.ok(&format!("lv create data/t --pool p --image {top} --format qcow2"));
    assert!(read(&world, "data/t") == model, "thin");
    world.ok("lv remove data/t -y");
    world.ok(&format!("lv create data/v --image {top} --format qcow2"));
    assert!(read(&world, "data/v") == model);
    scribble(&world, "data/v", &mut model, 7);
    assert_eq!(world.stop(), Some(0));
    compare(&world, &top, "qcow2", &model);
}

#[test]
fn an_image_that_a_text_from_elsewhere_names_is_opened_after_consent_only() {
    let mut world = World::with_group();
    qemu(&world, "qemu-img create -q -f qcow2 vm 1M");
    qemu(&world, "qemu-img create -q -f qcow2 other 1M");
    qemu(&world, "qemu-io -f qcow2 -c write~-q~-P~8~0~4k other");
    world.ok("lv create data/v --image vm --format qcow2");
    world.ok("vg backup data text");
    let text = fs::read_to_string(world.path("text")).expect("a backup");
    let path = |name: &str| world.path(name).to_str().expect("UTF-8").to_owned();
    let mended = text.replace(&path("vm"), &path("other"));
    assert_ne!(mended, text);
    fs::write(world.path("text"), mended).expect("a writable folder");
    world.ok("vg restore data text --drop data/v -y");
    let refused = world.refused("export create data/v --nbd unix:a.sock", 7, "V0318");
    assert!(refused.contains("nobody has agreed"), "{refused}");
    assert!(world.ok("pv scan --trust-images -n").contains("other"));
    world.ok("pv scan --trust-images");
    assert_eq!(read(&world, "data/v")[..4096], [8; 4096]);
    // A closed image may be used by any program.
    world.ok("lv deactivate data/v");
    qemu(&world, "qemu-io -f qcow2 -c write~-q~-P~9~0~4k other");
    world.ok("lv activate data/v");
    assert_eq!(read(&world, "data/v")[..4096], [9; 4096]);
    assert_eq!(world.stop(), Some(0));
}

fn same(shown: &[u8], model: &[u8]) {
    let differ = shown.iter().zip(model).position(|(one, other)| one != other);
    assert_eq!((shown.len(), differ), (model.len(), None), "the first byte that differs");
}

#[test]
fn a_volume_takes_in_what_lies_below_its_image_while_it_is_used() {
    let mut world = World::with_group();
    let (top, mut model) = chain(&world, 3);
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok(&format!("lv create data/v --image {top} --format qcow2"));
    world.ok("snap create data/v@before");
    let before = model.clone();
    // A discard of a volume with snapshots may do nothing.
    disconnect(&world, write(&world, "data/v", &mut model, 8));
    let would = world.ok("lv flatten data/v -n");
    assert!(would.contains("what lies below its image"), "{would}");
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault_and("image-pulled", "--image-dir images");
    assert_ne!(world.run("lv flatten data/v --wait").exit, 0);
    world.wait_for_death();
    world.start_with("--image-dir images");
    let end = Instant::now() + Duration::from_secs(60);
    while world.data("job list").to_string().contains("running") {
        assert!(Instant::now() < end, "{}", world.data("job list"));
    }
    assert!(world.data("job list").to_string().contains("image-flatten"), "it goes on");
    disconnect(&world, write(&world, "data/v", &mut model, 9));
    same(&read(&world, "data/v"), &model);
    same(&read(&world, "data/v@before"), &before);
    let again = world.refused("lv flatten data/v", 2, "V0002");
    assert!(again.contains("is backed by nothing"), "{again}");
    assert_eq!(world.stop(), Some(0));
    assert!(!qemu(&world, &format!("qemu-img info {top}")).contains("backing file"));
    // It needs no folder, and no image below, any more.
    fs::rename(world.path("images/2"), world.path("away")).expect("renamed");
    world.start();
    assert!(read(&world, "data/v") == model && read(&world, "data/v@before") == before, "alone");
    assert_eq!(world.stop(), Some(0));
    compare(&world, &top, "qcow2", &model);
}

#[test]
fn what_cannot_be_flattened_says_so() {
    let mut world = World::with_group();
    let (top, model) = chain(&world, 1);
    qemu(&world, &format!("qemu-img snapshot -c kept {top}"));
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok(&format!("lv create data/v --image {top} --format qcow2"));
    let refused = world.refused("lv flatten data/v", 2, "V0002");
    assert!(refused.contains("internal snapshots"), "{refused}");
    assert!(read(&world, "data/v") == model);
    world.ok("lv deactivate data/v");
    world.refused("lv flatten data/v", 5, "V0321");
    fs::write(world.path("plain"), vec![0; 1 << 20]).expect("written");
    world.ok("lv create data/w --image plain");
    world.refused("lv flatten data/w", 2, "V0002");
}
