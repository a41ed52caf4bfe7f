//! What a volume is given of its shard: the world, the way up to the control, and the count of its clients' requests.

use super::copies::movable::Moves;
use super::events::{EventSender, VolumeEvent};
use super::no_answer::NoAnswer;
use crate::failures;
use crate::world::{DiskRef, Files, World};
use futures_channel::oneshot;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::{Arena, Clock, Device, Portal, Spawner};

/// What a volume is given of its shard. Cloning shares it.
#[derive(Clone)]
pub struct Host {
    pub(super) world: Rc<dyn World>,
    events: EventSender,
    /// What moves between disks.
    pub(super) moves: Rc<Moves>,
    /// How many requests of clients have arrived, of all volumes.
    pub(super) requests: Rc<Cell<u64>>,
}

impl Host {
    /// The host of a shard in `world` whose volumes tell what happens through `events`.
    pub(super) fn new(world: Rc<dyn World>, events: EventSender) -> Self {
        Self { world, events, moves: Rc::default(), requests: Rc::default() }
    }

    /// Tells the control.
    pub(super) fn tell(&self, event: VolumeEvent) {
        self.events.send(event);
    }

    /// The number of this shard, from zero.
    pub fn index(&self) -> usize {
        self.world.index()
    }

    /// Time.
    pub fn clock(&self) -> Clock {
        self.world.clock()
    }

    /// The right to start tasks on this shard.
    pub fn spawner(&self) -> Spawner {
        self.world.spawner()
    }

    /// Memory for requests; one arena for all shards.
    pub fn arena(&self) -> Arena {
        self.world.arena()
    }

    /// A new identity.
    pub fn new_id(&self) -> Uuid {
        self.world.new_id()
    }

    /// A device on `disk`, with the shape that it has now.
    pub fn disk(&self, disk: &DiskRef) -> Device {
        self.world.device(disk)
    }

    /// The way from any thread to a device of this shard.
    pub fn portal(&self, device: &Device) -> Portal {
        self.world.portal(device)
    }

    /// A device that lives on another shard.
    pub fn import(&self, portal: &Portal) -> Device {
        self.world.import(portal)
    }

    /// Does `work` on the files of the host where only what is done at `path` waits for it.
    pub async fn files_at<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&dyn Files) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (sender, answer) = oneshot::channel();
        let work = move |files: &dyn Files| {
            let _ = sender.send(work(files));
        };
        self.world.work_at(path, Box::new(work));
        answer.await.map_err(|_| failures::gone(NoAnswer::Gone))
    }

    /// Does `work` on the files of the host on a thread of its own. Its answer may never come.
    pub fn files_alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Files) -> T + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>> {
        let (sender, answer) = oneshot::channel();
        let work = move |files: &dyn Files| {
            let _ = sender.send(work(files));
        };
        self.world.work_alone(Box::new(work))?;
        Ok(answer)
    }
}
