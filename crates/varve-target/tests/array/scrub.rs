//! Scrub, case by case: what is compared, what is made equal, and how fast.

use super::rig;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Durability, Extent, IoError, KIB, MIB};
use varve_sim::{CrashKind, SimDisk, World};
use varve_target::array::{
    Array, ArrayLayout, ArrayOptions, InjectedBug, Member, MemberState, Rates, ReadPolicy, ScrubError,
    ScrubOptions, ScrubReport, Uuid,
};

const SIZE: u64 = 8 * MIB;
const METADATA: u64 = MIB;
const LAYOUTS: [ArrayLayout; 4] = [
    ArrayLayout::Mirror { copies: 2 },
    ArrayLayout::Mirror { copies: 3 },
    ArrayLayout::Ddraid { order: 1, block_size: 4096 },
    ArrayLayout::Ddraid { order: 2, block_size: 16384 },
];
/// What is written before an array is scrubbed: two regions.
const WRITTEN: [Extent; 2] = [Extent::new(MIB, 64 * KIB), Extent::new(5 * MIB, 512 * KIB)];

struct Rig {
    world: World,
    layout: ArrayLayout,
    disks: Vec<SimDisk>,
    array: Rc<Array>,
}

impl Rig {
    /// An array in use on which [`WRITTEN`] was written, and which is clean.
    fn new(layout: ArrayLayout, rates: Rates) -> Self {
        Self::with(7, layout, rates, None)
    }

    fn with(seed: u64, layout: ArrayLayout, rates: Rates, injected_bug: Option<InjectedBug>) -> Self {
        let world = World::new(seed);
        let spec = rig::spec(layout, SIZE, METADATA);
        let disks: Vec<SimDisk> = (0..layout.members()).map(|_| SimDisk::new(METADATA + SIZE)).collect();
        let members = rig::members(disks.iter().map(|disk| disk.device(&world)));
        let options = ArrayOptions {
            read_policy: ReadPolicy::Verify,
            rates,
            injected_bug,
            ..ArrayOptions::new(world.arena(), world.clock())
        };
        let array = world.run(async {
            Array::create(&spec, &members, &options.arena).await.expect("made");
            let array = rig::open(&world, spec, members, options).await.expect("it opens");
            let device = array.device();
            for extent in WRITTEN {
                let data = world.arena().copy(&vec![7; usize::try_from(extent.length).expect("small")]);
                device.write(extent.offset, data, Durability::Volatile).await.expect("written");
            }
            world.clock().sleep(Duration::from_secs(5)).await;
            assert_eq!(array.status().dirty, 0);
            array
        });
        Self { world, layout, disks, array }
    }

    /// Something else is on member `place` where `offset` of the array does, of which no checksum tells.
    fn rot(&self, place: usize, offset: u64) {
        let run = self.layout.on_members(Extent::new(offset, 64 * KIB));
        self.disks[place].poke(METADATA + run.offset, &[1; 512]);
    }

    /// A sector of member `place` cannot be read any more, there.
    fn ruin(&self, place: usize, offset: u64) {
        let run = self.layout.on_members(Extent::new(offset, 64 * KIB));
        self.disks[place].make_unreadable(Extent::new(METADATA + run.offset, 512));
    }

    async fn scrub(&self, check_only: bool) -> (ScrubReport, Result<(), ScrubError>) {
        let options = ScrubOptions { rates: Rates::default(), check_only };
        self.array.scrub(options, |_| true).await
    }

    async fn reads(&self, offset: u64, byte: u8) -> Result<(), IoError> {
        let found = self.array.device().read(offset, self.world.arena().take(64 * 1024)).await?;
        assert!(found.iter().all(|found| *found == byte), "{:?}: {offset}: {}", self.layout, found[0]);
        Ok(())
    }
}

#[test]
fn members_that_do_not_fit_are_counted_and_made_equal() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, Rates::default());
        let last = layout.members() - 1;
        rig.rot(last, MIB);
        rig.rot(last, 5 * MIB + 256 * KIB);
        rig.world.run(async {
            let (report, outcome) = rig.scrub(true).await;
            assert_eq!((outcome, report.mismatches, report.named.len()), (Ok(()), 2, 2), "{layout:?}");
            assert_eq!(report.named[0].offset, MIB);
            assert_eq!(rig.reads(MIB, 7).await, Err(IoError::Corrupt), "nothing was written");
            let (report, outcome) = rig.scrub(false).await;
            assert_eq!((outcome, report.mismatches, report.unread), (Ok(()), 2, 0), "{layout:?}");
            assert_eq!(rig.reads(MIB, 7).await, Ok(()));
            let (report, _) = rig.scrub(false).await;
            assert_eq!(report.mismatches, 0, "SCRUB1");
            assert_eq!(
                (report.done, report.total),
                (2 * MIB, 2 * MIB),
                "what was never written costs nothing"
            );
        });
    }
}

