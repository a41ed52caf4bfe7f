//! Tests of volumes that were moved between disks.

use super::*;
use varve_api::PhysicalVolumeMove;
use varve_vg::model::{PvName, Store};

#[test]
fn a_mirrored_store_needs_no_disk_to_which_only_its_volume_was_moved() {
    with_disks(3, "200M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks[..2]).await;
        // The store is to lie on the first disk and the last one.
        let filler = VolumeCreate {
            name: "data/filler".into(),
            size: "16M".into(),
            on: disks[1..2].to_vec(),
            ..Default::default()
        };
        control.create_volume(filler).await.expect("there is space");
        make_snapshot(&control, "data/v@s").await;
        let group = control.find_group("data").expect("it is there");
        let disks_of_store = || {
            let disks = control.with_group(group, |known| {
                let stores = known.group.logical_volumes().iter().flat_map(|lv| lv.stores());
                let members = stores.flat_map(|store: &Store| store.layout.members());
                members.map(|member| member.metadata.pv).collect::<BTreeSet<PvName>>()
            });
            disks.expect("it is known")
        };
        assert_eq!(disks_of_store(), BTreeSet::from([PvName(0), PvName(2)]));
        control.remove_volume("data/filler", Remove::default()).await.expect("nobody uses it");
        let request = PhysicalVolumeMove { from: disks[0].clone(), ..Default::default() };
        ended(&control, control.move_disk(request).await).await;
        assert_eq!(disks_of_store(), BTreeSet::from([PvName(1), PvName(2)]));

        host().set_gone(&disks[2], true);
        write_block(&control, "data/v", 4096, 7).await.expect("SHARDMOVE4: one copy of either is left");
        assert_eq!(content(&control, "data/v").await[4096], 7);
        let known = control.with_group(group, |known| control.disks_of(known)).expect("it is known");
        let ejections: Vec<u64> = known.iter().map(|disk| disk.ejections).collect();
        assert_eq!(ejections, [0, 0, 2], "where the members lie now");
        host().set_gone(&disks[2], false);
        scan(&control).await;
    });
}
