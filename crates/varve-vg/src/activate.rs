//! From a table to a device: linear and striped targets over the disks, under a switch that can be turned.
//!
//! Invariant ACTIVATE1: a device that was built for a table has the table's size, and is read-only if the table says so.

use crate::model::PvName;
use crate::table::{ArrayMember, ArrayTarget, Line, Run, Table, Target};
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_block::{Device, IoError, Switch, read_only};
use varve_target::array::{ArraySpec, Member};
use varve_target::{ErrorTarget, Linear, Striped, ZeroTarget};

/// A volume in use. Doors use `switch.device()`; a change of its layout turns the switch while requests wait.
#[derive(Clone)]
pub struct ActiveVolume {
    /// The top of the volume.
    pub switch: Switch,
}

impl ActiveVolume {
    /// Leads the volume to `device` (a new table, or the old one under a snapshot target) from one request to the
    /// next: those under way are waited for, new ones wait.
    pub async fn turn(&self, device: Device) {
        let suspended = self.switch.suspend().await;
        suspended.replace(device);
    }
}

/// The devices of the members of an array on `disks`, in their order; none of one of which a disk is missing.
pub fn members(array: &ArrayTarget, disks: &BTreeMap<PvName, Device>) -> Vec<Option<Device>> {
    array.members.iter().map(|member| device(member, disks)).collect()
}

fn device(member: &ArrayMember, disks: &BTreeMap<PvName, Device>) -> Option<Device> {
    let run = |run: &Run| Some((run.length, disks.get(&run.pv)?.clone(), run.offset));
    let runs: Option<Vec<_>> = member.runs.iter().map(run).collect();
    let runs = runs.filter(|_| !member.is_missing)?;
    Some(Device::new(Linear::new(runs)))
}

/// The disk that has the log of an array, if its members do not; without a device if it is missing.
pub fn log_disk(array: &ArrayTarget, disks: &BTreeMap<PvName, Device>) -> Option<Member> {
    let log = array.log.as_ref()?;
    Some(Member { id: log.id, device: device(log, disks) })
}

/// What the array at `target` is.
pub fn array_spec(target: &ArrayTarget) -> ArraySpec {
    let ArrayTarget { superblock_id: id, layout, metadata_size, checksums, .. } = *target;
    ArraySpec { id, layout, size: target.size(), metadata_size, checksums }
}

/// The members of the array at `target`, on `devices`.
pub fn array_members(target: &ArrayTarget, devices: Vec<Option<Device>>) -> Vec<Member> {
    target.members.iter().zip(devices).map(|(member, device)| Member { id: member.id, device }).collect()
}

/// The device of `table`. Arrays, images and what programs map are opened before, and found in `opened` by their ids.
/// [`IoError::Gone`] if a disk or one of these is not there.
pub fn build(
    table: &Table,
    disks: &BTreeMap<PvName, Device>,
    opened: &BTreeMap<Uuid, Device>,
) -> Result<Device, IoError> {
    let disk = |pv: &PvName| disks.get(pv).cloned().ok_or(IoError::Gone);
    let block_size = disks.values().map(|device| device.shape().block_size).max().unwrap_or(512);
    let mut segments = Vec::with_capacity(table.lines.len());
    for Line { length, target, .. } in &table.lines {
        let (device, offset) = match target {
            Target::Linear { pv, offset } => (disk(pv)?, *offset),
            Target::Striped { stripe_size, members } => {
                assert!(
                    length.is_multiple_of(members.len() as u64 * stripe_size),
                    "TEXT6: whole rows of stripes"
                );
                let length = length / members.len() as u64;
                let members = members.iter().map(|(pv, offset)| Ok((disk(pv)?, *offset)));
                let members = members.collect::<Result<_, IoError>>()?;
                (Device::new(Striped::new(members, *stripe_size, length)), 0)
            }
            Target::Array(array) => (opened.get(&array.id).cloned().ok_or(IoError::Gone)?, 0),
            Target::Image(image) => (opened.get(&image.id).cloned().ok_or(IoError::Gone)?, 0),
            Target::Mapper(mapper) => (opened.get(&mapper.id).cloned().ok_or(IoError::Gone)?, 0),
            Target::Zero => (Device::new(ZeroTarget::new(*length, block_size)), 0),
            Target::Error => (Device::new(ErrorTarget::empty(*length, block_size, IoError::Medium)), 0),
            Target::Missing => (Device::new(ErrorTarget::new(*length, block_size, IoError::Gone)), 0),
        };
        segments.push((*length, device, offset));
    }
    let size: u64 = table.lines.iter().map(|line| line.length).sum();
    let device = match segments.as_slice() {
        [(length, device, 0)] if device.shape().size == *length => device.clone(),
        _ => Device::new(Linear::new(segments)),
    };
    assert_eq!(device.shape().size, size, "ACTIVATE1");
    Ok(if table.read_only { read_only(device) } else { device })
}
