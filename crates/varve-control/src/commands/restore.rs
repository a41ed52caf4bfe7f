//! A group's description written back from a backup: what would be lost is found first, named, and agreed to one by one.
//!
//! Invariants:
//! - RESTOREVG1. A restore takes nothing from a volume or pool of the group that was not named with `--drop`.
//! - RESTOREVG2. A pool or store is not given less than its superblock says that it is, as read from its disks: it could not be
//!   opened, and what it holds beyond would be given to others.

use crate::Control;
use crate::failures;
use crate::group::change::{Commits, shown};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, GroupRestore, GroupUndo, Plan as ShownPlan, Restored};
use varve_vg::disks::held::held_beyond;
use varve_vg::model::{Description, LogicalVolume};
use varve_vg::plan::{LossKind, losses};
use varve_vg::size::format_size;
use varve_vg::{Change, Group, Plan, Version};

/// What a restore would take from a group.
pub struct Lost {
    /// `VG/LV`.
    pub name: String,
    /// What it is, in words.
    pub words: String,
}

/// How a description is written back.
struct WriteBack {
    /// What the history says of it.
    words: String,
    /// The command, without what is agreed to.
    command: String,
    /// What may lose what it has now.
    drop: Vec<String>,
    dry_run: bool,
}

impl Control {
    /// Writes a description back. No volume of the group may be in use.
    pub async fn restore_group(
        &self,
        name: &str,
        request: GroupRestore,
    ) -> Result<Changed<Restored>, Failure> {
        let _lock = self.lock_of(name).await?;
        let id = self.find_group(name)?;
        let backup = Group::from_text(&request.text).map_err(|error| {
            Failure::new(Code::BadBackup, format!("the backup cannot be read: {error}"))
                .help(format!("give a file that was written by: varve vg backup {name} FILE"))
        })?;
        let words = format!("vg restore {name}, version {}", backup.entry().sequence);
        let command = format!("varve vg restore {name} FILE");
        let GroupRestore { drop, dry_run, .. } = request;
        self.write_back(id, &backup, WriteBack { words, command, drop, dry_run }).await
    }

    /// Writes back what the description said before its last changes.
    pub async fn undo_group(&self, name: &str, request: GroupUndo) -> Result<Changed<Restored>, Failure> {
        let _lock = self.lock_of(name).await?;
        let id = self.find_group(name)?;
        let versions = self.versions(id).await?;
        let now = self.with_group(id, |known| known.group.entry().sequence)?;
        let version = version_before(&versions, now, request.to, name)?;
        let backup = Group::from_text(&version.text).map_err(|error| {
            let message = format!("change {} cannot be read: {error}", version.sequence);
            Failure::new(Code::BadBackup, message).help(format!("varve vg history {name}"))
        })?;
        let taken_back =
            versions.iter().rev().filter(|other| (version.sequence + 1..=now).contains(&other.sequence));
        let steps =
            taken_back.map(|other| format!("would take back change {}: {}", other.sequence, other.change));
        let plan = ShownPlan::of_steps(steps.collect());
        let words = format!("vg undo {name}, to change {}", version.sequence);
        let command = format!("varve vg undo {name} --to {}", version.sequence);
        let GroupUndo { drop, dry_run, .. } = request;
        let changed = self.write_back(id, &backup, WriteBack { words, command, drop, dry_run }).await?;
        Ok(match changed {
            Changed::Planned(steps) => Changed::Planned(plan.and(steps)),
            done @ Changed::Done(_) => done,
        })
    }

