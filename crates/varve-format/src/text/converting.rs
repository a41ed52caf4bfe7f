//! What conversions own, and whether they make sense (TEXT20).

use super::{Area, ConversionEntry, Description, LogicalVolumeEntry};
use std::collections::HashSet;

impl Description {
    /// The areas that conversions own, each with what its conversion is called.
    pub fn areas_of_conversions(&self) -> impl Iterator<Item = (String, Area)> {
        self.conversions.iter().flat_map(|entry| {
            let areas = entry.parts.iter().flat_map(|part| part.space().areas());
            areas.map(|area| (self.place_of_conversion(entry), area))
        })
    }

    /// What a conversion is called.
    pub(super) fn place_of_conversion(&self, entry: &ConversionEntry) -> String {
        let volume = self.converted(entry);
        format!("the conversion of {}", volume.map_or("an unknown volume", |volume| &volume.name))
    }

    fn converted(&self, entry: &ConversionEntry) -> Option<&LogicalVolumeEntry> {
        self.logical_volumes.iter().find(|volume| volume.id == entry.volume)
    }

    /// TEXT20: what is wrong with a conversion, if something is.
    pub(super) fn problem_of_conversion(&self, entry: &ConversionEntry) -> Option<&'static str> {
        let Some(volume) = self.converted(entry) else {
            return Some("a conversion is one of a volume of the group");
        };
        if self.conversions.iter().filter(|other| other.volume == entry.volume).count() > 1 {
            return Some("a volume is converted once at a time");
        }
        if entry.rate == Some(0) || entry.rate.is_some_and(|rate| i64::try_from(rate).is_err()) {
            return Some("`rate` is at least 1");
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
