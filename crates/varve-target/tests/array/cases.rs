//! Arrays, case by case.

use super::rig;
use futures_util::future::{join, join3};
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Arena, Device, Durability, Extent, IoError, MIB, ZeroOptions, timeout};
use varve_format::array::{MemberEntry, NUMBER_MAX, SLOT_SIZE, Superblock};
use varve_sim::{CrashKind, FaultBudget, FaultPlan, SimDisk, World};
use varve_target::array::{
    Array, ArrayError, ArrayLayout, ArrayOptions, ArraySpec, Member, MemberState, ReadPolicy, Uuid,
};

const SIZE: u64 = 8 * MIB;
const METADATA: u64 = MIB;
const LAYOUTS: [ArrayLayout; 3] = [
    ArrayLayout::Mirror { copies: 2 },
    ArrayLayout::Ddraid { order: 1, block_size: 4096 },
    ArrayLayout::Ddraid { order: 2, block_size: 16384 },
];

struct Rig {
    world: World,
    spec: ArraySpec,
    disks: Vec<SimDisk>,
    ids: Vec<Uuid>,
}

impl Rig {
    fn new(seed: u64, layout: ArrayLayout) -> Self {
        let spec = rig::spec(layout, SIZE, METADATA);
        let disk = |_| SimDisk::new(METADATA + 2 * SIZE);
        let disks: Vec<SimDisk> = (0..layout.members()).map(disk).collect();
        let ids = (0..disks.len()).map(|place| Uuid::from_u128(100 + place as u128)).collect();
        let rig = Self { world: World::new(seed), spec, disks, ids };
        rig.world.run(Array::create(&rig.spec, &rig.members(&[]), &rig.world.arena())).expect("made");
        rig
    }

    fn members(&self, missing: &[usize]) -> Vec<Member> {
        let member = |(place, disk): (usize, &SimDisk)| Member {
            id: self.ids[place],
            device: (!missing.contains(&place)).then(|| disk.device(&self.world)),
        };
        self.disks.iter().enumerate().map(member).collect()
    }

    fn options(&self) -> ArrayOptions {
        ArrayOptions {
            read_policy: ReadPolicy::Verify,
            ..ArrayOptions::new(self.world.arena(), self.world.clock())
        }
    }

    async fn open(&self, missing: &[usize]) -> Rc<Array> {
        rig::open(&self.world, self.spec, self.members(missing), self.options()).await.expect("it opens")
    }
}

async fn write(device: &Device, arena: &Arena, offset: u64, length: usize, byte: u8) {
    device.write(offset, arena.copy(&vec![byte; length]), Durability::Volatile).await.expect("written");
}

async fn reads(device: &Device, arena: &Arena, offset: u64, length: usize, byte: u8) {
    let found = device.read(offset, arena.take(length)).await.expect("read");
    assert!(found.iter().all(|found| *found == byte), "{offset}: {} is not {byte}", found[0]);
}

#[test]
fn a_request_over_more_regions_than_a_record_marks_comes_to_its_end() {
    let (world, layout, size) = (World::new(1), ArrayLayout::Mirror { copies: 2 }, 1100 * MIB);
    let spec = rig::spec(layout, size, METADATA);
    let disks = [SimDisk::new(METADATA + size), SimDisk::new(METADATA + size)];
    let members = rig::members(disks.iter().map(|disk| disk.device(&world)));
    let (arena, clock) = (world.arena(), world.clock());
    world.run(async {
        Array::create(&spec, &members, &arena).await.expect("made");
        let options = ArrayOptions::new(arena.clone(), clock.clone());
        let array = rig::open(&world, spec, members, options).await.expect("it opens");
        let device = array.device();
        let zero = Box::pin(device.zero(Extent::new(0, size), ZeroOptions::default()));
        let zeroed = timeout(&clock, Duration::from_secs(60), zero).await;
        assert!(matches!(zeroed, Some(Ok(_))), "ARRAYLOG4: {zeroed:?}");
        assert!(array.status().log_records < 20, "each region is marked once");
        array.close().await.expect("closed");
    });
}