    /// The group gets the description `backup`, as far as nothing is lost by that or it is agreed to.
    async fn write_back(
        &self,
        id: Uuid,
        backup: &Group,
        how: WriteBack,
    ) -> Result<Changed<Restored>, Failure> {
        self.refuse_if_used(id)?;
        let wanted = self.without_dropped_pools(id, backup.description(), &how.drop)?;
        let change = Change::Restore { backup: Box::new(wanted) };
        let commits = self.commits(id).await;
        let planned = commits.plan(id, change.clone(), &how.words)?;
        let (lost, before) = (self.lost_by(id, &planned).await?, commits.group(id)?);
        drop(commits);
        refuse_lost(&before, &lost, &how.drop, how.dry_run, &how.command)?;
        if how.dry_run {
            let mut plan = shown(&planned);
            plan.steps.extend(lost.iter().map(Lost::step));
            return Ok(Changed::Planned(plan));
        }
        let changed = match self.deactivate_group(id).await {
            Ok(()) => {
                let commits = self.commits(id).await;
                self.commit_restore(&commits, id, change, &how).await // planned anew (CHANGE1)
            }
            Err(failure) => Err(failure),
        };
        self.converge(id).await;
        let after = changed?;
        let group = self.show_group(&id.to_string()).await?;
        let names = |one: &Group, other: &Group| names_only_in(one, other);
        let (dropped, added) = (names(&before, &after), names(&after, &before));
        Ok(Changed::Done(Restored { group, dropped, added }))
    }

    async fn commit_restore(
        &self,
        commits: &Commits<'_>,
        group: Uuid,
        change: Change,
        how: &WriteBack,
    ) -> Result<Group, Failure> {
        let planned = commits.plan(group, change, &how.words)?;
        let lost = self.lost_by(group, &planned).await?;
        refuse_lost(&commits.group(group)?, &lost, &how.drop, false, &how.command)?;
        let after = planned.after.clone();
        commits.commit(group, planned, Vec::new()).await?;
        for lost in lost {
            self.event(&lost.name, &format!("lost by a restore of its group: {}", lost.words));
        }
        Ok(after)
    }

    /// The backup without the pools that are to be dropped: a pool that is given less than it holds is none any more.
    fn without_dropped_pools(
        &self,
        group: Uuid,
        backup: &Description,
        agreed: &[String],
    ) -> Result<Description, Failure> {
        let dropped: BTreeSet<Uuid> = self.with_group(group, |known| {
            let entries = known.group.logical_volumes().iter().filter(|entry| entry.is_pool());
            let is_agreed = |entry: &&LogicalVolume| agreed.contains(&full_name(&known.group, &entry.name));
            entries.filter(is_agreed).map(|entry| entry.id).collect()
        })?;
        let mut wanted = backup.clone();
        wanted.logical_volumes.retain(|entry| !dropped.contains(&entry.id));
        Ok(wanted)
    }

    /// What the group would lose (RESTOREVG1, RESTOREVG2).
    async fn lost_by(&self, group: Uuid, planned: &Plan) -> Result<Vec<Lost>, Failure> {
        let before = self.with_group(group, |known| known.group.clone())?;
        let mut lost = Vec::new();
        for loss in losses(&before, &planned.after) {
            let volumes = if loss.is_pool { self.volumes_in(group, loss.volume) } else { String::new() };
            let words = match loss.kind {
                LossKind::All(bytes) => format!("all of it, {}{volumes}", format_size(bytes)),
                LossKind::Places { now, then } => {
                    let (now, then) = (format_size(now), format_size(then));
                    format!("it has {now}, and would have {then} as the backup says{volumes}")
                }
                LossKind::Store => "snapshots of it".to_owned(),
            };
            lost.push(Lost { name: full_name(&before, &loss.name), words });
        }
        // What pools and stores hold is read from their disks, whatever the backup says (RESTOREVG2).
        let files = self.with_group(group, |known| self.files_of(known, &planned.after))?;
        let disks = files.iter().map(|(name, file)| (*name, self.context.disk(file)));
        let disks: BTreeMap<_, _> = disks.collect();
        let (arena, failed) = (self.context.arena(), |error| failures::io("the group's disks", error));
        for entry in planned.after.logical_volumes() {
            let name = full_name(&before, &entry.name);
            if !lost.iter().any(|known| known.name == name)
                && let Some(beyond) =
                    held_beyond(&planned.after, entry, &disks, &arena).await.map_err(failed)?
            {
                let volumes = if entry.is_pool() { self.volumes_in(group, entry.id) } else { String::new() };
                lost.push(Lost { name, words: format!("{beyond}{volumes}") });
            }
        }
        Ok(lost)
    }

