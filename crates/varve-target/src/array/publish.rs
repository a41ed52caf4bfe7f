//! Superblocks: members become away, catch up and are back in sync, and the log begins anew.
//!
//! A superblock is written while no change is inside and after all members have flushed, so that no region is dirty but those
//! in which members differ since a crash.
//!
//! Invariants:
//! - PUBLISH1. No change is inside while superblocks are written.
//! - PUBLISH2. A superblock takes effect once it is durable on all members that are not away, and on the log disk that has the log; the
//!   ring is used again after that.
//! - PUBLISH3. A member that fails meanwhile is away in the next superblock, before any request goes on.

use super::dirty_log::log::{Holder, LOG_COPIES};
use super::geometry::kind_of;
use super::{Array, ArrayLayout, InjectedBug, Uuid};
use futures_util::future::{join, join_all};
use varve_block::{Completion, Device, Durability, Extent, Io, IoError, LockMode};
use varve_format::array::{BLOCK_SIZE, MemberState, Superblock};

impl Array {
    /// Writes superblocks if members have failed or the log is to begin anew, and waits for a task that does so already.
    pub(super) async fn reconfigure(&self) -> Result<(), IoError> {
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        if !self.is_leaving() && !self.wants_superblock.get() {
            return self.latch.check();
        }
        self.publish(|| {}).await
    }

    /// Writes superblocks after `change` was made to the members. The caller holds `publishing`.
    pub(super) async fn publish(&self, change: impl FnOnce()) -> Result<(), IoError> {
        let _closed = self.gate.close();
        self.gate.drained().await; // PUBLISH1
        self.wants_superblock.set(false);
        self.log.forget();
        self.latch.check()?;
        self.flush_members().await?;
        change();
        assert!(self.gate.is_empty(), "PUBLISH1");
        let outcome = self.write_superblocks().await;
        self.assert_consistent();
        self.tell();
        outcome
    }

    /// Flushes all members; those that fail are away in the superblock that comes.
    async fn flush_members(&self) -> Result<(), IoError> {
        let failed = self.write_pages(&self.pages_behind(), Durability::Volatile).await;
        self.members.leave(failed.into_iter().map(|(place, _)| place));
        let number = self.regions.flush_begins();
        let (failed, unstamped) =
            join(self.on_members(|_| Io::Flush), self.log.stamp(&self.members, &self.regions, &[])).await;
        self.members.leave(failed.into_iter().map(|(place, _)| place).chain(unstamped));
        self.send_away()?;
        self.log.stamps().end(); // STAMP1
        self.members.flushed();
        self.regions.flush_ended(number);
        self.regions.all_clean();
        Ok(())
    }

    /// Writes superblocks until one is durable on all members that are not away (PUBLISH2, PUBLISH3).
    async fn write_superblocks(&self) -> Result<(), IoError> {
        loop {
            self.write_forgotten().await?;
            if self.log_disk.send_away(&self.members) {
                tracing::warn!(array = %self.spec.id, "the log disk is away: the log lies on members");
            }
            let places = self.members.written();
            let holders = self.log_holders();
            assert!(!holders.is_empty(), "PUBLISH2: the log lies on members in sync, or on the log disk");
            self.log.prepare(&holders);
            if self.regions.unsynced().is_empty() {
                self.members.none_is_behind();
            }
            let superblock = self.superblock(&holders);
            if !self.write_log_superblock(&superblock).await {
                continue; // LOGDISK4: no member has it, so it is none.
            }
            self.number.set(superblock.number);
            self.members.superblock_begins();
            let failed = self.write_superblock(&superblock, &places).await;
            self.identity.set(superblock.identity());
            if failed.is_empty() && !self.log_disk.is_leaving() {
                self.log.begin_anew(holders); // LOGDISK1
                self.members.superblock_ended();
                return Ok(());
            }
            self.members.leave(failed);
            self.send_away()?;
        }
    }

