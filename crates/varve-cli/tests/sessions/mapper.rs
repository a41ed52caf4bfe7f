//! Volumes that programs map: both examples at work as processes, killed and started again under clients; and programs that are away,
//! hang, or pass what they must not.

#![expect(clippy::disallowed_methods, reason = "real processes are waited for, and clients wait beside them")]

use crate::client::Client;
use crate::harness::{World, http};
use rustix::process::{Pid, Signal};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Of the base; the volume begins smaller.
const BASE: u64 = 12 * MIB;

/// How one of the examples is begun.
#[derive(Clone, Copy)]
enum Example {
    Python,
    Rust,
    /// The shortest, which keeps nothing and has one file.
    Backwards,
    /// The one that maps by a qcow2 image.
    Cowd,
}

/// A mapper, which is killed with the test.
struct Mapper(Child);

impl Mapper {
    fn start(world: &World, example: Example, base: &str) -> Self {
        let python = |program: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../varve-mapper/examples");
            let mut command = Command::new("python3");
            command.arg(Path::new(folder).join(program));
            command
        };
        let (mut command, names) = match example {
            Example::Python => (python("cow.py"), vec!["map.sock", base, "overlay"]),
            Example::Rust => (
                Command::new(built("examples/cow", &["-p", "varve-mapper", "--example", "cow"])),
                vec!["map.sock", base, "overlay"],
            ),
            Example::Backwards => (python("backwards.py"), vec!["map.sock", base]),
            Example::Cowd => {
                let mut command = Command::new(built("varve-cowd", &["-p", "varve-cowd"]));
                command.arg("--socket");
                (command, vec!["map.sock", base])
            }
        };
        let words = names.into_iter().map(|name| world.path(name));
        let child = command.args(words).stdin(Stdio::null()).spawn().expect("the mapper starts");
        Self(child)
    }

    /// Sends SIGKILL.
    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program is built with the tests of its crate; if these were not built it is built now, by these words.
fn built(program: &str, words: &[&str]) -> PathBuf {
    let own = std::env::current_exe().expect("a test is a program");
    let program = own.parent().and_then(Path::parent).expect("in its folder").join(program);
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "-q"]).args(words);
        assert!(build.status().expect("cargo is there").success());
    }
    program
}

fn content() -> Vec<u8> {
    (0..BASE).map(|at| ((at / 4096 * 7 + at) % 251) as u8).collect()
}

/// Waits until `is_so` is, which it is soon.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_state(world: &World, state: &str) {
    wait_until(state, || world.data("lv show data/m")["state"] == state);
}

fn client(world: &World) -> Client {
    Client::new(&world.path("m.sock"), "data/m")
}

#[test]
fn a_volume_is_mapped_by_a_program_in_python() {
    serves_through_deaths(Example::Python);
}

#[test]
fn a_volume_is_mapped_by_a_program_in_rust() {
    serves_through_deaths(Example::Rust);
}

/// The seed's system: a volume whose mapping a process keeps in an image, over another one.
#[test]
fn a_volume_is_mapped_by_a_qcow2_image_in_a_process_of_its_own() {
    let mut world = World::with_group();
    let folder = world.path("");
    let qemu = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(&folder).output();
        let output = output.expect("install qemu-utils");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let mut now = content();
    fs::write(world.path("base"), &now).expect("a writable folder");
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-b", "base", "-F", "raw", "image"]);
    let mapper = Mapper::start(&world, Example::Cowd, "image");
    world.ok("lv create data/m --mapper unix:map.sock --size 12M");
    world.ok("export create data/m --nbd unix:m.sock");
    let mut volume = client(&world);
    assert!(volume.read_all() == now, "the base shows");
    let mut write = |volume: &mut Client, at: u64, value: u8| {
        volume.fill(at, 100_000, value).expect("written");
        now[usize::try_from(at).expect("small")..][..100_000].fill(value);
    };
    write(&mut volume, 5000, 1);
    volume.flush();
    write(&mut volume, 3 * MIB + 7, 2); // The image does not lead to it yet.
    mapper.kill();
    wait_for_state(&world, "waiting");
    let mapper = Mapper::start(&world, Example::Cowd, "image");
    wait_for_state(&world, "active");
    write(&mut volume, 9 * MIB, 3);
    assert!(volume.read_all() == now, "nothing is lost");
    volume.flush();
    drop(volume);
    world.kill();
    world.start();
    assert!(client(&world).read_all() == now, "nor with the daemon");
    world.ok("export remove data/m");
    world.ok("lv remove data/m -y");
    let closed = || fs::metadata(world.path("image")).expect("there").len() < BASE;
    wait_until("the image is closed, and its file cut", closed);
    mapper.kill();
    qemu("qemu-img", &["check", "-q", "image"]);
    qemu("qemu-img", &["convert", "-O", "raw", "image", "flat"]);
    assert!(fs::read(world.path("flat")).expect("read") == now, "QEMU reads what was written");
}

