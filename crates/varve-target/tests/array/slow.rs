//! Members that answer too late or never: they are away, and no request waits for them.

use super::rig::{self, LAYOUTS};
use futures_util::FutureExt;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Durability, IoError, MIB, timeout};
use varve_sim::{Holder, Holds, SimDisk, World};
use varve_target::array::{
    Array, ArrayError, ArrayLayout, ArrayOptions, InjectedBug, Member, MemberState, Rates, Uuid,
};

const SIZE: u64 = 4 * MIB;
const METADATA: u64 = MIB;
const SLOW_AFTER: Duration = Duration::from_secs(30);
/// A bound and a quarter, and the ejection.
const EJECTED_AFTER: Duration = Duration::from_secs(38);

struct Rig {
    world: World,
    holders: Vec<Holder>,
    devices: Vec<Device>,
    array: Rc<Array>,
}

impl Rig {
    fn new(layout: ArrayLayout) -> Self {
        Self::with(layout, None)
    }

    fn with(layout: ArrayLayout, injected_bug: Option<InjectedBug>) -> Self {
        let world = World::new(3);
        let spec = rig::spec(layout, SIZE, METADATA);
        let disks = (0..layout.members()).map(|_| SimDisk::new(METADATA + SIZE));
        let (holders, devices): (Vec<Holder>, Vec<Device>) =
            disks.map(|disk| Holder::new(disk.device(&world))).unzip();
        let options = ArrayOptions { injected_bug, ..options(&world) };
        let array = world.run(async {
            Array::create(&spec, &members(&devices), &options.arena).await.expect("made");
            rig::open(&world, spec, members(&devices), options).await.expect("it opens")
        });
        Self { world, holders, devices, array }
    }

    /// Opens the array, which was closed, again.
    async fn open(&self, accept_missing: bool) -> Result<Rc<Array>, ArrayError> {
        let options = ArrayOptions { accept_missing, ..options(&self.world) };
        rig::open(&self.world, self.array.spec(), members(&self.devices), options).await
    }

    async fn write(&self, offset: u64, byte: u8) -> Result<(), IoError> {
        let data = self.world.arena().copy(&[byte; 8192]);
        self.array.device().write(offset, data, Durability::Volatile).await.map(drop)
    }

    /// What is read at `offset`: bytes of one kind.
    async fn content(&self, offset: u64) -> u8 {
        self.array.device().read(offset, self.world.arena().take(8192)).await.expect("read")[0]
    }

    async fn reads(&self, offset: u64, byte: u8) {
        let found = self.array.device().read(offset, self.world.arena().take(8192)).await.expect("read");
        assert!(found.iter().all(|found| *found == byte), "{} is not {byte}", found[0]);
    }

    fn state(&self, place: usize) -> MemberState {
        self.array.status().members[place].state
    }
}

fn options(world: &World) -> ArrayOptions {
    ArrayOptions { slow_after: SLOW_AFTER, ..ArrayOptions::new(world.arena(), world.clock()) }
}

fn members(devices: &[Device]) -> Vec<Member> {
    rig::members(devices.iter().cloned())
}

fn member(place: usize, device: &Device) -> Member {
    rig::member(place, Some(device.clone()))
}

