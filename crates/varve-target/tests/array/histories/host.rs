//! A host with an array on simulated disks, and the model of what the array may hold.

use super::log_disk::{LogFate, LogSlot};
use super::watch::{Counts, Event, Exposed, Watched};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Extent, KIB, MIB};
use varve_format::array::{SLOT_SIZE, Superblock};
use varve_sim::{
    Client, CrashKind, DiskImage, DiskOptions, FaultBudget, FaultPlan, Holder, Oracle, Random, SharedOracle,
    SimDisk, World,
};
use varve_target::Linear;
use varve_target::array::{
    Array, ArrayError, ArrayLayout, ArrayOptions, ArraySpec, ArrayStatus, InjectedBug, METADATA_SIZE_MIN,
    Member, MemberState, Rates, ReadPolicy, Uuid,
};

/// A copy that lacks so many records lacks a stamp that all members have: one may have failed, and one may not be known to all.
const STAMPS_LACKED_MIN: u64 = 3;
/// By how much an array grows at most.
const GROWTH_MAX: u64 = 2 * MIB;

/// What a history is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Crashes alone: all members are always there.
    Crashes,
    /// Members fail, vanish and return, and are replaced.
    Members,
    /// Disks fail now and then, beside that.
    Faults,
    /// Boots end early, and other members are missing each time.
    Absences,
    /// Members come back as copies that were made of them while they were in use.
    Copies,
    /// Of ddraid a data member is missing at once with a crash, and what is lost is accepted, in part or as a whole.
    Losses,
}

/// What arrays are laid out like; mirrors first.
const LAYOUTS: [ArrayLayout; 6] = [
    ArrayLayout::Mirror { copies: 2 },
    ArrayLayout::Mirror { copies: 3 },
    ArrayLayout::Ddraid { order: 1, block_size: 4 * KIB },
    ArrayLayout::Ddraid { order: 1, block_size: 8 * KIB },
    ArrayLayout::Ddraid { order: 2, block_size: 4 * KIB },
    ArrayLayout::Ddraid { order: 3, block_size: 4 * KIB },
];

impl Kind {
    fn layouts(self) -> &'static [ArrayLayout] {
        if self == Kind::Losses { &LAYOUTS[2..] } else { &LAYOUTS }
    }
}

/// A member as it was while it was in use.
struct MemberCopy {
    image: DiskImage,
    /// The number of its superblock, and how many records had been written since the array was opened.
    number: u64,
    records: u64,
}

/// A member's place.
pub(crate) struct Slot {
    place: usize,
    pub(crate) id: Uuid,
    pub(crate) disk: SimDisk,
    /// Whether it may lack something that was acknowledged.
    pub(crate) is_impaired: bool,
    /// An old state of the disk, at the end of a boot.
    image: Option<DiskImage>,
    /// A copy of the disk that was made in this boot.
    copy: Option<MemberCopy>,
    /// What it was before a copy took its place.
    pub(crate) before: Option<DiskImage>,
    exposed: Rc<Exposed>,
    /// In this boot: its device, and the holder that keeps requests to it back.
    device: RefCell<Option<(Holder, Device)>>,
}

impl Slot {
    /// What was kept back goes on.
    pub(crate) fn release(&self) {
        self.holder().iter().for_each(Holder::release);
    }

    pub(crate) fn holder(&self) -> Option<Holder> {
        self.device.borrow().as_ref().map(|(holder, _)| holder.clone())
    }
}

