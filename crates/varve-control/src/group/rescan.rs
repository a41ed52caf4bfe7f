//! Disks that are labelled already, taken into use; and disks in trouble, looked at anew.
//!
//! Invariants:
//! - RESCAN1. A disk that was set aside to be looked at anew is known again afterwards: as usable, or with the reason why it is not.
//! - RESCAN2. While a change of a group has reached only some of its disks, these are looked at anew again and again, as `pv scan` does it:
//!   one disk that fails keeps the others' volumes and pools from what they need of the group for no longer than that.
//! - RESCAN3. While something of a group is moved or converted and a disk of it is missing, that is looked for in this way, too.
//! - RESCAN4. A disk that returns while the daemon lives holds what it was known to hold when it left, if something is on it that is no
//!   array: it cannot know for itself that it is an older copy. Of metadata the group's text knows.

use super::known_group::KnownGroup;
use crate::Control;
use crate::backing::images::what;
use crate::host::disks::options;
use crate::host::known_disk::why_failed;
use crate::host::known_disk::{DepartedDisk, KnownDisk};
use crate::jobs::rebuilds;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Failure, Group as ShownGroup, GroupExtend, PhysicalVolume, PhysicalVolumeScan,
    PhysicalVolumeState, Plan,
};
use varve_block::Extent;
use varve_block::host::{DiskMark, DiskState};
use varve_format::Label;
use varve_vg::disks::identity::label_of;
use varve_vg::disks::relabel::find_label;
use varve_vg::model::spaces;
use varve_vg::size::format_size;
use varve_volume::world::DiskRef;

/// How long after a change that reached only some disks they are looked at anew for the first time, and how long at most later.
const RECONCILE_FIRST: Duration = Duration::from_secs(2);
const RECONCILE_LATER: Duration = Duration::from_secs(60);

impl Control {
    /// Looks at the disks of a group again and again until nothing is undecided (RESCAN2, RESCAN3).
    pub(crate) fn reconcile_soon(&self, group: Uuid) {
        if !self.groups.undecided.borrow_mut().insert(group) {
            return;
        }
        let (me, clock) = (self.weak(), self.context.clock());
        self.context.spawner().spawn(async move {
            let mut wait = RECONCILE_FIRST;
            loop {
                clock.sleep(wait).await;
                let Some(control) = me.upgrade() else { return };
                let is_open = control.with_group(group, needs_look) == Ok(true);
                if !is_open || control.life.stopping.get() {
                    control.groups.undecided.borrow_mut().remove(&group);
                    return;
                }
                if let Err(failure) = control.scan_disks(PhysicalVolumeScan::default()).await {
                    tracing::warn!(%group, %failure, "what a change has reached is not known yet");
                }
                wait = (wait * 2).min(RECONCILE_LATER);
            }
        });
    }

