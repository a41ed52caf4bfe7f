//! A client of a device that checks every answer: it tells an oracle what it does, and asks it about what it reads.

use crate::SECTOR_SIZE;
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
        Self { device, arena, oracle }
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
        self.device.flush().await?;
        self.oracle.borrow_mut().flush_finished(token);
        Ok(())
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
        let extent = self.extent(mix.length_max, random);
        match action {
            Action::Read => self.read(extent).await,
            Action::Write(durability) => self.write(extent, durability).await,
            Action::Zero => self.zero(extent, ZeroOptions::default()).await,
            Action::Discard => self.discard(extent).await,
            Action::Flush => self.flush().await,
        }
    }

    /// `count` random requests by `mix`, several at a time. Stops at the first error.
    pub async fn exercise(&self, mix: &Mix, count: u64, random: &mut Random) -> Result<(), IoError> {
        let mut under_way = FuturesUnordered::new();
        for _ in 0..count {
            let mut choices = random.fork();
            under_way.push(async move { self.step(mix, &mut choices).await });
            if under_way.len() == mix.depth.max(1) {
                under_way.next().await.unwrap_or(Ok(()))?;
            }
        }
        while let Some(result) = under_way.next().await {
            result?;
        }
        Ok(())
    }

    fn finish(&self, token: WriteToken, durability: Durability, outcome: Outcome) -> Result<(), IoError> {
        let mut oracle = self.oracle.borrow_mut();
        match outcome {
            Ok(_) => oracle.write_finished(token, durability),
            Err(_) => oracle.write_failed(token),
        }
        outcome.map(drop)
    }

    /// Some blocks, more often few than many.
    fn extent(&self, length_max: u64, random: &mut Random) -> Extent {
        let shape = self.device.shape();
        let unit = u64::from(shape.block_size).max(SECTOR_SIZE as u64);
        let blocks_max = (length_max.min(shape.size) / unit).max(1);
        let bound = random.between(1, blocks_max + 1);
        let length = random.between(1, bound + 1) * unit;
        let offset = align_down(random.below(shape.size - length + 1), unit);
        Extent::new(offset, length)
    }
}
