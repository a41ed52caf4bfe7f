//! `varve image` beside `qemu-img`: what one makes the other reads; what is wrong is said.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &str, folder: &Path, words: &[&str]) -> Output {
    let output = Command::new(program).args(words).current_dir(folder).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; install qemu-utils"))
}

fn varve(folder: &Path, words: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_varve"), folder, words)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn good(program: &str, folder: &Path, words: &[&str]) -> String {
    let output = run(program, folder, words);
    assert!(output.status.success(), "{program} {words:?}: {}", text(&output));
    text(&output)
}

fn ours(folder: &Path, words: &[&str]) -> String {
    good(env!("CARGO_BIN_EXE_varve"), folder, words)
}

fn json(folder: &Path, words: &[&str]) -> Value {
    let said = ours(folder, &[words, &["--json"]].concat());
    serde_json::from_str::<Value>(&said).expect("JSON")["data"].clone()
}

/// A raw base of no whole sectors, and two images over it, the upper one made by us.
fn chain(folder: &Path) {
    let base: Vec<u8> = (0..3_000_001_u32).map(|at| u8::try_from(at / 4096 % 251).expect("a byte")).collect();
    std::fs::write(folder.join("base"), base).expect("written");
    good("qemu-img", folder, &["create", "-q", "-f", "qcow2", "-b", "base", "-F", "raw", "middle", "8M"]);
    good(
        "qemu-io",
        folder,
        &["-f", "qcow2", "-c", "write -q -P 7 1M 1M", "-c", "write -q -c -P 8 4M 64k", "middle"],
    );
    ours(
        folder,
        &["image", "create", "top", "--backing", "middle", "--backing-format", "qcow2", "--extended-l2"],
    );
    good(
        "qemu-io",
        folder,
        &["-f", "qcow2", "-c", "write -q -P 9 1536k 6k", "-c", "write -q -z 4M 8k", "top"],
    );
}

#[test]
fn a_chain_is_shown_checked_and_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    chain(folder);
    good("qemu-img", folder, &["check", "-q", "top"]);
    let info = json(folder, &["image", "info", "top"]);
    assert_eq!((&info["virtual_bytes"], &info["qcow2"]["backing"]), (&(8 << 20).into(), &"middle".into()));
    assert_eq!(json(folder, &["image", "check", "top"])["corruptions"], 0);
    let runs = json(folder, &["image", "map", "top"]);
    let run = |start: u64| {
        let holds = |run: &&Value| {
            let from = run["start"].as_u64().expect("a number");
            (from..from + run["length"].as_u64().expect("a number")).contains(&start)
        };
        runs.as_array().expect("runs").iter().find(holds).expect("all is covered").clone()
    };
    for (at, depth, data) in [(1536 << 10, 0, true), (1 << 20, 1, true), (4096, 2, true), (4 << 20, 0, false)]
    {
        let run = run(at);
        assert_eq!((&run["depth"], &run["data"]), (&depth.into(), &data.into()), "byte {at}: {run}");
    }
    assert_eq!(run((4 << 20) + 16384)["compressed"], true);
    for (format, name) in [("raw", "flat"), ("qcow2", "flat.qcow2")] {
        ours(folder, &["image", "convert", "top", name, "-f", "qcow2", "-O", format]);
        good("qemu-img", folder, &["compare", "-f", "qcow2", "-F", format, "top", name]);
    }
    good("qemu-img", folder, &["check", "-q", "flat.qcow2"]);
    let blocks =
        |name| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(folder.join(name)).expect("there"));
    assert!(blocks("flat") * 512 < 4 << 20, "holes stay holes");
    let length = std::fs::metadata(folder.join("flat.qcow2")).expect("there").len();
    assert!(length < 5 << 20, "the file ends where the image does: {length}");
}

/// What an image shows, by QEMU.
fn shown(folder: &Path, image: &str, format: &str) -> Vec<u8> {
    good("qemu-img", folder, &["convert", "-f", format, "-O", "raw", image, "shown"]);
    std::fs::read(folder.join("shown")).expect("read")
}

