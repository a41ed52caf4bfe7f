//! One boot of a host: clients at work, members that come and go, and what must be true at its end.

use super::host::{Host, Kind, Plan};
use super::log_disk::LogSlot;
use super::watch::Event;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Durability, Extent, IoError, KIB, MIB, ZeroOptions, timeout};
use varve_sim::{Client, Holder, Holds, Mix, Random};
use varve_target::array::{Array, ArrayStatus, MemberState, Rates, ScrubError, ScrubOptions};

/// Until then an array that is left alone is whole.
const WHOLE_WITHIN: Duration = Duration::from_secs(300);
/// Until then a request is answered, while enough members do.
const ANSWERED_WITHIN: Duration = Duration::from_secs(300);

/// So long clean regions are waited for.
const CLEAN_WITHIN: Duration = Duration::from_secs(5);

/// So many scrubs mend what has rotted.
const SCRUBS_MAX: usize = 8;

pub(crate) struct Boot<'a> {
    pub(super) host: &'a Host,
    pub(super) array: Rc<Array>,
    client: Client,
    plan: Plan,
    /// Whether members may fail in this boot, so that mirrors are not read where they differ.
    may_lose: bool,
}

impl<'a> Boot<'a> {
    pub(crate) async fn begin(host: &'a Host, mut plan: Plan, random: &mut Random) -> Boot<'a> {
        host.let_fail(&plan, false, random);
        let array = host.open(&plan).await;
        let working = Rc::clone(&array);
        host.world.spawner().spawn(async move { working.background().await });
        if host.spare() == 0 {
            plan.victims.retain(|place| host.slots.borrow()[*place].is_impaired);
            plan.failing = plan.victims.first().copied();
        }
        let may_lose = !plan.victims.is_empty();
        let boot = Boot { host, client: host.client(&array), array, plan, may_lose };
        boot.host.let_fail(&boot.plan, true, random);
        boot
    }

    /// Whether anything may be read.
    fn may_read(&self) -> bool {
        let is_equal = self.array.status().unsynced == 0;
        if !is_equal && self.host.is_mirror() && !self.may_lose {
            self.host.read_early.set(true);
        }
        is_equal || !self.host.is_mirror() || !self.may_lose
    }

    fn tolerate(&self, result: Option<Result<(), IoError>>) {
        self.tolerate_begun(result, false);
    }

    /// Like [`Self::tolerate`], for a request that began when members `differed` or not.
    fn tolerate_begun(&self, result: Option<Result<(), IoError>>, differed: bool) {
        let status = self.array.status();
        assert_eq!(status.failure, None, "fewer members are lost than may be: {status:?}, {:?}", self.plan);
        match result {
            None | Some(Ok(())) => {}
            // One part of a request may have been refused, and another one have hung until members were equal again.
            Some(Err(IoError::Corrupt)) if status.refused > 0 || status.unsynced > 0 => {
                self.host.counts.add(Event::Refused, 1);
            }
            // A member fails where members differ since a crash: no other one has what it held. A part of a request may fail so.
            Some(Err(IoError::Medium | IoError::Gone))
                if self.may_lose && (differed || status.unsynced > 0) => {}
            Some(Err(error)) => panic!("no such fault: {error}: {status:?}"),
        }
    }

    /// Random requests, several at a time.
    async fn exercise(&self, random: &mut Random) {
        let mix = Mix {
            depth: usize::try_from(random.between(1, 7)).expect("small"),
            length_max: *random.pick(&[4 * KIB, 8 * KIB, 24 * KIB, MIB]),
            zeros: random.below(3),
            discards: random.below(2),
            reads: if self.may_read() { 6 } else { 0 },
            ..Mix::default()
        };
        // What failed on one member of a mirror is not read before its members are equal, if the first one may be lost.
        let zeroes_fast = !self.host.is_mirror() || !self.may_lose || mix.reads == 0;
        let mut under_way = FuturesUnordered::new();
        for _ in 0..random.between(1, 16) {
            let (client, mut choices) = (self.client.clone(), random.fork());
            let clock = self.host.world.clock();
            under_way.push(async move {
                let differed = self.array.status().unsynced > 0;
                let request = async {
                    match zeroes_fast && choices.chance(1, 12) {
                        true => self.zero_fast(&mut choices).await,
                        false => client.step(&mix, &mut choices).await,
                    }
                };
                let answered = timeout(&clock, ANSWERED_WITHIN, request).await;
                (answered.expect("a request hangs although enough members answer"), differed)
            });
            if under_way.len() == mix.depth
                && let Some((result, differed)) = under_way.next().await
            {
                self.tolerate_begun(Some(result), differed);
            }
        }
        while let Some((result, differed)) = under_way.next().await {
            self.tolerate_begun(Some(result), differed);
        }
    }

    /// Zeros somewhere, which a member may refuse.
    async fn zero_fast(&self, random: &mut Random) -> Result<(), IoError> {
        let unit = self.host.spec.layout.block_size().max(4 * KIB);
        let blocks = self.client.size() / unit;
        let first = random.below(blocks);
        let extent = Extent::new(first * unit, (1 + random.below((blocks - first).min(4))) * unit);
        let fast = ZeroOptions { fast: true, ..ZeroOptions::default() };
        match self.client.zero(extent, fast).await {
            Err(IoError::Unsupported) => {
                self.host.counts.add(Event::ZeroRefused, 1);
                if self.array.status().unsynced > 0 {
                    // RESYNC4: until members are equal the loss of one costs these blocks, as a crash would.
                    let torn = extent.pieces(unit).map(|(_, block)| block.offset);
                    self.host.torn.borrow_mut().extend(torn);
                }
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Random requests while `work` goes on.
    async fn exercise_during(&self, random: &mut Random, work: impl Future<Output = ()>) {
        let is_done = Cell::new(false);
        let work = async {
            work.await;
            is_done.set(true);
        };
        let requests = async {
            while !is_done.get() {
                self.exercise(random).await;
            }
        };
        futures_util::join!(work, requests);
    }

    /// Something happens to the members.
    async fn manage(&self, random: &mut Random) {
        self.sleep(random).await;
        let (host, states) = (self.host, self.states());
        let Some(place) = (!self.plan.victims.is_empty()).then(|| *random.pick(&self.plan.victims)) else {
            return;
        };
        if states[place] == MemberState::Away {
            let holder = host.slots.borrow()[place].holder();
            if random.chance(1, 4) {
                host.replace(place, random);
            } else if host.kind == Kind::Copies && random.chance(1, 2) {
                self.exchange_for_copy(place);
            }
            self.attach(place).await;
            holder.iter().for_each(Holder::release);
        } else if self.plan.failing != Some(place) {
            return;
        } else if random.chance(1, 3) {
            host.counts.add(Event::Hung, 1);
            let which = *random.pick(&[Holds::Reads, Holds::VolatileWrites, Holds::All]);
            let count = *random.pick(&[1, 3, u32::MAX]);
            host.slots.borrow()[place].holder().iter().for_each(|holder| holder.hold_next(count, which));
        } else if random.chance(1, 2) {
            host.counts.add(Event::Vanished, 1);
            host.slots.borrow()[place].disk.vanish();
        } else {
            let failed = self.array.fail_member(place).await;
            host.counts.add(Event::Failed, u64::from(failed.is_ok()));
        }
        host.note_members();
    }

    /// Member `place`, which is away, is an older copy of itself from now on, if there is one.
    fn exchange_for_copy(&self, place: usize) {
        let is_slow = self.array.status().members[place].is_slow;
        if !is_slow && self.host.is_durably_away(place) {
            self.host.come_back_as_copy(place);
            self.host.slots.borrow_mut()[place].before = None;
        }
    }

    /// What is in `place` returns.
    async fn attach(&self, place: usize) {
        let host = self.host;
        let may_be_refused = host.kind == Kind::Faults || self.array.status().members[place].is_slow;
        host.counts.add(Event::Returned, 1);
        let attached = self.array.attach(place, host.returning(place)).await;
        assert!(attached.is_ok() || may_be_refused, "{attached:?}");
    }

    /// A member is copied while clients write, and becomes clean; one that may fail does, and comes back as the copy.
    async fn copy_and_clean(&self, random: &mut Random) {
        self.exercise(random).await;
        let failing: Vec<usize> = self.plan.failing.into_iter().collect();
        self.host.copy_member(&self.array.status(), &failing, random);
        self.exercise(random).await;
        self.tolerate(Some(self.client.flush().await));
        let clock = self.host.world.clock();
        let end = clock.now().after(CLEAN_WITHIN);
        while self.array.status().dirty > 0 && clock.now() < end {
            clock.sleep(Duration::from_millis(100)).await;
        }
        if let Some(place) = self.plan.failing
            && self.states()[place] == MemberState::InSync
            && self.array.fail_member(place).await.is_ok()
        {
            self.host.counts.add(Event::Failed, 1);
            let holder = self.host.slots.borrow()[place].holder();
            self.exchange_for_copy(place);
            self.attach(place).await;
            holder.iter().for_each(Holder::release);
        }
    }

    /// Compares all members while clients work. They fit where nothing has rotted.
    async fn scrub(&self, random: &mut Random) {
        let check_only = self.host.rotten.borrow().is_empty() && random.chance(1, 2);
        let options = ScrubOptions { rates: Rates::default(), check_only };
        let rotten = self.host.rotten.borrow().len() as u64;
        let (report, outcome) = self.array.scrub(options, |_| true).await;
        assert!(report.mismatches <= rotten, "{rotten} have rotted: {report:?}, {:?}", self.array.status());
        match outcome {
            Ok(()) if report.unread == 0 => {
                assert_eq!(report.done, report.total);
                self.host.note_mended();
            }
            Err(ScrubError::Degraded { .. }) => {
                assert_ne!(self.host.kind, Kind::Crashes, "all members are there");
            }
            outcome => self.tolerate(Some(outcome.map_err(|_| IoError::Medium))),
        }
        self.host.counts.add(Event::Scrubbed, u64::from(outcome.is_ok()));
    }

    /// Something rots, and a scrub finds it before it is read.
    async fn rot(&self, random: &mut Random) {
        let window = *random.pick(&self.host.windows);
        let unit = self.host.spec.layout.block_size().max(4 * KIB);
        let block = Extent::new(window.offset + random.below(window.length / unit) * unit, unit);
        for seen in self.host.seen(block) {
            self.tolerate(Some(self.client.write(seen, Durability::Durable).await));
        }
        self.tolerate(Some(self.client.flush().await));
        if self.host.spec.checksums {
            // After a crash members count as they are where something was being written.
            while self.array.status().dirty > 0 {
                self.host.world.clock().sleep(Duration::from_millis(100)).await;
            }
        }
        if self.array.status().unsynced == 0 {
            self.host.rot(block, random);
            if self.host.spec.checksums && random.chance(1, 2) {
                self.verify().await;
            }
        }
    }

    /// What has rotted is made equal: by one scrub, or the next ones if clients or a crash were in the way.
    async fn mend(&self, random: &mut Random) {
        for _ in 0..SCRUBS_MAX {
            if self.host.rotten.borrow().is_empty() {
                return;
            }
            self.scrub(random).await;
        }
        assert!(
            self.host.rotten.borrow().is_empty(),
            "what has rotted is never mended: {:?}",
            self.array.status()
        );
    }

    fn states(&self) -> Vec<MemberState> {
        self.array.status().members.iter().map(|member| member.state).collect()
    }

    async fn sleep(&self, random: &mut Random) {
        let longest = *random.pick(&[1, 10, 100, 5000]);
        self.host.world.clock().sleep(Duration::from_millis(random.below(longest))).await;
    }

    /// What a loss that was accepted has left is written anew, where it was accepted durably.
    async fn overwrite_lost(&self) -> Result<(), IoError> {
        let (lost, mut refused) = (self.host.lost.borrow().clone(), Ok(()));
        let mut rest = Vec::new();
        for extent in lost {
            match self.client.write(extent, Durability::Volatile).await {
                Ok(()) => {}
                Err(error) => {
                    refused = Err(error);
                    rest.push(extent);
                }
            }
        }
        self.client.flush().await?;
        self.host.lost.replace(rest);
        refused
    }

    /// Regions that cannot be read are accepted as lost, all or some: what was not being written is as it was.
    pub(crate) async fn accept_loss(&self, random: &mut Random) {
        let host = self.host;
        let unit = host.spec.layout.block_size();
        if self.array.lost_regions().is_empty() {
            return;
        }
        let chosen: BTreeSet<u64> = match random.chance(1, 2) {
            true => self.array.lost_regions().into_iter().collect(),
            false => self.array.lost_regions().into_iter().filter(|_| random.chance(1, 2)).collect(),
        };
        let blocks = |regions: &BTreeSet<u64>| -> Vec<Extent> {
            let seen = regions.iter().flat_map(|region| host.seen(Extent::new(region * MIB, MIB)));
            seen.flat_map(|seen| seen.pieces(unit).map(|(_, block)| block).collect::<Vec<_>>()).collect()
        };
        let is_torn = |block: &Extent| host.torn.borrow().contains(&block.offset);
        host.lost.borrow_mut().extend(blocks(&chosen).into_iter().filter(is_torn));
        let accepted = self.array.accept_loss(|region| chosen.contains(&region)).await;
        let accepted: BTreeSet<u64> = accepted.expect("enough members are there").into_iter().collect();
        assert!(accepted.is_subset(&chosen), "ACCEPT2: {accepted:?} of {chosen:?}");
        assert!(self.array.lost_regions().iter().all(|region| !accepted.contains(region)), "ACCEPT1");
        host.counts.add(Event::Accepted, u64::from(!accepted.is_empty()));
        host.counts.add(Event::AcceptedInPart, u64::from(self.array.status().is_content_lost));
        for block in blocks(&accepted).into_iter().filter(|block| !is_torn(block)) {
            self.tolerate(Some(self.client.read(block).await));
        }
        self.tolerate(Some(self.overwrite_lost().await));
    }

    /// What is done before anything is read.
    pub(crate) async fn prepare(&self, random: &mut Random) -> bool {
        if self.overwrite_lost().await.is_ok() {
            self.mend(random).await;
            return true;
        }
        assert!(self.array.status().is_content_lost, "it can be written");
        false
    }

    /// Reads all that may be read.
    pub(crate) async fn look(&self) {
        if self.may_read() {
            self.verify().await;
        }
    }

    pub(crate) async fn round(&self, random: &mut Random) {
        let slow =
            |array: &Array| array.status().members.iter().filter(|member| member.is_slow).count() as u64;
        let slow_before = slow(&self.array);
        let mut choices = [random.fork(), random.fork()];
        let [first, second] = &mut choices;
        match random.below(9) {
            0 | 7 if self.host.kind == Kind::Copies => self.copy_and_clean(first).await,
            0 if self.host.kind == Kind::Crashes => self.exercise_during(first, self.scrub(second)).await,
            0 => self.sleep(first).await,
            1..4 => self.exercise(first).await,
            4..7 => {
                let grows = random.chance(1, 4);
                let mut third = self.host.log.as_ref().map(|_| random.fork());
                let grow = async {
                    if grows {
                        self.host.grow(&self.array).await;
                    }
                };
                let log = async {
                    if let Some(third) = &mut third {
                        self.manage_log(third).await;
                    }
                };
                futures_util::join!(self.exercise(first), self.manage(second), grow, log);
            }
            7 if self.host.kind == Kind::Crashes => {
                self.rot(first).await;
                self.mend(second).await;
            }
            7 => self.exercise_during(first, self.scrub(second)).await,
            _ if self.array.status().is_content_lost && random.chance(1, 2) => {
                self.accept_loss(random).await;
            }
            _ => self.look().await,
        }
        self.host.copy_member(&self.array.status(), &self.plan.victims, first);
        self.nobody_is_blamed();
        self.host.counts.add(Event::Slow, slow(&self.array).saturating_sub(slow_before));
        self.host.note_members();
    }

    async fn verify(&self) {
        for (_, piece) in Extent::new(0, self.client.size()).pieces(16 * KIB) {
            self.tolerate(Some(self.client.read(piece).await));
        }
    }

    /// Nothing has rotted, and no member is said to have.
    fn nobody_is_blamed(&self) {
        let status = self.array.status();
        let is_blamed = status.mismatches > 0 || status.members.iter().any(|member| member.wrong > 0);
        assert!(self.host.has_rotted.get() || !is_blamed, "{status:?}");
    }

    pub(crate) async fn close(&self) {
        self.host.slots.borrow().iter().for_each(|slot| slot.release());
        self.host.log.iter().for_each(LogSlot::release);
        let closed = self.array.close().await;
        assert!(closed.is_ok(), "{closed:?}");
        self.host.is_closed.set(true);
        let status = self.array.status();
        assert!(status.dirty == status.unsynced, "nobody writes, and all is flushed: {status:?}");
    }

    /// No more faults come: the array becomes whole, and holds what it must.
    pub(crate) async fn recover(&self, random: &mut Random) {
        let clock = self.host.world.clock();
        let end = clock.now().after(WHOLE_WITHIN);
        self.recover_log().await;
        for (place, state) in self.states().into_iter().enumerate() {
            if state == MemberState::Away {
                self.array.attach(place, self.host.returning(place)).await.expect("no faults");
            }
        }
        loop {
            let status = without_rate(self.array.status());
            if status.is_whole() && status.dirty == 0 {
                break;
            }
            assert!(clock.now() < end, "it should be whole by now: {status:?}");
            clock.sleep(Duration::from_secs(5)).await;
            // One that came back without its content knows no more than the others.
            if without_rate(self.array.status()) == status && status.is_content_lost {
                self.accept_loss(random).await;
            }
        }
        self.overwrite_lost().await.expect("no faults");
        self.mend(random).await;
        self.client.verify().await.expect("no faults");
        self.scrub(random).await;
        self.nobody_is_blamed();
        self.host.note_members();
        self.host.compare_members(&Default::default());
    }
}

/// `status` but for how fast the array works.
fn without_rate(status: ArrayStatus) -> ArrayStatus {
    ArrayStatus { rate: None, ..status }
}
