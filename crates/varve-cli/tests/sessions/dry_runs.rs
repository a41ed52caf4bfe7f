//! Every verb of the command line with `--dry-run`, in a group that has everything: nothing changes, and what the command refuses is refused.

use crate::harness::{World, http};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// Verbs that change nothing, or are no commands to a daemon.
const READING: &[&str] = &[
    "array-show",
    "check",
    "completions",
    "daemon",
    "dump",
    "events",
    "explain",
    "export-list",
    "image-check",
    "image-info",
    "image-map",
    "job-list",
    "job-show",
    "job-wait",
    "lv-list",
    "lv-map",
    "lv-show",
    "man",
    "pool-check",
    "pool-list",
    "pool-show",
    "pv-list",
    "report",
    "schedule-list",
    "schedule-show",
    "pv-show",
    "snap-diff",
    "snap-list",
    "snap-show",
    "status",
    "top",
    "trash-list",
    "vg-history",
    "vg-list",
    "vg-show",
];
/// Those with a dry run that work on disks that no daemon holds; `job cancel` needs a job that runs, `lv attach` and `lv detach` the
/// driver of the kernel (`tests/vm/30-attach`).
const ELSEWHERE: &[&str] = &["job-cancel", "lv-attach", "lv-detach", "repair", "restore"];

/// What can be done in the group of [`world`], at least one line for each verb.
const POSSIBLE: &[&str] = &[
    "pv create new --size 64M",
    "pv scan out",
    "pv change d6 --spare yes",
    "pv resize d1 --size 250M",
    "pv remove u1",
    "pv forget u1",
    "pv move d1",
    "pv replace d2 d6",
    "vg create new u1",
    "vg extend data u1",
    "vg reduce other o2",
    "vg change data --cache 1M",
    "vg change data --trash 7d",
    "vg rename other another",
    "vg activate data",
    "vg deactivate other",
    "vg remove empty",
    "vg backup data data.backup",
    "vg restore other other.backup",
    "vg undo other",
    "lv create data/new --size 4M",
    "lv create data/new --pool p --size 1G",
    "lv create data/new --image free",
    "lv extend data/a --size +4M",
    "lv reduce data/plain --size 4M",
    "lv change data/a --when-full error",
    "lv rename data/plain simple",
    "lv activate data/a",
    "lv deactivate data/plain",
    "lv convert data/plain --type striped --stripes 2",
    "lv split data/m half",
    "lv flatten data/q",
    "lv commit data/q",
    "lv remove data/plain",
    "lv remove data/plain --now",
    "lv remove data/a",
    "pool create data/new --size 16M",
    "pool extend data/p --size +16M",
    "pool change data/p --when-full error",
    "pool rename data/p pool",
    "pool activate data/p",
    "pool deactivate data/pe",
    "pool convert data/p --type striped --stripes 2",
    "pool remove data/pe",
    "pool remove data/pe --now",
    "trash restore data/gone",
    "trash restore data/gone --as back",
    "trash empty data/gone",
    "trash empty data",
    "trash empty other",
    "snap create data/a@three",
    "snap remove data/a@one",
    "snap rollback data/a@one",
    "snap change data/a@one --read-only",
    "snap rename data/a@one other",
    "snap hold data/a@one",
    "snap release data/a@one",
    "schedule create data/a --every 1h --keep 24h,7d",
    "schedule create data/a --every 1h --keep 3 --name more --set b,data/t",
    "schedule change data/yearly --keep 1",
    "schedule change data/yearly --every 1d --name daily",
    "schedule run data/yearly",
    "schedule remove data/yearly",
    "export create data/a --nbd unix:a.sock",
    "export change data/b --iops 100",
    "export change data/b --mode 0660",
    "export remove data/b",
    "array change data/m --slow-after 10s",
    "array fail data/m d2",
    "array replace data/m d2 d6",
    "array scrub data/m",
    "array rebuild data/m d2",
    "image create new --size 1M",
    "image convert top new -f qcow2 -O raw",
    "image commit lone",
    "image flatten top",
];

