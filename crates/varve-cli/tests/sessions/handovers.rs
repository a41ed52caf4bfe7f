//! A daemon takes over from another one: clients see a pause, and nothing is lost if one of the two ends on the way.
#![expect(
    clippy::disallowed_methods,
    reason = "clients work beside the daemons, and the pause is measured, in real time"
)]

use crate::client::Client;
use crate::harness::World;
use crate::stalling::StallingDisk;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How often a daemon takes over in the test under load.
fn replacements() -> usize {
    std::env::var("VARVE_REPLACEMENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Two volumes and their exports.
fn furnished() -> World {
    let world = World::with_group();
    for volume in ["a", "b"] {
        world.ok(&format!("lv create data/{volume} --size 64M"));
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
    }
    world
}

/// Clears a flag when it goes, so that a failure ends those who look at it.
struct Clears<'f>(&'f AtomicBool);

impl Drop for Clears<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// One client on one connection that reads what it has written; the longest wait for an answer, and the number of writes.
fn write_and_read(socket: &Path, goes_on: &AtomicBool) -> (Duration, u64) {
    let mut client = Client::new(socket, "data/a");
    let (mut longest, mut count) = (Duration::ZERO, 0_u64);
    while goes_on.load(SeqCst) {
        let (at, length) =
            (count * 7919 % 60 * (1 << 20), 4096 + 40_000 * usize::try_from(count % 7).expect("small"));
        let data = vec![u8::try_from(count % 251).expect("small"); length];
        let begun = Instant::now();
        client.write(at, &data).expect("HANDOVER2: a write is carried out");
        longest = longest.max(begun.elapsed());
        assert_eq!(client.read(at, length), Ok(data), "write {count}");
        count += 1;
    }
    (longest, count)
}

/// Runs fio on the second volume with several requests in flight, again and again: it reads all that it has written.
fn verify(socket: &Path, goes_on: &AtomicBool) -> usize {
    let mut runs = 0;
    while goes_on.load(SeqCst) {
        let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
        let words = "--name=load --ioengine=nbd --rw=randwrite --bsrange=4k-256k --iodepth=16 --size=48M --verify=crc32c --verify_fatal=1";
        let mut fio = Command::new("fio");
        fio.args(words.split(' ')).arg(uri).current_dir(socket.parent().expect("a folder"));
        let fio = fio.output().expect("fio starts");
        let said = String::from_utf8_lossy(&[fio.stdout, fio.stderr].concat()).into_owned();
        assert!(fio.status.success(), "run {runs}: {said}");
        runs += 1;
    }
    runs
}

#[test]
fn clients_under_load_see_a_pause_while_daemons_take_over_one_after_the_other() {
    let mut world = furnished();
    let goes_on = AtomicBool::new(true);
    let (a, b, disk) = (world.path("a.sock"), world.path("b.sock"), world.path("d1"));
    scope(|threads| {
        let ends = Clears(&goes_on);
        let one = threads.spawn(|| write_and_read(&a, &goes_on));
        let many = threads.spawn(|| verify(&b, &goes_on));
        let comers = threads.spawn(|| {
            let mut count = 0;
            while goes_on.load(SeqCst) {
                assert_eq!(
                    Client::new(&a, "data/a").read(63 << 20, 512),
                    Ok(vec![0; 512]),
                    "NBDSOCKET5: comer {count}"
                );
                count += 1;
                sleep(Duration::from_millis(2));
            }
            count
        });
        let thief = threads.spawn(|| {
            let file = std::fs::File::open(&disk).expect("a disk");
            while goes_on.load(SeqCst) {
                let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
                assert!(locked.is_err(), "INHERITED1: a third gets the disk");
                sleep(Duration::from_micros(200));
            }
        });
        for number in 0..replacements() {
            sleep(Duration::from_millis(100));
            assert_eq!(world.replace(), Some(0), "replacement {number}: {}", world.log());
        }
        drop(ends);
        let (longest, writes) = one.join().expect("no request fails");
        let (runs, count) =
            (many.join().expect("no request fails"), comers.join().expect("no connection is refused"));
        thief.join().expect("the disk stays locked");
        println!(
            "the longest write took {longest:?} of {writes}; {runs} runs of fio, {count} new connections"
        );
        assert!(writes > 0 && runs > 0 && count > 0);
    });
    assert_eq!(world.stop(), Some(0), "{}", world.log());
    assert!(!a.exists() && !world.path("varve.sock").exists() && !world.path("state/replace.sock").exists());
    let passed: Vec<String> =
        world.log().lines().filter(|line| line.contains("waited_ms")).map(str::to_owned).collect();
    assert_eq!(passed.len(), replacements(), "{}", world.log());
    passed.iter().for_each(|line| println!("{line}"));
}

/// Says to the daemon what one does that takes over, by this version of the handover.
fn greet(world: &World, version: u32) -> UnixStream {
    let mut stream = UnixStream::connect(world.path("state/replace.sock")).expect("the daemon listens");
    let hello =
        json!({"version": version, "program": "a test", "process": 1, "socket": world.path("varve.sock")});
    let text = hello.to_string();
    stream.write_all(&u32::try_from(text.len()).expect("short").to_le_bytes()).expect("it listens");
    stream.write_all(text.as_bytes()).expect("it listens");
    stream
}

fn hear(stream: &mut UnixStream) -> Value {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("it answers");
    let mut text = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut text).expect("it answers");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn a_daemon_to_which_one_that_takes_over_is_lost_serves_its_clients_on() {
    let mut world = furnished();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    let refused = hear(&mut greet(&world, 2))["Refused"].take();
    assert_eq!(refused["code"], "V0007", "TAKEOVER3: {refused}");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("version 2")), "{refused}");
    for rounds in 0..3_u8 {
        client.write(0, &vec![rounds + 1; 1 << 20]).expect("it is served");
        let mut stream = greet(&world, 1);
        if rounds > 0 {
            assert!(hear(&mut stream).get("Accepted").is_some());
        }
        if rounds > 1 {
            let given = hear(&mut stream)["Given"].take();
            assert_eq!(given["sockets"].as_array().map(Vec::len), Some(2), "{given}");
            assert_eq!(given["sockets"][0]["connections"][0]["export"], "data/a", "{given}");
        }
        drop(stream);
        let found = client.read(0, 1 << 20).expect("TAKEOVER1: the same connection is served");
        assert!(found.iter().all(|byte| *byte == rounds + 1), "round {rounds}");
        Client::new(&world.path("b.sock"), "data/b");
        assert_eq!(world.data("export list").as_array().map(Vec::len), Some(2));
    }
    // What was taken back can be handed over.
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    assert_eq!(client.read(0, 4096), Ok(vec![3; 4096]));
}

