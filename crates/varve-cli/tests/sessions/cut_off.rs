//! Disk files that other programs cut short while they are in use, under load: what is lost is never read, nor computed with.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use crate::image_volumes::qemu;
use crate::replacing::wait_for_members;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(120);
const BLOCK: usize = 4096;
const SIZE: u64 = 600 << 20;
const VOLUMES: [(&str, &str); 4] = [
    ("m", "--type mirror --copies 2 --on d1,d2"),
    ("c", "--type mirror --copies 2 --on d1,d2 --checksums"),
    ("r", "--type ddraid --order 1 --read-policy data"),
    ("v", "--type ddraid --order 1 --read-policy verify"),
];

/// A client of a volume that knows what each of its blocks holds.
struct Load {
    client: Client,
    name: &'static str,
    blocks: Vec<u64>,
    seed: u64,
}

impl Load {
    /// One that has written every block.
    fn new(world: &World, name: &'static str) -> Self {
        let client = Client::new(&world.path(&format!("{name}.sock")), &format!("data/{name}"));
        let count = usize::try_from(client.size).expect("small") / BLOCK;
        let mut load = Self { client, name, blocks: vec![0; count], seed: 7 };
        (0..count).for_each(|at| load.write(at));
        load.client.flush();
        load
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.seed >> 33).expect("31 bits") % below
    }

    fn write(&mut self, at: usize) {
        self.blocks[at] = self.seed | 1 << 60 | 1;
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let written =
            self.client.write((at * BLOCK) as u64, &self.blocks[at].to_le_bytes().repeat(BLOCK / 8));
        assert_eq!(written, Ok(()), "{}: block {at}: the others have all data", self.name);
    }

    fn check(&mut self, at: usize) {
        let found = self.client.read((at * BLOCK) as u64, BLOCK);
        let expected = self.blocks[at].to_le_bytes().repeat(BLOCK / 8);
        assert!(
            found.as_ref() == Ok(&expected),
            "{}: block {at}: {:?}",
            self.name,
            found.map(|found| found[..8].to_vec())
        );
    }

    fn check_all(&mut self) {
        (0..self.blocks.len()).for_each(|at| self.check(at));
    }

    /// A few requests.
    fn work(&mut self) {
        for _ in 0..8 {
            let at = self.random(self.blocks.len());
            self.check(at);
            let at = self.random(self.blocks.len());
            self.write(at);
        }
        if self.random(4) == 0 {
            self.client.flush();
        }
    }
}

fn cut(path: &Path, length: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("a disk");
    file.set_len(length).expect("it gets another length");
}

/// Clients that go on while `disturb` is done, and for a while after it.
fn work_during(loads: &mut [Load], disturb: impl FnOnce() + Send) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            disturb();
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            loads.iter_mut().for_each(Load::work);
        }
    });
    (0..8).for_each(|_| loads.iter_mut().for_each(Load::work));
}

