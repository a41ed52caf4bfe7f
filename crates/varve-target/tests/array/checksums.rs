//! Arrays with checksums, case by case: members that return something else than what was written to them.

use super::rig;
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::{Device, Durability, Extent, IoError, KIB, MIB, ZeroOptions};
use varve_format::array::ChecksumPage;
use varve_sim::{
    Client, CrashKind, FaultBudget, FaultPlan, Mix, Oracle, SharedOracle, SimDisk, World, caught_share,
    run_seeds, test_name,
};
use varve_target::Linear;
use varve_target::array::{
    Array, ArrayLayout, ArrayOptions, ArraySpec, InjectedBug, Member, MemberState, Rates, ReadPolicy,
    ScrubError, ScrubOptions, Uuid,
};

const SIZE: u64 = 8 * MIB;
const METADATA: u64 = 2 * MIB;
const LAYOUTS: [ArrayLayout; 5] = [
    ArrayLayout::Mirror { copies: 2 },
    ArrayLayout::Mirror { copies: 3 },
    ArrayLayout::Ddraid { order: 1, block_size: 4096 },
    ArrayLayout::Ddraid { order: 2, block_size: 16384 },
    ArrayLayout::Ddraid { order: 3, block_size: 4096 },
];
const POLICIES: [ReadPolicy; 3] = [ReadPolicy::Data, ReadPolicy::Rotate, ReadPolicy::Verify];
/// Where something is written.
const AT: u64 = 5 * MIB + 64 * KIB;
const LENGTH: u64 = 128 * KIB;
/// How much of an array clients use, around the border of two regions.
const WINDOW: u64 = 256 * KIB;

struct Rig {
    world: World,
    spec: ArraySpec,
    disks: Vec<SimDisk>,
    policy: ReadPolicy,
    bug: Option<InjectedBug>,
}

impl Rig {
    fn new(layout: ArrayLayout, policy: ReadPolicy) -> Self {
        Self::with(3, layout, policy, None)
    }

    fn with(seed: u64, layout: ArrayLayout, policy: ReadPolicy, bug: Option<InjectedBug>) -> Self {
        let world = World::new(seed);
        let spec = ArraySpec { checksums: true, ..rig::spec(layout, SIZE, METADATA) };
        let disks = (0..layout.members()).map(|_| SimDisk::new(METADATA + SIZE)).collect();
        let rig = Self { world, spec, disks, policy, bug };
        rig.world.run(Array::create(&spec, &rig.members(), &rig.world.arena())).expect("made");
        rig
    }

    fn members(&self) -> Vec<Member> {
        rig::members(self.disks.iter().map(|disk| disk.device(&self.world)))
    }

    async fn open(&self) -> Rc<Array> {
        let options = ArrayOptions {
            read_policy: self.policy,
            injected_bug: self.bug,
            ..ArrayOptions::new(self.world.arena(), self.world.clock())
        };
        rig::open(&self.world, self.spec, self.members(), options).await.expect("all are there")
    }

    /// An array on which something was written, and which is clean and has forgotten what it knew.
    async fn written(&self) -> Rc<Array> {
        let array = self.open().await;
        self.write(&array.device(), 7).await;
        array.close().await.expect("no faults");
        self.open().await
    }

    async fn write(&self, device: &Device, byte: u8) {
        device.write(AT, self.content(byte).freeze(), Durability::Durable).await.expect("no faults");
    }

    fn content(&self, byte: u8) -> varve_block::Buffer {
        let mut content = self.world.arena().take(LENGTH as usize);
        varve_sim::Random::new(byte.into()).fill(&mut content);
        content
    }

    async fn reads(&self, array: &Rc<Array>, byte: u8) -> Result<(), IoError> {
        let found = array.device().read(AT, self.world.arena().take(LENGTH as usize)).await?;
        assert!(
            found[..] == self.content(byte)[..],
            "{:?}, {:?}: wrong content",
            self.spec.layout,
            self.policy
        );
        Ok(())
    }

    /// Where `at` of the array is on a member.
    fn on_member(&self, at: u64) -> u64 {
        METADATA + self.spec.layout.on_members(Extent::new(at, 64 * KIB)).offset
    }

