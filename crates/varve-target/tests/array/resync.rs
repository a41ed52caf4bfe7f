//! Work on regions beside what comes meanwhile: the array grows until its regions are larger, and changes fail on some members.

use super::rig;
use futures_util::future::{join, join_all};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Durability, Extent, Io, IoError, KIB, MIB, Shape, ZeroOptions,
};
use varve_format::array::{REGIONS_MAX, STAMP_ENTRIES_MAX};
use varve_sim::{CrashKind, DiskOptions, Holder, Holds, SimDisk, World};
use varve_target::array::{
    Array, ArrayLayout, ArrayOptions, ArraySpec, Member, MemberState, Rates, ReadPolicy, ScrubOptions,
};

const MIRROR: ArrayLayout = ArrayLayout::Mirror { copies: 2 };
const DDRAID: ArrayLayout = ArrayLayout::Ddraid { order: 1, block_size: 4096 };
/// As large as an array can be with regions of 1 MiB.
const LARGE: u64 = REGIONS_MAX * MIB;
/// With regions of 2 MiB.
const LARGER: u64 = LARGE + 2 * MIB;
const LENGTH: usize = 64 << 10;
/// Regions of a large array that are written: two neighbours, those that have their numbers later, and the last ones.
const REGIONS: [u64; 8] = [8, 9, 16, 17, 18, 19, REGIONS_MAX - 2, REGIONS_MAX - 1];
const FAST: ZeroOptions = ZeroOptions { fast: true, durability: Durability::Volatile, unmap: true };

/// A disk that answers errors to some changes.
struct Moody {
    device: Device,
    mood: Rc<Mood>,
}

#[derive(Default)]
struct Mood {
    /// It says that it can have zeros without moving data, and refuses when it has some.
    refuses: Cell<bool>,
    /// The next write here fails, and is done or not.
    fails: Cell<Option<(u64, bool)>>,
    /// The next flush fails.
    fails_flush: Cell<bool>,
    /// The next read fails.
    fails_read: Cell<bool>,
}

impl BlockDevice for Moody {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Zero { extent, options } if options.fast && self.mood.refuses.get() => {
                let half = Extent::new(extent.offset, (extent.length / 2).next_multiple_of(512));
                Completion::pending(async move {
                    self.device.zero(half, ZeroOptions { fast: false, ..options }).await?;
                    Err(IoError::Unsupported)
                })
            }
            Io::Write { offset, data, durability }
                if self.mood.fails.get().is_some_and(|(at, _)| at == offset) =>
            {
                let (_, is_done) = self.mood.fails.take().expect("it is to fail");
                Completion::pending(async move {
                    if is_done {
                        self.device.write(offset, data, durability).await?;
                    }
                    Err(IoError::Medium)
                })
            }
            Io::Read { .. } if self.mood.fails_read.take() => Completion::failed(IoError::Medium),
            Io::Flush if self.mood.fails_flush.take() => Completion::failed(IoError::Medium),
            io => self.device.submit(io),
        }
    }
}

struct Rig {
    world: World,
    spec: ArraySpec,
    disks: Vec<SimDisk>,
    moods: Vec<Rc<Mood>>,
}

impl Rig {
    fn new(layout: ArrayLayout, size: u64, checksums: bool) -> Self {
        let metadata = MIB + if checksums { (LARGER / MIB * 4 * KIB).next_multiple_of(MIB) } else { 0 };
        let spec = ArraySpec { checksums, ..rig::spec(layout, size, metadata) };
        let disks = (0..layout.members()).map(|_| SimDisk::new(metadata + LARGER)).collect();
        let moods = (0..layout.members()).map(|_| Rc::default()).collect();
        let rig = Self { world: World::new(1), spec, disks, moods };
        rig.world.run(Array::create(&rig.spec, &rig.members(), &rig.world.arena())).expect("made");
        rig
    }

