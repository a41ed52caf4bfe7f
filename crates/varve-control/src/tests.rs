//! The control on shards of a simulated host, where a test can make two changes at once, or break what is below.

use super::group::quotas::first_quota;
use super::*;
use crate::simulation::host::Host;
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use varve_api::{
    Changed, Code, GroupCreate, GroupState, Layout as ShownLayout, OverCommit, PhysicalVolumeCreate,
    PhysicalVolumeScan, PolicyWords, PoolChange, PoolCreate, Remove, Resize, SnapshotCreate, SnapshotMode,
    SnapshotRollback, VolumeCreate, VolumeRemove, VolumeState, WhenFull,
};
use varve_block::{Durability, Extent, IoError, KIB, MIB};
use varve_sim::FaultPlan;
use varve_vg::names::VolumeName;
use varve_volume::copies::pool_check;
use varve_volume::copies::progress::Progress;
use varve_volume::lifecycle::close::close;
use varve_volume::lifecycle::open;
use varve_volume::lifecycle::reason::Reason;
use varve_volume::opened::metadata;
use varve_volume::opened::quota::CacheQuota;
use varve_volume::{DoorOf, ShardContext};

mod archive;
mod attached;
mod converge;
mod conversions;
mod failed_targets;
mod identity;
mod jobs;
mod lifetimes;
mod losses;
mod merges;
mod moves;
mod problems;
mod rebuilds;
mod restores;
mod rules;
mod serving;

thread_local! {
    /// The host of the test that runs on this thread.
    static HOST: RefCell<Option<Rc<Host>>> = const { RefCell::new(None) };
}

/// The host of this test.
fn host() -> Rc<Host> {
    HOST.with_borrow(Clone::clone).expect("a test runs")
}

/// Runs `work` beside a control with the group `data` on one disk.
fn with_control<W>(work: W)
where
    W: AsyncFnOnce(Rc<Control>) + Send + 'static,
{
    with_disks(1, "600M", async |control, _| work(control).await);
}

/// Runs `work` beside a control with the group `data` on `count` disks, whose paths it receives, too.
fn with_disks<W>(count: usize, size: &str, work: W)
where
    W: AsyncFnOnce(Rc<Control>, Vec<String>) + Send + 'static,
{
    let host = Host::new(1, Duration::from_micros(200));
    HOST.set(Some(Rc::clone(&host)));
    let disks: Vec<String> = (0..count).map(|number| format!("/disk{number}")).collect();
    let size = size.to_owned();
    host.world.run(async {
        let (shards, events) = host.begin_shards();
        let options = ControlOptions::for_tests(Path::new("/"));
        let started = ControlHandle::start(shards, events, options, Remembered::default()).await;
        let handle = started.expect("it starts");
        let worked = handle.call(async move |control| {
            make_group(&control, "data", &disks, &size).await;
            work(control, disks).await;
            Ok(())
        });
        worked.await.expect("no check failed");
        assert_eq!(handle.stop().await, Ok(()));
    });
    HOST.set(None);
}

/// Lets the disk at `path` take no writes, or take them again; reads go on.
fn set_refusing(path: &str, is_refusing: bool) {
    let all = if is_refusing { 1_000_000 } else { 0 };
    host().set_faults(path, FaultPlan { write_error: all, ..FaultPlan::default() });
}

/// Lets each request to the disk at `path` take 30 s longer, or no longer.
fn set_slow(path: &str, is_slow: bool) {
    let stall = if is_slow { 1_000_000 } else { 0 };
    host().set_faults(path, FaultPlan { stall, ..FaultPlan::default() });
}

/// Writes a block to `volume` at `at`, durably.
async fn write_block(control: &Control, volume: &str, at: u64, byte: u8) -> Result<(), IoError> {
    write_with(control, volume, (at, byte), Durability::Durable).await
}

/// Writes a block to `volume` at `at`.
async fn write_with(
    control: &Control,
    volume: &str,
    (at, byte): (u64, u8),
    durability: Durability,
) -> Result<(), IoError> {
    let located = control.find_any_volume(&name(volume)).expect("it is there");
    let id = located.volume.id;
    let written = located.home.run_for_test(async move |context: ShardContext| {
        let device = open::device(&context, id, None).ok_or(IoError::Gone)?;
        let data = context.arena().copy(&[byte; 4096]);
        device.write(at, data, durability).await.map(drop)
    });
    written.await.expect("a shard")
}

