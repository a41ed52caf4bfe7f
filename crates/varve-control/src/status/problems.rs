//! What is not as it should be, as one table: status, health of groups, events and metrics follow from it.
//!
//! Invariant PROBLEMS1: each row of the table in `docs/status.md` is a kind of problem, and each kind is a row.

use super::figures::Figures;
use super::looks;
use crate::Control;
use crate::exports::known_export::Open;
use crate::host::known_disk::SILENCE_MAX;
use crate::jobs::registry::REBUILD;
use crate::schedules::Schedules;
use std::path::Path;
use uuid::Uuid;
use varve_api::{
    Code, DaemonStatus, Failure, Group, GroupState, Health, LogicalVolume, PhysicalVolume,
    PhysicalVolumeState, Pool, Problem, ProblemKind, Severity, SnapshotStore, VolumeState,
};
use varve_block::host::DiskPlacement;

/// So much of a pool that is over-committed and cannot grow is taken when that is a problem, in percent.
const PERCENT_MAX: u64 = 95;

/// Problems, as they are found.
#[derive(Default)]
struct Rows(Vec<Problem>);

impl Rows {
    fn add(
        &mut self,
        kind: ProblemKind,
        (noun, name): (&str, &str),
        group: Option<String>,
        (message, help): (String, String),
    ) {
        let (noun, name) = (noun.to_owned(), name.to_owned());
        let severity = kind.severity();
        self.0.push(Problem { kind, severity, noun, name, group, message, help, since: 0 });
    }
}

/// `is STATE: REASON`.
fn is(state: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| format!("is {state}"), |reason| format!("is {state}: {reason}"))
}

/// The group in a name of a volume, pool or snapshot.
fn group_in(name: &str) -> Option<String> {
    name.split_once('/').map(|(group, _)| group.to_owned())
}

impl Control {
    /// The daemon itself, and what is not as it should be.
    pub async fn status_with_problems(&self) -> Result<DaemonStatus, Failure> {
        looks::count(self).await; // What has failed since the last look is asked for.
        let attention = self.problems().await?;
        Ok(self.status_of(attention))
    }

    /// The daemon itself, with what is not as it should be.
    pub(crate) fn status_of(&self, attention: Vec<Problem>) -> DaemonStatus {
        let health = if attention.is_empty() { Health::Ok } else { Health::Attention };
        let problems = attention.iter().map(ToString::to_string).collect();
        DaemonStatus { health, problems, attention, ..self.status() }
    }

    /// All that is exposed as metrics.
    pub async fn figures(&self) -> Result<Figures, Failure> {
        let mut groups = self.list_groups();
        for group in &mut groups {
            self.add_memory(group).await;
        }
        looks::count(self).await;
        // Each is asked once: with thousands of volumes that is what takes the time.
        let (pools, volumes) = (self.list_pools(None).await?, self.list_volumes(None).await?);
        Ok(Figures {
            status: self.status_of(self.problems_with(&pools, &volumes).await?),
            disks: self.disk_figures(),
            groups,
            volumes,
            pools,
            exports: self.list_exports().await?,
            arena: self.context.arena().usage(),
            jobs: self.jobs.list.all(),
        })
    }

    /// The groups, and whether anything about each needs a person.
    pub async fn list_groups_with_health(&self) -> Result<Vec<Group>, Failure> {
        let (mut groups, problems) = (self.list_groups(), self.problems().await?);
        for group in &mut groups {
            let is_sound = problems.iter().all(|problem| problem.group.as_ref() != Some(&group.name));
            group.health = Some(if is_sound { Health::Ok } else { Health::Attention });
        }
        Ok(groups)
    }

    /// All that is not as it should be (PROBLEMS1), the worst first, and of that the oldest.
    pub(crate) async fn problems(&self) -> Result<Vec<Problem>, Failure> {
        let (pools, volumes) = (self.list_pools(None).await?, self.list_volumes(None).await?);
        self.problems_with(&pools, &volumes).await
    }

