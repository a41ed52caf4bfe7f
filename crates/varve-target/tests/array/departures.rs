//! Members of mirrors that leave one after the other while a superblock is written: those that have left must not be taken into use
//! without the ones that went on (ELECTION5), whatever superblock reached them last.

use super::rig;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Durability, Extent, Io, IoError, MIB, MapAnswer, MapFuture,
    MapIntent, Shape,
};
use varve_format::array::{SLOT_SIZE, Superblock};
use varve_sim::{CrashKind, FaultBudget, FaultPlan, SimDisk, World};
use varve_target::array::{
    Array, ArrayError, ArrayLayout, ArrayOptions, ArraySpec, METADATA_SIZE_MIN, Member, MemberState,
};

const SIZE: u64 = 4 * MIB;
/// What was written before anything fails, and what is written afterwards.
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

/// A disk that refuses superblocks when it is told to, does everything else, and keeps what its superblocks have said.
struct Refusing {
    device: Device,
    refuses: Rc<Cell<bool>>,
    said: Rc<RefCell<Vec<Superblock>>>,
}

impl BlockDevice for Refusing {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Write { offset: 0 | SLOT_SIZE, .. } if self.refuses.get() => {
                Completion::failed(IoError::Medium)
            }
            Io::Write { offset: offset @ (0 | SLOT_SIZE), data, durability } => {
                self.said.borrow_mut().extend(Superblock::decode(&data, offset));
                self.device.submit(Io::Write { offset, data, durability })
            }
            io => self.device.submit(io),
        }
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}

struct Rig {
    world: World,
    spec: ArraySpec,
    disks: Vec<(SimDisk, Rc<Cell<bool>>)>,
    /// The superblocks of all members, as they were written.
    said: Rc<RefCell<Vec<Superblock>>>,
}

impl Rig {
    /// A mirror that was written and closed.
    fn new(copies: usize) -> Self {
        let layout = ArrayLayout::Mirror { copies };
        let spec = rig::spec(layout, SIZE, METADATA_SIZE_MIN);
        let disk = |_| (SimDisk::new(METADATA_SIZE_MIN + SIZE), Rc::default());
        let disks = (0..copies).map(disk).collect();
        let rig = Self { world: World::new(1), spec, disks, said: Rc::default() };
        rig.world.run(async {
            Array::create(&rig.spec, &rig.members(&[]), &rig.world.arena()).await.expect("made");
            let array = rig.open(&[]).await.expect("all are here");
            assert_eq!(rig.write(&array, BEFORE).await, Ok(()));
            array.close().await.expect("closed");
        });
        rig
    }

    fn member(&self, place: usize) -> Member {
        let (disk, refuses) = &self.disks[place];
        let (refuses, said) = (Rc::clone(refuses), Rc::clone(&self.said));
        let refusing = Refusing { device: disk.device(&self.world), refuses, said };
        rig::member(place, Some(Device::new(refusing)))
    }

    fn members(&self, missing: &[usize]) -> Vec<Member> {
        let here = |place: usize| match missing.contains(&place) {
            true => rig::member(place, None),
            false => self.member(place),
        };
        (0..self.disks.len()).map(here).collect()
    }

    /// Opens the mirror; nothing works in the background.
    async fn open(&self, missing: &[usize]) -> Result<Rc<Array>, ArrayError> {
        let options = ArrayOptions::new(self.world.arena(), self.world.clock());
        Array::open(self.spec, self.members(missing), options).await
    }

    async fn write(&self, array: &Rc<Array>, byte: u8) -> Result<(), IoError> {
        let data = self.world.arena().copy(&[byte; 4096]);
        array.device().write(0, data, Durability::Durable).await.map(drop)
    }

    /// The disk in `place` refuses superblocks from now on.
    fn refuse(&self, place: usize) {
        self.disks[place].1.set(true);
    }

    /// The power fails, all disks work again, and the mirror is opened without those that are `missing`. What the block holds.
    fn read_later(&self, missing: &[usize]) -> Result<u8, ArrayError> {
        self.world.crash(CrashKind::Power);
        self.disks.iter().for_each(|(_, refuses)| refuses.set(false));
        self.world.run(async {
            let array = self.open(missing).await?;
            let found = array.device().read(0, self.world.arena().take(4096)).await.expect("read");
            assert!(found.iter().all(|byte| *byte == found[0]), "a block of two times");
            Ok(found[0])
        })
    }
}

