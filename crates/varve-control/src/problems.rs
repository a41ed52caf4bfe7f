//! What is not as it should be, and whether anything needs a person.

use super::Control;
use std::path::Path;
use uuid::Uuid;
use varve_api::{DaemonStatus, Failure, Group, GroupState, Health, PhysicalVolumeState, VolumeState};

/// Something that is not as it should be.
struct Problem {
    /// The group that it is about, if it is one's.
    group: Option<String>,
    /// A sentence.
    text: String,
}

impl Problem {
    fn new(noun: &str, name: &str, (state, reason): (&str, Option<&String>), group: Option<String>) -> Self {
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        Self { group, text: format!("{noun} {name} is {state}{reason}") }
    }
}

impl Control {
    /// The daemon itself, and what is not as it should be.
    pub async fn status_with_problems(&self) -> Result<DaemonStatus, Failure> {
        let problems: Vec<String> = self.problems().await?.into_iter().map(|problem| problem.text).collect();
        let health = if problems.is_empty() { Health::Ok } else { Health::Attention };
        Ok(DaemonStatus { health, problems, ..self.status() })
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

    async fn problems(&self) -> Result<Vec<Problem>, Failure> {
        let mut problems = Vec::new();
        for disk in self.list_disks() {
            if !matches!(disk.state, PhysicalVolumeState::Ok | PhysicalVolumeState::Unused) {
                let (name, state) = (disk.path.as_deref().unwrap_or(&disk.id), disk.state.word());
                problems.push(Problem::new("pv", name, (state, disk.reason.as_ref()), disk.group.clone()));
            }
        }
        for (disk, reason) in self.lost_disks.refusals() {
            let group = self.group_of(Path::new(&disk)).or_else(|| self.group_that_misses(&disk));
            problems.push(Problem::new("pv", &disk, ("not replaced by a spare", Some(&reason)), group));
        }
        for group in self.list_groups().iter().filter(|group| group.state != GroupState::Ok) {
            let state = (group.state.word(), group.reason.as_ref());
            problems.push(Problem::new("vg", &group.name, state, Some(group.name.clone())));
        }
        let of_group = |name: &str| name.split_once('/').map(|(group, _)| group.to_owned());
        for pool in self.list_pools(None).await? {
            if pool.state != VolumeState::Active {
                let state = (pool.state.word(), pool.reason.as_ref());
                problems.push(Problem::new("pool", &pool.name, state, of_group(&pool.name)));
            }
        }
        for volume in self.list_volumes(None).await? {
            if volume.state != VolumeState::Active {
                let state = (volume.state.word(), volume.reason.as_ref());
                problems.push(Problem::new("lv", &volume.name, state, of_group(&volume.name)));
            }
        }
        let groups: Vec<Uuid> = self.groups.borrow().keys().copied().collect();
        for group in groups {
            for (volume, why) in self.unfit_arrays(group).await? {
                let (name, noun) = (self.subject(volume.id), if volume.is_pool() { "pool" } else { "lv" });
                let reason = format!("{why}; varve array scrub {name}");
                let state = ("not the same on all members of its array", Some(&reason));
                problems.push(Problem::new(noun, &name, state, of_group(&name)));
            }
        }
        Ok(problems)
    }

    /// The group of which the disk that was last seen at `path` is missing.
    fn group_that_misses(&self, path: &str) -> Option<String> {
        let groups = self.list_groups();
        let is_its =
            |group: &&Group| group.physical_volumes.iter().any(|disk| disk.path.as_deref() == Some(path));
        groups.iter().find(is_its).map(|group| group.name.clone())
    }
}