    fn device(&self, place: usize) -> Device {
        let (device, mood) = (self.disks[place].device(&self.world), Rc::clone(&self.moods[place]));
        Device::new(Moody { device, mood })
    }

    fn members(&self) -> Vec<Member> {
        rig::members((0..self.disks.len()).map(|place| self.device(place)))
    }

    async fn open(&self, members: Vec<Member>) -> Rc<Array> {
        let options = ArrayOptions {
            read_policy: ReadPolicy::Verify,
            rates: Rates { floor: u64::MAX, ..Rates::default() },
            ..ArrayOptions::new(self.world.arena(), self.world.clock())
        };
        rig::open(&self.world, self.spec, members, options).await.expect("enough are there")
    }

    async fn write(&self, array: &Rc<Array>, offset: u64, byte: u8) -> Result<(), IoError> {
        let data = self.world.arena().copy(&[byte; LENGTH]);
        array.device().write(offset, data, Durability::Volatile).await.map(drop)
    }

    async fn write_all(&self, array: &Rc<Array>, byte: u8) {
        for region in REGIONS {
            self.write(array, region * MIB, byte).await.expect("no faults");
        }
    }

    async fn reads(&self, array: &Rc<Array>, offset: u64, byte: u8) {
        let found = array.device().read(offset, self.world.arena().take(LENGTH)).await;
        let found = found.unwrap_or_else(|error| panic!("{offset}: {error}: {:?}", array.status()));
        assert!(found.iter().all(|found| *found == byte), "{offset}: {} is not {byte}", found[0]);
    }

    async fn sleep(&self, millis: u64) {
        self.world.clock().sleep(Duration::from_millis(millis)).await;
    }

    /// The array becomes as large as it can while `meanwhile` goes on.
    async fn grow(
        &self,
        array: &Rc<Array>,
        devices: Vec<Option<Device>>,
        meanwhile: impl Future<Output = ()>,
    ) {
        let (grown, ()) = join(array.grow(LARGER, devices), meanwhile).await;
        assert_eq!(grown, Ok(()));
        assert_eq!(array.status().region_size, 2 * MIB, "regions have become larger");
    }

    /// Waits until all members are in sync, and compares them: they fit each other.
    async fn is_equal(&self, array: &Rc<Array>) {
        let end = self.world.clock().now().after(Duration::from_secs(60));
        while !array.status().is_whole() {
            assert!(self.world.clock().now() < end, "it should be whole by now: {:?}", array.status());
            self.sleep(100).await;
        }
        let options = ScrubOptions { rates: Rates::default(), check_only: true };
        let (report, outcome) = array.scrub(options, |_| true).await;
        assert_eq!((outcome, report.mismatches, report.unread), (Ok(()), 0, 0), "RESYNC4: {report:?}");
    }

    /// Member `place`, with a holder of its requests.
    fn held(&self, place: usize) -> (Holder, Member) {
        let (holder, device) = Holder::new(self.device(place));
        (holder, rig::member(place, Some(device)))
    }
}

/// RESYNC5.
#[test]
fn a_member_that_is_caught_up_while_regions_become_larger_lacks_nothing_in_the_end() {
    for layout in [MIRROR, DDRAID] {
        let rig = Rig::new(layout, LARGE, false);
        rig.world.run(async {
            let array = rig.open(rig.members()).await;
            rig.write_all(&array, 1).await;
            array.fail_member(0).await.expect("the others have all");
            rig.write_all(&array, 2).await;
            let (holder, member) = rig.held(0);
            let mut devices: Vec<_> = rig.members().into_iter().map(|member| member.device).collect();
            devices[0] = member.device.clone();
            holder.hold_next(1, Holds::VolatileWrites);
            array.attach(0, member).await.expect("it returns");
            while holder.held() == 0 {
                rig.sleep(1).await;
            }
            rig.grow(&array, devices, async {
                rig.sleep(10).await;
                holder.release();
            })
            .await;
            rig.is_equal(&array).await;
            array.fail_member(1).await.expect("the others have all");
            for region in REGIONS {
                rig.reads(&array, region * MIB, 2).await;
            }
            array.close().await.expect("closed");
        });
    }
}

