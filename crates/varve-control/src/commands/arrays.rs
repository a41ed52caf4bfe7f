//! Arrays: how their members do; members taken out of use, and others put in their places.
//!
//! Invariants:
//! - DETACH1. No member is detached whose array would lose data by that, as the array itself says: so it must be in use.
//! - DETACH2. A member is away, and nothing of it is used any more, before the extents on its disk are freed.

use super::known_array::{KnownArray, known_arrays};
use super::layout::shown_array;
use crate::Control;
use crate::failures;
use crate::find::{LocatedVolume, volume_name};
use crate::group::change::shown;
use crate::group::known_group::KnownGroup;
use crate::group::locks::Held;
use crate::host::known_disk::KnownDisk;
use crate::jobs::rebuilds;
use crate::jobs::registry::REBUILD;
use std::path::Path;
use uuid::Uuid;
use varve_api::{ArrayFail, ArrayReplace, Changed, Code, Failure, PhysicalVolumeReplace, Plan, VolumeArray};
use varve_block::host::DiskState;
use varve_vg::Change;
use varve_vg::model::{Group, Layout, LogicalVolume, PhysicalVolume, Space, spaces};

impl Control {
    /// The arrays of a volume or pool: its own, and those of its snapshot stores.
    pub async fn show_arrays(&self, text: &str) -> Result<Vec<VolumeArray>, Failure> {
        let located = self.find_array(text)?;
        let arrays = self.arrays_of(located.group, |volume| volume.id == located.volume.id).await?;
        self.shown_arrays(located.group, &arrays)
    }

    /// Takes the members of a volume's arrays on a disk out of use.
    pub async fn fail_members(
        &self,
        text: &str,
        request: ArrayFail,
    ) -> Result<Changed<Vec<VolumeArray>>, Failure> {
        let _lock = self.lock_of(text).await?;
        let located = self.find_array(text)?;
        let id = self.group_disk(located.group, &request.disk).await?;
        let logs = self.logs_on(located.group, id, |volume| volume.id == located.volume.id).await?;
        let members = match logs.is_empty() {
            true => self.members_at(text, &located, &request.disk).await?,
            false => self.members_on(located.group, id, |volume| volume.id == located.volume.id).await?,
        };
        if request.dry_run {
            let step = |(array, place): &(KnownArray, usize)| {
                format!("would take member {place} of {}{text} out of use", array.of_what())
            };
            let log = |_: &KnownArray| format!("would take the log disk of {text} out of use");
            let steps = members.iter().map(step).chain(logs.iter().map(log));
            return Ok(Changed::Planned(Plan::of_steps(steps.collect())));
        }
        for (array, place) in &members {
            let Some(home) = &array.home else { continue };
            let withdrawn = home.array(array.id).withdraw_member(*place);
            self.answered(array.volume.id, withdrawn.await)?;
        }
        self.withdraw_logs(&logs).await?;
        self.event(text, &format!("what lies on {} taken out of use", request.disk));
        self.show_arrays(text).await.map(Changed::Done)
    }

    /// The members of a volume's arrays on a disk, one at least, each of which may be detached (DETACH1).
    pub(crate) async fn members_at(
        &self,
        text: &str,
        located: &LocatedVolume,
        disk: &str,
    ) -> Result<Vec<(KnownArray, usize)>, Failure> {
        let id = self.group_disk(located.group, disk).await?;
        let members = self.members_on(located.group, id, |volume| volume.id == located.volume.id).await?;
        if members.is_empty() {
            let message = format!("no array of {text} has a member on {disk}");
            let failure = Failure::new(Code::PhysicalVolumeNotFound, message);
            return Err(failure.help(format!("varve array show {text}")));
        }
        Ok(members)
    }

    /// Puts the members of a volume's arrays that lie on a disk on others.
    pub async fn replace_members(
        &self,
        text: &str,
        request: ArrayReplace,
    ) -> Result<Changed<Vec<VolumeArray>>, Failure> {
        let _lock = self.lock_of(text).await?;
        let located = self.find_array(text)?;
        let from = self.group_disk(located.group, &request.disk).await?;
        let words = format!("array replace {text} {}", request.disk);
        let only = Some(located.volume.name);
        self.replace(located.group, (from, request.to.as_slice()), only, &words, request.dry_run).await
    }