pub(crate) struct Host {
    pub(crate) world: World,
    pub(crate) kind: Kind,
    pub(crate) spec: ArraySpec,
    pub(crate) slots: RefCell<Vec<Slot>>,
    /// The disk that has the log, if it is not with the members.
    pub(crate) log: Option<LogSlot>,
    /// The member that refuses zeros that must be fast.
    refusing: Option<usize>,
    /// What of the array clients use.
    pub(crate) windows: Vec<Extent>,
    oracle: SharedOracle,
    options: ArrayOptions,
    pub(crate) counts: &'static Counts,
    /// The array of this boot, or of the one before until it is opened again.
    pub(crate) array: RefCell<Option<Rc<Array>>>,
    /// Regions that were not durable on a member when a crash came.
    exposed: RefCell<BTreeSet<u64>>,
    /// Blocks, as clients see them, that were being written when a crash came, or a zero of which was refused, until their members are equal.
    pub(crate) torn: RefCell<BTreeSet<u64>>,
    /// Those of them whose loss was accepted.
    pub(crate) lost: RefCell<Vec<Extent>>,
    /// A mirror was read where its members differ since a crash: then the one that was read must stay.
    pub(crate) read_early: Cell<bool>,
    /// The array was closed in this boot.
    pub(crate) is_closed: Cell<bool>,
    /// Records of the log that were written in this boot.
    records: Cell<u64>,
    /// Members were missing in boots that ended before the array was open: it may be known already that they are away.
    cut_short: Cell<bool>,
    /// Bytes of the array now.
    pub(crate) size: Cell<u64>,
    /// Regions in which a member that does not count has rotted.
    pub(crate) rotten: RefCell<BTreeSet<u64>>,
    /// In a mirror without checksums: the members and places of what has rotted, and what it was. The one that rots may be the one that
    /// decides after a crash, so it does not outlive one.
    rotten_sectors: RefCell<Vec<(usize, u64, Vec<u8>)>>,
    /// Something has ever rotted.
    pub(crate) has_rotted: Cell<bool>,
    ids: Cell<u128>,
    /// Disks that were members before others were put in their places.
    retired: RefCell<Vec<SimDisk>>,
}

/// What is done with the members at a boot.
#[derive(Default, Debug)]
pub(crate) struct Plan {
    hidden: BTreeSet<usize>,
    exchanged: Option<(usize, usize)>,
    /// Members that are copies now.
    pub(crate) older: BTreeSet<usize>,
    /// What is with the log disk.
    pub(crate) log: LogFate,
    /// Members that may be lost in this boot, or return.
    pub(crate) victims: Vec<usize>,
    /// The one of them that may fail.
    pub(crate) failing: Option<usize>,
}

impl Host {
    /// A host whose sizes and settings follow from `seed`.
    pub(crate) fn new(seed: u64, kind: Kind, bug: Option<InjectedBug>, counts: &'static Counts) -> Host {
        let world = World::new(seed);
        let mut random = world.random();
        let layout = *random.pick(kind.layouts());
        let unit = layout.block_size().max(4 * KIB);
        let is_wide = random.chance(1, 16);
        let size = 2 * MIB + 8 * unit;
        let wide = if is_wide { MIB } else { 2 * unit };
        let windows = vec![
            Extent::new(0, 2 * unit),
            Extent::new(MIB - 2 * unit, 2 * unit + wide),
            Extent::new(size - 4 * unit, unit),
            Extent::new(size - 3 * unit, 3 * unit),
        ];
        let checksums = bug.map_or_else(|| random.chance(1, 2), InjectedBug::is_of_checksums);
        let metadata_size = METADATA_SIZE_MIN + if checksums { MIB } else { 0 };
        let has_log_disk = bug.map_or_else(|| random.chance(1, 3), InjectedBug::is_of_log_disks);
        let id = Uuid::from_u128(u128::from(seed) + 1);
        let spec = ArraySpec { id, layout, size, metadata_size, checksums };
        let block_size = match layout {
            ArrayLayout::Ddraid { .. } => 512,
            ArrayLayout::Mirror { .. } => *random.pick(&[512, 4096]),
        };
        let options = options(&world, &mut random, bug);
        let disk_size = spec.metadata_size + layout.on_members(Extent::new(0, size + GROWTH_MAX)).length;
        let disk = || SimDisk::with(DiskOptions { block_size, ..DiskOptions::sized(disk_size) });
        let slot = |place: usize| Slot {
            place,
            id: Uuid::from_u128(place as u128 + 1),
            disk: disk(),
            is_impaired: false,
            image: None,
            copy: None,
            before: None,
            exposed: Rc::default(),
            device: RefCell::default(),
        };
        let length = windows.iter().map(|window| window.length).sum();
        let host = Host {
            kind,
            spec,
            slots: RefCell::new((0..layout.members()).map(slot).collect()),
            refusing: bug.is_none().then_some(seed as usize % 16).filter(|place| *place < layout.members()),
            log: has_log_disk.then(|| LogSlot::new(&spec)),
            windows,
            oracle: Rc::new(RefCell::new(Oracle::new(1, length))),
            options,
            counts,
            array: RefCell::default(),
            exposed: RefCell::default(),
            torn: RefCell::default(),
            lost: RefCell::default(),
            read_early: Cell::new(false),
            is_closed: Cell::new(false),
            records: Cell::new(0),
            cut_short: Cell::new(false),
            size: Cell::new(size),
            rotten: RefCell::default(),
            rotten_sectors: RefCell::default(),
            has_rotted: Cell::new(false),
            ids: Cell::new(100),
            retired: RefCell::default(),
            world,
        };
        let members = host.members(&Plan::default());
        host.world
            .run(Array::create(&spec, &members, &host.options.arena))
            .expect("the members are large enough");
        host
    }

