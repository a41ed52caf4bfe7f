//! Members of arrays that are filled anew, and losses that a person accepts.
//!
//! Invariants:
//! - REFILL1. Only regions are accepted that wait for a member, and that the person has named or called by `all`.
//! - REFILL2. What is cut off from a disk is lost, whatever the arrays on it have marked: their members there are away from when
//!   that is known, and are filled anew if they return.

use super::known_array::KnownArray;
use crate::Control;
use crate::find::LocatedVolume;
use crate::host::known_disk::KnownDisk;
use crate::injected_bug::{self, InjectedBug};
use crate::jobs::rebuilds;
use std::collections::BTreeSet;
use std::path::PathBuf;
use uuid::Uuid;
use varve_api::{ArrayRebuild, Changed, Code, Failure, Plan, RegionRun, VolumeArray};
use varve_target::array::{ArrayStatus, MemberState};
use varve_vg::model::PvName;
use varve_vg::size::format_size;
use varve_volume::spec::Accepts;

/// Stands for all regions that wait.
const ALL: &str = "all";
/// Runs of regions that a plan names one by one.
const STEPS_MAX: usize = 16;

impl Control {
    /// REFILL2, in all groups.
    pub(crate) async fn leave_cut_off_disks(&self) {
        let groups: Vec<Uuid> = self.groups.known.borrow().keys().copied().collect();
        for group in groups.into_iter().filter(|group| !self.cut_off_disks(*group).is_empty()) {
            let Ok(_lock) = self.lock_of(&group.to_string()).await else { continue };
            self.leave_cut_off_disks_of(group).await;
        }
    }

    /// REFILL2; the caller has the lock of the group.
    pub(crate) async fn leave_cut_off_disks_of(&self, group: Uuid) {
        for (path, disk) in self.cut_off_disks(group) {
            let arrays = self.arrays_of(group, |_| true).await.unwrap_or_default();
            let members = arrays.iter().filter_map(|array| Some((array, array.place_on(disk)?)));
            for (array, place) in members {
                let (Some(home), Some(_)) = (&array.home, &array.status) else { continue };
                let is_known = |known: &KnownDisk| known.disowned.contains(&array.id);
                if self.disks.known.borrow().get(&path).is_none_or(is_known) {
                    continue;
                }
                if array.state_on(disk) != Some(Some(MemberState::Away)) {
                    let _ = home.array(array.id).fail_member(place).await;
                }
                match home.array(array.id).disown_member(place).await {
                    Ok(Ok(())) => {
                        if let Some(known) = self.disks.known.borrow_mut().get_mut(&path) {
                            known.disowned.insert(array.id);
                        }
                    }
                    // The others do not have all data, or cannot be written: it is tried again.
                    Ok(Err(failure)) => {
                        let volume = self.subject(array.volume.id);
                        tracing::warn!(volume, place, %failure, "a member was cut off, and is not left yet");
                    }
                    Err(_) => return,
                }
            }
        }
    }

    /// Disks of a group of which part was cut off.
    fn cut_off_disks(&self, group: Uuid) -> Vec<(PathBuf, PvName)> {
        if injected_bug::has(InjectedBug::KeepCutOff) {
            return Vec::new();
        }
        let disks = self.disks.known.borrow();
        let cut_off = |path: &PathBuf| disks.get(path).is_some_and(|known| known.file.state().is_cut_off());
        let found = self.with_group(group, |known| {
            let here = known.paths.iter().map(|(id, path)| (PathBuf::from(path), *id));
            let named = here.filter_map(|(path, id)| Some((path, known.group.pv_by_id(id)?.name)));
            named.filter(|(path, _)| cut_off(path)).collect()
        });
        found.unwrap_or_default()
    }

