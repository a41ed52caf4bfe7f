//! What `varve status --check` says while doors, mappers and files are in trouble, and that what can be tried again is.

#![expect(clippy::disallowed_methods, reason = "real processes are waited for")]

use crate::client::Client;
use crate::harness::{World, http};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Kinds and names of what is not as it should be.
fn problems(world: &World) -> Vec<(String, String)> {
    let status = world.data("status");
    let text =
        |problem: &serde_json::Value, field: &str| problem[field].as_str().unwrap_or_default().to_owned();
    let rows = status["attention"].as_array().cloned().unwrap_or_default();
    assert!(rows.iter().all(|row| !text(row, "help").is_empty()), "{rows:?}");
    rows.iter().map(|row| (text(row, "kind"), text(row, "name"))).collect()
}

/// Waits until this is not as it should be, and nothing else; then the exit status and the metrics say so.
fn eventually(world: &World, wanted: &[(&str, &str)]) {
    let wanted = wanted.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect();
    let begun = Instant::now();
    let sorted = |mut problems: Vec<(String, String)>| {
        problems.sort();
        problems
    };
    let wanted = sorted(wanted);
    while sorted(problems(world)) != wanted {
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?} is to be {wanted:?}", problems(world));
        std::thread::sleep(Duration::from_millis(100));
    }
    let checked = world.command("status --check").output().expect("it runs");
    assert_eq!(checked.status.code(), Some(if wanted.is_empty() { 0 } else { 7 }));
    let metrics = http(&world.path("varve.sock"), "/metrics");
    assert!(metrics.contains(&format!("\nvarve_problems {}\n", wanted.len())), "{metrics}");
    for (kind, name) in &wanted {
        let begin = format!("varve_problem{{kind=\"{kind}\",noun=");
        assert!(
            metrics.lines().any(|line| line.starts_with(&begin) && line.contains(name.as_str())),
            "{metrics}"
        );
    }
}

