//! The members of an array in use: their devices, what they are worth, and what was counted of them.
//!
//! Invariants:
//! - MEMBERS1. A member that is not away has a device; one that is in sync lacks nothing.
//! - MEMBERS2. What is written is sent to the members that are not away, and to no other.

use super::geometry::ArrayLayout;
use super::region_set::RegionSet;
use super::slow::{Requests, Watch};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_block::{Device, Extent};
use varve_format::array::{MemberEntry, MemberState, Uuid};

/// The members.
pub(super) struct Members {
    slots: RefCell<Vec<Slot>>,
    /// Those that are not away, and their devices.
    targets: RefCell<Targets>,
    /// Members that have failed, and are away as soon as that is durable.
    leaving: RefCell<BTreeSet<usize>>,
    /// Bytes in front of a member's data.
    metadata_size: u64,
    counters: Vec<Counters>,
    /// Over the requests on all of them.
    watch: Rc<Watch>,
    /// A fault for tests: a member decides although it is behind.
    decides_behind: bool,
    /// Members that have left, and what is still under way on them.
    left: RefCell<Vec<(Uuid, Rc<Requests>)>>,
    /// The members in sync by each superblock that one which leaves now may have as its newest (ELECTION5).
    called: RefCell<Vec<Vec<usize>>>,
}

/// Members by their places.
pub(super) type Targets = Rc<[(usize, Device)]>;

#[derive(Clone)]
struct Slot {
    entry: MemberEntry,
    device: Option<Device>,
    /// Those on its device, or on the last that it had.
    requests: Rc<Requests>,
    /// Whether one of them took too long.
    is_slow: bool,
    /// What it lacks while it is not in sync.
    lacks: RegionSet,
    /// What it has been caught up in since it was flushed last: it may lose that.
    unflushed: RegionSet,
}

/// What was counted of a member.
#[derive(Default)]
pub(super) struct Counters {
    /// Requests that failed.
    pub(super) errors: Cell<u64>,
    /// Bad sectors that were written again.
    pub(super) healed: Cell<u64>,
    /// Blocks of which it held something else than what was written.
    pub(super) wrong: Cell<u64>,
    /// Reads under way.
    pub(super) reading: Cell<u64>,
}

impl Members {
    pub(super) fn new(
        members: Vec<(MemberEntry, Option<Device>, RegionSet)>,
        requests: &[Rc<Requests>],
        watch: &Rc<Watch>,
        (metadata_size, decides_behind): (u64, bool),
        called: Vec<Vec<usize>>,
    ) -> Self {
        let counters = members.iter().map(|_| Counters::default()).collect();
        let watch = Rc::clone(watch);
        let ids = members.iter().map(|(entry, ..)| entry.id);
        let left = ids.zip(requests.iter().cloned()).filter(|(_, requests)| requests.is_abandoned());
        let left = RefCell::new(left.collect());
        let slots = members.into_iter().zip(requests).map(|((entry, device, lacks), requests)| {
            let mut unflushed = lacks.clone();
            unflushed.clear();
            let (requests, is_slow) = (Rc::clone(requests), requests.is_abandoned());
            let device = device.map(|device| requests.on(device));
            Slot { entry, device, requests, is_slow, lacks, unflushed }
        });
        let members = Self {
            slots: RefCell::new(slots.collect()),
            targets: RefCell::new(Rc::new([])),
            left,
            leaving: RefCell::default(),
            metadata_size,
            counters,
            watch,
            decides_behind,
            called: RefCell::new(called),
        };
        members.retarget();
        members.assert_consistent();
        members
    }

    /// MEMBERS2: members have left or come, or have other devices.
    fn retarget(&self) {
        let slots = self.slots.borrow();
        let here = slots.iter().enumerate().filter(|(_, slot)| slot.entry.state != MemberState::Away);
        let targets = here.filter_map(|(place, slot)| Some((place, slot.device.clone()?)));
        let targets: Targets = targets.collect();
        assert!(targets.len() <= self.count(), "MEMBERS2: a member is written once");
        *self.targets.borrow_mut() = targets;
    }