    /// Fills the member on a disk anew, or accepts that regions are lost.
    pub async fn rebuild_array(
        &self,
        text: &str,
        request: ArrayRebuild,
    ) -> Result<Changed<Vec<VolumeArray>>, Failure> {
        let _lock = self.lock_of(text).await?;
        let located = self.find_array(text)?;
        let planned = match (&request.disk, request.accept_stale.as_slice()) {
            (Some(disk), []) => self.refill(text, &located, disk, request.dry_run).await?,
            (None, [_, ..]) => self.accept_stale(text, &located, &request).await?,
            _ => {
                let message = "either a disk is named, whose member is filled anew, or --accept-stale REGION";
                return Err(Failure::new(Code::Usage, message).help(format!("varve array show {text}")));
            }
        };
        match planned {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_arrays(text).await.map(Changed::Done),
        }
    }

    /// Fills the members of a volume's arrays that lie on a disk anew; the plan if nothing is to be done.
    async fn refill(
        &self,
        text: &str,
        located: &LocatedVolume,
        disk: &str,
        dry_run: bool,
    ) -> Result<Option<Plan>, Failure> {
        let members = self.members_at(text, located, disk).await?;
        if dry_run {
            let step = |(array, place): &(KnownArray, usize)| {
                format!("would fill member {place} of {}{text} anew from the others", array.of_what())
            };
            return Ok(Some(Plan::of_steps(members.iter().map(step).collect())));
        }
        for (array, place) in &members {
            let (id, place) = (array.id, *place);
            let Some(home) = &array.home else { continue };
            let disowned = home.array(id).disown_member(place);
            self.answered(array.volume.id, disowned.await)?;
        }
        let disk = self.group_disk(located.group, disk).await?;
        let name =
            self.with_group(located.group, |known| known.group.pv_by_id(disk).map(|disk| disk.name))?;
        if let Some(name) = name {
            self.take_members_back_on(located.group, name, |id| id == located.volume.id).await;
            rebuilds::resume(self).await;
        }
        self.event(text, "members are filled anew");
        Ok(None)
    }

    /// Accepts the loss of regions; the plan if nothing is to be done.
    async fn accept_stale(
        &self,
        text: &str,
        located: &LocatedVolume,
        request: &ArrayRebuild,
    ) -> Result<Option<Plan>, Failure> {
        let arrays = self.arrays_of(located.group, |volume| volume.id == located.volume.id).await?;
        let none = || {
            let message = format!("no region of {text} waits for a member that is missing");
            Failure::new(Code::Usage, message).help(format!("varve array show {text}"))
        };
        // Snapshot stores are mirrors, of which nothing waits.
        let array = arrays.into_iter().find(|array| array.store.is_none()).ok_or_else(none)?;
        let words = &request.accept_stale;
        let status = match (&array.unusable, &array.status) {
            (Some(failure), _) => {
                return self.accept_and_activate(text, located, (words, request.dry_run), failure).await;
            }
            (None, status) => status.as_ref().ok_or_else(none)?,
        };
        if status.lost_regions.is_empty() {
            return Err(none());
        }
        let chosen = chosen(text, words, &status.lost_regions)?;
        if request.dry_run {
            let mut plan = Plan::of_steps(steps(text, &chosen, status));
            plan.steps.extend(after(&array, status));
            return Ok(Some(plan));
        }
        let (Some(home), id) = (array.home, array.id) else { return Err(none()) };
        let accepted = home.array(id).accept_loss(chosen);
        let accepted = self.answered(located.volume.id, accepted.await)?;
        self.warn(text, &format!("the loss of regions was accepted: {accepted}"));
        Ok(None)
    }

    /// A pool whose own metadata is in regions of unknown content cannot be opened: their loss is accepted on activation.
    async fn accept_and_activate(
        &self,
        text: &str,
        located: &LocatedVolume,
        (words, dry_run): (&[String], bool),
        failure: &Failure,
    ) -> Result<Option<Plan>, Failure> {
        if failure.code != Code::VolumeUnusable {
            return Err(failure.clone());
        }
        if words != [ALL] {
            let message = format!("{text} is not in use, and which of its regions wait is not known");
            return Err(Failure::new(Code::VolumeUnusable, message)
                .help(format!("varve array rebuild {text} --accept-stale {ALL}")));
        }
        let accepts = Accepts { stale: true, ..Accepts::default() };
        if dry_run {
            let mut plan = Plan::of_steps(vec![format!(
                "would accept all regions of {text} that wait for a member, and take it into use"
            )]);
            plan.steps.push(LOST.to_owned());
            return Ok(Some(plan));
        }
        self.warn(text, "the loss of all regions that wait for a member is accepted");
        self.activate_entries(located.group, vec![located.volume.clone()], accepts, false).await
    }
}