/// The bytes of a whole volume.
async fn content(control: &Control, volume: &str) -> Vec<u8> {
    let located = control.find_volume(&name(volume)).expect("it is there");
    let id = located.volume.id;
    let read = located.home.run_for_test(async move |context: ShardContext| {
        let device = open::device(&context, id, None).expect("it is served");
        let mut bytes = Vec::new();
        for (_, piece) in device.shape().extent().pieces(MIB) {
            let length = usize::try_from(piece.length).expect("at most a MiB");
            let read = device.read(piece.offset, context.arena().take(length)).await.expect("no faults");
            bytes.extend_from_slice(&read);
        }
        bytes
    });
    read.await.expect("a shard")
}

async fn state_of(control: &Control, volume: &str) -> VolumeState {
    control.show_volume(volume).await.expect("it is there").state
}

async fn make_linear(control: &Control, name: &str, size: &str) {
    let request = VolumeCreate { name: name.into(), size: size.into(), ..Default::default() };
    control.create_volume(request).await.expect("there is space");
}

/// A mirror of two on these disks, one copy on each.
async fn make_mirror(control: &Control, name: &str, size: &str, on: &[String]) {
    let request = VolumeCreate {
        name: name.into(),
        size: size.into(),
        layout: Some(ShownLayout::Mirror),
        copies: Some(2),
        on: on.to_vec(),
        ..Default::default()
    };
    control.create_volume(request).await.expect("there is space");
}

async fn scan(control: &Control) {
    control.scan_disks(PhysicalVolumeScan::default()).await.expect("nothing is wrong now");
}

/// Makes a group of new disks of this size.
async fn make_group(control: &Control, name: &str, paths: &[String], size: &str) {
    let (paths, size) = (paths.to_vec(), Some(size.to_owned()));
    let label = PhysicalVolumeCreate { paths: paths.clone(), size, ..Default::default() };
    control.create_disks(label).await.expect("disks");
    let request = GroupCreate { name: name.into(), paths, ..Default::default() };
    control.create_group(request).await.expect("a group");
}

async fn make_pool(control: &Control, name: &str) {
    let request = PoolCreate { name: name.into(), size: "64M".into(), ..Default::default() };
    control.create_pool(request).await.expect("there is space");
}

async fn make_volume(control: &Control, name: &str, pool: Option<&str>, origin: Option<&str>) {
    let (pool, origin) = (pool.map(str::to_owned), origin.map(str::to_owned));
    let request = VolumeCreate { name: name.into(), size: "16M".into(), pool, origin, ..Default::default() };
    control.create_volume(request).await.expect("there is space");
}

async fn make_snapshot(control: &Control, name: &str) {
    let request = SnapshotCreate { names: vec![name.into()], read_only: true, ..Default::default() };
    control.create_snapshots(request).await.expect("there is space");
}

/// Brings what is served of a group to what its text says.
async fn converge(control: &Control, group: &str) {
    converge_group(control, control.find_group(group).expect("it is there")).await;
}

async fn converge_group(control: &Control, group: Uuid) {
    let _lock = control.lock_group(group).await;
    control.converge(group).await;
}

/// Waits for the end of a job, which must be a good one.
async fn ended(control: &Control, job: Result<Changed<varve_api::Job>, Failure>) {
    let Ok(Changed::Done(job)) = job else { panic!("{job:?}") };
    let _ = control.jobs.list.ended(&job.id).expect("it is known").await;
    assert_eq!(control.jobs.list.show(&job.id).map(|job| job.error), Ok(None));
}

fn name(text: &str) -> VolumeName {
    text.parse().expect("a name")
}