    async fn scrub(&self, array: &Array) -> (u64, u64, u64) {
        let options = ScrubOptions { rates: Rates::default(), check_only: false };
        let (report, outcome) = array.scrub(options, |_| true).await;
        assert_eq!(outcome, Ok(()));
        (report.mismatches, report.healed, report.unread)
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if is_so() {
                return;
            }
            self.world.clock().sleep(Duration::from_millis(100)).await;
        }
        panic!("it should be so by now");
    }
}

fn each(look: impl Fn(Rig)) {
    for layout in LAYOUTS {
        POLICIES.into_iter().for_each(|policy| look(Rig::new(layout, policy)));
    }
}

#[test]
fn what_rots_on_any_member_is_never_returned_and_is_healed() {
    each(|rig| {
        rig.world.run(async {
            let array = rig.written().await;
            for place in 0..rig.disks.len() {
                rig.disks[place].poke(rig.on_member(AT), &[1; 512]);
                for _ in 0..8 {
                    assert_eq!(rig.reads(&array, 7).await, Ok(()), "{:?}", rig.spec.layout);
                }
                rig.scrub(&array).await; // What no read has looked at.
                let status = array.status();
                assert_eq!(
                    status.members[place].wrong, 1,
                    "{:?}, {:?}: {status:?}",
                    rig.spec.layout, rig.policy
                );
                assert_eq!(status.members[place].healed, 1, "{status:?}");
                assert!(status.members.iter().all(|member| member.errors == 0));
            }
            assert_eq!(rig.scrub(&array).await, (0, 0, 0));
        });
    });
}

/// Of the blocks of one read one is rotten on a member, and of another one, which was never written, members hold different things: each
/// alone can be read.
#[test]
fn a_block_of_which_nothing_is_known_does_not_keep_another_one_from_being_healed() {
    for (layout, policy) in LAYOUTS.into_iter().flat_map(|layout| POLICIES.map(|policy| (layout, policy))) {
        let places = layout.members();
        for (rotten, unknown) in (0..places).flat_map(|place| [(place, place), (place, (place + 1) % places)])
        {
            let rig = Rig::new(layout, policy);
            rig.world.run(async {
                let array = rig.written().await;
                rig.disks[rotten].poke(rig.on_member(AT), &[1; 512]);
                rig.disks[unknown].poke(rig.on_member(AT + LENGTH), &[1; 512]);
                for _ in 0..places {
                    let buffer = rig.world.arena().take(LENGTH as usize + 64 * 1024);
                    let found = array.device().read(AT, buffer).await;
                    if policy == ReadPolicy::Verify {
                        assert_eq!(found.err(), Some(IoError::Corrupt), "SOUND2: {layout:?}");
                        continue;
                    }
                    let found = found.unwrap_or_else(|error| panic!("{layout:?}: {error}"));
                    assert!(found[..LENGTH as usize] == rig.content(7)[..], "{layout:?}");
                }
                assert_eq!(rig.reads(&array, 7).await, Ok(()), "{layout:?}");
                rig.scrub(&array).await;
                let wrong: Vec<u64> = array.status().members.iter().map(|member| member.wrong).collect();
                let only = |place| u64::from(place == rotten);
                assert_eq!(wrong, (0..places).map(only).collect::<Vec<_>>(), "{layout:?}, {policy:?}");
            });
        }
    }
}

/// A block that was never written differs between members: nothing says which of them is right, and a scrub makes them equal.
#[test]
fn a_scrub_makes_members_equal_in_a_block_of_which_nothing_is_known() {
    for (layout, policy) in LAYOUTS.into_iter().flat_map(|layout| POLICIES.map(|policy| (layout, policy))) {
        for place in 0..layout.members() {
            let rig = Rig::new(layout, policy);
            rig.world.run(async {
                let array = rig.written().await;
                rig.disks[place].poke(rig.on_member(AT + LENGTH), &[1; 512]);
                assert_eq!(rig.scrub(&array).await, (1, 0, 0), "{layout:?}, {place}");
                assert_eq!(rig.scrub(&array).await, (0, 0, 0), "{layout:?}, {place}");
                assert!(array.status().members.iter().all(|member| member.wrong == 0), "{layout:?}, {place}");
            });
        }
    }
}