#[test]
fn a_disk_that_is_cut_short_under_load_is_read_no_more_and_filled_anew() {
    let world = World::with_group();
    world.ok("pv create d3 --size 600M");
    world.ok("vg extend data d3");
    for (name, words) in VOLUMES {
        world.ok(&format!("lv create data/{name} --size 8M {words}"));
        world.ok(&format!("export create data/{name} --nbd unix:{name}.sock"));
    }
    let mut loads = VOLUMES.map(|(name, _)| Load::new(&world, name));
    let disk = world.path("d1");
    for round in 0..2 {
        work_during(&mut loads, || {
            std::thread::sleep(Duration::from_millis(30));
            cut(&disk, (3 + round) << 20);
            if round == 1 {
                cut(&disk, SIZE); // It may have been seen in between.
            }
            wait_until_shown(&world, "d1", "failed");
        });
        let away = |name: &str| world.ok(&format!("array show data/{name}")).matches("away").count();
        let begun = Instant::now();
        while VOLUMES.iter().any(|(name, _)| away(name) != 1) {
            assert!(begun.elapsed() < SOON, "REFILL2: {}", world.ok("lv list"));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(shown(&world, "d1").1.contains("cut"), "{}", shown(&world, "d1").1);
        cut(&disk, SIZE);
        world.ok("pv scan");
        wait_for_members(&world, &VOLUMES.map(|(name, _)| name));
        loads.iter_mut().for_each(Load::check_all);
        for (name, _) in VOLUMES {
            assert!(world.ok(&format!("array scrub data/{name} --wait")).contains("all members fit"));
            world.ok(&format!("array fail data/{name} d2"));
        }
        loads.iter_mut().for_each(Load::check_all); // REFILL2: what the disk has is what it should have.
        world.ok("pv scan d2");
        wait_for_members(&world, &VOLUMES.map(|(name, _)| name));
    }
}

/// What the list says of a disk.
fn shown(world: &World, disk: &str) -> (String, String) {
    let path = world.path(disk).display().to_string();
    let disks = world.data("pv list");
    let mut disks = disks.as_array().expect("a list").iter();
    let disk = disks.find(|disk| disk["path"] == path.as_str()).expect("it is known");
    let word = |name: &str| disk[name].as_str().unwrap_or_default().to_owned();
    (word("state"), word("reason"))
}

fn wait_until_shown(world: &World, disk: &str, state: &str) -> String {
    let begun = Instant::now();
    loop {
        let (found, reason) = shown(world, disk);
        if found == state {
            return reason;
        }
        assert!(begun.elapsed() < SOON, "{found}: {reason}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_disk_that_returns_as_an_older_copy_of_itself_is_used_by_nothing_but_arrays() {
    let world = World::with_group();
    world.ok("lv create data/a --size 32M --on d1");
    world.ok("pool create data/p --size 32M --on d1");
    world.ok("lv create data/t --pool p --size 16M");
    for name in ["a", "t"] {
        world.ok(&format!("export create data/{name} --nbd unix:{name}.sock"));
    }
    let mut loads = ["a", "t"].map(|name| Load::new(&world, name));
    let copy = |to: &str| {
        std::fs::copy(world.path("d1"), world.path(to)).expect("it can be read");
    };
    copy("older");
    for load in &mut loads {
        (100..200).for_each(|at| load.write(at));
        load.client.flush();
    }
    copy("newest");
    cut(&world.path("d1"), 2 << 20);
    wait_until_shown(&world, "d1", "failed");
    let clients = loads.map(|Load { name, blocks, .. }| (name, blocks));

    std::fs::rename(world.path("older"), world.path("d1")).expect("put in its place");
    world.ok("pv scan");
    let (state, reason) = shown(&world, "d1");
    assert!(
        state == "missing" && reason.contains("is older than when it left"),
        "RESCAN4: {state}: {reason}"
    );
    let message = world.refused("pv scan d1", 7, "V0125");
    assert!(message.contains("varve pv scan"), "{message}");
    assert!(world.ok("status").contains("is older than when it left"), "{}", world.ok("status"));
    assert_ne!(world.data("lv show data/a")["state"], "active", "RESCAN4");

    std::fs::rename(world.path("newest"), world.path("d1")).expect("put in its place");
    world.ok("pv scan");
    assert_eq!(shown(&world, "d1"), ("ok".to_owned(), String::new()));
    for (name, blocks) in clients {
        let client = Client::new(&world.path(&format!("{name}.sock")), &format!("data/{name}"));
        Load { client, name, blocks, seed: 1 }.check_all();
    }
}

#[test]
fn a_disk_file_that_is_deleted_or_renamed_in_use_is_told_of_while_it_can_be_saved() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 16M --on d1");
    world.ok("export create data/a --nbd unix:a.sock");
    let mut load = Load::new(&world, "a");
    std::fs::rename(world.path("d1"), world.path("elsewhere")).expect("moved");
    let reason = wait_until_shown(&world, "d1", "unlinked");
    assert!(reason.contains("varve pv scan PATH"), "{reason}");
    std::fs::rename(world.path("elsewhere"), world.path("d1")).expect("moved back");
    wait_until_shown(&world, "d1", "ok");
    assert_eq!(world.run("status --check").exit, 0);

    std::fs::remove_file(world.path("d1")).expect("deleted");
    let reason = wait_until_shown(&world, "d1", "unlinked");
    assert!(reason.contains("varve pv move") && reason.contains("was deleted"), "{reason}");
    let checked = world.run("status --check");
    assert_eq!(checked.exit, 7, "{}", checked.stdout);
    assert!(checked.stdout.contains("varve pv move"), "{}", checked.stdout);
    load.check_all();
    world.ok(&format!("pv move {} --wait", world.path("d1").display()));
    world.ok("vg reduce data d1 -y");
    drop(load.client);
    assert_eq!(world.stop(), Some(0));
    world.start();
    load.client = Client::new(&world.path("a.sock"), "data/a");
    load.check_all();
}

#[test]
fn a_disk_file_of_which_a_block_is_left_can_be_given_up() {
    let mut world = World::started();
    world.ok("pv create d1 d2 --size 64M");
    assert_eq!(world.stop(), Some(0));
    cut(&world.path("d1"), 4096);
    cut(&world.path("d2"), 0);
    world.start();
    world.ok("pv remove d1 -y");
    world.ok("pv remove d2 -y");
    assert_eq!(world.data("pv list").as_array().map(Vec::len), Some(0));
    assert!(std::fs::read(world.path("d1")).expect("it is there").iter().all(|byte| *byte == 0));
    assert_eq!(world.stop(), Some(0));
}

#[test]
fn a_file_below_volumes_that_is_cut_short_is_named_and_read_again_when_it_is_whole() {
    let mut world = World::new();
    world.start_with("--image-dir .");
    world.ok("pv create d1 --size 200M");
    world.ok("vg create data d1");
    let (whole, base) = (vec![7; 16 << 20], world.path("base"));
    std::fs::write(&base, &whole).expect("written");
    let date = std::fs::metadata(&base).and_then(|known| known.modified()).expect("dated");
    qemu(&world, "qemu-img create -q -f qcow2 -b base -F raw top");
    world.ok("lv create data/i --image top --format qcow2");
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --image base --format raw");
    for volume in ["i", "t"] {
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
        let client = || Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
        let mut reader = client();
        assert_eq!(reader.read(0, BLOCK), Ok(vec![7; BLOCK]));
        cut(&base, 1 << 20);
        let end = Instant::now() + SOON;
        while reader.read(8 << 20, BLOCK).is_ok() {
            assert!(Instant::now() < end, "{volume}: what was cut off is read no more");
        }
        wait_until_named(&world, "base", &format!("data/{volume}"));
        // A scan opens it anew, and does not take the rest for zeros.
        world.run("pv scan");
        assert!(reader.read(8 << 20, BLOCK).is_err(), "READFILES1: {volume}");
        wait_until_named(&world, "base", &format!("data/{volume}"));
        let mut back = std::fs::File::options().write(true).open(&base).expect("there");
        back.write_all(&whole).and_then(|()| back.set_modified(date)).expect("as it was");
        world.ok("pv scan");
        world.ok("status --check");
        assert!(client().read_all() == whole, "{volume}: it is read again");
    }
    assert_eq!(world.stop(), Some(0));
}

/// Until the status says that a file was cut short, and that a volume suffers from it.
fn wait_until_named(world: &World, file: &str, volume: &str) {
    let end = Instant::now() + SOON;
    loop {
        let checked = world.run("status --check");
        let rows = &checked.stdout;
        if rows.contains("cut short") && rows.contains(file) && rows.contains(volume) {
            assert_eq!(checked.exit, 7, "{rows}");
            return;
        }
        assert!(Instant::now() < end, "{rows}");
    }
}
