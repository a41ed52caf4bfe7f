//! Members that come back as copies that were made of them while the array served, and what is clean by their stamps: as in `docs/decisions/0151-members-as-new-as-they-left.md`.

use super::rig::{self, LAYOUTS};
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Durability, Extent, IoError, MIB};
use varve_sim::{CrashAt, CrashKind, DiskImage, SimDisk, World};
use varve_target::array::{
    Array, ArrayError, ArrayLayout, ArrayOptions, ArraySpec, InjectedBug, METADATA_SIZE_MIN, Member,
    MemberState, Rates, ScrubOptions, ScrubReport,
};

const SIZE: u64 = 4 * MIB;

struct Rig {
    world: World,
    spec: ArraySpec,
    disks: Vec<SimDisk>,
    log: Option<SimDisk>,
    bug: Option<InjectedBug>,
}

impl Rig {
    fn new(layout: ArrayLayout) -> Self {
        Self::seeded(layout, 1)
    }

    fn seeded(layout: ArrayLayout, seed: u64) -> Self {
        let spec = rig::spec(layout, SIZE, METADATA_SIZE_MIN);
        let disks = (0..layout.members()).map(|_| SimDisk::new(METADATA_SIZE_MIN + SIZE)).collect();
        let rig = Self { world: World::new(seed), spec, disks, log: None, bug: None };
        let members = (0..rig.disks.len()).map(|place| rig.member(place)).collect::<Vec<_>>();
        rig.world.run(Array::create(&rig.spec, &members, &rig.world.arena())).expect("made");
        rig
    }

    fn member(&self, place: usize) -> Member {
        rig::member(place, Some(self.disks[place].device(&self.world)))
    }

    async fn open(&self, accept_missing: bool) -> Result<Rc<Array>, ArrayError> {
        let members = (0..self.disks.len()).map(|place| self.member(place)).collect();
        self.open_on(members, accept_missing).await
    }

    /// Opens the array without the members at `missing`.
    async fn open_without(&self, missing: &[usize]) -> Rc<Array> {
        let here = |place: usize| match missing.contains(&place) {
            true => rig::member(place, None),
            false => self.member(place),
        };
        let members = (0..self.disks.len()).map(here).collect();
        self.open_on(members, false).await.expect("enough are there")
    }

    /// Opens the array with member `place` alone, as a person says that it may be.
    async fn open_alone(&self, place: usize) -> Rc<Array> {
        let here = |other: usize| match other == place {
            true => self.member(other),
            false => rig::member(other, None),
        };
        let members = (0..self.disks.len()).map(here).collect();
        self.open_on(members, true).await.expect("a person says so")
    }

    async fn open_on(&self, members: Vec<Member>, accept_missing: bool) -> Result<Rc<Array>, ArrayError> {
        let log_disk = self.log.as_ref().map(|log| rig::member(50, Some(log.device(&self.world))));
        let options = ArrayOptions { injected_bug: self.bug, accept_missing, log_disk, ..self.options() };
        rig::open(&self.world, self.spec, members, options).await
    }

    fn options(&self) -> ArrayOptions {
        ArrayOptions::new(self.world.arena(), self.world.clock())
    }

    /// Writes `byte` to the first three regions, and waits until they are clean on all members.
    async fn fill(&self, array: &Rc<Array>, byte: u8) {
        for region in 0..3 {
            self.write(array, region, byte).await;
        }
        self.clean(array).await;
    }

    async fn clean(&self, array: &Rc<Array>) {
        array.device().flush().await.expect("no faults");
        while array.status().dirty > 0 {
            self.world.clock().sleep(Duration::from_millis(100)).await;
        }
    }

    async fn write(&self, array: &Rc<Array>, region: u64, byte: u8) {
        let data = self.world.arena().copy(&[byte; 8192]);
        array.device().write(region * MIB, data, Durability::Volatile).await.expect("no faults");
    }

    /// What the first bytes of the first three regions are.
    async fn read(&self, array: &Rc<Array>) -> Vec<Result<u8, IoError>> {
        let mut found = Vec::new();
        for region in 0..3 {
            let read = array.device().read(region * MIB, self.world.arena().take(8192)).await;
            found.push(read.map(|bytes| {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "blocks of two times");
                bytes[0]
            }));
        }
        found
    }

    async fn whole(&self, array: &Rc<Array>) {
        while !array.status().is_whole() {
            self.world.clock().sleep(Duration::from_millis(100)).await;
        }
    }

    /// A scrub finds nothing, and each member but one at a time says the same.
    async fn agrees(&self, array: &Rc<Array>, byte: u8) {
        self.whole(array).await;
        let (ScrubReport { mismatches, .. }, outcome) =
            array.scrub(ScrubOptions { check_only: true, rates: Rates::default() }, |_| true).await;
        assert_eq!((mismatches, outcome), (0, Ok(())), "STAMP3, STAMP4: members differ");
        for place in 0..self.disks.len() {
            array.fail_member(place).await.expect("all are there");
            assert_eq!(self.read(array).await, vec![Ok(byte); 3], "without member {place}");
            array.attach(place, self.member(place)).await.expect("it is here");
            self.whole(array).await;
        }
    }
}