#[test]
fn a_scrub_knows_which_member_lies() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, ReadPolicy::Rotate);
        rig.world.run(async {
            let array = rig.written().await;
            for place in 0..rig.disks.len() {
                rig.disks[place].poke(rig.on_member(AT) + 512 * place as u64, &[1; 512]);
                let (_, healed, unread) = rig.scrub(&array).await;
                assert_eq!((healed, unread, array.status().members[place].wrong), (1, 0, 1), "{layout:?}");
                assert_eq!(rig.reads(&array, 7).await, Ok(()), "{layout:?}: the sound content stays");
            }
        });
    }
}

#[test]
fn a_lost_write_is_noticed_although_what_lies_there_was_once_right() {
    each(|rig| {
        rig.world.run(async {
            let array = rig.written().await;
            let last = rig.disks.len() - 1;
            for place in [0, last] {
                let at = Extent::new(rig.on_member(AT), 4096);
                let before = rig.disks[place].peek(at);
                rig.write(&array.device(), 9 + place as u8).await;
                rig.disks[place].poke(at.offset, &before);
                assert_eq!(rig.reads(&array, 9 + place as u8).await, Ok(()));
                rig.scrub(&array).await;
                assert!(array.status().members[place].wrong > 0, "{:?}, {:?}", rig.spec.layout, rig.policy);
            }
        });
    });
}

/// A disk forgets all that was written to it in a while, pages of checksums included.
#[test]
fn a_disk_that_is_as_it_was_before_is_noticed() {
    each(|rig| {
        rig.world.run(async {
            let array = rig.written().await;
            for place in 0..rig.disks.len() {
                let before = rig.disks[place].peek(Extent::new(MIB, MIB + SIZE));
                rig.write(&array.device(), 20 + place as u8).await;
                rig.until(|| array.status().dirty == 0).await;
                rig.disks[place].poke(MIB, &before);
                rig.scrub(&array).await;
                assert_eq!(rig.reads(&array, 20 + place as u8).await, Ok(()), "{:?}", rig.spec.layout);
                assert!(array.status().members[place].wrong > 0, "{:?}, {:?}", rig.spec.layout, rig.policy);
                rig.until(|| array.status().dirty == 0).await;
                rig.world.clock().sleep(Duration::from_secs(10)).await;
            }
            assert_eq!(rig.scrub(&array).await, (0, 0, 0));
        });
    });
}

#[test]
fn what_is_wrong_on_too_many_members_is_refused_and_counted() {
    each(|rig| {
        rig.world.run(async {
            let array = rig.written().await;
            for disk in &rig.disks[..rig.spec.layout.tolerates() + 1] {
                disk.poke(rig.on_member(AT), &[1; 512]);
            }
            assert_eq!(rig.reads(&array, 7).await, Err(IoError::Corrupt));
            assert!(array.status().mismatches > 0);
            rig.write(&array.device(), 8).await;
            assert_eq!(rig.reads(&array, 8).await, Ok(()), "what is written anew is right");
        });
    });
}

#[test]
fn what_is_rotten_while_a_member_is_away_is_refused_and_does_not_spread() {
    for layout in LAYOUTS {
        if layout.tolerates() > 1 {
            continue;
        }
        for away in 0..layout.members() {
            let rig = Rig::new(layout, ReadPolicy::Rotate);
            rig.world.run(async {
                let array = rig.written().await;
                array.fail_member(away).await.expect("the others have all data");
                let rotten = (away + 1) % layout.members();
                let before = rig.disks[rotten].peek(Extent::new(rig.on_member(AT), 512));
                rig.disks[rotten].poke(rig.on_member(AT), &[1; 512]);
                let read = rig.reads(&array, 7).await;
                assert_eq!(read, Err(IoError::Corrupt), "{layout:?}, {away} away");
                // Another disk takes the place: it gets what can be computed, and what is rotten stays known.
                rig.disks[away].poke(METADATA, &vec![3; SIZE as usize]);
                let new =
                    Member { id: Uuid::from_u128(999), device: Some(rig.disks[away].device(&rig.world)) };
                array.attach(away, new).await.expect("it fits");
                rig.until(|| array.status().is_whole()).await;
                assert_eq!(rig.reads(&array, 7).await, Err(IoError::Corrupt), "{layout:?}, {away}");
                rig.disks[rotten].poke(rig.on_member(AT), &before);
                rig.scrub(&array).await;
                assert_eq!(rig.reads(&array, 7).await, Ok(()), "{layout:?}, {away}: it was not forgotten");
            });
        }
    }
}