#[test]
fn what_is_written_is_read_with_any_one_member_missing_and_after_it_was_caught_up() {
    for layout in LAYOUTS {
        for lost in 0..layout.members() {
            let rig = Rig::new(1, layout);
            let (arena, clock) = (rig.world.arena(), rig.world.clock());
            rig.world.run(async {
                let array = rig.open(&[]).await;
                let device = array.device();
                write(&device, &arena, 0, 65536, 1).await;
                write(&device, &arena, 3 * MIB, 32768, 2).await;
                array.fail_member(lost).await.expect("the others have all");
                reads(&device, &arena, 0, 65536, 1).await;
                write(&device, &arena, 16384, 16384, 3).await;
                write(&device, &arena, 5 * MIB, 256 * 1024, 4).await;
                reads(&device, &arena, 16384, 16384, 3).await;
                reads(&device, &arena, 32768, 32768, 1).await;
                array.close().await.expect("flushed");
            });
            rig.world.run(async {
                let array = rig.open(&[lost]).await;
                reads(&array.device(), &arena, 16384, 16384, 3).await;
                reads(&array.device(), &arena, 5 * MIB, 256 * 1024, 4).await;
                array.close().await.expect("flushed");
            });
            rig.world.run(async {
                let array = rig.open(&[]).await;
                assert_eq!(array.status().members[lost].state, MemberState::CatchingUp);
                assert!(array.status().members[lost].lacks <= 3, "{:?}", array.status());
                while !array.status().is_whole() {
                    clock.sleep(Duration::from_millis(100)).await;
                }
                let device = array.device();
                reads(&device, &arena, 16384, 16384, 3).await;
                reads(&device, &arena, 3 * MIB, 32768, 2).await;
                reads(&device, &arena, 5 * MIB, 256 * 1024, 4).await;
                let other = (lost + 1) % layout.members();
                array.fail_member(other).await.expect("the others have all");
                reads(&device, &arena, 5 * MIB, 256 * 1024, 4).await;
                reads(&device, &arena, 0, 16384, 1).await;
                array.close().await.expect("flushed");
            });
        }
    }
}

#[test]
fn an_idle_array_becomes_clean_and_reads_write_no_record() {
    for layout in LAYOUTS {
        let rig = Rig::new(2, layout);
        let (arena, clock) = (rig.world.arena(), rig.world.clock());
        rig.world.run(async {
            let array = rig.open(&[]).await;
            let device = array.device();
            write(&device, &arena, MIB, 65536, 9).await;
            assert_eq!(array.status().dirty, 1);
            let records = array.status().log_records;
            write(&device, &arena, MIB + 65536, 65536, 9).await;
            reads(&device, &arena, MIB, 131_072, 9).await;
            assert_eq!(array.status().log_records, records, "ARRAYIO7, and a warm region costs nothing");
            clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(array.status().dirty, 0, "{:?}", array.status());
            let _ = device.zero(Extent::new(0, MIB), Default::default()).await.expect("zeroed");
            array.set_release_delay(Duration::from_secs(30));
            write(&device, &arena, MIB, 65536, 9).await;
            clock.sleep(Duration::from_secs(20)).await;
            assert_eq!(array.status().dirty, 2, "both may be idle for longer now: {:?}", array.status());
            array.set_release_delay(Duration::ZERO);
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(array.status().dirty, 0, "that counts at once: {:?}", array.status());
            array.close().await.expect("flushed");
        });
    }
}

#[test]
fn members_that_do_not_fit_each_other_are_an_error_and_counted() {
    for layout in LAYOUTS {
        let rig = Rig::new(3, layout);
        let (arena, clock) = (rig.world.arena(), rig.world.clock());
        rig.world.run(async {
            let array = rig.open(&[]).await;
            write(&array.device(), &arena, MIB, 65536, 9).await;
            array.close().await.expect("flushed");
        });
        // The last member has something else, of which no checksum tells.
        let run = layout.on_members(Extent::new(MIB, 65536));
        rig.disks[layout.members() - 1].poke(METADATA + run.offset, &[1; 512]);
        rig.world.run(async {
            let array = rig.open(&[]).await;
            let device = array.device();
            let found = device.read(MIB, arena.take(65536)).await;
            assert_eq!((found.err(), array.status().mismatches), (Some(IoError::Corrupt), 1), "{layout:?}");
            reads(&device, &arena, 2 * MIB, 65536, 0).await;
            clock.sleep(Duration::from_millis(10)).await;
            array.close().await.expect("flushed");
        });
    }
}

#[test]
fn a_sector_that_cannot_be_read_is_written_again_and_nobody_leaves() {
    for layout in LAYOUTS {
        for place in 0..layout.members() {
            let rig = Rig::new(4, layout);
            let arena = rig.world.arena();
            rig.world.run(async {
                let array = rig.open(&[]).await;
                write(&array.device(), &arena, MIB, 65536, 7).await;
                array.close().await.expect("flushed");
            });
            rig.world.run(async {
                let array = rig.open(&[]).await;
                let plan = FaultPlan { latent: 1_000_000, ..FaultPlan::default() };
                rig.disks[place].set_faults(plan, FaultBudget::new(1, 1));
                reads(&array.device(), &arena, MIB, 65536, 7).await;
                let status = array.status();
                assert!(status.is_whole(), "{layout:?}, member {place}: {status:?}");
                assert_eq!(
                    (status.members[place].errors, status.members[place].healed),
                    (1, 1),
                    "{status:?}"
                );
                array.close().await.expect("flushed");
            });
        }
    }
}