    /// Puts all members of arrays that lie on a disk on others.
    pub async fn replace_disk(
        &self,
        request: PhysicalVolumeReplace,
    ) -> Result<Changed<Vec<VolumeArray>>, Failure> {
        let (_lock, group, from) = self.lock_of_disk(&request.from).await?;
        let words = format!("pv replace {}", request.from);
        self.replace(group, (from, request.to.as_slice()), None, &words, request.dry_run).await
    }

    /// Puts the members of arrays that lie on a disk, all or those of one volume, on others. The caller has the lock of the group.
    pub(crate) async fn replace(
        &self,
        group: Uuid,
        (from, to): (Uuid, &[String]),
        only: Option<String>,
        words: &str,
        dry_run: bool,
    ) -> Result<Changed<Vec<VolumeArray>>, Failure> {
        let is_meant = |volume: &LogicalVolume| only.as_ref().is_none_or(|name| volume.name == *name);
        let disks = self.disk_choice(group, to).await?;
        let change = Change::ReplaceMembers { from, volume: only.clone(), id: self.new_id(), disks };
        let commits = self.commits(group).await;
        let mut planned = commits.plan(group, change.clone(), words)?;
        let members = self.members_on(group, from, is_meant).await?;
        let logs = self.logs_on(group, from, is_meant).await?;
        let touched = members.iter().map(|(array, _)| array.volume.id);
        let touched: Vec<Uuid> = touched.chain(logs.iter().map(|array| array.volume.id)).collect();
        let is_away = members.iter().any(|(array, place)| array.is_away(*place));
        let failed = self.disks_to_mark(group, from, only.is_none(), is_away)?;
        let mut given_up = members.clone();
        for disk in failed.iter().filter(|disk| **disk != from) {
            given_up.extend(self.members_on(group, *disk, |_| true).await?);
        }
        if dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        // Nothing that waits for space is inside of an array (CHANGE2 of `change.rs`).
        self.detach_logs_on(group, from, is_meant).await?; // LOGCHANGE1 of `array_log.rs`
        self.fail_all(&given_up).await?; // DETACH2
        if !failed.is_empty() {
            let missing = Change::MarkMissing { missing: failed.clone(), returned: Vec::new() };
            commits.make(group, missing, &format!("{words}: it has failed")).await?;
            let open = self.groups.known.borrow_mut().get_mut(&group).and_then(|known| known.open.take());
            if let Some(mut open) = open {
                failed.iter().for_each(|disk| open.leave_out(*disk));
                self.put_open(group, open);
            }
            planned = commits.plan(group, change, words)?;
        }
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.converge(group).await;
        rebuilds::begin_filling(self, group, &members);
        let replaced = |volume: &LogicalVolume| touched.contains(&volume.id);
        let arrays = self.arrays_of(group, replaced).await?;
        self.shown_arrays(group, &arrays).map(Changed::Done)
    }

    /// The disks that have failed, so that they are to be recorded as missing: a commit reaches all disks of the group that are not.
    /// Nothing but members of arrays may lie there, and all of what relies on `from` must be detached. `is_away`: an array does
    /// without its member there.
    fn disks_to_mark(
        &self,
        group: Uuid,
        from: Uuid,
        gives_up_all: bool,
        is_away: bool,
    ) -> Result<Vec<Uuid>, Failure> {
        let disks = self.disks.known.borrow();
        self.with_group(group, |known| {
            let has_failed = |disk: &&PhysicalVolume| {
                let file = known.paths.get(&disk.id).and_then(|path| disks.get(Path::new(path)));
                let is_out = |known: &KnownDisk| known.file.state() != DiskState::InUse;
                // Its state changes with the first durable write that fails, which would be the one of this commit.
                let is_given_up = |known: &KnownDisk| {
                    is_away && known.file.counters().errors > 0 && self.disks.lost.is_ejected(disk.id)
                };
                let may_be_given_up = gives_up_all && disk.id == from;
                !disk.missing
                    && file.is_some_and(|known| is_out(known) || may_be_given_up && is_given_up(known))
            };
            let failed = || known.group.physical_volumes().iter().filter(has_failed);
            let holds_more = |disk: &&PhysicalVolume| {
                let mut spaces = known.group.logical_volumes().iter().flat_map(spaces);
                let is_on = |space: Space<'_>| space.areas().any(|area| area.pv == disk.name);
                !gives_up_all
                    || (disk.id != from
                        && spaces.any(|space| space.layout.members().is_empty() && is_on(space)))
            };
            let Some(disk) = failed().find(holds_more) else {
                return Ok(failed().map(|disk| disk.id).collect());
            };
            let path = known.path_of(disk.id);
            let message = format!("{path} has failed, and its group counts on it still");
            Err(Failure::new(Code::MediumFailed, message).help(format!(
                "varve pv replace {path}, or varve pv scan, which opens it anew or finds it missing"
            )))
        })?
    }

