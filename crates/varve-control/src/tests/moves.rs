//! Tests of volumes that were moved between disks.

use super::jobs::{accept_again, until};
use super::*;
use crate::group::known_group::KnownGroup;
use varve_api::{Convert, Job, PhysicalVolumeMove};
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
        control.remove_volume("data/filler", VolumeRemove::at_once()).await.expect("nobody uses it");
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

/// The pool of a thin volume is on the first disk and goes to the second one by `begin`. The third disk refuses writes from when that
/// `is_begun`, so that the change by which the new place counts reaches some disks only. The pool is closed before a scan finds that
/// it does count.
fn close_while_undecided<B>(begin: B, is_begun: fn(&KnownGroup) -> bool)
where
    B: AsyncFnOnce(&Control, &[String]) -> Result<Changed<Job>, Failure> + Send + 'static,
{
    with_disks(3, "200M", async move |control, disks| {
        let (size, on) = ("32M".to_owned(), disks[..1].to_vec());
        let request = PoolCreate { name: "data/p".into(), size, on, ..Default::default() };
        control.create_pool(request).await.expect("there is space");
        make_volume(&control, "data/v", Some("p"), None).await;
        write_block(&control, "data/v", 0, 6).await.expect("it is served");
        let (work, ()) = join(begin(&control, &disks[..2]), async {
            until(&control, is_begun).await;
            set_refusing(&disks[2], true);
        })
        .await;
        until(&control, |known| known.undecided.is_some()).await;
        write_with(&control, "data/v", (MIB, 7), Durability::Volatile).await.expect("it is served");
        let located =
            control.find_pool(&name("data/p")).expect("it is there").usable().expect("it is served");
        let lock = control.lock_group(located.group).await;
        let closed = control.deactivate(located.group, located.volume.id, &located.home).await;
        closed.expect("what was written is durable");
        drop(lock);
        accept_again(&control, &disks[2]).await;
        ended(&control, work).await;
        let found = content(&control, "data/v").await;
        assert_eq!((found[0], found[1 << 20]), (6, 7), "SHARDMOVE3, TREES3");
    });
}

#[test]
fn what_a_pool_writes_when_it_is_closed_reaches_the_place_that_may_count_after_a_move() {
    let begin = async |control: &Control, disks: &[String]| {
        let (from, to) = (disks[0].clone(), disks[1..].to_vec());
        control.move_disk(PhysicalVolumeMove { from, to, ..Default::default() }).await
    };
    close_while_undecided(begin, |known| known.group.moves().any(|entry| entry.step.is_some()));
}

#[test]
fn what_a_pool_writes_when_it_is_closed_reaches_the_layout_that_may_count_after_a_conversion() {
    let begin = async |control: &Control, disks: &[String]| {
        let (layout, on) = (Some(ShownLayout::Linear), disks[1..].to_vec());
        control.convert_pool("data/p", Convert { layout, on, ..Default::default() }).await
    };
    close_while_undecided(begin, |known| known.group.conversions().next().is_some());
}