fn serves_through_deaths(example: Example) {
    let mut world = World::with_group();
    let mut now = content();
    fs::write(world.path("base"), &now).expect("a writable folder");
    let planned = world.ok("lv create data/m --mapper unix:map.sock --size 8M -n");
    assert!(planned.contains("would create volume that a program at /"), "{planned}");
    world.ok("lv create data/m --mapper unix:map.sock --size 8M");
    let waiting = world.data("lv show data/m");
    assert_eq!((waiting["state"].as_str(), waiting["layout"].as_str()), (Some("waiting"), Some("mapper")));
    let mapper = Mapper::start(&world, example, "base");
    wait_for_state(&world, "active");
    world.ok("export create data/m --nbd unix:m.sock");
    let mut volume = client(&world);
    assert!(volume.read_all() == now[..8 << 20], "the base shows");
    let mut write = |volume: &mut Client, at: u64, value: u8| {
        volume.fill(at, 10_000, value).expect("written");
        now[usize::try_from(at).expect("small")..][..10_000].fill(value);
    };
    write(&mut volume, 5000, 1);
    volume.flush();
    write(&mut volume, 3 * MIB + 7, 2); // The mapper hears of it again when it is back.

    mapper.kill();
    wait_for_state(&world, "waiting");
    assert_eq!(volume.read(5000, 10_000), Ok(vec![1; 10_000]), "what it answered is served");
    write(&mut volume, 3 * MIB + 100, 3);
    let problems = world.data("status")["problems"].to_string();
    assert!(problems.contains("lv data/m is waiting: its mapper is away"), "{problems}");
    let socket = world.path("m.sock");
    let waits = std::thread::spawn(move || Client::new(&socket, "data/m").fill(5 * MIB, 10_000, 4));
    let mapper = Mapper::start(&world, example, "base");
    assert_eq!(waits.join().expect("it ends"), Ok(()), "it waited for the mapper");
    now[5 << 20..][..10_000].fill(4);
    assert!(volume.read_all() == now[..8 << 20], "nothing is lost");

    world.ok("lv extend data/m --size 12M");
    let mut volume = client(&world);
    assert!(volume.size == BASE && volume.read_all() == now, "it has grown");
    world.ok("snap create data/m@s");
    let before = now.clone();
    volume.fill(11 * MIB, 5000, 5).expect("copied, then written");
    now[11 << 20..][..5000].fill(5);
    volume.flush();
    world.kill();
    world.start();
    wait_for_state(&world, "active");
    assert!(client(&world).read_all() == now, "after a kill of the daemon");
    world.ok("export create data/m@s --nbd unix:s.sock");
    assert!(Client::new(&world.path("s.sock"), "data/m@s").read_all() == before, "the snapshot stays");

    let shown = world.data("lv show data/m");
    assert!(shown["mapper"]["questions"].as_u64() > Some(0), "{shown}");
    assert!(world.ok("lv show data/m").contains("map.sock, connected; "));
    let metrics = http(&world.path("varve.sock"), "/metrics");
    assert!(metrics.contains("varve_mapper_connected{volume=\"data/m\"} 1\n"), "{metrics}");
    assert!(world.ok("status").contains("connected to its mapper at unix:/"));
    assert!(fs::read(world.path("base")).expect("a file") == content(), "the base stays");
    assert_eq!(world.stop(), Some(0));
    drop(mapper);
    world.start();
    world.ok("export remove s.sock -y");
    world.ok("export remove m.sock -y");
    world.ok("snap remove data/m@s -y --wait");
    world.ok("lv remove data/m -y");
    assert_eq!(world.stop(), Some(0), "nothing waits for a mapper that is away");
    assert!(world.ok("check d1 d2").contains("nothing is damaged"));
}

