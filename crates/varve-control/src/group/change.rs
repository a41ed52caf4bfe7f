//! One change to a group: planned, shown or committed, known.
//!
//! Invariants:
//! - CHANGE1. Planning and committing happen under one hold of `commits`, so no plan is outdated.
//! - CHANGE2. No task waits for a volume's requests while it holds `commits`: those may wait for their store to grow, which
//!   is a commit.
//! - CHANGE3. What a plan depends on is looked up with `commits` held where the lock of the group is not: a pool may have grown by itself
//!   since, and clients use what it has got.

use crate::Control;
use crate::failures;
use futures_util::lock::OwnedMutexGuard;
use uuid::Uuid;
use varve_api::{Code, Failure, Plan as ShownPlan};
use varve_block::UnixTime;
use varve_vg::model::GroupUse;
use varve_vg::plan::{TrashStep, plan};
use varve_vg::size::format_size;
use varve_vg::{Change, CommitError, FreeDisk, Group, Plan, Stamp};
use varve_volume::opened::growth::LEVELS;

/// The right to plan and commit.
pub(crate) struct Commits<'a> {
    control: &'a Control,
    _guard: OwnedMutexGuard<()>,
}

impl Control {
    /// Waits for the right to plan and commit changes of a group (CHANGE1). To be released before anything waits for a volume
    /// (CHANGE2).
    pub(crate) async fn commits(&self, group: Uuid) -> Commits<'_> {
        Commits { control: self, _guard: self.locks.commits(group).await }
    }

    /// When a change is made, and which.
    pub(crate) fn stamp(&self, words: impl Into<String>) -> Stamp {
        Stamp { date: UnixTime(self.now()), change: words.into() }
    }
}

impl Commits<'_> {
    /// Plans a change to a group.
    pub(crate) fn plan(&self, group: Uuid, change: Change, words: &str) -> Result<Plan, Failure> {
        let stamp = self.control.stamp(words);
        let planned = self.control.with_group(group, |known| plan(&known.group, change, &stamp))?;
        planned.map_err(|error| failures::plan(&error))
    }

    /// Makes a planned change durable; `joining` are the disks that it adds.
    pub(crate) async fn commit(
        &self,
        group: Uuid,
        plan: Plan,
        joining: Vec<FreeDisk>,
    ) -> Result<(), Failure> {
        let control = self.control;
        let (words, warnings) = (plan.after.entry().change.clone(), plan.warnings.clone());
        let open = control.groups.known.borrow_mut().get_mut(&group).and_then(|known| known.open.take());
        let unusable =
            || Failure::new(Code::GroupIncomplete, "the group cannot be changed now").help("varve pv scan");
        let mut open = open.ok_or_else(unusable)?;
        // Extents are given away only when no request to them can be under way (RECONCILE2 of `reconcile.rs`).
        if !open.is_reconciled() || control.is_draining(group) {
            let refused = unusable();
            control.put_open(group, open);
            return Err(refused);
        }
        let (before, quotas) = (open.group().usage(), control.quotas(group));
        let applied = open.apply(plan, joining).await;
        let (name, after) = (open.group().name().to_owned(), open.group().usage());
        control.put_open(group, open);
        assert!(!matches!(applied, Err(CommitError::PlanOutdated { .. })), "CHANGE1: {words}");
        if let Err(error) = applied {
            let failure = control.commit_failure(&error); // A late request may end meanwhile.
            control.fence_group(group).await;
            control.reconcile_soon(group);
            return Err(failure);
        }
        control.event(&name, &words);
        warnings.iter().for_each(|warning| control.warn(&name, warning));
        if let Some(percent) = level_reached(before, after) {
            let free = format_size(after.available());
            control.warn(&name, &format!("{percent} % of the group are taken, {free} are free"));
        }
        if after.free > before.free {
            control.fence_group(group).await; // Before what was freed is given away again.
        }
        if control.quotas(group) != quotas {
            control.set_quotas_soon(group);
        }
        if after.free > before.free {
            control.tell_stores_of_space(group);
        }
        Ok(())
    }

    /// Gives up what a plan needs of the trash, durably, before others write to its extents (PLANTRASH2). Whether it needed anything: it is
    /// outdated then, and the change is to be planned anew. What refuses the change comes before.
    pub(crate) async fn make_room(&self, group: Uuid, plan: &Plan) -> Result<bool, Failure> {
        if plan.emptied.is_empty() {
            return Ok(false);
        }
        let change = Change::Trash(TrashStep::Empty { ids: plan.emptied.clone() });
        let words = format!("trash emptied for {}", plan.after.entry().change);
        self.make(group, change, &words).await?;
        Ok(true)
    }

    /// Plans and commits.
    pub(crate) async fn make(&self, group: Uuid, change: Change, words: &str) -> Result<(), Failure> {
        let plan = self.plan(group, change, words)?;
        self.commit(group, plan, Vec::new()).await
    }

    /// The group as it is known.
    pub(crate) fn group(&self, group: Uuid) -> Result<Group, Failure> {
        self.control.with_group(group, |known| known.group.clone())
    }
}

/// How much of a group is taken, in percent, if a change has taken it to one of the levels that are reported.
fn level_reached(before: GroupUse, after: GroupUse) -> Option<u64> {
    let size = |usage: GroupUse| usage.size - usage.spare;
    let percent = |usage| (size(usage) - usage.available()).saturating_mul(100) / size(usage).max(1);
    let level = |usage| LEVELS.into_iter().filter(|level| *level <= percent(usage)).max();
    (level(after) > level(before)).then(|| percent(after))
}

/// A plan, as it is shown to users and programs.
pub fn shown(plan: &Plan) -> ShownPlan {
    ShownPlan {
        dry_run: true,
        steps: plan.lines().collect(),
        bytes_taken: plan.bytes_taken,
        bytes_freed: plan.bytes_freed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_of_the_group_is_told_when_it_is_reached_and_not_again() {
        let usage = |free| GroupUse { size: 1000, free, missing: 0, spare: 0, trash: 0 };
        assert_eq!(level_reached(usage(1000), usage(201)), None);
        assert_eq!(level_reached(usage(201), usage(200)), Some(80));
        assert_eq!(level_reached(usage(200), usage(101)), None);
        assert_eq!(level_reached(usage(1000), usage(30)), Some(97));
        assert_eq!(level_reached(usage(30), usage(150)), None);
    }
}
