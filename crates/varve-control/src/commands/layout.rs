//! The layout that a request asks for, the disks that it names, and how an array is shown.

use crate::Control;
use crate::failures;
use crate::group::known_group::KnownGroup;
use crate::status::watch::Watch;
use std::path::Path;
use uuid::Uuid;
use varve_api::{
    Array, ArrayLog, ArrayMember, Code, Convert, Failure, Layout as ShownLayout, MemberState, PoolCreate,
    ReadPolicy, RegionRun, VolumeCreate, VolumeImage, VolumeState,
};
use varve_block::KIB;
use varve_target::array::{self, ArrayStatus};
use varve_vg::model::{self, ImageFormat, PvName, Space};
use varve_vg::plan::{DiskChoice, Layout, Sectors};
use varve_vg::size::parse_size;

/// What a request says of a layout.
pub(crate) struct LayoutWords<'a> {
    layout: ShownLayout,
    stripes: Option<u32>,
    stripe_size: Option<&'a str>,
    copies: Option<u32>,
    order: Option<u32>,
    block_size: Option<&'a str>,
    read_policy: Option<ReadPolicy>,
    checksums: bool,
}

macro_rules! words_of {
    ($request:ty) => {
        impl<'a> From<&'a $request> for LayoutWords<'a> {
            fn from(request: &'a $request) -> Self {
                Self {
                    layout: request.layout.unwrap_or(ShownLayout::Linear),
                    stripes: request.stripes,
                    stripe_size: request.stripe_size.as_deref(),
                    copies: request.copies,
                    order: request.order,
                    block_size: request.array_block_size.as_deref(),
                    read_policy: request.read_policy,
                    checksums: request.checksums,
                }
            }
        }
    };
}

words_of!(VolumeCreate);
words_of!(PoolCreate);
words_of!(Convert);

/// The layout that a request asks for.
pub(crate) fn layout<'a>(words: impl Into<LayoutWords<'a>>) -> Result<Layout, Failure> {
    let words = words.into();
    let size = |text: &str| parse_size(text).map_err(|error| failures::bad_size(&error));
    let number = |number: Option<u32>, message: &str, help: &str| {
        number.ok_or_else(|| Failure::new(Code::Usage, message).help(help))
    };
    let read_policy = words.read_policy.map(|policy| match policy {
        ReadPolicy::Data => model::ReadPolicy::Data,
        ReadPolicy::Rotate => model::ReadPolicy::Rotate,
        ReadPolicy::Verify => model::ReadPolicy::Verify,
    });
    let checksums = words.checksums;
    match words.layout {
        ShownLayout::Linear => Ok(Layout::Linear),
        ShownLayout::Zero => Ok(Layout::Zero),
        ShownLayout::Error => Ok(Layout::Error),
        ShownLayout::Striped => {
            let stripes =
                number(words.stripes, "a striped volume needs a number of stripes", "add --stripes N")?;
            let stripe_size = words.stripe_size.map_or(Ok(64 * KIB), size)?;
            let stripes = usize::try_from(stripes).expect("32 bits fit");
            Ok(Layout::Striped { stripes, stripe_size })
        }
        ShownLayout::Mirror => {
            let copies = number(words.copies, "a mirror needs a number of copies", "add --copies N, 2 to 8")?;
            let copies = usize::try_from(copies).expect("32 bits fit");
            Ok(Layout::Mirror { copies, read_policy, checksums })
        }
        ShownLayout::Ddraid => {
            let order = number(
                words.order,
                "ddraid needs an order",
                "add --order K, 1 to 3: 2^K disks and one more",
            )?;
            let block_size = words.block_size.map(size).transpose()?;
            Ok(Layout::Ddraid { order, block_size, read_policy, checksums })
        }
        ShownLayout::Image => {
            Err(Failure::new(Code::Usage, "a volume in an image names it").help("--image FILE"))
        }
        ShownLayout::Mapper => Err(Failure::new(Code::Usage, "only a new volume is mapped by a program")
            .help("varve lv create --mapper")),
        ShownLayout::Thin => {
            Err(Failure::new(Code::Usage, "a thin volume lies in a pool").help("add --pool POOL"))
        }
    }
}