    /// Refuses that a volume or pool becomes as large as in `after` while regions of its array cannot be read, and would become larger
    /// with it: what can be read beside them could be no more.
    pub(crate) async fn refuse_wider_loss(
        &self,
        group: Uuid,
        volume: Uuid,
        after: &Group,
    ) -> Result<(), Failure> {
        let entry = after.logical_volumes().iter().find(|entry| entry.id == volume);
        let size = entry.map_or(0, |entry| after.bytes(entry.extents));
        for array in self.arrays_of(group, |known| known.id == volume).await? {
            let own = array.status.as_ref().filter(|_| array.store.is_none());
            if own.is_some_and(|status| status.widens_lost_regions(size)) {
                let name = self.subject(volume);
                let message = format!(
                    "regions of {name} wait for a member, and would take others with them in so large an array"
                );
                return Err(Failure::new(Code::VolumeBusy, message).help(format!(
                    "varve array show {name}; extend it when all can be read, or accept their loss first: \
                     varve array rebuild {name} --accept-stale all"
                )));
            }
        }
        Ok(())
    }

    async fn fail_all(&self, members: &[(KnownArray, usize)]) -> Result<(), Failure> {
        for (array, place) in members {
            let (id, place) = (array.id, *place);
            let Some(home) = &array.home else { continue };
            let failed = home.array(id).fail_member(place);
            self.answered(array.volume.id, failed.await)?;
        }
        Ok(())
    }

    /// The members on `disk` of the arrays of volumes that are meant, each of which may be detached (DETACH1).
    async fn members_on(
        &self,
        group: Uuid,
        disk: Uuid,
        is_meant: impl Fn(&LogicalVolume) -> bool,
    ) -> Result<Vec<(KnownArray, usize)>, Failure> {
        let name = self.with_group(group, |known| known.group.pv_by_id(disk).map(|disk| disk.name))?;
        let arrays = self.arrays_of(group, is_meant).await?.into_iter();
        let on_disk = arrays.filter_map(|array| {
            let place = array.place_on(name?)?;
            Some((array, place))
        });
        let members: Vec<(KnownArray, usize)> = on_disk.collect();
        for (array, place) in &members {
            array.refuse_loss(&self.subject(array.volume.id), *place)?;
            if self.uncleared(group, array.volume.id).is_some() {
                self.refuse_if_busy(array.volume.id)?; // Zeros are being written to all its members.
            }
        }
        Ok(members)
    }

    /// The arrays of volumes and pools that are meant, and how they do.
    pub(crate) async fn arrays_of(
        &self,
        group: Uuid,
        is_meant: impl Fn(&LogicalVolume) -> bool,
    ) -> Result<Vec<KnownArray>, Failure> {
        let mut all = self.with_group(group, |known| {
            let volumes = known.group.logical_volumes().iter().filter(|volume| is_meant(volume));
            volumes.flat_map(|volume| known_arrays(known, volume)).collect::<Vec<_>>()
        })?;
        for array in &mut all {
            let (Some(home), id) = (array.home.clone(), array.id) else { continue };
            let asked = home.array(id).status().await;
            array.status = asked.map_err(failures::gone)?;
        }
        Ok(all)
    }

