//! Tests of what holds while volumes are served: doors, stores, sets of snapshots, gates, moves.

use super::*;
use crate::exports::fuse::FUSE;
use crate::exports::known_export::{KnownExport, Open};
use crate::exports::portal_door::PortalDoor;
use crate::host::path_calls::within;
use crate::host::remembered::RememberedExport;
use crate::simulation::remote::Imported;
use futures_util::future::join3;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use varve_api::{Convert, PhysicalVolumeMove};
use varve_block::{Device, Portal};
use varve_export::DoorCounters;
use varve_vg::model::PvName;
use varve_volume::ShardHandle;
use varve_volume::copies::movable::Moving;
use varve_volume::world::{FileDoor, FileDoorError};

/// Longer than anything takes of which these tests are.
const LONG: Duration = Duration::from_secs(5);

/// Where a volume is served, and its id.
fn home(control: &Control, volume: &str) -> (ShardHandle, Uuid) {
    let located = control.find_volume(&name(volume)).expect("it is there");
    (located.home, located.volume.id)
}

/// The first byte of a snapshot.
async fn shown(control: &Control, snapshot: &str) -> u8 {
    let name = name(snapshot);
    let located = control.find_volume(&name).expect("it is there");
    let id = located.volume.id;
    let read = located.home.run_for_test(async move |context: ShardContext| {
        let device = open::device(&context, id, name.snapshot.as_deref()).expect("it is served");
        device.read(0, context.arena().take(4096)).await.expect("no faults")[0]
    });
    read.await.expect("a shard")
}

async fn make_set(control: &Control, names: &[&str], mode: Option<SnapshotMode>) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let request = SnapshotCreate { names, mode, ..Default::default() };
    control.create_snapshots(request).await.expect("there is space");
}

#[test]
fn writes_smaller_than_a_block_through_two_doors_keep_each_other() {
    with_control(async |control| {
        make_linear(&control, "data/a", "16M").await;
        make_set(&control, &["data/a@one"], None).await;
        let (home, id) = home(&control, "data/a");
        let kept = home.run_for_test(async move |context: ShardContext| {
            for snapshot in [None, Some("one")] {
                let door = || open::device(&context, id, snapshot).expect("it is served");
                let doors = [door(), door()];
                let writes = (0..32_u8).map(|number| {
                    let (door, at) = (&doors[usize::from(number % 2)], u64::from(number) * 100);
                    door.write(at, context.arena().copy(&[number + 1; 100]), Durability::Volatile)
                });
                assert!(join_all(writes).await.iter().all(Result::is_ok), "no faults");
                let read = doors[0].read(0, context.arena().take(4096)).await.expect("no faults");
                for (written, number) in read.chunks(100).zip(1..=32_u8) {
                    assert!(written.iter().all(|byte| *byte == number), "STACK1: {snapshot:?}, {number}");
                }
            }
        });
        kept.await.expect("STACK1");
    });
}

#[test]
fn each_store_of_a_volume_keeps_what_is_written_over() {
    with_control(async |control| {
        make_linear(&control, "data/a", "16M").await;
        let (independent, dependent) = (Some(SnapshotMode::Independent), None);
        for (number, mode) in [(1, dependent), (2, independent), (3, independent), (4, dependent)] {
            write_block(&control, "data/a", 0, number).await.expect("it is served");
            make_set(&control, &[&format!("data/a@s{number}")], mode).await;
            write_block(&control, "data/a", 0, 9).await.expect("it is served");
            for before in 1..=number {
                assert_eq!(
                    shown(&control, &format!("data/a@s{before}")).await,
                    before,
                    "STACK2: of {number}"
                );
            }
        }
    });
}

#[test]
fn snapshots_of_one_command_show_one_instant_of_two_volumes_that_are_written_in_turn() {
    with_control(async |control| {
        make_linear(&control, "data/a", "16M").await;
        make_linear(&control, "data/b", "16M").await;
        assert_ne!(home(&control, "data/a").0.index(), home(&control, "data/b").0.index());
        let last = Cell::new(0_u8);
        for round in 0..20 {
            let is_over = Cell::new(false);
            let written = async {
                while !is_over.get() {
                    last.set(last.get().wrapping_add(1));
                    for volume in ["data/a", "data/b"] {
                        write_with(&control, volume, (0, last.get()), Durability::Volatile)
                            .await
                            .expect("it is served");
                    }
                }
            };
            let names = ["a", "b"].map(|volume| format!("data/{volume}@s{round}"));
            let taken = async {
                control.context.clock().sleep(Duration::from_micros(700 + 130 * round)).await;
                make_set(&control, &[&names[0], &names[1]], None).await;
                is_over.set(true);
            };
            join(written, taken).await;
            let ahead = shown(&control, &names[0]).await.wrapping_sub(shown(&control, &names[1]).await);
            assert!(ahead <= 1, "INSTANT1: {ahead}, of {round}");
        }
    });
}

