//! Disks that were damaged, groups that lost their descriptions, disks that are old: what mends them, and what is refused.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A group on two disks with a volume and a backup; no daemon runs.
fn at_rest() -> World {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("vg backup data backup.toml");
    assert_eq!(world.stop(), Some(0));
    world
}

#[test]
fn a_lost_description_is_restored_from_a_backup() {
    let mut world = at_rest();
    let text = world.refused("restore backup.toml d1 d2 -y", 4, "V0202");
    assert!(text.contains("vg restore data backup.toml"), "{text}");
    world.lose_descriptions(&["d1", "d2"]);
    world.start();
    let groups = world.data("vg list");
    assert_eq!(groups[0]["state"], "damaged", "{groups}");
    let id = groups[0]["id"].as_str().expect("an id");
    let text = world.refused(&format!("vg show {id}"), 7, "V0206");
    assert!(text.contains("varve restore FILE PATH"), "{text}");
    world.refused("restore backup.toml d1 d2 -y", 5, "V0104");
    assert_eq!(world.stop(), Some(0));
    let before = std::fs::read(world.path("d1")).expect("a disk");
    world.refused("restore backup.toml d1 -y", 1, "V0108");
    world.refused("restore log d1 d2 -y", 2, "V0208");
    world.refused("restore nowhere d1 d2 -y", 1, "V0902");
    world.refused("restore backup.toml d1 d2", 8, "V0004");
    assert!(world.ok("restore backup.toml d1 d2 -n").starts_with("would "));
    assert!(std::fs::read(world.path("d1")).expect("a disk") == before, "nothing was written");
    world.ok("restore backup.toml d1 d2 --yes");
    assert_eq!(world.data("check d1 d2")["clean"], true);
    world.start();
    assert_eq!(world.data("vg show data")["state"], "ok");
    assert_eq!(world.data("lv show data/a")["size"].as_u64(), Some(64 << 20));
}

#[test]
fn a_backup_is_not_restored_to_other_disks() {
    let world = at_rest();
    world.lose_descriptions(&["d1", "d2"]);
    let other = at_rest();
    other.lose_descriptions(&["d1", "d2"]);
    let foreign = other.path("d2");
    world.refused(&format!("restore backup.toml d1 {} -y", foreign.display()), 2, "V0208");
}

#[test]
fn a_lost_label_is_made_anew() {
    let mut world = at_rest();
    let sound = world.ok("repair d1 d2");
    assert!(sound.ends_with("there is nothing to mend\n"), "{sound}");
    world.overwrite("d1", 0, 8192);
    assert_eq!(world.run("check d1 d2").exit, 7);
    world.start();
    assert_eq!(world.data("vg show data")["state"], "incomplete");
    assert!(world.log().contains("varve repair"), "{}", world.log());
    assert_eq!(world.stop(), Some(0));
    world.refused("repair d1 d2", 8, "V0004");
    let plan = world.ok("repair d1 d2 -n");
    assert!(plan.starts_with("would label d1 anew as a disk of group data"), "{plan}");
    assert_eq!(world.run("check d1 d2").exit, 7, "a dry run mends nothing");
    let done = world.ok("repair d1 d2 -y");
    assert!(done.starts_with("mended: label d1") && done.ends_with("nothing is damaged\n"), "{done}");
    world.start();
    assert_eq!(world.data("vg show data")["state"], "ok");
    assert_eq!(world.data("lv show data/a")["state"], "active");
}

#[test]
fn a_worn_label_is_written_again_and_a_lost_copy_at_the_end_too() {
    let world = at_rest();
    world.overwrite("d1", 4096, 4096);
    assert!(world.ok("repair d1 d2 --yes").contains("a copy of the label was damaged"));
    assert!(world.ok("repair d1 d2").contains("nothing to mend"));
    world.overwrite("d2", 599 << 20, 1 << 20);
    let said = world.ok("check d1 d2");
    assert!(said.contains("note: label: group data: d2: the copy of its metadata in its last MiB"), "{said}");
    assert!(
        world.ok("repair d1 d2 --yes").contains("last MiB is absent or out of date, and is written again")
    );
    assert!(world.ok("repair d1 d2").contains("nothing to mend"));
}

