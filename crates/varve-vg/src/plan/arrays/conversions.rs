//! Plans that convert a volume or pool to another layout, the exception stores that it has included.
//!
//! Invariants:
//! - PLANCONVERT1. What a volume has stays its own until the new layout counts; one commit exchanges all parts.
//! - PLANCONVERT2. A part has as many extents as what it takes the place of.

use super::super::jobs::begin_holding;
use super::super::space::place_text;
use super::super::{ConversionError, ConversionStep, DiskChoice, Draft, Layout, PlanError};
use crate::model::{Conversion, ConvertedPart, JobWork, LogicalVolume, PvName, areas};
use uuid::Uuid;
use varve_block::UnixTime;

impl Draft<'_> {
    pub(in crate::plan) fn convert(
        &mut self,
        volume: Uuid,
        step: ConversionStep,
        date: UnixTime,
    ) -> Result<(), PlanError> {
        match step {
            ConversionStep::Begin { job, id, layout, disks, rate } => {
                let entry = Conversion { id, volume, rate, switched: false, parts: Vec::new() };
                self.begin_conversion(entry, &layout, &disks, (job, date))
            }
            ConversionStep::Switch => self.switch_conversion(volume),
            ConversionStep::End => self.end_conversion(volume),
            ConversionStep::Split { to, id } => self.split(volume, (to, id), date),
        }
    }

    fn begin_conversion(
        &mut self,
        mut entry: Conversion,
        layout: &Layout,
        disks: &DiskChoice,
        (job, date): (u64, UnixTime),
    ) -> Result<(), PlanError> {
        let id = entry.id;
        let lv = self.convertible(entry.volume, layout)?;
        let base = self.new_part(&lv, (id, lv.id), lv.extents, layout, disks)?;
        assert_eq!(base.of, lv.id, "PLANCONVERT1: the volume itself is converted");
        let of_store = Layout::of_store(&base.layout);
        entry.parts.push(base);
        let (subject, work) = (self.full(&lv.name), JobWork::Convert(entry));
        begin_holding(&mut self.description, (job, date), subject, work)?;
        for store in lv.stores() {
            let now = (store.layout.members().len(), store.layout.has_checksums());
            let wanted = match of_store {
                Layout::Mirror { copies, checksums, .. } => (copies, checksums),
                _ => (0, false),
            };
            if now != wanted {
                // On any disks: a mirror may need more than were named.
                let choice = DiskChoice { on: Vec::new(), log: None, ..disks.clone() };
                let part = self.new_part(&lv, (id, store.id), store.extents, &of_store, &choice)?;
                self.conversion_mut(lv.id)?.parts.push(part);
            }
        }
        Ok(())
    }

    /// The volume, if it can be converted.
    fn convertible(&self, volume: Uuid, layout: &Layout) -> Result<LogicalVolume, PlanError> {
        let (group, lv) = (self.group_name().to_owned(), self.find(volume)?.clone());
        if self.before.conversion_of(volume).is_some() {
            return Err(self.converting(volume));
        }
        let lies_on_disks =
            !matches!(layout, Layout::Zero | Layout::Error | Layout::Image { .. } | Layout::Mapper { .. });
        if !lv.layout.takes_space() || !lies_on_disks {
            return Err(PlanError::Layout("only what lies on disks is converted, and to what lies on disks"));
        }
        if lv.read_only {
            return Err(PlanError::Layout("a read-only volume is not converted"));
        }
        let missing = self.before.missing_disks_of(&lv);
        if !missing.is_empty() {
            let disks = missing.iter().map(ToString::to_string).collect();
            return Err(PlanError::VolumeIncomplete { group, volume: lv.name, disks });
        }
        let degraded = self.before.degraded_disks_of(&lv);
        if !degraded.is_empty() {
            return Err(self.degraded(&lv, &degraded));
        }
        let is_emptied = |pv: PvName| self.before.move_from(pv).is_some();
        if let Some(from) = areas(&lv).map(|area| area.pv).find(|pv| is_emptied(*pv)) {
            return Err(PlanError::Moving { group, from, what: self.full(&lv.name) });
        }
        Ok(lv)
    }

    /// Extents for what is called `of`, `extents` of them, in another layout (PLANCONVERT2).
    fn new_part(
        &mut self,
        lv: &LogicalVolume,
        (id, of): (Uuid, Uuid),
        extents: u64,
        layout: &Layout,
        disks: &DiskChoice,
    ) -> Result<ConvertedPart, PlanError> {
        let full = self.full(&lv.name);
        let mut growth = self.new_growth(layout, Uuid::new_v5(&id, of.as_bytes()))?;
        let row = growth.row();
        if !extents.is_multiple_of(row) {
            let (layout, is_pool) = (growth.what(), lv.is_pool());
            let more = (extents.next_multiple_of(row) - extents) * self.extent_size();
            return Err(ConversionError::Rows { volume: full, is_pool, extents, layout, row, more }.into());
        }
        self.grow(&mut growth, extents, disks)?;
        self.fit_fragments(&mut growth, Some(layout), disks)?;
        assert_eq!(growth.extents(), extents, "PLANCONVERT2");
        let (what, size) = (growth.what(), self.size_text(extents));
        let part = ConvertedPart { of, layout: growth.layout, segments: growth.segments };
        let subject = if of == lv.id { full } else { format!("an exception store of {full}") };
        self.step(format!("copy {size} of {subject} to {what}: {}", place_text(part.space())));
        Ok(part)
    }

    fn switch_conversion(&mut self, volume: Uuid) -> Result<(), PlanError> {
        let full = self.full_of(volume);
        let mut entry = self.conversion_mut(volume)?.clone();
        assert!(!entry.switched, "PLANCONVERT1: the new layout counts already");
        let lv = self.description.logical_volumes.iter_mut().find(|lv| lv.id == volume);
        let lv = lv.expect("TEXT20: a conversion is one of a volume");
        for part in &mut entry.parts {
            let (layout, segments) = if part.of == volume {
                (&mut lv.layout, &mut lv.segments)
            } else {
                let store = lv.store_mut(part.of).expect("TEXT20: a part is of the volume or a store of it");
                (&mut store.layout, &mut store.segments)
            };
            assert!(part.layout.takes_space() && layout.takes_space(), "PLANCONVERT1: both lie on disks");
            std::mem::swap(layout, &mut part.layout);
            std::mem::swap(segments, &mut part.segments);
        }
        entry.switched = true;
        *self.conversion_mut(volume)? = entry;
        self.step(format!("use the new layout of {full}"));
        Ok(())
    }

    fn end_conversion(&mut self, volume: Uuid) -> Result<(), PlanError> {
        let what = if self.conversion_mut(volume)?.switched { "old" } else { "new" };
        self.retain_conversions(|entry| entry.volume != volume);
        self.step(format!("free the {what} layout of {}", self.full_of(volume)));
        Ok(())
    }

    fn conversion_mut(&mut self, volume: Uuid) -> Result<&mut Conversion, PlanError> {
        let missing = ConversionError::NotConverting { volume: self.full_of(volume) };
        let entry = self.description.jobs.iter_mut().find_map(|job| match &mut job.work {
            JobWork::Convert(entry) if entry.volume == volume => Some(entry),
            _ => None,
        });
        assert!(entry.iter().all(|entry| !entry.parts.is_empty()), "TEXT20: a conversion has parts");
        entry.ok_or(missing.into())
    }

    /// Ends the conversions that `goes_on` is not true of.
    fn retain_conversions(&mut self, goes_on: impl Fn(&Conversion) -> bool) {
        self.description.jobs.retain(|job| match &job.work {
            JobWork::Convert(entry) => goes_on(entry),
            _ => true,
        });
    }

    /// Conversions of volumes that are gone end: nothing of these is in use. One of a volume in use is to end before its disks go.
    pub(in crate::plan) fn end_lost_conversions(&mut self) -> Result<(), PlanError> {
        let volumes: Vec<Uuid> = self.description.logical_volumes.iter().map(|lv| lv.id).collect();
        self.retain_conversions(|entry| volumes.contains(&entry.volume));
        let missing = self.description.physical_volumes.iter().filter(|pv| pv.missing);
        missing.map(|pv| pv.name).try_for_each(|pv| self.check_disk_not_converting(pv))
    }

    /// Refuses to empty or release a disk that a conversion concerns.
    pub(in crate::plan) fn check_disk_not_converting(&self, pv: PvName) -> Result<(), PlanError> {
        let concerns = |entry: &&Conversion| {
            let old = self.description.logical_volumes.iter().filter(|lv| lv.id == entry.volume);
            let new = entry.parts.iter().flat_map(|part| part.space().areas());
            old.flat_map(areas).chain(new).any(|area| area.pv == pv)
        };
        let entry = self.description.conversions().find(concerns);
        entry.map_or(Ok(()), |entry| Err(self.converting(entry.volume)))
    }

    /// Checks that a conversion keeps its volume, which keeps its size (PLAN5).
    pub(in crate::plan) fn check_conversions(&self) -> Result<(), PlanError> {
        let of = |volumes: &[LogicalVolume], id: Uuid| {
            let lv = volumes.iter().find(|lv| lv.id == id)?;
            let stores = lv.stores().map(|store| (store.id, store.extents));
            Some((lv.extents, stores.collect::<Vec<_>>()))
        };
        let (before, after) = (self.before.logical_volumes(), &self.description.logical_volumes);
        let is_changed = |entry: &&Conversion| of(before, entry.volume) != of(after, entry.volume);
        let entry = self.description.conversions().find(is_changed);
        entry.map_or(Ok(()), |entry| Err(self.converting(entry.volume)))
    }

    pub(in crate::plan) fn converting(&self, volume: Uuid) -> PlanError {
        ConversionError::Converting { volume: self.full_of(volume) }.into()
    }

    fn full_of(&self, volume: Uuid) -> String {
        self.find(volume).map_or_else(|_| volume.to_string(), |lv| self.full(&lv.name))
    }

    pub(in crate::plan) fn find(&self, volume: Uuid) -> Result<&LogicalVolume, PlanError> {
        let (group, id) = (self.group_name().to_owned(), volume.to_string());
        let found = self.before.logical_volumes().iter().find(|lv| lv.id == volume);
        found.ok_or(PlanError::VolumeNotFound { group, volume: id })
    }
}