#[test]
fn pages_that_are_lost_are_written_again() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, ReadPolicy::Rotate);
        rig.world.run(async {
            let array = rig.written().await;
            rig.scrub(&array).await; // It knows all that it can know.
            rig.world.clock().sleep(Duration::from_secs(10)).await;
            let at = Extent::new(ChecksumPage::offset(5), 4096);
            for disk in &rig.disks {
                let page = disk.peek(at);
                disk.poke(at.offset, &[0xaa; 4096]);
                rig.scrub(&array).await;
                rig.world.clock().sleep(Duration::from_secs(10)).await;
                assert!(disk.peek(at) == page, "{layout:?}");
            }
        });
    }
}

#[test]
fn checksums_fit_after_a_crash_and_what_was_dirty_is_checked_again() {
    each(|rig| {
        rig.world.run(async {
            let array = rig.written().await;
            rig.write(&array.device(), 8).await;
        });
        rig.world.crash(CrashKind::Power);
        rig.world.run(async {
            let array = rig.open().await;
            assert_eq!(rig.reads(&array, 8).await, Ok(()));
            rig.until(|| array.status().is_whole() && array.status().dirty == 0).await;
            rig.disks[0].poke(rig.on_member(AT), &[1; 512]);
            for _ in 0..4 {
                assert_eq!(rig.reads(&array, 8).await, Ok(()), "{:?}, {:?}", rig.spec.layout, rig.policy);
            }
            rig.scrub(&array).await;
            assert_eq!(array.status().members[0].wrong, 1, "{:?}, {:?}", rig.spec.layout, rig.policy);
        });
    });
}

#[test]
fn an_array_grows_as_far_as_its_pages_reach_and_zeros_are_checked() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, ReadPolicy::Data);
        rig.world.run(async {
            let array = rig.written().await;
            let zeros = Extent::new(AT, 64 * KIB);
            array.device().zero(zeros, ZeroOptions::default()).await.expect("no faults");
            rig.disks[0].poke(rig.on_member(AT), &[1; 512]);
            let read = array.device().read(AT, rig.world.arena().take(4096)).await.expect("zeros");
            assert!(read.iter().all(|byte| *byte == 0), "{layout:?}");
            assert_eq!(array.status().members[0].wrong, 1, "{layout:?}");
            let devices = || rig.members().into_iter().map(|member| member.device).collect::<Vec<_>>();
            assert!(array.grow(rig.spec.size_max() + MIB, devices()).await.is_err());
            assert_eq!(rig.spec.size_max(), 256 * MIB, "a page of 4 KiB for each MiB");
            assert!(array.status().members.iter().all(|member| member.state == MemberState::InSync));
        });
    }
}

