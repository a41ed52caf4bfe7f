//! Plans that concern volumes.

use super::error::no_space;
use super::stores::{declared, policy_text, refuse_unfit};
use super::{Draft, Layout, Plan, PlanError, places, whole_rows};
use crate::allocate::{FreeMap, append, append_linear, cut};
use crate::model::{self, Group, LogicalVolume, Role, Segment, StorePolicy};
use crate::size::{Amount, SizeArgument};
use uuid::Uuid;
use varve_block::{KIB, UnixTime};
use varve_format::check_name;

/// The most stripes that a volume may have.
const STRIPES_MAX: usize = 128;
/// The most bytes that a volume may have: addresses of 63 bits.
const VOLUME_SIZE_MAX: u64 = 1 << 63;

impl Plan {
    /// The same, but the extents of a volume from `from` on are still to be cleared when this counts.
    pub fn with_uncleared(mut self, volume: Uuid, from: u64) -> Result<Plan, PlanError> {
        let mut description = self.after.description().clone();
        let lv = description.logical_volumes.iter_mut().find(|lv| lv.id == volume);
        let lv = lv.expect("the plan gives this volume its extents");
        lv.uncleared = Some(lv.uncleared.map_or(from, |before| before.min(from)));
        self.after = Group::new(description).map_err(PlanError::Invalid)?;
        Ok(self)
    }
}

