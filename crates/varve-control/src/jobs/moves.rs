//! The job that empties a disk: what is there goes to other disks, a run of extents at a time, while all of it is served.
//!
//! What is being moved stands in the group's text, so a move goes on wherever the group is used. A step of it:
//!
//! ```text
//! commit: the new place is reserved, and what the step before left is free
//! shard:  every change goes to both places, and the rest is copied
//! shard:  the new place is flushed: either place may count
//! commit: the new place is valid
//! shard:  requests go there, and none is under way to the old one
//! ```
//!
//! Invariants:
//! - MOVEJOB1. As long as the text says that a disk is being emptied, a job does so, or says why it waits (RUN3 of `runner.rs`).
//! - MOVEJOB2. Between the commit that lets the new place count and the moment when requests go there, no tree of a volume is
//!   built, so that all of them lead to one place.
//! - MOVEJOB3. A place is freed when no request of its volume is under way there.
//! - MOVEJOB4. A move that has ended stands in no text: a job that is to end tries until that is so (RUN1).

use super::registry::{SHORT, Started};
use super::runner::{Standing, Stop, Work};
use crate::Control;
use crate::failures;
use crate::group::change::shown;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Job, PhysicalVolumeMove};
use varve_block::{Extent, MIB};
use varve_vg::model::{Area, LogicalVolume, MoveStep, PvName, Store};
use varve_vg::size::{format_size, parse_size};
use varve_vg::{Change, Group};
use varve_volume::ShardHandle;
use varve_volume::copies::movable::{Moving, MovingRun};

/// Bytes that are moved by one step.
const STEP: u64 = 256 * MIB;

/// What a cancelled move leaves.
const ENDED: &str = "the move has ended; what has moved stays where it is";

/// The work of a move.
struct Move {
    group: Uuid,
    from: PvName,
}

impl Work for Move {
    const DONE: Option<&'static str> = Some("nothing of its group lies on it any more");

    fn group(&self) -> Option<Uuid> {
        Some(self.group)
    }

    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        control.take_steps(self.group, self.from, job).await
    }

    async fn give_up(&mut self, control: &Control) -> Result<bool, Failure> {
        control.end_move(self.group, self.from).await.map(|()| false) // MOVEJOB4
    }

    fn standing(&mut self, control: &Control) -> Standing {
        let is_here = control.with_group(self.group, |known| {
            (known.group.move_from(self.from).is_some(), known.group.pv(self.from).is_some())
        });
        match is_here {
            Ok((true, _)) => Standing::ToDo,
            Ok((false, true)) if control.left_on(self.group, self.from) == 0 => Standing::Done,
            _ => Standing::Gone(Failure::new(Code::JobCancelled, "the disk, or the group, was given up")),
        }
    }
}

/// What moves, and whose it is.
struct Step {
    volume: Uuid,
    home: ShardHandle,
    run: MoveStep,
    bytes: u64,
}

impl Control {
    /// Moves what is on a disk to others; the answer is a job.
    pub async fn move_disk(&self, request: PhysicalVolumeMove) -> Result<Changed<Job>, Failure> {
        let from_path = self.known_path(&request.from).await;
        let group = self.group_of_member(&from_path)?;
        let lock = self.lock_of(&group.to_string()).await?;
        let from = self.move_source(group, &from_path)?;
        let rate = request.rate.as_deref().map(parse_size).transpose();
        let rate = rate.map_err(|error| failures::bad_size(&error))?;
        let disks = self.disk_choice(group, &request.to).await?;
        let words = format!("pv move {from_path}");
        let commits = self.commits(group).await;
        let (_, job) = self.coming_job_of(&[group]);
        let planned = commits.plan(group, Change::BeginMove { job, from, disks, rate }, &words)?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        assert_eq!(self.next_job_of(&[group]), job, "JOBRECORD4: nothing was awaited");
        commits.commit(group, planned, Vec::new()).await?;
        drop((commits, lock));
        self.begin_recorded(group, job);
        self.job_soon(job, SHORT).await.map(Changed::Done)
    }

    /// Takes up a move that stands in a text (MOVEJOB1).
    pub(crate) fn resume_move(&self, group: Uuid, from: PvName, started: Started) {
        self.spawn_work(started, Move { group, from });
    }

