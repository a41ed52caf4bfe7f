//! Disks: labelled, listed, taken into use, removed.
//!
//! Invariants:
//! - DISKS1. No disk is written before it is locked and was looked at.
//! - DISKS2. A disk whose label another known disk carries is not taken into use (IDENTITY3 of `identity.rs`).

use super::known_disk::KnownDisk;
use super::stalled::STALLED;
use crate::failures;
use crate::injected_bug::{InjectedBug, has};
use crate::status::figures::DiskFigures;
use crate::{Control, PROBE};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{
    Cache, Changed, Code, Failure, PhysicalVolume, PhysicalVolumeCreate, PhysicalVolumeState, Plan,
};
use varve_block::host::{CacheMode, DiskOptions};
use varve_block::{Moment, UnixTime, align_down};
use varve_format::{BLOCK_SIZE, Label};
use varve_vg::Disk;
use varve_vg::FreeDisk;
use varve_vg::disks::create::{DATA_OFFSET, NewLabel, create, examine, signature};
use varve_vg::disks::identity::{holdings, label_now, label_of};
use varve_vg::plan::NewDisk;
use varve_vg::size::{format_size, parse_size};
use varve_volume::world::DiskRef;

/// A disk that may become a physical volume of a group.
pub(crate) struct Candidate {
    path: PathBuf,
    file: DiskRef,
    cache: Cache,
    /// Its label, if it is a physical volume of no group already.
    label: Option<Label>,
    /// Whether the file was made for this.
    made: bool,
    /// What a new label destroys.
    destroys: Option<String>,
}

impl Candidate {
    /// A step of a plan, if a new label destroys something.
    pub(crate) fn loss(&self) -> Option<String> {
        let path = self.path.display();
        self.destroys.as_ref().map(|what| format!("would destroy what is on {path}: {what}"))
    }

    /// The disk, for a plan; with the identity `new_id` if it has none yet.
    pub(crate) fn as_new_disk(&self, new_id: Uuid) -> NewDisk {
        let path = self.path.display().to_string();
        match self.label {
            Some(Label { pv: id, size, data_offset, .. }) => NewDisk { id, size, data_offset, path },
            None => {
                let size = align_down(self.file.shape().size, BLOCK_SIZE);
                NewDisk { id: new_id, size, data_offset: DATA_OFFSET, path }
            }
        }
    }
}

/// How candidates are looked for.
#[derive(Clone, Copy)]
pub(crate) struct Search {
    pub(crate) cache: Option<Cache>,
    pub(crate) overwrite: bool,
    /// Makes sparse files of this size.
    pub(crate) size: Option<u64>,
    /// Whether disks that are labelled already will do.
    pub(crate) labelled: bool,
}

impl Control {
    /// All disks that are known, and those that groups miss.
    pub fn list_disks(&self) -> Vec<PhysicalVolume> {
        let mut shown: Vec<PhysicalVolume> = Vec::new();
        for known in self.groups.known.borrow().values() {
            shown.extend(self.disks_of(known));
        }
        for (path, known) in &*self.disks.known.borrow() {
            let path = path.display().to_string();
            if !shown.iter().any(|disk| disk.path.as_ref() == Some(&path)) {
                shown.push(unassigned(path, known, self.is_refused(known)));
            }
        }
        for (path, failure) in &*self.disks.unopened.borrow() {
            let id = self.memory.remembered.borrow().id_of(path).map(|id| id.to_string());
            let path = path.display().to_string();
            let is_it = |disk: &&mut PhysicalVolume| {
                disk.path.as_ref() == Some(&path) || Some(&disk.id) == id.as_ref()
            };
            match shown.iter_mut().find(is_it) {
                Some(disk) if disk.group.is_some() => {} // Its group knows why.
                Some(disk) => disk.reason = Some(failure.message.clone()),
                None => shown.push(self.lost(path, failure)),
            }
        }
        shown.sort_by(|one, other| one.path.cmp(&other.path));
        shown
    }

