//! Plans that put the log of an array on a disk, on another one, or back on its members.
//!
//! Invariant PLANLOG1: the members of the array stay where they are, and none of them is on the disk of its log (TEXT24).

use super::super::{DiskChoice, Draft, PlanError};
use crate::allocate::FreeMap;
use crate::model::{ArrayLog, Layout, LogicalVolume, PvName};
use std::cmp::Reverse;
use uuid::Uuid;

impl Draft<'_> {
    pub(in crate::plan) fn set_log(
        &mut self,
        volume: &str,
        log: Option<(PvName, Uuid)>,
    ) -> Result<(), PlanError> {
        let (full, before) = (self.full(volume), self.lv(volume)?.clone());
        if before.layout.members().is_empty() {
            return Err(PlanError::Layout("only a mirror and ddraid have a log"));
        }
        if self.before.conversion_of(before.id).is_some() {
            return Err(self.converting(before.id));
        }
        if let Some(old) = before.layout.log() {
            self.check_disk_not_moving(old.area.pv)?;
        }
        let new = match log {
            Some((disk, _)) if before.layout.log().is_some_and(|old| old.area.pv == disk) => {
                return Err(PlanError::Layout("the log lies on this disk already"));
            }
            Some((disk, _)) if before.space().disks_of_members().any(|pv| pv == disk) => {
                return Err(PlanError::LogOnMember { path: self.path_of(disk) });
            }
            Some((disk, id)) => Some(self.new_log(&before.layout, id, disk)?),
            None if before.layout.log().is_none() => {
                return Err(PlanError::Layout("the log lies on the members already"));
            }
            None => None,
        };
        let mut lv = before.clone();
        self.step_log(&full, &before.layout, new);
        put(&mut lv.layout, new);
        assert_eq!(lv.segments, before.segments, "PLANLOG1");
        *self.lv(volume)? = lv;
        Ok(())
    }

    /// The log of `lv`, which is on the disk `from` that is replaced, on one of `disks`, or any other: the emptiest on which no member
    /// is. Without one the members have the log from then on, unless disks are named.
    pub(in crate::plan) fn replace_log(
        &mut self,
        lv: &mut LogicalVolume,
        (from, id): (PvName, Uuid),
        disks: &DiskChoice,
        free: &mut FreeMap,
    ) -> Result<(), PlanError> {
        let Some(old) = lv.layout.log().copied().filter(|log| log.area.pv == from) else { return Ok(()) };
        let (full, count) = (self.full(&lv.name), self.log_extents(&lv.layout));
        let members: Vec<PvName> = lv.space().disks_of_members().collect();
        let mut others: Vec<(PvName, u64)> = free.disks();
        others.retain(|(pv, _)| *pv != from && !members.contains(pv));
        others.sort_by_key(|(pv, free)| (Reverse(*free), *pv));
        let area = others.iter().find_map(|(pv, _)| free.take_whole_on(count, *pv));
        if area.is_none() && !disks.on.is_empty() {
            return Err(PlanError::NoReplacement {
                group: self.group_name().into(),
                volume: lv.name.clone(),
                on: disks.on.clone(),
                needed: count * self.extent_size(),
                free: others.iter().map(|(_, free)| free).sum::<u64>() * self.extent_size(),
            });
        }
        let new = area.map(|area| ArrayLog { id: Uuid::new_v5(&id, old.id.as_bytes()), area });
        self.step_log(&full, &lv.layout, new);
        put(&mut lv.layout, new);
        assert!(lv.layout.log().is_none_or(|log| log.area.pv != from), "PLANLOG1");
        Ok(())
    }

    fn step_log(&mut self, full: &str, before: &Layout, new: Option<ArrayLog>) {
        let to = match new {
            Some(log) => format!("on {} ({})", self.path_of(log.area.pv), log.area),
            None => "on its members".to_owned(),
        };
        let freed = before.log().map_or_else(String::new, |old| format!(", and free {}", old.area));
        self.step(format!("put the log of {full} {to}{freed}"));
    }
}

fn put(layout: &mut Layout, log: Option<ArrayLog>) {
    assert!(log.is_none_or(|log| log.area.count > 0), "TEXT4: {log:?}");
    let entry = layout.log_mut().expect("GROUP1, TEXT24: only arrays have a log");
    *entry = log;
}