    /// Takes step after step until nothing is left.
    async fn take_steps(&self, group: Uuid, from: PvName, job: &Started) -> Result<(), Stop> {
        loop {
            let left = self.left_on(group, from);
            let total = job.progress.total().max(left);
            job.progress.report(total - left, total);
            if !self.step(group, from, job).await? {
                return Ok(());
            }
            self.jobs.list.say_trouble(job.id, None);
        }
    }

    /// What has moved stays where it is, and no more moves.
    async fn end_move(&self, group: Uuid, from: PvName) -> Result<(), Failure> {
        let _lock = self.lock_group(group).await;
        self.reconcile_locked(group, from).await?;
        self.await_abandoned(group).await?; // MOVEJOB3
        let words = format!("pv move {} ended", self.path_of(group, from));
        self.commits(group).await.make(group, Change::EndMove { from }, &words).await
    }

    /// Bytes that are still to be moved.
    fn left_on(&self, group: Uuid, from: PvName) -> u64 {
        self.with_group(group, |known| bytes_on(&known.group, from)).unwrap_or_default()
    }

    /// Moves one run; whether there was one.
    async fn step(&self, group: Uuid, from: PvName, job: &Started) -> Result<bool, Stop> {
        self.reconcile_move(group, from).await?;
        self.check_wanted(job, ENDED)?;
        let Some(step) = self.reserve(group, from, job).await? else { return Ok(false) };
        let moved = self.carry_out(group, from, &step, job).await;
        self.jobs.targets.busy.borrow_mut().retain(|_, id| *id != job.id);
        moved.map(|()| true)
    }

    async fn carry_out(&self, group: Uuid, from: PvName, step: &Step, job: &Started) -> Result<(), Stop> {
        let copied = self.copy_run(group, from, step, job).await;
        let _lock = self.lock_group(group).await;
        let growing = self.locks.growing(group);
        let _closed = growing.close(); // MOVEJOB2
        growing.drained().await;
        let switched = match copied {
            Ok(()) => self.switch(group, from, step).await,
            Err(stop) => Err(stop),
        };
        let reconciled = self.reconcile_locked(group, from).await;
        switched?;
        Ok(reconciled?)
    }

    /// Reserves the place for what is moved next, and frees what the step before it left; `None` if that is nothing.
    async fn reserve(&self, group: Uuid, from: PvName, job: &Started) -> Result<Option<Step>, Stop> {
        let _lock = self.lock_group(group).await;
        self.await_abandoned(group).await?; // MOVEJOB3
        let path = self.path_of(group, from);
        let sectors = self.disk_choice(group, &[]).await?.sectors;
        let commits = self.commits(group).await;
        let change = Change::MoveNext { from, sectors, bytes_max: STEP };
        let planned = commits.plan(group, change, &format!("pv move {path}"));
        let planned = planned.map_err(|failure| match failure.code {
            Code::NoSpaceInGroup | Code::BadLayout => self.without_place(group, from, job, failure),
            _ => Stop::Wait(failure),
        })?;
        let run = planned.after.move_from(from).and_then(|entry| entry.step);
        let found = run.map(|run| self.step_of(&planned.after, run)).transpose()?;
        commits.commit(group, planned, Vec::new()).await?;
        self.jobs.targets.busy.borrow_mut().extend(found.iter().map(|step| (step.volume, job.id)));
        Ok(found)
    }

    /// There is no place for what is moved next; there may be when a target is back that is missing (JOBS2).
    fn without_place(&self, group: Uuid, from: PvName, job: &Started, failure: Failure) -> Stop {
        let targets = self.with_group(group, |known| {
            let named = known.group.move_from(from).map(|entry| entry.to.clone()).unwrap_or_default();
            let is_target = |disk: &PvName| *disk != from && (named.is_empty() || named.contains(disk));
            let disks = known.group.physical_volumes().iter().map(|disk| disk.name);
            disks.filter(is_target).collect::<Vec<PvName>>()
        });
        match self.check_disks_here(group, job, &targets.unwrap_or_default()) {
            Err(Stop::Wait(missing)) => Stop::Wait(missing),
            _ => Stop::End(failure),
        }
    }

    /// Whose `run` is; not while another job works on that.
    fn step_of(&self, group: &Group, run: MoveStep) -> Result<Step, Failure> {
        let owner = owner_of(group, run.of).expect("TEXT17: a volume or store owns a place of a step");
        self.refuse_if_busy(owner.id)?;
        if group.uncleared(owner.id).is_some() {
            let message = format!("what others wrote to {}/{} is being cleared", group.name(), owner.name);
            return Err(Failure::new(Code::VolumeBusy, message).help("varve job list"));
        }
        let home = self.home_of(owner.id).ok_or_else(not_known)?;
        Ok(Step { volume: owner.id, home, run, bytes: group.bytes(run.old.count) })
    }