#[test]
fn a_client_amid_a_write_goes_on_with_the_other_daemon() {
    let mut world = furnished();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    for (part, length) in [(10, 4096), (28, 4096), (1000, 4096), (3_000_000, 8 << 20), (4 << 20, 8 << 20)] {
        let data = vec![u8::try_from(part % 250).expect("small") + 1; length];
        client.begin_write(0, &data, part);
        assert_eq!(world.replace(), Some(0), "{}", world.log());
        assert_eq!(client.end_write(&data, part), Ok(()), "NBDDETACH1, NBDDETACH2: {part} bytes came before");
        assert_eq!(client.read(0, length), Ok(data), "{part} bytes came before");
    }
}

#[test]
fn a_daemon_that_is_to_take_over_from_one_that_dies_starts_as_after_a_crash() {
    let mut world = furnished();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.write(0, &[7; 4096]).expect("it is served");
    client.flush();
    world.signal(Signal::STOP);
    let mut successor =
        world.successor().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    sleep(Duration::from_millis(300));
    world.kill();
    let mut said = [0; 6];
    successor.stdout.take().expect("piped").read_exact(&mut said).expect("it serves");
    assert_eq!(&said, b"ready\n");
    assert_eq!(Client::new(&world.path("a.sock"), "data/a").read(0, 4096), Ok(vec![7; 4096]));
    successor.kill().expect("it runs");
    successor.wait().expect("it ends");
    world.start_with("--replace"); // Without one that runs it starts as any other.
    assert_eq!(Client::new(&world.path("a.sock"), "data/a").read(0, 4096), Ok(vec![7; 4096]));
}

