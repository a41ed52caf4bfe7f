//! Requests that outlive a panic: their futures are dropped, and the kernel carries them out all the same.
//!
//! Invariant ABANDONED1: a volume is taken into use, and extents of a released one are given to others, only when no request
//! whose answer no task awaits any more is under way on the disks of its group.

use crate::Control;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};

/// How long a command waits for such requests.
const ABANDONED_MAX: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);

impl Control {
    /// Waits for requests under way on the group's disks whose answers no task awaits (ABANDONED1).
    pub(crate) async fn await_abandoned(&self, group: Uuid) -> Result<(), Failure> {
        let disks = self.with_group(group, |known| self.disk_files(known))?;
        let clock = self.context.clock();
        let deadline = clock.now().after(ABANDONED_MAX);
        while let Some(disk) = disks.values().find(|disk| disk.has_abandoned()) {
            if clock.now() >= deadline {
                let path = disk.path().display();
                let message = format!("requests from before the volume failed are still under way on {path}");
                return Err(Failure::new(Code::VolumeUnusable, message)
                    .help("the disk does not answer: varve pv list; then the same command again"));
            }
            clock.sleep(LOOK).await;
        }
        Ok(())
    }
}
