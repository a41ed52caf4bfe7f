//! Members made equal after a crash, and caught up after an absence.
//!
//! Invariants: ARRAYIO4 and ARRAYIO5 of the module, and
//! - RESYNC1. After a crash the data of ddraid counts and parity is computed; of a mirror the first member in sync counts.
//! - RESYNC2. A member is back in sync when it lacks nothing, has flushed, and a superblock that says so is durable.
//! - RESYNC3. A member that leaves while it is caught up in a region is caught up in all of it when it is back.

use super::election::lacks_only_missed;
use super::recover::{clear_slot, read_superblock, unfit};
use super::{Array, ArrayError, ArrayLayout, InjectedBug, Member, Uuid, combine};
use varve_block::{
    Buffer, Bytes, Device, Durability, Extent, IoError, KIB, LockMode, Outcome, TrackerGuard, ZeroOptions,
};
use varve_format::array::{MemberState, SLOT_SIZE};

/// Bytes of the array that are made equal while their writers wait.
const CHUNK: u64 = 256 * KIB;

/// How work on a region ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
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
        let before = self.members.entries()[place]; // Nobody else takes the place meanwhile.
        let is_known = own.is_some_and(|own| {
            own.array == self.spec.id
                && own.place as usize == place
                && before.id == member.id
                && lacks_only_missed(own.number, before.away_since)
        });
        if !is_known {
            // What was here before, of this array or of another one, must not count beside the superblock that comes.
            for slot in [0, SLOT_SIZE] {
                clear_slot(&device, slot, &self.options.arena).await?;
            }
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

    /// Regions that cannot be known are read as the members that are here have them. What was written there when the power failed
    /// may be lost, and blocks beside it in the same block of the array.
    pub async fn accept_loss(&self) -> Result<(), ArrayError> {
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.publish(|| {
            let unsynced = self.regions.unsynced().clone();
            for place in (0..self.members.count()).filter(|place| !self.members.is_in_sync(*place)) {
                unsynced.iter().for_each(|region| self.members.lack(place, region));
            }
            if self.lacks_data_member() {
                self.regions.accept_all();
            }
        })
        .await?;
        Ok(())
    }

    /// Makes `region` equal on all members in sync (RESYNC1).
    pub(super) async fn resync(&self, region: u64) -> Result<Step, IoError> {
        let in_sync = self.members.in_state(MemberState::InSync);
        assert!(!in_sync.is_empty(), "RESYNC1: a member counts");
        let targets = match self.spec.layout {
            ArrayLayout::Mirror { .. } => &in_sync[1..],
            ArrayLayout::Ddraid { .. } => &in_sync[in_sync.len() - 1..],
        };
        let is_wanted = || {
            let is_as_before = self.members.in_state(MemberState::InSync) == in_sync;
            is_as_before && !self.lacks_data_member() && self.regions.unsynced().contains(region)
        };
        for place in targets {
            if self.restore(*place, region, is_wanted).await? == Step::Stuck {
                return Ok(Step::Stuck);
            }
        }
        let _alone = self.lock_alone(self.regions.extent(region, self.size())).await;
        let _inside = self.gate.enter().await;
        if is_wanted() {
            self.regions.resynced(region, self.options.clock.now());
            self.tell();
        }
        Ok(Step::Done)
    }

    /// Writes to member `place`, which is catching up, what it lacks of `region`.
    pub(super) async fn catch_up(&self, place: usize, region: u64) -> Result<Step, IoError> {
        assert!(!self.members.is_in_sync(place), "RESYNC2: member {place} is in sync");
        let away_since = || self.members.entries()[place].away_since;
        let before = away_since();
        let is_wanted = || {
            let is_known = !matches!(self.spec.layout, ArrayLayout::Ddraid { .. })
                || !self.regions.unsynced().contains(region);
            // RESYNC3
            is_known && self.members.state(place) == MemberState::CatchingUp && away_since() == before
        };
        let was_written = self.regions.written().contains(region);
        let step = match was_written {
            true => self.restore(place, region, is_wanted).await?,
            false => self.zero(place, region, is_wanted).await?,
        };
        if step == Step::Done && is_wanted() {
            self.members.caught_up(place, region);
            self.tell();
        }
        Ok(step)
    }

    /// Member `place` has caught up if it lacks nothing any more (RESYNC2).
    pub(super) async fn finish_catching_up(&self, place: usize) -> Result<(), IoError> {
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.publish(|| {
            let is_whole = self.members.lacks(place).is_empty();
            if is_whole && self.members.state(place) == MemberState::CatchingUp {
                self.members.take_back(place);
            }
        })
        .await
    }

    /// Writes what member `place` is to have of `region`, computed from the others, while `is_wanted`.
    async fn restore(
        &self,
        place: usize,
        region: u64,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Step, IoError> {
        for (_, chunk) in self.regions.extent(region, self.size()).pieces(CHUNK) {
            let is_wanted_still = || is_wanted() && !self.is_closed.get();
            let (clock, requests) = (&self.options.clock, &self.counters.requests);
            self.pace.keep(clock, requests, chunk.length, is_wanted_still).await;
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
            let device = self.members.device(place);
            let written = device.write(at, run, Durability::Volatile);
            if self.change_member(place, written, inside).await? == Step::Stuck {
                return Ok(Step::Stuck);
            }
        }
        Ok(Step::Done)
    }

    /// Zeroes what member `place` has of `region`, in which nothing was ever written.
    async fn zero(&self, place: usize, region: u64, is_wanted: impl Fn() -> bool) -> Result<Step, IoError> {
        let extent = self.regions.extent(region, self.size());
        let _alone = self.lock_alone(extent).await;
        let inside = self.gate.enter().await;
        if !is_wanted() || self.regions.written().contains(region) {
            return Ok(Step::Stuck);
        }
        let run = self.spec.layout.on_members(extent);
        let zeros = Extent::new(self.members.on_device(run), run.length);
        let device = self.members.device(place);
        let zeroed = device.zero(zeros, ZeroOptions::default());
        self.change_member(place, zeroed, inside).await
    }

    /// Waits for a change of member `place` that is made `inside` the gate; the member leaves if it fails.
    async fn change_member(
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

    /// What member `place` is to have of `chunk`, computed from the others; none if they cannot be read.
    async fn run_of(&self, place: usize, chunk: Extent) -> Option<Bytes> {
        let run = match self.spec.layout {
            ArrayLayout::Mirror { .. } => self.copy_of(place, chunk).await?,
            ArrayLayout::Ddraid { .. } => {
                let others: Vec<usize> = (0..self.members.count()).filter(|other| *other != place).collect();
                if !others.iter().all(|other| self.members.is_in_sync(*other)) {
                    return None;
                }
                let runs = self.read_members(chunk, &others).await.ok()?;
                combine::xor_all(&runs.iter().map(|run| &run[..]).collect::<Vec<_>>(), &self.options.arena)
            }
        };
        Some(run.freeze())
    }

    /// `chunk` as the first member in sync other than `place` has it; one that cannot read it leaves if there is another one.
    async fn copy_of(&self, place: usize, chunk: Extent) -> Option<Buffer> {
        let in_sync = self.members.in_state(MemberState::InSync);
        let source = *in_sync.iter().find(|source| **source != place)?;
        let buffer = self.options.arena.take(usize::try_from(chunk.length).expect("a chunk is small"));
        match self.members.device(source).read(self.members.on_device(chunk), buffer).await {
            Ok(buffer) => Some(buffer),
            Err(error) => {
                self.count_error(source, error);
                if in_sync.len() > 1 {
                    self.members.leave([source]);
                }
                None
            }
        }
    }
}