/// RESYNC5.
#[test]
fn members_that_are_made_equal_while_regions_become_larger_are_equal_in_the_end() {
    for layout in [MIRROR, DDRAID] {
        let rig = Rig::new(layout, LARGE, false);
        rig.world.run(async {
            let array = rig.open(rig.members()).await;
            rig.write_all(&array, 1).await;
        });
        rig.world.crash(CrashKind::Process);
        let last = rig.disks.len() - 1;
        for region in REGIONS {
            let run = layout.on_members(Extent::new(region * MIB, LENGTH as u64));
            rig.disks[last].poke(rig.spec.metadata_size + run.offset, &vec![7; run.length as usize]);
        }
        rig.world.run(async {
            let (holder, member) = rig.held(last);
            let mut members = rig.members();
            members[last] = member;
            let devices = members.iter().map(|member| member.device.clone()).collect();
            holder.hold_next(1, Holds::VolatileWrites);
            let array = rig.open(members).await;
            assert_eq!(array.status().unsynced, REGIONS.len() as u64, "ARRAYOPEN1");
            while holder.held() == 0 {
                rig.sleep(1).await;
            }
            rig.grow(&array, devices, async {
                rig.sleep(10).await;
                holder.release();
            })
            .await;
            rig.is_equal(&array).await;
            array.fail_member(0).await.expect("the others have all");
            for region in REGIONS {
                rig.reads(&array, region * MIB, 1).await;
            }
            array.close().await.expect("closed");
        });
    }
}

/// A large array of ddraid with checksums whose first member is lost with the power. In all regions that were being written, but for
/// the `torn` ones, the others hold what their checksums say.
fn lost(torn: &[u64]) -> Rig {
    let rig = Rig::new(DDRAID, LARGE, true);
    rig.world.run(async {
        let array = rig.open(rig.members()).await;
        rig.write_all(&array, 1).await;
        array.device().flush().await.expect("no faults");
    });
    rig.world.crash(CrashKind::Process);
    for region in torn {
        rig.disks[2].poke(rig.spec.metadata_size + region * MIB / 2, &[7; LENGTH / 2]);
    }
    rig
}

/// RESYNC5 and ARRAYLOST2.
#[test]
fn lost_regions_that_are_verified_while_regions_become_larger_are_not_taken_for_others() {
    let rig = lost(&[16]);
    rig.world.run(async {
        let mut members = rig.members();
        members[0].device = None;
        let (holder, device) = Holder::new(rig.device(1));
        members[1].device = Some(device);
        let devices: Vec<_> = members.iter().map(|member| member.device.clone()).collect();
        let array = rig.open(members).await;
        // The first regions were verified, the one that does not match was not.
        for _ in 0..12 {
            holder.release();
            holder.hold_next(1, Holds::Reads);
            rig.sleep(1).await; // What was held is not any more.
            while holder.held() == 0 {
                rig.sleep(1).await;
            }
        }
        assert_eq!(array.status().unsynced, REGIONS.len() as u64, "none was accepted yet");
        rig.grow(&array, devices, async {}).await;
        holder.release();
        rig.sleep(60_000).await;
        assert_eq!(array.lost_regions(), [8], "the one that does not match, with its neighbour");
        for region in REGIONS {
            match region {
                16 => {
                    let found = array.device().read(16 * MIB, rig.world.arena().take(LENGTH)).await;
                    assert_eq!(found.err(), Some(IoError::Corrupt), "ARRAYLOST2");
                }
                _ => rig.reads(&array, region * MIB, 1).await,
            }
        }
        array.close().await.expect("closed");
    });
}