/// What cannot.
const IMPOSSIBLE: &[&str] = &[
    "pv resize d1 --size 900M",
    "pv resize d1 --size 8M",
    "pv create d1",
    "pv create d1 --size 1G",
    "pv create nowhere",
    "pv create tiny --size 512K",
    "pv scan nowhere",
    "pv scan base",
    "pv change nowhere --spare yes",
    "pv change d1 --spare yes",
    "pv remove d1 -y",
    "pv remove nowhere -y",
    "pv forget d1",
    "pv forget nowhere",
    "pv move nowhere",
    "pv move d1 o1",
    "pv move d6",
    "pv move d1 d1",
    "pv replace d1 d6",
    "pv replace d2 o1",
    "pv replace d2 d3",
    "pv replace nowhere d6",
    "vg create data u1",
    "vg create n d1",
    "vg create a/b u1",
    "vg create n nowhere",
    "vg create n u1 --extent-size 3M",
    "vg extend data d1",
    "vg extend none u1",
    "vg reduce data d1 -y",
    "vg reduce data nowhere -y",
    "vg reduce empty o3 -y",
    "vg reduce data --missing -y",
    "vg change data --cache 1",
    "vg change none --cache 1M",
    "vg change data --trash soon",
    "vg change data --trash 367d",
    "vg change data --trash 7d --cache 1M",
    "vg rename data other",
    "vg rename none x",
    "vg rename other a/b",
    "vg activate none",
    "vg deactivate none",
    "vg remove data -y",
    "vg remove none -y",
    "vg backup none file",
    "vg backup data nowhere/file",
    "vg restore data other.backup -y",
    "vg restore other nowhere -y",
    "vg restore other base -y",
    "vg undo none -y",
    "vg undo other --to 999 -y",
    "lv create data/a --size 1M",
    "lv create data/p --size 1M",
    "lv create data/t --size 1M",
    "lv create data/x --size 8E",
    "lv create data/x --size 0",
    "lv create data/x --size lots",
    "lv create data/x --size 1M --type striped --stripes 200",
    "lv create data/x --size 1M --type mirror --copies 9",
    "lv create data/x --size 4M --on u1",
    "lv create none/x --size 1M",
    "lv create data/x --pool none --size 1M",
    "lv create data/t --pool p --size 1M",
    "lv create data/x --pool p --size 8E",
    "lv create data/x --image absent",
    "lv create data/x --image base",
    "lv create data/x --image q --format qcow2",
    "lv create data/x --image empty",
    "lv create data/x --image free --format qcow2",
    "lv extend data/a --size 1M",
    "lv extend data/a --size +8E",
    "lv extend data/x --size +1M",
    "lv reduce data/a --size 4M -y",
    "lv reduce data/b --size 4M -y",
    "lv reduce data/plain --size 1G -y",
    "lv reduce data/i --size 512K -y",
    "lv rename data/a b",
    "lv rename data/a a/b",
    "lv remove data/a --now -y",
    "lv remove data/b -y",
    "lv remove data/x -y",
    "lv remove data/p -y",
    "lv remove data/t --now -y",
    "lv convert data/a --type mirror --copies 9",
    "lv convert data/x --type linear",
    "lv convert data/t --type striped --stripes 2",
    "lv split data/a half",
    "lv split data/m a",
    "lv split data/r half",
    "lv flatten data/a",
    "lv flatten data/t",
    "lv flatten data/i",
    "lv commit data/a",
    "lv commit data/i",
    "lv commit data/x",
    "lv change data/a",
    "lv change data/x --when-full error",
    "lv change data/a --auto-extend 80%",
    "lv activate data/x",
    "lv deactivate data/x",
    "lv deactivate data/b",
    "pool create data/p --size 16M",
    "pool create data/a --size 16M",
    "pool create data/y --size 8E",
    "pool create data/y --size 16M --block-size 3K",
    "pool extend data/a --size +16M",
    "pool extend data/p --size 1M",
    "pool extend data/p --size +8E",
    "pool change data/p",
    "pool change data/x --when-full error",
    "pool rename data/p a",
    "pool rename data/x y",
    "pool activate data/x",
    "pool deactivate data/x",
    "pool remove data/p -y",
    "pool remove data/x -y",
    "trash restore data/x",
    "trash restore data/gone --as a",
    "trash restore data/gone --as a/b",
    "trash empty data/x -y",
    "trash empty none -y",
    "pool convert data/p --type mirror --copies 9",
    "pool convert data/x --type linear",
    "snap create data/a@one",
    "snap create data/x@y",
    "snap create data/a@x data/a@x",
    "snap create data/a@x --chunk-size 3K",
    "snap create data/a",
    "snap create data/t@s",
    "snap remove data/a@x -y",
    "snap remove data/a@two..@one -y",
    "snap rollback data/a@x -y",
    "snap rollback data/x@x -y",
    "snap change data/a@x --read-only",
    "snap rename data/a@x other",
    "snap rename data/a@one two",
    "snap rename data/a@one data/b@other",
    "snap hold data/a@x",
    "snap release data/a@x",
    "schedule create data/x --every 1h --keep 3",
    "schedule create data/p --every 1h --keep 3",
    "schedule create data/a --every 1h --keep 3 --name yearly",
    "schedule create data/a --every 1h --keep 3 --name a/b",
    "schedule create data/a --every soon --keep 3",
    "schedule create data/a --every 367d --keep 3",
    "schedule create data/a --every 1h --keep 3y",
    "schedule create data/a --every 1h --keep 3 --set x",
    "schedule create data/a --every 1h --keep 3 --set other/c",
    "schedule change data/yearly",
    "schedule change data/yearly --keep many",
    "schedule change data/x --keep 3",
    "schedule run data/x",
    "schedule run none/x",
    "schedule remove data/x",
    "export create data/x --nbd unix:x.sock",
    "export create data/a@x --nbd unix:x.sock",
    "export create data/b --nbd unix:b.sock",
    "export create data/a --nbd unix:base",
    "export create data/a --nbd tcp:port",
    "export create data/a --nbd unix:nowhere/x.sock",
    "export create data/a --fuse nowhere/file",
    "export create data/a --fuse base/file",
    "export change data/b",
    "export change data/b --iops 0",
    "export change data/b --mode 0060",
    "export change data/b --group nosuch",
    "export create data/a --nbd unix:x.sock --mode 8",
    "export create data/a --nbd unix:x.sock --group nosuch",
    "export create data/a --nbd tcp:10809 --mode 0660",
    "export create data/a --nbd tcp:10809 --tls nowhere",
    "export create data/a --fuse file --tls nowhere",
    "export create data/a --nbd unix:x.sock --since one",
    "export create data/a@one --fuse file --since one",
    "export change data/b --tls nowhere",
    "export change e9 --iops 1",
    "export remove e9",
    "export remove data/a",
    "array change data/a --slow-after 10s",
    "array change data/m --slow-after never",
    "array change data/m --log d2",
    "array fail data/m d6",
    "array fail data/a d1",
    "array replace data/m d2 d1x",
    "array replace data/m d2 d3",
    "array replace data/m d6 d1",
    "array replace data/m d2 o1",
    "array scrub data/a",
    "array scrub data/m --rate 1",
    "array rebuild data/m d6",
    "array rebuild data/m",
    "array rebuild data/m --accept-stale 7 -y",
    "array rebuild data/a d1",
    "job cancel 77",
    "job cancel 1",
    "lv rename data/none y",
    "lv commit data/short",
];