    pub(crate) fn is_mirror(&self) -> bool {
        matches!(self.spec.layout, ArrayLayout::Mirror { .. })
    }

    /// How many more members may be lost.
    pub(crate) fn spare(&self) -> usize {
        let impaired = self.slots.borrow().iter().filter(|slot| slot.is_impaired).count();
        self.spec.layout.tolerates().saturating_sub(impaired)
    }

    /// Whether members may be lost now: those of a mirror that was read where they differ may not.
    fn may_lose(&self) -> bool {
        self.kind != Kind::Crashes && !self.read_early.get()
    }

    /// Member `place` as it returns, with nothing under way.
    pub(crate) fn returning(&self, place: usize) -> Member {
        let slot = &mut self.slots.borrow_mut()[place];
        slot.disk.reappear();
        slot.exposed = Rc::default();
        Member { id: slot.id, device: Some(self.device_of(slot)) }
    }

    /// The device of a member, as it is in this boot.
    fn device_of(&self, slot: &Slot) -> Device {
        let (holder, device) = Holder::new(slot.disk.device(&self.world));
        let device = Device::new(Watched {
            disk: slot.disk.clone(),
            device,
            exposed: Rc::clone(&slot.exposed),
            metadata_size: self.spec.metadata_size,
            region_share: MIB / self.spec.layout.data_members(),
            refuses: self.refusing == Some(slot.place),
        });
        slot.device.replace(Some((holder, device.clone())));
        device
    }

    fn members(&self, plan: &Plan) -> Vec<Member> {
        let device = |place: usize| {
            (!plan.hidden.contains(&place)).then(|| self.device_of(&self.slots.borrow()[place]))
        };
        let ids: Vec<Uuid> = self.slots.borrow().iter().map(|slot| slot.id).collect();
        let mut members: Vec<Member> =
            ids.into_iter().enumerate().map(|(place, id)| Member { id, device: device(place) }).collect();
        if let Some((one, other)) = plan.exchanged {
            let device = members[one].device.take();
            members[one].device = std::mem::replace(&mut members[other].device, device);
        }
        members
    }

