//! External origins of thin volumes: lost for good, away for a while, needed no more.

use crate::client::Client;
use crate::harness::World;
use serde_json::json;

/// The volume of the origin and its store are on the small disk, the pool is on the large one; its volume `v` is backed by the
/// snapshot.
fn over_gold() -> World {
    let world = World::started();
    world.ok("pv create small --size 100M");
    world.ok("pv create large --size 600M");
    world.ok("vg create data small large");
    world.ok("lv create data/base --size 16M");
    fill(&world, "data/base", 0, 16 << 20, 7);
    world.ok("snap create data/base@gold --read-only");
    world.ok("pool create data/p --size 200M --auto-extend off");
    world.ok("lv create data/v --pool p --origin data/base@gold");
    world
}

fn fill(world: &World, name: &str, offset: u64, length: u64, value: u8) {
    world.ok(&format!("export create {name} --nbd unix:fill.sock"));
    let mut client = Client::new(&world.path("fill.sock"), name);
    client.fill(offset, length, value).expect("there is space");
    drop(client);
    world.ok("export remove fill.sock -y");
}

fn content(world: &World, name: &str) -> Vec<u8> {
    world.ok(&format!("export create {name} --nbd unix:read.sock --read-only"));
    let all = Client::new(&world.path("read.sock"), name).read_all();
    world.ok("export remove read.sock -y");
    all
}

fn names(world: &World, list: &str) -> Vec<String> {
    let shown = world.data(list);
    let names = shown.as_array().expect("a list").iter().map(|one| one["name"].as_str().expect("a name"));
    names.map(str::to_owned).collect()
}

/// A start without the small disk.
fn without_small(world: &mut World) {
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("small"), world.path("away")).expect("it is there");
    world.start();
}

#[test]
fn volumes_backed_by_a_lost_origin_are_named_and_can_be_removed() {
    let mut world = over_gold();
    fill(&world, "data/v", 4096, 4096, 8);
    world.ok("snap create data/v@one");
    world.ok("snap create data/v@two");
    world.ok("snap hold data/v@two");
    without_small(&mut world);
    let shown = world.data("lv show data/v");
    assert_eq!(shown["state"], "unusable", "BELOW3: {shown}");
    assert!(shown["reason"].as_str().is_some_and(|reason| reason.contains("data/base")), "{shown}");
    assert_eq!(names(&world, "snap list data/v"), ["data/v@one", "data/v@two"], "POOLSERVE1");
    assert!(world.ok("vg show data").contains("their origin is not there: data/v;"), "whom it concerns");
    for plan in [" -n", ""] {
        let create = format!("export create data/v@one --nbd unix:one.sock{plan}");
        let text = world.refused(&create, 7, "V0307");
        assert!(text.contains("data/base"), "a snapshot shows the origin, too: {text}");
    }
    assert_eq!(world.data("export list"), json!([]));

    let text = world.refused("vg reduce data --missing", 7, "V0307");
    assert!(text.contains("data/v, data/v@one, data/v@two"), "{text}");
    let plan = world.ok("vg reduce data --missing --with-volumes -n");
    let step =
        "would leave without their origin: data/v, data/v@one, data/v@two; varve snap remove data/v@one";
    assert!(plan.contains(step), "LOST1: {plan}");
    let done = world.ok("vg reduce data --missing --with-volumes -y");
    assert!(done.contains("data/v; varve lv show data/v"), "{done}");
    assert!(world.ok("status").contains("lost for good: data/v, data/v@one, data/v@two"));

    let text = world.refused("export create data/v --nbd unix:v.sock", 7, "V0307");
    assert!(text.contains("varve lv remove data/v"), "{text}");
    world.refused("snap create data/v@three", 7, "V0307");
    let text = world.refused("lv remove data/v -y", 5, "V0304");
    assert!(text.contains("varve snap remove data/v@one..@two"), "{text}");
    world.refused("snap remove data/v@two -y", 5, "V0403");
    world.ok("snap release data/v@two");
    world.ok("snap remove data/v@one -n");
    world.ok("snap remove data/v@one..@two -y --wait");
    world.ok("lv remove data/v -y");
    world.kill();
    world.start();
    assert_eq!(names(&world, "lv list"), Vec::<String>::new());
    assert_eq!(world.data("pool show data/p")["state"], "active");
    assert_eq!(world.stop(), Some(0));
    assert!(world.ok("check large").ends_with("nothing is damaged\n"));
    world.start();
    world.ok("pool remove data/p -y");
}

