//! A client of a device that checks every answer: it tells an oracle what it does, and asks it about what it reads.

use crate::SECTOR_SIZE;
use crate::chance::count_overlap_on_this_thread;
use crate::oracle::{Oracle, WriteToken};
use crate::random::Random;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::cell::RefCell;
use std::rc::Rc;
use varve_block::{Arena, Device, Durability, Extent, IoError, Outcome, ZeroOptions, align_down};

/// An oracle that a test and its clients share.
pub type SharedOracle = Rc<RefCell<Oracle>>;

/// A checking client. Panics, with what was read and what would be allowed, when a read returns what it must not.
#[derive(Clone)]
pub struct Client {
    device: Device,
    arena: Arena,
    oracle: SharedOracle,
    /// The requests under way of this client and its copies.
    in_flight: Rc<RefCell<Vec<Extent>>>,
}

/// How often a random client does what, in parts of their sum; and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Durable writes.
    pub durable_writes: u64,
    /// Writes of zeros.
    pub zeros: u64,
    /// Discards.
    pub discards: u64,
    /// Flushes.
    pub flushes: u64,
    /// Longest request in bytes.
    pub length_max: u64,
    /// Requests under way at the same time, at most.
    pub depth: usize,
    /// Of a hundred requests, how many are aimed at what another one that is under way touches, if there is one.
    pub overlaps: u64,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            reads: 6,
            writes: 10,
            durable_writes: 2,
            zeros: 1,
            discards: 1,
            flushes: 3,
            length_max: 16 << 10,
            depth: 4,
            overlaps: 25,
        }
    }
}