/// RESYNC5 and ARRAYLOST3.
#[test]
fn a_member_gets_what_was_read_without_it_while_regions_become_larger() {
    let rig = lost(&REGIONS);
    rig.world.run(async {
        let mut members = rig.members();
        members[0].device = None;
        let mut devices: Vec<_> = members.iter().map(|member| member.device.clone()).collect();
        let array = rig.open(members).await;
        rig.sleep(60_000).await;
        assert_eq!(array.lost_regions(), REGIONS, "none of them matches as a whole");
        assert!(!array.status().has_returning_regions(), "the member is away");
        let (holder, member) = rig.held(0);
        devices[0] = member.device.clone();
        holder.hold_next(1, Holds::VolatileWrites);
        array.attach(0, member).await.expect("it returns");
        while holder.held() == 0 {
            rig.sleep(1).await;
        }
        assert!(array.status().has_returning_regions(), "{:?}", array.status());
        rig.grow(&array, devices, async {
            rig.sleep(10).await;
            holder.release();
        })
        .await;
        rig.is_equal(&array).await;
        for region in REGIONS {
            rig.reads(&array, region * MIB, 1).await;
        }
        array.close().await.expect("closed");
    });
}

/// RESYNC4.
#[test]
fn a_fast_zero_that_one_member_refuses_costs_no_member_and_leaves_them_equal() {
    for (layout, checksums, place) in [
        (MIRROR, false, 0),
        (MIRROR, true, 1),
        (ArrayLayout::Mirror { copies: 3 }, false, 2),
        (DDRAID, false, 0),
        (DDRAID, true, 1),
        (DDRAID, true, 2),
    ] {
        let rig = Rig::new(layout, 8 * MIB, checksums);
        rig.world.run(async {
            let array = rig.open(rig.members()).await;
            for region in 0..4 {
                rig.write(&array, region * MIB, 1).await.expect("no faults");
            }
            rig.moods[place].refuses.set(true);
            let zeroed = array.device().zero(Extent::new(MIB, MIB + LENGTH as u64), FAST).await;
            assert_eq!(zeroed.err(), Some(IoError::Unsupported), "{layout:?}: the client writes zeros");
            let status = array.status();
            assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{status:?}");
            assert_eq!(status.unsynced, 2, "RESYNC4: {layout:?}: {status:?}");
            rig.is_equal(&array).await;
            rig.reads(&array, 0, 1).await;
            rig.reads(&array, 3 * MIB, 1).await;
            let zeros = ZeroOptions::default();
            array.device().zero(Extent::new(MIB, 2 * MIB), zeros).await.expect("it takes its time");
            rig.is_equal(&array).await;
            array.fail_member(0).await.expect("the others have all");
            rig.reads(&array, MIB, 0).await;
            rig.reads(&array, 3 * MIB, 1).await;
            array.close().await.expect("closed");
        });
    }
}

/// RESYNC4: as `docs/decisions/0092-arrays.md` says.
#[test]
fn a_data_member_that_is_lost_when_a_fast_zero_was_refused_costs_the_region_and_once_accepted_the_zero() {
    for checksums in [false, true] {
        let rig = Rig::new(DDRAID, 8 * MIB, checksums);
        let beside = MIB + MIB / 2;
        rig.world.run(async {
            let array = rig.open(rig.members()).await;
            for at in [0, MIB, beside, 2 * MIB] {
                rig.write(&array, at, 1).await.expect("no faults");
            }
            array.device().flush().await.expect("no faults");
            rig.moods[1].refuses.set(true);
            let zeroed = array.device().zero(Extent::new(MIB, LENGTH as u64), FAST).await;
            assert_eq!(zeroed.err(), Some(IoError::Unsupported));
            array.fail_member(0).await.expect("the others have all");
            assert_eq!(array.lost_regions(), [1], "members differed there: {:?}", array.status());
            rig.reads(&array, 0, 1).await;
            rig.reads(&array, 2 * MIB, 1).await;
            rig.write(&array, MIB, 2).await.expect("whole blocks are written in a lost region");
            rig.reads(&array, MIB, 2).await;
            assert_eq!(array.accept_loss(|_| true).await, Ok(vec![1]));
            rig.reads(&array, beside, 1).await;
            rig.reads(&array, MIB, 2).await;
            array.attach(0, rig.members().swap_remove(0)).await.expect("it returns");
            rig.is_equal(&array).await;
            rig.reads(&array, beside, 1).await;
            rig.reads(&array, MIB, 2).await;
            array.close().await.expect("closed");
        });
    }
}