/// What a volume holds is compared whole.
#[test]
fn what_was_in_the_first_mib_of_all_disks_is_made_again_by_their_last_one() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 64M --type striped --stripes 2");
    world.ok("export create data/a --nbd unix:a.sock");
    let content: Vec<u8> = (0..64_u64 << 20).map(|at| (at / 4093 * 31 % 251) as u8).collect();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    for (at, part) in (0..).step_by(1 << 20).zip(content.chunks(1 << 20)) {
        client.write(at, part).expect("it is served");
    }
    client.flush();
    drop(client);
    assert_eq!(world.stop(), Some(0));
    world.overwrite("d1", 0, 1 << 20);
    world.overwrite("d2", 0, 1 << 20);
    let said = world.run("check d1 d2");
    assert_eq!(said.exit, 7, "{}", said.stdout);
    assert!(
        said.stdout.contains("d1: a disk of group data by its last MiB: varve repair"),
        "{}",
        said.stdout
    );
    world.start();
    world.refused("pv create d1", 7, "V0110");
    let text = world.refused("pv scan d1", 7, "V0110");
    assert!(
        text.contains("by its last MiB it is the physical volume") && text.contains("varve repair"),
        "{text}"
    );
    assert_eq!(world.stop(), Some(0));
    let would = world.ok("repair d1 d2 -n");
    assert!(would.starts_with("would label d1 anew as a disk of group data, as change "), "{would}");
    assert!(world.ok("repair d1 d2 -y").ends_with("nothing is damaged\n"));
    world.start();
    assert_eq!(world.data("vg show data")["state"], "ok");
    let found = Client::new(&world.path("a.sock"), "data/a").read_all();
    assert!(found == content, "every byte is there again, and so is the export");
}

#[test]
fn what_was_at_both_ends_is_made_again_by_the_group_or_a_backup_and_else_the_remedy_is_named() {
    let mut world = at_rest();
    let lose = |world: &World, disk: &str| {
        world.overwrite(disk, 0, 1 << 20);
        world.overwrite(disk, 599 << 20, 1 << 20);
    };
    lose(&world, "d2");
    let would = world.ok("repair d1 d2 -n");
    assert!(would.contains("would label d2 anew as the disk that group data misses"), "{would}");
    assert!(world.ok("repair d1 d2 -y").ends_with("nothing is damaged\n"));
    lose(&world, "d1");
    lose(&world, "d2");
    for command in ["check d1 d2", "repair d1 d2 -y"] {
        let text = world.refused(command, 3, "V0101");
        assert!(text.contains("neither by its first nor by its last MiB"), "{text}");
        assert!(text.contains("varve restore FILE PATH"), "{text}");
    }
    world.ok("restore backup.toml d1 d2 -y");
    assert_eq!(world.data("check d1 d2")["clean"], true);
    world.start();
    assert_eq!(world.data("vg show data")["state"], "ok");
    assert_eq!(world.data("lv show data/a")["state"], "active");
}

#[test]
fn a_stale_disk_is_taken_back_only_when_somebody_insists() {
    let mut world = at_rest();
    std::fs::copy(world.path("d2"), world.path("old")).expect("it is there");
    world.start();
    world.ok("lv create data/b --size 64M");
    world.ok("lv create data/c --size 64M");
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("old"), world.path("d2")).expect("it is there");
    world.start();
    let group = world.data("vg show data");
    assert_eq!(group["state"], "incomplete", "{group}");
    assert!(group["physical_volumes"].to_string().contains("stale"), "{group}");
    let text = world.refused("vg extend data d2", 8, "V0004");
    assert!(text.contains("varve vg extend data") && text.contains("--yes"), "{text}");
    assert!(world.ok("vg extend data d2 -n").starts_with("would take "));
    world.ok("vg extend data d2 --yes");
    assert_eq!(world.data("vg show data")["state"], "ok");
    assert_eq!(world.data("lv list").as_array().map(Vec::len), Some(3));
    world.refused("vg extend data d2 --yes", 5, "V0107");
}

