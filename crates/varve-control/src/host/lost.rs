//! Disks taken out of a group, lost ones above all, and released; and what loses its origin by that.
//!
//! Invariant LOST1: a command that abandons what others are backed by names them, and says what is to be done with them.

use super::known_disk::KnownDisk;
use crate::Control;
use crate::commands::groups::few;
use crate::failures;
use crate::group::change::{Commits, shown};
use crate::group::known_group::KnownGroup;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Empty, Failure, Group as ShownGroup, GroupReduce, PhysicalVolumeRemove, Plan,
};
use varve_block::host::DiskState;
use varve_vg::disks::create::remove;
use varve_vg::{Change, Disk, Group};
use varve_volume::content::origins::Above;
use varve_volume::content::snapshot_facts::Target;

impl Control {
    /// Takes an unused disk, or all missing ones, out of a group.
    pub async fn reduce_group(
        &self,
        name: &str,
        request: GroupReduce,
    ) -> Result<Changed<ShownGroup>, Failure> {
        let _lock = self.lock_of(name).await?;
        let id = self.find_group(name)?;
        let (change, words) = match (&request.path, request.missing) {
            (Some(path), false) => {
                let path = &self.known_path(path).await;
                let disk = self.member(id, path).map_err(|failure| self.or_missing(id, path, failure))?;
                (Change::RemoveDisk { id: disk }, format!("vg reduce {name} {path}"))
            }
            (None, true) => {
                let with_volumes = request.with_volumes;
                (Change::RemoveMissing { with_volumes }, format!("vg reduce {name} --missing"))
            }
            _ => return Err(Failure::new(Code::Usage, "name either a disk or --missing")),
        };
        let commits = self.commits(id).await;
        let left = if request.missing { self.left_without_origin(id, &commits).await? } else { Vec::new() };
        let planned = commits.plan(id, change, &words).map_err(|failure| with_left(failure, &left))?;
        if request.dry_run {
            let mut plan = shown(&planned);
            plan.steps
                .extend(in_words(&left).map(|words| format!("would leave without their origin: {words}")));
            return Ok(Changed::Planned(plan));
        }
        let before = commits.group(id)?;
        let all = before.logical_volumes().iter().map(|volume| volume.id);
        let gone: Vec<Uuid> = all.filter(|volume| !has(&planned.after, *volume)).collect();
        let after = planned.after.clone();
        commits.commit(id, planned, Vec::new()).await?;
        drop(commits);
        self.converge(id).await; // What lay on them in part may be served still.
        self.forget_flattening(|(pool, _)| gone.contains(&pool)).await;
        self.refresh_labels().await;
        let disks = before.physical_volumes().iter().map(|disk| disk.id);
        let removed: Vec<Uuid> = disks.filter(|disk| after.pv_by_id(*disk).is_none()).collect();
        self.release_removed(id, &removed).await;
        self.attach_origins(id).await; // Volumes whose origin is missing learn why.
        if let Some(words) = in_words(&left) {
            self.warn(name, &format!("their origin is lost for good: {words}"));
        }
        self.show_group(&id.to_string()).await.map(Changed::Done)
    }

    /// Wipes the label of a disk that no group uses.
    pub async fn remove_disk(&self, request: PhysicalVolumeRemove) -> Result<Changed<Empty>, Failure> {
        let _lock = self.lock_host().await?;
        let path = self.find_disk(&request.path).await?;
        self.refuse_member(&path)?;
        let file = self.disks.known.borrow().get(&path).map(|known| Arc::clone(&known.file));
        if request.dry_run {
            let what = if file.is_some() { "wipe the label of" } else { "forget" };
            return Ok(Changed::Planned(Plan::of_steps(vec![format!("would {what} {}", path.display())])));
        }
        if let Some(file) = file {
            let disk = Disk { path: path.display().to_string(), device: self.metadata_disk(&file) };
            let removed = remove(&disk, &self.context.arena()).await;
            removed.map_err(|error| {
                let help = format!("varve pv forget {} leaves what is on it as it is", disk.path);
                self.unless_silent(&file, failures::io(&disk.path, error)).help(help)
            })?;
        }
        self.release_disk(&path);
        self.save_or_warn().await;
        self.event(&request.path, "label wiped");
        Ok(Changed::Done(Empty {}))
    }

    /// Releases a disk that no group uses, whatever is on it, and remembers it no more.
    pub async fn forget_disk(&self, request: PhysicalVolumeRemove) -> Result<Changed<Empty>, Failure> {
        let _lock = self.lock_host().await?;
        let path = self.find_disk(&request.path).await?;
        self.refuse_member(&path)?;
        if request.dry_run {
            return Ok(Changed::Planned(Plan::of_steps(vec![format!("would forget {}", path.display())])));
        }
        self.release_disk(&path);
        self.save_or_warn().await;
        self.event(&request.path, "forgotten");
        Ok(Changed::Done(Empty {}))
    }