#[test]
fn a_volume_whose_last_flush_fails_is_removed_at_once() {
    with_control(async |control| {
        make_volume(&control, "data/a", None, None).await;
        let located = control.find_volume(&name("data/a")).expect("it is there");
        let id = located.volume.id;
        let broken = located.home.run_for_test(async move |context: ShardContext| match context.stack(id) {
            Some(stack) => stack.fail().await,
            None => panic!("it is active"),
        });
        broken.await.expect("a shard");
        control
            .remove_volume("data/a", VolumeRemove::at_once())
            .await
            .expect("nothing of it is needed any more");
        let shown = control.show_volume("data/a").await.map_err(|failure| failure.code);
        assert_eq!(shown.err(), Some(Code::VolumeNotFound));
        let told = control.events.list().into_iter().any(|event| event.message.contains("last flush failed"));
        assert!(told, "what may be lost of it is told");
        make_volume(&control, "data/a", None, None).await;
    });
}

#[test]
fn a_disk_that_refused_the_last_flush_of_a_volume_is_opened_anew() {
    with_disks(1, "64M", async |control, disks| {
        make_linear(&control, "data/v", "4M").await;
        write_with(&control, "data/v", (0, 7), Durability::Volatile).await.expect("it is served");
        host().set_faults(&disks[0], FaultPlan { flush_error: 1_000_000, ..FaultPlan::default() });
        let removed = control.remove_volume("data/v", VolumeRemove::at_once()).await;
        assert_eq!(removed.map_err(|failure| failure.code), Err(Code::MediumFailed));
        set_refusing(&disks[0], false);
        scan(&control).await;
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Active, "REOPEN2");
    });
}

#[test]
fn what_cannot_be_taken_into_use_leaves_no_array_open() {
    with_disks(2, "300M", async |control, disks| {
        let layout = varve_api::Layout::Mirror;
        let request = PoolCreate {
            name: "data/p".into(),
            size: "64M".into(),
            layout: Some(layout),
            copies: Some(2),
            ..Default::default()
        };
        control.create_pool(request).await.expect("there is space");
        let array = control.show_pool("data/p").await.expect("it is there").array.expect("it is one");
        assert_eq!(array.members.len(), 2);
        control.deactivate_pool("data/p", Default::default()).await.expect("nobody uses it");
        for disk in &disks {
            let disk = host().disk_at(disk);
            for block in Extent::new(0, disk.options().size).pieces(4096).map(|(_, block)| block) {
                if disk.peek(block).starts_with(b"VARVE\xffTP") {
                    disk.poke(block.offset, &[0; 4096]);
                }
            }
        }
        let refused = control.activate_pool("data/p", Default::default()).await;
        assert!(refused.is_err(), "there is no pool any more");
        for shard in &control.shards {
            let open = shard.run_for_test(async move |here: ShardContext| here.array_count()).await;
            assert_eq!(open, Ok(0), "nobody writes to what may be given to others");
        }
    });
}

#[test]
fn what_opens_at_one_time_gets_no_more_than_the_budget_of_its_group() {
    with_control(async |control| {
        let pools = ["data/p", "data/q", "data/r"];
        for pool in pools {
            make_pool(&control, pool).await;
        }
        let group = control.find_group("data").expect("it is there");
        let ids = pools.map(|pool| control.find_pool(&name(pool)).expect("it is there").volume.id);
        control.deactivate_group(group).await.expect("nothing fails");
        let first = control
            .with_group(group, |known| ids.iter().map(|id| first_quota(known, *id).cache_bytes).sum::<u64>());
        let first = first.expect("it is there");
        assert!(first <= 64 * MIB && first > 63 * MIB, "QUOTA2: all of it is divided, and once: {first}");
        converge_group(&control, group).await;
        let given: u64 = control.quotas(group).values().map(|quota| quota.cache_bytes).sum();
        assert_eq!(given, first, "QUOTA1");
    });
}

