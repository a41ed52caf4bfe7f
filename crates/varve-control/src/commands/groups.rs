//! Groups: made, listed, changed, saved and restored.

use crate::Control;
use crate::failures;
use crate::group::change::shown;
use crate::group::known_group::KnownGroup;
use crate::host::disks::{Candidate, Search};
use crate::host::known_disk::KnownDisk;
use crate::host::stalled::STALLED;
use crate::trash::verbs::shown_trash;
use std::path::Path;
use uuid::Uuid;
use varve_api::{
    Backup, Changed, Code, Empty, Failure, Group as ShownGroup, GroupCreate, GroupExtend, GroupState,
    History, HistoryEntry, PhysicalVolume, PhysicalVolumeState, Plan, Remove, Rename,
};
use varve_format::text::EXTENT_SIZE_DEFAULT;
use varve_vg::model::{Metadata, PhysicalVolume as Entry, PvName};
use varve_vg::names::parse_group;
use varve_vg::size::parse_size;
use varve_vg::{Change, OpenGroup, RefusedGroup, Version, plan_group};
use varve_volume::fault;

/// Why a group is not changed after a commit that failed half way.
const UNDECIDED: &str = "a change reached only some of its disks; varve pv scan finds out whether it counts";

impl Control {
    /// All groups.
    pub fn list_groups(&self) -> Vec<ShownGroup> {
        let groups = self.groups.known.borrow();
        let mut shown: Vec<ShownGroup> = groups.values().map(|known| self.shown_group(known)).collect();
        let refused = self.groups.refused.borrow();
        shown.extend(refused.iter().filter(|refused| !groups.contains_key(&refused.id)).map(shown_refused));
        shown.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        shown
    }

    /// One group.
    pub async fn show_group(&self, name: &str) -> Result<ShownGroup, Failure> {
        let id = self.find_group(name)?;
        let mut shown = self.with_group(id, |known| self.shown_group(known))?;
        self.add_memory(&mut shown).await;
        Ok(shown)
    }

    /// Makes a group.
    pub async fn create_group(&self, request: GroupCreate) -> Result<Changed<ShownGroup>, Failure> {
        let _lock = self.lock_host().await?;
        let name = parse_group(&request.name).map_err(|error| failures::bad_name(&error))?;
        let _name = self.locks.claim(&format!("the name {name}"))?;
        if self.groups.known.borrow().values().any(|known| known.group.name() == name) {
            return Err(Failure::new(Code::GroupExists, format!("there is a group {name} already"))
                .help("choose another name, or varve vg rename"));
        }
        let extent_size = match &request.extent_size {
            Some(text) => extent_size(text)?,
            None => EXTENT_SIZE_DEFAULT,
        };
        let metadata = crate::group::quotas::declared(Metadata::default(), &request.metadata)?;
        let search = search(request.cache, request.overwrite);
        let _claims = self.claim_all(&request.paths)?;
        let candidates = self.candidates(&request.paths, search).await?;
        let words = format!("vg create {name}");
        let new_disks: Vec<_> =
            candidates.iter().map(|candidate| candidate.as_new_disk(self.new_id())).collect();
        let id = self.new_id();
        let planned = plan_group(&name, id, extent_size, &new_disks, &self.stamp(&words));
        let planned = planned.and_then(|planned| planned.with_metadata(metadata));
        let planned = planned.map_err(|error| failures::plan(&error))?;
        if request.dry_run {
            return Ok(Changed::Planned(with_losses(shown(&planned), &candidates)));
        }
        let _commits = self.commits(id).await;
        let free = self.label(candidates, request.overwrite).await?;
        let new_disks: Vec<_> = free.iter().map(varve_vg::FreeDisk::as_new_disk).collect();
        let planned = plan_group(&name, id, extent_size, &new_disks, &self.stamp(&words));
        let planned = planned.and_then(|planned| planned.with_metadata(metadata));
        let planned = planned.map_err(|error| failures::plan(&error))?;
        let open = OpenGroup::create(planned, free, self.context.arena()).await;
        let open = open.map_err(|error| self.commit_failure(&error))?;
        self.groups.known.borrow_mut().insert(id, KnownGroup::new(open, None));
        self.archive_soon(id);
        self.refresh_labels().await;
        self.event(&name, &words);
        self.show_group(&id.to_string()).await.map(Changed::Done)
    }

