//! The log of an array put on a disk, on another one, or back on its members.
//!
//! Invariant LOGCHANGE1: the extents of a log are freed after the array has it on its members, so the array must be in use: it
//! alone knows whether records that count lie there. If its volume is not, that is refused with the reason why not.

use super::known_array::KnownArray;
use crate::Control;
use crate::find::LocatedVolume;
use crate::group::change::shown;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, VolumeArray};
use varve_vg::Change;
use varve_vg::model::LogicalVolume;

/// What stands for the members of an array in the place of a disk.
const MEMBERS: &str = "members";

impl KnownArray {
    /// Refuses to move the log of `name` while it is not known where the log is (LOGCHANGE1).
    fn refuse_unknown_log(&self, name: &str) -> Result<(), Failure> {
        if let Some(failure) = &self.unusable {
            return Err(failure.clone());
        }
        if self.status.is_some() {
            return Ok(());
        }
        let message = format!("{name} is not in use: whether its log is needed is not known");
        let noun = if self.volume.is_pool() { "pool" } else { "lv" };
        Err(Failure::new(Code::VolumeUnusable, message).help(format!("varve {noun} activate {name}")))
    }
}

impl Control {
    /// Puts the log of a volume's or pool's own array where `word` says: on a disk, or on its members. The caller has the lock of the
    /// group.
    pub(crate) async fn change_log(
        &self,
        (text, located): (&str, LocatedVolume),
        word: &str,
        dry_run: bool,
    ) -> Result<Changed<Vec<VolumeArray>>, Failure> {
        let (group, volume) = (located.group, located.volume.id);
        let log = match word {
            MEMBERS => None,
            disk => Some((self.disk_called(group, disk).await?, self.new_id())),
        };
        let commits = self.commits(group).await;
        let (_, entry) = self.entry_of(volume)?; // As the group says it is now.
        let (name, title) = (entry.name.clone(), format!("array change {text} --log {word}"));
        let planned = commits.plan(group, Change::SetLog { volume: name, log }, &title)?;
        if dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        self.refuse_if_busy(volume)?;
        let own = self.arrays_of(group, |known| known.id == volume).await?;
        self.detach_logs(own.iter().filter(|array| array.store.is_none())).await?;
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.converge(group).await;
        self.show_arrays(text).await.map(Changed::Done)
    }

    /// LOGCHANGE1: what is meant and has its log on `disk` has it no more.
    pub(crate) async fn detach_logs_on(
        &self,
        group: Uuid,
        disk: Uuid,
        is_meant: impl Fn(&LogicalVolume) -> bool,
    ) -> Result<(), Failure> {
        let arrays = self.logs_on(group, disk, is_meant).await?;
        self.detach_logs(arrays.iter()).await
    }

    /// The arrays of volumes that are meant whose log is on `disk`.
    pub(crate) async fn logs_on(
        &self,
        group: Uuid,
        disk: Uuid,
        is_meant: impl Fn(&LogicalVolume) -> bool,
    ) -> Result<Vec<KnownArray>, Failure> {
        let name = self.with_group(group, |known| known.group.pv_by_id(disk).map(|disk| disk.name))?;
        let mut arrays = self.arrays_of(group, is_meant).await?;
        arrays.retain(|array| array.log_disk().is_some() && array.log_disk() == name);
        Ok(arrays)
    }

    async fn detach_logs(&self, arrays: impl Iterator<Item = &KnownArray>) -> Result<(), Failure> {
        for array in arrays {
            array.refuse_unknown_log(&self.subject(array.volume.id))?;
            let (Some(home), id) = (&array.home, array.id) else { continue };
            self.answered(array.volume.id, home.array(id).detach_log().await)?;
        }
        Ok(())
    }

    /// Takes the log disk of these arrays out of use, as if it had failed, until it is named again.
    pub(crate) async fn withdraw_logs(&self, arrays: &[KnownArray]) -> Result<(), Failure> {
        for array in arrays {
            array.refuse_unknown_log(&self.subject(array.volume.id))?;
            let (Some(home), id) = (&array.home, array.id) else { continue };
            self.answered(array.volume.id, home.array(id).withdraw_log().await)?;
        }
        Ok(())
    }
}