    /// The same, where all pools and volumes have been asked already.
    pub(crate) async fn problems_with(
        &self,
        pools: &[Pool],
        volumes: &[LogicalVolume],
    ) -> Result<Vec<Problem>, Failure> {
        let mut rows = Rows::default();
        self.problems_of_disks(&mut rows);
        self.problems_of_files(&mut rows);
        self.problems_of_groups(&mut rows);
        for pool in pools {
            self.problems_of_pool(&mut rows, pool);
        }
        for volume in volumes {
            self.problems_of_volume(&mut rows, volume);
        }
        self.problems_of_arrays(&mut rows).await?;
        self.problems_of_exports(&mut rows);
        self.problems_of_credentials(&mut rows);
        self.problems_of_snapshots(&mut rows);
        for (name, told) in Schedules::of(self).troubles() {
            rows.add(ProblemKind::ScheduleFailed, ("schedule", &name), group_in(&name), told);
        }
        let unwritten = self.watch.unsaved.borrow().clone().or_else(|| self.memory.archive.failure());
        if let Some(failure) = unwritten {
            let message = format!("cannot be written: {}", failure.message);
            let is_general = failure.help == Failure::new(failure.code, "").help;
            let help = match is_general {
                true => "make room there, or make it writable: it is tried again".to_owned(),
                false => failure.help,
            };
            let name = self.memory.state_dir.display().to_string();
            rows.add(ProblemKind::StateUnwritable, ("daemon", &name), None, (message, help));
        }
        let mut problems = self.watch.dated(rows.0, self.now());
        problems.sort_by_key(|problem| (problem.severity != Severity::Critical, problem.since));
        Ok(problems)
    }

    fn problems_of_disks(&self, rows: &mut Rows) {
        for disk in self.list_disks() {
            let path = disk.path.as_deref().unwrap_or(&disk.id);
            if let Some((kind, help)) = disk_problem(&disk, path) {
                let message = is(disk.state.word(), disk.reason.as_deref());
                rows.add(kind, ("pv", path), disk.group.clone(), (message, help));
            }
        }
        for (disk, reason) in self.disks.lost.refusals() {
            let group = self.group_of(Path::new(&disk)).or_else(|| self.group_that_misses(&disk));
            let message = is("not replaced by a spare", Some(&reason));
            let help = format!("varve pv replace {disk} TO");
            rows.add(ProblemKind::DiskNotReplaced, ("pv", &disk), group, (message, help));
        }
    }

    /// Files below disks and images.
    fn problems_of_files(&self, rows: &mut Rows) {
        for trouble in self.watch.file_troubles(self.context.clock().now()) {
            let path = trouble.path.display().to_string();
            let (noun, name, group) = match trouble.volume {
                Some(volume) => {
                    let is_pool = self.entry_of(volume).is_ok_and(|(_, entry)| entry.is_pool());
                    let noun = if is_pool { "pool" } else { "lv" };
                    (noun, self.subject(volume), group_in(&self.subject(volume)))
                }
                None => ("pv", path.clone(), self.group_of(&trouble.path)),
            };
            if trouble.is_full {
                let message = format!("has no room: the file system of {path} is full, and writes fail");
                let help =
                    format!("make room in the file system of {path}: what waits or failed goes on then");
                rows.add(ProblemKind::HostFull, (noun, &name), group.clone(), (message, help));
            }
            // Of a disk its state says so.
            if let (Some(why), Some(_)) = (&trouble.why_cut_off, trouble.volume) {
                let message = format!("has lost a part of {path}: {why}");
                let help = format!("give {path} its content back, then varve pv scan");
                rows.add(ProblemKind::ImageCutOff, (noun, &name), group.clone(), (message, help));
            }
            if let Some((kind, message, help)) =
                trouble.volume.and(image_problem(trouble.placement, &name, &path))
            {
                rows.add(kind, (noun, &name), group.clone(), (message, help));
            }
            if trouble.errors > 0 {
                let message = format!("has failed requests: {} since it was scanned last", trouble.errors);
                let help = format!("look at {path} and the kernel's log; varve pv scan, varve pv replace");
                rows.add(ProblemKind::DiskErrors, (noun, &name), group, (message, help));
            }
        }
    }