    /// Takes labelled disks into use.
    pub async fn scan_disks(
        &self,
        request: PhysicalVolumeScan,
    ) -> Result<Changed<Vec<PhysicalVolume>>, Failure> {
        let _lock = self.lock_host().await?;
        if !request.dry_run {
            self.watch.forget_errors();
        }
        let mut paths: Vec<PathBuf> = match request.paths.as_slice() {
            [] => self.disks.unopened.borrow().keys().cloned().collect(),
            paths => self.follow_disks(paths, request.dry_run).await,
        };
        let named_paths = if request.paths.is_empty() { Vec::new() } else { paths.clone() };
        let named = named_paths.len();
        if !request.dry_run {
            let vanished = self.vanished_duplicates().await;
            let aside = self.set_aside(&paths, named > 0, &vanished);
            paths.extend(aside.into_iter().filter(|path| !named_paths.contains(path)));
        }
        let reopened = if request.dry_run { Vec::new() } else { self.reopen_failed().await };
        let mut found = Vec::new();
        let mut refused = Vec::new();
        let mut in_use = Vec::new();
        for (index, path) in paths.into_iter().enumerate() {
            if self.disks.known.borrow().contains_key(&path) {
                in_use.push(path);
                continue;
            }
            match self.examine_for_scan(&path, request.cache).await {
                Ok(known) if request.dry_run => found.push((path, known)),
                Ok(known) => self.remember_disk(&path, known),
                Err(failure) => {
                    if self.disks.unopened.borrow().contains_key(&path) {
                        tracing::warn!(path = %path.display(), %failure, "still not usable");
                        self.disks.unopened.borrow_mut().insert(path, failure.clone()); // RESCAN1
                    }
                    refused.extend((index < named).then_some(failure));
                }
            }
        }
        if request.dry_run {
            let step = |(path, _): &(PathBuf, KnownDisk)| format!("would take {} into use", path.display());
            let mut steps: Vec<String> = found.iter().map(step).collect();
            if request.trust_images {
                let agree = |(_, name, path): (_, String, String)| {
                    format!("would agree to {path} as {} of group {name}", what(&path))
                };
                steps.extend(self.images_not_agreed().into_iter().map(agree));
            }
            let plan = Plan::of_steps(steps);
            return all_refused(refused, named).map_or(Ok(Changed::Planned(plan)), Err);
        }
        self.save_or_warn().await;
        self.survey().await;
        for path in in_use {
            self.take_members_back(&path).await;
        }
        rebuilds::resume(self).await;
        self.lead_doors(&reopened).await;
        self.reopen_over_closed().await;
        if request.trust_images {
            self.agree_to_images().await?;
        }
        all_refused(refused, named).map_or_else(|| Ok(Changed::Done(self.list_disks())), Err)
    }

    /// Of the disks with one label those whose path leads to nothing any more.
    async fn vanished_duplicates(&self) -> Vec<PathBuf> {
        let duplicates: Vec<PathBuf> = {
            let disks = self.disks.known.borrow();
            let is_one =
                |known: &KnownDisk| matches!(known.problem, Some((PhysicalVolumeState::Duplicate, _)));
            disks.iter().filter(|(_, known)| is_one(known)).map(|(path, _)| path.clone()).collect()
        };
        let mut vanished = Vec::new();
        for path in duplicates {
            let place = path.clone();
            if self.at_path(&path, move |files| files.exists(&place)).await == Ok(false) {
                vanished.push(path);
            }
        }
        vanished
    }

    /// Releases the disks in trouble, so that they are opened and read anew; their paths. Of several with one label,
    /// none is looked at unless one was named: it is unknown which is the right one.
    fn set_aside(&self, paths: &[PathBuf], named: bool, vanished: &[PathBuf]) -> Vec<PathBuf> {
        let mut disks = self.disks.known.borrow_mut();
        let aside = |path: &Path, known: &KnownDisk| match &known.problem {
            None if known.file.state() == DiskState::InUse => false,
            Some((PhysicalVolumeState::Duplicate, _)) => named || vanished.iter().any(|gone| gone == path),
            _ => !named || paths.iter().any(|named| named == path),
        };
        // A disk that a group relies on is in use, whatever is wrong with it.
        let troubled: Vec<PathBuf> = disks
            .iter()
            .filter(|(path, known)| aside(path, known) && self.group_of(path).is_none())
            .map(|(path, _)| path.clone())
            .collect();
        let mut unopened = self.disks.unopened.borrow_mut();
        for path in &troubled {
            let known = disks.remove(path);
            known.as_ref().inspect(|known| self.note_departure(known));
            let reason = known.and_then(|known| {
                let problem = known.problem.map(|(_, reason)| reason);
                problem.or_else(|| why_failed(known.file.state()))
            });
            let reason = reason.unwrap_or_default();
            unopened.insert(path.clone(), Failure::new(Code::LabelDamaged, reason));
        }
        troubled
    }