    /// All disks, with what was counted of them.
    pub(crate) fn disk_figures(&self) -> Vec<DiskFigures> {
        let disks = self.list_disks();
        let known = self.disks.known.borrow();
        let counters =
            |disk: &PhysicalVolume| Some(known.get(Path::new(disk.path.as_ref()?))?.file.counters());
        let figures = |disk| DiskFigures { counters: counters(&disk).unwrap_or_default(), disk };
        disks.into_iter().map(figures).collect()
    }

    /// A disk that is remembered and cannot be opened.
    fn lost(&self, path: String, failure: &Failure) -> PhysicalVolume {
        let id = self.memory.remembered.borrow().id_of(Path::new(&path)).map(|id| id.to_string());
        PhysicalVolume {
            path: Some(path),
            id: id.unwrap_or_default(),
            group: None,
            name: None,
            sector_logical: None,
            sector_physical: None,
            spare: false,
            state: PhysicalVolumeState::Missing,
            reason: Some(failure.message.clone()),
            size: 0,
            free: 0,
            grown_to: None,
            cache: Cache::Direct,
            errors: 0,
            slow: 0,
            ejections: 0,
        }
    }

    /// Whether the group of a disk was found and cannot be used.
    fn is_refused(&self, known: &KnownDisk) -> bool {
        let group = known.label.and_then(|label| label.vg);
        group.is_some_and(|group| self.groups.refused.borrow().iter().any(|refused| refused.id == group))
    }

    /// Labels disks.
    pub async fn create_disks(
        &self,
        request: PhysicalVolumeCreate,
    ) -> Result<Changed<Vec<PhysicalVolume>>, Failure> {
        let _lock = self.lock_host().await?;
        let size = request
            .size
            .as_deref()
            .map(parse_size)
            .transpose()
            .map_err(|error| failures::bad_size(&error))?;
        if size.is_some_and(|size| size <= DATA_OFFSET) {
            let message = "too small: a physical volume needs more than 1 MiB";
            return Err(Failure::new(Code::DiskTooSmall, message).help("give a larger --size"));
        }
        if let Some(size) = size {
            let plan = self.plan_files(&request.paths, size).await?;
            if request.dry_run {
                return Ok(Changed::Planned(plan));
            }
        }
        let search = Search { cache: request.cache, overwrite: request.overwrite, size, labelled: false };
        let _claims = self.claim_all(&request.paths)?;
        let candidates = self.candidates(&request.paths, search).await?;
        if request.dry_run {
            let step = |candidate: &Candidate| {
                let (path, size) = (candidate.path.display(), format_size(candidate.file.size()));
                format!("would label {path} ({size}) as a physical volume")
            };
            let steps = candidates.iter().flat_map(|candidate| [Some(step(candidate)), candidate.loss()]);
            return Ok(Changed::Planned(Plan::of_steps(steps.flatten().collect())));
        }
        let paths: Vec<String> = request.paths.clone();
        self.label(candidates, request.overwrite).await?;
        let listed = self.list_disks();
        let made =
            listed.into_iter().filter(|disk| disk.path.as_ref().is_some_and(|path| paths.contains(path)));
        Ok(Changed::Done(made.collect()))
    }

    /// Opens the disks at `paths` and looks whether they may become physical volumes; writes nothing but new files,
    /// and those only if every path will do.
    pub(crate) async fn candidates(
        &self,
        paths: &[String],
        search: Search,
    ) -> Result<Vec<Candidate>, Failure> {
        let mut candidates = Vec::with_capacity(paths.len());
        for path in paths {
            match self.candidate(Path::new(path), search).await {
                Ok(candidate) => candidates.push(candidate),
                Err(failure) => {
                    for made in candidates.iter().filter(|candidate: &&Candidate| candidate.made) {
                        self.remove_file(&made.path).await;
                    }
                    return Err(failure);
                }
            }
        }
        Ok(candidates)
    }