    /// Puts an empty disk, or one with something else on it, in a member's place: what was a member before, or is one of
    /// another array.
    pub(crate) fn replace(&self, place: usize, random: &mut Random) {
        self.ids.set(self.ids.get() + 1);
        let id = Uuid::from_u128(self.ids.get());
        let retired = (random.chance(1, 3)).then(|| self.retired.borrow_mut().pop()).flatten();
        let disk = retired.unwrap_or_else(|| {
            let disk = SimDisk::with(self.slots.borrow()[place].disk.options());
            self.fill(&disk, random);
            disk
        });
        disk.reappear();
        disk.repair();
        let new = Slot {
            place,
            id,
            disk,
            is_impaired: true,
            image: None,
            copy: None,
            before: None,
            exposed: Rc::default(),
            device: RefCell::default(),
        };
        let old = std::mem::replace(&mut self.slots.borrow_mut()[place], new);
        self.retired.borrow_mut().push(old.disk);
        self.counts.add(Event::Replaced, 1);
    }

    /// Fills a disk with something else: bytes where data is, and superblocks of another array, whose numbers are higher.
    fn fill(&self, disk: &SimDisk, random: &mut Random) {
        for window in &self.windows {
            let run = self.spec.layout.on_members(*window);
            let mut bytes = vec![0; usize::try_from(run.length).expect("small")];
            random.fill(&mut bytes);
            disk.poke(self.spec.metadata_size + run.offset, &bytes);
        }
        let Some(own) = self.slots.borrow().iter().find_map(|slot| self.superblock_of(slot)) else { return };
        for number in [own.number + 1000, own.number + 1001] {
            let foreign = Superblock { array: Uuid::from_u128(1 << 90), number, ..own.clone() };
            let mut bytes = vec![0; foreign.length()];
            foreign.encode(&mut bytes);
            disk.poke(foreign.slot(), &bytes);
        }
    }

    /// Decides what becomes of the members at the next boot, within what the layout survives.
    pub(crate) fn plan(&self, random: &mut Random) -> Plan {
        let mut plan = Plan { log: self.plan_log(random), ..Plan::default() };
        for slot in self.slots.borrow_mut().iter_mut() {
            // The boot before ended before the array was open.
            slot.before.take().iter().for_each(|image| slot.disk.restore(image));
        }
        let count = self.slots.borrow().len();
        for place in 0..count {
            let mut slots = self.slots.borrow_mut();
            slots[place].disk.reappear();
            slots[place].disk.repair();
            if !slots[place].is_impaired {
                continue;
            }
            plan.victims.push(place);
            // One that some superblock calls in sync may be needed: the others cannot tell whether they are alone.
            let calls_in_sync =
                |superblock: Superblock| superblock.members[place].state == MemberState::InSync;
            if slots.iter().filter_map(|slot| self.superblock_of(slot)).any(calls_in_sync) {
                continue;
            }
            match random.below(8) {
                0 | 1 => {
                    plan.hidden.insert(place);
                }
                2 => {
                    if let Some(image) = slots[place].image.take() {
                        slots[place].disk.restore(&image);
                        self.counts.add(Event::Stale, 1);
                    }
                }
                3 => {
                    drop(slots);
                    self.replace(place, random);
                }
                _ => {}
            }
        }
        if !self.may_lose() || (plan.log == LogFate::Lost && !self.is_mirror()) {
            return plan;
        }
        self.plan_losses(&mut plan, random);
        plan
    }

    /// Decides which members that have all that counts are lost at the next boot, or in it.
    fn plan_losses(&self, plan: &mut Plan, random: &mut Random) {
        let mut spare = self.spare();
        let count = self.slots.borrow().len();
        let mut others: Vec<usize> =
            (0..count).filter(|place| !self.slots.borrow()[*place].is_impaired).collect();
        random.shuffle(&mut others);
        // What is lost with a member was being written when the crash came.
        let losses = self.kind == Kind::Losses;
        while spare > 0 && (random.chance(3, 4) || losses) && (!self.torn.borrow().is_empty() || !losses) {
            spare -= 1;
            let place = others.pop().expect("a member is left when all that may be are lost");
            if self.is_told(place) && self.come_back_as_copy(place) {
                plan.older.insert(place);
                plan.victims.push(place);
                continue;
            }
            // Two that fail at one instant may be half of all, or more: one fails, others are missing from the start.
            let is_hidden =
                random.chance(1, if matches!(self.kind, Kind::Absences | Kind::Losses) { 1 } else { 3 });
            if is_hidden || plan.failing.is_some() {
                plan.hidden.insert(place);
            } else {
                plan.failing = Some(place);
            }
            plan.victims.push(place);
        }
        self.is_closed.set(false);
        self.slots.borrow_mut().iter_mut().for_each(|slot| slot.copy = None);
        if random.chance(1, 12) && others.len() >= 2 {
            plan.exchanged = Some((others[0], others[1]));
        }
    }

