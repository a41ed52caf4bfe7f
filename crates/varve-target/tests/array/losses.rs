//! Arrays of ddraid that lost a data member at once with the power: what is refused, accepted, and believed afterwards.

use super::rig;
use std::rc::Rc;
use varve_block::{Buffer, Durability, Extent, IoError, MIB};
use varve_sim::{CrashKind, SimDisk, World};
use varve_target::array::{
    Array, ArrayLayout, ArrayOptions, ArraySpec, InjectedBug, Member, MemberState, Rates, ReadPolicy,
    ScrubOptions,
};

const METADATA: u64 = MIB;
const LENGTH: usize = 64 << 10;
const BLOCK: u64 = 4096;
/// Regions in which something was being written when the power failed.
const DIRTY: [u64; 3] = [1, 2, 5];
/// The data member that is lost with it.
const LOST: usize = 0;

struct Rig {
    world: World,
    spec: ArraySpec,
    disks: Vec<SimDisk>,
    bug: Option<InjectedBug>,
}

impl Rig {
    /// An array that was written everywhere and closed; then the regions of `DIRTY` were written again, and the daemon was killed.
    fn new(bug: Option<InjectedBug>) -> Self {
        Self::with_dirty(bug, &DIRTY)
    }

    fn with_dirty(bug: Option<InjectedBug>, dirty: &[u64]) -> Self {
        let layout = ArrayLayout::Ddraid { order: 1, block_size: 4096 };
        let spec = rig::spec(layout, 8 * MIB, METADATA);
        let disks = (0..3).map(|_| SimDisk::new(METADATA + 8 * MIB)).collect();
        let rig = Self { world: World::new(1), spec, disks, bug };
        rig.world.run(async {
            Array::create(&rig.spec, &rig.members(&[]), &rig.world.arena()).await.expect("made");
            let array = rig.open(&[]).await;
            for region in 0..8 {
                rig.write(&array, region, 1).await;
            }
            array.close().await.expect("closed");
            let array = rig.open(&[]).await;
            for region in dirty {
                rig.write(&array, *region, 2).await;
            }
        });
        rig.world.crash(CrashKind::Process);
        // The disks write back what they have cached: it outlives the power cuts to come, also of one that is not attached then.
        rig.world.run(async {
            for disk in &rig.disks {
                disk.device(&rig.world).flush().await.expect("a good disk");
            }
        });
        // Of what was under way the parity has not come: what is computed is neither the old content nor the new one.
        for region in dirty {
            rig.disks[2].poke(METADATA + region * MIB / 2, &[0x77; LENGTH / 2]);
        }
        rig
    }

    fn members(&self, missing: &[usize]) -> Vec<Member> {
        let device =
            |place: usize| (!missing.contains(&place)).then(|| self.disks[place].device(&self.world));
        (0..3).map(|place| rig::member(place, device(place))).collect()
    }

    async fn open(&self, missing: &[usize]) -> Rc<Array> {
        let options = ArrayOptions {
            read_policy: ReadPolicy::Verify,
            injected_bug: self.bug,
            ..ArrayOptions::new(self.world.arena(), self.world.clock())
        };
        rig::open(&self.world, self.spec, self.members(missing), options).await.expect("it opens")
    }

    async fn write(&self, array: &Rc<Array>, region: u64, byte: u8) {
        let data = self.world.arena().copy(&[byte; LENGTH]);
        array.device().write(region * MIB, data, Durability::Volatile).await.expect("written");
    }

    async fn read(&self, array: &Rc<Array>, region: u64) -> Result<Buffer, IoError> {
        array.device().read(region * MIB, self.world.arena().take(LENGTH)).await
    }

    /// Writes `length` bytes into a block of a region.
    async fn write_block(
        &self,
        array: &Rc<Array>,
        at: (u64, u64),
        byte: u8,
        length: u64,
    ) -> Result<(), IoError> {
        let data = self.world.arena().copy(&vec![byte; length as usize]);
        let written = array.device().write(at.0 * MIB + at.1 * BLOCK, data, Durability::Volatile).await;
        written.map(drop)
    }

    /// What a block of a region holds.
    async fn read_block(&self, array: &Rc<Array>, at: (u64, u64)) -> Result<Vec<u8>, IoError> {
        let buffer = self.world.arena().take(BLOCK as usize);
        Ok(array.device().read(at.0 * MIB + at.1 * BLOCK, buffer).await?.to_vec())
    }

    async fn in_sync(&self, array: &Rc<Array>) {
        while !array.status().is_whole() {
            array.changed(array.changes()).await;
        }
    }