#[test]
fn a_volume_is_not_frozen_while_another_one_of_its_set_is_waited_for() {
    with_control(async |control| {
        let clock = control.context.clock();
        make_linear(&control, "data/a", "16M").await;
        make_linear(&control, "data/b", "16M").await;
        make_set(&control, &["data/a@one", "data/b@one"], None).await;
        let (home, id) = home(&control, "data/b");
        let held = home.run_for_test(async move |context: ShardContext| {
            let open = context.stack(id).and_then(|stack| stack.dependent()).expect("it has a store");
            let _claimed = open.store.claim().await.expect("nobody has claimed it");
            context.clock().sleep(2 * LONG).await;
        });
        let set = async {
            make_set(&control, &["data/a@two", "data/b@two"], None).await;
            clock.now()
        };
        let written = async {
            clock.sleep(LONG).await;
            write_block(&control, "data/a", 0, 7).await.expect("it is served");
            clock.now()
        };
        let begun = clock.now();
        let (held, set, written) = join3(held, set, written).await;
        held.expect("a shard");
        assert!(set.since(begun) >= 2 * LONG, "the set is made when all are claimed");
        assert!(written.since(begun) < LONG + LONG / 5, "INSTANT3: {:?}", written.since(begun));
    });
}

#[test]
fn an_array_behind_a_closed_gate_writes_nothing_by_itself_either() {
    with_disks(2, "64M", async |control, disks| {
        make_mirror(&control, "data/v", "8M", &disks).await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        let (home, id) = home(&control, "data/v");
        home.fence(vec![(id, vec![None])]).await.expect("a shard");
        let written = || disks.iter().map(|disk| host().disk_at(disk).counters().writes).sum::<u64>();
        let before = written();
        control.context.clock().sleep(Duration::from_secs(300)).await;
        assert_eq!(written(), before, "OPENARRAY1: what its log says of the region stays");
        let group = control.find_group("data").expect("it is there");
        converge_group(&control, group).await;
        assert_eq!(content(&control, "data/v").await[0], 7);
    });
}

/// Takes a volume out of use and into use again, while a job copies it; what `copy` answers meanwhile.
async fn taken_out<T>(control: &Control, volume: &str, copy: impl AsyncFnOnce(&ShardHandle, Uuid) -> T) -> T {
    let ((home, id), group) = (home(control, volume), control.find_group("data").expect("it is there"));
    control.deactivate(group, id, &home).await.expect("nothing fails");
    let answer = copy(&home, id).await;
    converge_group(control, group).await;
    answer
}

#[test]
fn a_volume_that_is_taken_out_of_use_is_moved_no_further_until_it_is_used_again() {
    with_disks(2, "64M", async |control, disks| {
        let on = disks[..1].to_vec();
        let request = VolumeCreate { name: "data/v".into(), size: "16M".into(), on, ..Default::default() };
        control.create_volume(request).await.expect("there is space");
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        let (from, rate) = (disks[0].clone(), Some("2M".into()));
        let job = control.move_disk(PhysicalVolumeMove { from, rate, ..Default::default() }).await;
        control.context.clock().sleep(Duration::from_secs(2)).await;
        let pv = PvName(0);
        let copied = taken_out(&control, "data/v", async |home, id| {
            home.volume(id).copy_moving(Moving::Off(pv), MIB).await
        });
        let refused = copied.await.expect("a shard").map_err(|failure| failure.code);
        assert_eq!(refused, Err(Code::VolumeUnusable), "SHARDMOVE3");
        ended(&control, job).await;
        assert_eq!(content(&control, "data/v").await[4096], 7);
    });
}

#[test]
fn a_volume_that_is_taken_out_of_use_is_converted_no_further_until_it_is_used_again() {
    with_disks(3, "64M", async |control, disks| {
        let on = disks[..1].to_vec();
        let request = VolumeCreate { name: "data/v".into(), size: "16M".into(), on, ..Default::default() };
        control.create_volume(request).await.expect("there is space");
        write_block(&control, "data/v", 4096, 7).await.expect("it is served");
        let (layout, copies, rate) = (Some(ShownLayout::Mirror), Some(2), Some("2M".into()));
        let request = Convert { layout, copies, on: disks[1..].to_vec(), rate, ..Default::default() };
        let job = control.convert_volume("data/v", request).await;
        control.context.clock().sleep(Duration::from_secs(2)).await;
        let copied = taken_out(&control, "data/v", async |home, id| {
            home.volume(id).copy_moving(Moving::Layout, MIB).await
        });
        let refused = copied.await.expect("a shard").map_err(|failure| failure.code);
        assert_eq!(refused, Err(Code::VolumeUnusable), "TREES3");
        ended(&control, job).await;
        assert_eq!(content(&control, "data/v").await[4096], 7);
    });
}