#[test]
fn what_is_made_equal_outlives_a_power_failure_and_dirties_nothing() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, Rates::default());
        let last = layout.members() - 1;
        rig.rot(last, MIB);
        rig.world.run(async {
            let (report, outcome) = rig.scrub(false).await;
            assert_eq!((outcome, report.mismatches, report.unread), (Ok(()), 1, 0), "{layout:?}");
            assert_eq!(rig.array.status().dirty, 0, "SCRUB1: {layout:?}");
            assert_eq!(rig.array.status().members[last].healed, 0, "nothing tells that it was wrong");
        });
        rig.world.crash(CrashKind::Power);
        let run = layout.on_members(Extent::new(MIB, 64 * KIB));
        let held = rig.disks[last].peek(Extent::new(METADATA + run.offset, 512));
        let byte = if layout.data_members() == 1 { 7 } else { 0 }; // The parity of an even number of sevens.
        assert!(held.iter().all(|held| *held == byte), "SCRUB1: {layout:?}: {}", held[0]);
    }
}

#[test]
fn sectors_that_cannot_be_read_are_written_again_unless_nothing_is_to_be_written() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, Rates::default());
        let last = layout.members() - 1;
        rig.ruin(0, MIB);
        rig.ruin(last, 5 * MIB + 64 * KIB);
        rig.world.run(async {
            let (report, outcome) = rig.scrub(true).await;
            let unread = 2 * layout.block_size().max(4096);
            assert_eq!((outcome, report.unread, report.healed), (Ok(()), unread, 0), "{layout:?}");
            let (report, outcome) = rig.scrub(false).await;
            assert_eq!((outcome, report.unread, report.healed), (Ok(()), 0, 2), "{layout:?}");
            assert!(rig.array.status().is_whole());
            assert_eq!((rig.reads(MIB, 7).await, rig.reads(5 * MIB, 7).await), (Ok(()), Ok(())));
        });
    }
}

#[test]
fn one_read_over_sectors_that_different_members_cannot_read_has_each_from_the_others() {
    for layout in LAYOUTS {
        for length in [64 * KIB, 512 * KIB] {
            let rig = Rig::new(layout, Rates::default());
            let places = layout.members() as u64;
            (0..places)
                .for_each(|place| rig.ruin(place as usize, 5 * MIB + (place * length / 4).min(length / 2)));
            rig.world.run(async {
                let read = rig.array.device().read(5 * MIB, rig.world.arena().take(length as usize)).await;
                // From the third member on they share a block.
                assert_eq!(read.is_ok(), places <= 3, "{layout:?}");
                let read = rig.array.device().read(5 * MIB, rig.world.arena().take(16 * 1024)).await;
                assert!(read.is_ok_and(|read| read.iter().all(|byte| *byte == 7)), "{layout:?}");
            });
        }
    }
}

#[test]
fn a_block_that_two_members_cannot_read_is_counted_and_the_scrub_goes_on() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, Rates::default());
        (0..layout.members()).for_each(|place| rig.ruin(place, MIB));
        rig.rot(0, 5 * MIB);
        rig.world.run(async {
            let (report, outcome) = rig.scrub(false).await;
            assert_eq!(outcome, Ok(()), "{layout:?}");
            assert_eq!((report.unread, report.mismatches), (layout.block_size().max(4096), 1), "{layout:?}");
        });
    }
}

#[test]
fn an_array_with_a_member_away_is_not_scrubbed() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, Rates::default());
        rig.world.run(async {
            rig.array.fail_member(1).await.expect("the others have all");
            let (report, outcome) = rig.scrub(false).await;
            assert_eq!((outcome, report.done), (Err(ScrubError::Degraded { place: 1 }), 0), "SCRUB2");
            rig.array
                .attach(1, rig::member(1, Some(rig.disks[1].device(&rig.world))))
                .await
                .expect("it is back");
            let (_, outcome) = rig.scrub(false).await;
            assert_eq!(outcome, Err(ScrubError::Degraded { place: 1 }), "SCRUB2: it catches up");
            rig.world.clock().sleep(Duration::from_secs(5)).await;
            let seen = Cell::new(0);
            let options =
                ScrubOptions { rates: Rates { ceiling: MIB, ..Rates::default() }, check_only: false };
            let (scrubbed, ()) = futures_util::join!(
                rig.array.scrub(options, |report| {
                    seen.set(report.done);
                    true
                }),
                async {
                    while seen.get() == 0 {
                        rig.world.clock().sleep(Duration::from_millis(10)).await;
                    }
                    rig.array.fail_member(0).await.expect("the others have all");
                },
            );
            assert_eq!(scrubbed.1, Err(ScrubError::Degraded { place: 0 }), "it left meanwhile");
        });
    }
}