#[test]
fn two_of_three_that_leave_within_one_superblock_stop_the_mirror() {
    let rig = Rig::new(3);
    let written = rig.world.run(async {
        let array = rig.open(&[]).await.expect("all are here");
        rig.refuse(1);
        assert_eq!(array.fail_member(2).await, Err(ArrayError::Io(IoError::Gone)), "ELECTION5");
        assert_eq!(array.status().failure, Some(IoError::Gone));
        rig.write(&array, AFTER).await
    });
    assert_eq!(written, Err(IoError::Gone));
    assert_eq!(
        rig.read_later(&[0]),
        Ok(BEFORE),
        "the two are more than half of the last superblock that took effect"
    );
}

#[test]
fn a_member_that_fails_while_a_mirror_is_opened_without_another_one_stops_it() {
    let rig = Rig::new(3);
    rig.refuse(0);
    let opened = rig.world.run(rig.open(&[2])).map(|_| ());
    assert_eq!(opened, Err(ArrayError::Io(IoError::Gone)), "ELECTION5");
    assert_eq!(rig.read_later(&[1]), Ok(BEFORE), "no other one went on");
}

#[test]
fn a_member_that_has_returned_does_not_go_on_without_the_one_it_was_filled_from() {
    let rig = Rig::new(2);
    rig.world.run(async {
        let array = rig.open(&[]).await.expect("all are here");
        array.fail_member(0).await.expect("the other one has all data");
        array.attach(0, rig.member(0)).await.expect("it returns");
        assert_eq!(array.status().members[0].state, MemberState::CatchingUp);
        rig.refuse(1);
        let working = Rc::clone(&array);
        rig.world.spawner().spawn(async move { working.background().await });
        while array.status().failure.is_none() && array.status().members[0].state == MemberState::CatchingUp {
            rig.world.clock().sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(rig.write(&array, AFTER).await, Err(IoError::Gone), "ELECTION5");
    });
    assert_eq!(rig.read_later(&[0]), Ok(BEFORE), "its superblock says that it is the last one");
}

#[test]
fn three_copies_lose_two_one_after_the_other() {
    let rig = Rig::new(3);
    let written = rig.world.run(async {
        let array = rig.open(&[]).await.expect("all are here");
        array.fail_member(2).await.expect("two are left");
        rig.refuse(1);
        array.fail_member(1).await.expect("one is left");
        rig.write(&array, AFTER).await
    });
    assert_eq!(written, Ok(()));
    assert_eq!(rig.read_later(&[0]), Err(ArrayError::MaybeStale), "ELECTION3");
    assert_eq!(rig.read_later(&[1, 2]), Ok(AFTER));
}

#[test]
fn a_member_is_called_in_sync_again_by_no_superblock_that_calls_another_one_away() {
    let rig = Rig::new(4);
    rig.world.run(async {
        let array = rig.open(&[]).await.expect("all are here");
        array.fail_member(3).await.expect("three are left");
        array.attach(3, rig.member(3)).await.expect("it returns");
        let fails = FaultPlan { flush_error: 1_000_000, ..FaultPlan::default() };
        rig.disks[2].0.set_faults(fails, FaultBudget::new(1, 1)); // The flush before the superblock that takes it back.
        let working = Rc::clone(&array);
        rig.world.spawner().spawn(async move { working.background().await });
        while array.status().members[3].state == MemberState::CatchingUp {
            rig.world.clock().sleep(Duration::from_millis(100)).await;
        }
        let states: Vec<MemberState> = array.status().members.iter().map(|member| member.state).collect();
        assert_eq!(states[2..], [MemberState::Away, MemberState::InSync], "one has left, and one is back");
    });
    let said = rig.said.borrow();
    let in_sync = |superblock: &Superblock| -> Vec<bool> {
        superblock.members.iter().map(|entry| entry.state == MemberState::InSync).collect()
    };
    let changes = said.windows(2).map(|pair| (in_sync(&pair[0]), in_sync(&pair[1])));
    for (before, after) in changes {
        let is = |was: bool| before.iter().zip(&after).any(|(one, next)| *one == was && *next != was);
        assert!(!(is(true) && is(false)), "ELECTION6: from {before:?} to {after:?}");
    }
    assert!(said.len() > 8, "superblocks were written");
}
