//! Plans that concern exception stores.

use super::volumes::no_space;
use super::{Draft, PlanError, places};
use crate::allocate::{FreeMap, append_linear};
use crate::model::{Segment, Store};
use uuid::Uuid;
use varve_block::{KIB, MIB};

impl Draft<'_> {
    pub(super) fn create_store(
        &mut self,
        volume: &str,
        id: Uuid,
        size: u64,
        chunk_size: u64,
    ) -> Result<(), PlanError> {
        let lv = self.lv(volume)?.clone();
        if lv.store.is_some() {
            return Err(self.has_store(volume));
        }
        if !chunk_size.is_power_of_two() || !(4 * KIB..=MIB).contains(&chunk_size) {
            return Err(PlanError::Layout("a chunk is a power of two from 4 KiB to 1 MiB"));
        }
        let mut store = Store { id, chunk_size, extents: 0, segments: Vec::new() };
        self.grow_store(&mut store, size)?;
        let (full, size) = (self.full(volume), self.size_text(store.extents));
        self.step(format!("give {full} an exception store of {size} ({})", place_text(&store)));
        self.lv(volume)?.store = Some(store);
        Ok(())
    }

    pub(super) fn extend_store(&mut self, volume: &str, by: u64) -> Result<(), PlanError> {
        let lv = self.lv(volume)?.clone();
        let mut store = lv.store.ok_or_else(|| self.no_store(volume))?;
        let before = self.size_text(store.extents);
        self.grow_store(&mut store, by)?;
        let (full, size) = (self.full(volume), self.size_text(store.extents));
        self.step(format!(
            "extend the exception store of {full} from {before} to {size} ({})",
            place_text(&store)
        ));
        self.lv(volume)?.store = Some(store);
        Ok(())
    }

    pub(super) fn remove_store(&mut self, volume: &str) -> Result<(), PlanError> {
        let store = self.lv(volume)?.store.take().ok_or_else(|| self.no_store(volume))?;
        assert!(store.extents > 0, "T7: a store has extents");
        let (full, size) = (self.full(volume), self.size_text(store.extents));
        self.step(format!("give up the exception store of {full} ({size})"));
        Ok(())
    }

    fn grow_store(&self, store: &mut Store, by: u64) -> Result<(), PlanError> {
        let extents = self.extents_of(self.check_bytes(by)?);
        let group = self.current();
        let mut free = FreeMap::of(&group);
        let last = store.segments.last().and_then(|segment| segment.areas.last().copied());
        let areas = free.take_linear(extents, last).map_err(|short| no_space(&group, extents, 1, short))?;
        append_linear(&mut store.segments, areas);
        store.extents += extents;
        assert_eq!(store.extents, store.segments.iter().map(Segment::extents).sum::<u64>(), "T7");
        Ok(())
    }

    fn no_store(&self, volume: &str) -> PlanError {
        PlanError::StoreNotFound { group: self.group_name().into(), volume: volume.into() }
    }
}

fn place_text(store: &Store) -> String {
    places(store.segments.iter().flat_map(|segment| segment.areas.iter().copied()))
}
