//! Members made equal after a crash, and caught up after an absence.
//!
//! Invariants: ARRAYIO4 and ARRAYIO5 of the module, and
//! - RESYNC1. After a crash the data of ddraid is authoritative and parity is computed; of a mirror the first member in sync that was not behind.
//! - RESYNC2. A member is back in sync when it lacks nothing, has flushed, and a superblock that says so is durable.
//! - RESYNC3. A member that leaves while it is caught up in a region is caught up in all of it when it is back.
//! - RESYNC4. Where a change has failed on members that stay, members are made equal: those in sync, if they can differ, and those
//!   catching up lack it. Work that was under way there is done again.
//! - RESYNC5. Work on a region is valid only if the region has the same bytes at its end: the array may have become larger, and its regions
//!   too, so that their numbers mean others.

use super::super::checksums::Expected;
use super::super::dirty_log::log_disk;
use super::super::opening::election::lacks_only_missed;
use super::super::opening::find::{read_superblock, shown};
use super::super::opening::recover::unfit;
use super::super::{Array, ArrayError, ArrayLayout, InjectedBug, Member, Uuid, combine};
use super::region_work::RegionWork;
use varve_block::{
    Buffer, Bytes, Device, Durability, Extent, IoError, KIB, LockMode, Outcome, TrackerGuard, ZeroOptions,
};
use varve_format::array::{MemberState, Superblock, fragment_checksum};

/// Bytes of a member that are made equal at a time, while their writers wait. The first requests of a client wait behind all chunks that
/// are under way.
const CHUNK: u64 = 64 * KIB;
/// Bytes of the array instead while clients are served: a request of theirs that comes behind a chunk waits for so much less.
const CHUNK_BUSY: u64 = 16 * KIB;
/// How work on a region ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::array) enum Step {
    /// All of it is done.
    Done,
    /// It cannot be done now: members are missing, or cannot be read.
    Stuck,
}

impl Array {
    /// A device takes the place of a member that is away: the member returns, or another one replaces it. It is caught up by
    /// [`Array::background`].
    pub async fn attach(&self, place: usize, member: Member) -> Result<(), ArrayError> {
        let problem = |problem| ArrayError::Member { place, problem };
        let device = member.device.clone().ok_or(problem("it is missing"))?;
        let _attaching = self.attaching.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.check_attached(place, member.id, &device)?;
        let own = read_superblock(&device, place, &self.options.arena).await?.newest;
        let before = self.members.entries()[place]; // No other task takes the place meanwhile.
        let is_own =
            |own: &Superblock| (own.array, own.place as usize, before.id) == (self.spec.id, place, member.id);
        let is_known = match own.filter(is_own) {
            None => false,
            Some(own) if self.has_bug(InjectedBug::NumbersAlone) => {
                lacks_only_missed((own.number, before.left_at), &before)
            }
            Some(own) => {
                let newest = shown(&self.spec, &device, &own, &self.options.arena).await;
                lacks_only_missed((own.number, newest.stamp), &before)
            }
        };
        if !is_known {
            // No superblock, stamp or record that was here before must count beside what comes.
            log_disk::clear(&self.spec, &device).await?;
        }
        // Superblocks need not wait for a disk that hangs.
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.check_attached(place, member.id, &device)?;
        self.publish(|| {
            let mut lacks = self.members.lacks(place);
            if !is_known {
                lacks.fill();
            }
            self.members.take_in(place, member.id, device, lacks);
        })
        .await?;
        Ok(())
    }

    /// Whether member `id` on `device` can be taken in at `place`.
    fn check_attached(&self, place: usize, id: Uuid, device: &Device) -> Result<(), ArrayError> {
        let problem = if self.members.count() <= place || self.members.state(place) != MemberState::Away {
            Some("its place is taken")
        } else if self.members.is_changing(id) && !self.has_bug(InjectedBug::BelieveSlow) {
            Some("requests that took too long are still under way on it")
        } else if device.shape().block_size > self.shape.get().block_size {
            Some("its sectors are larger than those of the others")
        } else {
            unfit(&self.spec(), device)
        };
        problem.map_or(Ok(()), |problem| Err(ArrayError::Member { place, problem }))
    }

