//! Mirrors and ddraid on disks that no daemon holds: looked at, read, and written where something on them is made anew.
//!
//! Invariants:
//! - LOOKARRAY1. A command that only looks writes nothing: what taking an array into use writes, and what reading it mends, stays
//!   in memory.
//! - LOOKARRAY2. An array that was opened for a change is closed before its disks are released: then nothing of it is dirty.

use super::disks::Disks;
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_api::{Code, Failure, Finding, RegionRun};
use varve_block::{Device, Extent, IoError, ZeroOptions, overlay};
use varve_os::ShardContext;
use varve_target::array::{
    Array, ArrayError, ArrayOptions, ArrayStatus, MemberState, Rates, ScrubError, ScrubOptions,
};
use varve_vg::OpenGroup;
use varve_vg::activate::{array_members, array_spec, build, log_disk, members};
use varve_vg::size::format_size;
use varve_vg::table::{ArrayTarget, Table};

/// Bytes that may be made equal in memory while an array is compared.
const UNSYNCED_MAX: u64 = 256 << 20;
/// Places that are named one by one.
const NAMED_MAX: usize = 8;

/// What is at a table, and the array that it is on, if it is on one.
pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) array: Option<Rc<Array>>,
}

impl Opened {
    /// LOOKARRAY2; nothing happens to what is on no array.
    pub(super) async fn close(self) -> Result<(), Failure> {
        match self.array {
            Some(array) => array.close().await.map_err(|error| unusable(&error.into())),
            None => Ok(()),
        }
    }
}

/// An array that cannot be used.
fn unusable(error: &ArrayError) -> Failure {
    match error {
        ArrayError::MaybeStale | ArrayError::Older { .. } | ArrayError::LogUnknown => incomplete(error).help(
            "name all disks of the group; or have a daemon use the volume without them: varve lv activate VG/LV --accept-missing",
        ),
        _ => incomplete(error),
    }
}

/// A volume that cannot be opened from the disks that were named.
pub(super) fn incomplete(error: &impl ToString) -> Failure {
    Failure::new(Code::VolumeUnusable, error.to_string()).help("name all disks of the group")
}

fn unreachable_disk(error: IoError) -> Failure {
    unusable(&error.into())
}

/// What is at `table`, to be read (LOOKARRAY1).
pub(super) async fn look(context: &ShardContext, table: &Table, open: &OpenGroup) -> Result<Opened, Failure> {
    let mut disks = open.devices();
    if table.array().is_some() {
        disks.values_mut().for_each(|disk| *disk = overlay(disk.clone()));
    }
    open_on(context, table, &disks).await
}

/// What is at `table`, to be read and written; the caller closes it (LOOKARRAY2).
pub(super) async fn take(context: &ShardContext, table: &Table, open: &OpenGroup) -> Result<Opened, Failure> {
    open_on(context, table, &open.devices()).await
}

/// Something new at `table`, in extents that had no owner, to be written (LOOKARRAY2).
pub(super) async fn make(context: &ShardContext, table: &Table, open: &OpenGroup) -> Result<Opened, Failure> {
    let disks = open.devices();
    if let Some(target) = table.array() {
        let devices = members(target, &disks);
        for device in devices.iter().flatten() {
            // The log of an array that lay here before must not be taken for that of the new one.
            let log = Extent::new(0, target.metadata_size);
            device.zero(log, ZeroOptions::default()).await.map_err(unreachable_disk)?;
        }
        let members = array_members(target, devices);
        let made = Array::create(&array_spec(target), &members, &context.arena()).await;
        made.map_err(|error| unusable(&error))?;
    }
    open_on(context, table, &disks).await
}

async fn open_on(context: &ShardContext, table: &Table, disks: &Disks) -> Result<Opened, Failure> {
    let mut arrays = BTreeMap::new();
    let mut opened = None;
    if let Some(target) = table.array() {
        let array = open_array(context, target, disks).await.map_err(|error| unusable(&error))?;
        arrays.insert(target.id, array.device());
        opened = Some(array);
    }
    let device = build(table, disks, &arrays).map_err(unreachable_disk)?;
    Ok(Opened { device, array: opened })
}

async fn open_array(
    context: &ShardContext,
    target: &ArrayTarget,
    disks: &Disks,
) -> Result<Rc<Array>, ArrayError> {
    let options = ArrayOptions {
        read_policy: target.read_policy,
        log_disk: log_disk(target, disks),
        ..ArrayOptions::new(context.arena(), context.clock())
    };
    Array::open(array_spec(target), array_members(target, members(target, disks)), options).await
}