impl Draft<'_> {
    pub(super) fn create_volume(
        &mut self,
        identity: (String, Uuid),
        size: SizeArgument,
        (role, layout): (Role, Layout),
        policy: StorePolicy,
        created: UnixTime,
    ) -> Result<(), PlanError> {
        let (name, id) = identity;
        self.check_new_name(&name)?;
        let (stripes, layout) = self.check_layout(layout)?;
        if role == Role::Pool && !layout.takes_space() {
            return Err(PlanError::Layout("a pool lies on disks"));
        }
        refuse_unfit(role, policy)?;
        let mut lv = LogicalVolume {
            name,
            id,
            role,
            layout,
            read_only: false,
            inactive: None,
            created,
            extents: 0,
            segments: Vec::new(),
            uncleared: None,
            store_policy: declared(policy),
            store: None,
            independent_stores: Vec::new(),
        };
        let extents = self.extents_to_add(size.amount, stripes)?;
        self.grow(&mut lv, extents, stripes)?;
        let noun = if role == Role::Pool { "pool" } else { "volume" };
        let what = match layout {
            model::Layout::Linear if role == Role::Pool => "thin pool".to_owned(),
            model::Layout::Linear => format!("linear {noun}"),
            model::Layout::Striped { .. } => format!("striped {noun} ({stripes} stripes)"),
            model::Layout::Zero => format!("{noun} of zeros"),
            model::Layout::Error => format!("{noun} of errors"),
        };
        let (full, size, extents) = (self.full(&lv.name), self.size_text(lv.extents), place_text(&lv));
        self.step(format!("create {what} {full} of {size} ({extents})"));
        if lv.store_policy.is_some() {
            self.step(policy_text(&full, role, policy));
        }
        self.description.logical_volumes.push(lv);
        Ok(())
    }

    pub(super) fn extend_volume(&mut self, name: &str, size: SizeArgument) -> Result<(), PlanError> {
        let mut lv = self.lv(name)?.clone();
        let stripes = stripes_of(&lv);
        let more = match size.amount {
            Amount::Bytes(bytes) if !size.relative => {
                let asked = self.extents_of(self.check_bytes(bytes)?);
                let more = asked.checked_sub(lv.extents).filter(|more| *more > 0);
                more.ok_or_else(|| self.direction(&lv, bytes, "larger"))?.next_multiple_of(stripes)
            }
            amount => self.extents_to_add(amount, stripes)?,
        };
        assert!(more > 0, "an extension adds something");
        let before = lv.extents;
        self.grow(&mut lv, more, stripes)?;
        let (full, from, to) = (self.full(name), self.size_text(before), self.size_text(lv.extents));
        self.step(format!("extend {full} from {from} to {to} (now {})", place_text(&lv)));
        *self.lv(name)? = lv;
        Ok(())
    }

    pub(super) fn reduce_volume(&mut self, name: &str, size: u64) -> Result<(), PlanError> {
        let mut lv = self.lv(name)?.clone();
        if lv.is_pool() {
            return Err(PlanError::Layout("a pool does not shrink"));
        }
        if lv.stores().next().is_some() {
            return Err(self.has_store(name));
        }
        let stripes = stripes_of(&lv);
        let asked = self.extents_of(self.check_bytes(size)?).next_multiple_of(stripes);
        if asked >= lv.extents {
            return Err(self.direction(&lv, size, "smaller"));
        }
        let before = lv.extents;
        if lv.layout.takes_space() {
            cut(&mut lv.segments, before - asked);
            assert_eq!(asked, lv.segments.iter().map(Segment::extents).sum::<u64>(), "TEXT7");
        }
        lv.extents = asked;
        lv.uncleared = lv.uncleared.filter(|from| *from < asked);
        let (full, from, to) = (self.full(name), self.size_text(before), self.size_text(asked));
        let lost = self.size_text(before - asked);
        self.step(format!("reduce {full} from {from} to {to}; its last {lost} are lost"));
        *self.lv(name)? = lv;
        Ok(())
    }

    pub(super) fn rename_volume(&mut self, from: &str, to: String) -> Result<(), PlanError> {
        self.lv(from)?;
        self.check_new_name(&to)?;
        let (old, new) = (self.full(from), self.full(&to));
        assert_ne!(old, new, "a name in use was refused");
        self.lv(from)?.name = to;
        self.step(format!("rename {old} to {new}"));
        Ok(())
    }

    pub(super) fn set_inactive(&mut self, name: &str, reason: Option<String>) -> Result<(), PlanError> {
        let full = self.full(name);
        let lv = self.lv(name)?;
        let step = match &reason {
            Some(reason) => format!("take {full} out of use ({reason})"),
            None => format!("take {full} into use"),
        };
        lv.inactive = reason;
        self.step(step);
        Ok(())
    }

    pub(super) fn remove_volume(&mut self, name: &str) -> Result<(), PlanError> {
        let lv = self.lv(name)?.clone();
        if lv.stores().next().is_some() {
            return Err(self.has_store(name));
        }
        let count = self.description.logical_volumes.len();
        self.description.logical_volumes.retain(|other| other.id != lv.id);
        assert_eq!(self.description.logical_volumes.len() + 1, count, "PLAN2: one volume goes");
        let (full, size) = (self.full(name), self.size_text(lv.extents));
        let what = if lv.is_pool() { "all volumes in it" } else { "all its data" };
        self.step(format!("remove {full} and {what} ({size})"));
        Ok(())
    }

    pub(super) fn cleared(&mut self, volume: Uuid) -> Result<(), PlanError> {
        let (group, id) = (self.group_name().to_owned(), volume.to_string());
        let lv = self.description.logical_volumes.iter_mut().find(|lv| lv.id == volume);
        let lv = lv.ok_or(PlanError::VolumeNotFound { group, volume: id })?;
        lv.uncleared = None;
        let name = lv.name.clone();
        let step = format!("write down that all of {} is cleared", self.full(&name));
        self.step(step);
        Ok(())
    }

    /// Gives `lv` `extents` more extents, a multiple of `stripes`.
    fn grow(&self, lv: &mut LogicalVolume, extents: u64, stripes: u64) -> Result<(), PlanError> {
        assert!(extents > 0 && extents.is_multiple_of(stripes), "ALLOCATE3: whole rows");
        let group = self.current();
        lv.extents += extents;
        let mut free = FreeMap::of(&group);
        let last = lv.segments.last().map(|segment| segment.areas.clone()).unwrap_or_default();
        let shortage = |shortage| no_space(&group, extents, stripes, shortage);
        match lv.layout {
            model::Layout::Zero | model::Layout::Error => return Ok(()),
            model::Layout::Linear => {
                let areas = free.take_linear(extents, last.first().copied()).map_err(shortage)?;
                append_linear(&mut lv.segments, areas);
            }
            model::Layout::Striped { .. } => {
                let width = usize::try_from(stripes).expect("at most STRIPES_MAX");
                let segments = free.take_striped(extents / stripes, width, &last).map_err(shortage)?;
                append(&mut lv.segments, segments);
            }
        }
        assert_eq!(lv.extents, lv.segments.iter().map(Segment::extents).sum::<u64>(), "TEXT7");
        Ok(())
    }

    /// Extents, in whole rows of `stripes`, that an amount means when nothing or all of it is to be added.
    fn extents_to_add(&self, amount: Amount, stripes: u64) -> Result<u64, PlanError> {
        if let Amount::Bytes(bytes) = amount {
            return Ok(self.extents_of(self.check_bytes(bytes)?).next_multiple_of(stripes));
        }
        let free = FreeMap::of(&self.current()).total();
        match whole_rows(self.extents_asked(amount, free), stripes) {
            0 => Err(PlanError::ShareTooSmall { extent_size: self.extent_size() }),
            extents => Ok(extents),
        }
    }

    pub(super) fn check_bytes(&self, bytes: u64) -> Result<u64, PlanError> {
        // Far below the limit of numbers, so that rounding up cannot overflow.
        if bytes == 0 || bytes > VOLUME_SIZE_MAX { Err(PlanError::Size { bytes }) } else { Ok(bytes) }
    }

    pub(super) fn check_new_name(&self, name: &str) -> Result<(), PlanError> {
        check_name(name).map_err(|error| PlanError::Name { name: name.to_owned(), error })?;
        if let Some(known) = self.description.logical_volumes.iter().find(|lv| lv.name == name) {
            let (group, volume) = (self.group_name().into(), name.to_owned());
            return Err(PlanError::VolumeExists { group, volume, is_pool: known.is_pool() });
        }
        Ok(())
    }

    /// The number of stripes, and the layout as it is written.
    fn check_layout(&self, layout: Layout) -> Result<(u64, model::Layout), PlanError> {
        let (stripes, stripe_size) = match layout {
            Layout::Linear => return Ok((1, model::Layout::Linear)),
            Layout::Zero => return Ok((1, model::Layout::Zero)),
            Layout::Error => return Ok((1, model::Layout::Error)),
            Layout::Striped { stripes, stripe_size } => (stripes, stripe_size),
        };
        if !(2..=STRIPES_MAX).contains(&stripes) {
            return Err(PlanError::Layout("a striped volume has 2 to 128 stripes"));
        }
        if !stripe_size.is_power_of_two() || !(4 * KIB..=self.extent_size()).contains(&stripe_size) {
            return Err(PlanError::Layout("a stripe is a power of two from 4 KiB to the extent size"));
        }
        Ok((stripes as u64, model::Layout::Striped { stripe_size }))
    }

    pub(super) fn has_store(&self, volume: &str) -> PlanError {
        PlanError::VolumeHasStore { group: self.group_name().into(), volume: volume.into() }
    }

    fn direction(&self, lv: &LogicalVolume, asked: u64, direction: &'static str) -> PlanError {
        let now = lv.extents * self.extent_size();
        PlanError::Direction {
            group: self.group_name().into(),
            volume: lv.name.clone(),
            now,
            asked,
            direction,
            is_pool: lv.is_pool(),
        }
    }
}

fn stripes_of(lv: &LogicalVolume) -> u64 {
    lv.segments.last().map_or(1, |segment| segment.areas.len() as u64)
}

/// Where a volume lies, for people.
fn place_text(lv: &LogicalVolume) -> String {
    if !lv.layout.takes_space() {
        return "on no disk".to_owned();
    }
    let places = places(lv.segments.iter().flat_map(|segment| segment.areas.iter().copied()));
    format!("{} extents: {places}", lv.extents)
}