#[test]
fn nothing_is_lost_if_a_daemon_that_takes_over_is_killed_at_any_point() {
    let mut world = furnished();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    let begun = Instant::now();
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    let whole = begun.elapsed();
    let (mut taken_back, mut crashed) = (0, 0);
    for step in 0..12 {
        // The last ones when it serves.
        let delay = whole * step / 9;
        let value = u8::try_from(step + 1).expect("small");
        client.write(0, &vec![value; 1 << 20]).expect("it is served");
        let mut successor =
            world.successor().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        sleep(delay);
        successor.kill().expect("it is a child");
        successor.wait().expect("it ends");
        // The one that ran goes on, or has ended because the other one served.
        let deadline = Instant::now() + Duration::from_secs(120);
        let serves_on = loop {
            if !world.is_running() {
                break false;
            }
            if world.run("status").exit == 0 {
                break true;
            }
            assert!(Instant::now() < deadline, "{}", world.log());
        };
        if !serves_on {
            crashed += 1;
            assert_eq!(world.ended(), Some(0), "{}", world.log());
            world.start();
            client = Client::new(&world.path("a.sock"), "data/a");
        } else {
            taken_back += 1;
        }
        let found = client.read(0, 1 << 20).expect("it is served");
        assert!(found.iter().all(|byte| *byte == value), "TAKEOVER1, TAKEOVER2: after {delay:?}");
    }
    println!("{taken_back} times the daemon that ran went on, {crashed} times the other one had served");
    assert_eq!(taken_back + crashed, 12);
    assert!(taken_back > 0, "the first ones are killed at once");
}

#[test]
fn a_request_that_hangs_in_a_disk_is_waited_for_and_named() {
    let mut world = World::new();
    world.start_with("--stop-timeout 2");
    let Some(disk) = StallingDisk::new() else { return };
    let path = disk.path().display().to_string();
    world.ok(&format!("pv create {path}"));
    world.ok(&format!("vg create slow {path}"));
    world.ok("lv create slow/a --size 8M");
    world.ok("export create slow/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "slow/a");
    disk.stall();
    let writer = std::thread::spawn(move || client.write(0, &[7; 1 << 20]).map(|()| client));
    while world.data("lv show slow/a")["traffic"]["writes"] == 0 {}
    let refused = world.successor().output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_ne!(refused.status.code(), Some(0), "{said}");
    assert!(said.contains("do not end") && said.contains(&path), "HANDOVER1: {said}");
    disk.release();
    let mut client = writer.join().expect("it is answered").expect("HANDOVER1: it is served on");
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]));
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]));
    drop(disk);
}

#[test]
fn a_daemon_that_cannot_take_over_leaves_the_other_one_alone() {
    let mut world = furnished();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    let elsewhere = world.run("daemon --state state --socket other.sock --replace");
    assert!(elsewhere.exit != 0 && elsewhere.stderr.contains("error[V0007]"), "{}", elsewhere.stderr);
    assert!(elsewhere.stderr.contains("varve.sock"), "it names the right socket: {}", elsewhere.stderr);
    let wrong = world.run("daemon --state state --replace --socket-group no-such-group");
    assert_ne!(wrong.exit, 0);
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("bound").to_string();
    let occupied = world.run(&format!("daemon --state state --replace --http {address}"));
    assert!(occupied.exit != 0 && occupied.stderr.contains(&address), "{}", occupied.stderr);
    assert!(!world.log().contains("handing over"), "no client has waited: {}", world.log());
    assert!(world.is_running());
    client.write(0, &[9; 4096]).expect("the same connection is served");
}

