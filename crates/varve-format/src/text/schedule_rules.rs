//! What must hold of the schedules in a group's text.

use super::check::NUMBER_MAX;
use super::{Description, EVERY_S_MAX, MADE_MAX, SCHEDULED_MAX, SCHEDULES_MAX, ScheduleEntry, TextError};
use crate::name::check_name;
use std::collections::HashSet;
use uuid::Uuid;

impl ScheduleEntry {
    /// What is wrong with it by itself, if something is.
    fn problem(&self) -> Option<&'static str> {
        if !(1..=EVERY_S_MAX).contains(&self.every_s) {
            return Some("`every_s` is 1 second to 366 days");
        }
        let mut seen = HashSet::new();
        let are_sound = self.volumes.iter().all(|volume| !volume.id.is_nil() && seen.insert(volume.id));
        (!are_sound || !(1..=SCHEDULED_MAX).contains(&self.volumes.len()))
            .then_some("it is of 1 to 64 volumes, each once")
    }
}

impl Description {
    /// Checks schedules (TEXT27).
    pub(super) fn check_schedules(&self) -> Result<(), TextError> {
        let place = |schedule: &ScheduleEntry| format!("the schedule {:?}", schedule.name);
        let problem = |place: String, problem| Err(TextError::Shape { place, problem });
        if self.schedules.len() > SCHEDULES_MAX {
            return problem("the group".to_owned(), "it has at most 256 schedules");
        }
        let (mut names, mut made) = (HashSet::new(), HashSet::new());
        for schedule in &self.schedules {
            check_name(&schedule.name).map_err(|error| TextError::Name { place: place(schedule), error })?;
            if !names.insert(&schedule.name) {
                return Err(TextError::NameTwice(schedule.name.clone()));
            }
            if let Some(wrong) = schedule.problem() {
                return problem(place(schedule), wrong);
            }
            let is_sound = |(_, store, number): (Uuid, Uuid, u64)| {
                (1..=NUMBER_MAX).contains(&number) && made.insert((store, number))
            };
            if !schedule.made().all(is_sound) {
                return problem(place(schedule), "a snapshot is made by one schedule, once");
            }
        }
        match made.len() > MADE_MAX {
            true => {
                problem("the group".to_owned(), "its schedules have made at most 16384 snapshots that stay")
            }
            false => Ok(()),
        }
    }
}