#[test]
fn changes_of_any_size_may_meet_the_loss_of_a_member() {
    for layout in LAYOUTS {
        for lost in 0..layout.members() {
            let rig = Rig::new(5, layout);
            let arena = rig.world.arena();
            rig.world.run(async {
                let array = rig.open(&[]).await;
                let device = array.device();
                write(&device, &arena, 0, 3 << 20, 1).await;
                let large = write(&device, &arena, 0, 1 << 20, 2);
                let zeros = device.zero(Extent::new(MIB, MIB), ZeroOptions::default());
                let (failed, (), zeroed) = join3(array.fail_member(lost), large, zeros).await;
                assert_eq!((failed, zeroed.err()), (Ok(()), None), "{layout:?}, member {lost}");
                for (offset, byte) in [(0, 2), (MIB, 0), (2 * MIB, 1)] {
                    reads(&device, &arena, offset, 1 << 20, byte).await;
                }
                array.close().await.expect("flushed");
            });
        }
    }
}

/// Changes the newer superblock of each member of `rig`, in the slot of its number.
fn forge(rig: &Rig, change: impl Fn(&mut Superblock)) {
    for disk in &rig.disks {
        let found = [0, SLOT_SIZE].into_iter().filter_map(|slot| {
            let bytes = disk.peek(Extent::new(slot, SLOT_SIZE));
            Superblock::decode(&bytes[..Superblock::claims(&bytes, slot)?], slot).ok()
        });
        let mut superblock = found.max_by_key(|superblock| superblock.number).expect("one");
        change(&mut superblock);
        let mut bytes = vec![0; superblock.length()];
        superblock.encode(&mut bytes);
        disk.poke(superblock.slot(), &bytes);
    }
}

#[test]
fn superblocks_that_contradict_the_layout_or_cannot_be_followed_are_an_error() {
    let forgeries: [fn(&mut Superblock); 3] = [
        |superblock| {
            let other = MemberEntry { id: Uuid::from_u128(9), ..superblock.members[0] };
            let count = if superblock.members.len() == 3 { 5 } else { 3 };
            superblock.members.resize(count, other);
            superblock.place %= 3;
            superblock.number += 2;
        },
        |superblock| superblock.number = NUMBER_MAX,
        |superblock| {
            superblock.number += 2;
            superblock.sequence = NUMBER_MAX;
        },
    ];
    for layout in LAYOUTS {
        for (index, forgery) in forgeries.iter().enumerate() {
            if index == 0 && layout.members() == 2 {
                continue; // A mirror of two may have been one of three, of which a copy was split off.
            }
            let rig = Rig::new(6, layout);
            forge(&rig, forgery);
            let opened = rig.world.run(Array::open(rig.spec, rig.members(&[]), rig.options()));
            let problem = opened.err();
            assert!(matches!(problem, Some(ArrayError::Mismatch(_))), "{layout:?}, {index}: {problem:?}");
        }
    }
}

#[test]
fn a_member_that_is_too_small_or_cannot_be_written_is_missing_and_the_others_serve() {
    for layout in LAYOUTS.into_iter().filter(|layout| layout.members() > 2) {
        let rig = Rig::new(7, layout);
        let arena = rig.world.arena();
        rig.world.run(async {
            let mut members = rig.members(&[]);
            members[1].device = Some(SimDisk::new(MIB).device(&rig.world));
            let array = Array::open(rig.spec, members, rig.options()).await.expect("the others have all");
            assert_eq!(array.status().members[1].state, MemberState::Away);
            write(&array.device(), &arena, 0, 65536, 1).await;
            array.close().await.expect("flushed");
        });
        rig.world.run(async {
            // The member returns, and fails as soon as it is written.
            let plan = FaultPlan { write_error: 1_000_000, ..FaultPlan::default() };
            rig.disks[1].set_faults(plan, FaultBudget::new(1000, 1000));
            let array = rig.open(&[]).await;
            reads(&array.device(), &arena, 0, 65536, 1).await;
            array.close().await.expect("flushed");
        });
    }
}