    /// Takes member `place` out of use, as if it had failed.
    pub async fn fail_member(&self, place: usize) -> Result<(), ArrayError> {
        if self.members.count() <= place || self.members.state(place) == MemberState::Away {
            return Err(ArrayError::Member { place, problem: "it is away already" });
        }
        let in_sync = self.members.in_state(MemberState::InSync);
        let needed = usize::try_from(self.spec.layout.data_members()).expect("members are few");
        if in_sync.contains(&place) && in_sync.len() <= needed {
            return Err(ArrayError::Member { place, problem: "the others do not have all data" });
        }
        self.members.leave([place]);
        Ok(self.reconfigure().await?)
    }

    /// What member `place`, which is away, holds is believed nowhere any more, durably: it is filled anew when it returns.
    pub async fn disown_member(&self, place: usize) -> Result<(), ArrayError> {
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        if self.members.count() <= place || self.members.state(place) != MemberState::Away {
            return Err(ArrayError::Member { place, problem: "it is in use" });
        }
        Ok(self.publish(|| self.members.lack_all(place)).await?)
    }

    /// Waits until it is durable on the others that the members are away which are.
    pub async fn await_ejections(&self) -> Result<(), ArrayError> {
        Ok(self.reconfigure().await?)
    }

    /// Makes `region` equal on all members in sync (RESYNC1).
    pub(in crate::array) async fn resync(&self, region: u64) -> Result<Step, IoError> {
        let in_sync = self.members.sources();
        assert!(!in_sync.is_empty(), "RESYNC1: a member counts");
        let targets = match self.spec.layout {
            ArrayLayout::Mirror { .. } => &in_sync[1..],
            ArrayLayout::Ddraid { .. } => &[self.spec.layout.members() - 1][..],
        };
        let work = self.regions.begin_work(region, self.size());
        let is_wanted = || {
            let is_as_before = self.members.sources() == in_sync;
            let is_needed = || !self.lacks_data_member() && self.regions.unsynced().contains(region);
            work.counts() && is_as_before && is_needed() && !self.is_closed.get()
        };
        if !self.has_bug(InjectedBug::ResyncWithoutChecksums) {
            self.forget_checksums([region]); // PAGES2
        }
        for place in targets {
            if self.restore(*place, work.extent(), is_wanted).await? == Step::Stuck {
                return Ok(Step::Stuck);
            }
        }
        let _alone = self.lock_alone(work.extent()).await;
        let _inside = self.gate.enter().await;
        if is_wanted() {
            self.regions.resynced(region, self.options.clock.now());
            if self.regions.unsynced().is_empty() {
                self.members.none_is_behind();
            }
            self.tell();
        }
        Ok(Step::Done)
    }

    /// Writes to member `place`, which is catching up, what it lacks of `region`.
    pub(in crate::array) async fn catch_up(&self, place: usize, region: u64) -> Result<Step, IoError> {
        assert!(!self.members.is_in_sync(place), "RESYNC2: member {place} is in sync");
        let away_since = || self.members.entries()[place].away_since;
        let before = away_since();
        let work = self.regions.begin_work(region, self.size());
        let is_wanted = || {
            let is_known = || !self.regions.unsynced().contains(region); // Those in sync are made equal first.
            // RESYNC3: one that left meanwhile, and is back, lacks the region again.
            let is_behind = self.members.state(place) == MemberState::CatchingUp && away_since() == before;
            work.counts() && is_known() && is_behind && !self.is_closed.get()
        };
        let was_written = self.regions.written().contains(region);
        let step = match was_written {
            true => self.restore(place, work.extent(), is_wanted).await?,
            false => self.zero(place, &work, is_wanted).await?,
        };
        if step == Step::Done && is_wanted() {
            self.members.caught_up(place, region);
            self.tell();
        }
        Ok(step)
    }

