//! One life of a daemon on a simulated host: begun, looked at, used, ended.

use super::host::Host;
use super::model::{Lists, Model};
use super::remote::Imported;
use crate::failures;
use crate::group::known_group::KnownGroup;
use crate::{ControlHandle, ControlOptions};
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use varve_api::{
    Failure, GroupExtend, GroupReduce, Job, JobState, PhysicalVolumeRemove, PhysicalVolumeScan,
    PhysicalVolumeState, Problem, ProblemKind, VolumeState,
};
use varve_block::{Device, Extent, IoError};
use varve_vg::TAIL_SIZE;
use varve_vg::model::{Area, Layout};
use varve_vg::names::VolumeName;
use varve_volume::DoorOf;

/// How long jobs may take once nothing goes wrong any more, in the time of the world.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Bytes that are compared at a time.
const SECTOR: usize = 512;
/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A job that runs, as its client knows it.
pub(super) struct RunningJob {
    pub(super) job: Job,
    /// Hears of its end.
    ended: oneshot::Receiver<()>,
}

impl RunningJob {
    /// Whether it has ended: a crash may come before its client is notified.
    pub(super) fn has_ended(&mut self) -> bool {
        self.ended.try_recv() == Ok(Some(()))
    }
}

/// A daemon that runs.
pub(super) struct Daemon {
    pub(super) handle: ControlHandle,
    pub(super) host: Rc<Host>,
}

impl Daemon {
    /// Begins with what the host's files hold.
    pub(super) async fn start(host: &Rc<Host>) -> Self {
        host.mappers.lose_connections(true);
        let (shards, events) = host.begin_shards();
        let remembered = host.files.remembered();
        let options = ControlOptions::for_tests(Path::new("/"));
        let started = ControlHandle::start(shards, events, options, remembered).await;
        Self { handle: started.expect("a daemon can always start"), host: Rc::clone(host) }
    }