    /// A member in sync is copied while it is in use, if the history is about that. The copy is kept while the member has the same
    /// superblock: a later one would give it away.
    pub(crate) fn copy_member(&self, status: &ArrayStatus, victims: &[usize], random: &mut Random) {
        let is_in_sync = |place: &usize| status.members[*place].state == MemberState::InSync;
        let mut in_sync: Vec<usize> = (0..status.members.len()).filter(is_in_sync).collect();
        if in_sync.iter().any(|place| victims.contains(place)) {
            in_sync.retain(|place| victims.contains(place));
        }
        if self.kind != Kind::Copies || in_sync.is_empty() {
            return;
        }
        let slot = &mut self.slots.borrow_mut()[*random.pick(&in_sync)];
        let number = self.superblock_of(slot).map_or(0, |own| own.number);
        let is_as_new = slot.copy.as_ref().is_some_and(|copy| copy.number == number);
        if !is_as_new || random.chance(1, 3) {
            slot.copy = Some(MemberCopy { image: slot.disk.image(), number, records: status.log_records });
        }
    }

    /// The disk in `place` is the copy that was made of it from now on, if there is one. Returns whether there is.
    pub(crate) fn come_back_as_copy(&self, place: usize) -> bool {
        let slot = &mut self.slots.borrow_mut()[place];
        let Some(copy) = slot.copy.take() else { return false };
        slot.before = Some(slot.disk.image());
        slot.disk.restore(&copy.image);
        self.counts.add(Event::Copied, 1);
        true
    }

    /// Whether the copy of `place` is told from the member when the boot is over: after a crash it must lack a stamp that all have.
    fn is_told(&self, place: usize) -> bool {
        let records = |slot: &Slot| slot.copy.as_ref().map(|copy| copy.records + STAMPS_LACKED_MIN);
        let enough = records(&self.slots.borrow()[place]);
        self.is_closed.get()
            || (self.log.is_none() && enough.is_some_and(|enough| enough <= self.records.get()))
    }

    /// Lets the members that may fail do so, or none.
    pub(crate) fn let_fail(&self, plan: &Plan, enabled: bool, random: &mut Random) {
        let slots = self.slots.borrow();
        let loud = FaultPlan {
            latent: 8000,
            write_error: 4000,
            flush_error: 6000,
            flush_loss: *random.pick(&[0, 6000]),
            vanish: *random.pick(&[0, 2000]),
            stall: *random.pick(&[0, 3000]),
            ..FaultPlan::default()
        };
        let budget = FaultBudget::new(random.between(1, 12), 1);
        for (place, slot) in slots.iter().enumerate() {
            let fails = enabled && self.kind == Kind::Faults && plan.failing == Some(place);
            slot.disk.set_faults(if fails { loud } else { FaultPlan::default() }, budget.clone());
        }
    }