#[test]
fn a_write_that_a_member_never_answers_is_acknowledged_when_the_member_is_away() {
    for (layout, which) in LAYOUTS
        .into_iter()
        .flat_map(|layout| [Holds::All, Holds::VolatileWrites].map(|which| (layout, which)))
    {
        for place in 0..layout.members() {
            let rig = Rig::new(layout);
            let clock = rig.world.clock();
            rig.world.run(async {
                rig.write(0, 1).await.expect("all answer");
                rig.holders[place].hold_next(u32::MAX, which);
                let written = timeout(&clock, EJECTED_AFTER, rig.write(0, 2)).await;
                assert_eq!(written, Some(Ok(())), "{layout:?}, member {place}, {which:?}");
                let status = rig.array.status();
                assert!(status.members[place].is_slow, "{status:?}");
                assert_eq!(rig.state(place), MemberState::Away, "it is durable that it is");
                rig.reads(0, 2).await;
                assert!(rig.holders[place].held() > 0, "SLOW1: the request is under way still");
                let returning = rig.array.attach(place, member(place, &rig.devices[place])).await;
                assert!(matches!(returning, Err(ArrayError::Member { .. })), "SLOW1: {returning:?}");
                rig.holders[place].release();
                clock.sleep(Duration::from_secs(1)).await;
                rig.array
                    .attach(place, member(place, &rig.devices[place]))
                    .await
                    .expect("nothing is under way");
                clock.sleep(Duration::from_secs(10)).await;
                assert!(rig.array.status().is_whole(), "{:?}", rig.array.status());
                let other = (place + 1) % layout.members();
                rig.array.fail_member(other).await.expect("the others have all");
                rig.reads(0, 2).await;
                rig.array.close().await.expect("flushed");
            });
        }
    }
}

#[test]
fn a_read_that_a_member_never_answers_comes_from_another_one() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout);
        let clock = rig.world.clock();
        rig.world.run(async {
            rig.write(0, 1).await.expect("all answer");
            rig.holders[0].hold_next(u32::MAX, Holds::Reads);
            timeout(&clock, EJECTED_AFTER, rig.reads(0, 1)).await.expect("another member has it");
            assert_eq!(rig.state(0), MemberState::Away);
            rig.holders[0].release();
            rig.array.close().await.expect("flushed");
        });
    }
}

#[test]
fn the_last_member_that_has_the_data_is_waited_for() {
    for layout in [LAYOUTS[0], LAYOUTS[2]] {
        let rig = Rig::new(layout);
        let clock = rig.world.clock();
        rig.world.run(async {
            rig.array.fail_member(1).await.expect("the others have all");
            rig.holders[0].hold_next(u32::MAX, Holds::VolatileWrites);
            let write = rig.write(0, 1);
            let mut write = std::pin::pin!(write);
            assert_eq!(timeout(&clock, 10 * SLOW_AFTER, &mut write).await, None, "it is waited for");
            assert_eq!(rig.state(0), MemberState::InSync);
            rig.holders[0].release();
            assert_eq!(write.await, Ok(()));
            rig.reads(0, 1).await;
        });
    }
}

#[test]
fn members_that_are_slow_together_all_stay_and_so_does_one_that_is_quick_enough() {
    let rig = Rig::new(LAYOUTS[0]);
    let clock = rig.world.clock();
    rig.world.run(async {
        for hold in [&rig.holders[..], &rig.holders[..1]] {
            let length = if hold.len() == 2 { 3 * SLOW_AFTER } else { SLOW_AFTER - Duration::from_secs(1) };
            hold.iter().for_each(|holder| holder.hold_next(u32::MAX, Holds::VolatileWrites));
            let write = rig.write(0, 1);
            let mut write = std::pin::pin!(write);
            assert_eq!(timeout(&clock, length, &mut write).await, None);
            hold.iter().for_each(Holder::release);
            assert_eq!(write.await, Ok(()));
            assert!(rig.array.status().is_whole(), "{:?}", rig.array.status());
        }
    });
}

#[test]
fn an_array_is_closed_when_nothing_is_under_way_on_its_members() {
    let rig = Rig::new(LAYOUTS[0]);
    let clock = rig.world.clock();
    rig.world.run(async {
        rig.holders[1].hold_next(u32::MAX, Holds::VolatileWrites);
        rig.write(0, 1).await.expect("without the member");
        let mut closed = std::pin::pin!(rig.array.close());
        assert!(timeout(&clock, 10 * SLOW_AFTER, &mut closed).await.is_none(), "SLOW1");
        rig.holders[1].release();
        closed.await.expect("flushed");
        assert_eq!(rig.write(0, 1).now_or_never(), Some(Err(IoError::Gone)));
    });
}