/// The last member leaves, and comes back as an older copy of itself.
fn left_in_use(layout: ArrayLayout, bug: Option<InjectedBug>) {
    let rig = Rig { bug, ..Rig::new(layout) };
    let last = rig.disks.len() - 1;
    rig.world.run(async {
        let array = rig.open(false).await.expect("all are there");
        rig.fill(&array, 1).await;
        let copy = rig.disks[last].image();
        rig.fill(&array, 2).await;
        array.fail_member(last).await.expect("the others have all");
        rig.write(&array, 0, 2).await;
        rig.disks[last].restore(&copy);
        array.attach(last, rig.member(last)).await.expect("it is a member");
        rig.agrees(&array, 2).await;
    });
}

#[test]
fn a_member_that_left_in_use_and_is_older_is_filled_anew() {
    LAYOUTS.into_iter().for_each(|layout| left_in_use(layout, None));
}

#[test]
#[should_panic(expected = "members differ")]
fn a_member_that_is_as_new_as_its_number_would_be_believed() {
    left_in_use(LAYOUTS[1], Some(InjectedBug::NumbersAlone));
}

#[test]
#[should_panic(expected = "members differ")]
fn a_member_that_has_all_marks_would_be_believed() {
    let rig = Rig { bug: Some(InjectedBug::StampMarksAlone), ..Rig::new(LAYOUTS[0]) };
    rig.world.run(async {
        let array = rig.open(false).await.expect("all are there");
        rig.fill(&array, 2).await;
        rig.write(&array, 0, 1).await;
        let copy = rig.disks[1].image();
        rig.write(&array, 0, 2).await;
        rig.clean(&array).await;
        array.fail_member(1).await.expect("the other one has all");
        rig.disks[1].restore(&copy);
        array.attach(1, rig.member(1)).await.expect("it is a member");
        rig.agrees(&array, 2).await;
    });
}

#[test]
fn a_member_that_left_as_it_is_lacks_only_what_was_written_since() {
    for layout in LAYOUTS {
        let rig = Rig::new(layout);
        rig.world.run(async {
            let array = rig.open(false).await.expect("all are there");
            rig.fill(&array, 2).await;
            array.fail_member(1).await.expect("the others have all");
            rig.write(&array, 0, 2).await;
            array.attach(1, rig.member(1)).await.expect("it is a member");
            assert_eq!(array.status().members[1].lacks, 1, "STAMP3: it is as new as when it left");
            rig.agrees(&array, 2).await;
        });
    }
}

/// Opens the array whose member `place` is now the older `copy`; a mirror of two waits for a person.
async fn reopened(rig: &Rig, place: usize, copy: &DiskImage) -> Rc<Array> {
    rig.disks[place].restore(copy);
    let opened = rig.open(false).await;
    let array = match opened {
        Err(ArrayError::Older { place: older }) if (rig.disks.len(), older) == (2, place) => {
            rig.open(true).await.expect("a person says so")
        }
        opened => opened.expect("the others are more than half"),
    };
    assert_ne!(array.status().members[place].state, MemberState::InSync, "STAMP4: it is older");
    array
}

#[test]
fn an_older_member_is_not_believed_after_a_clean_stop() {
    for (layout, place) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 0), (layout, 1)]) {
        let rig = Rig::new(layout);
        rig.world.run(async {
            let array = rig.open(false).await.expect("all are there");
            rig.fill(&array, 1).await;
            rig.write(&array, 0, 1).await; // Warm when the copy is made.
            let copy = rig.disks[place].image();
            for region in 0..3 {
                rig.write(&array, region, 2).await;
            }
            array.close().await.expect("no faults");
            let array = reopened(&rig, place, &copy).await;
            assert_eq!(rig.read(&array).await, vec![Ok(2); 3]);
            rig.agrees(&array, 2).await;
        });
    }
}

#[test]
fn an_older_member_is_not_believed_after_a_crash() {
    for (layout, place) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 0), (layout, 1)]) {
        let rig = Rig::new(layout);
        let copy = rig.world.run(async {
            let array = rig.open(false).await.expect("all are there");
            rig.fill(&array, 1).await;
            let copy = rig.disks[place].image();
            rig.fill(&array, 2).await;
            copy
        });
        rig.world.crash(CrashKind::Power);
        rig.world.run(async {
            let array = reopened(&rig, place, &copy).await;
            assert_eq!(rig.read(&array).await, vec![Ok(2); 3]);
            rig.agrees(&array, 2).await;
        });
    }
}

