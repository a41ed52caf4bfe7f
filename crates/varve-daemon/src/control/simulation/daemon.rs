//! One life of a daemon on a simulated host: begun, looked at, used, ended.

use super::host::{Host, Imported};
use super::model::{Lists, Model};
use crate::config::Config;
use crate::control::ControlHandle;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use varve_api::{
    Failure, GroupExtend, GroupReduce, Job, JobState, LogicalVolume, PhysicalVolumeRemove,
    PhysicalVolumeScan, PhysicalVolumeState,
};
use varve_block::{Device, Extent, IoError};
use varve_vg::names::VolumeName;

/// How long jobs may take once nothing goes wrong any more, in the time of the world.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Bytes that are compared at a time.
const SECTOR: usize = 512;
/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A daemon that runs.
pub(super) struct Daemon {
    pub(super) handle: ControlHandle,
    host: Rc<Host>,
}

impl Daemon {
    /// Begins with what the host's files hold.
    pub(super) async fn start(host: &Rc<Host>) -> Self {
        let (shards, events) = host.begin_shards();
        let remembered = host.files.remembered();
        let config = Config::for_tests(Path::new("/"));
        let started = ControlHandle::start(shards, events, false, &config, remembered).await;
        Self { handle: started.expect("a daemon can always start"), host: Rc::clone(host) }
    }

    /// What it shows.
    pub(super) async fn lists(&self) -> Result<Lists, Failure> {
        let lists = self.handle.call(async |control| {
            let mut lists = Lists::default();
            for group in control.list_groups() {
                let paths = group.physical_volumes.iter().filter_map(|disk| disk.path.clone()).collect();
                lists.groups.insert(group.name, (paths, group.state));
            }
            for volume in control.list_volumes(None).await? {
                lists.volumes.insert(volume.name, (volume.size, volume.layout, volume.state));
            }
            for pool in control.list_pools(None).await? {
                lists.pools.insert(pool.name, pool.state);
            }
            for snapshot in control.list_snapshots(None).await? {
                lists.snapshots.insert(snapshot.name, (snapshot.size, snapshot.read_only, snapshot.held));
            }
            for export in control.list_exports().await? {
                lists.exports.insert(export.address, (export.volume, export.state));
            }
            Ok(lists)
        });
        lists.await
    }

    /// Jobs that run, or ended lately.
    pub(super) async fn jobs(&self) -> Vec<Job> {
        self.handle.call(async |control| Ok(control.jobs().list())).await.expect("it runs")
    }

    /// Waits until no job runs any more; then everything is well.
    pub(super) async fn idle(&self) {
        let clock = self.host.world.clock();
        let limit = clock.now().after(IDLE_MAX);
        loop {
            let jobs = self.jobs().await;
            let running: Vec<_> = jobs.iter().filter(|job| job.state == JobState::Running).collect();
            if running.is_empty() {
                break;
            }
            assert!(clock.now() < limit, "jobs end: {running:?}");
            clock.sleep(LOOK).await;
        }
        let status = self.handle.call(async |control| control.status_with_problems().await).await;
        let (unused, problems): (Vec<_>, Vec<_>) = {
            // What was to become the disk of a group when the crash came is nobody's: its label may be torn, or say too much.
            let groups = self.lists().await.expect("it runs").groups;
            let is_used = |path: &str| groups.values().any(|(disks, _)| disks.contains(path));
            let problems = status.expect("it runs").problems;
            problems.into_iter().partition(|problem| disk_of(problem).is_some_and(|path| !is_used(path)))
        };
        assert!(problems.is_empty(), "everything is well: {problems:?}");
        for path in unused.iter().filter_map(|problem| disk_of(problem)) {
            let request = PhysicalVolumeRemove { path: path.to_owned(), ..PhysicalVolumeRemove::default() };
            let removed = self.handle.call(async move |control| control.remove_disk(request).await.map(drop));
            removed.await.unwrap_or_else(|failure| panic!("{path} can be given up: {failure:?}"));
        }
    }

    /// Waits for the end of a job.
    pub(super) async fn wait_for_job(&self, id: String) -> Result<(), Failure> {
        let ended =
            self.handle.call(async move |control| control.jobs().ended(&id).map(|ended| (ended, id))).await?;
        let (ended, id) = ended;
        let _ = ended.await;
        let job = self.handle.call(async move |control| control.jobs().show(&id)).await?;
        job.error.map_or(Ok(()), Err)
    }

    /// Has disks looked at again: those that are named, or all that are remembered.
    pub(super) async fn scan(&self, paths: Vec<String>) -> Result<(), Failure> {
        let scan = PhysicalVolumeScan { paths, ..PhysicalVolumeScan::default() };
        self.handle.call(async move |control| control.scan_disks(scan).await.map(drop)).await
    }

    /// Has a group give up the disks that are missing.
    pub(super) async fn reduce_missing(&self, group: String) -> Result<(), Failure> {
        let request = GroupReduce { missing: true, ..GroupReduce::default() };
        self.handle.call(async move |control| control.reduce_group(&group, request).await.map(drop)).await
    }