#[test]
fn a_disk_that_was_cut_short_says_so_until_it_is_whole_again() {
    let mut world = at_rest();
    let disk = std::fs::File::options().write(true).open(world.path("d2")).expect("a disk");
    disk.set_len(100 << 20).expect("it shrinks");
    world.start();
    let group = world.ok("vg show data");
    assert!(group.contains("was cut short"), "{group}");
    world.refused("pv create d2", 7, "V0110");
    let text = world.refused("pv scan d2", 7, "V0110");
    assert!(text.contains("bring the disk back to its size"), "{text}");
    assert!(world.ok("pv list").contains("was cut short"), "it is not forgotten");
    disk.set_len(600 << 20).expect("it grows");
    world.ok("pv scan d2");
    assert_eq!(world.data("vg show data")["state"], "ok");
}

#[test]
fn a_disk_that_is_cut_short_in_use_is_shown_with_the_reason_and_a_scan_takes_it_back() {
    let world = World::with_group();
    let placed = world.data("lv create data/a --size 64M");
    let area = placed["segments"][0]["areas"][0].as_str().expect("a place");
    let name = if area.contains("/d1:") { "d1" } else { "d2" };
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.fill(0, 4 << 20, 7).expect("it is served");
    client.flush();
    let disk = std::fs::File::options().write(true).open(world.path(name)).expect("a disk");
    disk.set_len(16 << 20).expect("it shrinks");
    let end = Instant::now() + Duration::from_secs(120);
    while client.write(40 << 20, &[8; 4096]).is_ok() {
        assert!(Instant::now() < end, "nobody notices");
        std::thread::sleep(Duration::from_millis(20));
    }
    let shown = |state: &str| {
        let disks = world.data("pv list");
        let mut disks = disks.as_array().expect("a list").iter();
        let path = world.path(name).display().to_string();
        let disk = disks.find(|disk| disk["path"] == path.as_str()).expect("it is known").clone();
        assert_eq!(disk["state"], state, "{disk}");
        disk["reason"].as_str().unwrap_or_default().to_owned()
    };
    let reason = shown("failed");
    assert!(reason.contains("it had 600.0 MiB and has ") && reason.contains("varve pv scan"), "{reason}");
    world.ok("pv scan");
    assert!(shown("missing").contains("was cut short"));
    assert_ne!(world.data("lv show data/a")["state"], "active");
    disk.set_len(600 << 20).expect("it grows");
    world.ok("pv scan");
    assert_eq!(shown("ok"), "");
    assert_eq!(world.data("vg show data")["state"], "ok");
    assert_eq!(world.data("lv show data/a")["state"], "active");
    let found = Client::new(&world.path("a.sock"), "data/a").read(0, 4 << 20).expect("it is served again");
    assert!(found.iter().all(|byte| *byte == 7), "what was flushed and not cut away is there");
}

#[test]
fn a_failed_disk_that_belongs_to_no_group_is_shown_and_a_scan_takes_it_back() {
    let world = World::started();
    world.ok("pv create d1 --size 64M");
    let disk = std::fs::File::options().write(true).open(world.path("d1")).expect("a disk");
    disk.set_len(16 << 20).expect("it shrinks");
    assert_ne!(world.run("vg create data d1").exit, 0);
    let shown = || world.data("pv list")[0].clone();
    assert_eq!(shown()["state"], "failed");
    assert!(shown()["reason"].as_str().is_some_and(|reason| reason.contains("was cut short")), "{}", shown());
    world.ok("pv scan");
    assert_ne!(shown()["state"], "unused", "RESCAN1: it is short still");
    disk.set_len(64 << 20).expect("it grows");
    world.ok("pv scan");
    assert_eq!(shown()["state"], "unused");
    world.ok("vg create data d1");
}