    /// RESCAN4: a disk goes out of use.
    pub(crate) fn note_departure(&self, known: &KnownDisk) {
        let Some(label) = known.label else { return };
        let departed = DepartedDisk { vg: label.vg, marks: known.file.marks() };
        self.disks.departed.borrow_mut().insert(label.pv, departed);
    }

    /// Refuses a disk that holds less than it was known to hold when it left (RESCAN4).
    async fn refuse_older(&self, label: &Label, file: &DiskRef) -> Result<(), Failure> {
        let marks: Vec<DiskMark> = {
            let departed = self.disks.departed.borrow();
            let Some(known) = departed.get(&label.pv) else { return Ok(()) };
            let Some(data) =
                label.vg.filter(|vg| known.vg == Some(*vg)).and_then(|vg| self.data_of(vg, label.pv))
            else {
                return Ok(());
            };
            let marks =
                known.marks.iter().filter(|mark| data.contains(Extent::new(mark.offset, mark.length as u64)));
            marks.copied().collect()
        };
        let holds_more = label.vg.is_some_and(|group| self.holds_more_than_arrays(group, label.pv));
        let (device, arena) = (self.metadata_disk(file), self.context.arena());
        if !holds_more {
            return Ok(());
        }
        for mark in &marks {
            let read = device.read(mark.offset, arena.take(mark.length)).await;
            if read.is_ok_and(|bytes| !mark.fits(&bytes)) {
                let path = file.path().display();
                let message = format!(
                    "{path} is older than when it left: it does not hold what was made durable at byte {} of it",
                    mark.offset
                );
                return Err(Failure::new(Code::DiskOutdated, message).help(format!(
                    "bring back the disk that left, then: varve pv scan {path}; after a restart of the daemon it is used as it is"
                )));
            }
        }
        file.adopt_marks(&marks);
        Ok(())
    }

    /// Where the extents of a group lie on one of its disks.
    fn data_of(&self, group: Uuid, disk: Uuid) -> Option<Extent> {
        self.with_group(group, |known| known.group.data_of(disk)).ok().flatten()
    }

    /// Whether anything of a group but members of arrays is on one of its disks.
    fn holds_more_than_arrays(&self, group: Uuid, disk: Uuid) -> bool {
        let found = self.with_group(group, |known| {
            let Some(disk) = known.group.pv_by_id(disk) else { return false };
            let mut spaces = known.group.logical_volumes().iter().flat_map(spaces);
            spaces.any(|space| {
                space.layout.members().is_empty() && space.areas().any(|area| area.pv == disk.name)
            })
        });
        found.unwrap_or_default()
    }

    pub(crate) async fn examine_for_scan(
        &self,
        path: &Path,
        cache: Option<varve_api::Cache>,
    ) -> Result<KnownDisk, Failure> {
        let cache = cache.unwrap_or(self.cache);
        self.refuse_own_export(path).await?;
        let file = self.open_disk(path, options(cache)).await?;
        self.refuse_overlap(file.medium(), Some(&file), path)?;
        let label = label_of(&self.metadata_disk(&file), &self.context.arena()).await;
        let Some(label) = label else {
            let text = path.display();
            if let Ok(Some(found)) = find_label(&self.metadata_disk(&file), &self.context.arena()).await {
                let (id, source) = (found.label.pv, found.found_in);
                let message =
                    format!("{text} has lost its label; by {source} it is the physical volume {id}");
                let help = format!("varve repair {text}, with the other disks of its group, makes it again");
                return Err(Failure::new(Code::LabelDamaged, message).help(help));
            }
            let message = format!("{text} is no physical volume: it has no valid label");
            let failure = Failure::new(Code::NotPhysicalVolume, message)
                .help(format!("varve check {text} tells more; varve pv create {text} makes it one"));
            return Err(self.unless_silent(&file, failure));
        };
        if file.shape().size < label.size {
            let message = format!(
                "{} was cut short: it has {}, and its label says {}",
                path.display(),
                format_size(file.shape().size),
                format_size(label.size)
            );
            return Err(Failure::new(Code::LabelDamaged, message).help("bring the disk back to its size"));
        }
        self.refuse_copy(&label, path)?;
        self.refuse_older(&label, &file).await?;
        Ok(KnownDisk::new(file, cache, Some(label)))
    }
}

