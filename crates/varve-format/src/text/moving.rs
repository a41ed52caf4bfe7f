//! What jobs that empty a disk own, and whether they make sense (TEXT17).

use super::{Area, Description, JobWork, MoveEntry, MoveStep, PvName, Space};
use uuid::Uuid;

impl Description {
    /// Disks that are being emptied.
    pub fn moves(&self) -> impl Iterator<Item = &MoveEntry> {
        self.jobs.iter().filter_map(|job| match &job.work {
            JobWork::Move(entry) => Some(entry),
            _ => None,
        })
    }

    /// Where the volume or exception store `id` is.
    pub fn space_of(&self, id: Uuid) -> Option<Space<'_>> {
        let mut volumes = self.logical_volumes.iter();
        volumes.find_map(|lv| match lv.id == id {
            true => Some(lv.space()),
            false => lv.stores().find(|store| store.id == id).map(|store| store.space()),
        })
    }

    /// Whether the new place of a step is valid; none if its volume or store owns neither place.
    pub fn is_switched(&self, step: &MoveStep) -> Option<bool> {
        let space = self.space_of(step.of)?;
        let owns = |area: Area| {
            let holds = |own: Area| own.pv == area.pv && own.start <= area.start && area.end() <= own.end();
            space.areas().any(holds)
        };
        if owns(step.old) { Some(false) } else { owns(step.new).then_some(true) }
    }

    /// The place of a step that its job owns.
    pub(super) fn area_of_step(&self, step: &MoveStep) -> Option<Area> {
        Some(if self.is_switched(step)? { step.old } else { step.new })
    }

    /// TEXT17: what is wrong with a move, if something is.
    pub(super) fn problem_of_move(&self, entry: &MoveEntry) -> Option<&'static str> {
        let is_disk = |pv: &PvName| self.physical_volumes.iter().any(|disk| disk.name == *pv);
        if self.moves().filter(|other| other.from == entry.from).count() > 1 {
            return Some("a disk is emptied once at a time");
        }
        if !is_disk(&entry.from) || !entry.to.iter().all(|pv| is_disk(pv) && *pv != entry.from) {
            return Some("a move goes from a disk of the group to others");
        }
        let step = entry.step.as_ref()?;
        if step.old.count != step.new.count || step.old.pv != entry.from || step.new.pv == entry.from {
            return Some("a step moves a run of the disk to one as long elsewhere");
        }
        self.is_switched(step).is_none().then_some("the volume or store of a step owns one of its places")
    }
}