#[test]
fn what_a_member_left_behind_where_another_one_lies_now_is_no_exchange() {
    for layout in LAYOUTS {
        let mut rig = Rig::new(8, layout);
        let (arena, clock) = (rig.world.arena(), rig.world.clock());
        rig.world.run(async {
            let array = rig.open(&[]).await;
            write(&array.device(), &arena, 0, 65536, 1).await;
            array.close().await.expect("flushed");
        });
        // The first member was moved to another disk, and its old one was given to a new member in the last place.
        let (last, length) = (layout.members() - 1, usize::try_from(METADATA + SIZE).expect("small"));
        let moved = SimDisk::new(METADATA + 2 * SIZE);
        rig.world.run(async {
            let (from, to) = (rig.disks[0].device(&rig.world), moved.device(&rig.world));
            let all = from.read(0, arena.take(length)).await.expect("read");
            to.write(0, all.freeze(), Durability::Durable).await.expect("written");
        });
        let left = std::mem::replace(&mut rig.disks[0], moved);
        rig.disks[last] = left;
        rig.ids[last] = Uuid::from_u128(900);
        rig.world.run(async {
            let members = rig.members(&[]);
            let refused = Array::open(rig.spec, rig.members(&[0]), rig.options()).await.err();
            assert_eq!(refused, Some(ArrayError::Exchanged { place: last, found: 0 }), "FIND2");
            let options = ArrayOptions { accept_missing: true, ..rig.options() };
            let array = rig::open(&rig.world, rig.spec, members, options).await.expect("FIND2");
            while !array.status().is_whole() {
                clock.sleep(Duration::from_millis(100)).await;
            }
            array.fail_member(0).await.expect("the new member has all");
            reads(&array.device(), &arena, 0, 65536, 1).await;
            array.close().await.expect("flushed");
        });
    }
}

#[test]
fn what_was_left_behind_by_another_layout_of_the_array_is_no_member() {
    for layout in LAYOUTS {
        let rig = Rig::new(8, layout);
        let other = match layout {
            ArrayLayout::Mirror { .. } => LAYOUTS[1],
            ArrayLayout::Ddraid { .. } => LAYOUTS[0],
        };
        let former = ArraySpec { layout: other, ..rig.spec };
        let member = |id| Member {
            id: Uuid::from_u128(id),
            device: Some(SimDisk::new(METADATA + 2 * SIZE).device(&rig.world)),
        };
        let left: Vec<Member> = (900..).take(other.members()).map(member).collect();
        rig.world.run(async {
            Array::create(&former, &left, &rig.world.arena()).await.expect("made");
            let (last, mut members) = (layout.members() - 1, rig.members(&[]));
            members[last] = Member { id: Uuid::from_u128(1000), device: left[0].device.clone() };
            let options = ArrayOptions { accept_missing: true, ..rig.options() };
            let array = Array::open(rig.spec, members, options).await.expect("FIND2");
            assert_eq!(array.status().members[last].state, MemberState::CatchingUp);
            array.close().await.expect("flushed");
        });
    }
}

#[test]
fn what_lay_in_the_ring_of_a_new_member_is_no_record() {
    for layout in LAYOUTS {
        let rig = Rig::new(9, layout);
        let arena = rig.world.arena();
        rig.world.run(async {
            let array = rig.open(&[]).await;
            array.fail_member(0).await.expect("the others have all");
            let device = SimDisk::new(METADATA + 2 * SIZE).device(&rig.world);
            write(
                &device,
                &arena,
                2 * SLOT_SIZE,
                usize::try_from(METADATA - 2 * SLOT_SIZE).expect("small"),
                0xAA,
            )
            .await;
            let member = Member { id: Uuid::from_u128(901), device: Some(device.clone()) };
            array.attach(0, member).await.expect("it is free");
            reads(&device, &arena, METADATA - 65536, 65536, 0).await;
            array.close().await.expect("flushed");
        });
    }
}

#[test]
fn a_member_may_return_while_the_array_grows() {
    for (layout, seed) in LAYOUTS.into_iter().flat_map(|layout| (0..20).map(move |seed| (layout, seed))) {
        let rig = Rig::new(seed, layout);
        let (arena, clock) = (rig.world.arena(), rig.world.clock());
        rig.world.run(async {
            let array = rig.open(&[]).await;
            write(&array.device(), &arena, 0, 65536, 1).await;
            array.fail_member(1).await.expect("the others have all");
            let mut members = rig.members(&[]);
            let devices = members.iter().map(|member| member.device.clone()).collect();
            let returning = array.attach(1, members.swap_remove(1));
            let (grown, returned) = join(array.grow(2 * SIZE, devices), returning).await;
            assert_eq!((grown, returned), (Ok(()), Ok(())), "{layout:?}");
            write(&array.device(), &arena, SIZE, 65536, 2).await;
            while !array.status().is_whole() {
                clock.sleep(Duration::from_millis(100)).await;
            }
            array.fail_member(0).await.expect("the others have all");
            reads(&array.device(), &arena, 0, 65536, 1).await;
            reads(&array.device(), &arena, SIZE, 65536, 2).await;
            array.close().await.expect("flushed");
        });
    }
}