/// What a mirror holds in the end whose second member was too slow for a write of 2, missed one of 3, and returned.
fn content_after_return(bug: Option<InjectedBug>) -> u8 {
    let rig = Rig::with(LAYOUTS[0], bug);
    let clock = rig.world.clock();
    rig.world.run(async {
        rig.holders[1].hold_next(1, Holds::VolatileWrites);
        rig.write(0, 2).await.expect("without the member");
        rig.write(0, 3).await.expect("without the member");
        for _ in 0..2 {
            let _may_be_refused = rig.array.attach(1, member(1, &rig.devices[1])).await;
            clock.sleep(Duration::from_secs(10)).await;
            rig.holders[1].release();
            clock.sleep(Duration::from_secs(10)).await;
        }
        assert!(rig.array.status().is_whole(), "{:?}", rig.array.status());
        rig.array.fail_member(0).await.expect("the other one has all");
        rig.content(0).await
    })
}

#[test]
fn a_slow_member_that_is_believed_too_early_is_noticed() {
    assert_eq!(content_after_return(None), 3);
    assert_eq!(content_after_return(Some(InjectedBug::BelieveSlow)), 2, "the negative control");
}

#[test]
fn nobody_waits_for_a_member_that_has_left() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout);
        let clock = rig.world.clock();
        rig.world.run(async {
            rig.write(0, 1).await.expect("all answer");
            rig.holders[0].hold_next(1, Holds::Reads);
            let (content, failed) = futures_util::join!(
                timeout(&clock, Duration::from_secs(1), rig.content(0)),
                rig.array.fail_member(0)
            );
            assert_eq!((content, failed), (Some(1), Ok(())), "{layout:?}");
            rig.array.attach(0, member(0, &rig.devices[0])).await.expect("a read changes nothing");
            rig.holders[0].release();
            rig.array.close().await.expect("flushed");
        });
    }
}

#[test]
fn a_disk_that_hangs_while_it_is_taken_in_keeps_nobody_waiting() {
    let rig = Rig::new(LAYOUTS[1]);
    let clock = rig.world.clock();
    rig.world.run(async {
        rig.array.fail_member(1).await.expect("the others have all");
        rig.holders[1].hold_next(u32::MAX, Holds::All);
        let new = Member { id: Uuid::from_u128(200), device: Some(rig.devices[1].clone()) };
        let attached = rig.array.attach(1, new);
        let rest = async {
            clock.sleep(Duration::from_secs(1)).await;
            let failed = timeout(&clock, Duration::from_secs(1), rig.array.fail_member(2)).await;
            assert_eq!(failed, Some(Ok(())), "others leave meanwhile");
            assert_eq!(timeout(&clock, Duration::from_secs(1), rig.write(0, 1)).await, Some(Ok(())));
            rig.holders[1].release();
        };
        assert_eq!(futures_util::join!(attached, rest).0, Ok(()));
        rig.reads(0, 1).await;
    });
}

#[test]
fn an_ejection_is_awaited_until_it_is_durable_on_the_others() {
    let rig = Rig::new(LAYOUTS[1]);
    let clock = rig.world.clock();
    rig.world.run(async {
        rig.holders[0].hold_next(1, Holds::DurableWrites);
        let failed = rig.array.fail_member(1);
        let rest = async {
            clock.sleep(Duration::from_secs(1)).await;
            let mut durable = std::pin::pin!(rig.array.await_ejections());
            let answer = timeout(&clock, Duration::from_secs(1), &mut durable).await;
            assert_eq!(answer, None, "the stamp before the superblock is under way");
            rig.holders[0].release();
            assert_eq!(durable.await, Ok(()));
            assert_eq!(rig.state(1), MemberState::Away);
        };
        assert_eq!(futures_util::join!(failed, rest).0, Ok(()));
    });
}