    /// The member comes back as it was. Returns what a region holds before and after, which was accepted before.
    fn returns(&self) -> (Vec<u8>, Result<Buffer, IoError>) {
        self.world.run(async {
            let array = self.open(&[LOST]).await;
            array.accept_loss(|region| region == DIRTY[0]).await.expect("accepted");
            let before = self.read(&array, DIRTY[0]).await.expect("it was accepted").to_vec();
            assert!(before.iter().any(|byte| ![1, 2].contains(byte)), "nobody has ever written it");
            array.close().await.expect("closed");
            let array = self.open(&[]).await;
            self.in_sync(&array).await;
            for region in &DIRTY[1..] {
                let found = self.read(&array, *region).await.expect("it has returned");
                assert!(found.iter().all(|byte| *byte == 2), "what was not accepted is there again");
            }
            (before, self.read(&array, DIRTY[0]).await)
        })
    }
}

#[test]
fn what_nobody_can_know_is_refused_until_it_is_accepted_and_the_rest_after_that_too() {
    let rig = Rig::new(None);
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        assert_eq!(array.lost_regions(), DIRTY);
        assert_eq!(array.accept_loss(|region| region == 3).await, Ok(Vec::new()), "it does not wait");
        for region in DIRTY {
            assert_eq!(rig.read(&array, region).await.err(), Some(IoError::Corrupt));
        }
        assert!(rig.read(&array, 3).await.is_ok_and(|found| found.iter().all(|byte| *byte == 1)));
        assert_eq!(array.accept_loss(|region| region == DIRTY[1]).await, Ok(vec![DIRTY[1]]));
        assert_eq!(array.lost_regions(), [DIRTY[0], DIRTY[2]]);
        assert!(rig.read(&array, DIRTY[1]).await.is_ok());
        rig.write(&array, DIRTY[1], 3).await;
        array.device().flush().await.expect("durable");
        assert_eq!(rig.read(&array, DIRTY[0]).await.err(), Some(IoError::Corrupt), "it was not named");
    });
    rig.world.crash(CrashKind::Power);
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        assert_eq!(array.lost_regions(), [DIRTY[0], DIRTY[2]], "what was accepted is durable");
        assert!(rig.read(&array, DIRTY[1]).await.is_ok_and(|found| found.iter().all(|byte| *byte == 3)));
        assert_eq!(array.accept_loss(|_| true).await, Ok(vec![DIRTY[0], DIRTY[2]]));
        assert!(!array.status().is_content_lost);
    });
}

#[test]
fn a_member_that_returns_is_not_believed_where_its_loss_was_accepted() {
    let (before, after) = Rig::new(None).returns();
    assert!(after.is_ok_and(|after| after[..] == before[..]), "ACCEPT1");
    let (before, after) = Rig::new(Some(InjectedBug::AcceptUnrecorded)).returns();
    assert!(!after.is_ok_and(|after| after[..] == before[..]), "that it is not recorded is noticed");
}

#[test]
fn what_comes_back_by_itself_is_not_accepted() {
    let rig = Rig::new(None);
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        array.set_policy(std::time::Duration::from_secs(30), Rates { floor: 1, ceiling: 1 });
        rig.write(&array, 7, 4).await; // So that there is something to catch up.
        let member = rig.members(&[]).swap_remove(LOST);
        array.attach(LOST, member).await.expect("it returns");
        assert_eq!(array.status().members[LOST].state, MemberState::CatchingUp);
        assert!(array.status().is_content_lost, "it is not read yet");
        assert_eq!(array.lost_regions(), Vec::<u64>::new(), "ACCEPT2");
        assert_eq!(array.accept_loss(|_| true).await, Ok(Vec::new()), "ACCEPT2");
        array.set_policy(std::time::Duration::from_secs(30), Rates::default());
        rig.in_sync(&array).await;
        for region in DIRTY {
            assert!(rig.read(&array, region).await.is_ok_and(|found| found.iter().all(|byte| *byte == 2)));
        }
    });
}

#[test]
fn a_member_that_is_disowned_is_filled_anew() {
    let rig = Rig::new(None);
    rig.world.run(async {
        let array = rig.open(&[]).await;
        rig.in_sync(&array).await;
        // The parity member's rot is never read: the member is filled anew.
        rig.disks[2].poke(METADATA + 3 * MIB / 2, &[0x55; 512]);
        assert!(array.disown_member(2).await.is_err(), "it is in use");
        array.fail_member(2).await.expect("the others have all data");
        array.disown_member(2).await.expect("it is away");
        assert_eq!(array.status().members[2].lacks, 8, "it lacks everything");
        array.attach(2, rig.members(&[]).swap_remove(2)).await.expect("it returns");
        rig.in_sync(&array).await;
        let options = ScrubOptions { rates: Rates::default(), check_only: true };
        let (report, outcome) = array.scrub(options, |_| true).await;
        assert_eq!((outcome, report.mismatches), (Ok(()), 0), "{report:?}");
        assert_eq!(
            rig.disks[2].peek(Extent::new(METADATA + 3 * MIB / 2, 512)),
            [0; 512],
            "parity of equal halves"
        );
    });
}