    fn problems_of_groups(&self, rows: &mut Rows) {
        for group in self.list_groups() {
            let (kind, help) = match group.state {
                GroupState::Ok => continue,
                GroupState::Incomplete => (
                    ProblemKind::GroupIncomplete,
                    format!("varve pv scan PATH…, or varve vg reduce {} --missing", group.name),
                ),
                GroupState::Undecided => (ProblemKind::GroupUndecided, "varve pv scan".to_owned()),
                GroupState::Damaged => {
                    (ProblemKind::GroupDamaged, "varve check PATH…; varve repair PATH…".to_owned())
                }
            };
            let message = is(group.state.word(), group.reason.as_deref());
            rows.add(kind, ("vg", &group.name), Some(group.name.clone()), (message, help));
        }
    }

    fn problems_of_pool(&self, rows: &mut Rows, pool: &Pool) {
        let reason = pool.reason.as_deref();
        self.problem_of_state(rows, ("pool", &pool.name, &pool.id), (pool.state, reason));
        let more = || format!("varve pool extend {} --size +SIZE", pool.name);
        let (kind, what) = if pool.paused && !pool.can_grow {
            (ProblemKind::SpaceWaited, "is full: writes wait for space".to_owned())
        } else if pool.refusing {
            (ProblemKind::SpaceRefused, "is full: writes failed for want of space".to_owned())
        } else if pool.percent >= PERCENT_MAX && !pool.can_grow && pool.virtual_size > pool.promise_max {
            (
                ProblemKind::PoolFull,
                format!("is {} % full and holds less than its volumes may need", pool.percent),
            )
        } else {
            return;
        };
        let Ok(id) = Uuid::parse_str(&pool.id) else { return };
        let (why, help) = self.why_it_does_not_grow(id, pool.policy.auto_extend.is_some());
        let told = (format!("{what}, and {why}"), format!("{}, or {help}", more()));
        rows.add(kind, ("pool", &pool.name), Some(pool.group.clone()), told);
    }

    fn problems_of_volume(&self, rows: &mut Rows, volume: &LogicalVolume) {
        let reason = volume.reason.as_deref();
        self.problem_of_state(rows, ("lv", &volume.name, &volume.id), (volume.state, reason));
        let stores = volume.snapshot_store.iter().chain(&volume.independent_stores);
        let is_waiting = |store: &SnapshotStore| store.paused && !store.can_grow;
        let (mut waits, mut refuses) = (false, false);
        for store in stores {
            (waits, refuses) = (waits || is_waiting(store), refuses || store.refusing);
        }
        let (kind, what) = match (waits, refuses) {
            (true, _) => (ProblemKind::SpaceWaited, "writes that need a copy wait for space"),
            (false, true) => (ProblemKind::SpaceRefused, "writes failed for want of space"),
            (false, false) => return,
        };
        let Ok(id) = Uuid::parse_str(&volume.id) else { return };
        let (why, help) = self.why_it_does_not_grow(id, volume.snapshot_policy.auto_extend.is_some());
        let message = format!("has a full snapshot store: {what}, and {why}");
        let told = (message, format!("{help}, or varve snap remove {}@SNAP", volume.name));
        rows.add(kind, ("lv", &volume.name), Some(volume.group.clone()), told);
    }