/// What is lost where a person accepts it.
const LOST: &str = "what was being written there when the power failed is lost, and what shares a block of the array with it";

/// The regions that `words` name, which must be some of those that wait, `lost` (REFILL1).
fn chosen(text: &str, words: &[String], lost: &[u64]) -> Result<BTreeSet<u64>, Failure> {
    let lost: BTreeSet<u64> = lost.iter().copied().collect();
    let mut chosen = BTreeSet::new();
    for word in words {
        if word == ALL {
            chosen.extend(&lost);
            continue;
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let run =
            first.parse::<u64>().ok().zip(last.parse::<u64>().ok()).filter(|(first, last)| first <= last);
        let Some((first, last)) = run else {
            let message = format!("{word:?} names no regions: 3, 5-9 and {ALL} do");
            return Err(
                Failure::new(Code::Usage, message).help(format!("varve array show {text} lists them"))
            );
        };
        // A run may be absurdly long: no more of it is looked at than waits.
        chosen.extend(lost.range(first..=last));
        let waiting = lost.range(first..=last).count() as u64;
        if waiting <= last - first {
            let message =
                format!("not all of {word} waits for a member that is missing: {} does", runs(&lost));
            return Err(
                Failure::new(Code::Usage, message).help(format!("varve array show {text} lists them"))
            );
        }
    }
    Ok(chosen)
}

fn runs(regions: &BTreeSet<u64>) -> String {
    let runs = RegionRun::runs(&regions.iter().copied().collect::<Vec<_>>());
    let mut words: Vec<String> = runs.iter().take(STEPS_MAX).map(ToString::to_string).collect();
    words.extend((runs.len() > STEPS_MAX).then(|| format!("and {} more", runs.len() - STEPS_MAX)));
    words.join(", ")
}

/// What accepting `chosen` does, region by region.
fn steps(text: &str, chosen: &BTreeSet<u64>, status: &ArrayStatus) -> Vec<String> {
    let size = status.region_size;
    let runs = RegionRun::runs(&chosen.iter().copied().collect::<Vec<_>>());
    let step = |run: &RegionRun| {
        let (first, end) = (run.first * size, (run.last + 1) * size);
        let what = if run.first == run.last { "region" } else { "regions" };
        format!(
            "would accept {what} {run} of {text} as it is: {} from byte {first} on",
            format_size(end - first)
        )
    };
    let mut steps: Vec<String> = runs.iter().take(STEPS_MAX).map(step).collect();
    steps.extend(
        (runs.len() > STEPS_MAX).then(|| format!("and {} more runs of regions", runs.len() - STEPS_MAX)),
    );
    steps
}

/// What follows from it.
fn after(array: &KnownArray, status: &ArrayStatus) -> Vec<String> {
    let mut steps = vec![LOST.to_owned()];
    steps.push(
        "a member that returns is filled there from the others; what it holds there is not believed"
            .to_owned(),
    );
    if array.volume.is_pool() {
        steps.push("volumes of the pool may hold such blocks, and its own metadata".to_owned());
    }
    assert!(!status.lost_regions.is_empty(), "REFILL1: some wait");
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regions_that_wait_can_be_chosen() {
        let lost = [1, 2, 3, 7];
        let choose = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            chosen("data/db", &words, &lost).map(|chosen| chosen.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(choose(&["all"]), Ok(vec![1, 2, 3, 7]));
        assert_eq!(choose(&["1-3", "7", "2"]), Ok(vec![1, 2, 3, 7]));
        assert_eq!(choose(&["2"]), Ok(vec![2]));
        for wrong in ["0", "1-4", "8-9", "3-2", "x", "", "-", "1-", "0-18446744073709551615"] {
            let refused = choose(&["1", wrong]).map_err(|failure| failure.code);
            assert_eq!(refused, Err(Code::Usage), "REFILL1: {wrong}");
        }
    }
}