    /// Releases what is left of disks that have left `group`: those that are not here, or were out of use, and know it still.
    pub(crate) async fn release_removed(&self, group: Uuid, removed: &[Uuid]) {
        let left: Vec<PathBuf> = {
            let (disks, remembered) = (self.disks.known.borrow(), self.memory.remembered.borrow());
            let is_remembered = |path: &Path| remembered.id_of(path).is_some_and(|id| removed.contains(&id));
            let is_left = |(path, known): &(&PathBuf, &KnownDisk)| {
                let is_out = known.file.state() != DiskState::InUse;
                match known.label {
                    Some(label) => removed.contains(&label.pv) && (label.vg == Some(group) || is_out),
                    None => is_out && is_remembered(path), // One that answers nothing has no label any more.
                }
            };
            let open = disks.iter().filter(is_left).map(|(path, _)| path.clone());
            let unopened = self.disks.unopened.borrow();
            let lost = unopened.keys().filter(|path| is_remembered(path));
            open.chain(lost.cloned()).collect()
        };
        for path in &left {
            self.release_disk(path);
            self.event(&path.display().to_string(), "forgotten: it is no disk of a group any more");
        }
        if !left.is_empty() {
            self.save_or_warn().await;
        }
    }

    fn release_disk(&self, path: &Path) {
        let known = self.disks.known.borrow_mut().remove(path);
        if let Some(label) = known.and_then(|known| known.label) {
            self.disks.departed.borrow_mut().remove(&label.pv);
        }
        self.disks.unopened.borrow_mut().remove(path);
        self.memory.remembered.borrow_mut().remove_disk(path);
    }

    fn refuse_member(&self, path: &Path) -> Result<(), Failure> {
        let Some(group) = self.group_of(path) else { return Ok(()) };
        let message = format!("{} belongs to group {group}", path.display());
        Err(Failure::new(Code::PhysicalVolumeInGroup, message)
            .help(format!("varve vg reduce {group} {}", path.display())))
    }

    /// Why there is no disk at `path` to be taken out of a group: a missing one goes another way.
    fn or_missing(&self, group: Uuid, path: &str, failure: Failure) -> Failure {
        let missing = self.with_group(group, |known| {
            known.missing().iter().any(|missing| missing == path).then(|| known.group.name().to_owned())
        });
        let Ok(Some(name)) = missing else { return failure };
        Failure::new(Code::GroupIncomplete, format!("{path}, a disk of group {name}, is missing")).help(format!(
            "bring it back and varve pv scan {path}; varve vg reduce {name} --missing takes all missing disks out"
        ))
    }

    /// `VG/LV` and `VG/LV@SNAP` of all whose origin goes with the missing disks, though their own pool stays.
    async fn left_without_origin(&self, group: Uuid, commits: &Commits<'_>) -> Result<Vec<String>, Failure> {
        let change = Change::RemoveMissing { with_volumes: true };
        // A change that cannot be made takes no origin away.
        let Ok(planned) = commits.plan(group, change, "vg reduce --missing") else { return Ok(Vec::new()) };
        let mut above = Vec::new();
        for (pool, home) in self.with_group(group, KnownGroup::pools_in_use)? {
            if has(&planned.after, pool) {
                let all = home.pool(pool).all_above().await;
                above.extend(all.map_err(failures::gone)?);
            }
        }
        let name = |above: Above| format!("{}/{}", planned.after.name(), above.name);
        Ok(lost(above, &planned.after).into_iter().map(name).collect())
    }
}

impl KnownGroup {
    /// Volumes that cannot be used because their origin is not there, if there are any.
    pub(crate) fn missing_origins_in_words(&self) -> Option<String> {
        let lacking = self.thin.all().filter(|thin| !thin.is_served);
        let names: Vec<String> = lacking.map(|thin| format!("{}/{}", self.group.name(), thin.name)).collect();
        let first = names.first()?;
        Some(format!("their origin is not there: {}; varve lv show {first}", few(&names)))
    }
}

/// Whether a group has a volume, pool, store or image with this identity.
fn has(group: &Group, id: Uuid) -> bool {
    let mut volumes = group.logical_volumes().iter();
    volumes.any(|volume| volume.id == id || volume.stores().any(|store| store.id == id))
        || group.images().iter().any(|image| image.id == id)
}

/// Those of `above` whose origin `after` does not have, or is one of them.
fn lost(above: Vec<Above>, after: &Group) -> Vec<Above> {
    let (mut lost, mut rest): (Vec<Above>, Vec<Above>) =
        above.into_iter().partition(|one| !has(after, one.origin.backing.id()));
    loop {
        let is_over = |one: &Above| {
            let below = Target::of(one.origin.backing);
            lost.iter().any(|known| Some(Target { store: known.pool, number: known.number }) == below)
        };
        let (more, others): (Vec<Above>, Vec<Above>) = rest.into_iter().partition(is_over);
        if more.is_empty() {
            return lost;
        }
        lost.extend(more);
        rest = others;
    }
}

/// What is left without its origin, and the next command: snapshots go before their volumes.
fn in_words(left: &[String]) -> Option<String> {
    let next = match left.iter().find(|name| name.contains('@')) {
        Some(snapshot) => format!("varve snap remove {snapshot}"),
        None => format!("varve lv remove {}", left.first()?),
    };
    Some(format!("{}; {next}", few(left)))
}

/// LOST1, when nothing is done yet.
fn with_left(failure: Failure, left: &[String]) -> Failure {
    if left.is_empty() {
        return failure;
    }
    let message = format!("{}; without their origin would be {}", failure.message, few(left));
    Failure { message, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_named_as_the_first_to_go() {
        let words =
            |names: &[&str]| in_words(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&[]), None);
        assert_eq!(words(&["a/b"]).as_deref(), Some("a/b; varve lv remove a/b"));
        assert_eq!(words(&["a/b", "a/b@c"]).as_deref(), Some("a/b, a/b@c; varve snap remove a/b@c"));
    }
}