#[test]
fn an_export_comes_back_with_its_folder_and_its_socket_while_its_clients_stay() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 8M");
    fs::create_dir(world.path("run")).expect("a writable folder");
    world.ok("export create data/a --nbd unix:run/a.sock");
    let (run, socket) = (world.path("run"), world.path("run/a.sock"));
    eventually(&world, &[]);
    let mut client = Client::new(&socket, "data/a");
    client.fill(0, 4096, 1).expect("it is served");
    fs::remove_file(&socket).expect("it is there");
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "its socket comes back");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.read(0, 4096), Ok(vec![1; 4096]), "the client has stayed");
    assert_eq!(Client::new(&socket, "data/a").read(0, 4096), Ok(vec![1; 4096]), "and another one can come");
    drop(client);
    eventually(&world, &[]);

    assert_eq!(world.stop(), Some(0));
    fs::remove_dir_all(&run).expect("it is there");
    world.start();
    eventually(&world, &[("export-down", "e1")]);
    assert_eq!(world.data("export list")[0]["state"], "down");
    fs::create_dir(&run).expect("a writable folder");
    eventually(&world, &[]);
    assert_eq!(Client::new(&socket, "data/a").read(0, 4096), Ok(vec![1; 4096]));
    fs::remove_file(&socket).expect("it is there");
    fs::write(&socket, "of somebody else").expect("a writable folder");
    eventually(&world, &[("export-down", "e1")]);
    assert_eq!(fs::read(&socket).expect("it is there"), b"of somebody else", "it is left alone");
    fs::remove_file(&socket).expect("it is there");
    eventually(&world, &[]);
    let begun = Instant::now();
    while !world.ok("events").contains("no longer: of data/a at unix:") {
        assert!(begun.elapsed() < Duration::from_secs(120), "an event says so");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_file_that_somebody_unmounts_is_mounted_again() {
    if !Path::new("/dev/fuse").exists() {
        return;
    }
    let world = World::with_group();
    world.ok("lv create data/a --size 8M");
    world.ok("export create data/a --fuse served");
    let served = world.path("served");
    let size = || fs::metadata(&served).map_or(0, |metadata| metadata.len());
    assert_eq!(size(), 8 << 20);
    eventually(&world, &[]);
    for options in [&["-u"][..], &["-u", "-z"]] {
        let unmounted = Command::new("fusermount3").args(options).arg(&served).status();
        assert!(unmounted.expect("fusermount3 is there").success(), "{options:?}");
        let begun = Instant::now();
        while size() != 8 << 20 {
            assert!(begun.elapsed() < Duration::from_secs(120), "it is mounted again: {options:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        eventually(&world, &[]);
    }
}

#[test]
fn a_disk_or_image_that_was_deleted_is_a_problem_while_it_can_still_be_saved() {
    let world = World::with_group();
    let image = fs::File::create(world.path("i.raw")).expect("a writable folder");
    image.set_len(8 << 20).expect("it is sparse");
    world.ok("lv create data/i --image i.raw --format raw");
    eventually(&world, &[]);
    fs::rename(world.path("i.raw"), world.path("j.raw")).expect("it is there");
    eventually(&world, &[("image-moved", "data/i")]);
    fs::rename(world.path("j.raw"), world.path("i.raw")).expect("it is there");
    eventually(&world, &[]);
    fs::remove_file(world.path("i.raw")).expect("it is there");
    eventually(&world, &[("image-deleted", "data/i")]);
    world.ok("lv remove data/i -y");
    eventually(&world, &[]);
}

/// The state and the reason of an export, and the help that status has for it.
fn down(world: &World, export: &str) -> (String, String) {
    let status = world.data("status");
    let rows = status["attention"].as_array().cloned().unwrap_or_default();
    let row = rows.iter().find(|row| row["name"] == export).cloned().unwrap_or_default();
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    (text("message"), text("help"))
}

#[test]
fn an_export_of_a_snapshot_that_was_dropped_is_down_until_it_is_removed() {
    let world = World::started();
    world.ok("pv create d1 --size 200M");
    world.ok("vg create data d1");
    world.ok("lv create data/a --size 64M --when-full drop-oldest");
    world.ok("snap create data/a@s");
    world.ok("lv create data/fill --size 100%FREE");
    world.ok("export create data/a --nbd unix:a.sock");
    world.ok("export create data/a@s --nbd unix:b.sock");
    let mut reader = Client::new(&world.path("b.sock"), "data/a@s");
    assert_eq!(reader.read(0, 4096), Ok(vec![0; 4096]));
    Client::new(&world.path("a.sock"), "data/a").fill(0, 64 << 20, 1).expect("the snapshot goes");
    eventually(&world, &[("export-down", "e2"), ("snapshot-dropped", "data/a")]);
    let (message, help) = down(&world, "e2");
    assert!(message.contains("there is no snapshot data/a@s: it was dropped to make room"), "{message}");
    assert!(help.contains("varve export remove e2"), "{help}");
    assert_eq!(world.data("export list")[1]["state"], "down");
    world.ok("export remove e2");
    eventually(&world, &[("snapshot-dropped", "data/a")]);
}

#[test]
fn exports_of_volumes_that_were_given_up_with_their_disks_are_down_until_they_are_removed() {
    let world = World::with_group();
    world.ok("lv create data/kept --size 8M --on d1");
    world.ok("lv create data/a --size 8M --on d2");
    world.ok("snap create data/a@s");
    world.ok("export create data/kept --nbd unix:kept.sock");
    world.ok("export create data/a --nbd unix:a.sock");
    world.ok("export create data/a@s --nbd unix:b.sock");
    fs::rename(world.path("d2"), world.path("elsewhere")).expect("it is there");
    fs::File::options()
        .write(true)
        .open(world.path("elsewhere"))
        .and_then(|file| file.set_len(0))
        .expect("cut");
    world.run("pv scan");
    world.ok("vg reduce data --missing --with-volumes -y");
    eventually(&world, &[("export-down", "e2"), ("export-down", "e3")]);
    for export in ["e2", "e3"] {
        let (message, help) = down(&world, export);
        assert!(message.contains("is down: its group has given its volume up"), "{message}");
        assert!(help.contains(&format!("varve export remove {export}")), "{help}");
        world.ok(&format!("export remove {export}"));
    }
    eventually(&world, &[]);
    Client::new(&world.path("kept.sock"), "data/kept").fill(0, 4096, 1).expect("it is served");
}

#[test]
fn what_could_not_be_remembered_is_a_problem_until_it_is_and_then_a_restart_knows_it() {
    let mut world = World::with_group();
    // Nothing can be written in its place.
    let state = world.path("state").display().to_string();
    let beside = world.path("state/state.json.new");
    fs::create_dir(&beside).expect("it is free");
    world.ok("pv create d3 --size 64M");
    eventually(&world, &[("state-unwritable", &state)]);
    let status = world.data("status");
    let message = status["attention"][0]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(&format!("cannot be written: {state}: ")), "{message}");
    world.kill();
    world.start();
    let disks = |world: &World| {
        let list = world.data("pv list");
        let path = |disk: &serde_json::Value| disk["path"].as_str().unwrap_or_default().to_owned();
        let mut paths: Vec<String> = list.as_array().expect("a list").iter().map(path).collect();
        paths.sort();
        paths
    };
    let folder = world.path("");
    let paths = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| folder.join(name).display().to_string()).collect()
    };
    assert_eq!(disks(&world), paths(&["d1", "d2"]), "what was not written is not remembered");
    world.ok("pv scan d3");
    eventually(&world, &[("state-unwritable", &state)]);
    fs::remove_dir(&beside).expect("it is there");
    // No command writes it: the daemon itself tries again.
    eventually(&world, &[]);
    world.kill();
    world.start();
    assert_eq!(disks(&world), paths(&["d1", "d2", "d3"]));
    eventually(&world, &[]);
}