/// The first member of a mirror is a copy that lacks the newest stamp, over a crash.
fn one_behind(bug: Option<InjectedBug>) -> Vec<Result<u8, IoError>> {
    let rig = Rig { bug, ..Rig::new(LAYOUTS[0]) };
    let copy = rig.world.run(async {
        let array = rig.open(false).await.expect("all are there");
        rig.fill(&array, 2).await;
        rig.write(&array, 0, 1).await;
        let copy = rig.disks[0].image();
        rig.write(&array, 0, 2).await;
        rig.write(&array, 1, 2).await;
        array.device().flush().await.expect("no faults");
        copy
    });
    rig.world.crash(CrashKind::Power);
    rig.disks[0].restore(&copy);
    let array = rig.world.run(rig.open(false)).expect("none is too old");
    // The next crash comes before they are equal.
    drop(array);
    rig.world.crash(CrashKind::Process);
    rig.world.run(async {
        let array = rig.open(false).await.expect("none is too old");
        rig.whole(&array).await;
        rig.read(&array).await
    })
}

#[test]
fn a_member_one_stamp_behind_does_not_decide() {
    assert_eq!(one_behind(None), vec![Ok(2); 3], "STAMP5");
    assert_eq!(one_behind(Some(InjectedBug::ResyncFromBehind))[0], Ok(1), "it would");
}

#[test]
fn a_member_that_lacks_a_mark_would_decide() {
    assert_eq!(one_behind(Some(InjectedBug::StampCleansAlone))[0], Ok(1), "STAMP1: a mark is a stamp");
}

#[test]
fn a_log_disk_that_lacks_what_members_know_is_not_read() {
    let mut rig = Rig::new(LAYOUTS[0]);
    rig.log = Some(SimDisk::new(rig.spec.log_size()));
    let image = || rig.log.as_ref().expect("it has one").image();
    let copy = rig.world.run(async {
        let array = rig.open(false).await.expect("all are there");
        rig.fill(&array, 1).await;
        let copy = image();
        rig.fill(&array, 2).await;
        rig.write(&array, 3, 2).await;
        copy
    });
    rig.world.crash(CrashKind::Power);
    rig.log.iter().for_each(|log| log.restore(&copy));
    let status = rig.world.run(rig.open(false)).expect("members are there").status();
    assert_eq!(status.unsynced, status.regions, "LOGDISK7: what was being written is not known");
    assert_eq!(Extent::new(0, SIZE).length / status.region_size, status.regions);
}

#[test]
fn stamps_of_a_history_that_was_given_up_count_no_more() {
    let rig = Rig::new(LAYOUTS[0]);
    rig.world.run(async {
        let array = rig.open(false).await.expect("both are there");
        rig.fill(&array, 1).await;
        array.close().await.expect("no faults");
        // Both go on without the other one: the second with more stamps, the first with more superblocks, so that it counts.
        let second = rig.open_alone(1).await;
        for _ in 0..8 {
            rig.fill(&second, 3).await;
        }
        second.close().await.expect("no faults");
        for _ in 0..4 {
            let first = rig.open_alone(0).await;
            rig.fill(&first, 2).await;
            first.close().await.expect("no faults");
        }
        let array = rig.open(false).await.expect("the first one was in use last");
        assert_ne!(array.status().members[1].state, MemberState::InSync, "ELECTION2: it is filled anew");
        rig.whole(&array).await;
    });
    rig.world.crash(CrashKind::Power);
    rig.world.run(async {
        let array = rig.open(false).await.expect("both are there");
        assert_eq!(array.status().unsynced, 0, "STAMP4: all was clean");
        rig.agrees(&array, 2).await;
    });
}

/// All members call all regions clean, an opening without the members at `before` is cut short at `event`, and the next one has not those at
/// `after`. Returns whether the opening was over by then.
fn cut_short(layout: ArrayLayout, event: u64, before: &[usize], after: &[usize]) -> bool {
    let rig = Rig::seeded(layout, event);
    rig.world.run(async {
        let array = rig.open(false).await.expect("all are there");
        rig.fill(&array, 2).await;
        rig.world.clock().sleep(Duration::from_millis(100)).await; // The record that says so is durable.
    });
    rig.world.crash(CrashKind::Power);
    rig.world.schedule(CrashAt::Event(event), CrashKind::Power);
    let is_over = !rig.world.run_until_crash(rig.open_without(before)).crashed();
    if is_over {
        rig.world.crash(CrashKind::Power);
    }
    rig.world.run(async {
        let status = rig.open_without(after).await.status();
        let found = (status.unsynced, status.lost_regions);
        assert_eq!(found, (0, vec![]), "STAMP5, STAMP6: {layout:?}, event {event}, {before:?}, {after:?}");
    });
    is_over
}

/// Else what is sound there would be made of what has rotted, or be lost with a data member.
#[test]
fn what_all_members_called_clean_stays_so_wherever_the_next_opening_is_cut_short() {
    let ddraid = LAYOUTS[2];
    let (none, first): (&[usize], &[usize]) = (&[], &[0]);
    let whole = LAYOUTS.map(|layout| (layout, none, none));
    let degraded = [(ddraid, none, first), (ddraid, first, first)];
    for (layout, before, after) in whole.into_iter().chain(degraded) {
        let last = (1..500).find(|event| cut_short(layout, *event, before, after));
        assert!(last.is_some_and(|last| last > 10), "{layout:?}: {last:?} events of an opening");
    }
}
