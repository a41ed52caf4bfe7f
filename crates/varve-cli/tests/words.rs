//! The command without a daemon: exit codes, JSON envelopes, usage errors, explanations.

use serde_json::Value;
use std::process::{Command, Output};

fn varve(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(words).env("VARVE_SOCKET", "/nonexistent/varve.sock");
    command.output().expect("the command starts")
}

fn exit(output: &Output) -> i32 {
    output.status.code().expect("it exits")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The envelope on stdout, and nothing else anywhere.
fn envelope(output: &Output) -> Value {
    assert_eq!(text(&output.stderr), "", "JSON mode is silent on stderr");
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 1, "one line: {stdout}");
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(value["schema"], "varve.v1");
    value
}

const ONLINE: &[&[&str]] = &[
    &["pv", "list"],
    &["pv", "ls"],
    &["pv", "create", "/tmp/x", "--size", "1G"],
    &["pv", "scan"],
    &["vg", "list"],
    &["vg", "create", "data", "/tmp/x"],
    &["vg", "show", "data"],
    &["vg", "change", "data", "--cache", "1M"],
    &["vg", "extend", "data", "/tmp/x"],
    &["vg", "reduce", "data", "/tmp/x"],
    &["vg", "rename", "data", "other"],
    &["vg", "backup", "data", "/nonexistent/file"],
    &["vg", "history", "data"],
    &["lv", "create", "data/x", "--size", "1G"],
    &["lv", "create", "data/x", "--size", "50%FREE", "--type", "striped", "--stripes", "2"],
    &["lv", "list"],
    &["lv", "ls", "data"],
    &["lv", "show", "data/x"],
    &["lv", "extend", "data/x", "--size", "+1G"],
    &[
        "lv",
        "change",
        "data/x",
        "--when-full",
        "drop-oldest",
        "--pause-timeout",
        "5s",
        "--auto-extend",
        "off",
    ],
    &["lv", "create", "data/x", "--size", "1G", "--when-full", "error", "--auto-extend", "70%:50%"],
    &["lv", "extend", "data/x@a", "--size", "+1G"],
    &["lv", "rename", "data/x", "y"],
    &["lv", "rm", "data/x", "--yes"],
    &["lv", "reduce", "data/x", "--size", "-1G", "-y"],
    &["snap", "create", "data/x@a", "data/y@a", "--read-only"],
    &["snap", "list"],
    &["snap", "rm", "data/x@a..@b", "-y", "--no-wait"],
    &["snap", "rollback", "data/x@a", "-y", "--wait"],
    &["snap", "hold", "data/x@a"],
    &["snap", "release", "data/x@a"],
    &["snap", "diff", "data/x@a"],
    &["snap", "diff", "data/x@a", "data/x@b"],
    &["export", "create", "data/x", "--nbd", "unix:/tmp/s"],
    &["export", "create", "data/x", "--fuse", "/tmp/f", "--read-only"],
    &["export", "ls"],
    &["export", "rm", "e1", "-y"],
    &["job", "list"],
    &["job", "show", "1"],
    &["job", "wait", "1"],
    &["job", "cancel", "1"],
    &["status"],
];