    async fn candidate(&self, path: &Path, search: Search) -> Result<Candidate, Failure> {
        let text = path.display().to_string();
        let known = PathBuf::from(self.known_path(&text).await);
        if let Some(candidate) = self.known_candidate(&known, &text, search)? {
            return Ok(candidate);
        }
        let cache = search.cache.unwrap_or(self.cache);
        self.refuse_own_export(path).await?;
        self.refuse_open(path).await?;
        let options = DiskOptions { create_size: search.size, ..options(cache) };
        let file = self.open_disk(path, options).await.map_err(|failure| create_hint(failure, path))?;
        let made = search.size.is_some();
        let label = label_of(&self.metadata_disk(&file), &self.context.arena()).await;
        self.refuse_overlap(file.medium(), Some(&file), path)?;
        let path = path.to_owned();
        if let Some(label) = label.filter(|label| search.labelled && label.vg.is_none() && !search.overwrite)
        {
            self.refuse_copy(&label, &path)?;
            return Ok(Candidate { path, file, cache, label: Some(label), made, destroys: None });
        }
        let file = match &label {
            Some(label) => self.refuse_held((file, cache), label, &path).await?,
            None => file,
        };
        // The disk is locked by now, and is looked at before it is written (DISKS1).
        let (device, arena) = (self.metadata_disk(&file), self.context.arena());
        let examined = examine(&device, search.overwrite, &arena).await;
        let holdings = match &label {
            Some(label) => holdings(&device, label, &arena).await,
            None => None,
        };
        if let Err(problem) = examined {
            if made {
                self.remove_file(&path).await;
            }
            let failure = failures::create(&text, &problem, holdings.as_ref());
            return Err(self.unless_silent(&file, failure));
        }
        let destroys = match (holdings, label) {
            (Some(holdings), _) => Some(holdings.to_string()),
            (None, Some(label)) => Some(format!("the physical volume {}", label.pv)),
            (None, None) if search.overwrite => {
                signature(&device, &arena).await.ok().flatten().map(|found| found.name.to_owned())
            }
            (None, None) => None,
        };
        Ok(Candidate { path, file, cache, label: None, made, destroys })
    }

    /// A disk that is known already, if it may become part of a group; `named` is the path by which it was named.
    fn known_candidate(
        &self,
        path: &Path,
        named: &str,
        search: Search,
    ) -> Result<Option<Candidate>, Failure> {
        let text = path.display();
        let what = match text.to_string() == named {
            true => named.to_owned(),
            false => format!("{named}, another path to {text},"),
        };
        let is_shared = has(InjectedBug::ShareDisk);
        if let Some(group) = self.group_of(path).filter(|_| !is_shared) {
            let message = format!("{what} is a physical volume of group {group}");
            return Err(Failure::new(Code::PhysicalVolumeInGroup, message)
                .help(format!("varve vg reduce {group} {text}")));
        }
        let disks = self.disks.known.borrow();
        let Some(known) = disks.get(path) else { return Ok(None) };
        let label = known.label.filter(|label| search.labelled && (label.vg.is_none() || is_shared));
        match label {
            Some(_) => {
                let (file, path) = (Arc::clone(&known.file), path.to_owned());
                let cache = known.cache;
                Ok(Some(Candidate { path, file, cache, label, made: false, destroys: None }))
            }
            None if known.problem.is_some() => {
                let reason = known.problem.as_ref().map_or("", |(_, reason)| reason.as_str());
                Err(Failure::new(Code::LabelDamaged, reason).help(format!(
                    "varve pv scan {text} when it is mended; varve pv remove {text} gives it up"
                )))
            }
            None => Err(Failure::new(Code::IsPhysicalVolume, format!("{what} is a physical volume already"))
                .help(format!("varve pv remove {text}"))),
        }
    }