    /// Opens the array as `plan` says, or, where that must be refused, with all members in their places.
    pub(crate) async fn open(&self, plan: &Plan) -> Rc<Array> {
        let spec = ArraySpec { size: self.size.get(), ..self.spec };
        let open = async |plan: &Plan| {
            let options = ArrayOptions { log_disk: self.log_member(plan), ..self.options.clone() };
            Array::open(spec, self.members(plan), options).await
        };
        let was_cut_short = self.cut_short.get();
        self.cut_short.set(was_cut_short || !(plan.hidden.is_empty() && plan.older.is_empty()));
        let mut opened = open(plan).await;
        if let Some((one, other)) = plan.exchanged {
            let refused = matches!(opened, Err(ArrayError::Exchanged { place, found })
                if [(one, other), (other, one)].contains(&(place, found)));
            assert!(refused, "members were exchanged: {:?}", opened.err());
            self.counts.add(Event::Exchanged, 1);
            opened = open(&Plan { hidden: plan.hidden.clone(), ..Plan::default() }).await;
        }
        if matches!(opened, Err(ArrayError::LogUnknown)) && plan.log == LogFate::Hidden && !self.is_mirror() {
            self.counts.add(Event::LogUnknown, 1);
            opened = open(&Plan { hidden: plan.hidden.clone(), ..Plan::default() }).await;
        }
        let may_be_refused = match opened {
            Err(ArrayError::MaybeStale | ArrayError::Older { .. }) => {
                self.is_mirror() || !plan.older.is_empty()
            }
            Err(ArrayError::TooFew { .. }) => was_cut_short,
            _ => false,
        };
        if may_be_refused && !(plan.hidden.is_empty() && plan.older.is_empty()) {
            self.counts.add(Event::MaybeStale, 1);
            for place in &plan.older {
                let slot = &mut self.slots.borrow_mut()[*place];
                slot.disk.restore(&slot.before.take().expect("it is a copy"));
            }
            opened = open(&Plan::default()).await;
        }
        let array = match opened {
            Ok(array) => array,
            Err(error) => {
                let say = |slot: &Slot| {
                    self.superblock_of(slot).map(|superblock| {
                        let states: Vec<_> = superblock.members.iter().map(|member| member.state).collect();
                        (superblock.number, superblock.previous, states)
                    })
                };
                let known: Vec<_> = self.slots.borrow().iter().map(say).collect();
                panic!("enough members are there: {error}: {plan:?}, of {known:?}")
            }
        };
        self.cut_short.set(false);
        self.slots.borrow_mut().iter_mut().for_each(|slot| slot.before = None);
        self.log.iter().for_each(|log| log.is_lost.set(false));
        self.array.replace(Some(Rc::clone(&array)));
        self.note_members();
        self.check_what_was_left(&array);
        array
    }

    /// What members lack that are not in sync is acknowledged from now on.
    pub(crate) fn note_members(&self) {
        let Some(array) = &*self.array.borrow() else { return };
        let status = array.status();
        for (slot, member) in self.slots.borrow_mut().iter_mut().zip(&status.members) {
            slot.is_impaired |= member.state != MemberState::InSync;
        }
        if status.unsynced == 0 {
            self.read_early.set(false);
            self.torn.borrow_mut().clear();
        }
    }

    /// Members have caught up if all superblocks say so.
    fn note_returned(&self, states: &[MemberState]) {
        let mut slots = self.slots.borrow_mut();
        for place in 0..slots.len() {
            let mut others = slots.iter().zip(states).filter(|(_, state)| **state == MemberState::InSync);
            let is_called = |superblock: Superblock| superblock.members[place].state == MemberState::InSync;
            let is_durable = others.all(|(slot, _)| self.superblock_of(slot).is_some_and(is_called));
            slots[place].is_impaired = states[place] != MemberState::InSync || !is_durable;
        }
    }

    /// The newest superblock of a member.
    fn superblock_of(&self, slot: &Slot) -> Option<Superblock> {
        let read = |address| Superblock::decode(&slot.disk.peek(Extent::new(address, 4 * KIB)), address).ok();
        let both = [0, SLOT_SIZE].into_iter().filter_map(read);
        both.filter(|superblock| superblock.array == self.spec.id).max_by_key(|superblock| superblock.number)
    }