    /// Copies the run of a step, not faster than the move may.
    async fn copy_run(&self, group: Uuid, from: PvName, step: &Step, job: &Started) -> Result<(), Stop> {
        self.check_disks_here(group, job, &[step.run.new.pv])?;
        let (run, rate) = self.with_group(group, |known| {
            let (old, new) = (place(&known.group, step.run.old), place(&known.group, step.run.new));
            let files = self.disk_files(known);
            let run =
                files.get(&from).zip(files.get(&step.run.new.pv)).map(|(old_file, new_file)| MovingRun {
                    volume: step.volume,
                    of: step.run.of,
                    old: (from, old_file.clone(), old),
                    new: (step.run.new.pv, new_file.clone(), new.offset),
                });
            (run, known.group.move_from(from).and_then(|entry| entry.rate))
        })?;
        let source = self.path_of(group, from);
        let missing = || {
            Failure::new(Code::GroupIncomplete, format!("{source}, which is emptied, is missing"))
                .help("bring it back, then varve pv scan PATH")
        };
        let run = run.ok_or_else(missing)?;
        let begun = step.home.begin_move(run);
        self.answered(step.volume, begun.await)?;
        let copy = async |batch| {
            let copied = step.home.volume(step.volume).copy_moving(Moving::Off(from), batch);
            copied.await.map_err(failures::gone)?.map_err(|failure| match failure.code {
                Code::VolumeUnusable => Stop::Wait(failure),
                _ => self.failed_step(group, step, failure),
            })
        };
        self.copy_at_rate(job, (step.bytes, rate), ENDED, copy).await
    }

    /// A disk has failed: the old place of the step is valid.
    fn failed_step(&self, group: Uuid, step: &Step, failure: Failure) -> Stop {
        let target = self.path_of(group, step.run.new.pv);
        let message = format!("{}; it moves to {target}", failure.message);
        let failure = Failure { message, ..failure };
        Stop::End(failure.help("varve pv list; what has moved stays where it is"))
    }

    /// Lets the new place of a step count. The caller has the lock of the group.
    async fn switch(&self, group: Uuid, from: PvName, step: &Step) -> Result<(), Stop> {
        let commits = self.commits(group).await;
        let size = format_size(step.bytes);
        let words = format!("pv move {}: {size} of {}", self.path_of(group, from), self.subject(step.volume));
        let planned = commits.plan(group, Change::MoveSwitch { from }, &words)?;
        let volume = step.volume;
        let wanted = self.with_group(group, |known| self.wanted(known, &planned.after, volume))?;
        let wanted = wanted.ok_or_else(not_known)?;
        let prepared = step.home.volume(volume).prepare_moving(Moving::Off(from), wanted);
        prepared.await.map_err(failures::gone)?.map_err(|failure| match failure.code {
            Code::VolumeUnusable => Stop::Wait(failure),
            _ => self.failed_step(group, step, failure),
        })?;
        Ok(commits.commit(group, planned, Vec::new()).await?)
    }

    /// Leads requests for what was in hand when a commit reached some disks only to where a scan has found it valid.
    pub(crate) async fn reconcile_moves(&self, group: Uuid) {
        let disks = self
            .with_group(group, |known| known.group.moves().map(|entry| entry.from).collect::<Vec<PvName>>());
        for from in disks.into_iter().flatten() {
            if let Err(failure) = self.reconcile_locked(group, from).await {
                tracing::warn!(%failure, "a move is not reconciled");
            }
        }
    }

    /// Requests for what a step had in hand go where the text says, and nowhere else.
    async fn reconcile_move(&self, group: Uuid, from: PvName) -> Result<(), Failure> {
        let _lock = self.lock_group(group).await;
        self.reconcile_locked(group, from).await
    }

    async fn reconcile_locked(&self, group: Uuid, from: PvName) -> Result<(), Failure> {
        let found = self.with_group(group, |known| {
            if known.undecided.is_some() {
                return Err(known.undecided_failure());
            }
            let Some(step) = known.group.move_from(from).and_then(|entry| entry.step) else {
                return Ok(None);
            };
            let is_switched = known.group.description().is_switched(&step).unwrap_or_default();
            let owner = owner_of(&known.group, step.of);
            Ok(owner.map(|owner| (owner.id, is_switched, lies_on(owner, step.of, from))))
        })??;
        let Some((volume, is_switched, is_left)) = found else { return Ok(()) };
        let Some(home) = self.home_of(volume) else { return Ok(()) };
        let finished = home.volume(volume).finish_moving(Moving::Off(from), is_switched, is_left);
        finished.await.map_err(failures::gone)
    }

