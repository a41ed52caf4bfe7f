//! Which disk a path leads to: one that is known, a copy of one, or a file that this daemon exports. The text of a path never decides it.
//!
//! Invariants:
//! - IDENTITY1. No disk is on a file that this daemon exports.
//! - IDENTITY2. No byte of a disk that is open here is opened as another disk.
//! - IDENTITY3. A disk with the label of a known one is relabelled only if a nonce written by the path of that one is not found on it; with
//!   the label of one that a group misses, never.

use super::disks::options;
use super::known_disk::KnownDisk;
use crate::Control;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_api::{Cache, Code, Failure};
use varve_block::host::MediumExtent;
use varve_format::Label;
use varve_vg::disks::identity::{label_of, mark};
use varve_volume::world::{DiskRef, is_same_disk};

impl Control {
    /// Where the disk is known to which the path `text` leads; `text` itself if it leads to none.
    pub(crate) async fn known_path(&self, text: &str) -> String {
        let medium = self.medium_at(Path::new(text)).await;
        let disks = self.disks.known.borrow();
        let known = disks.iter().find(|(_, known)| Some(known.file.medium()) == medium);
        known.map_or_else(|| text.to_owned(), |(path, _)| path.display().to_string())
    }

    /// Where the disks are known to which `paths` lead. Those that their own paths lead to no more are known by these from now on.
    pub(crate) async fn follow_disks(&self, paths: &[String], dry_run: bool) -> Vec<PathBuf> {
        let (mut places, mut moved) = (Vec::with_capacity(paths.len()), Vec::new());
        for path in paths {
            let (known, path) = (PathBuf::from(self.known_path(path).await), PathBuf::from(path));
            let medium = self.disks.known.borrow().get(&known).map(|disk| disk.file.medium());
            let is_there = known == path || medium.is_none() || self.medium_at(&known).await == medium;
            if !is_there && !dry_run {
                moved.push((known.clone(), path.clone()));
            }
            places.push(if is_there { known } else { path });
        }
        // All are taken away before one is put anywhere: they may have changed places.
        let taken: Vec<_> = moved
            .into_iter()
            .filter_map(|(old, new)| {
                let disk = self.disks.known.borrow_mut().remove(&old)?;
                Some((old, new, disk))
            })
            .collect();
        for (old, new, disk) in taken {
            let other = self.disks.known.borrow_mut().remove(&new);
            if let Some(other) = other {
                // Its file has gone elsewhere. It is known by its identity until it is found there.
                let id = other.label.map_or_else(|| old.clone(), |label| label.pv.to_string().into());
                self.move_in_group(&other, &new, &id);
                self.remember_disk(&id, other);
            }
            self.move_in_group(&disk, &old, &new);
            self.event(&new.display().to_string(), &format!("it was at {}", old.display()));
            self.remember_disk(&new, disk);
        }
        places
    }

    /// The group of a disk knows it at `new` instead of `old`: what a group uses is not released as a disk of none.
    fn move_in_group(&self, disk: &KnownDisk, old: &Path, new: &Path) {
        let Some(label) = disk.label else { return };
        let mut groups = self.groups.known.borrow_mut();
        let paths = groups.values_mut().filter_map(|known| known.paths.get_mut(&label.pv));
        for path in paths.filter(|path| Path::new(path) == old) {
            *path = new.display().to_string();
        }
    }

    /// Which bytes `path` leads to, if it leads to any. Of a disk that is silent that is not asked.
    async fn medium_at(&self, path: &Path) -> Option<MediumExtent> {
        let is_stalled = self.disks.known.borrow().get(path).is_some_and(KnownDisk::is_stalled);
        let asked = path.to_owned();
        let look = self.at_path(path, move |files| files.medium(&asked));
        if is_stalled { None } else { look.await.ok()?.ok() }
    }

    /// [`Control::known_path`] of each.
    pub(crate) async fn known_paths(&self, texts: &[String]) -> Vec<String> {
        let mut paths = Vec::with_capacity(texts.len());
        for text in texts {
            paths.push(self.known_path(text).await);
        }
        paths
    }

    /// IDENTITY2, before a disk is opened at `path`: the kernel would say only that some process holds it.
    pub(crate) async fn refuse_open(&self, path: &Path) -> Result<(), Failure> {
        match self.medium_at(path).await {
            Some(medium) => self.refuse_overlap(medium, None, path),
            None => Ok(()),
        }
    }

    /// IDENTITY2: refuses these bytes, to which `path` leads, if another disk than `file` is open that has some of them.
    pub(crate) fn refuse_overlap(
        &self,
        medium: MediumExtent,
        file: Option<&DiskRef>,
        path: &Path,
    ) -> Result<(), Failure> {
        let is_own = |open: &DiskRef| file.is_some_and(|file| is_same_disk(open, file));
        let is_other = |open: &DiskRef| open.medium().overlaps(&medium) && !is_own(open);
        let Some(other) = self.disks.limits.open_disks().into_iter().find(is_other) else { return Ok(()) };
        let (path, place) = (path.display(), other.path().display());
        let group = self.group_of(&self.place_of(&other));
        let whose = group.map(|group| format!(" by group {group}")).unwrap_or_default();
        let message = format!("{path} has bytes of the disk {place}, which is in use{whose}");
        Err(Failure::new(Code::DiskInUse, message).help("choose another disk: varve pv list"))
    }

