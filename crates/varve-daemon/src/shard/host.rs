//! What a volume is given of its shard: the world, the way up to the control, and the count of its clients' requests.

use super::arrays::Arrays;
use super::events::{EventSender, VolumeEvent};
use super::mappers::Mappers;
use super::movable::Moves;
use super::open_images::Images;
use crate::world::{DiskRef, World};
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::{Arena, Clock, Device, Portal, Spawner};

/// What a volume is given of its shard. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Host {
    pub(super) world: Rc<dyn World>,
    events: EventSender,
    /// Arrays in use.
    pub(crate) arrays: Rc<Arrays>,
    /// Images in which volumes lie.
    pub(super) images: Rc<Images>,
    /// Volumes in use that programs map.
    pub(crate) mappers: Rc<Mappers>,
    /// What moves between disks.
    pub(super) moves: Rc<Moves>,
    /// How many requests of clients have arrived, of all volumes.
    pub(super) requests: Rc<Cell<u64>>,
}

impl Host {
    /// The host of a shard in `world` whose volumes tell what happens through `events`.
    pub(super) fn new(world: Rc<dyn World>, events: EventSender) -> Self {
        let (arrays, images, mappers) = (Rc::default(), Rc::default(), Rc::default());
        Self { world, events, arrays, images, mappers, moves: Rc::default(), requests: Rc::default() }
    }

    /// Tells the control.
    pub(super) fn tell(&self, event: VolumeEvent) {
        self.events.send(event);
    }

    /// The number of this shard, from zero.
    pub(crate) fn index(&self) -> usize {
        self.world.index()
    }

    /// Time.
    pub(crate) fn clock(&self) -> Clock {
        self.world.clock()
    }

    /// The right to start tasks on this shard.
    pub(crate) fn spawner(&self) -> Spawner {
        self.world.spawner()
    }

    /// Memory for requests; one arena for all shards.
    pub(crate) fn arena(&self) -> Arena {
        self.world.arena()
    }

    /// A new identity.
    pub(crate) fn new_id(&self) -> Uuid {
        self.world.new_id()
    }

    /// A device on `disk`, with the shape that it has now.
    pub(crate) fn disk(&self, disk: &DiskRef) -> Device {
        self.world.device(disk)
    }

    /// The way from any thread to a device of this shard.
    pub(crate) fn portal(&self, device: &Device) -> Portal {
        self.world.portal(device)
    }

    /// A device that lives on another shard.
    pub(crate) fn import(&self, portal: &Portal) -> Device {
        self.world.import(portal)
    }
}