/// One member's disk lies now and then, in its data and its pages: what it returns has changed, and writes are lost or go elsewhere.
fn history_with_lies(seed: u64, checksums: bool) -> u64 {
    let world = World::new(seed);
    let mut random = world.random();
    let layout = *random.pick(&LAYOUTS);
    let spec = ArraySpec { checksums, ..rig::spec(layout, SIZE, METADATA) };
    let options = ArrayOptions {
        read_policy: *random.pick(&POLICIES),
        release_delay: Duration::from_millis(*random.pick(&[0, 100, 1000])),
        checksum_cache: 0,
        ..ArrayOptions::new(world.arena(), world.clock())
    };
    let logs: Vec<SimDisk> = (0..layout.members()).map(|_| SimDisk::new(MIB)).collect();
    let disks: Vec<SimDisk> = (0..layout.members()).map(|_| SimDisk::new(MIB + SIZE)).collect();
    let members = || {
        let device = |(log, disk): (&SimDisk, &SimDisk)| {
            let rest = (MIB + SIZE, disk.device(&world), 0);
            Device::new(Linear::new(vec![(MIB, log.device(&world), 0), rest]))
        };
        rig::members(logs.iter().zip(&disks).map(device))
    };
    let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, WINDOW)));
    let liar = random.below(layout.members() as u64) as usize;
    world.run(async {
        Array::create(&spec, &members(), &world.arena()).await.expect("made");
        let mut wrong = 0;
        for _ in 0..random.between(2, 5) {
            let array = rig::open(&world, spec, members(), options.clone()).await.expect("all are there");
            let window = Device::new(Linear::new(vec![(WINDOW, array.device(), 3 * MIB - WINDOW / 2)]));
            let client = Client::new(window, world.arena(), Rc::clone(&oracle));
            if wrong == 0 {
                client.write(Extent::new(0, WINDOW), Durability::Durable).await.expect("no faults");
            }
            let plan = FaultPlan { rot: 20_000, lost: 40_000, misdirected: 40_000, ..FaultPlan::default() };
            disks[liar].set_faults(plan, FaultBudget::new(12, 1));
            let mix = Mix { length_max: 64 * KIB, ..Mix::default() };
            for _ in 0..6 {
                client
                    .exercise(&mix, random.between(1, 30), &mut random)
                    .await
                    .expect("one member alone lies");
                world.clock().sleep(Duration::from_millis(random.below(3000))).await;
                if random.chance(1, 4) {
                    let options = ScrubOptions { rates: Rates::default(), check_only: false };
                    let (report, outcome) = array.scrub(options, |_| true).await;
                    // It leaves when what is written again is wrong again, and returns at the next boot.
                    let may_be = outcome.is_ok() || outcome == Err(ScrubError::Degraded { place: liar });
                    assert!(may_be && report.unread == 0, "{outcome:?}, {report:?}");
                }
            }
            client.verify().await.expect("one member alone lies");
            disks[liar].set_faults(FaultPlan::default(), FaultBudget::unlimited());
            wrong += array.status().members[liar].wrong;
            let others = array.status().members.iter().map(|member| member.wrong).sum::<u64>();
            assert_eq!(others, array.status().members[liar].wrong, "nobody else is blamed");
            array.close().await.expect("no faults");
        }
        wrong
    })
}

#[test]
fn a_disk_that_lies_is_never_believed() {
    static WRONG: AtomicU64 = AtomicU64::new(0);
    run_seeds(test_name!("a_disk_that_lies_is_never_believed"), 300, |seed| {
        WRONG.fetch_add(history_with_lies(seed, true), Ordering::Relaxed);
    });
    let wrong = WRONG.load(Ordering::Relaxed);
    let _ =
        writeln!(std::io::stderr(), "sim: a_disk_that_lies_is_never_believed: {wrong} blocks found wrong");
}

#[test]
fn without_checksums_a_disk_that_lies_is_noticed_by_the_oracle() {
    caught_share("no checksums", 100, 50, |seed| {
        history_with_lies(seed, false);
    });
}

/// The power fails when a region has just become clean that was written and flushed.
fn crash_when_clean(seed: u64, layouts: &[ArrayLayout], bug: Option<InjectedBug>) {
    let layout = layouts[(seed % layouts.len() as u64) as usize];
    let rig = Rig::with(seed, layout, ReadPolicy::Verify, bug);
    rig.world.run(async {
        let array = rig.written().await;
        rig.write(&array.device(), 8).await;
        array.device().flush().await.expect("no faults");
        rig.until(|| array.status().dirty == 0).await;
        rig.world.clock().sleep(Duration::from_millis(100)).await; // The record that says so is durable.
    });
    rig.world.crash(CrashKind::Power);
    rig.world.run(async {
        let array = rig.open().await;
        assert_eq!(array.status().unsynced, 0, "it was clean");
        assert_eq!(rig.reads(&array, 8).await, Ok(()));
        let status = array.status();
        assert!(status.members.iter().all(|member| member.wrong == 0), "{status:?}");
    });
}

#[test]
fn a_clean_region_has_durable_pages_that_fit() {
    (1..60).for_each(|seed| crash_when_clean(seed, &LAYOUTS, None));
    // Of ddraid every flush writes pages (PAGES3), and a region is not clean before one.
    let mirrors = &LAYOUTS[..2];
    for (bug, least) in [(InjectedBug::ClearBeforePages, 90), (InjectedBug::ClearBeforePagesFlushed, 20)] {
        caught_share(&format!("{bug:?}"), 60, least, |seed| crash_when_clean(seed, mirrors, Some(bug)));
    }
}
