//! Every verb once, in an order in which they make sense, and the shape of its JSON.
#![expect(clippy::disallowed_methods, reason = "what a command prints is read while it goes on")]

use crate::harness::{World, ask, http};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// The value has all of these keys.
fn has(value: &Value, keys: &[&str]) {
    let object = value.as_object().expect("an object");
    for key in keys {
        assert!(object.contains_key(*key), "{key} is missing in {value}");
    }
}

const DISK: &[&str] = &["path", "id", "group", "state", "size", "free", "cache"];
const GROUP: &[&str] =
    &["name", "id", "state", "extent_size", "size", "free", "sequence", "physical_volumes", "volumes"];
const VOLUME: &[&str] = &[
    "name",
    "id",
    "group",
    "layout",
    "stripes",
    "stripe_size",
    "size",
    "state",
    "created",
    "shard",
    "snapshots",
    "snapshot_store",
    "independent_stores",
    "snapshot_policy",
    "exports",
    "segments",
    "traffic",
];
const SNAPSHOT: &[&str] =
    &["name", "volume", "size", "used", "created", "mode", "read_only", "held", "state", "exports"];
const EXPORT: &[&str] = &["id", "volume", "door", "address", "read_only", "state", "connections", "traffic"];
const JOB: &[&str] = &["id", "kind", "subject", "state", "done", "total", "unit", "started"];

#[test]
fn disks_and_groups() {
    let world = World::started();
    let made = world.data("pv create d1 d2 d3 --size 300M");
    assert_eq!(made.as_array().map(Vec::len), Some(3));
    has(&made[0], DISK);
    assert_eq!((&made[0]["state"], made[0]["size"].as_u64()), (&Value::from("unused"), Some(299 << 20)));
    let group = world.data("vg create data d1 d2 --extent-size 1M");
    has(&group, GROUP);
    assert_eq!(group["size"].as_u64(), Some((2 * 298) << 20), "the last MiB of each belongs to no extent");
    assert_eq!(world.data("vg extend data d3")["physical_volumes"].as_array().map(Vec::len), Some(3));
    assert_eq!(world.data("vg reduce data d2")["physical_volumes"].as_array().map(Vec::len), Some(2));
    assert_eq!(world.data("vg rename data store")["name"], "store");
    has(&world.data("vg show store"), GROUP);
    assert_eq!(world.data("vg list").as_array().map(Vec::len), Some(1));
    let backup = world.data("vg backup store backup.toml");
    has(&backup, &["group", "sequence", "text"]);
    let file = std::fs::read_to_string(world.path("backup.toml")).expect("it was written");
    assert_eq!(backup["text"], Value::from(file));
    world.ok("lv create store/late --size 10M");
    assert_eq!(
        world.data("vg restore store backup.toml --drop store/late -y")["volumes"].as_array().map(Vec::len),
        Some(0)
    );
    let history = world.data("vg history store");
    has(&history["entries"][0], &["sequence", "time", "change"]);
    assert!(history["entries"].as_array().is_some_and(|entries| entries.len() >= 6));
    assert_eq!(world.data("pv remove d2 -y"), serde_json::json!({}));
    assert_eq!(world.data("vg remove store -y"), serde_json::json!({}));
    let states: Vec<Value> = world.data("pv list").as_array().expect("a list").clone();
    assert!(states.len() == 2 && states.iter().all(|disk| disk["state"] == "unused"));
}

#[test]
fn volumes() {
    let world = World::with_group();
    let made = world.data("lv create data/home --size 100M");
    has(&made, VOLUME);
    assert_eq!((made["size"].as_u64(), &made["layout"]), (Some(100 << 20), &Value::from("linear")));
    has(&made["segments"][0], &["offset", "length", "areas"]);
    let wide = world.data("lv create data/wide --size 64M --type striped --stripes 2 --stripe-size 16K");
    assert_eq!((wide["stripes"].as_u64(), wide["stripe_size"].as_u64()), (Some(2), Some(16 << 10)));
    let rest = world.data("lv create data/rest --size 50%FREE");
    assert!(rest["size"].as_u64().is_some_and(|size| size > 400 << 20));
    assert_eq!(world.data("lv list").as_array().map(Vec::len), Some(3));
    assert_eq!(world.data("lv list data").as_array().map(Vec::len), Some(3));
    assert_eq!(world.data("lv extend data/home --size +20M")["size"].as_u64(), Some(120 << 20));
    assert_eq!(world.data("lv extend data/home --size 124M")["size"].as_u64(), Some(124 << 20));
    assert_eq!(world.data("lv reduce data/home --size -24M -y")["size"].as_u64(), Some(100 << 20));
    assert_eq!(world.data("lv reduce data/home --size 96M -y")["size"].as_u64(), Some(96 << 20));
    assert_eq!(world.data("lv rename data/home haus")["name"], "data/haus");
    assert_eq!(world.data("lv rename data/haus data/home")["name"], "data/home");
    assert_eq!(world.data("lv show data/home")["name"], "data/home");
    assert_eq!(world.data("lv remove data/home --now -y"), serde_json::json!({}));
    let shards: Vec<Value> =
        world.data("lv list").as_array().expect("a list").iter().map(|lv| lv["shard"].clone()).collect();
    assert_ne!(shards[0], shards[1], "volumes are spread over the shards");
}