    /// Whether a member or the log disk has failed, and that is not durable yet.
    pub(super) fn is_leaving(&self) -> bool {
        self.members.is_leaving() || self.log_disk.is_leaving()
    }

    /// The holders that are to have the log: the log disk while the array is in use, else members in sync.
    fn log_holders(&self) -> Vec<(Holder, Device)> {
        if let Some((_, device)) = self.log_disk.usable().filter(|_| !self.is_closed.get()) {
            return vec![(Holder::LogDisk, device)];
        }
        let in_sync = self.members.in_state(MemberState::InSync).into_iter().take(LOG_COPIES);
        in_sync.map(|place| (Holder::Member(place), self.members.device(place))).collect()
    }

    /// Makes durable what pages do not say yet, so that a superblock can call its regions clean (PAGES1).
    async fn write_forgotten(&self) -> Result<(), IoError> {
        let mut spans = self.pages_behind();
        while !spans.is_empty() {
            let mut failed = self.write_pages(&spans, Durability::Volatile).await;
            failed.extend(self.on_members(|_| Io::Flush).await);
            self.members.leave(failed.into_iter().map(|(place, _)| place));
            self.send_away()?;
            spans = self.pages_behind();
        }
        Ok(())
    }

    /// Members that have failed are away from the next superblock on. Shuts the array if the others do not have all data, or if
    /// those that have failed since a superblock took effect could be taken into use without them.
    fn send_away(&self) -> Result<(), IoError> {
        let leaving = self.members.leaving();
        let in_sync = self.members.in_state(MemberState::InSync).len();
        let lost = leaving.iter().filter(|place| self.members.is_in_sync(**place)).count();
        if lost > 0 && !self.members.may_lose(self.spec.layout, &leaving) {
            tracing::error!(array = %self.spec.id, in_sync, lost, "too many members have failed");
            let told = self.latch.shut(IoError::Gone);
            self.tell();
            return Err(told);
        }
        assert!(leaving.len() < self.members.count(), "PUBLISH3: some member goes on");
        for place in leaving {
            tracing::warn!(array = %self.spec.id, member = place, "a member is away");
            let (number, stamps) = (self.number.get() + 1, self.log.stamps());
            let decided =
                stamps.named().into_iter().filter(|region| !self.regions.unsynced().contains(*region));
            let lacked = self.regions.marked().into_iter().chain(decided); // STAMP3
            lacked.for_each(|region| self.members.lack(place, region));
            self.members.send_away(place, number, stamps.acknowledged());
            self.after_loss(place);
        }
        Ok(())
    }

    /// What becomes of regions in which members differ when member `place` is away.
    fn after_loss(&self, place: usize) {
        let is_parity = match self.spec.layout {
            ArrayLayout::Mirror { .. } => false,
            ArrayLayout::Ddraid { .. } => place + 1 == self.spec.layout.members(),
        };
        let lacks_member_only = match self.spec.layout {
            ArrayLayout::Mirror { .. } => true,
            ArrayLayout::Ddraid { .. } => is_parity,
        };
        if !lacks_member_only {
            return; // ARRAYIO5: they are not read until it returns.
        }
        let unsynced = self.regions.unsynced().clone();
        unsynced.iter().for_each(|region| self.members.lack(place, region));
        if is_parity || self.members.in_state(MemberState::InSync).len() == 1 {
            self.regions.accept_all();
            self.forget_checksums(unsynced.iter());
        }
    }