/// The image in which a volume is.
pub(crate) fn shown_image(layout: &model::Layout, watch: &Watch) -> Option<VolumeImage> {
    match layout {
        model::Layout::Image { path, format, bytes } => {
            // How large the disk in a qcow2 image is, its length does not say.
            let is_raw = *format == ImageFormat::Raw;
            let grown_to = is_raw.then(|| watch.grown_beyond(Path::new(path), *bytes)).flatten();
            Some(VolumeImage { path: path.clone(), format: format.name().to_owned(), grown_to })
        }
        _ => None,
    }
}

impl Control {
    /// The disks of `group` that `on` names, each by its path, identity or name in the group; and the sectors of all.
    pub(crate) async fn disk_choice(&self, group: Uuid, on: &[String]) -> Result<DiskChoice, Failure> {
        let mut chosen = Vec::with_capacity(on.len());
        for text in on {
            chosen.push(self.disk_called(group, text).await?);
        }
        let disks = self.with_group(group, |known| self.disk_files(known))?;
        let sectors = disks.iter().map(|(name, file)| {
            let shape = file.shape();
            (*name, Sectors { logical: shape.block_size.into(), physical: shape.optimal_size.into() })
        });
        Ok(DiskChoice { on: chosen, sectors: sectors.collect(), log: None })
    }

    /// As [`Control::disk_choice`], and the disk that is to have the log of an array.
    pub(crate) async fn array_choice(
        &self,
        group: Uuid,
        on: &[String],
        log: Option<&str>,
    ) -> Result<DiskChoice, Failure> {
        let log = match log {
            Some(text) => Some(self.disk_called(group, text).await?),
            None => None,
        };
        Ok(DiskChoice { log, ..self.disk_choice(group, on).await? })
    }

    pub(crate) async fn disk_called(&self, group: Uuid, text: &str) -> Result<PvName, Failure> {
        let id = self.member(group, &self.known_path(text).await)?;
        self.with_group(group, |known| {
            let disk = known.group.pv_by_id(id).filter(|_| known.paths.contains_key(&id));
            disk.map(|disk| disk.name).ok_or_else(|| {
                Failure::new(Code::GroupIncomplete, format!("the disk {text} is missing")).help(format!(
                    "bring it back and varve pv scan PATH; varve vg show {}",
                    known.group.name()
                ))
            })
        })?
    }
}