    /// Whether what is moved now, or converted, is of this volume or store.
    pub(crate) fn is_moving(&self, group: Uuid, id: Uuid) -> bool {
        let is_moving = self.with_group(group, |known| {
            known.group.moves().any(|entry| entry.step.is_some_and(|step| step.of == id))
                || owner_of(&known.group, id)
                    .is_some_and(|owner| known.group.conversion_of(owner.id).is_some())
        });
        is_moving.unwrap_or_default()
    }

    /// The group of the disk with this path or identity, which may be missing.
    fn group_of_member(&self, text: &str) -> Result<Uuid, Failure> {
        let groups: Vec<Uuid> = self.groups.known.borrow().keys().copied().collect();
        let is_here = |group: &&Uuid| self.member(**group, text).is_ok();
        let was_here = |group: &&Uuid| {
            self.with_group(**group, |known| missing_at(&known.group, text)).unwrap_or_default()
        };
        let found = groups.iter().find(is_here).or_else(|| groups.iter().find(was_here)).copied();
        found.ok_or_else(|| {
            Failure::new(Code::PhysicalVolumeNotFound, format!("{text} is no disk of a group"))
                .help("varve pv list")
        })
    }

    /// The name of a disk that is to be emptied, which is here.
    fn move_source(&self, group: Uuid, text: &str) -> Result<PvName, Failure> {
        let missing = self.with_group(group, |known| {
            known.disk_at(text).is_none()
                && (missing_at(&known.group, text)
                    || self.member(group, text).is_ok_and(|id| !known.paths.contains_key(&id)))
        })?;
        if missing {
            let message = format!("{text} is missing: what lies on it cannot be read");
            return Err(Failure::new(Code::GroupIncomplete, message).help(format!(
                "bring it back and varve pv scan PATH; members of arrays: varve pv replace {text} PATH"
            )));
        }
        let id = self.member(group, text)?;
        let name = self.with_group(group, |known| known.group.pv_by_id(id).map(|disk| disk.name))?;
        name.ok_or_else(|| Failure::new(Code::NotInGroup, format!("{text} is no disk of the group")))
    }

    /// Where a disk of a group is.
    pub(crate) fn path_of(&self, group: Uuid, name: PvName) -> String {
        let path = self.with_group(group, |known| {
            let disk = known.group.pv(name)?;
            Some(known.path_of(disk.id))
        });
        path.ok().flatten().unwrap_or_else(|| name.to_string())
    }
}

pub(crate) fn not_known() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume cannot be used now").help("varve status")
}

/// Whether a disk that is missing was last seen at `path`.
fn missing_at(group: &Group, path: &str) -> bool {
    group.physical_volumes().iter().any(|pv| pv.missing && pv.path == path)
}

/// The volume or pool that is, or has, what is called `id`.
fn owner_of(group: &Group, id: Uuid) -> Option<&LogicalVolume> {
    let owns = |lv: &&LogicalVolume| lv.id == id || lv.stores().any(|store| store.id == id);
    group.logical_volumes().iter().find(owns)
}

/// Whether anything of the volume, pool or store that is called `of`, and is or belongs to `owner`, is on a disk.
fn lies_on(owner: &LogicalVolume, of: Uuid, pv: PvName) -> bool {
    let store = owner.stores().find(|store| store.id == of);
    let mut areas = store.map_or(owner.space(), Store::space).areas();
    areas.any(|area| area.pv == pv)
}

/// Bytes of volumes and stores on a disk.
fn bytes_on(group: &Group, pv: PvName) -> u64 {
    let areas = group.logical_volumes().iter().flat_map(varve_vg::model::areas);
    group.bytes(areas.filter(|area| area.pv == pv).map(|area| area.count).sum())
}

/// The bytes of its disk that `area` is.
fn place(group: &Group, area: Area) -> Extent {
    let offset = group.pv(area.pv).map_or(0, |pv| pv.data_offset);
    Extent::new(offset + group.bytes(area.start), group.bytes(area.count))
}
