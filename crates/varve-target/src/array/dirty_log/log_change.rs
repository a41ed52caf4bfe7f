//! A log disk that comes, goes, returns, or is new, while the array is in use or is taken into use.

use super::super::opening::election::Found;
use super::super::opening::find::{FoundMembers, read_superblock};
use super::super::{Array, ArrayError, ArraySpec, Member, Uuid};
use super::log_disk::{clear, is_of, unfit};
use varve_block::{Device, Extent, LockMode};

impl Array {
    /// The log is on `log` from now on: a disk that is new, or that returns. One that had it before has it no more.
    pub async fn attach_log(&self, log: Member) -> Result<(), ArrayError> {
        let device = log.device.clone().ok_or(ArrayError::LogDisk("it is missing"))?;
        let _attaching = self.attaching.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.check_log(log.id, &device)?;
        let own = read_superblock(&device, self.members.count(), &self.options.arena).await?.newest;
        if !own.is_some_and(|own| is_of(&self.spec, log.id, &own)) {
            clear(&self.spec, &device).await?;
        }
        // Superblocks need not wait for a disk that hangs.
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.check_log(log.id, &device)?;
        self.publish(|| self.log_disk.replace(Some((log.id, device)), &self.members)).await?;
        match self.status().log_disk {
            Some(status) if status.id == log.id && status.has_log => Ok(()),
            _ => Err(ArrayError::LogDisk("it has failed")),
        }
    }

    /// The log is on members from now on; the array has no log disk any more.
    pub async fn detach_log(&self) -> Result<(), ArrayError> {
        let _attaching = self.attaching.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        Ok(self.publish(|| self.log_disk.replace(None, &self.members)).await?)
    }

    /// Takes the log disk out of use, as if it had failed.
    pub async fn fail_log(&self) -> Result<(), ArrayError> {
        if self.log_disk.usable().is_none() {
            return Err(ArrayError::LogDisk("it is away already"));
        }
        self.log_disk.leave();
        Ok(self.reconfigure().await?)
    }

    fn check_log(&self, id: Uuid, device: &Device) -> Result<(), ArrayError> {
        let problem = match self.log_disk.usable() {
            Some((used, _)) if used == id => Some("it has the log already"),
            _ if self.members.is_changing(id) => {
                Some("requests that took too long are still under way on it")
            }
            _ => unfit(&self.spec, device),
        };
        problem.map_or(Ok(()), |problem| Err(ArrayError::LogDisk(problem)))
    }
}

/// Clears a log disk that has never been one of this array; it is missing from now on if that fails.
pub(in crate::array) async fn prepare(spec: &ArraySpec, log: &mut Option<Member>, found: &FoundMembers) {
    let is_new = !matches!(found.log, Found::Superblock(_));
    for log in log.iter_mut().filter(|_| is_new) {
        let Some(device) = &log.device else { continue };
        if let Err(error) = clear(spec, device).await {
            tracing::warn!(array = %spec.id, log = %log.id, %error, "the log disk is left out");
            log.device = None;
        }
    }
}
