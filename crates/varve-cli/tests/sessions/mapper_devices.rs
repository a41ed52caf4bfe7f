//! Volumes of a group that a mapper may name: used through it, through stops, kills and moves, and by nothing else.
#![expect(clippy::disallowed_methods, reason = "a mapper serves in a thread of its own")]

use crate::client::Client;
use crate::harness::World;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use varve_mapper::wire::{Extent, Hello, Intent, Place, Welcome};
use varve_mapper::{Mapper, Session, serve};

const MIB: u64 = 1 << 20;
const HALF: u64 = 4 * MIB;

/// The first half lies on one device, the other half on the next.
struct Halves {
    /// The number of the first device.
    first: Arc<AtomicU32>,
}

impl Mapper for Halves {
    fn hello(&mut self, hello: &Hello, _: &Session) -> io::Result<Welcome> {
        assert!(hello.devices.iter().all(|device| device.size == HALF && device.is_writable));
        Ok(Welcome::default())
    }

    fn map(&mut self, offset: u64, _: u64, _: Intent) -> Vec<Extent> {
        let half = offset / HALF;
        let device = self.first.load(Ordering::Relaxed) + u32::try_from(half).expect("small");
        vec![Extent::new(half * HALF, HALF, Place::Data { device, offset: 0 })]
    }
}

/// Serves in a thread as long as the test runs.
fn start(socket: &Path) -> Arc<AtomicU32> {
    let first = Arc::new(AtomicU32::new(0));
    let (listener, mut halves) =
        (UnixListener::bind(socket).expect("a socket"), Halves { first: Arc::clone(&first) });
    std::thread::spawn(move || {
        for engine in listener.incoming() {
            let _ended = serve(engine.expect("it listens"), &mut halves);
        }
    });
    first
}

/// The client of a mapped volume that is served.
fn client(world: &World) -> Client {
    Client::new(&world.path("m.sock"), "data/m")
}

fn made() -> (World, Arc<AtomicU32>) {
    let world = World::with_group();
    let first = start(&world.path("map.sock"));
    world.ok("lv create data/a --size 4M --on d1");
    world.ok("lv create data/b --size 4M --on d1");
    world.ok("lv create data/m --mapper unix:map.sock --size 8M --device data/a --device data/b");
    world.ok("export create data/m --nbd unix:m.sock");
    (world, first)
}

#[test]
fn a_mapped_volume_lies_on_volumes_of_its_group() {
    let (mut world, _first) = made();
    let mut model = vec![0_u8; 8 << 20];
    let mut write = |world: &World, at: usize, value: u8| {
        let mut volume = client(world);
        volume.fill(at as u64, 300_000, value).expect("written");
        model[at..at + 300_000].fill(value);
        volume.flush();
        assert!(volume.read_all() == model, "{at}");
        model.clone()
    };
    write(&world, 5000, 1);
    write(&world, (4 << 20) - 100_000, 2);
    let (mapped, device) = (world.data("lv show data/m"), world.data("lv show data/b"));
    assert_eq!(mapped["mapper"]["devices"], serde_json::json!(["data/a", "data/b"]));
    assert_eq!(device["granted_to"], "data/m");
    assert!(world.ok("lv show data/a").contains("device of"));
    world.kill();
    world.start();
    write(&world, 6 << 20, 3);
    world.ok("pv move d1 d2");
    let now = write(&world, 1 << 20, 4);
    assert_eq!(world.stop(), Some(0), "it goes before its devices");
    world.start();
    assert!(client(&world).read_all() == now, "after a stop");
    // What lies on them belongs to them when no mapper maps it any more.
    world.ok("export remove m.sock -y");
    world.ok("lv remove data/m -y");
    world.ok("export create data/b --nbd unix:b.sock");
    assert!(Client::new(&world.path("b.sock"), "data/b").read_all() == now[4 << 20..], "data/b");
}

/// The same, which is asked to keep its mapping.
struct Kept(Halves);

impl Mapper for Kept {
    fn hello(&mut self, hello: &Hello, session: &Session) -> io::Result<Welcome> {
        Ok(Welcome { is_persistent: true, ..self.0.hello(hello, session)? })
    }

    fn map(&mut self, offset: u64, length: u64, intent: Intent) -> Vec<Extent> {
        self.0.map(offset, length, intent)
    }
}

#[test]
fn a_mapper_that_is_away_takes_no_time_of_a_stop_from_its_devices() {
    let mut world = World::with_group();
    assert_eq!(world.stop(), Some(0));
    world.start_with("--stop-timeout 3");
    let listener = UnixListener::bind(world.path("map.sock")).expect("a socket");
    world.ok("lv create data/a --size 4M");
    world.ok("lv create data/b --size 4M");
    world.ok("lv create data/m --mapper unix:map.sock --size 8M --device data/a --device data/b");
    let (engine, _) = listener.accept().expect("the daemon connects");
    drop(listener);
    let connection = engine.try_clone().expect("a socket");
    std::thread::spawn(move || serve(engine, &mut Kept(Halves { first: Arc::default() })));
    world.ok("export create data/m --nbd unix:m.sock");
    client(&world).fill(0, MIB, 1).expect("written");
    connection.shutdown(Shutdown::Both).expect("it is connected");
    while world.data("lv show data/m")["state"] != "waiting" {}
    assert_eq!(world.stop(), Some(1), "what was acknowledged is lost");
    let log = world.log();
    assert!(log.contains("data/m could not be made durable: its mapper is away: "), "{log}");
    assert_eq!(
        log.matches("could not be made durable: ").count(),
        2,
        "STOP4, once in the log and once at its end: {log}"
    );
}

#[test]
fn a_device_of_a_mapper_is_nobody_elses() {
    let (mut world, first) = made();
    for (command, exit, code) in [
        ("export create data/a --nbd unix:a.sock", 5, "V0309"),
        ("lv remove data/a -y", 5, "V0309"),
        ("lv extend data/a --size 8M", 5, "V0309"),
        ("lv reduce data/a --size 1M -y", 5, "V0309"),
        ("snap create data/a@s", 5, "V0309"),
        ("lv deactivate data/a", 5, "V0309"),
        ("lv create data/n --mapper unix:map.sock --size 4M --device data/a", 5, "V0309"),
        ("lv create data/n --mapper unix:map.sock --size 4M --device data/absent", 3, "V0301"),
    ] {
        let refused = world.refused(command, exit, code);
        assert!(code != "V0309" || refused.contains("data/m"), "{refused}");
    }
    world.ok("lv create data/s --size 4M");
    world.ok("snap create data/s@one");
    world.refused("lv create data/n --mapper unix:map.sock --size 4M --device data/s", 5, "V0309");
    // It names what it was not given.
    first.store(1, Ordering::Relaxed);
    let mut volume = client(&world);
    volume.fill(5 * MIB, 4096, 1).expect_err("there is no device 2");
    assert_eq!(world.data("lv show data/m")["mapper"]["refused"], 1);
    drop(volume);
    // Without its devices it is not served.
    world.ok("export remove m.sock -y");
    world.ok("lv deactivate data/m");
    world.ok("lv deactivate data/a");
    world.refused("lv activate data/m", 7, "V0307");
    world.ok("lv activate data/a");
    world.ok("lv activate data/m");
    assert_eq!(world.data("lv show data/m")["state"], "active");
    assert_eq!(world.stop(), Some(0));
}
