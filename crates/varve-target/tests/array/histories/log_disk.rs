//! The log disk of a host, if it has one: it fails, vanishes, hangs, returns older than it left, and another one takes its place.

use super::boot::Boot;
use super::host::{Host, Kind, Plan};
use super::watch::Event;
use std::cell::{Cell, RefCell};
use std::time::Duration;
use varve_format::array::MemberState;
use varve_sim::{DiskImage, DiskOptions, FaultBudget, FaultPlan, Holder, Holds, Random, SimDisk, World};
use varve_target::array::{ArraySpec, Member, Uuid};

/// Where a log disk is when a boot begins.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum LogFate {
    /// In its place, as it was, or as it does not matter.
    #[default]
    Here,
    /// Away, and as it was.
    Hidden,
    /// In its place, without records that no other disk has.
    Lost,
}

/// A log disk.
pub(crate) struct LogSlot {
    id: Cell<Uuid>,
    disk: RefCell<SimDisk>,
    /// An old state of it, at the end of a boot.
    image: RefCell<Option<DiskImage>>,
    /// In this boot: the holder that keeps requests to it back.
    holder: RefCell<Option<Holder>>,
    /// Records are lost with it, and no boot has opened the array since.
    pub(crate) is_lost: Cell<bool>,
    /// Those that were in its place.
    retired: RefCell<Vec<(Uuid, SimDisk)>>,
    ids: Cell<u128>,
}

impl LogSlot {
    pub(crate) fn new(spec: &ArraySpec) -> Self {
        let disk = SimDisk::with(DiskOptions::sized(spec.log_size()));
        Self {
            id: Cell::new(Uuid::from_u128(50)),
            disk: RefCell::new(disk),
            image: RefCell::default(),
            holder: RefCell::default(),
            is_lost: Cell::new(false),
            retired: RefCell::default(),
            ids: Cell::new(50),
        }
    }

    /// The disk as it is in this boot.
    pub(crate) fn member(&self, world: &World) -> Member {
        let (holder, device) = Holder::new(self.disk.borrow().device(world));
        self.release();
        self.holder.replace(Some(holder));
        Member { id: self.id.get(), device: Some(device) }
    }

    /// What was kept back goes on.
    pub(crate) fn release(&self) {
        self.holder.borrow().iter().for_each(Holder::release);
    }

    /// Another disk takes its place: one that was here before, or one that was not, with anything on it.
    fn replace(&self, random: &mut Random) {
        let retired = random.chance(1, 2).then(|| self.retired.borrow_mut().pop()).flatten();
        let (id, disk) = retired.unwrap_or_else(|| {
            self.ids.set(self.ids.get() + 1);
            let disk = SimDisk::with(self.disk.borrow().options());
            if random.chance(1, 2) {
                disk.restore(&self.disk.borrow().image()); // Records of this array, of another log disk.
            }
            (Uuid::from_u128(self.ids.get()), disk)
        });
        disk.reappear();
        disk.repair();
        let old = (self.id.replace(id), self.disk.replace(disk));
        self.retired.borrow_mut().push(old);
        self.image.take();
    }

    /// A boot has ended.
    pub(crate) fn end(&self, random: &mut Random) {
        if self.image.borrow().is_none() || random.chance(1, 2) {
            self.image.replace(Some(self.disk.borrow().image()));
        }
    }
}

impl Host {
    /// The log disk as it is when the array is opened.
    pub(crate) fn log_member(&self, plan: &Plan) -> Option<Member> {
        let log = self.log.as_ref()?;
        let here = log.member(&self.world);
        Some(Member { device: here.device.filter(|_| plan.log != LogFate::Hidden), ..here })
    }