#[test]
fn snapshots_and_jobs() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("lv create data/b --size 64M");
    let made = world.data("snap create data/a@one data/b@one data/a@two");
    assert_eq!(made.as_array().map(Vec::len), Some(3));
    has(&made[0], SNAPSHOT);
    has(&world.data("lv show data/a")["snapshot_store"], &["size", "used", "chunk_size"]);
    world.ok("snap create data/a@three --read-only");
    let names = |list: &Value| -> Vec<String> {
        list.as_array()
            .expect("a list")
            .iter()
            .map(|snap| snap["name"].as_str().unwrap_or("").to_owned())
            .collect()
    };
    assert_eq!(names(&world.data("snap list data/a")), ["data/a@one", "data/a@two", "data/a@three"]);
    assert_eq!(world.data("snap list").as_array().map(Vec::len), Some(4));
    assert_eq!(world.data("snap hold data/a@one")[0]["held"], true);
    world.refused("snap remove data/a@one..@three -y", 5, "V0403");
    assert_eq!(world.data("snap release data/a@one")[0]["held"], false);
    let job = world.data("snap rollback data/a@one -y --wait");
    has(&job, JOB);
    assert_eq!((&job["kind"], &job["state"]), (&Value::from("rollback"), &Value::from("done")));
    let id = job["id"].as_str().expect("a text").to_owned();
    assert_eq!(world.data(&format!("job show {id}"))["state"], "done");
    assert_eq!(world.data(&format!("job wait {id}"))["state"], "done");
    world.refused(&format!("job cancel {id}"), 5, "V0702");
    let removal = world.data("snap remove data/a@two..@three -y --wait");
    assert_eq!((removal["done"].as_u64(), &removal["unit"]), (Some(128 << 20), &Value::from("bytes")));
    assert_eq!(names(&world.data("snap list data/a")), ["data/a@one", "data/a@before-rollback-1"]);
    world.ok("snap remove data/a@before-rollback-1 -y --wait");
    let free = world.data("vg show data")["free"].as_u64();
    world.ok("snap remove data/a@one -y --wait");
    assert!(
        world.data("lv show data/a")["snapshot_store"].is_null(),
        "the last snapshot takes its store with it"
    );
    assert!(world.data("vg show data")["free"].as_u64() > free);
    assert_eq!(world.data("job list").as_array().map(Vec::len), Some(4));
}

#[test]
fn exports() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("lv create data/b --size 64M");
    world.ok("snap create data/a@s");
    let made = world.data("export create data/a --nbd unix:one.sock");
    has(&made, EXPORT);
    let socket = world.path("one.sock");
    assert_eq!(made["uri"], format!("nbd+unix:///data%2Fa?socket={}", socket.display()));
    assert!(socket.exists());
    world.ok("export create data/b --nbd unix:one.sock --read-only");
    world.ok("export create data/a@s --nbd unix:two.sock");
    assert_eq!(world.data("export list").as_array().map(Vec::len), Some(3));
    world.refused("export create data/a --nbd unix:one.sock", 4, "V0502");
    world.refused("lv remove data/a -y", 5, "V0303");
    world.refused("lv reduce data/b --size 32M -y", 5, "V0303");
    world.refused("snap remove data/a@s -y", 5, "V0404");
    assert_eq!(world.data("lv rename data/a neu")["exports"], serde_json::json!(["e1"]));
    assert_eq!(world.data("export list")[2]["volume"], "data/neu@s");
    world.refused("export remove one.sock", 2, "V0506");
    world.ok("export remove data/neu");
    world.ok("export remove two.sock");
    assert!(socket.exists(), "the socket has another export");
    world.ok("export remove e2");
    assert!(!socket.exists() && !world.path("two.sock").exists(), "EXPORTCALL1");
    world.refused("export remove e2", 3, "V0501");
    world.refused("export create data/neu --nbd unix:log", 5, "V0503");
    world.refused("export create data/neu --nbd file:x", 2, "V0504");
    world.refused("export create data/nothing --nbd unix:x.sock", 3, "V0301");
    world.refused("export create data/neu@nothing --nbd unix:x.sock", 3, "V0401");
}