    /// Panics if what is known of members contradicts itself (MEMBERS1, MEMBERS2).
    pub(super) fn assert_consistent(&self) {
        for slot in self.slots.borrow().iter() {
            let state = slot.entry.state;
            assert!(
                state == MemberState::Away || slot.device.is_some(),
                "MEMBERS1: a member without a device"
            );
            assert!(state != MemberState::InSync || slot.lacks.is_empty(), "MEMBERS1: it lacks something");
            assert_eq!(
                state == MemberState::InSync,
                slot.entry.away_since == 0,
                "ARRAY5: since when it is away"
            );
        }
        let targets: Vec<usize> = self.targets.borrow().iter().map(|(place, _)| *place).collect();
        assert_eq!(targets, self.written(), "MEMBERS2");
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.counters.len()
    }

    /// What was counted of member `place`.
    pub(super) fn counters(&self, place: usize) -> &Counters {
        assert!(place < self.count(), "MEMBERS1: member {place} of {}", self.count());
        &self.counters[place]
    }

    /// What is known of the members, as a superblock has it.
    pub(super) fn entries(&self) -> Vec<MemberEntry> {
        self.slots.borrow().iter().map(|slot| slot.entry).collect()
    }

    pub(super) fn state(&self, place: usize) -> MemberState {
        self.slots.borrow()[place].entry.state
    }

    /// Whether member `place` never decides what dirty regions hold (STAMP5).
    pub(super) fn is_behind(&self, place: usize) -> bool {
        self.slots.borrow()[place].entry.is_behind
    }

    /// Nothing is dirty that members decide.
    pub(super) fn none_is_behind(&self) {
        self.slots.borrow_mut().iter_mut().for_each(|slot| slot.entry.is_behind = false);
    }

    /// Places of the members in sync. The first of them decides what dirty regions of a mirror hold (STAMP5).
    pub(super) fn sources(&self) -> Vec<usize> {
        let mut sources = self.in_state(MemberState::InSync);
        if !self.decides_behind {
            sources.sort_by_key(|place| self.is_behind(*place));
        }
        sources
    }

    pub(super) fn is_in_sync(&self, place: usize) -> bool {
        self.state(place) == MemberState::InSync
    }

    /// Places of the members in this state.
    pub(super) fn in_state(&self, state: MemberState) -> Vec<usize> {
        (0..self.count()).filter(|place| self.state(*place) == state).collect()
    }

    /// Whether the others may go on if the members at `lost` leave (ELECTION5).
    pub(super) fn may_lose(&self, layout: ArrayLayout, lost: &[usize]) -> bool {
        let mut rest = self.in_state(MemberState::InSync);
        rest.retain(|place| !lost.contains(place));
        may_go_on(layout, &self.called.borrow(), &rest)
    }

    /// A superblock that says what members are is about to be written: each of them may have it.
    pub(super) fn superblock_begins(&self) {
        self.called.borrow_mut().push(self.in_state(MemberState::InSync));
    }

    /// Whether the members in sync are those of the last superblock: none has left since.
    pub(super) fn are_as_called(&self) -> bool {
        self.called.borrow().last() == Some(&self.in_state(MemberState::InSync))
    }

    /// It has taken effect: no member that leaves from now on has one before.
    pub(super) fn superblock_ended(&self) {
        self.called.replace(vec![self.in_state(MemberState::InSync)]);
    }

    /// Places of the members that are written.
    pub(super) fn written(&self) -> Vec<usize> {
        (0..self.count()).filter(|place| self.state(*place) != MemberState::Away).collect()
    }

    /// The members that are written, with their devices.
    pub(super) fn targets(&self) -> Targets {
        Rc::clone(&self.targets.borrow())
    }

    /// The device of member `place`, which is not away, metadata included.
    pub(super) fn device(&self, place: usize) -> Device {
        self.slots.borrow()[place].device.clone().expect("MEMBERS1: a member that is not away has a device")
    }

    /// Where `run` of the data of a member is on its device.
    pub(super) fn on_device(&self, run: Extent) -> u64 {
        self.metadata_size + run.offset
    }