/// Waits until `is_so`.
fn wait_until(world: &World, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "{}", world.log());
        sleep(Duration::from_millis(1));
    }
}

/// A daemon whose clients wait for a second at most, and a client that has written.
fn with_a_short_stop() -> (World, Client) {
    let mut world = World::new();
    world.start_with("--stop-timeout 1");
    world.ok("pv create d1 --size 200M");
    world.ok("vg create data d1");
    world.ok("lv create data/a --size 8M");
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.write(0, &[7; 4096]).expect("it is served");
    (world, client)
}

#[test]
fn a_daemon_that_was_to_take_over_and_hangs_is_named_and_the_other_one_can_be_stopped() {
    let (mut world, mut client) = with_a_short_stop();
    world.signal(Signal::STOP); // Until the other one has asked, and is stopped.
    let log = std::fs::File::create(world.path("successor.log")).expect("a log");
    let mut successor = world.successor().stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
    let process = rustix::process::Pid::from_child(&successor);
    let log = || std::fs::read_to_string(world.path("successor.log")).unwrap_or_default();
    wait_until(&world, || log().contains("shards are up"));
    sleep(Duration::from_secs(1)); // It asks at once then.
    rustix::process::kill_process(process, Signal::STOP).expect("it runs");
    world.signal(Signal::CONT);
    let hint = format!("kill -9 {}", successor.id());
    wait_until(&world, || world.log().contains(&hint));
    assert_eq!(world.stop(), Some(0), "{}", world.log());
    assert!(!world.log().contains("this one goes on"), "nothing is taken back: {}", world.log());
    // The other one has everything.
    rustix::process::kill_process(process, Signal::CONT).expect("it is stopped");
    let mut said = [0; 6];
    successor.stdout.take().expect("piped").read_exact(&mut said).expect("it serves");
    assert_eq!((&said, client.read(0, 4096)), (b"ready\n", Ok(vec![7; 4096])), "TAKEOVER1");
    rustix::process::kill_process(process, Signal::TERM).expect("it runs");
    assert_eq!(successor.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_daemon_that_hangs_while_it_takes_over_is_killed_and_the_other_one_goes_on() {
    let (mut world, mut client) = with_a_short_stop();
    let mut stream = greet(&world, 1);
    assert!(hear(&mut stream).get("Accepted").is_some());
    assert!(hear(&mut stream).get("Given").is_some());
    wait_until(&world, || world.log().contains("kill -9 1 "));
    drop(stream);
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]), "TAKEOVER1");
    assert_eq!(world.stop(), Some(0), "{}", world.log());
}

#[test]
fn what_went_wrong_long_before_costs_no_client_its_connection() {
    let mut world = furnished();
    assert_eq!(world.stop(), Some(0));
    world.start_with_bug("data/b:write");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.write(0, &[7; 4096]).expect("it is served");
    Client::new(&world.path("b.sock"), "data/b").write(0, &[1; 4096]).expect_err("a bug is in the way");
    wait_until(&world, || world.log().contains("the exit status will say so"));
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]), "HANDOVER1: the same connection");
}

#[test]
fn a_disk_that_does_not_answer_is_named_before_a_client_waits() {
    let mut world = furnished();
    let Some(disk) = StallingDisk::new() else { return };
    let path = disk.path().display().to_string();
    world.ok(&format!("pv create {path}"));
    world.ok(&format!("vg create slow {path}"));
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.write(0, &[7; 4096]).expect("it is served");
    disk.stall();
    let refused = world.successor().output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_ne!(refused.status.code(), Some(0), "{said}");
    assert!(said.contains("do not end") && said.contains(&path), "HANDOVER1: {said}");
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]), "the same connection");
    disk.release();
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]), "the same connection");
    drop(disk);
}

