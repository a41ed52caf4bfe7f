//! The six defects of ddraid as it was shipped in 2005, each as a test: none of them may be here.

use super::rig;
use futures_util::future::{Either, join_all, select};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Arena, Bytes, Device, Durability, Extent, IoError, MIB};
use varve_format::array::{Change, Epoch, Record, Superblock};
use varve_sim::{CrashKind, Holder, Holds, SimDisk, World};
use varve_target::array::{Array, ArrayLayout, ArrayOptions, ArraySpec, METADATA_SIZE_MIN};

const BLOCK: u64 = 4096;
const FRAGMENT: usize = 2048;
const LAYOUT: ArrayLayout = ArrayLayout::Ddraid { order: 1, block_size: BLOCK };
/// More regions than the ring, of 224 blocks, has records.
const REGIONS: u64 = 600;

struct Rig {
    world: World,
    spec: ArraySpec,
    disks: Vec<SimDisk>,
}

impl Rig {
    fn new(size: u64) -> Self {
        let world = World::new(1);
        let spec = rig::spec(LAYOUT, size, METADATA_SIZE_MIN);
        let disks = (0..3).map(|_| SimDisk::new(METADATA_SIZE_MIN + size)).collect();
        let rig = Self { world, spec, disks };
        let members = rig::members(rig.devices());
        rig.world.run(Array::create(&rig.spec, &members, &rig.world.arena())).expect("made");
        rig
    }

    fn devices(&self) -> Vec<Device> {
        self.disks.iter().map(|disk| disk.device(&self.world)).collect()
    }

    async fn open(&self, devices: Vec<Device>) -> Rc<Array> {
        let options = ArrayOptions::new(self.world.arena(), self.world.clock());
        rig::open(&self.world, self.spec, rig::members(devices), options).await.expect("all are there")
    }

    fn data(&self, byte: u8) -> Bytes {
        self.world.arena().copy(&[byte; BLOCK as usize])
    }

    /// The first fragment that member `place` has.
    fn fragment(&self, place: usize) -> Vec<u8> {
        self.disks[place].peek(Extent::new(METADATA_SIZE_MIN, FRAGMENT as u64))
    }