impl KnownGroup {
    /// The identity of the stale disk at `path`, if there is one that the group still lacks.
    fn stale_at(&self, path: &str, label: Option<Uuid>) -> Option<Uuid> {
        let stale = self.stale.iter().any(|stale| stale == path);
        label.filter(|id| stale && self.group.pv_by_id(*id).is_some_and(|disk| disk.missing))
    }
}

impl Control {
    /// The stale disks of a group among `paths`; an error if some are stale and others are not.
    pub(crate) fn stale_among(&self, group: Uuid, paths: &[String]) -> Result<Vec<Uuid>, Failure> {
        let stale: Vec<Uuid> = self.with_group(group, |known| {
            paths.iter().filter_map(|path| known.stale_at(path, self.label_id(path))).collect()
        })?;
        if !stale.is_empty() && stale.len() < paths.len() {
            let message = "some of these disks belong to the group and are stale, others are new";
            return Err(Failure::new(Code::Usage, message).help("name them in two commands"));
        }
        Ok(stale)
    }

    /// Takes the stale disks `stale` back into their group, with data that may be old.
    pub(crate) async fn take_stale_back(
        &self,
        group: Uuid,
        stale: Vec<Uuid>,
        request: &GroupExtend,
    ) -> Result<Changed<ShownGroup>, Failure> {
        let name = self.with_group(group, |known| known.group.name().to_owned())?;
        let disks = request.paths.join(" ");
        if request.dry_run {
            let step = format!("would take {disks} back into group {name}, with data that may be old");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        if !request.overwrite {
            let message =
                format!("{disks}: stale, the group {name} has gone on without it; its data may be old");
            let help = format!("varve vg extend {name} {disks} --yes takes it back as it is");
            return Err(Failure::new(Code::Declined, message).help(help));
        }
        let commits = self.commits(group).await;
        let stamp = self.stamp(format!("vg extend {name} {disks}, which is stale"));
        let open = self.groups.known.borrow_mut().get_mut(&group).and_then(|known| known.open.take());
        let unusable =
            || Failure::new(Code::GroupIncomplete, "the group cannot be changed now").help("varve vg list");
        let mut open = open.ok_or_else(unusable)?;
        let mut taken = if open.is_reconciled() { Ok(()) } else { Err(unusable()) };
        for disk in stale {
            if taken.is_ok() {
                taken = open.take_back(disk, &stamp).await.map_err(|error| self.commit_failure(&error));
            }
        }
        self.put_open(group, open);
        self.fence_group(group).await;
        drop(commits);
        self.converge(group).await;
        taken?;
        self.event(&name, &stamp.change);
        self.show_group(&group.to_string()).await.map(Changed::Done)
    }
}

/// The reasons why disks were refused, of `named` ones, as one.
fn all_refused(mut refused: Vec<Failure>, named: usize) -> Option<Failure> {
    let is_partial = refused.len() < named;
    if refused.len() == 1 && !is_partial {
        return refused.pop();
    }
    let code = if is_partial { Code::DisksRefused } else { refused.first()?.code };
    let help = refused.first()?.help.clone();
    let reasons: Vec<String> = refused.into_iter().map(|failure| failure.message).collect();
    Some(Failure::new(code, reasons.join("; ")).help(help))
}

/// Whether a group is to be looked at again (RESCAN2, RESCAN3).
fn needs_look(known: &KnownGroup) -> bool {
    let is_copied = known.group.moves().next().is_some() || known.group.conversions().next().is_some();
    known.is_half_committed() || is_copied && !known.missing().is_empty()
}