#[test]
fn of_two_divisions_that_overlap_the_later_one_counts_for_every_store() {
    with_control(async |control| {
        make_volume(&control, "data/a", None, None).await;
        for snapshot in ["data/a@one", "data/a@two"] {
            let (names, mode) = (vec![snapshot.into()], Some(SnapshotMode::Independent));
            let chunk_size = Some("4K".into());
            let request = SnapshotCreate { names, mode, chunk_size, ..Default::default() };
            control.create_snapshots(request).await.expect("there is space");
        }
        let located = control.find_volume(&name("data/a")).expect("it is there");
        control.set_quotas(located.group).await;
        let id = located.volume.id;
        let stores: Vec<Uuid> = located.volume.stores().map(|store| store.id).collect();
        let given = located.home.run_for_test(async move |context: ShardContext| {
            let device = open::device(&context, id, None).expect("it is active");
            let data = context.arena().take_zeroed(4096).freeze();
            let writes = (0..2000).map(|at| device.write(at * 8 * KIB, data.clone(), Durability::Volatile));
            assert!(join_all(writes).await.iter().all(Result::is_ok), "there is space");
            let usage = |store: &Uuid| context.stack(id)?.open(*store).map(|open| open.store.cache_use());
            assert!(usage(&stores[0]).is_some_and(|usage| usage.dirty > 8), "more than may be");
            let quota = |cache_bytes| vec![(id, CacheQuota { cache_bytes, ..CacheQuota::default() })];
            // The first one has to write nodes before it is done with the first store.
            join(metadata::give(&context, quota(4096)), metadata::give(&context, quota(8 * MIB))).await;
            let budget =
                |store: &Uuid| context.stack(id)?.open(*store).map(|open| open.store.cache_use().budget);
            stores.iter().map(budget).collect::<Vec<_>>()
        });
        let given = given.await.expect("a shard");
        assert!(given.len() == 2 && given[0] == given[1] && given[0] > Some(100), "{given:?}");
    });
}

#[test]
fn of_two_changes_of_a_pool_at_once_neither_is_lost() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        let change = |policy| control.change_pool("data/p", PoolChange { policy, ..Default::default() });
        let full = PolicyWords { when_full: Some(WhenFull::Error), ..Default::default() };
        let promise = PolicyWords { over_commit: Some(OverCommit::Forbid), ..Default::default() };
        let (one, two) = join(change(full), change(promise)).await;
        assert!(one.is_ok() && two.is_ok());
        let shown = control.show_pool("data/p").await.expect("it is there");
        assert_eq!((shown.policy.when_full, shown.over_commit), (WhenFull::Error, OverCommit::Forbid));
    });
}

#[test]
fn requests_go_on_while_many_snapshots_of_a_thin_volume_are_listed() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/a", Some("p"), None).await;
        let names: Vec<String> = (0..64).map(|number| format!("data/a@s{number}")).collect();
        let request = SnapshotCreate { names: names.clone(), ..Default::default() };
        control.create_snapshots(request).await.expect("there is space");
        let located = control.find_volume(&name("data/a")).expect("it is there");
        let id = located.volume.id;
        let listed = located.home.run_for_test(async move |here: ShardContext| {
            let stack = here.stack(id).expect("it is active");
            let (mut listing, mut steps) = (Box::pin(stack.snapshots_counted()), 0);
            let all = std::future::poll_fn(|context| {
                steps += 1;
                listing.as_mut().poll(context)
            });
            (all.await.into_iter().map(|facts| format!("data/a@{}", facts.name)).collect::<Vec<_>>(), steps)
        });
        let (listed, steps) = listed.await.expect("a shard");
        assert_eq!(listed, names);
        assert!(steps > 4, "others had their turn between: {steps} steps");
    });
}

#[test]
fn after_a_rollback_a_volume_tells_its_origin_of_then() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/base", Some("p"), None).await;
        make_snapshot(&control, "data/base@gold").await;
        make_volume(&control, "data/over", Some("p"), Some("data/base@gold")).await;
        make_snapshot(&control, "data/over@then").await;
        let origin = async || {
            let shown = control.show_volume("data/over").await.expect("it is there");
            shown.thin.and_then(|thin| thin.origin)
        };
        ended(&control, control.flatten_volume("data/over", varve_api::Flatten::default()).await).await;
        assert_eq!(origin().await, None);
        let request = SnapshotRollback { name: "data/over@then".into(), ..Default::default() };
        ended(&control, control.rollback_snapshot(request).await).await;
        assert_eq!(origin().await.as_deref(), Some("data/base@gold"));
    });
}