const DISKS: &[&str] = &["d1", "d2", "d3", "d4", "d5", "d6", "o1", "o2", "o3", "u1", "out"];

fn qemu(world: &World, words: &str) {
    let folder = world.path("");
    let made = Command::new("qemu-img").args(words.split(' ')).current_dir(folder).status();
    assert!(made.expect("qemu-utils").success(), "qemu-img {words}");
}

/// A daemon with all kinds of volumes, pools, snapshots, images and exports.
fn world() -> World {
    let mut world = World::new();
    std::fs::write(world.path("base"), vec![7; 1 << 20]).expect("an image");
    for name in ["i", "free", "lower"] {
        std::fs::write(world.path(name), vec![5; 1 << 20]).expect("an image");
    }
    std::fs::write(world.path("long"), vec![1; 2 << 20]).expect("an image");
    std::fs::write(world.path("empty"), b"").expect("a file");
    for (name, base) in [("q", "base"), ("top", "base"), ("lone", "lower")] {
        qemu(&world, &format!("create -q -f qcow2 -b {base} -F raw {name} 1M"));
    }
    qemu(&world, "create -q -f qcow2 -b long -F raw short 1M");
    let folder = world.path("").display().to_string();
    world.start_with(&format!("--image-dir {}", folder.trim_end_matches('/')));
    world.ok(&format!("pv create {} --size 300M", DISKS.join(" ")));
    world.ok("pv forget out");
    for words in [
        "vg create data d1 d2 d3 d4 d5 d6",
        "vg create other o1 o2",
        "vg change other --trash 2h",
        "vg create empty o3",
        "vg backup other other.backup",
        "lv create data/a --size 16M --on d1",
        "snap create data/a@one data/a@two",
        "lv create data/b --size 8M --on d1",
        "lv create data/plain --size 8M --on d1",
        "export create data/b --nbd unix:b.sock",
        "lv create data/m --size 16M --type mirror --copies 2 --on d2,d3",
        "lv create data/r --size 16M --type ddraid --order 1 --on d3,d4,d5",
        "pool create data/p --size 64M --on d5",
        "lv create data/t --pool p --size 1G",
        "snap create data/t@s",
        "pool create data/pe --size 16M --on d5",
        "lv create data/q --image q --format qcow2",
        "lv create data/i --image i",
        "lv create data/short --image short --format qcow2",
        "array scrub data/m --wait",
        "lv create data/gone --size 8M --on d4",
        "lv remove data/gone -y",
        "schedule create data/t --name yearly --every 366d --keep 5",
        "schedule run data/yearly",
    ] {
        world.ok(words);
    }
    world
}