#[test]
fn an_image_is_committed_into_its_backing_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    chain(folder);
    good("qemu-io", folder, &["-f", "qcow2", "-c", "write -q -c -P 11 6M 64k", "top"]);
    let model = shown(folder, "top", "qcow2");
    // Into a qcow2 image that is smaller, and then into a raw one that is smaller still.
    good("qemu-img", folder, &["resize", "-q", "top", "10M"]);
    assert!(ours(folder, &["image", "commit", "top"]).contains("middle"));
    let mut model = model;
    model.resize(10 << 20, 0);
    for image in ["middle", "top"] {
        good("qemu-img", folder, &["check", "-q", image]);
        assert!(shown(folder, image, "qcow2") == model, "{image}");
    }
    ours(folder, &["image", "commit", "middle"]);
    assert!(std::fs::read(folder.join("base")).expect("read") == model);
    assert!(shown(folder, "top", "qcow2") == model);
    let refused = varve(folder, &["image", "commit", "base"]);
    assert!(!refused.status.success() && text(&refused).contains("no qcow2 image"), "{}", text(&refused));
}

#[test]
fn an_image_needs_what_it_lay_over_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    chain(folder);
    let model = shown(folder, "top", "qcow2");
    ours(folder, &["image", "flatten", "top"]);
    std::fs::remove_file(folder.join("base"))
        .and_then(|()| std::fs::remove_file(folder.join("middle")))
        .expect("there");
    good("qemu-img", folder, &["check", "-q", "top"]);
    assert!(shown(folder, "top", "qcow2") == model);
    assert_eq!(json(folder, &["image", "info", "top"])["qcow2"]["backing"], Value::Null);
    let again = varve(folder, &["image", "flatten", "top"]);
    assert!(text(&again).contains("has no backing image"), "{}", text(&again));
    // Internal snapshots show what lies below, too.
    ours(folder, &["image", "create", "over", "--backing", "top", "--backing-format", "qcow2"]);
    good("qemu-img", folder, &["snapshot", "-c", "s", "over"]);
    let kept = varve(folder, &["image", "flatten", "over"]);
    assert!(!kept.status.success() && text(&kept).contains("internal snapshots"), "{}", text(&kept));
}

