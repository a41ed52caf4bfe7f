//! Layouts of volumes and pools: on no disk, and striped.

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