    /// What it shows.
    pub(super) async fn lists(&self) -> Result<Lists, Failure> {
        let lists = self.handle.call(async |control| {
            let mut lists = Lists::default();
            for group in control.list_groups() {
                let paths = group.physical_volumes.iter().filter_map(|disk| disk.path.clone()).collect();
                let there = group.physical_volumes.iter();
                lists.sizes.extend(there.filter_map(|disk| Some((disk.path.clone()?, disk.size))));
                lists.groups.insert(group.name, (paths, group.state));
            }
            for volume in control.list_volumes(None).await? {
                // A sound volume may wait for its mapper, and is served while a member of its array catches up.
                let is_served = matches!(volume.state, VolumeState::Waiting | VolumeState::Degraded);
                let state = if is_served { VolumeState::Active } else { volume.state };
                lists.volumes.insert(volume.name, (volume.size, volume.layout, state));
            }
            for pool in control.list_pools(None).await? {
                // It is served while a member of its array catches up.
                let is_degraded = pool.state == VolumeState::Degraded;
                lists.pools.insert(pool.name, if is_degraded { VolumeState::Active } else { pool.state });
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
        self.handle.call(async |control| Ok(control.jobs().all())).await.expect("it runs")
    }

    /// Whether the record of a job was erased at its end, by the histories of the groups that are here.
    pub(super) async fn has_erased(&self, job: &Job) -> bool {
        let end = format!("job {} ended", job.id);
        let erased = self.handle.call(async move |control| {
            for group in control.list_groups() {
                let history = control.group_history(&group.name).await;
                if history.is_ok_and(|history| history.entries.iter().any(|entry| entry.change == end)) {
                    return Ok(true);
                }
            }
            Ok(false)
        });
        erased.await.expect("it runs")
    }

    /// In how many regions members of arrays may differ since a crash.
    async fn unsynced(&self) -> u64 {
        let unsynced = self.handle.call(async |control| {
            let mut sum = 0;
            for shard in &control.shards {
                let there = shard.unsynced_regions().await;
                sum += there.map_err(failures::gone)?;
            }
            Ok(sum)
        });
        unsynced.await.expect("it runs")
    }

    /// Waits until no job runs, members of arrays are equal after a crash, and none catches up any more; then everything is well.
    /// A member that is lost before it is equal to the others may have had what was read of it: those are two failures at once.
    pub(super) async fn idle(&self) {
        let clock = self.host.world.clock();
        let limit = clock.now().after(IDLE_MAX);
        let problems = loop {
            let jobs = self.jobs().await;
            let running: Vec<_> = jobs.iter().filter(|job| job.state == JobState::Running).collect();
            let status = self.handle.call(async |control| control.status_with_problems().await).await;
            let problems = status.expect("it runs").problems;
            let is_passing =
                |problem: &String| problem.contains("catching up") || problem.contains("its mapper is away");
            let are_behind = problems.iter().any(is_passing);
            if running.is_empty() && !are_behind && self.unsynced().await == 0 {
                break problems;
            }
            assert!(clock.now() < limit, "jobs end: {running:?}, {problems:?}");
            clock.sleep(LOOK).await;
        };
        let (unused, problems): (Vec<_>, Vec<_>) = {
            // What was to become the disk of a group when the crash came is in no group: its label may be torn, or say too much.
            let groups = self.lists().await.expect("it runs").groups;
            let is_used = |path: &str| groups.values().any(|(disks, _)| disks.contains(path));
            problems.into_iter().partition(|problem| disk_of(problem).is_some_and(|path| !is_used(path)))
        };
        // A member that has failed is away until its disk is opened anew; its array still serves.
        let is_degraded = |problem: &String| problem.contains("is degraded: members of its array: ");
        // A small group is full without any trouble.
        let is_full = |problem: &String| problem.contains("writes failed for want of space");
        // What a disk refused stays to be seen until a person scans it.
        let is_usual = |problem: &String| {
            is_degraded(problem) || is_full(problem) || problem.contains("has failed requests: ")
        };
        assert!(problems.iter().all(is_usual), "everything is well: {problems:?}");
        let unused: BTreeSet<&str> = unused.iter().filter_map(|problem| disk_of(problem)).collect();
        for path in unused {
            let request = PhysicalVolumeRemove { path: path.to_owned(), ..PhysicalVolumeRemove::default() };
            let removed = self.handle.call(async move |control| control.remove_disk(request).await.map(drop));
            removed.await.unwrap_or_else(|failure| panic!("{path} can be given up: {failure:?}"));
        }
    }

    /// What is not as it should be.
    pub(super) async fn attention(&self) -> Vec<Problem> {
        let status = self.handle.call(async |control| control.status_with_problems().await).await;
        status.expect("it runs").attention
    }

    /// Looks at the status where nothing has gone wrong (HISTORY12).
    pub(super) async fn says_ok(&self) {
        let is_usual = |problem: &Problem| {
            use ProblemKind::{
                ArrayDegraded, MapperAway, PoolFull, SnapshotDropped, SpaceRefused, SpaceWaited,
            };
            let usual = [ArrayDegraded, MapperAway, PoolFull, SnapshotDropped, SpaceRefused, SpaceWaited];
            let was_refused = problem.kind == ProblemKind::DiskErrors; // In trouble that is over.
            was_refused || usual.contains(&problem.kind)
        };
        let problems = self.attention().await;
        assert!(problems.iter().all(is_usual), "HISTORY12: nothing went wrong: {problems:?}");
    }

    /// Waits for the end of a job. It is not remembered any more soon afterwards.
    pub(super) async fn wait_for_job(&self, id: &str) -> Result<(), Failure> {
        let id = id.to_owned();
        let ended = self.handle.call(async move |control| control.jobs().ended(&id)).await?;
        let _ = ended.await;
        Ok(())
    }

    /// A job, if it runs.
    pub(super) async fn running_job(&self, id: &str) -> Option<RunningJob> {
        let id = id.to_owned();
        let asked = self.handle.call(async move |control| {
            let jobs = control.jobs();
            Ok(RunningJob { ended: jobs.ended(&id)?, job: jobs.show(&id)? })
        });
        asked.await.ok().filter(|known| known.job.state == JobState::Running)
    }

    /// How a job has ended.
    pub(super) async fn outcome_of_job(&self, id: String) -> Result<(), Failure> {
        let job = self.handle.call(async move |control| control.jobs().show(&id)).await?;
        job.error.map_or(Ok(()), Err)
    }

    /// Has disks looked at again: those that are named, or all that are remembered.
    pub(super) async fn scan(&self, paths: Vec<String>) -> Result<(), Failure> {
        let scan = PhysicalVolumeScan { paths, ..PhysicalVolumeScan::default() };
        self.handle.call(async move |control| control.scan_disks(scan).await.map(drop)).await
    }

    /// The same; images that the texts of groups name may be opened.
    pub(super) async fn scan_and_trust(&self, paths: Vec<String>) -> Result<(), Failure> {
        let scan = PhysicalVolumeScan { paths, trust_images: true, ..PhysicalVolumeScan::default() };
        self.handle.call(async move |control| control.scan_disks(scan).await.map(drop)).await
    }

    /// Takes the disks that are missing out of a group.
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
            control.portal(&located, name.snapshot, false, DoorOf::Client).await
        });
        Ok(Device::new(Imported { portal: portal.await? }))
    }

    /// The image in which a volume is, if it is in one.
    pub(super) async fn image_of(&self, name: &str) -> Option<String> {
        let name: VolumeName = name.parse().expect("a name");
        let found = self.handle.call(async move |control| control.find_volume(&name)).await.ok()?;
        match found.volume.layout {
            Layout::Image { path, .. } if found.thin.is_none() => Some(path),
            _ => None,
        }
    }

