//! A change to a group, planned: pure, so that it can be shown before it is made.
//!
//! [`plan`] takes the group as it is and a [`Change`], and returns the group as it would be, what would be done in
//! words, and the bytes taken and freed. `commit` makes it so. Ids and dates are handed in.
//!
//! Invariants:
//! - PLAN1. The planned group passes every check of its text; its sequence is one more than before.
//! - PLAN2. A volume that the change does not name keeps every extent it has.
//! - PLAN3. No extent of a missing disk is given to anything. A volume that is incomplete without such a disk keeps its extents
//!   until it is removed; an array that lacks a member there does not grow, and gets another member instead. Nothing is moved from
//!   or to such a disk.
//! - PLAN5. What a move has in hand stays with its volume or store, and a volume that is converted stays as large.

mod arrays;
mod asked;
mod change;
mod disks;
mod error;
mod gained;
mod help;
mod images;
mod job_step;
mod jobs;
mod metadata;
mod missing;
mod moves;
mod restore;
mod schedules;
mod sectors;
mod space;
mod stores;
#[cfg(test)]
mod tests;
mod trash;
mod under_way;
mod volumes;

pub use arrays::conversion::{ConversionError, ConversionStep};
pub use asked::{DiskChoice, Layout, Sectors};
pub use change::{Change, NewDisk, StoreKind};
pub use error::{ErrorKind, PlanError};
pub use job_step::{JobStep, ScheduleError, ScheduleRun, ScheduleStep, TrashError, TrashStep};
pub use restore::{Loss, LossKind, losses};
pub use schedules::every_text;
pub(crate) use under_way::drop_under_way;
pub use under_way::under_way;

use crate::model::{Area, Description, Group, LogicalVolume, PhysicalVolume};
use crate::size::format_size;
use gained::gained;
use schedules::drop_lost_schedules;
use uuid::Uuid;
use varve_block::{UnixTime, align_down};

/// When a change is made and what made it, for `vg history`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When.
    pub date: UnixTime,
    /// What, as shown to users: the command.
    pub change: String,
}

/// A change that was found possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The group as it would be.
    pub after: Group,
    /// The sequence of the group for which it was made.
    pub based_on: u64,
    /// What would be done, each beginning with a verb: "create …".
    pub steps: Vec<String>,
    /// Bytes that would be allocated.
    pub bytes_taken: u64,
    /// Bytes that would be given back.
    pub bytes_freed: u64,
    /// What is possible and may be regretted.
    pub warnings: Vec<String>,
    /// What is in the trash and is given up for it (PLANTRASH2 of `trash.rs`).
    pub emptied: Vec<Uuid>,
}

impl Plan {
    /// What would be done, in lines for users.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let steps = self.steps.iter().map(|step| format!("would {step}"));
        steps.chain(self.warnings.iter().map(|warning| format!("warning: {warning}")))
    }
}

/// Plans `change` to `group`.
pub fn plan(group: &Group, change: Change, stamp: &Stamp) -> Result<Plan, PlanError> {
    if group.trash().is_empty() {
        return plan_as_it_is(group, change, stamp);
    }
    change.with_room(group, |group| plan_as_it_is(group, change.clone(), stamp))
}

