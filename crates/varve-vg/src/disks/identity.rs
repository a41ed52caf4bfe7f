//! What makes a disk the one that it is: its label; and what a new label would destroy on it.
//!
//! Two paths whose disks carry one label lead to one disk or to a disk and its clone. A nonce tells: written by one path, it is found
//! by the other path of one disk, and by none of a clone.

use crate::disks::disk::{ReadProblem, read_label, read_ring, write_label};
use crate::model::Group;
use std::fmt;
use uuid::Uuid;
use varve_block::{Arena, Device, IoError};
use varve_format::{Label, RingContent};

/// The newest whole copy of a disk's label, if there is one.
pub async fn label_of(device: &Device, arena: &Arena) -> Option<Label> {
    read_label(device, arena).await.ok().map(|(label, _)| label)
}

/// The same of a disk whose label is known; an error if it cannot be read, so that it may have the label that it had.
pub async fn label_now(device: &Device, arena: &Arena) -> Result<Option<Label>, IoError> {
    match read_label(device, arena).await {
        Ok((label, _)) => Ok(Some(label)),
        Err(ReadProblem::Io(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Writes `nonce` into the label of a disk, durably. No other write of the label is under way, and none relies on the nonce: after a
/// crash a copy of the label may have the one before.
pub async fn mark(device: &Device, nonce: Uuid, arena: &Arena) -> Result<(), ReadProblem> {
    let (label, _) = read_label(device, arena).await?;
    assert_ne!(label.nonce, nonce, "a nonce is used once");
    write_label(device, &Label { nonce, ..label }, arena).await.map_err(ReadProblem::Io)
}

/// What a disk holds as a physical volume of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// The group's name.
    pub group: String,
    /// `VG/LV` of all that is there, in whole or in part.
    pub volumes: Vec<String>,
}

impl fmt::Display for Holdings {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.volumes.as_slice() {
            [] => write!(form, "group {}, no volumes", self.group),
            volumes => write!(form, "group {} with {}", self.group, volumes.join(", ")),
        }
    }
}

/// What the disk with this label holds by the newest description in its ring, if that can be read.
pub async fn holdings(device: &Device, label: &Label, arena: &Arena) -> Option<Holdings> {
    let vg = label.vg.filter(|_| label.ring.end() <= device.shape().size)?;
    let bytes = read_ring(device, label.ring, arena).await;
    let content = RingContent::find(&bytes, label.ring, vg, label.pv);
    let group = Group::from_text(&content.newest()?.slot.text).ok()?;
    let name = |volume: String| format!("{}/{volume}", group.name());
    let volumes = group.pv_by_id(label.pv).map(|pv| group.volumes_on(pv.name)).unwrap_or_default();
    Some(Holdings { group: group.name().to_owned(), volumes: volumes.into_iter().map(name).collect() })
}