    /// A volume or pool that cannot be used, or not as it should. One that a person deactivated is as it should be, and one that is
    /// being cleared will be.
    fn problem_of_state(
        &self,
        rows: &mut Rows,
        (noun, name, id): (&str, &str, &str),
        (state, reason): (VolumeState, Option<&str>),
    ) {
        let is_silent = reason.is_some_and(|reason| reason == crate::backing::mappers::SILENT);
        let id = Uuid::parse_str(id).ok();
        let told = id.and_then(|id| self.unusable(id)).map(|failure| failure.help);
        let help =
            told.filter(|help| !help.is_empty()).unwrap_or_else(|| format!("varve {noun} show {name}"));
        let (kind, help) = match state {
            VolumeState::Active | VolumeState::Clearing | VolumeState::Inactive => return,
            VolumeState::Unusable if id.is_some_and(|id| self.is_below_deactivated(id)) => return,
            VolumeState::Degraded => (ProblemKind::ArrayDegraded, format!("varve array show {name}")),
            VolumeState::Failing => (ProblemKind::VolumeFailing, "varve pv scan".to_owned()),
            VolumeState::Failed => (ProblemKind::VolumeFailed, format!("varve {noun} activate {name}")),
            VolumeState::Waiting if is_silent => {
                (ProblemKind::MapperSilent, format!("look at its mapper: it hangs; varve lv show {name}"))
            }
            VolumeState::Waiting => {
                (ProblemKind::MapperAway, format!("start its mapper; varve lv show {name}"))
            }
            VolumeState::Unusable => (ProblemKind::VolumeUnusable, help),
        };
        let message = is(state.word(), reason);
        let job = id.and_then(|id| self.jobs.targets.job_of(REBUILD, id));
        let told = job.map_or(message.clone(), |job| format!("{message}; job {job} fills members"));
        rows.add(kind, (noun, name), group_in(name), (told, help));
    }

    async fn problems_of_arrays(&self, rows: &mut Rows) -> Result<(), Failure> {
        let groups: Vec<Uuid> = self.groups.known.borrow().keys().copied().collect();
        for group in groups {
            for (volume, why) in self.unfit_arrays(group).await? {
                let (name, noun) = (self.subject(volume.id), if volume.is_pool() { "pool" } else { "lv" });
                let help = format!("varve array scrub {name}");
                let reason = format!("{why}; {help}");
                let message = is("not the same on all members of its array", Some(&reason));
                rows.add(ProblemKind::ArrayMismatch, (noun, &name), group_in(&name), (message, help));
            }
        }
        Ok(())
    }

    fn problems_of_exports(&self, rows: &mut Rows) {
        let now = self.context.clock().now();
        for (id, export) in &*self.exports.known.borrow() {
            let folder = export.folder();
            let is_silent = folder.is_some_and(|folder| self.watch.is_silent(&folder, now, SILENCE_MAX));
            let (reason, help) = match (&export.open, &export.away) {
                (Open::Moving, _) => continue,
                (Open::Down(failure), _) | (_, Some(failure)) if failure.code == Code::AddressInUse => {
                    (failure.message.clone(), format!("free that address, or varve export remove {id}"))
                }
                (Open::Down(failure), _)
                    if matches!(failure.code, Code::VolumeNotFound | Code::SnapshotNotFound) =>
                {
                    (failure.message.clone(), format!("if it does not come back: varve export remove {id}"))
                }
                (Open::Down(failure), _) | (_, Some(failure)) => {
                    (failure.message.clone(), failure.help.clone())
                }
                (Open::Serving(door), None) => match door.ended() {
                    Some(ended) => (ended.problem.to_owned(), String::new()),
                    None if is_silent => {
                        ("its folder does not answer".to_owned(), "look at that file system".to_owned())
                    }
                    None => continue,
                },
            };
            let message = format!("of {} at {} is down: {reason}", export.name, export.remembered.address);
            let told = (message, format!("{help} (it is tried again every 2 s)").trim_start().to_owned());
            rows.add(ProblemKind::ExportDown, ("export", id), Some(export.name.group.clone()), told);
        }
    }

    fn problems_of_credentials(&self, rows: &mut Rows) {
        let now = self.context.clock().date().0;
        for (id, export) in &*self.exports.known.borrow() {
            let found = self.exports.tls_problem(&export.remembered.address, now);
            if let Some((message, help)) = found {
                let told = (format!("of {} {message}", export.name), help);
                let group = Some(export.name.group.clone());
                rows.add(ProblemKind::ExportCredentials, ("export", id), group, told);
            }
        }
    }