#[test]
fn a_mapper_that_is_away_or_hangs_holds_up_nothing_but_requests_that_need_it() {
    let mut world = World::with_group();
    world.ok("lv create data/other --size 8M");
    world.ok("lv create data/m --mapper unix:map.sock --mapper-wait 300ms --size 8M");
    world.ok("export create data/m --nbd unix:m.sock");
    assert_eq!(client(&world).read(0, 512), Err(5), "EIO after the time that was set");
    let refused = world.refused("lv extend data/m --size 16M", 5, "V0309");
    assert!(refused.contains("mapper of data/m is away"), "{refused}");
    // One that accepts nothing: connections wait in its backlog, then are refused.
    let hangs = UnixListener::bind(world.path("map.sock")).expect("a socket");
    wait_until("it is asked", || {
        let reason = world.data("lv show data/m")["reason"].to_string();
        reason.contains("does not answer the hello")
    });
    world.ok("export create data/other --nbd unix:other.sock");
    Client::new(&world.path("other.sock"), "data/other").fill(0, 4096, 1).expect("others go on");
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(world.data("lv show data/other")["state"], "active");
    assert_eq!(client(&world).read(0, 512), Err(5));
    drop(hangs);
    assert_eq!(world.stop(), Some(0));
}

/// A volume whose mapper has died since it was told of a write, and another one; both have writes that were not flushed.
fn with_unflushed_writes(options: &str) -> World {
    let world = World::with_group();
    fs::write(world.path("base"), content()).expect("a writable folder");
    world.ok("lv create data/other --size 8M");
    world.ok("export create data/other --nbd unix:other.sock");
    world.ok(&format!("lv create data/m --mapper unix:map.sock --size 8M {options}"));
    world.ok("export create data/m --nbd unix:m.sock");
    let mapper = Mapper::start(&world, Example::Python, "base");
    wait_for_state(&world, "active");
    client(&world).fill(0, MIB, 1).expect("written");
    client(&world).flush();
    client(&world).fill(2 * MIB, MIB, 2).expect("written");
    Client::new(&world.path("other.sock"), "data/other").fill(0, MIB, 3).expect("written");
    mapper.kill();
    wait_for_state(&world, "waiting");
    world
}

fn other_is_kept(world: &World) {
    let found = Client::new(&world.path("other.sock"), "data/other").read(0, 1 << 20);
    assert_eq!(found, Ok(vec![3; 1 << 20]));
}

#[test]
fn a_stop_waits_for_a_mapper_that_comes_back() {
    let mut world = with_unflushed_writes("");
    world.signal(Signal::TERM);
    wait_until("it stops", || world.log().contains("stopping: "));
    std::thread::sleep(Duration::from_millis(300));
    let _mapper = Mapper::start(&world, Example::Python, "base");
    assert_eq!(world.ended(), Some(0), "{}", world.log());
    world.start();
    wait_for_state(&world, "active");
    assert_eq!(client(&world).read(2 * MIB, 1 << 20), Ok(vec![2; 1 << 20]));
    other_is_kept(&world);
}