/// What is found of the array of `what`, which is at `table`: its members, its log, and whether they fit each other.
pub(super) async fn findings(
    context: &ShardContext,
    what: &str,
    table: &Table,
    open: &OpenGroup,
) -> Vec<Finding> {
    let Some(target) = table.array() else { return Vec::new() };
    let disks = open.devices();
    let is_here = members(target, &disks).iter().filter(|member| member.is_some()).count();
    let overlays: Disks = disks.into_iter().map(|(name, disk)| (name, overlay(disk))).collect();
    let array = match open_array(context, target, &overlays).await {
        Ok(array) => array,
        Err(error) => {
            // Without all of them this may be as it should be.
            let is_damage = is_here == target.members.len();
            return vec![finding(is_damage, format!("{what}: {error}"))];
        }
    };
    let status = array.status();
    let mut found = of_members(what, target, open, &status);
    found.extend(of_log(what, &status));
    found.push(compared(what, &array, &status).await);
    found
}

/// Members that do not have everything.
fn of_members(what: &str, target: &ArrayTarget, open: &OpenGroup, status: &ArrayStatus) -> Vec<Finding> {
    let behind = status.members.iter().zip(&target.members).enumerate();
    let behind = behind.filter(|(_, (member, _))| member.state != MemberState::InSync);
    let told = |(place, (member, target)): (usize, (&_, &varve_vg::table::ArrayMember))| {
        let member: &varve_target::array::MemberStatus = member;
        let disks = target.runs.iter().filter_map(|run| open.group().pv(run.pv));
        let mut disks: Vec<&str> = disks.map(|disk| open.path(disk.id).unwrap_or(&disk.path)).collect();
        disks.dedup();
        let (disks, lacks) = (disks.join(" "), format_size(member.lacks * status.region_size));
        let state = match member.state {
            MemberState::Away => "is away",
            _ => "is here and not in sync",
        };
        finding(false, format!("{what}: member {place} ({disks}) {state}; it lacks {lacks}"))
    };
    behind.map(told).collect()
}

/// What its log says: what is to be made equal, and what cannot be known.
fn of_log(what: &str, status: &ArrayStatus) -> Vec<Finding> {
    let mut found = Vec::new();
    if status.log_disk.is_some_and(|log| !log.has_log) {
        found.push(finding(false, format!("{what}: its log disk is missing; its members have the log")));
    }
    if status.unsynced > 0 && !status.is_content_lost {
        let bytes = format_size(status.unsynced * status.region_size);
        let message =
            format!("{what}: {bytes} were being written; the next start of a daemon makes them equal");
        found.push(finding(false, message));
    }
    if status.is_content_lost {
        let runs = RegionRun::runs(&status.lost_regions);
        let runs: Vec<String> = runs.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let message = format!(
            "{what}: {} were being written when a data member was lost, and answer errors until it returns: regions {}",
            format_size(status.unsynced * status.region_size),
            runs.join(", ")
        );
        found.push(finding(true, message));
    }
    found
}

/// Whether the members fit each other where anything was ever written.
async fn compared(what: &str, array: &Array, status: &ArrayStatus) -> Finding {
    let bytes = |regions: u64| regions * status.region_size;
    if bytes(status.unsynced) > UNSYNCED_MAX {
        return finding(false, format!("{what}: members not compared: too much was being written"));
    }
    if let Some(place) = status.members.iter().position(|member| member.state != MemberState::InSync) {
        return not_in_sync(what, place);
    }
    let options = ScrubOptions { rates: Rates { floor: u64::MAX, ceiling: u64::MAX }, check_only: true };
    let (report, outcome) = array.scrub(options, |_| true).await;
    let verified = format_size(report.done.saturating_sub(report.unread));
    let named: Vec<String> =
        report.named.iter().take(NAMED_MAX).map(|block| block.offset.to_string()).collect();
    match outcome {
        Err(ScrubError::Degraded { place }) => not_in_sync(what, place),
        Err(ScrubError::Stopped) => finding(false, format!("{what}: members not compared")),
        Err(ScrubError::Io(error)) => finding(true, format!("{what}: members cannot be compared: {error}")),
        Ok(()) if report.mismatches > 0 => finding(
            true,
            format!(
                "{what}: {} blocks of which the members do not fit each other, from bytes {} on; varve array scrub",
                report.mismatches,
                named.join(", ")
            ),
        ),
        Ok(()) if report.unread > 0 => {
            finding(true, format!("{what}: {} that members cannot read", format_size(report.unread)))
        }
        Ok(()) => finding(false, format!("{what}: sound; {verified} compared, all members fit")),
    }
}

fn not_in_sync(what: &str, place: usize) -> Finding {
    finding(false, format!("{what}: members not compared: member {place} is not in sync"))
}

fn finding(damage: bool, message: String) -> Finding {
    Finding { damage, structure: "array".to_owned(), message, ..Finding::default() }
}
