//! Layouts of volumes and pools: on no disk, striped, on disks that are named, and arrays, which are not served yet.

use crate::client::Client;
use crate::harness::World;

#[test]
fn volumes_of_zeros_and_errors_lie_on_no_disk_and_come_back_after_a_restart() {
    let mut world = World::with_group();
    let free = world.data("vg show data")["free"].clone();
    let plan = world.ok("lv create data/nothing --size 64M --type zero -n");
    assert!(plan.contains("of zeros data/nothing of 64.0 MiB (on no disk)"), "{plan}");
    world.ok("lv create data/nothing --size 64M --type zero");
    world.ok("lv create data/broken --size 4M --type error");
    world.ok("lv extend data/nothing --size +1T");
    world.ok("lv reduce data/nothing --size 128M -y");
    for round in 0..2 {
        assert_eq!(world.data("vg show data")["free"], free, "nothing is taken");
        let shown = world.data("lv show data/nothing");
        assert_eq!((&shown["layout"], &shown["size"]), (&"zero".into(), &(128 << 20).into()), "{shown}");
        assert_eq!(world.data("lv show data/broken")["layout"], "error");
        world.ok("export create data/nothing --nbd unix:zero.sock");
        world.ok("export create data/broken --nbd unix:error.sock");
        let mut zero = Client::new(&world.path("zero.sock"), "data/nothing");
        zero.write(4096, &[7; 4096]).expect("it is dropped");
        zero.flush();
        assert_eq!(zero.read(0, 16_384), Ok(vec![0; 16_384]));
        let mut broken = Client::new(&world.path("error.sock"), "data/broken");
        assert_eq!((broken.read(0, 512), broken.write(0, &[1; 512])), (Err(5), Err(5)), "EIO");
        world.ok("export remove zero.sock -y");
        world.ok("export remove error.sock -y");
        if round == 0 {
            assert_eq!(world.stop(), Some(0));
            world.start();
        }
    }
    world.ok("lv remove data/broken -y");
    world.refused("lv create data/thin --size 4M --type zero --pool p", 2, "V0002");
}