impl Mix {
    fn pick(&self, random: &mut Random) -> Action {
        let weights = [
            (self.reads, Action::Read),
            (self.writes, Action::Write(Durability::Volatile)),
            (self.durable_writes, Action::Write(Durability::Durable)),
            (self.zeros, Action::Zero),
            (self.discards, Action::Discard),
            (self.flushes, Action::Flush),
        ];
        let mut number = random.below(weights.iter().map(|(weight, _)| weight).sum());
        for (weight, action) in weights {
            match number.checked_sub(weight) {
                Some(rest) => number = rest,
                None => return action,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }
}

#[derive(Clone, Copy)]
enum Action {
    Read,
    Write(Durability),
    Zero,
    Discard,
    Flush,
}

impl Client {
    /// A client of `device`, whose content `oracle` models.
    pub fn new(device: Device, arena: Arena, oracle: SharedOracle) -> Self {
        assert_eq!(device.shape().size, oracle.borrow().size(), "the oracle models this device");
        Self { device, arena, oracle, in_flight: Rc::default() }
    }

    /// Bytes of the device.
    pub fn size(&self) -> u64 {
        self.device.shape().size
    }

    /// Reads and checks.
    pub async fn read(&self, extent: Extent) -> Result<(), IoError> {
        let token = self.oracle.borrow_mut().read_started();
        let length = usize::try_from(extent.length).expect("a request in memory");
        let outcome = self.device.read(extent.offset, self.arena.take(length)).await;
        let mut oracle = self.oracle.borrow_mut();
        match outcome {
            Ok(buffer) => match oracle.check_read(token, extent.offset, &buffer) {
                Ok(()) => Ok(()),
                Err(mismatch) => panic!("{mismatch}"),
            },
            Err(error) => {
                oracle.read_failed(token);
                Err(error)
            }
        }
    }

    /// Writes a new version.
    pub async fn write(&self, extent: Extent, durability: Durability) -> Result<(), IoError> {
        let token = self.oracle.borrow_mut().write_started(extent);
        let data = Oracle::data(&self.arena, &token);
        let outcome = self.device.write(extent.offset, data, durability).await;
        self.finish(token, durability, outcome)
    }

    /// Writes zeros.
    pub async fn zero(&self, extent: Extent, options: ZeroOptions) -> Result<(), IoError> {
        let token = self.oracle.borrow_mut().zero_started(extent);
        let outcome = self.device.zero(extent, options).await;
        self.finish(token, options.durability, outcome)
    }

    /// Discards.
    pub async fn discard(&self, extent: Extent) -> Result<(), IoError> {
        let token = self.oracle.borrow_mut().discard_started(extent);
        let outcome = self.device.discard(extent).await;
        self.finish(token, Durability::Volatile, outcome)
    }

    /// Flushes.
    pub async fn flush(&self) -> Result<(), IoError> {
        let token = self.oracle.borrow_mut().flush_started();
        let outcome = self.device.flush().await;
        let mut oracle = self.oracle.borrow_mut();
        match outcome {
            Ok(_) => oracle.flush_finished(token),
            Err(_) => oracle.flush_failed(),
        }
        outcome.map(drop)
    }

    /// Reads and checks everything.
    pub async fn verify(&self) -> Result<(), IoError> {
        for (_, extent) in self.device.shape().extent().pieces(64 << 10) {
            self.read(extent).await?;
        }
        Ok(())
    }

    /// One random request by `mix`.
    pub async fn step(&self, mix: &Mix, random: &mut Random) -> Result<(), IoError> {
        let action = mix.pick(random);
        let extent = self.extent(mix, random);
        let _in_flight = InFlight::new(&self.in_flight, extent, matches!(action, Action::Flush));
        match action {
            Action::Read => self.read(extent).await,
            Action::Write(durability) => self.write(extent, durability).await,
            Action::Zero => self.zero(extent, ZeroOptions::default()).await,
            Action::Discard => self.discard(extent).await,
            Action::Flush => self.flush().await,
        }
    }

    /// `count` random requests by `mix`, several at a time. Stops at the first error: what is under way then is not awaited.
    pub async fn exercise(&self, mix: &Mix, count: u64, random: &mut Random) -> Result<(), IoError> {
        self.send(mix, count, random, false).await
    }

    /// Like [`Client::exercise`], by a client that stays: it awaits what is under way when an error comes.
    pub async fn exercise_to_the_end(
        &self,
        mix: &Mix,
        count: u64,
        random: &mut Random,
    ) -> Result<(), IoError> {
        self.send(mix, count, random, true).await
    }

    async fn send(&self, mix: &Mix, count: u64, random: &mut Random, stays: bool) -> Result<(), IoError> {
        let mut under_way = FuturesUnordered::new();
        let mut outcome = Ok(());
        for _ in 0..count {
            let mut choices = random.fork();
            under_way.push(async move { self.step(mix, &mut choices).await });
            if under_way.len() == mix.depth.max(1) {
                outcome = under_way.next().await.unwrap_or(Ok(()));
            }
            if outcome.is_err() {
                break;
            }
        }
        while (stays || outcome.is_ok())
            && let Some(result) = under_way.next().await
        {
            outcome = outcome.and(result);
        }
        outcome
    }

    fn finish(&self, token: WriteToken, durability: Durability, outcome: Outcome) -> Result<(), IoError> {
        let mut oracle = self.oracle.borrow_mut();
        match outcome {
            Ok(_) => oracle.write_finished(token, durability),
            Err(_) => oracle.write_failed(token),
        }
        outcome.map(drop)
    }

    /// Some blocks, more often few than many. Where any byte can be addressed they are sectors, in half of the cases in
    /// groups of 4 KiB.
    fn extent(&self, mix: &Mix, random: &mut Random) -> Extent {
        let shape = self.device.shape();
        let mut unit = u64::from(shape.block_size).max(SECTOR_SIZE as u64);
        if shape.block_size == 1 && shape.size.is_multiple_of(4096) && random.chance(1, 2) {
            unit = 4096;
        }
        let blocks_max = (mix.length_max.min(shape.size) / unit).max(1);
        let bound = random.between(1, blocks_max + 1);
        let length = random.between(1, bound + 1) * unit;
        let last = shape.size - length;
        let other = match &self.in_flight.borrow()[..] {
            [] => None,
            others => Some(*random.pick(others)),
        };
        let offset = match other.filter(|_| random.below(100) < mix.overlaps) {
            // From just before the other one, so that both have a byte in common, to its last block.
            Some(other) => random.between(other.offset.saturating_sub(length - unit), other.end()).min(last),
            None => random.below(last + 1),
        };
        Extent::new(align_down(offset, unit), length)
    }
}

/// A request under way.
struct InFlight {
    all: Rc<RefCell<Vec<Extent>>>,
    extent: Extent,
}

impl InFlight {
    fn new(all: &Rc<RefCell<Vec<Extent>>>, extent: Extent, is_flush: bool) -> Self {
        let extent = if is_flush { Extent::new(0, 0) } else { extent };
        if all.borrow().iter().any(|other| other.overlaps(extent)) {
            count_overlap_on_this_thread();
        }
        if !extent.is_empty() {
            all.borrow_mut().push(extent);
        }
        InFlight { all: Rc::clone(all), extent }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        if let Some(place) = all.iter().position(|extent| *extent == self.extent) {
            all.swap_remove(place);
        }
    }
}