#[test]
fn the_check_of_a_pool_ends_when_that_is_let_go_of_though_it_is_opened_again() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/a", Some("p"), None).await;
        make_snapshot(&control, "data/a@one").await;
        let located = control.find_pool(&name("data/p")).expect("it is there");
        let spec = control.activation_spec(located.group, &located.volume).expect("it can be used");
        let ends = located.home.run_for_test(async move |context: ShardContext| {
            let (progress, id) = (Progress::default(), spec.node.id);
            let again = async {
                close(&context, id, Reason::Deactivated).await?;
                open::activate(&context, &spec).await
            };
            let (checked, again) = join(pool_check::check(&context, id, &progress), again).await;
            again.expect("it is sound");
            checked.map(|report| report.volumes).map_err(|failure| failure.code)
        });
        assert_eq!(ends.await.expect("a shard"), Err(Code::JobCancelled));
        assert_eq!(control.show_pool("data/p").await.map(|pool| pool.snapshots), Ok(1));
    });
}

#[test]
fn a_store_that_was_given_back_is_written_no_more() {
    with_disks(1, "600M", async |control, _| {
        make_linear(&control, "data/a", "200M").await;
        let (names, mode) = (vec!["data/a@one".into()], Some(SnapshotMode::Independent));
        let request = SnapshotCreate { names, mode, chunk_size: Some("4K".into()), ..Default::default() };
        control.create_snapshots(request).await.expect("there is space");
        let located = control.find_volume(&name("data/a")).expect("it is there");
        let id = located.volume.id;
        let store = located.volume.stores().next().expect("it has a store").id;
        control.set_quotas(located.group).await;
        let order = located.home.run_for_test(async move |context: ShardContext| {
            let device = open::device(&context, id, None).expect("it is active");
            let data = context.arena().take_zeroed(4096).freeze();
            let writes = (0..12000).map(|at| device.write(at * 8 * KIB, data.clone(), Durability::Volatile));
            assert!(join_all(writes).await.iter().all(Result::is_ok), "there is space");
            let stack = context.stack(id).expect("it is active");
            let open = stack.open(store).expect("it has a store");
            let one = open.store.list().remove(0).id;
            open.store.begin_removal(one).await.expect("it is there");
            let dirty = || open.store.cache_use().dirty;
            let (before, at_removal) = (dirty(), Cell::new(0));
            let quota = vec![(id, CacheQuota { cache_bytes: 4096, ..CacheQuota::default() })];
            let removal = async {
                stack.remove_store(store).await.expect("it is empty");
                at_removal.set(dirty());
            };
            join(metadata::give(&context, quota), removal).await;
            (before, at_removal.get(), dirty())
        });
        let (before, at_removal, after) = order.await.expect("a shard");
        assert!(before > 16, "there is something to write: {before}");
        assert_eq!(at_removal, after, "nothing is written to a store after it was given back");
    });
}

#[test]
fn a_volume_whose_reduction_reached_some_disks_is_out_of_use_until_a_scan() {
    with_disks(2, "64M", async |control, disks| {
        make_linear(&control, "data/v", "40M").await;
        make_linear(&control, "data/u", "8M").await;
        write_block(&control, "data/v", 0, 7).await.expect("it is served");
        set_refusing(&disks[1], true);
        let resize = Resize { size: "8M".into(), ..Default::default() };
        let reduced = control.reduce_volume("data/v", resize).await;
        assert_eq!(reduced.map_err(|failure| failure.code), Err(Code::MediumFailed));
        // RECONCILE1: two versions may count, and they differ in what they say of one volume.
        let shown = control.show_volume("data/v").await.expect("it is there");
        assert_eq!(shown.state, VolumeState::Unusable);
        assert!(shown.reason.is_some_and(|reason| reason.contains("only some of the group's disks")));
        assert_eq!(write_block(&control, "data/v", 30 * MIB, 0x55).await, Err(IoError::Gone));
        assert_eq!(state_of(&control, "data/u").await, VolumeState::Active);
        let shown = control.show_group("data").await.expect("it is there");
        assert_eq!(shown.state, GroupState::Undecided);
        assert!(shown.reason.is_some_and(|reason| reason.contains("varve pv scan")));
        // As long as the disk refuses nothing changes.
        let request = VolumeCreate { name: "data/w".into(), size: "4M".into(), ..Default::default() };
        assert!(control.create_volume(request.clone()).await.is_err(), "nothing is given to anybody");
        set_refusing(&disks[1], false);
        scan(&control).await;
        assert_eq!(control.show_group("data").await.map(|group| group.state), Ok(GroupState::Ok));
        let shown = control.show_volume("data/v").await.expect("it is there");
        assert_eq!((shown.size, shown.state), (8 * MIB, VolumeState::Active), "the newer version counts");
        assert_eq!(content(&control, "data/v").await[..4096], [7; 4096]);
        let request = VolumeCreate { size: "100%FREE".into(), ..request };
        control.create_volume(request).await.expect("there is space");
        assert_eq!(content(&control, "data/v").await.len() as u64, 8 * MIB, "served is what the group says");
        write_block(&control, "data/v", 8 * MIB - 4096, 0x66).await.expect("it is served");
        assert!(!content(&control, "data/w").await.contains(&0x66), "no extent is served twice");
    });
}