    /// Whether a thin volume is backed by something.
    pub(super) async fn is_backed(&self, name: &str) -> bool {
        let name = name.to_owned();
        let shown = self.handle.call(async move |control| control.show_volume(&name).await).await;
        shown.expect("it is there").thin.is_some_and(|thin| thin.origin.is_some())
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

    /// HISTORY7: every extent is owned once, by volumes, stores and what jobs hold, and the rest is free.
    pub(super) async fn check_space(&self) {
        let looked = self.handle.call(async |control| {
            let owned = |known: &KnownGroup| {
                let mut areas: Vec<Area> = known.group.owned_areas().collect();
                areas.sort_unstable();
                (known.group.name().to_owned(), (areas, known.group.extent_size()))
            };
            let owned: BTreeMap<_, _> = control.groups.known.borrow().values().map(owned).collect();
            Ok((
                control.list_groups(),
                owned,
                control.list_volumes(None).await?,
                control.list_pools(None).await?,
            ))
        });
        let (groups, owned, volumes, pools) = looked.await.expect("it runs");
        for group in &groups {
            let (areas, extent_size) = &owned[&group.name];
            let taken: u64 = areas.iter().map(|area| area.count * extent_size).sum();
            let spares = group.physical_volumes.iter().filter(|disk| disk.spare);
            let kept: u64 = spares.map(|disk| disk.size).sum(); // Nothing is free there, and nothing is there.
            assert_eq!(
                group.free + taken + kept,
                group.size,
                "HISTORY7: the space of {} adds up",
                group.name
            );
            for pair in areas.windows(2) {
                let is_apart = pair[0].pv != pair[1].pv || pair[0].end() <= pair[1].start;
                assert!(is_apart, "HISTORY7: {} and {}", pair[0], pair[1]);
            }
        }
        let mut shown = BTreeSet::new();
        let segments = volumes.iter().map(|volume| &volume.segments);
        for segment in segments.chain(pools.iter().map(|pool| &pool.segments)).flatten() {
            for area in &segment.areas {
                assert!(shown.insert(area), "HISTORY7: {area} is owned once");
            }
        }
    }

    /// Whether something of a group is on a disk behind `size` bytes, or goes to it or away from it.
    pub(super) async fn is_used_beyond(&self, disk: &str, size: u64) -> bool {
        let disk = disk.to_owned();
        let looked = self.handle.call(async move |control| {
            let (group, id) = control.disk_of_any(&disk).await?;
            control.with_group(group, |known| {
                let group = &known.group;
                let Some(disk) = group.pv_by_id(id) else { return false };
                let is_beyond = |area: &Area| {
                    area.pv == disk.name && disk.data_offset + group.bytes(area.end()) + TAIL_SIZE > size
                };
                group.moves().next().is_some()
                    || group.conversions().next().is_some()
                    || group.owned_areas().any(|area| is_beyond(&area))
            })
        });
        looked.await.expect("it is a disk of a group")
    }

    /// HISTORY8: whatever two states of a volume differ in is named as a difference.
    pub(super) async fn check_difference(&self, from: &str, to: &str, contents: &BTreeMap<String, Vec<u8>>) {
        let (one, other) = (from.to_owned(), to.to_owned());
        let diff = self.handle.call(async move |control| control.diff_snapshots(&one, Some(&other)).await);
        let extents = diff.await.unwrap_or_else(|failure| panic!("{from} to {to}: {failure:?}")).extents;
        let pairs = contents[from].chunks(SECTOR).zip(contents[to].chunks(SECTOR));
        for (number, _) in pairs.enumerate().filter(|(_, (one, other))| one != other) {
            let offset = (number * SECTOR) as u64;
            let is_named =
                extents.iter().any(|named| (named.offset..named.offset + named.length).contains(&offset));
            assert!(is_named, "HISTORY8: {from} and {to} differ at {offset}, named are {extents:?}");
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
        let texts = self.handle.call(async |control| {
            let groups = control.groups.known.borrow();
            let decided = groups.iter().filter(|(_, known)| known.undecided.is_none());
            Ok(decided.map(|(id, known)| (*id, known.group.text())).collect::<Vec<_>>())
        });
        let texts = texts.await.expect("the control answers");
        self.handle.stop().await.expect("nothing has gone wrong");
        for (group, text) in texts {
            let archived = self.host.files.archived(group);
            // A stop takes jobs that have ended out of the text.
            let is_archived =
                archived.iter().filter_map(|entry| entry.text.as_ref()).any(|entry| entry.text == text);
            assert!(is_archived, "ARCHIVE1: the archive lacks a text of group {group}");
        }
    }
}

/// The disk that a problem is about, if it is one.
fn disk_of(problem: &str) -> Option<&str> {
    problem.strip_prefix("pv ")?.split(' ').next()
}
