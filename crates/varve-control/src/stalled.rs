//! Disks that do not answer: shown as such while it lasts, with an event when it begins and one when it ends.

use super::Control;
use super::limited::LIMIT;
use futures_channel::oneshot;
use futures_util::future::select;
use std::time::Duration;
use varve_block::Device;
use varve_volume::world::DiskRef;

/// How often that is looked at for events.
const LOOK: Duration = Duration::from_secs(1);
/// What lists say of it.
pub(super) const STALLED: &str =
    "its requests wait and none is answered; its volumes go on when it answers again";

impl Control {
    /// Does `work` again and again, until what it answers with is dropped.
    pub(super) fn repeat(&self, work: impl AsyncFn(&Self) + 'static) -> oneshot::Sender<()> {
        let (sender, mut stopped) = oneshot::channel();
        let clock = self.context.clock();
        let me = self.weak();
        self.context.spawner().spawn(async move {
            loop {
                select(&mut stopped, clock.sleep(LOOK)).await;
                match (stopped.try_recv(), me.upgrade()) {
                    (Ok(None), Some(control)) => work(&control).await,
                    _ => return,
                }
            }
        });
        sender
    }

    /// A device on `file` for the metadata of its group (LIMIT1 of `limited.rs`).
    pub(super) fn metadata_disk(&self, file: &DiskRef) -> Device {
        let (me, path) = (self.weak(), file.path().display().to_string());
        let tell = move |is_overdue: bool| {
            let Some(control) = me.upgrade() else { return };
            if is_overdue {
                let limit = LIMIT.as_secs();
                let words =
                    format!("no request for its metadata was answered within {limit} s: it counts as failed");
                control.warn(&path, &words);
            } else {
                control.event(&path, "late requests have ended: varve pv scan takes it back");
            }
        };
        let world = (self.context.clock(), self.context.spawner());
        self.limits.put_on(file, self.context.disk(file), world, tell)
    }

    pub(super) fn tell_of_stalled_disks(&self) {
        let disks = self.disks.borrow();
        let mut told = self.stalled.borrow_mut();
        for (path, known) in &*disks {
            let name = path.display().to_string();
            if known.is_stalled() && told.insert(path.clone()) {
                self.warn(&name, "the disk does not answer: what is on it waits");
            } else if !known.is_stalled() && told.remove(path) {
                self.event(&name, "the disk answers again");
            }
        }
        told.retain(|path| disks.contains_key(path));
    }
}