/// Plans `change` to `group`, with the extents that are free.
fn plan_as_it_is(group: &Group, change: Change, stamp: &Stamp) -> Result<Plan, PlanError> {
    let mut draft = Draft::of(group);
    draft.check_complete(&change)?;
    draft.check_granted(&change)?;
    match change {
        Change::CreateVolume { name, id, size, role, layout, policy, disks } => {
            draft.create_volume((name, id), size, (role, layout), policy, (&disks, stamp.date))
        }
        Change::ExtendVolume { name, size, disks } => draft.extend_volume(&name, size, &disks),
        Change::ReduceVolume { name, size } => draft.reduce_volume(&name, size),
        Change::RenameVolume { from, to } => draft.rename_volume(&from, to),
        Change::RemoveVolume { name } => draft.remove_volume(&name),
        Change::RenameGroup { to } => draft.rename_group(to),
        Change::AddDisks { disks } => draft.add_disks(&disks),
        Change::RemoveDisk { id } => draft.remove_disk(id),
        Change::RemoveMissing { with_volumes } => draft.remove_missing(with_volumes),
        Change::ReplaceMembers { from, volume, id, disks } => {
            draft.replace_members(from, volume.as_deref(), id, &disks)
        }
        Change::ResizeDisk { id, size } => draft.resize_disk(id, size),
        Change::SetSpare { disk, is_spare } => draft.set_spare(disk, is_spare),
        Change::MarkMissing { missing, returned } => draft.mark_missing(&missing, &returned),
        Change::CreateStore { volume, id, size, chunk_size, kind } => {
            draft.create_store(&volume, id, size, chunk_size, kind)
        }
        Change::Cleared { volume, until } => draft.cleared(volume, until),
        Change::ExtendStore { volume, store, by } => draft.extend_store(&volume, store, by),
        Change::RemoveStore { volume, store } => draft.remove_store(&volume, store),
        Change::ReplaceStore { volume, store, size, kept_as, kept_id } => {
            draft.replace_store(&volume, store, size, (kept_as, kept_id), stamp.date)
        }
        Change::SetStorePolicy { volume, policy } => draft.set_store_policy(&volume, policy),
        Change::SetArrayPolicy { volume, policy } => draft.set_array_policy(&volume, policy),
        Change::SetLog { volume, log } => draft.set_log(&volume, log),
        Change::SetInactive { volume, reason } => draft.set_inactive(&volume, reason),
        Change::SetMetadata { metadata } => draft.set_metadata(metadata),
        Change::BeginSnapshots { set } => draft.begin_snapshots(set),
        Change::EndSnapshots { set, job, run } => draft.end_snapshots(set, job, run),
        Change::AddImage { image } => draft.add_image(image),
        Change::RemoveImage { id } => draft.remove_image(id),
        Change::SetImage { volume, path, format } => draft.set_image(&volume, path, format),
        Change::BeginMove { job, from, disks, rate } => {
            draft.begin_move(from, disks, rate, (job, stamp.date))
        }
        Change::MoveNext { from, sectors, bytes_max } => draft.move_next(from, &sectors, bytes_max),
        Change::MoveSwitch { from } => draft.move_switch(from),
        Change::EndMove { from } => draft.end_move(from),
        Change::Convert { volume, step } => draft.convert(volume, step, stamp.date),
        Change::Jobs(step) => step.apply(&mut draft.description).map(|done| draft.step(done)),
        Change::Schedule(step) => step.apply(&mut draft.description).map(|done| draft.step(done)),
        Change::Trash(step) => step.apply(&mut draft, stamp),
        Change::Restore { backup } => draft.restore(&backup),
    }?;
    draft.finish(stamp)
}

/// A group that does not exist yet, on `disks`; its first version.
pub fn plan_group(
    name: &str,
    id: Uuid,
    extent_size: u64,
    disks: &[NewDisk],
    stamp: &Stamp,
) -> Result<Plan, PlanError> {
    let entry = crate::model::GroupEntry {
        name: name.to_owned(),
        id,
        sequence: 1,
        extent_size,
        created: stamp.date,
        changed: stamp.date,
        change: stamp.change.clone(),
        metadata: None,
        trash_keep_s: None,
    };
    let empty = Group::new(Description::new(entry)).map_err(PlanError::Invalid)?;
    let mut draft = Draft::of(&empty);
    draft.add_disks(disks)?;
    draft.steps.insert(0, format!("create group {name} with extents of {}", format_size(extent_size)));
    let mut plan = draft.finish(stamp)?;
    let mut description = plan.after.description().clone();
    description.group.sequence = 1;
    plan.after = Group::new(description).map_err(PlanError::Invalid)?;
    plan.based_on = 0;
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (0, 0), "a new group holds no volume");
    Ok(plan)
}

/// A group while it is being changed.
struct Draft<'a> {
    before: &'a Group,
    description: Description,
    steps: Vec<String>,
    warnings: Vec<String>,
}

