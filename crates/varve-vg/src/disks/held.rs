//! What pools and snapshot stores hold by their own superblocks, compared with what a version of their group gives them.
//!
//! Nothing is written here, and what cannot be read says nothing.

use crate::activate;
use crate::model::{Group, LogicalVolume, PvName};
use crate::size::format_size;
use crate::table::{Parts, Table, store_table, table};
use std::collections::BTreeMap;
use std::fmt;
use uuid::Uuid;
use varve_block::{Arena, Buffer, Device, IoError};
use varve_format::pdata::Block;
use varve_format::{store, thin};
use varve_target::array::as_it_lies;

/// A pool, or a snapshot store of a volume, that holds more than it is given: it could not be opened, and what it holds beyond
/// would be given to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Whether it is a pool.
    pub is_pool: bool,
    /// Bytes that it has by its superblock.
    pub held: u64,
    /// Bytes that it is given.
    pub given: u64,
}

impl fmt::Display for Beyond {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_pool { "the pool" } else { "its snapshot store" };
        let (held, given) = (format_size(self.held), format_size(self.given));
        write!(form, "{what} has {held} by its own account, and would have {given} as the backup says")
    }
}

/// Whether `volume`, a pool or the stores of a volume, holds more than `group` gives it, as read from `disks`; of an array as any of its
/// members says, which need not be in use. Nothing if not enough of its disks are here.
pub async fn held_beyond(
    group: &Group,
    volume: &LogicalVolume,
    disks: &BTreeMap<PvName, Device>,
    arena: &Arena,
) -> Result<Option<Beyond>, IoError> {
    if volume.is_pool() {
        let Ok(table) = table(group, volume, Parts::All) else { return Ok(None) };
        let mut held = None;
        for device in devices(&table, disks, arena)? {
            held = held.max(pool_size(&device, volume.id, arena).await);
        }
        return Ok(beyond(true, held, table.size()));
    }
    for store in volume.stores() {
        let Ok(table) = store_table(group, volume, store) else { return Ok(None) };
        let mut held = None;
        for device in devices(&table, disks, arena)? {
            held = held.max(store_size(&device, store.id, arena).await);
        }
        let found = beyond(false, held, table.size());
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Where what is at `table` can be read.
fn devices(table: &Table, disks: &BTreeMap<PvName, Device>, arena: &Arena) -> Result<Vec<Device>, IoError> {
    match table.array() {
        Some(target) => {
            let members = activate::members(target, disks);
            Ok(as_it_lies(&activate::array_spec(target), &members, arena))
        }
        None => Ok(vec![activate::build(table, disks, &BTreeMap::new())?]),
    }
}

fn beyond(is_pool: bool, held: Option<u64>, given: u64) -> Option<Beyond> {
    let held = held.filter(|held| *held > given)?;
    Some(Beyond { is_pool, held, given })
}

/// Bytes of the pool `id` by its superblocks, if one of them is on `device` and can be read.
async fn pool_size(device: &Device, id: Uuid, arena: &Arena) -> Option<u64> {
    let mut newest: Option<thin::Superblock> = None;
    let first = Block::new(0);
    let mut addresses = vec![first];
    while let Some(address) = addresses.pop() {
        let block = read(device, address.offset(), thin::PART_SIZE, arena).await;
        let length = block.and_then(|block| thin::Superblock::slot_length(&block, address));
        let Some(length) = length else {
            // The first slot is damaged: the second is behind it, wherever that is.
            if address == first {
                let lengths = std::iter::successors(Some(1), |length| Some(length * 2));
                addresses =
                    lengths.take_while(|length| *length <= thin::SLOT_BLOCKS_MAX).map(Block::new).collect();
            }
            continue;
        };
        let slot = read(device, address.offset(), length * thin::PART_SIZE, arena).await;
        if address == first {
            addresses = vec![first + length];
        }
        let Some(found) = slot.and_then(|slot| thin::Superblock::decode(&slot, address).ok()) else {
            continue;
        };
        if found.pool == id && newest.as_ref().is_none_or(|known| known.number < found.number) {
            newest = Some(found);
        }
    }
    newest.map(|superblock| superblock.end_block.offset())
}

/// Bytes of the store `id` by its superblocks, if one of them is on `device` and can be read.
async fn store_size(device: &Device, id: Uuid, arena: &Arena) -> Option<u64> {
    let mut newest: Option<store::Superblock> = None;
    for address in store::SLOT_ADDRESSES {
        let block = read(device, address, thin::PART_SIZE, arena).await;
        let Some(found) = block.and_then(|block| store::Superblock::decode(&block, address).ok()) else {
            continue;
        };
        if found.store == id && newest.as_ref().is_none_or(|known| known.generation < found.generation) {
            newest = Some(found);
        }
    }
    newest.map(|superblock| superblock.store_size)
}

async fn read(device: &Device, offset: u64, length: u64, arena: &Arena) -> Option<Buffer> {
    let is_inside = offset.checked_add(length).is_some_and(|end| end <= device.shape().size);
    let length = usize::try_from(length).ok().filter(|_| is_inside)?;
    device.read(offset, arena.take(length)).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Role, StorePolicy};
    use crate::plan::{DiskChoice, Layout, NewDisk};
    use crate::size::SizeArgument;
    use crate::{Change, Stamp, plan, plan_group};
    use varve_block::{Extent, UnixTime};
    use varve_format::pdata::link::Link;
    use varve_format::pdata::space_page::Place;
    use varve_sim::{SimDisk, World};

    const BLOCK: u64 = thin::PART_SIZE;
    /// Where the pool is on its disk.
    const POOL_OFFSET: u64 = 1 << 20;
    /// Blocks that the group gives the pool.
    const GIVEN: u64 = 256;
    const POOL: Uuid = Uuid::from_u128(7);

    fn stamp() -> Stamp {
        Stamp { date: UnixTime(1), change: "test".into() }
    }

    /// A group whose pool has [`GIVEN`] blocks on its one disk.
    fn group() -> Group {
        let disk = NewDisk {
            id: Uuid::from_u128(2),
            size: 8 << 20,
            data_offset: POOL_OFFSET,
            path: "/dev/sd0".into(),
        };
        let empty = plan_group("data", Uuid::from_u128(1), 64 << 10, &[disk], &stamp()).expect("sound").after;
        let pool = Change::CreateVolume {
            name: "pool".into(),
            id: POOL,
            size: SizeArgument::bytes(GIVEN * BLOCK),
            role: Role::Pool,
            layout: Layout::Linear,
            policy: StorePolicy::default(),
            disks: DiskChoice::default(),
        };
        plan(&empty, pool, &stamp()).expect("there is space").after
    }

    /// Writes the superblock `number` of the pool, which says that it has `blocks`.
    fn write_superblock(disk: &SimDisk, number: u64, blocks: u64) {
        let none = Link::unpack(0);
        let superblock = thin::Superblock {
            number,
            pool: POOL,
            block_size: 64 << 10,
            slot_blocks: 1,
            log_blocks: 16,
            end_block: Block::new(blocks),
            generation: 1,
            free_blocks: 0,
            shares: none,
            volumes: none,
            head: 0,
            sequence: 1,
            next_volume: 1,
            nodes: 0,
            epoch: Default::default(),
            places: vec![Place::Never],
        };
        let mut slot = vec![0; 4096];
        let [first, _] = superblock.slots();
        superblock.encode(&mut slot, first);
        disk.poke(POOL_OFFSET + first.offset(), &slot);
    }

    fn found(world: &World, disks: &BTreeMap<PvName, Device>) -> Result<Option<Beyond>, IoError> {
        let group = group();
        world.run(held_beyond(&group, group.lv("pool").expect("it is there"), disks, &world.arena()))
    }

    #[test]
    fn the_newest_superblock_that_can_be_read_says_what_a_pool_holds() {
        let (world, disk) = (World::steady(1), SimDisk::new(8 << 20));
        let disks = BTreeMap::from([(PvName(0), disk.device(&world))]);
        assert_eq!(found(&world, &disks), Ok(None), "there is no superblock");
        write_superblock(&disk, 2, GIVEN);
        assert_eq!(found(&world, &disks), Ok(None), "it has what it is given");
        write_superblock(&disk, 3, GIVEN + 1);
        let beyond = Beyond { is_pool: true, held: (GIVEN + 1) * BLOCK, given: GIVEN * BLOCK };
        assert_eq!(found(&world, &disks), Ok(Some(beyond)));
        disk.make_unreadable(Extent::new(POOL_OFFSET, BLOCK));
        assert_eq!(found(&world, &disks), Ok(Some(beyond)), "the second slot is found without the first");
        disk.make_unreadable(Extent::new(POOL_OFFSET, 2 * BLOCK));
        assert_eq!(found(&world, &disks), Ok(None), "nothing can be read");
    }

    #[test]
    fn a_disk_that_is_not_handed_in_is_an_error_and_no_answer() {
        let world = World::steady(1);
        assert_eq!(found(&world, &BTreeMap::new()), Err(IoError::Gone));
    }
}