#[test]
fn a_volume_whose_removal_reached_some_disks_is_out_of_use_and_goes_with_a_scan() {
    with_disks(2, "64M", async |control, disks| {
        make_linear(&control, "data/v", "40M").await;
        let located = control.find_volume(&name("data/v")).expect("it is there");
        let (id, home) = (located.volume.id, located.home);
        set_refusing(&disks[1], true);
        assert!(control.remove_volume("data/v", VolumeRemove::at_once()).await.is_err(), "the commit failed");
        set_refusing(&disks[1], false);
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Unusable);
        assert_eq!(write_block(&control, "data/v", 0, 0x55).await, Err(IoError::Gone));
        scan(&control).await;
        let shown = control.show_volume("data/v").await.map_err(|failure| failure.code);
        assert_eq!(shown.map(|shown| shown.size), Err(Code::VolumeNotFound), "the newer version counts");
        let is_served =
            home.run_for_test(async move |here: ShardContext| open::device(&here, id, None).is_some());
        assert_eq!(is_served.await, Ok(false));
    });
}

#[test]
fn who_holds_a_device_of_a_volume_that_went_out_of_use_reaches_it_again_and_no_byte_meanwhile() {
    with_disks(2, "64M", async |control, disks| {
        make_linear(&control, "data/v", "40M").await;
        let located = control.find_volume(&name("data/v")).expect("it is there");
        let (id, home) = (located.volume.id, located.home);
        let (keep, kept) = futures_channel::mpsc::unbounded::<u64>();
        let (answer, mut answers) = futures_channel::mpsc::unbounded();
        let holder = home.run_for_test(async move |context: ShardContext| {
            use futures_util::StreamExt;
            let (device, mut kept) = (open::device(&context, id, None).expect("it is served"), kept);
            while let Some(at) = kept.next().await {
                let written = device.write(at, context.arena().copy(&[9; 4096]), Durability::Durable).await;
                let _ = answer.unbounded_send(written.map(drop));
            }
        });
        let mut write = async |at: u64| {
            use futures_util::StreamExt;
            keep.unbounded_send(at).expect("it is held");
            answers.next().await.expect("an answer")
        };
        let work = async {
            assert_eq!(write(30 * MIB).await, Ok(()));
            set_refusing(&disks[1], true);
            let resize = Resize { size: "8M".into(), ..Default::default() };
            assert!(control.reduce_volume("data/v", resize).await.is_err(), "the commit failed");
            set_refusing(&disks[1], false);
            assert_eq!(write(4096).await, Err(IoError::Gone));
            scan(&control).await;
            assert_eq!(write(4096).await, Ok(()), "it is led to what the group says now");
            assert_eq!(write(30 * MIB).await, Err(IoError::Gone), "this lies beyond its end now");
            assert_eq!(content(&control, "data/v").await[4096..8192], [9; 4096]);
            keep.close_channel();
        };
        join(work, holder).await.1.expect("a shard");
    });
}