/// The members of what is in `space`, a volume's or that of a store of it, if it is an array.
pub(crate) fn shown_array(
    known: &KnownGroup,
    volume: &model::LogicalVolume,
    space: Space<'_>,
    status: Option<&ArrayStatus>,
) -> Option<Array> {
    let (layout, order, block_size, read_policy) = match *space.layout {
        model::Layout::Mirror { read_policy, .. } => (ShownLayout::Mirror, None, None, read_policy),
        model::Layout::Ddraid { order, block_size, read_policy, .. } => {
            (ShownLayout::Ddraid, Some(order), Some(block_size), read_policy)
        }
        _ => return None,
    };
    let member = |(index, member): (usize, &model::Member)| {
        let mut disks: Vec<String> = Vec::new();
        for disk in space.areas_of_member(index).filter_map(|area| known.group.pv(area.pv)) {
            let path = known.path_of(disk.id);
            if !disks.contains(&path) {
                disks.push(path);
            }
        }
        let missing = known.group.is_member_missing(space, index);
        let status = status.and_then(|status| Some((status.region_size, status.members.get(index)?)));
        let (region_size, status) = status.unzip();
        ArrayMember {
            id: member.id.to_string(),
            disks,
            missing,
            state: status.map_or(MemberState::Unknown, |status| shown_state(status.state)),
            behind: status.map_or(0, |status| status.lacks) * region_size.unwrap_or(0),
            errors: status.map_or(0, |status| status.errors),
            healed: status.map_or(0, |status| status.healed),
            wrong: status.map_or(0, |status| status.wrong),
        }
    };
    let members = space.layout.members().iter().enumerate().map(member).collect();
    let read_policy = match read_policy {
        model::ReadPolicy::Data => ReadPolicy::Data,
        model::ReadPolicy::Rotate => ReadPolicy::Rotate,
        model::ReadPolicy::Verify => ReadPolicy::Verify,
    };
    let bytes =
        |regions: fn(&ArrayStatus) -> u64| status.map_or(0, |status| regions(status) * status.region_size);
    let lost = |status: &ArrayStatus| if status.is_content_lost { status.unsynced } else { 0 };
    let rate = status.filter(|status| status.left() > 0).and_then(|status| status.rate);
    let policy = volume.array_policy.unwrap_or_default();
    Some(Array {
        layout,
        order,
        block_size,
        read_policy,
        slow_after_ms: policy.slow_after_ms,
        resync_rate_min: policy.resync_rate_min,
        resync_rate_max: policy.resync_rate_max,
        release_after_ms: policy.release_after_ms,
        checksums: space.layout.has_checksums(),
        members,
        log: shown_log(known, space, status),
        dirty: bytes(|status| status.dirty),
        unsynced: bytes(|status| status.unsynced),
        lost: bytes(lost),
        lost_regions: status.map_or_else(Vec::new, |status| RegionRun::runs(&status.lost_regions)),
        region_size: status.map_or(0, |status| status.region_size),
        mismatches: status.map_or(0, |status| status.mismatches),
        rate,
        seconds_left: rate.zip(status).map(|(rate, status)| status.left().div_ceil(rate)),
        scrub: None,
    })
}

/// The disk that has the log of what is in `space`, if its members do not.
fn shown_log(known: &KnownGroup, space: Space<'_>, status: Option<&ArrayStatus>) -> Option<ArrayLog> {
    let log = space.layout.log()?;
    let disk = known.group.pv(log.area.pv);
    let path = disk.map(|disk| known.path_of(disk.id));
    let status = status.and_then(|status| status.log_disk).filter(|status| status.id == log.id);
    Some(ArrayLog {
        id: log.id.to_string(),
        disk: path.unwrap_or_else(|| log.area.pv.to_string()),
        missing: known.group.is_log_missing(space),
        in_use: status.is_some_and(|status| status.has_log),
        errors: status.map_or(0, |status| status.errors),
    })
}

fn shown_state(state: array::MemberState) -> MemberState {
    match state {
        array::MemberState::InSync => MemberState::InSync,
        array::MemberState::Away => MemberState::Away,
        array::MemberState::CatchingUp => MemberState::CatchingUp,
    }
}

/// The state of a volume or pool whose array, or that of its snapshot store, does so: a sound one may be degraded, or have too few
/// members.
pub(crate) fn state_with_array(
    state: (VolumeState, Option<String>),
    (whose, array): (&str, Option<&ArrayStatus>),
) -> (VolumeState, Option<String>) {
    let (VolumeState::Active, Some(array)) = (state.0, array) else { return state };
    if array.failure.is_some() {
        let remedy = "varve pv scan opens it anew when they are back";
        return (VolumeState::Failing, Some(format!("too many members of {whose} have failed: {remedy}")));
    }
    let count = |wanted| array.members.iter().filter(|member| member.state == wanted).count();
    let (away, catching_up) = (count(array::MemberState::Away), count(array::MemberState::CatchingUp));
    let words = |number: usize, what: &str| (number > 0).then(|| format!("{number} {what}"));
    let parts: Vec<String> = [
        words(away, "away"),
        words(catching_up, "catching up"),
        array.is_content_lost.then(|| "some content cannot be read".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !parts.is_empty() {
        return (VolumeState::Degraded, Some(format!("members of {whose}: {}", parts.join(", "))));
    }
    match array.log_disk {
        Some(log) if !log.has_log => {
            let reason = format!("the log disk of {whose} is away: its members have the log");
            (VolumeState::Degraded, Some(reason))
        }
        _ => state,
    }
}