    fn shown_arrays(&self, group: Uuid, arrays: &[KnownArray]) -> Result<Vec<VolumeArray>, Failure> {
        self.with_group(group, |known| {
            let one = |known_array: &KnownArray| {
                let array = shown_array(
                    known,
                    &known_array.volume,
                    known_array.space(),
                    known_array.status.as_ref(),
                )?;
                let volume = format!("{}/{}", known.group.name(), known_array.volume.name);
                let rebuild = self.jobs.targets.job_of(REBUILD, known_array.volume.id);
                let job = rebuild.map(|job| job.to_string());
                Some(VolumeArray { volume, is_store: known_array.store.is_some(), array, job })
            };
            arrays.iter().filter_map(one).collect()
        })
    }

    /// A volume or pool of which something is an array.
    pub(crate) fn find_array(&self, text: &str) -> Result<LocatedVolume, Failure> {
        let name = volume_name(text)?;
        let located = match self.find_any_volume(&name) {
            Err(failure) if failure.code == Code::IsPool => self.find_pool(&name)?,
            found => found?,
        };
        let volume = &located.volume;
        let is_array = |layout: &Layout| !layout.members().is_empty();
        if is_array(&volume.layout) || volume.stores().any(|store| is_array(&store.layout)) {
            return Ok(located);
        }
        let failure = Failure::new(Code::NotAnArray, format!("{text} has no array"));
        Err(match located.thin {
            Some(thin) => failure.help(format!(
                "a thin volume lies in its pool: varve array show {}",
                self.subject(thin.pool)
            )),
            None => failure.help(format!("varve lv show {text} shows how it is laid out")),
        })
    }

    /// The disk of a group with this path, identity or name; it may be missing.
    pub(crate) async fn group_disk(&self, group: Uuid, text: &str) -> Result<Uuid, Failure> {
        self.disk_in(group, &self.known_path(text).await)
    }

    fn disk_in(&self, group: Uuid, text: &str) -> Result<Uuid, Failure> {
        let found = self.with_group(group, |known| known.disk_at(text).or_else(|| known.missing_at(text)))?;
        found.map_or_else(|| self.member(group, text), Ok)
    }

    /// The lock of the group that has the disk with this path, identity or name; the group, and the disk (LOCKING1).
    pub(crate) async fn lock_of_disk(&self, text: &str) -> Result<(Held, Uuid, Uuid), Failure> {
        loop {
            let (group, _) = self.disk_of_any(text).await?;
            let lock = self.lock_of(&group.to_string()).await?;
            // Meanwhile it may have come to another group.
            if let Ok(disk) = self.group_disk(group, text).await {
                return Ok((lock, group, disk));
            }
        }
    }

    /// The disk with this path, identity or name, and its group.
    pub(crate) async fn disk_of_any(&self, text: &str) -> Result<(Uuid, Uuid), Failure> {
        let text = &self.known_path(text).await;
        let groups: Vec<Uuid> = self.groups.known.borrow().keys().copied().collect();
        let found = groups.into_iter().filter_map(|group| Some((group, self.disk_in(group, text).ok()?)));
        let found: Vec<(Uuid, Uuid)> = found.collect();
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(Failure::new(Code::PhysicalVolumeNotFound, format!("no group has the disk {text}"))
                .help("varve pv list")),
            _ => Err(Failure::new(Code::Usage, format!("several groups have a disk {text}"))
                .help("give its path or identity: varve pv list --json")),
        }
    }
}

impl KnownGroup {
    /// The disk that is at `path` now.
    pub(crate) fn disk_at(&self, path: &str) -> Option<Uuid> {
        self.paths.iter().find(|(_, known)| *known == path).map(|(id, _)| *id)
    }

    /// The missing disk that was last seen at `path`.
    fn missing_at(&self, path: &str) -> Option<Uuid> {
        let disks = self.group.physical_volumes().iter();
        let mut missing = disks.filter(|disk| !self.paths.contains_key(&disk.id));
        missing.find(|disk| disk.path == path).map(|disk| disk.id)
    }
}