#[test]
fn a_pool_may_be_striped_and_grows_by_whole_rows() {
    let mut world = World::with_group();
    world.ok("pool create data/p --size 100M --type striped --stripes 2 --stripe-size 64K");
    world.ok("lv create data/a --pool p --size 200M");
    world.ok("export create data/a --nbd unix:a.sock");
    let content: Vec<u8> = (0..8 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.write(1 << 20, &content).expect("there is space");
    client.flush();
    world.ok("pool extend data/p --size +1M");
    let pool = world.data("pool show data/p");
    let segments = pool["segments"].as_array().expect("a list");
    let are_wide =
        segments.iter().all(|segment| segment["areas"].as_array().is_some_and(|all| all.len() == 2));
    assert!(are_wide, "{pool}");
    drop(client);
    assert_eq!(world.stop(), Some(0));
    world.ok("check d1 d2");
    world.start();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    assert_eq!(client.read(1 << 20, content.len()).as_ref(), Ok(&content));
    world.refused("pool create data/q --size 10M --type zero", 2, "V0305");
}

/// The disks on which a volume or pool lies.
fn disks_of(shown: &serde_json::Value) -> Vec<String> {
    let segments = shown["segments"].as_array().expect("a list").iter();
    let areas = segments.flat_map(|segment| segment["areas"].as_array().expect("a list"));
    let disk = |area: &serde_json::Value| {
        let path = area.as_str().and_then(|area| area.rsplit_once(':')).expect("PATH:OFFSET").0.to_owned();
        path.rsplit_once('/').expect("absolute").1.to_owned()
    };
    areas.map(disk).collect()
}

#[test]
fn volumes_and_pools_lie_on_the_disks_that_are_named() {
    let world = World::with_group();
    world.ok("lv create data/a --size 8M --on d2");
    assert_eq!(disks_of(&world.data("lv show data/a")), ["d2"]);
    world.ok("lv extend data/a --size +8M --on pv0");
    assert_eq!(disks_of(&world.data("lv show data/a")), ["d2", "d1"]);
    world.ok("pool create data/p --size 40M --on pv1");
    world.ok("pool extend data/p --size +40M --on d1");
    assert_eq!(disks_of(&world.data("pool show data/p")), ["d2", "d1"]);
    world.ok("lv create data/s --size 8M --type striped --stripes 2 --on d2,d1");
    world.refused("lv create data/b --size 700M --on d1", 6, "V0601");
    world.refused("lv create data/b --size 8M --on d3", 3, "V0211");
    world.refused("lv create data/b --size 8M --on pv7", 3, "V0211");
    world.refused("lv create data/b --size 8M --pool p --on d1", 2, "V0002");
}

#[test]
fn a_plan_says_where_an_array_would_lie_and_none_is_made_yet() {
    let world = World::with_group();
    let plan = world.ok("lv create data/m --size 40M --type mirror --copies 2 -n");
    let line = "would create mirrored volume (2 copies) data/m of 40.0 MiB (10 extents: ";
    assert!(plan.contains(line) && plan.contains("; metadata: "), "{plan}");
    let plan = world.ok("pool create data/m --size 40M --type mirror --copies 2 --read-policy verify -n");
    assert!(plan.contains("would create mirrored pool (2 copies) data/m"), "{plan}");
    let message = world.refused("lv create data/m --size 40M --type mirror --copies 3 -n", 6, "V0601");
    assert!(message.contains("on each of 3 disks; 2 disks of data have as much"), "{message}");
    world.refused("lv create data/m --size 40M --type ddraid --order 1 -n", 6, "V0601");
    world.refused("lv create data/m --size 40M --type mirror -n", 2, "V0002");
    world.refused("lv create data/m --size 40M --type ddraid -n", 2, "V0002");
    world.ok("pv create d3 --size 100M");
    world.ok("vg extend data d3");
    let plan = world.ok("lv create data/m --size 40M --type ddraid --order 1 --array-block-size 16K -n");
    assert!(
        plan.contains("ddraid volume (order 1, 3 members, blocks of 16.0 KiB) data/m of 40.0 MiB"),
        "{plan}"
    );
    let before = world.data("vg show data");
    world.refused("lv create data/m --size 40M --type mirror --copies 2", 2, "V0003");
    world.refused("pool create data/m --size 40M --type ddraid --order 1", 2, "V0003");
    assert_eq!(world.data("vg show data")["sequence"], before["sequence"], "nothing is committed");
}

#[test]
fn an_array_that_a_text_brings_is_shown_and_not_used() {
    let mut world = World::with_group();
    world.ok("vg backup data text");
    let text = std::fs::read_to_string(world.path("text")).expect("the backup");
    let group = varve_vg::Group::from_text(&text).expect("it is sound");
    let change = varve_vg::Change::CreateVolume {
        name: "m".into(),
        id: uuid::Uuid::from_u128(0x1234),
        size: varve_vg::size::SizeArgument::bytes(8 << 20),
        role: varve_vg::model::Role::Volume,
        layout: varve_vg::plan::Layout::Mirror { copies: 2, read_policy: None },
        policy: varve_vg::model::StorePolicy::default(),
        disks: varve_vg::plan::DiskChoice::default(),
    };
    let stamp = varve_vg::Stamp { date: group.entry().changed, change: "a test".into() };
    let with_array = varve_vg::plan(&group, change, &stamp).expect("possible").after;
    std::fs::write(world.path("text"), with_array.text()).expect("written");
    world.ok("vg restore data text -y");
    for round in 0..2 {
        let shown = world.data("lv show data/m");
        assert!(shown["reason"].as_str().is_some_and(|reason| reason.contains("not built yet")), "{shown}");
        assert_eq!((&shown["layout"], &shown["array"]["read_policy"]), (&"mirror".into(), &"rotate".into()));
        let members = shown["array"]["members"].as_array().expect("a list");
        let ids =
            with_array.lv("m").expect("planned").layout.members().iter().map(|member| member.id.to_string());
        let listed = members.iter().map(|member| member["id"].as_str().expect("an id").to_owned());
        assert_eq!(listed.collect::<Vec<_>>(), ids.collect::<Vec<_>>());
        assert!(
            members.iter().all(|member| member["missing"] == false && member["disks"].as_array().is_some())
        );
        assert!(world.ok("lv list").contains("mirror x2"));
        assert!(world.ok("lv show data/m").contains("mirror x2, read policy rotate"));
        let refused = world.refused("export create data/m --nbd unix:m.sock", 7, "V0307");
        assert!(refused.contains("not built yet"), "{refused}");
        assert_eq!(world.stop(), Some(0));
        if round == 0 {
            world.start();
        }
    }
    world.ok("check d1 d2");
    world.start();
    world.refused("lv extend data/m --size +8M --on d1,pv1 -n", 7, "V0307");
    world.ok("lv remove data/m -y");
}
