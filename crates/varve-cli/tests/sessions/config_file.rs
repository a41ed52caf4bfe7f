//! A daemon with a configuration file: what is in force, what is refused, and who may use its socket.

use crate::harness::World;
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What `varve daemon WORDS --check-config` prints, with its exit code; both streams.
fn checked(world: &World, words: &str) -> (i32, String) {
    let mut command = world.command(&format!("daemon {words} --check-config"));
    let output = command.env_remove("VARVE_SOCKET").env("XDG_RUNTIME_DIR", world.path("run")).output();
    let output = output.expect("the command starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text)
}

fn write(world: &World, text: &str) {
    std::fs::write(world.path("varve.toml"), text).expect("a writable folder");
}

#[test]
fn a_check_shows_what_is_in_force_and_by_what_and_is_a_file_that_means_the_same() {
    let world = World::new();
    write(
        &world,
        "memory-mib = 32\nstop-timeout = 7\nimage-dir = [\"/a\", \"/b\"]\nsocket = \"of-file.sock\"\n",
    );
    let words = "--config varve.toml --stop-timeout 9 --image-dir /c --state state";
    let (exit, shown) = checked(&world, words);
    assert_eq!(exit, 0, "{shown}");
    let line =
        |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{shown}"));
    for (start, source) in [
        ("memory-mib = 32 ", "# line 1"),
        ("stop-timeout = 9 ", "# command line"),
        ("image-dir = [\"/c\"] ", "# command line"),
        ("connections = 4096 ", "# default"),
        ("socket-mode = \"0600\" ", "# default"),
        ("insecure = false ", "# default"),
        ("#http is not set ", "# default"),
    ] {
        assert!(line(start).ends_with(source), "{shown}");
    }
    let socket = format!("socket = \"{}\"", world.path("of-file.sock").display());
    assert!(line(&socket).ends_with("# line 4"), "{shown}");
    assert!(!world.path("state").exists(), "a check makes nothing");
    // What is shown is a file, too.
    std::fs::write(world.path("shown.toml"), &shown).expect("a writable folder");
    let values = |text: &str| {
        let kept =
            text.lines().skip(1).map(|line| line.rsplit_once('#').expect("each has its source").0.trim_end());
        kept.map(str::to_owned).collect::<Vec<_>>()
    };
    let (exit, again) = checked(&world, "--config shown.toml");
    assert_eq!((exit, values(&again)), (0, values(&shown)), "{again}");
    assert!(values(&shown).len() > 10, "{shown}");
}

#[test]
fn the_environment_has_the_socket_before_the_file_and_the_command_line_before_it() {
    let world = World::new();
    write(&world, "socket = \"/of-file.sock\"\n");
    let socket = |words: &str| {
        let ended = world.run(&format!("--json daemon --state s --config varve.toml --check-config {words}"));
        let value: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let options = value["data"]["options"].as_array().expect("a list").clone();
        let option = options.into_iter().find(|option| option["name"] == "socket").expect("it is one");
        (option["value"].clone(), option["source"].clone())
    };
    assert_eq!(socket(""), (json!(world.path("varve.sock")), json!("environment")));
    assert_eq!(socket("--socket /mine.sock"), (json!("/mine.sock"), json!("command-line")));
}

#[test]
fn a_daemon_does_what_its_file_says() {
    let mut world = World::new();
    write(&world, "connections = 6\nshards = 3\nlog = \"json\"\n");
    world.start_with("--config varve.toml");
    world.ok("pv create d1 --size 64M");
    let log = world.log();
    assert!(log.lines().count() > 0 && log.lines().all(|line| line.starts_with('{')), "{log}");
    assert_eq!(world.stop(), Some(0));
}

#[test]
fn a_file_that_is_wrong_or_missing_stops_the_daemon_before_it_makes_anything() {
    let world = World::new();
    write(&world, "shards = 2\nmemory-mb = 32\n");
    for check in ["", " --check-config"] {
        let text = world.refused(&format!("daemon --state state --config varve.toml{check}"), 2, "V0015");
        assert!(text.contains("varve.toml:2: there is no key \"memory-mb\""), "{text}");
        assert!(text.contains("help: the nearest one is memory-mib"), "{text}");
        let text = world.refused(&format!("daemon --state state --config nowhere.toml{check}"), 3, "V0016");
        assert!(text.contains("nowhere.toml"), "{text}");
    }
    // What no key forbids alone is refused as on the command line.
    write(&world, "http = \"0.0.0.0:0\"\n");
    world.refused("daemon --state state --config varve.toml --check-config", 2, "V0508");
    write(&world, "socket-group = \"no-such-group\"\n");
    let text = world.refused("daemon --state state --config varve.toml --check-config", 2, "V0002");
    assert!(text.contains("there is no group no-such-group"), "{text}");
    assert!(!world.path("state").exists());
}

#[test]
fn a_group_may_use_the_daemons_socket_only_when_it_is_asked_for_and_others_never() {
    let mut world = World::new();
    let group = std::fs::metadata(world.path(".")).expect("it is there").gid();
    let mode = |socket: &Path| {
        let file = std::fs::metadata(socket).expect("it is there");
        (file.mode() & 0o777, file.gid())
    };
    world.start();
    assert_eq!(mode(&world.path("varve.sock")).0, 0o600);
    assert_eq!(world.stop(), Some(0));
    // The group of root's files, and one that nothing else here has.
    let group = if group == 0 { 4711 } else { group };
    world.start_with(&format!("--socket-group {group}"));
    assert_eq!(mode(&world.path("varve.sock")), (0o660, group));
    assert_eq!(world.stop(), Some(0));
    let text = world.refused("daemon --state state --socket-mode 0666", 2, "V0508");
    assert!(text.contains("lets every user of this host do what the daemon may"), "{text}");
    world.refused("daemon --state state --socket-mode 0060", 2, "V0002");
    world.refused("daemon --state state --socket-mode rw", 2, "V0002");
}