    async fn until_whole(&self, array: &Array) {
        while !array.status().is_whole() {
            self.world.clock().sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A block whose two fragments differ.
fn halves(rig: &Rig) -> Bytes {
    let mut block = [0x0f; BLOCK as usize];
    block[FRAGMENT..].fill(0xf5);
    rig.world.arena().copy(&block)
}

#[test]
fn parity_is_written_and_checked_and_the_log_is_written_with_usual_options() {
    let rig = Rig::new(8 * MIB);
    rig.world.run(async {
        let array = rig.open(rig.devices()).await;
        array.device().write(0, halves(&rig), Durability::Durable).await.expect("no faults");
        assert_eq!(array.status().log_records, 1, "the region is marked first");
        assert_eq!([0, 1, 2].map(|place| rig.fragment(place)[0]), [0x0f, 0xf5, 0x0f ^ 0xf5]);
        rig.disks[1].poke(METADATA_SIZE_MIN, &[1; 512]);
        let read = array.device().read(0, rig.world.arena().take(BLOCK as usize)).await;
        assert_eq!(read.err(), Some(IoError::Corrupt), "parity is checked on reads");
    });
}

#[test]
fn parity_is_computed_after_a_crash_and_no_member_is_copied_to_the_others() {
    let rig = Rig::new(8 * MIB);
    rig.world.run(async {
        let array = rig.open(rig.devices()).await;
        array.device().write(0, halves(&rig), Durability::Durable).await.expect("no faults");
    });
    rig.world.crash(CrashKind::Power);
    rig.disks[2].poke(METADATA_SIZE_MIN, &[1; 512]); // What the crash could have left of parity.
    rig.world.run(async {
        let array = rig.open(rig.devices()).await;
        assert_eq!(array.status().unsynced, 1, "ARRAYOPEN1");
        rig.until_whole(&array).await;
        array.close().await.expect("no faults");
    });
    let all = [0, 1, 2].map(|place| rig.fragment(place));
    assert_eq!([all[0][0], all[1][0], all[2][0]], [0x0f, 0xf5, 0x0f ^ 0xf5]);
}

#[test]
fn a_new_array_says_how_large_its_regions_are() {
    for size in [MIB, 300 * MIB, 1 << 40] {
        let rig = Rig::new(size);
        let slot = rig.disks[0].peek(Extent::new(64 * 1024, 64 * 1024)); // Number 1 is in the second slot.
        let length = Superblock::claims(&slot, 64 * 1024).expect("a superblock");
        let superblock = Superblock::decode(&slot[..length], 64 * 1024).expect("a superblock");
        assert!(superblock.region_size.is_power_of_two() && superblock.region_size >= MIB, "{superblock:?}");
        assert!(superblock.regions() <= 1 << 17, "{size}: {superblock:?}");
    }
}

#[test]
fn a_record_of_the_log_is_covered_by_its_checksum_to_the_last_byte() {
    let changes = vec![Change::Write(1, 2), Change::Content(0, Arena::heap(1 << 20).copy(&[7; 4096]))];
    let record = Record {
        sequence: 1,
        array: 2,
        epoch: Epoch::default(),
        stamp: 3,
        acknowledged: 3,
        is_behind: false,
        changes,
    };
    let mut bytes = vec![0; usize::try_from(record.blocks() * BLOCK).expect("small")];
    record.encode(&mut bytes);
    assert!(Record::decode(&bytes).is_ok());
    for index in 0..bytes.len() {
        bytes[index] ^= 1;
        assert!(Record::decode(&bytes).is_err(), "byte {index} of {}", bytes.len());
        bytes[index] ^= 1;
    }
}

#[test]
fn a_ring_that_begins_anew_forgets_no_region_in_which_members_may_differ() {
    let rig = Rig::new(REGIONS * MIB);
    let ran = rig.world.run_until_crash(async {
        let array = rig.open(rig.devices()).await;
        let device = array.device();
        for region in 0..REGIONS {
            device.write(region * MIB, rig.data(1), Durability::Volatile).await.expect("no faults");
        }
        assert!(array.status().log_records >= REGIONS, "each of them has a record, in a ring of 224 blocks");
    });
    assert!(!ran.crashed());
    rig.world.crash(CrashKind::Power);
    rig.world.run(async {
        let array = rig.open(rig.devices()).await;
        rig.until_whole(&array).await;
        for region in 0..REGIONS {
            let read = array.device().read(region * MIB, rig.world.arena().take(BLOCK as usize)).await;
            assert!(read.is_ok(), "parity fits in region {region}: {:?}", read.err());
        }
    });
}

#[test]
fn a_full_ring_lets_writers_wait_and_loses_nothing() {
    let rig = Rig::new(REGIONS * MIB);
    rig.world.run(async {
        let (holder, first) = Holder::new(rig.disks[0].device(&rig.world));
        let mut devices = rig.devices();
        devices[0] = first;
        let array = rig.open(devices).await;
        let device = array.device();
        holder.hold_next(1, Holds::VolatileWrites);
        let writes = join_all(
            (0..REGIONS).map(|region| device.write(region * MIB, rig.data(2), Durability::Volatile)),
        );
        let a_while = rig.world.clock().sleep(Duration::from_secs(5));
        let mut writes = pin!(writes);
        match select(&mut writes, pin!(a_while)).await {
            Either::Left(_) => panic!("one write is kept back"),
            Either::Right(_) => assert!(array.status().dirty >= 1, "{:?}", array.status()),
        }
        holder.release();
        assert!(writes.await.iter().all(Result::is_ok), "who has waited goes on");
        for region in 0..REGIONS {
            let read =
                device.read(region * MIB, rig.world.arena().take(BLOCK as usize)).await.expect("no faults");
            assert!(read.iter().all(|byte| *byte == 2), "region {region}");
        }
    });
}