#[test]
fn monitors_hear_what_is_worst_first_with_the_exit_codes_of_plugins() {
    let mut world = World::with_group();
    let heard = |world: &World, exit: i32, begin: &str| {
        let begun = Instant::now();
        loop {
            let ended = world.run("status --check=nagios");
            if ended.exit == exit && ended.stdout.starts_with(begin) {
                return ended.stdout;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{} {}", ended.exit, ended.stdout);
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let told = heard(&world, 0, "VARVE OK");
    assert_eq!(told, "VARVE OK - nothing needs a person | critical=0 warning=0\n");
    fs::write(world.path("image"), vec![7; 1 << 20]).expect("a writable folder");
    world.ok("lv create data/i --image image --format raw");
    fs::rename(world.path("image"), world.path("elsewhere")).expect("a writable folder");
    let told = heard(&world, 1, "VARVE WARNING - lv data/i ");
    assert!(told.ends_with(" | critical=0 warning=1\n") && told.lines().count() == 1, "{told}");
    world.ok("lv create data/a --size 8M");
    fs::create_dir(world.path("run")).expect("a writable folder");
    world.ok("export create data/a --nbd unix:run/a.sock");
    fs::remove_dir_all(world.path("run")).expect("it is there");
    let told = heard(&world, 2, "VARVE CRITICAL - export e1 ");
    assert!(told.contains("; lv data/i ") && told.ends_with(" | critical=1 warning=1\n"), "{told}");
    let checked = world.run("status --check");
    assert_eq!(checked.exit, 7);
    let lines: Vec<&str> = checked.stdout.lines().collect();
    let begins = ["attention", "critical: export e1 ", "  help: ", "warning: lv data/i ", "  help: "];
    assert!(
        lines.len() == 5 && lines.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)),
        "{lines:?}"
    );
    assert_eq!(world.data("status")["attention"][0]["severity"], "critical");
    assert_eq!(world.stop(), Some(0));
    heard(&world, 3, "VARVE UNKNOWN - no daemon listens at ");
}