    /// Member `place` has caught up if it lacks nothing any more (RESYNC2).
    pub(in crate::array) async fn finish_catching_up(&self, place: usize) -> Result<(), IoError> {
        if self.restore_known(place).await? == Step::Stuck {
            return Ok(());
        }
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.publish(|| {
            let is_whole = self.members.lacks(place).is_empty() && self.members.are_as_called(); // ELECTION6
            if is_whole && self.members.state(place) == MemberState::CatchingUp {
                self.members.take_back(place);
                if !self.lacks_data_member() {
                    self.end_lost(); // ARRAYLOST1
                }
            }
        })
        .await
    }

    /// Writes what member `place` is to have of `extent`, computed from the others, while `is_wanted`.
    async fn restore(
        &self,
        place: usize,
        extent: Extent,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Step, IoError> {
        let mut rest = extent;
        // The length of a chunk is decided when it is its turn.
        while let Some(chunk) = self.chunk_of(rest) {
            rest = Extent::between(chunk.end(), rest.end());
            if self.restore_chunk(place, chunk, &is_wanted).await? == Step::Stuck {
                return Ok(Step::Stuck);
            }
        }
        Ok(Step::Done)
    }

    /// The chunk at the beginning of `rest`, if there is anything left: whole blocks.
    fn chunk_of(&self, rest: Extent) -> Option<Extent> {
        let length = match self.pace.is_busy() {
            _ if !self.heeds_clients() => rest.length,
            true => CHUNK_BUSY,
            false => CHUNK * self.spec.layout.data_members(),
        };
        let length = length.max(self.spec.layout.block_size()).min(rest.length);
        assert!(rest.is_aligned(self.spec.layout.block_size()), "GEOMETRY2: {rest:?}");
        (length > 0).then(|| Extent::new(rest.offset, length))
    }

    /// Waits for a moment in which no member has a request, while clients are served.
    async fn await_gap(&self, chunk: Extent) {
        if self.heeds_clients() {
            self.pace.gap(&self.options.clock, chunk.length, self.members.rest()).await;
        }
    }

    /// Always, but for a fault for tests, which is to meet as many of them as it can.
    fn heeds_clients(&self) -> bool {
        !self.has_bug(InjectedBug::ResyncBesideWriters)
    }

    /// As [`Array::restore`], of one chunk.
    async fn restore_chunk(
        &self,
        place: usize,
        chunk: Extent,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Step, IoError> {
        let (clock, requests) = (&self.options.clock, &self.counters.requests);
        self.pace.keep(clock, requests, chunk.length, &is_wanted).await;
        self.await_gap(chunk).await;
        let _alone = self.lock_alone(chunk).await;
        let inside = self.gate.enter().await;
        if !is_wanted() {
            return Ok(Step::Stuck);
        }
        let Some(run) = self.run_of(place, chunk).await else {
            drop(inside);
            self.reconfigure().await?;
            return Ok(Step::Stuck);
        };
        let at = self.members.on_device(self.spec.layout.on_members(chunk));
        self.await_gap(chunk).await; // What was read meanwhile is held alone.
        let device = self.members.device(place);
        let written = device.write(at, run, Durability::Volatile);
        self.change_member(place, written, inside).await
    }

    /// Zeroes what member `place` has of a region in which nothing was ever written.
    async fn zero(
        &self,
        place: usize,
        work: &RegionWork,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Step, IoError> {
        let _alone = self.lock_alone(work.extent()).await;
        let inside = self.gate.enter().await;
        if !is_wanted() || self.regions.written().contains(work.region()) {
            return Ok(Step::Stuck);
        }
        let run = self.spec.layout.on_members(work.extent());
        let zeros = Extent::new(self.members.on_device(run), run.length);
        let device = self.members.device(place);
        let zeroed = device.zero(zeros, ZeroOptions::default());
        self.change_member(place, zeroed, inside).await
    }

    /// Waits for a change of member `place` that is made `inside` the gate; the member leaves if it fails.
    pub(in crate::array) async fn change_member(
        &self,
        place: usize,
        change: impl Future<Output = Outcome>,
        inside: TrackerGuard,
    ) -> Result<Step, IoError> {
        if let Err(error) = change.await {
            self.count_error(place, error);
            self.members.leave([place]);
        }
        drop(inside);
        if self.members.is_leaving() {
            self.reconfigure().await?;
            return Ok(Step::Stuck);
        }
        Ok(Step::Done)
    }

    /// What member `place` is to have of `chunk`, computed from the others; none if they cannot be read. What is computed from
    /// something wrong will not fit its checksum.
    async fn run_of(&self, place: usize, chunk: Extent) -> Option<Bytes> {
        self.read_pages(chunk).await;
        let run = match self.spec.layout {
            ArrayLayout::Mirror { .. } => self.copy_of(place, chunk).await?,
            ArrayLayout::Ddraid { .. } => self.compute(place, chunk).await?,
        };
        if let Some(checksums) = &self.checksums {
            checksums.lag(place, chunk);
        }
        Some(run.freeze())
    }

    /// What member `place` of ddraid has of `chunk`, computed from all others. What they hold is authoritative where it is made equal; elsewhere it
    /// is compared with their checksums.
    async fn compute(&self, place: usize, chunk: Extent) -> Option<Buffer> {
        let others: Vec<usize> = (0..self.members.count()).filter(|other| *other != place).collect();
        if !others.iter().all(|other| self.members.is_in_sync(*other)) {
            return None;
        }
        let runs = self.read_members(chunk, &others).await.ok()?;
        let run = combine::xor_all(&runs.iter().map(|run| &run[..]).collect::<Vec<_>>(), &self.options.arena);
        self.read_pages(chunk).await;
        let Some(checksums) = self.checked(chunk) else {
            let all = others.into_iter().zip(&runs).chain([(place, &run)]);
            self.take_as_it_is(chunk, &all.collect::<Vec<_>>());
            return Some(run);
        };
        let size = checksums.fragment_size();
        for (index, (_, block)) in chunk.pieces(checksums.block_size()).enumerate() {
            let range = index * size..(index + 1) * size;
            let (computed, expected) = (&run[range.clone()], checksums.expected(place, block));
            let held = others.iter().zip(&runs).map(|(other, run)| (*other, &run[range.clone()]));
            let sources = held.clone().map(|(other, held)| (checksums.expected(other, block), held));
            let fit = sources.clone().all(|(expected, held)| expected.allows(held));
            let are_known = !{ sources }.any(|(expected, _)| expected == Expected::Unknown);
            let is_right = fit && (are_known || expected.allows(computed));
            if !is_right {
                if expected == Expected::Unknown {
                    checksums.refuse(place, block, computed);
                }
                continue;
            }
            for (other, held) in held {
                checksums.learn(other, block, held); // They fit each other from now on, as after a crash with all members (PAGES2).
            }
            if expected != Expected::Is(fragment_checksum(computed)) {
                checksums.set(place, block, computed);
            }
        }
        Some(run)
    }

    /// `chunk` as the first member in sync other than `place` has it whose copy fits its checksums, if there is one; one that cannot read
    /// it leaves if there is another one.
    async fn copy_of(&self, place: usize, chunk: Extent) -> Option<Buffer> {
        let in_sync = self.members.sources();
        let mut first = None;
        for source in in_sync.iter().filter(|source| **source != place) {
            let buffer = self.options.arena.take(usize::try_from(chunk.length).expect("a chunk is small"));
            match self.members.device(*source).read(self.members.on_device(chunk), buffer).await {
                Ok(buffer) if self.fit(chunk, &[(*source, &buffer[..])]).await => {
                    first = Some(buffer);
                    break;
                }
                Ok(buffer) => {
                    first.get_or_insert(buffer);
                }
                Err(error) => {
                    self.count_error(*source, error);
                    if in_sync.len() > 1 {
                        self.members.leave([*source]);
                    }
                    return None;
                }
            }
        }
        let copy = first?;
        match self.checked(chunk) {
            None => self.take_as_it_is(chunk, &[(0, &copy)]),
            Some(checksums) if in_sync.len() == 1 => drop(checksums.learn(place, chunk, &copy)), // As of ddraid.
            Some(_) => {}
        }
        Some(copy)
    }
}