#[test]
fn a_volume_whose_extension_reached_some_disks_is_served_all_the_time() {
    with_disks(2, "64M", async |control, disks| {
        make_linear(&control, "data/v", "8M").await;
        set_refusing(&disks[1], true);
        let resize = Resize { size: "+8M".into(), ..Default::default() };
        assert!(control.extend_volume("data/v", resize).await.is_err(), "the commit failed");
        assert_eq!(
            state_of(&control, "data/v").await,
            VolumeState::Active,
            "both versions give it what it has"
        );
        write_block(&control, "data/v", 8 * MIB - 4096, 3).await.expect("it is served");
        set_refusing(&disks[1], false);
        scan(&control).await;
        assert_eq!(content(&control, "data/v").await.len() as u64, 16 * MIB, "the newer version counts");
        assert_eq!(state_of(&control, "data/v").await, VolumeState::Active);
        write_block(&control, "data/v", 16 * MIB - 4096, 4).await.expect("all of it is served");
    });
}

/// Within what a busy machine needs.
async fn soon<T>(control: &Control, work: impl Future<Output = T>) -> Option<T> {
    let deadline = control.context.clock().now().after(Duration::from_secs(60));
    control.until(deadline, work).await
}

#[test]
fn a_command_that_waits_for_a_disk_of_its_group_holds_up_no_other_group() {
    with_control(async |control| {
        let disk = control.memory.state_dir.with_file_name("other").display().to_string();
        make_group(&control, "other", &[disk], "100M").await;
        make_volume(&control, "data/a", None, None).await;
        let data = control.find_group("data").expect("it is there");
        let lock = control.lock_of("data").await;
        let commits = control.commits(data).await;
        let made = soon(&control, make_volume(&control, "other/a", None, None)).await;
        assert!(made.is_some(), "a command on another group");
        let listed = soon(&control, control.list_volumes(None)).await;
        assert_eq!(listed.map(|listed| listed.map(|volumes| volumes.len())), Some(Ok(2)));
        let scanned = soon(&control, control.scan_disks(PhysicalVolumeScan::default())).await;
        assert!(scanned.is_some_and(|scanned| scanned.is_ok()), "it leaves the group out");
        let deadline = control.context.clock().now().after(Duration::from_millis(50));
        let own = control.until(deadline, make_volume(&control, "data/b", None, None)).await;
        assert!(own.is_none(), "CONTROL1");
        drop((lock, commits));
        make_volume(&control, "data/c", None, None).await;
    });
}

#[test]
fn a_disk_is_taken_by_one_command_at_a_time() {
    with_control(async |control| {
        let path = ["/some/disk".to_owned()];
        let claims = control.claim_all(&path).expect("nobody has it");
        assert_eq!(control.claim_all(&path).map(drop).map_err(|failure| failure.code), Err(Code::VolumeBusy));
        drop(claims);
        assert!(control.claim_all(&path).is_ok());
    });
}

#[test]
fn requests_wait_while_their_volume_is_opened_anew() {
    with_control(async |control| {
        make_pool(&control, "data/p").await;
        make_volume(&control, "data/a", None, None).await;
        make_volume(&control, "data/t", Some("p"), None).await;
        let group = control.find_group("data").expect("it is there");
        for volume in ["data/a", "data/t"] {
            let located = control.find_volume(&name(volume)).expect("it is there");
            let id = located.volume.id;
            let door = located.home.run_for_test(async move |context: ShardContext| {
                let device = open::device(&context, id, None)?;
                Some(context.portal(&device))
            });
            let door = door.await.expect("a shard").expect("it is active");
            let device = control.context.import(&door);
            let data = control.context.arena().copy(&[7; 4096]);
            device.write(0, data.clone(), Durability::Durable).await.expect("it works");
            control.set_group_aside(group).await;
            let mut waiting = Box::pin(device.write(4096, data, Durability::Volatile));
            let deadline = control.context.clock().now().after(Duration::from_millis(50));
            assert!(control.until(deadline, &mut waiting).await.is_none(), "REOPEN1");
            control.survey().await;
            control.lead_doors(&[group]).await;
            assert!(soon(&control, waiting).await.is_some_and(|outcome| outcome.is_ok()), "REOPEN1");
            let read = device.read(0, control.context.arena().take(8192)).await.expect("it works");
            assert!(read.iter().all(|byte| *byte == 7));
        }
    });
}
