//! Loads for a device, and what they cost: requests a second of virtual time, disk requests and bytes for each.

use crate::disk::DiskCounters;
use crate::model_disk::ModelDisk;
use crate::random::Random;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;
use varve_block::{Arena, Clock, Device, Durability, IoError};

/// Where the requests of a load go. No two of them touch the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// One after the other, from the start on.
    Sequential,
    /// Each into a unit of `unit` bytes of its own, at a random place in it, the units in random order. With a unit
    /// of one chunk every write is the first touch of its chunk.
    Random {
        /// Bytes, a multiple of the request's.
        unit: u64,
    },
}

/// What the requests of a load do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// They read.
    Read,
    /// They write.
    Write,
    /// They write, each followed by a flush.
    WriteAndFlush,
}

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// What the requests do.
    pub direction: Direction,
    /// Where they go.
    pub order: Order,
    /// Bytes of each.
    pub request_bytes: u64,
    /// How many are under way at the same time.
    pub depth: usize,
    /// How many there are; as many as fit if that is fewer.
    pub count: u64,
}

impl Load {
    /// Writes of 1 MiB in sequence, one at a time.
    pub const fn sequential_1m(count: u64) -> Self {
        let (direction, order) = (Direction::Write, Order::Sequential);
        Self { direction, order, request_bytes: 1 << 20, depth: 1, count }
    }

    /// Writes of 4 KiB, eight at a time, each the only one in its unit of `unit` bytes.
    pub const fn random_4k(unit: u64, count: u64) -> Self {
        let (direction, order) = (Direction::Write, Order::Random { unit });
        Self { direction, order, request_bytes: 4 << 10, depth: 8, count }
    }

    /// Writes of 64 KiB, eight at a time, each the only one in its unit of `unit` bytes.
    pub const fn random_64k(unit: u64, count: u64) -> Self {
        let (direction, order) = (Direction::Write, Order::Random { unit });
        Self { direction, order, request_bytes: 64 << 10, depth: 8, count }
    }

    /// This load with reads.
    pub const fn reading(self) -> Self {
        Self { direction: Direction::Read, ..self }
    }

    /// This load with a flush after each write.
    pub const fn flushing(self) -> Self {
        Self { direction: Direction::WriteAndFlush, ..self }
    }

    /// The first bytes of the requests, on a device of `size` bytes.
    fn offsets(&self, size: u64, random: &mut Random) -> Vec<u64> {
        let unit = match self.order {
            Order::Sequential => self.request_bytes,
            Order::Random { unit } => unit,
        };
        let places = unit / self.request_bytes;
        assert!(places > 0, "a request fits in its unit");
        let mut units: Vec<u64> = (0..size / unit).collect();
        if self.order != Order::Sequential {
            random.shuffle(&mut units);
        }
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let place = |unit_index| unit_index * unit + random.below(places) * self.request_bytes;
        units.into_iter().take(count).map(place).collect()
    }
}

/// What a load did, in virtual time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Requests done.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time from the first submission to the last answer.
    pub time: Duration,
}

impl Measured {
    /// Requests a second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.time.as_secs_f64()
    }

    /// Bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64()
    }

    /// Throughput in units of `other`'s.
    pub fn ratio_to(&self, other: &Measured) -> f64 {
        self.bytes_per_second() / other.bytes_per_second()
    }
}

/// Runs `load` on `device`. The answer depends on the device, the clock's world and `random` alone.
pub async fn measure(
    device: &Device,
    clock: &Clock,
    arena: &Arena,
    load: &Load,
    random: &mut Random,
) -> Result<Measured, IoError> {
    let offsets = load.offsets(device.shape().size, random);
    let (requests, start) = (offsets.len() as u64, clock.now());
    let mut under_way = FuturesUnordered::new();
    for offset in offsets {
        under_way.push(request(device, arena, load, offset));
        if under_way.len() == load.depth.max(1) {
            under_way.next().await.unwrap_or(Ok(()))?;
        }
    }
    while let Some(result) = under_way.next().await {
        result?;
    }
    let time = clock.now().since(start);
    Ok(Measured { requests, bytes: requests * load.request_bytes, time })
}

async fn request(device: &Device, arena: &Arena, load: &Load, offset: u64) -> Result<(), IoError> {
    let length = usize::try_from(load.request_bytes).expect("a request in memory");
    match load.direction {
        Direction::Read => {
            device.read(offset, arena.take(length)).await?;
        }
        Direction::Write | Direction::WriteAndFlush => {
            let mut data = arena.take(length);
            data.fill(0x5a);
            device.write(offset, data.freeze(), Durability::Volatile).await?;
        }
    }
    if load.direction == Direction::WriteAndFlush {
        device.flush().await?;
    }
    Ok(())
}

/// What a load cost the disk below it, for each of the load's requests and bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Amplification {
    /// Disk requests for each request.
    pub requests: f64,
    /// Pieces of at most 64 KiB that the disk served for each request; its time is 2 ms for each.
    pub pieces: f64,
    /// Bytes read from the disk for each byte.
    pub bytes_read: f64,
    /// Bytes written to the disk for each byte.
    pub bytes_written: f64,
    /// Flushes for each request.
    pub flushes: f64,
}

/// A mark in the life of a model disk, to count from.
#[derive(Clone, Copy, Debug)]
pub struct CostMeter {
    counters: DiskCounters,
    pieces: u64,
}

impl CostMeter {
    /// Counting starts now.
    pub fn start(disk: &ModelDisk) -> Self {
        Self { counters: disk.counters(), pieces: disk.pieces() }
    }

    /// What `measured` has cost since the start.
    pub fn cost(&self, disk: &ModelDisk, measured: &Measured) -> Amplification {
        let counters = disk.counters().since(&self.counters);
        let (requests, bytes) = (measured.requests as f64, measured.bytes as f64);
        Amplification {
            requests: counters.requests() as f64 / requests,
            pieces: (disk.pieces() - self.pieces) as f64 / requests,
            bytes_read: counters.bytes_read as f64 / bytes,
            bytes_written: counters.bytes_written as f64 / bytes,
            flushes: counters.flushes as f64 / requests,
        }
    }
}