#[test]
fn a_mirror_goes_on_without_its_last_copy_that_was_split_off() {
    let mut rig = Rig::new(3, ArrayLayout::Mirror { copies: 3 });
    let arena = rig.world.arena();
    rig.world.run(async {
        let array = rig.open(&[]).await;
        write(&array.device(), &arena, 0, 65536, 1).await;
        write(&array.device(), &arena, 5 * MIB, 65536, 2).await;
        array.device().flush().await.expect("flushed");
        array.close().await.expect("closed");
    });
    let all = rig.disks.clone();
    (rig.spec.layout, rig.disks) = (ArrayLayout::Mirror { copies: 2 }, all[..2].to_vec());
    for byte in [1, 2] {
        rig.world.run(async {
            let array = rig.open(&[]).await;
            let states: Vec<_> = array.status().members.iter().map(|member| member.state).collect();
            assert_eq!(states, [MemberState::InSync; 2]);
            reads(&array.device(), &arena, 0, 65536, byte).await;
            reads(&array.device(), &arena, 5 * MIB, 65536, 2).await;
            write(&array.device(), &arena, 0, 65536, byte + 1).await;
            array.device().flush().await.expect("flushed");
        });
        rig.world.crash(CrashKind::Power);
    }
    rig.world.run(async {
        let split = all[2].device(&rig.world);
        reads(&split, &arena, METADATA, 65536, 1).await;
        reads(&split, &arena, METADATA + 5 * MIB, 65536, 2).await;
    });
}

#[test]
fn an_array_whose_flush_fails_on_all_members_rests_before_it_flushes_again() {
    for layout in LAYOUTS {
        let rig = Rig::new(1, layout);
        let (arena, clock) = (rig.world.arena(), rig.world.clock());
        rig.world.run(async {
            let array = rig.open(&[]).await;
            write(&array.device(), &arena, 0, 65536, 1).await;
            let set_failing = |flush_error| {
                let plan = FaultPlan { flush_error, ..FaultPlan::default() };
                rig.disks.iter().for_each(|disk| disk.set_faults(plan, FaultBudget::unlimited()));
            };
            let flushes = || rig.disks[0].counters().flushes;
            set_failing(1_000_000);
            let before = flushes();
            clock.sleep(Duration::from_secs(60)).await;
            let tried = flushes() - before;
            // The region that was written is looked at once a quarter of the time after which it is released.
            assert!((1..=240).contains(&tried), "{layout:?}: it flushed {tried} times in a minute");
            set_failing(0);
            clock.sleep(Duration::from_secs(10)).await;
            assert_eq!(array.status().dirty, 0, "{layout:?}: it goes on when flushes succeed");
            reads(&array.device(), &arena, 0, 65536, 1).await;
            array.close().await.expect("closed");
        });
    }
}

#[test]
fn reads_one_after_the_other_take_turns_at_members_by_the_mebibyte() {
    let layout = ArrayLayout::Mirror { copies: 2 };
    let (world, spec) = (World::new(1), rig::spec(layout, 12 * MIB, METADATA));
    let disks = [0, 1].map(|_| SimDisk::new(METADATA + 12 * MIB));
    let members = || rig::members(disks.iter().map(|disk| disk.device(&world)));
    world.run(async {
        Array::create(&spec, &members(), &world.arena()).await.expect("large enough");
        let options = ArrayOptions {
            read_policy: ReadPolicy::Rotate,
            ..ArrayOptions::new(world.arena(), world.clock())
        };
        let array = Array::open(spec, members(), options).await.expect("just made");
        let before = disks.each_ref().map(|disk| disk.counters().reads);
        for (_, piece) in Extent::new(0, 12 * MIB).pieces(MIB / 2) {
            array.device().read(piece.offset, world.arena().take(4096)).await.expect("no faults");
        }
        let reads = [0, 1].map(|place| disks[place].counters().reads - before[place]);
        assert_eq!(reads, [12; 2]);
    });
}
