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
    let wanted: Vec<_> = wanted.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect();
    let begun = Instant::now();
    while problems(world) != wanted {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?} is to be {wanted:?}", problems(world));
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
        assert!(begun.elapsed() < Duration::from_secs(60), "its socket comes back");
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
        assert!(begun.elapsed() < Duration::from_secs(60), "an event says so");
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
            assert!(begun.elapsed() < Duration::from_secs(60), "it is mounted again: {options:?}");
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
    fs::remove_file(world.path("i.raw")).expect("it is there");
    eventually(&world, &[("image-deleted", "data/i")]);
    world.ok("lv remove data/i -y");
    eventually(&world, &[]);
}