    /// Adds disks to a group.
    pub async fn extend_group(
        &self,
        name: &str,
        request: GroupExtend,
    ) -> Result<Changed<ShownGroup>, Failure> {
        let _lock = self.lock_of(name).await?;
        let id = self.find_group(name)?;
        let stale = self.stale_among(id, &self.known_paths(&request.paths).await)?;
        if !stale.is_empty() {
            return self.take_stale_back(id, stale, &request).await;
        }
        let _claims = self.claim_all(&request.paths)?;
        let candidates = self.candidates(&request.paths, search(request.cache, request.overwrite)).await?;
        let words = format!("vg extend {name} {}", request.paths.join(" "));
        let disks = candidates.iter().map(|candidate| candidate.as_new_disk(self.new_id())).collect();
        let commits = self.commits(id).await;
        let planned = commits.plan(id, Change::AddDisks { disks }, &words)?;
        if request.dry_run {
            return Ok(Changed::Planned(with_losses(shown(&planned), &candidates)));
        }
        let free = self.label(candidates, request.overwrite).await?;
        let disks = free.iter().map(varve_vg::FreeDisk::as_new_disk).collect();
        let planned = commits.plan(id, Change::AddDisks { disks }, &words)?;
        commits.commit(id, planned, free).await?;
        self.refresh_labels().await;
        self.show_group(&id.to_string()).await.map(Changed::Done)
    }

    /// Gives a group another name.
    pub async fn rename_group(&self, name: &str, request: Rename) -> Result<Changed<ShownGroup>, Failure> {
        let _lock = self.lock_of(name).await?;
        let id = self.find_group(name)?;
        let to = parse_group(&request.to).map_err(|error| failures::bad_name(&error))?;
        let _name = self.locks.claim(&format!("the name {to}"))?;
        if self.groups.known.borrow().values().any(|known| known.group.name() == to) {
            return Err(Failure::new(Code::GroupExists, format!("there is a group {to} already"))
                .help("choose another name"));
        }
        let volumes: Vec<Uuid> =
            self.with_group(id, |known| known.volumes().into_iter().map(|(volume, _)| volume).collect())?;
        self.refuse_clients(|export| volumes.contains(&export.remembered.volume), request.force).await?;
        let commits = self.commits(id).await;
        let old = commits.group(id)?.name().to_owned();
        let planned =
            commits.plan(id, Change::RenameGroup { to: to.clone() }, &format!("vg rename {old} {to}"))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        commits.commit(id, planned, Vec::new()).await?;
        drop(commits);
        self.converge(id).await;
        self.show_group(&id.to_string()).await.map(Changed::Done)
    }