#[test]
fn a_client_of_a_snapshot_goes_on_when_its_disk_was_opened_anew_and_hears_what_was_lost() {
    with_disks(1, "300M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        let request = SnapshotCreate { names: vec!["data/v@s".into()], ..Default::default() };
        control.create_snapshots(request).await.expect("there is space");
        let located = control.find_volume(&name("data/v")).expect("it is there");
        let portal = control
            .portal(&located, Some("s".to_owned()), false, DoorOf::Client)
            .await
            .expect("it is served");
        let (client, arena) = (Device::new(Imported { portal }), control.context.arena());
        client.write(4096, arena.copy(&[8; 4096]), Durability::Durable).await.expect("there is space");
        client.write(8192, arena.copy(&[9; 4096]), Durability::Volatile).await.expect("there is space");
        set_refusing(&disks[0], true);
        write_with(&control, "data/v", (MIB, 1), Durability::Durable).await.expect_err("the disk refuses");
        set_refusing(&disks[0], false);
        scan(&control).await;
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Active, "VIEWS1");
        assert!(client.flush().await.is_err(), "LOSSES1");
        let found = client.read(0, arena.take(8192)).await.expect("VIEWS1");
        assert_eq!((found[0], found[4096]), (7, 8), "VIEWS1");
        client.write(0, arena.copy(&[6; 4096]), Durability::Durable).await.expect("VIEWS1");
        assert_eq!(content(&control, "data/v").await[0], 7);
    });
}

/// A file without a mount: where it leads.
struct BareFile(Arc<Mutex<Portal>>);

impl FileDoor for BareFile {
    fn path(&self) -> &Path {
        Path::new("/file")
    }

    fn replace(&self, portal: Portal) {
        *self.0.lock().expect("no panic") = portal;
    }

    fn is_serving(&self) -> bool {
        true
    }

    fn counters(&self) -> DoorCounters {
        DoorCounters::default()
    }

    fn clients(&self) -> Vec<String> {
        Vec::new()
    }

    fn detach(&mut self) {}

    fn close(&mut self) -> Result<(), FileDoorError> {
        Ok(())
    }
}

#[test]
fn a_door_does_not_wait_for_a_mount_that_does_not_answer() {
    with_disks(1, "300M", async |control, _| {
        let clock = control.context.clock();
        let begun = clock.now();
        let limit = Duration::from_secs(30);
        assert_eq!(within(&control.context, limit, std::future::pending::<()>()).await, None, "DOORKIND2");
        assert!(clock.now().since(begun) >= limit);
        assert_eq!(within(&control.context, limit, async { 7 }).await, Some(7));
    });
}

#[test]
fn a_file_hears_what_was_lost_before_it_was_led_to_its_volume_anew() {
    with_disks(1, "300M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        let located = control.find_volume(&name("data/v")).expect("it is there");
        let portal = control.portal(&located, None, false, DoorOf::NewFile).await.expect("it is served");
        let place = Arc::new(Mutex::new(portal));
        let file = || Device::new(Imported { portal: place.lock().expect("no panic").clone() });
        let (id, volume, address) = ("e1".to_owned(), located.volume.id, "/file".to_owned());
        let (text, door) = ("data/v".to_owned(), varve_api::Door::Fuse);
        let remembered = RememberedExport {
            id,
            volume,
            name: text,
            door,
            address,
            read_only: false,
            insecure: false,
            aliases: Vec::new(),
            limits: varve_api::ExportLimits::default(),
            tls: None,
            since: None,
            access: Default::default(),
        };
        let bare = Box::new(BareFile(Arc::clone(&place)));
        let open = Open::Serving(Rc::new(PortalDoor::new(control.context.clone(), &FUSE, bare)));
        let mut export = KnownExport::new(remembered, name("data/v"), None, open);
        export.is_recovering = true; // Else it is mounted anew: there is no such file.
        control.exports.known.borrow_mut().insert("e1".into(), export);
        let (before, arena) = (file(), control.context.arena());
        before.write(0, arena.copy(&[7; 4096]), Durability::Volatile).await.expect("it is served");
        set_refusing(&disks[0], true);
        write_block(&control, "data/v", MIB, 1).await.expect_err("the disk refuses");
        set_refusing(&disks[0], false);
        scan(&control).await;
        let led_anew = file();
        assert_eq!(led_anew.flush().await.map(drop), Err(IoError::Medium), "LOSSES2");
        led_anew.flush().await.expect("once");
        let longer = Resize { size: "8M".into(), ..Default::default() };
        control.extend_volume("data/v", longer).await.expect("there is space");
        assert_eq!(file().shape().size, 8 * MIB, "it is led to all of it");
        file().flush().await.expect("nothing was lost since");
        control.exports.known.borrow_mut().clear();
    });
}