#[test]
fn the_program_itself() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("export create data/a --nbd unix:a.sock");
    has(&world.data("status"), &["version", "pid", "started", "shards", "io", "state_dir", "events"]);
    let socket = world.path("varve.sock");
    assert_eq!(http(&socket, "/healthz"), "ok\n");
    let metrics = http(&socket, "/metrics");
    for sample in [
        "varve_shards 2\n",
        "varve_group_ok{group=\"data\"} 1\n",
        "varve_volume_bytes{volume=\"data/a\"} 67108864\n",
        "varve_export_up{export=\"e1\",volume=\"data/a\",door=\"nbd\"} 1\n",
    ] {
        assert!(metrics.contains(sample), "{sample} is missing in\n{metrics}");
    }
    let document: Value = serde_json::from_str(&http(&socket, "/v1/openapi.json")).expect("JSON");
    assert!(document["paths"]["/v1/volumes/{volume}/extend"].is_object());
    for words in [
        "pv list",
        "vg list",
        "vg show data",
        "vg history data",
        "lv list",
        "lv show data/a",
        "snap list",
        "export list",
        "job list",
        "status",
        "events",
    ] {
        assert!(!world.ok(words).contains("null"), "varve {words} is for people");
    }
}

#[test]
fn what_happens_is_shown_while_it_happens() {
    let world = World::with_group();
    assert_eq!(world.ok("status --check"), "ok\n");
    let mut follower = world.command("events --follow").stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mut number = 0;
    // What comes before it has begun to follow is not shown.
    let line = loop {
        number += 1;
        world.ok(&format!("lv create data/v{number} --size 4M"));
        if let Ok(line) = told.recv_timeout(Duration::from_secs(1)) {
            break line;
        }
    };
    assert!(line.contains("data") && line.contains("lv create"), "{line}");
    let events = world.data("events");
    let numbers: Vec<u64> =
        events.as_array().expect("a list").iter().flat_map(|e| e["number"].as_u64()).collect();
    assert!(numbers.is_sorted_by(|one, next| one + 1 == *next) && numbers.len() > 1, "{numbers:?}");
    follower.kill().expect("it follows");
    follower.wait().expect("it ends");
    let _ = reader.join();
}

#[test]
fn http_over_tcp_serves_programs_and_no_pages_in_browsers() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let mut world = World::new();
    world.start_with(&format!("--http {address} --log json --io pool"));
    let connect = || std::net::TcpStream::connect(address).expect("the daemon listens");
    let host = format!("host: {address}\r\n");
    let (head, body) = ask(connect(), "/v1/status", &host);
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("\"io\":\"pool\""), "{head}\n{body}");
    let foreign = [
        format!("{host}origin: http://evil.example\r\n"),
        "host: evil.example\r\n".to_owned(),
        String::new(),
    ];
    for headers in foreign {
        let (head, body) = ask(connect(), "/v1/status", &headers);
        let is_refused = head.starts_with("HTTP/1.1 403") && body.contains("V0002");
        assert!(is_refused, "GUARD1, GUARD2: {headers}: {head}\n{body}");
    }
    let (head, body) = ask(connect(), "/v1/nothing", &host);
    assert!(head.starts_with("HTTP/1.1 400") && body.contains("V0002"), "{head}\n{body}");
    for line in world.log().lines() {
        let event: Value = serde_json::from_str(line).expect("the log is JSON");
        assert!(event["level"].is_string(), "{line}");
    }
}

#[test]
fn offline_tools_read_what_no_daemon_holds() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("snap create data/a@one");
    world.refused("check d1 d2", 5, "V0104");
    assert_eq!(world.stop(), Some(0));
    let check = world.data("check d1 d2");
    assert_eq!(check["clean"], true, "{check}");
    assert!(
        check["findings"][0]["message"].as_str().is_some_and(|text| text.contains("1 snapshots")),
        "{check}"
    );
    let dump = world.ok("dump d1 d2");
    assert!(dump.contains("[[logical_volume]]") && dump.contains("name = \"a\""), "{dump}");
    let mut disk = std::fs::read(world.path("d1")).expect("a disk");
    disk[..8192].fill(0xa5);
    std::fs::write(world.path("d1"), &disk).expect("a disk");
    let ended = world.run("check d1 d2 --json");
    assert_eq!(ended.exit, 7, "{}", ended.stdout);
    assert!(ended.stdout.contains("\"clean\":false"));
    world.refused("check log", 3, "V0101");
    world.refused("check nothing", 3, "V0114");
}

#[test]
fn a_disk_is_shown_by_every_path_that_leads_to_it() {
    let world = World::with_group();
    let id = world.data("pv show d1")["id"].clone();
    std::os::unix::fs::symlink(world.path("d1"), world.path("link")).expect("a link");
    std::fs::hard_link(world.path("d1"), world.path("hard")).expect("a link");
    let folder = world.path("").file_name().expect("it has a name").to_string_lossy().into_owned();
    for path in ["link", "hard", "./d1", &format!("../{folder}/d1")] {
        assert_eq!(world.data(&format!("pv show {path}"))["id"], id, "{path}");
    }
    world.refused("pv show log", 3, "V0114");
}