    /// Removes an empty group.
    pub async fn remove_group(&self, name: &str, request: Remove) -> Result<Changed<Empty>, Failure> {
        let _lock = self.lock_of(name).await?;
        let id = self.find_group(name)?;
        let _commits = self.commits(id).await;
        let (volumes, pools) = self.with_group(id, |known| {
            let pools = known.group.logical_volumes().iter().filter(|volume| volume.is_pool());
            (names_of_volumes(known), pools.map(|pool| format!("{name}/{}", pool.name)).collect::<Vec<_>>())
        })?;
        if !volumes.is_empty() {
            let message = format!("group {name} is not empty: it holds {}", few(&volumes));
            let help = match volumes.iter().find(|volume| !pools.contains(volume)) {
                Some(volume) => format!("varve lv remove {volume}"),
                None => format!("varve pool remove {}", volumes[0]),
            };
            return Err(Failure::new(Code::GroupNotEmpty, message).help(help));
        }
        if request.dry_run {
            let trash = self.with_group(id, |known| shown_trash(known).count)?;
            let trash =
                if trash > 0 { format!(" with what is in its trash ({trash})") } else { String::new() };
            let step = format!("would give up group {name}{trash}; its disks stay labelled");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let missing = self.with_group(id, |known| !known.missing().is_empty())?;
        let open = self.groups.known.borrow_mut().get_mut(&id).and_then(|known| known.open.take());
        match open {
            Some(open) if open.is_reconciled() && !missing => {
                let dissolved = open.dissolve().await;
                self.groups.known.borrow_mut().remove(&id);
                self.refresh_labels().await;
                dissolved.map_err(|error| self.commit_failure(&error))?;
                self.memory.archive.note_removal(id);
            }
            other => {
                if let Some(open) = other {
                    self.put_open(id, open);
                }
                return Err(Failure::new(
                    Code::GroupIncomplete,
                    format!("disks of group {name} are missing"),
                )
                .help(format!("varve vg reduce {name} --missing")));
            }
        }
        self.event(name, "group given up");
        Ok(Changed::Done(Empty {}))
    }

    /// The group's description as text.
    pub fn backup_group(&self, name: &str) -> Result<Backup, Failure> {
        fault::panic_at(name, "backup");
        let id = self.find_group(name)?;
        self.with_group(id, |known| Backup {
            group: known.group.name().to_owned(),
            sequence: known.group.entry().sequence,
            text: known.group.text(),
        })
    }

    /// The changes that the group's disks remember, the newest first.
    pub async fn group_history(&self, name: &str) -> Result<History, Failure> {
        let id = self.find_group(name)?;
        let entries = self.versions(id).await?.into_iter().rev().map(|version| HistoryEntry {
            sequence: version.sequence,
            time: version.date.0,
            change: version.change,
        });
        let group = self.with_group(id, |known| known.group.name().to_owned())?;
        Ok(History { group, entries: entries.collect() })
    }

    /// The descriptions that the group's disks remember, the oldest first.
    pub(crate) async fn versions(&self, id: Uuid) -> Result<Vec<Version>, Failure> {
        let _commits = self.commits(id).await;
        let open = self.groups.known.borrow_mut().get_mut(&id).and_then(|known| known.open.take());
        let open = open.ok_or_else(|| {
            Failure::new(Code::GroupIncomplete, "the group's disks cannot be read now")
                .help("varve pv list, then varve pv scan")
        })?;
        let versions = open.history().await;
        self.put_open(id, open);
        Ok(versions)
    }

    /// Puts an open group back, and learns what it says.
    pub(crate) fn put_open(&self, group: Uuid, open: OpenGroup) {
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.learn(open);
        }
        self.archive_soon(group);
    }

    /// The name of the group that relies on the disk at `path`.
    pub(crate) fn group_of(&self, path: &Path) -> Option<String> {
        let text = path.display().to_string();
        let groups = self.groups.known.borrow();
        let owner = groups.values().find(|known| known.paths.values().any(|known| *known == text));
        owner.map(|known| known.group.name().to_owned())
    }

    /// The identity of the group's disk with this path or identity.
    pub(crate) fn member(&self, group: Uuid, text: &str) -> Result<Uuid, Failure> {
        let last = Path::new(text).file_name().unwrap_or_default().to_string_lossy();
        let (id, name) = (Uuid::parse_str(&last).ok(), last.parse().ok());
        self.with_group(group, |known| {
            let by_path = known.disk_at(text);
            let by_id = id.filter(|id| known.group.pv_by_id(*id).is_some());
            let by_name = name.and_then(|name| known.group.pv(name)).map(|disk| disk.id);
            by_path.or(by_id).or(by_name).ok_or_else(|| {
                let name = known.group.name();
                Failure::new(Code::NotInGroup, format!("{text} is no disk of group {name}"))
                    .help(format!("varve vg show {name}"))
            })
        })?
    }

