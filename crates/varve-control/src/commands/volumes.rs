//! Volumes: made, listed, grown, shrunk, renamed, removed.
//!
//! What volumes gain is cleared first: `clearing.rs`.

use super::array_policy;
use super::policy::changed;
use super::shown_volume::shown_volume;
use crate::backing::mappers::{asked_layout, refuse_absent_mapper};
use crate::exports::known_export::KnownExport;
use crate::failures;
use crate::find::{LocatedVolume, volume_name};
use crate::group::change::{Commits, shown};
use crate::trash::Trash;
use crate::{Control, PROBE};
use futures_util::future::join_all;
use std::collections::HashMap;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Empty, Failure, LogicalVolume as ShownVolume, Removed, Rename, Resize, VolumeCreate,
    VolumeRemove,
};
use varve_block::IoError;
use varve_vg::model::{self, LogicalVolume, Role, StorePolicy};
use varve_vg::names::VolumeName;
use varve_vg::size::{SizeArgument, parse_size};
use varve_vg::tree::VolumeNode;
use varve_vg::{Change, Group, Plan};
use varve_volume::opened::open_array;
use varve_volume::volume_stack::VolumeFacts;

impl Control {
    /// All volumes, or those of one group.
    pub async fn list_volumes(&self, group: Option<&str>) -> Result<Vec<ShownVolume>, Failure> {
        let only = group.map(|group| self.find_group(group)).transpose()?;
        let located: Vec<LocatedVolume> = {
            let groups = self.groups.known.borrow();
            let wanted = groups.iter().filter(|(id, _)| only.is_none_or(|only| only == **id));
            wanted.flat_map(|(id, known)| self.locate_all(*id, known)).collect()
        };
        let exports = self.exports_by_volume(|_| true);
        // Side by side: each may wait for a disk that does not answer.
        let shown = located.iter().map(|located| self.shown_volume(located, &exports));
        let mut volumes = join_all(shown).await;
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(volumes)
    }

    /// One volume.
    pub async fn show_volume(&self, text: &str) -> Result<ShownVolume, Failure> {
        let name = volume_name(text)?;
        let located = self.find_any_volume(&name)?;
        let exports = self.exports_by_volume(|volume| volume == located.volume.id);
        Ok(self.shown_volume(&located, &exports).await)
    }

    /// Makes a volume.
    pub async fn create_volume(&self, request: VolumeCreate) -> Result<Changed<ShownVolume>, Failure> {
        let _lock = self.lock_of(&request.name).await?;
        let name = volume_name(&request.name)?;
        if let Some(pool) = &request.pool {
            refuse_disks(&request.on)?;
            array_policy::refuse_words(&request.array_policy)?;
            return self.create_thin(&request, &name, pool).await;
        }
        if request.origin.is_some() {
            return Err(Failure::new(Code::BadOrigin, "only a thin volume has an origin").help("--pool POOL"));
        }
        if request.image_snapshot.is_some() {
            let message = "a snapshot in an image is only read: a thin volume can be backed by it";
            return Err(Failure::new(Code::Usage, message).help("--pool POOL"));
        }
        if let Some(path) = &request.image {
            return self.create_in_image(&request, &name, path).await;
        }
        if request.format.is_some() {
            return Err(Failure::new(Code::Usage, "--format is that of an --image"));
        }
        let size = SizeArgument::parse(&request.size).map_err(|error| failures::bad_size(&error))?;
        let group = self.find_group(&name.group)?;
        let layout = asked_layout(&request, self.asked_devices(group, &request)?)?;
        let policy = changed(StorePolicy::default(), &request.snapshot_policy)?;
        self.refuse_thin_name(group, &name.volume)?;
        let id = self.new_id();
        let (role, disks) =
            (Role::Volume, self.array_choice(group, &request.on, request.log.as_deref()).await?);
        let change =
            Change::CreateVolume { name: name.volume.clone(), id, size, role, layout, policy, disks };
        let words = format!("lv create {name} --size {}", request.size);
        let commits = self.commits(group).await;
        let plan = || {
            let planned = commits.plan(group, change.clone(), &words)?;
            array_policy::with_words(planned, &name.volume, &request.array_policy)
        };
        let mut planned = plan()?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        if commits.make_room(group, &planned).await? {
            planned = plan()?;
        }
        let volume = planned.after.lv(&name.volume).cloned().expect("the plan makes this volume");
        self.agree_to_mapper(group, &volume).await?;
        let planned = self.clear(group, planned, &volume, 0, request.no_zero).await?;
        self.make_array(group, &planned.after, &volume).await?;
        let is_clear = planned.after.uncleared(id).is_none();
        let volume = planned.after.lv(&name.volume).cloned().expect("the plan makes this volume");
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        let activated = self.activate_new(group, &volume).await;
        if is_clear {
            activated?;
        }
        self.converge(group).await;
        self.show_volume(&request.name).await.map(Changed::Done)
    }

