//! Disks that fail below arrays, within what their layouts survive, and what must go on meanwhile.

use super::daemon::Daemon;
use super::trouble::{Fault, Trouble};
use super::{Event, History, Kind, log};
use crate::Control;
use crate::commands::known_array::KnownArray;
use crate::group::known_group::KnownGroup;
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{ArrayFail, Failure, PhysicalVolumeReplace};
use varve_block::Extent;
use varve_sim::Mix;
use varve_target::array::MemberState;
use varve_vg::model::{PvName, spaces};

/// How long arrays may take to become whole once nothing goes wrong any more, in the time of the world.
const WHOLE_MAX: Duration = Duration::from_secs(600);
/// An array that waits for a member for so long at most serves before a request that stalls has ended.
const PROMPT_MS: u64 = 3000;
/// How often they are looked at until then.
const LOOK: Duration = Duration::from_millis(100);

impl History<'_> {
    /// Something goes wrong with a disk that all arrays can do without now; what is on them goes on (HISTORY9).
    pub(super) async fn begin_array_trouble(&self, daemon: &Daemon) {
        let used = daemon.disks_of_arrays().await;
        let (group, path, fault, is_patient) = {
            let (mut random, models) = (self.random.borrow_mut(), self.models.borrow());
            let Some((group, disks)) = models[0].groups.iter().next() else { return };
            let is_idle = used.is_empty() || random.chance(1, 8);
            let disks: Vec<&String> = if is_idle { disks.iter().collect() } else { used.iter().collect() };
            let faults = [
                Fault::Gone,
                Fault::Gone,
                Fault::Fails,
                Fault::Stalls,
                Fault::Ejected,
                Fault::CutOff { length: 0 },
            ];
            (group.clone(), (*random.pick(&disks)).clone(), *random.pick(&faults), random.chance(1, 2))
        };
        let fault = match fault {
            Fault::CutOff { .. } => self.cut_within_members(daemon, &path).await,
            fault => fault,
        };
        let is_patient = is_patient || matches!(fault, Fault::CutOff { .. });
        if is_patient || !daemon.can_do_without(&path).await {
            daemon.idle().await;
            self.become_whole(daemon).await;
        } else {
            self.count(Event::SecondFailure);
        }
        if !daemon.can_do_without(&path).await {
            return;
        }
        let survivors = self.survivors(daemon, &group, fault).await;
        log(format_args!("{fault:?} {path}; it goes on: {survivors:?}"));
        let mut trouble = Trouble::new(group, path.clone(), fault);
        trouble.survivors = survivors;
        self.count(match fault {
            Fault::Gone => Event::Vanished,
            Fault::CutOff { .. } => Event::CutOff,
            Fault::Fails => Event::Failed,
            Fault::Stalls => Event::Stalled,
            Fault::Ejected => Event::Ejected,
            Fault::Shrunk | Fault::Unlinked(_) => unreachable!("it is a fault of other histories"),
        });
        self.begin(trouble);
        if fault == Fault::Ejected {
            for subject in daemon.subjects(|_, _| true).await {
                let failed = daemon.fail_members(subject.clone(), path.clone()).await;
                log(format_args!("array fail {subject} {path}: {failed:?}"));
            }
        }
    }

    /// A cut within what is on a disk, if only members of arrays are.
    async fn cut_within_members(&self, daemon: &Daemon, path: &str) -> Fault {
        let extents = daemon.members_alone_on(path).await;
        if extents.is_empty() {
            return Fault::Gone;
        }
        let mut random = self.random.borrow_mut();
        let extent = *random.pick(&extents);
        Fault::CutOff { length: random.between(extent.offset, extent.end() - 1) / 512 * 512 }
    }

    /// The volumes of a group that are served whatever happens to one disk, and at once if it stalls.
    async fn survivors(&self, daemon: &Daemon, group: &str, fault: Fault) -> BTreeSet<String> {
        let protected = daemon.protected(fault == Fault::Stalls).await;
        let models = self.models.borrow();
        let volumes = models[0].part(group, true).volumes.into_iter();
        let survives = volumes.filter(|(name, volume)| {
            !volume.has_origin && protected.contains(volume.pool.as_ref().unwrap_or(name))
        });
        survives.map(|(name, _)| name).collect()
    }

    /// What is done while a disk below arrays is in trouble.
    pub(super) async fn step_in_array_trouble(&self, daemon: &Daemon, trouble: &Trouble, step: u64) {
        match step {
            0 => {
                let _ = daemon.scan(Vec::new()).await;
                self.hear_of_losses().await;
            }
            1 => {
                let replaced = daemon.replace(trouble.path.clone()).await;
                log(format_args!("pv replace {}: {replaced:?}", trouble.path));
                if replaced.is_ok() {
                    self.count(Event::ReplacedInTrouble);
                }
            }
            2 if trouble.fault == Fault::Gone => self.give_up(daemon, trouble).await,
            _ => self.requests(daemon, &Mix::default()).await,
        }
    }

    /// HISTORY10: members that are away return, and all arrays become whole.
    pub(super) async fn become_whole(&self, daemon: &Daemon) {
        if self.kind != Kind::Arrays {
            return;
        }
        let clock = self.host.world.clock();
        let limit = clock.now().after(WHOLE_MAX);
        loop {
            let degraded = daemon.degraded().await;
            if degraded.is_empty() {
                break;
            }
            assert!(clock.now() < limit, "HISTORY10: {degraded:?}");
            let disks: Vec<String> = self.models.borrow()[0].groups.values().flatten().cloned().collect();
            let scanned = daemon.scan(disks).await;
            log(format_args!("pv scan of all disks: {scanned:?}, {degraded:?}"));
            clock.sleep(LOOK).await;
        }
    }
}