    /// Has groups count again on disks that were away while the groups changed, as far as one of `models` has them.
    pub(super) async fn take_back_stale_disks(&self, models: &[Model]) {
        let disks = self.handle.call(async |control| Ok(control.list_disks())).await.expect("it runs");
        for disk in disks.into_iter().filter(|disk| disk.state == PhysicalVolumeState::Stale) {
            let (Some(group), Some(path)) = (disk.group, disk.path) else { continue };
            let is_wanted =
                |model: &Model| model.groups.get(&group).is_some_and(|disks| disks.contains(&path));
            if !models.iter().any(is_wanted) {
                continue;
            }
            let request = GroupExtend { paths: vec![path], ..GroupExtend::default() };
            let taken = self.handle.call(async move |control| control.extend_group(&group, request).await);
            super::log(format_args!("vg extend with a stale disk: {:?}", taken.await.map(drop)));
        }
    }

    /// A volume, `VG/LV`, or a snapshot, `VG/LV@SNAP`, as its doors see it.
    pub(super) async fn device(&self, name: &str) -> Result<Device, Failure> {
        let name: VolumeName = name.parse().expect("a name");
        let portal = self.handle.call(async move |control| {
            let located = control.find_volume(&name)?;
            control.portal(&located, name.snapshot, false).await
        });
        Ok(Device::new(Imported { portal: portal.await? }))
    }

    /// All bytes of all volumes and snapshots of a model.
    pub(super) async fn contents(&self, model: &Model) -> BTreeMap<String, Vec<u8>> {
        let mut contents = BTreeMap::new();
        for name in model.contents().into_keys() {
            let device = self.device(&name).await.expect("it is served");
            let bytes = self.read_all(&device).await;
            contents
                .insert(name.clone(), bytes.unwrap_or_else(|error| panic!("{name} can be read: {error}")));
        }
        contents
    }

    /// M7: every extent is owned once, and the rest is free.
    pub(super) async fn check_space(&self) {
        let looked = self.handle.call(async |control| {
            Ok((control.list_groups(), control.list_volumes(None).await?, control.list_pools(None).await?))
        });
        let (groups, volumes, pools) = looked.await.expect("it runs");
        let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
        let mut owned: BTreeMap<&str, u64> = BTreeMap::new();
        let stores = |volume: &LogicalVolume| {
            let stores = volume.snapshot_store.iter().chain(&volume.independent_stores);
            stores.map(|store| store.size).sum::<u64>()
        };
        for volume in &volumes {
            *taken.entry(&volume.group).or_default() += stores(volume);
        }
        let volumes = volumes.iter().map(|volume| (&volume.group, &volume.segments));
        for (group, segments) in volumes.chain(pools.iter().map(|pool| (&pool.group, &pool.segments))) {
            for segment in segments {
                *taken.entry(group).or_default() += segment.length;
                let length = segment.length / segment.areas.len().max(1) as u64;
                for area in &segment.areas {
                    let other = owned.insert(area, length);
                    assert!(other.is_none(), "M7: {area} is owned once");
                }
            }
        }
        for group in &groups {
            let taken = taken.get(group.name.as_str()).copied().unwrap_or_default();
            assert_eq!(group.free + taken, group.size, "M7: the space of {} adds up", group.name);
        }
        let places = owned.iter().filter_map(|(area, length)| Some((area.rsplit_once(':')?, *length)));
        let mut places: Vec<(&str, u64, u64)> = places
            .map(|((path, offset), length)| (path, offset.parse().expect("a number"), length))
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let ((path, start, length), (other, next, _)) = (pair[0], pair[1]);
            assert!(path != other || start + length <= next, "M7: {path}: {start} + {length}, {next}");
        }
    }

    /// M8: whatever two states of a volume differ in is named as a difference.
    pub(super) async fn check_difference(&self, from: &str, to: &str, contents: &BTreeMap<String, Vec<u8>>) {
        let (one, other) = (from.to_owned(), to.to_owned());
        let diff = self.handle.call(async move |control| control.diff_snapshots(&one, Some(&other)).await);
        let extents = diff.await.unwrap_or_else(|failure| panic!("{from} to {to}: {failure:?}")).extents;
        let pairs = contents[from].chunks(SECTOR).zip(contents[to].chunks(SECTOR));
        for (number, _) in pairs.enumerate().filter(|(_, (one, other))| one != other) {
            let offset = (number * SECTOR) as u64;
            let is_named =
                extents.iter().any(|named| (named.offset..named.offset + named.length).contains(&offset));
            assert!(is_named, "M8: {from} and {to} differ at {offset}, named are {extents:?}");
        }
    }

    async fn read_all(&self, device: &Device) -> Result<Vec<u8>, IoError> {
        let mut bytes = Vec::new();
        for (_, piece) in Extent::new(0, device.shape().size).pieces(64 << 10) {
            let length = usize::try_from(piece.length).expect("a piece is small");
            bytes.extend_from_slice(&device.read(piece.offset, self.host.world.arena().take(length)).await?);
        }
        Ok(bytes)
    }

    /// Ends in order.
    pub(super) async fn stop(self) {
        self.handle.stop().await.expect("nothing has gone wrong");
    }
}

/// The disk that a problem is about, if it is one.
fn disk_of(problem: &str) -> Option<&str> {
    problem.strip_prefix("pv ")?.split(' ').next()
}