    /// Makes the array that a new volume is, if it is one, before the volume is valid.
    async fn make_array(&self, group: Uuid, version: &Group, volume: &LogicalVolume) -> Result<(), Failure> {
        let node = VolumeNode::whole(version, volume).map_err(|error| failures::tree(&error.into()))?;
        let Some(target) = node.table.array() else { return Ok(()) };
        let disks = self.with_group(group, |known| self.files_of(known, version))?;
        let made = open_array::create(&self.context, target, &self.metadata_disks(&disks)).await;
        made.map_err(|failure| self.unless_one_is_silent(&disks, failure))
    }

    /// Grows a volume while it is in use.
    pub async fn extend_volume(&self, text: &str, request: Resize) -> Result<Changed<ShownVolume>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
        let located = self.find_any_volume(&name)?;
        if matches!(located.volume.layout, model::Layout::Image { .. }) && name.snapshot.is_none() {
            return self.extend_image(&name, &located, &request).await;
        }
        let located = located.usable()?;
        self.refuse_if_busy(located.volume.id)?;
        if located.thin.is_some() || name.snapshot.is_some() {
            refuse_disks(&request.on)?;
        }
        if located.thin.is_some() && name.snapshot.is_none() {
            return self.resize_thin(&name, &located, &request, true).await;
        }
        if located.thin.is_some() {
            let message = format!("{name} has no snapshot store: it takes space in its pool");
            return Err(Failure::new(Code::Usage, message)
                .help(format!("varve pool extend {} --size +SIZE", self.subject(located.pool()))));
        }
        let size = SizeArgument::parse(&request.size).map_err(|error| failures::bad_size(&error))?;
        if name.snapshot.is_some() {
            return self.extend_store_of(&name, &located, size, request.dry_run).await;
        }
        self.refuse_if_paused(&located).await?;
        refuse_absent_mapper(text, &located).await?;
        let disks = self.disk_choice(located.group, &request.on).await?;
        let change = Change::ExtendVolume { name: name.volume.clone(), size, disks };
        let commits = self.commits(located.group).await;
        let words = format!("lv extend {name} --size {}", request.size);
        let mut planned = commits.plan(located.group, change.clone(), &words)?;
        self.refuse_wider_loss(located.group, located.volume.id, &planned.after).await?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        if commits.make_room(located.group, &planned).await? {
            planned = commits.plan(located.group, change, &words)?;
        }
        let volume = planned.after.lv(&name.volume).cloned().expect("the plan keeps this volume");
        let before = located.served_extents();
        let planned = self.clear(located.group, planned, &volume, before, false).await?;
        self.commit_size(commits, planned, &name, &located).await
    }

    /// Shrinks a volume that is not in use.
    pub async fn reduce_volume(&self, text: &str, request: Resize) -> Result<Changed<ShownVolume>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        let located = self.find_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        refuse_disks(&request.on)?;
        if located.thin.is_some() {
            self.refuse_if_exported(located.volume.id, &name.origin(), false)?;
            return self.resize_thin(&name, &located, &request, false).await;
        }
        let size = reduced(&name, &request.size, located.size())?;
        self.refuse_if_exported(located.volume.id, &name, true)?;
        self.refuse_snapshots(&located, &name, Code::ShrinkWithSnapshots).await?;
        self.refuse_read_only_origin(&located, &name).await?;
        if !request.dry_run {
            self.drop_stores(&located).await?;
        }
        let commits = self.commits(located.group).await;
        let change = Change::ReduceVolume { name: name.volume.clone(), size };
        let planned =
            commits.plan(located.group, change, &format!("lv reduce {name} --size {}", request.size))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        self.commit_size(commits, planned, &name, &located).await
    }

    /// Gives a volume another name.
    pub async fn rename_volume(&self, text: &str, request: Rename) -> Result<Changed<ShownVolume>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        let located = self.find_any_volume(&name)?;
        let to = name_beside(&name, &request.to)?;
        self.refuse_clients(|export| export.remembered.volume == located.volume.id, request.force).await?;
        if located.thin.is_some() {
            return self.rename_thin(&name, &to, &located, request.dry_run).await;
        }
        self.refuse_thin_name(located.group, &to.volume)?;
        let commits = self.commits(located.group).await;
        let change = Change::RenameVolume { from: name.volume.clone(), to: to.volume.clone() };
        let planned = commits.plan(located.group, change, &format!("lv rename {name} {}", to.volume))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        commits.commit(located.group, planned, Vec::new()).await?;
        drop(commits);
        self.converge(located.group).await;
        self.show_volume(&to.to_string()).await.map(Changed::Done)
    }

    /// Removes a volume that is not in use: it goes to the trash, unless that is not wanted.
    pub async fn remove_volume(
        &self,
        text: &str,
        request: VolumeRemove,
    ) -> Result<Changed<Removed>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        let located = self.find_any_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        self.refuse_if_exported(located.volume.id, &name, true)?;
        if !request.now && Trash::of(self).takes(&located) {
            return self.put_volume_into_trash(&located, &name, request.dry_run).await;
        }
        self.refuse_snapshots(&located, &name, Code::VolumeHasSnapshots).await?;
        if located.thin.is_some() {
            return self.remove_thin(&name, &located, request.dry_run).await.map(for_good);
        }
        self.refuse_read_only_origin(&located, &name).await?;
        let remove = Change::RemoveVolume { name: name.volume.clone() };
        let words = format!("lv remove {name}");
        if request.dry_run {
            return self.plan_removal(&located, remove, &words).await.map(Changed::Planned);
        }
        self.drop_stores(&located).await?;
        let commits = self.commits(located.group).await;
        let planned = commits.plan(located.group, remove, &words)?;
        self.commit_removal(commits, planned, &located).await.map(for_good)
    }

    /// Puts a volume into the trash with its snapshots, unless something needs it or one of them.
    async fn put_volume_into_trash(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
        dry_run: bool,
    ) -> Result<Changed<Removed>, Failure> {
        self.refuse_read_only_origin(located, name).await?;
        for facts in self.facts(located).await {
            self.refuse_if_needed_snapshot(located.group, &facts, &format!("{name}@{}", facts.name)).await?;
        }
        if located.thin.is_some() {
            return Trash::of(self).put_thin(name, located, dry_run).await;
        }
        self.refuse_if_paused(located).await?;
        Trash::of(self).put(located, &format!("lv remove {name}"), dry_run).await
    }

    /// Releases a volume or pool, then makes the change that removes it; if that fails it is served again.
    pub(crate) async fn commit_removal(
        &self,
        commits: Commits<'_>,
        planned: Plan,
        located: &LocatedVolume,
    ) -> Result<Changed<Empty>, Failure> {
        let removed = match self.release_for_removal(located).await {
            Ok(()) => commits.commit(located.group, planned, Vec::new()).await,
            failed => failed,
        };
        drop(commits);
        if removed.is_err() {
            self.converge(located.group).await;
        }
        if removed.is_ok() {
            self.memory.remembered.borrow_mut().scrubs.remove(&located.volume.id);
            self.forget_left(located.volume.id);
            self.forget_image_jobs(located.volume.id).await;
        }
        removed.map(|()| Changed::Done(Empty {}))
    }

    async fn plan_removal(
        &self,
        located: &LocatedVolume,
        remove: Change,
        words: &str,
    ) -> Result<varve_api::Plan, Failure> {
        let commits = self.commits(located.group).await;
        let volume = &located.volume.name;
        let give_back = located
            .volume
            .stores()
            .map(|store| Change::RemoveStore { volume: volume.clone(), store: store.id });
        let mut group = commits.group(located.group)?;
        let mut whole = varve_api::Plan::of_steps(Vec::new());
        for change in give_back.chain([remove]) {
            let stamp = self.stamp(words);
            let plan = varve_vg::plan(&group, change, &stamp).map_err(|error| failures::plan(&error))?;
            whole = whole.and(shown(&plan));
            group = plan.after;
        }
        Ok(whole)
    }

    /// Commits a volume's new size, and shows it to all clients of the volume.
    async fn commit_size(
        &self,
        commits: Commits<'_>,
        planned: Plan,
        name: &VolumeName,
        located: &LocatedVolume,
    ) -> Result<Changed<ShownVolume>, Failure> {
        commits.commit(located.group, planned, Vec::new()).await?;
        drop(commits);
        self.converge(located.group).await;
        self.show_volume(&name.to_string()).await.map(Changed::Done)
    }

    /// Refuses a change that a volume with snapshots cannot bear.
    async fn refuse_snapshots(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
        code: Code,
    ) -> Result<(), Failure> {
        let volume = located.volume.id;
        let facts = located.home.volume(volume).snapshots().await.map_err(failures::gone)?;
        let names: Vec<String> = facts.into_iter().flatten().map(|snapshot| snapshot.name).collect();
        let unknown = located.unusable.is_some() && located.volume.stores().next().is_some();
        let (first, last) = match (names.first(), names.last()) {
            (Some(first), Some(last)) => (first, last),
            _ if unknown => {
                let message = format!("{name} cannot be used, so nobody knows whether it has snapshots");
                return Err(Failure::new(Code::VolumeUnusable, message).help(format!("varve lv show {name}")));
            }
            _ => return Ok(()),
        };
        let range =
            if first == last { format!("{name}@{first}") } else { format!("{name}@{first}..@{last}") };
        let message = format!("{name} has snapshots: {}", super::groups::few(&names));
        Err(Failure::new(code, message).help(format!("varve snap remove {range}")))
    }

    /// A volume as it is shown.
    async fn shown_volume(
        &self,
        located: &LocatedVolume,
        exports: &HashMap<Uuid, Vec<String>>,
    ) -> ShownVolume {
        let volume = located.volume.id;
        let facts = located.home.volume(volume).facts();
        // A disk that does not answer must not keep the other volumes from being shown.
        let deadline = self.context.clock().now().after(PROBE);
        let facts = match self.until(deadline, facts).await {
            Some(facts) => facts.unwrap_or_default(),
            None => VolumeFacts { failure: Some(IoError::Gone), ..VolumeFacts::default() },
        };
        let shown = self.with_group(located.group, |known| shown_volume(located, known, &facts, &self.watch));
        let mut shown = shown.expect("a located volume has a group");
        let origin = located.thin.as_ref().and_then(|thin| thin.origin);
        if let Some((thin, origin)) = shown.thin.as_mut().zip(origin) {
            thin.origin = Some(self.origin_name(located.group, origin).await);
        }
        shown.exports = exports.get(&volume).cloned().unwrap_or_default();
        if let Some(array) = &mut shown.array {
            array.scrub = self.memory.remembered.borrow().scrubs.get(&volume).cloned();
        }
        shown
    }

    /// Exports of the volumes meant, without those of their snapshots.
    fn exports_by_volume(&self, is_meant: impl Fn(Uuid) -> bool) -> HashMap<Uuid, Vec<String>> {
        let mut exports = HashMap::<Uuid, Vec<String>>::new();
        let known = self.exports.known.borrow();
        let of_volume =
            |export: &&KnownExport| export.name.snapshot.is_none() && is_meant(export.remembered.volume);
        for export in known.values().filter(of_volume) {
            exports.entry(export.remembered.volume).or_default().push(export.remembered.id.clone());
        }
        exports
    }
}