#[test]
fn a_check_waits_a_moment_for_the_lock_of_a_disk() {
    let mut world = at_rest();
    let disk = std::fs::File::open(world.path("d1")).expect("a disk");
    disk.lock().expect("nobody has it");
    let mut check = world.command("check d1 d2").stdout(Stdio::null()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    assert!(check.try_wait().expect("it is known").is_none(), "it waits");
    drop(disk);
    assert!(check.wait().expect("it ends").success());
    for _ in 0..3 {
        world.start();
        world.kill(); // The kernel holds its disks for a moment longer.
        world.ok("check d1 d2");
    }
}

#[test]
fn of_two_copies_neither_is_used_until_one_is_gone() {
    let mut world = at_rest();
    std::fs::copy(world.path("d2"), world.path("copy")).expect("it is there");
    let state = std::fs::read_to_string(world.path("state/state.json")).expect("the state");
    let mut state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    let copy = serde_json::json!({"path": world.path("copy"), "cache": "direct"});
    state["disks"].as_array_mut().expect("a list").push(copy);
    std::fs::write(world.path("state/state.json"), state.to_string()).expect("the state");
    world.start();
    assert_eq!(world.data("vg list")[0]["state"], "damaged");
    let disks = world.ok("pv list");
    assert!(disks.matches("duplicate").count() == 2 && disks.contains("its group cannot be used"), "{disks}");
    world.ok("pv scan");
    assert_eq!(world.data("vg list")[0]["state"], "damaged", "nobody chooses");
    std::fs::remove_file(world.path("copy")).expect("it is there");
    world.ok("pv scan d2");
    assert_eq!(world.data("vg show data")["state"], "ok");
    assert_eq!(world.data("lv show data/a")["state"], "active");
    assert_eq!(world.ok("pv remove copy -y"), "gave up copy\n");
    assert_eq!(world.data("pv list").as_array().map(Vec::len), Some(2));
}

#[test]
fn two_groups_with_one_name_are_told_apart() {
    let world = World::with_group();
    let mut other = World::with_group();
    other.ok("lv create data/q --size 8M");
    assert_eq!(other.stop(), Some(0));
    world.ok(&format!("pv scan {} {}", other.path("d1").display(), other.path("d2").display()));
    let text = world.refused("vg show data", 1, "V0203");
    let groups = world.data("vg list");
    let id = groups[1]["id"].as_str().expect("an id");
    assert!(world.ok("vg list").contains(&format!("data ({id})")) && text.contains(id), "{text}");
    assert_eq!(world.data(&format!("vg rename {id} second"))["name"], "second");
    assert_eq!(world.data("vg show data")["name"], "data");
}

#[test]
fn a_check_says_which_bytes_of_which_volume_are_concerned() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 560M");
    let placed = world.data("lv create data/b --size 600M"); // no disk has room for all of it
    let parts = placed["segments"].as_array().expect("a list");
    let on_second =
        |part: &&serde_json::Value| part["areas"][0].as_str().is_some_and(|at| at.contains("/d2:"));
    let part = parts.iter().find(on_second).expect("a part on the second disk");
    let wanted = serde_json::json!([{"offset": part["offset"], "length": part["length"]}]);
    assert_eq!(parts.len(), 2, "{placed}");
    world.ok("snap create data/a@one");
    assert_eq!(world.stop(), Some(0));
    let alone = world.data("check d1");
    let found = |check: &serde_json::Value, volume: &str| {
        let findings = check["findings"].as_array().expect("a list");
        findings.iter().find(|finding| finding["volume"] == volume).cloned()
    };
    let absent = found(&alone, "data/b").expect("half of it is missing");
    assert_eq!(absent["extents"], wanted, "{absent}");
    let text = absent["message"].as_str().expect("a text");
    assert!(
        text.starts_with("data/b, bytes ") && text.ends_with(" MiB: lie on disks that are not here"),
        "{text}"
    );
    assert_eq!(found(&alone, "data/a"), None, "it is whole");
    assert_eq!(world.data("check d1 d2")["clean"], true);
    // Both superblocks of the store.
    let description = world.ok("dump d1 d2");
    let store = description.split("[logical_volume.store]").nth(1).expect("a store");
    let place = store.split("segments = [\"pv").nth(1).expect("a place");
    let (disk, rest) = place.split_once(':').expect("a disk");
    let first: u64 = rest.split('+').next().expect("a number").parse().expect("a number");
    world.overwrite(["d1", "d2"][usize::from(disk == "1")], (1 << 20) + first * (4 << 20), 8192);
    let ended = world.run("check d1 d2");
    assert_eq!(ended.exit, 7);
    let said = "concerned is every dependent snapshot of data/a, bytes 0 B..560.0 MiB, and not data/a itself";
    assert!(ended.stdout.contains(said), "{}", ended.stdout);
}