    /// The disks of a group, as they are shown.
    pub(crate) fn disks_of(&self, known: &KnownGroup) -> Vec<PhysicalVolume> {
        let free = known.group.free_areas();
        let shown = |disk: &varve_vg::model::PhysicalVolume| {
            let path = known.paths.get(&disk.id);
            let disks = self.disks.known.borrow();
            let open = path.and_then(|path| disks.get(Path::new(path)));
            let file = open.map(|known| {
                let (stalled, sectors) = (known.is_stalled(), known.file.sectors());
                (known.cache, known.file.state(), stalled, known.file.counters(), sectors)
            });
            let unlinked = open.and_then(KnownDisk::why_unlinked);
            let stale = known.stale.iter().any(|path| self.label_id(path) == Some(disk.id));
            let failed = file.and_then(|(_, state, ..)| crate::host::known_disk::why_failed(state));
            let (state, reason) = match (path, stale) {
                (Some(_), _) if failed.is_some() => (PhysicalVolumeState::Failed, failed),
                (Some(_), _) if file.is_some_and(|(_, _, is_stalled, ..)| is_stalled) => {
                    (PhysicalVolumeState::Stalled, Some(STALLED.to_owned()))
                }
                (Some(_), _) if !disk.missing && unlinked.is_some() => {
                    (PhysicalVolumeState::Unlinked, unlinked)
                }
                (Some(_), _) if !disk.missing => (PhysicalVolumeState::Ok, None),
                (_, true) => {
                    let reason = "it holds an old description of the group, and is not used".to_owned();
                    (PhysicalVolumeState::Stale, Some(reason))
                }
                _ => (PhysicalVolumeState::Missing, Some(self.why_missing(known, disk))),
            };
            let counted = file.map(|(.., counted, _)| counted).unwrap_or_default();
            let label = open.and_then(|known| known.label);
            let grown_to = path
                .zip(label)
                .and_then(|(path, label)| self.watch.grown_beyond(Path::new(path), label.size));
            let own = free.iter().filter(|area| area.pv == disk.name).map(|area| area.count).sum();
            PhysicalVolume {
                path: known.seen_at(disk.id).map(str::to_owned),
                id: disk.id.to_string(),
                group: Some(known.group.name().to_owned()),
                name: Some(disk.name.to_string()),
                sector_logical: file.map(|(.., sectors)| sectors.0),
                sector_physical: file.map(|(.., sectors)| sectors.1),
                spare: disk.spare,
                state,
                reason,
                size: known.group.bytes(disk.extents),
                free: known.group.bytes(own),
                grown_to,
                cache: file.map_or(self.cache, |(cache, ..)| cache),
                errors: counted.errors,
                slow: counted.slow,
                ejections: self.arrays.ejections.borrow().get(&disk.id).copied().unwrap_or(0),
            }
        };
        known.group.physical_volumes().iter().map(shown).collect()
    }

    /// An array of `volume` goes on without what it has on `disks`.
    pub(crate) fn note_ejection(&self, volume: Uuid, disks: &[PvName]) {
        let Ok((group, _)) = self.entry_of(volume) else { return };
        let ids = self.with_group(group, |known| {
            let named = |pv: &&Entry| disks.contains(&pv.name);
            known.group.physical_volumes().iter().filter(named).map(|pv| pv.id).collect::<Vec<Uuid>>()
        });
        for id in ids.unwrap_or_default() {
            *self.arrays.ejections.borrow_mut().entry(id).or_default() += 1;
            self.disks.lost.note_ejection(id);
        }
    }

    /// Why a disk of a group is not used, and what to do if nothing is there.
    fn why_missing(&self, known: &KnownGroup, disk: &Entry) -> String {
        let reason = match known.seen_at(disk.id) {
            Some(path) => self.why_not_at(path),
            None => format!("last seen at {}, where another disk is now", disk.path),
        };
        let is_empty =
            known.group.volumes_on(disk.name).is_empty() && known.group.move_from(disk.name).is_none();
        let group = known.group.name();
        let help = format!("; nothing lies there: varve vg reduce {group} --missing takes it out");
        if is_empty { reason + &help } else { reason }
    }