    /// Decides what becomes of the log disk at the next boot.
    pub(crate) fn plan_log(&self, random: &mut Random) -> LogFate {
        let Some(log) = &self.log else { return LogFate::Here };
        log.disk.borrow().reappear();
        log.disk.borrow().repair();
        log.disk.borrow().set_faults(FaultPlan::default(), FaultBudget::new(0, 1));
        if log.is_lost.get() {
            return LogFate::Lost;
        }
        if !self.rotten.borrow().is_empty() {
            return LogFate::Here; // If any region may differ, what has rotted may count.
        }
        let superblocks = self.superblocks();
        let is_with_members = superblocks.iter().all(|superblock| superblock.log_disk.is_nil());
        let are_in_sync = superblocks
            .iter()
            .flat_map(|superblock| &superblock.members)
            .all(|member| member.state == MemberState::InSync);
        let may_be_lost = is_with_members || self.is_mirror() || are_in_sync;
        match random.below(7) {
            // LOGDISK5: also where a crash cut short the superblock that gave it the log.
            0 => {
                self.counts.add(Event::LogHidden, 1);
                return LogFate::Hidden;
            }
            1 if may_be_lost && log.image.borrow().is_some() => {
                let image = log.image.take().expect("it was looked at");
                log.disk.borrow().restore(&image);
                self.counts.add(Event::LogStale, 1);
            }
            2 if may_be_lost => log.replace(random),
            _ => return LogFate::Here,
        }
        log.is_lost.set(!is_with_members);
        if is_with_members { LogFate::Here } else { LogFate::Lost }
    }
}

impl Boot<'_> {
    /// Something happens to the log disk.
    pub(crate) async fn manage_log(&self, random: &mut Random) {
        let Some(log) = &self.host.log else { return };
        let has_log = self.has_log();
        match random.below(7) {
            _ if !has_log => self.return_log(random).await,
            0 => log.disk.borrow().vanish(),
            1 => {
                let failed = self.array.fail_log().await;
                self.host.counts.add(Event::LogFailed, u64::from(failed.is_ok()));
            }
            2 => {
                let count = *random.pick(&[1, 3, u32::MAX]);
                log.holder.borrow().iter().for_each(|holder| holder.hold_next(count, Holds::All));
            }
            3 if self.host.kind == Kind::Faults => {
                let faults = FaultPlan { write_error: 4000, flush_error: 6000, ..FaultPlan::default() };
                log.disk.borrow().set_faults(faults, FaultBudget::new(random.between(1, 12), 1));
            }
            4 => {
                // Another one has it from now on, or the same again: the members have it in between.
                self.array.detach_log().await.expect("enough members are there");
                assert_eq!(self.array.status().log_disk, None);
                if random.chance(1, 2) {
                    log.replace(random);
                }
                self.attach_log().await;
            }
            _ => {}
        }
    }

    /// Whether the log disk has the log. The array has none after it was to get another one, which had requests under way.
    fn has_log(&self) -> bool {
        self.array.status().log_disk.is_some_and(|log| log.has_log)
    }

    async fn return_log(&self, random: &mut Random) {
        let Some(log) = &self.host.log else { return };
        self.host.counts.add(Event::LogLeft, 1);
        if random.chance(1, 2) {
            return;
        }
        log.release();
        if random.chance(1, 4) {
            log.replace(random);
        }
        self.attach_log().await;
    }

    /// What is in the log disk's place has the log from now on, if it does not fail at once.
    async fn attach_log(&self) -> bool {
        let (host, Some(log)) = (self.host, &self.host.log) else { return false };
        log.disk.borrow().reappear();
        let attached = self.array.attach_log(log.member(&host.world)).await;
        host.counts.add(Event::LogReturned, u64::from(attached.is_ok()));
        attached.is_ok()
    }

    /// No more faults come: the log is on the log disk again.
    pub(crate) async fn recover_log(&self) {
        let Some(log) = &self.host.log else { return };
        log.release();
        log.disk.borrow().set_faults(FaultPlan::default(), FaultBudget::new(0, 1));
        for _ in 0..10 {
            if self.has_log() || self.attach_log().await {
                return;
            }
            self.host.world.clock().sleep(Duration::from_secs(1)).await;
        }
        panic!("the log disk does not return: {:?}", self.array.status());
    }
}
