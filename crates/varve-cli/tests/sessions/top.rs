//! `varve top`: what clients do is shown while they do it, as data, as lines, and on a real terminal.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than any of these takes.
const LIMIT_SECONDS: &str = "120";

/// A daemon with two volumes, of which the second one is exported.
fn world() -> World {
    let world = World::with_group();
    world.ok("lv create data/idle --size 64M");
    world.ok("lv create data/busy --size 64M");
    world.ok("export create data/busy --nbd unix:busy.sock");
    world
}

/// Writes 4 KiB after 4 KiB to the second volume until `work` has ended.
fn beside_writes<T>(world: &World, work: impl FnOnce() -> T) -> T {
    let (mut client, has_ended) =
        (Client::new(&world.path("busy.sock"), "data/busy"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                client.write(4096, &[7; 4096]).expect("it serves");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let done = work();
        has_ended.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn what_clients_do_is_shown_while_they_do_it_the_busiest_volume_first() {
    let world = world();
    let looks = beside_writes(&world, || world.ok("top --every 1 --count 2 --json"));
    let looks: Vec<Value> = looks.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(looks.len(), 2);
    for look in looks.iter().map(|look| &look["data"]) {
        let [busy, idle] = [&look["volumes"][0], &look["volumes"][1]];
        assert_eq!((&busy["name"], &idle["name"]), (&"data/busy".into(), &"data/idle".into()));
        let rate = |row: &Value, what: &str| row["per_second"][what].as_f64().expect("a number");
        let writes = rate(busy, "writes");
        assert!(writes > 0.0 && rate(idle, "writes") == 0.0, "{look}");
        assert!((rate(busy, "write_bytes") / writes - 4096.0).abs() < 0.01, "all write 4 KiB: {look}");
        assert_eq!((rate(busy, "reads"), rate(busy, "errors"), &busy["connections"]), (0.0, 0.0, &1.into()));
        let export = &look["exports"][0];
        assert!(export["volume"] == "data/busy" && rate(export, "writes") > 0.0, "{look}");
        assert_eq!((&look["health"], &look["disks"][0]["group"]), (&"ok".into(), &"data".into()));
    }
    let lines = beside_writes(&world, || world.ok("top --every 1 --count 1"));
    assert!(
        lines.starts_with("health: ok ") && lines.contains("data/busy ") && !lines.contains("idle"),
        "{lines}"
    );
    world.refused("top --every 0", 2, "V0002");
}

#[test]
fn a_terminal_has_a_screen_that_follows_keys_and_is_left_as_it_was() {
    let mut world = world();
    let screen = world.path("screen");
    let shown = |text: &str| {
        let screen = std::fs::read(&screen).unwrap_or_default();
        String::from_utf8_lossy(&screen).contains(text)
    };
    // A terminal of util-linux's script; what is on it goes to the file.
    let command = format!("stty rows 24 cols 150; '{}' top --every 1", env!("CARGO_BIN_EXE_varve"));
    let mut child = Command::new("timeout")
        .args([LIMIT_SECONDS, "script", "--quiet", "--return", "--flush", "--command", &command])
        .arg(&screen)
        .env("VARVE_SOCKET", world.path("varve.sock"))
        .env("TERM", "xterm")
        .current_dir(world.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script is there");
    let mut keys = child.stdin.take().expect("a pipe");
    let mut press_until = |key: &str, text: &str| {
        while !shown(text) {
            assert!(child.try_wait().expect("a child").is_none(), "it ended before it showed {text}");
            keys.write_all(key.as_bytes()).expect("it reads");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    press_until("", "data/idle");
    press_until("2", "EXPORT");
    press_until("3", "DISK");
    world.stop();
    press_until("1", "asked again");
    keys.write_all(b"q").expect("it reads");
    assert_eq!(child.wait().expect("a child").code(), Some(0));
    assert!(shown("\u{1b}[?1049h") && shown("\u{1b}[?1049l"), "the screen of before is there again");
}