    /// Labels the candidates that have none yet, and knows them from now on.
    pub(crate) async fn label(
        &self,
        candidates: Vec<Candidate>,
        overwrite: bool,
    ) -> Result<Vec<FreeDisk>, Failure> {
        let arena = self.context.arena();
        let mut free = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let path = candidate.path.display().to_string();
            let disk = Disk { path: path.clone(), device: self.metadata_disk(&candidate.file) };
            let labelled = match candidate.label {
                Some(label) => FreeDisk { disk, label },
                None => {
                    let new = NewLabel { id: self.new_id(), created: UnixTime(self.now()), overwrite };
                    let made = create(disk, new, &arena).await;
                    self.event(&path, "labelled as a physical volume");
                    let failed = |problem| {
                        self.unless_silent(&candidate.file, failures::create(&path, &problem, None))
                    };
                    made.map_err(failed)?
                }
            };
            let Candidate { file, cache, path, .. } = candidate;
            self.remember_disk(&path, KnownDisk::new(file, cache, Some(labelled.label)));
            free.push(labelled);
        }
        self.save_or_warn().await;
        Ok(free)
    }

    /// Opens and locks a disk.
    pub(crate) async fn open_disk(&self, path: &Path, options: DiskOptions) -> Result<DiskRef, Failure> {
        let place = path.to_owned();
        let opened = self.at_path(path, move |files| files.open(&place, options)).await?;
        opened.map_err(|error| failures::open(&error))
    }

    async fn remove_file(&self, path: &Path) {
        let place = path.to_owned();
        let _ = self.at_path(path, move |files| files.remove(&place)).await;
    }

    /// What would be made, for `--size`.
    async fn plan_files(&self, paths: &[String], size: u64) -> Result<Plan, Failure> {
        for path in paths {
            let place = PathBuf::from(path);
            if self.at_path(Path::new(path), move |files| files.exists(&place)).await? {
                let message = format!("{path}: the file exists already");
                return Err(
                    Failure::new(Code::DiskExists, message).help("leave --size out to use the file as it is")
                );
            }
        }
        let step = |path: &String| {
            format!("would make the sparse file {path} of {} and label it", format_size(size))
        };
        Ok(Plan::of_steps(paths.iter().map(step).collect()))
    }

    /// Opens the disks that are remembered.
    pub(crate) async fn open_remembered(&self, deadline: Moment) {
        let remembered = self.memory.remembered.borrow().disks.clone();
        for disk in remembered {
            let open = async || self.open_disk(&disk.path, options(disk.cache)).await;
            match self.retry_until(deadline, &[Code::DiskInUse], open).await {
                Ok(file) if self.is_open(&file) => {
                    tracing::warn!(path = %disk.path.display(), "two paths that are remembered lead to one disk");
                    self.memory.remembered.borrow_mut().remove_disk(&disk.path);
                }
                Ok(file) => {
                    // A disk that does not answer is known without a label, and left out of the scan.
                    let device = self.context.disk(&file);
                    let arena = self.context.arena();
                    let label = label_of(&device, &arena);
                    let deadline = self.context.clock().now().after(PROBE * 5);
                    let label = self.until(deadline, label).await.flatten();
                    let known = KnownDisk::new(file, disk.cache, label);
                    self.disks.known.borrow_mut().insert(disk.path, known);
                }
                Err(failure) => {
                    let path = disk.path.display().to_string();
                    tracing::warn!(path, %failure, "a disk that is remembered cannot be opened");
                    self.event(&path, &failure.message);
                    self.disks.unopened.borrow_mut().insert(disk.path, failure);
                }
            }
        }
    }

    /// Knows a disk from now on, also after a restart.
    pub(crate) fn remember_disk(&self, path: &Path, known: KnownDisk) {
        let id = known.label.map(|label| label.pv);
        let is_used = |path: &Path| self.disks.known.borrow().contains_key(path);
        let left = self.memory.remembered.borrow_mut().add_disk(path, (known.cache, id), is_used);
        let mut unopened = self.disks.unopened.borrow_mut();
        unopened.remove(path);
        left.iter().for_each(|old| {
            unopened.remove(old);
        });
        if let Some(id) = id {
            self.disks.departed.borrow_mut().remove(&id);
        }
        self.disks.known.borrow_mut().insert(path.to_owned(), known);
    }

    /// Reads all labels again, after a change that wrote some.
    pub(crate) async fn refresh_labels(&self) {
        let files: Vec<(PathBuf, DiskRef)> = {
            let disks = self.disks.known.borrow();
            disks.iter().map(|(path, known)| (path.clone(), Arc::clone(&known.file))).collect()
        };
        for (path, file) in files {
            let label = label_now(&self.metadata_disk(&file), &self.context.arena()).await;
            let Some(label) = label.ok().filter(|_| !self.disks.limits.is_overdue(&file)) else {
                continue; // IDENTITY3: it has the label that it had, for all that is known.
            };
            if let Some(known) = self.disks.known.borrow_mut().get_mut(&path) {
                known.label = label;
            }
        }
    }

    /// The path of the disk with this path or identity.
    pub(crate) async fn find_disk(&self, text: &str) -> Result<PathBuf, Failure> {
        let path = PathBuf::from(self.known_path(text).await);
        let disks = self.disks.known.borrow();
        if disks.contains_key(&path) || self.disks.unopened.borrow().contains_key(&path) {
            return Ok(path);
        }
        let id = path.file_name().and_then(|name| Uuid::parse_str(&name.to_string_lossy()).ok());
        let has_id = |known: &KnownDisk| known.label.is_some_and(|label| Some(label.pv) == id);
        let found = disks.iter().find(|(_, known)| has_id(known)).map(|(path, _)| path.clone());
        found.ok_or_else(|| {
            Failure::new(Code::PhysicalVolumeNotFound, format!("the daemon knows no disk {text}"))
                .help("varve pv list")
        })
    }
}