    fn problems_of_snapshots(&self, rows: &mut Rows) {
        for (volume, snapshots) in self.watch.dropped() {
            let Some((group, volume)) = self.name_of(volume) else { continue };
            let name = format!("{group}/{volume}");
            let list = crate::commands::groups::few(&snapshots);
            let message = format!("has lost snapshots, dropped to make room in its store: {list}");
            let help = format!(
                "varve lv extend {name}@SNAP --size +SIZE, or varve lv change {name} --when-full pause; varve snap create {name}@SNAP"
            );
            rows.add(ProblemKind::SnapshotDropped, ("lv", &name), Some(group), (message, help));
        }
    }

    /// Whether what a volume or pool needs was deactivated by a person.
    fn is_below_deactivated(&self, id: Uuid) -> bool {
        let groups = self.groups.known.borrow();
        let is_inactive = |known: &crate::group::known_group::KnownGroup, id: Uuid| {
            let found = known.group.logical_volumes().iter().find(|entry| entry.id == id);
            found.is_some_and(crate::group::activation::is_deactivated)
        };
        groups.values().any(|known| {
            let thin = known.thin.get(id).map(|thin| thin.pool);
            let own = known.group.logical_volumes().iter().find(|entry| entry.id == id);
            let devices = own.map(|entry| entry.layout.granted().to_vec()).unwrap_or_default();
            thin.into_iter().chain(devices).any(|needed| is_inactive(known, needed))
        })
    }

    /// The group of which the disk that was last seen at `path` is missing.
    fn group_that_misses(&self, path: &str) -> Option<String> {
        let groups = self.list_groups();
        let is_its =
            |group: &&Group| group.physical_volumes.iter().any(|disk| disk.path.as_deref() == Some(path));
        groups.iter().find(is_its).map(|group| group.name.clone())
    }
}

/// What is wrong with an image by where its file is, and the remedy.
fn image_problem(placement: DiskPlacement, name: &str, path: &str) -> Option<(ProblemKind, String, String)> {
    Some(match placement {
        DiskPlacement::AtPath => return None,
        DiskPlacement::Deleted => (
            ProblemKind::ImageDeleted,
            format!("is lost when the daemon ends: its file {path} was deleted, and is only kept open"),
            format!("before that: varve image convert, or copy {name} from an export"),
        ),
        DiskPlacement::Elsewhere => (
            ProblemKind::ImageMoved,
            format!("is not found when the daemon starts again: {path} leads to its file no more"),
            format!("give the file the name {path} again"),
        ),
    })
}

/// What is wrong with a disk by its state, and the remedy.
fn disk_problem(disk: &PhysicalVolume, path: &str) -> Option<(ProblemKind, String)> {
    let group = disk.group.as_deref().unwrap_or("VG");
    Some(match disk.state {
        PhysicalVolumeState::Ok | PhysicalVolumeState::Unused => return None,
        PhysicalVolumeState::Failed => (ProblemKind::DiskFailed, format!("varve pv scan {path}")),
        PhysicalVolumeState::Stalled => {
            (ProblemKind::DiskStalled, format!("look at {path} and its cables; varve pv list"))
        }
        PhysicalVolumeState::Unlinked => (
            ProblemKind::DiskUnlinked,
            format!("varve pv move {path}, varve pv replace {path} TO, or varve pv scan PATH"),
        ),
        PhysicalVolumeState::Missing => {
            (ProblemKind::DiskMissing, format!("varve pv scan {path}, or varve vg reduce {group} --missing"))
        }
        PhysicalVolumeState::Stale => (ProblemKind::DiskStale, format!("varve vg extend {group} {path}")),
        PhysicalVolumeState::Damaged => (ProblemKind::DiskDamaged, format!("varve check {path}")),
        PhysicalVolumeState::Duplicate => {
            (ProblemKind::DiskDuplicate, format!("detach {path} or the other disk, then varve pv scan"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_a_row_for_each_kind_and_no_other() {
        let document = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status.md"));
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let mut named: Vec<_> =
            rows.map(|(kind, rest)| (kind, rest.split(' ').next().unwrap_or_default())).collect();
        let mut kinds: Vec<_> =
            ProblemKind::ALL.iter().map(|kind| (kind.word(), kind.severity().word())).collect();
        named.sort_unstable();
        kinds.sort_unstable();
        assert_eq!(named, kinds, "PROBLEMS1");
    }
}