    /// Whether the superblocks of all other members call `place` away: then they may be used without it.
    pub(crate) fn is_durably_away(&self, place: usize) -> bool {
        let others = self.superblocks().into_iter().filter(|own| own.place as usize != place);
        { others }.all(|own| own.members[place].state == MemberState::Away)
    }

    /// The newest superblock of each member.
    pub(crate) fn superblocks(&self) -> Vec<Superblock> {
        self.slots.borrow().iter().filter_map(|slot| self.superblock_of(slot)).collect()
    }

    /// The newest superblock of all.
    fn superblock(&self) -> Superblock {
        let all = self.superblocks().into_iter();
        all.max_by_key(|superblock| superblock.number).expect("the array was opened")
    }

    /// Regions in which members may differ, as a fresh start has found them.
    pub(crate) fn unsynced_regions(&self) -> BTreeSet<u64> {
        let superblock = self.superblock();
        let bits = |region: &u64| superblock.dirty[0] >> region & 1 == 1;
        (0..superblock.regions()).filter(bits).collect()
    }

    /// The array was just opened: all that was not durable is known to be dirty, and everywhere else members agree.
    fn check_what_was_left(&self, array: &Array) {
        let status = array.status();
        self.counts.add(Event::Opened, 1);
        self.counts.add(Event::Unsynced, u64::from(status.unsynced > 0));
        let exposed = self.exposed.take();
        if !status.members.iter().all(|member| member.state == MemberState::InSync) {
            return self.counts.add(Event::Degraded, 1);
        }
        let unsynced = self.unsynced_regions();
        assert_eq!(unsynced.len() as u64, status.unsynced);
        assert!(
            exposed.is_subset(&unsynced),
            "{exposed:?} was not durable, and {unsynced:?} is called dirty"
        );
        self.compare_members(&unsynced);
    }

    /// All members are in sync, and hold the same in all regions but these.
    pub(crate) fn compare_members(&self, except: &BTreeSet<u64>) {
        let slots = self.slots.borrow();
        let unit = self.spec.layout.block_size().max(4 * KIB);
        for block in self.windows.iter().flat_map(|window| window.pieces(unit)).map(|(_, block)| block) {
            let region = block.offset / MIB;
            if except.contains(&region) || self.rotten.borrow().contains(&region) {
                continue;
            }
            let run = self.spec.layout.on_members(block);
            let at = Extent::new(self.spec.metadata_size + run.offset, run.length);
            let mut held = slots.iter().map(|slot| slot.disk.peek(at));
            let first = held.next().expect("an array has members");
            let agree = if self.is_mirror() {
                held.all(|other| other == first)
            } else {
                held.fold(first, |sum, other| sum.iter().zip(other).map(|(one, other)| one ^ other).collect())
                    .iter()
                    .all(|byte| *byte == 0)
            };
            assert!(agree, "RESYNC3: members differ in {block:?}, which is clean");
            self.counts.add(Event::Checked, 1);
        }
    }

    /// The array becomes larger, as its text says already.
    pub(crate) async fn grow(&self, array: &Array) {
        let size = self.size.get() + MIB;
        if size > self.spec.size + GROWTH_MAX {
            return;
        }
        self.size.set(size);
        let device = |slot: &Slot| slot.device.borrow().as_ref().map(|(_, device)| device.clone());
        let devices = self.slots.borrow().iter().map(device).collect();
        array.grow(size, devices).await.expect("its disks have as much");
        self.counts.add(Event::Grown, 1);
    }

    /// A sector changes below `block` of the array, which was written: of any member if there are checksums, else of the last one,
    /// which does not count.
    pub(crate) fn rot(&self, block: Extent, random: &mut Random) {
        let run = self.spec.layout.on_members(block);
        let slots = self.slots.borrow();
        let last = slots.len() - 1;
        let place = if self.spec.checksums { random.below(slots.len() as u64) as usize } else { last };
        let disk = &slots[place].disk;
        let mut sector = vec![0; 512];
        random.fill(&mut sector);
        let at = self.spec.metadata_size + run.offset + random.below(run.length / 512) * 512;
        if self.is_mirror() && !self.spec.checksums {
            let before = disk.peek(Extent::new(at, 512));
            self.rotten_sectors.borrow_mut().push((place, at, before));
        }
        disk.poke(at, &sector);
        self.rotten.borrow_mut().insert(block.offset / MIB);
        self.has_rotted.set(true);
        self.counts.add(Event::Rotten, 1);
    }