#[test]
fn every_online_verb_is_understood_and_says_how_to_start_a_daemon() {
    for words in ONLINE {
        let output = varve(words);
        assert_eq!(exit(&output), 1, "{words:?}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.starts_with("error[V0005]: "), "{words:?}: {stderr}");
        assert!(
            stderr.contains("\nhelp: start one: varve daemon --socket /nonexistent/varve.sock"),
            "{stderr}"
        );
    }
}

#[test]
fn every_online_verb_answers_in_json_too() {
    for words in ONLINE {
        let output = varve(&[words, &["--json"][..]].concat());
        assert_eq!(exit(&output), 1, "{words:?}");
        let value = envelope(&output);
        assert_eq!(value["error"]["code"], "V0005", "{words:?}");
        assert!(
            value["error"]["help"].as_str().is_some_and(|help| help.contains("varve daemon")),
            "{words:?}"
        );
        assert!(value.get("data").is_none(), "{words:?}");
    }
}

#[test]
fn words_that_are_not_understood_exit_with_2() {
    for words in [
        &["nonsense"][..],
        &["lv"],
        &["lv", "fly"],
        &["lv", "create", "data/x"],
        &["lv", "create", "data/x", "--size", "1G", "--type", "round"],
        &["lv", "create", "data/x", "--size", "1G", "--stripes", "2"],
        &["export", "create", "data/x"],
        &["export", "create", "data/x", "--nbd", "unix:/s", "--fuse", "/f"],
        &["lv", "create", "data/x", "--size", "1G", "--copies", "2"],
        &["lv", "create", "data/x", "--size", "1G", "--type", "mirror", "--order", "2"],
        &["pool", "create", "data/x", "--size", "1G", "--read-policy", "verify"],
        &["lv", "create", "data/x", "--size", "1G", "--type", "mirror", "--read-policy", "all"],
        &["snap", "create"],
        &["snap", "create", "data/x@a", "--mode", "sideways"],
        &["daemon", "--shards", "0"],
        &["daemon", "--http", "here"],
    ] {
        let output = varve(words);
        assert_eq!(exit(&output), 2, "{words:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.starts_with("error[V0002]: ") && !stderr.contains("error: "), "{words:?}: {stderr}");
        let output = varve(&[words, &["--json"][..]].concat());
        assert_eq!(exit(&output), 2, "{words:?}");
        assert_eq!(envelope(&output)["error"]["code"], "V0002", "{words:?}");
    }
}

#[test]
fn what_is_not_built_says_so_and_exits_with_2() {
    let words = &["lv", "create", "data/x", "--image", "/x.vmdk", "--format", "vmdk"][..];
    let output = varve(words);
    assert_eq!(exit(&output), 2, "{words:?}");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("not built yet") && stderr.contains("\nhelp: "), "{words:?}: {stderr}");
    let output = varve(&[words, &["--json"][..]].concat());
    assert_eq!(envelope(&output)["error"]["code"], "V0003", "{words:?}");
    assert_eq!(exit(&output), 2, "{words:?}");
}

#[test]
fn a_verb_that_destroys_declines_where_nobody_can_be_asked() {
    let output = varve(&["repair", "/dev/vdb", "--store", "data/x"]);
    assert_eq!(exit(&output), 8);
    assert!(text(&output.stderr).contains("--yes"));
    // What a daemon would refuse is refused before anybody is asked, and here there is none.
    for words in [
        &["lv", "remove", "data/x"][..],
        &["lv", "reduce", "data/x", "--size", "1G"],
        &["vg", "remove", "data"],
        &["pv", "remove", "/dev/vdb"],
        &["snap", "remove", "data/x@a"],
        &["snap", "rollback", "data/x@a"],
    ] {
        let output = varve(words);
        assert_eq!(exit(&output), 1, "{words:?}");
        let stderr = text(&output.stderr);
        assert!(!stderr.contains("--yes") && stderr.contains("\nhelp: "), "{words:?}: {stderr}");
    }
}

#[test]
fn every_error_can_be_explained() {
    let output = varve(&["explain", "V0102"]);
    assert_eq!(exit(&output), 0);
    assert!(text(&output.stdout).starts_with("V0102: "));
    let value = envelope(&varve(&["explain", "v102", "--json"]));
    assert_eq!((value["data"]["code"].as_str(), value["data"]["exit"].as_u64()), (Some("V0102"), Some(8)));
    assert_eq!(exit(&varve(&["explain", "V9999"])), 3);
    assert_eq!(exit(&varve(&["explain", "nonsense"])), 3);
}

#[test]
fn help_version_and_completions_come_from_the_grammar() {
    for words in [&["--help"][..], &["--version"], &["lv", "create", "--help"], &["completions", "bash"]] {
        let output = varve(words);
        assert_eq!(exit(&output), 0, "{words:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&varve(&["completions", shell]).stdout).contains("rollback"), "{shell}");
    }
}