/// The answer about what was removed and cannot be brought back.
pub(crate) fn for_good(removed: Changed<Empty>) -> Changed<Removed> {
    match removed {
        Changed::Done(Empty {}) => Changed::Done(Removed { until: None }),
        Changed::Planned(plan) => Changed::Planned(plan),
    }
}

/// The name LV, or VG/LV of the same group, of a volume beside the volume `name`.
pub(crate) fn name_beside(name: &VolumeName, text: &str) -> Result<VolumeName, Failure> {
    let to = match text.split_once('/') {
        Some(_) => volume_name(text)?,
        None => volume_name(&format!("{}/{text}", name.group))?,
    };
    if to.group != name.group {
        return Err(Failure::new(Code::Usage, "a volume stays in its group"));
    }
    Ok(to)
}

/// Only what takes extents of the group takes them from disks that are named.
pub(crate) fn refuse_disks(on: &[String]) -> Result<(), Failure> {
    match on {
        [] => Ok(()),
        _ => Err(Failure::new(
            Code::Usage,
            "--on names disks for a volume or pool that takes extents of its group",
        )),
    }
}

/// The size that `--size SIZE` or `--size -SIZE` leaves of `now`.
pub(crate) fn reduced(name: &VolumeName, text: &str, now: u64) -> Result<u64, Failure> {
    let bytes =
        parse_size(text.strip_prefix('-').unwrap_or(text)).map_err(|error| failures::bad_size(&error))?;
    if !text.starts_with('-') {
        return Ok(bytes);
    }
    now.checked_sub(bytes).filter(|left| *left > 0).ok_or_else(|| {
        Failure::new(Code::BadVolumeSize, format!("the volume has only {now} bytes"))
            .help(format!("varve lv remove {name}"))
    })
}