#[test]
fn a_fast_zero_is_refused_at_once_where_a_member_says_that_it_cannot() {
    for layout in [MIRROR, DDRAID] {
        let mut rig = Rig::new(layout, 8 * MIB, false);
        rig.disks[1] = SimDisk::with(DiskOptions { fast_zero: false, ..rig.disks[1].options() });
        rig.world.run(async {
            Array::create(&rig.spec, &rig.members(), &rig.world.arena()).await.expect("made");
            let array = rig.open(rig.members()).await;
            rig.write(&array, 0, 1).await.expect("no faults");
            let zeroed = array.device().zero(Extent::new(0, MIB), FAST).await;
            assert_eq!(zeroed.err(), Some(IoError::Unsupported), "{layout:?}");
            assert!(array.status().is_whole(), "nothing was changed: {:?}", array.status());
            rig.reads(&array, 0, 1).await;
        });
    }
}

/// RESYNC5.
#[test]
fn a_read_that_waits_while_regions_become_larger_looks_at_the_ones_that_are() {
    let rig = lost(&REGIONS[..6]);
    let at = REGIONS[6] * MIB;
    rig.world.run(async {
        let mut members = rig.members();
        let (holder, parity) = rig.held(2);
        (members[0].device, members[2]) = (None, parity);
        let mut devices: Vec<_> = members.iter().map(|member| member.device.clone()).collect();
        let array = rig.open(members).await;
        rig.sleep(60_000).await;
        assert_eq!(array.lost_regions(), REGIONS[..6], "the last ones match");
        let status = array.status();
        assert!(status.widens_lost_regions(LARGER) && !status.widens_lost_regions(LARGE), "a plan can tell");
        let (catching_up, member) = rig.held(0);
        devices[0] = member.device.clone();
        catching_up.hold_next(1, Holds::VolatileWrites);
        array.attach(0, member).await.expect("it returns");
        while catching_up.held() == 0 {
            rig.sleep(1).await;
        }
        rig.grow(&array, devices, async {
            // The growth lets nobody in, and a chunk that is held alone waits for its end.
            rig.sleep(10).await;
            holder.hold_next(1, Holds::All);
            catching_up.release();
            rig.sleep(10).await;
            assert_eq!((holder.held(), array.status().region_size), (1, MIB), "members are flushed first");
            let device = array.device();
            let read = device.read(at, rig.world.arena().take(MIB as usize));
            let (read, ()) = join(read, async {
                rig.sleep(10).await;
                holder.release();
            })
            .await;
            let read = read.expect("it is not lost");
            assert!(
                read[..LENGTH].iter().all(|byte| *byte == 1) && read[LENGTH..].iter().all(|byte| *byte == 0)
            );
        })
        .await;
        rig.is_equal(&array).await;
        array.close().await.expect("closed");
    });
}

/// RESYNC4 and RESYNC1: nothing is to be made equal where one has all that counts.
#[test]
fn a_change_that_fails_while_a_member_is_away_or_behind_costs_nothing_more() {
    for layout in [MIRROR, DDRAID] {
        for case in 0..8 {
            let [is_refused, is_behind, checksums] = [1, 2, 4].map(|bit| case & bit != 0);
            one_has_all_that_counts(layout, is_refused, is_behind, checksums);
        }
    }
}