#[test]
fn a_scrub_keeps_its_rate_and_can_be_stopped() {
    let rig = Rig::new(LAYOUTS[2], Rates::default());
    let clock = rig.world.clock();
    rig.world.run(async {
        let begun = clock.now();
        let options =
            ScrubOptions { rates: Rates { ceiling: 256 * KIB, ..Rates::default() }, check_only: false };
        let (report, outcome) = rig.array.scrub(options, |_| true).await;
        assert_eq!((outcome, report.done), (Ok(()), 2 * MIB));
        let took = clock.now().since(begun);
        assert!((Duration::from_secs(7)..Duration::from_secs(9)).contains(&took), "PACE1: {took:?}");
        let end = clock.now().after(Duration::from_secs(2));
        let (report, outcome) = rig.array.scrub(options, |_| clock.now() < end).await;
        assert_eq!(outcome, Err(ScrubError::Stopped));
        assert!(report.done < report.total && report.total == 2 * MIB, "{report:?}");
        assert!(clock.now().since(end) < Duration::from_millis(100), "it need not wait for its next step");
    });
}

/// How long member 1 takes to catch up with everything, beside a client that reads or not.
fn catching_up(is_busy: bool) -> Duration {
    let rig = Rig::new(LAYOUTS[0], Rates { floor: MIB, ceiling: 16 * MIB });
    let clock = rig.world.clock();
    rig.world.run(async {
        rig.array.fail_member(1).await.expect("the other has all");
        let another = Member {
            id: Uuid::from_u128(500),
            ..rig::member(1, Some(SimDisk::new(METADATA + SIZE).device(&rig.world)))
        };
        rig.array.attach(1, another).await.expect("there is room");
        let begun = clock.now();
        while rig.array.status().members[1].state == MemberState::CatchingUp {
            if is_busy {
                rig.reads(MIB, 7).await.expect("no faults");
            }
            clock.sleep(Duration::from_millis(1)).await;
        }
        clock.now().since(begun)
    })
}

#[test]
fn a_member_catches_up_at_the_ceiling_while_nobody_asks_and_at_the_floor_while_clients_are_served() {
    let (idle, busy) = (catching_up(false), catching_up(true));
    assert!(idle < Duration::from_millis(500), "PACE1: {idle:?}");
    assert!((Duration::from_millis(1500)..Duration::from_secs(3)).contains(&busy), "PACE1: {busy:?}");
}

/// How many blocks scrubs find that do not fit while a client writes one of them.
fn mismatches_beside_a_writer(layout: ArrayLayout, bug: Option<InjectedBug>) -> u64 {
    let mismatches = |seed| {
        let rig = Rig::with(seed, layout, Rates::default(), bug);
        let (device, arena, is_done) = (rig.array.device(), rig.world.arena(), Cell::new(false));
        rig.world.run(async {
            let writer = async {
                for round in 0..200_u8 {
                    let data = arena.copy(&[round; 16384]);
                    device.write(MIB, data, Durability::Volatile).await.expect("no faults");
                }
                is_done.set(true);
            };
            let scrubber = async {
                let mut mismatches = 0;
                while !is_done.get() {
                    mismatches += rig.scrub(true).await.0.mismatches;
                }
                mismatches
            };
            futures_util::join!(writer, scrubber).1
        })
    };
    (0..20).map(mismatches).sum()
}

#[test]
fn a_scrub_sees_no_half_of_a_write_and_one_that_locks_nothing_is_noticed() {
    for layout in LAYOUTS {
        assert_eq!(mismatches_beside_a_writer(layout, None), 0, "ARRAYIO4: {layout:?}");
        let unlocked = mismatches_beside_a_writer(layout, Some(InjectedBug::ScrubBesideWriters));
        assert!(unlocked > 0, "{layout:?}: the negative control");
    }
}

#[test]
fn a_member_that_returns_has_its_counters_and_one_in_its_place_has_none() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, Rates::default());
        rig.ruin(1, MIB);
        rig.world.run(async {
            assert_eq!(rig.scrub(false).await.0.healed, 1, "{layout:?}");
            for (id, counted) in [(1, 1), (77, 0)] {
                rig.array.fail_member(1).await.expect("the others have all");
                let device = Some(rig.disks[1].device(&rig.world));
                let member = Member { device, ..rig::member(id, None) };
                rig.array.attach(1, member).await.expect("it is empty, or was here");
                let member = rig.array.status().members[1].clone();
                assert_eq!((member.errors, member.healed), (counted, counted), "{layout:?}");
            }
        });
    }
}

/// What a text says of a scrub may be anything.
#[test]
fn a_scrub_goes_on_from_the_block_where_it_is_said_to_be() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout, Rates::default());
        let last = layout.members() - 1;
        rig.rot(last, MIB);
        rig.world.run(async {
            for (at, mismatches) in [(0, 1), (5, 1), (MIB + 5, 1), (2 * MIB - 1, 0), (1 << 62, 0)] {
                let options = ScrubOptions { rates: Rates::default(), check_only: true };
                let begun = ScrubReport { at, ..ScrubReport::default() };
                let (report, outcome) = rig.array.scrub_on(options, begun, |_| true).await;
                assert_eq!((outcome, report.mismatches), (Ok(()), mismatches), "{layout:?} from {at}");
            }
        });
    }
}
