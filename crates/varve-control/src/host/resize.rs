//! Physical volumes of which more or less is used.
//!
//! Invariants:
//! - PVRESIZE1. A disk is expected to be as long as its group may use it: before a change that gives the group more, and until
//!   one that gives it less has been made. What is behind may be cut off.
//! - PVRESIZE2. A disk that is opened is as long as its file or device is, until its group's text is known: its label may be behind that.

use crate::Control;
use crate::failures;
use crate::group::change::shown;
use crate::host::known_disk::why_failed;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, PhysicalVolume, PhysicalVolumeResize, Plan};
use varve_block::align_down;
use varve_format::BLOCK_SIZE;
use varve_vg::disks::identity::label_of;
use varve_vg::size::{format_size, parse_size};
use varve_vg::{Change, OpenGroup};
use varve_volume::world::DiskRef;

impl Control {
    /// Uses a disk of a group up to where its file or device ends now, or up to another place.
    pub async fn resize_disk(
        &self,
        request: PhysicalVolumeResize,
    ) -> Result<Changed<Vec<PhysicalVolume>>, Failure> {
        let (_lock, group, disk) = match self.lock_of_disk(&request.disk).await {
            Err(failure) if failure.code == Code::PhysicalVolumeNotFound => {
                return Err(self.no_member(&request.disk, failure).await);
            }
            found => found?,
        };
        let (path, file) = self.usable_disk(group, disk)?;
        let (place, looked) = (path.clone(), Arc::clone(&file));
        let look = self.at_path(&path, move |_| looked.look(&place)).await?;
        let length = align_down(look.length.unwrap_or_else(|| file.length()), BLOCK_SIZE);
        let size = match &request.size {
            Some(text) => {
                align_down(parse_size(text).map_err(|error| failures::bad_size(&error))?, BLOCK_SIZE)
            }
            None => length,
        };
        if size > length {
            let message =
                format!("{} has {}, and not {}", path.display(), format_size(length), format_size(size));
            return Err(
                Failure::new(Code::DiskTooSmall, message).help("make the file or device larger first")
            );
        }
        let before =
            self.with_group(group, |known| known.group.pv_by_id(disk).map_or(0, |disk| disk.size))?;
        if size != before {
            let words = format!("pv resize {} --size {size}B", path.display());
            let commits = self.commits(group).await;
            let planned = commits.plan(group, Change::ResizeDisk { id: disk, size }, &words)?;
            if request.dry_run {
                return Ok(Changed::Planned(shown(&planned)));
            }
            if size > before {
                self.end_disk_at((group, disk), (&path, &file), size).await?;
            }
            commits.commit(group, planned, Vec::new()).await?;
        } else if request.dry_run {
            return Ok(Changed::Planned(Plan::of_steps(Vec::new())));
        }
        if size <= before {
            self.end_disk_at((group, disk), (&path, &file), size).await?;
        }
        self.learn_label(&path, &file).await;
        self.converge(group).await;
        let mut disks = self.with_group(group, |known| self.disks_of(known))?;
        disks.retain(|shown| shown.id == disk.to_string());
        Ok(Changed::Done(disks))
    }

    /// Why a disk of no group is not resized: nothing but its label says where it ends.
    async fn no_member(&self, text: &str, failure: Failure) -> Failure {
        let Ok(path) = self.find_disk(text).await else { return failure };
        let path = path.display();
        Failure::new(Code::NotInGroup, format!("{path} is in no group"))
            .help(format!("varve pv remove {path}; varve pv create {path} labels it anew, to its end"))
    }

    /// A disk of a group that is here and in use.
    fn usable_disk(&self, group: Uuid, disk: Uuid) -> Result<(PathBuf, DiskRef), Failure> {
        let path = self.with_group(group, |known| known.path_of(disk))?;
        let disks = self.disks.known.borrow();
        let known = disks.get(Path::new(&path)).ok_or_else(|| {
            Failure::new(Code::DiskUnusable, format!("{path} is missing"))
                .help(format!("varve pv scan {path}"))
        })?;
        match why_failed(known.file.state()) {
            None => Ok((PathBuf::from(&path), Arc::clone(&known.file))),
            Some(why) => {
                Err(Failure::new(Code::DiskUnusable, format!("{path}: {why}")).help("varve pv list"))
            }
        }
    }

    /// PVRESIZE2: the disks of a group that was found end where its text says.
    pub(crate) fn end_disks(&self, open: &OpenGroup) {
        let disks = self.disks.known.borrow();
        for entry in open.group().physical_volumes() {
            let known = open.path(entry.id).and_then(|path| disks.get(Path::new(path)));
            let Some(known) = known.filter(|known| entry.size < known.file.length()) else { continue };
            if let Err(error) = known.file.end_at(entry.size) {
                tracing::warn!(path = %known.file.path().display(), %error, "it is taken for longer than its group uses it");
            }
        }
    }

    /// PVRESIZE1, for what is opened on the disk from now on.
    async fn end_disk_at(
        &self,
        (group, disk): (Uuid, Uuid),
        (path, file): (&Path, &DiskRef),
        size: u64,
    ) -> Result<(), Failure> {
        let ended = Arc::clone(file);
        let ends = self.at_path(path, move |_| ended.end_at(size)).await?;
        ends.map_err(|error| failures::open(&error))?;
        let device = self.metadata_disk(file);
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group)
            && let Some(open) = &mut known.open
        {
            open.exchange_device(disk, &device);
        }
        Ok(())
    }

    async fn learn_label(&self, path: &Path, file: &DiskRef) {
        let label = label_of(&self.metadata_disk(file), &self.context.arena()).await;
        if let Some(known) = self.disks.known.borrow_mut().get_mut(path) {
            known.label = label.or(known.label);
        }
    }
}