#[test]
fn what_is_written_to_a_lost_region_stays_and_the_rest_comes_back_with_the_member() {
    let rig = Rig::new(None);
    let written = (DIRTY[0], 3);
    let expected = [vec![8; 512], vec![9; BLOCK as usize - 512]].concat();
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        let refused = Err(IoError::Corrupt);
        assert_eq!(
            rig.write_block(&array, written, 9, 512).await,
            refused,
            "the rest of the block is not known"
        );
        assert_eq!(rig.write_block(&array, written, 9, BLOCK).await, Ok(()), "ARRAYLOST4");
        assert_eq!(rig.write_block(&array, written, 8, 512).await, Ok(()), "the rest is known now");
        assert_eq!(rig.read_block(&array, written).await.as_ref(), Ok(&expected));
        assert_eq!(rig.read_block(&array, (DIRTY[0], 4)).await, Err(IoError::Corrupt), "it was not written");
        assert_eq!(array.lost_regions(), DIRTY);
    });
    rig.world.crash(CrashKind::Power);
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        assert_eq!(rig.read_block(&array, written).await.as_ref(), Ok(&expected), "the log has it");
        let whole = rig.world.arena().copy(&vec![7; MIB as usize]);
        array.device().write(DIRTY[1] * MIB, whole, Durability::Volatile).await.expect("whole blocks");
        while array.lost_regions() != [DIRTY[0], DIRTY[2]] {
            array.changed(array.changes()).await; // ARRAYLOST6
        }
    });
    rig.world.crash(CrashKind::Power);
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        assert_eq!(
            array.lost_regions(),
            [DIRTY[0], DIRTY[2]],
            "a region that was written whole is lost no more"
        );
        assert_eq!(rig.read_block(&array, written).await.as_ref(), Ok(&expected), "the superblock has it");
        array.attach(LOST, rig.members(&[]).swap_remove(LOST)).await.expect("it returns");
        rig.in_sync(&array).await;
        assert_eq!(rig.read_block(&array, written).await.as_ref(), Ok(&expected), "ARRAYLOST3");
        assert_eq!(rig.read_block(&array, (DIRTY[0], 4)).await, Ok(vec![2; BLOCK as usize]), "ARRAYLOST5");
        for block in [0, 255] {
            assert_eq!(rig.read_block(&array, (DIRTY[1], block)).await, Ok(vec![7; BLOCK as usize]));
        }
        assert!(rig.read(&array, DIRTY[2]).await.is_ok_and(|found| found.iter().all(|byte| *byte == 2)));
    });
}

#[test]
fn what_a_superblock_has_no_room_for_is_refused_whole() {
    let rig = Rig::with_dirty(None, &[0, 1, 2, 3, 4, 5]);
    let every_other = || (0..768).map(|block| (block / 128, block % 128 * 2));
    let known = varve_format::array::KNOWN_MAX;
    let look = async || {
        let array = rig.open(&[LOST]).await;
        for (index, at) in every_other().enumerate() {
            let expected = if index < known { Ok(vec![9; BLOCK as usize]) } else { Err(IoError::Corrupt) };
            assert_eq!(rig.read_block(&array, at).await, expected, "ARRAYLOST4: block {index}");
        }
        array
    };
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        for (index, at) in every_other().enumerate() {
            let expected = if index < known { Ok(()) } else { Err(IoError::Corrupt) };
            assert_eq!(rig.write_block(&array, at, 9, BLOCK).await, expected, "ARRAYLOST4: block {index}");
        }
        array.close().await.expect("closed");
    });
    rig.world.run(async {
        let array = look().await;
        assert_eq!(rig.write_block(&array, (0, 1), 9, BLOCK).await, Ok(()), "two runs become one");
        assert_eq!(
            rig.write_block(&array, (5, 254), 9, BLOCK).await,
            Ok(()),
            "there is room for another one"
        );
    });
    rig.world.crash(CrashKind::Power);
    rig.world.run(async {
        let array = rig.open(&[LOST]).await;
        for at in [(0, 1), (5, 254)] {
            assert_eq!(rig.read_block(&array, at).await, Ok(vec![9; BLOCK as usize]));
        }
    });
}
