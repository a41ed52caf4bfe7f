//! Whether jobs that convert a volume make sense (TEXT20).

use super::{ConversionEntry, Description, JobWork};
use std::collections::HashSet;

impl Description {
    /// Volumes that are being converted to another layout.
    pub fn conversions(&self) -> impl Iterator<Item = &ConversionEntry> {
        self.jobs.iter().filter_map(|job| match &job.work {
            JobWork::Convert(entry) => Some(entry),
            _ => None,
        })
    }

    /// TEXT20: what is wrong with a conversion, if something is.
    pub(super) fn problem_of_conversion(&self, entry: &ConversionEntry) -> Option<&'static str> {
        let Some(volume) = self.volume(entry.volume) else {
            return Some("a conversion is one of a volume of the group");
        };
        if self.conversions().filter(|other| other.volume == entry.volume).count() > 1 {
            return Some("a volume is converted once at a time");
        }
        let mut seen = HashSet::new();
        if entry.parts.is_empty() || !entry.parts.iter().all(|part| seen.insert(part.of)) {
            return Some("a conversion has parts, each of another volume or store");
        }
        entry.parts.iter().find_map(|part| {
            let store = volume.stores().find(|store| store.id == part.of).map(|store| store.extents);
            let extents = if part.of == volume.id { Some(volume.extents) } else { store };
            let Some(extents) = extents else {
                return Some("a part is of the volume, or of one of its stores");
            };
            if !part.layout.takes_space() || !volume.layout.takes_space() {
                return Some("what is converted lies on disks, before and afterwards");
            }
            part.layout.problem(extents, &part.segments, self.group.extent_size)
        })
    }
}
