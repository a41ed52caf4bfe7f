//! What cannot be done is refused before it is asked for consent, by a dry run too, and with all that is wrong.

use crate::harness::World;
use std::net::TcpListener;

#[test]
fn what_is_refused_anyway_is_refused_before_consent_is_asked() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("snap create data/a@one");
    world.refused("lv reduce data/a --size 4M", 5, "V0308");
    world.refused("lv remove data/a --now", 5, "V0304");
    world.refused("vg remove data", 5, "V0204");
    world.refused("snap remove data/a@none", 3, "V0401");
    let help = world.refused("snap show data/a@none", 3, "V0401");
    assert!(help.contains("varve snap list data/a"), "{help}");
    world.refused("snap show data/none@one", 3, "V0301");
    world.refused("snap show data/a", 2, "V0008");
    world.refused("snap remove data/a@one", 8, "V0004");
}

#[test]
fn an_address_at_which_nobody_can_listen_is_refused_by_a_dry_run() {
    let world = World::with_group();
    world.ok("lv create data/a --size 4M");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it has one").port();
    let _living = std::os::unix::net::UnixListener::bind(world.path("living")).expect("a socket");
    std::fs::write(world.path("file"), b"kept").expect("a file");
    let long = "x".repeat(120);
    let tcp = format!("tcp:127.0.0.1:{port}");
    for address in [tcp.as_str(), "unix:living", "unix:file", "unix:nowhere/socket", &format!("unix:{long}")]
    {
        let words = format!("export create data/a --nbd {address}");
        let planned = world.run(&format!("{words} -n"));
        let refused = world.run(&words);
        assert_ne!(planned.exit, 0, "{words}");
        assert_eq!((planned.exit, &planned.stderr), (refused.exit, &refused.stderr), "{words}");
    }
    assert_eq!(std::fs::read(world.path("file")).expect("it is there"), b"kept");
    assert!(!world.path("a.sock").exists());
    for dry_run in [" -n", ""] {
        world.refused(&format!("export create data/a --nbd tcp:0.0.0.0:{port}{dry_run}"), 2, "V0508");
    }
    world.ok("export create data/a --nbd tcp:0.0.0.0:10990 --insecure -n");
    world.refused("daemon --state other --http 0.0.0.0:0", 2, "V0508");
    world.refused("daemon --state other --metrics 0.0.0.0:0", 2, "V0508");
    world.refused("daemon --state other --metrics 127.0.0.1:1 --metrics-volumes most", 2, "V0002");
    world.ok("export create data/a --nbd unix:a.sock -n");
    assert!(!world.path("a.sock").exists(), "a dry run makes no socket");
    world.ok("export create data/a --nbd unix:a.sock");
    world.ok("lv create data/b --size 4M");
    world.ok("export create data/b --nbd unix:a.sock -n"); // Its own socket takes another name.
}

#[test]
fn an_export_is_removed_by_any_path_that_leads_to_its_file() {
    let world = World::with_group();
    world.ok("lv create data/a --size 4M");
    std::fs::create_dir(world.path("folder")).expect("a folder");
    std::os::unix::fs::symlink(world.path("a.sock"), world.path("link")).expect("a link");
    for path in ["folder/../a.sock", "unix:folder/../a.sock", "link"] {
        world.ok("export create data/a --nbd unix:a.sock");
        world.refused("export remove folder", 3, "V0501");
        world.ok(&format!("export remove {path}"));
        assert_eq!(world.data("export list"), serde_json::json!([]), "{path}");
    }
}

#[test]
fn an_empty_file_is_refused_as_empty() {
    let world = World::with_group();
    std::fs::write(world.path("empty"), b"").expect("a file");
    for words in ["pv scan empty", "lv create data/x --image empty"] {
        let said = world.run(words);
        assert!(said.exit != 0 && said.stderr.contains("empty: it is empty"), "{words}: {}", said.stderr);
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let world = World::with_group();
    for words in ["lv list", "lv list --json"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let ended = world.command(words).stdout(full).status().expect("it runs");
        assert_eq!(ended.code(), Some(1), "{words}");
    }
}

#[test]
fn a_scan_of_several_disks_tells_what_is_wrong_with_each() {
    let mut world = World::with_group();
    world.ok("pv create d3 d4 --size 64M");
    assert_eq!(world.stop(), Some(0));
    std::fs::remove_dir_all(world.path("state")).expect("it is there");
    world.start();
    std::fs::write(world.path("plain"), vec![1; 1 << 20]).expect("a file");
    for planned in [" -n", ""] {
        let said = world.refused(&format!("pv scan d1 nowhere d2 plain d3{planned}"), 9, "V0126");
        assert!(
            said.contains("nowhere: there is no such file") && said.contains("plain is no physical"),
            "{said}"
        );
    }
    let shown = world.data("pv list");
    assert_eq!(shown.as_array().map(Vec::len), Some(3), "those that are well are in use: {shown}");
    let said = world.refused("pv scan nowhere plain", 3, "V0114");
    assert!(said.contains("nowhere: there") && said.contains("plain is no"), "{said}");
    world.refused("pv scan plain", 3, "V0101");
    world.ok("pv scan d4 d1");
}

#[test]
fn a_snapshot_without_its_origin_is_not_exported_though_its_volume_needs_that_no_more() {
    let mut world = World::started();
    world.ok("pv create small --size 100M");
    world.ok("pv create large --size 600M");
    world.ok("vg create data small large");
    world.ok("lv create data/base --size 16M --on small");
    world.ok("snap create data/base@gold --read-only");
    world.ok("pool create data/p --size 200M --auto-extend off --on large");
    world.ok("lv create data/v --pool p --origin data/base@gold");
    world.ok("snap create data/v@one");
    world.ok("export create data/v@one --nbd unix:one.sock");
    world.ok("lv flatten data/v --wait");
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("small"), world.path("away")).expect("it is there");
    world.start();
    assert_eq!(world.data("lv show data/v")["state"], "active");
    assert_eq!(world.data("snap list data/v")[0]["state"], "unusable");
    for words in
        ["export create data/v@one --nbd unix:b.sock -n", "export create data/v@one --nbd unix:b.sock"]
    {
        let said = world.refused(words, 7, "V0307");
        assert!(said.contains("data/base"), "{said}");
    }
    let shown = world.data("export list");
    assert_eq!(shown[0]["state"], "down", "{shown}");
    assert!(shown[0]["reason"].as_str().is_some_and(|reason| reason.contains("data/base")), "{shown}");
    std::fs::rename(world.path("away"), world.path("small")).expect("it is there");
    world.ok("pv scan small");
    assert_eq!(world.data("snap list data/v")[0]["state"], "active");
    assert_eq!(world.data("export list")[0]["state"], "serving");
}
