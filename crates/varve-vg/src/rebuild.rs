//! A group from a backup, when no disk holds a whole description any more.
//!
//! Invariant REBUILD1: a disk is touched only if its label says that it belongs to the group, it is one of the backup's disks
//! as they were, and its ring holds no whole description of the group. A label that is lost is made again: from what the disk says of itself, if
//! that is no newer than the backup, else by the backup (RELABEL3 of `relabel.rs`).

use crate::disks::disk::{self, Disk, ReadProblem};
use crate::disks::free_disk::FreeDisk;
use crate::disks::relabel::{Absolute, find_by_group, find_label};
use crate::model::{Description, Group, TextError};
use crate::open::{CommitError, OpenGroup};
use crate::plan::{Stamp, drop_under_way};
use uuid::Uuid;
use varve_block::Arena;
use varve_format::{Label, LabelError, version_of};

/// Why a group cannot be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// The backup makes no sense.
    #[error("the backup cannot be used: {0}")]
    Backup(TextError),
    /// A disk cannot be read.
    #[error("{0}: {1}")]
    Disk(String, ReadProblem),
    /// A disk is not one of the backup's.
    #[error("{0} is not a disk of the backup, or has another size")]
    OtherDisk(String),
    /// A disk of the backup is not here.
    #[error("the backup's disk {path} ({id}) is not here")]
    Missing {
        /// What its label says.
        id: Uuid,
        /// Where it was.
        path: String,
    },
    /// A disk says nothing of itself, and several of the backup's disks may be it.
    #[error("{0} has no label, and which disk of the backup it is cannot be told by its size or path")]
    Unknown(String),
    /// A disk holds a description that is newer than the backup, or that is in use: the group is not lost.
    #[error("{0} holds a whole description of the group")]
    NotLost(String),
    /// Writing failed.
    #[error(transparent)]
    Commit(CommitError),
}

/// Writes `backup` to all of its disks, as the version that follows it.
pub async fn rebuild(
    backup: Description,
    disks: Vec<Disk>,
    absolute: Absolute,
    stamp: &Stamp,
    arena: Arena,
) -> Result<OpenGroup, RebuildError> {
    let free = lost_disks(&backup, disks, absolute, &arena).await?;
    let (sequence, id) = (backup.group.sequence, backup.group.id);
    let text = Group::new(backup.clone()).map_err(RebuildError::Backup)?.text();
    let mut next = backup;
    next.group.sequence = sequence + 1;
    next.group.changed = stamp.date;
    next.group.change.clone_from(&stamp.change);
    drop_under_way(&mut next); // UNDERWAY1
    for pv in &mut next.physical_volumes {
        pv.missing = false;
    }
    assert!(
        free.iter().all(|free| next.physical_volumes.iter().any(|pv| pv.id == free.label.pv)),
        "REBUILD1"
    );
    let next = Group::new(next).map_err(RebuildError::Backup)?;
    let previous = version_of(id, sequence, None, &text);
    OpenGroup::found(next, Some(previous), free, arena).await.map_err(RebuildError::Commit)
}

/// The disks of `backup`, if it can be written to them. Writes nothing.
pub async fn lost_disks(
    backup: &Description,
    disks: Vec<Disk>,
    absolute: Absolute,
    arena: &Arena,
) -> Result<Vec<FreeDisk>, RebuildError> {
    backup.check().map_err(RebuildError::Backup)?;
    let (mut free, mut unknown) = (Vec::with_capacity(disks.len()), Vec::new());
    for disk in disks {
        match lost_disk(backup, disk.clone(), arena).await? {
            Some(found) => free.push(found),
            None => unknown.push(disk),
        }
    }
    let is_here = |id: Uuid| free.iter().any(|free: &FreeDisk| free.label.pv == id);
    let entries = backup.physical_volumes.iter().map(|pv| pv.id);
    let missing: Vec<Uuid> = entries.filter(|id| !is_here(*id)).collect();
    let found = find_by_group(backup, &missing, (&unknown, absolute), |_| None);
    for (place, disk) in unknown.into_iter().enumerate() {
        let of = found.iter().find(|(of, _)| *of == place);
        let Some((_, found)) = of else {
            return Err(RebuildError::Unknown(disk.path));
        };
        free.push(FreeDisk { disk, label: Label { vg: None, ..found.label } });
    }
    let here = |id: Uuid| free.iter().any(|free| free.label.pv == id);
    match backup.physical_volumes.iter().find(|pv| !here(pv.id)) {
        Some(pv) => Err(RebuildError::Missing { id: pv.id, path: pv.path.clone() }),
        None => Ok(free),
    }
}

/// REBUILD1. Nothing if the disk says nothing of itself.
async fn lost_disk(
    backup: &Description,
    disk: Disk,
    arena: &Arena,
) -> Result<Option<FreeDisk>, RebuildError> {
    let path = disk.path.clone();
    let (label, is_lost) = match disk::read(disk.clone(), arena).await {
        Ok(reading) if reading.find(backup.group.id).newest().is_some() => (reading.label, false),
        Ok(reading) => match find_label(&disk.device, arena).await {
            Ok(Some(found)) => (reading.label, found.sequence <= backup.group.sequence),
            _ => (reading.label, true),
        },
        Err(ReadProblem::NoLabel | ReadProblem::Label(LabelError::Absent | LabelError::Checksum)) => {
            match find_label(&disk.device, arena).await {
                Ok(Some(found)) => (found.label, found.sequence <= backup.group.sequence),
                _ => return Ok(None),
            }
        }
        Err(problem) => return Err(RebuildError::Disk(path, problem)),
    };
    let same = backup
        .physical_volumes
        .iter()
        .any(|pv| (pv.id, pv.size, pv.data_offset) == (label.pv, label.size, label.data_offset));
    if !same || label.vg != Some(backup.group.id) {
        return Err(RebuildError::OtherDisk(path));
    }
    if !is_lost {
        return Err(RebuildError::NotLost(path));
    }
    Ok(Some(FreeDisk { disk, label: Label { vg: None, ..label } }))
}