#[test]
fn an_internal_snapshot_is_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    ours(folder, &["image", "create", "disk", "--size", "4M", "--cluster-size", "4K"]);
    good("qemu-io", folder, &["-f", "qcow2", "-c", "write -q -P 1 0 1M", "disk"]);
    good("qemu-img", folder, &["snapshot", "-c", "before", "disk"]);
    good("qemu-io", folder, &["-f", "qcow2", "-c", "write -q -P 2 0 2M", "disk"]);
    assert!(ours(folder, &["image", "info", "disk"]).contains("before"));
    ours(folder, &["image", "convert", "disk", "old", "-f", "qcow2", "-O", "raw", "--snapshot", "before"]);
    let old = std::fs::read(folder.join("old")).expect("read");
    assert!(old[..1 << 20].iter().all(|byte| *byte == 1) && old[1 << 20..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let refused = |words: &[&str], expected: &str| {
        let output = varve(folder, &[&["image"], words].concat());
        assert!(!output.status.success() && text(&output).contains(expected), "{words:?}: {}", text(&output));
    };
    std::fs::write(folder.join("raw"), vec![0; 4096]).expect("written");
    refused(&["info", "raw"], "no qcow2 image");
    refused(&["info", "absent"], "no such file");
    refused(&["create", "raw", "--size", "1M"], "exists already");
    refused(&["create", "new", "--size", "1M", "--cluster-size", "3K"], "power of two");
    refused(&["convert", "raw", "new", "-f", "raw"], "--output-format");
    good("qemu-img", folder, &["create", "-q", "-f", "qcow2", "-u", "-b", "two", "-F", "qcow2", "one", "1M"]);
    good("qemu-img", folder, &["create", "-q", "-f", "qcow2", "-u", "-b", "one", "-F", "qcow2", "two", "1M"]);
    refused(&["map", "one"], "no end");
    good(
        "qemu-img",
        folder,
        &["create", "-q", "-f", "qcow2", "-u", "-b", "nbd://host/x", "-F", "raw", "far", "1M"],
    );
    refused(&["map", "far"], "no path of this host");
    let json = r#"json:{"driver":"raw","file":{"driver":"file","filename":"raw"}}"#;
    good("qemu-img", folder, &["create", "-q", "-f", "qcow2", "-b", json, "-F", "raw", "over", "1M"]);
    for words in [&["map", "over"][..], &["commit", "over"], &["flatten", "over"]] {
        refused(words, "no path of this host");
        refused(words, "qemu-img rebase -u -b FILE -F FORMAT over;");
    }
    // The remedy is one.
    good("qemu-img", folder, &["rebase", "-u", "-f", "qcow2", "-b", "raw", "-F", "raw", "over"]);
    assert_eq!(self::json(folder, &["image", "map", "over"])[0]["depth"], 1);
    // A reference count that is too low.
    ours(folder, &["image", "create", "bad", "--size", "1M"]);
    good("qemu-io", folder, &["-f", "qcow2", "-c", "write -q 0 64k", "bad"]);
    let mut bytes = std::fs::read(folder.join("bad")).expect("read");
    let counts = bytes.windows(6).position(|bytes| bytes == [0, 1, 0, 1, 0, 1]).expect("counts");
    bytes[counts + 1] = 0;
    std::fs::write(folder.join("bad"), bytes).expect("written");
    let output = varve(folder, &["image", "check", "bad"]);
    assert_eq!(
        (output.status.code(), text(&output).contains("1 references and a count of 0")),
        (Some(7), true)
    );
}

/// Whether a text gives no orders to a terminal, and shows the one that a name holds.
fn shows_order(said: &str) -> bool {
    let is_order = |character: char| character.is_control() && !matches!(character, '\n' | '\t' | '\r');
    !said.contains(is_order) && said.contains("\\u{1b}[2J\\u{7}")
}

#[test]
fn names_in_images_and_of_files_give_no_orders_to_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let hostile = "\u{1b}[2J\u{7}base";
    let create = ["create", "-q", "-f", "qcow2", "-u", "-b", hostile, "-F", "raw", "top", "1M"];
    good("qemu-img", folder, &create);
    let refused = |words: &[&str]| {
        let output = varve(folder, words);
        assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}: {}", text(&output));
        text(&output)
    };
    let missing = refused(&["image", "map", "top"]);
    assert!(missing.contains("is not there") && shows_order(&missing), "{missing:?}");
    let shown = ours(folder, &["image", "info", "top"]);
    assert!(shows_order(&shown), "{shown:?}");
    assert_eq!(json(folder, &["image", "info", "top"])["qcow2"]["backing"], hostile);
    std::fs::write(folder.join(hostile), vec![7; 1 << 20]).expect("written");
    let shown = ours(folder, &["image", "map", "top"]);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let planned = ours(folder, &["image", "commit", "top", "-n"]);
    assert!(shows_order(&planned), "{planned:?}");
    let unknown = refused(&["image", hostile]);
    assert!(unknown.contains("base") && !unknown.contains(['\u{1b}', '\u{7}']), "{unknown:?}");
    // The question on a terminal; the answer is the end of the input.
    let command = format!("'{}' image convert -f qcow2 -O raw top '{hostile}2'", env!("CARGO_BIN_EXE_varve"));
    std::fs::write(folder.join(format!("{hostile}2")), "in the way").expect("written");
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).current_dir(folder);
    let asked = terminal.stdin(std::process::Stdio::null()).output().expect("script is there");
    let said = text(&asked);
    assert!(said.contains("would replace what is in") && said.contains("go ahead? [y/N]"), "{said:?}");
    assert!(shows_order(&said), "{said:?}");
    let kept = std::fs::read(folder.join(format!("{hostile}2"))).expect("it is there");
    assert_eq!(kept, b"in the way");
}

/// All files of a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let read = |entry: std::fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("read"))
    };
    let mut files: Vec<_> = entries.map(read).collect();
    files.sort();
    files
}

