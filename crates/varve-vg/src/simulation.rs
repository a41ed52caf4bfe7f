//! Groups on simulated disks that crash, go missing, come back and turn out to be old.

mod arrays;
mod commits;
mod disks;
mod membership;
mod numbers;
mod rebuilding;
mod resizing;
mod tails;

use crate::disks::disk::write_label;
use crate::model::{Group, LogicalVolume};
use crate::{Disk, FreeDisk, OpenGroup, Plan, Stamp, TAIL_SIZE, plan_group};
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_block::{Extent, UnixTime};
use varve_format::{BLOCK_SIZE, Label, RING_BLOCKS_MIN};
use varve_sim::{SimDisk, World};

/// Bytes of an extent.
const EXTENT: u64 = 64 << 10;
/// Extents of a disk.
const EXTENTS: u64 = 24;
/// A ring so short that histories wrap around in it.
const RING: Extent = Extent::new(64 << 10, RING_BLOCKS_MIN * BLOCK_SIZE);

/// The group.
const GROUP: Uuid = Uuid::from_u128(1);

/// Some disks in a simulated world.
struct Lab {
    world: World,
    disks: Vec<SimDisk>,
}

impl Lab {
    fn new(world: World, count: usize) -> Self {
        let disks = (0..count).map(|_| SimDisk::new(RING.end() + EXTENTS * EXTENT + TAIL_SIZE)).collect();
        Lab { world, disks }
    }

    /// Handles to the disks with these numbers, made anew for each boot.
    fn boot(&self, numbers: &BTreeSet<usize>) -> Vec<Disk> {
        numbers.iter().map(|number| self.disk(*number)).collect()
    }

    fn disk(&self, number: usize) -> Disk {
        Disk { path: format!("/dev/sd{number}"), device: self.disks[number].device(&self.world) }
    }

    fn all(&self) -> BTreeSet<usize> {
        (0..self.disks.len()).collect()
    }

    /// Labels the disk with this number as a physical volume with a short ring.
    async fn label(&self, number: usize) -> FreeDisk {
        self.label_with(number, self.disk(number).device.shape().size).await
    }

    /// Labels it as one of which `size` bytes are managed.
    async fn label_with(&self, number: usize, size: u64) -> FreeDisk {
        let disk = self.disk(number);
        let label = Label {
            generation: 1,
            pv: pv_id(number),
            vg: None,
            size,
            ring: RING,
            data_offset: RING.end(),
            created: UnixTime(1),
            nonce: Uuid::nil(),
        };
        write_label(&disk.device, &label, &self.world.arena()).await.expect("no faults");
        FreeDisk { disk, label }
    }

    async fn free_disks(&self, numbers: &BTreeSet<usize>) -> Vec<FreeDisk> {
        let mut free = Vec::new();
        for number in numbers {
            free.push(self.label(*number).await);
        }
        free
    }

    /// Makes a group of all disks.
    async fn create(&self) -> OpenGroup {
        let free = self.free_disks(&self.all()).await;
        OpenGroup::create(group_plan(&free), free, self.world.arena()).await.expect("no faults")
    }
}

fn pv_id(number: usize) -> Uuid {
    Uuid::from_u128(0x1000 + number as u128)
}

fn number_of(id: Uuid) -> usize {
    usize::try_from(id.as_u128() - 0x1000).expect("an id of this laboratory")
}

fn group_plan(free: &[FreeDisk]) -> Plan {
    let disks: Vec<_> = free.iter().map(FreeDisk::as_new_disk).collect();
    plan_group("data", GROUP, EXTENT, &disks, &stamp("vg create data")).expect("a sound group")
}

fn stamp(change: &str) -> Stamp {
    Stamp { date: UnixTime(1_750_000_000), change: change.into() }
}

/// What must survive: volumes, name and disks; not which disks are missing, nor the version's number and date.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    name: String,
    disks: Vec<Uuid>,
    volumes: Vec<LogicalVolume>,
}

fn content(group: &Group) -> Content {
    Content {
        name: group.name().into(),
        disks: group.physical_volumes().iter().map(|pv| pv.id).collect(),
        volumes: group.logical_volumes().to_vec(),
    }
}