/// How a disk is opened for use.
pub(crate) fn options(cache: Cache) -> DiskOptions {
    let cache = match cache {
        Cache::Direct => CacheMode::Direct,
        Cache::Buffered => CacheMode::Buffered,
    };
    DiskOptions { cache, ..DiskOptions::default() }
}

fn create_hint(failure: Failure, path: &Path) -> Failure {
    match failure.code {
        Code::DiskNotFound => failure
            .help(format!("to make a sparse file there: varve pv create {} --size SIZE", path.display())),
        _ => failure,
    }
}

/// A disk that no group relies on; `refused` says that its group cannot be used at all.
fn unassigned(path: String, known: &KnownDisk, refused: bool) -> PhysicalVolume {
    let size = known.label.map_or(known.file.size(), |label| label.size.saturating_sub(label.data_offset));
    let failed = crate::host::known_disk::why_failed(known.file.state());
    let unlinked = known.why_unlinked();
    let (state, reason) = match (&known.problem, known.label) {
        _ if failed.is_some() => (PhysicalVolumeState::Failed, failed),
        (Some((state, reason)), _) => (*state, Some(reason.clone())),
        (None, _) if known.is_stalled() => (PhysicalVolumeState::Stalled, Some(STALLED.to_owned())),
        (None, Some(_)) if unlinked.is_some() => (PhysicalVolumeState::Unlinked, unlinked),
        (None, Some(Label { vg: None, .. })) => (PhysicalVolumeState::Unused, None),
        (None, Some(_)) if refused => {
            (PhysicalVolumeState::Stale, Some("its group cannot be used: varve vg list".to_owned()))
        }
        (None, Some(_)) => (PhysicalVolumeState::Stale, Some("its group does not count on it".to_owned())),
        (None, None) => (PhysicalVolumeState::Damaged, Some("it has no valid label".to_owned())),
    };
    let counted = known.file.counters();
    PhysicalVolume {
        path: Some(path),
        id: known.label.map_or_else(String::new, |label| label.pv.to_string()),
        group: None,
        name: None,
        sector_logical: Some(known.file.sectors().0),
        sector_physical: Some(known.file.sectors().1),
        spare: false,
        state,
        reason,
        size,
        free: if state == PhysicalVolumeState::Unused { size } else { 0 },
        grown_to: None,
        cache: known.cache,
        errors: counted.errors,
        slow: counted.slow,
        ejections: 0,
    }
}