impl<'a> Draft<'a> {
    fn of(before: &'a Group) -> Self {
        let description = before.description().clone();
        Self { before, description, steps: Vec::new(), warnings: Vec::new() }
    }

    fn finish(mut self, stamp: &Stamp) -> Result<Plan, PlanError> {
        self.check_moves()?;
        self.check_conversions()?;
        self.make_room_for_tails();
        self.end_lost_clearings();
        drop_lost_schedules(&mut self.description).into_iter().for_each(|step| self.step(step));
        let Draft { before, mut description, steps, warnings } = self;
        description.group.sequence = before.entry().sequence + 1;
        description.group.changed = stamp.date;
        description.group.change.clone_from(&stamp.change);
        let after = Group::new(description).map_err(PlanError::Invalid)?;
        assert_eq!(after.entry().sequence, before.entry().sequence + 1, "PLAN1");
        assert_eq!(
            (after.id(), after.extent_size()),
            (before.id(), before.extent_size()),
            "what a group is stays"
        );
        let everywhere = |_| true;
        let (taken, freed) = (gained(before, &after, everywhere), gained(&after, before, everywhere));
        let is_missing = |disk| after.pv(disk).is_some_and(|pv| pv.missing);
        assert_eq!(gained(before, &after, is_missing), 0, "PLAN3");
        let unit = before.extent_size();
        let plan = Plan {
            based_on: before.entry().sequence,
            after,
            steps,
            warnings,
            emptied: Vec::new(),
            bytes_taken: taken * unit,
            bytes_freed: freed * unit,
        };
        assert!(plan.steps.iter().all(|step| !step.is_empty()), "a step says what is done");
        Ok(plan)
    }

    fn step(&mut self, step: String) {
        self.steps.push(step);
    }

    fn group_name(&self) -> &str {
        &self.description.group.name
    }

    /// `VG/LV` of a volume's name.
    fn full(&self, volume: &str) -> String {
        format!("{}/{volume}", self.group_name())
    }

    /// The group as it stands in the draft; PLAN1 holds between any two steps.
    fn current(&self) -> Group {
        Group::new(self.description.clone()).expect("PLAN1: each step keeps the description sound")
    }

    fn lv(&mut self, name: &str) -> Result<&mut LogicalVolume, PlanError> {
        let missing = PlanError::VolumeNotFound { group: self.group_name().into(), volume: name.into() };
        self.description.logical_volumes.iter_mut().find(|lv| lv.name == name).ok_or(missing)
    }

    fn pv(&self, id: Uuid) -> Option<&PhysicalVolume> {
        self.description.physical_volumes.iter().find(|pv| pv.id == id)
    }

    fn extent_size(&self) -> u64 {
        self.description.group.extent_size
    }

    /// Extents that hold `bytes`, rounded up.
    fn extents_of(&self, bytes: u64) -> u64 {
        assert!(self.extent_size().is_power_of_two(), "GROUP1, TEXT2");
        bytes.div_ceil(self.extent_size())
    }

    fn lv_size_text(&self, lv: &LogicalVolume) -> String {
        format_size(lv.size(self.extent_size()))
    }

    fn size_text(&self, extents: u64) -> String {
        format_size(extents.saturating_mul(self.extent_size()))
    }
}

/// Rounds `extents` down to rows of `stripes`.
fn whole_rows(extents: u64, stripes: u64) -> u64 {
    if stripes.is_power_of_two() { align_down(extents, stripes) } else { extents - extents % stripes }
}

/// `pv0:0+25 pv1:100+5`, or the first few of many.
fn places(areas: impl IntoIterator<Item = Area>) -> String {
    const SHOWN_MAX: usize = 4;
    let areas: Vec<_> = areas.into_iter().map(|area| area.to_string()).collect();
    match areas.len() {
        0..=SHOWN_MAX => areas.join(" "),
        count => format!("{} and {} more runs", areas[..SHOWN_MAX].join(" "), count - SHOWN_MAX),
    }
}