    /// What has rotted was written again.
    pub(crate) fn note_mended(&self) {
        self.rotten.borrow_mut().clear();
        self.rotten_sectors.borrow_mut().clear();
    }

    /// A client of the windows of the array.
    pub(crate) fn client(&self, array: &Rc<Array>) -> Client {
        let device = array.device();
        let windows = self.windows.iter().map(|window| (window.length, device.clone(), window.offset));
        let windows = Device::new(Linear::new(windows.collect()));
        Client::new(windows, self.world.arena(), Rc::clone(&self.oracle))
    }

    /// Where clients see the parts of `extent` of the array.
    pub(crate) fn seen(&self, extent: Extent) -> Vec<Extent> {
        let mut start = 0;
        let mut seen = Vec::new();
        for window in &self.windows {
            if let Some(part) = window.intersect(extent) {
                seen.push(Extent::new(start + part.offset - window.offset, part.length));
            }
            start += window.length;
        }
        seen
    }

    /// The boot has ended.
    pub(crate) fn end(&self, kind: Option<CrashKind>) {
        if let Some(kind) = kind {
            self.world.crash(kind);
        }
        let rotten = self.rotten.borrow().clone(); // What a scrub was writing there is as it was.
        for (place, at, before) in self.rotten_sectors.take() {
            self.slots.borrow()[place].disk.poke(at, &before);
            self.rotten.borrow_mut().clear();
        }
        self.note_members();
        if let Some(array) = self.array.take() {
            self.records.set(array.status().log_records);
            let states: Vec<MemberState> = array.status().members.iter().map(|member| member.state).collect();
            for (slot, state) in self.slots.borrow().iter().zip(&states) {
                if *state == MemberState::InSync {
                    let regions =
                        slot.exposed.regions().into_iter().filter(|region| !rotten.contains(region));
                    self.exposed.borrow_mut().extend(regions);
                }
            }
            self.note_returned(&states);
        }
        self.log.iter().for_each(|log| log.end(&mut self.world.random()));
        for slot in self.slots.borrow_mut().iter_mut() {
            slot.exposed = Rc::default();
            if !slot.is_impaired {
                slot.image = Some(slot.disk.image());
            }
        }
        let mut oracle = self.oracle.borrow_mut();
        oracle.crashed();
        let all = Extent::new(0, oracle.size()).pieces(self.spec.layout.block_size().max(4 * KIB));
        let is_torn =
            |block: &Extent| block.pieces(512).any(|(_, sector)| oracle.allowed(sector.offset).len() > 1);
        let torn = all.map(|(_, block)| block).filter(is_torn);
        self.torn.borrow_mut().extend(torn.map(|block| block.offset));
    }
}

/// How the array is used: as `random` decides.
fn options(world: &World, random: &mut Random, bug: Option<InjectedBug>) -> ArrayOptions {
    let floor = *random.pick(&[MIB, u64::MAX]);
    // At full speed work meets more writers.
    let rates = Rates { floor: if bug.is_some() { u64::MAX } else { floor }, ..Rates::default() };
    ArrayOptions {
        release_delay: Duration::from_millis(*random.pick(&[0, 1, 30, 1000])),
        read_policy: *random.pick(&[ReadPolicy::Data, ReadPolicy::Rotate, ReadPolicy::Verify]),
        rates,
        slow_after: *random.pick(&[Duration::from_millis(100), Duration::from_secs(5)]),
        injected_bug: bug,
        ..ArrayOptions::new(world.arena(), world.clock())
    }
}