/// A zero is refused, or a write fails, on the first member, and the last one is away; or it is behind in other regions.
fn one_has_all_that_counts(layout: ArrayLayout, is_refused: bool, is_behind: bool, checksums: bool) {
    // The last region is short, and caught up before the others are.
    let (last_region, length) = (7 * MIB, LENGTH as u64);
    let rig = Rig::new(layout, last_region + length, checksums);
    let last = rig.disks.len() - 1;
    let context = format!("{layout:?}, {is_refused}, {is_behind}, {checksums}");
    rig.world.run(async {
        let array = rig.open(rig.members()).await;
        rig.write(&array, last_region, 1).await.expect("no faults");
        rig.write(&array, 5 * MIB, 1).await.expect("no faults");
        array.fail_member(last).await.expect("the others have all");
        rig.write(&array, last_region, 2).await.expect("no faults");
        rig.write(&array, 5 * MIB, 2).await.expect("no faults");
        let slow_after = Duration::from_secs(30);
        let member = rig.members().swap_remove(last);
        if is_behind {
            array.set_policy(slow_after, Rates { floor: u64::MAX, ceiling: MIB });
            array.attach(last, member.clone()).await.expect("it returns");
            while array.status().members[last].lacks > 1 {
                rig.sleep(1).await;
            }
            assert_eq!(array.status().members[last].lacks, 1, "{context}");
        }
        if is_refused {
            rig.moods[0].refuses.set(true);
            let zeroed = array.device().zero(Extent::new(last_region, length), FAST).await;
            assert_eq!(zeroed.err(), Some(IoError::Unsupported), "{context}");
        } else {
            let at = rig.spec.metadata_size + layout.on_members(Extent::new(last_region, length)).offset;
            rig.moods[0].fails.set(Some((at, false)));
            assert_eq!(rig.write(&array, last_region, 3).await, Err(IoError::Medium), "{context}");
        }
        assert_eq!(array.status().unsynced, 0, "RESYNC1: {context}: {:?}", array.status());
        let found = array.device().read(last_region, rig.world.arena().take(LENGTH)).await;
        let found = found.unwrap_or_else(|error| panic!("{context}: what is there counts: {error}"));
        assert!(found.iter().all(|byte| [0, 2, 3].contains(byte)), "{context}: {}", found[0]);
        array.set_policy(slow_after, Rates::default());
        if !is_behind {
            array.attach(last, member).await.expect("it returns");
        }
        rig.is_equal(&array).await;
        rig.reads(&array, 5 * MIB, 2).await;
        array.close().await.expect("closed");
    });
}

/// RESYNC4.
#[test]
fn a_change_that_fails_in_a_region_that_is_being_made_equal_is_made_equal_too() {
    for layout in [MIRROR, DDRAID] {
        let rig = Rig::new(layout, 8 * MIB, false);
        let last = rig.disks.len() - 1;
        rig.world.run(async {
            let array = rig.open(rig.members()).await;
            rig.write(&array, MIB, 1).await.expect("no faults");
        });
        rig.world.crash(CrashKind::Process);
        rig.world.run(async {
            let (holder, member) = rig.held(last);
            let mut members = rig.members();
            members[last] = member;
            let array = rig.open(members).await;
            // The first chunks have come.
            let chunk = 64 * KIB / layout.data_members() * layout.data_members();
            let before = rig.disks[last].counters().writes;
            while rig.disks[last].counters().writes < before + 2 {
                holder.hold_next(1, Holds::VolatileWrites);
                while holder.held() == 0 {
                    rig.sleep(1).await;
                }
                holder.release();
                rig.sleep(1).await;
            }
            holder.hold_next(1, Holds::VolatileWrites);
            while holder.held() == 0 {
                rig.sleep(1).await;
            }
            assert_eq!(array.status().unsynced, 1, "it is not done");
            let at = rig.spec.metadata_size + layout.on_members(Extent::new(MIB, chunk)).offset;
            for (place, mood) in rig.moods.iter().enumerate() {
                mood.fails.set(Some((at, place == 0)));
            }
            assert_eq!(rig.write(&array, MIB, 2).await, Err(IoError::Medium), "it fails on all of them");
            holder.release();
            rig.is_equal(&array).await;
            array.close().await.expect("closed");
        });
    }
}

