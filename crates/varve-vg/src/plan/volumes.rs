//! Plans that concern volumes.

use super::jobs::clearing;
use super::space::{Growth, place_text};
use super::stores::{declared, policy_text, refuse_unfit};
use super::{DiskChoice, Draft, Layout, PlanError};
use crate::allocate::cut;
use crate::model::{self, ImageFormat, JobWork, LogicalVolume, Role, StorePolicy};
use crate::size::{Amount, SizeArgument, format_size};
use uuid::Uuid;
use varve_block::UnixTime;
use varve_format::check_name;
use varve_format::text::IMAGE_SECTOR;

/// The most bytes that a volume may have: addresses of 63 bits.
const VOLUME_SIZE_MAX: u64 = 1 << 63;

impl Draft<'_> {
    pub(super) fn create_volume(
        &mut self,
        identity: (String, Uuid),
        size: SizeArgument,
        (role, layout): (Role, Layout),
        policy: StorePolicy,
        (disks, created): (&DiskChoice, UnixTime),
    ) -> Result<(), PlanError> {
        let (name, id) = identity;
        self.check_new_name(&name)?;
        let mut growth = self.new_growth(&layout, id)?;
        if role == Role::Pool && !growth.layout.takes_space() {
            return Err(PlanError::Layout("a pool lies on disks"));
        }
        refuse_unfit(role, policy)?;
        let extents = self.extents_to_add(&growth, size, disks)?;
        if let model::Layout::Image { bytes, .. } = &mut growth.layout {
            *bytes = image_bytes(size.amount)?;
        }
        self.grow(&mut growth, extents, disks)?;
        self.fit_fragments(&mut growth, Some(&layout), disks)?;
        let what = kind_text(&growth, role);
        let lv = LogicalVolume {
            name,
            id,
            role,
            layout: growth.layout,
            read_only: false,
            inactive: None,
            created,
            extents,
            segments: growth.segments,
            store_policy: declared(policy),
            array_policy: None,
            store: None,
            independent_stores: Vec::new(),
        };
        let (full, size, extents) = (self.full(&lv.name), self.lv_size_text(&lv), extents_text(&lv));
        self.step(format!("create {what} {full} of {size} ({extents})"));
        if lv.store_policy.is_some() {
            self.step(policy_text(&full, role, policy));
        }
        self.description.logical_volumes.push(lv);
        Ok(())
    }

    pub(super) fn extend_volume(
        &mut self,
        name: &str,
        size: SizeArgument,
        disks: &DiskChoice,
    ) -> Result<(), PlanError> {
        let mut lv = self.lv(name)?.clone();
        if matches!(lv.layout, model::Layout::Image { .. }) {
            return self.extend_image(lv, size);
        }
        self.check_members(&lv, lv.space())?;
        let mut growth = Growth::of(lv.space());
        let more = match size.amount {
            Amount::Bytes(bytes) if !size.relative => {
                let asked = self.extents_of(self.check_bytes(bytes)?);
                let more = asked.checked_sub(lv.extents).filter(|more| *more > 0);
                more.ok_or_else(|| self.direction(&lv, bytes, "larger"))?.next_multiple_of(growth.row())
            }
            _ => self.extents_to_add(&growth, size, disks)?,
        };
        assert!(more > 0, "an extension adds something");
        let before = lv.extents;
        self.grow(&mut growth, more, disks)?;
        self.fit_fragments(&mut growth, None, disks)?;
        (lv.extents, lv.segments) = (before + more, growth.segments);
        let (full, from, to) = (self.full(name), self.size_text(before), self.size_text(lv.extents));
        self.step(format!("extend {full} from {from} to {to} (now {})", extents_text(&lv)));
        *self.lv(name)? = lv;
        Ok(())
    }

    pub(super) fn reduce_volume(&mut self, name: &str, size: u64) -> Result<(), PlanError> {
        let mut lv = self.lv(name)?.clone();
        if lv.is_pool() {
            return Err(PlanError::Layout("a pool does not shrink"));
        }
        if matches!(lv.layout, model::Layout::Image { .. }) {
            return Err(PlanError::Layout(
                "a volume in an image does not shrink: remove it, which leaves the image as it is, shrink that by \
                 qemu-img resize --shrink, and make the volume again",
            ));
        }
        if matches!(lv.layout, model::Layout::Mapper { .. }) {
            return Err(PlanError::Layout("a volume that a program maps does not shrink"));
        }
        if lv.stores().next().is_some() {
            return Err(self.has_store(name));
        }
        let row = Growth::of(lv.space()).row();
        let asked = self.extents_of(self.check_bytes(size)?).next_multiple_of(row);
        if asked >= lv.extents {
            return Err(self.direction(&lv, size, "smaller"));
        }
        let before = lv.extents;
        if lv.layout.takes_space() {
            cut(&lv.layout, &mut lv.segments, before - asked);
            assert_eq!(asked, Growth::of(lv.space()).extents(), "TEXT7");
        }
        lv.extents = asked;
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
        let (full, size) = (self.full(name), self.lv_size_text(&lv));
        self.step(match &lv.layout {
            model::Layout::Image { path, .. } => format!("remove {full} ({size}); {path} stays as it is"),
            _ if lv.is_pool() => format!("remove {full} and all volumes in it ({size})"),
            _ => format!("remove {full} and all its data ({size})"),
        });
        Ok(())
    }

    /// An image that has grown, or that grows when this is carried out.
    fn extend_image(&mut self, mut lv: LogicalVolume, size: SizeArgument) -> Result<(), PlanError> {
        let (before, asked) = (lv.size(self.extent_size()), image_bytes(size.amount)?);
        let bytes = self.check_bytes(if size.relative { before.saturating_add(asked) } else { asked })?;
        if bytes <= before {
            return Err(self.direction(&lv, bytes, "larger"));
        }
        if lv.stores().next().is_some() {
            self.check_snapshot_blocks(&lv.name, bytes)?;
        }
        let extents = self.extents_of(bytes);
        assert!(extents >= lv.extents, "TEXT21: more bytes lie in no fewer extents");
        assert!(lv.segments.is_empty(), "TEXT7: an image takes no space of its group");
        lv.extents = extents;
        let model::Layout::Image { path, bytes: known, .. } = &mut lv.layout else {
            unreachable!("only an image is extended so")
        };
        *known = bytes;
        let (full, from, to) = (self.full(&lv.name), format_size(before), format_size(bytes));
        self.step(format!("extend {full}, and the image {path}, from {from} to {to}"));
        let name = lv.name.clone();
        *self.lv(&name)? = lv;
        Ok(())
    }

    pub(super) fn set_image(
        &mut self,
        name: &str,
        to: String,
        read_as: ImageFormat,
    ) -> Result<(), PlanError> {
        let full = self.full(name);
        let model::Layout::Image { path, format, .. } = &mut self.lv(name)?.layout else {
            return Err(PlanError::Layout("only a volume in an image comes to lie in another one"));
        };
        let step = format!("let {full} lie in {to} instead of {path}");
        (*path, *format) = (to, read_as);
        assert!(self.lv(name)?.segments.is_empty(), "TEXT7: an image takes no space of its group");
        self.step(step);
        Ok(())
    }

    /// The extents of a volume before `until` were cleared.
    pub(super) fn cleared(&mut self, volume: Uuid, until: u64) -> Result<(), PlanError> {
        let lv = self.find(volume)?.clone();
        assert!(until <= lv.extents, "TEXT26: nothing is cleared behind the end of {}", lv.name);
        let mut is_cleared = true;
        if let Some(from) = clearing(&mut self.description, volume) {
            *from = until.max(*from);
            is_cleared = *from >= lv.extents; // `end_lost_clearings` ends it.
        }
        let what = if is_cleared { "all" } else { "a part" };
        self.step(format!("write down that {what} of {} is cleared", self.full(&lv.name)));
        Ok(())
    }

    /// Nothing is left to be cleared of volumes that are gone, and of those that end where their clearing is.
    pub(super) fn end_lost_clearings(&mut self) {
        let volumes = &self.description.logical_volumes;
        let is_left = |volume: Uuid, from: u64| volumes.iter().any(|lv| lv.id == volume && from < lv.extents);
        self.description.jobs.retain(|job| match job.work {
            JobWork::Clear { volume, from } => is_left(volume, from),
            _ => true,
        });
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

    pub(super) fn has_store(&self, volume: &str) -> PlanError {
        PlanError::VolumeHasStore { group: self.group_name().into(), volume: volume.into() }
    }

    fn direction(&self, lv: &LogicalVolume, asked: u64, direction: &'static str) -> PlanError {
        let now = lv.size(self.extent_size());
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

/// Bytes of an image, in whole sectors.
fn image_bytes(amount: Amount) -> Result<u64, PlanError> {
    match amount {
        Amount::Bytes(bytes) => Ok(bytes.checked_next_multiple_of(IMAGE_SECTOR).unwrap_or(u64::MAX)),
        Amount::PercentFree(_) => {
            Err(PlanError::Layout("a volume in an image takes no space of its group: give its size in bytes"))
        }
    }
}

/// What a volume or pool is, as shown to users.
fn kind_text(growth: &Growth, role: Role) -> String {
    let noun = if role == Role::Pool { "pool" } else { "volume" };
    match growth.layout {
        model::Layout::Linear if role == Role::Pool => "thin pool".to_owned(),
        model::Layout::Linear => format!("linear {noun}"),
        model::Layout::Striped { .. } => format!("striped {noun} ({} stripes)", growth.width),
        model::Layout::Zero => format!("{noun} of zeros"),
        model::Layout::Error => format!("{noun} of errors"),
        model::Layout::Image { format, .. } => format!("{noun} in a {} image", format.name()),
        model::Layout::Mapper { ref socket, .. } => format!("{noun} that a program at {socket} maps"),
        model::Layout::Mirror { .. } => format!("mirrored {noun} ({} copies)", growth.width),
        model::Layout::Ddraid { order, block_size, .. } => {
            let (members, block) = (growth.width, format_size(block_size));
            format!("ddraid {noun} (order {order}, {members} members, blocks of {block})")
        }
    }
}

/// Where a volume is, as shown to users.
fn extents_text(lv: &LogicalVolume) -> String {
    match &lv.layout {
        model::Layout::Image { path, .. } => return path.clone(),
        layout if !layout.takes_space() => return "on no disk".to_owned(),
        _ => {}
    }
    format!("{} extents: {}", lv.extents, place_text(lv.space()))
}