impl Daemon {
    /// Whether all arrays have what is on a disk elsewhere, too, so that it may fail now. A run that moves is in both places.
    async fn can_do_without(&self, path: &str) -> bool {
        let path = path.to_owned();
        let looked = self.handle.call(async move |control| {
            let (group, disk) = control.disk_of_any(&path).await?;
            let disks = control.with_group(group, |known| {
                let name = known.group.pv_by_id(disk).map(|disk| disk.name);
                let steps = known.group.moves().filter_map(|entry| entry.step);
                let places = steps.map(|step| [step.old.pv, step.new.pv]);
                let others =
                    places.filter(|places| places.iter().any(|place| Some(*place) == name)).flatten();
                name.into_iter().chain(others).collect::<Vec<PvName>>()
            })?;
            let arrays = control.arrays_of(group, |_| true).await?;
            let may_fail = |disk: &PvName| arrays.iter().all(|array| does_without(array, *disk));
            Ok(!disks.is_empty() && disks.iter().all(may_fail))
        });
        looked.await.expect("it is a disk of a group")
    }

    /// Where members of arrays lie on a disk; nothing if anything else is there, too.
    async fn members_alone_on(&self, path: &str) -> Vec<Extent> {
        let path = path.to_owned();
        let looked = self.handle.call(async move |control| {
            let (group, disk) = control.disk_of_any(&path).await?;
            control.with_group(group, |known| {
                let group = &known.group;
                let Some(disk) = group.pv_by_id(disk).filter(|_| group.moves().next().is_none()) else {
                    return Vec::new();
                };
                let mut extents = Vec::new();
                for volume in group.logical_volumes() {
                    for space in spaces(volume) {
                        let log = space.layout.log().map(|log| log.area.pv);
                        let is_sound = !space.layout.members().is_empty()
                            && log != Some(disk.name)
                            && group.conversion_of(volume.id).is_none();
                        for area in space.areas().filter(|area| area.pv == disk.name) {
                            if !is_sound {
                                return Vec::new();
                            }
                            let offset = disk.data_offset + group.bytes(area.start);
                            extents.push(Extent::new(offset, group.bytes(area.count)));
                        }
                    }
                }
                extents
            })
        });
        looked.await.expect("it is a disk of a group")
    }