/// ARRAYREAD2.
#[test]
fn where_members_differ_since_a_crash_those_that_cannot_be_read_leave_for_one_that_can() {
    let rig = Rig::new(ArrayLayout::Mirror { copies: 3 }, LARGE, false);
    rig.world.run(async {
        let array = rig.open(rig.members()).await;
        rig.write(&array, MIB, 1).await.expect("no faults");
    });
    rig.world.crash(CrashKind::Process);
    for place in [0, 1] {
        rig.disks[place].make_unreadable(Extent::new(rig.spec.metadata_size + MIB, 512));
    }
    rig.world.run(async {
        // Nothing makes members equal in the background.
        let options = ArrayOptions::new(rig.world.arena(), rig.world.clock());
        let array = Array::open(rig.spec, rig.members(), options).await.expect("all are there");
        assert_eq!(array.status().unsynced, 1, "ARRAYOPEN1");
        rig.reads(&array, MIB, 1).await;
        let states: Vec<_> = array.status().members.iter().map(|member| member.state).collect();
        assert_eq!(states, [MemberState::Away, MemberState::Away, MemberState::InSync]);
    });
}

/// What the log has is written once more after a crash; a member that may lose the log's own records then is away.
#[test]
fn a_member_that_cannot_make_the_log_durable_after_a_crash_is_away() {
    let rig = Rig::new(DDRAID, LARGE, false);
    rig.world.run(async {
        let array = rig.open(rig.members()).await;
        rig.write(&array, MIB, 1).await.expect("no faults");
        array.device().flush().await.expect("no faults");
        rig.write(&array, MIB, 2).await.expect("no faults");
    });
    rig.world.crash(CrashKind::Process);
    rig.moods[2].fails_flush.set(true);
    rig.world.run(async {
        let options = ArrayOptions::new(rig.world.arena(), rig.world.clock());
        let array = Array::open(rig.spec, rig.members(), options).await.expect("all are there");
        assert!(!rig.moods[2].fails_flush.get(), "it was asked to flush");
        assert_ne!(array.status().members[2].state, MemberState::InSync, "it was away, and catches up");
        rig.reads(&array, MIB, 2).await;
    });
}

#[test]
fn an_error_that_passes_by_itself_is_counted() {
    let rig = Rig::new(MIRROR, LARGE, false);
    rig.world.run(async {
        let array = rig.open(rig.members()).await;
        rig.write(&array, MIB, 1).await.expect("no faults");
        rig.moods[1].fails_read.set(true);
        rig.reads(&array, MIB, 1).await;
        let members = array.status().members;
        let counted: Vec<_> =
            members.iter().map(|member| (member.state, member.errors, member.healed)).collect();
        assert_eq!(counted, [(MemberState::InSync, 0, 0), (MemberState::InSync, 1, 0)]);
    });
}

/// A member that has no log gets each record as a stamp, in one block: so many regions are marked by several records.
#[test]
fn regions_apart_from_each_other_that_are_written_at_once_are_marked_by_several_records() {
    let rig = Rig::new(ArrayLayout::Mirror { copies: 3 }, LARGE, false);
    rig.world.run(async {
        let array = rig.open(rig.members()).await;
        let writes = (0..2 * STAMP_ENTRIES_MAX as u64).map(|index| rig.write(&array, 2 * index * MIB, 1));
        assert!(join_all(writes).await.into_iter().all(|written| written == Ok(())));
        let status = array.status();
        assert!(status.is_whole() && status.log_records > 4, "ARRAYLOG2: {status:?}");
    });
}