/// Lists, the beginnings of disks, and other files by name.
type State = (Vec<String>, Vec<Vec<u8>>, Vec<(String, Vec<u8>)>);

/// Everything that the lists show and that the disks say of it, and all other files.
fn everything(world: &World) -> State {
    let socket = world.path("varve.sock");
    let lists = ["pvs", "groups", "volumes", "pools", "snapshots", "schedules", "exports", "jobs"];
    let shown = lists.map(|list| http(&socket, &format!("/v1/{list}"))).to_vec();
    let head = |disk: &&str| {
        let mut bytes = vec![0; 1 << 20];
        File::open(world.path(disk)).and_then(|mut file| file.read_exact(&mut bytes)).expect("a disk");
        bytes
    };
    let heads = DISKS.iter().map(head).collect();
    let entries =
        std::fs::read_dir(world.path("")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_other = |path: &Path| !DISKS.contains(&name(path).as_str()) && name(path) != "log";
    let content =
        |path: &Path| if path.is_file() { std::fs::read(path).expect("a file") } else { Vec::new() };
    let mut files: Vec<_> =
        entries.filter(|path| is_other(path)).map(|path| (name(&path), content(&path))).collect();
    files.sort();
    (shown, heads, files)
}

/// What differs, for a message.
fn refuse_difference(world: &World, before: &State, words: &str) {
    let now = everything(world);
    assert_eq!(now.0, before.0, "varve {words} changed a list");
    assert!(now.1 == before.1, "varve {words} changed what a disk says");
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&now.2), names(&before.2), "varve {words} made or removed a file");
    for (now, before) in now.2.iter().zip(&before.2) {
        assert!(now == before, "varve {words} changed {}", now.0);
    }
}

#[test]
fn every_verb_that_changes_something_has_a_dry_run_and_a_row_here() {
    let world = World::new();
    world.ok("man pages");
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(entry.path()).expect("a page");
        let verb = name.strip_prefix("varve-").and_then(|name| name.strip_suffix(".1")).map(str::to_owned);
        verb.filter(|_| !text.contains(".SH SUBCOMMANDS")).map(|verb| (verb, text.contains("dry\\-run")))
    };
    let pages = std::fs::read_dir(world.path("pages")).expect("pages");
    let verbs: Vec<(String, bool)> = pages.filter_map(|entry| read(entry.expect("an entry"))).collect();
    assert!(verbs.len() > 60, "{verbs:?}");
    let planned: BTreeSet<String> =
        POSSIBLE.iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join("-")).collect();
    for (verb, has_dry_run) in &verbs {
        let is_reading = READING.contains(&verb.as_str());
        assert_ne!(*has_dry_run, is_reading, "varve {verb}: --dry-run, or a row of READING");
        let is_planned = planned.contains(verb) || ELSEWHERE.contains(&verb.as_str());
        assert_eq!(is_planned, *has_dry_run, "varve {verb} needs a row of POSSIBLE");
    }
}

#[test]
fn dry_runs_change_nothing_and_refuse_what_the_command_refuses() {
    let world = world();
    let before = everything(&world);
    for words in POSSIBLE {
        let said = world.ok(&format!("{words} -n"));
        assert!(
            said.starts_with("would ") && said.ends_with("nothing was changed\n"),
            "varve {words} -n: {said}"
        );
        refuse_difference(&world, &before, &format!("{words} -n"));
    }
    for words in IMPOSSIBLE {
        let (planned, refused) = (world.run(&format!("{words} -n")), world.run(words));
        assert_ne!(refused.exit, 0, "varve {words}: {}", refused.stdout);
        assert_eq!((planned.exit, planned.stderr), (refused.exit, refused.stderr), "varve {words}");
        refuse_difference(&world, &before, words);
    }
    world.ok("pv move d1 --rate 64K --no-wait");
    let jobs = world.data("job list");
    let job = jobs.as_array().and_then(|jobs| jobs.last()).expect("a job").clone();
    let id = job["id"].as_str().expect("a number");
    assert!(world.ok(&format!("job cancel {id} -n")).starts_with("would ask job"));
    assert_eq!(world.data(&format!("job show {id}"))["state"], "running");
    world.ok(&format!("job cancel {id}"));
}