    /// The paths of the disks on which members of arrays lie.
    async fn disks_of_arrays(&self) -> BTreeSet<String> {
        let looked = self.handle.call(async |control| {
            let mut paths = BTreeSet::new();
            for (group, disk) in control.all_disks() {
                let name =
                    control.with_group(group, |known| known.group.pv_by_id(disk).map(|disk| disk.name))?;
                let arrays = control.arrays_of(group, |_| true).await?;
                if name.is_some_and(|name| arrays.iter().any(|array| array.state_on(name).is_some())) {
                    paths.insert(control.with_group(group, |known| known.path_of(disk))?);
                }
            }
            Ok(paths)
        });
        looked.await.expect("it runs")
    }

    /// Volumes and pools whose bytes lie on arrays, and are not being converted; only those that wait for no slow member for long,
    /// or all.
    async fn protected(&self, is_prompt: bool) -> BTreeSet<String> {
        self.subjects(move |control, array| {
            let policy = array.volume.array_policy.unwrap_or_default();
            let is_fit = !is_prompt || policy.slow_after_ms <= PROMPT_MS;
            let (id, group) = (array.volume.id, control.entry_of(array.volume.id).map(|(group, _)| group));
            let is_converted = group.is_ok_and(|group| control.conversion_of(group, id).is_some());
            array.store.is_none() && is_fit && !is_converted
        })
        .await
    }

    /// Volumes and pools of which something is an array for which `is_meant`.
    async fn subjects(
        &self,
        is_meant: impl Fn(&Control, &KnownArray) -> bool + Send + 'static,
    ) -> BTreeSet<String> {
        let looked = self.handle.call(async move |control| {
            let groups: Vec<_> = control.groups.known.borrow().keys().copied().collect();
            let mut names = BTreeSet::new();
            for group in groups {
                let arrays = control.arrays_of(group, |_| true).await?;
                let meant = arrays.iter().filter(|array| is_meant(&control, array));
                names.extend(meant.map(|array| control.subject(array.volume.id)));
            }
            Ok(names)
        });
        looked.await.expect("it runs")
    }

    /// Volumes and pools of which members of arrays are away or lack something, and disks that spares are to replace.
    async fn degraded(&self) -> Vec<String> {
        let status = self.handle.call(async |control| control.status_with_problems().await);
        let problems = status.await.expect("it runs").problems;
        let is_meant = |problem: &String| {
            problem.contains("is degraded") || problem.contains("is not replaced by a spare")
        };
        problems.into_iter().filter(is_meant).collect()
    }

    /// Has the members of a volume's arrays on a disk taken out of use.
    async fn fail_members(&self, name: String, disk: String) -> Result<(), Failure> {
        let request = ArrayFail { disk, ..ArrayFail::default() };
        self.handle.call(async move |control| control.fail_members(&name, request).await.map(drop)).await
    }

    /// Has all members on a disk put on others.
    async fn replace(&self, from: String) -> Result<(), Failure> {
        let request = PhysicalVolumeReplace { from, ..PhysicalVolumeReplace::default() };
        self.handle.call(async move |control| control.replace_disk(request).await.map(drop)).await
    }
}

/// Whether an array has everything without what it has on a disk.
fn does_without(array: &KnownArray, disk: PvName) -> bool {
    let Some(own) = array.state_on(disk) else { return true };
    let (Some(own), Some(status)) = (own, &array.status) else { return false };
    let store = array.store.and_then(|id| array.volume.stores().find(|store| store.id == id));
    let layout = store.map_or(&array.volume.layout, |store| &store.layout);
    let in_sync = status.members.iter().filter(|member| member.state == MemberState::InSync).count();
    let others = in_sync - usize::from(own == MemberState::InSync);
    others >= layout.members().len() - layout.tolerates() && status.unsynced == 0
}

impl Control {
    /// Every group's disks.
    fn all_disks(&self) -> Vec<(Uuid, Uuid)> {
        let groups = self.groups.known.borrow();
        let disks = |(group, known): (&Uuid, &KnownGroup)| {
            known.group.physical_volumes().iter().map(|disk| (*group, disk.id)).collect::<Vec<_>>()
        };
        groups.iter().flat_map(disks).collect()
    }
}