#[test]
fn a_stop_names_a_volume_whose_mapper_does_not_come_back_and_makes_the_others_durable() {
    let mut world = with_unflushed_writes("--mapper-wait 300ms");
    assert_eq!(world.stop(), Some(1), "what was acknowledged is lost");
    let named = "data/m could not be made durable: the last flush: its mapper is away: ";
    assert!(world.log().contains(named), "{}", world.log());
    assert!(!world.log().contains("data/other could not"), "{}", world.log());
    world.start();
    other_is_kept(&world);
    assert_eq!(world.stop(), Some(0), "nothing more is lost");
    world.start();
    let _mapper = Mapper::start(&world, Example::Python, "base");
    wait_for_state(&world, "active");
    assert_eq!(client(&world).read(0, 1 << 20), Ok(vec![1; 1 << 20]), "what was flushed");
}

#[test]
fn a_mapper_that_is_connected_and_hangs_is_a_problem_and_is_asked_before_its_volume_grows() {
    let world = World::with_group();
    fs::write(world.path("base"), content()).expect("a writable folder");
    world.ok("lv create data/m --mapper unix:map.sock --mapper-wait 4s --size 8M");
    let mapper = Mapper::start(&world, Example::Python, "base");
    wait_for_state(&world, "active");
    world.ok("export create data/m --nbd unix:m.sock");
    let signal = |signal| {
        let process = Pid::from_child(&mapper.0);
        rustix::process::kill_process(process, signal).expect("it runs");
    };
    signal(Signal::STOP);
    let refused = world.refused("lv extend data/m --size 16M", 5, "V0309");
    assert!(refused.contains("mapper of data/m does not answer"), "{refused}");
    assert_eq!(client(&world).fill(0, 4096, 1), Err(5), "EIO after the time that was set");
    let attention = world.data("status")["attention"].clone();
    assert_eq!((&attention[0]["kind"], &attention[0]["name"]), (&"mapper-silent".into(), &"data/m".into()));
    assert_eq!(world.data("lv show data/m")["state"], "waiting");
    signal(Signal::CONT);
    wait_for_state(&world, "active");
    world.ok("lv extend data/m --size 12M");
    client(&world).fill(0, 4096, 1).expect("it answers");
    assert_eq!(world.data("status")["health"], "ok");
    mapper.kill();
}

#[test]
fn a_mapper_passes_no_disk_of_a_group_and_no_other_layout_comes_from_one() {
    let world = World::with_group();
    fs::write(world.path("base"), content()).expect("a writable folder");
    for words in ["map.sock", "tcp:localhost:1", "unix:map.sock --type striped --stripes 2"] {
        world.refused(&format!("lv create data/m --size 8M --mapper {words}"), 2, "V0002");
    }
    world.refused("lv create data/m --size 8M --type mapper", 2, "V0002");
    world.refused("lv create data/m --size 8M --mapper unix:map.sock --mapper-wait 2h", 1, "V0001");
    world.ok("lv create data/m --mapper unix:map.sock --size 8M");
    world.refused("lv reduce data/m --size 4M -y", 2, "V0305");
    world.refused("lv convert data/m --type striped --stripes 2", 2, "V0305");
    let mapper = Mapper::start(&world, Example::Python, "d1");
    wait_until("its disk is refused", || {
        let reason = world.data("lv show data/m")["reason"].to_string();
        reason.contains("a file that cannot be used") && reason.contains("the disk is in use")
    });
    mapper.kill();
    if Path::new("/dev/fuse").exists() {
        world.ok("lv create data/other --size 8M");
        world.ok("export create data/other --fuse served");
        let mapper = Mapper::start(&world, Example::Python, "served");
        wait_until("its own export is refused (FILELINK1)", || {
            world.data("lv show data/m")["reason"].to_string().contains("served, which this daemon exports")
        });
        mapper.kill();
    }
    let _mapper = Mapper::start(&world, Example::Python, "base");
    wait_for_state(&world, "active");
    world.ok("lv rename data/m n");
    world.ok("lv deactivate data/n");
    world.ok("lv activate data/n");
    world.ok("lv rename data/n m");
    wait_for_state(&world, "active");
}