    /// The thin volumes of a pool, in words.
    fn volumes_in(&self, group: Uuid, pool: Uuid) -> String {
        let names = self.with_group(group, |known| {
            let own = known.thin.of(pool);
            own.map(|thin| full_name(&known.group, &thin.name)).collect::<Vec<_>>()
        });
        match names.unwrap_or_default() {
            names if names.is_empty() => String::new(),
            names => format!(", and with it {}", super::groups::few(&names)),
        }
    }
}

fn full_name(group: &Group, volume: &str) -> String {
    format!("{}/{volume}", group.name())
}

fn names_only_in(one: &Group, other: &Group) -> Vec<String> {
    let is_there = |entry: &&LogicalVolume| !other.logical_volumes().iter().any(|known| known.id == entry.id);
    one.logical_volumes().iter().filter(is_there).map(|entry| full_name(one, &entry.name)).collect()
}

impl Lost {
    /// A step of a plan.
    pub fn step(&self) -> String {
        format!("would need --drop {}: {}", self.name, self.words)
    }
}

/// The version that is to be the last one: number `to`, or the newest before number `now`.
fn version_before<'v>(
    versions: &'v [Version],
    now: u64,
    to: Option<u64>,
    name: &str,
) -> Result<&'v Version, Failure> {
    let refused =
        |message: String| Failure::new(Code::BadBackup, message).help(format!("varve vg history {name}"));
    let newest = versions.iter().map(|version| version.sequence).filter(|sequence| *sequence < now).max();
    let Some(to) = to.or(newest) else {
        return Err(refused(format!("the disks of group {name} remember no change before the last one")));
    };
    if to >= now {
        return Err(refused(format!("change {to} of group {name} is not before the last one, {now}")));
    }
    let mut found = versions.iter().filter(|version| version.sequence == to);
    match (found.next(), found.next()) {
        (Some(version), None) => Ok(version),
        (None, _) => Err(refused(format!("the disks of group {name} do not remember change {to}"))),
        (Some(_), Some(_)) => {
            Err(refused(format!("there are several changes {to} of group {name}, made on different disks")))
        }
    }
}

/// Refuses a restore by which something of `group` is lost that was not named (RESTOREVG1); and, also in a dry run, names of what loses
/// nothing by it. `command` is the restore without its options.
pub fn refuse_lost(
    group: &Group,
    lost: &[Lost],
    agreed: &[String],
    dry_run: bool,
    command: &str,
) -> Result<(), Failure> {
    let pools = group.logical_volumes().iter().filter(|entry| entry.is_pool());
    let pools: Vec<String> = pools.map(|entry| full_name(group, &entry.name)).collect();
    let loses = |name: &&String| lost.iter().any(|lost| lost.name == **name) || pools.contains(name);
    if let Some(name) = agreed.iter().find(|name| !loses(name)) {
        let message = format!("{name} would lose nothing by this restore, or is not there");
        return Err(Failure::new(Code::BadBackup, message).help("leave its --drop out"));
    }
    let unnamed: Vec<&Lost> = lost.iter().filter(|lost| !agreed.contains(&lost.name)).collect();
    if unnamed.is_empty() || dry_run {
        return Ok(());
    }
    let words: Vec<String> = unnamed.iter().map(|lost| format!("{}: {}", lost.name, lost.words)).collect();
    let drops: Vec<String> = lost.iter().map(|lost| format!("--drop {}", lost.name)).collect();
    let message = format!("the restore would lose what is there now: {}", words.join("; "));
    let help = format!("to agree to that: {command} {}", drops.join(" "));
    Err(Failure::new(Code::RestoreLoses, message).help(help))
}