#[test]
fn a_write_that_waits_for_space_is_named_before_a_client_waits() {
    let mut world = World::started();
    world.ok("pv create d1 --size 200M");
    world.ok("vg create data d1");
    world.ok("lv create data/a --size 8M");
    world.ok("pool create data/p --size 64M --auto-extend 80%:50%");
    world.ok("pool change data/p --when-full pause --pause-timeout 10m");
    world.ok("lv create data/t --pool p --size 96M");
    world.ok("lv create data/fill --size 100%FREE");
    world.ok("export create data/a --nbd unix:a.sock");
    world.ok("export create data/t --nbd unix:t.sock");
    let mut other = Client::new(&world.path("a.sock"), "data/a");
    let mut client = Client::new(&world.path("t.sock"), "data/t");
    let writer = std::thread::spawn(move || client.fill(0, 96 << 20, 1).map(|()| client));
    wait_until(&world, || world.data("pool show data/p")["paused"] == true);
    let refused = world.successor().output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_ne!(refused.status.code(), Some(0), "{said}");
    assert!(said.contains("writes wait for space in data/p"), "HANDOVER1: {said}");
    assert!(said.contains("varve vg extend data"), "it names the remedy: {said}");
    assert_eq!(other.write(0, &[9; 4096]), Ok(()), "the same connection");
    world.ok("pv create d2 --size 200M");
    world.ok("vg extend data d2");
    let mut client = writer.join().expect("it is answered").expect("there is space by now");
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    assert_eq!(client.read(95 << 20, 4096), Ok(vec![1; 4096]));
    assert_eq!(other.read(0, 4096), Ok(vec![9; 4096]));
}

#[test]
fn a_daemon_of_a_service_manager_is_not_replaced_behind_its_back() {
    let mut world = World::new();
    let _manager = UnixDatagram::bind(world.path("notify.sock")).expect("a socket");
    world.start();
    let refused = world.run("daemon --state state --replace");
    assert_ne!(refused.exit, 0);
    assert!(refused.stderr.contains("error[V0007]"), "{}", refused.stderr);
    assert!(refused.stderr.contains("systemctl restart varve"), "{}", refused.stderr);
    assert!(world.is_running() && !world.log().contains("handing over"), "{}", world.log());
}

#[test]
fn a_client_that_fetches_a_long_reply_is_waited_for() {
    let mut world = furnished();
    let length = 24 << 20;
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.fill(0, length as u64, 5).expect("it is served");
    client.begin_read(0, length);
    // Slow enough that all of it takes longer than a client may be silent.
    let reader = std::thread::spawn(move || {
        let read = client.end_read(length, || sleep(Duration::from_millis(80)));
        (client, read)
    });
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    let (mut client, read) = reader.join().expect("it is answered");
    assert!(read.len() == length && read.iter().all(|byte| *byte == 5), "NBDDETACH1");
    assert_eq!(client.read(0, 4096), Ok(vec![5; 4096]), "the same connection");
}

#[test]
fn the_options_of_the_new_daemon_hold_for_what_it_was_passed() {
    let mut world = furnished();
    let mode = |world: &World| {
        std::fs::metadata(world.path("varve.sock")).expect("there").permissions().mode() & 0o777
    };
    let mut clients = [0; 3].map(|_| Client::new(&world.path("a.sock"), "data/a"));
    assert_eq!(mode(&world), 0o600);
    assert_eq!(world.replace_with("--socket-mode 0660 --connections 2"), Some(0), "{}", world.log());
    assert_eq!(mode(&world), 0o660);
    for client in &mut clients {
        assert_eq!(client.read(0, 4096), Ok(vec![0; 4096]), "it was let in before: {}", world.log());
    }
    std::fs::remove_file(world.path("varve.sock")).expect("it is there");
    assert_eq!(world.replace(), Some(0), "{}", world.log());
    assert_eq!(mode(&world), 0o600);
    assert_eq!(world.data("export list").as_array().map(Vec::len), Some(2), "it is found again");
}