    /// Why the disk that was last seen at `path` is not used.
    fn why_not_at(&self, path: &str) -> String {
        let disks = self.disks.known.borrow();
        let problem = disks.get(Path::new(path)).and_then(|known| known.problem.as_ref());
        let unopened = self.disks.unopened.borrow();
        let reason = problem.map(|(_, reason)| reason.clone());
        let reason = reason.or_else(|| unopened.get(Path::new(path)).map(|failure| failure.message.clone()));
        reason.unwrap_or_else(|| format!("last seen at {path}"))
    }

    /// What the label of the known disk at `path` says.
    pub(crate) fn label_id(&self, path: &str) -> Option<Uuid> {
        self.disks.known.borrow().get(Path::new(path))?.label.map(|label| label.pv)
    }

    fn shown_group(&self, known: &KnownGroup) -> ShownGroup {
        let usage = known.group.usage();
        let missing = known.missing();
        let (state, reason) = match (&known.trouble, missing.is_empty()) {
            (Some(trouble), _) => (GroupState::Damaged, Some(trouble.clone())),
            _ if known.is_half_committed() => (GroupState::Undecided, Some(UNDECIDED.to_owned())),
            (None, false) => {
                let lacking = known.missing_origins_in_words().map(|words| format!("; {words}"));
                let missing = format!("missing: {}{}", missing.join(", "), lacking.unwrap_or_default());
                (GroupState::Incomplete, Some(missing))
            }
            (None, true) => (GroupState::Ok, known.missing_origins_in_words()),
        };
        ShownGroup {
            name: known.group.name().to_owned(),
            id: known.group.id().to_string(),
            state,
            reason,
            health: None,
            extent_size: known.group.extent_size(),
            size: usage.size,
            free: usage.free,
            sequence: known.group.entry().sequence,
            physical_volumes: self.disks_of(known),
            volumes: names_of_volumes(known),
            metadata: Some(crate::group::quotas::shown(known)),
            trash: Some(shown_trash(known)),
        }
    }
}

fn names_of_volumes(known: &KnownGroup) -> Vec<String> {
    let pools = known.group.logical_volumes().iter().filter(|volume| volume.is_pool());
    let all = known.volumes().into_iter().map(|(_, name)| name).chain(pools.map(|pool| pool.name.clone()));
    let mut names: Vec<String> = all.map(|name| format!("{}/{name}", known.group.name())).collect();
    names.sort();
    names
}

fn shown_refused(refused: &RefusedGroup) -> ShownGroup {
    ShownGroup {
        name: refused.id.to_string(),
        id: refused.id.to_string(),
        state: GroupState::Damaged,
        reason: Some(format!("{} ({})", refused.problem, refused.paths.join(", "))),
        health: None,
        extent_size: 0,
        size: 0,
        free: 0,
        sequence: 0,
        physical_volumes: Vec::new(),
        volumes: Vec::new(),
        metadata: None,
        trash: None,
    }
}

/// Up to four names, and how many more.
pub(crate) fn few(names: &[String]) -> String {
    const SHOWN_MAX: usize = 4;
    match names.len() {
        0..=SHOWN_MAX => names.join(", "),
        count => format!("{} and {} more", names[..SHOWN_MAX].join(", "), count - SHOWN_MAX),
    }
}

fn extent_size(text: &str) -> Result<u64, Failure> {
    let size = parse_size(text).map_err(|error| failures::bad_size(&error))?;
    let range = varve_format::text::EXTENT_SIZE_MIN..=varve_format::text::EXTENT_SIZE_MAX;
    if size.is_power_of_two() && range.contains(&size) {
        return Ok(size);
    }
    Err(Failure::new(Code::BadExtentSize, format!("{text} is no extent size: a power of two from 64K to 1G"))
        .help("leave --extent-size out for 4M"))
}

/// A plan that also says what new labels destroy.
fn with_losses(mut plan: Plan, candidates: &[Candidate]) -> Plan {
    plan.steps.extend(candidates.iter().filter_map(Candidate::loss));
    plan
}

fn search(cache: Option<varve_api::Cache>, overwrite: bool) -> Search {
    Search { cache, overwrite, size: None, labelled: true }
}