#[test]
fn an_array_is_opened_without_a_member_that_does_not_answer_if_the_others_are_enough() {
    let cases =
        [LAYOUTS[1], LAYOUTS[2]].into_iter().flat_map(|layout| (0..3).map(move |place| (layout, place)));
    for (layout, place) in cases {
        let mut rig = Rig::new(layout);
        let clock = rig.world.clock();
        rig.array = rig.world.run(async {
            rig.write(0, 1).await.expect("all answer");
            rig.array.close().await.expect("flushed");
            rig.holders[place].hold_next(u32::MAX, Holds::Reads);
            let opened = timeout(&clock, EJECTED_AFTER, rig.open(false)).await;
            opened.expect("FIND1: in time").expect("the others are enough")
        });
        rig.world.run(async {
            assert!(rig.array.status().members[place].is_slow, "{layout:?}: {:?}", rig.array.status());
            assert_eq!(rig.state(place), MemberState::Away);
            rig.write(0, 2).await.expect("without the member");
            assert!(rig.holders[place].held() > 0, "SLOW1: it is asked still");
            rig.holders[place].release();
            clock.sleep(Duration::from_secs(1)).await;
            rig.reads(0, 2).await;
            rig.array.attach(place, member(place, &rig.devices[place])).await.expect("it answers");
            clock.sleep(Duration::from_secs(10)).await;
            assert!(rig.array.status().is_whole(), "{:?}", rig.array.status());
            rig.array.fail_member((place + 1) % 3).await.expect("the others have all");
            rig.reads(0, 2).await;
            rig.array.close().await.expect("flushed");
        });
    }
}

#[test]
fn an_array_waits_for_a_member_that_may_know_better() {
    // Of a mirror of two, and of three of which another one is stale.
    for (layout, stale) in [(LAYOUTS[0], None), (LAYOUTS[1], Some(1))] {
        let mut rig = Rig::new(layout);
        let clock = rig.world.clock();
        let last = layout.members() - 1;
        rig.array = rig.world.run(async {
            if let Some(place) = stale {
                rig.array.fail_member(place).await.expect("the others have all");
            }
            rig.write(0, 1).await.expect("the others answer");
            rig.array.close().await.expect("flushed");
            rig.holders[last].hold_next(u32::MAX, Holds::Reads);
            let mut opened = std::pin::pin!(rig.open(false));
            assert!(
                timeout(&clock, 10 * SLOW_AFTER, &mut opened).await.is_none(),
                "FIND1: it may know better"
            );
            rig.holders[last].release();
            opened.await.expect("all answer")
        });
        rig.array = rig.world.run(async {
            clock.sleep(Duration::from_secs(10)).await;
            assert!(rig.array.status().is_whole(), "{:?}", rig.array.status());
            rig.reads(0, 1).await;
            rig.array.close().await.expect("flushed");
            rig.holders[last].hold_next(u32::MAX, Holds::Reads);
            let opened = timeout(&clock, EJECTED_AFTER, rig.open(true)).await;
            opened.expect("FIND1: in time").expect("a person says that the others know all")
        });
        rig.world.run(async {
            rig.reads(0, 1).await;
            rig.holders[last].release();
            rig.array.close().await.expect("flushed");
        });
    }
}

#[test]
fn the_bound_of_an_array_in_use_can_be_changed() {
    let rig = Rig::new(LAYOUTS[0]);
    let clock = rig.world.clock();
    rig.world.run(async {
        rig.write(0, 1).await.expect("all answer");
        rig.array.set_policy(Duration::from_secs(2), Rates::default());
        rig.holders[1].hold_next(u32::MAX, Holds::VolatileWrites);
        assert_eq!(timeout(&clock, Duration::from_secs(3), rig.write(0, 2)).await, Some(Ok(())));
        assert_eq!(rig.state(1), MemberState::Away);
        rig.holders[1].release();
        rig.array.close().await.expect("flushed");
    });
}