    /// The next superblock, but for the place.
    fn superblock(&self, holders: &[(Holder, Device)]) -> Superblock {
        let (kind, block_size) = kind_of(self.spec.layout);
        let (mut log_members, mut log_disk) = (0, Uuid::nil());
        for (holder, _) in holders {
            match holder {
                Holder::Member(place) => log_members |= 1 << place,
                Holder::LogDisk => log_disk = self.log_disk.usable().map_or(log_disk, |(id, _)| id),
            }
        }
        assert!((log_members == 0) != log_disk.is_nil(), "ARRAY5: who has the log");
        Superblock {
            number: self.number.get() + 1,
            array: self.spec.id,
            place: 0,
            kind,
            block_size,
            size: self.size(),
            metadata_size: self.spec.metadata_size,
            region_size: self.regions.size(),
            head: self.log.ring.head(),
            sequence: self.log.ring.sequence(),
            epoch: self.log.ring.epoch(),
            previous: self.identity.get(),
            checksums: self.spec.checksums,
            pages_current: self.lost.are_pages_current(),
            stamp: self.log.stamps().newest(),
            log_members,
            log_disk,
            members: self.members.entries(),
            dirty: self.regions.unsynced().bits(),
            missed: self.members.missed(self.regions.count()).bits(),
            written: self.regions.written().bits(),
            known: if self.has_bug(InjectedBug::ForgetKnown) { Vec::new() } else { self.lost.known() },
        }
    }

    /// Writes `superblock` to the members at `places`. Returns those that failed.
    async fn write_superblock(&self, superblock: &Superblock, places: &[usize]) -> Vec<usize> {
        if self.has_bug(InjectedBug::AcknowledgeBeforeEjection) && superblock.number.is_multiple_of(2) {
            return Vec::new();
        }
        let writes = places.iter().map(|place| {
            let (device, mut own) = (self.members.device(*place), superblock.clone());
            own.place = u32::try_from(*place).expect("members are few");
            async move { (*place, put_superblock(&device, &own, &self.options.arena).await.err()) }
        });
        let outcomes = join_all(writes).await;
        outcomes.into_iter().filter_map(|(place, error)| error.map(|_| place)).collect()
    }

    /// Writes `superblock` to the log disk if that is to have the log, before any member gets it (LOGDISK4). Returns whether it did not
    /// fail; it leaves if it did.
    async fn write_log_superblock(&self, superblock: &Superblock) -> bool {
        let log_disk = self.log_disk.usable().filter(|(id, _)| *id == superblock.log_disk);
        let Some((_, device)) = log_disk else { return true };
        let place = u32::try_from(self.members.count()).expect("members are few");
        let own = Superblock { place, ..superblock.clone() };
        let is_written = put_superblock(&device, &own, &self.options.arena).await.is_ok();
        if !is_written {
            self.log_disk.leave();
        }
        is_written
    }

    /// Submits the request of each member that is written, by its place; the members that failed. Allocates nothing if all answer at
    /// once.
    pub(super) async fn on_members(&self, request: impl Fn(usize) -> Io) -> Vec<(usize, IoError)> {
        let targets = self.members.targets();
        let (mut failed, mut under_way) = (Vec::new(), Vec::new());
        for (place, device) in targets.iter() {
            match device.submit(request(*place)) {
                Completion::Ready(outcome) => {
                    let outcome = outcome.expect("a request just submitted was not polled");
                    failed.extend(outcome.err().map(|error| (*place, error)));
                }
                pending => under_way.push(async move { pending.await.err().map(|error| (*place, error)) }),
            }
        }
        if !under_way.is_empty() {
            failed.extend(join_all(under_way).await.into_iter().flatten());
        }
        failed.sort_by_key(|(place, _)| *place);
        for (place, error) in failed.iter().filter(|(_, error)| *error != IoError::Unsupported) {
            let errors = &self.members.counters(*place).errors;
            errors.set(errors.get() + 1);
            tracing::debug!(array = %self.spec.id, member = place, %error, "a member failed");
        }
        failed
    }
}

/// Writes `superblock` to its slot on a member, durably.
pub(super) async fn put_superblock(
    device: &Device,
    superblock: &Superblock,
    arena: &varve_block::Arena,
) -> Result<(), IoError> {
    let mut bytes = arena.take(superblock.length());
    superblock.encode(&mut bytes);
    assert_eq!(bytes.len() as u64 % BLOCK_SIZE, 0, "ARRAY1: whole blocks");
    device.write(superblock.slot(), bytes.freeze(), Durability::Durable).await?;
    Ok(())
}