    /// Whether bytes of a disk are known as another one.
    pub(crate) fn is_open(&self, file: &DiskRef) -> bool {
        let overlaps = |known: &KnownDisk| known.file.medium().overlaps(&file.medium());
        self.disks.known.borrow().values().any(overlaps)
    }

    /// Where an open disk is known.
    fn place_of(&self, file: &DiskRef) -> PathBuf {
        let disks = self.disks.known.borrow();
        let known = disks.iter().find(|(_, known)| is_same_disk(&known.file, file));
        known.map_or_else(|| file.path().to_owned(), |(path, _)| path.clone())
    }

    /// IDENTITY3: refuses to relabel the disk `file` that was opened at `path`, and carries `label`, if that would destroy a disk that
    /// is in use, or missed. A clone is opened anew, so that nothing of what was read is cached.
    pub(crate) async fn refuse_held(
        &self,
        (file, cache): (DiskRef, Cache),
        label: &Label,
        path: &Path,
    ) -> Result<DiskRef, Failure> {
        let misses = |id| {
            let groups = self.groups.known.borrow();
            let its = groups.values().find(|known| known.group.pv_by_id(label.pv).is_some())?;
            (!its.paths.contains_key(&id)).then(|| its.group.name().to_owned())
        };
        let Some(twin) = self.twin_of(label) else {
            let Some(group) = misses(label.pv) else { return Ok(file) };
            let path = path.display();
            let message = format!("{path} is a disk of group {group}, which misses it");
            return Err(Failure::new(Code::PhysicalVolumeInGroup, message)
                .help(format!("varve pv scan {path} takes it into use")));
        };
        let (path_text, twin_text) = (path.display(), twin.display());
        let undecided = |why: &str| {
            let message = format!(
                "{path_text} carries the label of {twin_text}, and whether it is a copy is unknown: {why}"
            );
            Failure::new(Code::DuplicateDisk, message).help(format!("varve pv show {twin_text}"))
        };
        let nonce = self.new_id();
        self.mark_disk(&twin, label, nonce).await.map_err(|failure| undecided(&failure))?;
        drop(file);
        let deadline = self.context.clock().now().after(crate::PROBE);
        let open = async || self.open_disk(path, options(cache)).await;
        let file = self.retry_until(deadline, &[Code::DiskInUse], open).await?;
        let found = label_of(&self.metadata_disk(&file), &self.context.arena()).await;
        match found {
            Some(found) if found.nonce == nonce => {
                let group = self.group_of(&twin);
                let whose = group.map(|group| format!(" of group {group}")).unwrap_or_default();
                let message =
                    format!("{path_text} is another path to the disk {twin_text}{whose}, which is in use");
                Err(Failure::new(Code::DiskInUse, message).help(format!("varve pv show {twin_text}")))
            }
            Some(found) if found.pv == label.pv => Ok(file),
            _ => Err(undecided("its label has changed meanwhile")),
        }
    }

    /// The path of the known disk that carries the same label.
    fn twin_of(&self, label: &Label) -> Option<PathBuf> {
        let disks = self.disks.known.borrow();
        let same = |known: &KnownDisk| known.label.is_some_and(|known| known.pv == label.pv);
        disks.iter().find(|(_, known)| same(known)).map(|(path, _)| path.clone())
    }

    /// Writes a nonce into the label of a known disk, while nothing else writes that label.
    async fn mark_disk(&self, path: &Path, label: &Label, nonce: uuid::Uuid) -> Result<(), String> {
        let file = self.disks.known.borrow().get(path).map(|known| Arc::clone(&known.file));
        let file = file.ok_or("it was released meanwhile")?;
        let group = self
            .groups
            .known
            .borrow()
            .iter()
            .find_map(|(id, known)| known.group.pv_by_id(label.pv).map(|_| *id));
        let _commits = match group {
            Some(group) => Some(self.commits(group).await),
            None => None,
        };
        let marked = mark(&self.metadata_disk(&file), nonce, &self.context.arena()).await;
        marked.map_err(|problem| problem.to_string())
    }

    /// Refuses to take a disk into use that carries the label of a known one.
    pub(crate) fn refuse_copy(&self, label: &Label, path: &Path) -> Result<(), Failure> {
        let Some(twin) = self.twin_of(label) else { return Ok(()) };
        let (path, twin) = (path.display(), twin.display());
        let message =
            format!("{path} carries the same label as {twin}, which is in use: one is a clone of the other");
        Err(Failure::new(Code::DuplicateDisk, message).help(format!(
            "detach the clone; varve pv create --dry-run --yes {path} says what a label of its own destroys"
        )))
    }

    /// Refuses a file that this daemon exports (IDENTITY1).
    pub(crate) async fn refuse_own_export(&self, path: &Path) -> Result<(), Failure> {
        let own: Vec<PathBuf> = {
            let exports = self.exports.known.borrow();
            exports.values().filter_map(|export| export.address.as_ref()?.path.clone()).collect()
        };
        if own.is_empty() {
            return Ok(());
        }
        let asked = path.to_owned();
        let found = self.at_path(path, move |files| files.own_export_below(&asked, &own)).await?;
        let Some(file) = found else { return Ok(()) };
        let (path, file) = (path.display(), file.display());
        let message = format!("{path} lies on {file}, which this daemon exports: it would be its own disk");
        Err(Failure::new(Code::DiskIsOwnExport, message)
            .help("use a disk that this daemon does not serve, or another daemon for the inner group"))
    }
}