    /// Members have failed.
    pub(super) fn leave(&self, places: impl IntoIterator<Item = usize>) {
        let written = self.written();
        self.leaving.borrow_mut().extend(places.into_iter().filter(|place| written.contains(place)));
    }

    /// The members that have failed and are not away yet.
    pub(super) fn leaving(&self) -> Vec<usize> {
        self.leaving.borrow().iter().copied().collect()
    }

    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.borrow().is_empty()
    }

    /// Member `place` is away from superblock `number` on, and has stamp `left_at`.
    pub(super) fn send_away(&self, place: usize, number: u64, left_at: u64) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[place];
        assert_ne!(slot.entry.state, MemberState::Away, "MEMBERS1: it is away already");
        slot.lacks.insert_all(&slot.unflushed);
        slot.unflushed.clear();
        let state = MemberState::Away;
        slot.entry = MemberEntry { state, away_since: number, left_at, is_behind: false, ..slot.entry };
        slot.device = None;
        self.end_requests(slot);
        self.leaving.borrow_mut().remove(&place);
        drop(slots);
        self.retarget();
    }

    /// A device takes the place of an absent member: it is written from now on, and lacks `lacks`.
    pub(super) fn take_in(&self, place: usize, id: Uuid, device: Device, lacks: RegionSet) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[place];
        assert_eq!(slot.entry.state, MemberState::Away, "MEMBERS1: the place is taken");
        if slot.entry.id != id {
            self.counters[place].errors.take(); // Those of another one.
            self.counters[place].healed.take();
            self.counters[place].wrong.take();
        }
        slot.entry = MemberEntry { id, state: MemberState::CatchingUp, left_at: 0, ..slot.entry };
        (slot.requests, slot.is_slow) = (Requests::new(&self.watch), false);
        (slot.device, slot.lacks) = (Some(slot.requests.on(device)), lacks);
        drop(slots);
        self.retarget();
    }

    /// Member `place` has everything, durably.
    pub(super) fn take_back(&self, place: usize) {
        let slot = &mut self.slots.borrow_mut()[place];
        assert!(slot.lacks.is_empty(), "MEMBERS1: it lacks something");
        (slot.entry.state, slot.entry.away_since) = (MemberState::InSync, 0);
    }

    /// Regions are about to be written that members which are away will lack.
    pub(super) fn miss(&self, region: u64) {
        let mut slots = self.slots.borrow_mut();
        for slot in slots.iter_mut().filter(|slot| slot.entry.state == MemberState::Away) {
            slot.lacks.insert(region);
        }
    }

    /// The array has `regions` regions from now on, each 2^`doublings` of before, and members that are not away these devices.
    pub(super) fn resize(&self, devices: Vec<Option<Device>>, doublings: u32, regions: u64) {
        assert_eq!(devices.len(), self.count(), "MEMBERS1: a device for each");
        for (slot, device) in self.slots.borrow_mut().iter_mut().zip(devices) {
            slot.lacks = slot.lacks.folded(doublings, regions);
            slot.unflushed = slot.unflushed.folded(doublings, regions);
            if slot.entry.state != MemberState::Away {
                slot.device = device.map(|device| slot.requests.on(device)).or(slot.device.take());
            }
        }
        self.retarget();
    }

    /// Over the requests on all members.
    pub(super) fn watch(&self) -> &Rc<Watch> {
        &self.watch
    }

    /// Whether a caller waits for a member.
    pub(super) fn is_waited_for(&self) -> bool {
        self.slots.borrow().iter().any(|slot| slot.requests.is_waited_for())
    }

    /// Waits until no caller waits for a member.
    pub(super) async fn rest(&self) {
        self.watch.rest(|| !self.is_waited_for()).await;
    }

    /// Whether a request on member `place`, which is not away, takes too long.
    pub(super) fn is_slow(&self, place: usize) -> bool {
        let slot = &self.slots.borrow()[place];
        slot.device.is_some() && (slot.is_slow || slot.requests.is_slow())
    }

    /// Whether member `place` is away because a request took too long.
    pub(super) fn was_slow(&self, place: usize) -> bool {
        let slot = &self.slots.borrow()[place];
        slot.device.is_none() && slot.is_slow
    }

    /// Member `place` fails because a request on it takes too long. Returns whether that is new.
    pub(super) fn abandon(&self, place: usize) -> bool {
        assert_ne!(self.state(place), MemberState::Away, "MEMBERS1: it is away already");
        self.leave([place]);
        let slot = &mut self.slots.borrow_mut()[place];
        self.end_requests(slot);
        !std::mem::replace(&mut slot.is_slow, true)
    }

    /// No caller waits any more for what is under way on a member that leaves.
    fn end_requests(&self, slot: &Slot) {
        if !slot.requests.is_abandoned() {
            self.see_off(slot.entry.id, &slot.requests);
        }
    }

    /// No caller waits any more for `requests`, on the member or log disk `id`, which leaves.
    pub(super) fn see_off(&self, id: Uuid, requests: &Rc<Requests>) {
        self.left.borrow_mut().push((id, Rc::clone(requests)));
        requests.abandon();
    }

    /// Whether requests are still under way on member `id`, which has left: they may change it.
    pub(super) fn is_changing(&self, id: Uuid) -> bool {
        self.left.borrow_mut().retain(|(_, requests)| !requests.have_ended());
        self.left.borrow().iter().any(|(left, requests)| *left == id && requests.are_changing())
    }

    /// Waits until nothing is under way any more on members that have left.
    pub(super) async fn await_departed(&self) {
        let left = self.left.take();
        for (_, requests) in left {
            requests.ended().await;
        }
    }

    /// Member `place` lacks `region`.
    pub(super) fn lack(&self, place: usize, region: u64) {
        assert!(place < self.count(), "MEMBERS1: member {place} of {}", self.count());
        self.slots.borrow_mut()[place].lacks.insert(region);
    }

    /// Member `place` lacks everything.
    pub(super) fn lack_all(&self, place: usize) {
        assert_eq!(self.state(place), MemberState::Away, "MEMBERS1: it is read");
        self.slots.borrow_mut()[place].lacks.fill();
    }

    /// Member `place` has been caught up in `region`.
    pub(super) fn caught_up(&self, place: usize, region: u64) {
        let slot = &mut self.slots.borrow_mut()[place];
        assert_eq!(slot.entry.state, MemberState::CatchingUp, "MEMBERS1: only such a member lacks less");
        slot.lacks.remove(region);
        slot.unflushed.insert(region);
    }

    /// All members that are not away were flushed after the last of them was caught up in anything.
    pub(super) fn flushed(&self) {
        self.slots.borrow_mut().iter_mut().for_each(|slot| slot.unflushed.clear());
    }

    /// What member `place` lacks.
    pub(super) fn lacks(&self, place: usize) -> RegionSet {
        self.slots.borrow()[place].lacks.clone()
    }

    /// The next region from `from` on that member `place` lacks.
    pub(super) fn next_lacked(&self, place: usize, from: u64) -> Option<u64> {
        self.slots.borrow()[place].lacks.next(from)
    }

    /// What any member lacks; a set of `regions` regions.
    pub(super) fn missed(&self, regions: u64) -> RegionSet {
        let mut missed = RegionSet::new(regions);
        self.slots.borrow().iter().for_each(|slot| missed.insert_all(&slot.lacks));
        missed
    }
}

/// Whether the members at `rest` may go on without all others: these must not be taken into use later by one of the superblocks
/// that they may have, which call the members in `called` in sync (ELECTION5).
pub(super) fn may_go_on(layout: ArrayLayout, called: &[Vec<usize>], rest: &[usize]) -> bool {
    assert!(!called.is_empty(), "ELECTION5: a superblock took effect");
    let lost = |called: &Vec<usize>| called.iter().filter(|place| !rest.contains(place)).count();
    rest.len() as u64 >= layout.data_members() && called.iter().all(|called| lost(called) * 2 <= called.len())
}