#[test]
fn a_dry_run_changes_nothing_and_refuses_what_the_command_refuses() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    chain(folder);
    good("qemu-img", folder, &["create", "-q", "-f", "qcow2", "marked", "1M"]);
    good("qemu-img", folder, &["bitmap", "--add", "marked", "b"]);
    good("qemu-img", folder, &["create", "-q", "-f", "qcow2", "-b", "marked", "-F", "qcow2", "over", "1M"]);
    let before = files(folder);
    for words in [
        "create new --size 1M",
        "create new --backing top --backing-format qcow2",
        "commit top",
        "commit middle",
        "flatten top",
        "convert top new -f qcow2 -O raw",
        "convert top base -f raw -O qcow2",
        "convert marked over -f qcow2 -O raw",
    ] {
        let words: Vec<&str> = ["image"].into_iter().chain(words.split(' ')).collect();
        let said = ours(folder, &[&words[..], &["-n"]].concat());
        assert!(said.starts_with("would ") && said.ends_with("nothing was changed\n"), "{words:?}: {said}");
        assert_eq!(json(folder, &[&words[..], &["--dry-run"]].concat())["dry_run"], true);
    }
    for words in [
        "create top --size 1M",
        "create nowhere/new --size 1M",
        "create new --size 1M --cluster-size 3K",
        "create new --backing absent --backing-format raw",
        "create new --backing nbd:host --backing-format raw",
        "commit base",
        "commit marked",
        "commit over",
        "flatten marked",
        "flatten absent",
        "convert absent new -f raw -O qcow2",
        "convert top nowhere/new -f qcow2 -O raw",
        "convert top top -f qcow2 -O raw -y",
        "convert top middle -f qcow2 -O raw -y",
    ] {
        let words: Vec<&str> = ["image"].into_iter().chain(words.split(' ')).collect();
        let (planned, refused) = (varve(folder, &[&words[..], &["-n"]].concat()), varve(folder, &words));
        assert!(!refused.status.success(), "{words:?}");
        let refusals = ((planned.status, text(&planned)), (refused.status, text(&refused)));
        assert_eq!(refusals.0, refusals.1, "{words:?}; TARGET2");
    }
    assert!(files(folder) == before);
}

#[test]
fn an_image_replaces_a_file_only_when_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    chain(folder);
    let model = shown(folder, "top", "qcow2");
    for (format, content) in [("raw", vec![5; 9 << 20]), ("qcow2", vec![6; 100]), ("raw", Vec::new())] {
        std::fs::write(folder.join("target"), &content).expect("written");
        let words = ["image", "convert", "top", "target", "-f", "qcow2", "-O", format];
        if content.is_empty() {
            ours(folder, &words);
        } else {
            let asked = varve(folder, &words);
            assert!(asked.status.code() == Some(8) && text(&asked).contains("--yes"), "{}", text(&asked));
            assert!(std::fs::read(folder.join("target")).expect("read") == content);
            ours(folder, &[&words[..], &["-y"]].concat());
        }
        assert!(shown(folder, "target", format) == model, "{format}");
    }
    let left: Vec<String> = files(folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["base", "middle", "shown", "target", "top"], "TARGET1: nothing is left beside it");
}

#[test]
fn bitmaps_are_shown_and_an_image_in_use_is_looked_at_when_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    good("qemu-img", folder, &["create", "-q", "-f", "qcow2", "-o", "compression_type=zstd", "disk", "4M"]);
    good("qemu-img", folder, &["bitmap", "--add", "-g", "32K", "disk", "monday"]);
    let info = &json(folder, &["image", "info", "disk"])["qcow2"];
    assert_eq!((&info["compression"], &info["bitmaps"][0]["name"]), (&"zstd".into(), &"monday".into()));
    assert_eq!(info["bitmaps"][0]["granularity"], 32 << 10);
    assert!(ours(folder, &["image", "info", "disk"]).contains("monday (32.0 KiB)"));
    let checked = json(folder, &["image", "check", "disk"]);
    assert_eq!((&checked["leaked_clusters"], &checked["corruptions"]), (&0.into(), &0.into()));
    let mut server = Command::new("qemu-nbd")
        .args(["-f", "qcow2", "-t", "disk", "-k"])
        .arg(folder.join("socket"))
        .current_dir(folder)
        .spawn()
        .expect("qemu-utils");
    while !folder.join("socket").exists() {
        assert_eq!(server.try_wait().expect("it is ours"), None, "it serves");
        std::thread::yield_now();
    }
    for verb in ["info", "check", "map"] {
        let refused = varve(folder, &["image", verb, "disk"]);
        assert!(!refused.status.success() && text(&refused).contains("in use"), "{verb}: {}", text(&refused));
        ours(folder, &["image", verb, "-U", "disk"]);
    }
    server.kill().and_then(|()| server.wait()).expect("it runs");
}