#[test]
fn a_text_from_elsewhere_has_the_daemon_connect_to_nothing() {
    let world = World::with_group();
    world.ok("lv create data/m --mapper unix:map.sock --size 8M");
    world.ok("vg backup data text");
    let text = fs::read_to_string(world.path("text")).expect("a backup");
    fs::write(world.path("text"), text.replace("map.sock", "evil.sock")).expect("a writable folder");
    let listener = UnixListener::bind(world.path("evil.sock")).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    world.ok("vg restore data text --drop data/m -y");
    let refused = world.refused("export create data/m --nbd unix:m.sock", 7, "V0318");
    assert!(refused.contains("evil.sock maps it, and nobody has agreed"), "{refused}");
    std::thread::sleep(Duration::from_millis(200)); // Longer than the daemon waits before it connects again.
    assert!(listener.accept().is_err(), "CONTROLMAPPER1");
    let planned = world.ok("pv scan --trust-images -n");
    assert!(planned.contains("evil.sock as a mapper of group data"), "{planned}");
    world.ok("pv scan --trust-images");
    wait_until("it is asked", || listener.accept().is_ok());
    wait_for_state(&world, "waiting");
}

/// A process that was stopped goes on with the test's end.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn a_mapper_that_is_stopped_delays_only_what_needs_its_answer() {
    let world = World::with_group();
    world.ok("lv create data/m --mapper unix:map.sock --size 8M");
    let mapper = Mapper::start(&world, Example::Backwards, "file");
    wait_for_state(&world, "active");
    world.ok("export create data/m --nbd unix:m.sock");
    let mut volume = client(&world);
    volume.fill(0, 4096, 9).expect("written");
    let process = Pid::from_child(&mapper.0);
    rustix::process::kill_process(process, Signal::STOP).expect("it runs");
    let stopped = Stopped(process);
    let socket = world.path("m.sock");
    let waits = std::thread::spawn(move || Client::new(&socket, "data/m").read(4 * MIB, 4096));
    assert_eq!(volume.read(0, 4096), Ok(vec![9; 4096]), "what is known needs no answer");
    volume.fill(0, 4096, 10).expect("what is known needs no answer");
    assert!(!waits.is_finished(), "what is not known waits");
    drop(stopped);
    assert_eq!(waits.join().expect("it ends"), Ok(vec![0; 4096]));
    volume.flush();
    let file = fs::read(world.path("file")).expect("the mapper made it");
    assert_eq!(file[7 << 20..][..4096], [10; 4096], "the first MiB lies last");
}

#[test]
fn an_image_that_is_smaller_than_its_volume_serves_it_only_when_it_has_grown_and_stays_as_it_is() {
    let world = World::with_group();
    let (image, log) = (world.path("image"), world.path("cowd.log"));
    let qemu = |verb: &str, size: &str| {
        let status =
            Command::new("qemu-img").args([verb, "-q", "-f", "qcow2"]).arg(&image).arg(size).status();
        assert!(status.expect("install qemu-utils").success(), "{verb}");
    };
    qemu("create", "4M");
    let before = fs::read(&image).expect("it is there");
    let start = || {
        let mut command = Command::new(built("varve-cowd", &["-p", "varve-cowd"]));
        command.arg(&image).arg("--socket").arg(world.path("map.sock")).stdin(Stdio::null());
        command.stderr(fs::File::create(&log).expect("a writable folder"));
        Mapper(command.spawn().expect("it starts"))
    };
    let mapper = start();
    world.ok("lv create data/m --mapper unix:map.sock --size 8M");
    let refused =
        "the volume has 8388608 bytes, and the image 4194304; qemu-img resize makes the image larger";
    wait_until("it says why, again and again", || {
        fs::read_to_string(&log).expect("it is there").matches(refused).count() > 1
    });
    let shown = world.data("lv show data/m");
    assert_eq!(shown["state"], "waiting");
    assert!(
        shown["reason"].as_str().is_some_and(|reason| reason.starts_with("its mapper is away")),
        "{shown}"
    );
    mapper.kill();
    assert!(fs::read(&image).expect("it is there") == before, "nothing of it was changed");
    qemu("resize", "8M");
    let _mapper = start();
    wait_for_state(&world, "active");
}