/// A daemon without the small disk that was to flatten `data/v` before.
fn flattening_without_small() -> World {
    let mut world = over_gold();
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault("job-recorded");
    assert_ne!(world.run("lv flatten data/v --no-wait").exit, 0);
    world.wait_for_death();
    std::fs::rename(world.path("small"), world.path("away")).expect("it is there");
    world.start();
    let text = world.refused("job wait 1", 7, "V0307");
    assert!(text.contains("it goes on when"), "{text}");
    world
}

#[test]
fn a_flattening_goes_on_when_the_disk_of_the_origin_comes_back() {
    let mut world = flattening_without_small();
    std::fs::rename(world.path("away"), world.path("small")).expect("it is there");
    world.ok("pv scan small");
    world.ok("job wait 2"); // Under the next number.
    assert!(world.data("lv show data/v")["thin"]["origin"].is_null());
    assert!(
        content(&world, "data/v").iter().all(|byte| *byte == 7),
        "FLATTENJOB1, FLATTENJOB2: all of it was copied"
    );
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(world.data("job list"), json!([]), "nothing is left to do");
}

#[test]
fn a_flattening_is_forgotten_with_its_volume() {
    let mut world = flattening_without_small();
    world.ok("lv remove data/v -y");
    world.kill();
    world.start();
    assert_eq!(world.data("job list"), json!([]));
}

/// Whether users hold the origin, and whether it is marked as one.
fn kept(world: &World) -> (bool, bool) {
    let shown = world.data("snap list data/base");
    let is = |what: &str| shown[0][what].as_bool().expect("yes or no");
    (is("held"), is("base"))
}

#[test]
fn an_origin_is_kept_as_long_as_anything_is_backed_by_it_and_no_longer() {
    let mut world = over_gold();
    assert_eq!(kept(&world), (false, true));
    // BELOW2, BASES1
    world.refused("snap remove data/base@gold -y", 5, "V0416");
    world.refused("snap release data/base@gold", 5, "V0416");
    world.ok("snap create data/v@one");
    world.ok("lv flatten data/v --wait");
    let text = world.refused("snap remove data/base@gold -y", 5, "V0416");
    assert!(text.contains("data/v@one"), "BASES2: {text}");
    world.kill();
    world.start();
    assert_eq!(kept(&world), (false, true));
    world.ok("snap remove data/v@one -y --wait");
    assert_eq!(kept(&world), (false, false));

    // Users set and release holds, whatever is backed by the snapshot.
    world.ok("lv create data/w --pool p --origin data/base@gold");
    world.ok("snap hold data/base@gold");
    world.ok("snap release data/base@gold");
    assert_eq!(kept(&world), (false, true));
    world.ok("snap hold data/base@gold");
    world.ok("snap create data/w@ro --read-only");
    world.ok("lv create data/x --pool p --origin data/w@ro");
    world.refused("snap remove data/w@ro -y", 5, "V0416");
    world.ok("lv remove data/x -y");
    world.ok("snap remove data/w@ro -y --wait");
    world.ok("lv remove data/w -y");
    assert_eq!(kept(&world), (true, false));
    world.refused("snap remove data/base@gold -y", 5, "V0403");
    world.ok("snap release data/base@gold");
    world.ok("snap remove data/base@gold -y --wait");
}

#[test]
fn an_origin_of_nothing_is_let_go_of_at_the_next_start() {
    let mut world = over_gold();
    world.ok("lv remove data/v -y");
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault("origin-noted");
    assert_ne!(world.run("lv create data/w --pool p --origin data/base@gold").exit, 0);
    world.wait_for_death();
    world.start();
    assert_eq!(
        kept(&world),
        (false, false),
        "BELOW1, BASES1: it was noted, and nothing came to be backed by it"
    );
    world.ok("snap remove data/base@gold -y --wait");
}
