//! Disks that are labelled already, taken into use; and disks in trouble, looked at anew.
//!
//! Invariants:
//! - RESCAN1. A disk that was set aside to be looked at anew is known again afterwards: as usable, or with the reason why it is not.
//! - RESCAN2. While a change of a group has reached only some of its disks, these are looked at anew again and again, as `pv scan` does it:
//!   one disk that fails keeps the others' volumes and pools from what they need of the group for no longer than that.
//! - RESCAN3. While something of a group is moved or converted and a disk of it is missing, that is looked for in this way, too.

use super::Control;
use super::disks::{options, read_label};
use super::images::what;
use super::known_disk::KnownDisk;
use super::known_group::KnownGroup;
use super::reopen::why_failed;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, PhysicalVolume, PhysicalVolumeScan, PhysicalVolumeState, Plan};
use varve_block::host::DiskState;
use varve_vg::size::format_size;

/// How long after a change that reached only some disks they are looked at anew for the first time, and how long at most later.
const RECONCILE_FIRST: Duration = Duration::from_secs(2);
const RECONCILE_LATER: Duration = Duration::from_secs(60);

impl Control {
    /// RESCAN2, RESCAN3.
    pub(super) fn reconcile_soon(&self, group: Uuid) {
        if !self.settling.borrow_mut().insert(group) {
            return;
        }
        let (me, clock) = (self.weak(), self.context.clock());
        self.context.spawner().spawn(async move {
            let mut wait = RECONCILE_FIRST;
            loop {
                clock.sleep(wait).await;
                let Some(control) = me.upgrade() else { return };
                let is_open = control.with_group(group, needs_look) == Ok(true);
                if !is_open || control.stopping.get() {
                    control.settling.borrow_mut().remove(&group);
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
            [] => self.unopened.borrow().keys().cloned().collect(),
            paths => paths.iter().map(PathBuf::from).collect(),
        };
        let named = if request.paths.is_empty() { 0 } else { paths.len() };
        if !request.dry_run {
            let vanished = self.vanished_duplicates().await;
            let aside = self.set_aside(&paths, named > 0, &vanished);
            paths.extend(
                aside.into_iter().filter(|path| !request.paths.iter().any(|named| Path::new(named) == path)),
            );
        }
        let reopened = if request.dry_run { Vec::new() } else { self.reopen_failed().await };
        let mut found = Vec::new();
        let mut refused = None;
        let mut in_use = Vec::new();
        for (index, path) in paths.into_iter().enumerate() {
            if self.disks.borrow().contains_key(&path) {
                in_use.push(path);
                continue;
            }
            match self.examine_for_scan(&path, request.cache).await {
                Ok(known) if request.dry_run => found.push((path, known)),
                Ok(known) => self.remember_disk(&path, known),
                Err(failure) => {
                    if self.unopened.borrow().contains_key(&path) {
                        tracing::warn!(path = %path.display(), %failure, "still not usable");
                        self.unopened.borrow_mut().insert(path, failure.clone()); // RESCAN1
                    }
                    refused = refused.or((index < named).then_some(failure));
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
            return refused.map_or(Ok(Changed::Planned(plan)), Err);
        }
        self.save_or_warn().await;
        self.survey().await;
        for path in in_use {
            self.take_members_back(&path).await;
        }
        self.lead_doors(&reopened).await;
        self.reopen_over_closed().await;
        if request.trust_images {
            self.agree_to_images().await?;
        }
        self.resolve_sets().await;
        self.go_on_jobs().await;
        self.resume_rollbacks().await;
        self.restore_exports(self.context.clock().now()).await;
        refused.map_or_else(|| Ok(Changed::Done(self.list_disks())), Err)
    }

    /// Of the disks with one label those whose path leads to nothing any more.
    async fn vanished_duplicates(&self) -> Vec<PathBuf> {
        let duplicates: Vec<PathBuf> = {
            let disks = self.disks.borrow();
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
        let mut disks = self.disks.borrow_mut();
        let aside = |path: &Path, known: &KnownDisk| match &known.problem {
            None if known.file.state() == DiskState::InUse => false,
            Some((PhysicalVolumeState::Duplicate, _)) => named || vanished.iter().any(|gone| gone == path),
            _ => !named || paths.iter().any(|named| named == path),
        };
        // A disk that a group counts on is in use, whatever is wrong with it.
        let troubled: Vec<PathBuf> = disks
            .iter()
            .filter(|(path, known)| aside(path, known) && self.group_of(path).is_none())
            .map(|(path, _)| path.clone())
            .collect();
        let mut unopened = self.unopened.borrow_mut();
        for path in &troubled {
            let known = disks.remove(path);
            let reason = known.and_then(|known| {
                let problem = known.problem.map(|(_, reason)| reason);
                problem.or_else(|| why_failed(known.file.state()))
            });
            let reason = reason.unwrap_or_default();
            unopened.insert(path.clone(), Failure::new(Code::LabelDamaged, reason));
        }
        troubled
    }

    pub(super) async fn examine_for_scan(
        &self,
        path: &Path,
        cache: Option<varve_api::Cache>,
    ) -> Result<KnownDisk, Failure> {
        let cache = cache.unwrap_or(self.cache);
        self.refuse_own_export(path).await?;
        let file = self.open_disk(path, options(cache)).await?;
        let label = read_label(&self.metadata_disk(&file), &self.context.arena()).await;
        let Some(label) = label else {
            let text = path.display();
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
        Ok(KnownDisk { file, cache, label: Some(label), problem: None })
    }
}

/// RESCAN2, RESCAN3.
fn needs_look(known: &KnownGroup) -> bool {
    let is_copied = !known.group.moves().is_empty() || !known.group.conversions().is_empty();
    known.is_half_committed() || is_copied && !known.missing().is_empty()
}
