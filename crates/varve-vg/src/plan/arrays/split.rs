//! Plans that let a copy of a mirror go as a volume of its own.
//!
//! Invariant PLANSPLIT1: the volume and the new one own what the mirror owned, but for metadata of members that is of no use any more.

use super::super::space::place_text;
use super::super::{Draft, PlanError};
use crate::allocate::append;
use crate::model::{self, Area, LogicalVolume, Role, Segment};
use uuid::Uuid;
use varve_block::UnixTime;

impl Draft<'_> {
    /// The last copy of a mirror becomes the linear volume `new`; a mirror of which one copy is left is linear.
    pub(in crate::plan) fn split(
        &mut self,
        volume: Uuid,
        new: (String, Uuid),
        created: UnixTime,
    ) -> Result<(), PlanError> {
        let before = self.find(volume)?.clone();
        let (name, mut lv) = (before.name.as_str(), before.clone());
        self.check_new_name(&new.0)?;
        if self.before.conversion_of(volume).is_some() {
            return Err(self.converting(volume));
        }
        self.check_members(&before, before.space())?;
        let model::Layout::Mirror { members, .. } = &mut lv.layout else {
            return Err(PlanError::Layout("only a copy of a mirror can be split off"));
        };
        if lv.role != Role::Volume {
            return Err(PlanError::Layout("only a copy of a volume can be split off"));
        }
        if lv.store.is_some() || !lv.independent_stores.is_empty() {
            return Err(self.has_store(name));
        }
        members.pop();
        let is_alone = members.len() == 1;
        if is_alone {
            lv.layout = model::Layout::Linear;
        }
        let mut split = Vec::new();
        for segment in &mut lv.segments {
            split.extend(segment.areas.pop().map(Segment::linear));
        }
        assert_eq!(split.len(), lv.segments.len(), "PLANSPLIT1: each segment of a mirror has all copies");
        let owned = |segments: &[Segment]| -> u64 {
            segments.iter().flat_map(|segment| &segment.areas).map(|area: &Area| area.count).sum()
        };
        assert_eq!(owned(&split) + owned(&lv.segments), owned(&before.segments), "PLANSPLIT1");
        let (mut own, mut other) = (Vec::new(), Vec::new());
        append(&mut own, std::mem::take(&mut lv.segments));
        append(&mut other, split);
        lv.segments = own;
        let other = LogicalVolume {
            name: new.0,
            id: new.1,
            layout: model::Layout::Linear,
            created,
            segments: other,
            ..lv.clone()
        };
        let (full, new) = (self.full(name), self.full(&other.name));
        self.step(format!("let a copy of {full} go as {new} ({})", place_text(other.space())));
        let rest = if is_alone { "linear" } else { "a mirror" };
        self.step(format!("keep {full} as {rest} ({})", place_text(lv.space())));
        *self.lv(name)? = lv;
        self.description.logical_volumes.push(other);
        Ok(())
    }
}
